"""Cut a joint graph in two: what runs in forward, what runs in backward, and which tensors are kept in between.

In:  a joint graph (`autograd.joint`): from inputs and tangents to values and gradients.
Out: a `Partition`: two graphs. Forward returns the values and what else is saved; backward takes what is saved, and the tangents.

What backward needs of forward is kept, or computed again from what is kept. That is cheap where it melts into a kernel that runs
anyway, so the rule is: a view or an element-by-element operation may be computed again; a reduction, a matrix product, a random
number or any other library call may not. Under that rule we keep the fewest bytes, which is a minimum cut: give each node a pipe
as wide as its result is large, let the inputs and what may not be computed again be the source, and backward the sink.
In PyTorch: `torch/_functorch/partitioners.py` (`min_cut_rematerialization_partition`, `solve_min_cut`).
"""

import importlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from course_lib import build_cache
from course_lib.autograd.signature import memory
from course_lib.written import traceable

INFINITE = float("inf")
Width = Callable[[fx.Node], float]


class Partition(NamedTuple):
    """`saved`: joint nodes that are kept; `places`: where each is among `forward`'s inputs and results; `recomputed`: in both."""

    forward: fx.GraphModule
    backward: fx.GraphModule
    saved: tuple[fx.Node, ...]
    places: tuple[int, ...]
    recomputed: tuple[fx.Node, ...]

    def __str__(self) -> str:
        kept = ", ".join(f"{n.name} ({node_bytes(n):,} bytes)" for n in self.saved)
        return f"saved: {kept or 'nothing'}; computed again: {', '.join(n.name for n in self.recomputed) or 'nothing'}"


def partition(joint: fx.GraphModule, may_recompute: Callable[[fx.Node], bool]) -> Partition:
    """Cut the graph. `may_recompute(node)`: may backward compute this node again?"""
    graph = joint.graph
    outputs: list[Any] = list(graph.output_node().args[0])
    differentiable = joint.meta["signature"].differentiable
    values, gradients = outputs[: len(differentiable)], outputs[len(differentiable) :]
    placeholders = graph.find_nodes(op="placeholder")
    first_tangent = len(placeholders) - sum(differentiable)
    inputs, tangents = placeholders[:first_tangent], placeholders[first_tangent:]
    backward = downstream(graph, tangents) | {
        g for g in gradients if g is not None and g.op == "call_function"
    }
    overwritten = {inputs[update.input] for update in joint.meta["signature"].updates}

    def width(node: fx.Node) -> float:
        """The bytes that it costs to keep a node. Of equals an input is best: with it the whole graph can run again (`again.py`)."""
        if node in overwritten:
            return INFINITE
        return node_bytes(node) + (0 if node in inputs else 1)

    saved = minimum_cut(graph, upstream(graph, gradients), backward, may_recompute, width)
    lost = {memory(n.meta["val"]) for n in overwritten}
    if any(
        isinstance(n.meta["val"], torch.Tensor) and memory(n.meta["val"]) in lost for n in saved
    ):
        raise NotImplementedError(
            "backward needs what was in an input that is written to, and has gaps between its elements"
        )
    second = part(joint, [*saved, *tangents], gradients)
    checks = [
        n
        for n in graph.nodes
        if n.op == "call_function" and n.meta.get("val") is None and n not in backward
    ]
    copied = {n.name for n in second.graph.nodes if n.op == "call_function"}
    recomputed = tuple(n for n in graph.nodes if n.name in copied and n not in backward)
    results = [*values, *(n for n in saved if n not in inputs and n not in values)]
    places = tuple(map([*inputs, *results].index, saved))
    first, signature = part(joint, inputs, results, checks), joint.meta["signature"]
    # which may get a new version
    unkept = tuple(update for update in signature.updates if values[update.index] not in saved)
    first.meta["signature"] = replace(signature, updates=unkept)
    return Partition(first, second, tuple(saved), places, recomputed)


def minimum_cut(
    graph: fx.Graph,
    needed: set[fx.Node],
    backward: set[fx.Node],
    may_recompute: Callable[[fx.Node], bool],
    width: Width,
) -> list[fx.Node]:
    """The nodes to keep: of those before backward, the fewest bytes (`width`) from which the rest of `needed` can be computed."""
    pipes: list[tuple[str, str, float]] = []
    for node in sorted(needed - backward):  # in order: the same graph is cut the same way
        pipes.append((f"{node} in", f"{node} out", width(node)))
        if node.op == "placeholder" or not may_recompute(node):
            pipes.append(("source", f"{node} in", INFINITE))
        for user in node.users:
            if user in needed:
                pipes.append(
                    (f"{node} out", "sink" if user in backward else f"{user} in", INFINITE)
                )
    kept = build_cache.remember(build_cache.key_of("cut", repr(pipes)), lambda: cut(pipes))
    return [n for n in graph.nodes if f"{n} in" in kept and f"{n} out" not in kept]


def cut(pipes: Sequence[tuple[str, str, float]]) -> list[str]:
    """What is before the narrowest cut from "source" to "sink"."""
    # which takes longer to import than to cut: only for a new graph
    networkx = importlib.import_module("networkx")
    network = networkx.DiGraph()
    network.add_nodes_from(("source", "sink"))
    network.add_weighted_edges_from(pipes, weight="capacity")
    _, (before, _) = networkx.minimum_cut(network, "source", "sink")
    return sorted(before)


def node_bytes(node: fx.Node) -> float:
    """The bytes of a node's result; infinite for what cannot be kept: a tuple of several results."""
    fake = node.meta.get("val")
    return fake.numel() * fake.element_size() if isinstance(fake, torch.Tensor) else INFINITE


def upstream(graph: fx.Graph, outputs: list[Any], known: Collection[fx.Node] = ()) -> set[fx.Node]:
    """These nodes and all that they are computed from, if `known` is there."""
    found = {n for n in outputs if isinstance(n, fx.Node)}
    for node in reversed(graph.nodes):
        if node in found and node not in known:
            found.update(node.all_input_nodes)
    return found


def downstream(graph: fx.Graph, inputs: list[fx.Node]) -> set[fx.Node]:
    """These nodes and all that is computed from them."""
    found = set(inputs)
    for node in graph.nodes:
        if node.op != "output" and not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def part(
    whole: fx.GraphModule,
    inputs: list[fx.Node],
    outputs: list[fx.Node],
    more: Sequence[fx.Node] = (),
) -> fx.GraphModule:
    """The graph that computes `outputs` from `inputs`, which become its placeholders, and does `more`."""
    graph = fx.Graph()
    twin: dict[fx.Node, fx.Node] = {}
    for node in inputs:
        twin[node] = graph.placeholder(node.name)
        twin[node].meta = dict(node.meta)
    wanted = upstream(whole.graph, [*outputs, *more], known=twin)
    for node in whole.graph.nodes:
        if node in wanted and node not in twin:
            twin[node] = graph.node_copy(node, twin.__getitem__)
    graph.output(tuple(fx.node.map_arg(outputs, twin.__getitem__)))
    return traceable(_LazyGraphModule(whole, graph))
