"""The symbolic sizes of one graph: where their values are found, and what is known about them.

In:  the placeholders' fake tensors, in whose shapes capture's symbols stand.
Out: `Sizes`: capture's symbols under names of ours (`s0`, `s1`, ...), the answers to questions, and
     functions that compute formulas in each call.
In PyTorch: `torch/_inductor/sizevars.py` (`SizeVarAllocator`).
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from course_lib.sizes.current import current
from course_lib.sizes.decisions import FOR_ALL, GUARDED, Decision, Decisions
from course_lib.sizes.formulas import SIGNS, SizeSymbol
from course_lib.sizes.size import NeedsNumbers, Real, Size, formula_of, source_of, text_of


class Place(NamedTuple):
    """Where a symbol's value is found: the size or the stride of an input in a dimension, or
    (`dim` None) an input that is the number itself."""

    input: int
    dim: int | None
    is_stride: bool = False

    def of(self, inputs: Sequence[Any]) -> int:
        """The value in a call."""
        argument = inputs[self.input]
        if self.dim is None:
            return int(argument)
        if self.is_stride:
            return int(argument.stride(self.dim))
        return int(argument.shape[self.dim])

    def source(self, argument: str) -> str:
        """The same as Python source. `argument`: the name of the input."""
        if self.dim is None:
            return argument
        if self.is_stride:
            return f"{argument}.stride({self.dim})"
        return f"{argument}.shape[{self.dim}]"


class Sizes:
    """The symbolic sizes of one captured graph. `inputs`: its placeholders' values."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.env = env_of(inputs)
        # While this is True an answer may become a guard; afterwards nobody would check it.
        self.open = True
        # The questions that became guards: as text for a reader, and the question → its answer
        self.asked: list[str] = []
        self.answers: dict[Any, bool] = {}
        # Every question of the back half, of all three kinds
        self.noted = Decisions()

        # capture's symbol → ours, and ours → capture's
        self.ours: dict[sympy.Symbol, SizeSymbol] = {}
        self.theirs: dict[SizeSymbol, sympy.Symbol] = {}
        # Our symbol → where its value is found, and the fake size that stands there
        self.places: dict[SizeSymbol, Place] = {}
        self.as_given: dict[SizeSymbol, torch.SymInt] = {}
        for place, value in places_in(inputs):
            symbol = value.node.expr
            if symbol.is_Symbol and symbol not in self.ours:
                own_symbol = SizeSymbol(f"s{len(self.ours)}", integer=True, positive=True)
                self.ours[symbol] = own_symbol
                self.theirs[own_symbol] = symbol
                self.places[own_symbol] = place
                self.as_given[own_symbol] = value

        # Symbols of capture that can have one value only, by now (an answer may fix others)
        self.numbers = {symbol for symbol in self.ours if self.is_number(symbol)}
        self.hints = {
            own_symbol: self.hint_of(symbol) for own_symbol, symbol in self.theirs.items()
        }

    def is_number(self, symbol: sympy.Symbol) -> bool:
        """True if it has turned out that this symbol can have one value only."""
        return bool(self.env.replace(symbol).is_number)

    def hint_of(self, symbol: sympy.Symbol) -> sympy.Integer:
        """The number that a symbol of capture is in the call that is compiled."""
        # Newer versions of torch have the first name.
        known = getattr(self.env, "backed_var_to_val", None) or self.env.var_to_val
        return sympy.Integer(known[symbol])

    def is_fixed(self, own_symbol: SizeSymbol) -> bool:
        """True if this symbol was open when this began, and some answer has fixed it since."""
        symbol = self.theirs[own_symbol]
        return symbol not in self.numbers and self.is_number(symbol)

    @property
    def became_numbers(self) -> list[str]:
        """The symbols that can have one value only, as it has turned out."""
        return [str(own_symbol) for own_symbol in self.theirs if self.is_fixed(own_symbol)]

    def found_in(self, inputs: Sequence[Any]) -> "Sizes":
        """The same sizes for a graph with other inputs: fake tensors in whose shapes symbols stand,
        or symbols themselves.

        It says where values are found; nothing is asked of it. Raises NeedsNumbers for a symbol
        that is not among the inputs."""
        # Where an input is the number itself it is taken, else the first dimension that has it.
        places: dict[SizeSymbol, Place] = {}
        for place, value in places_in(inputs):
            own_symbol = self.ours.get(value.node.expr)
            if own_symbol is not None and (place.dim is None or own_symbol not in places):
                places[own_symbol] = place

        # One that can have one value only need not be found anywhere
        not_found = self.places.keys() - places.keys()
        missing = {symbol for symbol in not_found if not self.is_fixed(symbol)}
        if missing:
            names = ", ".join(sorted(map(str, missing)))
            raise NeedsNumbers(f"no input of a part of the graph says how large {names} is")

        other_sizes = copy.copy(self)
        other_sizes.places = self.places | places
        # No question may become a guard any more
        other_sizes.open = False
        return other_sizes

    def values(self, inputs: Sequence[Any]) -> tuple[int, ...]:
        """The value of each symbol in a call, in order."""
        return tuple(place.of(inputs) for place in self.places.values())

    def function(self, formulas: Any) -> Callable[[Sequence[Any]], Any]:
        """A function of a call's inputs that gives `formulas` (sizes, or nested tuples of them)
        with numbers in the place of symbols."""
        compute = self.function_of_values(formulas)
        return lambda inputs: compute(*self.values(inputs))

    def function_of_values(self, formulas: Any) -> Callable[..., Any]:
        """The formulas as a function of the symbols' values.

        It is written as Python source, `lambda s0, s1: (2 * s0, s1 + 1)`, so that a call computes
        without sympy."""
        # Symbols with names of Python, in the order of the values
        symbols: dict[SizeSymbol, sympy.Symbol] = {}
        for n, own_symbol in enumerate(self.places):
            symbols[own_symbol] = sympy.Symbol(f"s{n}", integer=True)

        arguments = ", ".join(map(str, symbols.values()))
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

        own_formula = formula.xreplace(self.ours)
        if isinstance(value, torch.SymFloat):
            return Real(own_formula, self)
        return self.simplest(own_formula)

    def simplest(self, formula: sympy.Expr) -> Any:
        """An int where the formula is a number, else a `Size`."""
        if formula.is_Integer:
            return int(formula)
        return Size(formula, self)

    # --- division

    def quotient(self, one: Any, other: Any) -> Any:
        """`one // other` if that divides evenly for all sizes, else None."""
        if not self.is_at_least(other, 1):
            return None

        divided = formula_of(one) / formula_of(other)
        if divided.has(sympy.Add):
            divided = sympy.cancel(divided)
        _, below = divided.as_numer_denom()
        if below != 1:
            return None
        return self.simplest(divided)

    def divided(self, one: Any, other: Any) -> Any:
        """`one // other`."""
        evenly = self.quotient(one, other)
        if evenly is not None:
            return evenly
        return self.simplest(FloorDiv(formula_of(one), formula_of(other)))

    def rest(self, one: Any, other: Any) -> Any:
        """`one % other`."""
        if self.quotient(one, other) is not None:
            return 0

        # `Mod` is the simpler formula, and is for numbers that are not negative.
        never_negative = self.is_at_least(one, 0) and self.is_at_least(other, 1)
        remainder = Mod if never_negative else PythonMod
        return self.simplest(remainder(formula_of(one), formula_of(other)))

    def is_at_least(self, size: Any, least: int) -> bool:
        """True if it holds for all sizes."""
        return self.known(sympy.Ge, size, least) is True

    # --- questions

    def question(self, relation: Any, one: Any, other: Any) -> Any:
        """A question about sizes as sympy has it, over capture's symbols."""
        left, right = formula_of(one), formula_of(other)
        return relation(left.xreplace(self.theirs), right.xreplace(self.theirs))

    def known(self, relation: Any, one: Any, other: Any) -> bool | None:
        """The answer that holds for all sizes, or None."""
        question = self.question(relation, one, other)
        if question not in (sympy.true, sympy.false):
            question = self.env._maybe_evaluate_static(question)
        if question is None:
            return None
        return bool(question)

    def answer(self, relation: Any, one: Any, other: Any) -> bool:
        """The answer for this call. If it does not hold for all sizes, it becomes a guard."""
        known = self.known(relation, one, other)
        if known is not None:
            self.noted.note(FOR_ALL, relation, (one, other), known)
            return known

        # The same relation between this call's numbers
        now = bool(relation(sympy.Integer(number_of(one)), sympy.Integer(number_of(other))))
        question = self.question(relation, one, other)
        # It is a guard already. (The answer is the same: this call's numbers do not change.)
        if question in self.answers:
            return now

        if self.open:
            self.answers[question] = now
            self.asked.append(f"{relation(formula_of(one), formula_of(other))} is {now}")
            self.noted.note(GUARDED, relation, (one, other), now)
            answer = sympy.true if now else sympy.false
            self.env.evaluate_expr(question, hint=answer)
        elif self is current():
            raise NeedsNumbers("a question about sizes came up after the guards were made")
        return now

    @property
    def decisions(self) -> list[Decision]:
        """What was decided about these sizes behind capture, each question once, with its kind and
        who asked."""
        return self.noted.told(text_of, SIGNS)


def number_of(value: Any) -> int:
    """The number that a size is in the call that is compiled."""
    if isinstance(value, Size):
        return value.hint
    return int(value)


def env_of(inputs: Sequence[Any]) -> Any:
    """The `ShapeEnv` of the graph's inputs."""
    for _, value in places_in(inputs):
        return value.node.shape_env
    raise NeedsNumbers("no input has a symbolic size")


def places_in(inputs: Sequence[Any]) -> Iterator[tuple[Place, torch.SymInt]]:
    """Every symbolic number among the inputs, and their sizes and strides."""
    for n, value in enumerate(inputs):
        if isinstance(value, torch.SymInt):
            yield Place(n, None), value
        elif isinstance(value, torch.Tensor):
            for dim, size in enumerate(value.shape):
                if isinstance(size, torch.SymInt):
                    yield Place(n, dim), size
            for dim, stride in enumerate(value.stride()):
                if isinstance(stride, torch.SymInt):
                    yield Place(n, dim, is_stride=True), stride
