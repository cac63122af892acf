"""A server and its requests: who waits for whom, and how long the slowest wait.

In:  `Handled` requests (their times in ticks of a simulation), or samples of any latency. Out: `Picture`s.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.viz.kit.asked import SIZE, each, having, named, takes
from course_lib.viz.kit.bars import who
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, n, text_width
from course_lib.viz.kit.tables import columns

TRACK, ROW, HEAD = 560.0, 25.0, 30.0


@dataclass(frozen=True)
class Handled:
    """One request: when it arrived, when its turn came, how long its program was compiled and then ran. `size`: how many tokens
    it was padded to; `where`: the shape that it ran in."""

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
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@takes(handled=each(having("", "arrived", "done"), "requests, each a Handled"))
def queue(handled: Sequence[Handled], title: str = "", until: float = 0.0) -> Picture:
    """A row for each request: waiting, compiling, running, and how much of running is padding. `until` makes two pictures share
    one scale."""
    if not handled:
        raise ValueError("a queue needs at least one request")
    end = max(until, *(one.done for one in handled)) or 1.0
    names = [plural(one.length, "token") for one in handled]
    left = max(map(text_width, names)) + 12
    at = lambda tick: left + TRACK * tick / end
    svg = Svg(left + TRACK + 86, HEAD + ROW * len(handled) + 44)
    svg.text(0, 16, title or plural(len(handled), "request"), bold=True)
    svg.text(left + TRACK + 12, 16, "latency", SMALL, dim=True)
    for i, (one, name) in enumerate(zip(handled, names, strict=True)):
        y = HEAD + ROW * i
        svg.text(left - 10, y + 15, name, SMALL, anchor="end")
        svg.path(f"M{n(at(one.arrived))} {n(y + 3)} v15", line=2, opacity=1)
        svg.path(f"M{n(at(one.arrived))} {n(y + 11)} H{n(at(one.began))}", line=1.2, dashed=True)
        if one.compiling:
            wide = at(one.began + one.compiling) - at(one.began)
            svg.box(
                at(one.began),
                y + 2,
                wide,
                17,
                "codegen",
                radius=2,
                strength=0.45,
                tip=f"compiles for {one.where or one.size}",
            )
            if wide > 56:
                svg.text(at(one.began) + 6, y + 15, "compile", SMALL)
        start, real = one.began + one.compiling, one.running * one.length / one.size
        svg.box(
            at(start), y + 2, at(start + real) - at(start), 17, "scheduling", radius=2, strength=0.4
        )
        if one.size > one.length:
            svg.box(
                at(start + real),
                y + 2,
                at(one.done) - at(start + real),
                17,
                "break",
                radius=2,
                strength=0.18,
                dashed=True,
            )
        svg.text(left + TRACK + 12, y + 15, ticks(one.latency), SMALL)
    y = HEAD + ROW * len(handled) + 4
    svg.path(f"M{n(left)} {n(y)} H{n(left + TRACK)}", line=1.2, opacity=0.7)
    step = next(
        step
        for power in range(9)
        for step in (10**power, 2 * 10**power, 5 * 10**power)
        if end / step <= 8
    )
    for tick in range(0, int(end) + 1, step):
        svg.path(f"M{n(at(tick))} {n(y)} v4", line=1.2, opacity=0.7)
        svg.text(at(tick), y + 17, str(tick), SMALL, anchor="middle")
    svg.text(left - 10, y + 17, "tick", SMALL, anchor="end", dim=True)
    caption = "Upright line: arrival; dashed line: waiting. Yellow: its shape is compiled. Green: it runs; dashed box: padding."
    rows = [
        (
            name,
            *map(
                ticks,
                (
                    one.arrived,
                    one.began,
                    one.compiling,
                    one.running,
                    one.size - one.length,
                    one.latency,
                ),
            ),
        )
        for name, one in zip(names, handled, strict=True)
    ]
    text = columns(rows, ("request", "arrives", "begins", "compiles", "runs", "padding", "latency"))
    worst = max(handled, key=lambda one: one.latency)
    compiles = sum(one.compiling > 0 for one in handled)
    said = f"{plural(len(handled), 'request')} in a queue, {plural(compiles, 'compile')}"
    alt = f"{said}; the longest latency is {ticks(worst.latency)}."
    return Picture(svg.render(alt), caption, alt, f"{title}\n{text}" if title else text)


LANE, SCALE, MARKS = 40.0, 410.0, (50, 95, 99)


@takes(samples=named(each(SIZE, ""), "name → its samples"))
def latencies(
    samples: Mapping[str, Sequence[float]], unit: str = "ticks", caption: str = ""
) -> Picture:
    """A lane for each name: every sample a thin line, on a logarithmic scale; p50, p95 and p99 as marks and as numbers."""
    if not samples or not all(samples.values()):
        raise ValueError("latencies need at least one sample for each name")
    every = [value for values in samples.values() for value in values]
    if min(every) <= 0:
        raise ValueError(f"a latency on a logarithmic scale must be positive, got {min(every)}")
    low, high = min(every), max(max(every), min(every) * 1.01)
    left = max(text_width(name) for name in samples) + 18
    at = lambda value: left + SCALE * math.log(value / low) / math.log(high / low)
    svg, rows = Svg(left + SCALE + 192, 24 + LANE * len(samples) + 26), []
    for k, p in enumerate(MARKS):
        svg.text(left + SCALE + 60 + 62 * k, 16, f"p{p}", SMALL, anchor="end", bold=True)
    for i, (name, values) in enumerate(samples.items()):
        colour, dashed = who(name, "scheduling")
        y = 24 + LANE * i
        svg.text(left - 10, y + 22, name, anchor="end")
        svg.box(
            left - 3,
            y + 4,
            SCALE + 6,
            LANE - 10,
            colour,
            radius=3,
            strength=0.05,
            line=0.8,
            dashed=dashed,
        )
        for value in sorted(values):
            svg.path(f"M{n(at(value))} {n(y + 9)} v20", stage=colour, line=1, opacity=0.35)
        marks = [percentile(values, p) for p in MARKS]
        for k, (p, value) in enumerate(zip(MARKS, marks, strict=True)):
            svg.path(
                f"M{n(at(value))} {n(y + 4)} v{n(LANE - 10)}",
                line=2.4,
                opacity=1,
                tip=f"p{p}: {ticks(value)} {unit}",
            )
            svg.text(left + SCALE + 60 + 62 * k, y + 22, ticks(value), SMALL, anchor="end")
        rows.append((name, len(values), *map(ticks, marks)))
    y = 24 + LANE * len(samples) + 14
    svg.text(left, y, ticks(low), SMALL)
    svg.text(left + SCALE, y, f"{ticks(high)} {unit}", SMALL, anchor="end")
    alt = "; ".join(f"{name}: p50 {a}, p95 {b}, p99 {c}" for name, _, a, b, c in rows) + "."
    caption = (
        caption
        or "Each thin line is a request; the thick ones are p50, p95 and p99. The scale is logarithmic."
    )
    return Picture(
        svg.render(alt), caption, alt, columns(rows, ("", "requests", "p50", "p95", "p99"))
    )
