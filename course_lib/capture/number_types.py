"""Which type has a number that is computed of numbers that nobody knows yet?

In:  a function of Python's, and its arguments: numbers, some of them symbols without a value.
Out: int or float, where it is the same for all values; None where the value decides
     (`max(x, 1)` of a float x, `(-8.0) ** y`, which may be complex).

Capture needs it for what only the data says: the graph computes `math.sin(n)` by Python's own
function in each call, and capture has to say now whether an int or a float comes of it.
In PyTorch: `torch/utils/_sympy/functions.py`, where each function of sympy says it of itself.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import torch

WHOLE = {operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg}
WHOLE |= {operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod}
WHOLE |= {operator.pos, abs}
"""Functions that give an int for ints, and a float where a float takes part."""
ROUNDING = {int, round, math.floor, math.ceil, math.trunc}
"""Functions that give an int for one number."""
POWERS = {operator.pow, operator.ipow, pow}
EXTREMES = {max: "__sym_max__", min: "__sym_min__"}
"""Python's function → the method of a symbolic int that asks for no value."""
NAMES_OF_FLOATS = (
    "acos acosh asin asinh atan atan2 atanh copysign cos cosh degrees erf erfc exp exp2 expm1 fabs "
    "fmod gamma hypot lgamma log log10 log1p log2 pow radians sin sinh sqrt tan tanh"
)
GIVE_A_FLOAT = {float, operator.truediv, operator.itruediv}
GIVE_A_FLOAT |= {getattr(math, name) for name in NAMES_OF_FLOATS.split()}
"""Functions that give a float for whatever numbers."""


def type_of_result(function: Any, args: Sequence[Any]) -> type[int] | type[float] | None:
    """int or float; None where only the values say which, or where it may be something else."""
    if function in GIVE_A_FLOAT:
        return float
    if function in ROUNDING and len(args) == 1:
        return int
    if function is round:
        return float if is_float(args[0]) else None
    if function in WHOLE:
        return float if any(map(is_float, args)) else int
    if function in EXTREMES:
        return float if all(map(is_float, args)) else None
    return type_of_power(*args) if function in POWERS else None


def type_of_power(base: Any, exponent: Any, *modulus: Any) -> type[int] | type[float] | None:
    """The same of `base ** exponent`. A negative base may give a complex number."""
    if modulus:
        return None
    if type(exponent) is int:
        is_int = exponent >= 0 and not is_float(base)
        return int if is_int else float
    is_whole = type(exponent) is float and exponent.is_integer()
    is_positive = type(base) is float and base > 0
    return float if is_whole or is_positive else None


def unchanged(number: Any) -> set[Any]:
    """The functions that give this number back as it is."""
    if type(number) not in (torch.SymInt, torch.SymFloat):
        return set()
    return {float, operator.pos} if is_float(number) else {*ROUNDING, operator.pos}


def is_float(number: Any) -> bool:
    return isinstance(number, (float, torch.SymFloat))


def largest_of_symbols(function: Any, numbers: Sequence[Any]) -> Any:
    """`max(numbers)`, or `min`, of ints of which no value is known: one more symbol."""
    symbol, *others = sorted(numbers, key=lambda number: type(number) is int)
    for number in others:
        symbol = getattr(symbol, EXTREMES[function])(number)
    return symbol
