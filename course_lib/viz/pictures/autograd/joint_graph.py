"""A joint graph cut in two: forward on the left, backward on the right, and between them what is kept.

In:  a `Partition` (`trace.joint()` finds it), whose two graphs' nodes know the captured operation that they came from.
Out: a `Picture`. Forward runs down the left side, backward comes up the right side, so an operation stands beside its
     gradient. A cylinder on the line of the minimum cut is a tensor that is kept in between; a dashed box is forward work that is
     done again in backward instead. A large graph shows one box for each captured operation, or for each module.
In PyTorch: `torch/_functorch/partitioners.py` (`draw_joint_graph`; `AOT_PARTITIONER_DEBUG=1` tells the cut in words).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from course_lib.autograd.partition import node_bytes
from course_lib.viz.kit.asked import having, shown, takes
from course_lib.viz.kit.style import SMALL, Picture, human_bytes, plural
from course_lib.viz.kit.svg import Svg, lanes, shorten, tail, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.graphs.fx_graphs import (
    bare,
    constants_of,
    is_operation,
    is_parameter,
    location_of,
    op_name,
    source_of,
    type_of,
)
from course_lib.viz.pictures.graphs.module_graphs import captured_operation, modules_of

BOX, CYLINDER, GUTTER, LANE = 204.0, 164.0, 24.0, 8.0
LINE, TWO_LINES, GAP, BAND, HEAD = 26.0, 43.0, 11.0, 25.0, 50.0
DETAILS = ("operators", "operations", "modules")
"""What one box stands for: an ATen operator, a captured operation, a module."""
FEW = {"operators": 30, "operations": 24, "modules": math.inf}
"""With more boxes than this on one side, the next coarser detail is chosen."""
STAGE = {
    "input": "runtime",
    "forward": "capture",
    "again": "capture",
    "backward": "autograd",
    "tangent": "runtime",
}


@dataclass(eq=False)
class Box:
    """One or several nodes of one side. `kind` is a key of `STAGE`; 'again' is forward work that is done in backward."""

    kind: str
    title: str
    type: str = ""
    note: str = ""
    nodes: list[fx.Node] = field(default_factory=list)
    y: float = 0.0

    @property
    def height(self) -> float:
        return TWO_LINES if self.note else LINE

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(eq=False)
class Kept:
    """A tensor that forward hands to backward; in a coarse picture, several."""

    nodes: list[fx.Node]
    maker: Box | None = None
    y: float = 0.0
    height: float = 26.0

    @property
    def is_input(self) -> bool:
        """It is there anyway: keeping it costs nothing."""
        return self.nodes[0].op == "placeholder"

    @property
    def bytes(self) -> float:
        return sum(map(node_bytes, self.nodes))

    @property
    def names(self) -> str:
        return ", ".join(map(kept_name, self.nodes))

    @property
    def title(self) -> str:
        return (
            self.names
            if len(self.nodes) == 1
            else plural(len(self.nodes), "input" if self.is_input else "tensor")
        )

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


def kept_name(node: fx.Node) -> str:
    """'self.ln.weight', 'rsqrt', 'var_mean[1]'."""
    if op_name(node) == "getitem":
        return f"{node.args[0]}[{node.args[1]}]"
    return source_of(node) if node.op == "placeholder" else node.name


@dataclass
class Band:
    """What belongs together, left, middle and right: a captured operation, or a module."""

    title: str
    where: str = ""
    left: list[Box] = field(default_factory=list)
    right: list[Box] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    y: float = 0.0

    def lay_out(self, y: float) -> float:
        """Give everything a place below `y`; the bottom comes back."""
        self.y = y
        bottoms = [y + BAND + LINE]
        for stack in (self.left, self.right):
            at = y + BAND
            for box in stack:
                box.y = at
                at += box.height + GAP
            bottoms.append(at)
        at = y + BAND
        self.kept.sort(key=lambda one: one.maker.y if one.maker else y)
        for kept in self.kept:
            kept.y = max(at, kept.maker.y if kept.maker else y)
            at = kept.y + kept.height + GAP
        return max(*bottoms, at)


@takes(
    partition=having(
        "a Partition (trace.of(events.Partitioned)[0].partition)", "forward", "backward", "saved"
    )
)
def joint_graph(
    partition: Any, signature: Any = None, title: str = "", detail: str | None = None
) -> Picture:
    """The two halves of a joint graph and what is kept between them.

    signature: the joint graph's `Signature`; with it, gradients have names.
    detail: one of `DETAILS`; None chooses by size. Raises ValueError for a `detail` that there is not."""
    if detail not in (None, *DETAILS):
        raise ValueError(f"detail must be one of {', '.join(DETAILS)}, got {shown(detail)}")

    sides = sides_of(partition, signature, detail)
    kept = [one for band in sides.bands for one in band.kept]
    heading = how_much_is_kept(kept)
    again = [node.name for node in partition.recomputed]
    compared = "nothing is done again"
    if again:
        compared = f"with nothing done again, {human_bytes(without_recomputing(partition))}"

    caption = "Forward runs down the left side, backward comes up the right. A cylinder on the line of the cut is kept; "
    caption += f"dashed is done again. W{compared[1:]} would be kept." if again else f"{compared}."

    names = some([kept_name(node) for one in kept for node in one.nodes])
    of_title = f" of {title}" if title else ""
    alt = f"Joint graph{of_title}: {operators(partition.forward)} in forward, "
    alt += f"{operators(partition.backward)} in backward, of which {len(again) or 'none'} are forward work done again. "
    alt += f"K{heading[1:]}: {names}."

    rows = []
    for band in sides.bands:
        between = ", ".join(one.title for one in band.kept) or "–"
        rows.append((band.title, told(band.left), between, told(band.right[::-1])))
    text = columns(rows, ("from", "forward", "kept", "backward"))
    text += f"\n{heading}; {compared}"
    if again:
        text += f"\ndone again: {some(again)}"
    return Picture(Drawing(sides).draw(heading).framed(alt), caption, alt, text)


def sides_of(partition: Any, signature: Any, detail: str | None) -> Sides:
    """Both sides in the detail that is asked for; else in the finest in which they are not too long."""
    for level in [detail] if detail else DETAILS:
        sides = Sides(partition, signature, level)
        longest = max(len(sides.column("left")), len(sides.column("right")))
        if longest <= FEW[level]:
            break
    return sides


def how_much_is_kept(kept: Iterable[Kept]) -> str:
    """'kept for backward: 1.2 MB, and 40 KB of inputs that are there anyway'."""
    made: Any = 0  # a number, or an expression in symbolic sizes
    inputs: Any = 0
    for one in kept:
        if one.is_input:
            inputs += one.bytes
        else:
            made += one.bytes

    said = f"kept for backward: {human_bytes(made)}"
    if inputs:
        said += f", and {human_bytes(inputs)} of inputs that are there anyway"
    return said


def some(names: list[str], most: int = 24) -> str:
    """The first of them, and how many more."""
    if not names:
        return "nothing"
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def told(boxes: Iterable[Box]) -> str:
    """A side of a band in words; what is done again in brackets."""
    words = []
    for box in boxes:
        if box.kind not in ("input", "tangent"):
            words.append(f"({box.title})" if box.kind == "again" else box.title)
    return ", ".join(words) or "–"


def operators(gm: Any) -> str:
    return plural(sum(map(is_operation, gm.graph.nodes)), "operator")


def without_recomputing(partition: Any) -> float:
    """Bytes that forward would have to keep if backward computed nothing again: what backward's own operators read of forward."""
    again = {node.name for node in partition.recomputed}
    forward = {node.name: node for node in (*partition.forward.graph.nodes, *partition.recomputed)}

    read: set[str] = set()
    for node in partition.backward.graph.nodes:
        if is_operation(node) and node.name not in again:
            sources = [source.name for source in node.all_input_nodes if source.name in forward]
            read.update(memory_of(forward[name]).name for name in sources)

    kept = [node for name, node in forward.items() if name in read and is_operation(node)]
    return sum(map(node_bytes, kept))


def memory_of(node: fx.Node) -> fx.Node:
    """The node whose memory this one is a view of, or the node itself."""
    while getattr(node.target, "is_view", False):
        node = node.all_input_nodes[0]
    return node


class Sides:
    """The nodes of both halves in boxes, in bands."""

    def __init__(self, partition: Any, signature: Any, detail: str) -> None:
        self.detail = detail
        self.forward, self.backward = (
            list(half.graph.nodes) for half in (partition.forward, partition.backward)
        )
        self.saved = [node.name for node in partition.saved]
        self.again = {node.name for node in partition.recomputed}
        inputs = [node for node in self.forward if node.op == "placeholder"]
        self.gradient_of = [source_of(inputs[n]) for n in signature.gradients] if signature else []
        operators = [node for node in (*self.forward, *self.backward) if is_operation(node)]
        self.modules = modules_of(
            dict.fromkeys(o for node in operators if (o := captured_operation(node)))
        )
        self.by_key: dict[Any, Band] = {}
        self.place: dict[tuple[str, str], Box] = {}
        """(side, name of a node) → its box."""
        # in the order in which they run; an input may be read late
        for node in filter(is_operation, self.forward):
            self.band(node)
        self.fill_left()
        self.fill_middle()
        self.fill_right()

    @property
    def bands(self) -> list[Band]:
        return list(self.by_key.values())

    def column(self, side: str) -> list[Box]:
        """A side's boxes in the order in which they run."""
        boxes = [box for band in self.bands for box in getattr(band, side)]
        return boxes if side == "left" else boxes[::-1]

    def band(self, node: fx.Node) -> Band:
        """Where a node stands: with its captured operation; an input, with the first that reads it."""
        if not is_operation(node):
            node = next((user for user in node.users if is_operation(user)), node)
        origin = captured_operation(node)
        if origin is None:
            return self.by_key.setdefault(None, Band("around it"))
        if self.detail == "modules":
            return self.by_key.setdefault(self.modules[origin], Band(self.modules[origin]))
        return self.by_key.setdefault(origin, Band(op_name(origin), location_of(origin)))

    def add(self, side: str, node: fx.Node, kind: str, note: str = "") -> None:
        """A box for a node; or, in less detail, its place in the box of its kind. The right side is filled from the bottom."""
        boxes: list[Box] = getattr(self.band(node), side)
        box = (
            None
            if self.detail == "operators"
            else next((box for box in boxes if box.kind == kind), None)
        )
        if box is None:
            box = Box(kind, short_name(node), type_of(node), note)
            boxes.insert(0 if side == "right" else len(boxes), box)
        box.nodes.append(node)
        if len(box.nodes) > 1:
            names = dict.fromkeys(
                name for name in map(short_name, box.nodes) if not name.startswith("getitem")
            )
            box.type, box.title, box.note = (
                "",
                plural(len(box.nodes), WORDS[kind]),
                ", ".join(names),
            )
        self.place[side, node.name] = box

    def fill_left(self) -> None:
        results = next(node for node in self.forward if node.op == "output").args[0]
        values = [
            node for node in results if isinstance(node, fx.Node) and node.name not in self.saved
        ]
        for node in self.forward:
            if node.op == "placeholder" and node.users and not is_parameter(node):
                self.add("left", node, "input")
            elif is_operation(node):
                self.add("left", node, "forward", "a result" if node in values else "")

    def fill_middle(self) -> None:
        nodes = {node.name: node for node in self.forward}
        for name in self.saved:
            node, kept = nodes[name], self.band(nodes[name]).kept
            together = (
                one
                for one in kept
                if self.detail == "modules" and one.is_input is (node.op == "placeholder")
            )
            if one := next(together, None):
                one.nodes.append(node)
            else:
                kept.append(Kept([node], self.place.get(("left", name))))

    def fill_right(self) -> None:
        gradients: list[Any] = list(
            next(node for node in self.backward if node.op == "output").args[0]
        )
        named = [f"gradient of {name}" for name in self.gradient_of] or ["a gradient"] * len(
            gradients
        )
        for node in self.backward:
            if is_operation(node):
                kind = "again" if node.name in self.again else "backward"
                self.add(
                    "right", node, kind, named[gradients.index(node)] if node in gradients else ""
                )
            elif node.op == "placeholder" and node.users and node.name not in self.saved:
                self.add("right", node, "tangent")


WORDS = {
    "input": "input",
    "forward": "operator",
    "again": "operator",
    "backward": "operator",
    "tangent": "tangent",
}


def short_name(node: fx.Node) -> str:
    """'addmm', 'getitem[1]', 'self.x'."""
    if node.op == "placeholder":
        return source_of(node)
    name = bare(op_name(node))
    return f"{name}[{node.args[1]}]" if name == "getitem" else name


# ---- drawing --------------------------------------------------------------------------------------------------------


class Drawing:
    """The bands as SVG: columns from left to right are lanes, forward, a gutter, the cut, lanes, backward, lanes."""

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        y: float = HEAD
        for band in sides.bands:
            y = band.lay_out(y)
        self.bottom = y
        self.skips = {side: self.skipping(side) for side in ("left", "right")}
        self.crossing = [(kept, self.readers(kept)) for band in sides.bands for kept in band.kept]
        stretch = lambda one, others: (
            min(ys := [one.middle, *(o.middle for o in others)]),
            max(ys),
            one,
        )
        self.lanes = {
            side: lanes(stretch(a, several) for a, several in found.items())
            for side, found in self.skips.items()
        }
        self.lanes["cut"] = lanes(stretch(kept, boxes) for kept, boxes in self.crossing)
        width = {
            name: 12 + LANE * (1 + max(found.values(), default=-1))
            for name, found in self.lanes.items()
        }
        self.left = 4 + width["left"]
        self.cut = self.left + BOX + GUTTER
        self.right = self.cut + CYLINDER + 10 + width["cut"] + 6
        self.width = self.right + BOX + width["right"] + 6

    def edges(self, side: str) -> list[tuple[Box, Box]]:
        """Which box of a side feeds which other."""
        nodes, place = (
            (self.sides.forward if side == "left" else self.sides.backward),
            self.sides.place,
        )
        pairs = (
            (place.get((side, source.name)), place.get((side, n.name)))
            for n in nodes
            for source in n.all_input_nodes
        )
        return list(dict.fromkeys((a, b) for a, b in pairs if a and b and a is not b))

    def skipping(self, side: str) -> dict[Box, list[Box]]:
        """Those of them that pass other boxes on their way: from where to where."""
        column, found = self.sides.column(side), dict[Box, list[Box]]()
        for a, b in self.edges(side):
            if column.index(b) != column.index(a) + 1:
                found.setdefault(a, []).append(b)
        return found

    def readers(self, kept: Kept) -> list[Box]:
        """The boxes of backward that read a kept tensor."""
        names = {node.name for node in kept.nodes}
        found = [
            node for node in self.sides.backward if node.op == "placeholder" and node.name in names
        ]
        return list(
            dict.fromkeys(
                self.sides.place["right", user.name]
                for n in found
                for user in n.users
                if is_operation(user)
            )
        )

    def draw(self, heading: str) -> Svg:
        svg = Svg(self.width, self.bottom + 46)
        svg.text(self.left, 16, "forward ↓", bold=True, stage="capture")
        svg.text(self.right, 16, "backward ↑", bold=True, stage="autograd")
        svg.text(
            self.cut + CYLINDER / 2, 16, "the cut", bold=True, anchor="middle", stage="scheduling"
        )
        svg.text(self.cut + CYLINDER / 2, 34, heading, SMALL, anchor="middle")
        self.draw_cut(svg, self.cut + CYLINDER / 2)
        for band in self.sides.bands:
            svg.path(f"M4 {band.y + 3} H{self.width - 4}", line=1, opacity=0.16)
            if not self.is_crossed(band):
                self.draw_title(svg, band)
        for kept, boxes in self.crossing:
            self.draw_crossing(svg, kept, boxes)
        for side in ("left", "right"):
            self.draw_edges(svg, side)
        for side, x in (("left", self.left), ("right", self.right)):
            for box in self.sides.column(side):
                draw_box(svg, box, x)
        for band in filter(self.is_crossed, self.sides.bands):
            self.draw_title(svg, band)
        self.draw_loss(svg)
        return svg

    def is_crossed(self, band: Band) -> bool:
        """Is the title so long that the arrow down to the band's first box goes through it?"""
        return text_width(band.title, SMALL) > BOX / 2 - 8

    def draw_title(self, svg: Svg, band: Band) -> None:
        room = BOX - 70 if band.where else self.right - self.left
        title, rim = tail(band.title, room, SMALL), self.is_crossed(band)
        svg.text(self.left, band.y + 18, title, SMALL, dim=True, tip=band.title, rim=rim)
        svg.text(self.left + BOX, band.y + 18, band.where, SMALL, dim=True, anchor="end", rim=rim)

    def draw_cut(self, svg: Svg, x: float) -> None:
        """The line of the cut, between the cylinders."""
        kept = [one for one, _ in self.crossing]
        tops, bottoms = (
            [*(one.y for one in kept), self.bottom + 6],
            [42.0, *(one.y + one.height for one in kept)],
        )
        for start, end in zip(bottoms, tops, strict=True):
            if end - start > 4:
                svg.path(
                    f"M{x} {start + 1} V{end - 1}",
                    stage="scheduling",
                    line=2.4,
                    opacity=1,
                    dashed=True,
                )

    def draw_edges(self, svg: Svg, side: str) -> None:
        """Within a side: straight to the next box, along a lane on the outside to one further on."""
        x, down, stage = (
            (self.left, True, "capture") if side == "left" else (self.right, False, "autograd")
        )
        column, skips = self.sides.column(side), self.skips[side]
        for a, b in self.edges(side):
            if column.index(b) == column.index(a) + 1:
                start, end = (a.y + a.height, b.y) if down else (a.y, b.y + b.height)
                svg.arrow([(x + BOX / 2, start), (x + BOX / 2, end)], stage=stage, line=1.4)
        for a, several in skips.items():
            out = -1 if side == "left" else 1
            edge = x if side == "left" else x + BOX
            lane = edge + out * (14 + LANE * self.lanes[side][a])
            leave, arrive = (5, -5) if down else (-5, 5)
            for b in several:
                way = [
                    (edge, a.middle + leave),
                    (lane, a.middle + leave),
                    (lane, b.middle + arrive),
                    (edge + out, b.middle + arrive),
                ]
                svg.arrow(way, stage=stage, line=1.2, opacity=0.7)

    def draw_crossing(self, svg: Svg, kept: Kept, boxes: list[Box]) -> None:
        """A kept tensor: from the box that makes it, over the line of the cut, to the boxes that read it."""
        line = 1.4 if kept.is_input else 2.2
        stage = "runtime" if kept.is_input else "scheduling"
        if kept.maker:
            bend, start = self.cut - GUTTER / 2, kept.maker.middle
            if kept.maker.y <= kept.middle <= kept.maker.y + kept.maker.height:
                start = kept.middle
            way = [
                (self.left + BOX, start),
                (bend, start),
                (bend, kept.middle),
                (self.cut - 1, kept.middle),
            ]
            svg.arrow(way, stage=stage, line=line)
        edge, lane = (
            self.cut + CYLINDER,
            self.cut + CYLINDER + 12 + LANE * self.lanes["cut"].get(kept, 0),
        )
        for box in boxes:
            y = box.middle + 5
            straight = box.y <= kept.middle <= box.y + box.height
            way = [(edge, kept.middle), (lane, kept.middle), (lane, y), (self.right - 1, y)]
            svg.arrow(
                [way[0], (self.right - 1, kept.middle)] if straight else way, stage=stage, line=line
            )
        size = human_bytes(kept.bytes)
        label = f"{tail(kept.title, CYLINDER - 24 - text_width(size, SMALL), SMALL)}  {size}"
        tip = "\n".join(
            f"{kept_name(node)}: {type_of(node)}, {human_bytes(node_bytes(node))}"
            for node in kept.nodes
        )
        svg.cylinder(
            self.cut,
            kept.y,
            CYLINDER,
            kept.height,
            stage,
            strength=0.1 if kept.is_input else 0.3,
            tip=tip,
        )
        svg.text(self.cut + CYLINDER / 2, kept.y + 21.5, label, SMALL, anchor="middle", tip=tip)

    def draw_loss(self, svg: Svg) -> None:
        """Below both sides: what the program does with the results, and where gradients come from."""
        y = self.bottom + 14
        svg.box(self.left, y, self.right + BOX - self.left, 26, "eager", strength=0.12, radius=4)
        svg.text(
            (self.left + self.right + BOX) / 2,
            y + 18,
            "the rest of the program, up to the loss, in Python",
            SMALL,
            anchor="middle",
        )
        forward, backward = self.sides.column("left"), self.sides.column("right")
        for x, boxes, last in ((self.left, forward, -1), (self.right, backward, 0)):
            if boxes:
                edge = boxes[last].y + boxes[last].height
                way = [(x + BOX / 2, edge), (x + BOX / 2, y)]
                svg.arrow(way if boxes is forward else way[::-1], stage="eager", line=1.4)


def draw_box(svg: Svg, box: Box, x: float) -> None:
    """A node, or several."""
    tip = "\n".join(
        f"{n.name} = {op_name(n)}({constants_of(n)})" if is_operation(n) else source_of(n)
        for n in box.nodes
    )
    again = box.kind == "again"
    svg.box(
        x,
        box.y,
        BOX,
        box.height,
        STAGE[box.kind],
        radius=8,
        strength=0.06 if again else 0.16,
        dashed=again,
        tip=tip,
    )
    bold = box.kind in ("forward", "backward")
    title = shorten(box.title, BOX - (48 if bold else 26) - text_width(box.type, SMALL), bold=bold)
    svg.text(x + 10, box.y + 17, title, bold=bold, tip=tip)
    svg.text(x + BOX - 8, box.y + 17, box.type, SMALL, anchor="end", dim=True)
    if box.note:
        svg.text(
            x + 10, box.y + 34, shorten(box.note, BOX - 20, SMALL), SMALL, dim=True, tip=box.note
        )
