"""Who must run before whom, and what becomes of it when two of them run as one.

In:  `needs`: for each kernel the names of those whose results it reads; and two that are to become one.
Out: a `Picture`: left, an arrow from each kernel to those that wait for it. Right, the same with the two in one thick frame.
     Arrows that lead in a circle are in the colour of errors: then nobody could begin, and the two must stay apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from course_lib.viz.kit.asked import NAMES, named, takes
from course_lib.viz.kit.style import LARGE, Picture
from course_lib.viz.kit.svg import Svg, text_width

HIGH, BETWEEN, ASIDE = 34, 44, 26
Needs = dict[str, tuple[str, ...]]


@takes(needs=named(NAMES, "kernel → the names of those it waits for"), together=NAMES)
def order(needs: Mapping[str, Iterable[str]], together: tuple[str, ...] = ()) -> Picture:
    """The kernels of `needs` in levels, data flowing down; beside them the same once those of `together` are one."""
    before: Needs = {name: tuple(who) for name, who in needs.items()}
    unknown = [
        name
        for name in (*together, *(n for who in before.values() for n in who))
        if name not in before
    ]
    if unknown:
        raise LookupError(f"order knows no kernel '{unknown[0]}'; there are {', '.join(before)}")
    panels = [("One by one", before)] + ([("As one", merged(before, together))] if together else [])
    drawings = [Levels(title, graph) for title, graph in panels]
    svg = Svg(
        sum(d.width for d in drawings) + 60 * (len(drawings) - 1), max(d.height for d in drawings)
    )
    x = 0.0
    for drawing in drawings:
        drawing.draw(svg, x, " · ".join(together))
        x += drawing.width + 60
    lines = [line for title, graph in panels for line in in_words(title, graph)]
    circle = any(circles(graph) for _, graph in panels)
    alt = f"Who runs after whom. {'. '.join(lines)}."
    caption = "An arrow leads from a kernel to who waits for its result."
    caption += (
        " As one, they would have to run both before and after another kernel." if circle else ""
    )
    return Picture(svg.render(alt), caption, alt, "\n".join(lines))


def merged(needs: Needs, together: tuple[str, ...]) -> Needs:
    """The same with `together` as one kernel."""
    one = " · ".join(together)
    name = lambda who: one if who in together else who
    result: Needs = {}
    for who, before in needs.items():
        others = (*result.get(name(who), ()), *(name(b) for b in before))
        result[name(who)] = tuple(b for b in dict.fromkeys(others) if b != name(who))
    return result


def circles(needs: Needs) -> set[tuple[str, str]]:
    """The arrows (from, to) that are part of a circle."""

    def all_before(who: str) -> set[str]:
        found: set[str] = set()
        waiting = [*needs[who]]
        while waiting:
            if (name := waiting.pop()) not in found:
                found.add(name)
                waiting += needs[name]
        return found

    earlier = {who: all_before(who) for who in needs}
    return {(b, who) for who in needs for b in needs[who] if who in earlier[b]}


def in_words(title: str, needs: Needs) -> list[str]:
    said = [f"{who} after {' and '.join(before)}" for who, before in needs.items() if before]
    circle = sorted(circles(needs))
    return [f"{title}: {'; '.join(said) or 'in any order'}"] + (
        [f"A circle: {' → '.join(circle[0])} → …"] if circle else []
    )


class Levels:
    """One panel: each kernel one level below the last of those that it needs."""

    def __init__(self, title: str, needs: Needs) -> None:
        self.title, self.needs, self.circle = title, needs, circles(needs)
        self.back = {
            (b, who) for b, who in self.circle if list(needs).index(b) > list(needs).index(who)
        }
        level: dict[str, int] = {}
        for who in needs:
            level[who] = max(
                [0, *(1 + level[b] for b in needs[who] if (b, who) not in self.back and b in level)]
            )
        self.level = level
        self.size = {who: text_width(who) + 30 for who in needs}
        rows = [
            [who for who in needs if level[who] == n]
            for n in range(1 + max(level.values(), default=0))
        ]
        wide = [sum(self.size[who] for who in row) + 24 * (len(row) - 1) for row in rows]
        self.width = max([*wide, text_width(title, bold=True)]) + 2 * ASIDE
        self.height = 34 + len(rows) * (HIGH + BETWEEN) - BETWEEN + 6
        self.left: dict[str, float] = {}
        for row, width in zip(rows, wide, strict=True):
            x = (self.width - width) / 2
            for who in row:
                self.left[who] = x
                x += self.size[who] + 24

    def draw(self, svg: Svg, x: float, frame: str) -> None:
        svg.text(x + self.width / 2, 16, self.title, LARGE, anchor="middle", bold=True)
        top = {who: 34 + n * (HIGH + BETWEEN) for who, n in self.level.items()}
        middle = {who: x + self.left[who] + self.size[who] / 2 for who in self.needs}
        for who, before in self.needs.items():
            for b in before:
                stage = "break" if (b, who) in self.circle else None
                if (b, who) in self.back:  # up again, past the right-hand side of both
                    right = max(x + self.left[w] + self.size[w] for w in self.needs) + 16
                    ways = [
                        (x + self.left[b] + self.size[b], top[b] + HIGH / 2),
                        (right, top[b] + HIGH / 2),
                    ]
                    ways += [
                        (right, top[who] + HIGH / 2),
                        (x + self.left[who] + self.size[who] + 3, top[who] + HIGH / 2),
                    ]
                elif self.level[who] - self.level[b] > 1:  # past those between, on the left
                    left = (
                        min(
                            x + self.left[w]
                            for w in self.needs
                            if self.level[b] <= self.level[w] <= self.level[who]
                        )
                        - 16
                    )
                    ways = [(x + self.left[b], top[b] + HIGH / 2), (left, top[b] + HIGH / 2)]
                    ways += [
                        (left, top[who] + HIGH / 2),
                        (x + self.left[who] - 2, top[who] + HIGH / 2),
                    ]
                else:
                    ways = [(middle[b], top[b] + HIGH), (middle[who], top[who] - 2)]
                svg.arrow(ways, stage=stage, line=2.4 if stage else 1.6)
        for who in self.needs:
            one = who == frame
            library = "(library)" in who
            stage = "scheduling" if one else "runtime" if library else "lowering"
            svg.box(
                x + self.left[who],
                top[who],
                self.size[who],
                HIGH,
                stage,
                radius=0 if library else 6,
                line=3.5 if one else 1.4,
            )
            svg.text(middle[who], top[who] + 22, who, anchor="middle", bold=one)
