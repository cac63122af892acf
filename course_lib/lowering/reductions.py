"""How reductions become loops.

In:  calls of `sum`, `mean`, `var_mean`, `argmax`, ...
Out: `Reduction` nodes, each of which keeps some dimensions and combines over the others.

What has two parts (`mean` divides, `var` needs the mean first) becomes several nodes that the scheduler makes one kernel again.
In PyTorch: `torch/_inductor/lowering.py`, `make_reduction` and `var_mean_helper_` (there with Welford's one-pass update).
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from course_lib.lowering.formulas import NoLoopForm, Term
from course_lib.lowering.indexing import contiguous
from course_lib.lowering.ir import Buffer, Index, Reduction, View
from course_lib.lowering.lower import Lowering, element, lowers
from course_lib.lowering.operators import compute_dtype, name_of
from course_lib.lowering.ops import Handler

aten = torch.ops.aten
Dims = Sequence[int] | int | None


def dimensions(x: View, dims: Dims) -> list[int]:
    """The dimensions to reduce, from 0, in order. No dimension named means all of them."""
    rank = len(x.shape)
    named = [dims] if isinstance(dims, int) else dims or range(rank)
    return sorted({d % rank for d in named}) if rank else []


def reduce(
    low: Lowering,
    node: fx.Node,
    x: View,
    dims: Sequence[int],
    kind: str,
    like: Any,
    label: str = "",
) -> View:
    """`kind` over `dims` of `x`. Sums first convert to the result's dtype; halves gather in float32, integers in int64."""
    if kind[-3:] in ("max", "min") and 0 in [x.shape[d] for d in dims]:
        raise NotImplementedError("of nothing there is no largest element, as eager says")
    first = (
        torch.bool if kind in ("any", "all") else x.dtype if kind.startswith("arg") else like.dtype
    )
    accumulate = compute_dtype(first)
    if kind in ("sum", "prod") and not first.is_floating_point:
        accumulate = torch.int64
    if kind.startswith("arg") and all(x.shape[d] == 1 for d in dims):
        return low.in_memory(low.full(0, like), node)
    body = lambda ops, index: element(x, ops, index).to(first)
    return low.reduction(node, kind, body, x, dims, accumulate, Buffer.like(like), label)


@lowers(aten.sum, aten.prod, aten.any, aten.all, aten.argmax, aten.argmin)
@lowers(aten.amax, aten.amin, aten.max.default, aten.min.default)
def one_reduction(
    low: Lowering, node: fx.Node, x: View, dims: Dims = None, keepdim: bool = False, **dtype: Any
) -> View:
    """Those whose name says it all. (What keepdim and dtype say can be seen in the node's value.)"""
    kind = {"amax": "max", "amin": "min"}.get(name_of(node), name_of(node))
    if kind.startswith("arg") and x.dtype == torch.bool:
        raise NoLoopForm("of bools there is no argmax in torch: its own operator says so")
    if kind in ("any", "all") and isinstance(dims, Sequence) and not dims:
        raise NoLoopForm("reducing no dimension at all runs as torch's own operator")
    result = reduce(low, node, x, dimensions(x, dims), kind, node.meta["val"])
    last = low.graph.nodes[-1] if low.graph.nodes else None
    if node.target in (aten.max.default, aten.min.default) and isinstance(last, Reduction):
        last.last_of_equals = True  # as in eager, wherever the number of elements is a power of two
    return result


@lowers(aten.max.dim, aten.min.dim)
def extreme_and_where(
    low: Lowering, node: fx.Node, x: View, dim: int, keepdim: bool = False
) -> tuple[View, View]:
    kind, dims = name_of(node), dimensions(x, dim)
    values, indices = node.meta["val"]
    return reduce(low, node, x, dims, kind, values, kind), reduce(
        low, node, x, dims, f"arg{kind}", indices, f"arg{kind}"
    )


@lowers(aten.mean)
def mean(
    low: Lowering, node: fx.Node, x: View, dims: Dims = None, keepdim: bool = False, **dtype: Any
) -> View:
    fake, reduced = node.meta["val"], dimensions(x, dims)
    return finish(
        low, node, row_mean(low, node, x, reduced, compute_dtype(fake.dtype)), reduced, fake, "mean"
    )


def row_mean(
    low: Lowering, node: fx.Node, x: View, dims: Sequence[int], dtype: torch.dtype
) -> View:
    """The mean over `dims`, which keep size 1."""
    shape = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
    layout, n = (
        Buffer("", dtype, shape, contiguous(shape), x.buffer.device),
        math.prod(x.shape[d] for d in dims),
    )
    total = low.reduction(
        node,
        "sum",
        lambda ops, index: element(x, ops, index).to(dtype),
        x,
        dims,
        dtype,
        layout,
        "mean",
    )
    return low.pointwise(node, lambda ops, index: element(total, ops, index) / n, layout, "mean")


def finish(
    low: Lowering,
    node: fx.Node,
    row: View,
    dims: Sequence[int],
    like: Any,
    label: str,
    function: Any = None,
) -> View:
    """A row value in the shape and dtype of the result, perhaps through `function`."""
    layout = Buffer.like(like)
    if function is None and replace(row.buffer, name="") == layout:
        return row
    if like.ndim != len(row.shape):  # without keepdim
        kept = [d for d in range(len(row.shape)) if d not in dims]
        row = replace(
            row, shape=tuple(row.shape[d] for d in kept), stride=tuple(row.stride[d] for d in kept)
        )
    function = function or (lambda value: value)
    return low.pointwise(node, lambda ops, index: function(element(row, ops, index)), layout, label)


@lowers(aten.var.correction, aten.var_mean.correction)
def var_mean(low: Lowering, node: fx.Node, x: View, dims: Dims = None, *, correction: float | None = None,
             keepdim: bool = False) -> Any:  # fmt: skip
    """Two passes: the mean, then the squared distances from it. (One pass, E[x²] - E[x]², cancels where the mean is large.)"""
    if not x.dtype.is_floating_point:
        raise NoLoopForm("of integers there is no variance in torch: its own operator says so")
    both = isinstance(node.meta["val"], (tuple, list))
    like = node.meta["val"][0] if both else node.meta["val"]
    reduced, dtype = dimensions(x, dims), compute_dtype(like.dtype)
    average = row_mean(low, node, x, reduced, dtype)

    def squared_distance(ops: Handler, index: Index) -> Term:
        distance = element(x, ops, index).to(dtype) - element(average, ops, index)
        return distance * distance

    total = low.reduction(node, "sum", squared_distance, x, reduced, dtype, average.buffer, "var")
    if isinstance(last := low.graph.nodes[-1], Reduction):
        last.around = average.buffer, low.graph.nodes[-3].buffers[0]
    n = max(0, math.prod(x.shape[d] for d in reduced) - (1 if correction is None else correction))
    first = finish(low, node, total, reduced, like, "var", lambda value: value / n)
    return (
        (first, finish(low, node, average, reduced, node.meta["val"][1], "mean")) if both else first
    )
