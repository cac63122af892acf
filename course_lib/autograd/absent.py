"""Backward when some of the results were not used.

In:  a backward graph, and which of its tangents (the gradients of results) there are.
Out: the backward graph for just these.

Autograd goes only where a gradient comes from. A compiled graph is one node of autograd. So it is
asked for all gradients at once, and a result that was not used has the gradient None. Zeros in its
place are nearly right. But `0 * inf` is NaN, and a custom backward of the user's would run that
does not run in eager. So a rule says what eager does. A gradient is linear in the tangents: what is
computed from absent tangents alone is absent, too, and where one term of a sum is absent, the other
remains.
In PyTorch: undefined gradients, `torch/csrc/autograd/engine.cpp`. (`aot_autograd` makes zeros of
them.)
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from course_lib.autograd.partition import downstream
from course_lib.written import quiet, traceable

aten = torch.ops.aten
KEEPS_ZEROS = {
    *(aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.permute.default),
    *(aten.t.default, aten.transpose.int, aten.expand.default, aten.unsqueeze.default),
    *(aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims, aten.clone.default),
    *(aten.alias.default, aten.detach.default, aten.slice.Tensor, aten.select.int),
    *(aten.sum.dim_IntList, aten.sum.default, aten.neg.default, aten._to_copy.default),
    *(aten.constant_pad_nd.default, aten.slice_scatter.default, aten.select_scatter.default),
    *(torch.ops.prims.convert_element_type.default, aten.as_strided.default),
}
"""Operators whose result is all zeros if their input is."""


@dataclass(frozen=True)
class Absent:
    """What is missing in a backward graph if some tangents are."""

    nodes: frozenset[fx.Node]
    # May zeros stand for the absent tangents? Else a zero might meet an infinity.
    zeros_do: bool


def absent(graph: fx.Graph, tangents: Sequence[fx.Node], missing: Collection[fx.Node]) -> Absent:
    """Follow the `missing` ones of the `tangents` through the graph."""
    from_tangents = downstream(graph, list(tangents))

    absent_nodes = set(missing)
    # Those of them that would be all zeros if zeros stood for the absent tangents
    all_zeros = set(missing)
    zeros_do = True

    for node in graph.nodes:
        absent_inputs = [arg for arg in node.all_input_nodes if arg in absent_nodes]
        if not absent_inputs or node.op == "output":
            continue

        takes_zeros = all_zeros.issuperset(absent_inputs)
        others = [arg for arg in node.all_input_nodes if arg not in absent_nodes]

        # A term of a sum remains without the other. Any other operation is linear in each operand,
        # # so its result is absent. Where another operand comes from a tangent, too, the operation
        # may be more than a product (`cat`): it runs, with zeros for what is absent.
        is_sum = node.target is aten.add.Tensor
        if others and (is_sum or not from_tangents.isdisjoint(others)):
            zeros_do = zeros_do and takes_zeros
        else:
            absent_nodes.add(node)
            if takes_zeros and node.target in KEEPS_ZEROS:
                all_zeros.add(node)

    return Absent(frozenset(absent_nodes), zeros_do)


def without(backward: fx.GraphModule, missing: frozenset[fx.Node]) -> fx.GraphModule:
    """The backward graph without the nodes `missing`.

    It takes the same inputs, and returns the gradients that are left."""
    graph = fx.Graph()
    twin: dict[fx.Node, fx.Node] = {}

    for node in backward.graph.nodes:
        if node.op == "output":
            kept_gradients = [result for result in node.args[0] if result not in missing]
            graph.output(tuple(fx.node.map_arg(kept_gradients, twin.__getitem__)))
        elif node.op == "placeholder":
            twin[node] = graph.placeholder(node.name)
            twin[node].meta = dict(node.meta)
        elif node not in missing:
            twin[node] = other_part(node, missing, twin) or copy_of(graph, node, missing, twin)

    graph.eliminate_dead_code()
    return traceable(fx.GraphModule(backward, graph))


def other_part(
    node: fx.Node, missing: frozenset[fx.Node], twin: dict[fx.Node, fx.Node]
) -> fx.Node | None:
    """If one part of a sum is absent, the other is the sum.

    None if it must be converted or laid out first."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    parts = [part for part in node.args if part not in missing]
    if len(parts) != 1 or not isinstance(parts[0], fx.Node):
        return None

    part, whole = parts[0].meta["val"], node.meta["val"]
    same_values = (part.shape, part.dtype) == (whole.shape, whole.dtype)
    if same_values and part.stride() == whole.stride():
        return twin[parts[0]]
    return None


def copy_of(
    graph: fx.Graph, node: fx.Node, missing: frozenset[fx.Node], twin: dict[fx.Node, fx.Node]
) -> fx.Node:
    """The same operation; what is absent among its arguments is zeros."""

    def argument(arg: fx.Node) -> fx.Node:
        if arg not in missing:
            return twin[arg]
        fake: Any = arg.meta["val"]
        options = {"dtype": fake.dtype, "device": fake.device, "pin_memory": False}
        with quiet():
            zeros = graph.call_function(aten.full.default, (list(fake.shape), 0), options)
        zeros.meta = {
            **arg.meta,
            "val": torch.empty_like(fake, memory_format=torch.contiguous_format),
        }
        return zeros

    with quiet():  # torch warns of symbolic sizes among arguments
        return graph.node_copy(node, argument)
