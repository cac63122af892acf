"""How ATen operators become loops: pointwise operators, views, creation and indexing.

In:  the `Lowering`, the FX node, and the node's arguments.
Out: the node's value: a `View` of a new buffer, of an old one, or a `Lazy`.

Pointwise operators need no rule of their own: their formulas are in `lowering.formulas`, and `pointwise` is the rule for all.
In PyTorch: `torch/_inductor/lowering.py`, below `register_lowering`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import accumulate
from operator import and_
from typing import Any

import sympy
import torch
from torch import fx

from course_lib.lowering.formulas import POINTWISE, Formula, NoLoopForm, Term, half_power, power
from course_lib.lowering.ir import Index, Lazy, View
from course_lib.lowering.lower import Lowering, element, lowers
from course_lib.lowering.operators import compute_dtype
from course_lib.lowering.ops import Handler, add

aten = torch.ops.aten
prims = torch.ops.prims


class Probe:
    """A handler that only lets a body run, so that a `NoLoopForm` shows itself while there is time."""

    def __getattr__(self, op: str) -> Callable[..., None]:
        return lambda *args: None


def pointwise(formula: Formula, low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """The rule for all operators with a formula."""
    common = node.meta["val"].dtype
    if formula.compute == "operands":
        fakes = [a.meta["val"] if isinstance(a, fx.Node) else a for a in node.args]
        common = torch.result_type(*fakes) if len(fakes) == 2 else fakes[0].dtype
    dtype = compute_dtype(common)
    if formula.function is power and (common, node.meta["val"].device.type) == (
        torch.float16,
        "cpu",
    ):
        formula = formula._replace(function=half_power)
    rounds = formula.rounds and dtype != common and node.meta["val"].device.type == "cpu"

    def body(ops: Handler, index: Index) -> Term:
        def operand(a: Any) -> Any:
            if not isinstance(a, View):
                return (
                    torch.tensor(a, dtype=common).item() if rounds and isinstance(a, float) else a
                )
            term = element(a, ops, index)
            if formula.compute == "own":
                return term
            # 4097 is 4096 as float16
            long = a.shape and not a.dtype.is_floating_point and a.dtype.itemsize > 1
            return (term.to(common) if long else term).to(dtype)

        return formula.function(*map(operand, args), **{k: operand(a) for k, a in kwargs.items()})

    body(Probe(), [sympy.Integer(0)] * node.meta["val"].ndim)
    return low.pointwise(node, body)


for _name, _formula in POINTWISE.items():
    lowers(getattr(aten, _name))(partial(pointwise, _formula))


@lowers(aten.where.self)
def where(low: Lowering, node: fx.Node, condition: View, yes: Any, no: View) -> View:
    dtype = node.meta["val"].dtype

    def body(ops: Handler, index: Index) -> Term:
        chosen = element(yes, ops, index).to(dtype) if isinstance(yes, View) else yes
        return (
            element(condition, ops, index)
            .to(torch.bool)
            .where(chosen, element(no, ops, index).to(dtype))
        )

    return low.pointwise(node, body)


@lowers(aten._to_copy, aten.clone, prims.convert_element_type, aten.lift_fresh_copy, aten.copy)
def copy(low: Lowering, node: fx.Node, x: View, *more: Any, **options: Any) -> View:
    """Another dtype, another layout, or both: the buffer's layout is that of the node's value."""
    fake = node.meta["val"]
    # `x.copy_(source)` leaves `source`, broadcast to `x`
    x = more[0] if node.target is aten.copy.default else x
    x = x if isinstance(x, View) else low.full(x, fake)  # a number, below vmap
    if isinstance(x, Lazy):
        return low.lazy(fake, lambda ops, index: element(x, ops, index).to(fake.dtype).value)
    return low.pointwise(
        node,
        lambda ops, index: element(x, ops, index),
        label="copy" if x.dtype == fake.dtype else "to",
    )


VIEWS = """view _unsafe_view permute t transpose expand squeeze unsqueeze slice select alias detach split split_with_sizes chunk
    unbind as_strided diagonal unfold lift_fresh _reshape_alias movedim swapaxes""".split()


@lowers(*(getattr(aten, name) for name in VIEWS))
def view(low: Lowering, node: fx.Node, x: View, *args: Any, **kwargs: Any) -> Any:
    """Whatever torch computed on fake tensors: shape, stride, and how far the first element moved."""
    fake = node.meta["val"]
    base = node.all_input_nodes[0].meta["val"]

    def seen(f: torch.Tensor) -> View:
        if f.dtype != base.dtype:
            raise NoLoopForm(
                "the same bytes read as another dtype are no view of elements: a copy is made"
            )
        moved = f.storage_offset() - base.storage_offset()
        return replace(x, shape=tuple(f.shape), stride=f.stride(), offset=x.offset + moved)

    return tuple(map(seen, fake)) if isinstance(fake, (list, tuple)) else seen(fake)


def place(ops: Handler, index: sympy.Expr) -> Term:
    """An index as a number to compare with."""
    return Term(ops, ops.index_expr(index, torch.int64), torch.int64)


@lowers(aten.full, aten.full_like, aten.new_full, aten.scalar_tensor, aten.fill)
def full(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """Filled with what the last argument says."""
    value = args[-1]
    return copy(low, node, value) if isinstance(value, View) else low.full(value, node.meta["val"])


@lowers(aten.zeros, aten.zeros_like, aten.new_zeros)
def zeros(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    return low.full(0, node.meta["val"])


@lowers(aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.empty_permuted)
def empty(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """Memory that nobody set may as well be zero. Where eager fills it, so that programs that read it stand out, so do we."""
    fake = node.meta["val"]
    filled = torch.utils.deterministic.fill_uninitialized_memory
    if not (torch.are_deterministic_algorithms_enabled() and filled):
        return low.full(0, fake)
    if fake.dtype.is_floating_point or fake.dtype.is_complex:
        return low.full(math.nan, fake)
    return low.full(True if fake.dtype is torch.bool else torch.iinfo(fake.dtype).max, fake)


@lowers(prims.iota.default)
def iota(low: Lowering, node: fx.Node, length: int, *, start: int, step: int, **_: Any) -> View:
    """0, 1, 2, ... times `step`, from `start` on: what `arange` becomes."""
    fake = node.meta["val"]
    return low.lazy(fake, lambda ops, index: ops.index_expr(index[0] * step + start, fake.dtype))


def replaced(index: Index, dim: int, by: Any) -> list[Any]:
    return [by if d == dim else i for d, i in enumerate(index)]


@lowers(aten.cat.default)
def cat(low: Lowering, node: fx.Node, tensors: Sequence[View], dim: int = 0) -> View:
    """Which part an element comes from is a question about its index along `dim`."""
    fake = node.meta["val"]
    dim %= max(fake.ndim, 1)
    parts = [t for t in tensors if t.shape != (0,) or fake.ndim == 1]
    if len(parts) > 8:
        raise NoLoopForm(
            "a loop would ask each element which of so many parts it is in: it runs as torch's own operator"
        )
    edges = [0, *accumulate(part.shape[dim] for part in parts)]

    def body(ops: Handler, index: Index) -> Term:
        def from_part(n: int) -> Term:
            load = lambda: (
                element(parts[n], ops, replaced(index, dim, add([index[dim], -edges[n]])))
                .to(fake.dtype)
                .value
            )
            tests = [place(ops, index[dim]) < edges[n + 1]] if n < len(parts) - 1 else []
            tests += [place(ops, index[dim]) >= edges[n]] if n > 0 else []
            here = reduce(and_, tests) if tests else None
            mine = Term(ops, ops.masked(here.value, load, 0) if here else load(), fake.dtype)
            return here.where(mine, from_part(n + 1)) if here and n < len(parts) - 1 else mine

        return from_part(0)

    return low.pointwise(node, body)


@lowers(aten.constant_pad_nd.default)
def constant_pad_nd(
    low: Lowering, node: fx.Node, x: View, pad: Sequence[int], value: Any = 0
) -> View:
    """`pad` counts dimensions from the last: (left, right) of the last, (left, right) of the one before, ..."""
    untouched = [0] * (len(x.shape) - len(pad) // 2)
    left, right = [*untouched, *pad[-2::-2]], [*untouched, *pad[::-2]]

    def body(ops: Handler, index: Index) -> Term:
        there = [i - n for i, n in zip(index, left, strict=True)]
        tests = []
        for i, before, after, size in zip(there, left, right, x.shape, strict=True):
            tests += [place(ops, i) >= 0] if before > 0 else []
            tests += [place(ops, i) < size] if after > 0 else []
        load = lambda: element(x, ops, there).value
        return Term(
            ops, ops.masked(reduce(and_, tests).value, load, value) if tests else load(), x.dtype
        )

    return low.pointwise(node, body)


@lowers(aten.flip.default)
def flip(low: Lowering, node: fx.Node, x: View, dims: Sequence[int]) -> View:
    dims = [d % max(len(x.shape), 1) for d in dims]
    turn = lambda index: [x.shape[d] - 1 - i if d in dims else i for d, i in enumerate(index)]
    return low.pointwise(node, lambda ops, index: element(x, ops, turn(index)))


@lowers(aten.slice_scatter.default, aten.select_scatter.default)
def scatter_slice(low: Lowering, node: fx.Node, x: View, part: View, dim: int = 0, start: Any = None, end: Any = None,
                  step: int = 1) -> View:  # fmt: skip
    """`x` with a slice (or one index) of dimension `dim` taken from `part`: what `x[1:3] = part` becomes."""
    if step != 1:
        raise NoLoopForm("a slice with a step written into a tensor runs as torch's own operator")
    dim %= len(x.shape)
    one = node.target is aten.select_scatter.default
    first, _, _ = slice(start, end).indices(x.shape[dim])
    last = first + 1 if one else first + part.shape[dim]

    def body(ops: Handler, index: Index) -> Term:
        inside = (place(ops, index[dim]) >= first) & (place(ops, index[dim]) < last)
        there = (
            [i for d, i in enumerate(index) if d != dim]
            if one
            else replaced(index, dim, index[dim] - first)
        )
        new = ops.masked(inside.value, lambda: element(part, ops, there).to(x.dtype).value, 0)
        return inside.where(Term(ops, new, x.dtype), element(x, ops, index))

    return low.pointwise(node, body)


@lowers(aten.gather.default)
def gather(low: Lowering, node: fx.Node, x: View, dim: int, indices: View, **_: Any) -> View:
    if not x.shape:
        raise NoLoopForm("gather from a single number runs as torch's own operator")
    dim %= len(x.shape)

    def body(ops: Handler, index: Index) -> Term:
        return element(
            x,
            ops,
            replaced(index, dim, ops.indirect(indices.load(ops, index), x.shape[dim], wrap=False)),
        )

    return low.pointwise(node, body)


@lowers(aten.index.Tensor, aten._unsafe_index.Tensor)
def index_tensor(
    low: Lowering, node: fx.Node, x: View, indices: Sequence[View | None], wrap: bool = True
) -> View:
    """`x[i, :, j]`: indices broadcast to one block of dimensions, where the first was; in front if others lie between (NumPy)."""
    given = {d: i for d, i in enumerate(indices) if i is not None}
    if any(i.dtype not in (torch.int64, torch.int32) for i in given.values()):
        raise NoLoopForm(
            "indexing with a mask gives a shape that only the data knows: it runs as torch's own operator"
        )
    block = max(len(i.shape) for i in given.values())
    first = min(given) if len(given) == max(given) - min(given) + 1 else 0

    def body(ops: Handler, index: Index) -> Term:
        inner, rest_of = (
            index[first : first + block],
            iter([*index[:first], *index[first + block :]]),
        )
        looked_up = lambda d, size: ops.indirect(given[d].load(ops, inner), size, wrap)
        return element(
            x,
            ops,
            [looked_up(d, size) if d in given else next(rest_of) for d, size in enumerate(x.shape)],
        )

    return low.pointwise(node, body)


@lowers(aten.index_select.default)
def index_select(low: Lowering, node: fx.Node, x: View, dim: int, indices: View) -> View:
    if not x.shape or not indices.shape:
        raise NoLoopForm("index_select with a single number runs as torch's own operator")
    return index_tensor(low, node, x, [None] * (dim % len(x.shape)) + [indices], wrap=False)


lowers(aten.embedding.default)(
    lambda low, node, x, indices, *_: index_tensor(low, node, x, [indices], wrap=False)
)
