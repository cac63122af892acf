"""From an ATen graph to loops.

In:  a functional ATen `fx.GraphModule` whose nodes carry `meta["val"]` (`autograd.trace`).
Out: a `LoopGraph`: `Pointwise`, `Reduction` and `ExternKernel` nodes in program order.

`lower` walks the graph once. For each node it looks up a rule in `LOWERINGS` (`lowering.rules` and `lowering.reductions` fill it)
and calls it with the node's arguments, where tensors have become `View`s or `Lazy`s. What has no rule, or whose rule says
`NoLoopForm`, becomes a call of torch's own operator.

In PyTorch: `torch/_inductor/graph.py` (`GraphLowering.call_function`) and `torch/_inductor/lowering.py` (`lowerings`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch
from torch import fx

from course_lib.lowering.formulas import NoLoopForm, Term
from course_lib.lowering.indexing import as_size, contiguous, loop_symbols, sizes, unflatten
from course_lib.lowering.ir import Buffer, ExternKernel, Index, LoopGraph, Pointwise, Reduction, Size, View
from course_lib.lowering.operators import (
    DTYPES,
    check_tensors,
    copying,
    escaping,
    flat_outputs,
    functional_form,
    has_strides,
    is_impure,
    is_view,
    mutations,
    name_of,
    out_variant,
    writes_to_intermediate,
)
from course_lib.lowering.ops import Handler, Value, linear_index

ZERO = sympy.Integer(0)
Body = Callable[[Handler, Index], Term]

LIBRARY = dict.fromkeys(("mm", "addmm", "bmm", "baddbmm"), "matrix product: left to the library") | {
    "convolution": "convolution: left to the library"
}
"""Operators whose loops a library writes better than we could, and what is said of them."""


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory: a `Buffer` without a name."""

    dtype: torch.dtype
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    device: torch.device

    @staticmethod
    def of(tensor: torch.Tensor) -> Layout:
        return Layout(tensor.dtype, sizes(tensor.shape), sizes(tensor.stride()), tensor.device)

    @staticmethod
    def rows(dtype: torch.dtype, shape: Sequence[Size], device: torch.device) -> Layout:
        """Row-major."""
        return Layout(dtype, tuple(shape), contiguous(shape), device)

    def named(self, name: str) -> Buffer:
        return Buffer(name, self.dtype, self.shape, self.stride, self.device)


@dataclass(eq=False)
class Lazy:
    """A tensor that needs no memory (`full`, `arange`, a mask made from them): computed again at each use."""

    layout: Layout
    """How it would lie in memory."""
    inner: Callable[[Handler, Index], Value]
    seen_from: tuple[Lazy, Size] | None = None
    """For a view: what it is a view of, and how far into it it begins."""
    stored: View | None = None
    """Where it was written after all, for somebody who needs memory."""

    @property
    def dtype(self) -> torch.dtype:
        return self.layout.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.layout.shape

    def load(self, ops: Handler, index: Index) -> Value:
        """The element at `index`; broadcasts as `View.load` does."""
        index = list(index)[len(index) - len(self.shape) :]
        return self.inner(ops, [ZERO if size == 1 else i for i, size in zip(index, self.shape, strict=True)])


TensorValue = View | Lazy
Rule = Callable[..., Any]
LOWERINGS: dict[Any, Rule] = {}
"""ATen operator → rule(lowering, fx node, *the node's arguments)."""


def lowers(*operators: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these operators."""

    def register(rule: Rule) -> Rule:
        LOWERINGS.update(dict.fromkeys(operators, rule))
        return rule

    return register


def lower(gm: fx.GraphModule) -> LoopGraph:
    """The graph as loop nodes.

    Raises `NotImplementedError` for what only the data knows (`item`, the shape of `nonzero`) and for sparse tensors."""
    return Lowering(gm).run()


def element(value: TensorValue, ops: Handler, index: Index) -> Term:
    """One element of a tensor value, to compute with."""
    return Term(ops, value.load(ops, index), value.dtype)


class Lowering:
    """The state of one `lower` call, and what rules make nodes with."""

    def __init__(self, gm: fx.GraphModule) -> None:
        self.gm = gm
        self.values: dict[fx.Node, Any] = {}
        self.graph = LoopGraph([], [], [])
        self.taken = {n.name for n in gm.graph.nodes if n.op in ("placeholder", "get_attr")}
        self.count = 0
        self.canonical: dict[fx.Node, fx.Node] = {}
        self.seen: dict[Any, fx.Node] = {}
        self.escaping = escaping(gm.graph)
        in_place = [node for node in gm.graph.nodes if writes_to_intermediate(node)]
        self.functional = {node: op for node in in_place if (op := functional_form(node)) is not None}
        self.mutates = len(self.functional) < len(in_place)

    def run(self) -> LoopGraph:
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self.constant(node)
            elif node.op == "output":
                self.graph.outputs = [self.output(value) for value in flat_outputs(node)]
            elif (twin := self.twin(node)) is not None:
                self.values[node] = self.values[twin]
                self.graph.duplicates.append((node.name, twin.name))
            else:
                self.values[node] = self.call(node)
        return self.graph

    # -- where values come from -------------------------------------------------------------------------------------------

    def placeholder(self, node: fx.Node) -> Any:
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            self.graph.inputs.append(None)
            return as_size(fake) if isinstance(fake, (int, torch.SymInt)) and not isinstance(fake, bool) else fake
        has_strides(fake, "an input")
        buffer = Layout.of(fake).named(node.name)
        self.graph.inputs.append(buffer)
        return buffer.view()

    def constant(self, node: fx.Node) -> TensorValue:
        tensor = self.gm
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        assert isinstance(tensor, torch.Tensor), f"{node.target} is not a tensor"
        if tensor.ndim == 0 and tensor.device.type == "cpu" and tensor.dtype in DTYPES:
            return self.full(tensor.item(), tensor)
        self.graph.constants[node.name] = tensor
        return Layout.of(tensor).named(node.name).view()

    def call(self, node: fx.Node) -> Any:
        """The value of a `call_function` node."""
        fake = node.meta.get("val")
        args, kwargs = self.arguments(node)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if isinstance(fake, (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)):
            if any(isinstance(a, (View, Lazy)) for a in args) and not str(node.target).startswith("aten.sym_"):
                raise NotImplementedError(f"{node.target} asks for the number in a tensor, which no kernel can return")
            return as_size(fake) if isinstance(fake, (int, torch.SymInt)) else fake
        rule = LOWERINGS.get(self.functional.get(node, node.target))
        if rule is None:
            name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
            why = LIBRARY.get(name, f"{node.target} has no loop form here: it runs as torch's own operator")
            return self.extern(node, why)
        made = len(self.graph.nodes), self.count
        try:
            if not is_view(node.target):
                check_tensors(node)
            value = rule(self, node, *args, **kwargs)
            return self.in_memory(value) if self.mutates and isinstance(value, Lazy) else value
        except NoLoopForm as reason:
            del self.graph.nodes[made[0] :]
            self.count = made[1]
            return self.extern(node, str(reason))

    def arguments(self, node: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return fx.node.map_arg(node.args, self.values.__getitem__), fx.node.map_arg(
            node.kwargs, self.values.__getitem__
        )

    def output(self, value: Any) -> Any:
        value = self.values[value] if isinstance(value, fx.Node) else value
        return self.in_memory(value) if isinstance(value, (View, Lazy)) else value

    def twin(self, node: fx.Node) -> fx.Node | None:
        """An earlier node that computes the same (common subexpression), or None."""
        if self.mutates:
            return None
        op = self.functional.get(node, node.target)
        schema = getattr(op, "_schema", None)
        if op is not operator.getitem and (schema is None or is_impure(op)):
            if schema is not None and schema.is_mutable:
                self.seen.clear()  # what was read before the write is no longer the same
            return None
        key = (op, self.key(node.args), self.key(node.kwargs))
        twin = self.seen.setdefault(key, node)
        self.canonical[node] = twin
        # Two outputs must be two tensors, so what leaves the graph is computed on its own.
        return None if twin is node or node in self.escaping else twin

    def key(self, argument: Any) -> Any:
        if isinstance(argument, fx.Node):
            return self.canonical.get(argument, argument)
        if isinstance(argument, (list, tuple)):
            return tuple(self.key(a) for a in argument)
        if isinstance(argument, dict):
            return tuple((name, self.key(a)) for name, a in sorted(argument.items()))
        return (type(argument), repr(argument))

    # -- what rules make nodes with ---------------------------------------------------------------------------------------

    def buffer(self, layout: Layout) -> Buffer:
        """New memory, with a name nobody has."""
        while (name := f"buf{self.count}") in self.taken:
            self.count += 1
        self.count += 1
        return layout.named(name)

    def full(self, value: Any, like: torch.Tensor) -> Lazy:
        """A constant with the layout of `like`."""
        dtype = like.dtype
        value = as_size(value) if isinstance(value, torch.SymInt) else value
        if isinstance(value, sympy.Expr):
            return self.lazy(like, lambda ops, index: ops.index_expr(value, dtype))
        kind = bool if dtype is torch.bool else float if dtype.is_floating_point else int
        return self.lazy(like, lambda ops, index: ops.constant(kind(value), dtype))

    def lazy(self, like: torch.Tensor, inner: Callable[[Handler, Index], Value]) -> Lazy:
        return Lazy(Layout.of(like), inner)

    def pointwise(self, node: fx.Node, body: Body, *, like: torch.Tensor | None = None, label: str = "") -> View:
        """A loop over all elements of `like` (of the node's own value), which has its layout."""
        return self.loop(body, Layout.of(node.meta["val"] if like is None else like), (node,), label or name_of(node))

    def loop(self, body: Body, layout: Layout, origins: tuple[fx.Node, ...], label: str) -> View:
        buffer = self.buffer(layout)
        inner = lambda ops, index: body(ops, index).to(layout.dtype).value
        self.graph.nodes.append(Pointwise(buffer, buffer.shape, inner, origins, label))
        return buffer.view()

    def reduction(
        self,
        node: fx.Node,
        kind: str,
        body: Body,
        shape: Sequence[Size],
        dims: Sequence[int],
        accumulate: torch.dtype,
        layout: Layout,
        label: str = "",
    ) -> View:
        """Combine what `body` computes over `shape` along `dims`. These have size 1 in `layout`, or are not in it."""
        kept = [d for d in range(len(shape)) if d not in dims]
        keepdim = len(layout.shape) == len(shape)
        label = label or name_of(node)

        def at(index: Index, rindex: Index) -> list[Any]:
            place = dict(zip([*kept, *dims], [*index, *rindex], strict=True))
            return [place[d] for d in range(len(shape))]

        if all(shape[d] == 1 for d in dims):  # a single element: nothing to combine
            rest = lambda index: [index[d] for d in kept] if keepdim else index
            return self.loop(lambda ops, index: body(ops, at(rest(index), [ZERO] * len(dims))), layout, (node,), label)
        inner = lambda ops, index, rindex: body(ops, at(index, rindex)).to(accumulate).value
        ranges, reduced = tuple(shape[d] for d in kept), tuple(shape[d] for d in dims)
        where = tuple(kept) if keepdim else tuple(range(len(kept)))
        buffer = self.buffer(layout)
        self.graph.nodes.append(Reduction(buffer, ranges, reduced, kind, inner, accumulate, where, (node,), label))
        return buffer.view()

    def extern(self, node: fx.Node, why: str) -> Any:
        """A call of torch's own operator, in whatever form it returns its tensors."""
        if torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
            raise NotImplementedError(f"{node.target} gives a tensor whose shape only the data knows")
        op = copying(self.functional.get(node, node.target))
        args, kwargs = (self.to_memory(a) for a in self.arguments(node))
        fake = node.meta.get("val")
        results = list(fake) if isinstance(fake, (list, tuple)) else [fake]
        if any(isinstance(r, (list, tuple)) for r in results):
            raise NotImplementedError(f"{node.target} returns a list within a tuple")
        for result in results:
            has_strides(result, f"the result of {node.target}")
        mutated, aliases = mutations(op, args, kwargs)
        if aliases is not None:  # an in-place operator returns the tensor that it wrote to
            outputs: list[Buffer | None] = []
        else:
            outputs = [self.buffer(Layout.of(r)) if isinstance(r, torch.Tensor) else None for r in results]
        names = tuple(view.buffer.name for view in mutated)
        self.graph.nodes.append(
            ExternKernel(op, args, kwargs, tuple(outputs), out_variant(op, fake), names, (node,), why)
        )
        if aliases is not None:
            return aliases
        values = [r if b is None else b.view() for r, b in zip(results, outputs, strict=True)]
        return tuple(values) if isinstance(fake, (list, tuple)) else values[0]

    # -- tensors and memory -----------------------------------------------------------------------------------------------

    def in_memory(self, value: TensorValue) -> View:
        """A `Lazy` written to memory (once), for a library call or as an output."""
        if isinstance(value, View):
            return value
        if value.stored is None and value.seen_from is not None:
            base, moved = value.seen_from
            stored = self.in_memory(base)
            value.stored = View(stored.buffer, value.shape, value.layout.stride, stored.offset + moved)
        if value.stored is None:
            body = lambda ops, index: element(value, ops, index)
            value.stored = self.loop(body, value.layout, (), "fill")
        return value.stored

    def to_memory(self, argument: Any) -> Any:
        """Arguments for a library call."""
        if isinstance(argument, (View, Lazy)):
            return self.in_memory(argument)
        if isinstance(argument, (list, tuple)):
            return type(argument)(self.to_memory(a) for a in argument)
        if isinstance(argument, dict):
            return {name: self.to_memory(a) for name, a in argument.items()}
        return argument

    def view(self, base: TensorValue, shape: Sequence[Any], stride: Sequence[Any], moved: Any) -> TensorValue:
        """`base` seen with another shape and strides; `moved` is how far its first element lies from that of `base`."""
        shape, stride, moved = sizes(shape), sizes(stride), as_size(moved)
        if isinstance(base, View):
            return View(base.buffer, shape, stride, base.offset + moved)
        symbols = loop_symbols("v", len(shape))
        extent = dict(zip(symbols, shape, strict=True))
        there = unflatten(linear_index(symbols, stride, moved), extent, base.shape, base.layout.stride)

        def inner(ops: Handler, index: Index) -> Value:
            become = dict(zip(symbols, index, strict=True))
            return base.inner(ops, [i.xreplace(become) for i in there])

        return Lazy(replace(base.layout, shape=shape, stride=stride), inner, (base, moved))
