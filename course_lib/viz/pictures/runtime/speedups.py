"""How many times as fast, and where the best tile size lies.

In:  numbers that were measured. Out: `Picture`s. Eager is grey, ours in a stage's colour, the real
     torch.compile dashed slate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.viz.kit.arguments import (
    ANYTHING,
    MAPPING,
    STAGE,
    a_number,
    attributes,
    named,
    shown,
    takes,
)
from course_lib.viz.kit.bars import LABEL, LETTERS, bars, who
from course_lib.viz.kit.style import SMALL, Picture, human_seconds, plural
from course_lib.viz.kit.svg import Svg, fold, n, text_width
from course_lib.viz.kit.tables import columns, show

# ---- how many times as fast as eager -------------------------------------------------------------

LONGEST, WIDEST = 460.0, 540.0
"""px: the longest bar, and the whole drawing where it can be."""
THICK, STEP = 16.0, 21.0
"""px: a bar's height, and from one bar to the next."""
ABOVE, BEHIND = 24.0, 70.0
"""px: room for a workload's name above its bars, and for the numbers behind them."""


@takes(values=named(ANYTHING, "workload → name → how many times as fast"), stage=STAGE)
def speedup_bars(
    values: Mapping[str, Mapping[str, float]], caption: str = "", *, stage: str = "scheduling"
) -> Picture:
    """Workload → name → how many times as fast as eager. The line is eager.

    Raises ValueError where there is nothing to draw, TypeError for what is no number."""
    look_at_speedups(values)
    drawing = SpeedupDrawing(values, stage)
    for workload in values:
        drawing.draw_workload(workload)
    drawing.draw_line_of_eager()

    speedups_in_words = "; ".join(
        f"{workload}, {name} {times}" for workload, name, times in drawing.rows
    )
    alt = f"How many times as fast as eager: {speedups_in_words}."
    caption = caption or "How many times as fast as eager (the dashed line); longer is faster."
    return Picture(drawing.svg.render(alt), caption, alt, columns(drawing.rows))


def look_at_speedups(values: Mapping[str, Mapping[str, float]]) -> None:
    """Raise what `speedup_bars` promises, before anything is drawn."""
    if not values or not (isinstance(values, Mapping) and any(values.values())):
        raise ValueError("speed-up bars need at least one value")

    for workload, row in values.items():
        expected = f"speed-up bars of {workload!r}: name → how many times as fast"
        for name, value in attributes(row, ("items",), expected).items():
            a_number(value, f"the value of {name!r} in {workload!r}")


class SpeedupDrawing:
    """The bars while they are drawn, one workload below the other."""

    def __init__(self, values: Mapping[str, Mapping[str, float]], stage: str) -> None:
        self.values = values
        self.stage = stage
        self.rows: list[tuple[str, str, str]] = []
        self.names = {name: fold(name, LABEL, SMALL) for row in values.values() for name in row}
        self.titles = {workload: fold(workload, LABEL, bold=True) for workload in values}

        # Long names take room from the bars.
        names = [text_width(line, SMALL) for lines in self.names.values() for line in lines]
        titles = [text_width(line, bold=True) for lines in self.titles.values() for line in lines]
        self.label = max(20 + max(names), 12 + max(titles))
        self.longest = min(LONGEST, WIDEST - BEHIND - self.label)
        # The largest number, which has the longest bar; at least eager's, whose line is drawn
        self.most = max(1.0, *(value for row in values.values() for value in row.values()))

        width = self.label + self.longest + BEHIND
        self.svg = Svg(width, sum(map(self.height_of, values)) + 22)
        self.y = 0.0

    @property
    def eager(self) -> float:
        """px: where a bar of eager would end."""
        return self.label + self.longest / self.most

    def height_of(self, workload: str) -> float:
        """px: a workload with its name, its bars, and what long names take beside."""
        row = self.values[workload]
        more_lines = sum(len(self.names[name]) - 1 for name in row)
        more_lines += len(self.titles[workload]) - 1
        # the first line of the name, with 2 px between this workload and the next
        return 26 + STEP * len(row) + LETTERS * more_lines

    def draw_workload(self, workload: str) -> None:
        """A workload's name, and below it its bars."""
        for line in self.titles[workload]:
            self.svg.text(0, self.y + 17, line, bold=True)
            self.y += LETTERS
        # `ABOVE` holds one line of the name; the loop has gone down by all of them.
        self.y += ABOVE - LETTERS

        for name, value in self.values[workload].items():
            self.draw_bar(name, value)
            self.rows.append((workload, name, f"{show(value)}×"))
        self.y += 2

    def draw_bar(self, name: str, value: float) -> None:
        colour, dashed = who(name, self.stage)
        lines = self.names[name]
        for i, line in enumerate(lines):
            self.svg.text(self.label - 10, self.y + 12 + LETTERS * i, line, SMALL, anchor="end")

        length = self.longest * value / self.most
        self.svg.box(
            self.label,
            self.y,
            max(2.0, length),
            THICK,
            colour,
            radius=2,
            strength=0.45,
            dashed=dashed,
        )

        # The number (about 42 px) is not written across the line of eager.
        end = self.label + length
        if self.eager - 42 < end < self.eager:
            end = self.eager
        self.svg.text(end + 8, self.y + 13, f"{show(value)}×", SMALL)
        self.y += STEP + LETTERS * (len(lines) - 1)

    def draw_line_of_eager(self) -> None:
        x = self.eager
        self.svg.path(f"M{n(x)} 20 V{n(self.y)}", stage="eager", line=1.6, opacity=1, dashed=True)
        self.svg.text(x, self.y + 15, "eager", SMALL, anchor="middle", stage="eager")


# ---- measured configurations as a landscape ------------------------------------------------------

CELL_WIDE, CELL_TALL = 92.0, 34.0
"""px: a cell."""
SIDE, TOP = 148.0, 52
"""px: the names of rows beside the cells, and title and names of columns above them."""
COLUMN_NAMES, BASE_LINE = 44, 21
"""px: the base line of the names of columns, and from the top of a cell to its text's."""


@takes(seconds=MAPPING)
def landscape(
    seconds: Mapping[tuple[Any, Any], float],
    names: tuple[str, str] = ("ROWS", "COLUMNS"),
    title: str = "",
    caption: str = "",
) -> Picture:
    """Measured configurations: (first, second) → seconds.

    The stronger the tint, the faster; the best is framed.

    What was not measured needs a `caption` that says so. Raises ValueError without a
    configuration."""
    look_at_landscape(seconds)
    down = sorted({first for first, _ in seconds})
    right = sorted({second for _, second in seconds})
    best, worst = min(seconds.values()), max(seconds.values())

    title = title or f"seconds by {names[0]} and {names[1]}"
    width = max(SIDE + CELL_WIDE * len(right), text_width(title, bold=True)) + 8
    svg = Svg(width, TOP + CELL_TALL * len(down) + 6)
    svg.text(0, 16, title, bold=True)
    svg.text(0, COLUMN_NAMES, f"{names[0]} ↓  {names[1]} →", SMALL, dim=True)
    for j, column in enumerate(right):
        middle = SIDE + CELL_WIDE * (j + 0.5)
        svg.text(middle, COLUMN_NAMES, str(column), SMALL, anchor="middle", dim=True)

    for i, row in enumerate(down):
        y = TOP + CELL_TALL * i
        svg.text(SIDE - 8, y + BASE_LINE, str(row), SMALL, anchor="end", dim=True)
        for j, column in enumerate(right):
            duration = seconds.get((row, column))
            if duration is not None:
                draw_cell(svg, SIDE + CELL_WIDE * j, y, duration, best, worst)

    # The words say no more than the numbers do: a model of times is not "measured"
    first, second = next(key for key, duration in seconds.items() if duration == best)
    measured = "" if caption else " measured"
    alt = f"{plural(len(seconds), 'configuration')}{measured}; the fastest, {human_seconds(best)}, "
    alt += f"has {names[0]}={first}, {names[1]}={second}; the slowest takes {worst / best:.1f} times as long."
    if not caption:
        caption = "Each cell is a configuration that was run; the stronger the tint, the faster. The best is framed."

    rows = []
    for (first, second), duration in sorted(seconds.items()):
        rows.append((f"{names[0]}={first}", f"{names[1]}={second}", human_seconds(duration)))
    return Picture(f'<div class="cl-scroll">{svg.render(alt)}</div>', caption, alt, columns(rows))


def look_at_landscape(seconds: Mapping[tuple[Any, Any], float]) -> None:
    """Raise what `landscape` promises, before anything is drawn."""
    if not seconds:
        raise ValueError("a landscape needs at least one measured configuration")

    expected = "a landscape is (first, second) → seconds"
    for key, duration in attributes(seconds, ("items",), expected).items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(f"{expected}, not {shown(key)} → {shown(duration)}")
        a_number(duration, f"the time of {key}")


def draw_cell(svg: Svg, x: float, y: float, seconds: float, best: float, worst: float) -> None:
    """One configuration: its tint says where it stands between the worst and the best."""
    good = 1.0 if worst == best else (worst - seconds) / (worst - best)  # 0 the worst, 1 the best
    is_best = seconds == best
    strength = 0.05 + 0.4 * good
    line = 3.5 if is_best else 1
    left, wide = x + 2, CELL_WIDE - 4

    svg.box(left, y + 2, wide, CELL_TALL - 4, "codegen", radius=3, strength=strength, line=line)
    said = human_seconds(seconds)
    svg.text(left + wide / 2, y + BASE_LINE, said, SMALL, anchor="middle", bold=is_best)


# ---- what autotuning tried -----------------------------------------------------------------------


def tuned(kernel: Any, choice: str, seconds: Mapping[str, float]) -> Picture:
    """What autotuning tried: for a generated kernel (its name) a landscape of tiles and threads,
    for a product (its `ExternKernel`) bars.

    What the machine refused to run has infinite seconds and is left out."""
    ran = {what: duration for what, duration in seconds.items() if math.isfinite(duration)}
    # A library call has no tile: it was one choice of a few
    if not isinstance(kernel, str):
        shapes = " and ".join(str(list(view.shape)) for view in kernel.args)
        caption = f"Measured while compiling; taken: {choice}."
        return bars(ran, "s", f"{kernel.label}: {shapes}", caption, stage="codegen")

    tried = [Configuration.read(what) for what in ran]
    tile = varying(tried)
    cells = {
        (try_of_tile.sizes[tile], try_of_tile.warps): ran[try_of_tile.what] for try_of_tile in tried
    }

    # The sizes that are the same in the whole picture stand in its caption
    chosen = Configuration.read(choice)
    rest = ""
    for name, size in chosen.sizes.items():
        if name != tile:
            rest += f", {name}={size}"
    caption = f"Seconds for each tile and number of warps{rest}, measured while compiling. Framed: the fastest, which was taken."
    return landscape(cells, (tile, "warps"), kernel, caption)


@dataclass(frozen=True)
class Configuration:
    """Tile sizes and warps of a kernel: 'ROWS=4, COLUMNS=512, 8 warps'."""

    what: str
    sizes: dict[str, int]
    warps: int

    @classmethod
    def read(cls, what: str) -> Configuration:
        """From the text in which an `Autotuned` event names it."""
        sizes = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", what)}
        warps = int(what.split()[-2])  # the word before "warps"
        return cls(what, sizes, warps)


def varying(tried: list[Configuration]) -> str:
    """The first tile size of which several were tried; the first of all, if there is none."""
    names = list(tried[0].sizes)
    for name in names:
        if len({one.sizes[name] for one in tried}) > 1:
            return name
    return names[0]
