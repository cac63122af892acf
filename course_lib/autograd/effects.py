"""What an operator does besides computing its result: it draws random numbers, or it is the user's
and nobody knows.

In:  nodes of a traced graph.
Out: which of them must run although nobody uses their results, and a value of the graph for each,
so that no stage drops it. (What may raise an error is kept by capture already,
`capture/unused.py`.)
In PyTorch: `torch/fx/node.py` (`Node.is_impure`), `torch/_higher_order_ops/effects.py`.
"""

import operator
from typing import Any

import torch
from torch import fx

TORCHS = "aten", "prims", "prim", "course_lib", "quantized", "mkldnn", "_quantized", "inductor"
"""Namespaces whose operators have no effect that their schema and tags do not tell."""


def is_own(op: Any) -> bool:
    """Is this an operator of the user's? What it does, nobody knows."""
    return isinstance(op, torch._ops.OpOverload) and op.namespace not in TORCHS


def draws(op: Any) -> bool:
    """Does it draw random numbers?"""
    return torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())


def drop_unused(graph: fx.Graph) -> list[fx.Node]:
    """Take away what nobody needs.

    Gives the nodes that have an effect and no user: results of theirs, where they have some."""

    def must_run(node: fx.Node) -> bool:
        return bool(node.is_impure()) or draws(node.target) or is_own(node.target)

    graph.eliminate_dead_code(must_run)
    unused = [n for n in graph.nodes if not n.users and n.op == "call_function"]
    return [result for node in unused if (result := a_result(graph, node)) is not None]


def a_result(graph: fx.Graph, node: fx.Node) -> fx.Node | None:
    """The node's result, or the first tensor of several; None if it gives none."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return node
    if not isinstance(value, (tuple, list)):
        return None

    for place, part in enumerate(value):
        if isinstance(part, torch.Tensor):
            with graph.inserting_after(node):
                result = graph.call_function(operator.getitem, (node, place))
            result.meta.update(val=part, origin=node.meta.get("origin"))
            return result
    return None
