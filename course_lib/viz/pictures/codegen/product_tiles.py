"""The tiles of a matrix product: both operands, the result, and what the first program walks along.

In:  the tiling of a product kernel, and the sizes of its tiles.
Out: a `Picture` (`tile_map` of `tiles` makes it). The operands are so placed that a tile of the
     result stands right of the rows and below the columns that its program reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from course_lib.codegen.triton import ProductTiling
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
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

SLIM, LOW = 36.0, 18.0
"""px: a step along k in the left operand, and in the right one."""
WIDE = 96.0
"""px: how wide a tile of the result is."""
READ, NOT_READ = 0.35, 0.08
"""How strong the tint of a tile is: one that program 0 reads or has, and the others."""


def program_of(down: int, across: int, tall: int, wide: int, together: int = 8) -> int:
    """Which program has this tile of a result of `tall` by `wide` tiles.

    `tl.swizzle2d` goes down `together` tiles (8 in `codegen/triton.py`), then on to the right."""
    # The first row of the band of tiles that this one lies in, and how many rows the band has
    first = down // together * together
    height = min(tall - first, together)
    return first * wide + across * height + down - first


@dataclass(frozen=True)
class Side:
    """One direction of a product: so many elements, cut into tiles of `tile` elements."""

    what: str
    size: int
    tile: int

    @property
    def tiles(self) -> int:
        return -(-self.size // self.tile)

    @property
    def drawn(self) -> list[int | None]:
        """The tiles that are drawn; None stands for those between."""
        return numbers_drawn(self.tiles)

    def words(self, at: int) -> str:
        """'rows 0 to 63': what a tile has."""
        return span(self.what, at * self.tile, min((at + 1) * self.tile, self.size))

    def inside(self, at: int | None) -> float:
        """The share of a tile that lies in the matrix.

        None, which stands for tiles in the middle, is as full as the first."""
        first = 0 if at is None else at * self.tile
        return min(self.size - first, self.tile) / self.tile


class Product:
    """The three directions of a product, and where in the drawing its tiles stand."""

    def __init__(self, tiling: ProductTiling, meta: Mapping[str, int]) -> None:
        self.rows = Side("row", tiling.rows, meta["ROWS"])
        self.columns = Side("column", tiling.columns, meta["COLUMNS"])
        self.depth = Side("k", tiling.depth, meta["DEPTH"])

        # The left operand, then the result; above the result the right operand
        names = [self.rows.words(down) for down in self.rows.drawn if down is not None]
        steps = len(self.depth.drawn)
        self.left = max(16 + text_width(text, SMALL) for text in names)
        self.middle = self.left + steps * SLIM + 2 * STEP
        self.below = TOP + steps * LOW + STEP
        self.right = self.middle + len(self.columns.drawn) * (WIDE + GAP)
        self.bottom = self.below + len(self.rows.drawn) * (TALL + GAP) + 6

    def x_of(self, place: int) -> float:
        """px: the left border of a column of the result, the first of those drawn being 0."""
        return self.middle + place * (WIDE + GAP)

    def y_of(self, place: int) -> float:
        """px: the upper border of a row of the result."""
        return self.below + place * (TALL + GAP)

    def program(self, down: int, across: int) -> int:
        return program_of(down, across, self.rows.tiles, self.columns.tiles)

    def masked(self, down: int, across: int) -> int:
        """How many lanes of a tile of the result are masked."""
        share_inside = self.rows.inside(down) * self.columns.inside(across)
        return round(self.rows.tile * self.columns.tile * (1 - share_inside))

    @property
    def idle(self) -> float:
        """The share of the lanes of all tiles of the result that are masked, in percent."""
        lanes = self.rows.tiles * self.rows.tile * self.columns.tiles * self.columns.tile
        return 100 * (1 - self.rows.size * self.columns.size / lanes)


def product_map(tiling: ProductTiling, meta: Mapping[str, int], name: str) -> Picture:
    """The tiles of a matrix product: left and right operand, the result, and what its first program
    walks along."""
    product = Product(tiling, meta)
    steps = plural(product.depth.tiles, "step")

    svg = Svg(max(product.right, text_width(name, mono=True) + 8), product.bottom)
    svg.text(4, TITLE_LINE, name, bold=True, mono=True)
    svg.text(product.left, product.below - ABOVE, f"left operand: {steps}", SMALL, dim=True)
    svg.text(product.middle - 8, TOP + 13, "right operand", SMALL, anchor="end", dim=True)
    draw_right_operand(svg, product)
    for place, down in enumerate(product.rows.drawn):
        draw_row(svg, product, place, down)
    draw_reads(svg, product)

    caption = f"{plural(tiling.programs(meta), 'program')} with {sizes_in_words(meta)}"
    if tiling.batch > 1:
        caption += f" for {tiling.batch:,} products, the first of which is drawn"
    caption += f". Each has one tile of the result and walks along k in {steps}; "
    caption += "what program 0 reads is filled. "
    if product.idle:
        caption += f"Dashed: masked, {product.idle:.1f} % of all lanes of the result."
    else:
        caption += "No lane of the result is masked."
    return drawn(svg, name, caption, in_words(product))


def in_words(product: Product) -> list[tuple[str, str, str, str]]:
    """A line for each tile of the result that is drawn: its program, rows, columns and masked
    lanes."""
    lines = []
    for down in product.rows.drawn:
        if down is None:
            lines.append(("…", "", "", ""))
            continue
        for across in product.columns.drawn:
            if across is not None:
                program = f"program {product.program(down, across):,}"
                rows, columns = product.rows.words(down), product.columns.words(across)
                masked = f"{plural(product.masked(down, across), 'lane')} masked"
                lines.append((program, rows, columns, masked))
    return lines


# ---- the drawing ---------------------------------------------------------------------------------


def draw_right_operand(svg: Svg, product: Product) -> None:
    """Above each column of the result the tiles that its programs walk down."""
    for place, across in enumerate(product.columns.drawn):
        if across is None:
            continue
        x = product.x_of(place)
        words = product.columns.words(across)
        if across > 0:
            # Only the first one is told what the numbers count.
            words = words.partition(" ")[2]
        svg.text(x, TOP - ABOVE, words, SMALL, dim=True)

        for number, step in enumerate(product.depth.drawn):
            y = TOP + number * LOW
            if step is None:
                draw_gap(svg, x, y, WIDE, LOW)
            else:
                inside = (product.columns.inside(across), product.depth.inside(step))
                tile(svg, x, y, (WIDE, LOW), inside, READ if across == 0 else NOT_READ)


def draw_row(svg: Svg, product: Product, place: int, down: int | None) -> None:
    """A row of tiles of the result, and left of it those of the left operand."""
    y = product.y_of(place)
    if down is None:
        svg.text(4, y + TALL / 2, left_out(product.rows.tiles, product.rows.drawn), dim=True)
        return
    svg.text(4, y + TALL / 2 + HALF_LETTER, product.rows.words(down), SMALL, dim=True)

    for number, step in enumerate(product.depth.drawn):
        x = product.left + number * SLIM
        if step is None:
            draw_gap(svg, x, y, SLIM, TALL)
        else:
            inside = (product.depth.inside(step), product.rows.inside(down))
            tile(svg, x, y, (SLIM, TALL), inside, READ if down == 0 else NOT_READ)

    for number, across in enumerate(product.columns.drawn):
        x = product.x_of(number)
        if across is None:
            text = left_out(product.columns.tiles, product.columns.drawn)
            base_line = y + TALL / 2 + HALF_LETTER
            svg.text(x + WIDE / 2, base_line, text, SMALL, anchor="middle", dim=True)
        else:
            draw_result(svg, product, (down, across), x, y)


def draw_result(svg: Svg, product: Product, at: tuple[int, int], x: float, y: float) -> None:
    """The tile `at` (down, across) of the result, with its program's number."""
    down, across = at
    is_first = down == across == 0
    rows, columns = product.rows.inside(down), product.columns.inside(across)
    tile(svg, x, y, (WIDE, TALL), (columns, rows), READ if is_first else NOT_READ)

    # The text stands in the middle of the tinted part, or below that part where a line has no room
    # in it.
    base_line = HALF_LETTER + TALL * rows / 2
    if rows <= 0.4:
        base_line = 14 + TALL * rows
    text = f"program {product.program(down, across):,}"
    svg.text(x + 6, y + base_line, text, SMALL, bold=is_first)


def draw_gap(svg: Svg, x: float, y: float, wide: float, tall: float) -> None:
    """In place of the tiles that are not drawn."""
    svg.text(x + wide / 2, y + tall / 2 + HALF_LETTER, "…", SMALL, anchor="middle", dim=True)


def draw_reads(svg: Svg, product: Product) -> None:
    """Arrows from both operands to the tile of program 0, across the room (a `STEP` or two) that
    is left between."""
    across = product.below + TALL / 2
    from_left = [(product.middle - 2 * STEP + 4, across), (product.middle - 4, across)]
    svg.arrow(from_left, stage=CODEGEN, line=1.2)

    down = product.middle + WIDE / 2
    from_above = [(down, product.below - STEP + 3), (down, product.below - 4)]
    svg.arrow(from_above, stage=CODEGEN, line=1.2)
