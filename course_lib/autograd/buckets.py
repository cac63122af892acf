"""Under `DistributedDataParallel`: a graph in pieces, about one for each bucket of gradients.

DDP sends a bucket of gradients to the other GPUs as soon as backward has the last of them, and backward goes on meanwhile. A
graph that is differentiated as a whole hands out all its gradients at its end, when there is nothing left to hide behind. So it
is cut, from its end, wherever the parameters met since the last cut fill a bucket: each piece is a node of its own to autograd.
In PyTorch: `torch/_dynamo/backends/distributed.py` (`DDPOptimizer`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import distributed, fx
from torch.nn.parallel import DistributedDataParallel
from torch.utils._pytree import tree_leaves

from course_lib.autograd.partition import node_bytes, part
from course_lib.autograd.runtime import Program
from course_lib.autograd.signature import memory
from course_lib.capture.graph import STATE


def in_pieces(gm: fx.GraphModule, compile_piece: Callable[[fx.GraphModule], Program]) -> Program:
    """Compile each piece by itself; the result runs one after the other."""
    if len(cut := pieces(gm)) == 1:
        return compile_piece(gm)
    results, steps, there = list(gm.graph.output_node().args[0]), [], set[fx.Node]()
    for piece in map(dict.fromkeys, cut):  # in order, and quick to ask
        inputs = list(
            dict.fromkeys(arg for node in piece for arg in node.all_input_nodes if arg not in piece)
        )
        outputs = [
            node for node in piece if node in results or not node.users.keys() <= piece.keys()
        ]
        # an input of the graph may have become a result by a write
        for node in there.intersection(inputs):
            node.meta["requires_grad"] = node.meta["val"].requires_grad
        there |= {*inputs, *outputs}
        steps.append((inputs, outputs, compile_piece(part(gm, inputs, outputs, more=[*piece]))))
    placeholders = gm.graph.find_nodes(op="placeholder")

    def run(*args: Any) -> tuple[Any, ...]:
        values = dict(zip(placeholders, args, strict=True))
        for inputs, outputs, program in steps:
            values.update(zip(outputs, program(*map(values.__getitem__, inputs)), strict=True))
        return tuple(map(values.__getitem__, results))

    return run


def pieces(gm: fx.GraphModule) -> list[list[fx.Node]]:
    """The operations of the graph in order, a piece for each bucket of the DDP module whose forward runs (the last is small)."""
    operations = [node for node in gm.graph.nodes if node.op.startswith("call_")]
    module = (
        DistributedDataParallel._get_active_ddp_module() if distributed.is_available() else None
    )
    if module is None:
        return [operations]
    limit = min(distributed._DEFAULT_FIRST_BUCKET_BYTES, module.bucket_bytes_cap)
    found, ends, met, size = [list[fx.Node]()], ends_of_pieces(operations), set[fx.Node](), 0.0
    for node in reversed(operations):
        if found[0] and size >= limit and node in ends:
            found, size, limit = [[], *found], 0.0, module.bucket_bytes_cap
        found[0].insert(0, node)
        new = {
            arg
            for arg in node.all_input_nodes
            if arg.op == "placeholder" and arg.meta.get("requires_grad")
        } - met
        size, met = size + sum(map(node_bytes, new)), met | new
    # what has no parameter needs no piece
    return found if size or len(found) == 1 else [[*found[0], *found[1]], *found[2:]]


def ends_of_pieces(operations: Sequence[fx.Node]) -> set[fx.Node]:
    """The operations behind which the graph may be cut: gradients are recorded there as before it, no other switch is turned
    anywhere (autocast, a level of `torch.func`), nothing in memory by then is written to later, and only tensors are needed."""
    in_memory = lambda value: isinstance(value, torch.Tensor) and value.layout is torch.strided
    tensors = lambda nodes: [
        *filter(in_memory, tree_leaves([node.meta.get("val") for node in nodes]))
    ]
    usual = records = torch.is_grad_enabled()
    places = {node: place for place, node in enumerate(operations)}
    ends, born, kept = dict[int, fx.Node](), dict[int, int](), list[range]()
    for node, place in places.items():
        operands, results = tensors(node.all_input_nodes), tensors([node])
        if node.target is torch._C._set_grad_enabled:
            records = node.args[0]
        elif node.target in STATE or getattr(node.target, "__name__", "").endswith(
            ("_nesting", "_dual_level")
        ):
            return set()
        if records == usual:
            ends[place] = node
        if not isinstance(node.meta.get("val"), torch.Tensor):
            kept.append(
                range(place, max((places.get(user, place) for user in node.users), default=place))
            )
        for value in (*operands, *results):
            born.setdefault(memory(value), place)
        for value in operands:
            if value._version and (not results or any(value is result for result in results)):
                kept.append(range(born[memory(value)], place))
    return {node for place, node in ends.items() if not any(place in together for together in kept)}
