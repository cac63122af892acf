"""Which blocks of a matrix of scores a mask hides, which it cuts, and which it leaves whole: drawn
as tiles.

In:  a mask (true: the score counts), how long a block of rows and of columns is, and perhaps the
     columns that a kernel walks along.
Out: a `Picture`: a tile for each block. A thick frame goes round what the kernel computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from course_lib.viz.kit.arguments import ANYTHING, COUNT, Kind, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width

HIDDEN, PARTLY, WHOLE = "hidden", "cut", "whole"
SIGNS = {HIDDEN: "·", PARTLY: "◪", WHOLE: "■"}
"""How the plain form writes a block."""
WORDS = {
    HIDDEN: "hidden: nothing is computed",
    PARTLY: "cut: the mask is asked score by score",
    WHOLE: "whole: the mask hides nothing",
}
MOST = 40
"""Blocks in a row or column that can still be told apart."""
LARGEST, WIDEST = 34.0, 420.0
"""px: the side of a tile at most, and of all tiles together."""
TOP, LEFT, BESIDE = 30.0, 64.0, 26.0
"""px: room for the names of columns and rows, and between the tiles and the legend."""
LINE, SIGN = 26, 26
"""px: the height of a line of the legend, and from its tile to its words."""
STAGE = "scheduling"
WALKED = "in the thick frame: what the kernel walks along"

Walked = Sequence[tuple[int, int]]
"""For each block of rows: the first column that a kernel reads, and the one behind the last."""


def is_walk(value: Any) -> bool:
    """None, or pairs."""
    is_listed = value is None or isinstance(value, (list, tuple))
    return is_listed and all(isinstance(each, tuple) and len(each) == 2 for each in value or ())


WALK = Kind("a list of pairs, as shown_columns gives it, or None", is_walk)


class Counted(NamedTuple):
    """How often a kind of block is there."""

    kind: str
    blocks: int


@takes(mask=ANYTHING, rows=COUNT, columns=COUNT, walked=WALK)
def mask_blocks(mask: Any, rows: int, columns: int, walked: Walked | None = None) -> Picture:
    """Draw the blocks of `mask`, a matrix of truth values, `rows` × `columns` scores each.

    walked: for each block of rows the first column that the kernel reads, and the one behind the
    last (`shown_columns`).
    Raises ValueError for a mask that is no matrix, for more than 40 blocks in a direction, and for
    a `walked` of another length.
    """
    kinds = kinds_of(mask, rows, columns)
    down, across = len(kinds), len(kinds[0])
    if walked is not None and len(walked) != down:
        raise ValueError(
            f"walked has {plural(len(walked), 'pair')}, and there are {down} rows of blocks"
        )

    # All tiles are squares of one size, whatever their rows and columns
    side = min(LARGEST, WIDEST / max(down, across))
    counts = [Counted(kind, sum(row.count(kind) for row in kinds)) for kind in SIGNS]
    legend = [f"{count} {WORDS[kind]}" for kind, count in counts]
    if walked is not None:
        legend.append(WALKED)

    right = LEFT + across * side + BESIDE
    width = right + SIGN + max(text_width(line) for line in legend) + 24
    svg = Svg(width, max(TOP + down * side, TOP + LINE * len(legend)) + 6)
    draw_names(svg, rows, columns, (down, across), side)
    for y, row in enumerate(kinds):
        for x, kind in enumerate(row):
            draw_tile(svg, LEFT + x * side, TOP + y * side, side, kind)
    # In blocks: a walk may begin within one, and is drawn to the end of the last.
    for y, (first, last) in enumerate(walked or ()):
        draw_frame(svg, TOP + y * side, side, first / columns, -(-last // columns))
    draw_legend(svg, right, counts, walked is not None)

    text = "\n".join(["".join(SIGNS[kind] for kind in row) for row in kinds] + legend)
    alt = f"{down} × {across} blocks of scores. {'; '.join(legend)}."
    caption = f"Blocks of {rows} rows and {columns} columns: {counts[0].blocks} of {down * across} need not be computed."
    return Picture(svg.framed(alt), caption, alt, text)


def kinds_of(mask: Any, rows: int, columns: int) -> list[list[str]]:
    """The kind of each block, from the mask's elements. Raises what `mask_blocks` promises of the
    mask."""
    table = [[bool(each) for each in row] for row in as_matrix(mask)]
    height, width = len(table), len(table[0])
    down, across = -(-height // rows), -(-width // columns)
    if max(down, across) > MOST:
        raise ValueError(
            f"{down} × {across} blocks are too many to draw: at most {MOST} in a direction"
        )

    def kind(y: int, x: int) -> str:
        lines = table[y * rows : (y + 1) * rows]
        inside = [each for line in lines for each in line[x * columns : (x + 1) * columns]]
        if not any(inside):
            return HIDDEN
        return WHOLE if all(inside) else PARTLY

    return [[kind(y, x) for x in range(across)] for y in range(down)]


def as_matrix(mask: Any) -> list[list[Any]]:
    """Rows of truth values. Raises ValueError for what is no matrix."""
    listed = mask
    if hasattr(mask, "tolist"):
        listed = mask.tolist()
    is_matrix = isinstance(listed, list) and listed and all(isinstance(row, list) for row in listed)
    if not is_matrix or len({len(row) for row in listed}) != 1 or not listed[0]:
        raise ValueError(
            "mask is a matrix of truth values: as many rows as queries, as many columns as keys"
        )
    return listed


# ---- the drawing ---------------------------------------------------------------------------------


def draw_names(svg: Svg, rows: int, columns: int, count: tuple[int, int], side: float) -> None:
    """What runs down and across, and the first row or column of the first block and of the last."""
    down, across = count
    svg.text(LEFT, 12, "keys (columns)", SMALL, dim=True)
    svg.text(LEFT, TOP - 4, "0", SMALL, dim=True)
    if across > 1:
        last = str((across - 1) * columns)
        svg.text(LEFT + across * side, TOP - 4, last, SMALL, anchor="end", dim=True)
    svg.text(LEFT - 8, TOP + 12, "query 0", SMALL, anchor="end", dim=True)
    if down > 1:
        last = str((down - 1) * rows)
        svg.text(LEFT - 8, TOP + down * side - 4, last, SMALL, anchor="end", dim=True)


def draw_tile(svg: Svg, x: float, y: float, side: float, kind: str) -> None:
    """A tint says how much of it counts; a tile that the mask cuts has a diagonal, one that is
    hidden is dashed."""
    inset = max(1.0, side / 16)
    size = side - 2 * inset
    x, y = x + inset, y + inset
    if kind == HIDDEN:
        dashed = side > 12  # A smaller one has no room for dashes
        svg.box(x, y, size, size, None, radius=0, line=0.6, dashed=dashed, tip=WORDS[kind])
        return
    strength = 0.55 if kind == WHOLE else 0.2
    svg.box(x, y, size, size, STAGE, radius=0, strength=strength, line=1.1, tip=WORDS[kind])
    if kind == PARTLY:
        svg.path(f"M{x:.1f} {y:.1f} l{size:.1f} {size:.1f}", stage=STAGE, line=1.4)


def draw_frame(svg: Svg, y: float, side: float, first: float, last: int) -> None:
    """Round the blocks of a row that the kernel walks along."""
    if last > first:
        svg.box(LEFT + first * side, y, (last - first) * side, side, None, radius=0, line=2.4)


def draw_legend(svg: Svg, x: float, counts: Sequence[Counted], framed: bool) -> None:
    """A tile of each kind, how many there are, and what it means."""
    y = TOP
    for kind, count in counts:
        draw_tile(svg, x, y, 18, kind)
        svg.text(x + SIGN, y + 14, f"{count} {WORDS[kind]}")
        y += LINE
    if framed:
        svg.box(x + 1, y + 1, 16, 16, None, radius=0, line=2.4)
        svg.text(x + SIGN, y + 14, WALKED)
