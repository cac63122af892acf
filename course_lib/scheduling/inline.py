"""Computing a cheap loop again inside the loops that read it.

In:  a node, and cheap `Pointwise` nodes whose values it reads at other indices than they were written (a mask that is broadcast).
Out: the node with a body that computes those values instead of loading them.

`Inline` is one more handler: where the body asks for `load(mask, 768*i0 + i1)`, it runs the mask's own body at [i0, i1].
In PyTorch: `TensorBox.realize` in `torch/_inductor/ir.py` decides when *not* to do this; there it happens while lowering.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sympy
import torch

from course_lib.lowering.indexing import loop_symbols, unflatten
from course_lib.lowering.ir import Index, LoopNode, Pointwise, Reduction, Size
from course_lib.lowering.ops import Handler, Value


class Inline:
    """Passes everything on to `ops`, but for loads of `producers`.

    Indices are in symbols of known extent; `become` is what stands for each symbol outside."""

    def __init__(
        self,
        ops: Handler,
        producers: Mapping[str, Pointwise],
        extent: Mapping[Any, Size],
        become: Mapping[Any, sympy.Expr],
    ) -> None:
        self.ops, self.producers, self.extent, self.become = ops, producers, extent, become

    def load(self, buffer: str, index: sympy.Expr) -> Value:
        producer = self.producers.get(buffer)
        if producer is None:
            return self.ops.load(buffer, sympy.sympify(index).xreplace(self.become))
        there = unflatten(sympy.sympify(index), self.extent, producer.buffer.shape, producer.buffer.stride)
        return producer.inner(self, there)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        return self.ops.index_expr(sympy.sympify(expr).xreplace(self.become), dtype)

    def __getattr__(self, op: str) -> Any:
        return getattr(self.ops, op)


def inlined_into(node: LoopNode, producers: Sequence[Pointwise]) -> LoopNode:
    """`node` with the bodies of `producers` in place of loads from them."""
    by_name = {producer.buffer.name: producer for producer in producers}
    origins = tuple(dict.fromkeys([*(o for p in producers for o in p.origins), *node.origins]))
    rows = loop_symbols("i", len(node.ranges))
    extent: dict[Any, Size] = dict(zip(rows, node.ranges, strict=True))
    if isinstance(node, Pointwise):

        def pointwise(ops: Handler, index: Index) -> Value:
            become = dict(zip(rows, map(sympy.sympify, index), strict=True))
            return node.inner(Inline(ops, by_name, extent, become), rows)

        return replace(node, inner=pointwise, origins=origins)
    columns = loop_symbols("j", len(node.reduced))
    extent |= dict(zip(columns, node.reduced, strict=True))
    assert isinstance(node, Reduction)

    def reduction(ops: Handler, index: Index, rindex: Index) -> Value:
        become = dict(zip([*rows, *columns], map(sympy.sympify, [*index, *rindex]), strict=True))
        return node.inner(Inline(ops, by_name, extent, become), rows, columns)

    return replace(node, inner=reduction, origins=origins)
