"""Computing a cheap loop again inside the loops that read it.

In:  a node, and cheap `Pointwise` nodes whose values it reads at other indices than they were written (a mask that is broadcast).
Out: the node with a body that computes those values instead of loading them.

`Inline` is one more handler: where the body asks for `load(mask, 768*i0 + i1)`, it runs the mask's own body at [i0, i1].
In PyTorch: `TensorBox.realize` in `torch/_inductor/ir.py` decides when *not* to do this; there it happens while lowering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from course_lib.lowering.indexing import Size, unflatten
from course_lib.lowering.ir import Index, LoopNode, Pointwise
from course_lib.lowering.ops import Handler, Value


@dataclass
class Inline:
    """Passes everything on to `ops`, but for loads of `producers`."""

    ops: Handler
    producers: Mapping[str, Pointwise]
    extent: dict[sympy.Symbol, Size]  # How far each symbol of the indices that are asked for counts
    become: Mapping[sympy.Symbol, sympy.Expr]  # What stands for each of these symbols outside

    def load(self, buffer: str, index: sympy.Expr) -> Value:
        producer = self.producers.get(buffer)
        if producer is None:
            return self.ops.load(buffer, sympy.sympify(index).xreplace(self.become))
        there = unflatten(sympy.sympify(index), self.extent, producer.buffer.shape, producer.buffer.stride)
        return producer.inner(self, there)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        return self.ops.index_expr(sympy.sympify(expr).xreplace(self.become), dtype)

    def indirect(self, value: Value, size: int | sympy.Expr, wrap: bool = True) -> sympy.Symbol:
        self.extent[symbol := self.ops.indirect(value, size, wrap)] = size
        return symbol

    def __getattr__(self, op: str) -> Any:
        return getattr(self.ops, op)


def inlined_into(node: LoopNode, producers: Sequence[Pointwise]) -> LoopNode:
    """`node` with the bodies of `producers` in place of loads from them."""
    by_name = {producer.buffer.name: producer for producer in producers}
    origins = tuple(dict.fromkeys([*(o for p in producers for o in p.origins), *node.origins]))
    rows, columns = node.symbols
    extent = dict(zip([*rows, *columns], [*node.ranges, *node.reduced], strict=True))

    def inner(ops: Handler, index: Index, rindex: Index = ()) -> Value:
        become = dict(zip(extent, map(sympy.sympify, [*index, *rindex]), strict=True))
        return node.value(Inline(ops, by_name, dict(extent), become), rows, columns)

    return replace(node, inner=inner, origins=origins)
