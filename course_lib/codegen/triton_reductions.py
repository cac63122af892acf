"""How a Triton kernel reduces: a tile of values taken into an accumulator, or to one value for each
row.

In:  a step that reduces, and the values of a tile as source.
Out: lines that take the tile in, and lines that make the step's result.

A long row has an accumulator of the tile's shape, which is reduced once, at the end. No function of
our own combines two values where that can be avoided, for the interpreter runs such a function one
element at a time: so `max` remembers NaN in a flag, and `argmax` is the first place that equals the
best.
In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonKernel.reduction`;
`torch/_inductor/runtime/triton_helpers.py`.
"""

from typing import NamedTuple

import torch

from course_lib.codegen.loops import column_number, reduction
from course_lib.codegen.printer import label
from course_lib.codegen.triton_ops import NARROW, TritonOps, is_number
from course_lib.codegen.triton_plan import TritonPlanner
from course_lib.scheduling.kernel import Step


class Accumulator(NamedTuple):
    """What a reduction begins with, and the type that it computes in, as source."""

    first: str
    kind: str


class TritonReductions(TritonOps):
    """Prints what one reduction needs."""

    plan: TritonPlanner
    # True if a tile holds whole rows
    persistent: bool

    def shape_of_tile(self) -> str:
        """The shape of a tile of a reduction, as Triton takes it."""
        if self.kernel.rows:
            return "[ROWS, COLUMNS]"
        return "[COLUMNS]"

    def accumulator(self, step: Step) -> Accumulator:
        """What a reduction is gathered in."""
        node, dtype = reduction(step), self.trees[step].dtype
        kind = node.combines
        # The value that changes nothing: 0 for a sum, the smallest number for a maximum
        identity = kind.identity(dtype)
        if kind.finds_best:
            return Accumulator(self.number(identity, dtype), self.type_name(dtype))
        if kind.is_logical:
            return Accumulator(str(identity), "tl.int32")

        text = str(identity)
        if node.accumulate.is_floating_point:
            text += ".0"
        return Accumulator(text, self.type_name(node.accumulate))

    def print_accumulator(self, step: Step) -> str:
        """The line that makes an accumulator as large as a tile; gives its name."""
        name = self.unique(f"{label(step)}_tile")
        shape = self.shape_of_tile()
        begins_with, dtype = self.accumulator(step)
        self.line(f"{name} = tl.full({shape}, {begins_with}, {dtype})", step=step)
        if reduction(step).combines.gives_place:
            self.line(f"{name}_at = tl.full({shape}, 0, tl.int64)", step=step)
        return name

    def print_reduction(self, step: Step, total: str) -> None:
        """Take the values of a tile into `total`; if there is none, they are the whole row."""
        kind = reduction(step).combines
        value = self.masked_value(step)
        at = ""
        if not kind.has_operator:
            # It is compared and kept, so it needs a name.
            name = self.unique("value")
            self.line(f"{name} = {value}")
            value = name
        if kind.gives_place:
            at = self.index(column_number(step))

        if not total:
            self.print_result(step, value, at)
        elif kind.has_operator:
            self.line(f"{total} {kind.operator}= {value}")
        else:
            self.take_if_better(step, value, total, at)

    def take_if_better(self, step: Step, value: str, total: str, at: str) -> None:
        """Where a value is better than the best so far, it takes its place; NaN is better than any
        number."""
        better = f"({value} {reduction(step).combines.better} {total})"
        if self.trees[step].dtype.is_floating_point:
            better += f" | (({value} != {value}) & ({total} == {total}))"
        if at:
            self.line(f"better = {better}", f"{total}_at = tl.where(better, {at}, {total}_at)")
            better = "better"
        self.line(f"{total} = tl.where({better}, {value}, {total})")

    def masked_value(self, step: Step) -> str:
        """The values of a tile, as source, in the type of the accumulator. Lanes outside of the row
        hold a value that changes no result."""
        tree = self.trees[step]
        first, wanted = self.accumulator(step)
        if wanted == self.type_name(tree.dtype) and not is_number(tree):
            value = self.text(tree)
        else:
            value = self.converted(tree, wanted)
        return f"tl.where(mask, {value}, {first})"

    def print_result(self, step: Step, value: str, at: str = "") -> None:
        """Reduce the values of a tile to one value for each row.

        value: the tile's values, as source. at: for argmax and argmin, the name of the tile that
        holds the place of each value in its row."""
        kind = reduction(step).combines
        may_be_nan = self.trees[step].dtype.is_floating_point

        text = self.reduce(kind.over_tile, value)
        if kind.is_logical:
            text += " != 0"
        if kind.finds_best and may_be_nan:
            # In PyTorch NaN wins; `tl.max` ignores it. So a flag says whether there was one.
            flag = self.unique("has_nan")
            is_nan = f"({value} != {value}).to(tl.int32)"
            self.line(f"{flag} = {self.reduce('max', is_nan)}")
            text = f'tl.where({flag} > 0, float("nan"), {text})'
        if kind.gives_place:
            text = self.first_place(value, at, text, may_be_nan)
        if step.buffer.dtype in (torch.float16, torch.bfloat16, *NARROW):
            text = f"({text}).to({self.type_name(step.buffer.dtype)})"
        self.bind(step, text, label(step))

    def first_place(self, value: str, at: str, best_value: str, may_be_nan: bool) -> str:
        """Source of the first place in each row where a tile has the best value.

        value, at: as in `print_result`. best_value: the best of each row, as source."""
        best = self.unique("best")
        self.line(f"{best} = {best_value}")

        # If a row has a NaN, its best is NaN. No value equals that, so NaNs are asked for apart.
        is_best = f"({value} == {best})"
        if may_be_nan:
            is_best = f"({is_best} | ({value} != {value}))"
        if self.persistent:
            is_best += " & mask"

        # The smallest place wins: values that are not the best get one behind all others.
        beyond = 2**63 - 1 if self.plan.needs_64_bits else 2**31 - 1
        place = f"tl.where({is_best}, {at}, {beyond})"
        return f"{self.reduce('min', place)}.to(tl.int64)"

    def reduce(self, function: str, value: str, axis: int = 1) -> str:
        """A tile combined along its columns (or, with axis 0, its rows)."""
        keep = ", keep_dims=True"
        if not self.kernel.rows:
            # The tile has columns only.
            axis, keep = 0, ""

        if function == "prod":
            return f"tl.reduce({value}, {axis}, multiply{keep})"
        return f"tl.{function}({value}, {axis}{keep})"
