"""Numbers that are symbols: the operators of numbers, and which results may be symbols, too.

In:  a function and its arguments, some of them `torch.SymInt`s or `torch.SymFloat`s.
Out: answers to questions: is this arithmetic, does only the data say this number, what is it at
     this call?

How a symbol is made, and what is noted about it: `shapes.py`.
In PyTorch: `torch/fx/experimental/sym_node.py`.
"""

import math
import operator
from collections.abc import Sequence
from typing import Any

import sympy
import torch
from torch.utils._sympy.symbol import SymT, symbol_is_type

from course_lib.capture.classes import is_a

# ---- operators -----------------------------------------------------------------------------------

OPERATORS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "@": operator.matmul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
"""Sign of a binary operator → its function."""


def in_place(function: Any) -> Any:
    """`operator.add` → `operator.iadd`"""
    name = function.__name__.strip("_")
    return getattr(operator, f"i{name}")


IN_PLACE = {f"{sign}=": in_place(function) for sign, function in OPERATORS.items()}
"""`+=` → `operator.iadd`"""
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    ">=": operator.ge,
}
SIGN_OF: dict[Any, str] = {function: sign for sign, function in OPERATORS.items()}
SIGN_OF |= {in_place(function): sign for sign, function in OPERATORS.items()}
SIGN_OF |= {operator.neg: "-", operator.pos: "+"}
"""Function → its sign; `operator.iadd` has the sign of `operator.add`."""

# ---- which numbers are symbols -------------------------------------------------------------------

SYMBOLIC: dict[Any, Any] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Type of a symbolic number → Python's type of its value."""
NUMBERS = (int, float, *SYMBOLIC)
COMPUTED = {
    *SIGN_OF,
    *COMPARISONS.values(),
    abs,
    max,
    min,
    int,
    float,
    round,
    *filter(callable, vars(math).values()),
}
"""Functions of numbers whose result may be a symbol."""


def is_arithmetic(function: Any, args: Sequence[Any]) -> bool:
    """Does the function compute a number of numbers, one of them symbolic?"""
    if {*map(type, args)}.isdisjoint(SYMBOLIC) or function not in COMPUTED:
        return False
    return all(is_a(arg, NUMBERS) for arg in args)


def is_symbol_of_data(symbol: sympy.Basic) -> bool:
    """Is it a symbol of which only the data says the value?"""
    return bool(symbol_is_type(symbol, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)))


def is_of_data(value: Any) -> bool:
    """Is it a symbolic number that depends on data?"""
    return type(value) in SYMBOLIC and any(map(is_symbol_of_data, value.node.expr.free_symbols))


def statically_known(condition: torch.SymBool) -> bool | None:
    """The truth of a condition where it follows from what is known; else None."""
    env: Any = condition.node.shape_env
    answer = env._maybe_evaluate_static(condition.node.expr)
    return None if answer is None else bool(answer)


def value_at_this_call(number: Any) -> Any:
    """The value that torch has noted for a symbolic number. It leaves no guard."""
    if type(number) in SYMBOLIC:
        return number.node.hint
    return number


def is_exact_in_sympy(operands: Sequence[Any], value: Any) -> bool:
    """sympy is exact if all numbers are ints. (It also answers questions about floats.)"""
    if type(value) is bool:
        return True
    return float not in map(type, (*operands, value))


def finite_value(function: Any, hints: Sequence[Any]) -> Any:
    """`function(*hints)`, or None: it raises, it is not finite, or it is no number that a symbol
    can be."""
    try:
        value = function(*hints)
        is_finite = all(map(math.isfinite, (*hints, value)))
        # torch's own ints have 64 bits
        fits = type(value) is float or abs(value) < 2**63
    except (ArithmeticError, ValueError, TypeError):
        return None

    # `round(n, 2)` of an int: sympy has no such function
    rounds_an_int = function is round and len(hints) == 2 and type(value) is not float
    if is_finite and fits and not rounds_an_int:
        return value
    return None


def concrete(value: Any) -> Any:
    """With numbers in place of symbolic sizes, also within a tuple or list.

    For what must be a number in Python itself: the key of a dict, a part of a text, the argument of
    a builtin in C. To ask for the number makes a guard, so the compiled code is used for this
    number only."""
    if type(value) in SYMBOLIC:
        return SYMBOLIC[type(value)](value)
    if type(value) in (tuple, list, torch.Size) and any(type(item) in SYMBOLIC for item in value):
        return type(value)(map(concrete, value))
    return value
