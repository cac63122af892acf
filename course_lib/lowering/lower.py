"""From an ATen graph to loops.

In:  a functional ATen `fx.GraphModule` whose nodes carry `meta["val"]` (`autograd.trace`).
Out: a `LoopGraph`: `Pointwise`, `Reduction` and `ExternKernel` nodes in program order.

`lower` walks the graph once. For each node it looks up a rule in `LOWERINGS` (`lowering.rules` and
`lowering.reductions` fill it) and calls it with the node's arguments, tensors as `View`s. Without a
rule, or by `NoLoopForm`, torch's own operator is called.
In PyTorch: `torch/_inductor/graph.py` (`GraphLowering.call_function`) and
`torch/_inductor/lowering.py` (`lowerings`).
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from course_lib import sizes
from course_lib.lowering import operators
from course_lib.lowering.formulas import NoLoopForm, Term, in_double
from course_lib.lowering.indexing import ZERO
from course_lib.lowering.ir import (
    Buffer,
    ExternKernel,
    Index,
    Lazy,
    LoopGraph,
    Pointwise,
    Reduction,
    View,
)
from course_lib.lowering.ops import Handler, Value

Body = Callable[[Handler, Index], Term]
LIBRARY = {
    "matrix product: left to the library": "mm addmm bmm baddbmm mv addmv addbmm",
    "convolution: left to the library": "convolution",
    "attention: left to the library": "scaled_dot_product_flash_attention_for_cpu",
    "sorting: left to the library": "sort topk kthvalue median nanmedian mode searchsorted bucketize",
    "a running total: each element waits for the one before": "cumsum cumprod cummax cummin logcumsumexp",
    "where it writes, only the data knows": "index_put scatter scatter_add scatter_reduce index_reduce put masked_scatter "
    "embedding_dense_backward",
}
"""What is said of operators that a library does better than our loops could, or that are no
loops."""

WHY_EXTERN = {name: why for why, names in LIBRARY.items() for name in names.split()}
"""Name of an operator in `LIBRARY` → what is said of it."""

LoweringRule = Callable[..., Any]
LOWERINGS: dict[Any, LoweringRule] = {}
"""ATen operator → rule(lowering, fx node, *the node's arguments)."""


def lowers(*ops: Any) -> Callable[[LoweringRule], LoweringRule]:
    """Register a rule for these operators; a packet (`aten.view`) stands for all its overloads that
    write to nothing."""

    def register(rule: LoweringRule) -> LoweringRule:
        for op in ops:
            for overload in overloads_of(op):
                if not overload._schema.is_mutable:
                    LOWERINGS[overload] = rule
        return rule

    return register


def overloads_of(op: Any) -> list[Any]:
    """All overloads of a packet (`aten.add`); an overload (`aten.add.Tensor`) is its only one."""
    if isinstance(op, torch._ops.OpOverloadPacket):
        return [getattr(op, name) for name in op.overloads()]
    return [op]


def lower(gm: fx.GraphModule) -> LoopGraph:
    """The graph as loop nodes.

    Raises `NotImplementedError` for what only the data knows (`item`, `nonzero`), and the
    sparse."""
    return Lowering(gm).run()


def why_extern(node: fx.Node) -> str:
    """What is said of an operator that no rule lowers."""
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return "random numbers come from torch, so that they are eager's"
    return WHY_EXTERN.get(
        operators.name_of(node),
        f"{node.target} has no loop form here: it runs as torch's own operator",
    )


def element(value: View, ops: Handler, index: Index) -> Term:
    """One element of a tensor, to compute with."""
    return Term(ops, value.load(ops, index), value.dtype)


class Lowering:
    """The state of one `lower` call, and what rules make nodes with."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.graph = LoopGraph([], [], [])
        # The value of each node so far: a `View`, a `Lazy`, a tuple of them, or a Python value
        self.values: dict[fx.Node, Any] = {}
        # What `Lazy`s compute → where it was written after all, for somebody who needs memory
        self.stored: dict[Any, View] = {}

        # buf0, buf1, ..., without those names that inputs have
        self.taken = {n.name for n in gm.graph.nodes if n.op in ("placeholder", "get_attr")}
        self.numbers = itertools.count()

        # For common subexpressions: what was computed → the first node that does
        self.seen: dict[Any, fx.Node] = {}
        self.canonical: dict[fx.Node, fx.Node] = {}
        self.escaping = operators.escaping(gm.graph)

    def run(self) -> LoopGraph:
        """Walk the graph once, front to back."""
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self.constant(node)
            elif node.op == "output":
                self.output(node)
            elif (twin := self.twin(node)) is not None:
                self.values[node] = self.values[twin]
                self.graph.duplicates.append((node.name, twin.name))
            else:
                self.values[node] = self.call(node)

        return self.graph

    def placeholder(self, node: fx.Node) -> Any:
        """An input of the program: a buffer, or a Python value as it is."""
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            self.graph.inputs.append(None)
            number = sizes.size(fake)
            if sizes.is_symbolic(number):
                self.graph.numbers[len(self.graph.inputs) - 1] = node.name
                self.note_place(number, None)
            return number

        operators.require_strides(fake, "an input")
        if fake.is_neg():
            raise NotImplementedError(
                "an input's negation is still to be done (`x.conj().imag`): its memory is not what it shows"
            )

        buffer = Buffer.like(fake, node.name)
        self.graph.inputs.append(buffer)
        for dim, size in enumerate(buffer.shape):
            self.note_place(size, dim)
        for dim, stride in enumerate(buffer.stride):
            self.note_place(stride, dim, is_stride=True)
        return buffer.view()

    def note_place(self, size: Any, dim: int | None, is_stride: bool = False) -> None:
        """If a size or a stride of the newest input is a symbol: here its value is found."""
        if sizes.is_symbolic(size) and size.expr.is_Symbol:
            place = sizes.Place(len(self.graph.inputs) - 1, dim, is_stride)
            # An input that is the number itself comes last, and says it best.
            if dim is None or size.expr not in self.graph.places:
                self.graph.places[size.expr] = place

    def output(self, node: fx.Node) -> None:
        """What the program returns, and which results are put into inputs."""
        for value in operators.flat_outputs(node):
            result = self.in_memory(self.value_of(value), value)
            self.graph.outputs.append(result)

        signature = self.gm.meta.get("signature")
        if signature is None:
            return
        for update in signature.updates:
            # A write that autograd sees is no kernel's: `signature.write` does it, by `copy_`.
            if update.seen_by != "autograd":
                self.graph.updates[update.index] = self.graph.inputs[update.input]

    def constant(self, node: fx.Node) -> View:
        """A tensor that the graph holds. A single number on the CPU is written into the kernels."""
        tensor = operator.attrgetter(str(node.target))(self.gm)
        is_number_on_cpu = tensor.ndim == 0 and tensor.device.type == "cpu"
        if is_number_on_cpu and tensor.dtype in operators.DTYPES:
            return self.full(tensor.item(), tensor)

        self.graph.constants[node.name] = tensor
        return Buffer.like(tensor, node.name).view()

    def call(self, node: fx.Node) -> Any:
        """The value of a `call_function` node: by the rule for its operator, else by a library
        call."""
        args, kwargs = self.arguments(node)
        if node.target is operator.getitem:
            results, position = args
            return results[position]

        value = node.meta.get("val")
        # A number that is computed of symbolic sizes is a formula: nothing runs.
        if sizes.current() and isinstance(value, (torch.SymInt, torch.SymFloat)):
            return sizes.size(value)
        if isinstance(value, NUMBERS):
            raise NotImplementedError(
                f"{node.target} asks for the number in a tensor, which no kernel can return"
            )
        if is_of_complex_numbers(node, args):
            return computed_now(node, args)

        rule = LOWERINGS.get(node.target)
        if rule is None:
            return self.extern(node, why_extern(node))

        try:
            if not operators.is_view(node.target):
                operators.check_tensors(node)
            return rule(self, node, *args, **kwargs)
        except NoLoopForm as reason:
            return self.extern(node, str(reason))

    def arguments(self, node: fx.Node) -> Any:
        """`args` and `kwargs` with values for nodes."""
        return fx.node.map_aggregate((node.args, node.kwargs), self.value_of)

    def value_of(self, argument: Any) -> Any:
        """The value of a node; what is no node stands for itself, a size as a formula."""
        if isinstance(argument, fx.Node):
            return self.values[argument]
        return sizes.size(argument)

    def twin(self, node: fx.Node) -> fx.Node | None:
        """An earlier node that computes the same (common subexpression), or None."""
        if operators.is_impure(node.target):
            return None

        def first_of_its_kind(operand: fx.Node) -> fx.Node:
            return self.canonical.get(operand, operand)

        arguments = fx.node.map_arg((node.args, node.kwargs), first_of_its_kind)
        twin = self.seen.setdefault((node.target, repr(arguments)), node)
        self.canonical[node] = twin

        # Two outputs must be two tensors, so what leaves the graph is computed on its own.
        if twin is node or node in self.escaping:
            return None
        return twin

    def buffer(self, layout: Buffer) -> Buffer:
        """New memory, with a name nobody has."""
        for size, stride in zip(layout.shape, layout.stride, strict=True):
            if sizes.same(stride, 0) and size > 1:
                raise NotImplementedError(
                    "a new tensor whose elements share memory (torch 2.11 says so of `select_scatter`)"
                )

        name = f"buf{next(self.numbers)}"
        while name in self.taken:
            name = f"buf{next(self.numbers)}"
        return replace(layout, name=name)

    def full(self, value: Any, like: torch.Tensor) -> Lazy:
        """A constant with the layout of `like`."""
        dtype = like.dtype
        if sizes.is_symbolic(value):

            def formula(ops: Handler, index: Index) -> Value:
                return ops.index_expr(value.expr, dtype)

            return self.lazy(like, formula)

        if isinstance(value, sizes.Real):

            def real(ops: Handler, index: Index) -> Value:
                return ops.to_dtype(in_double(ops, value.expr), dtype)

            return self.lazy(like, real)

        if dtype is torch.bool:
            number: bool | int | float = bool(value)
        elif dtype.is_floating_point:
            number = float(value)
        else:
            number = int(value)

        def constant(ops: Handler, index: Index) -> Value:
            return ops.constant(number, dtype)

        return self.lazy(like, constant)

    def lazy(self, like: torch.Tensor, inner: Callable[[Handler, Index], Value]) -> Lazy:
        """A tensor with the layout of `like` that is computed where it is read."""
        layout = Buffer.like(like)
        return Lazy(layout, layout.shape, layout.stride, inner=inner)

    def pointwise(
        self, node: fx.Node, body: Body, layout: Buffer | None = None, label: str = ""
    ) -> View:
        """A loop over all elements of `layout` (or of the node's own value)."""
        buffer = self.buffer(layout or Buffer.like(node.meta["val"]))

        def inner(ops: Handler, index: Index) -> Value:
            return body(ops, index).to(buffer.dtype).value

        name = label or operators.name_of(node)
        self.graph.nodes.append(Pointwise(buffer, buffer.shape, inner, (node,), name))
        return buffer.view()

    def reduction(
        self,
        node: fx.Node,
        kind: str,
        body: Body,
        x: View,
        dims: Sequence[int],
        dtype: torch.dtype,
        layout: Buffer,
        label: str,
        last_of_equals: bool = False,
        around: tuple[Buffer, Buffer] | None = None,
    ) -> View:
        """Combine what `body` computes for each element of `x`, in this dtype, along `dims` (of
        size 1 or absent in `layout`).

        `last_of_equals`, `around`: as in `Reduction`."""
        shape = x.shape
        kept = [d for d in range(len(shape)) if d not in dims]
        keepdim = len(layout.shape) == len(shape)

        def whole_index(index: Index, rindex: Index) -> Index:
            """The index into `x`: each of the two lists has the positions of its dimensions."""
            position = dict(zip([*kept, *dims], [*index, *rindex], strict=True))
            return [position[d] for d in range(len(shape))]

        # A single element: nothing to combine.
        if all(sizes.same(shape[d], 1) for d in dims):
            begins_with_zero = kind == "sum" and dtype.is_floating_point

            def only_element(ops: Handler, index: Index) -> Term:
                if keepdim:
                    index = [index[d] for d in kept]
                value = body(ops, whole_index(index, [ZERO] * len(dims)))
                if begins_with_zero:
                    # eager adds it to 0.0, which makes 0.0 of -0.0
                    value = value.to(dtype) + 0.0
                return value

            return self.pointwise(node, only_element, layout, label)

        def inner(ops: Handler, index: Index, rindex: Index) -> Value:
            return body(ops, whole_index(index, rindex)).to(dtype).value

        loop = Reduction(
            buffer=self.buffer(layout),
            ranges=tuple(shape[d] for d in kept),
            inner=inner,
            origins=(node,),
            label=label or operators.name_of(node),
            reduced=tuple(shape[d] for d in dims),
            kept=kept if keepdim else None,
            kind=kind,
            accumulate=dtype,
            last_of_equals=last_of_equals,
            around=around,
        )
        self.graph.nodes.append(loop)
        return loop.buffer.view()

    def extern(self, node: fx.Node, why: str) -> Any:
        """A call of torch's own operator, in whatever form it returns its tensors."""
        if torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
            raise NotImplementedError(
                f"{node.target} gives a tensor whose shape only the data knows"
            )

        # The call: every tensor among its arguments must lie in memory.
        def stored(value: Any) -> Any:
            return self.in_memory(value, node)

        op = operators.copying(node.target)
        args, kwargs = fx.node.map_aggregate(self.arguments(node), stored)

        results, form = tree_flatten(node.meta.get("val"))
        for result in results:
            operators.require_strides(result, f"the result of {node.target}")
        if getattr(getattr(op, "_schema", None), "is_mutable", False):
            raise NotImplementedError(
                f"{node.target} writes to its arguments, and a graph must be functional"
            )

        # A buffer for each tensor that it returns. What is no tensor stays as it is.
        outputs: list[Buffer | None] = []
        values: list[Any] = []
        for result in results:
            if isinstance(result, torch.Tensor):
                buffer = self.buffer(Buffer.like(result))
                outputs.append(buffer)
                values.append(buffer.view())
            else:
                outputs.append(None)
                values.append(result)

        out_variant = operators.find_out_variant(op)
        self.graph.nodes.append(
            ExternKernel(op, args, kwargs, tuple(outputs), out_variant, (node,), why)
        )
        return tree_unflatten(values, form)

    def in_memory(self, value: Any, origin: fx.Node) -> Any:
        """A `Lazy` written to memory (once), for a library call or as an output, `origin`; anything
        else as it is."""
        if not isinstance(value, Lazy):
            return value

        if value.inner not in self.stored:
            whole = replace(value, shape=value.buffer.shape, stride=value.buffer.stride, offset=0)

            def fill(ops: Handler, index: Index) -> Term:
                return element(whole, ops, index)

            self.stored[value.inner] = self.pointwise(origin, fill, value.buffer, "fill")

        return View(self.stored[value.inner].buffer, value.shape, value.stride, value.offset)


NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)
"""What a node's value is if it is one number that was read out of a tensor."""


def is_of_complex_numbers(node: fx.Node, args: Sequence[Any]) -> bool:
    """True for an operator on complex numbers alone, which the gradient of a product may have."""
    if not args or node.target is torch.ops.aten.scalar_tensor.default:
        return False
    return all(isinstance(arg, complex) for arg in args)


def computed_now(node: fx.Node, args: Sequence[complex]) -> Any:
    """The result of an operator on complex numbers, which are known already."""
    numbers = [torch.tensor(arg, dtype=torch.complex128) for arg in args]
    return node.target(*numbers).item()
