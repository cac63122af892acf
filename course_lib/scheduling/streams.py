"""Products, and what lies between them, as one kernel that walks along a row in blocks: attention from plain code.

In:  a `LoopGraph` in which `softmax(q @ k.mT * scale + mask) @ v` is a call of the library, loops, and another call.
Out: the same graph with a `Streamed` node in the place of the last call; the others die, if nobody else needs them.

The last product sums over the columns of a matrix that loops computed (the scores, after a softmax). If these loops, the
reductions in them too, can be kept while the columns come block by block (`rescaling`), then the matrix never has to be there:
a block of it lives in the caches. Nothing here knows of attention: a mask, a bias, a cap are pointwise operations, inlined.
In PyTorch: nothing in Inductor; `torch/_inductor/fx_passes/fuse_attention.py` knows two dozen patterns.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import sympy
import torch

from course_lib.lowering.indexing import contiguous, unflatten
from course_lib.lowering.ir import (
    Buffer,
    ExternKernel,
    Index,
    Inline,
    LoopGraph,
    LoopNode,
    Node,
    Pointwise,
    Product,
    Reduction,
    View,
)
from course_lib.lowering.ops import Value, linear_index
from course_lib.lowering.reduction_kinds import MAX, SUM
from course_lib.scheduling.dependencies import read_names, record_all
from course_lib.scheduling.expressions import COSTLY, Expr, TreeBuilder, loads
from course_lib.scheduling.fusion import Fuse, No
from course_lib.scheduling.kernel import Loop
from course_lib.scheduling.products import PRODUCTS
from course_lib.scheduling.rescaling import (
    RUNNING,
    CannotRescale,
    Powers,
    Running,
    Split,
    Splitter,
    powers_of,
    running_in,
)
from course_lib.scheduling.schedule import Decision, live_nodes
from course_lib.sizes import is_symbolic

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
# With so few elements of one matrix, or of all, the library's two calls are about as fast: what they write lies in the caches
MOST_IN_CACHES = 128 * 128
FEWEST_IN_ALL = 256 * 256
# With fewer rows than this, most of a tile would be empty
FEWEST_ROWS = 16
# Tiles that a thread has on its stack: each has up to 48 KB
MOST_TILES = 8
# What one row of an operand may have: a tile of it must lie in the caches
MOST_DEPTH = 256
# Operations that may lie before a product and be written out as one tree. A loop over time has thousands before its last product
MOST_BEFORE = 64


@dataclass(frozen=True)
class Factor:
    """An operand of a product as a tree: of the batch's symbols, and of those of its two loops."""

    tree: Expr
    rows: Loop
    columns: Loop


@dataclass(frozen=True)
class Scores:
    """A product whose tiles are computed on the way: `leaf` stands for its elements in the trees."""

    leaf: Expr
    left: Factor
    right: Factor


@dataclass(frozen=True, eq=False)
class Stream:
    """All that a printer needs to know: trees over the symbols of the batch, `row` and `column`."""

    batch: tuple[Loop, ...]
    row: Loop
    column: Loop
    scores: tuple[Scores, ...]
    # Reductions over the columns: maxima first, then sums, with how these change when a maximum does
    maxima: tuple[Expr, ...]
    sums: tuple[tuple[Expr, Powers], ...]
    # What the last product multiplies, and what becomes of its totals
    split: Split
    values: Factor
    # Where the result goes
    place: sympy.Expr
    # Everything that is read from memory
    reads: tuple[str, ...]

    @property
    def trees(self) -> list[Expr]:
        """All trees, for those who look for loads."""
        found = [tree for each in self.scores for tree in (each.left.tree, each.right.tree)]
        found += [leaf.detail.term for leaf in self.maxima]
        found += [leaf.detail.term for leaf, _ in self.sums]
        return [*found, *self.split.cores, self.split.finish, self.values.tree]


@dataclass(eq=False, kw_only=True, repr=False)
class Streamed(ExternKernel):
    """A stream as a node of the program. To the scheduler it is as closed as a library call."""

    stream: Stream
    # Of the operations that it is made of
    labels: tuple[str, ...] = ()
    is_library: ClassVar[bool] = False

    @property
    def reads(self) -> set[str]:
        return set(self.stream.reads)

    @property
    def acts(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return "·".join(self.labels)

    @property
    def name(self) -> str:
        return "_".join(["streamed", *self.labels])

    @property
    def space(self) -> str:
        """The loops in words."""
        rows = [loop.size for loop in (*self.stream.batch, self.stream.row)]
        return f"{rows}, columns [{self.stream.column.size}] in blocks"

    def __str__(self) -> str:
        return f"{self.label} over {self.space}"

    def __repr__(self) -> str:
        return f"Streamed({self})"


class Refused(Exception):
    """Why a product keeps its operand in memory."""


class NotAStream(Exception):
    """Nothing here that could be said: the operand is no product and no reduction of this program's."""


def can_be_printed(stream: Streamed) -> str:
    """Why a printer has no form for a stream: the C++ printer has one for each."""
    return ""


def stream_products(
    graph: LoopGraph, why_not: Callable[[Streamed], str] = can_be_printed
) -> LoopGraph:
    """Put `Streamed` nodes in the place of products for which that can be. `graph.streams` tells of each.

    `why_not` says why the printer cannot print one, or nothing if it can."""
    candidates = [node for node in graph.nodes if isinstance(node, ExternKernel)]
    candidates = list(filter(could_end_a_stream, candidates))
    if not candidates:
        return graph

    finder = Finder(graph, why_not)
    become: dict[Node, Node] = {}
    decisions: list[Decision] = []
    for node in candidates:
        for side in (0, 1):
            decision = finder.decide(node, side, become)
            if decision is not None:
                decisions.append(decision)
                break

    nodes = [become.get(node, node) for node in graph.nodes]
    return replace(graph, nodes=nodes, streams=decisions)


def could_end_a_stream(node: ExternKernel) -> bool:
    """A product of two matrices, or of many."""
    if node.op not in PRODUCTS or len(node.args) != 2 or node.kwargs:
        return False
    return all(view.dtype in FLOATS for view in node.args)


class StreamBuilder(TreeBuilder):
    """Trees of a stream. Halves are computed as float32; what is made of scores is not rounded on its way."""

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
        return super().to_dtype(value, torch.float32) if value.dtype in HALVES else value


@dataclass(frozen=True)
class Producer:
    """What `Inline` asks for an element of a buffer."""

    inner: Callable[[Inline, Index], Value]


class Finder:
    """Knows who writes and who reads each buffer of a program."""

    def __init__(self, graph: LoopGraph, why_not: Callable[[Streamed], str]) -> None:
        self.graph, self.why_not = graph, why_not
        self.buffers = graph.buffers
        self.writer: dict[str, Node] = {}
        self.readers: dict[str, list[Node]] = {}
        self.reads: dict[Node, set[str]] = {}

        bodies = record_all(graph.nodes, self.buffers, {})
        live, _ = live_nodes(graph.nodes, bodies, graph.returned)
        for node in live:
            for buffer in node.buffers:
                self.writer[buffer.name] = node
            self.reads[node] = read_names(node, bodies)
            for name in self.reads[node]:
                self.readers.setdefault(name, []).append(node)

    def look_before(self, matrix: Buffer) -> None:
        """Is it worth the work to write `matrix` out as a tree? Each product asks, so this looks at a few nodes only.

        Raises `NotAStream` where no product and no reduction is near, and `Refused` where they are too far away.
        """
        found = False
        seen = {matrix.name}
        waiting = [matrix.name]
        loops = 0
        while waiting and loops <= MOST_BEFORE:
            node = self.writer.get(waiting.pop())
            if isinstance(node, ExternKernel):
                found = found or makes_scores(node, matrix)
                continue
            if not isinstance(node, (Pointwise, Reduction)):
                continue

            loops += 1
            found = found or isinstance(node, Reduction)
            for name in self.reads[node] - seen:
                seen.add(name)
                waiting.append(name)

        if not found:
            raise NotAStream
        if loops > MOST_BEFORE:
            raise Refused(f"more than {MOST_BEFORE} operations lie before this product")

    def decide(self, last: ExternKernel, side: int, become: dict[Node, Node]) -> Decision | None:
        """Can the operand on this side come block by block? If so, what the product becomes is noted in `become`."""
        matrix: Buffer = last.args[side].buffer
        try:
            found = Attempt(self, last, side).stream()
            if reason := self.why_not(found):
                raise Refused(reason)
        except NotAStream:
            return None
        except Refused as reason:
            return Decision(str(matrix), str(last), No(str(reason), 2 * matrix.nbytes))

        become[last] = found
        return Decision(found.label, str(last), Fuse(found.bytes_saved))


class Attempt:
    """One try: the operand on this side of `last` (0: left) is the matrix that shall not be stored."""

    def __init__(self, finder: Finder, last: ExternKernel, side: int) -> None:
        self.finder, self.last, self.side = finder, last, side
        self.matrix: View = last.args[side]
        self.values: View = last.args[1 - side]
        writer = finder.writer.get(self.matrix.buffer.name)
        if not isinstance(writer, (Pointwise, Reduction)):
            raise NotAStream

        self.builder = StreamBuilder(finder.buffers)
        self.inline = Inline(self.builder, self)  # type: ignore[arg-type]
        self.known: dict[Any, Expr] = {}
        # Nodes whose results are not stored for this kernel, in program order
        self.inside: dict[Node, None] = {}
        self.running: list[Expr] = []
        self.scores: list[Scores] = []
        self.choose_loops()
        finder.look_before(self.matrix.buffer)

    # --- the loops

    def choose_loops(self) -> None:
        """Symbols for the batch as the matrix's own buffer has it (heads apart), for its rows and its columns."""
        rows_at, columns_at = (-2, -1) if self.side == 0 else (-1, -2)
        shape, buffer = self.matrix.shape, self.matrix.buffer
        if any(map(is_symbolic, (*shape, *self.values.shape))):
            raise Refused("sizes are symbols, and tiles have a fixed size")

        batch = shape[:-2]
        heads = buffer.shape[:-2] if self.keeps_batch_of(buffer) else batch
        symbols = [sympy.Symbol(f"b{n}", integer=True, nonnegative=True) for n in range(len(heads))]
        self.batch = tuple(
            Loop(symbol, size, "row") for symbol, size in zip(symbols, heads, strict=True)
        )
        self.row = Loop(symbol_named("m"), shape[rows_at], "row")
        self.column = Loop(symbol_named("n"), shape[columns_at], "column")

        # In terms of these: the index of the batch in the last product
        flat = linear_index(symbols, contiguous(heads)) if heads else sympy.Integer(0)
        self.batch_index = [flat] if batch else []

    def keeps_batch_of(self, buffer: Buffer) -> bool:
        """Is the batch of the product that of the buffer, made flat?"""
        view = self.matrix
        if len(view.shape) != 3 or len(buffer.shape) < 3:
            return False

        # The matrix itself, or its transpose
        pairs = list(zip(buffer.shape[-2:], buffer.stride[-2:], strict=True))
        mine = list(zip(view.shape[-2:], view.stride[-2:], strict=True))
        leading = buffer.shape[:-2]
        if mine not in (pairs, pairs[::-1]) or math.prod(leading) != view.shape[0]:
            return False

        wanted = [view.stride[0] * step for step in contiguous(leading)]
        steps = zip(leading, buffer.stride, wanted, strict=False)
        return all(size == 1 or step == want for size, step, want in steps)

    def index_of(self, row: sympy.Expr, column: sympy.Expr) -> list[sympy.Expr]:
        """The index into the matrix as the last product reads it."""
        pair = [row, column] if self.side == 0 else [column, row]
        return [*self.batch_index, *pair]

    # --- the stream

    def stream(self) -> Streamed:
        """Raises `Refused` or `NotAStream`."""
        matrix = self.element(self.matrix, self.index_of(self.row.symbol, self.column.symbol))
        if not self.running and not self.scores:
            raise NotAStream
        if not self.scores:
            raise Refused("the scores lie in memory: no product on the way makes them")
        self.check_sizes()
        self.check_readers()

        is_of_row = self.is_of_row
        try:
            split = Splitter(self.builder, is_of_row).split(matrix)
            maxima, sums = self.reductions()
        except CannotRescale as reason:
            raise Refused(str(reason)) from reason
        tiles = len(self.scores) + len(maxima) + len(split.cores)
        if tiles > MOST_TILES:
            raise Refused(f"{tiles} tiles at once are too many for the stack of a thread")
        self.check_powers([*split.powers, *(powers for _, powers in sums)])

        values = self.factor_of_values()
        (out,) = self.last.buffers
        place = linear_index(self.place_of(values.columns.symbol), out.stride)
        stream = Stream(
            batch=self.batch,
            row=self.row,
            column=self.column,
            scores=tuple(self.scores),
            maxima=maxima,
            sums=sums,
            split=split,
            values=values,
            place=place,
            reads=(),
        )
        self.check_trees(stream.trees)
        stream = replace(stream, reads=reads_of(stream.trees))
        return self.node(stream)

    def node(self, stream: Stream) -> Streamed:
        """The stream as a node that writes what the last product wrote."""
        nodes = [*self.nodes_inside(), self.last]
        origins = dict.fromkeys(origin for node in nodes for origin in node.origins)
        labels = dict.fromkeys(label_of(node) for node in nodes)
        views = [self.finder.buffers[name].view() for name in stream.reads]
        return Streamed(
            op="stream",
            args=tuple(views),
            kwargs={},
            outputs=self.last.outputs,
            out_variant=self.last.out_variant,
            origins=tuple(origins),
            why="a row is read in blocks: no matrix of scores",
            bytes_saved=self.saved(),
            stream=stream,
            labels=tuple(labels),
        )

    def nodes_inside(self) -> list[Node]:
        """In program order."""
        return [node for node in self.finder.graph.nodes if node in self.inside]

    def saved(self) -> int:
        """Bytes that would be written and read."""
        matrices = 0
        for node in self.inside:
            for buffer in node.buffers:
                matrices += 2 * buffer.nbytes
        return matrices

    def reductions(self) -> tuple[tuple[Expr, ...], tuple[tuple[Expr, Powers], ...]]:
        """The running reductions: maxima (of what no other changes), and sums."""
        maxima: list[Expr] = []
        sums: list[tuple[Expr, Powers]] = []
        for leaf in self.running:
            term = leaf.detail.term
            if not leaf.detail.is_maximum:
                sums.append((leaf, powers_of(term)))
            elif running_in(term):
                raise CannotRescale("a maximum is taken of what changes with another reduction")
            else:
                maxima.append(leaf)
        return tuple(maxima), tuple(sums)

    def factor_of_values(self) -> Factor:
        """The other operand of the last product: columns of the matrix are its rows."""
        width = self.values.shape[-1 if self.side == 0 else -2]
        columns = Loop(symbol_named("e"), width, "column")
        pair = [self.column.symbol, columns.symbol]
        if self.side == 1:
            pair.reverse()
        tree = self.factor(self.values, [*self.batch_index, *pair], columns)
        return Factor(tree, self.column, columns)

    def place_of(self, width: sympy.Expr) -> list[sympy.Expr]:
        """The index of the result."""
        pair = [self.row.symbol, width] if self.side == 0 else [width, self.row.symbol]
        return [*self.batch_index, *pair]

    # --- what is inlined: `Inline` asks for each buffer

    def get(self, name: str) -> Producer | None:
        """How an element of this buffer is computed here, or None: it is read from memory."""
        node = self.finder.writer.get(name)
        if isinstance(node, Pointwise):
            return self.producer(node, partial(self.pointwise, node))
        if isinstance(node, Reduction) and not isinstance(node, Product):
            return self.producer(node, partial(self.reduction, node))
        if isinstance(node, ExternKernel) and node.op in PRODUCTS and not node.kwargs:
            return self.producer(node, partial(self.product, node))
        return None

    def producer(self, node: Node, make: Callable[[Index], Expr]) -> Producer:
        """Makes the tree of an element once: a chain in which each value is used twice would be walked very often."""

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
        if crosses_columns or not runs_over_columns:
            return self.from_memory(node.buffer, index)

        term = node.inner(self.inline, row, [self.column.symbol])
        if term not in self.builder.of_scores:
            return self.from_memory(node.buffer, index)
        if node.combines not in (MAX, SUM):
            raise Refused(f"'{node.kind}' over a row has no law of rescaling")

        leaf = self.builder.make(RUNNING, (), torch.float32, self.running_of(node, term))
        if leaf not in self.running:
            self.running.append(leaf)
        self.inside[node] = None
        return leaf

    def running_of(self, node: Reduction, term: Expr) -> Running:
        """One object for each reduction."""
        for leaf in self.running:
            if leaf.detail.node is node and leaf.detail.term is term:
                return leaf.detail
        return Running(node, term)

    def product(self, node: ExternKernel, index: Index) -> Expr:
        """A leaf, if rows and columns are those of the stream; else what was stored."""
        *batch, one, other = index
        mine = (self.row.symbol, self.column.symbol)
        (out,) = node.buffers
        is_mine = (one, other) in (mine, mine[::-1])
        if not is_mine or out.dtype not in FLOATS or out.device != self.last.buffers[0].device:
            return self.from_memory(out, index)

        *bias, left, right = node.args
        depth = Loop(symbol_named("d"), left.shape[-1], "column")
        a = self.factor(left, [*batch, one, depth.symbol], depth)
        b = self.factor(right, [*batch, depth.symbol, other], depth)
        if one != self.row.symbol:
            a, b = b, a

        leaf = self.builder.make("scores", (), torch.float32, (node, tuple(batch)))
        if all(leaf is not each.leaf for each in self.scores):
            rows, columns = Factor(a, self.row, depth), Factor(b, self.column, depth)
            self.scores.append(Scores(leaf, rows, columns))
        self.inside[node] = None
        if not bias:
            return leaf
        return self.builder.add(bias[0].load(self.inline, index), leaf)

    def factor(self, view: View, index: Index, depth: Loop) -> Expr:
        """An element of an operand: what is only another layout of a buffer is read in that buffer."""
        inline = Inline(self.builder, Copies(self))  # type: ignore[arg-type]
        return self.element(view, index, inline, depth)

    def element(self, view: View, index: Index, inline: Inline | None = None, *loops: Loop) -> Expr:
        """An element of a view that a product reads. (How far each symbol counts is known here: no formula needs // or %.)"""
        inline, buffer = inline or self.inline, view.buffer
        flat = linear_index(index, view.stride, view.offset)
        producer = inline.producers.get(buffer.name)
        if producer is None:
            return self.builder.load(buffer.name, flat)

        extent = {loop.symbol: loop.size for loop in (*self.batch, self.row, self.column, *loops)}
        return producer.inner(inline, unflatten(flat, extent, buffer.shape, buffer.stride))

    # --- what would be wrong, or slow

    def is_of_row(self, tree: Expr) -> bool:
        """Is this the same for all columns of a row?"""
        for node in tree.walk():
            if node.op == "scores":
                return False
            for formula in formulas_of(node):
                if self.column.symbol in formula.free_symbols:
                    return False
        return True

    def check_sizes(self) -> None:
        """Where tiles do not pay."""
        row, column = self.row.size, self.column.size
        depths = [each.left.columns.size for each in self.scores]
        width = self.values.shape[-1 if self.side == 0 else -2]
        matrices = math.prod(loop.size for loop in self.batch)
        is_small = row < FEWEST_ROWS or row * column <= MOST_IN_CACHES
        if is_small or matrices * row * column < FEWEST_IN_ALL:
            count = f"{matrices} matrices" if matrices > 1 else "a matrix"
            raise Refused(f"{count} of {row} x {column}: too few scores for tiles to pay")
        if max(width, *depths) > MOST_DEPTH:
            raise Refused(
                f"rows of {max(width, *depths)} numbers are too long for tiles that stay in the caches"
            )
        if 0 in (width, *depths, *(loop.size for loop in self.batch)):
            raise Refused("there are no elements")

    def check_readers(self) -> None:
        """What would have to be stored all the same."""
        inside = {*self.inside, self.last}
        for node in self.nodes_inside():
            for buffer in node.buffers:
                if buffer.name in self.finder.graph.returned:
                    raise Refused(
                        f"{label_of(node)} is also returned (or kept for backward), so it must be stored"
                    )
                for reader in self.finder.readers.get(buffer.name, ()):
                    if reader not in inside:
                        raise Refused(
                            f"{label_of(reader)}, which is elsewhere, also needs {label_of(node)}"
                        )

    def check_powers(self, all_powers: Sequence[Powers]) -> None:
        """Terms are at most 1 only where exp(x - m) is no divisor."""
        if any(power < 0 for powers in all_powers for power in powers.values()):
            raise Refused("a division by exp(x - m) might overflow before the maximum is known")

    def check_trees(self, trees: Collection[Expr]) -> None:
        """What the printer has no way for."""
        for tree in trees:
            for node in tree.walk():
                if node.op == "indirect":
                    raise Refused("an index is looked up in a tensor on the way")
                if node.dtype == torch.float64:
                    raise Refused("a float64 is computed on the way, and tiles are of float32")


@dataclass(frozen=True)
class Copies:
    """The producers that only copy: `Inline` asks them for the elements of an operand."""

    attempt: Attempt

    def get(self, name: str) -> Producer | None:
        node = self.attempt.finder.writer.get(name)
        if not isinstance(node, Pointwise):
            return None

        def element(ops: Inline, index: Index) -> Expr:
            tree = node.inner(ops, index)
            copied = tree.args[0] if tree.op == "to_dtype" else tree
            if copied.op == "load" and copied.dtype in FLOATS:
                return tree
            return self.attempt.from_memory(node.buffer, index)

        return Producer(element)


def makes_scores(node: ExternKernel, matrix: Buffer) -> bool:
    """Is this a product whose rows and columns are those of `matrix`, or its columns and rows?"""
    if node.op not in PRODUCTS:
        return False
    (out,) = node.buffers
    return set(out.shape[-2:]) == set(matrix.shape[-2:])


def symbol_named(name: str) -> sympy.Symbol:
    return sympy.Symbol(name, integer=True, nonnegative=True)


def dims_kept(node: LoopNode) -> Sequence[int]:
    """The dimensions of the buffer that are those of `ranges`."""
    return range(len(node.ranges)) if node.kept is None else node.kept


def formulas_of(node: Expr) -> list[sympy.Expr]:
    """The index formulas of one operation."""
    if node.op == "load":
        return [node.detail[1]]
    return [sympy.sympify(node.detail)] if node.op == "index_expr" else []


def reads_of(trees: Collection[Expr]) -> tuple[str, ...]:
    """The buffers that trees load, each once."""
    return tuple(dict.fromkeys(buffer for tree in trees for buffer, _ in loads(tree)))


def label_of(node: Node) -> str:
    """What a node is called: `bmm`, `amax`, ..."""
    if isinstance(node, ExternKernel):
        return node.op.overloadpacket.__name__ if hasattr(node.op, "overloadpacket") else node.label
    return node.label or node.buffer.name
