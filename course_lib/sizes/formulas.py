"""How a formula of sizes is written as Python source: `64*s0 + s1 - 1`.

sympy's own printer is not used for the common forms: it sorts terms in another way, and writes
`Max(1, s0)` where Python wants `max(1, s0)`.
"""

from collections.abc import Callable, Iterable

import sympy
from torch.utils._sympy.functions import (
    CeilToInt,
    FloorDiv,
    FloorToInt,
    Max,
    Min,
    Mod,
    PythonMod,
    RoundToInt,
    ToFloat,
    TruncToInt,
)
from torch.utils._sympy.printers import PythonPrinter

ROUNDED = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
"""Integers that are computed with floats: `int(1.5 * n)`. Python computes them, as in eager, and a
kernel is given the result."""

SIGNS = {
    sympy.Lt: "<",
    sympy.Le: "<=",
    sympy.Gt: ">",
    sympy.Ge: ">=",
    sympy.Eq: "==",
    sympy.Ne: "!=",
}
"""How a relation is written."""


class SizeSymbol(sympy.Symbol):
    """s0, s1, ...: one size of an input.

    (A class of its own tells it from the symbols of loops.)"""


def name_of_size(formula: sympy.Expr) -> str:
    """A name for what a kernel is given: that of a symbol, or one for a formula."""
    if isinstance(formula, sympy.Symbol):
        return formula.name
    return "n"


def write(formula: sympy.Expr) -> str:
    """The text of a formula."""
    for kind, way in WAYS.items():
        if isinstance(formula, kind):
            return way(formula)

    return str(PythonPrinter().doprint(formula))


def as_factor(formula: sympy.Expr) -> str:
    """The text of a formula that is multiplied or divided: in parentheses where it needs them."""
    text = write(formula)
    if stands_alone(formula, text):
        return text
    return f"({text})"


def stands_alone(formula: sympy.Expr, text: str) -> bool:
    """True if a factor needs no parentheses: a symbol, a number, a product, a call."""
    if isinstance(formula, sympy.Mul):
        return not is_negated(formula)
    return text.isdigit() or isinstance(formula, (sympy.Symbol, *CALLS))


def is_negated(product: sympy.Mul) -> bool:
    """True for `-1 * ...`, which is written with a minus in front."""
    return bool(product.args[0] == -1)


def product(formula: sympy.Mul) -> str:
    """`64*s0`, or `-s0*s1`."""
    if is_negated(formula):
        return "-" + factors(formula.args[1:])
    return factors(formula.args)


def factors(formulas: Iterable[sympy.Expr]) -> str:
    """Formulas with `*` between them."""
    return "*".join(map(as_factor, formulas))


def a_sum(formula: sympy.Add) -> str:
    """`s0 + s1 - 1`: numbers come last."""
    terms = sorted(formula.args, key=is_number)
    return " + ".join(map(write, terms)).replace("+ -", "- ")


def is_number(term: sympy.Expr) -> bool:
    return bool(term.is_number)


def call(name: str) -> Callable[[sympy.Expr], str]:
    """`name(...)`, around the arguments of the formula."""

    def written(formula: sympy.Expr) -> str:
        arguments = ", ".join(map(write, formula.args))
        return f"{name}({arguments})"

    return written


def between(sign: str) -> Callable[[sympy.Expr], str]:
    """The two parts of a formula with a sign between them."""

    def written(formula: sympy.Expr) -> str:
        divided, divisor = formula.args
        return f"{as_factor(divided)} {sign} {as_divisor(divisor)}"

    return written


def as_divisor(formula: sympy.Expr) -> str:
    """The text of what something is divided by.

    Python divides from left to right: `a // (2*b)` is not `a // 2*b`."""
    text = as_factor(formula)
    if isinstance(formula, sympy.Mul) and not text.startswith("("):
        return f"({text})"
    return text


CALLS: dict[type, Callable[[sympy.Expr], str]] = {
    ToFloat: call("float"),
    TruncToInt: call("int"),
    Max: call("max"),
    Min: call("min"),
}
WAYS: dict[type, Callable[[sympy.Expr], str]] = {
    **CALLS,
    sympy.Symbol: str,
    sympy.Mul: product,
    sympy.Add: a_sum,
    FloorDiv: between("//"),
    Mod: between("%"),
    PythonMod: between("%"),
}
"""How each kind of formula is written."""
