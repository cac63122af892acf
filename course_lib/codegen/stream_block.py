"""One block of columns of a stream, in Triton: its scores, and what grows by it.

In:  the trees of a stream (with the mask, or without it where it hides nothing), and the names of
     what is kept for each row.
Out: lines in the body of the loop over columns.

    scores = tl.dot(queries, tl.trans(keys))
    highest = tl.maximum(before, tl.max(logits, 1))            each maximum takes the block in
    factor = tl.exp2((before - shift) * power)                 so what was summed must be rescaled
    summed = summed * factor + tl.sum(weights, 1)
    total = tl.dot(weights, values, total * factor[:, None])

In PyTorch: `torch/_inductor/kernel/flex/templates/flex_attention.py.jinja` (`forward_block_mn`).
"""

from collections.abc import Mapping

import torch

from course_lib.codegen.stream_look import LookingOps
from course_lib.codegen.stream_plan import symbols_in
from course_lib.codegen.stream_trees import (
    Logits,
    StreamTrees,
    depends_on_scores,
    needs_maximum_itself,
)
from course_lib.codegen.streamed_ops import Shift
from course_lib.codegen.triton_ops import KEEPS_NAN
from course_lib.scheduling.blocks import vanishes_with_exponential
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.rescaling import Powers, Running
from course_lib.scheduling.stream_nodes import End

INFINITY = 'float("inf")'


class BlockOps(LookingOps):
    """Writes what happens with a block of columns."""

    # What is kept for each row: a running maximum or sum → its name
    kept: dict[Expr, str]
    # The names of the totals of each product at the end
    totals: dict[End, list[str]]
    # A product of scores → the name of its left operand
    queries: dict[Expr, str]

    def write_block(self, trees: StreamTrees) -> None:
        """What happens with a block of columns."""
        column = self.stream.column
        columns = "(n0 + tl.arange(0, COLUMNS))"
        if self.plan.needs_64_bits:
            columns += ".to(tl.int64)"

        # Masks of columns are of this loop only
        masks = self.masks
        self.masks = dict(masks)

        # The columns lie along the rows of scores, and down those of keys and values
        is_ragged = self.plan.is_ragged(trees)
        if is_ragged or any(column.symbol in symbols_in(tree) for tree in self.plan.roots(trees)):
            self.line(f"{column.symbol} = {columns}[None, :]")
        self.line(f"{self.column_down} = {columns}[:, None]")

        # The last block may reach beyond the last column
        if is_ragged:
            self.line(f"columns = {column.symbol} < {column.size}")
            self.line(f"columns_down = {self.column_down} < {column.size}")
            self.masks |= {column.symbol: "columns", self.column_down: "columns_down"}
        if self.stream.row.symbol in self.masks and is_ragged:
            self.line("mask = rows & columns")

        self.loaded = {}
        self.write_scores()
        self.count_uses(self.plan.roots(trees))
        factors = self.write_maxima(trees, is_ragged)
        self.write_weights(trees, factors, is_ragged)
        self.masks = masks

    def write_scores(self) -> None:
        """A tile of each product."""
        for scores in self.stream.scores:
            dtype = self.plan.dtype_of_product(scores)
            depth = self.depths[scores.right.columns.size]
            keys = self.write_loaded(
                "keys", self.operand(scores.right, down=True, depth=depth), dtype
            )
            name = self.unique("scores")
            text = self.dot(self.queries[scores.leaf], f"tl.trans({keys})", "", dtype)
            self.line(f"{name} = {text}")
            self.values[scores.leaf] = name

    def write_maxima(self, trees: StreamTrees, is_ragged: bool) -> dict[Running, str]:
        """Each maximum takes in the block. Gives for each the factor by which it rescales what was
        summed."""
        factors = {}
        # Two maxima may be of the same logits
        written: set[Expr] = set()
        for leaf in self.stream.maxima:
            logits = trees.logits_of(leaf.detail)
            if logits.tree not in written:
                self.write_logits(logits, is_ragged)
                written.add(logits.tree)

            factors[leaf.detail] = self.write_maximum(leaf, logits)
        return factors

    def write_maximum(self, leaf: Expr, logits: Logits) -> str:
        """One maximum takes in the block. Gives the name of its factor."""
        running, highest = leaf.detail, self.kept[leaf]
        before, shift = self.unique("before"), self.unique("shift")
        factor = self.unique("factor")
        two_turns = self.plan.two_turns

        best = self.best_of(before, self.values[logits.tree], running)
        self.line(f"{before} = {highest}")
        self.line(f"{highest} = {best}")

        # Nothing was shown so far: -inf - -inf would be NaN
        is_low = f"{highest} == -{INFINITY}"
        if two_turns:
            is_low = f"(turn == 0) & ({is_low})"
        self.line(f"{shift} = tl.where({is_low}, 0.0, {highest})")

        # exp(before - now), as a power of two
        power = self.number(logits.power, torch.float32)
        change = f"tl.exp2(({before} - {shift}) * {power})"
        if two_turns:
            change = f"tl.where({before} == {highest}, 1.0, {change})"
        self.line(f"{factor} = {change}")

        # `x * power + shift` is one instruction, so the shift is multiplied once for each row
        if logits.is_bounded:
            self.line(f"{shift} = {shift} * -{power}")
        self.shifts[running] = Shift(shift, logits)
        self.values[leaf] = self.maximum_text(highest, logits)
        return factor

    def write_logits(self, logits: Logits, is_ragged: bool) -> None:
        """What a maximum is of gets a name; behind the last column it is -inf."""
        text = self.text(logits.tree, whole=True)
        if is_ragged:
            text = f"tl.where(columns, {text}, -{INFINITY})"
        if not text.isidentifier():
            name = self.unique("logits")
            self.line(f"{name} = {text}")
            text = name
        self.values[logits.tree] = text

    def best_of(self, before: str, logits: str, running: Running) -> str:
        """The maximum of each row so far, as source.

        `tl.max` drops NaN. It may where the maximum is only subtracted before an exponential: of a
        score that is NaN the weight is NaN, whatever the maximum is. Else `larger` keeps NaN."""
        stream = self.stream
        finishes = [end.split.finish for end in stream.ends]
        stored = [each.tree for each in stream.of_rows]
        outside = [self.plan.cut.of(tree) for tree in (*stream.cores, *finishes, *stored)]
        outside += [self.plan.cut.of(leaf.detail.term) for leaf, _ in stream.sums]
        if not needs_maximum_itself(outside, running):
            return f"tl.maximum({before}, tl.max({logits}, 1))"
        return f"tl.maximum({before}, tl.reduce({logits}, 1, larger){KEEPS_NAN})"

    def maximum_text(self, highest: str, logits: Logits) -> str:
        """The maximum itself, for each row."""
        if logits.factor == 1:
            return f"{highest}[:, None]"
        return f"({highest} * {self.number(logits.factor, torch.float32)})[:, None]"

    def write_weights(
        self, trees: StreamTrees, factors: Mapping[Running, str], is_ragged: bool
    ) -> None:
        """Sums and totals take in the block."""
        stream = self.stream
        for leaf, powers in stream.sums:
            term = self.weight(trees, leaf.detail.term, is_ragged)
            summed = self.kept[leaf]
            rescaled = " * ".join([summed, *factor_of(powers, factors)])
            self.line(f"{summed} = {rescaled} + tl.sum({term}, 1)")

        for end in stream.ends:
            self.write_totals(end, trees, factors, is_ragged)

    def write_totals(
        self, end: End, trees: StreamTrees, factors: Mapping[Running, str], is_ragged: bool
    ) -> None:
        """The totals of one end take in the block."""
        dtype = self.plan.dtype_of_last(end)
        weights = [self.weight(trees, core, is_ragged) for core in end.split.cores]
        operand = self.operand(end.values, down=True, depth=self.symbol_of(end))
        values = self.write_loaded("values", operand, dtype)
        totals = zip(self.totals[end], weights, end.split.powers, strict=True)
        for total, weight, powers in totals:
            by_row = [f"{factor}[:, None]" for factor in factor_of(powers, factors)]
            rescaled = " * ".join([total, *by_row])
            if dtype != torch.float32:
                weight = f"{weight}.to({self.type_name(dtype)})"
            self.line(f"{total} = {self.dot(weight, values, rescaled, dtype)}")

    def weight(self, trees: StreamTrees, original: Expr, is_ragged: bool) -> str:
        """The name of what is summed along a row; behind the last column it is 0."""
        tree = trees.of(original)
        text = self.text(tree)
        if not depends_on_scores(tree):
            text = f"tl.zeros([ROWS, COLUMNS], tl.float32) + {text}"
        if is_ragged and not vanishes_with_exponential(original):
            text = f"tl.where(columns, {text}, 0.0)"
        if text.isidentifier():
            return text
        name = self.unique("weights")
        self.line(f"{name} = {text}")
        if not is_ragged:
            self.values[tree] = name
        return name

    def highest_of(self, running: Running) -> str:
        """The name of what is kept for a maximum."""
        return next(self.kept[leaf] for leaf in self.stream.maxima if leaf.detail is running)


def factor_of(powers: Powers, factors: Mapping[Running, str]) -> list[str]:
    """What a sum is multiplied by, as the factors of a product."""
    return [factors[running] for running, power in powers.items() for _ in range(power)]
