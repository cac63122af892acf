"""Which blocks of a stream a mask hides as a whole: known from its formula, before any number is
there.

In:  a `Stream` (a matrix of scores with its rows and columns), and how many rows and columns a
     block has.
Out: for each block of rows, the columns from the first that counts to the last (`shown_columns`);
     None where no block can be left out.

A causal mask, `i >= j`, or a window, `(i - j).abs() <= 256`, is a formula of positions. In a block
of rows 0 to 95 and columns 128 to 255, i lies between 0 and 95 and j between 128 and 255. So i - j
lies between -255 and -33, and `i >= j` is never true there. That is interval arithmetic: `RULES`
says for each operation between which numbers its result lies.

Where a mask is never true, all scores of the block are -inf and their weights are 0. Then neither
the keys nor the product are needed. Of the values it must be known that none is NaN or infinite,
for 0 times these is NaN.
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
"""What numpy computes with: an array with a row for each block of rows and a column for each block
of columns (or one that is broadcast to this), or one number for all of them."""
# float32 has every integer up to here; the next one, 2**24 + 1, would be rounded
EXACT = 2**24
# Operations whose result may be rounded
ARITHMETIC = frozenset("add sub mul".split())


@dataclass(frozen=True)
class Interval:
    """The smallest and the largest number that a value may be, in each block. A truth value is 0 or
    1."""

    low: Array
    high: Array

    @property
    def surely(self) -> Array:
        """For each block: is a truth value true for all its elements?"""
        return self.low == 1

    @property
    def never(self) -> Array:
        """For each block: is a truth value false for all its elements?"""
        return self.high == 0


UNKNOWN = Interval(-np.inf, np.inf)
"""Of a number nothing is known."""
UNDECIDED = Interval(0, 1)
"""A truth value may be either."""


@dataclass(frozen=True)
class Shown:
    """Which columns of each block of rows are not hidden, and on what that depends."""

    # For each block of rows: its first column that is not hidden, and the one behind the last
    columns: list[tuple[int, int]]
    # Loads of a number for each row, or for each column. With NaN or infinity among these numbers a
    # hidden weight need not be 0, so the kernel looks at them before it leaves out a block
    finite: tuple[Expr, ...] = ()
    # Those of them that divide: they must not be 0, either
    divisors: tuple[Expr, ...] = ()


def weights_of(stream: Stream) -> list[Expr]:
    """What is summed along a row: for the products at the end, and for the running sums."""
    terms = [leaf.detail.term for leaf, _ in stream.sums]
    return [*stream.cores, *terms]


def shown_columns(stream: Stream, rows: int, columns: int) -> list[tuple[int, int]] | None:
    """For each block of rows its first column that is not hidden, and the one behind the last.

    Only where that follows from the mask alone; else None. (What must be known of the values of
    attention is not asked here.)"""
    is_plain = all(map(vanishes_with_exponential, weights_of(stream)))
    if not stream.maxima or not is_plain:
        return None
    if shown := shown_blocks(stream, rows, columns):
        return shown.columns
    return None


def vanishes_with_exponential(tree: Expr) -> bool:
    """Is it exp(x - m) with a running m? That is 0 where x is -inf.

    (exp(x - m) times a number is something else: the number may be infinite.)"""
    tree = without_conversions(tree)
    if tree.op != "exp":
        return False
    subtracted = without_conversions(tree.args[0]).args[-1:]
    return any(without_conversions(each).op == RUNNING for each in subtracted)


def shown_blocks(stream: Stream, rows: int, columns: int) -> Shown | None:
    """What is known of the stream's blocks before it runs, or None where none can be left out."""
    # A block changes nothing if no maximum grows by it, and nothing is added to a sum
    known = Knowledge(stream, rows, columns)
    hidden = np.ones(known.shape, dtype=bool)
    for leaf in stream.maxima:
        hidden &= known.is_minus_infinity(leaf.detail.term)
    for weight in weights_of(stream):
        hidden &= known.is_zero(weight)
    if not hidden.any():
        return None

    # Hidden blocks between two that are shown are walked, too
    column_ranges = []
    for row in hidden:
        (shown,) = np.nonzero(~row)
        if len(shown):
            first, behind = int(shown[0]), int(shown[-1]) + 1
            column_ranges.append((first * columns, behind * columns))
        else:
            column_ranges.append((0, 0))
    return Shown(column_ranges, tuple(known.finite), tuple(known.divisors))


class Knowledge:
    """What is known of values in each block. All answers are arrays with an element for each block
    (`Array`)."""

    def __init__(self, stream: Stream, rows: int, columns: int) -> None:
        """rows, columns: how many a block has."""
        row, column = stream.row, stream.column
        # The first and the last position in each block; the last block may be shorter
        first_rows = np.arange(0, row.size, rows)[:, None]
        last_rows = np.minimum(first_rows + rows, row.size) - 1
        first_columns = np.arange(0, column.size, columns)[None, :]
        last_columns = np.minimum(first_columns + columns, column.size) - 1
        self.shape = (len(first_rows), first_columns.shape[1])

        self.symbols: dict[sympy.Symbol, Interval] = {
            row.symbol: Interval(first_rows, last_rows),
            column.symbol: Interval(first_columns, last_columns),
        }
        for loop in stream.batch:
            self.symbols[loop.symbol] = Interval(0, loop.size - 1)

        self.of_both = {row.symbol, column.symbol}
        # What must be finite, and what must not be 0, for a block to be hidden
        self.finite: dict[Expr, None] = {}
        self.divisors: dict[Expr, None] = {}

    def is_zero(self, tree: Expr) -> Array:
        """In which blocks a value is 0 for all elements, provided that what is noted in `finite` is
        finite."""
        tree = without_conversions(tree)
        if tree.op == "constant":
            return np.full(self.shape, tree.detail == 0)
        if tree.op == "where":
            yes, no = map(self.is_zero, tree.args[1:])
            return self.holds_for_choice(tree.args[0], yes, no)
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
        """In which blocks a product is 0: one operand is 0, and the other one is finite.

        For a quotient: the first operand is 0, and the second one is finite and not 0."""
        left, right = tree.args
        left_is_zero = self.is_zero(left)
        if left_is_zero.any():
            divides = tree.op == "truediv"
            return left_is_zero & self.must_be_finite(right, divides)

        right_is_zero = self.is_zero(right)
        if tree.op == "mul" and right_is_zero.any():
            return right_is_zero & self.must_be_finite(left)
        return np.zeros(self.shape, dtype=bool)

    def is_zero_exponential(self, difference: Expr) -> Array:
        """In which blocks exp(x - m) is 0: x is -inf, and m is not.

        m is a running maximum, or a number of each row that lies in memory (in a backward)."""
        if difference.op != "sub":
            return np.zeros(self.shape, dtype=bool)

        x, subtracted = difference.args
        hidden = self.is_minus_infinity(x)
        if not hidden.any() or without_conversions(subtracted).op == RUNNING:
            return hidden
        return hidden & self.must_be_finite(subtracted)

    def must_be_finite(self, tree: Expr, divides: bool = False) -> bool:
        """Note that a value must be finite (and not 0, if something is divided by it), so that the
        kernel looks at it before it leaves a block out.

        True if a block may be left out on this condition. False if to look would take too long:
        that is so for a value that is computed, and for one that each element of the matrix has."""
        tree = without_conversions(tree)
        if tree.op == "constant":
            is_wrong_divisor = divides and tree.detail == 0
            return bool(np.isfinite(tree.detail)) and not is_wrong_divisor
        # A truth value that became a number is 0 or 1
        is_truth = tree.op == "to_dtype" and tree.args[0].dtype == torch.bool
        if is_truth and not divides:
            return True

        # A load has arguments where its index is looked up in a tensor
        if tree.op != "load" or tree.args:
            return False
        _, index = tree.detail
        if self.of_both <= index.free_symbols:
            return False
        self.finite[tree] = None
        if divides:
            self.divisors[tree] = None
        return True

    def is_minus_infinity(self, tree: Expr) -> Array:
        """In which blocks a value is -inf for all elements: the mask puts -inf there."""
        tree = without_conversions(tree)
        if tree.op == "constant":
            return np.full(self.shape, tree.detail == -np.inf)
        if tree.op == "where":
            yes, no = map(self.is_minus_infinity, tree.args[1:])
            return self.holds_for_choice(tree.args[0], yes, no)
        return np.zeros(self.shape, dtype=bool)

    def holds_for_choice(self, condition: Expr, yes: Array, no: Array) -> Array:
        """In which blocks something holds for `where(condition, a, b)`, given in which it holds for
        a (`yes`) and for b (`no`)."""
        known = self.interval(condition)
        return (known.never | yes) & (known.surely | no)

    def interval(self, tree: Expr) -> Interval:
        """Between which numbers a value lies in each block."""
        nothing_known = UNDECIDED if tree.dtype == torch.bool else UNKNOWN
        if tree.op == "constant":
            return Interval(float(tree.detail), float(tree.detail))
        if tree.op == "index_expr":
            return self.of_index(tree.detail)
        if tree.op not in RULES or not is_about_integers(tree):
            return nothing_known

        operands = [self.interval(each) for each in tree.args]
        with np.errstate(invalid="ignore"):  # 0 times infinity
            result = RULES[tree.op](*operands)

        # Where the kernel rounds, it may get another number than the rule does
        if tree.op in ARITHMETIC and not all(map(is_exact, (*operands, result))):
            return nothing_known
        return result

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
    """Has the operation the meaning that `RULES` gives it?"""
    if tree.op.startswith(("bitwise", "logical")):
        return all(each.dtype == torch.bool for each in tree.args)
    if tree.op != "to_dtype":
        return True

    # A conversion must give the same number. float16 has no number for a large position, and a
    # float that becomes an integer loses its fraction.
    (source,) = tree.args
    if tree.dtype.is_floating_point:
        return tree.dtype in (torch.float32, torch.float64)
    is_integer = tree.dtype in (torch.int32, torch.int64)
    return is_integer and not source.dtype.is_floating_point


def is_exact(interval: Interval) -> bool:
    """Are both ends integers that float32 has?"""
    for end in (np.asarray(interval.low), np.asarray(interval.high)):
        is_integer = end == np.floor(end)
        if not np.all(is_integer & (np.abs(end) < EXACT)):
            return False
    return True


# --- the rules of interval arithmetic
#
# In each of them a and b are the intervals of the operands.


def added(a: Interval, b: Interval) -> Interval:
    return Interval(a.low + b.low, a.high + b.high)


def negated(a: Interval) -> Interval:
    return Interval(-a.high, -a.low)


def subtracted(a: Interval, b: Interval) -> Interval:
    return added(a, negated(b))


def times(a: Interval, b: Interval) -> Interval:
    # The signs are not known: the smallest product is that of some two ends
    with_low = (a.low * b.low, a.low * b.high)
    with_high = (a.high * b.low, a.high * b.high)
    products = np.broadcast_arrays(*with_low, *with_high)
    return Interval(np.min(products, axis=0), np.max(products, axis=0))


def absolute(a: Interval) -> Interval:
    # From -3 to 5: the absolute value lies between 0 and 5, from -3 to -2 between 2 and 3
    ends = np.abs(a.low), np.abs(a.high)
    has_zero = (np.asarray(a.low) <= 0) & (np.asarray(a.high) >= 0)
    low = np.where(has_zero, 0, np.minimum(*ends))
    return Interval(low, np.maximum(*ends))


def smaller(a: Interval, b: Interval) -> Interval:
    return Interval(np.minimum(a.low, b.low), np.minimum(a.high, b.high))


def larger(a: Interval, b: Interval) -> Interval:
    return Interval(np.maximum(a.low, b.low), np.maximum(a.high, b.high))


def chosen(condition: Interval, yes: Interval, no: Interval) -> Interval:
    """The interval of `yes if condition else no`.

    Where the condition is known, it is that of one of the two; elsewhere it holds both."""
    both = Interval(np.minimum(yes.low, no.low), np.maximum(yes.high, no.high))
    known = [condition.surely, condition.never]
    low = np.select(np.broadcast_arrays(*known), [yes.low, no.low], both.low)
    high = np.select(np.broadcast_arrays(*known), [yes.high, no.high], both.high)
    return Interval(low, high)


def truth(surely: Array, never: Array) -> Interval:
    """A truth value that is true, or false, for all elements of these blocks."""
    return Interval(np.where(surely, 1, 0), np.where(never, 0, 1))


def less(a: Interval, b: Interval) -> Interval:
    return truth(np.less(a.high, b.low), np.greater_equal(a.low, b.high))


def less_or_equal(a: Interval, b: Interval) -> Interval:
    return truth(np.less_equal(a.high, b.low), np.greater(a.low, b.high))


def equal(a: Interval, b: Interval) -> Interval:
    # Surely equal only where both are one number
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
    "add": added,
    "sub": subtracted,
    "mul": times,
    "neg": negated,
    "abs": absolute,
    "minimum": smaller,
    "maximum": larger,
    "where": chosen,
    "to_dtype": itself,
    "lt": less,
    "le": less_or_equal,
    "gt": greater,
    "ge": greater_or_equal,
    "eq": equal,
    "ne": unequal,
    "logical_and": smaller,
    "bitwise_and": smaller,
    "logical_or": larger,
    "bitwise_or": larger,
    "logical_not": opposite,
    "bitwise_not": opposite,
}
"""Operation → the interval of its result, given those of its operands. (The bitwise operations are
meant for truth values only: `is_about_integers`.)"""
