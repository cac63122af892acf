"""A tile that moves over the tensor it covers: which program has which elements, and which of its lanes are masked.

In:  the shape of a small tensor, (n,) or (rows, columns), and that of a tile.
Out: `MoveTile`: a tile to drag, and a slider, where widgets live; in a saved notebook the last tile, and all of them as text.
     A number is a place in memory.

A vector has a program for each tile. A matrix has a program for each ROWS rows, which walks along them in steps of COLUMNS.
"""

from __future__ import annotations

from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from course_lib.viz.kit.asked import several, whole
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg
from course_lib.viz.kit.tables import columns
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("move_tile.js")
CELL, MOST_CELLS = 30, 640


class MoveTile(Live):
    """One tile after the other. `tiles` has the first row and column of each, in the order of programs and their steps."""

    def __init__(self, shape: tuple[int, ...], tile: tuple[int, ...]) -> None:
        shape, tile = (
            tuple(several(given, "shape and tile are both (n,) or both (rows, columns)"))
            for given in (shape, tile)
        )
        for size in (*shape, *tile):
            whole(
                size,
                "shape and tile are both (n,) or both (rows, columns): each is a whole number",
                1,
            )
        if len(shape) != len(tile) or len(shape) not in (1, 2):
            raise ValueError(
                f"shape and tile are both (n,) or both (rows, columns), of 1 and more; not {shape} and {tile}"
            )
        self.vector = len(shape) == 1
        self.rows, self.columns = (1, *shape)[-2:]
        self.tall, self.wide = (1, *tile)[-2:]
        self.tiles = list(
            product(range(0, self.rows, self.tall), range(0, self.columns, self.wide))
        )
        across, down = (
            -(-size // step) * step
            for size, step in ((self.columns, self.wide), (self.rows, self.tall))
        )
        if across * down > MOST_CELLS:
            raise ValueError(
                f"move_tile draws {MOST_CELLS} lanes at most, not {across * down}: take a smaller example"
            )
        self.across, self.down = across, down

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
        return [across] if self.vector else [f"i = {row} to {row + self.tall - 1}", across]

    def masked(self, number: int) -> int:
        row, column = self.tiles[number]
        inside = min(self.tall, self.rows - row) * min(self.wide, self.columns - column)
        return self.tall * self.wide - inside

    def frame(self, number: int) -> str:
        """The tensor, with one tile on it."""
        svg = Svg(self.across * CELL + 4, self.down * CELL + 4)
        top, left = self.tiles[number]
        before = set(self.tiles[:number])
        for row, column in product(range(self.down), range(self.across)):
            x, y, exists = (
                2 + column * CELL,
                2 + row * CELL,
                row < self.rows and column < self.columns,
            )
            here = top <= row < top + self.tall and left <= column < left + self.wide
            done = (row // self.tall * self.tall, column // self.wide * self.wide) in before
            if exists:
                strength = 0.5 if here else 0.14 if done else 0.0
                svg.box(
                    x + 1,
                    y + 1,
                    CELL - 2,
                    CELL - 2,
                    "codegen" if strength else None,
                    radius=2,
                    strength=strength,
                    line=0.8,
                )
                place = str(row * self.columns + column)
                svg.text(
                    x + CELL / 2,
                    y + CELL / 2 + 4,
                    place,
                    SMALL,
                    anchor="middle",
                    bold=here,
                    dim=not here,
                )
            elif here:
                svg.box(
                    x + 3,
                    y + 3,
                    CELL - 6,
                    CELL - 6,
                    "codegen",
                    radius=2,
                    strength=0,
                    line=1,
                    dashed=True,
                    tip="masked",
                )
        svg.box(
            2 + left * CELL,
            2 + top * CELL,
            self.wide * CELL,
            self.tall * CELL,
            "codegen",
            radius=3,
            strength=0,
            line=3,
        )
        return svg.render(
            f"{self.name(number)}: {', '.join(self.spans(number))}; {plural(self.masked(number), 'lane')} masked."
        )

    def said(self, number: int) -> str:
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

        numbers = range(len(self.tiles))
        grid = [self.tall, self.wide, -(-self.columns // self.wide), CELL]
        return MoveTileWidget(
            frames=[self.frame(n) for n in numbers], said=[self.said(n) for n in numbers], grid=grid
        )

    def __repr__(self) -> str:
        return self.picture.text


def move_tile(shape: tuple[int, ...], tile: tuple[int, ...]) -> MoveTile:
    """A tile of this shape, moved over a small tensor."""
    return MoveTile(shape, tile)
