"""Who must run before whom, and what becomes of it when two of them run as one.

In:  `needs`: for each kernel the names of those whose results it reads; and two that are to become
     one.
Out: a `Picture`: left, an arrow from each kernel to those that wait for it. Right, the same with
     the two in one thick frame. Arrows that lead in a circle are in the colour of errors: then
     nobody could begin, and the two must stay apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from course_lib.viz.kit.arguments import NAMES, named, takes
from course_lib.viz.kit.style import LARGE, Picture
from course_lib.viz.kit.svg import Svg, text_width

HIGH, BETWEEN, BESIDE = 34, 44, 24
"""px: the height of a kernel, and the gaps below and beside it."""
ASIDE, PANELS = 26, 60
"""px: room for arrows on either side of a panel, and between two panels."""
TOP, LANE = 34, 16
"""px: where the first level begins, and how far aside of the kernels an arrow runs."""
Needs = dict[str, tuple[str, ...]]
"""Kernel → those that it waits for."""


class Arrow(NamedTuple):
    """From a kernel to one that waits for it."""

    start: str
    to: str


@takes(needs=named(NAMES, "kernel → the names of those it waits for"), together=NAMES)
def order(needs: Mapping[str, Iterable[str]], together: tuple[str, ...] = ()) -> Picture:
    """Draw the kernels of `needs` in levels, data flowing down; beside them the same with those of
    `together` as one kernel.

    Raises LookupError for a name that is no kernel."""
    before: Needs = {name: tuple(who) for name, who in needs.items()}
    # A name that is written wrong would be a kernel that never runs
    waited_for = itertools.chain(*before.values())
    for name in (*together, *waited_for):
        if name not in before:
            known = ", ".join(before)
            raise LookupError(f"order knows no kernel '{name}'; there are {known}")

    panels = [Levels("One by one", before)]
    if together:
        panels.append(Levels("As one", merged(before, together)))

    width = sum(panel.width for panel in panels) + PANELS * (len(panels) - 1)
    svg = Svg(width, max(panel.height for panel in panels))
    x = 0.0
    for panel in panels:
        panel.draw(svg, x, " · ".join(together))
        x += panel.width + PANELS

    lines = [line for panel in panels for line in in_words(panel.title, panel.needs)]
    alt = f"Who runs after whom. {'. '.join(lines)}."
    caption = "An arrow leads from a kernel to who waits for its result."
    if any(panel.circle for panel in panels):
        caption += " As one, they would have to run both before and after another kernel."
    return Picture(svg.render(alt), caption, alt, "\n".join(lines))


def merged(needs: Needs, together: tuple[str, ...]) -> Needs:
    """Who needs whom, once the kernels `together` have become one."""
    joined_name = " · ".join(together)

    def name(who: str) -> str:
        """What a kernel is called now."""
        return joined_name if who in together else who

    result: Needs = {}
    for who, before in needs.items():
        me = name(who)
        waits_for = (*result.get(me, ()), *map(name, before))
        # (What the two hand to each other is nothing to wait for any more.)
        result[me] = tuple(other for other in dict.fromkeys(waits_for) if other != me)
    return result


def circles(needs: Needs) -> set[tuple[str, str]]:
    """The arrows (from, to) that are part of a circle."""
    arrows: set[tuple[str, str]] = set()
    for who in needs:
        for before in needs[who]:
            # The arrow leads from `before` to `who`: is there a way back?
            if who in all_before(before, needs):
                arrows.add(Arrow(before, who))
    return arrows


def all_before(who: str, needs: Needs) -> set[str]:
    """All that must run before a kernel, directly or not."""
    names: set[str] = set()
    waiting = [*needs[who]]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += needs[name]
    return names


def in_words(title: str, needs: Needs) -> list[str]:
    """Who runs after whom, and the first circle if there is one."""
    clauses = [f"{who} after {' and '.join(before)}" for who, before in needs.items() if before]
    lines = [f"{title}: {'; '.join(clauses) or 'in any order'}"]

    circle = sorted(circles(needs))
    if circle:
        lines.append(f"A circle: {' → '.join(circle[0])} → …")
    return lines


class Levels:
    """One panel: each kernel one level below the last of those that it needs."""

    def __init__(self, title: str, needs: Needs) -> None:
        self.title = title
        self.needs = needs
        self.circle = circles(needs)
        self.back = self.arrows_back()
        self.level = self.levels()
        self.size = {who: text_width(who) + 30 for who in needs}

        rows = self.rows()
        wide = [self.width_of(row) for row in rows]
        self.width = max([*wide, text_width(title, bold=True)]) + 2 * ASIDE
        self.height = TOP + len(rows) * (HIGH + BETWEEN) - BETWEEN + 6

        self.left: dict[str, float] = {}
        for row in rows:
            x = (self.width - self.width_of(row)) / 2
            for who in row:
                self.left[who] = x
                x += self.size[who] + BESIDE

    def arrows_back(self) -> set[tuple[str, str]]:
        """The arrows of circles that lead up, to a kernel which is named earlier."""
        place = {who: number for number, who in enumerate(self.needs)}
        return {(start, to) for start, to in self.circle if place[start] > place[to]}

    def levels(self) -> dict[str, int]:
        """Kernel → its level, 0 on top: one below the last that it needs, of those named before it.
        (Without the arrows back, a circle has a top, too.)"""
        level: dict[str, int] = {}
        for who in self.needs:
            level[who] = 0
            for before in self.needs[who]:
                if (before, who) not in self.back and before in level and before != who:
                    level[who] = max(level[who], 1 + level[before])
        return level

    def rows(self) -> list[list[str]]:
        """The kernels of each level, from the top."""
        rows: list[list[str]] = [[] for _ in range(1 + max(self.level.values(), default=0))]
        for who in self.needs:
            rows[self.level[who]].append(who)
        return rows

    def width_of(self, row: list[str]) -> float:
        """px: the kernels of a level, side by side."""
        return sum(self.size[who] for who in row) + BESIDE * (len(row) - 1)

    def top(self, who: str) -> int:
        """px from the top of the drawing."""
        return TOP + self.level[who] * (HIGH + BETWEEN)

    def draw(self, svg: Svg, x: float, frame: str) -> None:
        """With its left edge at `x`; the kernel called `frame` has a thick frame."""
        svg.text(x + self.width / 2, 16, self.title, LARGE, anchor="middle", bold=True)
        for who, before in self.needs.items():
            for start in before:
                self.draw_arrow(svg, x, Arrow(start, who))
        for who in self.needs:
            self.draw_kernel(svg, x, who, who == frame)

    def draw_arrow(self, svg: Svg, x: float, arrow: Arrow) -> None:
        """Straight down to the next level, else past what stands between."""
        start, to = arrow
        if arrow in self.back:
            way = self.way_up(x, arrow)
        elif self.level[to] - self.level[start] > 1:
            way = self.way_past(x, arrow)
        else:
            way = [
                (self.middle(x, start), self.top(start) + HIGH),
                (self.middle(x, to), self.top(to) - 2),
            ]

        if arrow in self.circle:
            svg.arrow(way, stage="break", line=2.4)
        else:
            svg.arrow(way, stage=None, line=1.6)

    def middle(self, x: float, who: str) -> float:
        return x + self.left[who] + self.size[who] / 2

    def way_up(self, x: float, arrow: Arrow) -> list[tuple[float, float]]:
        """Up again, past the right-hand side of all."""
        start, to = arrow
        right = max(x + self.left[who] + self.size[who] for who in self.needs) + LANE
        low, high = self.top(start) + HIGH / 2, self.top(to) + HIGH / 2
        return [
            (x + self.left[start] + self.size[start], low),
            (right, low),
            (right, high),
            (x + self.left[to] + self.size[to] + 3, high),
        ]

    def way_past(self, x: float, arrow: Arrow) -> list[tuple[float, float]]:
        """Down past those between, on the left."""
        start, to = arrow
        first, last = self.level[start], self.level[to]
        between = [who for who in self.needs if first <= self.level[who] <= last]
        left = min(x + self.left[who] for who in between) - LANE
        high, low = self.top(start) + HIGH / 2, self.top(to) + HIGH / 2
        return [
            (x + self.left[start], high),
            (left, high),
            (left, low),
            (x + self.left[to] - 2, low),
        ]

    def draw_kernel(self, svg: Svg, x: float, who: str, framed: bool) -> None:
        """A library call has sharp corners."""
        is_library = "(library)" in who
        stage = "runtime" if is_library else "lowering"
        line = 1.4
        if framed:
            stage, line = "scheduling", 3.5

        left, top = x + self.left[who], self.top(who)
        radius = 0 if is_library else 6
        svg.box(left, top, self.size[who], HIGH, stage, radius=radius, line=line)
        svg.text(self.middle(x, who), top + 22, who, anchor="middle", bold=framed)
