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
from course_lib.codegen.stream_plan import ENDS, names_of_loads
from course_lib.codegen.streamed_ops import StreamedOps
from course_lib.codegen.tilings import Tiling
from course_lib.codegen.triton import TritonSource
from course_lib.codegen.triton_ops import POINTERS
from course_lib.lowering.indexing import power_of_two


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
        if not self.plan.tiling.has_hidden:
            return None
        column, factor = self.stream.column, self.stream.values
        name = f"{self.name}_look"
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
            self.write_arange(factor.columns, factor.columns.symbol)
            value = self.write_operand("elements", self.operand(factor, down=True), torch.float32)
            others = self.unique("others")
            self.line(
                f"{others} = ({value} - {value} != 0).to(tl.int32)  # NaN and infinity",
                f"tl.store(finite + program, 1 - tl.max(tl.max({others}, 1), 0))",
            )

        # It takes only those buffers that the values come from
        needed = names_of_loads(factor.tree)
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

    def write_finite(self) -> None:
        """Nothing is left out where one of the values is not finite."""
        first, last = "first", "last"
        if lines := self.plan.tiling.lines:
            # An end that is the same in every block has no name
            ends = {name: line for name, line in zip(ENDS, lines, strict=True) if not line.slope}
            first = str(ends["first"].low) if "first" in ends else first
            last = str(ends["last"].low) if "last" in ends else last

        parts = self.plan.flags_of_matrix
        if parts == 1:
            found = "tl.load(finite + matrix)"
        else:
            # `tl.arange` wants a power of two: behind the last flag there is a 1
            room = power_of_two(parts)
            flags = f"tl.arange(0, {room})"
            mask = "" if parts == room else f", {flags} < {parts}, 1"
            found = f"tl.min(tl.load(finite + matrix * {parts} + {flags}{mask}), 0)"

        self.line(
            "# In eager 0 times infinity is NaN: where a value is not finite, no block is left out",
            f"is_finite = {found} > 0",
        )
        if first != "0":
            self.line(f"first = tl.where(is_finite, {first}, 0)")
        self.line(f"last = tl.where(is_finite, {last}, {self.plan.end})")

    def types_of(self, names: Iterable[str]) -> list[str]:
        """Triton's names for pointers to these buffers."""
        return [POINTERS[self.buffers[name].dtype] for name in names]

    def opening(self, name: str, given: Sequence[str], sizes: Sequence[str]) -> list[Line]:
        """The head of a kernel: its pointers, and the sizes of its tile."""
        parameters = [*given, *(f"{size}: tl.constexpr" for size in sizes)]
        return [Line(0, "@triton.jit"), Line(0, f"def {name}({', '.join(parameters)}):")]
