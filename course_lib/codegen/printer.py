"""From expression trees to lines of source: what the C++ and the Triton printer have in common.

In:  a kernel, whose steps become trees (`expressions.Expr`), and a table of how each operation is
     written (`Printer.rules`).
Out: lines of source, each with the step that it comes from.

An operation is written where it is used. It gets a name of its own if it is used twice or if the
line would grow too long.
"""

import itertools
import keyword
import os
import re
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Max, Min

from course_lib.codegen.large_numbers import DIVISIONS, fits, is_of_sizes
from course_lib.codegen.spellings import ATOM, SIGNED, Spelling
from course_lib.lowering.ir import Buffer
from course_lib.scheduling.expressions import Expr, loads, steps_used, trees_of
from course_lib.scheduling.kernel import FusedKernel, Step
from course_lib.sizes import ROUNDED, Size, SizeSymbol, name_of_size

LONGEST = 80  # An expression longer than this is split over several lines
COMMENT_COLUMN = 72  # Where the comment begins that says from which step a line comes


@dataclass(frozen=True)
class KernelSource:
    """The source of one kernel. `buffers` names the pointer arguments in order."""

    name: str
    language: str
    source: str
    buffers: tuple[str, ...]
    # Line number (from 1) → the step that it was printed for
    line_of: Mapping[int, Step] = field(default_factory=dict, repr=False)
    # Does it take one more buffer, an int64 that it sets to 1 if an index is out of range?
    checked: bool = False
    # The sizes of this call as numbers, where one kernel serves many sets of sizes: they are no
    # part of its text. One int64 buffer, the last argument, holds them.
    sizes: tuple[int, ...] = ()
    # The same where the program is compiled once for all sizes, so that no numbers are known: the
    # symbols that the kernel takes, and formulas of symbols that Python computes for it
    symbols: tuple[sympy.Expr, ...] = ()


class Line(NamedTuple):
    """A line of source: how deep it is indented, and the step that it comes from."""

    depth: int
    text: str
    step: Step | None = None


class Printer:
    """Writes blocks of source.

    A subclass says how an operation looks: by a rule, or by a method `print_<op>`."""

    rules: ClassVar[Mapping[str, str | Spelling]]
    """A rule, or the name of a function to call; "op:uint8", "op:float", "op:integer" (for such
    operands) come before "op"."""
    comment: ClassVar[str]
    # True if a name ends with its block (C++), False if it lasts to the end of the function
    # (Python)
    scopes: ClassVar[bool]
    # The operator that divides one index by another. (They are never negative.)
    divide: ClassVar[str]
    number: Callable[[bool | int | float, torch.dtype], str]  # A constant as source
    as_constant: Callable[
        [str, torch.dtype], Spelling
    ]  # The name of a size as a number of this dtype
    # How many bits a place has in the kernel, beside the sign
    bits: int = 63
    # (name, dtype, text) → a line that gives a value a name
    declare: Callable[[str, torch.dtype, str], str]

    def __init__(
        self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str, reserved: Iterable[str]
    ) -> None:
        self.kernel, self.name = kernel, name
        self.trees, self.builder = trees_of(self.kernel, buffers)
        self.symbols, self.buffers = self.builder.indirect_values, self.builder.buffers
        trees = self.trees.values()

        # Steps that other steps need
        self.used = {used_step for tree in trees for used_step in steps_used(tree)}
        # Sums down the columns: each row that passes adds its elements to them
        self.sums_down = [step for step in self.trees if step.level == "across"]
        # Indices that are data and must be in range
        self.checks = [node for tree in trees for node in tree.walk() if node.op == "indirect"]

        names = [step.buffer.name for step in self.trees]
        read = [buffer for tree in trees for buffer, _ in loads(tree)]
        self.stored = [name for name in names if name in self.kernel.stores]
        self.touched = tuple(dict.fromkeys([*read, *self.stored]))

        # Buffers that are written in place of another share its memory, so they are not passed
        self.in_place = kernel.in_place
        self.passed = tuple(dict.fromkeys(self.in_place.get(name, name) for name in self.touched))

        # Buffer → the name of its pointer; number → the name of the argument that it is
        self.pointers: dict[str, str] = {}
        self.sizes: dict[int, str] = {}
        # Symbol of a size → the argument that it is
        self.size_symbols: dict[sympy.Expr, str] = {}
        # Those of them that are numbers for data, larger than a place may be
        self.large: set[sympy.Expr] = set()

        # What is printed so far, and where we are in it
        self.lines: list[Line] = []
        self.depth = 0
        self.step: Step | None = None

        # Names in use
        self.taken = {*reserved, *(str(loop.symbol) for loop in self.kernel.loops)}
        # What stands for a value, if this block or one around it named it
        self.values: ChainMap[Expr | Step, str] = ChainMap()
        self.uses: Counter[Expr] = Counter()
        # Stores that wait for the end of their block
        self.late: list[tuple[Step, str]] = []
        # Depth of conditions that nothing may move out of
        self.guarded = 0
        # Is the formula that is printed now data, and no address?
        self.is_data = False

    def line(self, *texts: str, step: Step | None = None) -> None:
        """Lines that come from `step`, or else from the step that is being printed."""
        self.lines += [Line(self.depth, text, step or self.step) for text in texts]

    @contextmanager
    def block(self, opening: str, closing: str = ""):
        """Lines inside are indented, and their names end with the block."""
        self.line(opening)
        self.depth += 1
        with self.names():
            yield
        self.depth -= 1
        if closing:
            self.line(closing)

    @contextmanager
    def names(self):
        """What is named inside is not known after it."""
        values, names_before = self.values, self.taken
        self.values = values.new_child()
        # In a language with scopes (C++, not Python) a name may be taken again after the block.
        if self.scopes:
            self.taken = set(names_before)

        yield
        self.values, self.taken = values, names_before

    @contextmanager
    def on_behalf_of(self, step: Step):
        """Lines inside come from `step`."""
        step_before, self.step = self.step, step
        yield
        self.step = step_before

    def store(self, text: str) -> None:
        """A line that writes to memory.

        In place it waits (`print_late`), for others may still have to read what was there."""
        if self.kernel.in_place and self.step:
            self.late.append((self.step, text))
        else:
            self.line(text)

    def print_late(self) -> None:
        """Now nobody reads what was there: the stores that waited."""
        for step, text in self.late:
            self.line(text, step=step)
        self.late.clear()

    def unique(self, wanted: str) -> str:
        """A name like `wanted` that nothing else has here."""
        name = identifier(wanted, self.taken)
        self.taken.add(name)
        return name

    def size(self, number: Any) -> str:
        """A size or stride as source: a number, or an argument (one for all that are equal) if
        calls with others will come."""
        if isinstance(number, Size):
            return self.index(number.expr, as_factor=True)
        if self.kernel.fixed is None or number < 2 or number in self.kernel.fixed:
            return str(number)

        if number not in self.sizes:
            self.sizes[number] = self.unique(f"n{len(self.sizes)}")
        return self.sizes[number]

    def size_as_divisor(self, number: Any) -> str:
        """`size`, as it is written behind / or %: there a product of symbols needs brackets."""
        if isinstance(number, Size):
            return self.divisor(number.expr)
        return self.size(number)

    def size_symbol(self, symbol: sympy.Expr) -> str:
        """The name of the argument that holds a symbolic size."""
        if symbol not in self.size_symbols:
            self.size_symbols[symbol] = self.unique(name_of_size(symbol))
        return self.size_symbols[symbol]

    def layout(self, indent: str) -> tuple[str, dict[int, Step]]:
        """The finished source, with a comment where a step begins, and which line is whose."""
        text: list[str] = []
        line_of: dict[int, Step] = {}
        previous: Step | None = None

        for number, line in enumerate(self.lines, 1):
            row = indent * line.depth + line.text
            if line.step:
                line_of[number] = line.step
                if line.step is not previous:
                    what = f"{self.comment} {describe(line.step)}"
                    row = f"{row:<{COMMENT_COLUMN}}  {what}"
                previous = line.step
            text.append(row.rstrip())

        return "\n".join(text) + "\n", line_of

    def count_uses(self, trees: Iterable[Expr]) -> None:
        """Before a block is printed: how often is each value needed in it?"""
        roots = list(trees)
        nodes = {node for root in roots for node in root.walk()}
        self.uses = Counter([*roots, *(arg for node in nodes for arg in node.args)])

    def text(self, expr: Expr, binding: int = 0, whole: bool = False) -> str:
        """`expr` as source, in parentheses if it binds less tightly than `binding`.

        `whole`: it is all of a step, which will get the step's name: no name of its own, however
        long it is."""
        if name := self.values.get(expr):
            return name
        if expr.op == "value_of":
            return self.values[expr.detail]

        text, precedence = self.spell(expr)
        may_be_named = not self.guarded and expr.op not in ("constant", "index_expr")
        wants_name = self.uses[expr] > 1 or expr.op == "indirect" or len(text) > LONGEST
        if wants_name and may_be_named and not whole:
            return self.bind(expr, text, self.name_for(expr))
        if precedence < binding:
            return f"({text})"
        return text

    def spell(self, expr: Expr) -> tuple[str, int]:
        """The text of one operation and how tightly it binds."""
        special = getattr(self, f"print_{expr.op}", None)
        if special is not None:
            return special(expr)

        rule = self.rule_for(expr)
        if isinstance(rule, str):
            return self.call(rule, expr), ATOM

        # "{:13} * {:14}": each slot takes the next operand. The number says how tightly the text
        # around it binds, so that an operand that binds less gets brackets; without a number none
        # does.
        pattern, binds = rule
        operands = iter(expr.args)

        def filled(slot: re.Match[str]) -> str:
            binding = int(slot[1] or 0)
            return self.text(next(operands), binding)

        return re.sub(r"{:?(\d*)}", filled, pattern), binds

    def rule_for(self, expr: Expr) -> str | Spelling:
        """The rule for these operands' dtype, else for floats or integers, else for all; without
        one, the operation's own name."""
        dtype = expr.args[0].dtype
        exact = str(dtype).removeprefix("torch.")
        family = "float" if dtype.is_floating_point else "integer"

        keys = (f"{expr.op}:{exact}", f"{expr.op}:{family}", expr.op)
        for key in keys:
            if key in self.rules:
                return self.rules[key]
        return expr.op

    def call(self, function: str, expr: Expr) -> str:
        """A call with all operands."""
        return f"{function}({', '.join(map(self.text, expr.args))})"

    def print_constant(self, expr: Expr) -> tuple[str, int]:
        value, dtype = expr.detail, expr.dtype

        # It may be a size of this call: the divisor of a mean.
        may_be_size = dtype != torch.bool and 8 < value < 2**31 and value == int(value)
        if may_be_size:
            size = self.size(int(value))
            if not size.isdigit():
                return self.as_constant(size, dtype)

        text = self.number(value, dtype)
        if text.startswith("-"):
            return text, SIGNED
        return text, ATOM

    def name_for(self, expr: Expr) -> str:
        """A name that says what a value is: `x_ij` for an element of x."""
        if expr.op == "to_dtype":
            return self.name_for(expr.args[0])
        if expr.op == "load":
            buffer, index = expr.detail
            symbols = sorted(str(symbol) for symbol in index.free_symbols)
            return f"{buffer}_{''.join(symbols)}"
        if expr.op == "indirect":
            return "at"
        return f"{expr.op}_"

    def bind(self, what: Expr | Step, text: str, wanted: str) -> str:
        """Give a value a name, and let the block know it."""
        name = self.unique(wanted)
        self.values[what] = name
        if isinstance(what, Expr):
            dtype = what.dtype
        else:
            dtype = what.buffer.dtype
        self.line(self.declare(name, dtype, text))
        return name

    def index(self, formula: sympy.Expr | int, as_factor: bool = False) -> str:
        """An index formula as source: 768*i + j.

        `as_factor`: in parentheses where a factor of a product needs them."""
        expr = sympy.sympify(formula)
        if expr in self.symbols:
            return self.text(self.symbols[expr])
        if self.is_data and is_of_sizes(expr) and not self.holds(expr):
            self.large.add(expr)
            return self.size_symbol(expr)

        text = self.index_text(expr)
        if as_factor and is_looser_than_product(expr):
            return f"({text})"
        return text

    def index_as_data(self, formula: sympy.Expr) -> str:
        """`index`, where the number itself is wanted and may be larger than any place.

        What is computed of sizes alone, and may not fit, Python computes in each call."""
        self.is_data = True
        try:
            return self.index(formula)
        finally:
            self.is_data = False

    def holds(self, formula: sympy.Expr) -> bool:
        """True if the kernel's integers surely hold a formula."""
        loops = {loop.symbol: loop.size for loop in self.kernel.loops}
        return fits(formula, loops, self.bits)

    def index_text(self, expr: sympy.Expr) -> str:
        """The text of a formula by its outermost operation.

        Raises NotImplementedError for another."""
        if isinstance(expr, (SizeSymbol, *ROUNDED)):
            return self.size_symbol(expr)
        if isinstance(expr, sympy.Symbol):
            return str(expr)
        if isinstance(expr, sympy.Integer):
            return self.size(int(expr))

        if isinstance(expr, sympy.Add):
            terms = sorted(expr.args, key=largest_step_first)
            return " + ".join(map(self.index, terms)).replace("+ -", "- ")
        if isinstance(expr, sympy.Mul):
            return "*".join(self.index(factor, as_factor=True) for factor in expr.args)
        if isinstance(expr, sympy.Pow) and expr.exp.is_Integer and expr.exp > 0:
            base = self.index(expr.base, as_factor=True)
            return "*".join([base] * int(expr.exp))

        if isinstance(expr, DIVISIONS):
            return self.division(expr)
        if isinstance(expr, (Max, Min)):
            text, *others = map(self.index, expr.args)
            for other in others:
                text = self.larger_or_smaller(expr, text, other)
            return text
        raise NotImplementedError(f"an index formula with {type(expr).__name__}: {expr}")

    def larger_or_smaller(self, expr: sympy.Expr, a: str, b: str) -> str:
        """The larger of two sizes for a `Max`, the smaller for a `Min`."""
        sign = ">" if isinstance(expr, Max) else "<"
        return f"(({a}) {sign} ({b}) ? ({a}) : ({b}))"

    def divisor(self, expr: sympy.Expr) -> str:
        """What stands behind / or %: a product needs brackets there, though it needs none as a
        factor."""
        text = self.index(expr, as_factor=True)
        if isinstance(expr, (sympy.Mul, sympy.Pow)):
            return f"({text})"
        return text

    def division(self, expr: sympy.Expr) -> str:
        """a // n or a % n of an index. Both round down, where both languages round towards zero."""
        value, divisor = expr.args
        a, n = self.index(value, as_factor=True), self.divisor(divisor)

        # `rest` is a % n; `multiple` is a number whose quotient by n is a // n.
        rest, multiple = f"{a} % {n}", a
        if not value.is_nonnegative:
            rest = f"({a} % {n} + {n}) % {n}"
            multiple = f"({a} - {rest})"
        if not isinstance(expr, FloorDiv):
            return rest
        return f"{multiple} {self.divide} {n}"


def is_looser_than_product(expr: sympy.Expr) -> bool:
    """True for a formula that needs parentheses as a factor: `i + 1`, `i % 8`, `-1`."""
    is_negative = isinstance(expr, sympy.Integer) and expr.is_negative
    return bool(is_negative) or isinstance(expr, (sympy.Add, Max, Min, *DIVISIONS))


def largest_step_first(term: sympy.Expr) -> tuple[bool, sympy.Expr, str]:
    """To sort the terms of an index: 768*i + j + 1."""
    step, _ = term.as_coeff_Mul()
    return not term.free_symbols, -abs(step), str(term)


def identifier(wanted: str, taken: Collection[str]) -> str:
    """`wanted` as an identifier, with a number behind it if the name is in use."""
    base = re.sub(r"\W+", "_", wanted).strip("_") or "t"
    if not base[0].isalpha() or keyword.iskeyword(base):
        base = f"_{base}"

    name = base
    for n in itertools.count(1):
        if name not in taken:
            break
        name = f"{base}{n}"
    return name


def decimal(value: float, dtype: torch.dtype) -> str:
    """A number with as few digits as make it the same number in `dtype`: "0.1", "1e-05", "inf",
    "nan"."""
    if dtype == torch.float64:
        return repr(float(value))
    return str(np.float32(torch.tensor(value, dtype=torch.float32).item()))


def describe(step: Step) -> str:
    """What a step is and where in the user's code it comes from: 'gelu (model.py:12)'."""
    for node in step.node.origins:
        location = node.meta.get("origin", node).meta.get("location")
        if location:
            file = os.path.basename(location.filename)
            if "ipykernel_" in location.filename:
                file = "this notebook"
            return f"{label(step)} ({file}:{location.line})"
    return label(step)


def label(step: Step) -> str:
    """What a step is called in source and comments."""
    return step.node.label or step.buffer.name
