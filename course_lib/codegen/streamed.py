"""A stream as C++: blocks of rows, and for each the columns block by block, in tiles that stay in
the caches.

In:  a `Streamed` node: products, what is computed of their elements, reductions along a row, a last
     product.
Out: one function `extern "C" void name(void** buffers)`, which needs `prelude.h` and `tiles.h`
     before it.

    for each block of rows                                    threads share these
        for each block of columns
            a tile of scores = a product of two tiles
            the maximum of each row grows; the sums so far are rescaled
            the tile becomes what the last product multiplies
            totals += tile @ a tile of values
        result = totals / sum, or whatever the program says

In PyTorch: aten/src/ATen/native/cpu/FlashAttentionKernel.cpp (written by hand, for softmax and one
mask).
"""

import contextlib
import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sympy

from course_lib.codegen.cpp_ops import RESERVED, STORED
from course_lib.codegen.printer import KernelSource
from course_lib.codegen.stream_tiles import (
    COLUMNS_OF_TILE,
    REGISTER,
    ROWS_OF_TILE,
    Operand,
    TilesCpp,
    evenly,
    padded,
    smaller,
)
from course_lib.lowering.ir import Buffer
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import FusedKernel
from course_lib.scheduling.rescaling import Powers, Running
from course_lib.scheduling.stream_nodes import End, Factor, Scores, Streamed

# So many rows `multiply` of `tiles.h` takes at once
ROWS_AT_ONCE = 6
# Rows of a tile, if there are so many
ROWS = 16 * ROWS_AT_ONCE
# Columns of a tile: with 96 rows of float32 it is 48 KB, a part of the second cache
COLUMNS = 128
NAMES = """multiply fill_tile widen_row vector four turn m0 n0 n1 rows columns is_empty before now scale shift
    others WIDTH""".split()
"""Names that `tiles.h` and the lines below write themselves: no value of the program gets one of
them."""


@functools.cache
def tiles() -> str:
    """What stands between the prelude and the kernels, where one of these is a stream."""
    return Path(__file__).with_name("tiles.h").read_text()


@dataclass(frozen=True)
class Total:
    """What a last product has summed so far: a tile of rows by `width`, and the tile of what is
    multiplied next."""

    name: str
    weights: str
    width: int
    powers: Powers


class StreamedCpp(TilesCpp):
    """Walks along one stream.

    (Methods called `print_<op>` are a printer's way to spell an operation: these here `write`.)"""

    def __init__(self, node: Streamed, buffers: Mapping[str, Buffer], name: str) -> None:
        nothing = FusedKernel(name, (), (), frozenset(), frozenset())
        super().__init__(nothing, buffers, name, [*RESERVED, *NAMES])
        self.stream, self.rows = node.stream, {}
        self.written = tuple(buffer.name for buffer in node.buffers)
        self.touched = self.passed = (*self.stream.reads, *self.written)

        loops = [*self.stream.batch, self.stream.row, self.stream.column]
        loops += [end.values.columns for end in self.stream.ends]
        loops += [each.left.columns for each in self.stream.scores]
        self.taken |= {str(loop.symbol) for loop in loops}

        self.tile_rows = evenly(self.stream.row.size, ROWS, ROWS_AT_ONCE)
        self.tile_columns = evenly(self.stream.column.size, COLUMNS, REGISTER)

        # The names of tiles and of what is kept for each row
        self.tile: dict[Expr, str] = {}
        self.kept: dict[Expr, str] = {}
        # Of each last product, those of its totals
        self.totals: dict[End, list[Total]] = {}
        # The left operand of each product of scores
        self.left: list[Operand] = []

    def print(self) -> KernelSource:
        """The whole function."""
        stream, row = self.stream, self.stream.row
        with self.block(f'extern "C" void {self.name}(void** buffers) {{', "}"):
            self.write_pointers()
            self.write_shown()
            words = ["#pragma omp parallel for"]
            if stream.batch:
                words.append(f"collapse({len(stream.batch) + 1})")
            words.append("schedule(dynamic)")
            self.line(" ".join(words))
            with contextlib.ExitStack() as blocks:
                for loop in stream.batch:
                    blocks.enter_context(self.counting(str(loop.symbol), "0", str(loop.size)))
                blocks.enter_context(self.counting("m0", "0", str(row.size), self.tile_rows))
                self.line(f"const int64_t rows = {smaller(f'{row.size} - m0', self.tile_rows)};")
                self.declare_tiles()
                self.left = [self.rows_of_product(scores.left) for scores in stream.scores]
                self.write_turns()
                self.write_results()

        source, line_of = self.layout("  ")
        return KernelSource(self.name, "cpp", source, self.passed, line_of)

    def write_pointers(self) -> None:
        """One typed pointer for each buffer."""
        for n, name in enumerate(self.touched):
            pointer = f"{STORED[self.buffers[name].dtype]}*"
            if name not in self.written:
                pointer = f"const {pointer}"
            own_name = self.unique(name)
            self.pointers[name] = own_name
            self.line(f"{pointer} __restrict {own_name} = ({pointer})buffers[{n}];")

    # --- tiles

    def declare_tiles(self) -> None:
        """Memory on the stack of each thread."""
        stream, size = self.stream, self.tile_rows * self.tile_columns
        for each in stream.scores:
            self.tile[each.leaf] = self.array("scores", size)
        self.declare_inputs_of_exponentials(size)

        # What is multiplied takes the place of what it is made of.
        free = list(dict.fromkeys(self.tile.values()))
        for end in stream.ends:
            width = padded(end.values.columns.size)
            self.totals[end] = []
            for powers in end.split.powers:
                # A tile of scores serves once more: for the weights.
                if free:
                    weights = free.pop(0)
                else:
                    weights = self.array("weights", size)
                name = self.array("total", self.tile_rows * width)
                self.totals[end].append(Total(name, weights, width, powers))

        for leaf in stream.maxima:
            self.kept[leaf] = self.array("highest", self.tile_rows)
        for leaf, _ in stream.sums:
            self.kept[leaf] = self.array("sum", self.tile_rows)

    def declare_inputs_of_exponentials(self, size: int) -> None:
        """A tile for the values that each maximum is of: the scores' own, if nobody needs these any
        more."""
        stream = self.stream
        terms = {leaf.detail.term for leaf in stream.maxima}
        later = [*stream.cores, *(leaf.detail.term for leaf, _ in stream.sums)]
        is_needed = any(needs_scores(tree, terms) for tree in later)
        is_free = len(terms) == 1 and not is_needed
        for leaf in stream.maxima:
            term = leaf.detail.term
            if term not in self.tile:
                if is_free:
                    self.tile[term] = self.tile[stream.scores[0].leaf]
                else:
                    self.tile[term] = self.array("logits", size)

    def element(self, tile: str) -> str:
        """The element of a tile at row m, column n."""
        return f"{tile}[(m - m0) * {self.tile_columns} + n - n0]"

    # --- operands

    def rows_of_product(self, factor: Factor) -> Operand:
        """The left operand of a product of scores, once for a block of rows: as it lies, if its
        numbers are neighbours."""
        place = self.place_of(factor)
        if place and self.lies_densely(place):
            return self.operand(factor, place, ROWS_OF_TILE.first)

        room = padded(factor.columns.size)
        tile = self.array("queries", self.tile_rows * room)
        self.fill(factor, ROWS_OF_TILE, tile, room)
        return Operand(tile, room, 1)

    def values_of_block(self, end: End, width: int) -> Operand:
        """The right operand of a last product, for a block of columns."""
        factor = end.values
        place = self.place_of(factor)
        is_whole = factor.columns.size == width
        if place and is_whole and self.lies_densely(place):
            return self.operand(factor, place, COLUMNS_OF_TILE.first)

        tile = self.array("values", self.tile_columns * width)
        self.fill(factor, COLUMNS_OF_TILE, tile, width)
        return Operand(tile, width, 1)

    # --- the columns, block by block

    def write_blocks(self) -> None:
        """What happens with each block of columns."""
        size = self.stream.column.size
        with self.counting("n0", "0", str(size), self.tile_columns):
            columns = smaller(f"{size} - n0", self.tile_columns)
            self.line(f"const int64_t columns = {columns}, n1 = n0 + columns;")
            self.write_skipping()
            for n, scores in enumerate(self.stream.scores):
                self.write_scores(scores, self.left[n])

            with self.rows_of_block():
                factors = self.write_maxima()
                self.write_weights(factors)
            self.write_totals()

    def write_scores(self, scores: Scores, left: Operand) -> None:
        """A tile of a product.

        The keys become the columns of their tile, for `multiply` takes registers full of columns.
        (`false`: what was in the tile is overwritten. In `write_totals` the product is added.)"""
        depth, room = scores.right.columns.size, self.tile_columns
        keys = self.array("keys", depth * room)
        self.fill(scores.right, COLUMNS_OF_TILE, keys, room, turned=True)

        tile = self.tile[scores.leaf]
        self.line(
            f"multiply({left.address}, {left.row}, {left.column}, {keys}, {room}, {tile}, {room}, "
            f"rows, {room}, {depth}, false);"
        )

    def write_maxima(self) -> dict[Running, str]:
        """Each maximum takes in the block.

        Gives for each the factor by which it rescales what was summed."""
        factors = {}
        for leaf in self.stream.maxima:
            running, highest = leaf.detail, f"{self.kept[leaf]}[m - m0]"
            best = self.write_maximum(running.term)

            # NaN wins. Where nothing changed there is nothing to rescale, and -inf - -inf is no
            # number.
            before, now = self.unique("before"), self.unique("now")
            factor, shift = self.unique("factor"), self.unique("shift")
            self.line(
                f"const float {before} = {highest}, {now} = maximum({before}, {best});",
                f"const float {factor} = {before} == {now} ? 1 : exp({before} - {now});",
                f"const float {shift} = turn == 0 && {now} == -INFINITY ? 0 : {now};",
                f"{highest} = {now};",
            )
            factors[running] = factor
            self.values[leaf] = shift
        return factors

    def write_maximum(self, term: Expr) -> str:
        """The maximum of a row of the tile. What it is of stays in a tile, for the exponentials."""
        best, has_nan = self.unique("best"), self.unique("has_nan")
        self.line(f"float {best} = -INFINITY;", f"int {has_nan} = 0;")
        self.line(f"#pragma omp simd reduction(max: {best}) reduction(|: {has_nan})")
        with self.columns_of_block():
            self.load_scores()
            self.count_uses([term])
            value = self.text(term)
            if not value.isidentifier():
                value = self.bind(term, value, "logit")
            self.line(
                f"{self.element(self.tile[term])} = {value};",
                f"{best} = {value} > {best} ? {value} : {best};",
                f"{has_nan} |= {value} != {value};",
            )
        self.line(f"if ({has_nan}) {best} = NAN;")
        return best

    def write_weights(self, factors: Mapping[Running, str]) -> None:
        """The sums take in a row of the tile, which becomes what the last product multiplies."""
        parts = self.write_row_of_weights()

        # What was summed before belongs to the old maximum: it is rescaled first.
        for part, (leaf, powers) in zip(parts, self.stream.sums, strict=True):
            total_sum = f"{self.kept[leaf]}[m - m0]"
            rescaled = " * ".join([total_sum, *factor_of(powers, factors)])
            self.line(f"{total_sum} = {rescaled} + {part};")
        for total in self.all_totals():
            self.write_rescaling(total, factor_of(total.powers, factors))

    def write_row_of_weights(self) -> list[str]:
        """The loop over the columns of a row. Gives the names of what it adds to each sum."""
        terms = [leaf.detail.term for leaf, _ in self.stream.sums]
        parts = [self.unique("part") for _ in terms]
        self.line(*(f"float {part} = 0;" for part in parts))
        self.line(" ".join(["#pragma omp simd", *(f"reduction(+: {part})" for part in parts)]))

        with self.columns_of_block():
            self.load_scores()
            for leaf in self.stream.maxima:
                self.values[leaf.detail.term] = self.element(self.tile[leaf.detail.term])

            self.count_uses([*terms, *self.stream.cores])
            weights = self.texts_of_weights()
            for part, term in zip(parts, terms, strict=True):
                self.line(f"{part} += {self.text(term)};")
            for total, text in zip(self.all_totals(), weights, strict=True):
                self.line(f"{self.element(total.weights)} = {text};")
        return parts

    def texts_of_weights(self) -> list[str]:
        """An element of what each total is multiplied by."""
        cores = self.stream.cores
        texts = [self.text(core) for core in cores]
        if len(cores) == 1:
            return texts

        # The tile of one may be where another still has to read, so all are computed before the
        # first is stored.
        return [self.bind(core, text, "weight") for core, text in zip(cores, texts, strict=True)]

    def all_totals(self) -> list[Total]:
        """The totals of all last products, in the order of `cores`."""
        return [total for each in self.totals.values() for total in each]

    def write_rescaling(self, total: Total, factor: list[str]) -> None:
        """What was added up so far, after a maximum has changed."""
        if not factor:
            return
        product = " * ".join(factor)
        with self.block(f"if ({product} != 1) {{", "}"):
            row = f"{total.name}[(m - m0) * {total.width} + e]"
            self.line("#pragma omp simd")
            with self.counting("e", "0", str(total.width)):
                self.line(f"{row} *= {product};")

    def load_scores(self) -> None:
        """The elements of the products are those of their tiles."""
        for scores in self.stream.scores:
            self.values[scores.leaf] = self.element(self.tile[scores.leaf])

    def write_totals(self) -> None:
        """The block goes into the totals."""
        room = self.tile_columns
        for end, totals in self.totals.items():
            width = totals[0].width
            right = self.values_of_block(end, width)
            for total in totals:
                self.line(
                    f"multiply({total.weights}, {room}, 1, {right.address}, {right.row}, {total.name}, {width}, "
                    f"rows, {width}, columns, true);"
                )

    # --- around them

    def write_turns(self) -> None:
        """All blocks of columns; once more if a row has nothing but -inf, with the maxima known:
        then each step is eager's."""
        if not self.stream.maxima:
            self.clear(self.kept.values())
            self.write_blocks()
            return

        for leaf in self.stream.maxima:
            self.line(f"for (float& each : {self.kept[leaf]}) each = -INFINITY;")
        with self.block("for (int turn = 0; turn < 2; turn++) {", "}"):
            self.clear(self.kept[leaf] for leaf, _ in self.stream.sums)
            self.write_blocks()

            self.line("bool is_empty = false;")
            with self.rows_of_block():
                for leaf in self.stream.maxima:
                    self.line(f"is_empty |= {self.kept[leaf]}[m - m0] == -INFINITY;")
            self.line("if (!is_empty) break;")

    def clear(self, sums: Iterable[str]) -> None:
        """Nothing was summed so far."""
        totals = [total.name for total in self.all_totals()]
        self.line(*(f"for (float& each : {name}) each = 0;" for name in [*sums, *totals]))

    def write_results(self) -> None:
        """What is known when a row ends, and the results that are made of its totals."""
        with self.rows_of_block():
            for leaf, name in self.kept.items():
                self.values[leaf] = f"{name}[m - m0]"
            for each in self.stream.of_rows:
                self.count_uses([each.tree])
                self.store_result(each.out, each.place, each.tree)
            for end, totals in self.totals.items():
                self.write_products(end, totals)

    def write_products(self, end: End, totals: list[Total]) -> None:
        """A row of what a last product gives."""
        with self.counting("e", "0", str(end.values.columns.size)):
            for node in end.split.finish.walk():
                if node.op == "total":
                    total = totals[node.detail]
                    self.values[node] = f"{total.name}[(m - m0) * {total.width} + e]"
            self.count_uses([end.split.finish])
            self.store_result(end.out, end.place, end.split.finish)

    def store_result(self, out: Buffer, place: sympy.Expr, tree: Expr) -> None:
        """One element."""
        result = self.text(tree, whole=True)
        target = f"{self.pointers[out.name]}[{self.index(place)}]"
        self.line(f"{target} = {result};")


def streamed_source(node: Streamed, buffers: Mapping[str, Buffer], name: str) -> KernelSource:
    """Print one stream. `buffers` knows at least those that it reads."""
    return StreamedCpp(node, buffers, name).print()


def factor_of(powers: Powers, factors: Mapping[Running, str]) -> list[str]:
    """What a sum is multiplied by, as the factors of a product."""
    return [factors[running] for running, power in powers.items() for _ in range(power)]


def needs_scores(tree: Expr, known: Collection[Expr]) -> bool:
    """Does a value need an element of a product, other than through values that are `known`?"""
    if tree in known:
        return False
    return tree.op == "scores" or any(needs_scores(each, known) for each in tree.args)
