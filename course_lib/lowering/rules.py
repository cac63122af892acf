"""How ATen operators become loops: pointwise operators, views, and tensors that are made.

In:  the `Lowering`, the FX node, and the node's arguments.
Out: the node's value: a `View` of a new buffer, of an old one, or a `Lazy`.

Pointwise operators need no rule of their own: their formulas are in `lowering.formulas`, and
`pointwise` is the rule for all. What moves elements (`cat`, `flip`, `x[i]`) is in
`lowering.index_rules`.
In PyTorch: `torch/_inductor/lowering.py`, below `register_lowering`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import sympy
import torch
from torch import fx

from course_lib import sizes
from course_lib.lowering.formulas import POINTWISE, Formula, NoLoopForm, Term, half_power, power
from course_lib.lowering.ir import Index, Lazy, View
from course_lib.lowering.lower import Lowering, element, lowers
from course_lib.lowering.operators import compute_dtype
from course_lib.lowering.ops import Handler, Value

aten = torch.ops.aten
prims = torch.ops.prims


class Probe:
    """A handler whose operations do nothing. A body is run with it once, to see if it raises
    `NoLoopForm`, while the operator can still be called instead."""

    def __getattr__(self, op: str) -> Callable[..., None]:
        return nothing


def nothing(*args: Any) -> None:
    """What every operation of `Probe` does."""


@dataclass(frozen=True)
class Operands:
    """How the arguments of a formula become elements in the right dtype."""

    # What torch promotes the arguments to
    common: torch.dtype
    # The dtype to compute with: float32 for float16 and bfloat16, else `common`
    dtype: torch.dtype
    # True if each argument keeps its own dtype
    keep_own: bool
    # True if a Python number beside tensors of float16 or bfloat16 is rounded to their dtype first
    round_numbers: bool

    def element(self, argument: Any, ops: Handler, index: Index) -> Any:
        """An argument as the formula takes it: an element, or a number."""
        if not isinstance(argument, View):
            if self.round_numbers and isinstance(argument, sizes.Real):
                raise sizes.NeedsNumbers("a number computed of sizes is rounded to a half first")
            if self.round_numbers and isinstance(argument, float):
                return torch.tensor(argument, dtype=self.common).item()
            return argument

        term = element(argument, ops, index)
        if self.keep_own:
            return term

        # Large integers lose digits as halves: 4097 is 4096 as float16.
        is_integer = not argument.dtype.is_floating_point and argument.dtype.itemsize > 1
        if argument.shape and is_integer:
            term = term.to(self.common)
        return term.to(self.dtype)


def pointwise(formula: Formula, low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """The rule for all operators with a formula."""
    fake = node.meta["val"]
    on_cpu = fake.device.type == "cpu"
    if formula.compute == "operands":
        common = operands_dtype(node)
    else:
        common = fake.dtype
    dtype = compute_dtype(common)

    if formula.function is power and common is torch.float16 and on_cpu:
        formula = formula._replace(function=half_power)

    # float16 and bfloat16 are computed in float32. On a CPU eager rounds a number beside them to
    # their own dtype first.
    rounds_numbers = formula.rounds_numbers and dtype != common and on_cpu
    operands = Operands(common, dtype, formula.compute == "own", rounds_numbers)

    def body(ops: Handler, index: Index) -> Term:
        positional = [operands.element(argument, ops, index) for argument in args]
        keyword_values = {
            name: operands.element(value, ops, index) for name, value in kwargs.items()
        }
        return formula.function(*positional, **keyword_values)

    # What has no loop form says so here, while the operator can still be called instead.
    body(Probe(), [sympy.Integer(0)] * fake.ndim)
    return low.pointwise(node, body)


def operands_dtype(node: fx.Node) -> torch.dtype:
    """What torch promotes the operands of a node to: a comparison computes in it, though its result
    is bool."""
    operands = []
    for argument in node.args:
        if isinstance(argument, fx.Node):
            argument = argument.meta["val"]
        operands.append(argument)

    if len(operands) == 2:
        return torch.result_type(*operands)
    return operands[0].dtype


for _name, _formula in POINTWISE.items():
    lowers(getattr(aten, _name))(partial(pointwise, _formula))


@lowers(aten.where.self)
def where(low: Lowering, node: fx.Node, condition: View, yes: Any, no: View) -> View:
    """`yes` where the condition holds, else `no`; `yes` may be a number."""
    dtype = node.meta["val"].dtype

    def body(ops: Handler, index: Index) -> Term:
        if_true = yes
        if isinstance(yes, View):
            if_true = element(yes, ops, index).to(dtype)

        test = element(condition, ops, index).to(torch.bool)
        if_false = element(no, ops, index).to(dtype)
        return test.where(if_true, if_false)

    return low.pointwise(node, body)


@lowers(aten._to_copy, aten.clone, prims.convert_element_type, aten.lift_fresh_copy, aten.copy)
def copy(low: Lowering, node: fx.Node, x: View, *more: Any, **options: Any) -> View:
    """`x` in another dtype, another layout, or both. The new buffer is laid out like the node's
    fake tensor."""
    fake = node.meta["val"]

    # `x.copy_(source)` leaves `source`, broadcast to `x`. Below vmap that may be a number.
    source: Any = x
    if node.target is aten.copy.default:
        source = more[0]
    if not isinstance(source, View):
        source = low.full(source, fake)

    if isinstance(source, Lazy):

        def converted(ops: Handler, index: Index) -> Value:
            return element(source, ops, index).to(fake.dtype).value

        return low.lazy(fake, converted)

    def body(ops: Handler, index: Index) -> Term:
        return element(source, ops, index)

    label = "copy" if source.dtype == fake.dtype else "to"
    return low.pointwise(node, body, label=label)


VIEWS = """view _unsafe_view permute t transpose expand squeeze unsqueeze slice select alias detach split split_with_sizes chunk
    unbind as_strided diagonal unfold lift_fresh _reshape_alias movedim swapaxes""".split()


@lowers(*(getattr(aten, name) for name in VIEWS))
def view(low: Lowering, node: fx.Node, x: View, *args: Any, **kwargs: Any) -> Any:
    """Whatever torch computed on fake tensors: shape, stride, and how far the first element
    moved."""
    fake = node.meta["val"]
    base = node.all_input_nodes[0].meta["val"]

    def seen(result: torch.Tensor) -> View:
        if result.dtype != base.dtype:
            raise NoLoopForm(
                "the same bytes read as another dtype are no view of elements: a copy is made"
            )

        # The offset of an input may be a symbol of no size: it goes out here
        moved = sizes.size(result.storage_offset() - base.storage_offset())
        shape, stride = sizes.shape(result.shape), sizes.shape(result.stride())
        return replace(x, shape=shape, stride=stride, offset=x.offset + moved)

    if isinstance(fake, (list, tuple)):
        return tuple(seen(result) for result in fake)
    return seen(fake)


@lowers(aten.full, aten.full_like, aten.new_full, aten.scalar_tensor, aten.fill)
def full(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """Filled with what the last argument says."""
    value = args[-1]
    if isinstance(value, View):
        return copy(low, node, value)
    return low.full(value, node.meta["val"])


@lowers(aten.zeros, aten.zeros_like, aten.new_zeros)
def zeros(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """Filled with 0."""
    return low.full(0, node.meta["val"])


@lowers(aten.empty, aten.empty_like, aten.new_empty, aten.empty_strided, aten.empty_permuted)
def empty(low: Lowering, node: fx.Node, *args: Any, **kwargs: Any) -> View:
    """Memory that nobody set may as well be zero.

    With deterministic algorithms eager fills it with NaN or the largest integer, so that a program
    that reads it stands out. So do we."""
    fake = node.meta["val"]
    filled = torch.utils.deterministic.fill_uninitialized_memory
    if not (torch.are_deterministic_algorithms_enabled() and filled):
        return low.full(0, fake)

    if fake.dtype.is_floating_point or fake.dtype.is_complex:
        return low.full(math.nan, fake)
    if fake.dtype is torch.bool:
        return low.full(True, fake)
    return low.full(torch.iinfo(fake.dtype).max, fake)


@lowers(prims.iota.default)
def iota(low: Lowering, node: fx.Node, length: int, *, start: int, step: int, **_: Any) -> View:
    """0, 1, 2, ... times `step`, from `start` on: what `arange` becomes."""
    fake = node.meta["val"]

    def number(ops: Handler, index: Index) -> Value:
        return ops.index_expr(index[0] * step + start, fake.dtype)

    return low.lazy(fake, number)
