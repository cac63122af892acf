"""Both halves of a joint graph as a drawing.

In:  `Sides`. Out: an `Svg`. From left to right: lanes, forward, a gutter, the cut with its
     cylinders, lanes, backward, lanes. A lane is for an arrow that passes other boxes on its way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torch import fx

from course_lib.autograd.partition import node_bytes
from course_lib.viz.kit.style import SMALL, human_bytes
from course_lib.viz.kit.svg import Svg, lanes, shorten, tail, text_width
from course_lib.viz.pictures.autograd.joint_sides import Band, Box, Kept, Sides, kept_name
from course_lib.viz.pictures.graphs.fx_graphs import (
    constants_of,
    is_operation,
    op_name,
    source_of,
    type_of,
)

BOX, CYLINDER = 204.0, 164.0
"""px: how wide a box is, and a kept tensor."""
GUTTER, LANE, HEAD = 24.0, 8.0, 50.0
"""px: between forward and the cut; between two lanes; the room for the headings."""
MARGIN = 4
"""px: what stays free on the left and on the right."""
LOSS_GAP, LOSS = 14, 26
"""px: from the last band down to the box of the loss, and how tall that is."""
TITLE_LINE, NOTE_LINE = 17, 34
"""px: from the top of a box down to the base line of its title, and of the note below."""
ASIDE = 5
"""px: where arrows along lanes meet a box: so far from its middle, so that one that comes and one
that goes are two lines."""
STAGE = {
    "input": "runtime",
    "forward": "capture",
    "again": "capture",
    "backward": "autograd",
    "tangent": "runtime",
}
"""The kind of a box → the stage whose colour it has."""


@dataclass(frozen=True)
class Side:
    """How one side is drawn.

    x: px, the left border of its boxes. out: where its lanes are, left (-1) or right (1) of its
    boxes. down: does it run downwards?"""

    name: str
    stage: str
    x: float
    out: int
    down: bool

    @property
    def edge(self) -> float:
        """px: the border of the boxes on which the lanes begin: the left or the right one."""
        return self.x if self.out < 0 else self.x + BOX


class Drawing:
    """The bands with everything in its place."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        y = HEAD
        for band in sides.bands:
            y = band.lay_out(y)
        self.bottom = y

        # Which arrows need a lane
        self.skips = {name: self.skipping(name) for name in ("left", "right")}
        self.crossing = {
            kept_tensor: self.readers(kept_tensor)
            for band in sides.bands
            for kept_tensor in band.kept
        }
        self.lanes = {
            "left": lanes_of(self.skips["left"]),
            "right": lanes_of(self.skips["right"]),
            "cut": lanes_of(self.crossing),
        }
        # Lanes are numbered from 0; without one, only the 12 px to the first are kept free.
        room = {
            name: 12 + LANE * (1 + max(found.values(), default=-1))
            for name, found in self.lanes.items()
        }

        # From left to right; behind the lanes of the cut there is room for the heads of arrows
        self.cut = MARGIN + room["left"] + BOX + GUTTER
        self.left = Side("left", "capture", MARGIN + room["left"], out=-1, down=True)
        x = self.cut + CYLINDER + 10 + room["cut"] + 6
        self.right = Side("right", "autograd", x, out=1, down=False)
        self.width = x + BOX + room["right"] + 6

    # ---- who feeds whom --------------------------------------------------------------------------

    def edges(self, side: str) -> list[tuple[Box, Box]]:
        """Which box of a side feeds which other."""
        edges: dict[tuple[Box, Box], None] = {}
        for node in self.sides.forward if side == "left" else self.sides.backward:
            reader = self.sides.place.get((side, node.name))
            for source in node.all_input_nodes:
                maker = self.sides.place.get((side, source.name))
                if maker and reader and maker is not reader:
                    edges[maker, reader] = None
        return list(edges)

    def is_next(self, side: str, maker: Box, reader: Box) -> bool:
        """Do they stand one after the other, so that the arrow passes no box?"""
        column = self.sides.column(side)
        return column.index(reader) == column.index(maker) + 1

    def skipping(self, side: str) -> dict[Box, list[Box]]:
        """The edges that pass other boxes on their way: from where to where."""
        ends_of_box: dict[Box, list[Box]] = {}
        for maker, reader in self.edges(side):
            if not self.is_next(side, maker, reader):
                ends_of_box.setdefault(maker, []).append(reader)
        return ends_of_box

    def readers(self, kept: Kept) -> list[Box]:
        """The boxes of backward that read a kept tensor."""
        names = {node.name for node in kept.nodes}
        boxes: dict[Box, None] = {}
        for node in self.sides.backward:
            if node.op == "placeholder" and node.name in names:
                for user in filter(is_operation, node.users):
                    boxes[self.sides.place["right", user.name]] = None
        return list(boxes)

    # ---- drawing ---------------------------------------------------------------------------------

    def draw(self, heading: str) -> Svg:
        """`heading` stands above the cut."""
        svg = Svg(self.width, self.bottom + LOSS_GAP + LOSS + 6)
        self.draw_headings(svg, heading)
        self.draw_cut(svg)

        # A title that an arrow goes through is drawn last, with a rim.
        bands = self.sides.bands
        for band in bands:
            svg.path(f"M{MARGIN} {band.y + 3} H{self.width - MARGIN}", line=1, opacity=0.16)
            if not is_crossed(band):
                self.draw_title(svg, band)

        for kept_tensor, boxes in self.crossing.items():
            self.draw_kept(svg, kept_tensor, boxes)
        for side in (self.left, self.right):
            self.draw_edges(svg, side)
        for side in (self.left, self.right):
            for box in self.sides.column(side.name):
                draw_box(svg, box, side.x)

        for band in filter(is_crossed, bands):
            self.draw_title(svg, band)
        self.draw_loss(svg)
        return svg

    def draw_headings(self, svg: Svg, heading: str) -> None:
        middle = self.cut + CYLINDER / 2
        svg.text(self.left.x, 16, "forward ↓", bold=True, stage="capture")
        svg.text(self.right.x, 16, "backward ↑", bold=True, stage="autograd")
        svg.text(middle, 16, "the cut", bold=True, anchor="middle", stage="scheduling")
        svg.text(middle, 34, heading, SMALL, anchor="middle")

    def draw_title(self, svg: Svg, band: Band) -> None:
        x, y = self.left.x, band.y + 18
        # The line of the program ('block.py:12') stands at the right end of the boxes of forward.
        room = BOX - 70 if band.where else self.right.x - x
        rim = is_crossed(band)
        svg.text(x, y, tail(band.title, room, SMALL), SMALL, dim=True, tip=band.title, rim=rim)
        svg.text(x + BOX, y, band.where, SMALL, dim=True, anchor="end", rim=rim)

    def draw_cut(self, svg: Svg) -> None:
        """The line of the cut, between the cylinders."""
        x = self.cut + CYLINDER / 2
        # From below the heading, and from the bottom of each cylinder, to the top of the next
        starts = [42.0, *(kept_tensor.bottom for kept_tensor in self.crossing)]
        ends = [*(kept_tensor.y for kept_tensor in self.crossing), self.bottom + 6]
        for start, end in zip(starts, ends, strict=True):
            # Less than a dash is not drawn.
            if end - start > 4:
                way = f"M{x} {start + 1} V{end - 1}"
                svg.path(way, stage="scheduling", line=2.4, opacity=1, dashed=True)

    def draw_edges(self, svg: Svg, side: Side) -> None:
        """Within a side: straight to the next box, along a lane on the outside to one further
        on."""
        x = side.x + BOX / 2
        for maker, reader in self.edges(side.name):
            if self.is_next(side.name, maker, reader):
                start, end = maker.y, reader.bottom
                if side.down:
                    start, end = maker.bottom, reader.y
                svg.arrow([(x, start), (x, end)], stage=side.stage, line=1.4)

        for maker, readers in self.skips[side.name].items():
            lane = side.edge + side.out * (14 + LANE * self.lanes[side.name][maker])
            # An arrow leaves below a box's middle and arrives above it, if the side runs downwards;
            # the other way round if it runs upwards.
            shift = ASIDE if side.down else -ASIDE
            for reader in readers:
                way = [
                    (side.edge, maker.middle + shift),
                    (lane, maker.middle + shift),
                    (lane, reader.middle - shift),
                    (side.edge + side.out, reader.middle - shift),
                ]
                svg.arrow(way, stage=side.stage, line=1.2, opacity=0.7)

    def draw_kept(self, svg: Svg, kept: Kept, readers: Iterable[Box]) -> None:
        """A kept tensor: from the box that makes it, over the line of the cut, to the boxes that
        read it."""
        stage, line, strength = "scheduling", 2.2, 0.3
        if kept.is_input:
            stage, line, strength = "runtime", 1.4, 0.1

        if kept.maker:
            svg.arrow(self.way_in(kept, kept.maker), stage=stage, line=line)
        for reader in readers:
            svg.arrow(self.way_out(kept, reader), stage=stage, line=line)

        lines = [
            f"{kept_name(node)}: {type_of(node)}, {human_bytes(node_bytes(node))}"
            for node in kept.nodes
        ]
        tip = "\n".join(lines)
        x, y = self.cut, kept.y
        svg.cylinder(x, y, CYLINDER, kept.height, stage, strength=strength, tip=tip)

        size = human_bytes(kept.bytes)
        name = tail(kept.title, CYLINDER - 24 - text_width(size, SMALL), SMALL)
        svg.text(x + CYLINDER / 2, y + 21.5, f"{name}  {size}", SMALL, anchor="middle", tip=tip)

    def way_in(self, kept: Kept, maker: Box) -> list[tuple[float, float]]:
        """From the box that makes a tensor to its cylinder; straight where they stand side by
        side."""
        start = maker.middle
        if maker.y <= kept.middle <= maker.bottom:
            start = kept.middle
        bend = self.cut - GUTTER / 2
        end = (self.cut - 1, kept.middle)
        return [(self.left.x + BOX, start), (bend, start), (bend, kept.middle), end]

    def way_out(self, kept: Kept, reader: Box) -> list[tuple[float, float]]:
        """From the cylinder to a box that reads it; straight where they stand side by side, else
        along a lane."""
        edge = self.cut + CYLINDER
        end = self.right.x - 1
        if reader.y <= kept.middle <= reader.bottom:
            return [(edge, kept.middle), (end, kept.middle)]

        # Backward runs upwards, so the arrow arrives below the middle.
        lane = edge + 12 + LANE * self.lanes["cut"].get(kept, 0)
        y = reader.middle + ASIDE
        return [(edge, kept.middle), (lane, kept.middle), (lane, y), (end, y)]

    def draw_loss(self, svg: Svg) -> None:
        """Below both sides: what the program does with the results, and where gradients come
        from."""
        y = self.bottom + LOSS_GAP
        left, right = self.left.x, self.right.x + BOX
        svg.box(left, y, right - left, LOSS, "eager", strength=0.12, radius=4)
        label = "the rest of the program, up to the loss, in Python"
        svg.text((left + right) / 2, y + 18, label, SMALL, anchor="middle")

        forward, backward = self.sides.column("left"), self.sides.column("right")
        if forward:
            x = self.left.x + BOX / 2
            svg.arrow([(x, forward[-1].bottom), (x, y)], stage="eager", line=1.4)
        if backward:
            x = self.right.x + BOX / 2
            svg.arrow([(x, y), (x, backward[0].bottom)], stage="eager", line=1.4)


def lanes_of(arrows: dict[Box, list[Box]] | dict[Kept, list[Box]]) -> dict[Box | Kept, int]:
    """A lane for all arrows from one box or kept tensor: it reaches from the highest of their ends
    to the lowest."""
    stretches = []
    for start, ends in arrows.items():
        heights = [start.middle, *(end.middle for end in ends)]
        stretches.append((min(heights), max(heights), start))
    return lanes(stretches)


def is_crossed(band: Band) -> bool:
    """Is the title so long that the arrow down to the band's first box goes through it?"""
    return text_width(band.title, SMALL) > BOX / 2 - 8


def draw_box(svg: Svg, box: Box, x: float) -> None:
    """A node, or several."""
    tip = "\n".join(in_words(node) for node in box.nodes)
    stage, is_recomputed = STAGE[box.kind], box.kind == "again"
    strength = 0.06 if is_recomputed else 0.16
    place = (x, box.y, BOX, box.height)
    svg.box(*place, stage, radius=8, strength=strength, dashed=is_recomputed, tip=tip)

    # Left of the title 10 px stay free, right of the type 8, and some between both: more beside a
    # bold title, for how wide bold letters are differs most between the fonts of readers.
    bold = box.kind in ("forward", "backward")
    room = BOX - (48 if bold else 26) - text_width(box.type, SMALL)
    title = shorten(box.title, room, bold=bold)
    svg.text(x + 10, box.y + TITLE_LINE, title, bold=bold, tip=tip)
    svg.text(x + BOX - 8, box.y + TITLE_LINE, box.type, SMALL, anchor="end", dim=True)
    if box.note:
        note = shorten(box.note, BOX - 20, SMALL)
        svg.text(x + 10, box.y + NOTE_LINE, note, SMALL, dim=True, tip=box.note)


def in_words(node: fx.Node) -> str:
    """'add = aten.add(x, y)', or the source of an input."""
    if is_operation(node):
        return f"{node.name} = {op_name(node)}({constants_of(node)})"
    return source_of(node)
