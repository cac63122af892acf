"""Which whole numbers of positions and sizes may be too large for the integers of a kernel.

In:  a formula that a kernel computes as data: `s0*s0`, `1000000*i`, `s0**12 % 7`.
Out: `fits`: True if no step on the way to its value can leave the kernel's integers.

An address fits: it is a place in memory. Data need not. Python's ints have no end, and eager
computes with them, so a product that wraps around would be a wrong number without a word.
"""

import math
from collections.abc import Mapping
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod, PythonMod

from course_lib.sizes import ROUNDED, SizeSymbol

LARGEST_SIZE = 2**40
"""No dimension is larger: as bytes it would be a tebibyte."""
DIVISIONS = (FloorDiv, Mod, PythonMod, sympy.Mod)


def is_of_sizes(formula: sympy.Expr) -> bool:
    """True if a formula has sizes in it and no loops: it is one number in each call."""
    symbols = formula.free_symbols
    return bool(symbols) and all(isinstance(symbol, SizeSymbol) for symbol in symbols)


def fits(formula: sympy.Expr, loops: Mapping[sympy.Symbol, Any], bits: int) -> bool:
    """True if integers with `bits` bits and a sign surely hold the formula and its parts.

    loops: how often each loop runs."""
    end = 2**bits
    if largest(formula, loops, end - 1) < end:
        return True
    return counts_elements(formula, loops)


def counts_elements(formula: sympy.Expr, loops: Mapping[sympy.Symbol, Any]) -> bool:
    """True if the formula numbers the turns of these loops, `s1*i + j`.

    How many turns there are fits, or the kernel would have larger integers."""
    sizes = {symbol: sympy.sympify(size) for symbol, size in loops.items()}
    if not formula.free_symbols & sizes.keys():
        return False

    turns = sympy.prod(size for symbol, size in sizes.items() if formula.has(symbol))
    last = formula.subs({symbol: size - 1 for symbol, size in sizes.items()})
    return bool(sympy.expand(turns - 1 - last).is_nonnegative)


def largest(formula: sympy.Expr, loops: Mapping[sympy.Symbol, Any], of_place: int) -> float:
    """A bound for the size of the formula's number, and of all numbers on the way to it.

    of_place: the bound for a place, and for a size in a kernel that has small integers."""
    if formula.is_Integer:
        return abs(int(formula))
    if isinstance(formula, ROUNDED):
        return math.inf  # computed with floats, by Python
    if formula.is_Symbol:
        return largest_of_symbol(formula, loops, of_place)

    parts = [largest(part, loops, of_place) for part in formula.args]
    if isinstance(formula, sympy.Mul):
        return math.prod(parts)
    if isinstance(formula, sympy.Pow) and formula.exp.is_Integer:
        return parts[0] ** int(formula.exp)
    if isinstance(formula, DIVISIONS):
        # To round down, a kernel adds the divisor to a rest.
        return max(parts[0], 2 * parts[1])
    if isinstance(formula, (sympy.Add, Max, Min)):
        return sum(parts)
    return math.inf


def largest_of_symbol(
    symbol: sympy.Symbol, loops: Mapping[sympy.Symbol, Any], of_place: int
) -> int:
    """A bound for a size, or for the counter of a loop."""
    size = loops.get(symbol)
    if isinstance(size, int):
        return max(size - 1, 0)
    return min(LARGEST_SIZE, of_place)
