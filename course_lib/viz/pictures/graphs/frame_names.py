"""The names of a graph's frames: beside the arrows, and painted last.

In:  the SVG that Graphviz wrote. Out: the same, with the name of each frame where no arrow passes.

Graphviz writes a frame's name into its upper left corner and leads arrows across it. Here the name
moves to the right along its line until it stands free. Where no place is free it stays, and its rim
in the colour of the page cuts the arrow.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from course_lib.viz.kit.svg import RIM, text_width

GAP = 4.0
"""px that stay free round a name."""
STEP = 4.0
"""px by which a name is moved at a time."""
SAMPLES = 12
"""Points that are looked at on each curve of an arrow."""

Point = tuple[float, float]

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def names_last(svg: str) -> str:
    """The names of the frames, beside the arrows and at the end of the file."""
    arrows = list(points_of_arrows(svg))
    names: list[str] = []

    def take(frame: re.Match[str]) -> str:
        """A frame without its name, which goes into `names` at its new place."""
        names.extend(
            placed(name, right_side(frame[0]), arrows).replace("<text", f'<text style="{RIM}"', 1)
            for name in re.findall(r"<text.*?</text>", frame[0], flags=re.S)
        )
        return re.sub(r"<text.*?</text>\s*", "", frame[0], flags=re.S)

    svg = re.sub(r'<g class="cluster.*?</g>', take, svg, flags=re.S)
    return re.sub(r"</g>\s*</svg>\s*$", "\n".join([*names, "</g></svg>"]), svg)


def placed(name: str, right: float, arrows: list[Point]) -> str:
    """The name of a frame that ends at `right`, moved to the first place without an arrow."""
    # (Graphviz writes the middle of a text as its x.)
    attributes = dict(re.findall(r'([\w-]+)="([^"]*)"', name))
    x, y, size = (float(attributes[key]) for key in ("x", "y", "font-size"))
    half = text_width(html.unescape(re.sub(r"<.*?>", "", name)), size) / 2

    # The letters reach from their size above the line to a third of it below.
    beside = [
        arrow_x for arrow_x, arrow_y in arrows if y - size - GAP < arrow_y < y + size / 3 + GAP
    ]
    middle = x
    while any(abs(arrow_x - middle) < half + GAP for arrow_x in beside):
        middle += STEP
        if middle + half + GAP > right:
            return name
    return name.replace(f'x="{attributes["x"]}"', f'x="{middle:.2f}"', 1)


def right_side(frame: str) -> float:
    """The x of the right side of a frame, from its outline."""
    outlines = re.findall(r' (?:d|points)="([^"]*)"', frame)
    return max(x for x, _ in pairs(outlines[0]))


def points_of_arrows(svg: str) -> Iterator[Point]:
    """Points on all arrows, a few px from one to the next, and the corners of their heads."""
    for edge in re.findall(r'<g class="edge.*?</g>', svg, flags=re.S):
        for path in re.findall(r' d="([^"]*)"', edge):
            yield from points_of_path(pairs(path))
        for head in re.findall(r' points="([^"]*)"', edge):
            yield from pairs(head)


def points_of_path(points: list[Point]) -> Iterator[Point]:
    """Points on a path of Graphviz: a start, then three points for each curve."""
    for at in range(0, len(points) - 3, 3):
        corners = points[at : at + 4]
        for sample in range(SAMPLES + 1):
            yield on_curve(corners, sample / SAMPLES)


def on_curve(corners: list[Point], t: float) -> Point:
    """The point of a cubic Bézier curve at `t`, from 0 to 1."""
    shares = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
    return (
        sum(share * x for share, (x, _) in zip(shares, corners, strict=True)),
        sum(share * y for share, (_, y) in zip(shares, corners, strict=True)),
    )


def pairs(numbers: str) -> list[Point]:
    """`M1,2C3,4 …` → (1, 2), (3, 4), …"""
    values = [float(number) for number in _NUMBER.findall(numbers)]
    return list(zip(values[::2], values[1::2], strict=True))
