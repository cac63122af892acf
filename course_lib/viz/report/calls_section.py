"""The part of the trace report about calls: what each kernel and each entry's guards cost, over all
calls that were recorded.

In:  a `Recording`'s `counts`, and the `Compile`s.
Out: HTML; '' if no call was recorded (`COURSE_TRACE` listens to compiles only).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from course_lib.viz.kit.style import escape, human_seconds
from course_lib.viz.kit.tables import html_table
from course_lib.viz.kit.user_lines import CALLED
from course_lib.viz.pictures.runtime.call_events import (
    CudaGraphReplayed,
    GuardsChecked,
    KernelLaunched,
)
from course_lib.viz.recording import WHOLE, Count, Recording
from course_lib.viz.report.compiles import Compile

MOST_ROWS = 24
"""So many rows are seen at once; the others unfold."""
HEADER = ("what", "of", "calls", "least", "median", "most", "in all")
Row = tuple[float, tuple[str, ...]]
"""Seconds in all, by which rows are sorted, and the cells."""
Owners = dict[int, tuple[Compile, str]]
"""By the `id` of a compiled program (its compile keeps it alive): the compile that made it, and its
part: 'inference', 'forward' or 'backward'."""


def calls_html(recording: Recording, compiles: list[Compile]) -> str:
    """A row for each kernel, each CUDA graph and each entry's guards, the dearest first; and what
    was counted only."""
    # A launch knows its program only. Which function that belongs to, the compiles know
    owners: Owners = {}
    for compile in compiles:
        for program_of_compile in compile.programs:
            if program_of_compile.compiled is not None:
                owners[id(program_of_compile.compiled)] = (compile, program_of_compile.part)

    rows: list[Row] = []
    for count in recording.counts.values():
        match count.first:
            case KernelLaunched(name=name, program=program):
                rows.append(row(f"<code>{escape(name)}</code>", owner(owners, program), count))
            case CudaGraphReplayed(program=program):
                rows.append(row("a CUDA graph of all kernels", owner(owners, program), count))
            case GuardsChecked(name=name, check=check, held=held):
                name, _ = CALLED.get(check, (name, None))
                what = "guards that held" if held else "guards that did not hold"
                rows.append(row(what, f"<code>{escape(name)}</code>", count))
    if not rows:
        return ""

    # The first rows are seen at once, the others when asked for
    rows.sort(key=seconds_of, reverse=True)
    cells = [cells for _, cells in rows]
    first, others = cells[:MOST_ROWS], cells[MOST_ROWS:]
    numbers = range(2, 7)  # the columns that are set to the right
    folded = ""
    if others:
        more = html_table(others, HEADER, numbers)
        folded = f"<details><summary>{len(others)} more</summary>{more}</details>"
    explanation = summed_up(recording.counts.values())
    return f"<p>{explanation}</p>{html_table(first, HEADER, numbers)}{folded}"


def seconds_of(row: Row) -> float:
    return row[0]


def owner(owners: Owners, program: Any) -> str:
    """A link to the compile that made this program, and which of its programs it is ('forward')."""
    compile_and_part = owners.get(id(program))
    if compile_and_part is None:  # made before the recording began
        return "what was compiled before"
    compile, part = compile_and_part
    return f'<a href="#c{compile.number}">{escape(compile.title)}</a>, {part}'


def row(what: str, of: str, count: Count) -> Row:
    """What was called, whose it is, how often, and how long it took: each as a cell."""
    times = (count.least, count.median, count.most, count.total)
    return count.total, (what, of, f"{count.times:,}", *map(human_seconds, times))


def summed_up(counts: Iterable[Count] | Sequence[Count]) -> str:
    """What a reader must know about records that were left out."""
    left = sum(count.left_out for count in counts if hasattr(count.first, "seconds"))
    explanation = "Seconds are the host's, with the clock around each call."
    if not left:
        return explanation
    kept_calls = f"The first {WHOLE} calls of each kernel and of each entry's guards are kept one by one; the {left:,} records after them"
    return f"{explanation} {kept_calls} were summed up: they count in this table (the median to 2 %), and are listed nowhere."
