"""Whose compiler is it? The map of the pipeline with the parts of each room, and a page to keep.

In:  parts (room, name, owner, note), in the order of the pipeline. Out: a `Picture`: a room is filled where a part of it is the
learner's, dashed where all is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from course_lib.viz.pipeline_map import ROOMS
from course_lib.viz.style import LARGE, SMALL, Picture, escape, page
from course_lib.viz.svg import Svg, shorten
from course_lib.viz.tables import columns, html_table

MARKS = {"yours": "✓", "given": "▫", "ours": "·"}
BOX, GAP, LEFT, LINE, TOP = 182, 24, 12, 20, 48
Part = tuple[str, str, str]
"""Room, name, and "yours", "given" or "ours"."""


def owners(parts: Iterable[Part], caption: str = "") -> Picture:
    """The pipeline in two rows of four rooms; in each the parts that exercises ask for, marked by their owner."""
    rooms: dict[str, list[Part]] = {room.name: [] for room in ROOMS}
    for part in parts:
        rooms[part[0]].append(part)
    most = max(map(len, rooms.values()))
    tall = TOP + LINE * max(1, most) + 6
    svg = Svg(2 * LEFT + 4 * BOX + 3 * GAP, 2 * tall + 44)
    for i, room in enumerate(ROOMS):
        x, y = LEFT + (i % 4) * (BOX + GAP), 6 + (i // 4) * (tall + 34)
        inside = rooms[room.name]
        count = sum(owner != "ours" for _, _, owner in inside)
        strength = 0.06 + 0.3 * count / max(1, len(inside))
        svg.box(x, y, BOX, tall, room.name, strength=strength, line=3 if count else 1.4, dashed=not count)
        svg.text(x + 12, y + 24, room.title, LARGE, bold=True)
        svg.text(x + BOX - 10, y + 24, f"lesson {room.lesson}", SMALL, anchor="end", dim=True)
        for n, (_, name, owner) in enumerate(inside or [("", "no exercise: ours", "ours")]):
            text = shorten(f"{MARKS[owner]} {name}", BOX - 26)
            svg.text(x + 12, y + TOP + LINE * n, text, bold=owner != "ours", dim=owner == "ours", tip=name)
        if i == 3:
            below, right = y + tall + 17, x + BOX / 2
            svg.arrow([(right, y + tall), (right, below), (LEFT + 20, below), (LEFT + 20, y + tall + 32)])
        elif i < 7:
            svg.arrow([(x + BOX + 3, y + tall / 2), (x + BOX + GAP - 3, y + tall / 2)])
    rows = [(room.title, f"{MARKS[owner]} {name}", owner) for room in ROOMS for _, name, owner in rooms[room.name]]
    text = columns(rows)
    alt = "The pipeline, room by room: " + "; ".join(f"{title}: {name[2:]} is {owner}" for title, name, owner in rows) + "."
    return Picture(svg.render(alt), caption or "Filled: a part of this room is not ours. ✓ yours, ▫ given, · ours.", alt, text)


def keepsake(title: str, subtitle: str, picture: Picture, facts: Mapping[str, object], points: Iterable[tuple[str, str]]) -> str:
    """One HTML page that needs no network: the map, what was found out about the compiler, the points of each lesson."""
    told = html_table([(escape(name), escape(value)) for name, value in facts.items()], ["what was found", ""]) if facts else ""
    done = html_table([(escape(name), escape(value)) for name, value in points], ["exercises", "points"])
    look = "<style>h1{font-size:28px;margin:0}main{max-width:980px;margin:auto;font-family:sans-serif}"
    look += ".two{display:flex;flex-wrap:wrap;gap:40px;align-items:flex-start}table{border-collapse:collapse}"
    look += "th,td{text-align:left;padding:3px 14px 3px 0}</style>"
    head = f"<h1>{escape(title)}</h1><p>{escape(subtitle)}</p>"
    body = f'{look}<main>{head}{picture.html}<div class="two">{told}{done}</div></main>'
    return page(body, title)
