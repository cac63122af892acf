"""Index arithmetic: where in memory an element lies, and which element lies there.

In:  shapes, strides, formulas over loop symbols.
Out: flat indices taken apart (`Linear`), and put back into positions (`unflatten`).

A flat index is nearly always a sum of loop symbols times strides, `768*i0 + i1`: `Linear` holds it
as numbers.
In PyTorch: `torch/_inductor/sizevars.py` (`stride_vars`, `simplify_with_ranges`),
`torch/_inductor/dependencies.py`.
"""

import operator
from collections.abc import Collection, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import sympy
from torch._prims_common import make_contiguous_strides_for
from torch.utils._sympy.functions import FloorDiv, Mod

from course_lib import sizes
from course_lib.lowering.ops import add, terms
from course_lib.sizes import from_formula, quotient, same, surely

ZERO = sympy.Integer(0)


@cache
def loop_symbols(letter: str, count: int) -> tuple[sympy.Symbol, ...]:
    """i0, i1, ...: the loop variables of a node (letter "i") and what a reduction runs over (letter
    "j")."""
    symbols = []
    for n in range(count):
        symbols.append(sympy.Symbol(f"{letter}{n}", integer=True, nonnegative=True))
    return tuple(symbols)


def contiguous(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a row-major tensor of a shape."""
    if any(map(sizes.is_symbolic, shape)):
        return sizes.contiguous(shape)
    return make_contiguous_strides_for(shape)


class Linear(NamedTuple):
    """`constant` + Σ coefficient·atom.

    An atom is a loop symbol or an opaque expression. What memory holds is constant."""

    terms: tuple[tuple[sympy.Expr, Any], ...] = ()
    constant: Any = 0

    @staticmethod
    def of(expr: sympy.Expr | int, loops: Collection[sympy.Symbol]) -> "Linear":
        """The formula `expr`, sorted by what each symbol of `loops` contributes."""
        atoms: dict[sympy.Expr, Any] = {}
        constants = []
        for term in terms(expr):
            if term.free_symbols.isdisjoint(loops):
                constants.append(term)  # a number, or a value looked up in memory
                continue

            coefficient, atom = term.as_coeff_Mul()
            if atom not in loops:
                coefficient, atom = term.as_independent(*loops, as_Add=False)
            atoms[atom] = atoms.get(atom, 0) + number_of(coefficient)

        return Linear.make(atoms, number_of(add(constants)))

    @staticmethod
    def make(terms: Mapping[sympy.Expr, Any], constant: Any = 0) -> "Linear":
        """The sum with its terms in one order, so that equal sums are equal objects."""
        nonzero_terms = []
        for atom, coefficient in terms.items():
            if not same(coefficient, 0):
                nonzero_terms.append((atom, coefficient))

        if len(nonzero_terms) > 1:
            nonzero_terms.sort(key=by_name)
        return Linear(tuple(nonzero_terms), constant)

    def coefficient(self, symbol: sympy.Symbol) -> Any:
        """How far the index moves when `symbol` counts one up."""
        for atom, coefficient in self.terms:
            if atom == symbol:
                return coefficient
        return 0

    def moves_with(self, symbol: sympy.Symbol) -> bool:
        """True if the index is another one when `symbol` counts up."""
        return any(symbol in atom.free_symbols for atom, _ in self.terms)

    def is_affine_in(self, symbol: sympy.Symbol) -> bool:
        """True if `symbol` appears, if at all, only times a number."""
        for atom, _ in self.terms:
            is_inside = symbol in atom.free_symbols
            if is_inside and atom != symbol:
                return False
        return True

    def substitute(self, become: Mapping[sympy.Symbol, "Linear"]) -> "Linear":
        """The same formula after each symbol has become another formula."""
        terms: dict[sympy.Expr, Any] = {}
        constant = self.constant

        for atom, coefficient in self.terms:
            new = become.get(atom)
            if new is None:
                # An opaque expression (i // 3) has its symbols inside.
                if not isinstance(atom, sympy.Symbol):
                    atom = atom.xreplace({symbol: new.expr for symbol, new in become.items()})
                new = Linear(((atom, 1),))

            for inner, factor in new.terms:
                terms[inner] = terms.get(inner, 0) + coefficient * factor
            constant += coefficient * new.constant

        return Linear.make(terms, constant)

    @property
    def expr(self) -> sympy.Expr:
        """The formula as an expression of sympy."""
        products = [atom * coefficient for atom, coefficient in self.terms]
        return add([*products, self.constant])

    def __str__(self) -> str:
        return str(self.expr)


def by_name(term: tuple[sympy.Expr, Any]) -> str:
    """The key by which the terms of a sum are sorted."""
    atom, _ = term
    return getattr(atom, "name", None) or written(atom)


@lru_cache(2**16)
def written(atom: sympy.Expr) -> str:
    """An opaque expression as text.

    (It takes sympy long, and the same few come again and again.)"""
    return str(atom)


def number_of(value: sympy.Expr) -> Any:
    """A Python int where sympy holds a number, a `Size` where it holds sizes alone."""
    if value.is_Integer:
        return int(value)
    return from_formula(value)


class Dimension(NamedTuple):
    """One dimension of a tensor."""

    size: int
    stride: int


def unflatten(
    flat: sympy.Expr,
    extent: Mapping[sympy.Symbol, int],
    shape: Sequence[int],
    stride: Sequence[int],
) -> tuple[sympy.Expr, ...]:
    """The index into a tensor of this shape and stride whose element lies at `flat`: the inverse of
    `linear_index`.

    `extent` says how far each symbol of `flat` counts. Each term goes, like a digit, to the
    dimension whose stride it is a multiple of: 768*i0 + i1 is [i0, i1] in a tensor with strides
    [768, 1], if i1 < 768. Uneven digits take // and %.
    """
    if any(same(size, 0) for size in shape):
        return (ZERO,) * len(shape)

    # Dimensions of size 1 have no digit: their index is 0. The others, by falling stride
    order = [d for d in range(len(shape)) if not same(shape[d], 1)]
    order.sort(key=lambda d: -stride[d])
    dims = [Dimension(shape[d], stride[d]) for d in order]

    # First without a division, which is slow in a loop; with divisions where there is no other way
    digits = even_digits(Linear.of(flat, extent.keys()), extent, dims)
    if digits is None:
        digits = divided_digits(flat, dims)

    index = dict(zip(order, digits, strict=True))
    return tuple(index.get(d, ZERO) for d in range(len(shape)))


def divided_digits(flat: sympy.Expr, dims: Sequence[Dimension]) -> list[sympy.Expr]:
    """The index in each of `dims`, by // and %: a dimension takes the rest that the one before it
    leaves."""
    digits = []
    rest = flat
    for dim in dims:
        if same(dim.stride, 1):
            digits.append(rest)
        else:
            digits.append(FloorDiv(rest, dim.stride))
        rest = Mod(flat, dim.stride)
    return digits


def even_digits(
    linear: Linear, extent: Mapping[sympy.Symbol, int], dims: Sequence[Dimension]
) -> list[sympy.Expr] | None:
    """The index in each of `dims` (in falling order of stride), without a division. None if a term
    of `linear` may reach into two dimensions."""
    index: list[Any] = [0] * len(dims)
    largest = [0] * len(dims)
    constant = linear.constant

    for symbol, step in linear.terms:
        if symbol not in extent:
            return None

        # A flipped dimension is counted from the other end.
        last = extent[symbol] - 1
        if step < 0:
            constant += step * last
            step = -step
            symbol = last - symbol

        n = first_that_divides(step, dims)
        if n is None:
            return None
        count = step // dims[n].stride
        index[n] += symbol * count
        largest[n] += last * count

    # The constant is shared out like a number among its digits. None may overflow into the next.
    for n, dim in enumerate(dims):
        if not same(constant, 0):
            if not isinstance(constant, int) or constant < 0:
                return None
            if isinstance(dim.stride, int):
                digit, constant = divmod(constant, dim.stride)
                index[n] += digit
                largest[n] += digit
            elif not surely(operator.lt, constant, dim.stride):
                # For small sizes the constant reaches into this dimension, for large ones not.
                return None
        if not surely(operator.lt, largest[n], dim.size):
            return None

    if not same(constant, 0):
        return None
    return [sympy.sympify(i) for i in index]


def first_that_divides(step: int, dims: Sequence[Dimension]) -> int | None:
    """The position of the first dimension whose stride `step` is a multiple of."""
    for n, dim in enumerate(dims):
        if dim.stride and quotient(step, dim.stride) is not None:
            return n
    return None


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()
