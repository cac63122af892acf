"""What padding to buckets costs.

In:  the lengths of requests, and the borders that they are padded up to. Out: a `Picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.viz.kit.arguments import COUNT, each, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg
from course_lib.viz.kit.tables import columns

LEFT, WIDTH = 92.0, 500.0
"""px: where the histogram begins, and how wide it is."""
TOP, HIGH = 46.0, 130.0
"""px: the same downwards."""
BASE = TOP + HIGH
"""px: the axis, on which the bars stand."""
BARS = 32
"""So many bars at most."""
STEP, THICK, BASE_LINE = 26, 20, 15
"""px: from one bucket's line to the next; how thick its boxes are, and from their top to the base
line of the text."""
WORK = 52
"""px: from the axis down to the first bucket's line."""
NUMBERS, NUMBER = 18, 26
"""px: from the axis down to the base line of the numbers, and the room that each needs."""
CAPTION = "Dashed lines: the borders that lengths are padded up to. Dashed boxes: work on padding, which nobody asked for."


@dataclass(frozen=True)
class Bucket:
    """The requests that are padded to `border`."""

    low: int
    border: int
    lengths: tuple[int, ...]

    @property
    def computed(self) -> int:
        """Elements, with the padding."""
        return self.border * len(self.lengths)

    @property
    def padding(self) -> int:
        return self.computed - sum(self.lengths)

    @property
    def share(self) -> str:
        """'25%' of what is computed is padding."""
        return f"{self.padding / self.computed:.0%}"

    def __str__(self) -> str:
        return f"{self.low} to {self.border}"


def in_buckets(lengths: Sequence[int], borders: Sequence[int]) -> list[Bucket]:
    """Every length in the first bucket whose border it does not exceed.

    Raises ValueError if it exceeds all."""
    borders = sorted(set(borders))
    if not lengths or not borders or max(lengths) > borders[-1]:
        raise ValueError("there must be lengths, and a border for the longest of them")

    buckets = []
    for below, border in zip([0, *borders], borders):
        lengths_inside = tuple(length for length in lengths if below < length <= border)
        buckets.append(Bucket(below + 1, border, lengths_inside))
    return buckets


@takes(
    lengths=each(COUNT, "lengths, whole numbers, 1 or more"),
    borders=each(COUNT, "whole numbers, 1 or more"),
)
def buckets(lengths: Sequence[int], borders: Sequence[int], title: str = "") -> Picture:
    """The lengths of requests as a histogram with the borders of the buckets; below, what each
    bucket computes and how much of that is padding.

    Raises ValueError if a length exceeds all borders."""
    all_buckets = in_buckets(lengths, borders)
    used_buckets = [bucket for bucket in all_buckets if bucket.lengths]
    requests = plural(len(lengths), "request")
    in_use = plural(len(used_buckets), "bucket")

    svg = Svg(LEFT + WIDTH + 150, BASE + WORK + 10 + STEP * len(used_buckets))
    svg.text(0, 16, title or f"{requests}, {in_use}", bold=True)
    draw_histogram(svg, lengths, all_buckets[-1].border)
    draw_borders(svg, all_buckets)
    draw_work(svg, used_buckets)

    total = sum(bucket.computed for bucket in all_buckets)
    padding = sum(bucket.padding for bucket in all_buckets)
    share = f"{padding / total:.0%}"
    alt = f"{requests} in {in_use}: {share} of {total:,} elements are padding."
    rows = []
    for bucket in used_buckets:
        elements = (f"{bucket.computed:,}", f"{bucket.padding:,}", bucket.share)
        rows.append((str(bucket), len(bucket.lengths), *elements))
    rows.append(("all", len(lengths), f"{total:,}", f"{padding:,}", share))
    text = columns(rows, ("bucket", "requests", "elements", "padding", "share"))
    return Picture(svg.render(alt), CAPTION, alt, text)


def draw_histogram(svg: Svg, lengths: Sequence[int], longest: int) -> None:
    """How many requests have which length; several lengths share a bar where there are many."""
    step = max(1, -(-longest // BARS))
    counts = []
    for start in range(0, longest, step):
        counts.append(sum(start < length <= start + step for length in lengths))

    wide = WIDTH * step / longest - 2  # 1 px stays free on either side
    for i, count in enumerate(counts):
        if count:
            height = HIGH * count / max(counts)
            x = LEFT + WIDTH * (i * step) / longest + 1
            tip = f"{i * step + 1} to {(i + 1) * step}: {plural(count, 'request')}"
            svg.box(
                x, BASE - height, wide, height, "runtime", radius=1, strength=0.4, line=1, tip=tip
            )

    svg.path(f"M{LEFT} {BASE} H{LEFT + WIDTH}", line=1.2, opacity=0.7)
    svg.text(LEFT - 8, BASE + NUMBERS, "length", SMALL, anchor="end", dim=True)


def draw_borders(svg: Svg, buckets: Sequence[Bucket]) -> None:
    """A dashed line at each border; its number where there is room."""
    longest = buckets[-1].border
    last = LEFT - 30  # where the last number was written: far enough for any at first
    for bucket in buckets:
        x = LEFT + WIDTH * bucket.border / longest
        border = f"M{x:.1f} {TOP - 8} V{BASE + 4}"
        svg.path(border, stage="guards", line=2, opacity=1, dashed=True)
        if x - last > NUMBER:
            last = x
            svg.text(x, BASE + NUMBERS, str(bucket.border), SMALL, anchor="middle")


def draw_work(svg: Svg, used: Sequence[Bucket]) -> None:
    """A line for each bucket: what is computed for requests, and for padding."""
    title = "elements computed: requests (grey), padding (dashed)"
    svg.text(LEFT, BASE + 44, title, SMALL, dim=True)

    scale = WIDTH / max(bucket.computed for bucket in used)
    for i, bucket in enumerate(used):
        y = BASE + WORK + STEP * i
        svg.text(LEFT - 8, y + BASE_LINE, str(bucket), SMALL, anchor="end")

        # What was asked for, then what was added to fill the bucket
        real = (bucket.computed - bucket.padding) * scale
        svg.box(LEFT, y, real, THICK, "runtime", radius=2, strength=0.4, line=1)
        if bucket.padding:
            svg.box(
                LEFT + real,
                y,
                bucket.padding * scale,
                THICK,
                "break",
                radius=2,
                strength=0.18,
                line=1.2,
                dashed=True,
            )

        label = f"{len(bucket.lengths)} req., {bucket.share} padding"
        svg.text(LEFT + bucket.computed * scale + 8, y + BASE_LINE, label, SMALL)
