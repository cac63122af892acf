"""Drawing by hand: a list of SVG elements, with the few shapes that the visual language knows.

Presentation attributes rather than CSS classes, so that a drawing keeps its looks where style sheets are removed; arrow heads as
paths, because markers are found by id and ids clash between the cells of a notebook.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Hashable, Iterable
from typing import Any

from course_lib.viz.kit.style import COLOURS, DIM, FILLS, MONO, NORMAL, SANS, SMALL, escape, ink

SCROLL_FROM = 1700
"""Drawings taller than this scroll (px)."""
SHRINKS = 0.7
"""How much smaller a drawing may become: the smallest letters are then 8 px. JupyterLab has 600 px for it in a window of 800:
drawings are at most 766 px wide where they can be, for then the letters (11.5 px) stay above 9."""
RIM = "paint-order: stroke; stroke: var(--jp-layout-color0, Canvas); stroke-width: 4px"
NARROW, WIDE = set("iljtf.,:;'|!()[]{} I1r/"), set("mwMWGOQ@%—→×")


def text_width(text: str, size: float = NORMAL, mono: bool = False, bold: bool = False) -> float:
    """About how wide `text` is, in px; rather too wide than too narrow."""
    if mono:
        return len(text) * size * 0.61
    units = sum(
        0.36 if c in NARROW else 0.88 if c in WIDE else 0.68 if c.isupper() else 0.58 for c in text
    )
    return units * size * (1.16 if bold else 1.0)


def shorten(
    text: str, width: float, size: float = NORMAL, mono: bool = False, bold: bool = False
) -> str:
    """`text`, cut at the end with an ellipsis so that it is at most `width` px wide."""
    if text_width(text, size, mono, bold) <= width:
        return text
    while text and text_width(text + "…", size, mono, bold) > width:
        text = text[:-1]
    return text.rstrip(" ,·") + "…"


def middle(
    text: str, width: float, size: float = NORMAL, mono: bool = False, bold: bool = False
) -> str:
    """`text`, cut in its middle: long names often differ at the end, and a sentence ends with what was found."""
    if text_width(text, size, mono, bold) <= width:
        return text
    keep = len(text)
    while (
        keep > 2
        and text_width(text[: keep - keep // 2] + "…" + text[-(keep // 2) :], size, mono, bold)
        > width
    ):
        keep -= 1
    return text[: keep - keep // 2] + "…" + text[-(keep // 2) :]


def tail(text: str, width: float, size: float = NORMAL) -> str:
    """`text`, cut at its beginning: of a long path the end tells most."""
    if text_width(text, size) <= width:
        return text
    return "…" + next(
        text[n:]
        for n in range(len(text) + 1)
        if text_width("…" + text[n:], size) <= width or n == len(text)
    )


def fold(text: str, width: float, size: float = NORMAL, bold: bool = False) -> list[str]:
    """`text` in lines of at most `width` px; only a word that is longer by itself goes beyond."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if lines[-1] and text_width(longer, size, bold=bold) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def wrap(text: str, columns: int, lines: int = 9) -> list[str]:
    """`text` in lines of at most `columns` characters, at most `lines` of them."""
    return textwrap.wrap(text, columns, max_lines=lines, placeholder=" …") or [""]


class Svg:
    """A drawing of `width` × `height` px; shapes are added in the order they are painted."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = NORMAL,
        *,
        anchor: str = "start",
        bold: bool = False,
        mono: bool = False,
        dim: bool = False,
        stage: str | None = None,
        tip: str = "",
        strike: bool = False,
        rim: bool = False,
    ) -> None:
        """A line of text with its baseline at `y`. `stage` colours it; `tip` is the whole of what was shortened; with a `rim` in
        the colour of the page it can be read over lines."""
        looks = [*([f"fill: {ink(stage)}"] if stage else []), *([RIM] if rim else [])]
        style = f' style="{"; ".join(looks)}"' if looks else ""
        look = (' font-weight="600"' if bold else "") + (f' opacity="{DIM}"' if dim else "")
        look += ' text-decoration="line-through"' if strike else ""
        title = f"<title>{escape(tip)}</title>" if tip else ""
        family = f' font-family="{MONO}"' if mono else ""
        self.parts.append(
            f'<text x="{n(x)}" y="{n(y)}" font-size="{size:g}" text-anchor="{anchor}" fill="currentColor"'
            f"{family}{look}{style}>{title}{escape(text)}</text>"
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        stage: str | None,
        *,
        radius: float = 8,
        strength: float = 0.14,
        line: float = 1.5,
        dashed: bool = False,
        tip: str = "",
    ) -> None:
        """A frame in a stage's colour over a tint of it; without a stage, in the colour of the text."""
        fill = (
            f'fill="{FILLS[stage]}" fill-opacity="{strength:g}"'
            if stage and strength
            else 'fill="none"'
        )
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<rect x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}" rx="{radius:g}" {fill} {stroke(stage)} '
            f'stroke-width="{line:g}"{dash}>{title}</rect>'
        )

    def path(
        self,
        d: str,
        *,
        stage: str | None = None,
        line: float = 1.6,
        opacity: float = 0.8,
        dashed: bool = False,
        tip: str = "",
    ) -> None:
        """A line without a fill."""
        dash = ' stroke-dasharray="5 4"' if dashed else ""
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(
            f'<path d="{d}" fill="none" {stroke(stage)} stroke-width="{line:g}" stroke-opacity="{opacity:g}" '
            f'stroke-linejoin="round"{dash}>{title}</path>'
        )

    def area(
        self, d: str, stage: str, *, strength: float = 0.2, line: float = 0.8, tip: str = ""
    ) -> None:
        """A closed line round a tint."""
        title = f"<title>{escape(tip)}</title>" if tip else ""
        fill = f'fill="{FILLS[stage]}" fill-opacity="{strength:g}"'
        self.parts.append(
            f'<path d="{d}" {fill} {stroke(stage)} stroke-width="{line:g}">{title}</path>'
        )

    def arrow(
        self,
        points: list[tuple[float, float]],
        *,
        stage: str | None = None,
        line: float = 1.6,
        opacity: float = 0.8,
        tip: str = "",
    ) -> None:
        """A line through `points` (its corners rounded) with a head at the last."""
        (x0, y0), (x1, y1) = points[-2], points[-1]
        length = math.hypot(x1 - x0, y1 - y0) or 1.0
        dx, dy = (x1 - x0) / length, (y1 - y0) / length
        head = 5 + 1.6 * line
        back = (x1 - dx * head * 0.97, y1 - dy * head * 0.97)
        self.path(rounded([*points[:-1], back]), stage=stage, line=line, opacity=opacity, tip=tip)
        wing = head * 0.52
        bx, by = x1 - dx * head, y1 - dy * head
        colour = (
            f'fill="{COLOURS[stage]}" style="fill: {ink(stage, 80)}"'
            if stage
            else 'fill="currentColor"'
        )
        self.parts.append(
            f'<path d="M{n(x1)} {n(y1)} L{n(bx - dy * wing)} {n(by + dx * wing)} L{n(bx + dy * wing)} {n(by - dx * wing)} Z" '
            f'{colour} fill-opacity="{opacity:g}"/>'
        )

    def cylinder(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        stage: str,
        *,
        strength: float = 0.2,
        tip: str = "",
    ) -> None:
        """Memory: a buffer. Its height stands for its bytes."""
        ry = min(5.0, height / 3)
        title = f"<title>{escape(tip)}</title>" if tip else ""
        sides = f"M{n(x)} {n(y + ry)} v{n(height - 2 * ry)} a{n(width / 2)} {n(ry)} 0 0 0 {n(width)} 0 v{n(2 * ry - height)}"
        self.parts.append(
            f'<path d="{sides} a{n(width / 2)} {n(ry)} 0 0 0 {n(-width)} 0 Z" fill="{FILLS[stage]}" fill-opacity="{strength:g}" '
            f'{stroke(stage)} stroke-width="1.3">{title}</path>'
        )
        self.path(
            f"M{n(x)} {n(y + ry)} a{n(width / 2)} {n(ry)} 0 0 0 {n(width)} 0",
            stage=stage,
            line=1.3,
            opacity=1,
        )

    def render(self, alt: str) -> str:
        """The `<svg>` element. In a narrow window it shrinks as far as `least_width` allows, then the window scrolls."""
        width, height = n(math.ceil(self.width)), n(math.ceil(self.height))
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}" {least_width(self.width)}'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(alt)}" font-family="{SANS}">'
        return head + "\n".join(self.parts) + "</svg>"

    def framed(self, alt: str) -> str:
        """The same; a tall drawing in a box that scrolls."""
        drawing = self.render(alt)
        return (
            drawing
            if self.height <= SCROLL_FROM
            else f'<div class="cl-scroll" tabindex="0">{drawing}</div>'
        )


def stroke(stage: str | None) -> str:
    """The line colour of a stage: its own, drawn a little towards the text's so that it shows on either theme."""
    return (
        f'stroke="{COLOURS[stage]}" style="stroke: {ink(stage, 80)}"'
        if stage
        else 'stroke="currentColor"'
    )


def least_width(width: float) -> str:
    """The attribute that keeps a drawing from shrinking until it cannot be read."""
    return f'style="min-width: {n(SHRINKS * width)}px"'


def n(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")


def rounded(points: list[tuple[float, float]], radius: float = 8) -> str:
    """Path data through `points`, with round corners."""
    d = f"M{n(points[0][0])} {n(points[0][1])}"
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        before, after = math.hypot(x1 - x0, y1 - y0), math.hypot(x2 - x1, y2 - y1)
        r = min(radius, before / 2, after / 2)
        if r < 0.5:
            d += f" L{n(x1)} {n(y1)}"
            continue
        ax, ay = x1 + (x0 - x1) * r / before, y1 + (y0 - y1) * r / before
        bx, by = x1 + (x2 - x1) * r / after, y1 + (y2 - y1) * r / after
        d += f" L{n(ax)} {n(ay)} Q{n(x1)} {n(y1)} {n(bx)} {n(by)}"
    return d + f" L{n(points[-1][0])} {n(points[-1][1])}"


def lanes(stretches: Iterable[tuple[float, float, Hashable]]) -> dict[Any, int]:
    """A lane for each line that runs along a column, from `start` to `end` (start, end, name): the first that is free there."""
    free: list[float] = []
    chosen: dict[Any, int] = {}
    for start, end, name in sorted(
        ((min(a, b), max(a, b), name) for a, b, name in stretches), key=lambda s: s[:2]
    ):
        lane = next((i for i, taken in enumerate(free) if taken < start - 2), len(free))
        free[lane : lane + 1] = [end]
        chosen[name] = lane
    return chosen


__all__ = ["SMALL", "Svg", "lanes", "shorten", "text_width", "wrap"]
