"""Tensors as memory: which element of a view lies where, and how a reduction collapses a dimension.

In:  small tensors (at most two dimensions). Out: `Picture`s.

`index_map` draws each tensor as a grid whose cells say where in memory they lie, over a strip that
is the memory itself. Several views of one tensor stand side by side: the memory is the same, the
way through it is not.
In PyTorch there is no such picture; `tensor.stride()` and `tensor.storage_offset()` are what it
shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from course_lib.lowering.ops import linear_index
from course_lib.viz.kit.arguments import TENSOR, TEXT, named, takes, whole
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.lowering.loop_formulas import symbols

CELL, PLACE = 30.0, 20.0
"""px: an element of a grid, and a place in memory."""
GAP, WIDEST = 44.0, 755.0
"""px: between two tensors, and the widest that a line of them may become."""
ABOVE, BELOW, LINE_GAP = 42, 64, 18
"""px: above a grid (name and strides), below it (the formula and the memory), and between two lines
of tensors."""
STRIP, FORMULA = 32, 42
"""px: from the bottom of a tensor's drawing up to the top of its memory, and up to the base line of
its formula."""
MOST_PLACES, MOST_CELLS = 40, 80
"""Larger tensors are not drawn."""
FIRST, OTHERS = 0.5, 0.14
"""How strong the tints of the first row and of the others are."""


class Map:
    """One tensor: where each of its elements lies in memory, and the formula that says so."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name = name
        self.shape = tuple(tensor.shape)
        self.stride = tuple(tensor.stride())
        self.offset = tensor.storage_offset()
        self.places = tensor.untyped_storage().nbytes() // tensor.element_size()
        if tensor.ndim not in (1, 2) or tensor.numel() > MOST_CELLS or self.places > MOST_PLACES:
            raise ValueError(
                f"{name} is too large to draw: one or two dimensions, at most {MOST_PLACES} places in memory"
            )

        # The same view of a memory that holds the number of each place
        flat = torch.arange(self.places).as_strided(self.shape, self.stride, self.offset)
        self.rows: list[list[int]] = flat.tolist() if tensor.ndim == 2 else [flat.tolist()]
        self.formula = str(linear_index(symbols(tensor.ndim), self.stride, self.offset))

    @property
    def reads(self) -> Counter[int]:
        """Place in memory → how many elements of the tensor lie there."""
        return Counter(place for row in self.rows for place in row)

    @property
    def lies_at(self) -> str:
        """'[i, j] lies at 4*i + j'."""
        return f"[{index_names(len(self.shape))}] lies at {self.formula}"

    @property
    def strides(self) -> str:
        return f"strides {self.stride}, offset {self.offset}"

    @property
    def width(self) -> float:
        grid = len(self.rows[0]) * CELL if self.rows else 0
        texts = (
            text_width(self.name, mono=True),
            text_width(self.lies_at, SMALL, mono=True),
            text_width(self.strides, SMALL, mono=True),
        )
        return max(self.places * PLACE, grid, *texts)

    def text(self) -> str:
        """The grid in words."""
        cells = [[str(place) for place in row] for row in self.rows]
        reads = self.reads
        usage = f"{len(reads)} of {plural(self.places, 'place')} in memory"
        if reads and min(reads.values()) > 1:
            usage += f", each read {max(reads.values())} times"

        head = f"{self.name}: shape {self.shape}, {self.strides}"
        grid = columns(cells, indent="    ")
        return f"{head}\n    {self.lies_at}\n{grid}\n    {usage}"

    def draw(self, svg: Svg, x: float, y: float, tall: float) -> None:
        """With its top left corner at (x, y); the strip of memory ends `tall` px below it."""
        svg.text(x, y + 14, self.name, bold=True, mono=True)
        svg.text(x, y + 32, self.strides, SMALL, mono=True, dim=True)
        for i, row in enumerate(self.rows):
            for j, place in enumerate(row):
                draw_element(svg, x + j * CELL, y + ABOVE + i * CELL, place, i == 0)

        svg.text(x, y + tall - FORMULA, self.lies_at, SMALL, mono=True)
        reads = self.reads
        first = set(self.rows[0]) if self.rows else set()
        for place in range(self.places):
            left = x + place * PLACE
            draw_place(svg, left, y + tall, place, reads[place], place in first)


def draw_element(svg: Svg, x: float, y: float, place: int, in_first_row: bool) -> None:
    """An element of the tensor: a cell that says where in memory it lies."""
    strength, line = (FIRST, 2.4) if in_first_row else (OTHERS, 1.2)
    size = CELL - 3
    svg.box(x, y, size, size, "lowering", radius=3, strength=strength, line=line)
    svg.text(x + size / 2, y + 18, str(place), SMALL, anchor="middle", bold=in_first_row)


def draw_place(svg: Svg, x: float, bottom: float, place: int, reads: int, strong: bool) -> None:
    """A place in memory; dashed if no element lies there."""
    unread = reads == 0
    stage, strength, how_often = "runtime", 0.0, "not read"
    if not unread:
        stage, how_often = "lowering", f"read {plural(reads, 'time')}"
        strength = FIRST if strong else OTHERS

    line = 2.4 if strong else 1.0
    tip = f"place {place}: {how_often}"
    where = (x, bottom - STRIP, PLACE - 1.5, 24)
    svg.box(*where, stage, radius=1, strength=strength, line=line, dashed=unread, tip=tip)
    svg.text(x + PLACE / 2 - 1, bottom - 15.5, str(place), 11, anchor="middle", dim=unread)


def index_names(count: int) -> str:
    return ", ".join(map(str, symbols(count)))


@takes(tensors=named(TENSOR, "name → tensor"))
def index_map(tensors: Mapping[str, torch.Tensor]) -> Picture:
    """Name → tensor, each drawn as a grid of places over the memory it lies in.

    The first row stands out in both.

    Raises ValueError for a tensor of no or more than two dimensions, or one too large to draw."""
    if not tensors:
        raise ValueError("an index map needs at least one tensor")

    maps = [Map(name, tensor) for name, tensor in tensors.items()]
    lines = in_lines(maps)
    # All tensors of a line are as tall as the one with the most rows.
    heights = [
        ABOVE + BELOW + CELL * max(len(view_map.rows) for view_map in line) for line in lines
    ]
    width = max(width_of(line) for line in lines) - GAP + 6
    svg = Svg(width, sum(heights) + LINE_GAP * len(lines))

    top = 0.0
    for line, tall in zip(lines, heights, strict=True):
        left = 2.0
        for view_map in line:
            view_map.draw(svg, left, top, tall)
            left += view_map.width + GAP
        top += tall + LINE_GAP

    caption = "Each cell says where in memory it lies; below, the memory. The first row is marked in both. Dashed: never read."
    places_in_words = "; ".join(f"{view_map.name}: element {view_map.lies_at}" for view_map in maps)
    text = "\n\n".join(view_map.text() for view_map in maps)
    return Picture(svg.render(f"{places_in_words}."), caption, f"{places_in_words}.", text)


def width_of(line: Sequence[Map]) -> float:
    """px, with the gap behind the last."""
    return sum(view_map.width + GAP for view_map in line)


def in_lines(maps: Sequence[Map]) -> list[list[Map]]:
    """The maps in lines: as many in each as fit side by side."""
    lines: list[list[Map]] = [[]]
    for view_map in maps:
        if lines[-1] and width_of(lines[-1]) + view_map.width > WIDEST:
            lines.append([])
        lines[-1].append(view_map)
    return lines


# ---- reductions ----------------------------------------------------------------------------------

REDUCTIONS = ("sum", "prod", "mean", "amax", "amin", "argmax", "argmin", "any", "all")
"""Methods of a tensor that take a dimension and give one number for each row or column."""
MOST_ROWS = 8
"""A matrix has at most so many rows, and as many columns."""
LEFT, TOP, WIDE = 40.0, 42.0, 46.0
"""px: where the matrix stands, and from one number of a row to the next."""
NUMBER = 42
"""px: the width of the box of a number."""


@takes(x=TENSOR, kind=TEXT)
def collapse(x: torch.Tensor, dim: int, kind: str = "sum") -> Picture:
    """A small matrix and its reduction over `dim`: what is kept and what is combined.

    kind: a method of tensors, one of `REDUCTIONS`. Raises ValueError for what is no matrix of at
    most 8 × 8."""
    if x.ndim != 2 or max(x.shape) > MOST_ROWS or not x.numel():
        raise ValueError(
            f"only a matrix of at most {MOST_ROWS} × {MOST_ROWS} is drawn, not {list(x.shape)}"
        )
    # (-1 is the last dimension, and -2 the first)
    dim = whole(dim, "the dimension of collapse is a whole number", least=-2, most=1) % 2
    if kind not in REDUCTIONS:
        raise ValueError(f"collapse knows no {kind!r}: take one of {', '.join(REDUCTIONS)}")

    rows = [[f"{value:g}" for value in row] for row in x.tolist()]
    result = [f"{value:g}" for value in getattr(x, kind)(dim).tolist()]
    drawing = Rows(rows, result) if dim == 1 else Columns(rows, result)
    svg = drawing.drawn(kind)

    caption = (
        "What is combined lies within one band; for each band one element of the result is written."
    )
    shape = f"{len(rows)} × {len(rows[0])}"
    alt = f"The {kind} over dimension {dim} of a {shape} matrix: {', '.join(result)}."
    text = f"{drawing.text()}   ({kind} of each {drawing.each})"
    return Picture(svg.render(alt), caption, alt, text)


@dataclass(frozen=True)
class Reduced:
    """A matrix and its result as texts.

    The two classes below combine rows, or columns, and say where everything lies."""

    rows: list[list[str]]
    result: list[str]

    # What is combined to one element ("row"), and the line of words above the matrix
    each = ""
    says = ""

    @property
    def height(self) -> float:
        return CELL * len(self.rows)

    @property
    def width(self) -> float:
        return WIDE * len(self.rows[0])

    def size(self) -> tuple[float, float]:
        """The whole drawing, px."""
        raise NotImplementedError

    def band(self, number: int) -> tuple[float, float, float, float]:
        """x, y, width and height of what is combined to one element."""
        raise NotImplementedError

    def place(self, number: int) -> tuple[float, float]:
        """Where an element of the result stands."""
        raise NotImplementedError

    def arrow(self, number: int) -> list[tuple[float, float]]:
        """The points of an arrow from the cells that are combined (`band`) to their result."""
        raise NotImplementedError

    def name_at(self) -> tuple[float, float]:
        """Where the name of the reduction is written."""
        raise NotImplementedError

    def text(self) -> str:
        """The picture in words."""
        raise NotImplementedError

    def drawn(self, kind: str) -> Svg:
        """The drawing; the first band and its result stand out."""
        svg = Svg(*self.size())
        svg.text(LEFT, 16, self.says, SMALL, dim=True)
        for number, value in enumerate(self.result):
            first = number == 0
            strength, line = (FIRST, 2.4) if first else (OTHERS, 1.2)
            svg.box(*self.band(number), "lowering", radius=5, strength=strength, line=line)
            svg.arrow(self.arrow(number), line=1.2)

            x, y = self.place(number)
            svg.box(x, y, NUMBER, CELL - 3, "lowering", radius=3, strength=strength, line=line)
            svg.text(x + NUMBER / 2, y + 18, value, SMALL, anchor="middle", bold=first)

        for i, row in enumerate(self.rows):
            for j, value in enumerate(row):
                x, y = LEFT + j * WIDE + NUMBER / 2, TOP + i * CELL + 17
                svg.text(x, y, value, SMALL, anchor="middle")
        svg.text(*self.name_at(), f"{kind} of each {self.each}", SMALL)
        return svg


class Rows(Reduced):
    """Each row is combined; the result stands on the right."""

    each = "row"
    says = "[i, j]: i is kept, j is combined"

    def size(self) -> tuple[float, float]:
        # Right of the matrix: an arrow, the result, and the name of the reduction
        return LEFT + self.width + 230, TOP + self.height + 20

    def band(self, number: int) -> tuple[float, float, float, float]:
        return LEFT - 4, TOP + number * CELL - 2, self.width + 4, CELL - 1

    def place(self, number: int) -> tuple[float, float]:
        return LEFT + self.width + 50, TOP + number * CELL

    def arrow(self, number: int) -> list[tuple[float, float]]:
        x, y = self.place(number)
        return [(LEFT + self.width + 6, y + 13), (x - 6, y + 13)]

    def name_at(self) -> tuple[float, float]:
        return LEFT + self.width + 102, TOP + 18

    def text(self) -> str:
        return columns([[*row, "→", value] for row, value in zip(self.rows, self.result)])


class Columns(Reduced):
    """Each column is combined; the result stands below."""

    each = "column"
    says = "[i, j]: j is kept, i is combined"

    def size(self) -> tuple[float, float]:
        # Below the matrix: an arrow, and the result with the name of the reduction on its right
        return LEFT + self.width + 170, TOP + self.height + 84

    def band(self, number: int) -> tuple[float, float, float, float]:
        return LEFT + number * WIDE - 2, TOP - 4, NUMBER + 2.0, self.height + 4

    def place(self, number: int) -> tuple[float, float]:
        return LEFT + number * WIDE, TOP + self.height + 36

    def arrow(self, number: int) -> list[tuple[float, float]]:
        x, y = self.place(number)
        middle = x + NUMBER / 2
        return [(middle, TOP + self.height + 4), (middle, y - 5)]

    def name_at(self) -> tuple[float, float]:
        return LEFT + self.width + 6, TOP + self.height + 54

    def text(self) -> str:
        return columns([*self.rows, ["↓"] * len(self.result), self.result])
