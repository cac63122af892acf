"""The law of rescaling: which sums over a row can be kept while a number that every term needs
still changes.

In:  the term of a sum, as a tree of operations. A leaf `running` stands for the result of another
     reduction over the same row, which changes until the row ends.
Out: the term's `Powers`: by which factor the sum so far must be multiplied when such a result
     changes. Or `CannotRescale`, with the reason.

The softmax of a row needs the row's maximum. While the row is read block by block, the maximum
grows from m to M. What was summed with m is still of use:

    sum of exp(x - M)  =  exp(m - M) * sum of exp(x - m)

That works because the factor, exp(m - M), is the same for each term: it depends on m and M and not
on x. `LAWS` says for each operation how the factor of its result follows from those of its
operands. A product multiplies them, a quotient divides them. An operation that is not in the table,
like `log`, changes its result by no such factor. The sums that can be kept are those of a softmax,
a log-sum-exp, a weighted mean, and attention.

Something else helps: what is the same for a whole row need not be known before the row ends.
`Splitter` moves it out of the sum.

    sum of (exp(x - m) / total) * v  =  (sum of exp(x - m) * v) / total

Both are tables: `LAWS`, and `APART` for a value that is a product in disguise. `using` adds rows to
them, for a learner's own law.

In PyTorch: nothing; `torch/nn/attention/flex_attention.py` has one template with the law of softmax
built in. The idea is public: "Flashlight: PyTorch Compiler Extensions to Accelerate Attention
Variants" (arXiv 2511.02043).
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from course_lib.lowering.ir import Reduction
from course_lib.lowering.reduction_kinds import MAX
from course_lib.scheduling.expressions import Expr, TreeBuilder

RUNNING = "running"
"""The operation of a leaf that stands for the result of a reduction over this row. Its detail is a
`Running`."""


@dataclass(frozen=True, eq=False)
class Running:
    """A reduction over the columns of a row: one number for each row, which is not final before the
    row's last block of columns."""

    node: Reduction
    # The value that it takes in at each column, as a tree
    term: Expr

    @property
    def is_maximum(self) -> bool:
        return self.node.combines is MAX


Powers = Mapping[Running, int]
"""How a value changes when running maxima change. `{m: n}`: when m becomes M, the value is
multiplied by exp(m - M) to the power of n. Empty: the value does not change."""


class CannotRescale(Exception):
    """A sum that can begin only when the number that its terms need is final. Its text is the
    reason."""


def running_in(tree: Expr) -> list[Running]:
    """The running reductions that a value needs. (The term of a running sum may need a running
    maximum: that one does not count.)"""
    return [node.detail for node in tree.walk() if node.op == RUNNING]


def powers_of(tree: Expr) -> Powers:
    """How a value changes when running maxima change. Raises `CannotRescale`."""
    if not running_in(tree):
        return {}
    if tree.op == RUNNING:
        raise CannotRescale(
            f"{names_of(tree)} is known when a row ends, and it is used where it can neither be rescaled nor wait"
        )
    law = LAWS.get(tree.op)
    if law is None:
        raise CannotRescale(
            f"'{tree.op}' of {names_of(tree)}, which is known when a row ends, has no law of rescaling"
        )
    return law(tree)


def can_rescale(tree: Expr) -> bool:
    """Does a value, when a maximum changes, stay as it is or change by a factor?"""
    try:
        powers_of(tree)
    except CannotRescale:
        return False
    return True


# --- the laws


def exponential(tree: Expr) -> Powers:
    """exp(x - m), with m the maximum of these very x: then it is at most 1, whatever x is."""
    difference = without_conversions(tree.args[0])
    if difference.op == "sub":
        x, subtracted = difference.args
        maximum = maximum_in(subtracted)
        if maximum and without_conversions(maximum.term) is without_conversions(x):
            return {maximum: 1}
    raise CannotRescale(
        "of 'exp' only exp(x - m) can be rescaled, where m is the running maximum of x"
    )


def product(tree: Expr) -> Powers:
    """The factors of both operands."""
    left, right = map(powers_of, tree.args)
    return added(left, right, 1)


def quotient(tree: Expr) -> Powers:
    """The factor of the numerator, divided by that of the denominator."""
    left, right = map(powers_of, tree.args)
    return added(left, right, -1)


def sum_of_two(tree: Expr) -> Powers:
    """Both terms must change alike."""
    left, right = map(powers_of, tree.args)
    if left != right:
        raise CannotRescale(
            f"the two operands of '{tree.op}' would be rescaled by different factors"
        )
    return left


def only_operand(tree: Expr) -> Powers:
    """What holds for the operand."""
    return powers_of(tree.args[0])


def choice(tree: Expr) -> Powers:
    """One of two values, which must change alike. (A 0 never differs: any factor leaves it 0.)

    The condition itself must not change with a running reduction."""
    condition, *values = tree.args
    if running_in(condition):
        raise CannotRescale(
            f"a condition needs {names_of(condition)}, which is known when a row ends"
        )

    # `masked(condition, value)` gives its detail, a constant, where the condition is false
    if tree.op == "masked" and tree.detail != 0:
        raise CannotRescale("a masked value is rescaled only where the mask gives 0")
    changing = [powers_of(value) for value in values if not is_zero(value)]
    if any(powers != changing[0] for powers in changing):
        raise CannotRescale("the two values of 'where' would be rescaled by different factors")
    if not changing:
        return {}
    return changing[0]


Law = Callable[[Expr], Powers]
"""A function in `LAWS`: takes the tree of a value and gives its powers. It may ask `powers_of` for
those of the operands. Raises `CannotRescale`."""

LAWS: dict[str, Law] = {
    "exp": exponential,
    "mul": product,
    "truediv": quotient,
    "add": sum_of_two,
    "sub": sum_of_two,
    "neg": only_operand,
    "to_dtype": only_operand,
    "where": choice,
    "masked": choice,
}
"""Operation → how its value changes when a running maximum does. A new law is one more row."""


def added(left: Powers, right: Powers, sign: int) -> Powers:
    """The powers of `left * right` (sign 1) or of `left / right` (sign -1)."""
    total = dict(left)
    for running, power in right.items():
        total[running] = total.get(running, 0) + sign * power
    # exp(m - M) to the power of 0 is 1: no change
    return {running: power for running, power in total.items() if power}


def without_conversions(tree: Expr) -> Expr:
    """The value before it was converted to another floating dtype."""
    while tree.op == "to_dtype" and tree.args[0].dtype.is_floating_point:
        tree = tree.args[0]
    return tree


def maximum_in(tree: Expr) -> Running | None:
    """The running maximum m that a tree stands for, or None.

    The tree is m itself, or what `logsumexp` subtracts: `where(abs(m) == inf, 0, m)`."""
    tree = without_conversions(tree)
    if tree.op == "where":
        condition, if_infinite, otherwise = tree.args
        if not is_zero(if_infinite) or not is_infinite(condition, otherwise):
            return None
        tree = otherwise
    if tree.op == RUNNING and tree.detail.is_maximum:
        return tree.detail
    return None


def is_infinite(condition: Expr, value: Expr) -> bool:
    """Is it `abs(value) == inf`?"""
    if condition.op != "eq":
        return False
    size, infinity = condition.args
    is_of_value = size.op == "abs" and size.args[0] is value
    return is_of_value and infinity.op == "constant" and infinity.detail == float("inf")


def is_zero(tree: Expr) -> bool:
    return tree.op == "constant" and tree.detail == 0


def names_of(tree: Expr) -> str:
    """The running reductions that a value needs, in words: "the row's amax and the row's sum"."""
    labels = dict.fromkeys(running.node.label or running.node.kind for running in running_in(tree))
    return " and ".join(f"the row's {label}" for label in labels)


# --- what can wait until the row ends


@dataclass(frozen=True)
class Apart:
    """A value written as the product `core * of_row`.

    `of_row` is the same for all columns of a row, so it can wait until the row ends: what is summed
    is `core`."""

    core: Expr
    of_row: Expr


TakeApart = Callable[[Expr, TreeBuilder], Apart | None]
"""A function in `APART`: takes the tree of a value, and a builder to make new trees with. Gives
None if this value is no such product."""

APART: dict[str, TakeApart] = {}
"""Operation → how its value is written as a product with something of the row. It is asked where
neither `LAWS` nor `Splitter` finds a way."""


@contextlib.contextmanager
def using(
    laws: Mapping[str, Law] | None = None, apart: Mapping[str, TakeApart] | None = None
) -> Iterator[None]:
    """Add rows to `LAWS` and `APART` until the block ends. A row takes the place of one with the
    same name.

    Exercise 16.3 puts a learner's law in here. All threads share the tables: meanwhile, compile in
    one thread only.
    """
    laws_before, apart_before = dict(LAWS), dict(APART)
    LAWS.update(laws or {})
    APART.update(apart or {})
    try:
        yield
    finally:
        LAWS.clear()
        LAWS.update(laws_before)
        APART.clear()
        APART.update(apart_before)


@dataclass(frozen=True)
class Split:
    """A sum over a row in two steps: totals that are summed column by column, and what is made of
    these totals when the row ends."""

    # The terms that are summed, each into a total of its own
    cores: tuple[Expr, ...]
    # For each core: how its total is rescaled when a running maximum changes
    powers: tuple[Powers, ...]
    # The result, as a tree whose leaves are the totals
    finish: Expr


@dataclass(frozen=True)
class Scale:
    """What a value is multiplied by (`op` is "mul") or divided by ("truediv")."""

    op: str
    by: Expr


Scales = tuple[Scale, ...]
"""Applied one after the other."""


class Splitter:
    """Moves out of a sum what is the same for a whole row."""

    def __init__(self, builder: TreeBuilder, is_of_row: Callable[[Expr], bool]) -> None:
        self.builder = builder
        # Is a value the same for all columns of a row?
        self.is_of_row = is_of_row
        self.cores: list[Expr] = []
        self.powers: list[Powers] = []

    def split(self, term: Expr) -> Split:
        """The sum of `term`, split. Raises `CannotRescale`."""
        finish = self.sum_of(term)
        return Split(tuple(self.cores), tuple(self.powers), finish)

    def sum_of(self, tree: Expr, scales: Scales = ()) -> Expr:
        """The sum over a row of `tree` times the scales, as a tree of totals.

        If the product has a law, it is one total. If not, `sum_of` is asked for its parts."""
        core = tree
        for scale in scales:
            core = self.builder.make(scale.op, (core, scale.by), tree.dtype)

        try:
            powers = powers_of(core)
        except CannotRescale:
            by_parts = self.sum_by_parts(tree, scales) or self.sum_by_own_law(tree, scales)
            if by_parts is None:
                raise
            return by_parts
        return self.total(core, powers)

    def sum_by_parts(self, tree: Expr, scales: Scales) -> Expr | None:
        """The sum made of the sums of operands. None where that is not possible.

        sum of (a + b)              =  sum of a  +  sum of b
        sum of -a                   =  -(sum of a)
        sum of a * r                =  (sum of a) * r                r is the same for the row
        sum of where(r, a, b)       =  where(r, sum of a, sum of b)
        """
        args = tree.args
        if tree.op in ("add", "sub"):
            left, right = (self.sum_of(each, scales) for each in args)
            return self.builder.make(tree.op, (left, right), tree.dtype)
        if tree.op in ("neg", "to_dtype") and args[0].dtype.is_floating_point:
            operand = self.sum_of(args[0], scales)
            return self.builder.make(tree.op, (operand,), tree.dtype)
        if tree.op in ("mul", "truediv"):
            return self.sum_of_product(tree, scales)
        if tree.op == "exp":
            return self.sum_of_exponential(tree, scales)

        # Only a condition for the whole row can wait. (Where a row has no weights at all, eager's
        # weights may be NaN.)
        if tree.op == "where" and self.is_of_row(args[0]):
            # A weight of 0 is summed as well: 0 times a value that is NaN is NaN
            yes, no = (self.sum_of(each, scales) for each in args[1:])
            return self.builder.make("where", (args[0], yes, no), tree.dtype)
        return None

    def sum_of_product(self, tree: Expr, scales: Scales) -> Expr | None:
        """The sum of `left * right` or `left / right`.

        An operand that is the same for the row waits. One that differs from column to column and
        has a law becomes a factor of the other operand's sum."""
        left, right = tree.args
        if self.is_of_row(right):
            return self.builder.make(tree.op, (self.sum_of(left, scales), right), tree.dtype)
        if tree.op == "mul" and self.is_of_row(left):
            return self.builder.make("mul", (left, self.sum_of(right, scales)), tree.dtype)

        if can_rescale(right):
            return self.sum_of(left, (Scale(tree.op, right), *scales))
        if tree.op == "mul" and can_rescale(left):
            return self.sum_of(right, (Scale("mul", left), *scales))
        return None

    def sum_of_exponential(self, tree: Expr, scales: Scales) -> Expr | None:
        """Where y is the same for the row:

            sum of exp((x - m) - y)     =  (sum of exp(x - m)) * exp(-y)

        A program writes that if it takes the exponential of a log-softmax."""
        make = self.builder.make
        difference = without_conversions(tree.args[0])
        if difference.op != "sub" or not self.is_of_row(difference.args[1]):
            return None

        # Without m, exp(x) may be infinite where exp(x - y) is not
        inner, of_row = difference.args
        without = make("exp", (inner,), tree.dtype)
        if not can_rescale(without) or not powers_of(without):
            return None

        minus = make("neg", (of_row,), of_row.dtype)
        factor = make("exp", (minus,), tree.dtype)
        return make("mul", (self.sum_of(without, scales), factor), tree.dtype)

    def sum_by_own_law(self, tree: Expr, scales: Scales) -> Expr | None:
        """The sum by a row of `APART`; None if the table has none for this value.

        Raises `CannotRescale` if that row is wrong: what shall wait is not the same for the whole
        row, or what is left has no law."""
        take_apart = APART.get(tree.op)
        if take_apart is None:
            return None
        apart = take_apart(tree, self.builder)
        if apart is None:
            return None

        if not self.is_of_row(apart.of_row):
            raise CannotRescale(
                f"the law for '{tree.op}' makes something wait that differs from column to column"
            )
        if not can_rescale(apart.core):
            raise CannotRescale(f"what the law for '{tree.op}' leaves as core has no law itself")
        core = self.sum_of(apart.core, scales)
        return self.builder.make("mul", (core, apart.of_row), tree.dtype)

    def total(self, core: Expr, powers: Powers) -> Expr:
        """A leaf that stands for the sum of `core` over a row. Equal cores share one total."""
        if core not in self.cores:
            self.cores.append(core)
            self.powers.append(powers)
        return self.builder.make("total", (), core.dtype, self.cores.index(core))
