"""From an ATen graph to loops.

In:  a functional ATen `fx.GraphModule` whose nodes carry `meta["val"]` (`autograd.trace`).
Out: a `LoopGraph`: `Pointwise`, `Reduction` and `ExternKernel` nodes in program order.

`lower` walks the graph once. For each node it looks up a rule in `LOWERINGS` (`lowering.rules` and `lowering.reductions` fill it)
and calls it with the node's arguments, tensors as `View`s. Without a rule, or by `NoLoopForm`, torch's own operator is called.
In PyTorch: `torch/_inductor/graph.py` (`GraphLowering.call_function`) and `torch/_inductor/lowering.py` (`lowerings`).
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_unflatten

from course_lib.lowering import operators
from course_lib.lowering.formulas import NoLoopForm, Term
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
WHY_EXTERN = {name: why for why, names in LIBRARY.items() for name in names.split()}
"""Operators that a library does better than our loops could, or that are no loops, and what is said of them."""

Rule = Callable[..., Any]
LOWERINGS: dict[Any, Rule] = {}  # ATen operator → rule(lowering, fx node, *the node's arguments)


def lowers(*ops: Any) -> Callable[[Rule], Rule]:
    """Register a rule for these operators; a packet (`aten.view`) stands for all its overloads that write to nothing."""

    def register(rule: Rule) -> Rule:
        for op in ops:
            every = (
                [getattr(op, name) for name in op.overloads()]
                if isinstance(op, torch._ops.OpOverloadPacket)
                else [op]
            )
            LOWERINGS.update(
                {overload: rule for overload in every if not overload._schema.is_mutable}
            )
        return rule

    return register


def lower(gm: fx.GraphModule) -> LoopGraph:
    """The graph as loop nodes. Raises `NotImplementedError` for what only the data knows (`item`, `nonzero`), and the sparse."""
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
        self.values: dict[fx.Node, Any] = {}
        self.graph = LoopGraph([], [], [])
        taken = {n.name for n in gm.graph.nodes if n.op in ("placeholder", "get_attr")}
        self.names = (name for n in itertools.count() if (name := f"buf{n}") not in taken)
        self.canonical: dict[fx.Node, fx.Node] = {}
        self.seen: dict[Any, fx.Node] = {}
        self.escaping = operators.escaping(gm.graph)
        # What `Lazy`s compute → where it was written after all, for somebody who needs memory
        self.stored: dict[Any, View] = {}

    def run(self) -> LoopGraph:
        for node in self.gm.graph.nodes:
            if node.op == "placeholder":
                self.values[node] = self.placeholder(node)
            elif node.op == "get_attr":
                self.values[node] = self.constant(node)
            elif node.op == "output":
                outputs = operators.flat_outputs(node)
                self.graph.outputs = [
                    self.in_memory(self.values.get(value, value), value) for value in outputs
                ]
                written = self.gm.meta["signature"].updates if "signature" in self.gm.meta else ()
                self.graph.updates = {
                    u.index: self.graph.inputs[u.input] for u in written if u.seen_by != "autograd"
                }
            elif (twin := self.twin(node)) is not None:
                self.values[node] = self.values[twin]
                self.graph.duplicates.append((node.name, twin.name))
            else:
                self.values[node] = self.call(node)
        return self.graph

    def placeholder(self, node: fx.Node) -> Any:
        if not isinstance(fake := node.meta.get("val"), torch.Tensor):
            self.graph.inputs.append(None)
            return fake
        operators.has_strides(fake, "an input")
        if fake.is_neg():
            raise NotImplementedError(
                "an input's negation is still to be done (`x.conj().imag`): its memory is not what it shows"
            )
        buffer = Buffer.like(fake, node.name)
        self.graph.inputs.append(buffer)
        return buffer.view()

    def constant(self, node: fx.Node) -> View:
        tensor = operator.attrgetter(str(node.target))(self.gm)
        if tensor.ndim == 0 and tensor.device.type == "cpu" and tensor.dtype in operators.DTYPES:
            return self.full(tensor.item(), tensor)
        self.graph.constants[node.name] = tensor
        return Buffer.like(tensor, node.name).view()

    def call(self, node: fx.Node) -> Any:
        """The value of a `call_function` node."""
        fake = node.meta.get("val")
        args, kwargs = self.arguments(node)
        if node.target is operator.getitem:
            return args[0][args[1]]
        if isinstance(fake, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            raise NotImplementedError(
                f"{node.target} asks for the number in a tensor, which no kernel can return"
            )
        if (
            args
            and all(isinstance(arg, complex) for arg in args)
            and node.target is not torch.ops.aten.scalar_tensor.default
        ):
            # in a product's gradient
            return node.target(*(torch.tensor(arg, dtype=torch.complex128) for arg in args)).item()
        if (rule := LOWERINGS.get(node.target)) is None:
            return self.extern(node, why_extern(node))
        try:
            if not operators.is_view(node.target):
                operators.check_tensors(node)
            return rule(self, node, *args, **kwargs)
        except NoLoopForm as reason:
            return self.extern(node, str(reason))

    def arguments(self, node: fx.Node) -> Any:
        """`args` and `kwargs` with values for nodes."""
        return fx.node.map_arg((node.args, node.kwargs), self.values.__getitem__)

    def twin(self, node: fx.Node) -> fx.Node | None:
        """An earlier node that computes the same (common subexpression), or None."""
        if operators.is_impure(node.target):
            return None
        key = (
            node.target,
            repr(fx.node.map_arg((node.args, node.kwargs), lambda n: self.canonical.get(n, n))),
        )
        twin = self.canonical[node] = self.seen.setdefault(key, node)
        # Two outputs must be two tensors, so what leaves the graph is computed on its own.
        return None if twin is node or node in self.escaping else twin

    def buffer(self, layout: Buffer) -> Buffer:
        """New memory, with a name nobody has."""
        if any(
            size > 1 and stride == 0
            for size, stride in zip(layout.shape, layout.stride, strict=True)
        ):
            raise NotImplementedError(
                "a new tensor whose elements share memory (torch 2.11 says so of `select_scatter`)"
            )
        return replace(layout, name=next(self.names))

    def full(self, value: Any, like: torch.Tensor) -> Lazy:
        """A constant with the layout of `like`."""
        dtype = like.dtype
        kind = bool if dtype is torch.bool else float if dtype.is_floating_point else int
        return self.lazy(like, lambda ops, index: ops.constant(kind(value), dtype))

    def lazy(self, like: torch.Tensor, inner: Callable[[Handler, Index], Value]) -> Lazy:
        layout = Buffer.like(like)
        return Lazy(layout, layout.shape, layout.stride, inner=inner)

    def pointwise(
        self, node: fx.Node, body: Body, layout: Buffer | None = None, label: str = ""
    ) -> View:
        """A loop over all elements of `layout` (or of the node's own value)."""
        buffer = self.buffer(layout or Buffer.like(node.meta["val"]))
        inner = lambda ops, index: body(ops, index).to(buffer.dtype).value
        self.graph.nodes.append(
            Pointwise(buffer, buffer.shape, inner, (node,), label or operators.name_of(node))
        )
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
    ) -> View:
        """Combine what `body` computes for each element of `x`, in this dtype, along `dims` (of size 1 or absent in `layout`)."""
        shape = x.shape
        kept = [d for d in range(len(shape)) if d not in dims]
        keepdim = len(layout.shape) == len(shape)
        order = [[*kept, *dims].index(d) for d in range(len(shape))]
        at = lambda index, rindex: list(map([*index, *rindex].__getitem__, order))
        if all(shape[d] == 1 for d in dims):  # a single element: nothing to combine
            rest = lambda index: [index[d] for d in kept] if keepdim else index
            return self.pointwise(
                node,
                lambda ops, index: body(ops, at(rest(index), [ZERO] * len(dims))),
                layout,
                label,
            )
        inner = lambda ops, index, rindex: body(ops, at(index, rindex)).to(dtype).value
        ranges, reduced = tuple(shape[d] for d in kept), tuple(shape[d] for d in dims)
        loop = (
            self.buffer(layout),
            ranges,
            inner,
            (node,),
            label or operators.name_of(node),
            reduced,
            kept if keepdim else None,
        )
        self.graph.nodes.append(Reduction(*loop, kind=kind, accumulate=dtype))
        return loop[0].view()

    def extern(self, node: fx.Node, why: str) -> Any:
        """A call of torch's own operator, in whatever form it returns its tensors."""
        if torch.Tag.dynamic_output_shape in getattr(node.target, "tags", ()):
            raise NotImplementedError(
                f"{node.target} gives a tensor whose shape only the data knows"
            )
        op = operators.copying(node.target)
        args, kwargs = fx.node.map_aggregate(
            self.arguments(node), lambda value: self.in_memory(value, node)
        )
        results, form = tree_flatten(node.meta.get("val"))
        for result in results:
            operators.has_strides(result, f"the result of {node.target}")
        if getattr(getattr(op, "_schema", None), "is_mutable", False):
            raise NotImplementedError(
                f"{node.target} writes to its arguments, and a graph must be functional"
            )
        outputs = tuple(
            self.buffer(Buffer.like(r)) if isinstance(r, torch.Tensor) else None for r in results
        )
        self.graph.nodes.append(
            ExternKernel(op, args, kwargs, outputs, operators.find_out_variant(op), (node,), why)
        )
        return tree_unflatten(
            [r if b is None else b.view() for r, b in zip(results, outputs, strict=True)], form
        )

    def in_memory(self, value: Any, origin: fx.Node) -> Any:
        """A `Lazy` written to memory (once), for a library call or as an output, `origin`; anything else as it is."""
        if not isinstance(value, Lazy):
            return value
        if value.inner not in self.stored:
            whole = replace(value, shape=value.buffer.shape, stride=value.buffer.stride, offset=0)
            self.stored[value.inner] = self.pointwise(
                origin, lambda ops, index: element(whole, ops, index), value.buffer, "fill"
            )
        return View(self.stored[value.inner].buffer, value.shape, value.stride, value.offset)
