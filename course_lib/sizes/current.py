"""The symbolic sizes (`Sizes`) of the graph that is being compiled, and the sizes of fake tensors
expressed by them."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import sympy
import torch

from course_lib.sizes.formulas import SizeSymbol
from course_lib.sizes.size import NeedsNumbers, Size

if TYPE_CHECKING:
    from course_lib.sizes.graph_sizes import Sizes


def nothing_compiled() -> Sizes | None:
    """Stands for `_latest` before the first graph: no sizes."""
    return None


_current: Sizes | None = None
"""The sizes of the graph that is being compiled."""
_latest: Callable[[], Sizes | None] = nothing_compiled
"""The sizes of the last graph, as long as it lives: pictures of a finished program ask for them. (A
weak reference, so that it may die.)"""


def current() -> Sizes | None:
    """The sizes of the graph that is being compiled in symbols, or None."""
    return _current


@contextlib.contextmanager
def compiling_for(sizes: Sizes | None) -> Iterator[None]:
    """Inside, the sizes of fake tensors are `Size`s of these.

    One thread compiles at a time (`pipeline.COMPILING`)."""
    global _current, _latest
    before, _current = _current, sizes
    if sizes is not None:
        # For who reads the program later, outside of this block
        _latest = weakref.ref(sizes)
    try:
        yield
    finally:
        _current = before


def size(value: Any) -> Any:
    """A size of a fake tensor (or a float computed of sizes) as the compiler takes it: a number, a
    `Size`, or a `Real`. Raises NeedsNumbers where no graph is compiled in symbols."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value
    if _current is None:
        raise NeedsNumbers(f"the size {value} must be a number here")
    return _current.of(value)


def shape(values: Iterable[Any]) -> tuple[Any, ...]:
    """Sizes of a fake tensor, each as `size` gives it."""
    return tuple(map(size, values))


def shape_or_size(value: Any) -> Any:
    """`shape` of a tuple or list, `size` of a single size."""
    if isinstance(value, (tuple, list)):
        return shape(value)
    return size(value)


def from_formula(formula: sympy.Expr) -> Any:
    """A number or `Size` where a formula has nothing but size symbols; else the formula itself."""
    if formula.is_Integer:
        return int(formula)

    if all(isinstance(symbol, SizeSymbol) for symbol in formula.free_symbols):
        sizes = _current or _latest()
        if sizes is not None and formula.free_symbols:
            return Size(formula, sizes)
    return formula
