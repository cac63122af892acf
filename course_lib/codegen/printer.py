"""From expression trees to lines of source: what the C++ and the Triton printer have in common.

In:  a kernel, whose steps become trees (`expressions.Expr`), and a table of how each operation is written (`Printer.rules`).
Out: lines of source, each with the step that it comes from.

An operation is written where it is used. It gets a name of its own if it is used twice or if the line would grow too long.
"""

import itertools
import keyword
import os
import re
from collections import ChainMap, Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import numpy as np
import sympy
import torch

from course_lib.lowering.ir import Buffer
from course_lib.scheduling.expressions import Expr, loads, steps_used, trees_of
from course_lib.scheduling.kernel import FusedKernel, Step

LONGEST = 80  # An expression longer than this is split over several lines
COMMENT_COLUMN = 72
ATOM = 100  # Precedence of what never needs parentheses: a name, a call, a number

Rule = tuple[str, int]
"""How an operation is written and how tightly that binds. `{:13}`: an operand, in parentheses if that binds less tightly."""


def infix(operator: str, binds: int, chains: bool = True) -> Rule:
    return f"{{:{binds + (not chains)}}} {operator} {{:{binds + 1}}}", binds


compare = partial(infix, chains=False)  # a < b < c is written (a < b) < c
ARITHMETIC: dict[str, str | Rule] = {
    "mul": infix("*", 13), "truediv": infix("/", 13), "add": infix("+", 12), "sub": infix("-", 12),
    "neg": ("-{:15}", 14), "reciprocal": ("1 / {:14}", 13), "pow:integer": "integer_pow",
    **{f"{op}:integer": ("{:100}", ATOM) for op in ("floor", "ceil", "trunc", "round")},
}  # fmt: skip
"""The rules that both languages share."""


@dataclass(frozen=True)
class KernelSource:
    """The source of one kernel. `buffers` names the pointer arguments in order."""

    name: str
    language: str
    source: str
    buffers: tuple[str, ...]
    # Line (from 1) → its step, whose node knows `origins`
    line_of: Mapping[int, Step] = field(default_factory=dict, repr=False)
    # Does it take one more buffer, an int64 that it sets to 1 if an index is out of range?
    checked: bool = False
    # Of a kernel for many sizes: those of this call, its last buffer (int64)
    sizes: tuple[int, ...] = ()


class Printer:
    """Writes blocks of source. A subclass says how an operation looks: by a rule, or by a method `print_<op>`."""

    rules: ClassVar[Mapping[str, str | Rule]]
    """A rule, or the name of a function to call; "op:uint8", "op:float", "op:integer" (for such operands) come before "op"."""
    comment: ClassVar[str]
    # True if a name ends with its block (C++), False if it lasts to the end of the function (Python)
    scopes: ClassVar[bool]
    # The operator that divides one index by another. (They are never negative.)
    divide: ClassVar[str]
    number: Callable[[bool | int | float, torch.dtype], str]  # A constant as source
    as_constant: Callable[[str, torch.dtype], Rule]  # The name of a size as a number of this dtype
    # (name, dtype, text) → a line that gives a value a name
    declare: Callable[[str, torch.dtype, str], str]

    def __init__(
        self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str, reserved: Iterable[str]
    ) -> None:
        self.kernel, self.name = kernel, name
        self.trees, self.builder = trees_of(self.kernel, buffers)
        self.symbols, self.buffers = self.builder.indirect_values, self.builder.buffers
        self.used = {used for tree in self.trees.values() for used in steps_used(tree)}
        self.across = [step for step in self.trees if step.level == "across"]
        self.checks = [
            node for tree in self.trees.values() for node in tree.walk() if node.op == "indirect"
        ]

        stored = [step.buffer.name for step in self.trees if step.buffer.name in self.kernel.stores]
        read = [buffer for tree in self.trees.values() for buffer, _ in loads(tree)]
        self.stored, self.touched = stored, tuple(dict.fromkeys([*read, *stored]))
        # Buffers that are written in place of another share its memory, so they are not passed
        self.in_place = kernel.in_place
        self.passed = tuple(dict.fromkeys(self.in_place.get(name, name) for name in self.touched))
        self.pointers: dict[str, str] = {}  # Buffer → the name of its pointer
        self.sizes: dict[int, str] = {}  # Number → the name of the argument that it is

        # Depth, text, and the step that it comes from
        self.lines: list[tuple[int, str, Step | None]] = []
        self.depth = 0
        self.step: Step | None = None
        self.taken = {*reserved, *(str(loop.symbol) for loop in self.kernel.loops)}
        # What stands for a value, if this block or one around it named it
        self.values: ChainMap[Expr | Step, str] = ChainMap()
        self.uses: Counter[Expr] = Counter()
        self.late: list[tuple[Step, str]] = []
        self.guarded = 0

    def line(self, *texts: str, step: Step | None = None) -> None:
        """Lines that come from `step`, or else from the step that is being printed."""
        self.lines += [(self.depth, text, step or self.step) for text in texts]

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
        values, taken = self.values, self.taken
        self.values, self.taken = values.new_child(), set(taken) if self.scopes else taken
        yield
        self.values, self.taken = values, taken

    @contextmanager
    def on_behalf_of(self, step: Step):
        """Lines inside come from `step`."""
        before, self.step = self.step, step
        yield
        self.step = before

    def store(self, text: str) -> None:
        """A line that writes to memory. In place it waits (`print_late`), for others may still have to read what was there."""
        if self.kernel.in_place and self.step:
            self.late.append((self.step, text))
        else:
            self.line(text)

    def print_late(self) -> None:
        for step, text in self.late:
            self.line(text, step=step)
        self.late.clear()

    def unique(self, wanted: str) -> str:
        name = identifier(wanted, self.taken)
        self.taken.add(name)
        return name

    def size(self, number: int) -> str:
        """A size or stride as source: a number, or an argument (one for all that are equal) if calls with others will come."""
        if self.kernel.fixed is None or number < 2 or number in self.kernel.fixed:
            return str(number)
        self.sizes[number] = self.sizes.get(number) or self.unique(f"n{len(self.sizes)}")
        return self.sizes[number]

    def layout(self, indent: str) -> tuple[str, dict[int, Step]]:
        """The finished source, with a comment where a step begins, and which line is whose."""
        text: list[str] = []
        line_of: dict[int, Step] = {}
        previous: Step | None = None
        for number, (depth, row, step) in enumerate(self.lines, 1):
            row = indent * depth + row
            if step:
                line_of[number] = step
                if step is not previous:
                    row = f"{row:<{COMMENT_COLUMN}}  {self.comment} {describe(step)}"
                previous = step
            text.append(row.rstrip())
        return "\n".join(text) + "\n", line_of

    def count_uses(self, trees: Iterable[Expr]) -> None:
        """Before a block is printed: how often is each value needed in it?"""
        roots = list(trees)
        nodes = {node for root in roots for node in root.walk()}
        self.uses = Counter([*roots, *(arg for node in nodes for arg in node.args)])

    def text(self, expr: Expr, binding: int = 0, whole: bool = False) -> str:
        """`expr` as source, in parentheses if it binds less tightly than `binding`. `whole`: it is all of a step, which will get
        the step's name: no name of its own, however long it is."""
        if name := self.values.get(expr):
            return name
        if expr.op == "value_of":
            return self.values[expr.detail]
        text, precedence = self.spell(expr)
        wants_name = self.uses[expr] > 1 or expr.op == "indirect" or len(text) > LONGEST
        if (
            wants_name
            and not whole
            and not self.guarded
            and expr.op not in ("constant", "index_expr")
        ):
            return self.bind(expr, text, self.name_for(expr))
        return f"({text})" if precedence < binding else text

    def spell(self, expr: Expr) -> tuple[str, int]:
        """The text of one operation and how tightly it binds."""
        if special := getattr(self, f"print_{expr.op}", None):
            return special(expr)
        dtype = expr.args[0].dtype
        kinds = (
            f":{str(dtype).removeprefix('torch.')}",
            ":float" if dtype.is_floating_point else ":integer",
            "",
        )
        rule = next(
            (self.rules[key] for kind in kinds if (key := expr.op + kind) in self.rules), expr.op
        )
        if isinstance(rule, str):
            return self.call(rule, expr), ATOM
        operands = iter(expr.args)
        return re.sub(
            r"{:?(\d*)}", lambda slot: self.text(next(operands), int(slot[1] or 0)), rule[0]
        ), rule[1]

    def call(self, function: str, expr: Expr) -> str:
        return f"{function}({', '.join(map(self.text, expr.args))})"

    def print_constant(self, expr: Expr) -> tuple[str, int]:
        value, dtype = expr.detail, expr.dtype
        # it may: the divisor of a mean
        counts = dtype != torch.bool and 8 < value < 2**31 and value == int(value)
        if counts and not (size := self.size(int(value))).isdigit():
            return self.as_constant(size, dtype)
        text = self.number(value, dtype)
        return text, 14 if text.startswith("-") else ATOM

    def name_for(self, expr: Expr) -> str:
        if expr.op == "to_dtype":
            return self.name_for(expr.args[0])
        if expr.op == "load":
            return (
                f"{expr.detail[0]}_{''.join(sorted(str(s) for s in expr.detail[1].free_symbols))}"
            )
        return "at" if expr.op == "indirect" else f"{expr.op}_"

    def bind(self, what: Expr | Step, text: str, wanted: str) -> str:
        """Give a value a name, and let the block know it."""
        name = self.values[what] = self.unique(wanted)
        self.line(
            self.declare(name, what.dtype if isinstance(what, Expr) else what.buffer.dtype, text)
        )
        return name

    def index(self, formula: sympy.Expr | int, tight: bool = False) -> str:
        """An index formula as source: 768*i + j. If `tight`, in parentheses where a factor needs them."""
        if (e := sympy.sympify(formula)) in self.symbols:
            return self.text(self.symbols[e])
        if isinstance(e, (sympy.Symbol, sympy.Integer)):
            return (
                f"({e})"
                if tight and e.is_negative
                else self.size(int(e))
                if e.is_Integer
                else str(e)
            )
        if isinstance(e, sympy.Mul):
            return "*".join(self.index(factor, tight=True) for factor in e.args)
        if isinstance(e, sympy.Add):
            terms = sorted(
                e.args, key=lambda t: (not t.free_symbols, -abs(t.as_coeff_Mul()[0]), str(t))
            )
            text = " + ".join(map(self.index, terms)).replace("+ -", "- ")
        elif (kind := type(e).__name__) in ("FloorDiv", "Mod"):
            a, n = (self.index(part, tight=True) for part in e.args)
            # else round down, where both languages round towards zero
            positive = e.args[0].is_nonnegative
            rest = f"{a} % {n}" if positive else f"({a} % {n} + {n}) % {n}"
            text = (
                rest
                if kind == "Mod"
                else f"{a if positive else f'({a} - {rest})'} {self.divide} {n}"
            )
        else:
            raise NotImplementedError(f"an index formula with {type(e).__name__}: {e}")
        return f"({text})" if tight else text


def identifier(wanted: str, taken: Collection[str]) -> str:
    """`wanted` as an identifier, with a number behind it if the name is in use."""
    base = re.sub(r"\W+", "_", wanted).strip("_") or "t"
    base = base if base[0].isalpha() and not keyword.iskeyword(base) else f"_{base}"
    return next(name for n in itertools.count() if (name := f"{base}{n or ''}") not in taken)


def decimal(value: float, dtype: torch.dtype) -> str:
    """A number with as few digits as make it the same number in `dtype`: "0.1", "1e-05", "inf", "nan"."""
    return (
        repr(float(value))
        if dtype == torch.float64
        else str(np.float32(torch.tensor(value, dtype=torch.float32).item()))
    )


def describe(step: Step) -> str:
    """What a step is and where in the user's code it comes from: 'gelu (model.py:12)'."""
    for node in step.node.origins:
        if location := node.meta.get("origin", node).meta.get("location"):
            file = (
                "this notebook"
                if "ipykernel_" in location.filename
                else os.path.basename(location.filename)
            )
            return f"{label(step)} ({file}:{location.line})"
    return label(step)


def label(step: Step) -> str:
    return step.node.label or step.buffer.name
