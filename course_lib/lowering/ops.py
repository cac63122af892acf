"""The virtual operations a loop's body is made of, and the handlers that give them a meaning.

The body of a loop node is one Python function `inner(ops, index)`. It never says what `ops.add`
*is*. Whoever runs it does: the dependency recorder notes the loads, printers return C++, Triton or
a formula, the numpy evaluator computes: many handlers.
In PyTorch: `torch/_inductor/virtualized.py` (`ops`: a global that `V.set_ops_handler` sets; here an
argument), `ops_handler.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cmp_to_key
from typing import Any, Protocol

import sympy
import torch

from course_lib.sizes import Size

Value = Any  # What a handler computes with: source text, a numpy array, a formula

UNARY = """neg abs exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh
    atanh erf erfc sigmoid floor ceil round trunc logical_not bitwise_not""".split()
BINARY = """add sub mul truediv floordiv mod fmod pow atan2 maximum minimum eq ne lt le gt ge logical_and logical_or bitwise_and
    bitwise_or bitwise_xor""".split()
"""`floordiv`, `mod`, `round` follow Python and torch, `fmod` C; `maximum`, `minimum` propagate NaN,
and of equals (0.0 and -0.0) give the first. Arguments: of one dtype."""
BOOLEAN = frozenset("eq ne lt le gt ge logical_and logical_or logical_not".split())
"""Operations that give torch.bool whatever they are given. All others give the dtype of their first
operand."""


class Handler(Protocol):
    """What every handler has: the operations of `UNARY` and `BINARY`, and those below."""

    def __getattr__(self, op: str) -> Callable[..., Value]:
        """An operation of `UNARY` or `BINARY`, like `ops.add`."""

    def load(self, buffer: str, index: sympy.Expr) -> Value:
        """The element of `buffer` at the flat `index` (in elements): a sum of loop symbols times
        numbers, or with // and %."""

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Value:
        """A number."""

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Value:
        """An index as a value (`arange`, masks)."""

    def to_dtype(self, value: Value, dtype: torch.dtype) -> Value:
        """`value` converted as `tensor.to(dtype)` does."""

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """`yes` where `condition`, else `no`; both are evaluated."""

    def masked(self, condition: Value, body: Any, other: bool | int | float) -> Value:
        """`body()` where `condition`, else `other`; loads in `body` happen only where `condition`
        holds."""

    def random(self, seed: Value, place: Value) -> Value:
        """The number at this place of a seed (both int64): of float32, in [0, 1).

        (`lowering.corners.philox`)"""

    def indirect(self, value: Value, size: int | sympy.Expr, wrap: bool = True) -> sympy.Symbol:
        """A symbol for an integer `value`, for later load indices.

        `wrap`: negative ones count from the end, else they raise."""


def linear_index(index: Sequence[Any], stride: Sequence[Any], offset: Any = 0) -> sympy.Expr:
    """The flat position of an element: offset + Σ index·stride.

    Every view is this formula with other strides."""
    parts = []
    for position, step in zip(index, stride, strict=True):
        is_one = not isinstance(step, Size) and step == 1
        for term in terms(position):
            if not is_one:
                term = term * step
            parts.append(term)

    return add([*parts, offset])


def terms(index: Any) -> tuple[Any, ...]:
    """What a sum is the sum of."""
    if isinstance(index, Size):
        index = index.expr
    if isinstance(index, sympy.Add):
        return index.args
    return (index,)


def add(parts: Sequence[Any]) -> sympy.Expr:
    """`sympy.Add(*parts)`, which would import sympy's tensors (25 ms) to see that there are
    none."""
    # Like terms together: 3*i + i is 4*i.
    count_of_atom: dict[sympy.Expr, Any] = {}
    for part in parts:
        for term in terms(part):
            if term != 0:
                number, atom = factors(term)
                count_of_atom[atom] = count_of_atom.get(atom, 0) + number

    # 1*i is written i, and what cancelled out is not written.
    summands = []
    for atom, number in count_of_atom.items():
        if number == 1:
            summands.append(atom)
        elif number != 0:
            summands.append(number * atom)

    if not summands:
        return sympy.Integer(0)
    if len(summands) == 1:
        return summands[0]

    # In sympy's own order, so that equal sums are equal formulas
    summands.sort(key=cmp_to_key(sympy.Basic.compare))
    return sympy.Add(*summands, evaluate=False)


def factors(term: Any) -> tuple[Any, Any]:
    """A term as a number times the rest: 3*i is (3, i)."""
    if isinstance(term, sympy.Symbol):
        return 1, term
    return sympy.sympify(term).as_coeff_Mul()


def substitute(index: Any, become: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Expr:
    """`index.xreplace(become)`, by `add`."""
    return add([term.xreplace(become) for term in terms(sympy.sympify(index))])
