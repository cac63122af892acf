"""Where compile time went: a flame bar, the whole on top, below it the functions, below each the
stages it passed through.

In:  a `Recording`. Out: a `Picture`; widths are seconds.
In PyTorch: `torch._dynamo.utils.compile_times()`, and `TORCH_COMPILE_CPROFILE`.
"""

from __future__ import annotations

from dataclasses import dataclass

from course_lib.viz.kit.arguments import RECORDED, takes
from course_lib.viz.kit.style import SMALL, Picture, human_seconds, plural
from course_lib.viz.kit.svg import Svg, shorten, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.pipeline.pipeline_map import ROOMS
from course_lib.viz.recording import Recording
from course_lib.viz.report.compile_tree import compiles_of, functions_of
from course_lib.viz.report.compiles import by_stage

COLOUR = {timer: room.name for room in ROOMS for timer in room.timers} | {"build": "codegen"}
"""Stage as it is timed → the stage of the visual language."""
WIDE, ROW = 760.0, 27.0
"""px: width and height of a row."""
LEAST = 0.004
"""The functions that take less than this share of the whole are drawn as one."""
BASE_LINE = 18
"""px: from the top of a row to the base line of its text."""
LEGEND_LINE, SIGN, ENTRY_GAP = 20, 18, 16
"""px: the height of a line of the legend, from the box of a stage to its text, and what stays free
behind that."""
TOLD = 8
"""So many functions are named in the alternative text."""


@dataclass
class Bar:
    """A function with the seconds of its stages."""

    name: str
    stages: dict[str, float]

    @property
    def seconds(self) -> float:
        return sum(self.stages.values())


def bars_of(recording: Recording) -> list[Bar]:
    """The functions, resume functions counted with them, those that took longest first."""
    bars = []
    for function in functions_of(compiles_of(recording)):
        bars.append(
            Bar(function.name, by_stage(compile.seconds for compile in function.all_compiles))
        )
    return sorted((bar for bar in bars if bar.seconds), key=lambda bar: -bar.seconds)


def small_together(bars: list[Bar], least: float) -> list[Bar]:
    """The bars, those under `least` seconds put into one."""
    large = [bar for bar in bars if bar.seconds >= least]
    small = [bar for bar in bars if bar.seconds < least]
    if len(small) < 2:
        return bars
    return [*large, Bar(f"{len(small)} others", by_stage(bar.stages for bar in small))]


@takes(recording=RECORDED)
def compile_time(recording: Recording) -> Picture:
    """Compile time by function and stage. Raises LookupError if nothing was compiled."""
    bars = bars_of(recording)
    total = sum(bar.seconds for bar in bars)
    if not total:
        raise LookupError(
            "nothing was compiled while recording. If it was compiled before, cl.reset() forgets it."
        )
    stages = by_stage(bar.stages for bar in bars)
    # Functions too narrow to see are one bar
    shown = small_together(bars, LEAST * total)
    # A row for the whole, one for the functions, one for their stages; then the legend
    svg = Svg(WIDE + 4, 3 * ROW + 34 + LEGEND_LINE * len(legend_lines(stages, total)))
    svg.box(1, 1, WIDE, ROW - 3, "runtime", radius=3)
    svg.text(
        9,
        BASE_LINE,
        f"compiling {plural(len(bars), 'function')}: {human_seconds(total)}",
        SMALL,
        bold=True,
    )
    x = 1.0
    for bar in shown:
        x = draw_bar(svg, bar, x, WIDE / total)
    draw_legend(svg, stages, total, 3 * ROW + 22)

    def share(seconds: float) -> str:
        return f"{100 * seconds / total:.0f} %"

    most = max(stages, key=lambda stage: stages[stage])
    alt = (
        f"Compile time {human_seconds(total)}: "
        + "; ".join(f"{bar.name} {share(bar.seconds)}" for bar in shown[:TOLD])
        + "."
    )
    caption = f"Widths are seconds: functions, and below each its stages. Most of it, {share(stages[most])}, is '{most}'."
    rows = [(bar.name, *(share(bar.stages.get(stage, 0.0)) for stage in stages)) for bar in shown]
    return Picture(svg.render(alt), caption, alt, columns(rows, ("share of the whole", *stages)))


def draw_bar(svg: Svg, bar: Bar, x: float, scale: float) -> float:
    """A function and its stages; the right end comes back."""
    wide = bar.seconds * scale
    tip = f"{bar.name}: {human_seconds(bar.seconds)}"
    svg.box(x, ROW + 1, wide, ROW - 3, "capture", radius=3, strength=0.1, line=1, tip=tip)
    label(svg, f"{bar.name} {human_seconds(bar.seconds)}", x, ROW + BASE_LINE, wide, tip)
    at = x
    for stage, duration in bar.stages.items():
        tip = f"{bar.name}, {stage}: {human_seconds(duration)}"
        svg.box(
            at,
            2 * ROW + 1,
            duration * scale,
            ROW - 3,
            COLOUR.get(stage, "runtime"),
            radius=3,
            strength=0.4,
            line=1,
            tip=tip,
        )
        label(svg, stage, at, 2 * ROW + BASE_LINE, duration * scale, tip)
        at += duration * scale
    return x + wide


def label(svg: Svg, text: str, x: float, y: float, wide: float, tip: str) -> None:
    """A text in a box, if there is room for some of it."""
    if wide > 44:
        svg.text(x + 6, y, shorten(text, wide - 14, SMALL), SMALL, tip=tip)


def legend_lines(stages: dict[str, float], total: float) -> list[list[tuple[str, str]]]:
    """The stages with their seconds, in lines that fit."""
    lines: list[list[tuple[str, str]]] = [[]]
    room = WIDE
    for stage, duration in stages.items():
        entry = f"{stage} {human_seconds(duration)} ({100 * duration / total:.0f} %)"
        need = SIGN + text_width(entry, SMALL) + ENTRY_GAP
        if need > room and lines[-1]:
            lines.append([])
            room = WIDE
        lines[-1].append((stage, entry))
        room -= need
    return lines


def draw_legend(svg: Svg, stages: dict[str, float], total: float, y: float) -> None:
    """A box in each stage's colour, and its seconds. `y`: the base line of the first line."""
    for line in legend_lines(stages, total):
        x = 1.0
        for stage, entry in line:
            svg.box(x, y - 10, 12, 12, COLOUR.get(stage, "runtime"), radius=2, strength=0.4, line=1)
            svg.text(x + SIGN, y, entry, SMALL)
            x += SIGN + text_width(entry, SMALL) + ENTRY_GAP
        y += LEGEND_LINE
