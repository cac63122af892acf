"""Drawing by hand: a list of SVG elements, with the few shapes that the visual language knows.

Presentation attributes rather than CSS classes, so that a drawing keeps its looks where style
sheets are removed; arrow heads as paths, because markers are found by id and ids clash between the
cells of a notebook.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Hashable, Iterable
from typing import Any

from course_lib.viz.kit.style import COLOURS, DIM, FILLS, MONO, NORMAL, SANS, SMALL, escape, ink

SCROLL_FROM = 1700
"""Drawings taller than this scroll (px)."""
LEAST_LETTERS = 11.0
"""px: a drawing shrinks in a narrow window until its smallest letters are this high; then the
window scrolls. JupyterLab has 520 px for a figure in a window of 800 px."""
RIM = "paint-order: stroke; stroke: var(--jp-layout-color0, Canvas); stroke-width: 4px"
"""The style of letters with a rim in the colour of JupyterLab's page (or the browser's): 2 px
outside of them, for half of the stroke lies below the letters."""
NARROW, WIDE = set("iljtf.,:;'|!()[]{} Ir/"), set("mwMWGOQ@%—→×")
"""Letters that are narrower, or wider, than most (`letter_width`)."""
DIGITS = set("0123456789")
"""All of one width, so that columns of numbers stand in line."""


_FONT_SIZE = re.compile(r'font-size="([\d.]+)"')


def text_width(text: str, size: float = NORMAL, mono: bool = False, bold: bool = False) -> float:
    """About how wide `text` is, in px; rather too wide than too narrow.

    A bold letter is at most 1.16 times as wide. (The reader's machine chooses the fonts, so nobody
    knows here how wide their letters are.)"""
    if mono:
        return len(text) * size * 0.61
    units = sum(map(letter_width, text))
    return units * size * (1.16 if bold else 1.0)


def letter_width(letter: str) -> float:
    """About how wide a letter is, for a font size of 1."""
    if letter in DIGITS:
        return 0.64
    if letter in NARROW:
        return 0.36
    if letter in WIDE:
        return 0.88
    return 0.68 if letter.isupper() else 0.58


def shorten(
    text: str, width: float, size: float = NORMAL, mono: bool = False, bold: bool = False
) -> str:
    """`text`, cut at the end with an ellipsis so that it is at most `width` px wide."""
    if text_width(text, size, mono, bold) <= width:
        return text

    while text and text_width(text + "…", size, mono, bold) > width:
        text = text[:-1]
    # No "1, 2, …": what separates parts is cut, too.
    return text.rstrip(" ,·") + "…"


def middle(
    text: str, width: float, size: float = NORMAL, mono: bool = False, bold: bool = False
) -> str:
    """`text`, cut in its middle: long names often differ at the end, and a sentence ends with what
    was found."""
    if text_width(text, size, mono, bold) <= width:
        return text

    for keep in range(len(text), 1, -1):
        end = keep // 2
        short = f"{text[: keep - end]}…{text[-end:]}"
        if text_width(short, size, mono, bold) <= width:
            break
    return short


def tail(text: str, width: float, size: float = NORMAL) -> str:
    """`text`, cut at its beginning: of a long path the end tells most."""
    if text_width(text, size) <= width:
        return text

    for start in range(len(text)):
        short = f"…{text[start:]}"
        if text_width(short, size) <= width:
            return short
    return "…"


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
        """A line of text with its baseline at `y`.

        stage: colours it. tip: the whole of what was shortened. rim: a rim in the colour of the
        page, so that it can be read over lines."""
        attributes = f'x="{n(x)}" y="{n(y)}" font-size="{size:g}" text-anchor="{anchor}"'
        attributes += ' fill="currentColor"'
        if mono:
            attributes += f' font-family="{MONO}"'
        if bold:
            attributes += ' font-weight="600"'
        if dim:
            attributes += f' opacity="{DIM}"'
        if strike:
            attributes += ' text-decoration="line-through"'

        looks = []
        if stage:
            looks.append(f"fill: {ink(stage)}")
        if rim:
            looks.append(RIM)
        if looks:
            attributes += f' style="{"; ".join(looks)}"'
        self.parts.append(f"<text {attributes}>{tooltip(tip)}{escape(text)}</text>")

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
        """A frame in a stage's colour over a tint of it; without a stage, in the colour of the
        text."""
        place = f'x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}" rx="{radius:g}"'
        fill = 'fill="none"'
        if stage and strength:
            fill = f'fill="{FILLS[stage]}" fill-opacity="{strength:g}"'
        dash = ' stroke-dasharray="6 4"' if dashed else ""  # px: a dash, and the gap behind it
        look = f'{fill} {stroke(stage)} stroke-width="{line:g}"{dash}'
        self.parts.append(f"<rect {place} {look}>{tooltip(tip)}</rect>")

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
        look = f'fill="none" {stroke(stage)} stroke-width="{line:g}" stroke-opacity="{opacity:g}"'
        self.parts.append(
            f'<path d="{d}" {look} stroke-linejoin="round"{dash}>{tooltip(tip)}</path>'
        )

    def area(
        self, d: str, stage: str, *, strength: float = 0.2, line: float = 0.8, tip: str = ""
    ) -> None:
        """A closed line round a tint."""
        fill = f'fill="{FILLS[stage]}" fill-opacity="{strength:g}"'
        look = f'{fill} {stroke(stage)} stroke-width="{line:g}"'
        self.parts.append(f'<path d="{d}" {look}>{tooltip(tip)}</path>')

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

        # The head is longer on a thicker line. The line ends a little inside it, so that no gap is
        # seen between them.
        head = 5 + 1.6 * line
        back = (x1 - dx * head * 0.97, y1 - dy * head * 0.97)
        self.path(rounded([*points[:-1], back]), stage=stage, line=line, opacity=opacity, tip=tip)

        # A triangle: its tip at the last point, and half of its back on either side of the line
        wing = head * 0.52
        bx, by = x1 - dx * head, y1 - dy * head
        left = f"L{n(bx - dy * wing)} {n(by + dx * wing)}"
        right = f"L{n(bx + dy * wing)} {n(by - dx * wing)}"
        colour = 'fill="currentColor"'
        if stage:
            colour = f'fill="{COLOURS[stage]}" style="fill: {ink(stage, 80)}"'
        shape = f"M{n(x1)} {n(y1)} {left} {right} Z"
        self.parts.append(f'<path d="{shape}" {colour} fill-opacity="{opacity:g}"/>')

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
        # The ellipses at both ends are flatter where the cylinder is low.
        ry = min(5.0, height / 3)
        start = f"M{n(x)} {n(y + ry)}"
        front = f"a{n(width / 2)} {n(ry)} 0 0 0 {n(width)} 0"
        behind = f"a{n(width / 2)} {n(ry)} 0 0 0 {n(-width)} 0"
        down, up = f"v{n(height - 2 * ry)}", f"v{n(2 * ry - height)}"

        fill = f'fill="{FILLS[stage]}" fill-opacity="{strength:g}"'
        look = f'{fill} {stroke(stage)} stroke-width="1.3"'
        shape = f"{start} {down} {front} {up} {behind} Z"
        self.parts.append(f'<path d="{shape}" {look}>{tooltip(tip)}</path>')
        self.path(f"{start} {front}", stage=stage, line=1.3, opacity=1)

    def render(self, alt: str) -> str:
        """The `<svg>` element.

        In a narrow window it shrinks as far as `least_width` allows, then the window scrolls."""
        width, height = n(math.ceil(self.width)), n(math.ceil(self.height))
        size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        attributes = f'role="img" aria-label="{escape(alt)}" font-family="{SANS}"'
        space = 'xmlns="http://www.w3.org/2000/svg"'
        shapes = "\n".join(self.parts)
        return f"<svg {space} {size} {least_width(self.width, shapes)} {attributes}>{shapes}</svg>"

    def framed(self, alt: str) -> str:
        """`render`, with a box that scrolls around it if the drawing is tall."""
        drawing = self.render(alt)
        if self.height <= SCROLL_FROM:
            return drawing
        return f'<div class="cl-scroll" tabindex="0">{drawing}</div>'


def stroke(stage: str | None) -> str:
    """The line colour of a stage: its own, drawn a little towards the text's so that it shows on
    either theme."""
    if not stage:
        return 'stroke="currentColor"'
    return f'stroke="{COLOURS[stage]}" style="stroke: {ink(stage, 80)}"'


def tooltip(text: str) -> str:
    """What is shown when the reader points at a shape; '' for none."""
    if text:
        return f"<title>{escape(text)}</title>"
    return ""


def least_width(width: float, shapes: str) -> str:
    """The attribute that keeps a drawing of these shapes from shrinking until it cannot be read.

    One without letters may shrink to half."""
    smallest = min(map(float, _FONT_SIZE.findall(shapes)), default=2 * LEAST_LETTERS)
    return f'style="min-width: {n(width * min(1.0, LEAST_LETTERS / smallest))}px"'


def n(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")


def rounded(points: list[tuple[float, float]], radius: float = 8) -> str:
    """Path data through `points`, with round corners."""
    first, last = points[0], points[-1]
    d = f"M{n(first[0])} {n(first[1])}"
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        before, after = math.hypot(x1 - x0, y1 - y0), math.hypot(x2 - x1, y2 - y1)
        # Two corners share the line between them. A curve of less than half a px is not seen.
        r = min(radius, before / 2, after / 2)
        if r < 0.5:
            d += f" L{n(x1)} {n(y1)}"
            continue

        # From the corner `r` back and `r` on
        ax, ay = x1 + (x0 - x1) * r / before, y1 + (y0 - y1) * r / before
        bx, by = x1 + (x2 - x1) * r / after, y1 + (y2 - y1) * r / after
        d += f" L{n(ax)} {n(ay)} Q{n(x1)} {n(y1)} {n(bx)} {n(by)}"
    return f"{d} L{n(last[0])} {n(last[1])}"


def lanes(stretches: Iterable[tuple[float, float, Hashable]]) -> dict[Any, int]:
    """A lane for each line that runs along a column, from `start` to `end` (start, end, name): the
    first that is free there. Two lines of one lane are more than 2 px apart."""
    ordered = [(min(a, b), max(a, b), name) for a, b, name in stretches]
    ordered.sort(key=lambda stretch: stretch[:2])

    taken_until: list[float] = []
    chosen: dict[Any, int] = {}
    for start, end, name in ordered:
        free = [lane for lane, end_of_last in enumerate(taken_until) if end_of_last < start - 2]
        lane = free[0] if free else len(taken_until)
        taken_until[lane : lane + 1] = [end]
        chosen[name] = lane
    return chosen


__all__ = ["SMALL", "Svg", "lanes", "shorten", "text_width", "wrap"]
