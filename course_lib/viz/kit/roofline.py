"""The roofline: where kernels stand under the two limits of a machine.

In:  `Point`s (operations, bytes, seconds), bandwidth and peak. Out: a `Picture`.
Both axes are logarithmic: operations for each byte to the right, operations in a second upwards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from course_lib.viz.kit.arguments import STAGE, Kind, each, positive, takes
from course_lib.viz.kit.bars import who
from course_lib.viz.kit.style import SMALL, Picture, human_bytes, human_seconds
from course_lib.viz.kit.svg import Svg, shorten, text_width
from course_lib.viz.kit.tables import columns


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


def is_point(point: object) -> bool:
    return isinstance(point, Point) or (isinstance(point, tuple) and len(point) == 4)


POINT = Kind("a point", is_point)

LEFT, TOP, WIDTH, HEIGHT = 88.0, 24.0, 600.0, 300.0
"""px: the plotting area."""
RIGHT, BOTTOM = LEFT + WIDTH, TOP + HEIGHT
ABOVE_ROOF = 22
"""px above the roof, where the peak is told."""
NAME_WIDTH = 210
"""px: a longer name of a kernel is shortened."""
SAME_PLACE = 16
"""px: spots of one name that are nearer than this have their name written once."""
RADIUS = 6
"""px: of a spot."""
ROOF_BOXES = 120
"""The roof, for names that should not cover it, is this many small boxes (and one at its end)."""


@takes(points=each(POINT, "a list of Point(name, flops, bytes, seconds)"), stage=STAGE)
def roofline(
    points: Sequence[Point | tuple[Any, ...]],
    bandwidth: float,
    peak: float,
    caption: str = "",
    *,
    stage: str = "codegen",
) -> Picture:
    """Where kernels stand under the two limits of a machine: `bandwidth` in bytes/s and `peak` in
    FLOP/s.

    A kernel under the slope waits for memory; one under the flat roof, for arithmetic; the distance
    to the roof is what it leaves unused. Raises ValueError for a number that is not above 0.
    """
    positive(bandwidth, "bandwidth, in bytes/s,")
    positive(peak, "peak, in FLOP/s,")
    data = [point if isinstance(point, Point) else Point(*point) for point in points]
    # A logarithmic scale has no place for 0
    for point in data:
        positive(point.flops, f"flops of {point.name!r}, on a logarithmic scale,")
        positive(point.bytes, f"bytes of {point.name!r}, on a logarithmic scale,")
        positive(point.seconds, f"seconds of {point.name!r}, on a logarithmic scale,")

    # Names last, so that no line is drawn over them
    axes = axes_for(data, bandwidth, peak)
    svg = Svg(RIGHT + 12, BOTTOM + 48)
    draw_grid(svg, axes)
    draw_roof(svg, axes, stage)
    spots = [Spot(axes.x(point.intensity), axes.y(point.rate)) for point in data]
    draw_spots(svg, data, spots, stage)
    write_names(svg, axes, data, spots)

    rows = []
    for point in data:
        intensity = f"{point.intensity:.3g} FLOP/B"
        rows.append((point.name, intensity, rate_text(point.rate), limit(point, bandwidth, peak)))
    kernels_in_words = "; ".join(
        f"{name} at {where}, {limited}" for name, where, _, limited in rows
    )
    alt = f"Roofline: {kernels_in_words}."
    if not caption:
        caption = "Below the slope a kernel waits for memory, below the flat roof for arithmetic."
    return Picture(svg.render(alt), caption, alt, columns(rows))


# ---- the axes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axes:
    """Two logarithmic axes.

    Their ends are powers of ten: `low` to `high`, and `bottom` to `top`."""

    low: float
    high: float
    bottom: float
    top: float
    bandwidth: float
    peak: float

    @property
    def ridge(self) -> float:
        """FLOP/B: from here on arithmetic is the lower limit."""
        return self.peak / self.bandwidth

    def x(self, intensity: float) -> float:
        """px, for operations per byte."""
        return LEFT + WIDTH * (math.log10(intensity) - self.low) / (self.high - self.low)

    def y(self, rate: float) -> float:
        """px, for FLOP/s."""
        return TOP + HEIGHT * (self.top - math.log10(rate)) / (self.top - self.bottom)

    def roof(self, intensity: float) -> float:
        """FLOP/s that the machine can reach with this many operations per byte."""
        return min(self.peak, intensity * self.bandwidth)


def axes_for(points: Sequence[Point], bandwidth: float, peak: float) -> Axes:
    """Axes that have room for all points, the ridge, and the peak's name above the roof.

    What is added at the ends is a share of a power of ten: 0.3 is a factor of 2."""
    intensities = [peak / bandwidth, *(point.intensity for point in points)]
    rates = [point.rate for point in points]
    low = math.floor(math.log10(min(intensities))) - 0.3
    high = math.ceil(math.log10(max(intensities))) + 0.3

    top = max([math.log10(peak) + 0.4, *(math.log10(rate) + 0.3 for rate in rates)])
    lowest_rate = math.log10(min([peak, *rates])) - 0.5
    # The slope begins at the left border, at `low`.
    bottom = min(lowest_rate, math.log10(bandwidth) + low)

    # The name of the peak stands above the roof: of all `HEIGHT` px, `ABOVE_ROOF` stay free there.
    under_roof = math.log10(peak) - bottom
    top = max(top, math.log10(peak) + under_roof * ABOVE_ROOF / (HEIGHT - ABOVE_ROOF))
    return Axes(low, high, bottom, top, bandwidth, peak)


def draw_grid(svg: Svg, axes: Axes) -> None:
    """A thin line with its number at each power of ten."""
    for power in range(math.ceil(axes.low), math.floor(axes.high) + 1):
        x = axes.x(10**power)
        svg.path(f"M{x:.1f} {TOP} V{BOTTOM}", line=1, opacity=0.14)
        svg.text(x, BOTTOM + 18, f"{10.0**power:g}", SMALL, anchor="middle")

    for power in range(math.ceil(axes.bottom), math.floor(axes.top) + 1):
        y = axes.y(10**power)
        svg.path(f"M{LEFT} {y:.1f} H{RIGHT}", line=1, opacity=0.14)
        svg.text(LEFT - 8, y + 4, rate_text(10.0**power), SMALL, anchor="end")

    svg.path(f"M{LEFT} {TOP} V{BOTTOM} H{RIGHT}", line=1.2, opacity=0.7)


def draw_roof(svg: Svg, axes: Axes, stage: str) -> None:
    """The slope (memory) and the flat roof (arithmetic), each with its number."""
    # The slope comes in at the left border, or at the lower one if it is below that border there.
    start = max(10**axes.low, 10**axes.bottom / axes.bandwidth)
    slope = f"M{axes.x(start):.1f} {axes.y(start * axes.bandwidth):.1f}"
    flat = f"L{axes.x(axes.ridge):.1f} {axes.y(axes.peak):.1f} H{RIGHT}"
    svg.path(f"{slope} {flat}", stage=stage, line=3, opacity=1)

    svg.text(RIGHT - 4, TOP + 12, f"peak {rate_text(axes.peak)}", SMALL, anchor="end")
    below = "operations for each byte moved (FLOP/B)"
    svg.text(LEFT + WIDTH / 2, BOTTOM + 40, below, SMALL, anchor="middle", dim=True)
    svg.text(LEFT + 8, TOP + 12, f"memory {human_bytes(axes.bandwidth)}/s", SMALL)


# ---- the kernels and their names -----------------------------------------------------------------


class Spot(NamedTuple):
    """Where a kernel stands, px."""

    x: float
    y: float


class Box(NamedTuple):
    """A rectangle that is taken, or may be, px."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        """Do both share any place?"""
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom


def draw_spots(svg: Svg, points: Sequence[Point], spots: Sequence[Spot], stage: str) -> None:
    """A round spot for each kernel; pointing at it tells its rate and its time."""
    for point, (x, y) in zip(points, spots, strict=True):
        colour, dashed = who(point.name, stage)
        tip = f"{point.name}: {rate_text(point.rate)}, {human_seconds(point.seconds)}"
        svg.box(
            x - RADIUS,
            y - RADIUS,
            2 * RADIUS,
            2 * RADIUS,
            colour,
            radius=RADIUS,
            strength=0.6,
            line=2,
            dashed=dashed,
            tip=tip,
        )


def write_names(svg: Svg, axes: Axes, points: Sequence[Point], spots: Sequence[Spot]) -> None:
    """Each name where it covers as little as can be of spots, roof and other names."""
    reach = RADIUS + 1  # half of the line around a spot lies outside
    covered_boxes = [Box(x - reach, y - reach, x + reach, y + reach) for x, y in spots]
    covered_boxes += roof_boxes(axes)
    covered_boxes.append(Box(RIGHT - 120, TOP, RIGHT, TOP + 14))  # where the peak is told

    for label in labels_of(points, spots):
        text = shorten(label.names, NAME_WIDTH, SMALL)
        # A list of numbers ('12, 26') says itself how many there are.
        if len(label.spots) > 1 and ", " not in label.names:
            text += f" ×{len(label.spots)}"
        spot = label.spots[0]
        best = best_place(spot, text_width(text, SMALL), covered_boxes)
        covered_boxes.append(best)

        # The end at the spot must not move, however wide the letters are on the reader's machine.
        is_left = best.right < spot.x
        x, anchor = (best.right, "end") if is_left else (best.left, "start")
        base_line = best.bottom - 3
        svg.text(x, base_line, text, SMALL, anchor=anchor, tip=label.names)


def roof_boxes(axes: Axes) -> list[Box]:
    """The roof, as a chain of small boxes that names should not cover."""
    boxes = []
    for step in range(ROOF_BOXES + 1):
        intensity = 10 ** (axes.low + (axes.high - axes.low) * step / ROOF_BOXES)
        x, y = axes.x(intensity), axes.y(axes.roof(intensity))
        boxes.append(Box(x - 3, y - 3, x + 3, y + 3))
    return boxes


def best_place(spot: Spot, width: float, taken: Sequence[Box]) -> Box:
    """The place for a name `width` px wide near its spot that covers least; the first of equals."""
    x, y = spot
    right, left, centred = x + 11, x - 11 - width, x - width / 2

    # (where the name begins, how far below the spot), the best way first: beside the spot, above or
    # below it, above on the right or on the left, then further and further away.
    ways = [(right, 0), (left, 0), (centred, -16), (centred, 18)]
    ways += [(x + 9, -12), (x - 9 - width, -12)]
    ways += [(start, down) for down in (14, 28, -28, 42) for start in (right, left)]

    # Small letters reach 8 px above the middle of their line and 7 below it.
    boxes = [Box(start, y + down - 8, start + width, y + down + 7) for start, down in ways]
    boxes_inside = [box for box in boxes if box.left > LEFT and box.right < RIGHT]

    def covered(box: Box) -> int:
        return sum(box.overlaps(other) for other in taken)

    return min(boxes_inside or boxes, key=covered)


@dataclass
class Label:
    """A name that is written once, and the spots that it stands for."""

    names: str
    spots: list[Spot] = field(default_factory=list)

    def takes(self, name: str, spot: Spot) -> bool:
        """Does this kernel belong here?

        It has the same name, or both are numbers, at nearly the same place."""
        is_same_name = self.names == name
        are_numbers = name.isdigit() and self.names.replace(", ", "").isdigit()
        return (is_same_name or are_numbers) and math.dist(self.spots[0], spot) < SAME_PLACE


def labels_of(points: Sequence[Point], spots: Sequence[Spot]) -> list[Label]:
    """Spots of one name at nearly the same place share a label. (Numbers share one too: '12, 26'.)

    The label that got a spot last comes last."""
    labels: list[Label] = []
    for point, spot in zip(points, spots, strict=True):
        label = next(
            (existing_label for existing_label in labels if existing_label.takes(point.name, spot)),
            None,
        )
        if label is None:
            label = Label(point.name)
        else:
            labels.remove(label)

        if point.name not in label.names.split(", "):
            label.names += f", {point.name}"
        label.spots.append(spot)
        labels.append(label)
    return labels


# ---- in words ------------------------------------------------------------------------------------


def limit(point: Point, bandwidth: float, peak: float) -> str:
    """What limits this kernel: memory or arithmetic, or neither if it reaches less than a hundredth
    of what they allow."""
    if 100 * point.rate < min(peak, point.intensity * bandwidth):
        return "limited by neither"
    return f"limited by {lower(point, bandwidth, peak)}"


def lower(point: Point, bandwidth: float, peak: float) -> str:
    """Which of the two limits is the lower one at this many operations for a byte."""
    if point.intensity < peak / bandwidth:
        return "memory"
    return "arithmetic"


def rate_text(rate: float) -> str:
    """FLOP/s in a readable unit."""
    for scale, unit in ((1e12, "TFLOP/s"), (1e9, "GFLOP/s"), (1e6, "MFLOP/s")):
        if rate >= scale:
            return f"{rate / scale:.3g} {unit}"
    return f"{rate / 1e6:.2g} MFLOP/s"
