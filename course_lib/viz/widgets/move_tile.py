"""A tile that moves over the tensor it covers: which program has which elements, and which of its
lanes are masked.

In:  the shape of a small tensor, (n,) or (rows, columns), and that of a tile.
Out: `MoveTile`: a tile to drag, and a slider, where widgets live; in a saved notebook the last
     tile, and all of them as text. A number is a place in memory.

A vector has a program for each tile. A matrix has a program for each ROWS rows, which walks along
them in steps of COLUMNS.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from course_lib.viz.kit.arguments import several, whole
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg
from course_lib.viz.kit.tables import columns
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("move_tile.js")
CELL, EDGE = 30, 2
"""px: from one element to the next, and what stays free left of them all and above."""
MOST_CELLS = 640
"""More lanes cannot be told apart."""
BOTH_ALIKE = "shape and tile are both (n,) or both (rows, columns)"
"""How the sentence of an error begins."""


class MoveTile(Live):
    """One tile after the other.

    `tiles` has the first row and column of each, in the order of programs and their steps."""

    def __init__(self, shape: tuple[int, ...], tile: tuple[int, ...]) -> None:
        shape = tuple(several(shape, BOTH_ALIKE))
        tile = tuple(several(tile, BOTH_ALIKE))
        for size in (*shape, *tile):
            whole(size, f"{BOTH_ALIKE}: each is a whole number", least=1)
        if len(shape) != len(tile) or len(shape) not in (1, 2):
            raise ValueError(f"{BOTH_ALIKE}, of 1 and more; not {shape} and {tile}")

        # A vector is drawn as a matrix of one row.
        self.vector = len(shape) == 1
        self.rows, self.columns = (1, *shape)[-2:]
        self.tall, self.wide = (1, *tile)[-2:]
        tops = range(0, self.rows, self.tall)
        lefts = range(0, self.columns, self.wide)
        self.tiles = list(product(tops, lefts))

        # The lanes of all tiles: those of the last ones may reach over the border of the tensor.
        self.across = len(lefts) * self.wide
        self.down = len(tops) * self.tall
        lanes = self.across * self.down
        if lanes > MOST_CELLS:
            raise ValueError(
                f"move_tile draws {MOST_CELLS} lanes at most, not {lanes}: take a smaller example"
            )

    def name(self, number: int) -> str:
        """'program 2', or 'program 0, step 3 of 3' where a program walks."""
        steps = -(-self.columns // self.wide)
        program, step = divmod(number, steps)
        if self.vector or steps == 1:
            return f"program {number}"
        return f"program {program}, step {step + 1} of {steps}"

    def spans(self, number: int) -> list[str]:
        """The indices of a tile's lanes: 'i = 4 to 5', 'j = 0 to 7'."""
        row, column = self.tiles[number]
        across = f"{'i' if self.vector else 'j'} = {column} to {column + self.wide - 1}"
        if self.vector:
            return [across]
        return [f"i = {row} to {row + self.tall - 1}", across]

    def masked(self, number: int) -> int:
        """How many lanes of a tile are masked."""
        row, column = self.tiles[number]
        cells_inside = min(self.tall, self.rows - row) * min(self.wide, self.columns - column)
        return self.tall * self.wide - cells_inside

    def frame(self, number: int) -> str:
        """The tensor, with one tile on it."""
        svg = Svg(self.across * CELL + 2 * EDGE, self.down * CELL + 2 * EDGE)
        top, left = self.tiles[number]
        before = set(self.tiles[:number])  # where the tile was already

        for row, column in product(range(self.down), range(self.across)):
            exists = row < self.rows and column < self.columns
            here = top <= row < top + self.tall and left <= column < left + self.wide
            tile = row // self.tall * self.tall, column // self.wide * self.wide
            if exists:
                self.draw_element(svg, row, column, here, done=tile in before)
            elif here:
                draw_masked_lane(svg, row, column)

        corner = EDGE + left * CELL, EDGE + top * CELL
        size = self.wide * CELL, self.tall * CELL
        svg.box(*corner, *size, "codegen", radius=3, strength=0, line=3)
        return svg.render(f"{self.said(number)}.")

    def draw_element(self, svg: Svg, row: int, column: int, here: bool, done: bool) -> None:
        """One element of the tensor: strong within the tile, pale where a tile was before."""
        strength = 0.0
        if here:
            strength = 0.5
        elif done:
            strength = 0.14
        colour = "codegen" if strength else None

        x, y = EDGE + column * CELL, EDGE + row * CELL
        side = CELL - 2
        svg.box(x + 1, y + 1, side, side, colour, radius=2, strength=strength, line=0.8)

        place = str(row * self.columns + column)
        middle = x + CELL / 2, y + CELL / 2 + 4
        svg.text(*middle, place, SMALL, anchor="middle", bold=here, dim=not here)

    def said(self, number: int) -> str:
        """'program 1: i = 4 to 7; 1 lane masked'."""
        return f"{self.name(number)}: {', '.join(self.spans(number))}; {plural(self.masked(number), 'lane')} masked"

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees: the last tile, which has the most to mask."""
        last = len(self.tiles) - 1
        caption = f"The last tile: {self.said(last)}. Numbers are places in memory. (Run the cell for a slider that moves it.)"
        rows = [
            (self.name(n), *self.spans(n), f"{plural(self.masked(n), 'lane')} masked")
            for n in range(last + 1)
        ]
        return Picture(
            f'<div class="cl-scroll">{self.frame(last)}</div>', caption, caption, columns(rows)
        )

    @cached_property
    def widget(self) -> Any:
        """The live form. Raises ImportError without `anywidget`."""
        import traitlets

        base: Any = widget_class(SCRIPT, "stepper")

        class MoveTileWidget(base):
            """Everything happens in move_tile.js."""

            frames: Any = traitlets.List().tag(sync=True)
            said: Any = traitlets.List().tag(sync=True)
            grid: Any = traitlets.List().tag(sync=True)
            index = traitlets.Int(0).tag(sync=True)

        # For move_tile.js: a tile's rows and columns, how many tiles stand side by side, px
        numbers = range(len(self.tiles))
        grid = [self.tall, self.wide, -(-self.columns // self.wide), CELL]
        return MoveTileWidget(
            frames=[self.frame(n) for n in numbers], said=[self.said(n) for n in numbers], grid=grid
        )

    def __repr__(self) -> str:
        return self.picture.text


def draw_masked_lane(svg: Svg, row: int, column: int) -> None:
    """A lane of the tile that has no element."""
    x, y = EDGE + column * CELL, EDGE + row * CELL
    side = CELL - 6
    svg.box(
        x + 3,
        y + 3,
        side,
        side,
        "codegen",
        radius=2,
        strength=0,
        line=1,
        dashed=True,
        tip="masked",
    )


def move_tile(shape: tuple[int, ...], tile: tuple[int, ...]) -> MoveTile:
    """A tile of this shape, moved over a small tensor."""
    return MoveTile(shape, tile)
