"""How much memory a compiled graph holds while it runs, with its memory plan and without.

In:  a `Schedule` and its `MemoryPlan`.
Out: `MemoryUse`: bytes held while each kernel runs, the peak, and the same if each node ran alone,
     as in eager. It shows itself as a picture: time left to right, a band for each piece of memory,
     as thick as it has bytes.
In PyTorch: `torch.cuda.memory._record_memory_history` and the active memory timeline of
pytorch.org/memory_viz.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

from course_lib.scheduling import MemoryPlan, Schedule
from course_lib.viz.kit.arguments import takes, with_attributes
from course_lib.viz.kit.style import SMALL, Picture, human_bytes, plural
from course_lib.viz.kit.svg import Svg, n, shorten


@dataclass(frozen=True)
class Span:
    """A piece of memory, from the step that first needs it to the last.

    `names`: what lies in it, one after the other."""

    first: int
    last: int
    bytes: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class MemoryUse:
    """Bytes held, inputs not counted."""

    schedule: Schedule
    plan: MemoryPlan

    @property
    def spans(self) -> list[Span]:
        """The memory that the compiled graph takes. What is never freed (results) lasts until
        after the last step."""
        count = len(self.plan.free_after)
        last = {
            storage: step for step, freed in enumerate(self.plan.free_after) for storage in freed
        }
        buffers_of_storage: dict[str, list[str]] = {}
        for a in self.plan.allocations:
            buffers_of_storage.setdefault(a.storage, []).append(a.buffer.name)
        # The others lie in memory that was there already.
        new = [a for a in self.plan.allocations if a.how == "new"]
        return [
            Span(
                a.kernel,
                last.get(a.storage, count),
                a.buffer.nbytes,
                tuple(buffers_of_storage[a.storage]),
            )
            for a in new
        ]

    @property
    def spans_alone(self) -> list[Span]:
        """If each node ran alone: its result in memory of its own, freed after its last use."""
        alone = self.schedule.alone
        # Buffer → the last step that reads or writes it
        last = {
            buffer.name: step
            for step, group in enumerate(alone)
            for buffer in (*group.reads, *group.writes)
        }
        # What the graph returns lasts until after the last step.
        for group in alone:
            last |= dict.fromkeys(group.usage.outputs, len(alone))
        steps_and_buffers = [
            (step, buffer) for step, group in enumerate(alone) for buffer in group.writes
        ]
        return [
            Span(step, last[buffer.name], buffer.nbytes, (buffer.name,))
            for step, buffer in steps_and_buffers
        ]

    @property
    def live_bytes(self) -> list[int]:
        """Bytes held while each kernel runs."""
        return held(self.spans, len(self.plan.free_after))

    @property
    def peak_bytes(self) -> int:
        """The most bytes held at once."""
        return max(self.live_bytes, default=0)

    @property
    def unplanned_peak(self) -> int:
        """The peak if each node ran alone."""
        return max(held(self.spans_alone, len(self.schedule.alone)), default=0)

    def __str__(self) -> str:
        lines = []
        for step, (kernel, bytes_held) in enumerate(
            zip(self.schedule.kernels, self.live_bytes, strict=True)
        ):
            allocations = "; ".join(str(a) for a in self.plan.allocations if a.kernel == step)
            freed = ""
            if self.plan.free_after[step]:
                freed = f"   frees {', '.join(self.plan.free_after[step])}"
            lines.append(f"{human_bytes(bytes_held):>10}  {kernel}: {allocations}{freed}")
        return "\n".join(
            [
                *lines,
                f"peak {human_bytes(self.peak_bytes)}, unfused {human_bytes(self.unplanned_peak)}",
            ]
        )

    @property
    def picture(self) -> Picture:
        """The memory timeline: operations one by one on the left, ours on the right, on one
        scale."""
        return memory_timeline(self)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """The picture as a file, as `Picture.save`."""
        return self.picture.save(path)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return self.picture._repr_mimebundle_()


def held(spans: Sequence[Span], count: int) -> list[int]:
    """Bytes held during each of `count` steps."""
    # By how much they change at the beginning of each step. A span may last until after the last
    # step, and ends one later.
    change: list[int] = [0] * (count + 2)
    for span in spans:
        change[span.first] += span.bytes
        change[span.last + 1] -= span.bytes
    return list(accumulate(change))[:count]


# ---- the timeline --------------------------------------------------------------------------------

PANEL, BETWEEN, TALL, HEAD, AXIS = 326.0, 34.0, 240.0, 44.0, 58.0
"""px: the width of one timeline and what is between two, their height, the headings above, the
sizes on the left."""
LINE = 14
"""px: the height of a line of small text."""
NAME_HEIGHT, NAME_WIDTH = 15, 34
"""px: a band has its name in it if it is no lower and wider than this."""


STAGES = ("eager", "scheduling")
"""The colours of the two sides: alone, and as planned."""


@takes(use=with_attributes("what trace.memory() gives", "spans_alone", "unplanned_peak"))
def memory_timeline(use: MemoryUse) -> Picture:
    """Memory held over time, if each node ran alone and as planned."""
    alone, planned = use.spans_alone, use.spans
    peaks = use.unplanned_peak, use.peak_bytes
    steps = len(use.schedule.alone), len(use.schedule.kernels)
    scale = TALL / (max(peaks) or 1)
    svg = Svg(AXIS + 2 * PANEL + BETWEEN + 8, HEAD + TALL + 30)
    titles = (
        f"One by one: {plural(steps[0], 'operation')}",
        f"Compiled: {plural(steps[1], 'kernel')}",
    )
    floor = HEAD + TALL
    for side, title in enumerate(titles):
        x = AXIS + side * (PANEL + BETWEEN)
        compared = less(peaks) if side else ""
        svg.text(x, 16, title, bold=True)
        svg.text(x, 34, f"peak {human_bytes(peaks[side])}{compared}", SMALL)
        draw_spans(svg, (alone, planned)[side], steps[side], (x, floor), scale, STAGES[side])
        svg.path(f"M{n(x)} {n(floor)} H{n(x + PANEL)}", line=1.2, opacity=0.7)
        svg.text(x, floor + 18, "time →", SMALL, dim=True)

    # Two numbers at one height would cover each other: then only the first peak's is written.
    apart = abs(peaks[0] - peaks[1]) * scale >= LINE

    # Both peaks go through both halves, so that they can be compared
    for peak, stage in zip(peaks, STAGES, strict=True):
        y = HEAD + TALL - peak * scale
        svg.path(
            f"M{n(AXIS)} {n(y)} H{n(svg.width - 6)}",
            stage=stage,
            line=1.3,
            opacity=0.9,
            dashed=True,
        )
        if apart or stage == STAGES[0]:
            svg.text(AXIS - 6, y + 4, human_bytes(peak), SMALL, anchor="end", stage=stage)

    alt = f"Memory over time. {titles[0]}, peak {human_bytes(peaks[0])}. "
    alt += f"{titles[1]}, peak {human_bytes(peaks[1])}{less(peaks)}."
    # On the left a result is freed after its last use. Eager itself frees it when no variable of
    # the program ("names") holds it any more, which may be later: so the left side is its best
    # case.
    caption = "Each band is a piece of memory, as thick as it has bytes, from the kernel that first writes it to the last that needs"
    caption += " it; arrows: used again. Inputs are not counted. Left, each result goes after its last use; eager's go with their names."
    return Picture(svg.render(alt), caption, alt, str(use))


def less(peaks: tuple[int, int]) -> str:
    """How much less the second is than the first, in words; '' if it is not."""
    if peaks[0] and peaks[1] < peaks[0]:
        return f", {100 - 100 * peaks[1] / peaks[0]:.0f} % less"
    return ""


def draw_spans(
    svg: Svg, spans: list[Span], steps: int, corner: tuple[float, float], scale: float, stage: str
) -> None:
    """Bands stacked on each other at every step, in the order in which they begin.

    When a lower band ends, those above it fall. corner: the lower left one, px. scale: px for each
    byte."""
    left, floor = corner
    wide = PANEL / max(steps, 1)
    tops = [floor] * steps  # px: how high the bands of each step reach so far
    for number, span in enumerate(sorted(spans, key=lambda span: span.first)):
        tall = span.bytes * scale
        during = range(span.first, min(span.last, steps - 1) + 1)
        # The band lies on what is there at each of its steps
        lower = [tops[step] for step in during]
        for step in during:
            tops[step] -= tall
        edge = [(left + wide * (span.first + i), y) for i, y in enumerate(lower)]
        names = " → ".join(span.names)
        tip = f"{names}: {human_bytes(span.bytes)}"
        strength = 0.16 if number % 2 else 0.32  # so that neighbours can be told apart
        svg.area(outline(edge, wide, tall), stage, strength=strength, tip=tip)
        # Its name stands where it is level for longest
        level, room = longest_level(lower)
        if tall >= NAME_HEIGHT and wide * room > NAME_WIDTH:
            label = shorten(names, wide * room - 14, SMALL)
            svg.text(edge[level][0] + 5, lower[level] - tall / 2 + 4, label, SMALL, tip=tip)


def outline(edge: list[tuple[float, float]], wide: float, tall: float) -> str:
    """The path round a band: along its upper edge to the right, and back along its lower edge.

    edge: the left end of the band's lower edge at each step. wide, tall: the width of a step, and
    the band's height.
    """
    # steps at one height are one line
    levels = [list(corners) for _, corners in groupby(edge, lambda corner: n(corner[1]))]

    upper_edge, lower_edge = "", ""
    for level in levels:
        left, y = level[0]
        right = level[-1][0] + wide
        upper_edge += f"L{n(left)} {n(y - tall)} H{n(right)} "
        lower_edge = f"L{n(right)} {n(y)} H{n(left)} {lower_edge}"
    return f"M{upper_edge[1:]}{lower_edge}Z"


def longest_level(heights: list[float]) -> tuple[int, int]:
    """Where the longest stretch of equal heights begins, and how long it is: (0, 0) of none."""
    stretches = [(0, 0)]
    start = 0
    for _, equal_heights in groupby(heights):
        length = len(list(equal_heights))
        stretches.append((start, length))
        start += length
    return max(stretches, key=lambda stretch: stretch[1])
