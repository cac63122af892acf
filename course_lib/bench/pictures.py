"""Measurements as pictures: who was how fast, how far to trust it, and in which order it was
measured.

In:  `Outcome`s, `Samples`, or samples with the moment at which they began.
Out: `Picture`s. Times stand in the drawings only: their text is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.bench.compare import Outcome, count
from course_lib.bench.measure import Samples, human_time
from course_lib.bench.report import speedup
from course_lib.viz.kit.bars import who
from course_lib.viz.kit.style import SMALL, Picture, escape
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns, html_table

LANE, TRACK = 40.0, 520.0
"""px: how tall a lane of samples is, and how wide."""


# ---- a table of results --------------------------------------------------------------------------


def results(outcomes: Sequence[Outcome], title: str = "") -> Picture:
    """The result table: for each contender the first call, median and spread, the speed against
    eager, and what was made."""
    header = ("", "first call", "median", "p10 – p90", "against eager", "result")
    rows, plain = [], []
    for outcome in outcomes:
        result = verdict(outcome)
        program = ""
        if outcome.program:
            program = str(outcome.program)
        cells = (outcome.name, *times_of(outcome), against_eager(outcome, outcomes), result)
        rows.append(list(map(whole, cells)))
        plain.append((outcome.name, result, program))

    # What was compiled is too long for a column
    head = ""
    if title:
        head = f"<p><b>{escape(title)}</b></p>"
    program_notes = ""
    for name, _, program in plain:
        if program:
            program_notes += f"<p>{escape(name)}: {escape(program)}</p>"
    body = f'<div class="cl-scroll">{head}{html_table(rows, header, (1, 2, 3, 4))}{program_notes}</div>'

    # Times are no part of the words: they are never twice the same
    results_in_words = "; ".join(f"{name} {result}, {program}" for name, result, program in plain)
    alt = f"{title or 'Results'}: {results_in_words}."
    caption = "First call: with compiling. Median and spread: of samples taken in turn. Against eager: median of each round's ratio."
    text = columns(plain, ("", "result", "what was compiled"))
    return Picture(body, caption, alt, f"{title}\n{text}" if title else text)


def is_compiled(outcome: Outcome) -> bool:
    return outcome.name != "eager"


def verdict(outcome: Outcome) -> str:
    """What went wrong, or that nothing did; "" for eager, which the others are compared with."""
    if outcome.problem:
        return outcome.problem
    if is_compiled(outcome):
        return "as eager"
    return ""


def times_of(outcome: Outcome) -> tuple[str, str, str]:
    """First call, median, and spread; a dash for what there is not."""
    first, median, spread = "–", "–", "–"
    if is_compiled(outcome) and outcome.first_call:
        first = human_time(outcome.first_call)
    samples = outcome.samples
    if samples:
        median = human_time(samples.median)
        spread = f"{human_time(samples.p10)} – {human_time(samples.p90)}"
    return first, median, spread


def against_eager(outcome: Outcome, outcomes: Sequence[Outcome]) -> str:
    """'1.50× as fast'."""
    ratio = speedup(outcome, outcomes, "eager")
    if ratio is None or not is_compiled(outcome):
        return "–"
    return f"{ratio:.2f}× as fast"


def whole(text: str) -> str:
    """A cell that is not broken into lines, unless it is long."""
    if len(text) >= 30:
        return escape(text)
    return f'<span style="white-space: nowrap">{escape(text)}</span>'


# ---- every sample --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """Seconds from left to right: 0 at `left`, `most` at its end."""

    left: float
    most: float

    def at(self, seconds: float) -> float:
        """px from the left border of the drawing."""
        return self.left + TRACK * seconds / self.most

    def clipped(self, seconds: float) -> float:
        """Where a time stands on the axis, as `at`; a time beyond the axis stands at its end."""
        return self.at(min(seconds, self.most))


def spread(
    samples: Mapping[str, Samples], title: str = "", *, stage: str = "scheduling"
) -> Picture:
    """A lane for each name: every sample as a tick, p10 to p90 as a band, the median as a thick
    line. All from zero; a few samples of a busy moment do not stretch the axis, they stand at its
    end."""
    # The axis ends at three times the slowest of the ordinary samples
    every: list[float] = []
    for of_name in samples.values():
        every += of_name.seconds
    slowest = max(of_name.p90 for of_name in samples.values())
    longest_shown = min(max(every), 3 * slowest)
    beyond = sum(seconds > longest_shown for seconds in every)
    axis = Axis(16 + max(map(text_width, samples)), longest_shown)

    # A title, a lane for each name, and the axis below them
    bottom = 30 + LANE * len(samples)
    svg = Svg(axis.left + TRACK + 96, bottom + 26)
    svg.text(0, 16, title or "every sample", bold=True)
    for number, (name, samples_of_name) in enumerate(samples.items()):
        draw_samples(svg, axis, 30 + LANE * number, name, samples_of_name, stage)
    svg.path(f"M{axis.left:.1f} {bottom + 2} H{axis.left + TRACK}", line=1, opacity=0.6)
    svg.text(axis.left, bottom + 18, "0", SMALL, anchor="middle", dim=True)
    svg.text(
        axis.left + TRACK, bottom + 18, human_time(longest_shown), SMALL, anchor="middle", dim=True
    )

    rows = [
        (name, count(len(samples_of_name.seconds), "sample"))
        for name, samples_of_name in samples.items()
    ]
    samples_in_words = "; ".join(f"{name}, {many}" for name, many in rows)
    caption = "Each tick is a sample, the band holds eight of ten, the thick line is the median. Medians stand on the right."
    if beyond:
        caption += f" Longer than the axis: {count(beyond, 'sample')}, at its end."
    return Picture(
        svg.render(f"Samples: {samples_in_words}."),
        caption,
        f"Samples of {samples_in_words}.",
        columns(rows),
    )


def draw_samples(svg: Svg, axis: Axis, top: float, name: str, samples: Samples, stage: str) -> None:
    """The lane of one name."""
    colour, dashed = who(name, stage)
    svg.text(axis.left - 10, top + 20, name, anchor="end")

    # The band holds eight of ten samples.
    start, end = axis.clipped(samples.p10), axis.clipped(samples.p90)
    band = (start, top + 5, max(2.0, end - start), 22)
    svg.box(*band, colour, radius=2, dashed=dashed, line=1)

    for seconds in samples.seconds:
        tick = f"M{axis.clipped(seconds):.1f} {top + 8} V{top + 24}"
        svg.path(tick, line=1.2, opacity=0.55, tip=human_time(seconds))

    # Last, so that no tick hides it
    median = f"M{axis.clipped(samples.median):.1f} {top} V{top + 32}"
    svg.path(median, stage=colour, line=4, opacity=1, tip="median")
    svg.text(axis.left + TRACK + 12, top + 20, human_time(samples.median), SMALL)


# ---- the order of measuring ----------------------------------------------------------------------


class Turn(NamedTuple):
    """One sample: whose it is, when it began, how long it took."""

    name: str
    start: float
    seconds: float


def turns(orders: Mapping[str, Sequence[Turn]], *, stage: str = "scheduling") -> Picture:
    """Orders of measuring, time from left to right: a box for each sample, as wide as it took; the
    first name is grey."""
    every = [turn for several in orders.values() for turn in several]
    end = max(turn.start + turn.seconds for turn in every)
    names = list(dict.fromkeys(turn.name for turn in every))

    # 62 px for each order: its name, and below it the boxes
    svg = Svg(TRACK + 130, 62 * len(orders) + 6)
    rows = []
    for number, (order, several) in enumerate(orders.items()):
        top = 62 * number
        svg.text(0, top + 16, order, bold=True)

        for turn in several:
            colour = "eager" if turn.name == names[0] else stage
            draw_turn(svg, turn, top, (TRACK + 120) / end, colour)

        # In words: a line for each name, and the order only before the first
        for name in names:
            durations = [f"{turn.seconds:g}" for turn in several if turn.name == name]
            rows.append((f"{order}:" if name == names[0] else "", name, " ".join(durations)))

    turns_in_words = "; ".join(" ".join(row).strip() for row in rows)
    alt = f"Samples in the order in which they were taken. {turns_in_words}."
    caption = "Time from left to right; each box is one sample, as wide as it took."
    return Picture(svg.render(alt), caption, alt, columns(rows))


def draw_turn(svg: Svg, turn: Turn, top: float, scale: float, colour: str) -> None:
    """A box with its name. `scale`: px for a second."""
    x, wide = scale * turn.start, scale * turn.seconds
    tip = f"{turn.name}: {turn.seconds:g}"
    svg.box(x + 1, top + 24, wide - 2, 26, colour, radius=3, strength=0.35, tip=tip)
    svg.text(x + wide / 2, top + 41, turn.name, SMALL, anchor="middle")


# ---- host and device -----------------------------------------------------------------------------


class Asked(NamedTuple):
    """A kernel: when the host asked for it and for how long, when the device began with it and how
    long it worked. Seconds."""

    at: float
    asking: float
    begins: float
    works: float


def queue(ways: Mapping[str, tuple[Sequence[Asked], float]], *, stage: str = "codegen") -> Picture:
    """Way of measuring → what was asked for, and when its clock was read.

    A lane for the host, one for the device."""
    end = max(kernel.begins + kernel.works for several, _ in ways.values() for kernel in several)
    axis = Axis(70.0, end)

    # 118 px for each way: its name, two lanes, and what the clock says
    svg = Svg(axis.left + TRACK + 60, 118 * len(ways))
    rows = []
    for number, (way, (several, read)) in enumerate(ways.items()):
        top = 118.0 * number
        svg.text(0, top + 16, way, bold=True)
        for lane, name in enumerate(("host", "device")):
            svg.text(axis.left - 10, top + 46 + 28 * lane, name, SMALL, anchor="end", dim=True)
        for kernel in several:
            draw_kernel(svg, axis, kernel, top, stage)

        # Words about a late reading stand to the left of its line, for there is no room behind it.
        calls = count(len(several), "call")
        reading_in_words = f"the clock is read: {human_time(read)} for {calls}"
        x = axis.at(read)
        draw_reading(svg, x, top, reading_in_words, late=x > axis.left + TRACK / 2)
        rows.append((way, reading_in_words))

    caption = "The host only asks (grey); the device works later. The dashed line is the moment at which the clock is read."
    alt = f"A queue. {'; '.join(': '.join(row) for row in rows)}."
    return Picture(svg.render(alt), caption, alt, columns(rows))


def draw_kernel(svg: Svg, axis: Axis, kernel: Asked, top: float, stage: str) -> None:
    """In the upper lane the host asks for it, in the lower one the device works."""
    asks = axis.at(kernel.at)
    host = (asks, top + 32, axis.at(kernel.at + kernel.asking) - asks, 20.0)
    svg.box(*host, "eager", radius=2, strength=0.35, tip="asks for a kernel")

    begins = axis.at(kernel.begins) + 1
    # `at` gives a place: a duration is as wide as its place is away from 0
    device = (begins, top + 60, axis.at(kernel.works) - axis.left - 2, 20.0)
    svg.box(*device, stage, radius=3, strength=0.35, tip="a kernel runs")


def draw_reading(svg: Svg, x: float, top: float, label: str, late: bool) -> None:
    """The moment at which the clock is read; the words stand where there is room."""
    line = f"M{x:.1f} {top + 24} V{top + 86}"
    svg.path(line, stage="break", line=2.4, opacity=1, dashed=True)
    svg.text(x, top + 102, label, SMALL, anchor="end" if late else "start")
