"""Tiles of a stream in C++: their operands, from memory in any layout, and the blocks that need
none.

In:  factors of products as trees; which blocks a mask hides (`scheduling.blocks`).
Out: lines that fill tiles, and the addresses and steps with which `multiply` of `tiles.h` reads
     them.
"""

import contextlib
from dataclasses import dataclass

import sympy
import torch

from course_lib.codegen.cpp_ops import CppOps
from course_lib.codegen.spellings import SIGNED
from course_lib.lowering.indexing import ZERO, Linear
from course_lib.lowering.ops import substitute
from course_lib.scheduling.blocks import Shown, shown_blocks
from course_lib.scheduling.kernel import Loop
from course_lib.scheduling.stream_nodes import FLOATS, Factor, Stream

# Columns of tiles are padded to a register full
REGISTER = 16


@dataclass(frozen=True)
class Place:
    """A factor that is a part of a buffer as it lies: where its first element is, and the steps to
    the next ones."""

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


class TilesCpp(CppOps):
    """What a printer of streams needs of tiles."""

    stream: Stream
    tile_rows: int
    tile_columns: int
    # Which columns a mask does not hide, and the names of the tables that say so
    shown: Shown | None = None
    ends_of_columns: tuple[str, ...] = ()

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

    def array(self, wanted: str, size: int) -> str:
        """Declare an array of floats; gives its name."""
        name = self.unique(wanted)
        self.line(f"alignas(64) float {name}[{size}];")
        return name

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
        offset = self.index(substitute(place.first, start))
        address = f"{self.pointers[place.buffer]} + {offset}"
        return Operand(address, place.row, place.column)

    def fill(self, factor: Factor, span: Span, tile: str, room: int, turned: bool = False) -> None:
        """Copy some rows of a factor, whole, into a tile whose rows have `room`.

        `turned`: they become its columns."""
        place = self.place_of(factor)
        if place is None:
            self.compute(factor, span, tile, room, turned)
            return

        source = self.operand(factor, place, span.first)
        depth = factor.columns.size
        if turned:
            how = f"{source.column}, {source.row}, {depth}, {span.count}"
        else:
            how = f"{source.row}, {source.column}, {span.count}, {depth}"
        self.line(f"fill_tile({tile}, {room}, {source.address}, {how}, {room});")

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

    # --- blocks that are left out

    def write_skipping(self) -> None:
        """Leave out the blocks of columns that the mask hides whole: their weights are 0.

        But eager multiplies these zeros by the values, and 0 * NaN is NaN. So the kernel first asks
        whether all numbers of the block are finite. In the second turn (`write_turns`) no block is
        left out."""
        if self.shown is None:
            return
        conditions = ["!others"]
        for end in self.stream.ends:
            place = self.place_of(end.values)
            if place is None:
                return
            values = self.operand(end.values, place, "n0")
            size = end.values.columns.size
            conditions.append(
                f"all_finite({values.address}, {values.row}, {values.column}, columns, {size})"
            )

        # Columns from `first` up to `last` may be seen by these rows. With maxima the columns are
        # walked in turns: only in the first one a block is left out (see above).
        first, last = (f"{name}[m0 / {self.tile_rows}]" for name in self.ends_of_columns)
        first_turn = "turn == 0 && " if self.stream.maxima else ""
        with self.block(f"if ({first_turn}(n0 < {first} || n0 >= {last})) {{", "}"):
            self.line("int others = 0;")
            self.write_finite(self.shown, self.stream.row, ROWS_OF_TILE)
            self.write_finite(self.shown, self.stream.column, COLUMNS_OF_TILE)
            self.line(f"if ({' && '.join(conditions)}) continue;")

    def write_finite(self, shown: Shown, loop: Loop, span: Span) -> None:
        """Lines that set `others` where a number that hidden weights are made of is not finite, or
        is 0 and divides."""
        numbers = [each for each in shown.finite if loop.symbol in each.detail[1].free_symbols]
        if not numbers:
            return
        self.line("#pragma omp simd reduction(|: others)")
        with self.counting(str(loop.symbol), span.first, span.end):
            for number in numbers:
                self.count_uses([number])
                value = self.text(number, SIGNED)
                self.line(f"others |= {value} - {value} != 0;")
                if number in shown.divisors:
                    self.line(f"others |= {value} == 0;")

    def write_shown(self) -> None:
        """For each block of rows the columns that its mask does not hide, as far as the mask's
        formula says."""
        self.shown = shown_blocks(self.stream, self.tile_rows, self.tile_columns)
        if self.shown is None:
            return
        tables = zip(*self.shown.columns, strict=True)
        for wanted, ends in zip(("shown_from", "shown_to"), tables, strict=True):
            name = self.unique(wanted)
            self.line(f"static const int64_t {name}[] = {{{', '.join(map(str, ends))}}};")
            self.ends_of_columns += (name,)


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
