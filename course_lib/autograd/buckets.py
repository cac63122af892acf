"""Under `DistributedDataParallel`: a graph in pieces, about one for each bucket of gradients.

DDP sends a bucket of gradients to the other GPUs as soon as backward has the last of them, and
backward goes on meanwhile. A graph that is differentiated as a whole hands out all its gradients at
its end, when there is nothing left to hide behind. So it is cut, from its end, wherever the
parameters met since the last cut fill a bucket: each piece is a node of its own to autograd.
In PyTorch: `torch/_dynamo/backends/distributed.py` (`DDPOptimizer`).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, fx
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from course_lib import sizes
from course_lib.autograd.partition import node_bytes, part, take_sizes
from course_lib.autograd.runtime import Program
from course_lib.autograd.signature import is_strided, memory
from course_lib.capture.graph import STATE


@dataclass(frozen=True)
class Step:
    """One piece of a graph: what it takes from those before it, what it gives to those after it,
    and its program."""

    inputs: list[fx.Node]
    outputs: list[fx.Node]
    program: Program


def in_pieces(gm: fx.GraphModule, compile_piece: Callable[[fx.GraphModule], Program]) -> Program:
    """Compile each piece by itself; the result runs one after the other."""
    cut = pieces(gm)
    if len(cut) == 1:
        return compile_piece(gm)

    known = sizes.current()
    results = list(gm.graph.output_node().args[0])
    steps: list[Step] = []
    handed_on: set[fx.Node] = set()
    for operations in cut:
        inputs = inputs_of(operations)
        outputs = outputs_of(operations, results)

        note_new_gradients(handed_on.intersection(inputs))
        handed_on |= {*inputs, *outputs}

        graph = part(gm, inputs, outputs, more=operations)
        if known is not None:
            # A piece gets each symbol's value as one more input: its tensors may come from an
            # earlier piece, and need not show every symbol in their shapes.
            take_sizes(graph.graph, known)
        steps.append(Step(inputs, outputs, compile_piece(graph)))

    return one_after_the_other(gm, steps, results)


def inputs_of(operations: Sequence[fx.Node]) -> list[fx.Node]:
    """What a piece needs of others, each once, in the order in which it is used."""
    own_nodes = set(operations)
    needed: dict[fx.Node, None] = {}
    for node in operations:
        for arg in node.all_input_nodes:
            if arg not in own_nodes:
                needed[arg] = None
    return list(needed)


def outputs_of(operations: Sequence[fx.Node], results: Sequence[fx.Node]) -> list[fx.Node]:
    """What a piece gives: what the whole graph returns, and what nodes outside of the piece use.

    Sizes are not handed on: each call computes them in front of all pieces."""
    own_nodes = set(operations)
    outputs = []
    for node in operations:
        is_used_outside = not node.users.keys() <= own_nodes
        if (node in results or is_used_outside) and not is_size(node):
            outputs.append(node)
    return outputs


def note_new_gradients(inputs: Collection[fx.Node]) -> None:
    """An input of the graph may need a gradient by now: it has become a result by a write."""
    for node in inputs:
        if not is_size(node):
            node.meta["requires_grad"] = node.meta["val"].requires_grad


def one_after_the_other(
    gm: fx.GraphModule, steps: Sequence[Step], results: Sequence[fx.Node]
) -> Program:
    """The program that runs all pieces."""
    known = sizes.current()
    placeholders = gm.graph.find_nodes(op="placeholder")
    computed = [node for node in gm.graph.nodes if node.op.startswith("call_") and is_size(node)]
    compute_sizes = None
    if known is not None:
        compute_sizes = known.function([known.of(node.meta["val"]) for node in computed])

    def run(*args: Any) -> tuple[Any, ...]:
        values = dict(zip(placeholders, args, strict=True))
        numbers = () if known is None else known.values(args)
        if compute_sizes is not None:
            values.update(zip(computed, compute_sizes(args), strict=True))

        for step in steps:
            arguments = map(values.__getitem__, step.inputs)
            values.update(zip(step.outputs, step.program(*arguments, *numbers), strict=True))
        return tuple(map(values.__getitem__, results))

    return run


def is_size(node: fx.Node) -> bool:
    """True for a node that is a symbolic size, or is computed of some: each call computes it before
    the first piece runs."""
    return isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat))


def active_module() -> Any:
    """The DDP module whose forward runs, or None."""
    if not distributed.is_available():
        return None
    return DistributedDataParallel._get_active_ddp_module()


def pieces(gm: fx.GraphModule) -> list[list[fx.Node]]:
    """The operations of the graph in order, cut into one piece for each bucket of the DDP module
    whose forward runs.

    The search begins at the end of the graph, where backward begins. DDP's first bucket is smaller
    than the others, so that it can be sent early: the last piece is the small one.
    """
    operations = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    module = active_module()
    if module is None:
        return [operations]

    ends = ends_of_pieces(operations)

    # In bytes: DDP's own limits, of its first bucket and of the others
    limit = min(distributed._DEFAULT_FIRST_BUCKET_BYTES, module.bucket_bytes_cap)
    pieces_in_order: list[list[fx.Node]] = [[]]
    # Parameters that are counted already: one that is used twice has one gradient
    met: set[fx.Node] = set()
    size = 0.0
    for node in reversed(operations):
        if pieces_in_order[0] and size >= limit and node in ends:
            pieces_in_order.insert(0, [])
            size, limit = 0.0, module.bucket_bytes_cap

        # We come from the end: pieces and operations are put in front.
        pieces_in_order[0].insert(0, node)
        new = parameters_of(node) - met
        size += sum(map(node_bytes, new))
        met |= new

    # What has no parameter needs no piece.
    if size == 0 and len(pieces_in_order) > 1:
        first, second, *others = pieces_in_order
        return [first + second, *others]
    return pieces_in_order


def parameters_of(node: fx.Node) -> set[fx.Node]:
    """The inputs of the graph that an operation takes and that need a gradient."""
    inputs = {arg for arg in node.all_input_nodes if arg.op == "placeholder"}
    return {arg for arg in inputs if arg.meta.get("requires_grad")}


def ends_of_pieces(operations: Sequence[fx.Node]) -> set[fx.Node]:
    """The operations behind which the graph may be cut: gradients are recorded there as before it,
    no other switch is turned anywhere (autocast, a level of `torch.func`), nothing in memory by
    then is written to later, and only tensors are needed."""
    if any(turns_other_switch(node) for node in operations):
        return set()

    # Are gradients recorded when the graph begins, and at the place that we are at?
    usual = records = torch.is_grad_enabled()
    ends: dict[int, fx.Node] = {}
    for place, node in enumerate(operations):
        if node.target is torch._C._set_grad_enabled:
            records = node.args[0]
        if records == usual:
            ends[place] = node

    lives = [*lives_of_others(operations), *lives_until_written(operations)]
    return {node for place, node in ends.items() if not any(place in life for life in lives)}


def turns_other_switch(node: fx.Node) -> bool:
    """True for a switch that the pieces of a graph could not share."""
    if node.target is torch._C._set_grad_enabled:
        return False
    name = getattr(node.target, "__name__", "")
    return node.target in STATE or name.endswith(("_nesting", "_dual_level"))


def lives_of_others(operations: Sequence[fx.Node]) -> list[range]:
    """For each result that is no tensor: from where it is made to where it is used last.

    No piece can hand it on."""
    places = {node: place for place, node in enumerate(operations)}
    lives = []
    for node, place in places.items():
        if not is_size(node) and not isinstance(node.meta.get("val"), torch.Tensor):
            places_of_users = [places.get(user, place) for user in node.users]
            lives.append(range(place, max(places_of_users, default=place)))
    return lives


def lives_until_written(operations: Sequence[fx.Node]) -> list[range]:
    """For each write: from where the memory was first seen to the write.

    A piece between would have saved what was there."""
    born: dict[int, int] = {}
    lives = []
    for place, node in enumerate(operations):
        operands, results = strided_values(node.all_input_nodes), strided_values([node])
        for value in (*operands, *results):
            born.setdefault(memory(value), place)

        # An operand with a version was written to. Its version is that at the end of capture, so
        # the write counts where the operand is a result, too (`add_`), or the operation gives
        # nothing.
        for value in operands:
            is_result = any(value is result for result in results)
            if value._version and (is_result or not results):
                lives.append(range(born[memory(value)], place))
    return lives


def strided_values(nodes: Sequence[fx.Node]) -> list[torch.Tensor]:
    """The tensors that these nodes give, but for those that do not lie in memory in steps
    (sparse)."""
    values = tree_leaves([node.meta.get("val") for node in nodes])
    return [value for value in values if is_strided(value)]
