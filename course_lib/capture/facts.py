"""What capture relies on about sizes that only the data says: the graph checks it in each call.

In:  torch's `ShapeEnv`, which has noted what `torch._check` states, and what operations need (that
     the parts of a split fill the whole).
Out: nodes of the graph that raise where it does not hold. Eager runs the frame then, and raises
     what it raises.
In PyTorch: `torch/fx/passes/runtime_assert.py` (`insert_deferred_runtime_asserts`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
from torch import fx
from torch.utils._sympy.numbers import int_oo

from course_lib.capture.shapes import Shapes
from course_lib.capture.symbolic_numbers import is_symbol_of_data

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder

LARGEST_LIMIT = 2**62
"""A limit above this is none: torch writes one of 64 bits where it knows no limit."""


class DataBreaksFact(RuntimeError):
    """The data of a call says a size for which the graph was not made."""


def fact(holds: bool, text: str) -> None:
    """A node of a graph: raise DataBreaksFact where a fact about sizes does not hold."""
    if not holds:
        raise DataBreaksFact(f"the graph was made for {text}, which the data does not meet")


# torch.fx keeps such nodes, though nobody uses their result.
fx.node.has_side_effect(fact)


def assert_about_data(builder: GraphBuilder) -> None:
    """Add the nodes that check all facts."""
    for expr in facts(builder.shapes):
        node = builder.expression_node(expr)
        if isinstance(node, fx.Node):
            text = builder.shapes.text(expr, shown=True)
            checked = builder.graph.call_function(fact, (node, text))
            checked.meta.update(val=None, location=None)


def facts(shapes: Shapes) -> list[sympy.Basic]:
    """What must hold, each once: what was deferred, and the limits of each symbol."""
    found: dict[sympy.Basic, None] = {}
    for asserts in shapes.env.deferred_runtime_asserts.values():
        for each in asserts:
            found[each.expr] = None

    for symbol in filter(is_symbol_of_data, shapes.found):
        for limit in limits(shapes, symbol):
            found[limit] = None
        # two sizes were found to be one, or a size to be a number
        if symbol in shapes.env.replacements:
            other: Any = shapes.env.replacements[symbol]
            found[sympy.Eq(symbol, other, evaluate=False)] = None
    return [
        expr
        for expr in found
        if expr.free_symbols
        and expr.free_symbols <= shapes.found.keys()
        # Of inputs alone: a guard
        and not shapes.is_of_inputs(expr)
    ]


def limits(shapes: Shapes, symbol: sympy.Symbol) -> list[sympy.Basic]:
    """The range that torch assumes of a number of the data. (A size has its own from the start.)"""
    if shapes.found[symbol].is_of_tensor or not symbol.is_integer:
        return []
    known = shapes.env.var_to_range[symbol]
    relations = []
    if known.lower != -int_oo and known.lower > -LARGEST_LIMIT:
        relations.append(sympy.Ge(symbol, known.lower, evaluate=False))
    if known.upper != int_oo and known.upper < LARGEST_LIMIT:
        relations.append(sympy.Le(symbol, known.upper, evaluate=False))
    return relations


def is_fact(node: fx.Node) -> bool:
    """Does this node check a fact?"""
    return node.op == "call_function" and node.target is fact
