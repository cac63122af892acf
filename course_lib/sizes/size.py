"""One size: a formula over symbols that computes like an int.

In PyTorch: `torch.SymInt`; docs/design/symbolic-sizes.md says why this is another class.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import sympy
import torch

from course_lib.sizes.decisions import BY_HINT
from course_lib.sizes.formulas import write

if TYPE_CHECKING:
    from course_lib.sizes.graph_sizes import Sizes


class NeedsNumbers(Exception):
    """Raised where sizes must be numbers; the text says why."""


class Size:
    """One size: a formula over symbols. `sizes` answers what is asked about it."""

    __slots__ = ("_hint", "expr", "sizes")

    def __init__(self, expr: sympy.Expr, sizes: Sizes) -> None:
        self.expr, self.sizes = expr, sizes
        self._hint: int | None = None

    @property
    def hint(self) -> int:
        """The number that this size was in the call for which the graph is compiled."""
        if self._hint is None:
            self._hint = int(self.expr.xreplace(self.sizes.hints))
        return self._hint

    def _sympy_(self) -> sympy.Expr:
        """What sympy takes for a size in a formula of its own."""
        return self.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __str__(self) -> str:
        return write(self.expr)

    __repr__ = __str__

    # --- arithmetic

    def __add__(self, other: Any) -> Any:
        return self.combined(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self.combined(other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return (-self) + other

    def __mul__(self, other: Any) -> Any:
        return self.combined(other, operator.mul)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return self.sizes.simplest(-self.expr)

    def __floordiv__(self, other: Any) -> Any:
        return self.sizes.divided(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self.sizes.divided(other, self)

    def __mod__(self, other: Any) -> Any:
        return self.sizes.rest(self, other)

    def __rmod__(self, other: Any) -> Any:
        return self.sizes.rest(other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def combined(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """A sum, difference or product. With a formula of loops (sympy's) it is such a formula."""
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        if isinstance(other, (int, Size)):
            return self.sizes.simplest(operation(self.expr, formula_of(other)))
        if isinstance(other, sympy.Expr):
            return operation(self.expr, other)
        return NotImplemented

    # --- questions

    def asked(self, relation: Any, other: Any) -> Any:
        """The answer for this call (`Sizes.answer`). Raises NeedsNumbers beside a fraction."""
        if not isinstance(other, (int, float, Size)):
            return NotImplemented
        if isinstance(other, float) and not other.is_integer():
            raise NeedsNumbers(f"the size {self} is compared with {other}")
        return self.sizes.answer(relation, self, other)

    def __lt__(self, other: Any) -> Any:
        return self.asked(sympy.Lt, other)

    def __le__(self, other: Any) -> Any:
        return self.asked(sympy.Le, other)

    def __gt__(self, other: Any) -> Any:
        return self.asked(sympy.Gt, other)

    def __ge__(self, other: Any) -> Any:
        return self.asked(sympy.Ge, other)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, Size) and self.expr == other.expr:
            return True
        return self.asked(sympy.Eq, other)

    def __ne__(self, other: Any) -> Any:
        equal = self.__eq__(other)
        if equal is NotImplemented:
            return NotImplemented
        return not equal

    def __bool__(self) -> bool:
        return bool(self != 0)

    # --- a number in silence is refused

    def refuse(self, *_: Any) -> NoReturn:
        """In the place of each operation that would have to know the number."""
        raise NeedsNumbers(f"the size {self} must be a number here")

    __index__ = __int__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = refuse
    __lshift__ = __rlshift__ = __rshift__ = __and__ = __or__ = refuse


@dataclass(frozen=True)
class Real:
    """A float that is computed of sizes: `2 / (s0 - 1)`. Nothing is asked about it."""

    expr: sympy.Expr
    sizes: Sizes = field(compare=False)

    def __str__(self) -> str:
        return write(self.expr)


def formula_of(value: Any) -> sympy.Expr:
    """A size or an int as sympy has it."""
    if isinstance(value, Size):
        return value.expr
    return sympy.Integer(int(value))


def hint(value: Any) -> Any:
    """The number that a size is in the call that is compiled; of several all.

    For decisions that are right either way."""
    if isinstance(value, Size):
        value.sizes.noted.note(BY_HINT, None, (value,), value.hint)
        return value.hint
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if isinstance(value, (tuple, list)):
        return tuple(map(hint, value))
    return value


def text_of(formula: Any, names: Any = None) -> str:
    """A formula, size or int as Python source, `64*s0 + s1 - 1`.

    `names`: others for its symbols."""
    if isinstance(formula, (int, Size)):
        formula = formula_of(formula)
    return write(formula.xreplace(names or {}))


def source_of(value: Any, names: Any) -> str:
    """Sizes, and tuples of them, as Python source."""
    if isinstance(value, (tuple, list)):
        parts = [f"{source_of(each, names)}, " for each in value]
        return f"({''.join(parts)})"
    if isinstance(value, Real):
        return text_of(value.expr, names)
    if isinstance(value, Size):
        return text_of(value, names)
    return repr(value)
