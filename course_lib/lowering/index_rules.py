"""How operators that move elements become loops: joining, padding, flipping, looking up.

In:  the `Lowering`, the FX node, and the node's arguments.
Out: a `View` of a new buffer, whose loop reads each element at another index than it writes.

Such a rule is only arithmetic on the index: `flip` reads at `size - 1 - i`, `cat` asks which part
`i` lies in, `x[rows]` reads `rows` first and then `x` there (`ops.indirect`).
In PyTorch: `torch/_inductor/lowering.py` (`pointwise_cat`, `constant_pad_nd`, `rev`, `gather`,
`index_impl`).
"""

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from operator import and_
from typing import Any

import sympy
import torch
from torch import fx

from course_lib.lowering.formulas import NoLoopForm, Term
from course_lib.lowering.ir import Index, View
from course_lib.lowering.lower import Lowering, element, lowers
from course_lib.lowering.ops import Handler, Value, add
from course_lib.sizes import surely

aten = torch.ops.aten
MOST_PARTS = 8
"""A `cat` of more tensors is left to torch: in a loop each element must find out in which of the
tensors it lies, and each tensor costs one more comparison."""


def place(ops: Handler, index: sympy.Expr) -> Term:
    """An index as a value of the loop, which can be compared: `place(ops, i) < 3`."""
    return Term(ops, ops.index_expr(index, torch.int64), torch.int64)


def replaced(index: Index, dim: int, by: Any) -> list[Any]:
    """The same index, but with `by` in dimension `dim`."""
    positions = list(index)
    positions[dim] = by
    return positions


def where_all(
    ops: Handler, tests: Sequence[Term], load: Callable[[], Value], other: bool | int | float
) -> Value:
    """What `load` gives where all tests hold. Elsewhere `other`, and nothing is loaded."""
    if not tests:
        return load()
    return ops.masked(reduce(and_, tests).value, load, other)


@lowers(aten.cat.default)
def cat(low: Lowering, node: fx.Node, tensors: Sequence[View], dim: int = 0) -> View:
    """Which part an element comes from is a question about its index along `dim`."""
    fake = node.meta["val"]
    dim %= max(fake.ndim, 1)

    # A tensor of shape [0] may stand beside others of any rank. It has nothing to give.
    parts = [t for t in tensors if len(t.shape) == fake.ndim]
    if len(parts) > MOST_PARTS:
        raise NoLoopForm(
            "a loop would ask each element which of so many parts it is in: it runs as torch's own operator"
        )

    # Part n has the indices from edges[n] up to edges[n + 1].
    edges = [0, *accumulate(part.shape[dim] for part in parts)]
    last = len(parts) - 1

    def body(ops: Handler, index: Index) -> Term:
        def load_from(n: int) -> Value:
            position_in_part = add([index[dim], -edges[n]])
            index_in_part = replaced(index, dim, position_in_part)
            return element(parts[n], ops, index_in_part).to(fake.dtype).value

        def from_part(n: int) -> Term:
            """The element if it lies in part n or one behind it."""
            tests = []
            if n < last:
                tests.append(place(ops, index[dim]) < edges[n + 1])
            if n > 0:
                tests.append(place(ops, index[dim]) >= edges[n])
            if not tests:
                return Term(ops, load_from(n), fake.dtype)

            is_here = reduce(and_, tests)
            loaded = ops.masked(is_here.value, lambda: load_from(n), 0)
            from_here = Term(ops, loaded, fake.dtype)
            if n == last:
                return from_here
            return is_here.where(from_here, from_part(n + 1))

        # A chain of questions: is it in the first part, else in the second, ...?
        return from_part(0)

    return low.pointwise(node, body)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(
    low: Lowering, node: fx.Node, x: View, pad: Sequence[int], value: Any = 0
) -> View:
    """`pad` counts dimensions from the last: (left, right) of the last, (left, right) of the one
    before, ..."""
    # Every second number, from the last backwards: so they stand in the order of the dimensions.
    untouched = [0] * (len(x.shape) - len(pad) // 2)
    left = [*untouched, *pad[-2::-2]]
    right = [*untouched, *pad[::-2]]

    def body(ops: Handler, index: Index) -> Term:
        there = [i - before for i, before in zip(index, left, strict=True)]

        tests = []
        for i, before, after, size in zip(there, left, right, x.shape, strict=True):
            if not surely(operator.le, before, 0):
                tests.append(place(ops, i) >= 0)
            if not surely(operator.le, after, 0):
                tests.append(place(ops, i) < size)

        def load() -> Value:
            return element(x, ops, there).value

        return Term(ops, where_all(ops, tests, load, value), x.dtype)

    return low.pointwise(node, body)


@lowers(aten.flip.default)
def flip(low: Lowering, node: fx.Node, x: View, dims: Sequence[int]) -> View:
    """Read from the other end along `dims`."""
    flipped = [d % max(len(x.shape), 1) for d in dims]

    def body(ops: Handler, index: Index) -> Term:
        there = list(index)
        for d, i in enumerate(index):
            if d in flipped:
                there[d] = x.shape[d] - 1 - i
        return element(x, ops, there)

    return low.pointwise(node, body)


@lowers(aten.slice_scatter.default, aten.select_scatter.default)
def scatter_slice(
    low: Lowering,
    node: fx.Node,
    x: View,
    part: View,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> View:
    """`x` with a slice (or one index) of dimension `dim` taken from `part`: what `x[1:3] = part`
    becomes."""
    if step != 1:
        raise NoLoopForm("a slice with a step written into a tensor runs as torch's own operator")

    dim %= len(x.shape)
    is_one_index = node.target is aten.select_scatter.default
    first = first_of(start, x.shape[dim])
    if is_one_index:
        end_of_part = first + 1
    else:
        end_of_part = first + part.shape[dim]

    def body(ops: Handler, index: Index) -> Term:
        is_not_before = place(ops, index[dim]) >= first
        is_not_behind = place(ops, index[dim]) < end_of_part
        is_inside = is_not_before & is_not_behind

        # `part` has no dimension `dim` where one index is written.
        if is_one_index:
            index_in_part = list(index)
            del index_in_part[dim]
        else:
            index_in_part = replaced(index, dim, index[dim] - first)

        def load() -> Value:
            return element(part, ops, index_in_part).to(x.dtype).value

        new = ops.masked(is_inside.value, load, 0)
        return is_inside.where(Term(ops, new, x.dtype), element(x, ops, index))

    return low.pointwise(node, body)


def first_of(start: Any, size: Any) -> Any:
    """Where a slice of a dimension of this size begins."""
    if start is None:
        return 0

    # As in Python: what lies outside is moved to the next end.
    if start < 0:
        start = start + size
        if start > 0:
            return start
        return 0
    if start < size:
        return start
    return size


@lowers(aten.gather.default)
def gather(low: Lowering, node: fx.Node, x: View, dim: int, indices: View, **_: Any) -> View:
    """For each element of `indices`: the element of `x` at the same place, but for `dim`."""
    if not x.shape:
        raise NoLoopForm("gather from a single number runs as torch's own operator")
    dim %= len(x.shape)

    def body(ops: Handler, index: Index) -> Term:
        wanted = indices.load(ops, index)
        looked_up = ops.indirect(wanted, x.shape[dim], wrap=False)
        return element(x, ops, replaced(index, dim, looked_up))

    return low.pointwise(node, body)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(
    low: Lowering, node: fx.Node, x: View, indices: Sequence[View | None], wrap: bool = True
) -> View:
    """`x[i, :, j]`: indices broadcast to one block of dimensions, where the first was; in front if
    others lie between (NumPy)."""
    index_of_dim = {}
    for d, numbers in enumerate(indices):
        if numbers is None:
            continue
        index_of_dim[d] = numbers
        if numbers.dtype not in (torch.int64, torch.int32):
            raise NoLoopForm(
                "indexing with a mask gives a shape that only the data knows: it runs as torch's own operator"
            )

    # Dimensions first ... first + block - 1 of the result are those of the indices.
    block = max(len(numbers.shape) for numbers in index_of_dim.values())
    first_dim, last_dim = min(index_of_dim), max(index_of_dim)
    side_by_side = len(index_of_dim) == last_dim - first_dim + 1
    first = first_dim if side_by_side else 0
    end = first + block

    def body(ops: Handler, index: Index) -> Term:
        in_block = index[first:end]
        # The positions in the dimensions that are not looked up, in their order
        of_other_dims = iter([*index[:first], *index[end:]])

        index_in_x = []
        for d, size in enumerate(x.shape):
            if d in index_of_dim:
                wanted = index_of_dim[d].load(ops, in_block)
                index_in_x.append(ops.indirect(wanted, size, wrap))
            else:
                index_in_x.append(next(of_other_dims))
        return element(x, ops, index_in_x)

    return low.pointwise(node, body)


@lowers(aten.index_select.default)
def index_select(low: Lowering, node: fx.Node, x: View, dim: int, indices: View) -> View:
    """Rows of dimension `dim`, looked up. Negative indices raise."""
    if not x.shape or not indices.shape:
        raise NoLoopForm("index_select with a single number runs as torch's own operator")

    before = [None] * (dim % len(x.shape))
    return index_tensor(low, node, x, [*before, indices], wrap=False)


@lowers(aten.embedding.default)
def embedding(low: Lowering, node: fx.Node, x: View, indices: View, *options: Any) -> View:
    """Rows of a table, looked up. The options only concern backward."""
    return index_tensor(low, node, x, [indices], wrap=False)
