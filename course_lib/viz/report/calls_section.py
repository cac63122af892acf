"""The part of the trace report about calls: what each kernel and each entry's guards cost, over all calls that were recorded.

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
HEADER = ("what", "of", "calls", "least", "median", "most", "in all")
Row = tuple[float, tuple[str, ...]]


def calls_html(recording: Recording, compiles: list[Compile]) -> str:
    """A row for each kernel, each CUDA graph and each entry's guards, the dearest first; and what was counted only."""
    owners = {
        id(p.compiled): (c, p.part) for c in compiles for p in c.programs if p.compiled is not None
    }
    rows: list[Row] = []
    for count in recording.counts.values():
        match count.first:
            case KernelLaunched(name=name, program=program):
                rows.append(row(f"<code>{escape(name)}</code>", owner(owners, program), count))
            case CudaGraphReplayed(program=program):
                rows.append(row("a CUDA graph of all kernels", owner(owners, program), count))
            case GuardsChecked(name=name, check=check, held=held):
                name, _ = CALLED.get(check, (name, None))
                rows.append(
                    row(
                        f"guards that {'held' if held else 'did not hold'}",
                        f"<code>{escape(name)}</code>",
                        count,
                    )
                )
    if not rows:
        return ""
    cells = [cells for _, cells in sorted(rows, key=lambda row: -row[0])]
    more = html_table(cells[MOST_ROWS:], HEADER, range(2, 7))
    folded = (
        f"<details><summary>{len(cells) - MOST_ROWS} more</summary>{more}</details>"
        if cells[MOST_ROWS:]
        else ""
    )
    return f"<p>{summed_up(recording.counts.values())}</p>{html_table(cells[:MOST_ROWS], HEADER, range(2, 7))}{folded}"


def owner(owners: dict[int, tuple[Compile, str]], program: Any) -> str:
    if (found := owners.get(id(program))) is None:
        return "what was compiled before"
    compile, part = found
    return f'<a href="#c{compile.number}">{escape(compile.title)}</a>, {part}'


def row(what: str, of: str, count: Count) -> Row:
    spread = (count.least, count.median, count.most, count.total)
    return count.total, (what, of, f"{count.times:,}", *map(human_seconds, spread))


def summed_up(counts: Iterable[Count] | Sequence[Count]) -> str:
    """What a reader must know about records that were left out."""
    left = sum(count.left_out for count in counts if hasattr(count.first, "seconds"))
    said = "Seconds are the host's, with the clock around each call."
    if not left:
        return said
    kept = f"The first {WHOLE} calls of each kernel and of each entry's guards are kept one by one; the {left:,} records after them"
    return f"{said} {kept} were summed up: they count in this table (the median to 2 %), and are listed nowhere."
