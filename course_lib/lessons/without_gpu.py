"""What a GPU would do, on a machine without one: CUDA graphs that are played by running again, and
the traffic of Triton kernels counted in the interpreter. For lesson 11 and its exercises; nothing
here is timed.

In PyTorch: `torch.cuda.graph`, and a profiler's memory counters.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from course_lib.runtime import cudagraphs
from course_lib.runtime.triton_runner import import_triton

Program = Callable[..., tuple[Any, ...]]


@contextlib.contextmanager
def imitated_cuda_graphs() -> Iterator[None]:
    """Programs that are compiled and called in here have CUDA graphs on the CPU:
    `mode="reduce-overhead"` does what it would do on a GPU, but saves no time."""
    # A GPU gives nobody else the memory of a recording: what is freed here could be anybody's next
    # tensor
    recordings = []

    def keeping(
        program: Program, arguments: Sequence[torch.Tensor]
    ) -> tuple[Callable[[], None], tuple[Any, ...]]:
        recording = capture(program, arguments)
        recordings.append(recording)
        return recording

    with (
        patch.object(cudagraphs, "capture", keeping),
        patch.object(cudagraphs, "stream_on", lambda device: (0, 0, 0)),
        patch.object(cudagraphs, "result_addresses", set()),
        patch.object(cudagraphs, "why_not", lambda graph: None),
        patch.object(torch.cuda, "is_current_stream_capturing", lambda: False),
    ):
        yield


def capture(
    program: Program, given: Sequence[torch.Tensor]
) -> tuple[Callable[[], None], tuple[Any, ...]]:
    """Imitates `cudagraphs.capture`: gives the results, and a function that computes them again in
    the same memory.

    That function reads the memory of `given` as it is then. Recording does not run the program: its
    writes to inputs are undone."""
    copies = [x.clone() for x in given]
    results = program(*given)
    for x, old in zip(given, copies, strict=True):
        if not torch.equal(x, old):
            x.copy_(old)

    # A CUDA graph keeps addresses, not tensors.
    places = [place(x) for x in given]

    def replay() -> None:
        inputs = [look() for look in places]
        for old, new in zip(results, program(*inputs), strict=True):
            if isinstance(old, torch.Tensor):
                old.copy_(new)

    return replay, results


def place(x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """How to see what stands at the address of `x`, without keeping it alive."""
    address, shape, stride, dtype = x.data_ptr(), x.shape, x.stride(), x.dtype
    if not x.numel():
        # There is nothing to see, but `frombuffer` wants at least one element.
        nothing = bytearray(dtype.itemsize)
        return lambda: torch.frombuffer(nothing, dtype=dtype).as_strided(shape, stride)

    # From the first to the last element, with all that lies between them.
    last = sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    memory = ctypes.c_uint8 * ((1 + last) * dtype.itemsize)

    def look() -> torch.Tensor:
        raw = memory.from_address(address)
        return torch.frombuffer(raw, dtype=dtype).as_strided(shape, stride)

    return look


@contextlib.contextmanager
def counted_traffic() -> Iterator[Counter[str]]:
    """Counts what Triton kernels do in the interpreter: "programs", and the bytes "read" and
    "written" (masked lanes not)."""
    import_triton()
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    counts: Counter[str] = Counter()
    load = Builder.create_masked_load
    store = Builder.create_masked_store
    start = Builder.set_grid_idx

    def counted_load(self: Any, pointers: Any, mask: Any, *rest: Any) -> Any:
        loaded = load(self, pointers, mask, *rest)
        counts["read"] += int(np.sum(mask.data)) * loaded.data.itemsize
        return loaded

    def counted_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        counts["written"] += int(np.sum(mask.data)) * value.data.itemsize
        return store(self, pointers, value, mask, *rest)

    def counted_start(self: Any, *index: int) -> Any:
        counts["programs"] += 1
        return start(self, *index)

    with (
        patch.object(Builder, "create_masked_load", counted_load),
        patch.object(Builder, "create_masked_store", counted_store),
        patch.object(Builder, "set_grid_idx", counted_start),
    ):
        yield counts


@contextlib.contextmanager
def garbage_in_masked_lanes() -> Iterator[None]:
    """A load without `other` gives NaN, or the largest integer, in its masked lanes, where the
    interpreter gives 0.

    On a GPU such a lane holds whatever was in its register (Triton's documentation of `tl.load`:
    undefined).
    """
    import_triton()
    from triton.runtime.interpreter import InterpreterBuilder as Builder
    from triton.runtime.interpreter import TensorHandle

    load = Builder.create_masked_load

    def undefined_load(self: Any, pointers: Any, mask: Any, other: Any, *rest: Any) -> Any:
        loaded = load(self, pointers, mask, other, *rest)
        if other is not None:
            return loaded
        numbers = loaded.data
        garbage = np.nan if np.issubdtype(numbers.dtype, np.floating) else most_of(numbers.dtype)
        return TensorHandle(np.where(mask.data, numbers, numbers.dtype.type(garbage)), loaded.dtype)

    with patch.object(Builder, "create_masked_load", undefined_load):
        yield


def most_of(dtype: np.dtype[Any]) -> Any:
    """The largest number of an integer dtype; True of bools."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max
