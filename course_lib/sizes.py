"""Sizes that are formulas: what the compiler computes with where a graph is compiled once for many sizes.

In:  the sizes of fake tensors (`torch.SymInt`s of capture's `ShapeEnv`).
Out: `Size`s: formulas over `s0`, `s1`, ..., each with a hint, its value in the call that is being compiled.

A `Size` adds and multiplies like an int, so most of the compiler does not know the difference. Where code *looks* at a size, it
asks in one of three ways:

    surely(ge, size, 2)      known for all sizes, or not: nothing is assumed
    hint(size)               the number of this call, for a decision that is right either way (how many threads, what to keep)
    size >= 2                an answer for this call; if it is not so for all sizes it becomes a guard, which capture's check holds

A size never becomes a number in silence: `int(size)` and whatever else asks for one raises `NeedsNumbers`, and the graph is then
compiled for each set of sizes by itself (`Pipeline.specialize`).
In PyTorch: `torch/_inductor/sizevars.py` (`SizeVarAllocator`), `torch/fx/experimental/symbolic_shapes.py`.
"""

import contextlib
import copy
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import sympy
import torch
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

RELATIONS: dict[Any, Any] = {
    operator.lt: sympy.Lt,
    operator.le: sympy.Le,
    operator.gt: sympy.Gt,
    operator.ge: sympy.Ge,
    operator.eq: sympy.Eq,
    operator.ne: sympy.Ne,
}


ROUNDED = (CeilToInt, FloorToInt, RoundToInt, TruncToInt)
"""Integers that are computed with floats: `int(1.5 * n)`. Python computes them, as in eager, and a kernel is given the result."""


class NeedsNumbers(Exception):
    """Raised where sizes must be numbers; the text says why."""


class SizeSymbol(sympy.Symbol):
    """s0, s1, ...: one size of an input. (A class of its own tells it from the symbols of loops.)"""


class Place(NamedTuple):
    """Where a symbol's value is found: a dimension of an input, or (`dim` None) an input that is the number itself."""

    input: int
    dim: int | None

    def of(self, inputs: Sequence[Any]) -> int:
        """The value in a call."""
        given = inputs[self.input]
        return int(given if self.dim is None else given.shape[self.dim])


class Sizes:
    """The symbolic sizes of one captured graph. `inputs`: its placeholders' values."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.env = env_of(inputs)
        # While this is True an answer may become a guard; afterwards nobody would check it.
        self.open = True
        self.asked: list[str] = []
        self.answers: dict[Any, bool] = {}

        # capture's symbol ↔ ours; and where each of ours is found
        self.ours: dict[sympy.Symbol, SizeSymbol] = {}
        self.theirs: dict[SizeSymbol, sympy.Symbol] = {}
        self.places: dict[SizeSymbol, Place] = {}
        self.as_given: dict[SizeSymbol, torch.SymInt] = {}
        for place, value in places_in(inputs):
            symbol = value.node.expr
            if symbol.is_Symbol and symbol not in self.ours:
                name = f"s{len(self.ours)}"
                mine = SizeSymbol(name, integer=True, positive=True)
                self.ours[symbol], self.theirs[mine], self.places[mine] = mine, symbol, place
                self.as_given[mine] = value

        self.numbers = {symbol for symbol in self.ours if self.is_number(symbol)}
        self.hints = {mine: self.hint_of(symbol) for mine, symbol in self.theirs.items()}

    def is_number(self, symbol: sympy.Symbol) -> bool:
        """Has it turned out that this symbol can have one value only?"""
        return bool(self.env.replace(symbol).is_number)

    def hint_of(self, symbol: sympy.Symbol) -> sympy.Integer:
        known = getattr(self.env, "backed_var_to_val", None) or self.env.var_to_val
        return sympy.Integer(known[symbol])

    def is_fixed(self, mine: SizeSymbol) -> bool:
        """Was this symbol open when this began, and has some answer fixed it since?"""
        symbol = self.theirs[mine]
        return symbol not in self.numbers and self.is_number(symbol)

    @property
    def became_numbers(self) -> list[str]:
        """The symbols that can have one value only, as it has turned out."""
        return [str(mine) for mine in self.theirs if self.is_fixed(mine)]

    def found_in(self, inputs: Sequence[Any]) -> "Sizes":
        """The same sizes for a graph with other inputs: fake tensors in whose shapes symbols stand, or symbols themselves.

        It says where values are found; nothing is asked of it. Raises NeedsNumbers for a symbol that is not among the inputs."""
        places: dict[SizeSymbol, Place] = {}
        for place, value in places_in(inputs):
            mine = self.ours.get(value.node.expr)
            if mine is not None and (place.dim is None or mine not in places):
                places[mine] = place
        missing = {mine for mine in self.places.keys() - places.keys() if not self.is_fixed(mine)}
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            raise NeedsNumbers(f"no input of a part of the graph says how large {names} is")

        there = copy.copy(self)
        there.places = {mine: places.get(mine, self.places[mine]) for mine in self.places}
        there.open = False
        return there

    def values(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """The value of each symbol in a call, in order."""
        return tuple(place.of(inputs) for place in self.places.values())

    def function(self, formulas: Any) -> Callable[[Sequence[Any]], Any]:
        """A function of the inputs of a call that gives the same tuples with numbers for sizes."""
        compute = self.function_of_values(formulas)
        return lambda inputs: compute(*self.values(inputs))

    def function_of_values(self, formulas: Any) -> Callable[..., Any]:
        """The formulas as a function of the symbols' values.

        It is written as Python source, `lambda s0, s1: (2 * s0, s1 + 1)`, so that a call computes without sympy."""
        names = {mine: f"s{n}" for n, mine in enumerate(self.places)}
        symbols = {mine: sympy.Symbol(name, integer=True) for mine, name in names.items()}

        arguments = ", ".join(names.values())
        source = f"lambda {arguments}: {source_of(formulas, symbols)}"
        compute: Callable[..., Any] = eval(source, {"math": math})
        return compute

    def of(self, value: Any) -> Any:
        """A `SymInt` as a `Size` (or as an int, if it is known); other values as they are."""
        if not isinstance(value, (torch.SymInt, torch.SymFloat)):
            return value

        formula = value.node.expr
        unknown = formula.free_symbols - self.ours.keys()
        if unknown:
            raise NeedsNumbers(f"the size {formula} does not follow from the sizes of the inputs")
        if isinstance(value, torch.SymFloat):
            return Real(formula.xreplace(self.ours), self)
        return self.simplest(formula.xreplace(self.ours))

    def simplest(self, formula: sympy.Expr) -> Any:
        """An int where the formula is a number, else a `Size`."""
        if formula.is_Integer:
            return int(formula)
        return Size(formula, self)

    # --- questions

    def relation(self, relation: Any, one: Any, other: Any) -> Any:
        """A question about sizes as sympy has it, over capture's symbols."""
        left, right = formula_of(one), formula_of(other)
        return relation(left.xreplace(self.theirs), right.xreplace(self.theirs))

    def known(self, relation: Any, one: Any, other: Any) -> bool | None:
        """The answer that holds for all sizes, or None."""
        question = self.relation(relation, one, other)
        if question not in (sympy.true, sympy.false):
            question = self.env._maybe_evaluate_static(question)
        return None if question is None else bool(question)

    def answer(self, relation: Any, one: Any, other: Any) -> bool:
        """The answer for this call. If it does not hold for all sizes, it becomes a guard."""
        known = self.known(relation, one, other)
        if known is not None:
            return known

        now = bool(relation(sympy.Integer(hint(one)), sympy.Integer(hint(other))))
        question = self.relation(relation, one, other)
        if question in self.answers:
            return now
        if self.open:
            self.answers[question] = now
            self.asked.append(f"{relation(formula_of(one), formula_of(other))} is {now}")
            self.env.evaluate_expr(question, hint=sympy.true if now else sympy.false)
        elif self is current():
            raise NeedsNumbers("a question about sizes came up after the guards were made")
        return now


class Size:
    """One size: a formula over symbols. It computes like an int; `Sizes` answers what is asked about it."""

    __slots__ = ("_hint", "expr", "sizes")

    def __init__(self, expr: sympy.Expr, sizes: Sizes) -> None:
        self.expr, self.sizes = expr, sizes
        self._hint: int | None = None

    @property
    def hint(self) -> int:
        """Its value in the call that was compiled."""
        if self._hint is None:
            self._hint = int(self.expr.xreplace(self.sizes.hints))
        return self._hint

    def _sympy_(self) -> sympy.Expr:
        return self.expr

    def __hash__(self) -> int:
        return hash(self.expr)

    def __str__(self) -> str:
        return text_of(self.expr)

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
        return divided(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return divided(other, self)

    def __mod__(self, other: Any) -> Any:
        return rest(self, other)

    def __rmod__(self, other: Any) -> Any:
        return rest(other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def combined(self, other: Any, operation: Callable[[Any, Any], Any]) -> Any:
        """A sum, difference or product; with a formula of loops it is one of these."""
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        if isinstance(other, (int, Size)):
            return self.sizes.simplest(operation(self.expr, formula_of(other)))
        if isinstance(other, sympy.Expr):
            return operation(self.expr, other)
        return NotImplemented

    # --- questions

    def asked(self, relation: Any, other: Any) -> Any:
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
        return equal if equal is NotImplemented else not equal

    def __bool__(self) -> bool:
        return bool(self != 0)

    # --- a number in silence is refused

    def refuse(self, *_: Any) -> NoReturn:
        raise NeedsNumbers(f"the size {self} must be a number here")

    __index__ = __int__ = __float__ = __truediv__ = __rtruediv__ = __pow__ = __rpow__ = refuse
    __lshift__ = __rlshift__ = __rshift__ = __and__ = __or__ = refuse


@dataclass(frozen=True)
class Real:
    """A floating-point number that is computed of sizes: `2 / (s0 - 1)`. Nothing is asked about it."""

    expr: sympy.Expr
    sizes: Sizes = field(compare=False)

    def __str__(self) -> str:
        return text_of(self.expr)


# --- what is asked about a size


def hint(value: Any) -> Any:
    """The number that a size is in the call that is compiled; of several all. For decisions that are right either way."""
    if isinstance(value, Size):
        return value.hint
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if isinstance(value, (tuple, list)):
        return tuple(map(hint, value))
    return value


def contiguous(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The strides of a row-major tensor of a shape with symbolic sizes."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * (1 if size == 0 else size)
    return tuple(reversed(strides))


def surely(relation: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    """True if `relation` (`operator.le`, ...) holds for all sizes. Nothing is assumed."""
    sizes = sizes_of(one, other)
    if sizes is None:
        return bool(relation(one, other))
    return sizes.known(RELATIONS[relation], one, other) is True


def same(one: Any, other: Any) -> bool:
    """True if two sizes (or tuples of them) are equal for all sizes, as far as their formulas tell. Nothing is assumed."""
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Size) or isinstance(other, Size):
        return surely(operator.eq, one, other)
    return bool(one == other)


def is_symbolic(value: Any) -> bool:
    return isinstance(value, Size)


def is_size(value: Any) -> bool:
    """True for a number or a `Size`, and not for a formula of loops, or what is looked up in memory."""
    return isinstance(value, (int, Size))


def quotient(one: Any, other: Any) -> Any:
    """`one // other` if that divides evenly for all sizes, else None."""
    sizes = sizes_of(one, other)
    if sizes is None:
        return one // other if other != 0 and one % other == 0 else None

    if not surely(operator.ge, other, 1):
        return None
    divided = formula_of(one) / formula_of(other)
    if divided.has(sympy.Add):
        divided = sympy.cancel(divided)
    _, below = divided.as_numer_denom()
    return sizes.simplest(divided) if below == 1 else None


def expanded(size: Any) -> Any:
    """A sum of products: `s0*s1 + s0`, not `s0*(s1 + 1)`. Equal sizes then have one formula."""
    return size.sizes.simplest(sympy.expand(size.expr)) if isinstance(size, Size) else size


def divided(one: Any, other: Any) -> Any:
    """`one // other`."""
    evenly = quotient(one, other)
    if evenly is not None:
        return evenly
    sizes = sizes_of(one, other)
    assert sizes is not None
    return sizes.simplest(FloorDiv(formula_of(one), formula_of(other)))


def rest(one: Any, other: Any) -> Any:
    """`one % other`."""
    if quotient(one, other) is not None:
        return 0
    sizes = sizes_of(one, other)
    assert sizes is not None
    a, b = formula_of(one), formula_of(other)
    never_negative = surely(operator.ge, one, 0) and surely(operator.ge, other, 1)
    return sizes.simplest(Mod(a, b) if never_negative else PythonMod(a, b))


def sizes_of(*values: Any) -> Sizes | None:
    """Whose sizes these are; None if all are numbers."""
    return next((value.sizes for value in values if isinstance(value, (Size, Real))), None)


def formula_of(value: Any) -> sympy.Expr:
    return value.expr if isinstance(value, Size) else sympy.Integer(int(value))


def name_of_size(formula: sympy.Expr) -> str:
    """A name for what a kernel is given: that of a symbol, or one for a formula."""
    return formula.name if isinstance(formula, sympy.Symbol) else "n"


def text_of(formula: Any, names: Any = None) -> str:
    """A formula as Python source, `64*s0 + s1 - 1`. `names`: other names for its symbols."""
    formula = formula_of(formula) if isinstance(formula, (int, Size)) else formula
    return write(formula.xreplace(names or {}))


def write(formula: sympy.Expr, tight: bool = False) -> str:
    """The text of a formula; `tight`: as a factor, in parentheses where it needs them."""
    if isinstance(formula, sympy.Symbol):
        return str(formula)
    if isinstance(formula, sympy.Mul) and formula.args[0] != -1:
        return "*".join(write(factor, tight=True) for factor in formula.args)
    if isinstance(formula, (ToFloat, TruncToInt)):
        name = "float" if isinstance(formula, ToFloat) else "int"
        return f"{name}({write(formula.args[0])})"
    if isinstance(formula, (Max, Min)):
        name = "max" if isinstance(formula, Max) else "min"
        return f"{name}({', '.join(map(write, formula.args))})"

    if isinstance(formula, sympy.Add):
        terms = sorted(formula.args, key=number_last)
        text = " + ".join(map(write, terms)).replace("+ -", "- ")
    elif isinstance(formula, sympy.Mul):
        text = f"-{'*'.join(write(factor, tight=True) for factor in formula.args[1:])}"
    elif isinstance(formula, (FloorDiv, Mod, PythonMod)):
        sign = "//" if isinstance(formula, FloorDiv) else "%"
        text = f" {sign} ".join(write(part, tight=True) for part in formula.args)
    else:
        text = str(PythonPrinter().doprint(formula))
        tight = tight and not text.isdigit()
    return f"({text})" if tight else text


def number_last(term: sympy.Expr) -> bool:
    return bool(term.is_number)


def source_of(value: Any, names: Any) -> str:
    """Sizes, and tuples of them, as Python source."""
    if isinstance(value, (tuple, list)):
        return f"({''.join(f'{source_of(each, names)}, ' for each in value)})"
    if isinstance(value, Real):
        return text_of(value.expr, names)
    return text_of(value, names) if isinstance(value, Size) else repr(value)


# --- the sizes that are compiled for


def nothing_compiled() -> Sizes | None:
    return None


_current: Sizes | None = None
"""The sizes of the graph that is being compiled."""
_latest: Callable[[], Sizes | None] = nothing_compiled
"""A weak reference to the sizes of the last graph: pictures of a finished program ask for them."""


def current() -> Sizes | None:
    """The sizes of the graph that is being compiled in symbols, or None."""
    return _current


@contextlib.contextmanager
def compiling_for(sizes: Sizes | None) -> Iterator[None]:
    """Inside, the sizes of fake tensors are `Size`s of these. One thread compiles at a time (`pipeline.COMPILING`)."""
    global _current, _latest
    before, _current = _current, sizes
    if sizes is not None:
        _latest = weakref.ref(sizes)
    try:
        yield
    finally:
        _current = before


def size(value: Any) -> Any:
    """A size of a fake tensor (or a float computed of sizes) as the compiler takes it: a number, a `Size`, or a `Real`."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat)):
        return value
    if _current is None:
        raise NeedsNumbers(f"the size {value} must be a number here")
    return _current.of(value)


def shape(values: Iterable[Any]) -> tuple[Any, ...]:
    """Several of them."""
    return tuple(map(size, values))


def shape_or_size(value: Any) -> Any:
    """A size, or a tuple of them."""
    return shape(value) if isinstance(value, (tuple, list)) else size(value)


def from_formula(formula: sympy.Expr) -> Any:
    """A number or `Size` where a formula has nothing but size symbols; else the formula itself."""
    if formula.is_Integer:
        return int(formula)
    if all(isinstance(symbol, SizeSymbol) for symbol in formula.free_symbols):
        sizes = _current or _latest()
        if sizes is not None and formula.free_symbols:
            return Size(formula, sizes)
    return formula


def env_of(inputs: Sequence[Any]) -> Any:
    """The `ShapeEnv` of the graph's inputs."""
    for _, value in places_in(inputs):
        return value.node.shape_env
    raise NeedsNumbers("no input has a symbolic size")


def places_in(inputs: Sequence[Any]) -> Iterator[tuple[Place, torch.SymInt]]:
    """Every symbolic number among the inputs, and their sizes."""
    for n, value in enumerate(inputs):
        if isinstance(value, torch.SymInt):
            yield Place(n, None), value
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    yield Place(n, dim), size
