"""Whose compiler is it? The map of the pipeline with the parts of each room, and a page to keep.

In:  parts (room, name, owner, note), in the order of the pipeline. Out: a `Picture`: a room is filled where a part of it is the
learner's, dashed where all is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from course_lib.viz.kit.asked import Kind, each, takes
from course_lib.viz.kit.style import LARGE, SMALL, Picture, escape, page
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.pipeline.pipeline_map import (
    BETWEEN,
    BOX,
    DOWN,
    ROOMS,
    TOP,
    corner,
    draw_headings,
    way,
)

MARKS = {"yours": "✓", "given": "▫", "ours": "·"}
LINE, HEAD = 20, 48
Part = tuple[str, str, str]
"""Room, name, and "yours", "given" or "ours"."""

PART = Kind(
    "a part",
    lambda part: (
        isinstance(part, tuple)
        and len(part) == 3
        and part[0] in [room.name for room in ROOMS]
        and part[2] in MARKS
    ),
)


@takes(parts=each(PART, "a list of (room, name, owner)"))
def owners(parts: Iterable[Part], caption: str = "") -> Picture:
    """The map of the pipeline; in each room the parts that exercises ask for, marked by their owner."""
    rooms: dict[str, list[Part]] = {room.name: [] for room in ROOMS}
    for part in parts:
        rooms[part[0]].append(part)
    most = [max(1, *(len(rooms[ROOMS[row + side].name]) for side in (0, 4))) for row in range(4)]
    tall = [HEAD + LINE * lines - 4 for lines in most]
    svg = Svg(2 * BOX + BETWEEN + 6, TOP + sum(tall) + 4 * DOWN)
    draw_headings(svg)
    for i, room in enumerate(ROOMS):
        x, y = corner(i, tall)
        inside = rooms[room.name]
        count = sum(owner != "ours" for _, _, owner in inside)
        strength = 0.06 + 0.3 * count / max(1, len(inside))
        svg.box(
            x,
            y,
            BOX,
            tall[i % 4],
            room.name,
            strength=strength,
            line=3 if count else 1.4,
            dashed=not count,
        )
        svg.text(x + 12, y + 24, room.title, LARGE, bold=True)
        svg.text(x + BOX - 10, y + 24, f"lesson {room.lesson}", SMALL, anchor="end", dim=True)
        for n, (_, name, owner) in enumerate(inside or [("", "no exercise: ours", "ours")]):
            text = shorten(f"{MARKS[owner]} {name}", BOX - 26)
            svg.text(
                x + 12,
                y + HEAD + LINE * n,
                text,
                bold=owner != "ours",
                dim=owner == "ours",
                tip=name,
            )
        if i + 1 < len(ROOMS):
            svg.arrow(way(i, tall))
    rows = [
        (room.title, f"{MARKS[owner]} {name}", owner)
        for room in ROOMS
        for _, name, owner in rooms[room.name]
    ]
    text = columns(rows)
    alt = (
        "The pipeline, room by room: "
        + "; ".join(f"{title}: {name[2:]} is {owner}" for title, name, owner in rows)
        + "."
    )
    return Picture(
        svg.render(alt),
        caption or "Filled: a part of this room is not ours. ✓ yours, ▫ given, · ours.",
        alt,
        text,
    )


def keepsake(
    title: str,
    subtitle: str,
    picture: Picture,
    facts: Mapping[str, object],
    points: Iterable[tuple[str, str]],
) -> str:
    """One HTML page that needs no network: the map, what was found out about the compiler, the points of each lesson."""
    told = (
        html_table(
            [(escape(name), escape(value)) for name, value in facts.items()], ["what was found", ""]
        )
        if facts
        else ""
    )
    done = html_table(
        [(escape(name), escape(value)) for name, value in points], ["exercises", "points"]
    )
    look = (
        "<style>h1{font-size:28px;margin:0}main{max-width:980px;margin:auto;font-family:sans-serif}"
    )
    look += ".two{display:flex;flex-wrap:wrap;gap:40px;align-items:flex-start}table{border-collapse:collapse}"
    look += "th,td{text-align:left;padding:3px 14px 3px 0}</style>"
    head = f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p>"
    body = f'{look}<main>{head}{picture.html}<div class="two">{told}{done}</div></main>'
    return page(body, title)
