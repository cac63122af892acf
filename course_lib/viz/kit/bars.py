"""Horizontal bars: one for each name, from zero.

In:  name → number. Out: a `Picture`. Who is who is always told the same way (`who`): eager is grey,
ours has the stage's colour, the real torch.compile is dark slate with a dashed edge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.viz.kit.arguments import ANYTHING, STAGE, TEXT, a_number, attributes, named, takes
from course_lib.viz.kit.style import Picture, human_bytes, human_seconds
from course_lib.viz.kit.svg import Svg, fold, text_width
from course_lib.viz.kit.tables import columns, show

LONGEST = 520.0
"""px: the longest bar where there is room for it."""
SHORTEST_SCALE = 160.0
"""px: the longest bar is not shorter than this, however long the names are."""
THICK, STEP = 20, 32
"""px: a bar's height, and from one bar to the next."""
BASE_LINE = 15
"""px: from the top of a bar to the base line of its name and number."""
NAME_GAP, NUMBER_GAP = 10, 8
"""px: between a name and its bar, and between a bar and its number."""
TITLE_LINE = 16
"""px: the base line of the title's first line."""
BEHIND = 90.0
"""px: room for the number behind a bar."""
FITS = 540.0
"""px: what is no wider shows all of its values in a window of 800 px, with letters of 11 px."""
LABEL, LETTERS = 230.0, 16
"""px: a name wider than this is written in several lines, and the height of one more line."""

WHO = re.compile(
    r"(?P<ours>course_lib|\bours?\b)|(?P<eager>(?<![\w-])eager\b)|torch\.compile|torchinductor",
    re.IGNORECASE,
)


def who(name: str, ours: str) -> tuple[str, bool]:
    """The colour of a bar with this name, and whether it belongs to the real torch.compile
    (dashed).

    A name may mention several compilers. The first one counts: 'ours against eager' is ours. Names
    that mention none are ours, such as our backend 'aot_eager'.
    """
    first = WHO.search(name)
    if first is None or first["ours"]:
        return ours, False
    if first["eager"]:
        return "eager", False
    return "torch.compile", True


@dataclass
class BarLayout:
    """Where names, bars and numbers stand, in px."""

    label: float  # where the bars begin
    longest: float  # how long the bar of the largest value is
    behind: float  # room to the right of the longest bar, for the numbers
    names: dict[str, list[str]]  # name → its lines
    title: list[str]  # its lines

    @property
    def top(self) -> int:
        """Where the first bar stands."""
        if self.title:
            return 14 + LETTERS * len(self.title)
        return 8

    @property
    def width(self) -> float:
        return self.label + self.longest + self.behind

    @property
    def height(self) -> float:
        margin = 2  # px below the last row
        return self.top + sum(self.row_height(name) for name in self.names) + margin

    def row_height(self, name: str) -> int:
        return STEP + LETTERS * (len(self.names[name]) - 1)


@takes(values=named(ANYTHING, "name → number"), title=TEXT, stage=STAGE)
def bars(
    values: Mapping[str, float],
    unit: str = "",
    title: str = "",
    caption: str = "",
    *,
    stage: str = "scheduling",
) -> Picture:
    """Horizontal bars, one for each name, from zero.

    unit: written behind each number; "s" and "B" are scaled to what reads well (µs, MB).
    stage: gives our colour. Values that are not finite and positive are drawn as 'none'.
    Raises ValueError without a value, TypeError for a value that is no number.
    """
    if not values:
        raise ValueError("bars need at least one value")
    for name, value in attributes(values, ("items",), "bars are name → number").items():
        a_number(value, f"the value of {name!r}")

    layout = layout_of(values, unit, title)
    svg = Svg(layout.width, layout.height)
    for i, line in enumerate(layout.title):
        svg.text(0, TITLE_LINE + LETTERS * i, line, bold=True)

    # 1.0 where no bar has a length: something to divide by
    largest = max((value for value in values.values() if math.isfinite(value)), default=0.0) or 1.0
    y = float(layout.top)
    for name, value in values.items():
        length = 0.0
        if math.isfinite(value) and value > 0:
            # At least 2 px, so that a small value can be told from none
            length = max(2.0, layout.longest * value / largest)
        draw_bar(svg, layout, y, name, length, amount(value, unit), stage)
        y += layout.row_height(name)

    # The line at zero reaches a little above the first bar and below the last one.
    svg.path(f"M{layout.label:.0f} {layout.top - 4} V{y - 6:.0f}", line=1, opacity=0.5)

    amounts = [(name, amount(value, unit)) for name, value in values.items()]
    amounts_in_words = "; ".join(f"{name} {number}" for name, number in amounts)
    alt = f"{title or 'Bars'}: {amounts_in_words}."
    text = columns(amounts)
    return Picture(svg.render(alt), caption, alt, f"{title}\n{text}" if title else text)


def layout_of(values: Mapping[str, float], unit: str, title: str) -> BarLayout:
    """Long names and numbers take room from the bars, so that the whole can be read."""
    names = {name: fold(name, LABEL) for name in values}
    # Left of the longest name 6 px stay free, and right of the longest number as many. A width of
    # text is estimated: numbers get a tenth more than that, and the title 6 % less than there is.
    label = NAME_GAP + 6 + max(text_width(line) for lines in names.values() for line in lines)
    longest = max(SHORTEST_SCALE, min(LONGEST, FITS - label - BEHIND))

    numbers = [1.1 * text_width(amount(value, unit)) + NUMBER_GAP + 6 for value in values.values()]
    behind = max(BEHIND, *numbers)

    width = label + longest + behind
    lines = fold(title, 0.94 * width, bold=True) if title else []
    return BarLayout(label, longest, behind, names, lines)


def draw_bar(
    svg: Svg, layout: BarLayout, y: float, name: str, length: float, number: str, stage: str
) -> None:
    """One row: the name on the left, the bar if it has a length, the number behind it."""
    for i, line in enumerate(layout.names[name]):
        svg.text(layout.label - NAME_GAP, y + BASE_LINE + LETTERS * i, line, anchor="end")

    if length:
        colour, dashed = who(name, stage)
        svg.box(
            layout.label,
            y,
            length,
            THICK,
            colour,
            radius=3,
            strength=0.45,
            line=1.6,
            dashed=dashed,
        )

    svg.text(layout.label + length + NUMBER_GAP, y + BASE_LINE, number)


def amount(value: float, unit: str) -> str:
    """A value with its unit, scaled where the unit is seconds or bytes."""
    if not math.isfinite(value):
        return "none"
    if unit in ("s", "seconds"):
        return human_seconds(value)
    if unit in ("B", "bytes"):
        return human_bytes(value)
    return f"{show(value)} {unit}".rstrip()
