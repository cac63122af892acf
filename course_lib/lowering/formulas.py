"""Pointwise operators as formulas: one line each.

In:  `Term`s, one element of each operand, already in the dtype to compute with; Python numbers as they stand in the graph.
Out: a `Term`. `POINTWISE` is the table: ATen operator → `Formula`.

`Term` puts Python's operators over `ops`, so a formula here reads like the one in the documentation. `silu` is `x * x.sigmoid()`.
In PyTorch: the `register_pointwise` calls of `torch/_inductor/lowering.py`, and `torch/_decomp/decompositions.py`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, partialmethod
from typing import Any, Literal, NamedTuple

import torch

from course_lib import versions
from course_lib.lowering.ops import BINARY, BOOLEAN, UNARY, Handler, Value

aten = torch.ops.aten
BOUNDS_SATURATE = versions.minor(torch.__version__) >= (2, 15)
BOOL_ARITHMETIC = {"bitwise_xor": "ne"} | dict.fromkeys(
    ("add", "maximum", "bitwise_or"), "logical_or"
)
BOOL_ARITHMETIC |= dict.fromkeys(("mul", "minimum", "bitwise_and"), "logical_and")
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
        if self.dtype is torch.bool:
            op = BOOL_ARITHMETIC.get(op, op)
        a, b = self.value, self.like(other).to(self.dtype).value
        return Term(
            self.ops,
            getattr(self.ops, op)(*((b, a) if swap else (a, b))),
            torch.bool if op in BOOLEAN else self.dtype,
        )

    def to(self, dtype: torch.dtype) -> "Term":
        return (
            self
            if dtype == self.dtype
            else Term(self.ops, self.ops.to_dtype(self.value, dtype), dtype)
        )

    def like(self, value: "Term | bool | int | float") -> "Term":
        """A number as a term of this one's dtype; a term as it is."""
        return (
            value
            if isinstance(value, Term)
            else Term(self.ops, self.ops.constant(value, self.dtype), self.dtype)
        )

    def where(self, yes: Any, no: Any) -> "Term":
        """`yes` where this (a bool) is true, else `no`; one of them is a term."""
        one = yes if isinstance(yes, Term) else no
        return Term(
            self.ops, self.ops.where(self.value, one.like(yes).value, one.like(no).value), one.dtype
        )

    def __getattr__(self, op: str) -> Callable[..., "Term"]:
        """x.erf(), x.maximum(y), ...: every operation of `UNARY` and `BINARY`."""
        if op in BINARY:
            return lambda other: self.binary(op, other)
        if op not in UNARY:
            raise AttributeError(op)
        return lambda: Term(
            self.ops, getattr(self.ops, op)(self.value), torch.bool if op in BOOLEAN else self.dtype
        )

    __add__, __radd__ = partialmethod(binary, "add"), partialmethod(binary, "add", swap=True)
    __sub__, __rsub__ = partialmethod(binary, "sub"), partialmethod(binary, "sub", swap=True)
    __mul__, __rmul__ = partialmethod(binary, "mul"), partialmethod(binary, "mul", swap=True)
    __truediv__, __rtruediv__ = (
        partialmethod(binary, "truediv"),
        partialmethod(binary, "truediv", swap=True),
    )
    __mod__, __rmod__ = partialmethod(binary, "mod"), partialmethod(binary, "mod", swap=True)
    __pow__, __rpow__ = partialmethod(binary, "pow"), partialmethod(binary, "pow", swap=True)
    __floordiv__ = partialmethod(binary, "floordiv")
    __and__, __or__, __xor__ = map(
        partialmethod, [binary] * 3, ("bitwise_and", "bitwise_or", "bitwise_xor")
    )
    __lt__, __le__, __gt__, __ge__ = map(partialmethod, [binary] * 4, ("lt", "le", "gt", "ge"))
    __invert__ = lambda a: a.logical_not() if a.dtype is torch.bool else a.bitwise_not()


class Formula(NamedTuple):
    """How one element is computed, and in which dtype: "result"'s (halves: float32), what "operands" promote to, or its "own"."""

    function: Callable[..., Term]
    compute: Literal["result", "operands", "own"] = "result"
    rounds: bool = False  # Does eager round a number beside halves?


def gelu(x: Term, approximate: str = "none") -> Term:
    if approximate == "tanh":
        return 0.5 * x * (1 + (math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)).tanh())
    return 0.5 * x * (1 + (x * math.sqrt(0.5)).erf())


def power(x: Any, exponent: Any) -> Term:
    """The exponents that torch treats specially are cheaper without `pow`, and round alike."""
    if isinstance(exponent, Term) or (not x.dtype.is_floating_point and exponent not in (2, 3)):
        return x**exponent
    special = {
        0.5: x.sqrt,
        -0.5: x.rsqrt,
        -1: x.reciprocal,
        2: lambda: x * x,
        3: lambda: x * x * x,
        -2: lambda: 1 / (x * x),
    }
    return special[exponent]() if exponent in special else x**exponent


def half_power(x: Any, exponent: Any) -> Term:
    """Of float16 numbers, on the CPU: a root is no special case of torch's there, and differs for -0.0 and -inf."""
    return x**exponent if exponent in (0.5, -0.5) else power(x, exponent)


def dividend(x: Any, y: Any) -> Term:
    """`x`, which is to be divided by `y`, as a term. Raises `NoLoopForm` where `y` may be an integer 0."""
    x = y.like(x) if isinstance(y, Term) else x  # 7 // y
    # 256 is 0 as uint8
    if not x.dtype.is_floating_point and (isinstance(y, Term) or torch.tensor(y).to(x.dtype) == 0):
        why = "dividing integers by a tensor must raise where the divisor is 0"
        raise NoLoopForm(f"{why}: it runs as torch's own operator")
    return x


def divide(x: Any, y: Any, rounding_mode: str | None = None) -> Term:
    if rounding_mode is None:
        return x / y
    x = dividend(x, y)
    if rounding_mode == "floor":
        return x // y
    if x.dtype.is_floating_point:
        return (x / y).trunc()
    y = x.like(y)
    # of integers: floor division is one too low where it is not even and the signs differ
    quotient = x // y
    return ((x % y).ne(0) & ((x < 0) ^ (y < 0))).where(quotient + 1, quotient)


def bound(x: Term, number: Any) -> Any:
    """A bound that x's dtype cannot hold is none from torch 2.15 on. (Before, -1 of unsigned numbers is 255.)"""
    is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
    whole_numbers = not x.dtype.is_floating_point and x.dtype is not torch.bool
    if not (BOUNDS_SATURATE and is_number and whole_numbers):
        return number
    limits = torch.iinfo(x.dtype)
    return number if limits.min <= number <= limits.max else None


def clamp(x: Term, min: Any = None, max: Any = None) -> Term:
    """Where x is equal to a bound that is a number, it stays (-0.0 does); of a tensor of bounds torch takes the bound."""
    min, max = bound(x, min), bound(x, max)
    if min is not None:
        x = x.binary("maximum", min, swap=isinstance(min, Term))
    return x if max is None else x.binary("minimum", max, swap=isinstance(max, Term))


def whole(op: str, x: Term, decimals: int = 0) -> Term:
    """floor, ceil, ...: nothing to do for integers."""
    if decimals:
        raise NoLoopForm("rounding to decimals runs as torch's own operator")
    return getattr(x, op)() if x.dtype.is_floating_point else x


F = Formula
POINTWISE: dict[str, Formula] = {
    **{op: F(lambda x, op=op: getattr(x, op)()) for op in UNARY if hasattr(aten, op)},
    **{op: F(partial(whole, op)) for op in ("floor", "ceil", "round", "trunc")},
    **{
        op: F(lambda x, y, op=op: x.binary(op, y), "operands", rounds=True)
        for op in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    **{op: F(lambda x, y, op=op: x.binary(op, y)) for op in BINARY if op.startswith("bitwise_")},
    **{op: F(lambda x, y, op=op: x.binary(op, y)) for op in ("mul", "atan2")},
    # of two equals, 0.0 and -0.0, torch gives the second, and `ops` the first
    **{op: F(lambda x, y, op=op: x.binary(op, y, swap=True)) for op in ("maximum", "minimum")},
    # arithmetic
    "add": F(lambda x, y, alpha=1: x + y if alpha == 1 else x + alpha * y, rounds=True),
    "sub": F(lambda x, y, alpha=1: x - y if alpha == 1 else x - alpha * y, rounds=True),
    "div": F(divide),
    "remainder": F(lambda x, y: dividend(x, y) % y, rounds=True),
    "fmod": F(lambda x, y: dividend(x, y).fmod(y), rounds=True),
    "pow": F(power, rounds=True),
    "frac": F(lambda x: x - x.trunc()),
    "sign": F(lambda x: x if x.dtype is torch.bool else (x > 0).to(x.dtype) - (x < 0).to(x.dtype)),
    "clamp": F(clamp),
    # logic and bits
    "logical_not": F(lambda x: x.to(torch.bool).logical_not(), "own"),
    "logical_and": F(lambda x, y: x.to(torch.bool) & y.to(torch.bool), "own"),
    "logical_or": F(lambda x, y: x.to(torch.bool) | y.to(torch.bool), "own"),
    "logical_xor": F(lambda x, y: x.to(torch.bool) ^ y.to(torch.bool), "own"),
    "bitwise_not": F(lambda x: ~x),
    "isnan": F(lambda x: x.ne(x), "operands"),
    "isinf": F(
        lambda x: x.abs().eq(math.inf) if x.dtype.is_floating_point else x.ne(x), "operands"
    ),
    # activations
    "relu": F(lambda x: x.maximum(0)),
    "gelu": F(gelu),
    "silu": F(lambda x: x * x.sigmoid()),
    # their derivatives
    "threshold_backward": F(lambda grad, x, limit: (x <= limit).where(0, grad)),
    "tanh_backward": F(lambda grad, y: grad * (1 - y * y)),
}
"""By the name of the operator; all its overloads (Tensor, Scalar, ...) are alike, since a number lifts to a term."""
