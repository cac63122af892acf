"""The trees of a stream as a GPU computes them best: exponentials as powers of two, positions as
small integers.

In:  a `Stream`, whose trees say what eager computes.
Out: `StreamTrees`: the same values as trees with one more operation, `exponential`.

    exp(x - m), where m is the maximum of x, and x is c * y
        = 2 ** ((y - highest) * c * log2(e)), where highest is the maximum of y

A GPU has an instruction for 2 ** x and none for exp. The constant factor c of the scores goes into
the one multiplication that this takes. Positions are int64 in a program; where they are known to be
small they are int32 here, and floats without a detour.
In PyTorch: `torch/_inductor/kernel/flex/templates/flex_attention.py.jinja` (`qk_scale`, `RCP_LN2`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import sympy
import torch

from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import substitute
from course_lib.scheduling.blocks import EXACT, RULES, Knowledge
from course_lib.scheduling.expressions import Expr, TreeBuilder
from course_lib.scheduling.rescaling import RUNNING, Running, Split, running_in, without_conversions
from course_lib.scheduling.stream_nodes import Stream

LOG2_E = math.log2(math.e)
# Positions up to here are computed in 32 bits
SMALL = 2**30
INTEGERS = (torch.int32, torch.int64)
# Operations with which a mask computes on positions (`i - j`)
OF_POSITIONS = frozenset("add sub mul neg abs minimum maximum".split())
# Operations whose value is of the matrix of scores: another one for each row and column
OF_SCORES = frozenset(("scores", RUNNING, "exponential", "power_of_two", "total"))
COMPARISONS = frozenset("lt le gt ge eq ne".split())
# Nearly the largest float32
LARGEST = 1e38
# The largest sum of products of halves. The largest float16 squared is 2**32, and a row has at most
# 256 numbers; a bfloat16 may be as large as a float32, so there is no bound
LARGEST_SCORE = {torch.float16: 2.0**40, torch.bfloat16: 2.0**128}


@dataclass(frozen=True)
class Logits:
    """What a running maximum is of: `factor` times `tree`."""

    tree: Expr
    factor: float = 1.0
    # Surely so small that 2 ** (tree * a - highest * a) has no infinity on the way
    is_bounded: bool = False

    @property
    def power(self) -> float:
        """The factor in the power of two."""
        return self.factor * LOG2_E


@dataclass(frozen=True)
class Masks:
    """Conditions about positions that hide scores: condition → the value for which a score is
    shown."""

    shown: Mapping[Expr, bool] = field(default_factory=dict)

    @staticmethod
    def of(stream: Stream) -> "Masks":
        """Those of all trees of a stream."""
        found: dict[Expr, bool] = {}
        for tree in stream.trees:
            for node in tree.walk():
                if node.op == "where" and is_of_positions(node.args[0]):
                    yes, no = map(is_minus_infinity, node.args[1:])
                    if yes != no:
                        found[node.args[0]] = no
        return Masks(found)


class StreamTrees:
    """Rewrites the trees of one stream. `masks`: those that hide nothing in the blocks that these
    trees are for."""

    def __init__(
        self,
        stream: Stream,
        buffers: Mapping[str, Buffer],
        masks: Masks | None = None,
        builder: TreeBuilder | None = None,
    ) -> None:
        self.stream = stream
        self.masks = masks or Masks()
        # (With the builder of other trees, what is the same in both is one object.)
        self.builder = builder or TreeBuilder(buffers)
        # A single block, the whole matrix: between which numbers each position lies
        self.known = Knowledge(stream, stream.row.size, stream.column.size)
        self.done: dict[Expr, Expr] = {}
        self.logits: dict[Running, Logits] = {}

    def of(self, tree: Expr) -> Expr:
        """The tree that is printed for `tree`."""
        if tree not in self.done:
            self.done[tree] = self.rewritten(tree)
        return self.done[tree]

    def rewritten(self, tree: Expr) -> Expr:
        """One operation, and those below it."""
        # The place of a random number keeps its type, which the numbers depend on.
        if tree.op == "random" or not tree.args:
            return tree
        if (special := self.special(tree)) is not None:
            return special

        args = tuple(map(self.of, tree.args))
        if tree.op in ("mul", "truediv"):
            return self.product(tree, args)
        if (simpler := self.simpler(tree, args)) is not None:
            return simpler
        if args == tree.args:
            return tree
        return self.remade(tree, args)

    def simpler(self, tree: Expr, args: tuple[Expr, ...]) -> Expr | None:
        """The same value by fewer operations, if there is a way."""
        if tree.op == "sub":
            return self.common_factor(tree, args)
        if tree.op == "logical_and" and is_true(args[1]):
            return args[0]
        if tree.op == "to_dtype" and args[0].op == "constant" and tree.dtype.is_floating_point:
            return self.builder.constant(args[0].detail, tree.dtype)
        return None

    def special(self, tree: Expr) -> Expr | None:
        """What is more than its operands, each rewritten: a mask that hides nothing, an
        exponential, positions."""
        if tree.op == "where" and tree.args[0] in self.masks.shown:
            condition, yes, no = tree.args
            if self.masks.shown[condition]:
                return self.of(yes)
            return self.of(no)
        if tree.op == "exp" and (running := maximum_subtracted(tree)):
            logits = self.logits_of(running).tree
            return self.builder.make("exponential", (logits,), tree.dtype, running)
        if tree.op == "exp" and (known := self.exponential_of_known(tree)):
            return known
        return self.about_positions(tree)

    def remade(self, tree: Expr, args: tuple[Expr, ...]) -> Expr:
        return self.builder.make(tree.op, args, tree.dtype, tree.detail)

    def product(self, tree: Expr, args: tuple[Expr, ...]) -> Expr:
        """Scores times a number, divided by another, are scores times one number."""
        made = self.remade(tree, args)
        if not depends_on_scores(made):
            return made
        value, divisor = args
        if (
            tree.op == "truediv"
            and value.op == "power_of_two"
            and self.is_of_row_or_column(divisor)
        ):
            # One division for a row or column instead of one for each score
            inverse = self.builder.make("inverse", (divisor,), torch.float32)
            return self.builder.make("mul", (value, inverse), tree.dtype)
        inner, factor = factor_apart(made)
        if factor == 1.0 or inner is made:
            return inner
        if scaled := self.scaled_difference(inner, factor):
            return scaled
        number = self.builder.make("constant", (), tree.dtype, factor)
        return self.builder.make("mul", (inner, number), tree.dtype)

    def common_factor(self, tree: Expr, args: tuple[Expr, ...]) -> Expr | None:
        """a * w - w * b as w * (a - b): the gradient of a softmax, in two instructions."""
        left, right = args
        if left.op != "mul" or right.op != "mul" or tree.dtype != torch.float32:
            return None
        for weight in left.args:
            if weight not in right.args or not depends_on_scores(weight):
                continue
            a, b = other_operand(left, weight), other_operand(right, weight)
            if depends_on_scores(a) and not depends_on_scores(b):
                make = self.builder.make
                return make("mul", (weight, make("sub", (a, b), tree.dtype)), tree.dtype)
        return None

    def scaled_difference(self, tree: Expr, factor: float) -> Expr | None:
        """(w * (a - b)) * c as w * (a * c - b * c): the last product is one for a whole row or
        column."""
        if tree.op != "mul" or tree.args[1].op != "sub":
            return None
        weight, difference = tree.args
        a, b = difference.args
        if not depends_on_scores(a) or depends_on_scores(b):
            return None
        make, number = self.builder.make, self.builder.constant(factor, torch.float32)
        scaled = [make("mul", (each, number), torch.float32) for each in (a, b)]
        apart = make("sub", tuple(scaled), torch.float32)
        return make("mul", (weight, apart), tree.dtype)

    # --- exponentials

    def logits_of(self, running: Running) -> Logits:
        """What a maximum is of, without its constant factor."""
        if running not in self.logits:
            tree, factor = self.scaled(self.of(without_conversions(running.term)))
            is_bounded = largest(tree) * factor * LOG2_E < LARGEST
            self.logits[running] = Logits(tree, factor, is_bounded)
        return self.logits[running]

    def exponential_of_known(self, tree: Expr) -> Expr | None:
        """exp(x - y), where y is the same for a whole row or column and known before: what a
        backward computes again."""
        difference = without_conversions(tree.args[0])
        if difference.op != "sub" or tree.dtype != torch.float32:
            return None
        x, y = map(without_conversions, difference.args)
        if not depends_on_scores(x) or depends_on_scores(y) or not self.is_of_row_or_column(y):
            return None

        make, constant = self.builder.make, self.builder.constant
        logits, factor = self.scaled(self.of(x))
        if largest(logits) * factor * LOG2_E < LARGEST:
            # 2 ** (logits * factor * log2(e) + shift): one instruction before the power
            shift = make("mul", (y, constant(-LOG2_E, torch.float32)), torch.float32)
            return make("power_of_two", (logits, shift), torch.float32, factor * LOG2_E)

        # So large a product could overflow where x - y does not: subtract first.
        apart = make("sub", (self.of(x), y), torch.float32)
        zero = constant(0.0, torch.float32)
        return make("power_of_two", (apart, zero), torch.float32, LOG2_E)

    def is_of_row_or_column(self, tree: Expr) -> bool:
        """Is this a float32 in memory, the same for a whole row or a whole column?"""
        if tree.op != "load" or tree.dtype != torch.float32 or tree.args:
            return False
        both = {self.stream.row.symbol, self.stream.column.symbol}
        return not both <= tree.detail[1].free_symbols

    def scaled(self, tree: Expr) -> tuple[Expr, float]:
        """A value as another value, and a number above 0 by which that is multiplied.

        `where(shown, 2 * y, -inf)` is `where(shown, y, -inf)` and 2, for 2 * -inf is -inf."""
        inner, factor = factor_apart(tree)
        if not 0 < factor < math.inf:
            return tree, 1.0
        if inner.op != "where":
            return inner, factor

        condition, yes, no = inner.args
        if is_minus_infinity(no):
            yes, inside = self.scaled(yes)
        elif is_minus_infinity(yes):
            no, inside = self.scaled(no)
        else:
            return inner, factor
        return self.remade(inner, (condition, yes, no)), inside * factor

    # --- positions

    def about_positions(self, tree: Expr) -> Expr | None:
        """A comparison or a float of positions, computed in 32 bits."""
        if tree.op in COMPARISONS and tree.args[0].dtype in INTEGERS:
            sides = [self.narrowed(each) for each in tree.args]
            if all(sides):
                return self.remade(tree, tuple(side for side in sides if side))
        if tree.op == "to_dtype" and tree.args[0].dtype in INTEGERS:
            (source,) = tree.args
            if tree.dtype.is_floating_point and (floats := self.as_float(source)):
                return self.builder.to_dtype(floats, tree.dtype)
        return None

    def narrowed(self, tree: Expr) -> Expr | None:
        """The same integer as int32, if that is known to be large enough on the whole way."""
        if not self.is_below(tree, SMALL):
            return None
        if tree.op == "to_dtype":
            return self.narrowed(tree.args[0])
        args = [self.narrowed(each) for each in tree.args]
        if not all(args):
            return None
        operands = tuple(each for each in args if each)
        return self.builder.make(tree.op, operands, torch.int32, tree.detail)

    def as_float(self, tree: Expr) -> Expr | None:
        """The same integer as a float32, if that is exact on the whole way: rows and columns become
        floats before they meet."""
        if not self.is_below(tree, EXACT):
            return None
        if tree.op == "constant":
            return self.builder.constant(float(tree.detail), torch.float32)
        if tree.op == "to_dtype":
            return self.as_float(tree.args[0])
        if tree.op == "index_expr":
            return self.builder.make("index_expr", (), torch.float32, tree.detail)
        args = [self.as_float(each) for each in tree.args]
        if not all(args):
            return None
        return self.builder.make(tree.op, tuple(each for each in args if each), torch.float32)

    def is_below(self, tree: Expr, limit: int) -> bool:
        """Is this an integer made of positions, and nearer to 0 than `limit`?"""
        if tree.dtype not in INTEGERS:
            return False
        if tree.op not in OF_POSITIONS and tree.op not in ("constant", "index_expr", "to_dtype"):
            return False
        found = self.known.interval(tree)
        largest = max(float(np.max(np.abs(end))) for end in (found.low, found.high))
        return largest < limit

    # --- operands of products

    def renamed(self, tree: Expr, names: Mapping[sympy.Symbol, sympy.Symbol]) -> Expr:
        """A tree of a factor, with other symbols for its loops."""
        args = tuple(self.renamed(each, names) for each in tree.args)
        if tree.op == "load":
            buffer, index = tree.detail
            return self.builder.make("load", args, tree.dtype, (buffer, substitute(index, names)))
        if tree.op == "index_expr":
            return self.builder.make("index_expr", args, tree.dtype, substitute(tree.detail, names))
        return self.remade(tree, args)


# --- questions


def maximum_subtracted(tree: Expr) -> Running | None:
    """Of exp(x - m), where m is the running maximum of x: m."""
    difference = without_conversions(tree.args[0])
    if difference.op != "sub":
        return None
    x, subtracted = map(without_conversions, difference.args)
    is_maximum = subtracted.op == RUNNING and subtracted.detail.is_maximum
    if not is_maximum or without_conversions(subtracted.detail.term) is not x:
        return None
    return subtracted.detail


def other_operand(product: Expr, one: Expr) -> Expr:
    """What `one` is multiplied by."""
    left, right = product.args
    if left is one:
        return right
    return left


def factor_apart(tree: Expr) -> tuple[Expr, float]:
    """A product as what it is without its constant factors, and these."""
    if tree.op == "mul":
        for one, other in (tree.args, tree.args[::-1]):
            if is_finite_number(other):
                inner, factor = factor_apart(one)
                return inner, factor * number_of(other)
    if tree.op == "truediv" and is_finite_number(tree.args[1]) and number_of(tree.args[1]):
        inner, factor = factor_apart(tree.args[0])
        return inner, factor / number_of(tree.args[1])
    return tree, 1.0


def is_finite_number(tree: Expr) -> bool:
    return without_conversions(tree).op == "constant" and math.isfinite(number_of(tree))


def number_of(tree: Expr) -> float:
    return float(without_conversions(tree).detail)


def is_minus_infinity(tree: Expr) -> bool:
    tree = without_conversions(tree)
    return tree.op == "constant" and tree.detail == -math.inf


def is_true(tree: Expr) -> bool:
    return tree.op == "constant" and tree.detail is True


def is_of_positions(tree: Expr) -> bool:
    """Is a condition made of nothing but positions and numbers, by operations that `blocks` has a
    rule for?"""
    return all(
        node.op in RULES or node.op in ("constant", "index_expr") for node in tree.walk()
    ) and any(node.op == "index_expr" for node in tree.walk())


def depends_on_scores(tree: Expr) -> bool:
    """Does a value need an element of a product?"""
    return any(node.op in OF_SCORES for node in tree.walk())


def largest(tree: Expr) -> float:
    """No number that this value can be is farther from 0. (-inf may be.)"""
    if tree.op == "scores":
        node, *_ = tree.detail
        return LARGEST_SCORE.get(node.buffers[0].dtype, math.inf)
    if tree.op == "constant":
        if tree.detail == -math.inf:
            return 0.0
        return abs(float(tree.detail))
    if tree.op in ("tanh", "sigmoid"):
        return 1.0
    if tree.op in ("neg", "abs", "to_dtype"):
        return largest(tree.args[0])
    if tree.op == "where":
        return max(map(largest, tree.args[1:]))
    if tree.op == "mul":
        return largest(tree.args[0]) * largest(tree.args[1])
    return math.inf


def needs_maximum_itself(trees: list[Expr], running: Running) -> bool:
    """Is a maximum used otherwise than as what is subtracted before an exponential?"""
    return any(running in running_in(tree) for tree in trees)


def is_nan_where_empty(stream: Stream) -> bool:
    """Is all that is stored of a row by itself what eager gives, where all logits of a maximum are
    -inf? (0 / 0 is NaN.)"""
    for leaf in stream.maxima:
        running = leaf.detail
        if not all(becomes_nan(end.split, end.split.finish, running) for end in stream.ends):
            return False
        if not all(is_known_where_empty(each.tree, running) for each in stream.of_rows):
            return False
    return True


def becomes_nan(split: Split, tree: Expr, running: Running) -> bool:
    """Is a value NaN where all exponentials of a maximum are 0, because it needs a sum of these
    divided by another?"""
    if tree.op == "truediv":
        total, divisor = map(without_conversions, tree.args)
        if total.op == "total" and divisor.op == RUNNING:
            core = split.cores[total.detail]
            if is_exponential_of(core, running) and is_exponential_of(divisor.detail.term, running):
                return True
    passes_on = tree.op in ("truediv", "mul", "add", "sub", "neg", "to_dtype")
    return passes_on and any(becomes_nan(split, each, running) for each in tree.args)


def is_known_where_empty(tree: Expr, running: Running) -> bool:
    """Is a number of each row the maximum itself, or a sum that is NaN where that is -inf?"""
    tree = without_conversions(tree)
    return tree.op == RUNNING and (
        tree.detail is running or is_exponential_of(tree.detail.term, running)
    )


def is_exponential_of(tree: Expr, running: Running) -> bool:
    """exp(x - m) for this m?"""
    tree = without_conversions(tree)
    return tree.op == "exp" and maximum_subtracted(tree) is running
