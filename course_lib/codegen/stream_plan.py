"""What the Triton kernel of a stream will look like, decided before a line of it is printed.

In:  a `Streamed` node, and the buffers that it reads and writes.
Out: a `StreamPlan`: the tile of a program, the walk of each block of rows, the trees that it
     computes with and without masks, and the dtypes in which it multiplies.

`streamed_triton.py` prints a plan and decides nothing more.
In PyTorch: `torch/_inductor/kernel/flex/flex_attention.py` (block sizes, and which blocks are
full).
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import sympy
import torch

from course_lib.codegen.stream_trees import (
    Masks,
    StreamTrees,
    depends_on_scores,
    is_nan_where_empty,
)
from course_lib.codegen.stream_walks import (
    StreamTiling,
    all_in_halves,
    choose_stream_tiling,
    padded,
)
from course_lib.codegen.tilings import divided_up
from course_lib.codegen.triton_plan import is_any_large
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ir import Buffer
from course_lib.scheduling.expressions import COSTLY, Expr, loads
from course_lib.scheduling.stream_nodes import HALVES, End, Scores, Stream, Streamed
from course_lib.scheduling.stream_trees import formulas_of

# The names of a walk's four ends, in the kernel and in its table
ENDS = "first", "free_from", "free_to", "last"
# Elements of the values that one program of the small kernel looks at
LOOKED_AT = 16 * 1024


@dataclass(frozen=True)
class Ends:
    """A walk as source: where the columns begin and end, and those of them that no mask cuts."""

    first: str
    free_from: str
    free_to: str
    last: str


@dataclass(frozen=True)
class StreamPlan:
    """All decisions about one kernel."""

    stream: Stream
    # The tile of a program, and the walk of each block of rows
    tiling: StreamTiling
    # The trees of blocks in which masks are computed, and of those in which they hide nothing
    cut: StreamTrees
    free: StreamTrees
    # Are all products of float16 or bfloat16?
    in_halves: bool
    # Has a buffer so many elements that an int32 cannot number them?
    needs_64_bits: bool
    # Must a row be walked along once more if all its scores were -inf?
    two_turns: bool

    # --- where a program walks

    @property
    def has_table(self) -> bool:
        """Do the ends of walks lie in a table, because no formula of the block gives them?"""
        return self.tiling.lines is None

    @property
    def ends(self) -> Ends:
        """Of this program's walk, as source."""
        if self.tiling.lines is None:
            return Ends(*ENDS)
        texts = []
        for name, line in zip(ENDS, self.tiling.lines, strict=True):
            # An end that differs from block to block has a name, any other is written as a number.
            # But the kernel sets `first` and `last` anew where a value is not finite, so that no
            # block is hidden (`write_widened`): then they need names, too, unless they are as wide
            # already.
            is_widest = (name, line.low) in (("first", 0), ("last", self.end))
            may_change = self.tiling.has_hidden and not is_widest
            is_named = line.slope or (may_change and name in ("first", "last"))
            if is_named:
                texts.append(name)
            else:
                texts.append(str(line.low))
        return Ends(*texts)

    @property
    def end(self) -> int:
        """Where the last block of columns ends."""
        return padded(self.stream.column.size, self.tiling.tile)

    def is_ragged(self, trees: StreamTrees) -> bool:
        """Does the last block with these trees reach beyond the last column?"""
        columns = self.tiling.tile.meta["COLUMNS"]
        return trees is self.cut and self.stream.column.size % columns != 0

    # --- the small kernel that looks for values that are not finite

    @property
    def has_look(self) -> bool:
        """Is there a small kernel? Where blocks are hidden, and something could be not finite: the
        values of a product at the end, or numbers of each column."""
        if not self.tiling.has_hidden:
            return False
        return bool(self.stream.ends or self.numbers_looked_at(of_rows=False))

    @property
    def looked_at(self) -> int:
        """Rows of the values (or numbers of columns) that one program of the small kernel looks
        at."""
        widths = [power_of_two(end.values.columns.size) for end in self.stream.ends]
        width = max(widths, default=1)
        return min(LOOKED_AT // width, power_of_two(self.stream.column.size))

    @property
    def flags_of_matrix(self) -> int:
        """Parts of one matrix of values. Each has a flag."""
        return int(divided_up(self.stream.column.size, self.looked_at))

    def numbers_looked_at(self, of_rows: bool) -> list[Expr]:
        """The numbers of each row (or of each column) that must be finite for a hidden weight to be
        0."""
        if not self.tiling.shown or not self.tiling.has_hidden:
            return []
        found, column = [], self.stream.column.symbol
        for number in self.tiling.shown.finite:
            _, index = number.detail
            if (column not in index.free_symbols) == of_rows:
                found.append(number)
        return found

    # --- in which dtype it multiplies

    def dtype_of_product(self, scores: Scores) -> torch.dtype:
        """Halves are multiplied as they are, and summed in float32."""
        return common_half(scores.left.tree, scores.right.tree)

    def dtype_of_last(self, end: End) -> torch.dtype:
        """Weights are rounded to halves where eager multiplies halves."""
        if end.out.dtype not in HALVES:
            return torch.float32
        values = end.values.tree
        return common_half(values, values)

    # --- what it computes

    def roots(self, trees: StreamTrees) -> list[Expr]:
        """All trees of a block."""
        stream = self.stream
        maxima = [trees.logits_of(leaf.detail).tree for leaf in stream.maxima]
        sums = [trees.of(leaf.detail.term) for leaf, _ in stream.sums]
        return [*maxima, *sums, *map(trees.of, stream.cores)]

    def of_rows(self) -> Iterable[Expr]:
        """Values that are read or dear, and the same along a row: they are known before the walk
        begins."""
        found: dict[Expr, None] = {}

        def look(tree: Expr) -> None:
            symbols = symbols_in(tree)
            varies = self.stream.column.symbol in symbols or depends_on_scores(tree)
            if varies:
                for each in tree.args:
                    look(each)
            elif any(node.op == "load" or node.op in COSTLY for node in tree.walk()):
                found[tree] = None

        for trees in (self.cut, self.free):
            for tree in self.roots(trees):
                look(tree)
        return found


def plan_stream(node: Streamed, buffers: Mapping[str, Buffer]) -> StreamPlan:
    """Decide all about the kernel of one stream."""
    stream = node.stream
    masks = Masks.of(stream)
    in_halves = all_in_halves(stream)

    cut = StreamTrees(stream, buffers, Masks())
    free = StreamTrees(stream, buffers, masks, cut.builder)
    # Both loops rescale the same totals: without a common factor the masks stay in both.
    if not have_same_factors(stream, cut, free):
        free = cut

    touched = [*(buffers[name] for name in stream.reads), *node.buffers]
    device = node.buffers[0].device
    return StreamPlan(
        stream=stream,
        tiling=choose_stream_tiling(stream, masks, in_halves, device),
        cut=cut,
        free=free,
        in_halves=in_halves,
        needs_64_bits=is_any_large(buffer.extent for buffer in touched),
        two_turns=not is_nan_where_empty(stream),
    )


def have_same_factors(stream: Stream, cut: StreamTrees, free: StreamTrees) -> bool:
    """Is each maximum of the same multiple of the logits, with and without masks?"""
    running = [leaf.detail for leaf in stream.maxima]
    return all(cut.logits_of(each).factor == free.logits_of(each).factor for each in running)


def common_half(left: Expr, right: Expr) -> torch.dtype:
    """The kind of halves that both were converted from, or float32."""
    kinds = set()
    for tree in (left, right):
        if tree.op == "to_dtype":
            tree = tree.args[0]
        kinds.add(tree.dtype)

    kind = kinds.pop()
    if not kinds and kind in HALVES:
        return kind
    return torch.float32


def names_of_loads(tree: Expr) -> Collection[str]:
    """The buffers that a tree reads."""
    return {buffer for buffer, _ in loads(tree)}


def symbols_in(tree: Expr) -> set[sympy.Symbol]:
    """The symbols of all index formulas in a tree."""
    found: set[sympy.Symbol] = set()
    for node in tree.walk():
        for formula in formulas_of(node):
            found |= formula.free_symbols
    return found
