"""How reductions become loops.

In:  calls of `sum`, `mean`, `var_mean`, `argmax`, ...
Out: `Reduction` nodes, each of which keeps some dimensions and combines over the others.

What has two parts (`mean` divides, `var` needs the mean first) becomes several nodes, and the scheduler puts them into one kernel
again: rows that are kept, columns that are reduced.

In PyTorch: `torch/_inductor/lowering.py`, `make_reduction` and `var_mean_helper_` (there with Welford's one-pass update).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from course_lib.lowering.formulas import NoLoopForm, Term
from course_lib.lowering.ir import Index, Size, View
from course_lib.lowering.lower import Layout, Lowering, TensorValue, element, lowers
from course_lib.lowering.operators import compute_dtype
from course_lib.lowering.ops import Handler

aten = torch.ops.aten
Dims = Sequence[int] | int | None


def dimensions(x: TensorValue, dims: Dims, empty_is_all: bool = True) -> list[int]:
    """The dimensions to reduce, from 0, in order. No dimension named means all of them."""
    rank = len(x.shape)
    dims = [dims] if isinstance(dims, int) else list(dims or [])
    if not dims and empty_is_all:
        return list(range(rank))
    return sorted({d % rank for d in dims}) if rank else []


def count(x: TensorValue, dims: Sequence[int]) -> Size:
    """How many elements become one."""
    return math.prod(x.shape[d] for d in dims)


def accumulator(dtype: torch.dtype, kind: str) -> torch.dtype:
    """Sums of float16 and bfloat16 gather in float32, sums of integers in int64."""
    if kind in ("sum", "prod") and not dtype.is_floating_point:
        return torch.int64
    return compute_dtype(dtype)


def reduce(
    low: Lowering, node: fx.Node, x: TensorValue, dims: Sequence[int], kind: str, like: Any, label: str = ""
) -> View:
    """`kind` over `dims` of `x`. Sums convert to the result's dtype before they add, as torch does."""
    if kind in ("any", "all"):
        first = accumulate = torch.bool
    elif kind.startswith("arg"):
        first = accumulate = compute_dtype(x.dtype)
    else:
        first, accumulate = like.dtype, accumulator(like.dtype, kind)
    if kind.startswith("arg") and all(x.shape[d] == 1 for d in dims):
        return low.in_memory(low.full(0, like))
    body = lambda ops, index: element(x, ops, index).to(first)
    return low.reduction(node, kind, body, x.shape, dims, accumulate, Layout.of(like), label)


@lowers(aten.sum.default, aten.sum.dim_IntList)
def sum_(
    low: Lowering, node: fx.Node, x: TensorValue, dims: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> View:
    return reduce(low, node, x, dimensions(x, dims), "sum", node.meta["val"])


@lowers(aten.prod.default, aten.prod.dim_int)
def prod(
    low: Lowering, node: fx.Node, x: TensorValue, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> View:
    return reduce(low, node, x, dimensions(x, dim), "prod", node.meta["val"])


@lowers(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default)
def extreme(low: Lowering, node: fx.Node, x: TensorValue, dims: Dims = None, keepdim: bool = False) -> View:
    kind = "max" if "max" in str(node.target) else "min"
    return reduce(low, node, x, dimensions(x, dims), kind, node.meta["val"])


@lowers(aten.max.dim, aten.min.dim)
def extreme_and_where(
    low: Lowering, node: fx.Node, x: TensorValue, dim: int, keepdim: bool = False
) -> tuple[View, View]:
    kind = "max" if node.target is aten.max.dim else "min"
    values, indices = node.meta["val"]
    dims = dimensions(x, dim)
    return (
        reduce(low, node, x, dims, kind, values, label=kind),
        reduce(low, node, x, dims, f"arg{kind}", indices, label=f"arg{kind}"),
    )


@lowers(aten.argmax.default, aten.argmin.default)
def where_extreme(low: Lowering, node: fx.Node, x: TensorValue, dim: int | None = None, keepdim: bool = False) -> View:
    kind = "argmax" if node.target is aten.argmax.default else "argmin"
    return reduce(low, node, x, dimensions(x, dim), kind, node.meta["val"])


@lowers(aten.any.default, aten.any.dim, aten.any.dims, aten.all.default, aten.all.dim, aten.all.dims)
def any_all(low: Lowering, node: fx.Node, x: TensorValue, dims: Dims = None, keepdim: bool = False) -> View:
    kind = "any" if "any" in str(node.target) else "all"
    if dims is not None and not isinstance(dims, int) and not dims:
        raise NoLoopForm("reducing no dimension at all runs as torch's own operator")
    return reduce(low, node, x, dimensions(x, dims), kind, node.meta["val"])


@lowers(aten.mean.default, aten.mean.dim)
def mean(
    low: Lowering, node: fx.Node, x: TensorValue, dims: Dims = None, keepdim: bool = False, *, dtype: Any = None
) -> View:
    fake = node.meta["val"]
    average = row_mean(low, node, x, dimensions(x, dims), compute_dtype(fake.dtype))
    return finish(low, node, average, fake, "mean")


def rows_of(x: TensorValue, dims: Sequence[int], dtype: torch.dtype) -> Layout:
    """For one value a row: the reduced dimensions keep size 1."""
    device = x.buffer.device if isinstance(x, View) else x.layout.device
    return Layout.rows(dtype, [1 if d in dims else size for d, size in enumerate(x.shape)], device)


def row_mean(low: Lowering, node: fx.Node, x: TensorValue, dims: Sequence[int], dtype: torch.dtype) -> View:
    """The mean over `dims`, which keep size 1."""
    layout, n = rows_of(x, dims, dtype), count(x, dims)
    total = low.reduction(
        node, "sum", lambda ops, index: element(x, ops, index).to(dtype), x.shape, dims, dtype, layout, "mean"
    )
    return low.loop(lambda ops, index: element(total, ops, index) / n, layout, (node,), "mean")


def finish(low: Lowering, node: fx.Node, row: View, like: Any, label: str, function: Any = None) -> View:
    """A row value in the shape and dtype of the result, perhaps through `function`."""
    layout = Layout.of(like)
    if function is None and Layout(row.dtype, row.shape, row.stride, layout.device) == layout:
        return row
    if like.ndim != len(row.shape):  # without keepdim
        dims = dimensions_dropped(node, len(row.shape))
        kept = [d for d in range(len(row.shape)) if d not in dims]
        row = View(row.buffer, tuple(row.shape[d] for d in kept), tuple(row.stride[d] for d in kept), row.offset)
    function = function or (lambda value: value)
    return low.pointwise(node, lambda ops, index: function(element(row, ops, index)), like=like, label=label)


def dimensions_dropped(node: fx.Node, rank: int) -> list[int]:
    dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    dims = [dims] if isinstance(dims, int) else list(dims or range(rank))
    return [d % rank for d in dims]


@lowers(aten.var.correction, aten.std.correction, aten.var_mean.correction, aten.std_mean.correction)
def var_mean(
    low: Lowering,
    node: fx.Node,
    x: TensorValue,
    dims: Dims = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """Two passes: the mean, then the squared distances from it. (One pass, E[x²] - E[x]², cancels where the mean is large.)"""
    both = isinstance(node.meta["val"], (tuple, list))
    like = node.meta["val"][0] if both else node.meta["val"]
    reduced = dimensions(x, dims)
    dtype = compute_dtype(like.dtype)
    average = row_mean(low, node, x, reduced, dtype)

    def squared_distance(ops: Handler, index: Index) -> Term:
        distance = element(x, ops, index).to(dtype) - element(average, ops, index)
        return distance * distance

    total = low.reduction(node, "sum", squared_distance, x.shape, reduced, dtype, rows_of(x, reduced, dtype), "var")
    n = count(x, reduced) - (1 if correction is None else correction)
    n = max(n, 0) if not hasattr(n, "free_symbols") else n
    is_std = "std" in str(node.target)
    spread = lambda value: (value / n).sqrt() if is_std else value / n
    first = finish(low, node, total, like, "std" if is_std else "var", spread)
    return (first, finish(low, node, average, node.meta["val"][1], "mean")) if both else first
