"""What fusion did: the loops before and after, and the bytes that travel through memory between
them.

In:  a `Recording` (its `Lowered` and `Scheduled` events), or a `Schedule`.
Out: a `Picture` of two columns. Left, each loop alone: it reads its inputs from memory and writes
     its result there. Right, the kernels: a thick frame round the loops that run as one; what stays
     inside the frame stays in registers. A cylinder is a buffer; its height and the thickness of
     its lines are its bytes. Of many loops there is a list of kernels, each of which unfolds to
     such a picture of its own. Below, the pairs that were kept apart, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from course_lib import events
from course_lib.viz.kit.arguments import attributes
from course_lib.viz.kit.style import Picture, escape, human_bytes, plural
from course_lib.viz.kit.tables import breakable, html_table
from course_lib.viz.pictures.scheduling.fusion_drawing import two_columns
from course_lib.viz.pictures.scheduling.fusion_items import (
    Buffers,
    Item,
    Sides,
    buffers_of,
    item_of_kernel,
    item_of_node,
    nodes_of,
    sides,
)
from course_lib.viz.recording import Recording

FOLD_FROM = 60
"""From so many loops on each kernel has a picture of its own: one drawing of all would be thousands
of pixels tall."""
REASONS = 6
"""Pairs kept apart that are listed at once; the others unfold."""


@dataclass(frozen=True)
class Apart:
    """Two kernels that were not fused, why, and the bytes that this costs."""

    first: str
    second: str
    reason: str
    lost: float


def fusion(recording: Any, index: int = 0) -> Picture:
    """Loops before and after fusion.

    `recording` is a `Recording` (`index` chooses the graph) or a `Schedule`."""
    return fusion_of(*find(recording, index))


def find(recording: Any, index: int) -> tuple[Any, Any]:
    """The schedule and the lowered graph (None if it is not known: a schedule alone does not name
    it)."""
    if not isinstance(recording, Recording):
        schedule = "fusion expects a trace, or a schedule (trace.of(events.Scheduled)[0].schedule)"
        return attributes(recording, ("kernels", "alone"), schedule), None

    schedules, graphs = recording.of(events.Scheduled), recording.of(events.Lowered)
    if not schedules:
        raise LookupError(
            "no graph was scheduled while recording (the 'eager' and 'aot_eager' backends stop before that)"
        )
    # With as many of both, the schedule of this number was made of the graph of this number.
    graph = graphs[index].graph if len(graphs) == len(schedules) else None
    return schedules[index].schedule, graph


def fusion_of(schedule: Any, graph: Any = None) -> Picture:
    """The picture of one `Schedule`; with the `LoopGraph` that it was made of, the graph's results
    are told apart."""
    by_kernel = [[item_of_node(node) for node in nodes_of(kernel)] for kernel in schedule.kernels]
    before = [item for items in by_kernel for item in items]
    after = [item_of_kernel(kernel) for kernel in schedule.kernels]
    buffers = buffers_of(schedule, graph, after)
    # A schedule of ours knows its bytes. A learner's may not: then buffers are added up.
    bytes_before = int(getattr(schedule, "bytes_before", 0)) or buffers.moved(before)
    bytes_after = int(getattr(schedule, "bytes_after", 0)) or buffers.moved(after)
    both = sides(before, after, bytes_before, bytes_after)

    heads = ". ".join(f"{side.title}, {side.total}" for side in both)
    names = "; ".join(item.name for item in after)
    alt = f"Fusion: {heads}: {names}."
    caption = "Loops that became one kernel stand in one frame; ✕ marks a buffer that no longer reaches memory. "
    caption += "Line thickness and cylinder height are bytes."
    if len(before) < FOLD_FROM:
        drawing = two_columns(both, buffers).framed(alt)
    else:
        drawing = kernel_by_kernel(both, by_kernel, buffers)
        caption = f"A kernel unfolds to its loops. {caption}"

    apart = kept_apart(schedule)
    notes = [f"inlined: {line}" for line in getattr(schedule, "inlined", ())]
    notes += [f"removed: {line}" for line in getattr(schedule, "removed", ())]
    body = f"{drawing}{html_apart(apart)}{html_notes(notes)}"
    return Picture(body, caption, alt, as_text(both, buffers, apart, notes))


# ---- many loops ----------------------------------------------------------------------------------


def kernel_by_kernel(both: Sides, loops_of_kernels: list[list[Item]], buffers: Buffers) -> str:
    """A line for each kernel, in HTML.

    A line unfolds to a picture. A kernel that differs only in names from one above says so
    instead."""
    # The loops of a kernel and the bytes it moves → the first kernel that had the same
    first_of_its_kind: dict[Any, str] = {}
    lines = []
    for loops, kernel in zip(loops_of_kernels, both.after.items, strict=True):
        before, after = buffers.moved(loops), buffers.moved([kernel])
        its_kind = (tuple(kernel.loops), before, after)
        first = first_of_its_kind.setdefault(its_kind, kernel.name)

        words = in_one_line(kernel, len(loops), before, after)
        like = ""
        if first != kernel.name:
            like = f", like {first}"
        if like or kernel.extern:
            lines.append(f'<div style="padding-left: 14px">{escape(words)}{like}</div>')
        else:
            drawing = two_columns(sides(loops, [kernel], before, after), buffers).render(words)
            lines.append(f"<details><summary>{escape(words)}</summary>{drawing}</details>")

    heading = "<br>".join(f"{side.title}; {side.total}" for side in both)
    return f'<p>{heading}</p><div class="cl-scroll" tabindex="0">{"".join(lines)}</div>'


def in_one_line(kernel: Item, loops: int, before: int, after: int) -> str:
    """'fused_add: 2 loops, 1.2 MB → 400 KB'."""
    what = "library call" if kernel.extern else plural(loops, "loop")
    words = f"{kernel.name}: {what}, {human_bytes(before)}"
    if after != before:
        words += f" → {human_bytes(after)}"
    return words


# ---- in words ------------------------------------------------------------------------------------


def kept_apart(schedule: Any) -> list[Apart]:
    """Every pair that was not fused, the dearest first."""
    bytes_lost: dict[tuple[str, str, str], float] = {}
    for decision in getattr(schedule, "decisions", ()):
        answer = decision.answer
        if hasattr(answer, "reason"):  # a `No`
            pair = named(decision.producer), named(decision.consumer)
            bytes_lost[(*pair, answer.reason)] = bytes_or_0(answer.lost)

    pairs = [Apart(*key, lost) for key, lost in bytes_lost.items()]
    return sorted(pairs, key=lambda pair: -pair.lost)


def bytes_or_0(number: Any) -> float:
    """A number of bytes; 0 for one in symbolic sizes, which is a formula."""
    try:
        return float(number)
    except TypeError:
        return 0.0


def named(who: Any) -> str:
    """'mm (library)' for 'aten.mm.default (extern)'."""
    name = str(who).removeprefix("aten.")
    name = name.replace(".default (extern)", " (library)")
    return name.replace(" (extern)", " (library)")


def html_apart(apart: list[Apart]) -> str:
    """The list of pairs kept apart."""
    if not apart:
        return ""

    rows = []
    for pair in apart:
        names = breakable(pair.first), breakable(pair.second)
        rows.append((*names, escape(pair.reason), human_bytes(pair.lost)))
    header = ("first", "second", "kept apart because", "bytes")
    more = ""
    if len(rows) > REASONS:
        table = html_table(rows[REASONS:], header, numbers=[3])
        more = f"<details><summary>{len(rows) - REASONS} more</summary>{table}</details>"
    first = html_table(rows[:REASONS], header, numbers=[3])
    return f"<p><b>Kept apart</b></p>{first}{more}"


def html_notes(notes: list[str]) -> str:
    """Loops that are not in the picture, and why."""
    if not notes:
        return ""
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    summary = f"{plural(len(notes), 'loop')} computed where it is read, or not at all"
    return f"<details><summary>{summary}</summary><ul>{listed}</ul></details>"


def as_text(both: Sides, buffers: Buffers, apart: list[Apart], notes: list[str]) -> str:
    """The picture in words."""
    lines = [f"{both.before.title}; {both.before.total}"]
    for item in both.before.items:
        loop = item.loops[0]
        lines.append(f"  {loop.label:<14} over {loop.ranges}: {flow(item, buffers)}")

    lines.append(f"{both.after.title}; {both.after.total}")
    for item in both.after.items:
        call = " (library call)" if item.extern else ""
        lines.append(f"  {item.name}{call}: {flow(item, buffers)}")
        if not item.extern:
            lines += [f"    │ {loop.label} over {loop.ranges}" for loop in item.loops]

    if apart:
        lines.append("Kept apart")
        for pair in apart:
            who = f"{pair.first} | {pair.second}"
            lines.append(f"  {who}: {pair.reason} ({human_bytes(pair.lost)})")
    return "\n".join([*lines, *notes])


def flow(item: Item, buffers: Buffers) -> str:
    """What it reads and writes."""
    return f"reads {listed(item.reads, buffers)}, writes {listed(item.writes, buffers)}"


def listed(names: Iterable[str], buffers: Buffers) -> str:
    """'x (1.2 MB), buf0 (4 KB)'."""
    return ", ".join(f"{name} ({buffers.in_words(name)})" for name in names) or "nothing"
