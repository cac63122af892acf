"""Measurements as pictures: who was how fast, how far to trust it, and in which order it was measured.

In:  `Outcome`s, `Samples`, or samples with the moment at which they began.
Out: `Picture`s. Times stand in the drawings only: their text is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from course_lib.bench.compare import Outcome, count
from course_lib.bench.measure import Samples, human_time
from course_lib.bench.report import speedup
from course_lib.viz.kit.bars import who
from course_lib.viz.kit.style import SMALL, Picture, escape
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns, html_table


def results(outcomes: Sequence[Outcome], title: str = "") -> Picture:
    """The result table: for each contender the first call, median and spread, the speed against eager, and what was made."""
    header = ("", "first call", "median", "p10 – p90", "against eager", "result")
    rows, plain = [], []
    for outcome in outcomes:
        samples, ratio = outcome.samples, speedup(outcome, outcomes, "eager")
        compiled = outcome.name != "eager"
        result = outcome.problem or ("as eager" if compiled else "")
        program = str(outcome.program) if outcome.program else ""
        times = [human_time(outcome.first_call) if compiled and outcome.first_call else "–"]
        times += (
            [human_time(samples.median), f"{human_time(samples.p10)} – {human_time(samples.p90)}"]
            if samples
            else ["–", "–"]
        )
        against = f"{ratio:.2f}× as fast" if ratio is not None and compiled else "–"
        rows.append([whole(cell) for cell in (outcome.name, *times, against, result)])
        plain.append((outcome.name, result, program))
    head = f"<p><b>{escape(title)}</b></p>" if title else ""
    caption = "First call: with compiling. Median and spread: of samples taken in turn. Against eager: median of each round's ratio."
    alt = (
        f"{title or 'Results'}: "
        + "; ".join(f"{name} {result}, {program}" for name, result, program in plain)
        + "."
    )
    text = columns(plain, ("", "result", "what was compiled"))
    made = "".join(
        f"<p>{escape(name)}: {escape(program)}</p>" for name, _, program in plain if program
    )
    body = f'<div class="cl-scroll">{head}{html_table(rows, header, (1, 2, 3, 4))}{made}</div>'
    return Picture(body, caption, alt, f"{title}\n{text}" if title else text)


def whole(text: str) -> str:
    """A cell that is not broken into lines."""
    return (
        f'<span style="white-space: nowrap">{escape(text)}</span>'
        if len(text) < 30
        else escape(text)
    )


LANE, TRACK = 40.0, 520.0


def spread(
    samples: Mapping[str, Samples], title: str = "", *, stage: str = "scheduling"
) -> Picture:
    """A lane for each name: every sample as a tick, p10 to p90 as a band, the median as a thick line. All from zero; a few
    samples of a busy moment do not stretch the axis, they stand at its end."""
    most = min(
        max(max(each.seconds) for each in samples.values()),
        3 * max(each.p90 for each in samples.values()),
    )
    beyond = sum(seconds > most for each in samples.values() for seconds in each.seconds)
    label = 16 + max(text_width(name) for name in samples)
    svg = Svg(label + TRACK + 96, 30 + LANE * len(samples) + 26)
    svg.text(0, 16, title or "every sample", bold=True)
    for number, (name, each) in enumerate(samples.items()):
        top, (colour, dashed) = 30 + LANE * number, who(name, stage)
        at = lambda seconds: label + TRACK * min(seconds, most) / most
        svg.text(label - 10, top + 20, name, anchor="end")
        svg.box(
            at(each.p10),
            top + 5,
            max(2.0, at(each.p90) - at(each.p10)),
            22,
            colour,
            radius=2,
            dashed=dashed,
            line=1,
        )
        for seconds in each.seconds:
            svg.path(
                f"M{at(seconds):.1f} {top + 8} V{top + 24}",
                line=1.2,
                opacity=0.55,
                tip=human_time(seconds),
            )
        svg.path(
            f"M{at(each.median):.1f} {top} V{top + 32}",
            stage=colour,
            line=4,
            opacity=1,
            tip="median",
        )
        svg.text(label + TRACK + 12, top + 20, human_time(each.median), SMALL)
    bottom = 30 + LANE * len(samples)
    svg.path(f"M{label:.1f} {bottom + 2} H{label + TRACK}", line=1, opacity=0.6)
    svg.text(label, bottom + 18, "0", SMALL, anchor="middle", dim=True)
    svg.text(label + TRACK, bottom + 18, human_time(most), SMALL, anchor="middle", dim=True)
    rows = [(name, count(len(each.seconds), "sample")) for name, each in samples.items()]
    said = "; ".join(f"{name}, {many}" for name, many in rows)
    caption = "Each tick is a sample, the band holds eight of ten, the thick line is the median. Medians stand on the right."
    caption += f" Longer than the axis: {count(beyond, 'sample')}, at its end." if beyond else ""
    return Picture(svg.render(f"Samples: {said}."), caption, f"Samples of {said}.", columns(rows))


class Turn(NamedTuple):
    """One sample: whose it is, when it began, how long it took."""

    name: str
    start: float
    seconds: float


def turns(orders: Mapping[str, Sequence[Turn]], *, stage: str = "scheduling") -> Picture:
    """Orders of measuring, time from left to right: a box for each sample, as wide as it took; the first name is grey."""
    end = max(turn.start + turn.seconds for several in orders.values() for turn in several)
    names = list(dict.fromkeys(turn.name for several in orders.values() for turn in several))
    svg, rows = Svg(TRACK + 130, 62 * len(orders) + 6), []
    for number, (order, several) in enumerate(orders.items()):
        top = 62 * number
        svg.text(0, top + 16, order, bold=True)
        for turn in several:
            x, wide = (TRACK + 120) * turn.start / end, (TRACK + 120) * turn.seconds / end
            colour = "eager" if turn.name == names[0] else stage
            svg.box(
                x + 1,
                top + 24,
                wide - 2,
                26,
                colour,
                radius=3,
                strength=0.35,
                tip=f"{turn.name}: {turn.seconds:g}",
            )
            svg.text(x + wide / 2, top + 41, turn.name, SMALL, anchor="middle")
        took = {
            name: " ".join(f"{turn.seconds:g}" for turn in several if turn.name == name)
            for name in names
        }
        rows += [(f"{order}:" if name == names[0] else "", name, took[name]) for name in names]
    text = columns(rows)
    caption = "Time from left to right; each box is one sample, as wide as it took."
    alt = (
        "Samples in the order in which they were taken. "
        + "; ".join(" ".join(row).strip() for row in rows)
        + "."
    )
    return Picture(svg.render(alt), caption, alt, text)


class Asked(NamedTuple):
    """A kernel: when the host asked for it and for how long, when the device began with it and how long it worked. Seconds."""

    at: float
    asking: float
    begins: float
    works: float


def queue(ways: Mapping[str, tuple[Sequence[Asked], float]], *, stage: str = "codegen") -> Picture:
    """Way of measuring → what was asked for, and when its clock was read. A lane for the host, one for the device."""
    end = max(kernel.begins + kernel.works for several, _ in ways.values() for kernel in several)
    left, tall = 70.0, 20.0
    svg, rows = Svg(left + TRACK + 60, 118 * len(ways)), []
    at = lambda seconds: left + TRACK * seconds / end
    for number, (way, (several, read)) in enumerate(ways.items()):
        top = 118.0 * number
        svg.text(0, top + 16, way, bold=True)
        for lane, name in enumerate(("host", "device")):
            svg.text(left - 10, top + 46 + 28 * lane, name, SMALL, anchor="end", dim=True)
        for kernel in several:
            asking, working = at(kernel.at + kernel.asking) - at(kernel.at), at(kernel.works) - left
            svg.box(
                at(kernel.at),
                top + 32,
                asking,
                tall,
                "eager",
                radius=2,
                strength=0.35,
                tip="asks for a kernel",
            )
            svg.box(
                at(kernel.begins) + 1,
                top + 60,
                working - 2,
                tall,
                stage,
                radius=3,
                strength=0.35,
                tip="a kernel runs",
            )
        said = f"the clock is read: {human_time(read)} for {count(len(several), 'call')}"
        svg.path(
            f"M{at(read):.1f} {top + 24} V{top + 86}",
            stage="break",
            line=2.4,
            opacity=1,
            dashed=True,
        )
        late = at(read) > left + TRACK / 2
        svg.text(at(read), top + 102, said, SMALL, anchor="end" if late else "start")
        rows.append((way, said))
    caption = "The host only asks (grey); the device works later. The dashed line is the moment at which the clock is read."
    alt = "A queue. " + "; ".join(": ".join(row) for row in rows) + "."
    return Picture(svg.render(alt), caption, alt, columns(rows))
