"""Which entry serves which size.

In:  a recording of compiled calls, and the sizes to ask about. Out: a `Picture`.
In PyTorch there is no such picture; `TORCH_LOGS="guards,recompiles,dynamic"` tells the same in
words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.frames import parameters
from course_lib.guards import Check
from course_lib.viz.kit.arguments import COUNT_OR_0, FUNCTION, RECORDED, each, named, shown, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, shorten, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.guards.symbolic_sizes import size_guards
from course_lib.viz.recording import Recording

ABOUT_THE_CALL = ("tensor", "type", "value", "sizes")
"""Kinds of guards that look at a call's own arguments; the others hold for one size as for
another."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
NONE = "✕"
"""In the cell of a size that no entry serves."""

# ---- the entries ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One capture of the function, with a letter, and the shapes of the call that it was made
    for."""

    letter: str
    result: Any
    check: Check

    def serves(self, function: Any, args: tuple[Any, ...]) -> bool:
        """Do the guards hold for a call with these arguments?"""
        return self.check(function, *args)

    def made_for(self, args: tuple[Any, ...]) -> bool:
        """Was it compiled by a call with arguments of these shapes?"""
        shapes = []
        for value in self.result.example_inputs:
            if isinstance(value, torch.Tensor):
                shapes.append(tuple(int(size) for size in value.shape))
        return all(tuple(arg.shape) in shapes for arg in args if isinstance(arg, torch.Tensor))

    def __str__(self) -> str:
        return f"{self.letter}: {' and '.join(size_guards(self.result)) or 'any size'}"


def entries_of(recording: Recording, code: Any) -> list[Entry]:
    """The captures of one function, in the order in which their guards are tried."""
    results = [result for result in recording.captures if result.name == code.co_qualname]
    names = parameters(code)
    # A to Z, then AA, AB, ...
    letters = map("".join, itertools.product(["", *LETTERS], LETTERS))

    entries = []
    for letter, result in zip(letters, results):
        guards = [guard for guard in result.guards if guard.kind in ABOUT_THE_CALL]
        entries.append(Entry(letter, result, Check(guards, names)))
    return entries


@dataclass(frozen=True)
class Asked:
    """What the entries are asked about: calls of `function` with the arguments that `make` gives
    for a size."""

    function: Any
    entries: list[Entry]
    own: tuple[Any, ...]  # the module, where the function is its `forward`
    make: Callable[..., Any]

    def arguments(self, *sizes: int) -> tuple[Any, ...]:
        args = self.make(*sizes)
        if isinstance(args, tuple):
            return args
        return (args,)

    def serving(self, args: tuple[Any, ...]) -> int | None:
        """The place of the entry that serves a call with these arguments; None if it compiles
        anew."""
        for number, entry in enumerate(self.entries):
            if entry.serves(self.function, (*self.own, *args)):
                return number
        return None


# ---- the map -------------------------------------------------------------------------------------

CELL, LEAST, TALL, GAP = 34.0, 22.0, 30.0, 4.0
"""px: a cell's width, the least that it may become, its height, and the gap to the next."""
TOP, BASE_LINE = 42, 20
"""px: where the first row begins, and from the top of a cell to the base line of its letter."""
LEGEND_LINE, LEGEND_TEXT = 20, 24
"""px: from one line of the legend to the next, and from its letter to its text."""
FITS = 760.0
"""px: a wider drawing cannot be read whole in a window of 800."""
STRENGTHS = (0.08, 0.26, 0.44, 0.17, 0.35, 0.52)
"""Tints of neighbouring entries, so that they differ clearly."""
CAPTION = "A letter is the entry that serves this size; a thick edge marks the size that it was compiled for."
SIZES = named(each(COUNT_OR_0, ""), "axis → its sizes")
"""What `sizes` must be: names, each with whole numbers from 0 on. The text stands in the error."""


@takes(recording=RECORDED, function=FUNCTION, sizes=SIZES, make=FUNCTION)
def shape_map(
    recording: Recording,
    function: Any,
    sizes: Mapping[str, Sequence[int]],
    make: Callable[..., Any] = torch.empty,
) -> Picture:
    """Which recorded entry of `function` (a function or module) serves which size, and which sizes
    none serves.

    sizes: one axis or two, each a name and its sizes.
    make: `make(size)` or `make(size, size)` gives the argument, or the tuple of arguments, of the
    call to ask about; nothing is run. Raises ValueError for another number of axes, LookupError if
    the function was not captured while recording."""
    if len(sizes) not in (1, 2) or not all(sizes.values()):
        sizes_text = shown(dict(sizes))
        raise ValueError(
            f"a shape map has one axis or two, each with at least one size, not {sizes_text}"
        )

    question = asked_about(recording, function, make)
    drawing = MapDrawing(question, sizes)
    rows = drawing.draw()

    # The drawing has asked each cell already; the words count its answers
    flat = [cell for row in rows for cell in row]
    counts = f"of {plural(len(flat), 'size')} {flat.count(NONE)} served by none"
    alt = f"{question.function.__qualname__}: {plural(len(question.entries), 'entry')}; {counts}."
    lines = [drawing.text_of(rows), *drawing.legend, "*: the size that it was compiled for"]
    return Picture(drawing.svg.render(alt), CAPTION, alt, "\n".join(lines))


def asked_about(recording: Recording, function: Any, make: Callable[..., Any]) -> Asked:
    """The entries of a function or module. Raises LookupError if there is none."""
    is_module = isinstance(function, torch.nn.Module)
    function = getattr(function, "_course_original", function)
    plain = type(function).forward if is_module else function

    entries = entries_of(recording, plain.__code__) if hasattr(plain, "__code__") else []
    if not entries:
        name = getattr(plain, "__qualname__", shown(plain))
        raise LookupError(f"{name} was not captured while recording")
    return Asked(plain, entries, (function,) if is_module else (), make)


class MapDrawing:
    """The map: the last axis from left to right, the first, if there are two, downwards."""

    def __init__(self, asked: Asked, sizes: Mapping[str, Sequence[int]]) -> None:
        self.asked = asked
        *down, self.across = sizes
        self.across_sizes = sizes[self.across]
        self.down = down[0] if down else ""
        self.down_sizes: Sequence[int | None] = sizes[self.down] if down else [None]
        self.legend = [*map(str, asked.entries), f"{NONE}: no entry; a call compiles anew"]

        margin = 20  # px that stay free on the right
        numbers = [text_width(str(size)) for size in self.down_sizes if size is not None]
        self.left = 14 + max(numbers, default=0)
        room = (FITS - self.left - margin) / len(self.across_sizes) - GAP
        self.cell = max(LEAST, min(CELL, room))
        self.bottom = TOP + 4 + len(self.down_sizes) * (TALL + GAP)

        # The legend may make the drawing wider, as far as it fits a window.
        table = self.left + len(self.across_sizes) * (self.cell + GAP) + margin
        lines = [text_width(line, SMALL, mono=True) for line in self.legend]
        wide = max(table, self.left + LEGEND_TEXT + margin + max(lines))
        height = self.bottom + LEGEND_LINE * len(self.legend) + 16
        self.svg = Svg(min(wide, max(table, FITS)), height)

    @property
    def axes(self) -> str:
        """'rows ↓   columns →'."""
        if self.down:
            return f"{self.down} ↓   {self.across} →"
        return f"{self.across} →"

    def draw(self) -> list[list[str]]:
        """Draw all; gives what the text form writes in each cell."""
        self.svg.text(self.left, 14, self.axes, SMALL, bold=True)
        for i, size in enumerate(self.across_sizes):
            centre = self.left_of(i) + self.cell / 2
            self.svg.text(centre, 34, str(size), SMALL, anchor="middle")

        rows = []
        for j, down in enumerate(self.down_sizes):
            y = TOP + j * (TALL + GAP)
            if down is not None:
                self.svg.text(self.left - 8, y + BASE_LINE, str(down), SMALL, anchor="end")
            row = []
            for i, size in enumerate(self.across_sizes):
                sizes = (size,) if down is None else (down, size)
                row.append(self.draw_cell(self.left_of(i), y, self.asked.arguments(*sizes)))
            rows.append(row)

        self.draw_legend()
        return rows

    def left_of(self, i: int) -> float:
        return self.left + i * (self.cell + GAP)

    def draw_cell(self, x: float, y: float, args: tuple[Any, ...]) -> str:
        """One size. Gives its letter; `*` marks the size that an entry was compiled for."""
        number = self.asked.serving(args)
        centre = x + self.cell / 2
        # No entry serves this size: a call would compile
        if number is None:
            self.svg.box(
                x,
                y,
                self.cell,
                TALL,
                "break",
                radius=3,
                strength=0,
                line=1.4,
                dashed=True,
                tip="no entry serves this size",
            )
            self.svg.text(centre, y + BASE_LINE, NONE, anchor="middle", stage="break")
            return NONE

        entry = self.asked.entries[number]
        # A thick frame where the entry was compiled
        born = entry.made_for(args)
        self.svg.box(
            x,
            y,
            self.cell,
            TALL,
            "guards",
            radius=3,
            strength=STRENGTHS[number % len(STRENGTHS)],
            line=3.5 if born else 1.2,
            tip=str(entry),
        )
        self.svg.text(centre, y + BASE_LINE, entry.letter, anchor="middle", bold=born)
        if born:
            return f"{entry.letter}*"
        return entry.letter

    def draw_legend(self) -> None:
        """What each letter assumes."""
        for i, line in enumerate(self.legend):
            letter, _, rest = line.partition(": ")
            y = self.bottom + LEGEND_LINE * (i + 1)
            is_code = i < len(self.asked.entries)  # the last line is a sentence
            x = self.left + LEGEND_TEXT
            self.svg.text(self.left, y, letter, bold=True)
            short = shorten(rest, self.svg.width - x - 20, SMALL, mono=True)
            self.svg.text(x, y, short, SMALL, mono=is_code, tip=rest)

    def text_of(self, rows: list[list[str]]) -> str:
        """The map in plain text: a table, or for one axis a line for each stretch of sizes."""
        if self.down:
            header = (f"{self.down} ↓ {self.across} →", *map(str, self.across_sizes))
            lines = [(str(size), *row) for size, row in zip(self.down_sizes, rows)]
            return columns(lines, header)

        stretches = runs(self.across_sizes, rows[0])
        return "\n".join(f"{self.across} = {where}: {letter}" for where, letter in stretches)


def runs(sizes: Sequence[int], letters: Sequence[str]) -> list[tuple[str, str]]:
    """Neighbours with one letter together: [("2 to 10", "A"), …]."""
    runs_so_far = []
    for letter, group in itertools.groupby(zip(sizes, letters), key=lambda pair: pair[1]):
        members = [size for size, _ in group]
        where = str(members[0])
        if len(members) > 1:
            where = f"{members[0]} to {members[-1]}"
        runs_so_far.append((where, letter))
    return runs_so_far
