"""From expression trees to lines of source: what the C++ and the Triton printer have in common.

In:  trees (`expressions.Expr`), a table of infix operators and one method for each special operation.
Out: lines of source, each with the step that it comes from.

An operation is written where it is used. It gets a name of its own if it is used twice or if the line would grow too long.
"""

from __future__ import annotations

import itertools
import keyword
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import sympy
import torch

from course_lib.codegen.expressions import Expr
from course_lib.scheduling.kernel import Step

LONGEST = 80
"""An expression longer than this is split over several lines."""
COMMENT_COLUMN = 72
ATOM = 100
"""Precedence of what never needs parentheses: a name, a call, a number."""


@dataclass(frozen=True)
class KernelSource:
    """The source of one kernel. `buffers` names the pointer arguments in order, `sizes` the integers after them."""

    name: str
    language: str
    source: str
    buffers: tuple[str, ...]
    sizes: tuple[sympy.Symbol, ...] = ()
    line_of: Mapping[int, Step] = field(default_factory=dict, repr=False)
    """Line of the source (from 1) → the step that it is part of; the step's node knows its `origins`."""
    checked: bool = False
    """True if the kernel takes one more buffer, an int64 that it sets to 1 (index out of range) or 2 (integer division by
    zero) where eager would raise."""


@dataclass
class Line:
    """One line before it is laid out."""

    depth: int
    text: str
    step: Step | None = None


class Scope:
    """The names that one block of source can see."""

    def __init__(self, parent: Scope | None = None, taken: Iterable[str] = (), own_names: bool = True) -> None:
        self.parent = parent
        self.taken: set[str] = parent.taken if parent and not own_names else set(taken)
        self.values: dict[Expr | Step, str] = {}

    def find(self, what: Expr | Step) -> str | None:
        """The text that stands for a value here, if some block around has named it."""
        if what in self.values:
            return self.values[what]
        return self.parent.find(what) if self.parent else None

    def is_taken(self, name: str) -> bool:
        return name in self.taken or (self.parent is not None and self.parent.is_taken(name))

    def unique(self, wanted: str) -> str:
        """`wanted` as an identifier, with a number behind it if the name is in use."""
        base = re.sub(r"\W+", "_", wanted).strip("_") or "t"
        base = base if base[0].isalpha() and not keyword.iskeyword(base) else f"_{base}"
        name = next(n for k in itertools.count() if not self.is_taken(n := f"{base}{k or ''}"))
        self.taken.add(name)
        return name


class Printer:
    """Writes blocks of source. Subclasses say how an operation looks (`infix`, `calls`, a method `print_<op>`) and how a
    name is declared."""

    infix: ClassVar[dict[str, tuple[str, int]]]
    """op → (operator, precedence); a higher number binds tighter."""
    calls: ClassVar[dict[str, str]] = {}
    """op → name of a function, where it is not the op's own name."""
    comment: ClassVar[str]
    scopes: ClassVar[bool] = True
    """True if a name ends with its block (C++), False if it lasts to the end of the function (Python)."""

    def __init__(self, reserved: Iterable[str]) -> None:
        self.lines: list[Line] = []
        self.depth = 0
        self.scope = Scope(taken=reserved)
        self.uses: Counter[Expr] = Counter()
        self.symbols: dict[sympy.Symbol, Expr] = {}
        self.guarded = 0
        self.step: Step | None = None

    # --- lines -------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append(Line(self.depth, text, self.step))

    @contextmanager
    def block(self, opening: str, closing: str = ""):
        """Lines inside are indented, and their names end with the block."""
        self.line(opening)
        self.scope, self.depth = Scope(self.scope, own_names=self.scopes), self.depth + 1
        yield
        self.scope, self.depth = self.scope.parent or self.scope, self.depth - 1
        if closing:
            self.line(closing)

    @contextmanager
    def on_behalf_of(self, step: Step):
        """Lines inside come from `step`."""
        before, self.step = self.step, step
        yield
        self.step = before

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
                    row = f"{row:<{COMMENT_COLUMN}}  {self.comment} {describe(line.step)}"
                previous = line.step
            text.append(row.rstrip())
        return "\n".join(text) + "\n", line_of

    # --- expressions -------------------------------------------------------------------------------------------------

    def count_uses(self, trees: Iterable[Expr]) -> None:
        """Before a block is printed: how often is each value needed in it?"""
        seen: set[Expr] = set()
        self.uses.clear()
        for tree in trees:
            self.uses[tree] += 1
            for node in tree.walk():
                if node not in seen:
                    seen.add(node)
                    self.uses.update(node.args)

    def text(self, expr: Expr, binding: int = 0) -> str:
        """`expr` as source, in parentheses if it binds less tightly than `binding`."""
        if name := self.scope.find(expr):
            return name
        if expr.op == "value_of":
            found = self.scope.find(expr.detail)
            assert found is not None, f"{expr.detail.node} is needed before it is computed"
            return found
        text, precedence = self.spell(expr)
        wants_name = self.uses[expr] > 1 or expr.op == "indirect" or len(text) > LONGEST
        if wants_name and not self.guarded and expr.op not in ("constant", "index_expr"):
            return self.bind(expr, text, self.name_for(expr))
        return f"({text})" if precedence < binding else text

    def value_text(self, tree: Expr) -> str:
        """The text of a whole step, which will get the step's name: no name of its own, however long it is."""
        return self.scope.find(tree) or (self.text(tree) if tree.op == "value_of" else self.spell(tree)[0])

    def spell(self, expr: Expr) -> tuple[str, int]:
        """The text of one operation and how tightly it binds."""
        if special := getattr(self, f"print_{expr.op}", None):
            return special(expr)
        if expr.op in self.infix:
            operator, precedence = self.infix[expr.op]
            left, right = self.text(expr.args[0], precedence), self.text(expr.args[1], precedence + 1)
            return f"{left} {operator} {right}", precedence
        return self.call(expr, self.calls.get(expr.op, expr.op))

    def call(self, expr: Expr, function: str) -> tuple[str, int]:
        return f"{function}({', '.join(map(self.text, expr.args))})", ATOM

    def name_for(self, expr: Expr) -> str:
        if expr.op == "to_dtype":
            return self.name_for(expr.args[0])
        if expr.op == "load":
            return f"{expr.detail[0]}_{''.join(sorted(str(s) for s in expr.detail[1].free_symbols))}"
        return "at" if expr.op == "indirect" else f"{expr.op}_"

    def bind(self, what: Expr | Step, text: str, wanted: str) -> str:
        """Give a value a name, and let the block know it."""
        dtype = what.dtype if isinstance(what, Expr) else what.buffer.dtype
        name = self.scope.unique(wanted)
        self.line(self.declare(name, dtype, text))
        self.scope.values[what] = name
        return name

    def declare(self, name: str, dtype: torch.dtype, text: str) -> str:
        raise NotImplementedError

    def index(self, expr: sympy.Expr) -> str:
        """An index formula as source; both languages write + - * // % alike, but for the division."""
        expr = sympy.sympify(expr)
        return index_text(expr, self.floor_division, {s: self.text(e) for s, e in self.symbols.items() if expr.has(s)})

    def floor_division(self, a: str, b: str) -> str:
        raise NotImplementedError


def shortest(value: float, dtype: torch.dtype) -> str:
    """A finite float with as few digits as make it the same number in `dtype`."""
    if dtype == torch.float64:
        return repr(float(value))
    exact = torch.tensor(value, dtype=torch.float32)
    text = next(
        t for d in range(1, 18) if torch.tensor(float(t := f"{exact.item():.{d}g}"), dtype=torch.float32) == exact
    )
    return text if any(c in text for c in ".e") else f"{text}.0"


def describe(step: Step) -> str:
    """What a step is and where in the user's code it comes from: 'gelu (model.py:12)'."""
    label = step.node.label or step.buffer.name
    for node in step.node.origins:
        captured = node.meta.get("origin", node)
        if location := captured.meta.get("location"):
            return f"{label} ({os.path.basename(location.filename)}:{location.line})"
    return label


def index_text(expr: sympy.Expr, divide: Callable[[str, str], str], names: Mapping[sympy.Symbol, str]) -> str:
    """A sympy formula over loop symbols as C or Python source: 768*i + j."""

    def show(e: sympy.Expr, tight: bool = False) -> str:
        if e in names:
            return names[e]
        kind = type(e).__name__
        if isinstance(e, (sympy.Symbol, sympy.Integer)):
            return f"({e})" if tight and e.is_negative else str(e)
        if isinstance(e, sympy.Add):
            terms = sorted(e.args, key=lambda t: (not t.free_symbols, -abs(t.as_coeff_Mul()[0]), str(t)))
            text = " + ".join(show(t) for t in terms).replace("+ -", "- ")
            return f"({text})" if tight else text
        if isinstance(e, sympy.Mul):
            return "*".join(show(a, tight=True) for a in e.args)
        if isinstance(e, sympy.Pow) and e.exp.is_Integer and e.exp > 0:
            return "*".join([show(e.base, tight=True)] * int(e.exp))
        if kind == "ModularIndexing":
            a, b, c = e.args
            text = f"{show(a, True) if b == 1 else divide(show(a, True), show(b, True))} % {show(c, True)}"
        elif kind == "FloorDiv":
            text = divide(*(show(a, tight=True) for a in e.args))
        elif isinstance(e, sympy.floor):
            text = divide(*(show(a, tight=True) for a in e.args[0].as_numer_denom()))
        elif kind in ("Mod", "PythonMod"):
            text = f"{show(e.args[0], tight=True)} % {show(e.args[1], tight=True)}"
        else:
            raise NotImplementedError(f"an index formula with {kind}: {e}")
        return f"({text})" if tight else text

    return show(sympy.sympify(expr))
