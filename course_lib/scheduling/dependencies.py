"""What a loop reads and writes, and where.

In:  a loop node and symbols for its loops.
Out: a `Body`: every load and the store as `Access(buffer, index)`, and the indices that are used as values.

The body is run once under `Recorder`, a handler that computes nothing and only notes what is asked of it.
In PyTorch: `torch/_inductor/dependencies.py`, `RecordLoadStore` and `MemoryDep`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sympy
import torch

from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import ExternKernel, LoopNode, Node, Reduction
from course_lib.lowering.ops import linear_index

COSTLY = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc "
    "sigmoid pow atan2 fmod mod floordiv truediv reciprocal indirect".split()
)
"""Operations dear enough that a value is better read again than computed again."""


@dataclass(frozen=True)
class Access:
    """One element: which `buffer`, and the flat `index` into it as a formula over the loop symbols."""

    buffer: str
    index: Linear

    def __str__(self) -> str:
        return f"{self.buffer}[{self.index}]"


@dataclass(frozen=True)
class Body:
    """What running a node's body once touches."""

    reads: tuple[Access, ...]
    write: Access
    values: tuple[Linear, ...] = ()
    """Indices used as values (`arange`, masks, the position that argmax returns)."""
    operations: tuple[str, ...] = ()

    @property
    def formulas(self) -> Iterator[Linear]:
        """Every formula over the loop symbols."""
        yield self.write.index
        yield from (access.index for access in self.reads)
        yield from self.values

    @property
    def is_cheap(self) -> bool:
        """True if computing this again costs about as much as a load."""
        few = len(self.operations) <= 8 and len({a.buffer for a in self.reads}) <= 2
        return few and not COSTLY.intersection(self.operations)

    def substitute(self, become: Mapping[sympy.Symbol, Linear]) -> Body:
        """The same body in terms of other loops."""
        return replace(
            self,
            reads=tuple(Access(a.buffer, a.index.substitute(become)) for a in self.reads),
            write=Access(self.write.buffer, self.write.index.substitute(become)),
            values=tuple(v.substitute(become) for v in self.values),
        )


class Recorder:
    """A handler that notes loads and indices."""

    def __init__(self, loops: frozenset[sympy.Symbol]) -> None:
        self.loops = loops
        self.reads: dict[Access, None] = {}
        self.values: dict[Linear, None] = {}
        self.operations: list[str] = []
        self.looked_up = 0

    def load(self, buffer: str, index: sympy.Expr) -> None:
        self.reads[Access(buffer, Linear.of(index, self.loops))] = None

    def constant(self, value: Any, dtype: torch.dtype) -> None:
        """Costs nothing, and neither does a conversion."""

    to_dtype = constant

    def index_expr(self, expr: Any, dtype: torch.dtype) -> None:
        self.values[Linear.of(sympy.sympify(expr), self.loops)] = None

    def masked(self, condition: Any, body: Callable[[], Any], other: Any) -> None:
        body()

    def indirect(self, value: Any, size: Any, wrap: bool = True) -> sympy.Symbol:
        self.operations.append("indirect")
        self.looked_up += 1
        return sympy.Symbol(f"at{self.looked_up - 1}", integer=True, nonnegative=True)

    def __getattr__(self, op: str) -> Callable[..., None]:
        def note(*args: Any) -> None:
            self.operations.append(op)

        return note


def record(node: LoopNode) -> Body:
    """Run the body of `node` at symbolic indices: i0, i1, ... for what is kept, j0, j1, ... for what is reduced."""
    index, rindex = node.symbols
    recorder = Recorder(frozenset((*index, *rindex)))
    node.value(recorder, index, rindex)
    if isinstance(node, Reduction) and node.kind.startswith("arg"):
        recorder.index_expr(linear_index(rindex, contiguous(node.reduced)), torch.int64)
    write = Access(node.buffer.name, Linear.of(node.place(index), recorder.loops))
    return Body(tuple(recorder.reads), write, tuple(recorder.values), tuple(recorder.operations))


def record_all(nodes: Iterable[Node]) -> dict[Node, Body]:
    """The body of every loop node."""
    return {node: record(node) for node in nodes if not isinstance(node, ExternKernel)}


def read_names(node: Node, bodies: Mapping[Node, Body]) -> set[str]:
    """The buffers that a node reads."""
    return node.reads if isinstance(node, ExternKernel) else {access.buffer for access in bodies[node].reads}
