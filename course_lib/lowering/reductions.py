"""How reductions become loops.

In:  calls of `sum`, `mean`, `var_mean`, `argmax`, ...
Out: `Reduction` nodes, each of which keeps some dimensions and combines over the others.

What has two parts (`mean` divides, `var` needs the mean first) becomes several nodes that the
scheduler makes one kernel again.
In PyTorch: `torch/_inductor/lowering.py`, `make_reduction` and `var_mean_helper_` (there with
Welford's one-pass update).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx

from course_lib.lowering.formulas import NoLoopForm, Term
from course_lib.lowering.indexing import contiguous
from course_lib.lowering.ir import Buffer, Index, View
from course_lib.lowering.lower import Lowering, element, lowers
from course_lib.lowering.operators import compute_dtype, name_of
from course_lib.lowering.ops import Handler
from course_lib.lowering.reduction_kinds import KINDS, SUM, ReductionKind
from course_lib.sizes import same

aten = torch.ops.aten
Dims = Sequence[int] | int | None
SAME_KIND = {"amax": "max", "amin": "min"}  # They take several dimensions, and give no places


def dimensions(x: View, dims: Dims) -> list[int]:
    """The dimensions to reduce, from 0, in order. No dimension named means all of them.

    (Torch has refused any other on fakes.)"""
    rank = len(x.shape)
    if rank == 0:
        return []
    if isinstance(dims, int):
        return [dims % rank]

    named_dims = dims or range(rank)
    return sorted({d % rank for d in named_dims})


def reduce(
    low: Lowering,
    node: fx.Node,
    x: View,
    dims: Sequence[int],
    kind: ReductionKind,
    like: torch.Tensor,
    label: str = "",
    last_of_equals: bool = False,
) -> View:
    """Reduce `dims` of `x`; the result has shape, dtype and layout of `like`.

    Sums first convert to the result's dtype. Halves are gathered in float32, integers in int64.
    `last_of_equals`: of equal values (0.0 and -0.0) the last one is the best, not the first.
    Raises `NotImplementedError` for the best of no elements: eager says what is wrong.
    """
    combined = [x.shape[d] for d in dims]
    if kind.finds_best and 0 in combined:
        raise NotImplementedError("of nothing there is no largest element, as eager says")

    # The place of the best of one element is 0.
    if kind.gives_place and all(same(size, 1) for size in combined):
        return low.in_memory(low.full(0, like), node)

    operand = operand_dtype(kind, x, like)
    accumulate = compute_dtype(operand)
    if kind.grows and not operand.is_floating_point:
        accumulate = torch.int64

    def body(ops: Handler, index: Index) -> Term:
        return element(x, ops, index).to(operand)

    layout = Buffer.like(like)
    return low.reduction(node, kind.name, body, x, dims, accumulate, layout, label, last_of_equals)


def operand_dtype(kind: ReductionKind, x: View, like: torch.Tensor) -> torch.dtype:
    """The dtype that elements of `x` have when they are combined. `like` is the fake result."""
    if kind.is_logical:
        return torch.bool
    if kind.gives_place:
        return x.dtype
    return like.dtype


@lowers(aten.sum, aten.prod, aten.any, aten.all, aten.argmax, aten.argmin)
@lowers(aten.amax, aten.amin, aten.max.default, aten.min.default)
def one_reduction(
    low: Lowering, node: fx.Node, x: View, dims: Dims = None, keepdim: bool = False, **dtype: Any
) -> View:
    """The reductions that are one loop.

    `keepdim` and `dtype` are not needed: the node's value on fakes shows them."""
    name = name_of(node)
    kind = KINDS[SAME_KIND.get(name, name)]

    if kind.gives_place and x.dtype == torch.bool:
        raise NoLoopForm("of bools there is no argmax in torch: its own operator says so")
    if kind.is_logical and isinstance(dims, Sequence) and not dims:
        raise NoLoopForm("reducing no dimension at all runs as torch's own operator")

    # `x.max()` and `x.min()` of a whole tensor: eager gives the last of equal values, at least
    # where the number of elements is a power of two.
    of_all = node.target in (aten.max.default, aten.min.default)
    dims = dimensions(x, dims)
    return reduce(low, node, x, dims, kind, node.meta["val"], last_of_equals=of_all)


@lowers(aten.max.dim, aten.min.dim)
def extreme_and_where(
    low: Lowering, node: fx.Node, x: View, dim: int, keepdim: bool = False
) -> tuple[View, View]:
    """The best value and its place: two reductions."""
    name = name_of(node)
    dims = dimensions(x, dim)
    like_values, like_places = node.meta["val"]

    values = reduce(low, node, x, dims, KINDS[name], like_values, name)
    arg_name = f"arg{name}"
    places = reduce(low, node, x, dims, KINDS[arg_name], like_places, arg_name)

    return values, places


@lowers(aten.mean)
def mean(
    low: Lowering, node: fx.Node, x: View, dims: Dims = None, keepdim: bool = False, **dtype: Any
) -> View:
    """A sum, then a division once a row."""
    fake = node.meta["val"]
    reduced = dimensions(x, dims)
    average = row_mean(low, node, x, reduced, compute_dtype(fake.dtype)).average

    return from_row_value(low, node, average, reduced, fake, "mean")


class RowMean(NamedTuple):
    """The mean of each row, and the sum that it was made of."""

    average: View
    total: View


def row_mean(
    low: Lowering, node: fx.Node, x: View, dims: Sequence[int], dtype: torch.dtype
) -> RowMean:
    """The mean over `dims`, which keep size 1."""
    shape = list(x.shape)
    for d in dims:
        shape[d] = 1
    layout = Buffer("", dtype, tuple(shape), contiguous(shape), x.buffer.device)
    count = math.prod(x.shape[d] for d in dims)

    def value(ops: Handler, index: Index) -> Term:
        return element(x, ops, index).to(dtype)

    total = low.reduction(node, SUM.name, value, x, dims, dtype, layout, "mean")

    def divided(ops: Handler, index: Index) -> Term:
        return element(total, ops, index) / count

    return RowMean(low.pointwise(node, divided, layout, "mean"), total)


def from_row_value(
    low: Lowering,
    node: fx.Node,
    row: View,
    dims: Sequence[int],
    like: torch.Tensor,
    label: str,
    function: Callable[[Term], Term] | None = None,
) -> View:
    """A row value, which has size 1 where dimensions were reduced, in the shape and dtype of the
    result, perhaps through `function`.

    `like`: the result on fakes. (`low.pointwise` converts what it stores to the layout's dtype.)"""
    layout = Buffer.like(like)
    if function is None and row.buffer.lies_like(layout):
        return row

    # Without keepdim the reduced dimensions are absent in the result.
    if like.ndim != len(row.shape):
        kept_dims = [d for d in range(len(row.shape)) if d not in dims]
        shape = tuple(row.shape[d] for d in kept_dims)
        stride = tuple(row.stride[d] for d in kept_dims)
        row = replace(row, shape=shape, stride=stride)

    def body(ops: Handler, index: Index) -> Term:
        value = element(row, ops, index)
        if function is not None:
            value = function(value)
        return value

    return low.pointwise(node, body, layout, label)


@lowers(aten.var.correction, aten.var_mean.correction)
def var_mean(
    low: Lowering,
    node: fx.Node,
    x: View,
    dims: Dims = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> View | tuple[View, View]:
    """Two passes: the mean, then the squared distances from it.

    (One pass, E[x²] - E[x]², cancels where the mean is large.)"""
    if not x.dtype.is_floating_point:
        raise NoLoopForm("of integers there is no variance in torch: its own operator says so")

    # `var` gives one tensor, `var_mean` two.
    fakes = node.meta["val"]
    wants_mean = isinstance(fakes, (tuple, list))
    like = fakes[0] if wants_mean else fakes
    reduced = dimensions(x, dims)
    dtype = compute_dtype(like.dtype)

    average, sum_of_mean = row_mean(low, node, x, reduced, dtype)
    # A long row may be cut into chunks (`split_reductions`), each with distances from a mean of its
    # own. For that it must know the mean, and the sum that it was made of.
    around = average.buffer, sum_of_mean.buffer

    def squared_distance(ops: Handler, index: Index) -> Term:
        value = element(x, ops, index).to(dtype)
        distance = value - element(average, ops, index)
        return distance * distance

    layout = average.buffer
    total = low.reduction(
        node, SUM.name, squared_distance, x, reduced, dtype, layout, "var", around=around
    )

    # Bessel's correction, if none is named. With too few elements eager divides by 0.
    if correction is None:
        correction = 1
    count = math.prod(x.shape[d] for d in reduced)
    divisor = max(0, count - correction)

    def variance(value: Term) -> Term:
        return value / divisor

    first = from_row_value(low, node, total, reduced, like, "var", variance)
    if not wants_mean:
        return first
    return first, from_row_value(low, node, average, reduced, fakes[1], "mean")
