"""Which blocks of a stream a mask hides whole: known from its formula, before any number is there.

In:  a `Stream`, and how long its blocks of rows and columns are.
Out: for each block of rows the columns from the first that counts to the last (`shown_columns`), or
     None where none can be left out.

A mask that is made of positions, `i >= j` or `(i - j).abs() <= 256`, is a formula over the loops'
symbols. In a block each symbol lies between two numbers, and so does the formula (interval
arithmetic, `RULES`). If it cannot be true in a block, then all of the block's scores are -inf and
their weights are 0. Neither keys nor a product are needed; of the values, that none is NaN or
infinite.
In PyTorch: `torch/nn/attention/flex_attention.py`, `create_block_mask`, which evaluates the mask
for every element.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy
import torch

from course_lib.lowering.indexing import Linear
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.rescaling import RUNNING, without_conversions
from course_lib.scheduling.stream_nodes import Stream

Array = Any
# From here on float32 does not know every integer
EXACT = 2**24
ARITHMETIC = frozenset("add sub mul".split())


@dataclass(frozen=True)
class Interval:
    """What a value lies between, in each block: two arrays. Of truth values: 0 and 1."""

    low: Array
    high: Array

    @property
    def surely(self) -> Array:
        """Where a truth value is true in the whole block."""
        return self.low == 1

    @property
    def never(self) -> Array:
        """Where it is false in the whole block."""
        return self.high == 0


UNKNOWN = Interval(-np.inf, np.inf)
UNDECIDED = Interval(0, 1)


@dataclass(frozen=True)
class Shown:
    """For each block of rows where its columns begin and end that are not hidden, if the numbers
    `finite` are."""

    columns: list[tuple[int, int]]
    # Numbers of each row, or of each column: with NaN or infinity among them a hidden weight need
    # not be 0
    finite: tuple[Expr, ...] = ()
    # Those of them that divide: they must not be 0, either
    divisors: tuple[Expr, ...] = ()


def shown_columns(stream: Stream, rows: int, columns: int) -> list[tuple[int, int]] | None:
    """For each block of rows where its columns begin and end that are not hidden, whatever is in
    memory beside the values."""
    weights = [*stream.cores, *(leaf.detail.term for leaf, _ in stream.sums)]
    if not stream.maxima or not all(map(vanishes_with_exponential, weights)):
        return None
    shown = shown_blocks(stream, rows, columns)
    return None if shown is None else shown.columns


def vanishes_with_exponential(tree: Expr) -> bool:
    """True for exp(x - m) with a running m: 0 where x is -inf.

    (Times something it need not be: that may be infinite.)"""
    tree = without_conversions(tree)
    if tree.op != "exp":
        return False
    subtracted = without_conversions(tree.args[0]).args[-1:]
    return any(without_conversions(each).op == RUNNING for each in subtracted)


def shown_blocks(stream: Stream, rows: int, columns: int) -> Shown | None:
    """What is known of the stream's blocks before it runs, or None where none can be left out."""
    known = Knowledge(stream, rows, columns)
    hidden = np.ones(known.shape, dtype=bool)
    for leaf in stream.maxima:
        hidden &= known.is_minus_infinity(leaf.detail.term)
    for tree in [*stream.cores, *(leaf.detail.term for leaf, _ in stream.sums)]:
        hidden &= known.is_zero(tree)
    if not hidden.any():
        return None

    column_ranges = []
    for row in hidden:
        (shown,) = np.nonzero(~row)
        first, last = (shown[0], shown[-1] + 1) if len(shown) else (0, 0)
        column_ranges.append((int(first) * columns, int(last) * columns))
    return Shown(column_ranges, tuple(known.finite), tuple(known.divisors))


class Knowledge:
    """What is known of values in each block: arrays with a row for each block of rows, a column for
    each block of columns."""

    def __init__(self, stream: Stream, rows: int, columns: int) -> None:
        row, column = stream.row, stream.column
        starts = np.arange(0, row.size, rows)[:, None]
        positions = np.arange(0, column.size, columns)[None, :]
        self.shape = (len(starts), positions.shape[1])

        self.symbols: dict[sympy.Symbol, Interval] = {
            row.symbol: Interval(starts, np.minimum(starts + rows, row.size) - 1),
            column.symbol: Interval(positions, np.minimum(positions + columns, column.size) - 1),
        }
        for loop in stream.batch:
            self.symbols[loop.symbol] = Interval(0, loop.size - 1)

        self.of_both = {row.symbol, column.symbol}
        # What must be finite, and what must not be 0, for a block to be hidden
        self.finite: dict[Expr, None] = {}
        self.divisors: dict[Expr, None] = {}

    def is_zero(self, tree: Expr) -> Array:
        """Where a value is 0 in the whole block, if what is in `finite` is."""
        tree = without_conversions(tree)
        if tree.op == "constant":
            return np.full(self.shape, tree.detail == 0)
        if tree.op == "where":
            condition = self.interval(tree.args[0])
            yes, no = map(self.is_zero, tree.args[1:])
            return (condition.never | yes) & (condition.surely | no)
        if tree.op in ("add", "sub"):
            left, right = map(self.is_zero, tree.args)
            return left & right
        if tree.op == "neg":
            return self.is_zero(tree.args[0])
        if tree.op in ("mul", "truediv"):
            return self.is_zero_product(tree)
        if tree.op == "exp":
            return self.is_zero_exponential(without_conversions(tree.args[0]))
        return np.zeros(self.shape, dtype=bool)

    def is_zero_product(self, tree: Expr) -> Array:
        """Where a product is 0: one operand is 0, and the other one is finite. For a quotient: the
        first operand is 0, and the second is finite and not 0."""
        left, right = tree.args
        zero = self.is_zero(left)
        if zero.any():
            return zero & self.must_be_finite(right, divides=tree.op == "truediv")
        zero = self.is_zero(right)
        if tree.op == "mul" and zero.any():
            return zero & self.must_be_finite(left)
        return np.zeros(self.shape, dtype=bool)

    def is_zero_exponential(self, difference: Expr) -> Array:
        """exp(x - m), where x is -inf and m is the row's maximum: a running one, or a finite number
        that is known."""
        nothing = np.zeros(self.shape, dtype=bool)
        if difference.op != "sub":
            return nothing
        x, subtracted = difference.args
        hidden = self.is_minus_infinity(x)
        if not hidden.any() or without_conversions(subtracted).op == RUNNING:
            return hidden
        return hidden & self.must_be_finite(subtracted)

    def must_be_finite(self, tree: Expr, divides: bool = False) -> bool:
        """Note that a value must be finite (and, if something is divided by it, not 0), so that the
        kernel looks before it leaves a block out.

        False if it must not be left out: to look at the value would take too long. That is so for
        a value that is computed, and for one that each row has for each column."""
        tree = without_conversions(tree)
        if tree.op == "constant":
            return bool(np.isfinite(tree.detail)) and not (divides and tree.detail == 0)
        is_truth = tree.op == "to_dtype" and tree.args[0].dtype == torch.bool
        if is_truth and not divides:
            return True
        if tree.op != "load" or tree.args or self.of_both <= tree.detail[1].free_symbols:
            return False
        self.finite[tree] = None
        if divides:
            self.divisors[tree] = None
        return True

    def is_minus_infinity(self, tree: Expr) -> Array:
        """Where a value is -inf in the whole block, whatever the numbers are that it is chosen
        from."""
        tree = without_conversions(tree)
        if tree.op == "constant":
            return np.full(self.shape, tree.detail == -np.inf)
        if tree.op == "where":
            condition = self.interval(tree.args[0])
            yes, no = map(self.is_minus_infinity, tree.args[1:])
            return (condition.never | yes) & (condition.surely | no)
        return np.zeros(self.shape, dtype=bool)

    def interval(self, tree: Expr) -> Interval:
        """Between which numbers a value lies in each block."""
        nothing = UNDECIDED if tree.dtype == torch.bool else UNKNOWN
        if tree.op == "constant":
            return Interval(float(tree.detail), float(tree.detail))
        if tree.op == "index_expr":
            return self.of_index(tree.detail)
        if tree.op not in RULES or not is_about_integers(tree):
            return nothing

        operands = [self.interval(each) for each in tree.args]
        with np.errstate(invalid="ignore"):  # 0 times infinity
            result = RULES[tree.op](*operands)
        # What is rounded on the way may be another number than what is computed here.
        is_rounded = tree.op in ARITHMETIC and not all(map(is_exact, (*operands, result)))
        return nothing if is_rounded else result

    def of_index(self, formula: Any) -> Interval:
        """The interval of an index: a sum of symbols times numbers."""
        linear = Linear.of(sympy.sympify(formula), self.symbols.keys())
        if not isinstance(linear.constant, int):
            return UNKNOWN

        total = Interval(linear.constant, linear.constant)
        for atom, coefficient in linear.terms:
            if atom not in self.symbols or not isinstance(coefficient, int):
                return UNKNOWN
            total = added(total, times(self.symbols[atom], Interval(coefficient, coefficient)))
        return total


def is_about_integers(tree: Expr) -> bool:
    """Does the operation mean here what `RULES` says of it?"""
    if tree.op.startswith(("bitwise", "logical")):
        return all(each.dtype == torch.bool for each in tree.args)
    if tree.op != "to_dtype":
        return True

    # float16 does not know every position, and a float that becomes an integer is cut off.
    (source,) = tree.args
    if tree.dtype.is_floating_point:
        return tree.dtype in (torch.float32, torch.float64)
    is_integer = tree.dtype in (torch.int32, torch.int64)
    return is_integer and not source.dtype.is_floating_point


def is_exact(interval: Interval) -> bool:
    """Are both ends integers that float32 knows?"""
    ends = (np.asarray(interval.low), np.asarray(interval.high))
    return all(bool(np.all((np.abs(end) < EXACT) & (end == np.floor(end)))) for end in ends)


# --- the rules of interval arithmetic


def added(a: Interval, b: Interval) -> Interval:
    return Interval(a.low + b.low, a.high + b.high)


def negated(a: Interval) -> Interval:
    return Interval(-a.high, -a.low)


def subtracted(a: Interval, b: Interval) -> Interval:
    return added(a, negated(b))


def times(a: Interval, b: Interval) -> Interval:
    products = np.broadcast_arrays(a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high)
    return Interval(np.min(products, axis=0), np.max(products, axis=0))


def absolute(a: Interval) -> Interval:
    low, high = np.abs(a.low), np.abs(a.high)
    has_zero = (np.asarray(a.low) <= 0) & (np.asarray(a.high) >= 0)
    return Interval(np.where(has_zero, 0, np.minimum(low, high)), np.maximum(low, high))


def smaller(a: Interval, b: Interval) -> Interval:
    return Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high))


def larger(a: Interval, b: Interval) -> Interval:
    return Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def chosen(condition: Interval, yes: Interval, no: Interval) -> Interval:
    """The interval of `yes if condition else no`.

    Where the condition is known, it is that of one of the two; elsewhere it holds both."""
    low = np.where(
        condition.surely, yes.low, np.where(condition.never, no.low, np.minimum(yes.low, no.low))
    )
    high = np.where(
        condition.surely,
        yes.high,
        np.where(condition.never, no.high, np.maximum(yes.high, no.high)),
    )
    return Interval(low, high)


def truth(surely: Array, never: Array) -> Interval:
    return Interval(np.where(surely, 1, 0), np.where(never, 0, 1))


def less(a: Interval, b: Interval) -> Interval:
    return truth(np.less(a.high, b.low), np.greater_equal(a.low, b.high))


def less_or_equal(a: Interval, b: Interval) -> Interval:
    return truth(np.less_equal(a.high, b.low), np.greater(a.low, b.high))


def equal(a: Interval, b: Interval) -> Interval:
    is_one_number = np.equal(a.low, a.high) & np.equal(b.low, b.high)
    apart = np.less(a.high, b.low) | np.greater(a.low, b.high)
    return truth(is_one_number & np.equal(a.low, b.low), apart)


def opposite(a: Interval) -> Interval:
    return Interval(1 - np.asarray(a.high), 1 - np.asarray(a.low))


def unequal(a: Interval, b: Interval) -> Interval:
    return opposite(equal(a, b))


def greater(a: Interval, b: Interval) -> Interval:
    return less(b, a)


def greater_or_equal(a: Interval, b: Interval) -> Interval:
    return less_or_equal(b, a)


def itself(a: Interval) -> Interval:
    return a


RULES: Mapping[str, Callable[..., Interval]] = {
    "add": added, "sub": subtracted, "mul": times, "neg": negated, "abs": absolute,
    "minimum": smaller, "maximum": larger, "where": chosen, "to_dtype": itself,
    "lt": less, "le": less_or_equal, "gt": greater, "ge": greater_or_equal, "eq": equal, "ne": unequal,
    "logical_and": smaller, "bitwise_and": smaller, "logical_or": larger, "bitwise_or": larger,
    "logical_not": opposite, "bitwise_not": opposite,
}  # fmt: skip
"""Operation → between which numbers its result lies. The bitwise ones count for truth values
only."""
