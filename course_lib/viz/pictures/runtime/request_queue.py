"""A server and its requests: who waits for whom, and how long the slowest wait.

In:  `Handled` requests (their times in ticks of a simulation), or samples of any latency. Out:
     `Picture`s.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.viz.kit.arguments import SIZE, each, named, takes, with_attributes
from course_lib.viz.kit.bars import who
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, n, text_width
from course_lib.viz.kit.tables import columns


@dataclass(frozen=True)
class Handled:
    """One request, in ticks: when it arrived, when its turn came (`began`), how long its program
    was compiled and then ran.

    length: its tokens. size: how many it was padded to. where: the shape that it ran in; () if that
    is not told."""

    arrived: float
    length: int
    size: int
    began: float
    compiling: float
    running: float
    where: tuple[int, ...] = ()

    @property
    def done(self) -> float:
        return self.began + self.compiling + self.running

    @property
    def latency(self) -> float:
        """What the user waits."""
        return self.done - self.arrived


def percentile(samples: Sequence[float], p: float) -> float:
    """The smallest sample that at least `p` % of all samples do not exceed (the nearest rank)."""
    if not samples:
        raise ValueError("a percentile needs at least one sample")
    return sorted(samples)[max(0, math.ceil(p / 100 * len(samples)) - 1)]


def ticks(value: float) -> str:
    """Short, and without an exponent: `7.2`, `1,465`."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


# ---- the queue -----------------------------------------------------------------------------------

TRACK, ROW, HEAD = 560.0, 25.0, 30.0
"""px: the length of the time axis, the height of a request, and room for the title."""
THICK, BASE_LINE = 17, 15
"""px: how thick the boxes of a request are, and from its top to the base line of its text."""
QUEUE_CAPTION = "Upright line: arrival; dashed line: waiting. Yellow: its shape is compiled. Green: it runs; dashed box: padding."
QUEUE_HEADER = ("request", "arrives", "begins", "compiles", "runs", "padding", "latency")


@takes(handled=each(with_attributes("", "arrived", "done"), "requests, each a Handled"))
def queue(handled: Sequence[Handled], title: str = "", until: float = 0.0) -> Picture:
    """A row for each request: waiting, compiling, running, and how much of running is padding.

    until: the end of the time axis, ticks, so that two pictures share one scale. Raises ValueError
    without a request."""
    if not handled:
        raise ValueError("a queue needs at least one request")

    drawing = QueueDrawing(handled, until)
    drawing.svg.text(0, 16, title or plural(len(handled), "request"), bold=True)
    drawing.svg.text(drawing.left + TRACK + 12, 16, "latency", SMALL, dim=True)
    for i, request in enumerate(handled):
        drawing.draw_request(HEAD + ROW * i, request)
    drawing.draw_axis(HEAD + ROW * len(handled) + 4)

    rows = []
    for request in handled:
        padding = request.size - request.length
        times = (
            request.arrived,
            request.began,
            request.compiling,
            request.running,
            padding,
            request.latency,
        )
        rows.append((plural(request.length, "token"), *map(ticks, times)))
    text = columns(rows, QUEUE_HEADER)

    compiles = plural(sum(request.compiling > 0 for request in handled), "compile")
    longest = ticks(max(request.latency for request in handled))
    alt = f"{plural(len(handled), 'request')} in a queue, {compiles}; the longest latency is {longest}."
    text = f"{title}\n{text}" if title else text
    return Picture(drawing.svg.render(alt), QUEUE_CAPTION, alt, text)


class QueueDrawing:
    """The queue while it is drawn, time from left to right."""

    def __init__(self, handled: Sequence[Handled], until: float) -> None:
        names = [text_width(plural(request.length, "token")) for request in handled]
        self.end = max(until, *(request.done for request in handled)) or 1.0
        self.left = max(names) + 12
        self.svg = Svg(self.left + TRACK + 86, HEAD + ROW * len(handled) + 44)

    def at(self, tick: float) -> float:
        """px from the left."""
        return self.left + TRACK * tick / self.end

    def draw_request(self, y: float, one: Handled) -> None:
        """The row of one request: arrival, waiting, compiling, running, padding, and the latency as
        a number."""
        svg = self.svg
        arrived, began = self.at(one.arrived), self.at(one.began)
        svg.text(self.left - 10, y + BASE_LINE, plural(one.length, "token"), SMALL, anchor="end")
        svg.path(f"M{n(arrived)} {n(y + 3)} v15", line=2, opacity=1)
        svg.path(f"M{n(arrived)} {n(y + 11)} H{n(began)}", line=1.2, dashed=True)

        start = one.began + one.compiling
        if one.compiling:
            wide = self.at(start) - began
            tip = f"compiles for {one.where or one.size}"
            svg.box(began, y + 2, wide, THICK, "codegen", radius=2, strength=0.45, tip=tip)
            if wide > 56:  # so wide that the word fits
                svg.text(began + 6, y + BASE_LINE, "compile", SMALL)

        # The share of the running time that is for the request's own tokens; the rest is for
        # padding
        real_end = self.at(start + one.running * one.length / one.size)
        wide = real_end - self.at(start)
        svg.box(self.at(start), y + 2, wide, THICK, "scheduling", radius=2, strength=0.4)
        if one.size > one.length:
            wide = self.at(one.done) - real_end
            svg.box(real_end, y + 2, wide, THICK, "break", radius=2, strength=0.18, dashed=True)
        svg.text(self.left + TRACK + 12, y + BASE_LINE, ticks(one.latency), SMALL)

    def draw_axis(self, y: float) -> None:
        """The time axis below all requests, with a number every few ticks."""
        self.svg.path(f"M{n(self.left)} {n(y)} H{n(self.left + TRACK)}", line=1.2, opacity=0.7)
        for tick in range(0, int(self.end) + 1, step_for(self.end)):
            x = self.at(tick)
            self.svg.path(f"M{n(x)} {n(y)} v4", line=1.2, opacity=0.7)
            self.svg.text(x, y + 17, str(tick), SMALL, anchor="middle")
        self.svg.text(self.left - 10, y + 17, "tick", SMALL, anchor="end", dim=True)


def step_for(end: float) -> int:
    """The least of 1, 2, 5, 10, 20, … that gives at most eight numbers on the axis."""
    for power in itertools.count():
        for step in (10**power, 2 * 10**power, 5 * 10**power):
            if end / step <= 8:
                return step
    raise AssertionError("steps grow without end")


# ---- latencies -----------------------------------------------------------------------------------

LANE, SCALE, LANES_TOP = 40.0, 410.0, 24
"""px: the height of a lane, the length of the scale, and where the first lane begins."""
LANE_LINE = 22
"""px: from the top of a lane to the base line of its text."""
NUMBERS, NUMBER = 60, 62
"""px: where the numbers begin behind the scale, and from one to the next."""
MARKS = (50, 95, 99)
"""The percentiles that are marked."""
LATENCIES_CAPTION = (
    "Each thin line is a request; the thick ones are p50, p95 and p99. The scale is logarithmic."
)


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale: from `low` at `left` px to `high`."""

    left: float
    low: float
    high: float

    def at(self, value: float) -> float:
        """px from the left."""
        return self.left + SCALE * math.log(value / self.low) / math.log(self.high / self.low)

    def number(self, k: int) -> float:
        """px: the right end of the `k`-th number behind the scale."""
        return self.left + SCALE + NUMBERS + NUMBER * k


@takes(samples=named(each(SIZE, ""), "name → its samples"))
def latencies(
    samples: Mapping[str, Sequence[float]], unit: str = "ticks", caption: str = ""
) -> Picture:
    """A lane for each name: every sample a thin line, on a logarithmic scale; p50, p95 and p99 as
    marks and as numbers.

    Raises ValueError for a name without samples, and for a sample that is not above 0."""
    if not samples or not all(samples.values()):
        raise ValueError("latencies need at least one sample for each name")
    every = [value for values in samples.values() for value in values]
    low = min(every)
    if low <= 0:
        raise ValueError(f"a latency on a logarithmic scale must be positive, got {low}")

    left = max(text_width(name) for name in samples) + 18
    # One value alone has no scale: its end is a little farther
    scale = LogScale(left, low, max(max(every), low * 1.01))
    svg = Svg(left + SCALE + 192, LANES_TOP + LANE * len(samples) + 26)
    for k, p in enumerate(MARKS):
        svg.text(scale.number(k), 16, f"p{p}", SMALL, anchor="end", bold=True)

    rows = []
    for i, (name, values) in enumerate(samples.items()):
        draw_lane(svg, scale, LANES_TOP + LANE * i, name, values, unit)
        rows.append((name, len(values), *(ticks(percentile(values, p)) for p in MARKS)))

    y = LANES_TOP + LANE * len(samples) + 14
    svg.text(left, y, ticks(low), SMALL)
    svg.text(left + SCALE, y, f"{ticks(scale.high)} {unit}", SMALL, anchor="end")

    latencies_in_words = "; ".join(
        f"{name}: p50 {a}, p95 {b}, p99 {c}" for name, _, a, b, c in rows
    )
    text = columns(rows, ("", "requests", "p50", "p95", "p99"))
    return Picture(
        svg.render(f"{latencies_in_words}."),
        caption or LATENCIES_CAPTION,
        f"{latencies_in_words}.",
        text,
    )


def draw_lane(
    svg: Svg, scale: LogScale, y: float, name: str, values: Sequence[float], unit: str
) -> None:
    """All samples of one name, and its percentiles over them."""
    colour, dashed = who(name, "scheduling")
    high = LANE - 10
    svg.text(scale.left - 10, y + LANE_LINE, name, anchor="end")
    svg.box(
        scale.left - 3,
        y + 4,
        SCALE + 6,
        high,
        colour,
        radius=3,
        strength=0.05,
        line=0.8,
        dashed=dashed,
    )
    for value in sorted(values):
        svg.path(f"M{n(scale.at(value))} {n(y + 9)} v20", stage=colour, line=1, opacity=0.35)

    for k, p in enumerate(MARKS):
        value = percentile(values, p)
        mark = f"M{n(scale.at(value))} {n(y + 4)} v{n(high)}"
        svg.path(mark, line=2.4, opacity=1, tip=f"p{p}: {ticks(value)} {unit}")
        svg.text(scale.number(k), y + LANE_LINE, ticks(value), SMALL, anchor="end")
