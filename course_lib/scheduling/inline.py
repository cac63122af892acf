"""Computing a cheap loop again inside the loops that read it.

In:  a node, and cheap `Pointwise` nodes whose values it reads at other indices than they were written (a mask that is broadcast).
Out: the node with a body that computes those values instead of loading them.

`Inline` is one more handler: where the body asks for an element of the mask, it runs the mask's own body at that place.
In PyTorch: `TensorBox.realize` in `torch/_inductor/ir.py` decides when *not* to do this; there it happens while lowering.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.lowering.ir import ExternKernel, Index, Node, Pointwise, View
from course_lib.lowering.ops import Handler, Value, ViewHandler


@dataclass
class Inline(ViewHandler):
    """Passes everything on to `ops`, but for elements of `producers`."""

    ops: Handler
    producers: Mapping[str, Pointwise]

    def element(self, view: View, index: Index) -> Value:
        if producer := self.producers.get(view.buffer.name):
            return producer.inner(self, view.in_buffer(index))
        return view.load(self.ops, index)

    def __getattr__(self, op: str) -> Any:
        return getattr(self.ops, op)


def inlined_into(node: Node, producers: Sequence[Any]) -> Node:
    """`node` with the bodies of `producers` in place of loads from them."""
    if isinstance(node, ExternKernel) or not producers:
        return node
    by_name = {producer.buffer.name: producer for producer in producers}
    origins = tuple(dict.fromkeys([*(o for p in producers for o in p.origins), *node.origins]))
    return replace(node, inner=lambda ops, *indices: node.inner(Inline(ops, by_name), *indices), origins=origins)
