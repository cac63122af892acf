"""Questions about sizes in the form that a reader expects: `x.shape[0] != 2`, not
`((-1) + x.shape[0]) != 1`.

In:  a relation as torch's `ShapeEnv` noted it, a sympy formula over symbols of whole numbers.
Out: a relation that holds for the same numbers, with terms that are added on both sides and the
     plain number on the right.

What is checked and what is printed are both made of this form, so they cannot disagree.
In PyTorch: `torch/fx/experimental/symbolic_shapes.py` (`ShapeEnv.produce_guards_verbose`) prints
the relations as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Max
from torch.utils._sympy.value_ranges import bound_sympy

from course_lib.sizes import SIGNS, text_of

INEQUALITIES = (sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge)
MIRRORED: dict[Any, Any] = {
    sympy.Lt: sympy.Gt,
    sympy.Le: sympy.Ge,
    sympy.Gt: sympy.Lt,
    sympy.Ge: sympy.Le,
    sympy.Eq: sympy.Eq,
    sympy.Ne: sympy.Ne,
}
"""The relation that holds where both sides are exchanged."""


@dataclass(frozen=True)
class Sides:
    """A relation: a sign, and what stands on its left and its right."""

    sign: Any
    left: sympy.Expr
    right: sympy.Expr

    @property
    def mirrored(self) -> "Sides":
        return Sides(MIRRORED[self.sign], self.right, self.left)

    @property
    def relation(self) -> sympy.Basic:
        """The relation for sympy, with its sides where they are: sympy alone would turn it round
        again."""
        return self.sign(self.left, self.right, evaluate=False)


def tidied(question: sympy.Basic, order: Sequence[sympy.Symbol]) -> sympy.Basic:
    """The same question in the form that a reader expects.

    What is no relation of whole numbers stays as it is.

    order: the symbols in the order of the program's arguments. The one that comes first stands on
    the left."""
    sign = type(question)
    if sign not in MIRRORED or not of_whole_numbers(question):
        return question

    # All on one side: `n + 1 > m` is `n - m + 1 > 0`
    question = sign(*map(with_halves, question.args), evaluate=False)
    terms = terms_of(sympy.expand(question.lhs - question.rhs))

    # A product that was taken apart was easier to read before
    old_terms: list[Any] = []
    for side in question.args:
        old_terms += [part for part in sympy.Add.make_args(side) if part != 0]
    if len(terms) > len(old_terms):
        return question

    # The plain number goes to the right
    number = terms.pop(sympy.S.One, 0)
    if not terms:
        return question
    sides = divided(Sides(sign, sum_of(terms), sympy.Integer(-number)))
    if sides is None:
        return question
    return apart(sides, order).relation


def text_of_relation(question: sympy.Basic, names: dict[sympy.Symbol, sympy.Symbol]) -> str | None:
    """A question about whole numbers as Python source, in the form that a reader expects.

    None: it is another kind of question.

    names: each symbol → one whose name is Python for it; in the order of the program's
    arguments."""
    if type(question) not in SIGNS or not of_whole_numbers(question):
        return None
    form = tidied(question, list(names))
    left, right = text_of(form.lhs, names), text_of(form.rhs, names)
    return f"{left} {SIGNS[type(form)]} {right}"


def holds_anyway(question: sympy.Basic, ranges: dict[sympy.Symbol, Any]) -> bool:
    """Does this hold for all numbers in these ranges (a `ValueRanges` for each symbol)?

    False: not as far as bounds tell.

    It takes the form that `tidied` gives, since bounds of `n - n//2` say nothing, and those of
    `(n + 1)//2` do."""
    if type(question) not in SIGNS or not of_whole_numbers(question):
        return False
    form = tidied(question, list(ranges))
    bounds = bound_sympy(form.lhs - form.rhs, ranges)
    low, high = bounds.lower, bounds.upper
    holds = {
        sympy.Lt: high < 0,
        sympy.Le: high <= 0,
        sympy.Gt: low > 0,
        sympy.Ge: low >= 0,
        sympy.Eq: low == high == 0,
        sympy.Ne: low > 0 or high < 0,
    }
    return bool(holds[type(form)])


def without_limits(question: sympy.Basic, ranges: dict[sympy.Symbol, Any]) -> sympy.Basic:
    """`max(1, n)`, which strides are full of, is `n` where n is at least 1 anyway."""

    def larger(*parts: sympy.Expr) -> sympy.Expr:
        formulas = [part for part in parts if not part.is_number]
        limits = [part for part in parts if part.is_number]
        if len(formulas) == 1:
            (formula,) = formulas
            least = bound_sympy(formula, ranges).lower
            if least >= max(limits, default=0):
                return formula
        return Max(*parts)

    return question.replace(Max, larger)


def of_whole_numbers(question: sympy.Basic) -> bool:
    """Do only whole numbers stand in this question?"""
    if any(not symbol.is_integer for symbol in question.free_symbols):
        return False
    return all(side.is_integer for side in question.args)


def with_halves(formula: sympy.Expr) -> sympy.Expr:
    """`n - n//2`, which sizes of halves are full of, as `(n + 1)//2`: the latter is seen to be 1 at
    least."""
    return formula.replace(
        lambda part: part.is_Add and part.has(FloorDiv), lambda part: sum_of(terms_of(part))
    )


def terms_of(formula: sympy.Expr) -> dict[sympy.Expr, sympy.Integer]:
    """What is added up: term → how often (1 → the plain number).

    Halves are written as `with_halves` says."""
    terms = dict(formula.as_coefficients_dict())
    for term, times in list(terms.items()):
        is_half = isinstance(term, FloorDiv) and term.args[1] == 2
        if is_half and terms.get(term.args[0]) == -times:
            whole = term.args[0]
            del terms[term], terms[whole]
            other_half = FloorDiv(whole + 1, 2)
            terms[other_half] = terms.get(other_half, 0) - times
    return terms


def sum_of(terms: dict[sympy.Expr, sympy.Integer]) -> sympy.Expr:
    return sympy.Add(*(times * term for term, times in terms.items()))


def divided(sides: Sides) -> Sides | None:
    """`2*n <= 9` as `n <= 4`: divided by what all terms on the left have in common.

    None: it holds for no number, or for all."""
    terms = terms_of(sides.left)
    factors = list(terms.values())
    if len(factors) > 1:
        common = sympy.gcd(factors)
    else:
        common = abs(factors[0])
    left = sum_of({term: times / common for term, times in terms.items()})

    if sides.sign not in INEQUALITIES:
        right = sides.right / common
        if right.is_integer:
            return Sides(sides.sign, left, right)
        return None

    # Of whole numbers `n <= 4.5` is `n <= 4`, and `n < 4.5` is `n < 5`
    right = sides.right / common
    if sides.sign in (sympy.Le, sympy.Gt):
        return Sides(sides.sign, left, sympy.floor(right))
    return Sides(sides.sign, left, sympy.ceiling(right))


def apart(sides: Sides, order: Sequence[sympy.Symbol]) -> Sides:
    """What is taken away is added on the other side, and the symbol that comes first stands on the
    left."""
    terms = terms_of(sides.left)
    added = sum_of({term: times for term, times in terms.items() if times > 0})
    taken = sum_of({term: -times for term, times in terms.items() if times < 0})
    if taken == 0:
        return Sides(sides.sign, added, sides.right)
    if added == 0:
        return Sides(MIRRORED[sides.sign], taken, -sides.right)

    # The plain number stands where it is positive
    number = sides.right
    left = added + max(-number, 0)
    right = taken + max(number, 0)
    moved = Sides(sides.sign, left, right)
    if first(added, order) <= first(taken, order):
        return moved
    return moved.mirrored


def first(formula: sympy.Expr, order: Sequence[sympy.Symbol]) -> int:
    """The place of a formula's first symbol among the arguments."""
    return min((order.index(symbol) for symbol in formula.free_symbols), default=len(order))
