"""How a GPU's threads share a tile, and what their loads fetch from memory.

In:  the numbers of Triton's `#blocked` layout; or how far apart neighbouring lanes read.
Out: `Picture`s. `tile_layout`: a cell for each thread, with the elements it has. `coalescing`: the
     lanes of a warp on top, below them the sectors of memory that one load touches; what is tinted
     is wanted, the rest comes along.
In PyTorch: the layouts are Triton's (`BlockedEncodingAttr`); Nsight Compute counts sectors for each
request.
"""

from __future__ import annotations

from collections.abc import Sequence

from course_lib.viz.kit.arguments import COUNT, each, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg

LANES = 32
"""Threads in a warp of NVIDIA's."""
SECTOR = 32
"""Bytes: memory is fetched in pieces of this size."""


CELL_WIDTH, CELL_GAP, CELL_LEFT = 128.0, 12, 70.0
"""px: from one thread's cell to the next; what stays free between; where the first begins."""
LINE = 18
"""The height of a line of text in a cell, px."""
HEAD = 26.0
"""px: the room for the names of lanes."""
SHOWN_LANES: list[int | None] = [0, 1, 2, None, LANES - 1]
"""The lanes that have a column. None is the gap between them, "…"."""


@takes(block=COUNT, per_thread=COUNT, warps=COUNT)
def tile_layout(block: int, per_thread: int, warps: int) -> Picture:
    """Which elements of a tile of `block` each thread has: `per_thread` neighbours, then again for
    the next round."""
    step = per_thread * LANES * warps
    if block % step:
        raise ValueError(
            f"{warps} warps of {LANES} threads with {per_thread} elements each share {step}, so no tile of {block}"
        )

    # A tile that is larger than one round of all threads is shared in several
    rounds = range(0, block, step)
    cell_height = float(LINE) * len(rounds) + 10
    row_height = cell_height + 8
    svg = Svg(CELL_LEFT + len(SHOWN_LANES) * CELL_WIDTH, HEAD + warps * row_height)
    for place, lane in enumerate(SHOWN_LANES):
        name = "…" if lane is None else f"lane {lane}"
        svg.text(middle_of(place), 14, name, SMALL, anchor="middle", dim=True)

    lines = []
    for warp in range(warps):
        y = HEAD + warp * row_height
        svg.text(0, y + cell_height / 2 + 4, f"warp {warp}", SMALL, bold=True)
        in_words = []
        for place, lane in enumerate(SHOWN_LANES):
            middle = middle_of(place)
            # Of 32 lanes the first and the last are shown
            if lane is None:
                svg.text(middle, y + cell_height / 2 + 4, "…", anchor="middle")
                continue

            x = CELL_LEFT + place * CELL_WIDTH
            width = CELL_WIDTH - CELL_GAP
            svg.box(x, y, width, cell_height, "codegen", radius=5, strength=0.22)
            elements = elements_of(warp * LANES + lane, per_thread, rounds)
            for row, text in enumerate(elements):
                svg.text(middle, y + LINE + LINE * row, text, SMALL, anchor="middle")
            in_words.append(f"lane {lane}: {', '.join(elements)}")
        lines.append(f"warp {warp}: {'; '.join(in_words)}")

    caption = (
        f"A tile of {block} elements for {plural(warps, 'warp')} of {LANES} lanes: a cell is a thread, its numbers are elements. "
        f"Neighbouring lanes have neighbouring elements."
    )
    drawing = f'<div class="cl-scroll">{svg.render(caption)}</div>'
    return Picture(drawing, caption, caption, "\n".join(lines))


def middle_of(place: int) -> float:
    """The x of the middle of a column."""
    return CELL_LEFT + place * CELL_WIDTH + CELL_WIDTH / 2 - CELL_GAP / 2


def elements_of(thread: int, per_thread: int, rounds: range) -> list[str]:
    """The elements that a thread has in each round: '4 to 7'.

    A round begins at each of `rounds`."""
    texts = []
    for start in rounds:
        first = start + thread * per_thread
        texts.append(f"{first} to {first + per_thread - 1}" if per_thread > 1 else str(first))
    return texts


def sectors(stride: int, size: int = 4) -> list[int]:
    """The numbers of the sectors that the lanes of a warp touch, if lane n reads element n *
    `stride` of `size` bytes."""
    return sorted({lane * stride * size // SECTOR for lane in range(LANES)})


@takes(strides=each(COUNT, "a list of whole numbers, 1 or more"), size=COUNT, most=COUNT)
def coalescing(strides: Sequence[int], size: int = 4, most: int = 6) -> Picture:
    """One load of a warp, for each of these distances between the elements of neighbouring
    lanes."""
    if not strides or SECTOR % size:
        raise ValueError(
            f"coalescing draws at least one stride, and elements that fill {SECTOR} bytes evenly, not of {size}"
        )
    # A band for each stride; in it a frame for each sector, and in that a cell for each element.
    # px: the width of a cell, between two sectors, where the first begins, the height of a band
    cells = SECTOR // size
    cell, gap, left, band = 11.3, 6.0, 98.0, 104.0
    wide = cells * cell
    room_for_more = 78
    svg = Svg(left + most * (wide + gap) + room_for_more, len(strides) * band)
    lines = []
    for number, stride in enumerate(strides):
        y = number * band
        touched = sectors(stride, size)
        fetched = len(touched) * SECTOR
        wanted = LANES * size
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
                # Lane n reads element n * stride: this one is read if nothing is left over.
                lane, rest = divmod(sector * cells + element, stride)
                is_used = rest == 0 and lane < LANES
                svg.box(
                    x + element * cell,
                    y + 53,
                    cell - 2,
                    20,
                    "codegen" if is_used else None,
                    radius=2,
                    strength=0.45,
                    line=0.8,
                )
                if is_used:
                    # A line up to the number of the lane. Neighbouring cells have no room for all
                    # numbers: every second one is written.
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
