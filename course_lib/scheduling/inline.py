"""Computing a cheap loop again inside the loops that read it.

In:  a node, and cheap `Pointwise` nodes whose values it reads at other indices than they were written (a mask that is broadcast).
Out: the node with a body that computes those values instead of loading them.

`Inline` is one more handler: where the body asks for an element of the mask, it runs the mask's own body at that place.
In PyTorch: `TensorBox.realize` in `torch/_inductor/ir.py` decides when *not* to do this; there it happens while lowering.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from course_lib.lowering.ir import ExternKernel, Index, Node, Pointwise, View
from course_lib.lowering.ops import Handler, Value, ViewHandler


@dataclass
class Inline(ViewHandler):
    """Passes everything on to `ops`, but for elements of `producers`."""

    ops: Handler
    producers: Mapping[str, Pointwise]
    become: Mapping[sympy.Symbol, sympy.Expr]  # What stands for each symbol of the node's loops outside

    def element(self, view: View, index: Index) -> Value:
        if producer := self.producers.get(view.buffer.name):
            return producer.inner(self, view.in_buffer(index))
        return view.load(self.ops, [self.outside(i) for i in index])

    def load(self, buffer: str, index: sympy.Expr) -> Value:
        return self.ops.load(buffer, self.outside(index))

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        return self.ops.index_expr(self.outside(expr), dtype)

    def outside(self, expr: sympy.Expr | int) -> sympy.Expr:
        return sympy.sympify(expr).xreplace(self.become)

    def __getattr__(self, op: str) -> Any:
        return getattr(self.ops, op)


def inlined_into(node: Node, producers: Sequence[Any]) -> Node:
    """`node` with the bodies of `producers` in place of loads from them."""
    if isinstance(node, ExternKernel) or not producers:
        return node
    by_name = {producer.buffer.name: producer for producer in producers}
    origins = tuple(dict.fromkeys([*(o for p in producers for o in p.origins), *node.origins]))
    rows, columns = node.symbols

    def inner(ops: Handler, index: Index, rindex: Index = ()) -> Value:
        become = dict(zip([*rows, *columns], map(sympy.sympify, [*index, *rindex]), strict=True))
        return node.value(Inline(ops, by_name, become), rows, columns)

    return replace(node, inner=inner, origins=origins)
