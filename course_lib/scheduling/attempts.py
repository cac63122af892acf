"""One try to make a stream: of one or several ends, the loops that they share, and why it cannot
be.

In:  ends: products whose operand shall not be stored, reductions that shall not read a stored
     matrix.
Out: a `Streamed` node, or `Refused` with the reason (`NotAStream` where there is nothing to say).
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy
import torch

from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import Buffer, Index, Node, Pointwise, Reduction, View
from course_lib.lowering.ops import linear_index
from course_lib.scheduling.expressions import Expr, loads
from course_lib.scheduling.kernel import Loop
from course_lib.scheduling.rescaling import (
    CannotRescale,
    Powers,
    Split,
    Splitter,
    powers_of,
    running_in,
)
from course_lib.scheduling.stream_nodes import (
    HALVES,
    End,
    Factor,
    OfRow,
    Stream,
    Streamed,
    label_of,
)
from course_lib.scheduling.stream_trees import Refused, Trees, Writers, symbol_named

# With so few elements of one matrix, or of all, the library's two calls are about as fast: what
# they write lies in the caches
MOST_IN_CACHES = 128 * 128
FEWEST_IN_ALL = 256 * 256
# With fewer rows than this, most of a tile would be empty
FEWEST_ROWS = 16
# Tiles that a thread has on its stack: each has up to 48 KB
MOST_TILES = 8
# What one row of an operand may have: a tile of it must lie in the caches
MOST_DEPTH = 256


class MustWait(Refused):
    """The columns cannot be walked once, for something has no law of rescaling."""


class NotAStream(Exception):
    """Nothing here that could be said: the operand is no product and no reduction of this
    program's."""


@dataclass(frozen=True)
class Space:
    """How far each loop of a stream counts."""

    # The batch: of attention, sentences and heads
    heads: tuple[int, ...]
    row: int
    column: int


@dataclass(frozen=True)
class Ending:
    """Where a stream ends: a product whose operand on `side` (0: left) is the matrix that shall not
    be stored, or a reduction."""

    node: Any
    side: int = 0

    @property
    def is_product(self) -> bool:
        return not isinstance(self.node, Reduction)

    @property
    def matrix(self) -> View:
        return self.node.args[self.side]

    @property
    def values(self) -> View:
        return self.node.args[1 - self.side]

    @property
    def width(self) -> int:
        """Of the result."""
        dim = -1 if self.side == 0 else -2
        return self.values.shape[dim]

    @property
    def has_batch(self) -> bool:
        return len(self.matrix.shape) > 2

    @cached_property
    def space(self) -> Space:
        """The batch as the matrix's own buffer has it (heads apart), its rows and its columns."""
        if not self.is_product:
            *heads, row = self.node.ranges
            return Space(tuple(heads), row, self.node.reduced[0])

        rows_at, columns_at = (-2, -1) if self.side == 0 else (-1, -2)
        shape, buffer = self.matrix.shape, self.matrix.buffer
        heads = shape[:-2]
        if keeps_batch_of(self.matrix):
            heads = buffer.shape[:-2]
        return Space(tuple(heads), shape[rows_at], shape[columns_at])


def keeps_batch_of(view: View) -> bool:
    """Is the batch of a product's operand that of its buffer, made flat?"""
    buffer = view.buffer
    if len(view.shape) != 3 or len(buffer.shape) < 3:
        return False

    # The matrix itself, or its transpose
    as_it_lies = list(zip(buffer.shape[-2:], buffer.stride[-2:], strict=True))
    turned = as_it_lies[::-1]
    as_viewed = list(zip(view.shape[-2:], view.stride[-2:], strict=True))
    if as_viewed not in (as_it_lies, turned):
        return False

    # All of the batch, in steps as if it were one dimension
    leading = buffer.shape[:-2]
    if math.prod(leading) != view.shape[0]:
        return False

    wanted = [view.stride[0] * step for step in contiguous(leading)]
    steps = zip(leading, buffer.stride, wanted, strict=False)
    return all(size == 1 or step == want for size, step, want in steps)


@dataclass(frozen=True)
class Summed:
    """What a stream adds up along a row."""

    # For each product at the end: its sums, and what becomes of them
    splits: tuple[Split, ...]
    # The running maxima, and the running sums with how they are rescaled
    maxima: tuple[Expr, ...]
    sums: tuple[tuple[Expr, Powers], ...]

    @property
    def powers(self) -> list[Powers]:
        """How each sum is rescaled."""
        found = [powers for split in self.splits for powers in split.powers]
        return found + [powers for _, powers in self.sums]


class Attempt:
    """One try.

    After `Attempt(...)` it has a `stream`; `keep` adds what others need of it; `node` is the
    result."""

    def __init__(
        self, program: Writers, endings: Sequence[Ending], stored: Collection[Node] = ()
    ) -> None:
        """Raises `Refused` or `NotAStream`. stored: reductions that another stream stores."""
        self.program, self.endings = program, tuple(endings)
        self.space = self.endings[0].space
        heads = self.space.heads
        symbols = [symbol_named(f"b{n}") for n in range(len(heads))]
        self.batch = tuple(
            Loop(symbol, size, "row") for symbol, size in zip(symbols, heads, strict=True)
        )
        self.row = Loop(symbol_named("m"), self.space.row, "row")
        self.column = Loop(symbol_named("n"), self.space.column, "column")
        # The index of the batch in a product. A loop of one iteration is at 0: with its symbol no
        # index would tell the rows of a matrix from its batch.
        places: list[sympy.Expr] = []
        for symbol, size in zip(symbols, heads, strict=True):
            if size == 1:
                places.append(sympy.Integer(0))
            else:
                places.append(symbol)

        self.flat = sympy.Integer(0)
        if heads:
            self.flat = linear_index(places, contiguous(heads))

        (device,) = {buffer.device for buffer in self.endings[0].node.buffers}
        self.trees = Trees(program, self.batch, self.row, self.column, device, stored)
        self.of_rows: list[OfRow] = []
        self.kept: list[Node] = []
        self.stream = self.make()

    @property
    def numel(self) -> int:
        """Elements of the matrix that is not stored."""
        return math.prod((*self.space.heads, self.space.row, self.space.column))

    @property
    def inside(self) -> dict[Node, None]:
        """Nodes whose results are not stored for this kernel."""
        return self.trees.inside

    @property
    def lasts(self) -> list[Node]:
        """The nodes that it ends with."""
        return [ending.node for ending in self.endings]

    def index_of(self, ending: Ending, row: sympy.Expr, column: sympy.Expr) -> list[sympy.Expr]:
        """The index into an operand, or the result, of a product at the end: of the matrix's rows
        and columns."""
        index = [row, column] if ending.side == 0 else [column, row]
        if ending.has_batch:
            index.insert(0, self.flat)
        return index

    def make(self) -> Stream:
        """The stream, with no more than its ends."""
        products = [ending for ending in self.endings if ending.is_product]
        matrices = [self.matrix_of(ending) for ending in products]
        for ending in self.endings:
            if not ending.is_product:
                self.add_reduction(ending.node)
        self.check_scores()
        self.check_sizes()

        sums_of_row = self.summed(matrices)
        self.check_tiles(sums_of_row)
        self.check_powers(sums_of_row)

        ends = []
        for ending, split in zip(products, sums_of_row.splits, strict=True):
            ends.append(self.end_of(ending, split))
        stream = Stream(
            batch=self.batch,
            row=self.row,
            column=self.column,
            scores=tuple(self.trees.scores),
            maxima=sums_of_row.maxima,
            sums=sums_of_row.sums,
            ends=tuple(ends),
        )
        self.check_trees(stream.trees)
        return stream

    def summed(self, matrices: Sequence[Expr]) -> Summed:
        """What is added up along a row. Raises `MustWait` where something has no law."""
        trees = self.trees
        try:
            splits = [Splitter(trees.builder, trees.is_of_row).split(tree) for tree in matrices]
            maxima, sums = self.reductions()
        except CannotRescale as reason:
            raise MustWait(str(reason)) from reason
        return Summed(tuple(splits), maxima, sums)

    def end_of(self, ending: Ending, split: Split) -> End:
        """A product at the end: its sums, its other operand, and where its result lies."""
        values = self.factor_of_values(ending)
        (out,) = ending.node.buffers
        place = self.index_of(ending, self.row.symbol, values.columns.symbol)
        return End(split, values, out, linear_index(place, out.stride))

    def matrix_of(self, ending: Ending) -> Expr:
        """An element of the matrix that a product at the end reads."""
        index = self.index_of(ending, self.row.symbol, self.column.symbol)
        return self.trees.element(ending.matrix, index)

    def add_reduction(self, node: Reduction) -> None:
        """A reduction at the end."""
        row = [*(loop.symbol for loop in self.batch), self.row.symbol]
        leaf = self.trees.leaf(node, row)
        if leaf is None:
            raise NotAStream
        self.add_of_row(node, leaf, node.place(row))

    def add_of_row(self, node: Node, tree: Expr, place: sympy.Expr) -> None:
        """Store a number of each row."""
        (buffer,) = node.buffers
        has_maximum = any(each.is_maximum for each in running_in(tree))
        if has_maximum and buffer.dtype in HALVES:
            dtype = str(buffer.dtype).removeprefix("torch.")
            raise Refused(
                f"{label_of(node)} is kept as {dtype}: exp(x - m) needs m to its last bit"
            )
        self.check_trees([tree])
        self.of_rows.append(OfRow(tree, buffer, place))
        self.kept.append(node)

    def keep(self, node: Node, why: str) -> None:
        """Others need the result of `node`, which lies inside: store it, if it is a number of each
        row. Raises `Refused`."""
        trees = [(index, tree) for (each, index), tree in self.trees.known.items() if each is node]
        if node in self.kept:
            return
        if len(trees) != 1 or not isinstance(node, (Pointwise, Reduction)):
            raise Refused(why)

        ((index, tree),) = trees
        place = linear_index(index, node.buffer.stride)
        if not self.trees.is_of_row(tree) or not self.fills(node.buffer, place):
            raise Refused(why)
        self.add_of_row(node, tree, place)

    def fills(self, buffer: Buffer, place: sympy.Expr) -> bool:
        """Does each row of each matrix have its own element, and each element its row?"""
        loops = [loop for loop in (*self.batch, self.row) if loop.size > 1]
        if math.prod(loop.size for loop in loops) != buffer.numel:
            return False

        linear = Linear.of(place, {loop.symbol for loop in (*self.batch, self.row)})
        if not all(linear.is_affine_in(loop.symbol) for loop in loops):
            return False
        # The loop with the shortest step first: each one must step over all that those before it
        # reach, or two rows would have one element.
        steps = sorted((linear.coefficient(loop.symbol), loop.size) for loop in loops)
        reach = 1
        for step, size in steps:
            if not isinstance(step, int) or step < reach:
                return False
            reach = step * size
        return True

    def node(self) -> Streamed:
        """The stream as a node that writes what its ends wrote, and what is kept."""
        stream = replace(self.stream, of_rows=tuple(self.of_rows))
        stream = replace(stream, reads=reads_of(stream.trees))

        nodes = sorted({*self.inside, *self.lasts}, key=self.program.position.__getitem__)
        origins = dict.fromkeys(origin for node in nodes for origin in node.origins)
        labels = dict.fromkeys(label_of(node) for node in nodes)
        return Streamed(
            op="stream",
            args=tuple(self.program.buffers[name].view() for name in stream.reads),
            kwargs={},
            outputs=(*(end.out for end in stream.ends), *(each.out for each in stream.of_rows)),
            # Not None: it writes into memory that it is given (`memory.plan`).
            out_variant="stream",
            origins=tuple(origins),
            why="a row is read in blocks: no matrix of scores",
            bytes_saved=self.saved(),
            stream=stream,
            labels=tuple(labels),
        )

    def saved(self) -> int:
        """Bytes that would be written and read."""
        nodes = [node for node in self.inside if node not in self.kept]
        return sum(2 * buffer.nbytes for node in nodes for buffer in node.buffers)

    def reductions(self) -> tuple[tuple[Expr, ...], tuple[tuple[Expr, Powers], ...]]:
        """The running reductions: maxima (of what no other changes), and sums."""
        maxima: list[Expr] = []
        sums: list[tuple[Expr, Powers]] = []
        for leaf in self.trees.running:
            term = leaf.detail.term
            if not leaf.detail.is_maximum:
                sums.append((leaf, powers_of(term)))
            elif running_in(term):
                raise CannotRescale("a maximum is taken of what changes with another reduction")
            else:
                maxima.append(leaf)
        return tuple(maxima), tuple(sums)

    def factor_of_values(self, ending: Ending) -> Factor:
        """The other operand of a product at the end: columns of the matrix are its rows."""
        columns = Loop(symbol_named("e"), ending.width, "column")
        index: Index = [self.column.symbol, columns.symbol]
        if ending.side == 1:
            index = index[::-1]
        if ending.has_batch:
            index = [self.flat, *index]
        tree = self.trees.factor(ending.values, index, columns)
        return Factor(tree, self.column, columns)

    # --- what would be wrong, or slow

    def check_sizes(self) -> None:
        """Where tiles do not pay."""
        row, column = self.row.size, self.column.size
        depths = [each.left.columns.size for each in self.trees.scores]
        depths += [ending.width for ending in self.endings if ending.is_product]
        matrices = math.prod(loop.size for loop in self.batch)
        is_small = row < FEWEST_ROWS or row * column <= MOST_IN_CACHES
        if is_small or matrices * row * column < FEWEST_IN_ALL:
            count = "a matrix"
            if matrices > 1:
                count = f"{matrices} matrices"
            raise Refused(f"{count} of {row} x {column}: too few scores for tiles to pay")
        if max(depths) > MOST_DEPTH:
            raise Refused(
                f"rows of {max(depths)} numbers are too long for tiles that stay in the caches"
            )
        if 0 in (*depths, *(loop.size for loop in self.batch)):
            raise Refused("there are no elements")

    def check_scores(self) -> None:
        """Without a product of scores nothing is saved."""
        trees = self.trees
        if not trees.running and not trees.scores:
            raise NotAStream
        if not trees.scores:
            raise Refused("the scores lie in memory: no product on the way makes them")

    def check_tiles(self, summed: Summed) -> None:
        """What a thread has at once, each as a tile on its stack."""
        totals = sum(len(split.cores) for split in summed.splits)
        tiles = len(self.trees.scores) + len(summed.maxima) + totals
        if tiles > MOST_TILES:
            raise Refused(f"{tiles} tiles at once are too many for the stack of a thread")

    def check_powers(self, summed: Summed) -> None:
        """Terms are at most 1 only where exp(x - m) is no divisor."""
        if any(power < 0 for powers in summed.powers for power in powers.values()):
            raise Refused("a division by exp(x - m) might overflow before the maximum is known")

    def check_trees(self, trees: Collection[Expr]) -> None:
        """What the printer has no way for."""
        for tree in trees:
            for node in tree.walk():
                if node.op == "indirect":
                    raise Refused("an index is looked up in a tensor on the way")
                if node.dtype == torch.float64:
                    raise Refused("a float64 is computed on the way, and tiles are of float32")


def reads_of(trees: Collection[Expr]) -> tuple[str, ...]:
    """The buffers that trees load, each once."""
    return tuple(dict.fromkeys(buffer for tree in trees for buffer, _ in loads(tree)))
