"""What the drawings of tiles share: sizes, which tiles are drawn, and the words for what a tile
has.

`tiles` draws the tiles of a kernel in loops, `product_tiles` those of a matrix product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.viz.kit.style import Picture
from course_lib.viz.kit.svg import Svg
from course_lib.viz.kit.tables import columns as table_text

TALL = 46.0
"""px: how tall a tile is."""
GAP, STEP = 10.0, 24.0
"""px: between two programs, and between two tiles of one program."""
TOP = 44.0
"""px: the room for the title and the names above the tiles."""
TITLE_LINE = 16
"""px: the base line of the title."""
HALF_LETTER = 4
"""px: a small text stands in the middle of something if its base line is so far below that."""
ABOVE = 8
"""px: the names of columns stand so far above what they name."""
MASKED = "masked lanes: neither read nor written"
"""The tip of a dashed tile."""

CODEGEN = "codegen"
"""The stage whose colour tiles have."""


def numbers_drawn(count: int, most: int = 4) -> list[int | None]:
    """Which of `count` things, numbered from 0, a picture draws: all if they are few, else the
    first and the last. One None between them stands for all that are left out."""
    if count <= most:
        return list(range(count))
    return [*range(most - 2), None, count - 1]


def left_out(count: int, drawn: Sequence[int | None]) -> str:
    """'… 12 more': for the None in `drawn`, which stands for all of the `count` that it lacks."""
    return f"… {count - len(drawn) + 1:,} more"


def span(what: str, first: int, end: int, sign: str = "") -> str:
    """'columns 0 to 299', or 'row 8' where it is one. `end` is the one behind the last; `sign`
    stands before the numbers."""
    if end - first > 1:
        return f"{what}s {sign}{first:,} to {end - 1:,}"
    return f"{what} {sign}{first:,}"


def sizes_in_words(meta: Mapping[str, int]) -> str:
    """'ROWS=4, COLUMNS=64'."""
    return ", ".join(f"{name}={size}" for name, size in meta.items())


def tile(
    svg: Svg,
    x: float,
    y: float,
    size: tuple[float, float],
    inside: tuple[float, float],
    strength: float = 0.35,
) -> None:
    """A tile whose `size` is (width, height) in px: dashed, and tinted where it lies in the tensor.

    inside: the shares of its width and of its height that lie in the tensor."""
    wide, tall = size
    svg.box(x, y, wide, tall, CODEGEN, radius=0, strength=0, line=1.2, dashed=True, tip=MASKED)

    wide, tall = wide * inside[0], tall * inside[1]
    svg.box(x, y, wide, tall, CODEGEN, radius=0, strength=strength, line=1.6)


def drawn(svg: Svg, name: str, caption: str, rows: Sequence[Sequence[str]]) -> Picture:
    """The picture of a kernel's tiles; `rows` say the same in words."""
    alt = f"Tiles of {name}: {caption}"
    drawing = f'<div class="cl-scroll">{svg.render(alt)}</div>'
    return Picture(drawing, caption, alt, f"{table_text(rows)}\n{caption}")
