"""Cut a joint graph in two: what runs in forward, what runs in backward, and which tensors are kept
in between.

In:  a joint graph (`autograd.joint`): from inputs and tangents to values and gradients.
Out: a `Partition`: two graphs. Forward returns the values and the other tensors to be saved.
     Backward takes these and the tangents.

A tensor of forward that backward needs is either kept, or computed again from tensors that are
kept. Computing again is cheap for an operation that becomes a part of a kernel that runs anyway. So
views and element-by-element operations may be computed again. Reductions, matrix products, random
numbers and other library calls may not. Under this rule we keep the fewest bytes. That is a minimum
cut: each node is a pipe as wide as its result is large, the inputs and all that may not be computed
again are the source, and backward is the sink.
In PyTorch: `torch/_functorch/partitioners.py` (`min_cut_rematerialization_partition`,
`solve_min_cut`).
"""

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from course_lib import build_cache, sizes
from course_lib.autograd.signature import memory
from course_lib.written import quiet, traceable

INFINITE = float("inf")
Width = Callable[[fx.Node], float]


class Partition(NamedTuple):
    """The two halves of a joint graph, and what was decided about the tensors between them."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    # Nodes of the joint graph whose values are kept for backward
    saved: tuple[fx.Node, ...]
    # For each of them: its number among the inputs of `forward`, or, counted on behind these,
    # among its results
    places: tuple[int, ...]
    # Nodes of the joint graph that both halves compute
    recomputed: tuple[fx.Node, ...]
    # If sizes are symbolic: those that backward takes as numbers, behind saved tensors and tangents
    sizes: Any = None
    # What was decided about products that backward might compute again (`scheduling.training`)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        saved = [f"{node.name} ({node_bytes(node):,} bytes)" for node in self.saved]
        recomputed = [node.name for node in self.recomputed]
        parts = [
            f"saved: {', '.join(saved) or 'nothing'}",
            f"computed again: {', '.join(recomputed) or 'nothing'}",
            *self.notes,
        ]
        return "; ".join(parts)


def partition(joint: fx.GraphModule, may_recompute: Callable[[fx.Node], bool]) -> Partition:
    """Cut the graph. `may_recompute(node)`: may backward compute this node again?
    Raises NotImplementedError where backward needs what a write to an input has replaced."""
    graph, signature = joint.graph, joint.meta["signature"]
    ends = ends_of(joint)
    # Backward: what depends on a tangent, and gradients that are computed and depend on none
    # (zeros). Forward need not compute those, nor keep them.
    computed_gradients = {g for g in ends.gradients if g is not None and g.op == "call_function"}
    backward = downstream(graph, ends.tangents) | computed_gradients
    overwritten = {ends.inputs[update.input] for update in signature.updates}

    def width(node: fx.Node) -> float:
        """The bytes that it costs to keep a node.

        All but inputs cost one byte more. So of two nodes that are equally large an input is kept:
        with the inputs the whole graph can run again (`again.py`)."""
        if node in overwritten:
            return INFINITE
        return node_bytes(node) + (node not in ends.inputs)

    needed = upstream(graph, ends.gradients)
    # A gradient may be an input itself: of an empty tensor torch gives that tensor (`cummax`).
    given_back = {g for g in ends.gradients if g is not None} - backward
    saved = minimum_cut(graph, needed, backward, may_recompute, width, given_back)
    refuse_to_save_overwritten(saved, overwritten)

    second = part(joint, [*saved, *ends.tangents], ends.gradients)
    # A node has the same name in a part as in the whole.
    copied = {n.name for n in second.graph.nodes if n.op == "call_function"}
    recomputed = tuple(n for n in graph.nodes if n.name in copied and n not in backward)

    saved_nodes = [n for n in saved if n not in ends.inputs and n not in ends.values]
    results = [*ends.values, *saved_nodes]
    # Where forward's caller finds what is saved: among the inputs, or behind them among the results
    inputs_and_results = [*ends.inputs, *results]
    places = tuple(inputs_and_results.index(node) for node in saved)

    first = part(joint, ends.inputs, results, checks_in(graph, backward))
    first.meta["signature"] = without_saved_updates(signature, ends, saved)

    sizes_from_inputs = None
    if (known := sizes.current()) is not None:
        take_sizes(second.graph, known)
        # Forward reads them off its inputs, and hands them on to backward.
        sizes_from_inputs = known.found_in([node.meta["val"] for node in ends.inputs])
    return Partition(first, second, tuple(saved), places, recomputed, sizes_from_inputs)


def without_saved_updates(signature: Any, ends: "Ends", saved: Collection[fx.Node]) -> Any:
    """The signature of forward, without the updates of inputs that backward needs.

    An update is the value that an input has afterwards. If backward needs that value, it must not
    be written in place into the input, which the program may change before backward."""
    not_needed = [each for each in signature.updates if ends.values[each.index] not in saved]
    return replace(signature, updates=tuple(not_needed))


def take_sizes(graph: fx.Graph, known: Any) -> None:
    """One more input for each symbolic size: backward has no tensor in whose shape all of them
    stand."""
    for symbol, value in known.as_given.items():
        placeholders = graph.find_nodes(op="placeholder")
        if placeholders:
            behind_the_others = graph.inserting_after(placeholders[-1])
        else:
            behind_the_others = graph.inserting_before(next(iter(graph.nodes)))

        with behind_the_others:
            new_input = graph.placeholder(symbol.name)
        new_input.meta["val"] = value


class Ends(NamedTuple):
    """What goes into a joint graph, and what comes out: inputs and tangents, values and
    gradients."""

    inputs: list[fx.Node]
    tangents: list[fx.Node]
    values: list[Any]
    gradients: list[Any]


def ends_of(joint: fx.GraphModule) -> Ends:
    """Each value that has a gradient has a tangent; tangents are the last placeholders, and
    gradients the last outputs."""
    differentiable = joint.meta["signature"].differentiable
    placeholders = joint.graph.find_nodes(op="placeholder")
    first_tangent = len(placeholders) - sum(differentiable)

    outputs: list[Any] = list(joint.graph.output_node().args[0])
    first_gradient = len(differentiable)
    return Ends(
        inputs=placeholders[:first_tangent],
        tangents=placeholders[first_tangent:],
        values=outputs[:first_gradient],
        gradients=outputs[first_gradient:],
    )


def refuse_to_save_overwritten(saved: list[fx.Node], overwritten: set[fx.Node]) -> None:
    """Raise NotImplementedError if something that is to be saved lies in the memory of an input
    that is written to."""
    # An overwritten input itself is never saved, its pipe has no end. But a view of one may be, if
    # the input has gaps: `own_copy` in `trace.py` makes no copy of such an input.
    lost = {memory(node.meta["val"]) for node in overwritten}
    for node in saved:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor) and memory(value) in lost:
            raise NotImplementedError(
                "backward needs what was in an input that is written to, and has gaps between its elements"
            )


def checks_in(graph: fx.Graph, backward: set[fx.Node]) -> list[fx.Node]:
    """The operations of forward that have no result. They look at data and may raise."""
    checks = []
    for node in graph.nodes:
        gives_nothing = node.op == "call_function" and node.meta.get("val") is None
        if gives_nothing and node not in backward:
            checks.append(node)
    return checks


def minimum_cut(
    graph: fx.Graph,
    needed: set[fx.Node],
    backward: set[fx.Node],
    may_recompute: Callable[[fx.Node], bool],
    width: Width,
    given_back: Collection[fx.Node] = (),
) -> list[fx.Node]:
    """The nodes to keep: of those before backward, the fewest bytes (`width`) from which the rest
    of `needed` can be computed.

    given_back: nodes before backward that backward returns as they are. So it needs their
    values."""
    # A node is a pipe from its "in" to its "out". To cut it is to keep the node, and costs `width`.
    # All other pipes are infinitely wide, so that no cut goes through them.
    pipes: list[tuple[str, str, float]] = []
    # In order: the same graph is cut the same way.
    for node in sorted(needed - backward):
        pipes.append((f"{node} in", f"{node} out", width(node)))
        if node.op == "placeholder" or not may_recompute(node):
            pipes.append(("source", f"{node} in", INFINITE))
        if node in given_back:
            pipes.append((f"{node} out", "sink", INFINITE))
        for user in node.users:
            if user in needed:
                end = "sink" if user in backward else f"{user} in"
                pipes.append((f"{node} out", end, INFINITE))

    # The pipes say all that the cut depends on.
    key = build_cache.key_of("cut", repr(pipes))
    cut_ends = build_cache.remember(key, lambda: cut(pipes))
    return [n for n in graph.nodes if f"{n} in" in cut_ends and f"{n} out" not in cut_ends]


def cut(pipes: Sequence[tuple[str, str, float]]) -> list[str]:
    """The ends of pipes on the source's side of the narrowest cut from "source" to "sink".

    Raises NotImplementedError where only pipes without end lead from one to the other: a value that
    cannot be kept is needed, and cannot be computed again."""
    # Imported here: the import takes longer than the cut, and a cut that is in the cache needs
    # neither.
    networkx = importlib.import_module("networkx")
    network = networkx.DiGraph()
    network.add_nodes_from(("source", "sink"))
    network.add_weighted_edges_from(pipes, weight="capacity")
    try:
        _, (source_side, _) = networkx.minimum_cut(network, "source", "sink")
    except networkx.NetworkXUnbounded:
        raise NotImplementedError(
            "backward needs a value that can be neither kept nor computed again"
        ) from None
    return sorted(source_side)


def node_bytes(node: fx.Node) -> float:
    """The bytes of a node's result; infinite for a tuple of several results, which cannot be
    kept."""
    fake = node.meta.get("val")
    if not isinstance(fake, torch.Tensor):
        return INFINITE
    return int(sizes.hint(fake.numel())) * fake.element_size()


def upstream(graph: fx.Graph, outputs: list[Any], known: Collection[fx.Node] = ()) -> set[fx.Node]:
    """The nodes among `outputs` and all that they are computed from; nobody looks behind a node in
    `known`."""
    needed_nodes = {n for n in outputs if isinstance(n, fx.Node)}
    for node in reversed(graph.nodes):
        if node in needed_nodes and node not in known:
            needed_nodes.update(node.all_input_nodes)
    return needed_nodes


def downstream(graph: fx.Graph, inputs: list[fx.Node]) -> set[fx.Node]:
    """The nodes `inputs`, and all that is computed from them."""
    reached_nodes = set(inputs)
    for node in graph.nodes:
        if node.op != "output" and not reached_nodes.isdisjoint(node.all_input_nodes):
            reached_nodes.add(node)
    return reached_nodes


def part(
    whole: fx.GraphModule,
    inputs: list[fx.Node],
    outputs: list[fx.Node],
    more: Sequence[fx.Node] = (),
) -> fx.GraphModule:
    """The graph that computes `outputs` from `inputs`, which become its placeholders.

    `more`: nodes that must run although no output needs them, for they have an effect.
    """
    graph = fx.Graph()
    twin: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        twin[node] = graph.placeholder(node.name)
        twin[node].meta = dict(node.meta)
    wanted = upstream(whole.graph, [*outputs, *more], known=twin)
    with quiet():  # torch warns of symbolic sizes among arguments
        for node in whole.graph.nodes:
            if node in wanted and node not in twin:
                twin[node] = graph.node_copy(node, twin.__getitem__)
    graph.output(tuple(fx.node.map_arg(outputs, twin.__getitem__)))
    return traceable(_LazyGraphModule(whole, graph))
