"""Tile sizes by measuring: each kernel is built with several, and the fastest is remembered on disk for this GPU.

In:  a `TritonSource`, and the buffers it will run on.
Out: tile sizes and warps, and an event that says what each of the others took.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py` (`CachingAutotuner`, `coordinate_descent_tuner.py`).
"""

import functools
import importlib
import timeit
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from course_lib import build_cache, events
from course_lib.codegen.triton import ProductTiling, TritonSource
from course_lib.lowering.ir import Buffer


def candidates(source: TritonSource) -> Sequence[tuple[dict[str, int], int]]:
    """What is tried, the usual choice first: tiles a half to four times as large, with fewer and more warps."""
    tiling, usual = source.tiling, source.tiling.meta(False)
    if isinstance(tiling, ProductTiling):
        return tiling.tiles
    changeable = "BLOCK" if "BLOCK" in usual else "ROWS" if tiling.persistent else "COLUMNS"
    tiles = [
        usual | {changeable: size}
        for factor in (1, 0.5, 2, 4)
        if (size := int(usual[changeable] * factor)) >= 1
    ]
    warps = tiling.warps(usual)
    return [(tile, n) for tile in tiles for n in (warps, max(1, warps // 2), min(32, warps * 2))]


def tuned(
    source: TritonSource, buffers: Sequence[Buffer], start: Callable[..., Any]
) -> tuple[dict[str, int], int]:
    """The fastest candidate: measured now, or found on disk. `start(tile, warps)` gives the kernel as a callable."""
    name = lambda tile, warps: ", ".join(
        [*(f"{name}={size}" for name, size in tile.items()), f"{warps} warps"]
    )
    tried = {name(*each): each for each in candidates(source)}
    given = [
        *buffers,
        *([Buffer("problem", torch.int64, (), (), buffers[0].device)] if source.checked else []),
    ]
    starts = {name: functools.partial(start, *each) for name, each in tried.items()}
    return tried[fastest(source.name, source.source, given, starts)]


def fastest(
    what: Any, source: str, buffers: Sequence[Buffer], tried: Mapping[str, Callable[[], Any]]
) -> str:
    """The name of what takes the least time, measured now or on disk for this `source`: each of `tried` gives a callable."""
    gpu = (
        torch.cuda.get_device_name(buffers[0].device)
        if buffers[0].device.type == "cuda"
        else "none"
    )
    versions = torch.__version__, importlib.import_module("triton").__version__
    key = build_cache.key_of("fastest", source, repr([list(tried), buffers]), gpu, *versions)
    measure = lambda tensors: [seconds(make(), tensors) for make in tried.values()]
    found = dict(
        zip(
            tried, build_cache.remember(key, lambda: measure([*map(example, buffers)])), strict=True
        )
    )
    best = min(found, key=found.__getitem__)
    events.emit(events.Autotuned(what, best, found))
    return best


def seconds(run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> float:
    """The median of some runs, with nothing of the one before left in the cache; infinite for what the GPU refuses."""
    do_bench = importlib.import_module("triton.testing").do_bench
    if tensors[0].device.type == "cpu":  # in the interpreter, where kernels are always slower
        return timeit.timeit(lambda: run(*tensors), number=1)
    try:
        return float(do_bench(lambda: run(*tensors), warmup=2, rep=10, return_mode="median")) / 1e3
    except importlib.import_module("triton.runtime.errors").OutOfResources:
        return float("inf")


def example(buffer: Buffer) -> torch.Tensor:
    """A tensor for a buffer, full of numbers between 0 and 1. (Random ones would disturb the program's own.)"""
    # not what is expanded
    real = [
        1 if stride == 0 else size for size, stride in zip(buffer.shape, buffer.stride, strict=True)
    ]
    empty = torch.empty_strided(real, buffer.stride, dtype=buffer.dtype, device=buffer.device)
    return empty.copy_(torch.linspace(0, 1, real[-1]) if real else torch.tensor(0.5)).expand(
        buffer.shape
    )
