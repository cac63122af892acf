"""Symbolic sizes: what a capture assumed about sizes, and the two lives of a size (a number and an
expression at once).

In:  a `CaptureResult`; or rows of code, number, expression and guard. Out: text, or a `Picture`.
In PyTorch there is no such picture; `TORCH_LOGS="guards,dynamic"` tells the same in words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.capture.guard_tests import SizeIs, SizesAre
from course_lib.viz.kit.arguments import Kind, each, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns


def size_guards(result: Any) -> list[str]:
    """What one capture (a `CaptureResult`) assumed about the sizes of its arguments, and about
    numbers among them."""
    texts = []
    for guard in result.guards:
        for test in guard.tests:
            if is_about_size(guard, test):
                texts.append(test.text(guard.source.shown))
    return list(dict.fromkeys(texts))


def is_about_size(guard: Any, test: Any) -> bool:
    """Does a test look at a size, or at a number that was passed?"""
    if guard.kind == "sizes":
        return True

    # A source with a `base` is read out of another object: of a module, say.
    is_argument = getattr(guard.source, "base", None) is None
    is_size = isinstance(test, (SizesAre, SizeIs))
    is_number = guard.kind == "value" and type(test.right) is int
    return is_argument and (is_size or is_number)


# ---- a symbolic size -----------------------------------------------------------------------------


def is_life(row: object) -> bool:
    return isinstance(row, (tuple, list)) and len(row) == 4


LIFE = Kind("a row", is_life)
HEADINGS = ("the line", "number now", "expression kept", "guard written down")
HIGH, STEP, BASE_LINE = 30, 42, 20
"""px: the height of a box; from one row to the next; from the top of a box to its base line."""
CAPTION = "A symbolic size is a number and an expression at once; a question about the number becomes a guard."


@dataclass(frozen=True)
class Column:
    """px: where a column begins, and how wide it is."""

    x: float
    width: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2


@takes(rows=each(LIFE, "rows of four: code, number, expression, guard"))
def two_lives(rows: Sequence[tuple[str, object, str, str]]) -> Picture:
    """What arithmetic on a symbolic size leaves behind.

    A row: the code, the number in this call, the expression, and the guard that the line adds (""
    for none)."""
    # Each column is as wide as its widest text
    line, number, expression, guard = places = columns_for(rows)
    svg = Svg(guard.x + guard.width + 30, 36 + STEP * len(rows))
    for place, heading in zip(places, HEADINGS):
        svg.text(place.x, 14, heading, SMALL, dim=True)

    for j, (code, value, kept_text, guard_text) in enumerate(rows):
        y = 26 + STEP * j
        svg.text(line.x, y + BASE_LINE, code, mono=True)
        if str(value):
            svg.box(number.x, y, number.width, HIGH, "runtime", radius=3)
            svg.text(number.middle, y + BASE_LINE, str(value), mono=True, anchor="middle")
        if kept_text:
            svg.box(expression.x, y, expression.width, HIGH, "capture", radius=10)
            svg.text(expression.middle, y + BASE_LINE, kept_text, mono=True, anchor="middle")
        if guard_text:
            draw_guard(svg, guard, y, guard_text)

    guards = [guard_text for _, _, _, guard_text in rows if guard_text]
    alt = f"{plural(len(rows), 'line')} of arithmetic on a size; guards: {', '.join(guards) or 'none'}."
    text = columns(rows, ("the line", "number now", "expression", "guard"))
    return Picture(svg.render(alt), CAPTION, alt, text)


def columns_for(rows: Sequence[tuple[str, object, str, str]]) -> list[Column]:
    """The columns of the table from left to right, each as wide as its widest cell."""
    places = []
    x: float = 4
    for i, heading in enumerate(HEADINGS):
        # In a box, 14 px stay free on either side of the text.
        cells = [text_width(str(row[i]), mono=True) + 28 for row in rows]
        width = max([text_width(heading, SMALL), *cells])
        places.append(Column(x, width))
        x += width + 34  # the points of a hexagon reach into what is left between columns
    return places


def draw_guard(svg: Svg, column: Column, y: float, guard: str) -> None:
    """A hexagon, a little wider than its column; its points are 14 px long."""
    middle, half = y + HIGH // 2, HIGH // 2
    left, right = column.x - 16, column.x + column.width + 20
    upper = f"M{left} {middle} L{left + 14} {middle - half} H{right - 14} L{right} {middle}"
    lower = f"L{right - 14} {middle + half} H{left + 14} Z"
    svg.path(f"{upper} {lower}", stage="guards", line=2, opacity=1)
    svg.text((left + right) / 2, y + BASE_LINE, guard, mono=True, anchor="middle")
