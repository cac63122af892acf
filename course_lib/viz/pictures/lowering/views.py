"""Tensors as memory: which element of a view lies where, and how a reduction collapses a dimension.

In:  small tensors (at most two dimensions). Out: `Picture`s.

`index_map` draws each tensor as a grid whose cells say where in memory they lie, over a strip that is the memory itself. Several
views of one tensor stand side by side: the memory is the same, the way through it is not.
In PyTorch there is no such picture; `tensor.stride()` and `tensor.storage_offset()` are what it shows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from course_lib.lowering.ops import linear_index
from course_lib.viz.kit.asked import TENSOR, TEXT, named, takes, whole
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.lowering.loop_formulas import symbols

CELL, PLACE, GAP, WIDEST = 30.0, 20.0, 44.0, 755.0
MOST_PLACES, MOST_CELLS = 40, 80
FIRST, OTHERS = 0.5, 0.14
"""How strong the tints of the first row and of the others are."""


class Map:
    """One tensor: where each of its elements lies in memory, and the formula that says so."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.shape = name, tuple(tensor.shape)
        self.stride, self.offset = tuple(tensor.stride()), tensor.storage_offset()
        self.places = tensor.untyped_storage().nbytes() // tensor.element_size()
        if tensor.ndim not in (1, 2) or tensor.numel() > MOST_CELLS or self.places > MOST_PLACES:
            raise ValueError(
                f"{name} is too large to draw: one or two dimensions, at most {MOST_PLACES} places in memory"
            )
        flat = torch.arange(self.places).as_strided(self.shape, self.stride, self.offset)
        self.rows: list[list[int]] = flat.tolist() if tensor.ndim == 2 else [flat.tolist()]
        self.formula = str(linear_index(symbols(tensor.ndim), self.stride, self.offset))

    @property
    def reads(self) -> Counter[int]:
        """Place in memory → how many elements of the tensor lie there."""
        return Counter(place for row in self.rows for place in row)

    @property
    def width(self) -> float:
        lines = (
            f"[{index_names(len(self.shape))}] lies at {self.formula}",
            f"strides {self.stride}, offset {self.offset}",
        )
        named = max(text_width(line, SMALL, mono=True) for line in lines)
        return max(
            self.places * PLACE,
            len(self.rows[0]) * CELL if self.rows else 0,
            text_width(self.name, mono=True),
            named,
        )

    def text(self) -> str:
        """The grid in words."""
        head = f"{self.name}: shape {self.shape}, strides {self.stride}, offset {self.offset}"
        grid = columns([[str(place) for place in row] for row in self.rows], indent="    ")
        reads = self.reads
        used = f"    {len(reads)} of {plural(self.places, 'place')} in memory"
        used += (
            f", each read {max(reads.values())} times" if reads and min(reads.values()) > 1 else ""
        )
        return (
            f"{head}\n    [{index_names(len(self.shape))}] lies at {self.formula}\n{grid}\n{used}"
        )

    def draw(self, svg: Svg, x: float, y: float, tall: float) -> None:
        """With its top left corner at (x, y), the strip `tall` px below it."""
        svg.text(x, y + 14, self.name, bold=True, mono=True)
        svg.text(
            x, y + 32, f"strides {self.stride}, offset {self.offset}", SMALL, mono=True, dim=True
        )
        for i, row in enumerate(self.rows):
            for j, place in enumerate(row):
                strength, line = (FIRST, 2.4) if i == 0 else (OTHERS, 1.2)
                box = x + j * CELL, y + 42 + i * CELL
                svg.box(
                    *box, CELL - 3, CELL - 3, "lowering", radius=3, strength=strength, line=line
                )
                svg.text(
                    box[0] + (CELL - 3) / 2,
                    box[1] + 18,
                    str(place),
                    SMALL,
                    anchor="middle",
                    bold=i == 0,
                )
        svg.text(
            x,
            y + tall - 42,
            f"[{index_names(len(self.shape))}] lies at {self.formula}",
            SMALL,
            mono=True,
        )
        reads, first = self.reads, set(self.rows[0]) if self.rows else set()
        for place in range(self.places):
            unread, strong = place not in reads, place in first
            tip = f"place {place}: " + (
                f"read {plural(reads[place], 'time')}" if reads[place] else "not read"
            )
            svg.box(
                x + place * PLACE, y + tall - 32, PLACE - 1.5, 24, "runtime" if unread else "lowering", radius=1,
                strength=0 if unread else FIRST if strong else OTHERS, line=2.4 if strong else 1.0, dashed=unread, tip=tip,
            )  # fmt: skip
            svg.text(
                x + place * PLACE + PLACE / 2 - 1,
                y + tall - 15.5,
                str(place),
                11,
                anchor="middle",
                dim=unread,
            )


def index_names(count: int) -> str:
    return ", ".join(map(str, symbols(count)))


@takes(tensors=named(TENSOR, "name → tensor"))
def index_map(tensors: Mapping[str, torch.Tensor]) -> Picture:
    """Name → tensor, each drawn as a grid of places over the memory it lies in. The first row stands out in both.

    Raises ValueError for a tensor of no or more than two dimensions, or one too large to draw."""
    if not tensors:
        raise ValueError("an index map needs at least one tensor")
    maps = [Map(name, tensor) for name, tensor in tensors.items()]
    lines: list[list[Map]] = [[]]
    for one in maps:
        if lines[-1] and sum(m.width + GAP for m in lines[-1]) + one.width > WIDEST:
            lines.append([])
        lines[-1].append(one)
    heights = [106 + CELL * max(len(m.rows) for m in line) for line in lines]
    width = max(sum(m.width + GAP for m in line) for line in lines) - GAP + 6
    svg = Svg(width, sum(heights) + 18 * len(lines))
    top = 0.0
    for line, tall in zip(lines, heights, strict=True):
        left = 2.0
        for one in line:
            one.draw(svg, left, top, tall)
            left += one.width + GAP
        top += tall + 18
    caption = "Each cell says where in memory it lies; below, the memory. The first row is marked in both. Dashed: never read."
    alt = (
        "; ".join(
            f"{m.name}: element [{index_names(len(m.shape))}] lies at {m.formula}" for m in maps
        )
        + "."
    )
    return Picture(svg.render(alt), caption, alt, "\n\n".join(m.text() for m in maps))


# ---- reductions -----------------------------------------------------------------------------------------------------


REDUCTIONS = ("sum", "prod", "mean", "amax", "amin", "argmax", "argmin", "any", "all")


@takes(x=TENSOR, kind=TEXT)
def collapse(x: torch.Tensor, dim: int, kind: str = "sum") -> Picture:
    """A small matrix and its reduction over `dim` (`kind` is a method of tensors: "sum", "amax", ...): what is kept and what
    is combined. Raises ValueError for what is no matrix of at most 8 × 8."""
    if x.ndim != 2 or max(x.shape) > 8 or not x.numel():
        raise ValueError(f"only a matrix of at most 8 × 8 is drawn, not {list(x.shape)}")
    dim = whole(dim, "the dimension of collapse is a whole number", -2, 1)
    if kind not in REDUCTIONS:
        raise ValueError(f"collapse knows no {kind!r}: take one of {', '.join(REDUCTIONS)}")
    rows, result = x.tolist(), getattr(x, kind)(dim).tolist()
    across = dim % 2 == 1
    height, wide = CELL * len(rows), 46.0 * len(rows[0])
    left, top = 40.0, 42.0
    svg = Svg(left + wide + (230 if across else 170), top + height + (20 if across else 84))
    said = "[i, j]: i is kept, j is combined" if across else "[i, j]: j is kept, i is combined"
    svg.text(left, 16, said, SMALL, dim=True)
    for n, value in enumerate(result):
        first = n == 0
        if across:
            at, band = (
                (left + wide + 50, top + n * CELL),
                (left - 4, top + n * CELL - 2, wide + 4, CELL - 1),
            )
            path = [(left + wide + 6, at[1] + 13), (at[0] - 6, at[1] + 13)]
        else:
            at, band = (
                (left + n * 46.0, top + height + 36),
                (left + n * 46.0 - 2, top - 4, 44.0, height + 4),
            )
            path = [(at[0] + 21, top + height + 4), (at[0] + 21, at[1] - 5)]
        svg.box(
            *band,
            "lowering",
            radius=5,
            strength=FIRST if first else OTHERS,
            line=2.4 if first else 1.2,
        )
        svg.arrow(path, line=1.2)
        svg.box(
            *at,
            42,
            CELL - 3,
            "lowering",
            radius=3,
            strength=FIRST if first else OTHERS,
            line=2.4 if first else 1.2,
        )
        svg.text(at[0] + 21, at[1] + 18, f"{value:g}", SMALL, anchor="middle", bold=first)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            svg.text(left + j * 46 + 21, top + i * CELL + 17, f"{value:g}", SMALL, anchor="middle")
    place = (left + wide + 102, top + 18) if across else (left + wide + 6, top + height + 54)
    svg.text(*place, f"{kind} of each {'row' if across else 'column'}", SMALL)
    caption = (
        "What is combined lies within one band; for each band one element of the result is written."
    )
    alt = f"The {kind} over dimension {dim % 2} of a {len(rows)} × {len(rows[0])} matrix: {', '.join(f'{v:g}' for v in result)}."
    return Picture(svg.render(alt), caption, alt, as_text(rows, result, across, kind))


def as_text(rows: list[list[Any]], result: list[Any], across: bool, kind: str) -> str:
    cells = [[f"{value:g}" for value in row] for row in rows]
    if across:
        return (
            columns([[*row, "→", f"{total:g}"] for row, total in zip(cells, result, strict=True)])
            + f"   ({kind} of each row)"
        )
    return (
        columns([*cells, ["↓"] * len(result), [f"{v:g}" for v in result]])
        + f"   ({kind} of each column)"
    )
