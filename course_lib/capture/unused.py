"""Operations whose result nobody uses, but whose error matters.

In:  the graph under construction and what it is to return.
Out: what it has to return besides: `torch.linalg.cholesky(x)` raises for some data, whether its
result is used or not.
In PyTorch: no counterpart. Such an operation is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from course_lib.capture.values import storages, tensors_in
from course_lib.failing import may_fail

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder


def unused_checks(builder: GraphBuilder, outputs: list[Any]) -> list[torch.Tensor]:
    """The results that nobody uses, of operations that may refuse their data.

    The graph returns them, too. Otherwise the operation would be dropped, and with it the error
    that eager raises.
    """
    failing = [node for node in builder.graph.nodes if may_fail(node)]
    if not failing:
        return []

    in_place_nodes = [node for node in builder.graph.nodes if is_in_place(node)]
    live = live_nodes(builder, outputs, in_place_nodes)
    values = []
    for node in failing:
        if node not in live:
            # an operation in place may give None; its result is what it wrote to
            result = node.args[0] if node in in_place_nodes else node
            values.append(result.meta.get("val"))
    return [leaf for leaf in tensors_in(values) if builder.has_node(leaf)]


def live_nodes(builder: GraphBuilder, outputs: list[Any], written: list[fx.Node]) -> set[fx.Node]:
    """The nodes that an output depends on, or a write to memory that outlives the graph."""
    outliving_memory = storages([outputs, [graph_input.stand_in for graph_input in builder.inputs]])
    waiting = [builder.output_node(output) for output in outputs]
    waiting += [
        node for node in written if outliving_memory.keys() & storages(node.args[0].meta["val"])
    ]

    live = set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node not in live:
            live.add(node)
            waiting += node.all_input_nodes
    return live


def is_in_place(node: fx.Node) -> bool:
    """Does this operation write to its first argument?"""
    if not node.op.startswith("call_") or not node.args:
        return False
    first = node.args[0]
    if not isinstance(first, fx.Node) or not isinstance(first.meta.get("val"), torch.Tensor):
        return False

    result = node.meta.get("val")
    return result is None or result is first.meta["val"]
