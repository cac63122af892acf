"""How a Triton kernel covers its tensor: tiles, the programs that have them, and the lanes that a
mask switches off.

In:  a `TritonSource` (`trace.tiles()` finds it), and the tile sizes if not those that a GPU would
     get.
Out: a `Picture`. A box is a tile; what is tinted lies in the tensor, what is dashed is masked; an
     arrow leads to the tile that the same program has next. Of many tiles the first and the last
     are drawn. `product_tiles` draws those of a matrix product.
In PyTorch there is no such picture; `TORCH_LOGS=output_code` shows the `xnumel`, `XBLOCK` and masks
that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from course_lib.codegen.triton import ProductTiling
from course_lib.viz.kit.arguments import takes, with_attributes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.pictures.codegen.product_tiles import product_map
from course_lib.viz.pictures.codegen.tile_parts import (
    ABOVE,
    CODEGEN,
    GAP,
    HALF_LETTER,
    STEP,
    TALL,
    TITLE_LINE,
    TOP,
    drawn,
    left_out,
    numbers_drawn,
    sizes_in_words,
    span,
    tile,
)

WIDE = 128.0
"""px: how wide a tile is."""
LEFT = 140.0
"""px: the least room for the names of programs, left of their tiles."""
SUMS = 80.0
"""px: how wide the sums are that a program leaves behind its last tile."""
MOST_COLUMNS, MOST_ROWS = 16, 4
"""The lanes of a tile are drawn one by one up to so many columns and rows."""


class Cover:
    """Which elements every tile of a kernel has.

    A program has a few rows (or elements) and one tile for all columns; or it walks along the
    columns; or, where sums are gathered down the columns, along its chunk of rows."""

    def __init__(self, tiling: Any, meta: Mapping[str, int]) -> None:
        # The size of a tile, in elements
        self.tall = meta.get("ROWS", meta.get("BLOCK", 1))
        self.across = meta.get("COLUMNS", 1)

        # The size of the tensor. A flat one (elements without rows and columns) has no columns, and
        # its elements count as rows. If chunks of rows are summed, `tiling.rows` is one chunk.
        self.columns = max(1, tiling.columns)
        self.rows = tiling.rows * (tiling.chunks or 1)
        self.is_flat = not tiling.columns

        # What a program has. `persistent`: its tile has all columns, so it takes no steps.
        self.programs = tiling.programs(meta)
        self.persistent = tiling.persistent
        self.chunks = tiling.chunks
        if self.chunks:
            self.rows_each = tiling.rows
            self.steps = -(-self.rows_each // self.tall)
        else:
            self.rows_each = self.tall
            self.steps = -(-self.columns // self.across)

    @property
    def lanes(self) -> int:
        """How many lanes all tiles have together."""
        return self.programs * self.steps * self.tall * self.across

    @property
    def idle(self) -> float:
        """The share of all lanes that are masked, in percent."""
        return 100 * (1 - self.rows * self.columns / self.lanes)

    def row_span(self, program: int) -> tuple[int, int]:
        """The first row of a program, and the one after its last."""
        first = program * self.rows_each
        return first, min(first + self.rows_each, self.rows)

    def rows_in_words(self, program: int) -> str:
        """'rows 8 to 9', or 'elements 900 to 999' of a tensor without columns."""
        kind = "element" if self.is_flat else "row"
        return span(kind, *self.row_span(program))

    def inside(self, program: int, step: int) -> tuple[float, float]:
        """How much of a tile lies in the tensor: shares of its rows and of its columns."""
        first, end = self.row_span(program)
        left = 0
        if self.chunks:
            first += step * self.tall
        else:
            left = step * self.across

        rows = min(end - first, self.tall)
        columns = min(self.columns - left, self.across)
        return rows / self.tall, columns / self.across

    def masked(self, program: int) -> int:
        """How many lanes of a program are masked."""
        first, end = self.row_span(program)
        return self.lanes // self.programs - (end - first) * self.columns

    def heading(self, step: int) -> str:
        """What the tiles of one step have in common."""
        if self.chunks:
            return span("row", step * self.tall, min((step + 1) * self.tall, self.rows_each), "+")
        return span("column", step * self.across, min((step + 1) * self.across, self.columns))

    @property
    def walk(self) -> str:
        """How a program goes through what it has."""
        steps = plural(self.steps, "step")
        if self.is_flat:
            return ""
        if self.chunks:
            rows = plural(self.rows_each, "row")
            return f"; each walks down its {rows} in {steps} and sums on the way"
        if self.persistent:
            return "; each holds its rows at once"
        return f"; each walks its rows in {steps}"


@takes(
    source=with_attributes(
        "the source of a Triton kernel (trace.tiles() finds it)", "tiling", "name"
    )
)
def tile_map(source: Any, meta: Mapping[str, int] | None = None, title: str = "") -> Picture:
    """The tiles of one kernel.

    meta: tile sizes to be other than they are (`ROWS` and `COLUMNS`, with `DEPTH` for a product; or
    `BLOCK`).
    Raises ValueError for one that it does not have."""
    # A kernel that serves all sizes is drawn with the tiles of the recorded call.
    tiling = source.tiling.in_this_call
    sizes = tile_sizes(tiling, meta or {})
    name = title or source.name
    if isinstance(tiling, ProductTiling):
        return product_map(tiling, sizes, name)

    cover = Cover(tiling, sizes)
    if not cover.lanes:
        raise ValueError(f"{name} writes an empty tensor: no program is started")

    caption = f"{plural(cover.programs, 'program')} with {sizes_in_words(sizes)}{cover.walk}."
    caption += f" Tinted: in the tensor; dashed: masked, {cover.idle:.1f} % of all lanes."
    return drawn(drawing(cover, name), name, caption, in_words(cover))


def tile_sizes(tiling: Any, wanted: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a GPU would get, but for those `wanted`.

    Raises ValueError for one that the tiles do not have."""
    # What is not in capitals (how many steps are fetched ahead) is no size of a tile.
    usual = {name: size for name, size in tiling.meta(interpreted=False).items() if name.isupper()}
    other = {name: size for name, size in wanted.items() if name.isupper()}
    unknown = sorted(other.keys() - usual.keys())
    if unknown:
        raise ValueError(
            f"this kernel's tiles have no size {', '.join(unknown)}; they have {', '.join(usual)}"
        )
    return usual | other


def in_words(cover: Cover) -> list[tuple[str, str, str]]:
    """A line for each program that is drawn: its name, its rows, its masked lanes."""
    lines = []
    for program in numbers_drawn(cover.programs):
        if program is None:
            # It stands for all programs that are left out.
            lines.append(("…", "", ""))
        else:
            masked = f"{plural(cover.masked(program), 'lane')} masked"
            lines.append((f"program {program:,}", cover.rows_in_words(program), masked))
    return lines


# ---- the drawing ---------------------------------------------------------------------------------


def drawing(cover: Cover, name: str) -> Svg:
    """A line of tiles for each program."""
    programs, steps = numbers_drawn(cover.programs), numbers_drawn(cover.steps)
    rows = [cover.rows_in_words(program) for program in programs if program is not None]
    left = max(LEFT, *(16 + text_width(text, SMALL) for text in rows))

    # Behind its last tile a program has the box of its sums, or only a margin.
    after_tiles = SUMS + 4 if cover.chunks else 18
    width_of_tiles = left + len(steps) * (WIDE + STEP) + after_tiles
    width = max(width_of_tiles, text_width(name, mono=True) + 8)
    svg = Svg(width, TOP + len(programs) * (TALL + GAP) + 6)
    svg.text(4, TITLE_LINE, name, bold=True, mono=True)

    for number, program in enumerate(programs):
        y = TOP + number * (TALL + GAP)
        if program is None:
            # "… 12 more", in place of those that are left out
            svg.text(4, y + TALL / 2, left_out(cover.programs, programs), dim=True)
            continue
        svg.text(4, y + 18, f"program {program:,}", bold=True)
        svg.text(4, y + 35, cover.rows_in_words(program), SMALL, dim=True)
        headed = number == 0 and not cover.is_flat
        draw_program(svg, cover, program, left, y, headed)
    return svg


def draw_program(svg: Svg, cover: Cover, program: int, left: float, y: float, headed: bool) -> None:
    """The tiles of one program, in the order in which it has them. headed: names stand above."""
    steps = numbers_drawn(cover.steps)
    for number, step in enumerate(steps):
        x = left + number * (WIDE + STEP)
        if step is None:
            place = (x + WIDE / 2, y + TALL / 2 + HALF_LETTER)
            svg.text(*place, left_out(cover.steps, steps), SMALL, anchor="middle", dim=True)
        else:
            draw_tile(svg, cover, x, y, cover.inside(program, step))
            if headed:
                svg.text(x, TOP - ABOVE, cover.heading(step), SMALL, dim=True)

        # To the next tile, and behind the last one to the sums
        if number + 1 < len(steps) or cover.chunks:
            ends = [(x + WIDE + 4, y + TALL / 2), (x + WIDE + STEP - 4, y + TALL / 2)]
            svg.arrow(ends, stage=CODEGEN, line=1.2)

    if cover.chunks:
        draw_sums(svg, left + len(steps) * (WIDE + STEP), y, headed)


def draw_sums(svg: Svg, x: float, y: float, headed: bool) -> None:
    """What a program stores once it has walked down its rows."""
    tip = "stored when the walk is over"
    top = y + TALL / 2 - 6
    svg.box(x, top, SUMS, 12, "scheduling", radius=0, strength=0.35, line=1.6, tip=tip)
    if headed:
        svg.text(x, TOP - ABOVE, "its sums", SMALL, dim=True)


def draw_tile(svg: Svg, cover: Cover, x: float, y: float, inside: tuple[float, float]) -> None:
    """A tile; `inside`: the shares of its rows and of its columns that lie in the tensor.

    Its lanes are drawn where they are few enough to count."""
    rows, columns = cover.tall, cover.across
    tall, wide = inside
    if cover.is_flat:
        # Elements without rows and columns lie side by side.
        rows, columns = 1, cover.tall
        tall, wide = 1.0, inside[0]

    tile(svg, x, y, (WIDE, TALL), (wide, tall))
    if columns > MOST_COLUMNS or rows > MOST_ROWS:
        return

    for column in range(1, columns):
        line = f"M{x + WIDE * column / columns:.1f} {y} v{TALL}"
        svg.path(line, stage=CODEGEN, line=0.8, opacity=0.6)
    for row in range(1, rows):
        line = f"M{x} {y + TALL * row / rows:.1f} h{WIDE}"
        svg.path(line, stage=CODEGEN, line=0.8, opacity=0.6)
