"""Lines of the program in a report: where a graph broke, and which line made a guard.

In:  `Compile`s, problems and guards. Out: short pieces of HTML and text that name a line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course_lib.viz.kit.style import escape, place
from course_lib.viz.kit.tables import breakable
from course_lib.viz.kit.user_lines import is_own
from course_lib.viz.kit.user_lines import way as way_of
from course_lib.viz.pictures.guards.guard_tables import STACK, about, cause_of, inner_of
from course_lib.viz.report.compiles import Compile
from course_lib.viz.report.tree_section import split

RAISED = "With <code>fullgraph=True</code> this is an error: the function did not run."
"""For a graph break that the program got as an error; HTML."""


def where(location: Any) -> str:
    """'model.py:12'."""
    if location:
        return place(location.filename, location.line)
    return "an unknown line"


def caret(location: Any) -> str:
    """The line with its caret, and the two lines around it."""
    if not location or not location.caret:
        return ""
    return f'<div class="cl-code"><pre>{escape(location.caret)}</pre></div>'


def link(compile: Compile) -> str:
    """A function's name, which leads to its compile in the tree."""
    return f'<a href="#c{compile.number}">{breakable(compile.title)}</a>'


# ---- graph breaks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Break:
    """A graph break (`problem`, an `Unsupported`), and the compile that met it."""

    compile: Compile
    problem: Any


def breaks_of(compiles: list[Compile]) -> list[Break]:
    """All graph breaks, in the order in which they were met."""
    return [Break(compile, problem) for compile in compiles for problem in compile.problems]


def first_own(met: list[Break]) -> Break:
    """The first time that this break was met at a line of the program itself; if there is none, the
    first time."""
    for occurrence in met:
        if is_own(occurrence.problem.location):
            return occurrence
    return met[0]


def in_the_end(met: Break) -> str:
    """The line of the program that called a library in which a graph ended, as HTML; '' where the
    graph ended in the program itself, or nobody knows that line."""
    at = met.compile.called_at
    if not at or is_own(met.problem.location):
        return ""
    return f"called, in the end, by {where(at)}: <code>{escape(at.text)}</code>"


def reached(problem: Any) -> str:
    """The calls that led to the line of a break, outermost first, and those that it led to."""

    def said(call: Any) -> str:
        # (A resume function is told as the function that it resumes: 'f from 12' → 'f'.)
        return f"{call.function.split(' from ')[0]} ({where(call)})"

    above, below = way_of(problem)
    parts = []
    if above:
        parts.append(f"reached from {' → '.join(map(said, above))}")
    if below:
        parts.append(f"it goes on to {' → '.join(map(said, below))}")
    return "; ".join(parts)


# ---- guards --------------------------------------------------------------------------------------


def because(guard: Any, compile: Compile | None = None) -> str:
    """The line that made a guard necessary.

    For one of a library, the program's line that called it, if `compile` knows."""
    cause = cause_of(guard)
    at = compile.called_at if compile else None
    if cause and at and not is_own(cause):
        line = f"{where(at)}: <code>{escape(at.text)}</code>"
        return f", tested because of {line} (in {where(cause)})"
    if STACK.match(about(guard)):
        return ", a value on the stack where the function goes on"
    if not cause:
        return ""

    inner_place = ""
    if inner_of(guard):
        inner_place = f" (in {where(guard.inner)})"
    return f", tested because of {where(cause)}: <code>{escape(cause.text)}</code>{inner_place}"


def line_of_guard(cause: Any, compile: Compile) -> str:
    """The line that made a guard, for a table; for one of a library, the program's line that called
    it too."""
    if not cause:
        return arguments_of(compile)

    line = f"{escape(where(cause))} <code>{escape(cause.text)}</code>"
    at = compile.called_at
    if is_own(cause) or not at:
        return line
    return f"{escape(where(at))} <code>{escape(at.text)}</code><br>in {line}"


def arguments_of(compile: Compile) -> str:
    """In place of a line: the guard tests an argument.

    No line asks for that; each tensor and number that a call passes is tested."""
    if ", from line " in compile.title:
        return f"what was at hand where <code>{escape(compile.title)}</code> begins"

    filename, line = split(compile.where)
    at = escape(place(filename, line))
    return f"what <code>{escape(compile.name)}</code> is called with, {at}"
