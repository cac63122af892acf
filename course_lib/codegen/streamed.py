"""A stream as C++: blocks of rows, and for each the columns block by block, in tiles that stay in the caches.

In:  a `Streamed` node: products, what is computed of their elements, reductions along a row, a last product.
Out: one function `extern "C" void name(void** buffers)`, which needs `prelude.h` and `tiles.h` before it.

    for each block of rows                                    threads share these
        for each block of columns
            a tile of scores = a product of two tiles
            the maximum of each row grows; the sums so far are rescaled
            the tile becomes what the last product multiplies
            totals += tile @ a tile of values
        result = totals / sum, or whatever the program says

In PyTorch: aten/src/ATen/native/cpu/FlashAttentionKernel.cpp (written by hand, for softmax and one mask).
"""

import contextlib
import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import sympy
import torch

from course_lib.codegen.cpp_ops import RESERVED, STORED, CppOps
from course_lib.codegen.printer import KernelSource
from course_lib.lowering.indexing import ZERO, Linear
from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import substitute
from course_lib.scheduling.blocks import shown_columns
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import FusedKernel
from course_lib.scheduling.rescaling import Powers, Running
from course_lib.scheduling.streams import FLOATS, Factor, Scores, Streamed

# Rows of a tile: a multiple of the six that `multiply` takes at once
ROWS = 96
# Columns of a tile: with 96 rows of float32 it is 48 KB, a part of the second cache
COLUMNS = 128
# Columns of tiles are padded to a register full
REGISTER = 16
NAMES = """multiply fill_tile widen_row vector four turn m0 n0 n1 rows columns is_empty before now scale shift
    WIDTH""".split()


@functools.cache
def tiles() -> str:
    """What stands between the prelude and the kernels, where one of these is a stream."""
    return Path(__file__).with_name("tiles.h").read_text()


@dataclass(frozen=True)
class Place:
    """A factor that is a part of a buffer as it lies: where its first element is, and the steps to the next ones."""

    buffer: str
    first: sympy.Expr
    row: int
    column: int


@dataclass(frozen=True)
class Span:
    """A part of a loop, as source: where it begins and ends, and how many iterations these are."""

    first: str
    end: str
    count: str


@dataclass(frozen=True)
class Operand:
    """Where `multiply` finds an operand: an address, and the steps to the next row and column."""

    address: str
    row: int
    column: int


# What is done at once
ROWS_OF_TILE = Span("m0", "m0 + rows", "rows")
COLUMNS_OF_TILE = Span("n0", "n1", "columns")


class StreamedCpp(CppOps):
    """Walks along one stream. (Methods called `print_<op>` are a printer's way to spell an operation: these here `write`.)"""

    def __init__(self, node: Streamed, buffers: Mapping[str, Buffer], name: str) -> None:
        nothing = FusedKernel(name, (), (), frozenset(), frozenset())
        super().__init__(nothing, buffers, name, [*RESERVED, *NAMES])
        self.stream, self.rows = node.stream, {}
        (self.out,) = node.buffers
        self.touched = self.passed = (*self.stream.reads, self.out.name)

        loops = [
            *self.stream.batch,
            self.stream.row,
            self.stream.column,
            self.stream.values.columns,
        ]
        loops += [each.left.columns for each in self.stream.scores]
        self.taken |= {str(loop.symbol) for loop in loops}

        self.tile_rows = evenly(self.stream.row.size, ROWS, 6)
        self.tile_columns = evenly(self.stream.column.size, COLUMNS, REGISTER)
        self.width = padded(self.stream.values.columns.size)

        # The names of tiles and of what is kept for each row
        self.tile: dict[Expr, str] = {}
        self.kept: dict[Expr, str] = {}
        self.totals: list[str] = []
        self.weights: list[str] = []
        self.left: list[Operand] = []
        # Where the columns begin and end that a mask does not hide
        self.shown: list[str] = []

    def print(self) -> KernelSource:
        """The whole function."""
        stream, row = self.stream, self.stream.row
        with self.block(f'extern "C" void {self.name}(void** buffers) {{', "}"):
            self.write_pointers()
            self.write_shown()
            around = len(stream.batch) + 1
            collapse = f" collapse({around})" if around > 1 else ""
            self.line(f"#pragma omp parallel for{collapse} schedule(dynamic)")
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
            constant = "" if name == self.out.name else "const "
            pointer = f"{constant}{STORED[self.buffers[name].dtype]}*"
            self.pointers[name] = self.unique(name)
            self.line(f"{pointer} __restrict {self.pointers[name]} = ({pointer})buffers[{n}];")

    def counting(
        self, symbol: str, first: str, end: str, step: int = 1
    ) -> contextlib.AbstractContextManager[None]:
        """A loop."""
        forward = f"{symbol}++" if step == 1 else f"{symbol} += {step}"
        return self.block(f"for (int64_t {symbol} = {first}; {symbol} < {end}; {forward}) {{", "}")

    def rows_of_block(self) -> contextlib.AbstractContextManager[None]:
        """The loop over the rows of a block."""
        return self.counting("m", "m0", "m0 + rows")

    def columns_of_block(self) -> contextlib.AbstractContextManager[None]:
        """The loop over the columns of a block."""
        return self.counting("n", "n0", "n1")

    # --- tiles

    def declare_tiles(self) -> None:
        """Memory on the stack of each thread."""
        stream, size = self.stream, self.tile_rows * self.tile_columns
        for each in stream.scores:
            self.tile[each.leaf] = self.array("scores", size)
        self.declare_inputs_of_exponentials(size)

        places = list(dict.fromkeys(self.tile.values()))
        for n in range(len(stream.split.cores)):
            self.weights.append(places[n] if n < len(places) else self.array("weights", size))
            self.totals.append(self.array("total", self.tile_rows * self.width))

        for leaf in stream.maxima:
            self.kept[leaf] = self.array("highest", self.tile_rows)
        for leaf, _ in stream.sums:
            self.kept[leaf] = self.array("sum", self.tile_rows)

    def declare_inputs_of_exponentials(self, size: int) -> None:
        """A tile for the values that each maximum is of: the scores' own, if nobody needs these any more."""
        stream = self.stream
        terms = {leaf.detail.term for leaf in stream.maxima}
        later = [*stream.split.cores, *(leaf.detail.term for leaf, _ in stream.sums)]
        is_needed = any(needs_scores(tree, terms) for tree in later)
        is_free = len(terms) == 1 and not is_needed
        for leaf in stream.maxima:
            term = leaf.detail.term
            if term not in self.tile:
                scores = self.tile[stream.scores[0].leaf]
                self.tile[term] = scores if is_free else self.array("logits", size)

    def array(self, wanted: str, size: int) -> str:
        """Declare an array of floats; gives its name."""
        name = self.unique(wanted)
        self.line(f"alignas(64) float {name}[{size}];")
        return name

    def element(self, tile: str) -> str:
        """The element of a tile at row m, column n."""
        return f"{tile}[(m - m0) * {self.tile_columns} + n - n0]"

    # --- operands

    def place_of(self, factor: Factor) -> Place | None:
        """Where a factor lies, if it is a part of a buffer as it is."""
        load = factor.tree.args[0] if factor.tree.op == "to_dtype" else factor.tree
        if load.op != "load" or load.dtype not in FLOATS:
            return None

        buffer, index = load.detail
        row, column = factor.rows.symbol, factor.columns.symbol
        linear = Linear.of(index, {row, column})
        if not (linear.is_affine_in(row) and linear.is_affine_in(column)):
            return None
        return Place(buffer, index, linear.coefficient(row), linear.coefficient(column))

    def lies_densely(self, place: Place) -> bool:
        """Can `multiply` read it where it lies?"""
        return self.buffers[place.buffer].dtype == torch.float32 and place.column == 1

    def operand(self, factor: Factor, place: Place, first_row: str) -> Operand:
        """A factor as it lies, from a row on."""
        start = {factor.rows.symbol: sympy.Symbol(first_row), factor.columns.symbol: ZERO}
        address = f"{self.pointers[place.buffer]} + {self.index(substitute(place.first, start))}"
        return Operand(address, place.row, place.column)

    def fill(self, factor: Factor, span: Span, tile: str, room: int, turned: bool = False) -> None:
        """Copy some rows of a factor, whole, into a tile whose rows have `room`. `turned`: they become its columns."""
        place = self.place_of(factor)
        if place is None:
            self.compute(factor, span, tile, room, turned)
            return

        source, depth = self.operand(factor, place, span.first), factor.columns.size
        steps, counts = f"{source.row}, {source.column}", f"{span.count}, {depth}"
        if turned:
            steps, counts = f"{source.column}, {source.row}", f"{depth}, {span.count}"
        self.line(f"fill_tile({tile}, {room}, {source.address}, {steps}, {counts}, {room});")

    def compute(self, factor: Factor, span: Span, tile: str, room: int, turned: bool) -> None:
        """The same, element by element, for a factor that is computed on the way."""
        row, column = str(factor.rows.symbol), str(factor.columns.symbol)
        place = f"({row} - {span.first}) * {room} + {column}"
        if turned:
            place = f"{column} * {room} + {row} - {span.first}"

        self.line(f"for (float& each : {tile}) each = 0;")
        rows = self.counting(row, span.first, span.end)
        columns = self.counting(column, "0", str(factor.columns.size))
        with rows, columns:
            self.count_uses([factor.tree])
            self.line(f"{tile}[{place}] = {self.text(factor.tree, whole=True)};")

    def rows_of_product(self, factor: Factor) -> Operand:
        """The left operand of a product of scores, once for a block of rows: as it lies, if its numbers are neighbours."""
        place = self.place_of(factor)
        if place and self.lies_densely(place):
            return self.operand(factor, place, ROWS_OF_TILE.first)

        room = padded(factor.columns.size)
        tile = self.array("queries", self.tile_rows * room)
        self.fill(factor, ROWS_OF_TILE, tile, room)
        return Operand(tile, room, 1)

    def values_of_block(self) -> Operand:
        """The right operand of the last product, for a block of columns."""
        factor = self.stream.values
        place = self.place_of(factor)
        is_whole = factor.columns.size == self.width
        if place and is_whole and self.lies_densely(place):
            return self.operand(factor, place, COLUMNS_OF_TILE.first)

        tile = self.array("values", self.tile_columns * self.width)
        self.fill(factor, COLUMNS_OF_TILE, tile, self.width)
        return Operand(tile, self.width, 1)

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

    def write_skipping(self) -> None:
        """Blocks that the mask hides whole are left out. (What is 0 * NaN in eager is not; nor is anything in the second turn.)"""
        place = self.place_of(self.stream.values)
        if not self.shown or place is None:
            return
        first, last = (f"{name}[m0 / {self.tile_rows}]" for name in self.shown)
        values = self.operand(self.stream.values, place, "n0")
        finite = f"all_finite({values.address}, {values.row}, {values.column}, columns, {self.stream.values.columns.size})"
        self.line(f"if (turn == 0 && (n0 < {first} || n0 >= {last}) && {finite}) continue;")

    def write_shown(self) -> None:
        """For each block of rows the columns that its mask does not hide, as far as the mask's formula says."""
        shown = shown_columns(self.stream, self.tile_rows, self.tile_columns)
        if shown is None:
            return
        for wanted, ends in zip(("shown_from", "shown_to"), zip(*shown, strict=True), strict=True):
            name = self.unique(wanted)
            self.line(f"static const int64_t {name}[] = {{{', '.join(map(str, ends))}}};")
            self.shown.append(name)

    def write_scores(self, scores: Scores, left: Operand) -> None:
        """A tile of a product. The keys become the columns of their tile, for `multiply` takes registers full of columns."""
        depth, room = scores.right.columns.size, self.tile_columns
        keys = self.array("keys", depth * room)
        self.fill(scores.right, COLUMNS_OF_TILE, keys, room, turned=True)

        tile = self.tile[scores.leaf]
        self.line(
            f"multiply({left.address}, {left.row}, {left.column}, {keys}, {room}, {tile}, {room}, "
            f"rows, {room}, {depth}, false);"
        )

    def write_maxima(self) -> dict[Running, str]:
        """Each maximum takes in the block. Gives for each the factor by which it rescales what was summed."""
        factors = {}
        for leaf in self.stream.maxima:
            running, highest = leaf.detail, f"{self.kept[leaf]}[m - m0]"
            best = self.write_maximum(running.term)

            # NaN wins. Where nothing changed there is nothing to rescale, and -inf - -inf is no number.
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
        stream, terms = self.stream, [leaf.detail.term for leaf, _ in self.stream.sums]
        parts = [self.unique("part") for _ in terms]
        self.line(*(f"float {part} = 0;" for part in parts))
        self.line(" ".join(["#pragma omp simd", *(f"reduction(+: {part})" for part in parts)]))
        with self.columns_of_block():
            self.load_scores()
            for leaf in stream.maxima:
                self.values[leaf.detail.term] = self.element(self.tile[leaf.detail.term])

            cores = stream.split.cores
            self.count_uses([*terms, *cores])
            texts = [self.text(core) for core in cores]
            if len(cores) > 1:
                # The tile of one may be where another still has to read.
                texts = [
                    self.bind(core, text, "weight") for core, text in zip(cores, texts, strict=True)
                ]
            for part, term in zip(parts, terms, strict=True):
                self.line(f"{part} += {self.text(term)};")
            for tile, text in zip(self.weights, texts, strict=True):
                self.line(f"{self.element(tile)} = {text};")

        for part, (leaf, powers) in zip(parts, stream.sums, strict=True):
            total = f"{self.kept[leaf]}[m - m0]"
            rescaled = " * ".join([total, *factor_of(powers, factors)])
            self.line(f"{total} = {rescaled} + {part};")
        for total, powers in zip(self.totals, stream.split.powers, strict=True):
            self.write_rescaling(total, factor_of(powers, factors))

    def write_rescaling(self, total: str, factor: list[str]) -> None:
        """What was added up so far, after a maximum has changed."""
        if not factor:
            return
        product = " * ".join(factor)
        with self.block(f"if ({product} != 1) {{", "}"):
            row = f"{total}[(m - m0) * {self.width} + e]"
            self.line("#pragma omp simd")
            with self.counting("e", "0", str(self.width)):
                self.line(f"{row} *= {product};")

    def load_scores(self) -> None:
        """The elements of the products are those of their tiles."""
        for scores in self.stream.scores:
            self.values[scores.leaf] = self.element(self.tile[scores.leaf])

    def write_totals(self) -> None:
        """The block goes into the totals."""
        right, room = self.values_of_block(), self.tile_columns
        for weights, total in zip(self.weights, self.totals, strict=True):
            self.line(
                f"multiply({weights}, {room}, 1, {right.address}, {right.row}, {total}, {self.width}, "
                f"rows, {self.width}, columns, true);"
            )

    # --- around them

    def write_turns(self) -> None:
        """All blocks of columns; once more if a row has nothing but -inf, with the maxima known: then each step is eager's."""
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
        self.line(*(f"for (float& each : {name}) each = 0;" for name in [*sums, *self.totals]))

    def write_results(self) -> None:
        """Of the totals of a row, its result."""
        stream = self.stream
        with self.rows_of_block():
            for leaf, name in self.kept.items():
                self.values[leaf] = f"{name}[m - m0]"
            with self.counting("e", "0", str(stream.values.columns.size)):
                for node in stream.split.finish.walk():
                    if node.op == "total":
                        self.values[node] = (
                            f"{self.totals[node.detail]}[(m - m0) * {self.width} + e]"
                        )
                self.count_uses([stream.split.finish])
                result = self.text(stream.split.finish, whole=True)
                self.line(f"{self.pointers[self.out.name]}[{self.index(stream.place)}] = {result};")


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


def padded(size: int) -> int:
    """With room for whole registers."""
    return -(-size // REGISTER) * REGISTER


def evenly(size: int, most: int, multiple: int) -> int:
    """The length of blocks that cover `size` evenly: at most `most`, and a multiple of a number."""
    blocks = -(-size // most)
    length = -(-size // blocks)
    return -(-length // multiple) * multiple


def smaller(left: str, most: int) -> str:
    """The smaller of what is left and the size of a block."""
    return f"{left} < {most} ? {left} : {most}"
