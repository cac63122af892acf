"""What code asks about sizes where it may not assume anything: the answers hold for all sizes.

Each function takes plain ints, too. So a static graph goes through the same code.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy

from course_lib.sizes.decisions import FOR_ALL
from course_lib.sizes.graph_sizes import Sizes
from course_lib.sizes.size import Real, Size

RELATIONS: dict[Any, Any] = {
    operator.lt: sympy.Lt,
    operator.le: sympy.Le,
    operator.gt: sympy.Gt,
    operator.ge: sympy.Ge,
    operator.eq: sympy.Eq,
    operator.ne: sympy.Ne,
}
"""Python's comparisons, and what sympy calls them."""
NOT_FOR_ALL = "not known, so nothing is built on it"
"""The answer of `surely` where formulas and guards do not decide, as a reader sees it."""


def surely(relation: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    """True if `relation` (`operator.le`, ...) holds for all sizes. Nothing is assumed."""
    sizes = sizes_of(one, other)
    if sizes is None:
        return bool(relation(one, other))
    known = sizes.known(RELATIONS[relation], one, other)
    answer: Any = known
    if known is None:
        answer = NOT_FOR_ALL
    sizes.noted.note(FOR_ALL, RELATIONS[relation], (one, other), answer)
    return known is True


def same(one: Any, other: Any) -> bool:
    """True if two sizes (or tuples of them) are equal for all sizes, as far as their formulas
    tell."""
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Size) or isinstance(other, Size):
        return surely(operator.eq, one, other)
    return bool(one == other)


def quotient(one: Any, other: Any) -> Any:
    """`one // other` if that divides evenly for all sizes, else None."""
    sizes = sizes_of(one, other)
    if sizes is not None:
        return sizes.quotient(one, other)

    if other != 0 and one % other == 0:
        return one // other
    return None


def is_symbolic(value: Any) -> bool:
    """Is it a size that differs from call to call?"""
    return isinstance(value, Size)


def is_size(value: Any) -> bool:
    """True for a number or a `Size`, and not for a formula of loops, or what is looked up in
    memory."""
    return isinstance(value, (int, Size))


def sizes_of(*values: Any) -> Sizes | None:
    """Whose sizes these are; None if all are numbers."""
    return next((value.sizes for value in values if isinstance(value, (Size, Real))), None)


def expanded(size: Any) -> Any:
    """A sum of products: `s0*s1 + s0`, not `s0*(s1 + 1)`. Equal sizes then have one formula."""
    if not isinstance(size, Size):
        return size
    return size.sizes.simplest(sympy.expand(size.expr))


def contiguous(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a row-major tensor of a shape with symbolic sizes."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        # torch counts a dimension of size 0 as one of size 1 here
        if size != 0:
            step = step * size
    return tuple(reversed(strides))
