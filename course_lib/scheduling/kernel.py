"""`FusedKernel`: loops that run together, ready to be printed.

In:  loop nodes that the scheduler put together, in program order.
Out: one iteration space (`loops`: rows, then columns) and one `Step` per node that says how the
     node's index is made from it.

Dimensions that are kept are rows, those that are reduced are columns. A step without columns
(`rsqrt`) runs once a row. A sum over rows is added up while the rows are walked.
In PyTorch: `torch/_inductor/scheduler.py`, `FusedSchedulerNode`, and `codegen/simd.py`,
`SIMDKernel` (numel, rnumel).
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import sympy
import torch

from course_lib.lowering.ir import Buffer, ExternKernel, LoopNode, Reduction
from course_lib.lowering.ops import Handler, Value

Kind = Literal["row", "column"]
Level = Literal["row", "column", "across"]
"""How often a step runs. "row": once a row. "column": once for each column of a row; a reduction
over the columns is such a step, too. "across": it sums down each column, across the rows."""


class Loop(NamedTuple):
    """One loop of the kernel: `symbol` runs from 0 to `size`."""

    symbol: sympy.Symbol
    size: int
    kind: Kind


class Nest:
    """Loops, rows and then columns, and what runs in them."""

    loops: tuple[Loop, ...]
    nodes: tuple[Any, ...]

    @property
    def rows(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.kind == "row")

    @property
    def columns(self) -> tuple[Loop, ...]:
        return tuple(loop for loop in self.loops if loop.kind == "column")

    @property
    def space(self) -> str:
        """The loops in words: '[4096], columns [768]'."""
        rows = str([loop.size for loop in self.rows])
        if not self.columns:
            return rows
        return f"{rows}, columns {[loop.size for loop in self.columns]}"

    def __str__(self) -> str:
        names = dict.fromkeys(node.label or node.buffer.name for node in self.nodes)
        return f"{'·'.join(names)} over {self.space}"


@dataclass(frozen=True)
class Step:
    """One node inside a kernel: its `index` (and a reduction's `rindex`) in terms of the kernel's
    loop symbols."""

    node: LoopNode
    index: tuple[sympy.Expr, ...]
    rindex: tuple[sympy.Expr, ...] = ()
    level: Level = "row"

    @property
    def buffer(self) -> Buffer:
        return self.node.buffer

    @property
    def is_reduction(self) -> bool:
        return isinstance(self.node, Reduction)

    @property
    def store_index(self) -> sympy.Expr:
        """Where in its buffer the step writes (flat, in elements)."""
        return self.node.place(self.index)

    def value(self, ops: Handler) -> Value:
        """Run the node's body under a handler: the value at this index (for a reduction: what is to
        be combined)."""
        return self.node.value(ops, self.index, self.rindex)


@dataclass(eq=False)
class FusedKernel(Nest):
    """Loops that run as one kernel.

    `stores` are the names of the buffers that must reach memory: others read them or the graph
    returns them. Another that a step writes lives only in registers. A load of a buffer that an
    earlier step wrote is served by that step's value; the scheduler only groups steps where both
    use the same index (or the step is a row-level one)."""

    name: str
    loops: tuple[Loop, ...]
    steps: tuple[Step, ...]
    stores: frozenset[str]
    # Buffers loaded from memory, i.e. not written by a step of this kernel
    reads: frozenset[str]
    bytes_saved: int = 0
    # Stored buffer → the dead one whose memory it takes (`memory`)
    in_place: dict[str, str] = field(default_factory=dict)
    # None if all calls have the same sizes. Else the sizes that stay the same in all calls
    fixed: Collection[int] | None = None

    @property
    def nodes(self) -> tuple[LoopNode, ...]:  # type: ignore[override]
        return tuple(step.node for step in self.steps)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Those that reach memory, in the order of the steps."""
        return tuple(step.buffer for step in self.steps if step.buffer.name in self.stores)

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        return self.steps[0].buffer.device


Kernel = FusedKernel | ExternKernel
