"""`tl.reduce` and `tl.associative_scan`, in the order in which a GPU combines.

In:  blocks and a function that combines two.
Out: blocks.
In Triton: `ReduceOps` and `ScanOps` of the interpreter, which go from left to right, one element at
a time.

The threads of a warp reduce by halves: 0 with 4, 1 with 5, 2 with 6, 3 with 7, then 0 with 2, 1
with 3, then 0 with 1. A scan adds what lies 1, 2, 4, ... places before. Longer blocks have parts
within each thread, where the GPU's order is another: then the last digits of a sum may differ.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from course_lib.simulator.mends.arithmetic import (
    READER_OF_DTYPE,
    Handle,
    handle_of,
    larger,
    numbers,
    smaller,
)
from course_lib.simulator.mends.table import mend, override

standard = tl.standard


def tensor(data: Any, dtype: Any) -> Any:
    """A block, or a scalar where no dimension is left."""
    if data.ndim:
        return tl.tensor(Handle(data, dtype), tl.block_type(dtype, list(data.shape)))
    return tl.tensor(Handle(data.reshape(1), dtype), dtype)


def combined(function: Any, first: list[Any], second: list[Any], dtypes: list[Any]) -> list[Any]:
    """`function` of two tuples of arrays."""
    pairs = [*zip(first, dtypes, strict=True), *zip(second, dtypes, strict=True)]
    result = function(*(tensor(data, dtype) for data, dtype in pairs))
    parts = result if isinstance(result, (tuple, tl.tuple)) else (result,)
    return [
        np.broadcast_to(part.handle.data, first[0].shape).astype(like.dtype, copy=False)
        for part, like in zip(parts, first, strict=True)
    ]


def split(data: Any, axis: int) -> tuple[Any, Any]:
    """The first and the second half."""
    half = data.shape[axis] // 2
    leading_axes = (slice(None),) * axis
    return data[(*leading_axes, slice(None, half))], data[(*leading_axes, slice(half, None))]


def halved(function: Any, arrays: list[Any], dtypes: list[Any], axis: int) -> list[Any]:
    """Combine the first half with the second, until one is left."""
    while arrays[0].shape[axis] > 1:
        halves = [split(data, axis) for data in arrays]
        arrays = combined(function, [a for a, _ in halves], [b for _, b in halves], dtypes)
    return [np.take(data, 0, axis) for data in arrays]


def added(values: Any, dtype: Any, axis: int) -> Any:
    """A sum of floats by halves, rounded to `dtype` each time. `values`: float32 for bfloat16."""
    while values.shape[axis] > 1:
        first, second = split(values, axis)
        values = np.add(first, second)
        if dtype in READER_OF_DTYPE:
            # NumPy has no such dtype: the sum is written in its bits, and read again.
            values = numbers(handle_of(values, dtype))
    return np.take(values, 0, axis)


def extreme(values: Any, axis: int, largest: bool) -> Any:
    """The largest or smallest number: NaN only where all are NaN; of zeros 0.0 is the larger."""
    if values.dtype.kind != "f":
        if largest:
            return np.max(values, axis)
        return np.min(values, axis)
    ignoring_nan: Any = np.fmax if largest else np.fmin
    result = ignoring_nan.reduce(values, axis)
    if not np.any(result == 0):
        return result
    choose = larger if largest else smaller
    while values.shape[axis] > 1:
        values = choose(*split(values, axis))
    return np.take(values, 0, axis)


def known_reduction(function: Any, inputs: list[Any], axis: int) -> list[Any] | None:
    """What NumPy does in one step, where the order does not matter; None for all else."""
    handle = inputs[0].handle
    values, dtype = numbers(handle), handle.dtype.scalar

    if function == standard._sum_combine and values.dtype.kind != "b":
        if values.dtype.kind == "f":
            result = added(values, dtype, axis)
        else:
            result = np.sum(values, axis, dtype=values.dtype)
        return [handle_of(np.asarray(result), dtype).data]

    for which, largest in ((standard._elementwise_max, True), (standard._elementwise_min, False)):
        if function == which:
            return [handle_of(np.asarray(extreme(values, axis, largest)), dtype).data]

    places = {
        standard._argmax_combine_tie_break_left: np.argmax,
        standard._argmin_combine_tie_break_left: np.argmin,
    }
    find = places.get(function)
    if find is None or len(inputs) != 2 or np.isnan(values).any():
        return None

    place = find(values, axis)
    picked = np.take_along_axis(handle.data, np.expand_dims(place, axis), axis).squeeze(axis)
    return [np.asarray(picked), np.asarray(place, np.int32)]


@mend(
    "reduce",
    "goes from left to right: other last digits, another NaN in `argmax`, another result of what is not commutative",
)
def reduce_by_halves() -> None:
    def apply_impl(self: Any, inputs: Any) -> Any:
        inputs, axis = list(inputs), self.axis
        shape = inputs[0].handle.data.shape

        # Without an axis all elements are one row.
        if axis is None:
            inputs = [tensor(x.handle.data.reshape(-1), x.dtype) for x in inputs]
            axis = 0
        axis %= len(inputs[0].handle.data.shape)

        # NumPy does the known ones in one step. Any other function combines half by half.
        dtypes = [x.dtype for x in inputs]
        results = known_reduction(self.combine_fn, inputs, axis)
        if results is None:
            arrays = [x.handle.data for x in inputs]
            results = halved(self.combine_fn, arrays, dtypes, axis)

        if self.keep_dims:
            shape_of_result = [1] * len(shape)
            if self.axis is not None:
                shape_of_result = [1 if n == axis else size for n, size in enumerate(shape)]
            results = [data.reshape(shape_of_result) for data in results]
        return [tensor(data, dtype) for data, dtype in zip(results, dtypes, strict=True)]

    override(interpreter.ReduceOps, apply_impl=apply_impl)


def shifted(data: Any, by: int, axis: int) -> Any:
    """Each element's neighbour `by` places before it (the first ones: their own)."""
    places = np.maximum(np.arange(data.shape[axis]) - by, 0)
    return np.take(data, places, axis)


def scanned(function: Any, arrays: list[Any], dtypes: list[Any], axis: int) -> list[Any]:
    """Combine each with what lies 1, 2, 4, ... places before."""
    length = arrays[0].shape[axis]
    for step in range(math.ceil(math.log2(length)) if length > 1 else 0):
        # After this step each element stands for the 2 ** (step + 1) that end with it.
        before = [shifted(data, 2**step, axis) for data in arrays]
        combined_with_before = combined(function, before, arrays, dtypes)

        # The first elements have nothing so far before them, and stay as they are.
        shape = [length if n == axis else 1 for n in range(arrays[0].ndim)]
        has_one = (np.arange(length) >= 2**step).reshape(shape)
        arrays = [
            np.where(has_one, new, old)
            for new, old in zip(combined_with_before, arrays, strict=True)
        ]
    return arrays


@mend("scan", "adds from left to right: the last digits of `cumsum` differ")
def scan_by_doubling() -> None:
    # For integers the order does not matter, so NumPy scans at once.
    whole: dict[Any, Any] = {standard._sum_combine: np.cumsum, standard._prod_combine: np.cumprod}

    def apply_impl(self: Any, inputs: Any) -> Any:
        arrays = [x.handle.data for x in inputs]
        dtypes = [x.dtype for x in inputs]
        axis = self.axis % arrays[0].ndim
        # A scan from the end is one from the start of the row turned round.
        if self.reverse:
            arrays = [np.flip(data, axis) for data in arrays]

        in_one_step = whole.get(self.combine_fn)
        if in_one_step and arrays[0].dtype.kind in "iu" and dtypes[0] not in READER_OF_DTYPE:
            arrays = [in_one_step(arrays[0], axis, dtype=arrays[0].dtype)]
        else:
            arrays = scanned(self.combine_fn, arrays, dtypes, axis)

        if self.reverse:
            arrays = [np.flip(data, axis) for data in arrays]
        return [tensor(data, dtype) for data, dtype in zip(arrays, dtypes, strict=True)]

    override(interpreter.ScanOps, apply_impl=apply_impl)
