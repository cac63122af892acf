"""Pointwise operators as formulas: one function each.

In:  `Term`s, one element of each operand, already in the dtype to compute with; Python numbers as
     they stand in the graph.
Out: a `Term`. `POINTWISE` is the table: ATen operator → `Formula`.

`Term` puts Python's operators over `ops`, so a formula here reads like the one in the
documentation. `silu` is `x * x.sigmoid()`.
In PyTorch: the `register_pointwise` calls of `torch/_inductor/lowering.py`, and
`torch/_decomp/decompositions.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, partialmethod, reduce
from typing import Any, Literal, NamedTuple, TypeVar

import sympy
import torch
from torch.utils._sympy.functions import FloatPow, FloatTrueDiv, IntTrueDiv, ToFloat

from course_lib import versions
from course_lib.lowering.ops import BINARY, BOOLEAN, UNARY, Handler, Value
from course_lib.sizes import NeedsNumbers, Real, Size

aten = torch.ops.aten
BOUNDS_SATURATE = versions.minor(torch.__version__) >= (2, 15)
"""From torch 2.15 on a bound of `clamp` that the dtype cannot hold is no bound."""

BOOL_ARITHMETIC = {
    "add": "logical_or",
    "maximum": "logical_or",
    "bitwise_or": "logical_or",
    "mul": "logical_and",
    "minimum": "logical_and",
    "bitwise_and": "logical_and",
    "bitwise_xor": "ne",
}
"""On torch.bool arithmetic is logic: True + True is True."""


class NoLoopForm(Exception):
    """Raised by a rule for a case that it leaves to torch's own operator; the text says why."""


@dataclass(frozen=True, eq=False)
class Term:
    """One element of a tensor under whatever handler runs the loop."""

    ops: Handler
    value: Value
    dtype: torch.dtype

    def binary(self, op: str, other: Any, swap: bool = False) -> "Term":
        """`ops.<op>` of this term and another, or a number, in this term's dtype.

        `swap`: the other comes first."""
        if self.dtype is torch.bool:
            op = BOOL_ARITHMETIC.get(op, op)

        operands = [self.value, self.like(other).to(self.dtype).value]
        if swap:
            operands.reverse()
        return self.result(op, operands)

    def unary(self, op: str) -> "Term":
        """`ops.<op>` of this term."""
        return self.result(op, [self.value])

    def result(self, op: str, operands: list[Value]) -> "Term":
        """What an operation gives: a bool for those that answer a question, else this term's
        dtype."""
        value = getattr(self.ops, op)(*operands)
        dtype = torch.bool if op in BOOLEAN else self.dtype
        return Term(self.ops, value, dtype)

    def to(self, dtype: torch.dtype) -> "Term":
        """Converted, as `tensor.to(dtype)` does."""
        if dtype == self.dtype:
            return self
        return Term(self.ops, self.ops.to_dtype(self.value, dtype), dtype)

    def like(self, value: "Term | bool | int | float") -> "Term":
        """A number as a term of this one's dtype; a term as it is."""
        if isinstance(value, Term):
            return value
        if isinstance(value, Size):
            number = self.ops.index_expr(value.expr, self.dtype)
        elif isinstance(value, Real):
            double = in_double(self.ops, value.expr)
            return Term(self.ops, double, torch.float64).to(self.dtype)
        else:
            number = self.ops.constant(value, self.dtype)
        return Term(self.ops, number, self.dtype)

    def where(self, yes: Any, no: Any) -> "Term":
        """`yes` where this (a bool) is true, else `no`; one of them is a term."""
        known_term = yes if isinstance(yes, Term) else no
        if_true = known_term.like(yes).value
        if_false = known_term.like(no).value

        chosen = self.ops.where(self.value, if_true, if_false)
        return Term(self.ops, chosen, known_term.dtype)

    def __getattr__(self, op: str) -> Callable[..., "Term"]:
        """x.erf(), x.maximum(y), ...: every operation of `UNARY` and `BINARY`."""
        if op in BINARY:
            return partial(self.binary, op)
        if op in UNARY:
            return partial(self.unary, op)
        raise AttributeError(op)

    # x + y, 1 + x, and so on
    __add__ = partialmethod(binary, "add")
    __radd__ = partialmethod(binary, "add", swap=True)
    __sub__ = partialmethod(binary, "sub")
    __rsub__ = partialmethod(binary, "sub", swap=True)
    __mul__ = partialmethod(binary, "mul")
    __rmul__ = partialmethod(binary, "mul", swap=True)
    __truediv__ = partialmethod(binary, "truediv")
    __rtruediv__ = partialmethod(binary, "truediv", swap=True)
    __mod__ = partialmethod(binary, "mod")
    __rmod__ = partialmethod(binary, "mod", swap=True)
    __pow__ = partialmethod(binary, "pow")
    __rpow__ = partialmethod(binary, "pow", swap=True)
    __floordiv__ = partialmethod(binary, "floordiv")

    __and__ = partialmethod(binary, "bitwise_and")
    __or__ = partialmethod(binary, "bitwise_or")
    __xor__ = partialmethod(binary, "bitwise_xor")
    __lt__ = partialmethod(binary, "lt")
    __le__ = partialmethod(binary, "le")
    __gt__ = partialmethod(binary, "gt")
    __ge__ = partialmethod(binary, "ge")

    def __invert__(self) -> "Term":
        """~x: of a bool, not."""
        if self.dtype is torch.bool:
            return self.unary("logical_not")
        return self.unary("bitwise_not")


def in_double(ops: Handler, formula: sympy.Expr) -> Value:
    """A floating-point number that is computed of sizes, in double precision as Python computes
    it."""
    if formula.is_number:
        return ops.constant(float(formula), torch.float64)
    if formula.is_integer:
        return ops.index_expr(formula, torch.float64)

    parts = [in_double(ops, part) for part in formula.args]
    if isinstance(formula, ToFloat):
        return parts[0]
    for kinds, op in REAL_OPERATIONS:
        if isinstance(formula, kinds):
            return reduce(getattr(ops, op), parts)
    raise NeedsNumbers(f"a kernel cannot compute {formula}")


REAL_OPERATIONS: tuple[tuple[Any, str], ...] = (
    ((IntTrueDiv, FloatTrueDiv), "truediv"),
    ((FloatPow, sympy.Pow), "pow"),
    (sympy.Add, "add"),
    (sympy.Mul, "mul"),
)
"""What Python's arithmetic on floats is in torch's formulas, and here."""

Compute = Literal["result", "operands", "own"]
"""In which dtype an element is computed: the result's (halves: float32), what the operands promote
to, or each its own."""


class Formula(NamedTuple):
    """How one element is computed, and in which dtype."""

    function: Callable[..., Term]
    compute: Compute = "result"
    # True if eager rounds a number beside halves (float16, bfloat16) to their dtype before it
    # computes
    rounds_numbers: bool = False


POINTWISE: dict[str, Formula] = {}
"""By the name of the operator; all its overloads (Tensor, Scalar, ...) are alike, since a number
lifts to a term."""

Function = TypeVar("Function", bound=Callable[..., Term])


def formula(
    compute: Compute = "result", rounds_numbers: bool = False
) -> Callable[[Function], Function]:
    """Register a function as the formula of the operator that it is named after."""

    def register(function: Function) -> Function:
        POINTWISE[function.__name__] = Formula(function, compute, rounds_numbers)
        return function

    return register


# --- operators that are one virtual operation


def one_operation(op: str, x: Term) -> Term:
    """exp, sin, ..."""
    return x.unary(op)


def two_operands(op: str, x: Term, y: Any) -> Term:
    """mul, atan2, ... (Not add and sub: these have a factor `alpha`.)"""
    return x.binary(op, y)


def second_of_equals(op: str, x: Term, y: Any) -> Term:
    """maximum and minimum: of two equals, 0.0 and -0.0, torch gives the second, and `ops` the
    first."""
    return x.binary(op, y, swap=True)


def whole(op: str, x: Term, decimals: int = 0) -> Term:
    """floor, ceil, ...: nothing to do for integers."""
    if decimals:
        raise NoLoopForm("rounding to decimals runs as torch's own operator")
    if not x.dtype.is_floating_point:
        return x
    return x.unary(op)


for _op in UNARY:
    if hasattr(aten, _op):
        POINTWISE[_op] = Formula(partial(one_operation, _op))
for _op in ("floor", "ceil", "round", "trunc"):
    POINTWISE[_op] = Formula(partial(whole, _op))
for _op in ("eq", "ne", "lt", "le", "gt", "ge"):
    POINTWISE[_op] = Formula(partial(two_operands, _op), "operands", rounds_numbers=True)
for _op in ("bitwise_and", "bitwise_or", "bitwise_xor", "mul", "atan2"):
    POINTWISE[_op] = Formula(partial(two_operands, _op))
for _op in ("maximum", "minimum"):
    POINTWISE[_op] = Formula(partial(second_of_equals, _op))


# --- arithmetic


@formula(rounds_numbers=True)
def add(x: Term, y: Any, alpha: Any = 1) -> Term:
    if alpha != 1:
        y = alpha * y
    return x + y


@formula(rounds_numbers=True)
def sub(x: Term, y: Any, alpha: Any = 1) -> Term:
    if alpha != 1:
        y = alpha * y
    return x - y


def dividend(x: Any, y: Any) -> Term:
    """`x`, which is to be divided by `y`, as a term.

    Raises `NoLoopForm` where `y` may be an integer 0."""
    if isinstance(y, Term):
        x = y.like(x)  # 7 // y
    if x.dtype.is_floating_point:
        return x

    # What a symbolic size is, only the call knows. 256 is 0 as uint8.
    is_known = not isinstance(y, (Term, Size, Real))
    if not is_known or torch.tensor(y).to(x.dtype) == 0:
        why = "dividing integers by a tensor must raise where the divisor is 0"
        raise NoLoopForm(f"{why}: it runs as torch's own operator")
    return x


@formula()
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Term:
    if rounding_mode is None:
        return x / y

    x = dividend(x, y)
    if rounding_mode == "floor":
        return x // y
    if x.dtype.is_floating_point:
        return (x / y).trunc()

    # For integers: floor division gives one less than wanted, if there is a rest and the signs
    # differ.
    y = x.like(y)
    quotient = x // y
    has_rest = (x % y).ne(0)
    signs_differ = (x < 0) ^ (y < 0)
    too_low = has_rest & signs_differ
    return too_low.where(quotient + 1, quotient)


@formula(rounds_numbers=True)
def remainder(x: Any, y: Any) -> Term:
    return dividend(x, y) % y


@formula(rounds_numbers=True)
def fmod(x: Any, y: Any) -> Term:
    return dividend(x, y).fmod(y)


def power(x: Any, exponent: Any) -> Term:
    """The exponents that torch treats specially are cheaper without `pow`, and round alike."""
    if isinstance(exponent, Term):
        return x**exponent
    # Integers have no root, and of a reciprocal eager says what is wrong with it.
    if not x.dtype.is_floating_point and exponent not in (2, 3):
        return x**exponent

    if exponent == 0.5:
        return x.sqrt()
    if exponent == -0.5:
        return x.rsqrt()
    if exponent == -1:
        return x.reciprocal()
    if exponent == 2:
        return x * x
    if exponent == 3:
        return x * x * x
    if exponent == -2:
        return 1 / (x * x)
    return x**exponent


def half_power(x: Any, exponent: Any) -> Term:
    """`x ** exponent` for float16 on the CPU. There torch does not compute an exponent of 0.5 as a
    root, and the two differ for -0.0 and -inf."""
    if exponent in (0.5, -0.5):
        return x**exponent
    return power(x, exponent)


POINTWISE["pow"] = Formula(power, rounds_numbers=True)


@formula()
def frac(x: Term) -> Term:
    return x - x.trunc()


@formula()
def sign(x: Term) -> Term:
    if x.dtype is torch.bool:
        return x

    is_positive = (x > 0).to(x.dtype)
    is_negative = (x < 0).to(x.dtype)
    return is_positive - is_negative


def bound(x: Term, number: Any) -> Any:
    """A bound that x's dtype cannot hold is none from torch 2.15 on.

    (Before, -1 of unsigned numbers is 255.)"""
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    whole_numbers = not x.dtype.is_floating_point and x.dtype is not torch.bool
    if not (BOUNDS_SATURATE and is_number and whole_numbers):
        return number

    limits = torch.iinfo(x.dtype)
    if limits.min <= number <= limits.max:
        return number
    return None


@formula()
def clamp(x: Term, min: Any = None, max: Any = None) -> Term:
    """Where x is equal to a bound that is a number, it stays (-0.0 does); of a tensor of bounds
    torch takes the bound."""
    low, high = bound(x, min), bound(x, max)
    if low is not None:
        x = x.binary("maximum", low, swap=isinstance(low, Term))
    if high is not None:
        x = x.binary("minimum", high, swap=isinstance(high, Term))
    return x


# --- logic and bits


@formula("own")
def logical_not(x: Term) -> Term:
    return x.to(torch.bool).logical_not()


@formula("own")
def logical_and(x: Term, y: Term) -> Term:
    return x.to(torch.bool) & y.to(torch.bool)


@formula("own")
def logical_or(x: Term, y: Term) -> Term:
    return x.to(torch.bool) | y.to(torch.bool)


@formula("own")
def logical_xor(x: Term, y: Term) -> Term:
    return x.to(torch.bool) ^ y.to(torch.bool)


@formula()
def bitwise_not(x: Term) -> Term:
    return ~x


@formula("operands")
def isnan(x: Term) -> Term:
    return x.ne(x)


@formula("operands")
def isinf(x: Term) -> Term:
    if x.dtype.is_floating_point:
        return x.abs().eq(math.inf)
    return x.ne(x)  # never


# --- activations and their derivatives


@formula()
def relu(x: Term) -> Term:
    return x.maximum(0)


@formula()
def gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


@formula()
def silu(x: Term) -> Term:
    return x * x.sigmoid()


@formula()
def threshold_backward(grad: Term, x: Term, limit: Any) -> Term:
    return (x <= limit).where(0, grad)


@formula()
def tanh_backward(grad: Term, y: Term) -> Term:
    return grad * (1 - y * y)
