"""Sums along a row of scores that need no scores: the two sums are exchanged.

In:  a joint graph. Backward of a softmax has in it, for each row,

         sum over n of  w[n] * (sum over e of  a[e] * v[n, e])

Out: the same graph with the two sums exchanged, where the inner sum is known already:

         sum over e of  a[e] * (sum over n of  w[n] * v[n, e])

Forward has computed that inner sum: it is the row of `weights @ values`. So each row takes one
product of two short vectors, and not a walk along all columns. Nothing here knows of softmax: both
sides are taken apart into factors (`factors_of`), and must be equal but for a number.
FlashAttention's backward begins with this sum ("D = rowsum(dO * O)"), found by hand.
In PyTorch: nothing; `torch/_inductor/kernel/flex_attention.py` has it in its template.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from course_lib.autograd.partition import ends_of
from course_lib.autograd.signature import memory
from course_lib.written import quiet, traceable

aten = torch.ops.aten
RESHAPES = (aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.alias.default)
PRODUCTS = (aten.mm.default, aten.bmm.default)
TRANSPOSES = (aten.transpose.int, aten.permute.default, aten.t.default)
OWN_COPY = "a copy that must be kept"
"""A key in the `meta` of a node: the partition must keep this copy. If it were made again in
backward, the original would be kept, to which the program may write."""
SAME = 1e-6
"""How far two products of the same numbers may be apart: they are rounded in another order."""


@dataclass
class Factors:
    """A value as a product: what is multiplied, each with its power, and a number."""

    powers: Counter[Any] = field(default_factory=Counter)
    number: float = 1.0

    def without(self, factor: Any) -> "Factors":
        """The rest, when one factor is taken out."""
        rest = Counter(self.powers)
        rest[factor] -= 1
        return Factors(clean(rest), self.number)


def clean(powers: Counter[Any]) -> Counter[Any]:
    """Without the factors whose power is 0, so that equal products are equal."""
    return Counter({key: power for key, power in powers.items() if power})


def exchange_sums(joint: fx.GraphModule) -> fx.GraphModule:
    """A copy of the graph in which sums are exchanged where that can be; the graph itself if there
    are none."""
    copy = copied(joint)
    graph = copy.graph
    products = [node for node in graph.nodes if node.target in PRODUCTS]
    found = False
    shown = shown_memory(copy)
    for node in graph.find_nodes(op="call_function", target=aten.sum.dim_IntList):
        exchanged = Exchange.of(node, products)
        if exchanged is not None:
            node.replace_all_uses_with(exchanged.write(NodeWriter(graph, node), shown))
            found = True
    if not found:
        return joint

    copy.recompile()
    return copy


def shown_memory(joint: fx.GraphModule) -> set[Any]:
    """The memory of what a joint graph returns: the program may write to it before backward."""
    values = ends_of(joint).values
    return {memory(node.meta["val"]) for node in values if is_tensor(node)}


def is_tensor(node: Any) -> bool:
    return isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def copied(joint: fx.GraphModule) -> fx.GraphModule:
    """The same graph once more, with nodes of the same names."""
    graph = fx.Graph()
    twin: dict[fx.Node, fx.Node] = {}
    with quiet():
        for node in joint.graph.nodes:
            twin[node] = graph.node_copy(node, twin.__getitem__)
    copy = traceable(_LazyGraphModule(joint, graph))
    copy.meta.update(joint.meta)
    return copy


@dataclass
class Exchange:
    """sum over n of (a @ v.mT * weights)  =  number * sum over e of (a * (weights @ v))"""

    a: fx.Node
    # What forward has computed: weights @ v
    known: fx.Node
    number: float

    @staticmethod
    def of(total: fx.Node, products: list[fx.Node]) -> "Exchange | None":
        """How this sum can be exchanged, or None."""
        term, dims = total.args[:2]
        value = term.meta["val"]
        is_along_rows = [d % value.ndim for d in dims] == [value.ndim - 1]
        if not is_along_rows or not value.dtype.is_floating_point:
            return None

        factors = factors_of(term)
        for product in products:
            if factors.powers[product] != 1:
                continue
            # The product is `a @ turned`. It can be exchanged if forward has computed the product
            # of all other factors (the weights) with the values, whose transpose `turned` is.
            a, turned = product.args
            rest = factors.without(product)
            for known in products:
                number = ratio(rest, known, turned)
                if number is not None and known.meta["val"].shape == a.meta["val"].shape:
                    return Exchange(a, known, number)
        return None

    def write(self, writer: "NodeWriter", shown: set[Any]) -> fx.Node:
        """The sum in its new form.

        shown: the memory that the program can see (`shown_memory`)."""
        # The sum as it was: the new nodes are put before it
        before = writer.before.meta["val"]

        # If `known` is a result, the program may write to it before backward. Eager's backward does
        # not need it, and so would not mind. Hence a copy is kept.
        known = self.known
        if memory(known.meta["val"]) in shown:
            known = writer.call(aten.clone.default, known)
            known.meta[OWN_COPY] = True

        a = writer.converted(self.a, torch.float32)
        known = writer.converted(known, torch.float32)
        products = writer.call(aten.mul.Tensor, a, known)
        summed = writer.call(aten.sum.dim_IntList, products, [-1], True)
        if abs(self.number - 1) > SAME:
            summed = writer.call(aten.mul.Tensor, summed, self.number)

        # In the shape and dtype of the sum that it replaces
        in_shape = writer.call(aten.view.default, summed, list(before.shape))
        return writer.converted(in_shape, before.dtype)


def ratio(rest: Factors, known: fx.Node, turned: fx.Node) -> float | None:
    """How many times as large `rest` is as what `known` multiplies, if `known` is a product with
    what was turned; None if it is not, or multiplies other factors."""
    weights, values = known.args
    if not is_transpose(turned, values):
        return None
    of_known = factors_of(weights)
    if clean(rest.powers) != clean(of_known.powers) or not of_known.number:
        return None
    return rest.number / of_known.number


def is_transpose(turned: Any, values: Any) -> bool:
    """Is one the other with its last two dimensions exchanged?"""
    for one, other in ((turned, values), (values, turned)):
        if one.target in TRANSPOSES and one.args[0] is other:
            *leading, last_but_one, last = other.meta["val"].stride()
            return one.meta["val"].stride() == (*leading, last, last_but_one)
    return False


@dataclass
class NodeWriter:
    """Puts nodes before another one."""

    graph: fx.Graph
    before: fx.Node

    def call(self, op: Any, *args: Any) -> fx.Node:
        with self.graph.inserting_before(self.before):
            made = self.graph.call_function(op, args)
        values = fx.node.map_arg(args, value_of)
        fake = self.before.meta["val"]
        with fake.fake_mode, torch.no_grad():
            made.meta = {**self.before.meta, "val": op(*values)}
        return made

    def converted(self, node: fx.Node, dtype: torch.dtype) -> fx.Node:
        if node.meta["val"].dtype == dtype:
            return node
        return self.call(torch.ops.prims.convert_element_type.default, node, dtype)


# --- what a value is a product of


def factors_of(node: fx.Node, power: int = 1) -> Factors:
    """Take a value apart. A factor is a node, or (node, shape) where it is broadcast to a shape."""
    found = Factors()
    collect(node, power, found)
    return found


def value_of(node: fx.Node) -> Any:
    """The fake of a node."""
    return node.meta["val"]


def collect(node: fx.Node, power: int, found: Factors) -> None:
    """Add the factors of `node` to those that were found."""
    target, value = node.target, node.meta["val"]
    keeps_rows = target in RESHAPES and value_of(node.args[0]).shape[-1:] == value.shape[-1:]
    if keeps_rows or is_conversion(node):
        collect(node.args[0], power, found)
    elif target is aten.neg.default:
        found.number = -found.number
        collect(node.args[0], power, found)
    elif target in (aten.mul.Tensor, aten.div.Tensor):
        add_operand(node.args[0], node, power, found)
        if target is aten.div.Tensor:
            power = -power
        add_operand(node.args[1], node, power, found)
    elif target is aten.where.self and any(map(is_zero, node.args[1:])):
        condition, yes, no = node.args
        kept = no if is_zero(yes) else yes
        found.powers[condition, kept is yes, tuple(value.shape)] += power
        add_operand(kept, node, power, found)
    else:
        found.powers[node] += power


def add_operand(operand: Any, node: fx.Node, power: int, found: Factors) -> None:
    """A number, a value as large as the result, or one that is broadcast."""
    shape = node.meta["val"].shape
    if not isinstance(operand, fx.Node):
        found.number *= float(operand) ** power
    elif operand.meta["val"].shape == shape:
        collect(operand, power, found)
    else:
        found.powers[operand, tuple(shape)] += power


def is_conversion(node: fx.Node) -> bool:
    """Another floating dtype, and nothing else?"""
    if node.target not in (aten._to_copy.default, torch.ops.prims.convert_element_type.default):
        return False
    before, after = node.args[0].meta["val"], node.meta["val"]
    both = before.dtype.is_floating_point and after.dtype.is_floating_point
    return both and before.device == after.device


def is_zero(node: Any) -> bool:
    """Is this the number 0, for every element?"""
    makes = (aten.scalar_tensor.default, aten.full.default, aten.full_like.default)
    if not isinstance(node, fx.Node):
        return node == 0
    if node.target in (aten.zeros.default, aten.zeros_like.default):
        return True
    return node.target in makes and node.args[-1] == 0
