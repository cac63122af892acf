"""Tile sizes by measuring: each kernel is built with several, and the fastest is remembered on disk
for this GPU.

In:  a `TritonSource`, and the buffers it will run on.
Out: tile sizes and warps, and an event that says what each of the others took.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py` (`CachingAutotuner`,
`coordinate_descent_tuner.py`).
"""

import functools
import importlib
import statistics
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from course_lib import build_cache, events
from course_lib.codegen.tilings import Choice, ProductTiling
from course_lib.codegen.triton import TritonSource
from course_lib.lowering.ir import Buffer

Clock = Callable[[Callable[..., Any], Sequence[torch.Tensor]], float]
"""Measures how long a call with these tensors takes, in seconds."""

MOST_MEMORY = 1.1
"""The most memory that a choice may need, in terms of what is needed without measuring."""

MOST_WARPS = 32
"""A GPU starts no more warps together (1024 threads)."""

RUNS = 10
"""How often a whole program is run to be measured."""
WARM_UP = 2
"""How often it runs before that: these runs compile, and find their memory."""


def candidates(source: TritonSource) -> Sequence[Choice]:
    """What is tried, the usual choice first: tiles a half to four times as large, with fewer and
    more warps."""
    tiling = source.tiling
    # A product has a list of tiles of its own: depth and warps go together there
    if isinstance(tiling, ProductTiling):
        return tiling.tiles

    usual = tiling.meta(interpreted=False)
    changeable = size_to_change(source)
    usual_warps = tiling.warps(usual)
    fewer_warps = max(1, usual_warps // 2)
    more_warps = min(MOST_WARPS, usual_warps * 2)

    choices = []
    for factor in (1, 0.5, 2, 4):
        size = int(usual[changeable] * factor)
        # A tile that has one element cannot be halved.
        if size < 1:
            continue
        tile = usual | {changeable: size}
        for warps in (usual_warps, fewer_warps, more_warps):
            choices.append(Choice(tile, warps))
    return choices


def size_to_change(source: TritonSource) -> str:
    """Which size of a tile may differ: a tile that holds whole rows keeps its columns."""
    if not source.tiling.columns:
        return "BLOCK"
    if source.tiling.persistent:
        return "ROWS"
    return "COLUMNS"


def tuned(
    source: TritonSource, buffers: Sequence[Buffer], start: Callable[..., Callable[..., Any]]
) -> Choice:
    """The fastest candidate: measured now, or found on disk.

    `start(tile, warps)` gives the kernel as a callable."""
    tried: dict[str, Choice] = {}
    starts: dict[str, Callable[[], Callable[..., Any]]] = {}
    for choice in candidates(source):
        name = str(choice)
        tried[name] = choice
        starts[name] = functools.partial(start, *choice)

    # A kernel that checks its indices has one argument more: a number on the GPU, which it sets if
    # an index is out of range.
    key_buffers = [*buffers]
    if source.checked:
        key_buffers.append(Buffer("problem", torch.int64, (), (), buffers[0].device))
    best = fastest(source.name, source.source, key_buffers, starts)
    return tried[best]


def fastest(
    what: Any,
    source: str,
    buffers: Sequence[Buffer],
    tried: Mapping[str, Callable[[], Callable[..., Any]]],
    peaks: Callable[[], Mapping[str, int]] | None = None,
    clock: Clock | None = None,
) -> str:
    """The name of the candidate that takes the least time: measured now, or found on disk for this
    `source`.

    tried: name → what makes the candidate's callable. The first is the default, which would be
    taken without measuring. peaks: gives for each name the most bytes that the whole program holds
    with it; a candidate that needs much more than the default is not taken, however fast it is.
    clock: `seconds`, or another way to measure.
    """
    measured_by = clock or seconds

    def measure() -> list[float]:
        tensors = [example(buffer) for buffer in buffers]
        return [measured_by(make(), tensors) for make in tried.values()]

    key = key_of(source, [measured_by.__name__, *tried], buffers)
    times = build_cache.remember(key, measure)
    seconds_of = dict(zip(tried, times, strict=True))

    best = min(seconds_of, key=seconds_of.__getitem__)
    default = next(iter(seconds_of))

    # Does the fastest need much more memory than the default? `peaks` is slow: it schedules the
    # whole program for each candidate. So it is called only if the default is not the fastest.
    held: dict[str, int] = {}
    if peaks is not None and best != default:
        held = dict(peaks())
        allowed = [name for name in seconds_of if not is_hungry(name, held)]
        best = min(allowed, key=seconds_of.__getitem__)
    events.emit(events.Autotuned(what, best, seconds_of, held))
    return best


def is_hungry(name: str, peaks: Mapping[str, int]) -> bool:
    """Would the program need much more memory with this candidate than with the default, which
    comes first?"""
    default = next(iter(peaks.values()))
    return peaks[name] > MOST_MEMORY * default


def key_of(source: str, tried: list[str], buffers: Sequence[Buffer]) -> str:
    """The name on disk: all that the times depend on."""
    device = buffers[0].device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "none"
    triton = importlib.import_module("triton")
    shapes = repr([tried, buffers])
    return build_cache.key_of("fastest", source, shapes, gpu, torch.__version__, triton.__version__)


def seconds(run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> float:
    """The median of some runs, each with an empty cache; infinite for a kernel that the GPU
    refuses."""
    # Without a GPU, in Triton's interpreter, one run is enough: it is slower than any library.
    if tensors[0].device.type == "cpu":
        return timeit.timeit(lambda: run(*tensors), number=1)

    do_bench = importlib.import_module("triton.testing").do_bench
    refused = importlib.import_module("triton.runtime.errors").OutOfResources
    try:
        milliseconds = do_bench(lambda: run(*tensors), warmup=2, rep=10, return_mode="median")
    except refused:
        return float("inf")
    return float(milliseconds) / 1e3


def seconds_warm(run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> float:
    """The median of some runs, one right after the other: in the caches is what the program itself
    has left there."""
    if tensors[0].device.type == "cpu":
        return seconds(run, tensors)

    milliseconds = []
    for number in range(WARM_UP + RUNS):
        begin = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        begin.record()
        run(*tensors)
        end.record()
        end.synchronize()
        if number >= WARM_UP:
            milliseconds.append(begin.elapsed_time(end))
    return statistics.median(milliseconds) / 1e3


def example(buffer: Buffer) -> torch.Tensor:
    """A tensor for a buffer, full of numbers between 0 and 1.

    (Random ones would disturb the program's own.)"""
    # What is expanded has one element in memory.
    real = list(buffer.shape)
    for dim, stride in enumerate(buffer.stride):
        if stride == 0:
            real[dim] = 1

    if real:
        numbers = torch.linspace(0, 1, real[-1])
    else:
        numbers = torch.tensor(0.5)

    memory = torch.empty_strided(real, buffer.stride, dtype=buffer.dtype, device=buffer.device)
    return memory.copy_(numbers).expand(buffer.shape)
