"""From an ATen graph to loops.

In:  a functional ATen `fx.GraphModule` whose nodes carry `meta["val"]` (`autograd.trace`).
Out: a `LoopGraph`: `Pointwise`, `Reduction` and `ExternKernel` nodes in program order.

`lower` walks the graph once. For each node it looks up a rule in `LOWERINGS` (filled by `lowering.rules` and `lowering.reductions`) and
calls it with the node's arguments, where tensors have become `View`s or `Lazy`s. What has no rule, or whose rule says `NoLoopForm`,
becomes a call of torch's own operator.

In PyTorch: `torch/_inductor/graph.py` (`GraphLowering.call_function`) and `torch/_inductor/lowering.py` (`lowerings`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch import fx

from course_lib.lowering.formulas import NoLoopForm, Term
from course_lib.lowering.indexing import as_size, contiguous, loop_symbols, sizes, unflatten
from course_lib.lowering.ir import (
    Buffer,
    ExternKernel,
    Index,
    LoopGraph,
    Node,
    Pointwise,
    Reduction,
    Size,
    View,
)
from course_lib.lowering.ops import Handler, Value, linear_index

DTYPES = frozenset(
    {torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool}
    | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)
"""What loops compute with. Complex, quantized and 8-bit floating numbers stay with torch's own operators."""

Body = Callable[[Handler, Index], Term]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float16 and bfloat16 are for storage: loops compute in float32, as eager does."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


@dataclass(eq=False)
class Lazy:
    """A tensor that needs no memory (`full`, `arange`, a mask made from them): computed again at each use."""

    dtype: torch.dtype
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    """How it would lie in memory."""
    device: torch.device
    inner: Callable[[Handler, Index], Value]
    seen_from: tuple[Lazy, Size] | None = None
    """For a view: what it is a view of, and how far into it it begins."""
    stored: View | None = None
    """Where it was written after all, for somebody who needs memory."""

    def load(self, ops: Handler, index: Index) -> Value:
        """The element at `index`; broadcasts as `View.load` does."""
        index = list(index)[len(index) - len(self.shape) :]
        return self.inner(ops, [sympy.Integer(0) if size == 1 else i for i, size in zip(index, self.shape, strict=True)])


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
    """The graph as loop nodes. Raises `NotImplementedError` for what only the data knows (`item`, `nonzero`) and for sparse tensors."""
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
        buffer = Buffer(node.name, fake.dtype, sizes(fake.shape), strides_of(fake), fake.device)
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
        return Buffer(node.name, tensor.dtype, tuple(tensor.shape), strides_of(tensor), tensor.device).view()

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
            return self.extern(node, f"{node.target} has no loop form here: it runs as torch's own operator")
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
        return fx.node.map_arg(node.args, self.values.__getitem__), fx.node.map_arg(node.kwargs, self.values.__getitem__)

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

    def buffer(self, dtype: torch.dtype, shape: Sequence[Size], stride: Sequence[Size], device: torch.device) -> Buffer:
        """New memory, with a name nobody has."""
        while (name := f"buf{self.count}") in self.taken:
            self.count += 1
        self.count += 1
        return Buffer(name, dtype, tuple(shape), tuple(stride), device)

    def add(self, node: Node) -> None:
        self.graph.nodes.append(node)

    def full(self, value: Any, like: torch.Tensor) -> Lazy:
        """A constant with the shape, dtype and layout of `like`."""
        dtype = like.dtype
        value = dtype_value(value, dtype)
        if isinstance(value, sympy.Expr):
            return self.lazy(like, lambda ops, index: ops.index_expr(value, dtype))
        return self.lazy(like, lambda ops, index: ops.constant(value, dtype))

    def lazy(self, like: torch.Tensor, inner: Callable[[Handler, Index], Value]) -> Lazy:
        return Lazy(like.dtype, sizes(like.shape), strides_of(like), like.device, inner)

    def pointwise(self, node: fx.Node, body: Body, *, like: torch.Tensor | None = None, label: str = "") -> View:
        """A `Pointwise` with the layout of `like` (the node's own value)."""
        like = node.meta["val"] if like is None else like
        return self.loop(body, like.dtype, sizes(like.shape), strides_of(like), like.device, (node,), label or name_of(node))

    def loop(
        self,
        body: Body,
        dtype: torch.dtype,
        shape: tuple[Size, ...],
        stride: tuple[Size, ...],
        device: torch.device,
        origins: tuple[fx.Node, ...],
        label: str,
    ) -> View:
        buffer = self.buffer(dtype, shape, stride, device)
        self.add(Pointwise(buffer, shape, lambda ops, index: body(ops, index).to(dtype).value, origins, label))
        return buffer.view()

    def reduction(
        self,
        node: fx.Node,
        kind: str,
        body: Body,
        shape: Sequence[Size],
        dims: Sequence[int],
        *,
        dtype: torch.dtype,
        accumulate: torch.dtype,
        like: torch.Tensor | None = None,
        label: str = "",
    ) -> View:
        """Reduce dimensions `dims` of what `body` computes over `shape`.

        With `like`, the result has that tensor's layout; without, it keeps the reduced dimensions with size 1."""
        if all(shape[d] == 1 for d in dims):
            return self.single(node, body, shape, dims, dtype, like, label or name_of(node))
        keepdim = like is None or like.ndim == len(shape)
        kept = [d for d in range(len(shape)) if d not in dims]
        if like is not None:
            buffer = self.buffer(dtype, sizes(like.shape), strides_of(like), like.device)
        else:
            full = [1 if d in dims else shape[d] for d in range(len(shape))]
            buffer = self.buffer(dtype, full, contiguous(full), node_device(node))

        def inner(ops: Handler, index: Index, rindex: Index) -> Value:
            whole: list[Any] = [None] * len(shape)
            for d, i in zip([*kept, *dims], [*index, *rindex], strict=True):
                whole[d] = i
            return body(ops, whole).to(accumulate).value

        ranges, reduced = tuple(shape[d] for d in kept), tuple(shape[d] for d in dims)
        where = tuple(kept) if keepdim else tuple(range(len(kept)))
        self.add(Reduction(buffer, ranges, reduced, kind, inner, accumulate, where, (node,), label or name_of(node)))
        return buffer.view()

    def single(
        self, node: fx.Node, body: Body, shape: Sequence[Size], dims: Sequence[int], dtype: torch.dtype, like: Any, label: str
    ) -> View:
        """A reduction of one element: that element."""
        out_shape = tuple(shape) if like is None else sizes(like.shape)
        stride = contiguous(out_shape) if like is None else strides_of(like)
        dropped = set(dims) if len(out_shape) != len(shape) else set()

        def whole(ops: Handler, index: Index) -> Term:
            rest = iter(index)
            return body(ops, [sympy.Integer(0) if d in dropped else next(rest) for d in range(len(shape))])

        return self.loop(whole, dtype, out_shape, stride, node_device(node), (node,), label)

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
            outputs = [
                self.buffer(r.dtype, sizes(r.shape), strides_of(r), r.device) if isinstance(r, torch.Tensor) else None
                for r in results
            ]
        names = tuple(view.buffer.name for view in mutated)
        self.add(ExternKernel(op, args, kwargs, tuple(outputs), out_variant(op, fake), names, (node,), why))
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
            value.stored = View(stored.buffer, value.shape, value.stride, stored.offset + moved)
        if value.stored is None:
            body = lambda ops, index: element(value, ops, index)
            value.stored = self.loop(body, value.dtype, value.shape, value.stride, value.device, (), "fill")
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
        there = unflatten(linear_index(symbols, stride, moved), extent, base.shape, base.stride)

        def inner(ops: Handler, index: Index) -> Value:
            become = dict(zip(symbols, index, strict=True))
            return base.inner(ops, [i.xreplace(become) for i in there])

        return Lazy(base.dtype, shape, stride, base.device, inner, (base, moved))


# -- helpers ---------------------------------------------------------------------------------------------------------------


def strides_of(tensor: torch.Tensor) -> tuple[Size, ...]:
    return sizes(tensor.stride())


def dtype_value(value: Any, dtype: torch.dtype) -> Any:
    """A Python number as `dtype` holds it (True for 2.0 as bool)."""
    if isinstance(value, sympy.Expr):
        return value
    value = as_size(value) if isinstance(value, torch.SymInt) else value
    if dtype is torch.bool:
        return bool(value)
    return float(value) if dtype.is_floating_point else value if isinstance(value, sympy.Expr) else int(value)


def name_of(node: fx.Node) -> str:
    """The operator's plain name: 'add', 'var_mean'."""
    packet = getattr(node.target, "overloadpacket", None)
    return packet.__name__.strip("_") if packet is not None else str(node.target)


def node_device(node: fx.Node) -> torch.device:
    fake = node.meta["val"]
    return (fake[0] if isinstance(fake, (list, tuple)) else fake).device


def flat_outputs(node: fx.Node) -> list[Any]:
    """What the graph returns, as a flat list."""
    returned = node.args[0]
    return list(returned) if isinstance(returned, (list, tuple)) else [returned]


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory the caller may get to see: outputs, and what they are views of."""
    found: set[fx.Node] = set()
    waiting = [n for n in flat_outputs(graph.output_node()) if isinstance(n, fx.Node)]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.all_input_nodes if is_view(node.target) or node.target is operator.getitem else []
    return found


def is_view(op: Any) -> bool:
    """True if the operator returns memory of its first argument."""
    schema = getattr(op, "_schema", None)
    if schema is None or not any(r.alias_info is not None for r in schema.returns):
        return False
    return not schema.is_mutable or torch.Tag.inplace_view in op.tags


def is_impure(op: Any) -> bool:
    """True if two calls may differ: random numbers, or writing to an argument."""
    return op._schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags


def has_strides(tensor: Any, what: str) -> None:
    if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
        raise NotImplementedError(f"{what} is a {tensor.layout} tensor, which no buffer can hold")


def writes_to_intermediate(node: fx.Node) -> bool:
    """True for an in-place operator on something that the graph computed. (A functional graph writes only to its inputs, but a
    decomposition may have left one.) Then values must have memory of their own from the start."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and any(n.op != "placeholder" for n in node.args[:1] if isinstance(n, fx.Node))


def functional_form(node: fx.Node) -> Any:
    """For an in-place operator whose target nobody else sees any more: the operator that makes a new tensor (`add` for `add_`)."""
    target, order = node.args[0], {n: place for place, n in enumerate(node.graph.nodes)}
    assert isinstance(target, fx.Node)
    shared = is_view(target.target) or (target.target is operator.getitem and is_view(target.args[0].target))  # type: ignore[union-attr]
    if target.op != "call_function" or shared or is_view(node.target):
        return None
    if any(is_view(user.target) or order[user] > order[node] for user in target.users if user is not node):
        return None
    packet = getattr(torch.ops.aten, node.target.overloadpacket.__name__.removesuffix("_"), None)  # type: ignore[union-attr]
    return getattr(packet, node.target._overloadname, None)  # type: ignore[union-attr]


def check_tensors(node: fx.Node) -> None:
    """Raise `NoLoopForm` for tensors that a loop cannot read or write."""
    results = node.meta.get("val")
    results = list(results) if isinstance(results, (list, tuple)) else [results]
    tensors = [t for t in [*results, *(a.meta.get("val") for a in node.all_input_nodes)] if isinstance(t, torch.Tensor)]
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            raise NoLoopForm(f"{tensor.dtype} has no loop form here: {node.target} runs as torch's own operator")
    if len({tensor.device for tensor in tensors}) > 1:
        raise NoLoopForm(f"a loop cannot read tensors of two devices: {node.target} runs as torch's own operator")


def mutations(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[View], View | None]:
    """The arguments that `op` writes to, and the one that it returns, if it returns one of them."""
    schema = getattr(op, "_schema", None)
    if schema is None or not schema.is_mutable:
        return [], None
    given = dict(zip([a.name for a in schema.arguments], args, strict=False)) | kwargs
    written = {a.name: given[a.name] for a in schema.arguments if a.is_write and isinstance(given.get(a.name), View)}
    returns_it = any(r.alias_info is not None for r in schema.returns)
    return list(written.values()), next(iter(written.values()), None) if returns_it else None


def copying(op: Any) -> Any:
    """For a view operator that has no rule, the form that copies: a buffer never shares memory with another."""
    if not is_view(op):
        return op
    packet = getattr(torch.ops.aten, f"{op.overloadpacket.__name__.rstrip('_')}_copy", None)
    return getattr(packet, op._overloadname, op) if packet is not None else op


def out_variant(op: Any, fake: Any) -> Any:
    """The overload that writes into memory we give it, where torch has a real one (not one that computes, then copies)."""
    return find_out_variant(op) if isinstance(fake, torch.Tensor) else None


@functools.cache
def find_out_variant(op: Any) -> Any:
    schema = getattr(op, "_schema", None)
    if schema is None or schema.is_mutable or torch.Tag.dynamic_output_shape in op.tags:
        return None
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    for overload in (getattr(op.overloadpacket, name) for name in op.overloadpacket.overloads()):
        arguments = overload._schema.arguments
        outs = [a for a in arguments if a.is_out]
        if [a.name for a in outs] == ["out"] and [(a.name, str(a.type)) for a in arguments if not a.is_out] == wanted:
            return None if torch.Tag.generated in overload.tags else overload
    return None
