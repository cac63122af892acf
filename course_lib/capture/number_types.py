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
"""Functions under which whole numbers stay whole: they give an int for ints, and a float where a
float takes part."""
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
    if function in WHOLE:
        if any(map(is_float, args)):
            return float
        return int

    # `round(n, 2)` and `max(1, 2)` of ints are left to the caller. `max(1, 2.0)` gives one or the
    # other.
    if function is round and is_float(args[0]):
        return float
    if function in EXTREMES and all(map(is_float, args)):
        return float
    if function in POWERS:
        return type_of_power(*args)
    return None


def type_of_power(base: Any, exponent: Any, *modulus: Any) -> type[int] | type[float] | None:
    """The same of `base ** exponent`. A negative base may give a complex number."""
    if modulus:
        return None

    # 2 ** 3 is an int, 2 ** -3 a float.
    if type(exponent) is int:
        if exponent >= 0 and not is_float(base):
            return int
        return float

    # 2.0 ** n is real for each n, and so is n ** 2.0; (-8.0) ** 0.5 is not.
    exponent_is_whole = type(exponent) is float and exponent.is_integer()
    base_is_positive = type(base) is float and base > 0
    if exponent_is_whole or base_is_positive:
        return float
    return None


def unchanged(number: Any) -> set[Any]:
    """The functions that give this number back as it is."""
    if type(number) not in (torch.SymInt, torch.SymFloat):
        return set()
    if is_float(number):
        return {float, operator.pos}
    return {*ROUNDING, operator.pos}


def is_float(number: Any) -> bool:
    """A float of Python's, or a symbol of one?"""
    return isinstance(number, (float, torch.SymFloat))


def largest_of_symbols(function: Any, numbers: Sequence[Any]) -> Any:
    """`max(numbers)`, or `min`, of ints of which no value is known: one more symbol."""
    symbols: list[Any] = [number for number in numbers if type(number) is not int]
    known_numbers = [number for number in numbers if type(number) is int]

    # Only a symbol has the method, so one of them comes first.
    largest = symbols[0]
    for number in [*symbols[1:], *known_numbers]:
        method = getattr(largest, EXTREMES[function])
        largest = method(number)
    return largest
