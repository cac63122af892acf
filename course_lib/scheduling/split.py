"""Reductions with too few rows for a GPU, in two steps.

In:  a `LoopGraph`, and for which buffers (`where`) it is worth it: those that a GPU computes.
Out: the same graph; a sum over millions for a few results is now many partial sums, then their sum.

A row of a reduction belongs to one program, and a GPU wants a thousand at once: columns are cut
into chunks, each a row. A number of columns is cut in even chunks. A symbolic number is cut in
chunks of a length that suits the call that is compiled: how many there are is a formula, and the
last one is filled up with what changes nothing (0, for a sum).
In PyTorch: `torch/_inductor/ir.py`, `Reduction.num_splits` and `create_multilayer`.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import sympy
import torch

from course_lib.lowering.indexing import Linear, contiguous, power_of_two
from course_lib.lowering.ir import Buffer, Index, Inline, LoopGraph, Node, Pointwise, Reduction
from course_lib.lowering.ops import Handler, Value
from course_lib.scheduling.dependencies import record
from course_lib.sizes import formula_of, hint, is_symbolic, same

# Rows that there should be: a row of 16k elements for each, where a hundred million become one
PROGRAMS = 8192
# Chunks of sums down the columns, each gathered by a program that walks along rows: one for each
# multiprocessor
WALKS = 128
# A chunk has at least so many columns
CHUNK = 2048
# Where rows are neighbours in memory, a program takes so many at once
TILE_ROWS = 64
# With fewer chunks than this, a second kernel costs more than it gives
FEWEST = 4


def split_reductions(graph: LoopGraph, where: Callable[[Buffer], bool]) -> LoopGraph:
    """Split what is worth it. (argmax and argmin stay in one piece.)"""
    parts_of: dict[str, Buffer] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if any(where(buffer) for buffer in node.buffers):
            nodes += split(node, graph, parts_of)
        else:
            nodes.append(node)

    graph.nodes[:] = nodes
    return graph


def split(node: Node, graph: LoopGraph, parts_of: dict[str, Buffer]) -> list[Node]:
    """The node, or two that do the same.

    `parts_of`: for the result of each that was split before, its parts."""
    if not isinstance(node, Reduction) or not may_be_split(node):
        return [node]
    cuts = chunks_of(node, graph)
    if math.prod(hint(cut.chunks) for cut in cuts) < FEWEST:
        return [node]

    # Chunk by chunk: the numbers of the chunk come before the index of the row.
    shape = (*(cut.chunks for cut in cuts), *node.ranges)
    name = f"{node.buffer.name}_parts"
    parts = Buffer(name, node.accumulate, shape, contiguous(shape), node.buffer.device)
    parts_of[node.buffer.name] = parts

    own_mean = mean_of_chunk(node, cuts, parts_of)
    return [first_step(node, cuts, parts, own_mean), second_step(node, cuts, parts, own_mean)]


def may_be_split(node: Reduction) -> bool:
    """False for argmax and its like, and where there is no row."""
    return not node.combines.gives_place and not any(same(size, 0) for size in node.ranges)


def mean_of_chunk(
    node: Reduction, cuts: Sequence["Cut"], parts_of: Mapping[str, Buffer]
) -> "MeanOfChunk | None":
    """For a variance: what each chunk takes for its mean.

    Its squared distances are from its own mean (Chan et al., 1983). None if the chunks cannot have
    their own."""
    if node.around is None:
        return None
    mean, total = node.around

    # What fills up a chunk would have to be taken out of its mean.
    is_even = all(cut.is_even for cut in cuts)
    if total.name not in parts_of or not is_even:
        return None
    length = math.prod(cut.length for cut in cuts)
    return MeanOfChunk(mean, parts_of[total.name], length, node.accumulate)


def first_step(
    node: Reduction, cuts: Sequence["Cut"], parts: Buffer, own_mean: "MeanOfChunk | None"
) -> Reduction:
    """Each chunk is reduced to one of the parts."""

    def part(ops: Handler, index: Index, rindex: Index) -> Value:
        if own_mean is not None:
            ops = own_mean.in_place_of_mean(ops, index)

        row = index[len(cuts) :]
        columns = []
        for chunk, cut, j in zip(index, cuts, rindex, strict=False):
            columns.append(chunk * cut.length + j)
        return filled_up(ops, node, cuts, row, tuple(columns))

    lengths = tuple(cut.length for cut in cuts)
    return replace(
        node,
        buffer=parts,
        ranges=parts.shape,
        inner=part,
        reduced=lengths,
        kept=None,
        partial=True,
    )


def second_step(
    node: Reduction, cuts: Sequence["Cut"], parts: Buffer, own_mean: "MeanOfChunk | None"
) -> Reduction:
    """The parts are reduced to the result."""

    def whole(ops: Handler, index: Index, rindex: Index) -> Value:
        at = (*rindex, *index)
        combined = parts.view().load(ops, at)
        if own_mean is None:
            return combined
        return own_mean.corrected(ops, combined, at, node.place(index))

    chunks = tuple(cut.chunks for cut in cuts)
    return replace(node, inner=whole, reduced=chunks)


def filled_up(
    ops: Handler, node: Reduction, cuts: Collection["Cut"], row: Index, columns: Index
) -> Value:
    """A value that a reduction takes in; behind the last column what changes nothing."""
    conditions = []
    for cut, size, column in zip(cuts, node.reduced, columns, strict=True):
        if not cut.is_even:
            place = ops.index_expr(column, torch.int64)
            end = ops.index_expr(formula_of(size), torch.int64)
            conditions.append(ops.lt(place, end))

    def value() -> Value:
        return node.inner(ops, row, columns)

    if not conditions:
        return value()
    neutral = node.combines.identity(node.accumulate)
    return ops.masked(reduce(ops.logical_and, conditions), value, neutral)


@dataclass(frozen=True)
class MeanOfChunk:
    """The means of the chunks, made of the parts of the sum that the `mean` of all was made of."""

    mean: Buffer
    sums: Buffer
    length: int
    dtype: torch.dtype

    def count(self, ops: Handler) -> Value:
        """How many elements a chunk has."""
        return ops.constant(self.length, self.dtype)

    def load(self, ops: Handler, at: Index) -> Value:
        """The mean of one chunk of one row."""
        return ops.truediv(self.sums.view().load(ops, at), self.count(ops))

    def in_place_of_mean(self, ops: Handler, at: Index) -> Handler:
        """A handler under which a body that loads the mean of all gets that of the chunk."""

        def own(ops: Handler, index: Index) -> Value:
            return self.load(ops, at)

        return Inline(ops, {self.mean.name: Pointwise(self.mean, self.mean.shape, own)})

    def corrected(
        self, ops: Handler, squared_distances: Value, at: Index, row: sympy.Expr
    ) -> Value:
        """The squared distances of a chunk from the mean of all: those from its own mean, and how
        far that lies off."""
        apart = ops.sub(self.load(ops, at), ops.load(self.mean.name, row))
        return ops.add(squared_distances, ops.mul(self.count(ops), ops.mul(apart, apart)))


class Cut(NamedTuple):
    """How a reduced dimension is cut. `is_even`: the last chunk is as full as the others."""

    chunks: Any
    length: Any
    is_even: bool


def chunks_of(node: Reduction, graph: LoopGraph) -> tuple[Cut, ...]:
    """In how many chunks each reduced dimension is cut, together about as many as wanted."""
    wanted = chunks_wanted(node, graph)

    cuts = []
    for size in node.reduced:
        most = max(1, min(wanted, hint(size)))
        if is_symbolic(size):
            cut = cut_unevenly(size, most)
        else:
            cut = cut_evenly(size, most)
        wanted //= hint(cut.chunks)
        cuts.append(cut)
    return tuple(cuts)


def cut_evenly(size: int, most: int) -> Cut:
    """As many chunks as divide a number of columns."""
    chunks = next(n for n in range(most, 0, -1) if size % n == 0)
    return Cut(chunks, size // chunks, is_even=True)


def cut_unevenly(size: Any, most: int) -> Cut:
    """How a symbolic number of columns is cut: in chunks of a fixed length, as many as there
    are."""
    if most == 1:
        return Cut(1, size, is_even=True)
    length = power_of_two(-(-hint(size) // most))
    return Cut((size + length - 1) // length, length, is_even=False)


def chunks_wanted(node: Reduction, graph: LoopGraph) -> int:
    """So many chunks that a GPU is busy, and that each is worth a program."""
    rows = math.prod(map(hint, node.ranges))
    columns = math.prod(map(hint, node.reduced))
    reads = [access.index for access in record(node, graph.buffers).reads]
    if not rows_are_neighbours(reads, *node.symbols):
        return min(PROGRAMS // max(1, rows), columns // CHUNK)

    # Another reduction over the other dimensions can run along: a program walks along the rows of a
    # chunk.
    over_the_other = math.prod(node.reduced), math.prod(node.ranges)
    reductions = [other for other in graph.nodes if isinstance(other, Reduction)]
    for other in reductions:
        if same((math.prod(other.ranges), math.prod(other.reduced)), over_the_other):
            return min(WALKS, columns // 8)

    return min(TILE_ROWS * PROGRAMS // max(1, rows), columns // 32, 512)


def rows_are_neighbours(
    reads: Iterable[Linear], rows: Collection[sympy.Symbol], columns: Collection[sympy.Symbol]
) -> bool:
    """True if most of what is read lies row beside row in memory (a sum down the columns of a
    matrix), and not along the row."""
    along_rows = 0
    along_columns = 0
    for index in reads:
        # What moves with one of them only (a bias, a mean) is small: it stays in the cache.
        moves_with_both = moves_with_any(index, rows) and moves_with_any(index, columns)
        if moves_with_both:
            # True counts as 1.
            along_rows += steps_with_any(index, rows)
            along_columns += steps_with_any(index, columns)
    return along_rows > along_columns


def moves_with_any(index: Linear, symbols: Collection[sympy.Symbol]) -> bool:
    """True if the next iteration of one of the loops reads another element, wherever that is."""
    return any(index.moves_with(symbol) for symbol in symbols)


def steps_with_any(index: Linear, symbols: Collection[sympy.Symbol]) -> bool:
    """True if the next iteration of one of the loops reads the next element."""
    return any(same(index.coefficient(symbol), 1) for symbol in symbols)
