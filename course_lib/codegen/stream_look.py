"""A look at the values of a stream: which of them are NaN or infinite?

In:  the plan of a stream whose masks hide whole blocks.
Out: a small kernel before the large one, with a flag for each part of the values; and the lines of
     the large one that read these flags.

A block that the mask hides is not loaded. Its weights are 0, and so it changes nothing, unless a
value is NaN or infinite: in eager 0 times infinity is NaN. Then no block is left out.
In PyTorch: no counterpart. `flex_attention` leaves out blocks in any case.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from course_lib.codegen.printer import Line
from course_lib.codegen.stream_plan import ENDS, names_of_loads, symbols_in
from course_lib.codegen.streamed_ops import StreamedOps, symbol_like
from course_lib.codegen.tilings import Tiling
from course_lib.codegen.triton import TritonSource
from course_lib.codegen.triton_ops import POINTERS
from course_lib.lowering.indexing import power_of_two
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import Loop


@dataclass(frozen=True)
class LookTiling(Tiling):
    """A program for each part of the values; its tile has whole rows of them."""

    # Rows of a part
    part: int = 1

    def meta(self, interpreted: bool) -> dict[str, int]:
        return {"ROWS": self.part}

    def programs(self, meta: Mapping[str, int]) -> int:
        return int(self.rows // self.part)

    def warps(self, meta: Mapping[str, int]) -> int:
        return 4


class LookingOps(StreamedOps):
    """Writes the small kernel, and what the large one does with its flags."""

    def look(self) -> TritonSource | None:
        """The small kernel: a flag for each part of the values, 1 if something in it is NaN or
        infinite."""
        if not self.plan.has_look:
            return None
        column, name = self.stream.column, f"{self.name}_look"
        parts = self.plan.flags_of_matrix

        # Which matrix of values a program looks at, and from which row on
        matrix, start = "program", ""
        if parts > 1:
            matrix, start = f"program // {parts}", f"program % {parts} * ROWS + "
        to_64_bits = ".to(tl.int64)" if self.plan.needs_64_bits else ""

        with self.names(), self.block(""):
            self.line(f"program = tl.program_id(0){to_64_bits}")
            self.write_batch(matrix)
            self.line(f"{self.column_down} = ({start}tl.arange(0, ROWS))[:, None]")
            self.line(f"columns_down = {self.column_down} < {column.size}")
            self.masks[self.column_down] = "columns_down"
            trees = self.write_looks()

        # It takes only those buffers that the values come from
        needed = {name for tree in trees for name in names_of_loads(tree)}
        passed = [buffer for buffer in self.stream.reads if buffer in needed]
        pointers = [self.pointers[b] for b in passed]
        lines = [*self.opening(name, [*pointers, "finite"], ["ROWS"]), *self.lines[1:]]
        self.lines, self.masks = [], {}
        text = "\n".join("    " * line.depth + line.text for line in lines)

        rows = self.plan.tiling.matrices * parts * self.plan.looked_at
        return TritonSource(
            name=name,
            language="triton",
            source=f"{text}\n\n\n",
            buffers=tuple(passed),
            types=(*self.types_of(passed), "*i32"),
            tiling=LookTiling(rows, 1, part=self.plan.looked_at),
        )

    def write_looks(self) -> list[Expr]:
        """The lines that look at each of the values, and at those numbers of each column that
        weights are made of. Gives the trees of what they look at.

        A tile of values has the matrix's columns as its rows, so their symbol is `column_down`
        here."""
        loops = {end.values.columns.size: end.values.columns for end in self.stream.ends}
        # Values of several widths stand in one kernel: each width has a symbol of its own.
        if len(loops) > 1:
            loops = {size: self.renamed(loop) for size, loop in loops.items()}
        for loop in loops.values():
            self.write_arange(loop, loop.symbol)

        flags: list[str] = []
        trees: list[Expr] = []
        for end in self.stream.ends:
            along_row = loops[end.values.columns.size].symbol
            operand = self.operand(end.values, down=True, depth=along_row)
            if operand.tree in trees:
                continue
            trees.append(operand.tree)
            value = self.write_operand("elements", operand, torch.float32)
            # Printed, a flag for what is not finite is called `others`.
            others = self.unique("others")
            self.line(f"{others} = ({value} - {value} != 0).to(tl.int32)  # NaN and infinity")
            flags.append(f"tl.max(tl.max({others}, 1), 0)")

        for number in self.plan.numbers_looked_at(of_rows=False):
            down = {self.stream.column.symbol: self.column_down}
            trees.append(self.plan.cut.renamed(number, down))
            flags.append(self.others_among(number, trees[-1], "columns_down"))

        text = flags[0]
        for flag in flags[1:]:
            text = f"tl.maximum({text}, {flag})"
        self.line(f"tl.store(finite + program, 1 - {text})")
        return trees

    def renamed(self, loop: Loop) -> Loop:
        """A loop with its size in its name, where there are several of different sizes."""
        symbol = symbol_like(loop.symbol, str(loop.size))
        self.taken.add(str(symbol))
        return loop._replace(symbol=symbol)

    def others_among(self, number: Expr, tree: Expr, mask: str) -> str:
        """1 if a number is NaN or infinite, or is 0 and divides. `tree`: the number as it is
        loaded."""
        assert self.plan.tiling.shown
        self.count_uses([tree])
        value, others = self.unique("number"), self.unique("others")
        self.line(f"{value} = {self.text(tree, whole=True)}")
        condition = f"({value} - {value} != 0)"
        if number in self.plan.tiling.shown.divisors:
            condition = f"({condition} | ({value} == 0))"

        if symbols_in(tree).isdisjoint((self.stream.row.symbol, self.column_down)):
            self.line(f"{others} = {condition}.to(tl.int32)")
            return others
        if mask:
            condition = f"({condition} & {mask})"
        self.line(f"{others} = {condition}.to(tl.int32)")
        return f"tl.max(tl.max({others}, 1), 0)"

    def write_finite_rows(self) -> None:
        """The same for numbers of each row: a program looks at its own."""
        numbers = self.plan.numbers_looked_at(of_rows=True)
        if not numbers:
            return
        mask = self.masks.get(self.stream.row.symbol, "")
        self.line("# What is hidden is 0 only if these numbers of the rows are finite, too")
        flags = [self.others_among(number, self.plan.cut.of(number), mask) for number in numbers]
        self.line(f"rows_are_finite = {' + '.join(flags)} == 0")
        self.write_widened("rows_are_finite", self.plan.ends.first, self.plan.ends.last)

    def write_widened(self, is_finite: str, first: str, last: str) -> None:
        """Where something is not finite, the walk goes along all columns."""
        if first != "0":
            self.line(f"first = tl.where({is_finite}, {first}, 0)")
        if last != str(self.plan.end):
            self.line(f"last = tl.where({is_finite}, {last}, {self.plan.end})")

    def write_finite(self) -> None:
        """Nothing is left out where one of the values is not finite."""
        first, last = "first", "last"
        if lines := self.plan.tiling.lines:
            # An end that is the same in every block has no name
            line_of = dict(zip(ENDS, lines, strict=True))
            if not line_of["first"].slope:
                first = str(line_of["first"].low)
            if not line_of["last"].slope:
                last = str(line_of["last"].low)

        parts = self.plan.flags_of_matrix
        if parts == 1:
            found = "tl.load(finite + matrix)"
        else:
            # `tl.arange` wants a power of two: behind the last flag there is a 1
            room = power_of_two(parts)
            flags = f"tl.arange(0, {room})"
            arguments = f"finite + matrix * {parts} + {flags}"
            if parts != room:
                arguments += f", {flags} < {parts}, 1"
            found = f"tl.min(tl.load({arguments}), 0)"

        self.line(
            "# In eager 0 times infinity is NaN: where a value is not finite, no block is left out",
            f"is_finite = {found} > 0",
        )
        self.write_widened("is_finite", first, last)

    def types_of(self, names: Iterable[str]) -> list[str]:
        """Triton's names for pointers to these buffers."""
        return [POINTERS[self.buffers[name].dtype] for name in names]

    def opening(self, name: str, given: Sequence[str], sizes: Sequence[str]) -> list[Line]:
        """The head of a kernel: its pointers, and the sizes of its tile."""
        parameters = [*given, *(f"{size}: tl.constexpr" for size in sizes)]
        head = f"def {name}({', '.join(parameters)}):"
        return [Line(0, "@triton.jit"), Line(0, head)]
