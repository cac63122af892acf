"""The law of rescaling: when a sum can be kept although a number that all its terms need is not
final yet.

In:  the term of a sum as a tree, in which reductions that still run are leaves (`running`).
Out: its `Powers`: by which factor all earlier terms change when such a number changes. Or
     `CannotRescale`, with the reason.

The softmax of a row needs its maximum. While the row is read, the maximum `m` grows to `M`. What
was summed is still of use:

    sum of exp(x - M)  =  exp(m - M) * sum of exp(x - m)

For the factor must be the same for each term, it may depend on `m` and `M`, and not on `x`. `LAWS`
says for each operation how the factors of its operands make that of its result: those of a product
multiply, those of a quotient divide. An operation without a law, like `log`, has no factor. A
weighted sum (attention), a log-sum-exp, a mean with weights are such sums.

What is the same for a whole row need not be known before the row ends: `split` moves it behind the
sum.

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
"""The operation of a leaf that stands for the result of a reduction that still runs: its detail is
a `Running`."""


@dataclass(frozen=True, eq=False)
class Running:
    """A reduction over the loop that is walked in blocks: one number for each row, not final before
    the last block."""

    node: Reduction
    # What it combines, as a tree
    term: Expr

    @property
    def is_maximum(self) -> bool:
        return self.node.combines is MAX


Powers = Mapping[Running, int]
"""Maximum m → n: when m becomes M, the value is multiplied by exp(m - M) to the power of n. Empty:
it does not change."""


class CannotRescale(Exception):
    """A sum that must wait until a number is final. Its text is the reason."""


def running_in(tree: Expr) -> list[Running]:
    """The running reductions that a value needs itself (not those that these need in turn)."""
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
    """Does its value change by a factor, if at all?"""
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
    """One of two values, or a value and 0 (which any factor leaves as it is).

    The condition must not change."""
    condition, *values = tree.args
    if running_in(condition):
        raise CannotRescale(
            f"a condition needs {names_of(condition)}, which is known when a row ends"
        )

    if tree.op == "masked" and tree.detail != 0:
        raise CannotRescale("a masked value is rescaled only where the mask gives 0")
    changing = [powers_of(value) for value in values if not is_zero(value)]
    if any(powers != changing[0] for powers in changing):
        raise CannotRescale("the two values of 'where' would be rescaled by different factors")
    return changing[0] if changing else {}


Law = Callable[[Expr], Powers]
"""What a row of `LAWS` is: it gets the value, and may ask `powers_of` for those of its operands.
Raises `CannotRescale`."""

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
    """The powers of a product (sign 1) or a quotient (sign -1)."""
    total = dict(left)
    for running, power in right.items():
        total[running] = total.get(running, 0) + sign * power
    return {running: power for running, power in total.items() if power}


def without_conversions(tree: Expr) -> Expr:
    """The value before it was converted to another floating dtype."""
    while tree.op == "to_dtype" and tree.args[0].dtype.is_floating_point:
        tree = tree.args[0]
    return tree


def maximum_in(tree: Expr) -> Running | None:
    """The running maximum m that this is: m itself, or `where(abs(m) == inf, 0, m)`, which
    logsumexp subtracts."""
    tree = without_conversions(tree)
    if tree.op == "where":
        condition, zero, tree = tree.args
        if not is_zero(zero) or not is_infinite(condition, tree):
            return None
    is_maximum = tree.op == RUNNING and tree.detail.is_maximum
    return tree.detail if is_maximum else None


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
    """The running reductions in words."""
    labels = dict.fromkeys(running.node.label or running.node.kind for running in running_in(tree))
    return " and ".join(f"the row's {label}" for label in labels)


# --- what can wait


@dataclass(frozen=True)
class Apart:
    """A value as `core` times `of_row`, which is the same for all columns of a row and so can wait
    until the row ends."""

    core: Expr
    of_row: Expr


TakeApart = Callable[[Expr, TreeBuilder], Apart | None]
"""What a row of `APART` is: it gets the value, and a builder to make new trees with. None: this
value is no such product."""

APART: dict[str, TakeApart] = {}
"""Operation → how its value is a product with something of the row. Asked where `LAWS` and
`Splitter` have no way."""


@contextlib.contextmanager
def using(
    laws: Mapping[str, Law] | None = None, apart: Mapping[str, TakeApart] | None = None
) -> Iterator[None]:
    """Until the block ends the scheduler goes by these rows, too, and by them where it has one of
    the same name.

    Exercise 16.3 puts a learner's law in here. The tables are those of the process: compile in one
    thread only meanwhile.
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
    """A sum over a row, in two halves: what is summed column by column, and what is done with the
    totals once a row."""

    # The terms that are summed, each into a total of its own
    cores: tuple[Expr, ...]
    # For each core: how its total is rescaled when a running maximum changes
    powers: tuple[Powers, ...]
    # The result, as a tree whose leaves are the totals
    finish: Expr


Factors = tuple[tuple[str, Expr], ...]
"""What a value is multiplied by, or divided by: ("mul", x), ("truediv", y), in turn."""


class Splitter:
    """Moves behind the sum what is the same for a whole row."""

    def __init__(self, builder: TreeBuilder, is_of_row: Callable[[Expr], bool]) -> None:
        self.builder = builder
        # Is a value the same for all columns of a row?
        self.is_of_row = is_of_row
        self.cores: list[Expr] = []
        self.powers: list[Powers] = []

    def split(self, term: Expr) -> Split:
        """The sum of `term`, split. Raises `CannotRescale`."""
        finish = self.behind(term)
        return Split(tuple(self.cores), tuple(self.powers), finish)

    def behind(self, tree: Expr, factors: Factors = ()) -> Expr:
        """The sum over a row of `tree` times the factors, as a tree of totals."""
        core = tree
        for op, factor in factors:
            core = self.builder.make(op, (core, factor), tree.dtype)
        try:
            powers = powers_of(core)
        except CannotRescale:
            parts = self.parts_of(tree, factors) or self.taken_apart(tree, factors)
            if parts is None:
                raise
            return parts
        return self.total(core, powers)

    def taken_apart(self, tree: Expr, factors: Factors) -> Expr | None:
        """The same by a row of `APART`.

        Raises `CannotRescale` if what shall wait is not the same for the whole row."""
        take_apart = APART.get(tree.op)
        apart = take_apart(tree, self.builder) if take_apart else None
        if apart is None:
            return None
        if not self.is_of_row(apart.of_row):
            raise CannotRescale(
                f"the law for '{tree.op}' makes something wait that differs from column to column"
            )
        if not can_rescale(apart.core):
            raise CannotRescale(f"what the law for '{tree.op}' leaves as core has no law itself")
        return self.builder.make(
            "mul", (self.behind(apart.core, factors), apart.of_row), tree.dtype
        )

    def parts_of(self, tree: Expr, factors: Factors) -> Expr | None:
        """The same where the sum may be moved inside the operation: it is linear in what moves
        along the row."""
        make, args = self.builder.make, tree.args
        if tree.op in ("add", "sub"):
            left, right = (self.behind(each, factors) for each in args)
            return make(tree.op, (left, right), tree.dtype)
        if tree.op in ("neg", "to_dtype") and args[0].dtype.is_floating_point:
            return make(tree.op, (self.behind(args[0], factors),), tree.dtype)
        if tree.op in ("mul", "truediv"):
            return self.parts_of_product(tree, factors)
        if tree.op == "exp":
            return self.parts_of_exponential(tree, factors)

        # Where a row has no weights at all, eager's weights may be NaN: only a condition for the
        # whole row can wait.
        if tree.op == "where" and self.is_of_row(args[0]):
            # (A weight of 0 is one, too: 0 times NaN is NaN.)
            yes, no = (self.behind(each, factors) for each in args[1:])
            return make("where", (args[0], yes, no), tree.dtype)
        return None

    def parts_of_product(self, tree: Expr, factors: Factors) -> Expr | None:
        """What is the same for the row waits; what is not, and has powers, goes with the other
        operand."""
        make, (left, right) = self.builder.make, tree.args
        if self.is_of_row(right):
            return make(tree.op, (self.behind(left, factors), right), tree.dtype)
        if tree.op == "mul" and self.is_of_row(left):
            return make("mul", (left, self.behind(right, factors)), tree.dtype)

        if can_rescale(right):
            return self.behind(left, ((tree.op, right), *factors))
        if tree.op == "mul" and can_rescale(left):
            return self.behind(right, (("mul", left), *factors))
        return None

    def parts_of_exponential(self, tree: Expr, factors: Factors) -> Expr | None:
        """exp((x - m) - y) is exp(x - m) * exp(-y): the log-softmax of somebody who takes its
        exponential after all."""
        difference, make = without_conversions(tree.args[0]), self.builder.make
        if difference.op != "sub" or not self.is_of_row(difference.args[1]):
            return None

        inner, of_row = difference.args
        without = make("exp", (inner,), tree.dtype)
        if not can_rescale(without) or not powers_of(without):
            return None  # exp(x) alone may be infinite
        factor = make("exp", (make("neg", (of_row,), of_row.dtype),), tree.dtype)
        return make("mul", (self.behind(without, factors), factor), tree.dtype)

    def total(self, core: Expr, powers: Powers) -> Expr:
        """A leaf for the sum over a row of `core`."""
        if core not in self.cores:
            self.cores.append(core)
            self.powers.append(powers)
        return self.builder.make("total", (), core.dtype, self.cores.index(core))
