"""What lies before the end of a stream, written out as trees: one element of the matrix, of a term,
of an operand.

In:  the loops that the stream walks along (batch, row, column), and who writes each buffer.
Out: trees. Pointwise loops are inlined, a product over the same rows and columns becomes a leaf
(`scores`), a max or sum over the columns becomes a leaf (`running`). Everything else is read from
memory.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import sympy
import torch

from course_lib.lowering.indexing import unflatten
from course_lib.lowering.ir import (
    Buffer,
    ExternKernel,
    Index,
    Inline,
    LoopNode,
    Node,
    Pointwise,
    Product,
    Reduction,
    View,
)
from course_lib.lowering.ops import Value, linear_index
from course_lib.lowering.reduction_kinds import MAX, SUM
from course_lib.scheduling.expressions import COSTLY, Expr, TreeBuilder
from course_lib.scheduling.kernel import Loop
from course_lib.scheduling.products import PRODUCTS
from course_lib.scheduling.rescaling import RUNNING, Running
from course_lib.scheduling.stream_nodes import FLOATS, HALVES, Factor, Scores


class Refused(Exception):
    """Why a product keeps its operand in memory."""


class StreamBuilder(TreeBuilder):
    """Trees of a stream.

    Halves are computed as float32; what is made of scores is not rounded on its way."""

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        super().__init__(buffers)
        # What depends on a product or a reduction of this stream
        self.of_scores: set[Expr] = set()

    def make(self, op: str, args: tuple[Expr, ...], dtype: torch.dtype, detail: Any = None) -> Expr:
        made = super().make(op, args, dtype, detail)
        if op in (RUNNING, "scores") or not self.of_scores.isdisjoint(args):
            self.of_scores.add(made)
        return made

    def load(self, buffer: str, index: sympy.Expr) -> Expr:
        return self.widened(super().load(buffer, index))

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Expr:
        return self.widened(super().constant(value, dtype))

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Expr:
        return self.widened(super().index_expr(expr, dtype))

    def to_dtype(self, value: Expr, dtype: torch.dtype) -> Expr:
        if dtype in HALVES and value in self.of_scores and value.dtype.is_floating_point:
            return super().to_dtype(value, torch.float32)
        return self.widened(super().to_dtype(value, dtype))

    def widened(self, value: Expr) -> Expr:
        """A half as float32."""
        if value.dtype in HALVES:
            return super().to_dtype(value, torch.float32)
        return value


class Writers(Protocol):
    """Who writes each buffer of a program."""

    @property
    def buffers(self) -> Mapping[str, Buffer]: ...

    @property
    def writer(self) -> Mapping[str, Node]: ...

    @property
    def position(self) -> Mapping[Node, int]:
        """Where each node stands in the program."""


@dataclass(frozen=True)
class Producer:
    """What `Inline` asks for an element of a buffer."""

    inner: Callable[[Inline, Index], Value]


class Trees:
    """Writes trees for one stream, and notes what became a part of it."""

    def __init__(
        self,
        program: Writers,
        batch: tuple[Loop, ...],
        row: Loop,
        column: Loop,
        device: torch.device,
        stored: Collection[Node] = (),
    ) -> None:
        self.program, self.batch, self.row, self.column = program, batch, row, column
        self.device = device
        # Reductions that another stream stores: they are read from memory here
        self.stored = stored
        self.builder = StreamBuilder(program.buffers)
        self.inline = Inline(self.builder, self)  # type: ignore[arg-type]
        # The tree of each element that was asked for
        self.known: dict[tuple[Node, tuple[Any, ...]], Expr] = {}
        # Nodes whose results are not stored for this kernel
        self.inside: dict[Node, None] = {}
        self.running: list[Expr] = []
        self.scores: list[Scores] = []

    # --- what is inlined: `Inline` asks for each buffer

    def get(self, name: str) -> Producer | None:
        """How an element of this buffer is computed here, or None: it is read from memory."""
        node = self.program.writer.get(name)
        if isinstance(node, Pointwise):
            return self.producer(node, partial(self.pointwise, node))
        if isinstance(node, Reduction) and not isinstance(node, Product):
            return self.producer(node, partial(self.reduction, node))
        if isinstance(node, ExternKernel) and node.op in PRODUCTS and not node.kwargs:
            return self.producer(node, partial(self.product, node))
        return None

    def producer(self, node: Node, make: Callable[[Index], Expr]) -> Producer:
        """Makes the tree of an element once: in a chain of n loops in which each value is used
        twice, the first would be walked 2**n times."""

        def element(ops: Inline, index: Index) -> Expr:
            key = (node, tuple(index))
            if key not in self.known:
                self.known[key] = make(index)
            return self.known[key]

        return Producer(element)

    def from_memory(self, buffer: Buffer, index: Index) -> Expr:
        """An element that was stored."""
        return self.builder.load(buffer.name, linear_index(index, buffer.stride))

    def pointwise(self, node: Pointwise, index: Index) -> Expr:
        """Computed again, unless it has nothing to do with scores and is dear."""
        tree = node.inner(self.inline, index)
        if tree in self.builder.of_scores:
            self.inside[node] = None
            return tree
        if any(each.op in COSTLY for each in tree.walk()):
            return self.from_memory(node.buffer, index)
        return tree

    def reduction(self, node: Reduction, index: Index) -> Expr:
        """A leaf, if it runs over the columns; else what was stored."""
        row = [position for d, position in enumerate(index) if d in dims_kept(node)]
        crosses_columns = any(self.column.symbol in sympy.sympify(i).free_symbols for i in row)
        runs_over_columns = node.reduced == (self.column.size,)
        if crosses_columns or not runs_over_columns or node in self.stored:
            return self.from_memory(node.buffer, index)
        return self.leaf(node, row) or self.from_memory(node.buffer, index)

    def leaf(self, node: Reduction, row: Index) -> Expr | None:
        """A leaf for a reduction over the columns of this row.

        None: it has nothing to do with scores."""
        term = node.inner(self.inline, row, [self.column.symbol])
        if term not in self.builder.of_scores:
            return None
        if node.combines not in (MAX, SUM):
            raise Refused(f"'{node.kind}' over a row has no law of rescaling")
        if not term.dtype.is_floating_point:
            raise Refused(f"'{node.kind}' over a row is of {term.dtype}, and tiles are of float32")

        leaf = self.builder.make(RUNNING, (), torch.float32, self.running_of(node, term))
        if leaf not in self.running:
            self.running.append(leaf)
        self.inside[node] = None
        return leaf

    def running_of(self, node: Reduction, term: Expr) -> Running:
        """One object for each reduction.

        (Two nodes may be one: `amax` with the dimension kept, and without.)"""
        for leaf in self.running:
            if leaf.detail.term is term and leaf.detail.node.combines is node.combines:
                return leaf.detail
        return Running(node, term)

    def product(self, node: ExternKernel, index: Index) -> Expr:
        """A leaf, if rows and columns are those of the stream; else what was stored."""
        *batch, one, other = index
        mine = (self.row.symbol, self.column.symbol)
        (out,) = node.buffers
        is_mine = (one, other) in (mine, mine[::-1])
        if not is_mine or out.dtype not in FLOATS or out.device != self.device:
            return self.from_memory(out, index)

        # The same product may be asked for its transpose, too.
        is_turned = one != self.row.symbol
        *bias, left, right = node.args
        depth = Loop(symbol_named("d"), left.shape[-1], "column")
        a = self.factor(left, [*batch, one, depth.symbol], depth)
        b = self.factor(right, [*batch, depth.symbol, other], depth)
        if is_turned:
            a, b = b, a

        leaf = self.builder.make("scores", (), torch.float32, (node, tuple(batch), is_turned))
        if all(leaf is not each.leaf for each in self.scores):
            rows, columns = Factor(a, self.row, depth), Factor(b, self.column, depth)
            self.scores.append(Scores(leaf, rows, columns))
        self.inside[node] = None
        if not bias:
            return leaf
        return self.builder.add(bias[0].load(self.inline, index), leaf)

    def factor(self, view: View, index: Index, depth: Loop) -> Expr:
        """An element of an operand: what is only another layout of a buffer is read in that
        buffer."""
        # `Inline` only asks `get` of its producers, which `Copies` has as a dict would.
        inline = Inline(self.builder, Copies(self))  # type: ignore[arg-type]
        return self.element(view, index, inline, depth)

    def element(self, view: View, index: Index, inline: Inline | None = None, *loops: Loop) -> Expr:
        """An element of a view that a product reads.

        `inline`: what may be computed again instead of loaded; by default all that the stream has.
        `loops`: more loops that `index` may name."""
        inline = inline or self.inline
        buffer = view.buffer
        flat = linear_index(index, view.stride, view.offset)
        producer = inline.producers.get(buffer.name)
        if producer is None:
            return self.builder.load(buffer.name, flat)

        # The place in memory becomes an index into the buffer again. `unflatten` is told how far
        # each symbol counts. So it finds which dimension a term belongs to, without // and %.
        extent = {loop.symbol: loop.size for loop in (*self.batch, self.row, self.column, *loops)}
        return producer.inner(inline, unflatten(flat, extent, buffer.shape, buffer.stride))

    def is_of_row(self, tree: Expr) -> bool:
        """Is this the same for all columns of a row?"""
        for node in tree.walk():
            if node.op == "scores":
                return False
            for formula in formulas_of(node):
                if self.column.symbol in formula.free_symbols:
                    return False
        return True


@dataclass(frozen=True)
class Copies:
    """The producers that only copy: `Inline` asks them for the elements of an operand."""

    trees: Trees

    def get(self, name: str) -> Producer | None:
        node = self.trees.program.writer.get(name)
        if not isinstance(node, Pointwise):
            return None

        def element(ops: Inline, index: Index) -> Expr:
            tree = node.inner(ops, index)
            copied = tree.args[0] if tree.op == "to_dtype" else tree
            if copied.op == "load" and copied.dtype in FLOATS:
                return tree
            # It computes something. Each tile would compute it again, so it is read from memory.
            return self.trees.from_memory(node.buffer, index)

        return Producer(element)


def symbol_named(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def dims_kept(node: LoopNode) -> Sequence[int]:
    """The dimensions of the buffer that are those of `ranges`."""
    if node.kept is None:
        return range(len(node.ranges))
    return node.kept


def formulas_of(node: Expr) -> list[sympy.Expr]:
    """The index formulas of one operation."""
    if node.op == "load":
        _, index = node.detail
        return [index]
    if node.op == "index_expr":
        return [sympy.sympify(node.detail)]
    return []
