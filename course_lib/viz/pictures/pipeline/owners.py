"""Whose compiler is it? The map of the pipeline with the parts of each room, and a page to keep.

In:  parts (room, name, owner, note), in the order of the pipeline. Out: a `Picture`: a room is
filled where a part of it is the learner's, dashed where all is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from course_lib.viz.kit.arguments import Kind, each, takes
from course_lib.viz.kit.style import LARGE, SMALL, Picture, escape, page
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.pipeline.pipeline_map import (
    BETWEEN,
    BOX,
    COLUMN,
    DOWN,
    NAMES,
    ROOMS,
    TOP,
    corner,
    draw_headings,
    way,
)

MARKS = {"yours": "✓", "given": "▫", "ours": "·"}
"""The owner of a part → the sign before its name. "given" is a part that an exercise brings along
for those who have not written it."""
LINE, HEAD = 20, 48
"""px: the height of a part, and room for the name of its room."""
CAPTION = "Filled: a part of this room is not ours. ✓ yours, ▫ given, · ours."
KEEPSAKE_CSS = Path(__file__).with_name("keepsake.css")


class Part(NamedTuple):
    """A part of a room; its owner is "yours", "given" or "ours"."""

    room: str
    name: str
    owner: str

    @property
    def is_ours(self) -> bool:
        return self.owner == "ours"

    @property
    def marked(self) -> str:
        return f"{MARKS[self.owner]} {self.name}"


NO_EXERCISE = Part("", "no exercise: ours", "ours")
"""What stands in a room of which no exercise asks for a part."""


def is_part(part: object) -> bool:
    if not isinstance(part, tuple) or len(part) != 3:
        return False
    room, _, owner = part
    return room in NAMES and owner in MARKS


PART = Kind("a part", is_part)


@takes(parts=each(PART, "a list of (room, name, owner)"))
def owners(parts: Iterable[tuple[str, str, str]], caption: str = "") -> Picture:
    """The map of the pipeline; in each room the parts that exercises ask for, marked by their
    owner."""
    rooms: dict[str, list[Part]] = {name: [] for name in NAMES}
    for part in parts:
        rooms[part[0]].append(Part(*part))

    # Rooms beside each other are as tall as the one with more parts needs.
    tall = []
    for left, right in zip(NAMES[:COLUMN], NAMES[COLUMN:]):
        lines = max(1, len(rooms[left]), len(rooms[right]))
        tall.append(HEAD + LINE * lines - 4)

    svg = Svg(2 * BOX + BETWEEN + 6, TOP + sum(tall) + COLUMN * DOWN)
    draw_headings(svg)
    for i, name in enumerate(NAMES):
        x, y = corner(i, tall)
        draw_room(svg, i, x, y, tall[i % COLUMN], rooms[name])
        if i + 1 < len(ROOMS):
            svg.arrow(way(i, tall))

    rows = []
    sentences = []
    for room in ROOMS:
        for part in rooms[room.name]:
            rows.append((room.title, part.marked, part.owner))
            sentences.append(f"{room.title}: {part.name} is {part.owner}")
    alt = f"The pipeline, room by room: {'; '.join(sentences)}."
    return Picture(svg.render(alt), caption or CAPTION, alt, columns(rows))


def draw_room(svg: Svg, i: int, x: float, y: float, tall: float, parts: list[Part]) -> None:
    """A room with its parts; the more of them are not ours, the stronger its tint."""
    room = ROOMS[i]
    count = sum(not part.is_ours for part in parts)
    strength = 0.06 + 0.3 * count / max(1, len(parts))
    line = 3 if count else 1.4
    svg.box(x, y, BOX, tall, room.name, strength=strength, line=line, dashed=not count)

    svg.text(x + 12, y + 24, room.title, LARGE, bold=True)
    svg.text(x + BOX - 10, y + 24, f"lesson {room.lesson}", SMALL, anchor="end", dim=True)
    for n, part in enumerate(parts or [NO_EXERCISE]):
        text = shorten(part.marked, BOX - 26)
        bold, dim = not part.is_ours, part.is_ours
        svg.text(x + 12, y + HEAD + LINE * n, text, bold=bold, dim=dim, tip=part.name)


def keepsake(
    title: str,
    subtitle: str,
    picture: Picture,
    facts: Mapping[str, object],
    points: Iterable[tuple[str, str]],
) -> str:
    """One HTML page that needs no network: the map, what was found out about the compiler, the
    points of each lesson."""
    facts_table = ""
    if facts:
        rows = [(escape(name), escape(value)) for name, value in facts.items()]
        facts_table = html_table(rows, ["what was found", ""])
    points_rows = [(escape(name), escape(value)) for name, value in points]
    points_table = html_table(points_rows, ["exercises", "points"])

    look = f"<style>{KEEPSAKE_CSS.read_text(encoding='utf-8').strip()}</style>"
    head = f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p>"
    body = (
        f'{look}<main>{head}{picture.html}<div class="two">{facts_table}{points_table}</div></main>'
    )
    return page(body, title)
