"""Loops before and kernels after fusion as a drawing of two columns.

In:  `Sides` and `Buffers` of `fusion_items`. Out: an `Svg`. In each column boxes stand from top to
     bottom, the buffers to their right, and lines between them in lanes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from course_lib.viz.kit.style import SMALL
from course_lib.viz.kit.svg import Svg, lanes, shorten
from course_lib.viz.pictures.scheduling.fusion_items import Buffers, Item, Loop, Sides

BOX, CYLINDER, LABEL, BETWEEN = 177, 28, 96, 22
"""px: how wide a box is, a buffer, the words beside it, and the gap between the columns."""
ROW, LOOP, HEAD, NOTE, GAP = 46, 38, 26, 18, 14
"""px: how tall a loop alone is, one in a kernel, a kernel's name, a line of small inputs; and
between two boxes."""
SLOT, TAP, LANE = 38, 10, 9
"""px: a buffer beside a box, a line that arrives at it, and a lane."""
SMALL_SHARE = 0.002
"""In a picture of many loops, inputs smaller than this share of the largest buffer are named in the
box that reads them."""
DENSE_FROM = 8
"""More loops than this are many."""
TOP = 48
"""px: where the columns begin, below their headings."""
TO_BUFFER, TO_LANE = 34, 20
"""px: between boxes and buffers if there is no lane; and from the buffers left to the first
lane."""


def two_columns(sides: Sides, buffers: Buffers) -> Svg:
    """Before on the left, after on the right."""
    before = Panel(sides.before.items, buffers, "eager")
    after = Panel(sides.after.items, buffers, "scheduling")
    svg = Svg(before.width + BETWEEN + after.width, TOP + max(before.height, after.height))

    x = 2.0
    for side, panel in zip(sides, (before, after), strict=True):
        svg.text(x, 15, side.title, bold=True)
        svg.text(x, 33, side.total, SMALL)
        panel.draw(svg, x, TOP)
        x = before.width + BETWEEN
    return svg


@dataclass(frozen=True)
class Line:
    """How the lines of a buffer look: the more bytes, the thicker. stage: None for grey."""

    width: float
    opacity: float
    stage: str | None
    tip: str

    def arrow(self, svg: Svg, way: list[tuple[float, float]]) -> None:
        svg.arrow(way, line=self.width, opacity=self.opacity, stage=self.stage, tip=self.tip)


class Panel:
    """One column. `stage`: "eager" for loops alone, "scheduling" for kernels."""

    def __init__(self, items: list[Item], buffers: Buffers, stage: str) -> None:
        self.items = items
        self.buffers = buffers
        self.stage = stage
        self.made = {name for item in items for name in item.writes}
        # The sizes of buffers in bytes, without those that are not known (0) or have no element
        self.sizes = [size for size in buffers.sizes.values() if size > 0]

        # Bytes: inputs with fewer have no cylinder, they are named in the box that reads them
        loops = sum(len(item.loops) for item in items)
        self.least_drawn = 0.0
        if loops > DENSE_FROM:
            self.least_drawn = SMALL_SHARE * max(buffers.sizes.values(), default=0)

        # From top to bottom. Buffer → the item beside which it stands: who writes it, or, of an
        # input, who reads it first
        self.home: dict[str, Item] = {}
        self.height = 0.0
        for item in items:
            self.height = self.place(item, self.height) + GAP

        # From left to right
        self.lanes = self.assign_lanes()
        lane_count = 1 + max(self.lanes.values(), default=0)
        self.cylinder_x = BOX + TO_BUFFER + LANE * lane_count
        self.width = self.cylinder_x + CYLINDER + LABEL

    # ---- where everything stands -----------------------------------------------------------------

    def place(self, item: Item, y: float) -> float:
        """Give the item its height, and each of its buffers a place; the bottom comes back."""
        through = [name for name in item.reads if name in self.home]
        inputs = [name for name in item.reads if name not in self.home and name not in self.made]
        item.small = [name for name in inputs if self.buffers.size(name) < self.least_drawn]
        beside = [name for name in inputs if name not in item.small] + item.writes

        # What comes through a lane arrives on top; below, the item's own buffers stand one under
        # the other.
        item.top = y
        for number, name in enumerate(through):
            item.arrive[name] = y + 9 + TAP * number
        for number, name in enumerate(beside):
            item.beside[name] = y + TAP * len(through) + SLOT * (number + 0.5) + 2
            self.home.setdefault(name, item)

        least = HEAD + LOOP * len(item.loops) + 4
        if item.extern or self.stage == "eager":
            least = ROW
        if item.small:
            least += NOTE
        item.height = max(least, TAP * len(through) + SLOT * len(beside) + 6)
        return y + item.height

    def assign_lanes(self) -> dict[str, int]:
        """A lane for each buffer that is read further down: the first that is free over that
        stretch."""
        stretches = []
        for name, item in self.home.items():
            arrivals = [reader.arrive[name] for reader in self.items if name in reader.arrive]
            if arrivals:
                stretches.append((item.beside[name], max(arrivals), name))
        return lanes(stretches)

    def weight(self, name: str) -> float:
        """0 for the smallest buffer of the picture, 1 for the largest, by the logarithm of their
        bytes."""
        size = self.buffers.size(name)
        if not size:
            return 0.0
        smallest, largest = min(self.sizes), max(self.sizes)
        if smallest == largest:
            return 0.5
        return math.log(size / smallest) / math.log(largest / smallest)

    # ---- drawing ---------------------------------------------------------------------------------

    def draw(self, svg: Svg, x: float, y: float) -> None:
        """The column with its top left corner at (x, y)."""
        for item in self.items:
            for name in item.beside:
                self.draw_lines(svg, x, y, item, name)
        for item in self.items:
            self.draw_item(svg, item, x, y + item.top)
            for name, middle in item.beside.items():
                self.draw_buffer(svg, x + self.cylinder_x, y + middle, name)

    def line_of(self, name: str) -> Line:
        """A buffer that a kernel makes has the colour of scheduling; the others are grey."""
        stage = "scheduling" if self.stage == "scheduling" and name in self.made else None
        tip = f"{name}: {self.buffers.in_words(name)}"
        return Line(1.2 + 4 * self.weight(name), 0.75 if stage else 0.5, stage, tip)

    def draw_lines(self, svg: Svg, x: float, y: float, item: Item, name: str) -> None:
        """From the writer to the buffer (or from an input to its first reader), and from there to
        who reads it further down."""
        line = self.line_of(name)
        middle = y + item.beside[name]
        cylinder, box = x + self.cylinder_x - 2, x + BOX + 2
        if name in item.writes:
            line.arrow(svg, [(box, middle), (cylinder, middle)])
        else:
            line.arrow(svg, [(cylinder, middle), (box, middle)])

        readers = [other for other in self.items if other is not item and name in other.arrive]
        arrivals = sorted(y + reader.arrive[name] for reader in readers)
        if not arrivals:
            return

        # One line down the lane to the last reader; those to the others branch off. It leaves the
        # cylinder a little below the line from its writer.
        lane = x + self.cylinder_x - TO_LANE - LANE * self.lanes[name]
        start, end = middle + 7, arrivals[-1]
        line.arrow(svg, [(cylinder, start), (lane, start), (lane, end), (box, end)])
        for arrival in arrivals[:-1]:
            line.arrow(svg, [(lane - line.width / 2, arrival), (box, arrival)])

    def draw_buffer(self, svg: Svg, x: float, middle: float, name: str) -> None:
        """A cylinder as tall as its bytes, with its name and size; ✕ where it no longer reaches
        memory after fusion."""
        is_made = name in self.made
        size = self.buffers.in_words(name)
        height = 14 + 16 * self.weight(name)
        stage = self.stage if is_made else "eager"
        strength = 0.3 if is_made else 0.08
        place = (x, middle - height / 2, CYLINDER, height)
        svg.cylinder(*place, stage, strength=strength, tip=f"{name}: {size}")

        words = size
        if self.stage == "eager" and is_made and name not in self.buffers.kept:
            words += "  ✕"
        elif name in self.buffers.results:
            words += "  result"
        left = x + CYLINDER + 7
        svg.text(left, middle - 2, shorten(name, LABEL - 10, SMALL), SMALL, tip=name)
        svg.text(left, middle + 12, words, SMALL, dim=True)

    def draw_item(self, svg: Svg, item: Item, x: float, y: float) -> None:
        """The box: a loop alone, a kernel with its loops, or a library call."""
        if item.small:
            draw_small_inputs(svg, item, x, y)
        if item.extern:
            draw_library_call(svg, item, x, y)
        elif self.stage == "eager":
            svg.box(x, y, BOX, item.height, "lowering", radius=4, strength=0.14, line=1.4)
            draw_loop(svg, item.loops[0], x + 4, y + 6, BOX - 8)
        else:
            draw_kernel(svg, item, x, y)


def draw_small_inputs(svg: Svg, item: Item, x: float, y: float) -> None:
    """The inputs that are too small to draw, by name, at the bottom of the box."""
    names = ", ".join(item.small)
    # A library call has an inner frame.
    left, up = (16, 11) if item.extern else (12, 8)
    words = shorten(f"+ {names}", BOX - left - 10, SMALL)
    svg.text(x + left, y + item.height - up, words, SMALL, dim=True, tip=f"also reads {names}")


def draw_library_call(svg: Svg, item: Item, x: float, y: float) -> None:
    """A box with a double frame."""
    inner = (x + 4, y + 4, BOX - 8, item.height - 8)
    svg.box(x, y, BOX, item.height, "runtime", radius=0, strength=0.12, line=1.2)
    svg.box(*inner, "runtime", radius=0, strength=0, line=1.2)
    draw_loop(svg, item.loops[0], x + 8, y + 8, BOX - 16)


def draw_kernel(svg: Svg, item: Item, x: float, y: float) -> None:
    """A thick frame round the loops that run as one."""
    svg.box(x, y, BOX, item.height, "scheduling", radius=8, strength=0.08, line=3.5)
    name = shorten(item.name, BOX - 20, SMALL, mono=True)
    svg.text(x + 10, y + 18, name, SMALL, mono=True, tip=item.name)

    for number, loop in enumerate(item.loops):
        left, top = x + 8, y + HEAD + LOOP * number
        svg.box(left, top, BOX - 16, LOOP - 4, "lowering", radius=4, strength=0.14, line=1.2)
        draw_loop(svg, loop, left, top, BOX - 16)


def draw_loop(svg: Svg, loop: Loop, x: float, y: float, width: float) -> None:
    """The words of a loop: its ranges on top, what it does below."""
    ranges = shorten(loop.ranges, width - 12, SMALL, mono=True)
    svg.text(x + 8, y + 13, ranges, SMALL, mono=True, dim=True, tip=loop.ranges)
    svg.text(x + 8, y + 29, shorten(loop.label, width - 14), bold=True, tip=loop.label)
