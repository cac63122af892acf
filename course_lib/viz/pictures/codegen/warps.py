"""How a GPU's threads share a tile, and what their loads fetch from memory.

In:  the numbers of Triton's `#blocked` layout; or how far apart neighbouring lanes read.
Out: `Picture`s. `tile_layout`: a cell for each thread, with the elements it has. `coalescing`: the lanes of a warp on top, below
     them the sectors of memory that one load touches; what is tinted is wanted, the rest comes along.
In PyTorch: the layouts are Triton's (`BlockedEncodingAttr`); Nsight Compute counts sectors for each request.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.viz.kit.asked import COUNT, each, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg

LANES = 32
SECTOR = 32
"""Bytes: memory is fetched in pieces of this size."""


@takes(block=COUNT, per_thread=COUNT, warps=COUNT)
def tile_layout(block: int, per_thread: int, warps: int) -> Picture:
    """Which elements of a tile of `block` each thread has: `per_thread` neighbours, then again for the next round."""
    step = per_thread * LANES * warps
    if block % step:
        raise ValueError(
            f"{warps} warps of {LANES} threads with {per_thread} elements each share {step}, so no tile of {block}"
        )
    columns: list[int | None] = [0, 1, 2, None, LANES - 1]
    rounds = range(0, block, step)
    wide, tall, left, top = 128.0, 18.0 * len(rounds) + 10, 70.0, 26.0
    svg = Svg(left + len(columns) * wide, top + warps * (tall + 8))
    lines = []
    for place, lane in enumerate(columns):
        text = "…" if lane is None else f"lane {lane}"
        svg.text(left + place * wide + wide / 2 - 6, 14, text, SMALL, anchor="middle", dim=True)
    for warp in range(warps):
        y, said = top + warp * (tall + 8), []
        svg.text(0, y + tall / 2 + 4, f"warp {warp}", SMALL, bold=True)
        for place, lane in enumerate(columns):
            x = left + place * wide
            if lane is None:
                svg.text(x + wide / 2 - 6, y + tall / 2 + 4, "…", anchor="middle")
                continue
            svg.box(x, y, wide - 12, tall, "codegen", radius=5, strength=0.22)
            firsts = [start + (warp * LANES + lane) * per_thread for start in rounds]
            spans = [
                f"{first} to {first + per_thread - 1}" if per_thread > 1 else str(first)
                for first in firsts
            ]
            for row, span in enumerate(spans):
                svg.text(x + wide / 2 - 6, y + 18 + 18 * row, span, SMALL, anchor="middle")
            said.append(f"lane {lane}: {', '.join(spans)}")
        lines.append(f"warp {warp}: {'; '.join(said)}")
    caption = (
        f"A tile of {block} elements for {plural(warps, 'warp')} of {LANES} lanes: a cell is a thread, its numbers are elements. "
        f"Neighbouring lanes have neighbouring elements."
    )
    return Picture(
        f'<div class="cl-scroll">{svg.render(caption)}</div>', caption, caption, "\n".join(lines)
    )


def sectors(stride: int, size: int = 4) -> list[int]:
    """The numbers of the sectors that the lanes of a warp touch, if lane n reads element n * `stride` of `size` bytes."""
    return sorted({lane * stride * size // SECTOR for lane in range(LANES)})


@takes(strides=each(COUNT, "a list of whole numbers, 1 or more"), size=COUNT, most=COUNT)
def coalescing(strides: Sequence[int], size: int = 4, most: int = 6) -> Picture:
    """One load of a warp, for each of these distances between the elements of neighbouring lanes."""
    if not strides or SECTOR % size:
        raise ValueError(
            f"coalescing draws at least one stride, and elements that fill {SECTOR} bytes evenly, not of {size}"
        )
    cells = SECTOR // size
    cell, gap, left, band = 11.3, 6.0, 98.0, 104.0
    wide = cells * cell
    svg = Svg(left + most * (wide + gap) + 78, len(strides) * band)
    lines = []
    for number, stride in enumerate(strides):
        y, touched = number * band, sectors(stride, size)
        fetched, wanted = len(touched) * SECTOR, LANES * size
        svg.text(0, y + 20, f"stride {stride}", bold=True)
        svg.text(0, y + 38, plural(len(touched), "sector"), SMALL, dim=True)
        svg.text(0, y + 54, f"{fetched:,} bytes", SMALL, dim=True)
        svg.text(0, y + 70, f"{wanted / fetched:.1%} wanted", SMALL, dim=True)
        shown = touched[:most]
        for place, sector in enumerate(shown):
            x = left + place * (wide + gap)
            tip = f"bytes {sector * SECTOR} to {(sector + 1) * SECTOR - 1}"
            svg.box(x - 2, y + 50, wide + 4, 26, None, radius=3, line=1.2, tip=tip)
            for element in range(cells):
                lane, rest = divmod(sector * cells + element, stride)
                mine = rest == 0 and lane < LANES
                svg.box(
                    x + element * cell,
                    y + 53,
                    cell - 2,
                    20,
                    "codegen" if mine else None,
                    radius=2,
                    strength=0.45,
                    line=0.8,
                )
                if mine:
                    middle = x + element * cell + cell / 2 - 1
                    svg.path(
                        f"M{middle:.1f} {y + 24} V{y + 52}", stage="codegen", line=1, opacity=0.7
                    )
                    if stride > 1 or lane % 2 == 0:
                        svg.text(middle, y + 19, str(lane), SMALL, anchor="middle")
        if len(touched) > most:
            svg.text(
                left + most * (wide + gap) + 2,
                y + 67,
                f"… {len(touched) - most} more",
                SMALL,
                dim=True,
            )
        counts = (
            plural(len(touched), "sector"),
            f"{fetched} bytes fetched",
            f"{wanted / fetched:.1%} wanted",
        )
        lines.append(", ".join([f"stride {stride}", *counts]))
    caption = (
        f"One load of {LANES} lanes. On top the lanes, below the sectors of {SECTOR} bytes that they touch: tinted is what was "
        "asked for, the rest is fetched for nothing."
    )
    alt = f"Sectors that a load of {LANES} lanes touches: {'; '.join(lines)}."
    return Picture(
        f'<div class="cl-scroll">{svg.render(alt)}</div>', caption, alt, "\n".join(lines)
    )
