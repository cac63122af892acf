"""What fusion did: the loops before and after, and the bytes that travel through memory between them.

In:  a `Recording` (its `Lowered` and `Scheduled` events), or a `Schedule`.
Out: a `Picture` of two columns. Left, each loop alone: it reads its inputs from memory and writes its result there. Right, the
     kernels: a thick frame round the loops that run as one; what stays inside the frame stays in registers. A cylinder is a
     buffer; its height and the thickness of its lines are its bytes. Of many loops there is a list of kernels, each of which
     unfolds to such a picture of its own. Below, the pairs that were kept apart, with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from course_lib import events
from course_lib.viz.kit.asked import attributes
from course_lib.viz.kit.style import SMALL, Picture, escape, human_bytes, plural
from course_lib.viz.kit.svg import Svg, lanes, shorten
from course_lib.viz.kit.tables import breakable, html_table
from course_lib.viz.pictures.lowering.loop_formulas import is_extern, label_of, reads
from course_lib.viz.recording import Recording

BOX, CYLINDER, LABEL, BETWEEN = 177, 28, 96, 22
SLOT, TAP, LANE, ROW, GAP = 38, 10, 9, 46, 14
LOOP, HEAD = 38, 26
NOTE = 18
SMALL_SHARE = 0.002
"""In a picture of many loops, inputs smaller than this share of the largest buffer are named in the box that reads them."""
DENSE_FROM = 8
FOLD_FROM = 60
"""From so many loops on each kernel has a picture of its own: one drawing of all would be thousands of pixels tall."""
REASONS = 6
"""Pairs kept apart that are listed at once; the others unfold."""


@dataclass
class Item:
    """Something that runs as one: a loop, a kernel, or a library call."""

    name: str
    loops: list[tuple[str, str]]
    reads: list[str]
    writes: list[str]
    extern: bool = False
    top: float = 0.0
    height: float = 0.0
    arrive: dict[str, float] = field(default_factory=dict)
    """Buffer read through a lane → where its line meets the box."""
    small: list[str] = field(default_factory=list)
    """Inputs too small to draw: they are named in the box."""
    beside: dict[str, float] = field(default_factory=dict)
    """Buffer drawn beside the box → the middle of its cylinder."""


def fusion(recording: Any, index: int = 0) -> Picture:
    """Loops before and after fusion. `recording` is a `Recording` (`index` chooses the graph) or a `Schedule`."""
    return fusion_of(*find(recording, index))


def fusion_of(schedule: Any, graph: Any = None) -> Picture:
    """The picture of one `Schedule`; with the `LoopGraph` that it was made of, the graph's results are told apart."""
    sizes = buffer_sizes(schedule, graph)
    after = [item_of_kernel(kernel) for kernel in schedule.kernels]
    each = [[item_of_node(node) for node in nodes_of(kernel)] for kernel in schedule.kernels]
    before = [item for items in each for item in items]
    kept = {name for item in after for name in item.writes}
    results = {
        view.buffer.name for view in getattr(graph, "outputs", ()) if hasattr(view, "buffer")
    }
    bytes_before = int(getattr(schedule, "bytes_before", 0)) or moved(before, sizes)
    bytes_after = int(getattr(schedule, "bytes_after", 0)) or moved(after, sizes)

    heading, totals = headings(before, after), amounts(bytes_before, bytes_after)
    alt = (
        f"Fusion: {heading[0]}, {totals[0]}. {heading[1]}, {totals[1]}: "
        + "; ".join(item.name for item in after)
        + "."
    )
    caption = (
        "Loops that became one kernel stand in one frame; ✕ marks a buffer that no longer reaches memory. "
        "Line thickness and cylinder height are bytes."
    )
    if len(before) < FOLD_FROM:
        drawing = drawn(before, after, sizes, kept, results, totals).framed(alt)
    else:
        seen: dict[Any, str] = {}
        lines = [
            one_kernel(*pair, sizes, kept, results, seen) for pair in zip(each, after, strict=True)
        ]
        drawing = f"<p>{heading[0]}; {totals[0]}<br>{heading[1]}; {totals[1]}</p>"
        drawing += f'<div class="cl-scroll" tabindex="0">{"".join(lines)}</div>'
        caption = f"A kernel unfolds to its loops. {caption}"
    apart = kept_apart(schedule)
    notes = [f"inlined: {line}" for line in getattr(schedule, "inlined", ())]
    notes += [f"removed: {line}" for line in getattr(schedule, "removed", ())]
    body = f"{drawing}{html_apart(apart)}{html_notes(notes)}"
    return Picture(body, caption, alt, as_text(heading, totals, before, after, apart, notes, sizes))


def headings(before: list[Item], after: list[Item]) -> tuple[str, str]:
    return (
        f"Before: {plural(len(before), 'loop')}, each alone",
        f"After: {plural(len(after), 'kernel')}",
    )


def amounts(before: int, after: int) -> tuple[str, str]:
    """The bytes of either side, and what was saved."""
    saved = f" ({human_bytes(before - after)} less)" if after < before else ""
    return f"{human_bytes(before)} through memory", f"{human_bytes(after)} through memory{saved}"


def drawn(
    before: list[Item],
    after: list[Item],
    sizes: dict[str, float],
    kept: set[str],
    results: set[str],
    totals: tuple[str, str],
) -> Svg:
    """The two columns."""
    left, right = (
        Panel(before, sizes, "eager", kept, results),
        Panel(after, sizes, "scheduling", kept, results),
    )
    svg = Svg(left.width + BETWEEN + right.width, 48 + max(left.height, right.height))
    sides = zip(
        (left, right), (2.0, left.width + BETWEEN), headings(before, after), totals, strict=True
    )
    for panel, x, title, total in sides:
        svg.text(x, 15, title, bold=True)
        svg.text(x, 33, total, SMALL)
        panel.draw(svg, x, 48)
    return svg


def one_kernel(
    loops: list[Item],
    kernel: Item,
    sizes: dict[str, float],
    kept: set[str],
    results: set[str],
    seen: dict[Any, str],
) -> str:
    """A kernel of many, as a line that unfolds to its picture; one that differs only in names from a kernel above says so."""
    before, after = moved(loops, sizes), moved([kernel], sizes)
    what = "library call" if kernel.extern else plural(len(loops), "loop")
    line = f"{kernel.name}: {what}, {human_bytes(before)}" + (
        f" → {human_bytes(after)}" if after != before else ""
    )
    same = seen.setdefault((tuple(kernel.loops), before, after), kernel.name)
    if same != kernel.name or kernel.extern:
        return f'<div style="padding-left: 14px">{escape(line)}{f", like {same}" * (same != kernel.name)}</div>'
    drawing = drawn(loops, [kernel], sizes, kept, results, amounts(before, after)).render(line)
    return f"<details><summary>{escape(line)}</summary>{drawing}</details>"


def find(recording: Any, index: int) -> tuple[Any, Any]:
    """The schedule and the lowered graph (None if it is not known)."""
    if not isinstance(recording, Recording):
        schedule = "fusion expects a trace, or a schedule (trace.of(events.Scheduled)[0].schedule)"
        return attributes(recording, ("kernels", "alone"), schedule), None
    schedules, graphs = recording.of(events.Scheduled), recording.of(events.Lowered)
    if not schedules:
        raise LookupError(
            "no graph was scheduled while recording (the 'eager' and 'aot_eager' backends stop before that)"
        )
    return schedules[index].schedule, graphs[index].graph if len(graphs) == len(schedules) else None


def buffer_sizes(schedule: Any, graph: Any) -> dict[str, float]:
    """Buffer → bytes."""
    found: dict[str, Any] = dict(graph.buffers) if graph is not None else {}
    sizes = {name: tensor.nbytes for name, tensor in getattr(graph, "constants", {}).items()}
    for kernel in schedule.kernels:
        for node in nodes_of(kernel):
            found.update({b.name: b for b in node.buffers})
    for name, buffer in found.items():
        try:
            sizes[name] = float(buffer.nbytes)
        except TypeError:  # a size that is not known yet
            sizes[name] = 0.0
    return sizes


def nodes_of(kernel: Any) -> Sequence[Any]:
    """The loops of a kernel; a library call is its own."""
    return getattr(kernel, "nodes", None) or (kernel,)


def item_of_node(node: Any) -> Item:
    """A loop that runs alone, or a library call."""
    return Item(
        label_of(node),
        [loop_lines(node)],
        reads(node),
        [b.name for b in node.buffers],
        is_extern(node),
    )


def item_of_kernel(kernel: Any) -> Item:
    """A kernel of the schedule."""
    if is_extern(kernel):
        return item_of_node(kernel)
    inside = [loop_lines(node) for node in kernel.nodes]
    order = [name for node in kernel.nodes for name in reads(node) if name in kernel.reads]
    writes = [b.name for node in kernel.nodes for b in node.buffers if b.name in kernel.stores]
    return Item(kernel.name, inside, list(dict.fromkeys(order)), writes)


def loop_lines(node: Any) -> tuple[str, str]:
    """A loop's ranges and what it does."""
    if is_extern(node):
        return "library call", label_of(node)
    ranges = "×".join(map(str, node.ranges)) or "1"
    reduced = "×".join(map(str, getattr(node, "reduced", ())))
    return f"{ranges}, reducing {reduced}" if reduced else ranges, label_of(node)


def moved(items: list[Item], sizes: dict[str, float]) -> int:
    """Bytes that cross memory when each item runs alone."""
    return int(sum(sizes.get(name, 0) for item in items for name in [*item.reads, *item.writes]))


# ---- drawing --------------------------------------------------------------------------------------------------------


class Panel:
    """One column: boxes from top to bottom, the buffers to their right, lines between them in lanes."""

    def __init__(
        self,
        items: list[Item],
        sizes: dict[str, float],
        stage: str,
        kept: set[str],
        results: set[str],
    ) -> None:
        loops = sum(len(item.loops) for item in items)
        self.items, self.sizes, self.stage, self.kept, self.results = (
            items,
            sizes,
            stage,
            kept,
            results,
        )
        self.least = SMALL_SHARE * max(sizes.values(), default=0) if loops > DENSE_FROM else 0
        self.made = {name for item in items for name in item.writes}
        self.home: dict[str, Item] = {}
        y = 0.0
        for item in items:
            y = self.place(item, y) + GAP
        self.height = y
        self.lanes = self.assign_lanes()
        self.lane_count = 1 + max(self.lanes.values(), default=0)
        self.cylinder_x = BOX + 34 + LANE * self.lane_count
        self.width = self.cylinder_x + CYLINDER + LABEL

    def place(self, item: Item, y: float) -> float:
        """Give the item its height, and each of its buffers a place; the bottom comes back."""
        item.top = y
        through = [name for name in item.reads if name in self.home]
        inputs = [name for name in item.reads if name not in self.home and name not in self.made]
        item.small = [name for name in inputs if self.sizes.get(name, 0) < self.least]
        beside = [name for name in inputs if name not in item.small] + item.writes
        for i, name in enumerate(through):
            item.arrive[name] = y + 9 + TAP * i
        for i, name in enumerate(beside):
            item.beside[name] = y + TAP * len(through) + SLOT * (i + 0.5) + 2
            self.home.setdefault(name, item)
        least = ROW if item.extern or self.stage == "eager" else HEAD + LOOP * len(item.loops) + 4
        least += NOTE if item.small else 0
        item.height = max(least, TAP * len(through) + SLOT * len(beside) + 6)
        return y + item.height

    def assign_lanes(self) -> dict[str, int]:
        """A lane for each buffer that is read further down: the first that is free over that stretch."""
        stretches = []
        for name, item in self.home.items():
            last = max(
                (reader.arrive[name] for reader in self.items if name in reader.arrive), default=0.0
            )
            if last:
                stretches.append((item.beside[name], last, name))
        return lanes(stretches)

    def weight(self, name: str) -> float:
        """0 for the smallest buffer of the picture, 1 for the largest, by the logarithm of their bytes."""
        known = [size for size in self.sizes.values() if size > 0]
        size = self.sizes.get(name, 0)
        if not size or max(known) == min(known):
            return 0.5 if size else 0.0
        return math.log(size / min(known)) / math.log(max(known) / min(known))

    def draw(self, svg: Svg, x: float, y: float) -> None:
        for item in self.items:
            for name in [*item.beside]:
                self.draw_lines(svg, x, y, item, name)
        for item in self.items:
            self.draw_item(svg, item, x, y + item.top)
            for name, middle in item.beside.items():
                self.draw_buffer(svg, x + self.cylinder_x, y + middle, name)

    def draw_lines(self, svg: Svg, x: float, y: float, item: Item, name: str) -> None:
        """From the writer to the buffer (or from an input to its first reader), and from there to who reads it further down."""
        stage = "scheduling" if self.stage == "scheduling" and name in self.made else None
        tip = f"{name}: {human_bytes(self.sizes.get(name, 0))}"
        look: dict[str, Any] = {
            "line": 1.2 + 4 * self.weight(name),
            "opacity": 0.75 if stage else 0.5,
            "stage": stage,
            "tip": tip,
        }
        middle, cylinder, box = y + item.beside[name], x + self.cylinder_x - 2, x + BOX + 2
        way = (
            [(box, middle), (cylinder, middle)]
            if name in item.writes
            else [(cylinder, middle), (box, middle)]
        )
        svg.arrow(way, **look)
        further = sorted(
            reader.arrive[name]
            for reader in self.items
            if name in reader.arrive and reader is not item
        )
        if further:
            lane, start, end = (
                x + self.cylinder_x - 20 - LANE * self.lanes[name],
                middle + 7,
                y + further[-1],
            )
            svg.arrow([(cylinder, start), (lane, start), (lane, end), (box, end)], **look)
            for arrive in further[:-1]:
                svg.arrow([(lane - look["line"] / 2, y + arrive), (box, y + arrive)], **look)

    def draw_buffer(self, svg: Svg, x: float, middle: float, name: str) -> None:
        height = 14 + 16 * self.weight(name)
        stage = self.stage if name in self.made else "eager"
        size = human_bytes(self.sizes.get(name, 0))
        gone = self.stage == "eager" and name in self.made and name not in self.kept
        strength = 0.3 if name in self.made else 0.08
        svg.cylinder(
            x,
            middle - height / 2,
            CYLINDER,
            height,
            stage,
            strength=strength,
            tip=f"{name}: {size}",
        )
        svg.text(x + CYLINDER + 7, middle - 2, shorten(name, LABEL - 10, SMALL), SMALL, tip=name)
        svg.text(
            x + CYLINDER + 7,
            middle + 12,
            size + ("  ✕" if gone else "  result" if name in self.results else ""),
            SMALL,
            dim=True,
        )

    def draw_item(self, svg: Svg, item: Item, x: float, y: float) -> None:
        """The box: a loop alone, a kernel with its loops, or a library call."""
        if item.small:
            also = f"+ {', '.join(item.small)}"
            left, up = (16, 11) if item.extern else (12, 8)  # within the inner frame
            tip = f"also reads {also[2:]}"
            svg.text(
                x + left,
                y + item.height - up,
                shorten(also, BOX - left - 10, SMALL),
                SMALL,
                dim=True,
                tip=tip,
            )
        if item.extern:
            svg.box(x, y, BOX, item.height, "runtime", radius=0, strength=0.12, line=1.2)
            svg.box(
                x + 4, y + 4, BOX - 8, item.height - 8, "runtime", radius=0, strength=0, line=1.2
            )
            self.draw_loop(svg, item.loops[0], x + 8, y + 8, BOX - 16, frame=False)
            return
        if self.stage == "eager":
            svg.box(x, y, BOX, item.height, "lowering", radius=4, strength=0.14, line=1.4)
            self.draw_loop(svg, item.loops[0], x + 4, y + 6, BOX - 8, frame=False)
            return
        svg.box(x, y, BOX, item.height, "scheduling", radius=8, strength=0.08, line=3.5)
        svg.text(
            x + 10,
            y + 18,
            shorten(item.name, BOX - 20, SMALL, mono=True),
            SMALL,
            mono=True,
            tip=item.name,
        )
        for i, loop in enumerate(item.loops):
            self.draw_loop(svg, loop, x + 8, y + HEAD + LOOP * i, BOX - 16)

    def draw_loop(
        self, svg: Svg, loop: tuple[str, str], x: float, y: float, width: float, frame: bool = True
    ) -> None:
        """A loop node: its ranges on top, what it does below."""
        ranges, label = loop
        if frame:
            svg.box(x, y, width, LOOP - 4, "lowering", radius=4, strength=0.14, line=1.2)
        svg.text(
            x + 8,
            y + 13,
            shorten(ranges, width - 12, SMALL, mono=True),
            SMALL,
            mono=True,
            dim=True,
            tip=ranges,
        )
        svg.text(x + 8, y + 29, shorten(label, width - 14), bold=True, tip=label)


# ---- in words -------------------------------------------------------------------------------------------------------


def kept_apart(schedule: Any) -> list[tuple[str, str, str, float]]:
    """(producer, consumer, reason, bytes lost) of every pair that was not fused, the dearest first."""
    found: dict[tuple[str, str, str], float] = {}
    for decision in getattr(schedule, "decisions", ()):
        answer = decision.answer
        if hasattr(answer, "reason"):
            try:
                lost = float(answer.lost)
            except TypeError:
                lost = 0.0
            found[named(decision.producer), named(decision.consumer), answer.reason] = lost
    return sorted(((*key, lost) for key, lost in found.items()), key=lambda row: -row[3])


def named(who: Any) -> str:
    return (
        str(who)
        .removeprefix("aten.")
        .replace(".default (extern)", " (library)")
        .replace(" (extern)", " (library)")
    )


def html_apart(apart: list[tuple[str, str, str, float]]) -> str:
    """The list of pairs kept apart."""
    if not apart:
        return ""
    rows = [
        (breakable(a), breakable(b), escape(reason), human_bytes(lost))
        for a, b, reason, lost in apart
    ]
    header = ("first", "second", "kept apart because", "bytes")
    more = ""
    if len(rows) > REASONS:
        more = f"<details><summary>{len(rows) - REASONS} more</summary>{html_table(rows[REASONS:], header, [3])}</details>"
    return f"<p><b>Kept apart</b></p>{html_table(rows[:REASONS], header, [3])}{more}"


def html_notes(notes: list[str]) -> str:
    """Loops that are not in the picture, and why."""
    if not notes:
        return ""
    listed = "".join(f"<li>{escape(note)}</li>" for note in notes)
    summary = f"{plural(len(notes), 'loop')} computed where it is read, or not at all"
    return f"<details><summary>{summary}</summary><ul>{listed}</ul></details>"


def as_text(
    heading: tuple[str, str], totals: tuple[str, str], before: list[Item], after: list[Item],
    apart: list[tuple[str, str, str, float]], notes: list[str], sizes: dict[str, float],
) -> str:  # fmt: skip
    """The same in words."""
    told = lambda names: (
        ", ".join(f"{name} ({human_bytes(sizes.get(name, 0))})" for name in names) or "nothing"
    )
    lines = [f"{heading[0]}; {totals[0]}"]
    flow = lambda item: f"reads {told(item.reads)}, writes {told(item.writes)}"
    lines += [f"  {item.loops[0][1]:<14} over {item.loops[0][0]}: {flow(item)}" for item in before]
    lines.append(f"{heading[1]}; {totals[1]}")
    for item in after:
        lines.append(f"  {item.name}{' (library call)' if item.extern else ''}: {flow(item)}")
        if not item.extern:
            lines += [f"    │ {label} over {ranges}" for ranges, label in item.loops]
    if apart:
        lines.append("Kept apart")
        lines += [f"  {a} | {b}: {reason} ({human_bytes(lost)})" for a, b, reason, lost in apart]
    return "\n".join([*lines, *notes])
