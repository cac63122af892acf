"""Tables, bars and the roofline: numbers as pictures.

In:  plain numbers. Out: `Picture`s. Who is who is always told the same way: eager is grey, ours has the stage's colour, the real
torch.compile is dark slate with a dashed edge.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.viz.kit.asked import (
    ANYTHING,
    STAGE,
    TEXT,
    Kind,
    a_number,
    attributes,
    each,
    named,
    positive,
    shown,
    takes,
)
from course_lib.viz.kit.style import SMALL, Picture, escape, human_bytes, human_seconds
from course_lib.viz.kit.svg import Svg, fold, shorten, text_width


def columns(rows: Iterable[Sequence[object]], header: Sequence[str] = (), indent: str = "") -> str:
    """Rows as text in aligned columns."""
    cells = [[str(cell) for cell in row] for row in ([header, *rows] if header else rows)]
    if not cells:
        return ""
    widths = [
        max(len(row[i]) for row in cells if i < len(row)) for i in range(max(map(len, cells)))
    ]
    lines = [
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in cells
    ]
    if header:
        lines.insert(1, indent + "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def html_table(
    rows: Iterable[Sequence[str]], header: Sequence[str], numbers: Iterable[int] = ()
) -> str:
    """A table of cells that are HTML already; the columns in `numbers` are set flush right."""
    right = set(numbers)
    mark = lambda i: ' class="cl-n"' if i in right else ""
    head = "".join(
        f'<th scope="col"{mark(i)}>{breakable(name)}</th>' for i, name in enumerate(header)
    )
    cells = lambda row: "".join(f"<td{mark(i)}>{unbroken(cell)}</td>" for i, cell in enumerate(row))
    body = "\n".join(f"<tr>{cells(row)}</tr>" for row in rows)
    return f'<table class="cl-t"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>'


def unbroken(cell: str) -> str:
    """A cell (HTML) whose numbers stay with their units, and whose long names in code go on in the next line behind an underscore
    between words or a dot, not in the middle of a word."""
    cell = UNIT.sub("\\1\N{NO-BREAK SPACE}\\2", cell)
    apart = lambda found: found[1] or SOFT.sub(r"\g<0><wbr>", found[2])
    return CODE.sub(lambda code: code[1] + NAME.sub(apart, code[2]) + "</code>", cell)


UNIT = re.compile(
    r"(?<![\w.,])(-?[\d.,]+) (ns|µs|ms|s|B|[KMG]i?B|×|%|[KMGT]?FLOP(?:/s|/B)?)(?![\w/])"
)
CODE = re.compile(r"(<code\b[^>]*>)(.*?)</code>", re.S)
NAME = re.compile(r"(<[^>]*>|&#?\w+;)|([\w.]{12,})")
SOFT = re.compile(r"(?<=[^\W_])_(?=[^\W_])|[.·](?=\w)")
"""Behind these a name may go on in the next line; `__dict__` stays whole."""


def breakable(name: str) -> str:
    """A name in a column of words, for HTML; a long one (`call_function`) may go on in the next line, a very long one also before
    a capital (`ModelForGeneration…`)."""
    soft = lambda word: SOFT if len(word) < 30 else re.compile(rf"{SOFT.pattern}|[a-z](?=[A-Z])")
    return re.sub(
        r"[\w.·]{8,}", lambda word: soft(word[0]).sub(r"\g<0><wbr>", word[0]), escape(name)
    )


ROW = Kind("a row", lambda row: isinstance(row, (list, tuple)))


@takes(
    rows=each(ROW, "rows, each a list of cells"), header=each(TEXT, "a list of texts"), caption=TEXT
)
def table(
    rows: Iterable[Sequence[object]], header: Sequence[str], caption: str = "", alt: str = ""
) -> Picture:
    """Plain data as a table. Columns of numbers are set flush right."""
    data = [tuple(row) for row in rows]
    for row in data:
        if len(row) != len(header):
            raise ValueError(
                f"table: a row has {len(row)} cells, the header {len(header)}: {shown(row)}"
            )
    numeric = [
        i
        for i in range(len(header))
        if data and all(isinstance(row[i], (int, float)) for row in data)
    ]
    body = html_table([[escape(show(cell)) for cell in row] for row in data], header, numeric)
    text = columns([[show(cell) for cell in row] for row in data], header)
    return Picture(
        f'<div class="cl-scroll">{body}</div>',
        caption,
        alt or f"A table of {', '.join(header)}. {caption}".strip(),
        text,
    )


def show(cell: object) -> str:
    """A number with as many digits as a reader needs."""
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.3g}"


# ---- bars -----------------------------------------------------------------------------------------------------------

LONGEST, THICK, STEP, BEHIND, FITS = 520.0, 20, 32, 110.0, 755.0
LABEL, LETTERS = 320.0, 16
"""px: names wider than this are written in several lines, and the height of one more line. What is no wider than `FITS` can be
read in a window of 800 px."""
WHO = re.compile(
    r"(?P<ours>course_lib|\bours?\b)|(?P<eager>(?<![\w-])eager\b)|torch\.compile|torchinductor",
    re.IGNORECASE,
)


def who(name: str, ours: str) -> tuple[str, bool]:
    """The colour of a name, and whether it is the real torch.compile's (dashed). Who is named first is meant: 'ours against
    eager' is ours, and so is our backend 'aot_eager'."""
    first = WHO.search(name)
    if first is None or first["ours"]:
        return ours, False
    return ("eager", False) if first["eager"] else ("torch.compile", True)


@takes(values=named(ANYTHING, "name → number"), title=TEXT, stage=STAGE)
def bars(
    values: Mapping[str, float],
    unit: str = "",
    title: str = "",
    caption: str = "",
    *,
    stage: str = "scheduling",
) -> Picture:
    """Horizontal bars, one for each name, from zero. `unit` is written behind each number; "s" and "B" are scaled to what reads
    well (µs, MB). `stage` gives our colour. Values that are not finite and positive are drawn as 'none'."""
    if not values:
        raise ValueError("bars need at least one value")
    for name, value in attributes(values, ("items",), "bars are name → number").items():
        a_number(value, f"the value of {name!r}")
    most = max((v for v in values.values() if math.isfinite(v)), default=0.0) or 1.0
    names = {name: fold(name, LABEL) for name in values}
    label = max(text_width(line) for lines in names.values() for line in lines) + 16
    longest = max(240.0, min(LONGEST, FITS - label - BEHIND))
    behind = max(BEHIND, *(1.1 * text_width(amount(value, unit)) + 14 for value in values.values()))
    titles = fold(title, 0.94 * (label + longest + behind), bold=True) if title else []
    top = 14 + LETTERS * len(titles) if titles else 8
    svg = Svg(
        label + longest + behind,
        top + sum(STEP + LETTERS * (len(lines) - 1) for lines in names.values()) + 2,
    )
    for i, line in enumerate(titles):
        svg.text(0, 16 + LETTERS * i, line, bold=True)
    y = float(top)
    for name, value in values.items():
        colour, dashed = who(name, stage)
        length = max(2.0, longest * value / most) if math.isfinite(value) and value > 0 else 0.0
        for i, line in enumerate(names[name]):
            svg.text(label - 10, y + 15 + LETTERS * i, line, anchor="end")
        if length:
            svg.box(
                label, y, length, THICK, colour, radius=3, strength=0.45, line=1.6, dashed=dashed
            )
        svg.text(label + length + 8, y + 15, amount(value, unit))
        y += STEP + LETTERS * (len(names[name]) - 1)
    svg.path(f"M{label:.0f} {top - 4} V{y - 6:.0f}", line=1, opacity=0.5)
    said = "; ".join(f"{name} {amount(value, unit)}" for name, value in values.items())
    alt = f"{title or 'Bars'}: {said}."
    text = columns([(name, amount(value, unit)) for name, value in values.items()])
    return Picture(svg.render(alt), caption, alt, f"{title}\n{text}" if title else text)


def amount(value: float, unit: str) -> str:
    """A value with its unit, scaled where the unit is seconds or bytes."""
    if not math.isfinite(value):
        return "none"
    if unit in ("s", "seconds"):
        return human_seconds(value)
    if unit in ("B", "bytes"):
        return human_bytes(value)
    return f"{show(value)} {unit}".rstrip()


# ---- the roofline ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One measured kernel: how much it computes, how much it moves, how long it took."""

    name: str
    flops: float
    bytes: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Floating-point operations for each byte that is moved."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds


PLOT = (88.0, 24.0, 600.0, 300.0)
"""x, y, width and height of the plotting area, px."""


POINT = Kind(
    "a point",
    lambda point: isinstance(point, Point) or (isinstance(point, tuple) and len(point) == 4),
)
ROOM = 22
"""px above the roof of a roofline."""


@takes(points=each(POINT, "a list of Point(name, flops, bytes, seconds)"), stage=STAGE)
def roofline(
    points: Sequence[Point | tuple[Any, ...]],
    bandwidth: float,
    peak: float,
    caption: str = "",
    *,
    stage: str = "codegen",
) -> Picture:
    """Where kernels stand under the two limits of a machine: `bandwidth` in bytes/s and `peak` in FLOP/s, on logarithmic axes.

    A kernel under the slope waits for memory; one under the flat roof, for arithmetic; the distance to the roof is what it
    leaves unused."""
    positive(bandwidth, "bandwidth, in bytes/s,"), positive(peak, "peak, in FLOP/s,")
    data = [point if isinstance(point, Point) else Point(*point) for point in points]
    for point in data:
        for value, what in (
            (point.flops, "flops"),
            (point.bytes, "bytes"),
            (point.seconds, "seconds"),
        ):
            positive(value, f"{what} of {point.name!r}, on a logarithmic scale,")
    x0, y0, width, height = PLOT
    ridge = peak / bandwidth
    low = math.floor(math.log10(min([ridge, *(p.intensity for p in data)]))) - 0.3
    high = math.ceil(math.log10(max([ridge, *(p.intensity for p in data)]))) + 0.3
    top = max([math.log10(peak) + 0.4, *(math.log10(p.rate) + 0.3 for p in data)])
    bottom = min(
        math.log10(min([peak, *(p.rate for p in data)])) - 0.5, math.log10(bandwidth) + low
    )
    # its name stands above the roof
    top = max(top, math.log10(peak) + (math.log10(peak) - bottom) * ROOM / (height - ROOM))
    at_x = lambda intensity: x0 + width * (math.log10(intensity) - low) / (high - low)
    at_y = lambda rate: y0 + height * (top - math.log10(rate)) / (top - bottom)

    svg = Svg(x0 + width + 12, y0 + height + 48)
    for power in range(math.ceil(low), math.floor(high) + 1):
        svg.path(f"M{at_x(10**power):.1f} {y0} V{y0 + height}", line=1, opacity=0.14)
        svg.text(at_x(10**power), y0 + height + 18, f"{10.0**power:g}", SMALL, anchor="middle")
    for power in range(math.ceil(bottom), math.floor(top) + 1):
        svg.path(f"M{x0} {at_y(10**power):.1f} H{x0 + width}", line=1, opacity=0.14)
        svg.text(x0 - 8, at_y(10**power) + 4, rate_text(10.0**power), SMALL, anchor="end")
    svg.path(f"M{x0} {y0} V{y0 + height} H{x0 + width}", line=1.2, opacity=0.7)
    left = max(10**low, 10**bottom / bandwidth)
    roof = f"M{at_x(left):.1f} {at_y(left * bandwidth):.1f} L{at_x(ridge):.1f} {at_y(peak):.1f} H{x0 + width}"
    svg.path(roof, stage=stage, line=3, opacity=1)
    svg.text(x0 + width - 4, y0 + 12, f"peak {rate_text(peak)}", SMALL, anchor="end")
    svg.text(
        x0 + width / 2,
        y0 + height + 40,
        "operations for each byte moved (FLOP/B)",
        SMALL,
        anchor="middle",
        dim=True,
    )
    svg.text(x0 + 8, y0 + 12, f"memory {human_bytes(bandwidth)}/s", SMALL)
    spots = [(at_x(point.intensity), at_y(point.rate)) for point in data]
    for point, (x, y) in zip(data, spots, strict=True):
        colour, dashed = who(point.name, stage)
        tip = f"{point.name}: {rate_text(point.rate)}, {human_seconds(point.seconds)}"
        svg.box(
            x - 6, y - 6, 12, 12, colour, radius=6, strength=0.6, line=2, dashed=dashed, tip=tip
        )
    slope = [
        (at_x(i), at_y(min(peak, i * bandwidth)))
        for i in (10 ** (low + (high - low) * k / 120) for k in range(121))
    ]
    obstacles = [(x - 7, y - 7, x + 7, y + 7) for x, y in spots] + [
        (x - 3, y - 3, x + 3, y + 3) for x, y in slope
    ]
    obstacles.append((x0 + width - 120, y0, x0 + width, y0 + 14))  # where the peak is told
    for name, several in together(data, spots).items():
        text = shorten(name[0], 210, SMALL) + (
            f" ×{len(several)}" if len(several) > 1 and ", " not in name[0] else ""
        )
        wide, (x, y) = text_width(text, SMALL), several[0]
        ways = [
            (x + 11, 0),
            (x - 11 - wide, 0),
            (x - wide / 2, -16),
            (x - wide / 2, 18),
            (x + 9, -12),
            (x - 9 - wide, -12),
        ]
        ways += [(start, down) for down in (14, 28, -28, 42) for start in (x + 11, x - 11 - wide)]
        boxes = [(start, y + down - 8, start + wide, y + down + 7) for start, down in ways]
        boxes = [box for box in boxes if box[0] > x0 and box[2] < x0 + width] or boxes
        best = min(boxes, key=lambda box: sum(overlap(box, other) for other in obstacles))
        obstacles.append(best)
        left = best[2] < x  # its end is what must not move, however wide the letters are
        svg.text(
            best[2] if left else best[0],
            best[3] - 3,
            text,
            SMALL,
            anchor="end" if left else "start",
            tip=name[0],
        )
    rows = [
        (p.name, f"{p.intensity:.3g} FLOP/B", rate_text(p.rate), limit(p, bandwidth, peak))
        for p in data
    ]
    alt = (
        "Roofline: "
        + "; ".join(f"{name} at {where}, {limited}" for name, where, _, limited in rows)
        + "."
    )
    caption = (
        caption or "Below the slope a kernel waits for memory, below the flat roof for arithmetic."
    )
    return Picture(svg.render(alt), caption, alt, columns(rows))


def together(
    points: Sequence[Point], spots: Sequence[tuple[float, float]]
) -> dict[tuple[str, int], list[tuple[float, float]]]:
    """Spots of one name, those at nearly the same place under one key: their name is written once. (Names that are numbers share
    a place, too: '12, 26'.)"""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for number, (point, spot) in enumerate(zip(points, spots, strict=True)):
        alike = lambda name, here=point.name: (
            name == here or (here.isdigit() and name.replace(", ", "").isdigit())
        )
        key = next(
            (k for k, others in found.items() if alike(k[0]) and math.dist(others[0], spot) < 16),
            (point.name, number),
        )
        others = found.pop(key, [])
        numbers = key[0] if point.name in key[0].split(", ") else f"{key[0]}, {point.name}"
        found[numbers, key[1]] = [*others, spot]
    return found


def overlap(a: Sequence[float], b: Sequence[float]) -> bool:
    """Do two boxes (left, top, right, bottom) share any place?"""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def limit(point: Point, bandwidth: float, peak: float) -> str:
    """What holds this kernel back: neither of the two where it comes to less than a hundredth of both."""
    if 100 * point.rate < min(peak, point.intensity * bandwidth):
        return "limited by neither"
    return f"limited by {lower(point, bandwidth, peak)}"


def lower(point: Point, bandwidth: float, peak: float) -> str:
    """Which of the two limits is the lower one at this many operations for a byte."""
    return "memory" if point.intensity < peak / bandwidth else "arithmetic"


def rate_text(rate: float) -> str:
    """FLOP/s in a readable unit."""
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate / 1e6:.2g} MFLOP/s"
