"""How the programs of a stream share its matrix: which blocks of columns each of them walks
along.

In:  a `Stream`, and the conditions in it that hide scores (`stream_trees.Masks`).
Out: a `StreamTiling`: a tile for each program, and a `Walk` for each block of rows.

        free_from  free_to            . hidden: all scores are -inf, nothing is loaded
    . . / / # # # # # # / / . . .     # free: the mask changes nothing, so nobody computes it
        first               last      / cut: the mask is computed for each score

In PyTorch: `torch/nn/attention/flex_attention.py`, `BlockMask` (`kv_indices`, `full_kv_indices`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import sympy
import torch

from course_lib.codegen.stream_swizzles import LEAST_SIDE, with_one_swizzle
from course_lib.codegen.stream_trees import Masks
from course_lib.codegen.tilings import Choice, Tiling, divided_up
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ops import substitute
from course_lib.scheduling.blocks import Knowledge, Shown, shown_blocks
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.stream_nodes import HALVES, Factor, Stream

# Numbers of scores, weights and totals that a thread may have in its 255 registers. (The others
# hold addresses, masks and operands. Measured: docs/measurements/gpu.md)
MOST_NUMBERS = 160
THREADS_OF_WARP = 32
# The same for gradients, whose weights are rounded to halves at once
MOST_NUMBERS_OF_GRADIENTS = 224
# What the loops of a factor are called while it is compared with another
ROW_OF_FACTOR, COLUMN_OF_FACTOR = sympy.symbols("row_of_factor column_of_factor", integer=True)


def walking_tile(rows: int, columns: int, stages: int, warps: int) -> Choice:
    """A block of rows, the columns of one step, and how many steps are fetched ahead."""
    return Choice({"ROWS": rows, "COLUMNS": columns, "num_stages": stages}, warps)


TILES_OF_HALVES = {
    64: walking_tile(64, 64, 3, 4),
    128: walking_tile(64, 64, 3, 4),
    256: walking_tile(64, 32, 3, 4),
}
"""Longest row of q, k or v → the tile, where products are of halves. Measured:
docs/measurements/gpu.md."""
TILES_OF_FLOATS = {
    64: walking_tile(128, 64, 2, 8),
    128: walking_tile(128, 32, 2, 8),
}
"""The same for float32. Longer rows take so many registers that two calls of the library are
faster."""
TILES_OF_GRADIENTS = {
    64: walking_tile(64, 64, 2, 4),
    128: walking_tile(64, 64, 2, 4),
    256: walking_tile(64, 32, 2, 8),
}
"""The same for gradients: no maximum runs, and two products make a weight."""


@dataclass(frozen=True)
class Walk:
    """The columns that the programs of one block of rows need."""

    # Before `first` and from `last` on all is hidden; from `free_from` to `free_to` nothing is
    first: int
    free_from: int
    free_to: int
    last: int

    @property
    def ends(self) -> list[int]:
        """As the kernel's table has them."""
        return [self.first, self.free_from, self.free_to, self.last]

    @property
    def length(self) -> int:
        return self.last - self.first


@dataclass(frozen=True)
class Line:
    """An end of each block's walk, if it is slope * block + offset, cut off at two numbers."""

    slope: int
    offset: int
    low: int
    high: int

    def at(self, blocks: Any) -> Any:
        return np.clip(self.slope * blocks + self.offset, self.low, self.high)

    def __str__(self) -> str:
        if self.slope == 0:
            return str(self.low)
        text = f"block * {self.slope}"
        if self.offset > 0:
            text += f" + {self.offset}"
        elif self.offset < 0:
            text += f" - {-self.offset}"
        return text

    def source(self, blocks: int) -> str:
        """As Triton has it."""
        text = str(self)
        if self.slope == 0:
            return text

        # A line is smallest and largest at its two ends.
        first, last = self.offset, self.slope * (blocks - 1) + self.offset
        if min(first, last) < self.low:
            text = f"tl.maximum({text}, {self.low})"
        if max(first, last) > self.high:
            text = f"tl.minimum({text}, {self.high})"
        return text

    @staticmethod
    def through(ends: Sequence[int]) -> "Line | None":
        """The line that gives the end of every block, if there is one."""
        values = np.asarray(ends)
        blocks = np.arange(len(values))
        low, high = int(values.min()), int(values.max())
        if low == high:
            return Line(0, low, low, high)

        steps = np.diff(values)
        for block in np.nonzero(steps)[0]:
            slope = int(steps[block])
            line = Line(slope, int(values[block]) - slope * int(block), low, high)
            if np.array_equal(line.at(blocks), values):
                return line
        return None


@dataclass(frozen=True)
class StreamTiling(Tiling):
    """A block of rows for each program, and one tile, which the source is printed for."""

    tile: Choice = walking_tile(LEAST_SIDE, LEAST_SIDE, 1, 4)
    # Matrices, and blocks of rows in each
    matrices: int = 1
    walks: tuple[Walk, ...] = ()
    # What must be looked at before hidden blocks are left out
    shown: Shown | None = None

    @property
    def in_this_call(self) -> Self:
        """There are no formulas of sizes in it."""
        return self

    def meta(self, interpreted: bool) -> dict[str, int]:
        return self.tile.meta

    def programs(self, meta: Mapping[str, int]) -> Any:
        return self.matrices * len(self.walks)

    def warps(self, meta: Mapping[str, int]) -> int:
        return self.tile.warps

    # --- what the source needs to know

    @property
    def lines(self) -> list[Line] | None:
        """The four ends as formulas; without them there is a table."""
        lines = []
        ends_of_walks = [walk.ends for walk in self.walks]
        for ends in zip(*ends_of_walks, strict=True):
            line = Line.through(ends)
            if line is None:
                return None
            lines.append(line)
        return lines

    @property
    def starts_last(self) -> bool:
        """Do the last rows have the longest walk? Then they come first, so that the last programs
        to start are soon done."""
        return self.walks[-1].length > self.walks[0].length

    @property
    def has_hidden(self) -> bool:
        """Are there blocks that no program loads?"""
        return any(walk.length < padded(self.columns, self.tile) for walk in self.walks)

    @property
    def has_free(self) -> bool:
        return any(walk.free_from < walk.free_to for walk in self.walks)

    @property
    def has_cut(self) -> bool:
        """Are there blocks in which the mask must be computed?"""
        return any(walk.free_to - walk.free_from < walk.length for walk in self.walks)

    @property
    def table(self) -> list[int]:
        """Four ends for each block."""
        return [end for walk in self.walks for end in walk.ends]


def padded(columns: int, tile: Choice) -> int:
    """The end of the last block of columns."""
    return int(divided_up(columns, tile.meta["COLUMNS"])) * tile.meta["COLUMNS"]


def choose_stream_tiling(
    stream: Stream, masks: Masks, in_halves: bool, device: torch.device
) -> StreamTiling:
    """The tile for a stream's sizes, and what each block of rows needs."""
    tile = fitting(choose_tile(stream, in_halves), stream, in_halves, memory_of(device))
    tile = with_one_swizzle(tile, stream, in_halves)
    matrices = math.prod(loop.size for loop in stream.batch)
    shown = shown_blocks(stream, tile.meta["ROWS"], tile.meta["COLUMNS"])
    walks = tuple(walks_of(stream, masks, tile, shown))
    return StreamTiling(
        # Of whole blocks, for a block has rows of one matrix only
        rows=matrices * len(walks) * tile.meta["ROWS"],
        columns=stream.column.size,
        tile=tile,
        matrices=matrices,
        walks=walks,
        shown=shown,
    )


def choose_tile(stream: Stream, in_halves: bool) -> Choice:
    """From the tables; smaller where a program has more than one product on each side, or the
    matrix is small."""
    of_thread = MOST_NUMBERS
    if not in_halves:
        tiles = TILES_OF_FLOATS
    elif is_gradient(stream):
        tiles = TILES_OF_GRADIENTS
        of_thread = MOST_NUMBERS_OF_GRADIENTS
    else:
        tiles = TILES_OF_HALVES
    longest = longest_operand(stream)
    meta, warps = next(tile for most, tile in tiles.items() if longest <= most)

    rows, columns = meta["ROWS"], meta["COLUMNS"]
    # Scores and weights are rows x columns; a total has rows as long as its result's.
    tiles_of_scores = len(stream.scores) + len(stream.cores)
    numbers_of_totals = sum(widths_of_totals(stream))
    most = of_thread * THREADS_OF_WARP * warps
    while (
        rows * (columns * tiles_of_scores + numbers_of_totals) > most and columns > 2 * LEAST_SIDE
    ):
        columns //= 2
    rows = max(LEAST_SIDE, min(rows, power_of_two(stream.row.size)))
    columns = max(LEAST_SIDE, min(columns, power_of_two(stream.column.size)))
    return walking_tile(rows, columns, meta["num_stages"], warps)


def is_gradient(stream: Stream) -> bool:
    """Are weights made of several products, with nothing that runs along the row?"""
    return not stream.maxima and len(stream.scores) > 1


def longest_operand(stream: Stream) -> int:
    """The longest row of q, k or v."""
    factors = [*(each.left for each in stream.scores), *(end.values for end in stream.ends)]
    return max(factor.columns.size for factor in factors)


def widths_of_totals(stream: Stream) -> list[int]:
    """How many numbers each total has in a row."""
    return [power_of_two(end.values.columns.size) for end in stream.ends for _ in end.split.cores]


def factors_of_columns(stream: Stream) -> list[Factor]:
    """The operands of which each block of columns loads a tile: each once, for the end of a
    gradient may multiply what the scores are made of, too."""
    found: list[Factor] = []
    for factor in [*(each.right for each in stream.scores), *(end.values for end in stream.ends)]:
        if not any(is_same_factor(factor, other) for other in found):
            found.append(factor)
    return found


def is_same_factor(one: Factor, other: Factor) -> bool:
    """Are these the same numbers, whatever their loops are called?"""
    return written_out(one.tree, one) == written_out(other.tree, other)


def written_out(tree: Expr, factor: Factor) -> tuple[Any, ...]:
    """A tree of a factor as something to compare."""
    detail = tree.detail
    names = {factor.rows.symbol: ROW_OF_FACTOR, factor.columns.symbol: COLUMN_OF_FACTOR}
    if tree.op == "load":
        buffer, index = detail
        detail = (buffer, substitute(index, names))
    elif tree.op == "index_expr":
        detail = substitute(detail, names)
    return (tree.op, tree.dtype, detail, *(written_out(each, factor) for each in tree.args))


def fitting(tile: Choice, stream: Stream, in_halves: bool, room: float) -> Choice:
    """The tile, with fewer steps ahead and fewer columns until its operands lie in the memory that
    a program may have."""
    meta, warps = tile
    rows, columns, stages = meta["ROWS"], meta["COLUMNS"], meta["num_stages"]
    depths = [power_of_two(each.left.columns.size) for each in stream.scores]
    # Elements of one column of a step, in all operands that are loaded for it
    of_column = sum(power_of_two(each.columns.size) for each in factors_of_columns(stream))
    of_element = 2 if in_halves else 4

    while (rows * sum(depths) + stages * columns * of_column) * of_element > room:
        if stages > 1:
            stages -= 1
        elif columns > LEAST_SIDE:
            columns //= 2
        elif rows > LEAST_SIDE:
            rows //= 2
        else:
            break
    return walking_tile(rows, columns, stages, warps)


def memory_of(device: torch.device) -> float:
    """Bytes of fast memory that one program may have on this GPU."""
    if device.type != "cuda" or not torch.cuda.is_available():
        return math.inf
    properties = torch.cuda.get_device_properties(device)
    return float(getattr(properties, "shared_memory_per_block_optin", math.inf))


def walks_of(stream: Stream, masks: Masks, tile: Choice, known: Shown | None) -> list[Walk]:
    """What each block of rows needs."""
    rows, columns = tile.meta["ROWS"], tile.meta["COLUMNS"]
    end = padded(stream.column.size, tile)
    free = free_blocks(stream, masks, rows, columns)
    shown = [(0, end)] * len(free)
    if known:
        shown = known.columns

    walks = []
    for block, (first, last) in enumerate(shown):
        blocks_shown = free[block, first // columns : last // columns]
        start, stop = longest_run(blocks_shown)
        walks.append(Walk(first, first + start * columns, first + stop * columns, last))
    return walks


def free_blocks(stream: Stream, masks: Masks, rows: int, columns: int) -> Any:
    """For each block of rows and columns: is it full, and surely hides no mask anything in it?"""
    known = Knowledge(stream, rows, columns)
    free = np.ones(known.shape, dtype=bool)
    # Where the last block reaches beyond the last column, a mask must say so.
    if stream.column.size % columns:
        free[:, -1] = False
    for condition, shown in masks.shown.items():
        interval = known.interval(condition)
        free &= interval.surely if shown else interval.never
    return free


def longest_run(flags: Sequence[bool]) -> tuple[int, int]:
    """Where the longest run of true values begins and ends."""
    best, begin = (0, 0), 0
    for n, flag in enumerate([*flags, False]):
        if flag:
            continue
        if n - begin > best[1] - best[0]:
            best = (begin, n)
        begin = n + 1
    return best


def all_in_halves(stream: Stream) -> bool:
    """Are all products of halves, so that tensor cores make them as they are?"""
    trees = [tree for each in stream.scores for tree in (each.left.tree, each.right.tree)]
    trees += [end.values.tree for end in stream.ends]
    return all(tree.op == "to_dtype" and tree.args[0].dtype in HALVES for tree in trees)
