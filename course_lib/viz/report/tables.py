"""The tables of a report: graph breaks, failed guards, compile time, kernels, and what runs in
eager.

In:  the `Compile`s of a run (`compiles.py`). Out: HTML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.viz.kit.style import escape, human_bytes, human_seconds
from course_lib.viz.kit.tables import html_table
from course_lib.viz.kit.user_lines import same_break
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.pictures.guards.guard_tables import about, cause_of, readable, told
from course_lib.viz.recording import Recording, plain
from course_lib.viz.report.compile_time import compile_time
from course_lib.viz.report.compile_tree import Function, by, walk
from course_lib.viz.report.compiles import Compile, Program
from course_lib.viz.report.lines import (
    RAISED,
    Break,
    breaks_of,
    caret,
    first_own,
    in_the_end,
    line_of_guard,
    link,
    reached,
    where,
)
from course_lib.viz.report.tree_section import anchor

MOST_ROWS = 24
"""So many rows of a table are shown at once; the others unfold."""
MOST_LINES = 6
"""So many lines of the program are shown for a kernel."""
MOST_FUNCTIONS = 20
"""So many functions stand in the table of compile time."""
LONG_TEST = 160
"""So many characters of a test are shown."""
MOST_VALUES = 4
"""So many values that were expected are listed; of more, the first two and the last."""


def folded(rows: Sequence[tuple[str, ...]], header: tuple[str, ...], numbers: list[int]) -> str:
    """More rows, to be unfolded; `numbers`: the columns that are set flush right."""
    if not rows:
        return ""
    table = html_table(rows, header, numbers)
    return f"<details><summary>{len(rows)} more</summary>{table}</details>"


# ---- graph breaks --------------------------------------------------------------------------------


def breaks_html(compiles: list[Compile]) -> str:
    """A row for each line that ended a graph."""
    rows = []
    for same_breaks in by(breaks_of(compiles), lambda one: same_break(one.problem)).values():
        # A link for each function, to the first compile of it that met this break (it is written
        # last).
        titles = {
            occurrence.compile.title: occurrence.compile for occurrence in reversed(same_breaks)
        }
        links = ", ".join(link(compile) for compile in titles.values())
        rows.append(
            (
                break_line(first_own(same_breaks)),
                break_reason(same_breaks),
                links,
                str(len(same_breaks)),
            )
        )

    if not rows:
        return "<p>None.</p>"
    header = ("line", "why, and what to do", "while compiling", "times")
    return html_table(rows, header, numbers=[3])


def break_line(met: Break) -> str:
    """Where a graph ended, and the calls that led there."""
    problem = met.problem
    title = ""
    if problem.location:
        title = escape(str(problem.location))
    cell = f'<span title="{title}">{escape(where(problem.location))}</span>'
    cell += caret(problem.location)
    cell += f'<span class="cl-dim">{escape(reached(problem))}</span>'

    called = in_the_end(met)
    if called:
        cell += f'<br><span class="cl-dim">{called}</span>'
    return cell


def break_reason(met: list[Break]) -> str:
    """Why a graph ended, and what to do about it."""
    problem = first_own(met).problem
    cell = escape(problem.reason)
    if problem.hint:
        cell += f'<br><span class="cl-dim">{escape(problem.hint)}</span>'
    if any(occurrence.compile.raised for occurrence in met):
        cell += f"<br>{RAISED}"
    return cell


# ---- guards that failed --------------------------------------------------------------------------


def recompiles_html(compiles: list[Compile]) -> str:
    """A row for each time that no entry fitted: the guards that failed, for entry after entry, and
    what came of it.

    Entries that say the same, and expect another value each, share a line."""
    rows = []
    for compile in compiles:
        lines = [*failed_at_first(compile), *failed_later(compile)]
        if not lines:
            continue

        failed_guards = "".join(f"<li>{line.found}</li>" for line in lines)
        guards = "".join(f"<li>{line.guard}</li>" for line in lines)
        time_text = ""
        if compile.total_seconds:
            time_text = f", {human_seconds(compile.total_seconds)}"
        outcome = escape(compile.outcome) + time_text
        rows.append((link(compile), f"<ol>{failed_guards}</ol>", f"<ol>{guards}</ol>", outcome))

    if not rows:
        return "<p>None: every call after the first fitted the code that was there.</p>"
    header = ("function", "what was found", "the guard, and the line that made it", "so")
    return html_table(rows[:MOST_ROWS], header) + folded(rows[MOST_ROWS:], header, numbers=[])


@dataclass(frozen=True)
class FailedLine:
    """A guard that failed, as HTML: what was found, and the guard with the line that made it."""

    found: str
    guard: str


def failed_at_first(compile: Compile) -> Iterator[FailedLine]:
    """What failed at the call for which this compile was made."""
    for alike in by(compile.failures, same_but_expected).values():
        failed_html = escape(told_at_once(alike))
        if len(alike) > 1:
            failed_html += f'<br><span class="cl-dim">{len(alike)} entries</span>'
        yield FailedLine(failed_html, guard_html(alike[-1], compile))


def failed_later(compile: Compile) -> Iterator[FailedLine]:
    """What failed at the calls that were only counted, and not at the first."""
    at_first = {failure.guard for failure in compile.failures}
    for failure, _ in compile.later:
        if failure.guard not in at_first:
            failed_html = f"{escape(told(failure))}<br><span class='cl-dim'>at a later call</span>"
            yield FailedLine(failed_html, guard_html(failure, compile))


def guard_html(failure: Any, compile: Compile) -> str:
    """The test that did not hold, and the line that made it."""
    line = line_of_guard(cause_of(failure.guard), compile)
    return f"{test_html(failure)}<br>{line}"


EXPECTED = re.compile(r"(.*: expected )(.*)(, got .*)", re.S)
"""A failure in words (`told`): what stands before the value that was expected, that value, and what
was found."""


def same_but_expected(failure: Any) -> tuple[str, ...]:
    """What a failure says beside the value that its entry was made for."""
    cause = str(cause_of(failure.guard))
    match = EXPECTED.fullmatch(told(failure))
    if match:
        return match[1], match[3], cause
    return told(failure), "", cause


def told_at_once(alike: list[Any]) -> str:
    """'n: expected 2, 3 … 9, got 10' for failures that differ in what they expect."""
    matches = [EXPECTED.fullmatch(told(failure)) for failure in alike]
    first = matches[0]
    if not first:
        return told(alike[0])

    values = list(dict.fromkeys(match[2] for match in matches if match))
    some = ", ".join(values)
    if len(values) > MOST_VALUES:
        some = f"{', '.join(values[:2])} … {values[-1]}"
    return f"{first[1]}{some}{first[3]}"


def test_html(failure: Any) -> str:
    """The part of a guard that did not hold; a long one (fifty keys) cut in its middle, with the
    whole in a tooltip."""
    test = failed_test(failure)
    if len(test) <= LONG_TEST:
        return f"<code>{escape(test)}</code>"

    half = LONG_TEST // 2
    short = f"{test[:half]} … {test[-half:]}"
    return f'<code title="{escape(test)}">{escape(short)}</code>'


def failed_test(failure: Any) -> str:
    """The part of a guard that did not hold."""
    # The sentence begins with the part that differed, 'x.shape[0]: …': which tests look at it?
    # ("holds" is asked of a whole expression, not of a part.)
    path = about(failure.guard)
    part = told(failure).partition(":")[0]
    tests = list(failure.guard.tests)
    failed = [
        test for test in tests if test.op != "holds" and part.startswith(test.left.format(path))
    ]

    # The test of the object itself (its left side is "{}") looks at each part, too: one of the part
    # alone says more.
    of_a_part = [test for test in failed if test.left != "{}"]
    exact = of_a_part or failed or tests
    return readable(" and ".join(test.text(path) for test in exact))


# ---- compile time and kernels --------------------------------------------------------------------


def time_html(recording: Recording, functions: list[Function]) -> str:
    """The flame bar, and the functions that took longest."""
    timed = [(seconds_of(function), function) for _, function in walk(functions)]
    timed.sort(key=lambda one: -one[0])

    rows = []
    for seconds, function in timed[:MOST_FUNCTIONS]:
        times = str(len(function.compiles))
        first = link(function.compiles[0])
        rows.append((first, times, human_seconds(seconds), escape(dearest_stage(function))))

    header = ("function", "times asked", "seconds", "of that, most in one stage")
    return compile_time(recording).embedded + html_table(rows, header, numbers=[1, 2])


def seconds_of(function: Function) -> float:
    """Of the function alone: its resume functions have rows of their own."""
    return sum(compile.total_seconds for compile in function.compiles)


def dearest_stage(function: Function) -> str:
    """'codegen: 1.2 s'; '' if nothing was timed."""
    stages: Counter[str] = Counter()
    for compile in function.compiles:
        stages.update(compile.seconds)

    for stage, duration in stages.most_common(1):
        return f"{stage}: {human_seconds(duration)}"
    return ""


def kernels_html(compiles: list[Compile]) -> str:
    """A row for each kernel, with the lines of the program that it came from."""
    rows = []
    for compile in compiles:
        for program in compile.programs:
            for kernel in kernels_of(program):
                rows.append(kernel_row(kernel, compile, program))

    if not rows:
        return "<p>No kernel was made.</p>"
    header = ("kernel", "loops", "lines of the program", "in", "moves")
    first = html_table(rows[:MOST_ROWS], header, numbers=[4])
    return first + folded(rows[MOST_ROWS:], header, numbers=[4])


def kernel_row(kernel: Any, compile: Compile, program: Program) -> tuple[str, ...]:
    """The cells of one kernel. A library's has no code of ours to lead to."""
    name, loops = f"<code>{escape(kernel.name)}</code>", "library"
    if not kernel.is_library:
        name = f'<a href="#{anchor(compile, program, kernel.kernel)}">{name}</a>'
        loops = escape(kernel.space)

    lines = []
    for at in kernel.lines[:MOST_LINES]:
        lines.append(f"{escape(where(at))} <code>{escape(at.text)}</code>")
    if len(kernel.lines) > MOST_LINES:
        lines.append(f"and {len(kernel.lines) - MOST_LINES} more")

    part = f"{link(compile)}, {program.part}"
    return name, loops, "<br>".join(lines) or "–", part, human_bytes(kernel.bytes)


# ---- what runs in eager --------------------------------------------------------------------------


def eager_html(compiles: list[Compile]) -> str:
    """What is not compiled after all, or has no CUDA graph though one was asked for."""
    rows = [*fallen_back(compiles), *stuck(compiles), *without_cuda_graph(compiles)]
    if rows:
        return html_table(rows, ("what", "why"))
    return "<p>Nothing.</p>"


def fallen_back(compiles: list[Compile]) -> Iterator[tuple[str, str]]:
    """Calls that run in eager, and graphs that run operation by operation."""
    for compile in compiles:
        whys = list(dict.fromkeys(compile.fallbacks))
        if compile.in_eager:
            whys.insert(0, compile.in_eager)

        for why in whys:
            # The sentence begins with the function, which stands in the first cell already.
            reason_html = escape(plain(why).removeprefix(f"{compile.name} ({compile.where}) "))
            if compile.alike and why == compile.in_eager:
                reason_html += f", and {compile.alike:,} calls more"
            yield link(compile), reason_html


def stuck(compiles: list[Compile]) -> Iterator[tuple[str, str]]:
    """Functions of which nothing was captured: they broke before there was anything to compile."""
    for compile in compiles:
        nothing = compile.result is None and "guards" not in compile.own_seconds
        if nothing and compile.problems and not compile.raised:
            yield link(compile), escape(compile.problems[-1].reason)


def without_cuda_graph(compiles: list[Compile]) -> Iterator[tuple[str, str]]:
    """Functions whose kernels are started one by one; each reason once."""
    # (function, reason) → the last compile of it for which that holds
    last: dict[tuple[str, str], Compile] = {}
    for compile in compiles:
        for build in compile.builds:
            if build.no_cuda_graph:
                last[compile.title, build.no_cuda_graph] = compile

    for (_, why), compile in last.items():
        what_happened = "compiled; its kernels are started one by one, without a CUDA graph"
        yield link(compile), f"{what_happened}: {escape(why)}"
