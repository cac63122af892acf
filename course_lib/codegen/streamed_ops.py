"""How the operations of a stream are spelled in Triton, and how its operands are loaded.

In:  one `Expr` of a stream, or one operand of a product.
Out: its text, or the name of the tile that was loaded.

What is special here: exp(x - m) is a power of two; a number times scores plus something is one
instruction; quick divisions and a quick tanh, for scores are not rounded as in eager anyway.
In PyTorch: `torch/_inductor/kernel/flex/templates/flex_attention.py.jinja`.
"""

from dataclasses import dataclass

import sympy
import torch

from course_lib.codegen.spellings import ADDITION, ATOM, MULTIPLICATION
from course_lib.codegen.stream_plan import StreamPlan
from course_lib.codegen.stream_trees import Logits, depends_on_scores
from course_lib.codegen.stream_walks import (
    LEAST_SIDE,
    TILES_OF_FLOATS,
    all_in_halves,
    is_gradient,
    is_same_factor,
    longest_operand,
    widths_of_totals,
)
from course_lib.codegen.triton_ops import RULES, TritonOps
from course_lib.lowering.indexing import power_of_two
from course_lib.scheduling import stream_nodes
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import Loop
from course_lib.scheduling.products import allows_tf32
from course_lib.scheduling.rescaling import Running
from course_lib.scheduling.stream_nodes import End, Factor, Stream, Streamed

# How `tl.dot` multiplies float32 where it may not be rounded to ten digits: as three products of
# such, which is as exact
WHOLE_FLOATS = "tf32x3"
# Totals of 64 columns that fit into the registers of a program
MOST_TOTALS = 4
# Operations that a stream gives a meaning of its own
LEAVES = frozenset("load constant index_expr scores running total exp".split())


@dataclass(frozen=True)
class Operand:
    """A factor of a product as it is loaded."""

    tree: Expr
    # The masks of what is not in the matrix
    mask: str


@dataclass(frozen=True)
class Shift:
    """The name of what each row's logits are shifted by (times a power, if they are bounded)."""

    name: str
    logits: Logits


class StreamedOps(TritonOps):
    """Spells operations of a stream, and loads operands of its products."""

    plan: StreamPlan
    stream: Stream
    # The symbol that runs down the rows of keys and values: the matrix's columns
    column_down: sympy.Symbol
    # Size of a depth → its symbol; the same for rows of values that no product of scores has
    depths: dict[int, sympy.Symbol]
    widths: dict[int, sympy.Symbol]
    # The operands that this block of columns has loaded
    loaded: dict[tuple[Expr, str, torch.dtype], str]
    # What is subtracted from logits before they become powers of two
    shifts: dict[Running, Shift]

    # --- operations

    def name_for(self, expr: Expr) -> str:
        if expr.op in ("exponential", "power_of_two"):
            return "weights"
        return super().name_for(expr)

    def print_exponential(self, expr: Expr) -> tuple[str, int]:
        """exp(x - m) as a power of two."""
        shift = self.shifts[expr.detail]
        power = self.number(shift.logits.power, torch.float32)
        value = self.text(expr.args[0])
        if shift.logits.is_bounded:
            return f"tl.exp2(tl.fma({value}, {power}, {shift.name}[:, None]))", ATOM
        return f"tl.exp2(({value} - {shift.name}[:, None]) * {power})", ATOM

    def print_power_of_two(self, expr: Expr) -> tuple[str, int]:
        """exp(x - y), where y is known before, as a power of two."""
        value, shift = expr.args
        power = self.number(expr.detail, torch.float32)
        if shift.op == "constant":
            return f"tl.exp2({self.text(value, MULTIPLICATION)} * {power})", ATOM

        difference = f"tl.fma({self.text(value)}, {power}, {self.text(shift)})"
        return f"tl.exp2({difference})", ATOM

    def print_inverse(self, expr: Expr) -> tuple[str, int]:
        """Of a sum that weights are divided by."""
        return f"1.0 / {self.text(expr.args[0], MULTIPLICATION + 1)}", MULTIPLICATION

    def print_index_expr(self, expr: Expr) -> tuple[str, int]:
        """A position is an int32 by itself, unless the matrices are so large that it is not."""
        if expr.dtype == torch.int32 and not self.plan.needs_64_bits and expr.detail.is_Symbol:
            return self.index(expr.detail), ATOM
        return super().print_index_expr(expr)

    def print_add(self, expr: Expr) -> tuple[str, int]:
        return self.print_sum_of_two(expr, "+")

    def print_sub(self, expr: Expr) -> tuple[str, int]:
        return self.print_sum_of_two(expr, "-")

    def print_sum_of_two(self, expr: Expr, sign: str) -> tuple[str, int]:
        """Scores times a number, and something added: one instruction. (It is rounded once; eager's
        rounding is another anyway.)"""
        left, right = expr.args
        is_scaled = left.op == "mul" and left.args[1].op == "constant" and self.uses[left] < 2
        if is_scaled and depends_on_scores(left) and expr.dtype == torch.float32:
            value, factor = map(self.text, left.args)
            added = self.text(right, ATOM)
            if sign == "-":
                added = f"-{added}"
            return f"tl.fma({value}, {factor}, {added})", ATOM
        return f"{self.text(left, ADDITION)} {sign} {self.text(right, ADDITION + 1)}", ADDITION

    def print_truediv(self, expr: Expr) -> tuple[str, int]:
        """What is made of scores is not rounded as in eager anyway: the quick way."""
        if depends_on_scores(expr):
            value = self.text(expr.args[0], MULTIPLICATION)
            divisor = self.text(expr.args[1], MULTIPLICATION + 1)
            return f"{value} / {divisor}", MULTIPLICATION
        return super().print_truediv(expr)

    def print_tanh(self, expr: Expr) -> tuple[str, int]:
        """Of products of halves, which are rounded already, a quick one will do."""
        function = "quick_tanh" if self.plan.in_halves else "libdevice.tanh"
        return f"{function}({self.text(expr.args[0])})", ATOM

    # --- which matrix, and operands of products

    def write_batch(self, number: str) -> None:
        """The symbols of the batch."""
        self.line(f"matrix = {number}")
        rest = self.plan.tiling.matrices
        for loop in self.stream.batch:
            is_first = rest == self.plan.tiling.matrices
            rest //= loop.size
            digit = "matrix"
            if rest != 1:
                digit += f" // {rest}"
            if not is_first:
                digit += f" % {loop.size}"
            self.line(f"{loop.symbol} = {digit}")

    def write_arange(self, loop: Loop, symbol: sympy.Symbol) -> None:
        """The loop along a row of an operand, padded to a power of two."""
        room = max(LEAST_SIDE, power_of_two(loop.size))
        self.line(f"{symbol} = tl.arange(0, {room})[None, :]")
        if room != loop.size:
            mask = f"inside_{symbol}"
            self.line(f"{mask} = {symbol} < {loop.size}")
            self.masks[symbol] = mask

    def operand(self, factor: Factor, down: bool, depth: sympy.Symbol) -> Operand:
        """A factor whose rows go down. `down`: its rows are the columns of the matrix. `depth`: the
        symbol along a row."""
        row = self.column_down if down else factor.rows.symbol
        names = {factor.rows.symbol: row, factor.columns.symbol: depth}
        tree = self.plan.cut.renamed(factor.tree, names)
        masks = [self.masks[symbol] for symbol in (row, depth) if symbol in self.masks]
        return Operand(tree, " & ".join(masks))

    def write_operand(self, wanted: str, operand: Operand, dtype: torch.dtype) -> str:
        """A tile of an operand. Outside of the matrix it is 0."""
        tree, name = operand.tree, self.unique(wanted)
        source = tree.args[0] if tree.op == "to_dtype" else tree
        self.count_uses([tree])
        if source.op == "load":
            # Hardware copies such a tile to where `tl.dot` wants it.
            kind = source.dtype
            arguments = self.place(*source.detail)
            if operand.mask:
                arguments += f", {operand.mask}, 0.0"
            text = f"tl.load({arguments})"
        else:
            kind = tree.dtype
            text = self.text(tree)
            if operand.mask:
                text = f"tl.where({operand.mask}, {text}, 0.0)"
        if kind != dtype:
            text = f"{text}.to({self.type_name(dtype)})"
        self.line(f"{name} = {text}")
        return name

    def write_loaded(self, wanted: str, operand: Operand, dtype: torch.dtype) -> str:
        """An operand of this block of columns, loaded once: the end of a gradient multiplies what
        scores are made of."""
        key = (operand.tree, operand.mask, dtype)
        if key not in self.loaded:
            self.loaded[key] = self.write_operand(wanted, operand, dtype)
        return self.loaded[key]

    def symbol_of(self, end: End) -> sympy.Symbol:
        """The symbol along a row of values: that of the scores, if they read the same numbers."""
        size = end.values.columns.size
        rights = (scores.right for scores in self.stream.scores)
        if any(is_same_factor(right, end.values) for right in rights):
            return self.depths[size]
        return self.widths[size]

    def dot(self, left: str, right: str, total: str, dtype: torch.dtype) -> str:
        """A product of two tiles, added to a third."""
        arguments = [left, right]
        if total:
            arguments.append(total)
        if dtype == torch.float32:
            precision = "tf32" if allows_tf32() else WHOLE_FLOATS
            arguments.append(f'input_precision="{precision}"')
        return f"tl.dot({', '.join(arguments)})"


# --- what cannot be written


def why_not_in_triton(node: Streamed) -> str:
    """Why a stream cannot be a Triton kernel, or is faster as it was; empty if it can."""
    stream = node.stream
    longest, device = longest_operand(stream), node.buffers[0].device
    stores_more = len(stream.ends) != 1 or stream.of_rows or is_gradient(stream)
    if stores_more and device.type == "cuda" and longest > stream_nodes.LONGEST_WITH_SEVERAL:
        return (
            f"streams of rows of {longest} that store several things, or are gradients, "
            "were not yet measured on a GPU"
        )
    if len({view.buffer.device for view in node.args}) > 1:
        return "it reads from more than one device"
    if unknown := next(filter(is_unknown, operations_of(stream)), ""):
        return f"Triton has no way to write '{unknown}'"

    if not all_in_halves(stream) and longest > max(TILES_OF_FLOATS):
        return (
            f"rows of {longest} float32 leave too few registers: "
            "two calls of the library are faster"
        )
    # A narrower total takes as many registers as one of 64 columns.
    widths = widths_of_totals(stream)
    if sum(max(64, width) for width in widths) > 64 * MOST_TOTALS:
        sizes = " and ".join(str(end.values.columns.size) for end in stream.ends)
        return (
            f"{len(widths)} sums of {sizes} columns for each row do not fit into a program's "
            "registers"
        )
    return ""


def operations_of(stream: Stream) -> list[str]:
    """The operations in all trees of a stream."""
    return [node.op for tree in stream.trees for node in tree.walk()]


def is_unknown(op: str) -> bool:
    """Has the printer neither a rule nor a method for this operation?"""
    return op not in RULES and op not in LEAVES and not hasattr(StreamedOps, f"print_{op}")


# --- small questions


def symbol_like(symbol: sympy.Symbol, ending: str) -> sympy.Symbol:
    return sympy.Symbol(f"{symbol}{ending}", integer=True, nonnegative=True)
