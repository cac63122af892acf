"""Sizes that are not constants: which dimensions are symbolic, and what was assumed about them.

In:  the tensors and numbers that a capture meets, and which of their sizes have changed since
     earlier captures.
Out: fakes whose sizes may be `torch.SymInt`s, and at the end, as guards, every question about them
     that was answered.

A `SymInt` is an int to the interpreted program: of `x.shape[0] * 2 > 10` torch's `ShapeEnv` answers
and notes `2*s0 > 10`.
In PyTorch: `torch/fx/experimental/symbolic_shapes.py` (`ShapeEnv`), `_dynamo/pgo.py`,
`_dynamo/variables/builder.py`.
"""

import itertools
import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.symbol import SymT, symbol_is_type
from torch.utils._sympy.value_ranges import ValueRanges

from course_lib.capture import number_types
from course_lib.capture.guard_tests import Holds, Test, verbatim
from course_lib.capture.promises import (
    Range,
    broken_promise,
    keep_in_range,
    marks,
    narrowed_promise,
    ranges_of,
    relied_on,
    with_unknown_sizes,
)
from course_lib.capture.relations import holds_anyway, text_of_relation, without_limits
from course_lib.capture.sources import Location, Source, Unsupported
from course_lib.capture.strides import STRIDE, own_symbols
from course_lib.capture.symbolic_numbers import (
    COMPARISONS,
    SIGN_OF,
    SYMBOLIC,
    concrete,
    finite_value,
    is_arithmetic,
    is_exact_in_sympy,
    is_of_data,
    is_symbol_of_data,
    value_at_this_call,
)
from course_lib.written import quiet

SIZE = torch.ops.aten.sym_size.int
"""The function of a symbol that is the size of a tensor (`Origin`)."""
FAKES = FakeTensorMode
"""How torch infers shapes without data. For a torch that infers a wrong one, a corner mends it."""
LONGEST_FORMULA = 300
"""Characters of a formula of floats. A longer one is computed now, from numbers that are guarded by
value."""


@dataclass
class History:
    """What earlier captures of one code object met.

    A size, or a number, that has changed since becomes symbolic."""

    # True: all sizes are symbolic; False: none is; None: those that have changed
    dynamic: bool | None = None
    # Are all sizes looked at, also those that are marked by `mark_unbacked`?
    looks_at_all: bool = False
    # Source → the sizes that the last capture met there (or the one number)
    sizes: dict[str, tuple[float, ...]] = field(default_factory=dict)
    # (source, dimension) where captures have met different sizes
    changed: set[tuple[str, int]] = field(default_factory=set)
    # Source → the strides that the last capture met there
    strides: dict[str, tuple[int, ...]] = field(default_factory=dict)
    # Sources where captures have met different strides
    changed_strides: set[str] = field(default_factory=set)
    # Where an operation of torch's has warned: (line, function) → its warnings
    heard: dict[Any, list[Any]] = field(default_factory=dict)

    def meet(self, source: Source, sizes: tuple[float, ...]) -> None:
        """Compare with the last capture."""
        before = self.sizes.get(source.expr)
        if before is not None and len(before) == len(sizes):
            self.changed |= {
                (source.expr, d)
                for d, (a, b) in enumerate(zip(before, sizes, strict=True))
                if a != b
            }
        self.sizes[source.expr] = sizes

    def meet_strides(self, source: Source, strides: tuple[int, ...]) -> bool:
        """Compare with the last capture. True if strides may become symbols."""
        if self.strides.get(source.expr, strides) != strides:
            self.changed_strides.add(source.expr)
        self.strides[source.expr] = strides
        return bool(self.dynamic) or source.expr in self.changed_strides

    def is_symbolic(self, source: Source, dim: int, size: int, marked: Any = ()) -> bool:
        """0 and 1 are always constants: they broadcast."""
        changes = bool(self.dynamic) or dim in marked or (source.expr, dim) in self.changed
        return changes and size not in (0, 1) and self.dynamic is not False


class Texts(NamedTuple):
    """A symbol as exact Python, and as a user would write it."""

    exact: str
    shown: str


class Origin(NamedTuple):
    """What a symbol is: an input, or `function(*args)` (its size, or arithmetic)."""

    value: Any
    texts: Texts
    function: Any = None
    args: Sequence[Any] = ()

    @property
    def is_of_tensor(self) -> bool:
        """Is it a size or a stride? Then it is at least 2: 0 and 1 are constants."""
        return self.function in (SIZE, STRIDE)


class Shapes:
    """The sizes of one capture."""

    def __init__(
        self, history: History, numbers_of_data: bool = False, sizes_of_data: bool = False
    ) -> None:
        """numbers_of_data, sizes_of_data: may `.item()`, and `x[mask]`, give symbols of which no
        value is known (`corners/sizes_of_data.py`)?"""
        # torch's class for the place of a symbol (imported here, for the import takes a second)
        from torch._dynamo.source import ConstantSource

        self.history = history
        self.place = ConstantSource
        self.numbers_of_data = numbers_of_data
        self.env = ShapeEnv(
            duck_shape=False,
            allow_scalar_outputs=numbers_of_data,
            allow_dynamic_output_shape_ops=sizes_of_data,
        )
        self.mode = FAKES(shape_env=self.env)
        self.found: dict[sympy.Symbol, Origin] = {}
        self.marked: set[sympy.Symbol] = set()
        # Symbols whose range was promised, and the guards that say it
        self.ranged: dict[sympy.Symbol, Range] = {}
        self.promised: set[sympy.Basic] = set()
        # Sizes of inputs of which no value is known (`mark_unbacked`)
        self.unknown: set[sympy.Symbol] = set()
        # Numbers that are never infinite or NaN
        self.finite: set[sympy.Symbol] = set()
        # For each of the environment's guards the user's line that asked
        self.causes: list[Location | None] = []

    def fake(self, tensor: torch.Tensor, source: Source) -> torch.Tensor:
        """A fake like `tensor`, with symbolic sizes where they are wanted."""
        # torch asks for `.grad`, which warns where the tensor is no leaf
        with quiet():
            return self._fake(tensor, source)

    def _fake(self, tensor: torch.Tensor, source: Source) -> torch.Tensor:
        sizes = tuple(tensor.shape)
        self.history.meet(source, sizes)
        promised, wished, static, unknown = marks(tensor)
        if self.history.dynamic is False or self.history.looks_at_all:
            unknown = set()
        marked = promised | wished
        kinds = []
        for d, size in enumerate(sizes):
            kind = DimDynamic.STATIC
            is_static = d in unknown or (d in static and d not in marked)
            if not is_static and self.history.is_symbolic(source, d, size, marked):
                kind = DimDynamic.DYNAMIC
            kinds.append(kind)

        ranges = ranges_of(tensor)
        for dim, limits in ranges.items():
            keep_in_range(f"{source.shown}.shape[{dim}]", sizes[dim], limits)
        is_constant = DimDynamic.DYNAMIC not in kinds and not unknown
        if is_constant or isinstance(tensor, torch.nn.Parameter):
            return self.mode.from_tensor(tensor, static_shapes=True)

        context = StatelessSymbolicContext(kinds)
        fake = self.mode.from_tensor(
            tensor, source=self.place(source.expr), symbolic_context=context
        )
        if unknown:
            fake, symbols = with_unknown_sizes(fake, unknown, self.env, self.mode)
            self.unknown |= symbols
        self._note_sizes(fake, source, promised, ranges)
        return fake

    def _note_sizes(
        self, fake: torch.Tensor, source: Source, promised: set[int], ranges: dict[int, Range]
    ) -> None:
        """Note where the symbols come from that are sizes of `fake`.

        promised: the dimensions that `mark_dynamic` named. ranges: those for which it gave a range.
        """
        for dim, size in enumerate(fake.shape):
            if not isinstance(size, torch.SymInt) or not size.node.expr.is_Symbol:
                continue

            symbol = size.node.expr
            texts = Texts(f"{source.expr}.shape[{dim}]", f"{source.shown}.shape[{dim}]")
            self.found[symbol] = Origin(size, texts, SIZE, (fake, dim))
            if dim in promised:
                self.marked.add(symbol)
            if dim in ranges:
                self._note_range(size, ranges[dim])

        for dim, stride in own_symbols(self, fake, source):
            texts = Texts(f"{source.expr}.stride({dim})", f"{source.shown}.stride({dim})")
            self.found[stride.node.expr] = Origin(stride, texts, STRIDE, (fake, dim))

    def _note_range(self, size: torch.SymInt, limits: Range) -> None:
        """From now on torch's `ShapeEnv` knows the range: it is a guard, and whatever follows from
        it needs none."""
        before = len(self.env.guards)
        if limits.min is not None:
            bool(size >= limits.min)
        if limits.max is not None:
            bool(size <= limits.max)
        self.ranged[size.node.expr] = limits
        self.promised |= {guard.expr for guard in self.env.guards[before:]}

    def _keep_promise(self, question: sympy.Basic, at: Location | None) -> None:
        """Raise ConstraintViolationError for a question of the program that holds for a part of a
        promised range only.

        That two sizes are equal is no such question: both may have their whole range."""
        of_ranges = question.free_symbols & self.ranged.keys()
        if not of_ranges or at is None:
            return
        if isinstance(question, sympy.Eq) and all(side.is_Symbol for side in question.args):
            return

        if not holds_anyway(question, self._ranges() | self._promised_ranges()):
            origin = self.found[next(iter(of_ranges))]
            raise narrowed_promise(origin.texts.shown, self.text(question, shown=True), at)

    def is_known(self, expr: sympy.Expr) -> bool:
        """Is this a formula of symbols whose place is known?"""
        return bool(expr.free_symbols <= self.found.keys())

    def number(self, value: int | float, source: Source, at_once: bool = False) -> Any:
        """A number from outside: a symbol, or the number itself, which is then a constant.

        It is a symbol once it has changed (or `at_once`), if a loop gives it, or if it is an
        argument and all sizes are to be symbols.
        """
        # To the history a number is a shape with one size, in dimension 0.
        self.history.meet(source, (value,))
        has_changed = (source.expr, 0) in self.history.changed
        # An item that a loop is going to give (`stand_ins/iterators.py`): another one in each turn
        from_loop = source.expr.startswith("upcoming(")
        all_are_symbols = self.history.dynamic and source.is_variable
        none_is_a_symbol = self.history.dynamic is False
        changes = at_once or from_loop or has_changed or all_are_symbols
        if none_is_a_symbol or not changes:
            return value

        # As sizes, 0 and 1 are constants, but not where a loop counts: it gives them first.
        if type(value) is int:
            is_special = value in (0, 1) and not from_loop
        else:
            is_special = value == 0 or not math.isfinite(value)
        if is_special:
            return value
        return self._symbol(value, Texts(source.expr, source.shown))

    def drawn(self, value: int | float, texts: Texts) -> Any:
        """A number that something outside gives anew in each call, and that is always finite."""
        symbolic_number = self._symbol(value, texts)
        self.finite.add(symbolic_number.node.expr)
        return symbolic_number

    def _symbol(
        self,
        value: int | float,
        texts: Texts,
        function: Any = None,
        args: Sequence[Any] = (),
    ) -> Any:
        """A symbolic number, which is `value` at this call."""
        place = self.place(texts.exact)
        symbol = self.env.create_unspecified_symbol(value, place, DimDynamic.DYNAMIC)
        make: Any = self.env.create_symfloatnode
        if type(value) is int:
            make = self.env.create_symintnode

        number = make(symbol, hint=value, source=place)
        self.found[symbol] = Origin(number, texts, function, args)
        return number

    def compute(self, function: Any, args: Sequence[Any]) -> Any:
        """`function(*args)` of symbolic numbers; None: torch shall compute it by sympy.

        Where floats take part the result is a new symbol, for sympy would change the last bits.
        """
        if function is operator.invert and type(args[0]) is torch.SymInt:
            return -args[0] - 1  # a SymInt has no `~`
        if not is_arithmetic(function, args):
            return None
        if any(is_of_data(arg) for arg in args):
            return self._computed_of_data(function, args)

        hints = [value_at_this_call(arg) for arg in args]
        value = finite_value(function, hints)
        texts = Texts(
            self._call_text(function, args, shown=False),
            self._call_text(function, args, shown=True),
        )
        if value is None or len(texts.exact) >= LONGEST_FORMULA:
            # Python computes it from the numbers of this call, which are guarded by value
            return function(*map(concrete, args))
        if function is SYMBOLIC.get(type(args[0])):
            # `int(n)` of a symbolic int
            return args[0]

        if is_exact_in_sympy(hints, value):
            if SIGN_OF.get(function) in ("//", "%") and type(args[1]) in SYMBOLIC:
                bool(args[1] != 0)  # a guard: to sympy, n % n is 0
            return None
        return self._symbol(value, texts, function, args)

    def _computed_of_data(self, function: Any, args: Sequence[Any]) -> Any:
        """`function(*args)` of numbers that only the data says. None: torch shall compute it by
        sympy. What sympy would compute in another way, and each float, is a new symbol: the graph
        computes it as Python does.

        Raises Unsupported for what has no form in the graph."""
        is_whole = all(type(arg) in (int, torch.SymInt) for arg in args)
        if len(args) == 1 and function in number_types.unchanged(args[0]):
            return args[0]  # `int(n)` of an int
        if function in COMPARISONS.values() or (is_whole and function in number_types.WHOLE):
            return None
        if is_whole and function in number_types.EXTREMES:
            return number_types.largest_of_symbols(function, args)

        kind = number_types.type_of_result(function, args)
        if kind is None:
            raise Unsupported(
                f"{getattr(function, '__name__', 'a function')} computes with a number that only the data says, "
                "in a way that no graph has",
                "compute it with tensors, or call it outside the compiled function",
            )

        number: Any
        if kind is int:
            number = self.env.create_unbacked_symint()
        else:
            number = self.env.create_unbacked_symfloat()
        text = f"({function.__name__} of data)"
        self.found[number.node.expr] = Origin(number, Texts(text, text), function, args)
        return number

    def _call_text(self, function: Any, args: Sequence[Any], shown: bool) -> str:
        """The call as Python source; with `shown` as a user would write it."""
        parts = []
        for arg in args:
            text = repr(arg)
            if type(arg) in SYMBOLIC:
                text = self.text(arg.node.expr, shown)
            if not text.isidentifier():
                text = f"({text})"
            parts.append(text)

        if function in SIGN_OF:
            # the sign stands in front of a single operand
            if len(parts) == 1:
                parts.insert(0, "")
            formula = f" {SIGN_OF[function]} ".join(parts)
            return f"({formula})"

        name = function.__name__
        if function.__module__ == "math":
            name = f"math.{name}"
        return f"{name}({', '.join(parts)})"

    def text(self, expr: sympy.Expr, shown: bool = False) -> str:
        """An expression of sizes as Python source: `x.shape[0] * 2`."""
        names = self._names(shown)
        relation = text_of_relation(expr, names)
        return relation or PythonPrinter().doprint(expr.xreplace(names))

    def _names(self, shown: bool) -> dict[sympy.Symbol, sympy.Symbol]:
        """Each symbol → one whose name is where the size is found."""
        names = {}
        for symbol, origin in self.found.items():
            name = origin.texts.shown if shown else origin.texts.exact
            names[symbol] = sympy.Symbol(name, integer=symbol.is_integer)
        return names

    def note(self, place: Location | None) -> None:
        """Note that the questions about sizes since the last `note` were asked by this line."""
        self.causes += [place] * (len(self.env.guards) - len(self.causes))

    def tests(self) -> dict[Test, Location | None]:
        """What must hold for other sizes, and the user's line that asked first.

        Raises ConstraintViolationError where the program makes a constant of a size that was marked
        as dynamic.
        """
        # The first line that asked about each symbol
        questions = []
        asked_first: dict[Any, Location | None] = {}
        for guard, at in itertools.zip_longest(self.env.guards, self.causes):
            questions.append((guard.expr, at))
            for symbol in guard.expr.free_symbols:
                asked_first.setdefault(symbol, at)

        line_of_test: dict[Test, Location | None] = {}
        for symbol, origin in self.found.items():
            line_of_test |= self._tests_of(symbol, origin, asked_first.get(symbol))

        ranges = self._ranges()
        for expr, at in questions:
            if not self.is_known(expr):
                continue
            question = without_limits(expr, ranges)
            if question not in (sympy.true, sympy.false) and not holds_anyway(question, ranges):
                if expr not in self.promised:
                    self._keep_promise(question, at)
                line_of_test.setdefault(self._test(question), at)
        of_unknown = filter(self.is_of_inputs, relied_on(self.env, self.unknown))
        line_of_test |= dict.fromkeys(map(self._test, of_unknown))
        return line_of_test

    def is_of_inputs(self, expr: sympy.Basic) -> bool:
        """Is there a size that nobody looks at in it, and no other number without a value?"""
        of_data = set(filter(is_symbol_of_data, expr.free_symbols))
        return bool(of_data) and of_data <= self.unknown and self.is_known(expr)

    def _ranges(self) -> dict[sympy.Symbol, ValueRanges[Any]]:
        """What each symbol may be by the tests that are there anyway: a size is at least 2.

        (The environment's own ranges are narrower: each answer so far has its part in them.)"""
        ranges: dict[sympy.Symbol, ValueRanges[Any]] = {}
        for symbol, origin in self.found.items():
            if symbol.is_integer and not is_symbol_of_data(symbol):
                least = 2 if origin.is_of_tensor else -int_oo
                ranges[symbol] = ValueRanges(least, int_oo)
        return ranges

    def _tests_of(
        self, symbol: sympy.Symbol, origin: Origin, at: Location | None
    ) -> dict[Test, Location | None]:
        """What must hold for one symbol by itself. `at`: the first line that asked about it."""
        if is_symbol_of_data(symbol):
            return {}  # the program itself checks it, in each call
        size = self.env.replacements.get(symbol, symbol)
        if symbol_is_type(symbol, SymT.FLOAT):
            # `repr` tells 0.0 from -0.0. What holds for numbers need not hold for NaN.
            if size.is_number:
                text = repr(float(size))
                return {self._test(symbol, f"repr({{}}) == {text!r}"): at}
            if symbol in self.finite:
                return {}
            return {self._test(symbol, "is_finite({})"): at}

        line_of_test: dict[Test, Location | None] = {}
        if origin.function is not None and not origin.is_of_tensor:
            line_of_test[self._test(symbol, "type({}) is int")] = at
        if size.is_number:
            line_of_test[self._test(sympy.Eq(symbol, size, evaluate=False))] = at
            if symbol in self.marked:
                raise broken_promise(origin.texts.shown, int(size), at)
        elif origin.is_of_tensor:
            # 0 and 1 are constants, each with a graph of its own. No line of the program asks this.
            line_of_test[self._test(sympy.Ge(symbol, 2, evaluate=False))] = None
        return line_of_test

    def _promised_ranges(self) -> dict[sympy.Symbol, ValueRanges[Any]]:
        """What `mark_dynamic` promised of the sizes that it gave a range."""
        return {
            symbol: ValueRanges(max(2, limits.min or 0), limits.max or int_oo)
            for symbol, limits in self.ranged.items()
        }

    def _test(self, expr: Any, template: str = "{}") -> Test:
        """The test that `expr` is true.

        A `template` says something else of it: "type({}) is int"."""
        tested = template.format(self.text(expr))
        shown = template.format(self.text(expr, shown=True))
        return Holds(verbatim(tested), shown)
