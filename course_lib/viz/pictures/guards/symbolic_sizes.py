"""Sizes as pictures: the two lives of a symbolic size, which entry serves which size, and what padding to buckets costs.

In:  a recording of compiled calls, and the sizes to ask about; or the lengths of requests and the borders of buckets.
Out: `Picture`s.
In PyTorch there is no such picture; `TORCH_LOGS="guards,recompiles,dynamic"` tells the same in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.frames import parameters
from course_lib.guards import Check
from course_lib.viz.kit.asked import (
    COUNT,
    COUNT_OR_0,
    FUNCTION,
    RECORDED,
    Kind,
    each,
    named,
    shown,
    takes,
)
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, shorten, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.recording import Recording

ABOUT_THE_CALL = ("tensor", "type", "value", "sizes")
"""Kinds of guards that look at a call's own arguments; the others hold for one size as for another."""


def size_guards(result: Any) -> list[str]:
    """What one capture (a `CaptureResult`) assumed about the sizes of its arguments, and about numbers among them."""
    said = []
    for guard in result.guards:
        own = getattr(guard.source, "base", None) is None
        for test in guard.tests:
            text = test.text(guard.source.shown)
            about_size = "shape" in test.left and test.op == "==" and own
            number = guard.kind == "value" and own and type(test.right) is int
            if guard.kind == "sizes" or about_size or number:
                said.append(text)
    return list(dict.fromkeys(said))


# ---- a symbolic size ------------------------------------------------------------------------------------------------


LIFE = Kind("a row", lambda row: isinstance(row, (tuple, list)) and len(row) == 4)


@takes(rows=each(LIFE, "rows of four: code, number, expression, guard"))
def two_lives(rows: Sequence[tuple[str, object, str, str]]) -> Picture:
    """What arithmetic on a symbolic size leaves behind. A row: the code, the number in this call, the expression, and the guard
    that the line adds ("" for none)."""
    headings = ("the line", "number now", "expression kept", "guard written down")
    widths = [
        max(
            [text_width(heading, SMALL), *(text_width(str(row[i]), mono=True) + 28 for row in rows)]
        )
        for i, heading in enumerate(headings)
    ]
    places = [4 + sum(widths[:i]) + 34 * i for i in range(4)]
    svg = Svg(places[3] + widths[3] + 30, 36 + 42 * len(rows))
    for x, heading in zip(places, headings):
        svg.text(x, 14, heading, SMALL, dim=True)
    for j, row in enumerate(rows):
        y, (line, value, expr, guard) = 26 + 42 * j, row
        svg.text(places[0], y + 20, line, mono=True)
        if str(value):
            svg.box(places[1], y, widths[1], 30, "runtime", radius=3)
            svg.text(places[1] + widths[1] / 2, y + 20, str(value), mono=True, anchor="middle")
        if expr:
            svg.box(places[2], y, widths[2], 30, "capture", radius=10)
            svg.text(places[2] + widths[2] / 2, y + 20, expr, mono=True, anchor="middle")
        if guard:
            middle, right, half = y + 15, places[3] + widths[3] + 20, 15
            left = places[3] - 16
            diamond = (
                f"M{left} {middle} L{left + 14} {middle - half} H{right - 14} L{right} {middle} "
            )
            svg.path(
                f"{diamond}L{right - 14} {middle + half} H{left + 14} Z",
                stage="guards",
                line=2,
                opacity=1,
            )
            svg.text((left + right) / 2, y + 20, guard, mono=True, anchor="middle")
    caption = "A symbolic size is a number and an expression at once; a question about the number becomes a guard."
    guards = [row[3] for row in rows if row[3]]
    alt = f"{plural(len(rows), 'line')} of arithmetic on a size; guards: {', '.join(guards) or 'none'}."
    text = columns(rows, ("the line", "number now", "expression", "guard"))
    return Picture(svg.render(alt), caption, alt, text)


# ---- which entry serves which size ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """One capture of the function, with a letter, and the shapes of the call that it was made for."""

    letter: str
    result: Any
    check: Check

    def serves(self, function: Any, args: tuple[Any, ...]) -> bool:
        return self.check(function, *args)

    def made_for(self, args: tuple[Any, ...]) -> bool:
        """Was it compiled by a call with arguments of these shapes?"""
        shapes = [
            tuple(int(s) for s in v.shape)
            for v in self.result.example_inputs
            if isinstance(v, torch.Tensor)
        ]
        return all(tuple(arg.shape) in shapes for arg in args if isinstance(arg, torch.Tensor))

    def __str__(self) -> str:
        return f"{self.letter}: {' and '.join(size_guards(self.result)) or 'any size'}"


def entries_of(recording: Recording, code: Any) -> list[Entry]:
    """The captures of one function, in the order in which their guards are tried."""
    found = [result for result in recording.captures if result.name == code.co_qualname]
    names = parameters(code)
    letters = (a + b for a, b in itertools.product(["", *LETTERS], LETTERS))
    return [
        Entry(letter, result, Check([g for g in result.guards if g.kind in ABOUT_THE_CALL], names))
        for letter, result in zip(letters, found)
    ]


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CELL, LEAST, TALL, GAP, FITS = 34.0, 22.0, 30.0, 4.0, 760.0
STRENGTHS = (0.08, 0.26, 0.44, 0.17, 0.35, 0.52)


@takes(
    recording=RECORDED,
    function=FUNCTION,
    sizes=named(each(COUNT_OR_0, ""), "axis → its sizes"),
    make=FUNCTION,
)
def shape_map(
    recording: Recording,
    function: Any,
    sizes: Mapping[str, Sequence[int]],
    make: Callable[..., Any] = torch.empty,
) -> Picture:
    """Which recorded entry of `function` (a function or module) serves which size, and which sizes none serves.

    `sizes`: one axis or two, each a name and its sizes. `make(size)` or `make(size, size)` gives the argument, or the
    tuple of arguments, of the call to ask about; nothing is run. Raises ValueError for another number of axes,
    LookupError if the function was not captured while recording."""
    if len(sizes) not in (1, 2) or not all(sizes.values()):
        raise ValueError(
            f"a shape map has one axis or two, each with at least one size, not {shown(dict(sizes))}"
        )
    module = isinstance(function, torch.nn.Module)
    function = getattr(function, "_course_original", function)
    plain = type(function).forward if module else function
    entries = entries_of(recording, plain.__code__) if hasattr(plain, "__code__") else []
    if not entries:
        raise LookupError(
            f"{getattr(plain, '__qualname__', shown(plain))} was not captured while recording"
        )
    (across, across_sizes), *down = reversed([*sizes.items()])
    down_name, down_sizes = down[0] if down else ("", [None])
    svg_left = 14 + max((text_width(str(n)) for n in down_sizes if n is not None), default=0)
    legend = [*map(str, entries), "✕: no entry; a call compiles anew"]
    cell = max(LEAST, min(CELL, (FITS - svg_left - 20) / len(across_sizes) - GAP))
    table_wide = svg_left + len(across_sizes) * (cell + GAP) + 20
    wide = max(table_wide, svg_left + 44 + max(text_width(line, SMALL, True) for line in legend))
    bottom = 46 + len(down_sizes) * (TALL + GAP)
    svg = Svg(min(wide, max(table_wide, FITS)), bottom + 20 * len(legend) + 16)
    svg.text(
        svg_left, 14, f"{down_name} ↓   {across} →" if down else f"{across} →", SMALL, bold=True
    )
    rows: list[list[str]] = []
    for i, size in enumerate(across_sizes):
        svg.text(svg_left + i * (cell + GAP) + cell / 2, 34, str(size), SMALL, anchor="middle")
    for j, other in enumerate(down_sizes):
        y, row = 42 + j * (TALL + GAP), []
        if other is not None:
            svg.text(svg_left - 8, y + 20, str(other), SMALL, anchor="end")
        for i, size in enumerate(across_sizes):
            args = make(size) if other is None else make(other, size)
            args = args if isinstance(args, tuple) else (args,)
            row.append(
                draw_cell(
                    svg,
                    svg_left + i * (cell + GAP),
                    y,
                    cell,
                    entries,
                    plain,
                    args,
                    (function,) * module,
                )
            )
        rows.append(row)
    for i, line in enumerate(legend):
        letter, _, rest = line.partition(": ")
        svg.text(svg_left, bottom + 20 + 20 * i, letter, bold=True)
        short = shorten(rest, svg.width - svg_left - 44, SMALL, True)
        svg.text(svg_left + 24, bottom + 20 + 20 * i, short, SMALL, mono=i < len(entries), tip=rest)
    flat = [cell for row in rows for cell in row]
    missed = sum(cell == "✕" for cell in flat)
    caption = "A letter is the entry that serves this size; a thick edge marks the size that it was compiled for."
    alt = f"{plain.__qualname__}: {plural(len(entries), 'entry')}; of {plural(len(flat), 'size')} {missed} served by none."
    if down:
        text = columns(
            [(str(n), *row) for n, row in zip(down_sizes, rows)],
            (f"{down_name} ↓ {across} →", *map(str, across_sizes)),
        )
    else:
        text = "\n".join(
            f"{across} = {where}: {letter}" for where, letter in runs(across_sizes, rows[0])
        )
    return Picture(
        svg.render(alt),
        caption,
        alt,
        "\n".join([text, *legend, "*: the size that it was compiled for"]),
    )


def draw_cell(
    svg: Svg, x: float, y: float, wide: float, entries: Sequence[Entry], function: Any, args: tuple[Any, ...],
    first: tuple[Any, ...],
) -> str:  # fmt: skip
    """One size. Gives what the text form writes there; `*` marks the size that an entry was compiled for."""
    for number, entry in enumerate(entries):
        if entry.serves(function, (*first, *args)):
            born = entry.made_for(args)
            strength = STRENGTHS[number % len(STRENGTHS)]
            svg.box(
                x,
                y,
                wide,
                TALL,
                "guards",
                radius=3,
                strength=strength,
                line=3.5 if born else 1.2,
                tip=str(entry),
            )
            svg.text(x + wide / 2, y + 20, entry.letter, anchor="middle", bold=born)
            return entry.letter + "*" * born
    svg.box(
        x,
        y,
        wide,
        TALL,
        "break",
        radius=3,
        strength=0,
        line=1.4,
        dashed=True,
        tip="no entry serves this size",
    )
    svg.text(x + wide / 2, y + 20, "✕", anchor="middle", stage="break")
    return "✕"


def runs(sizes: Sequence[int], letters: Sequence[str]) -> list[tuple[str, str]]:
    """Neighbours with one letter together: [("2 to 10", "A"), …]."""
    found = []
    for letter, group in itertools.groupby(zip(sizes, letters), key=lambda pair: pair[1]):
        members = [size for size, _ in group]
        found.append(
            (f"{members[0]} to {members[-1]}" if len(members) > 1 else str(members[0]), letter)
        )
    return found


# ---- buckets --------------------------------------------------------------------------------------------------------

LEFT, WIDTH, HIGH, BARS = 92.0, 500.0, 130.0, 32


@dataclass(frozen=True)
class Bucket:
    """The requests that are padded to `border`."""

    low: int
    border: int
    lengths: tuple[int, ...]

    @property
    def computed(self) -> int:
        return self.border * len(self.lengths)

    @property
    def padding(self) -> int:
        return self.computed - sum(self.lengths)


def in_buckets(lengths: Sequence[int], borders: Sequence[int]) -> list[Bucket]:
    """Every length in the first bucket whose border it does not exceed. Raises ValueError if it exceeds all."""
    borders = sorted(set(borders))
    if not lengths or not borders or max(lengths) > borders[-1]:
        raise ValueError("there must be lengths, and a border for the longest of them")
    lows = [0, *borders]
    return [
        Bucket(a + 1, b, tuple(n for n in lengths if a < n <= b)) for a, b in zip(lows, borders)
    ]


@takes(
    lengths=each(COUNT, "lengths, whole numbers, 1 or more"),
    borders=each(COUNT, "whole numbers, 1 or more"),
)
def buckets(lengths: Sequence[int], borders: Sequence[int], title: str = "") -> Picture:
    """The lengths of requests as a histogram with the borders of the buckets; below, what each bucket computes and how much of
    that is padding."""
    found = in_buckets(lengths, borders)
    used = [bucket for bucket in found if bucket.lengths]
    longest, total = found[-1].border, sum(bucket.computed for bucket in found)
    padding = sum(bucket.padding for bucket in found)
    step = max(1, -(-longest // BARS))
    counts = [sum(start < n <= start + step for n in lengths) for start in range(0, longest, step)]
    top = 46.0
    svg = Svg(LEFT + WIDTH + 150, top + HIGH + 62 + 26 * len(used))
    svg.text(
        0,
        16,
        title or f"{plural(len(lengths), 'request')}, {plural(len(used), 'bucket')}",
        bold=True,
    )
    at = lambda length: LEFT + WIDTH * length / longest
    for i, count in enumerate(counts):
        if count:
            height = HIGH * count / max(counts)
            svg.box(
                at(i * step) + 1, top + HIGH - height, WIDTH * step / longest - 2, height, "runtime", radius=1,
                strength=0.4, line=1, tip=f"{i * step + 1} to {(i + 1) * step}: {plural(count, 'request')}",
            )  # fmt: skip
    svg.path(f"M{LEFT} {top + HIGH} H{LEFT + WIDTH}", line=1.2, opacity=0.7)
    svg.text(LEFT - 8, top + HIGH + 18, "length", SMALL, anchor="end", dim=True)
    last = LEFT - 30
    for bucket in found:
        border = f"M{at(bucket.border):.1f} {top - 8} V{top + HIGH + 4}"
        svg.path(border, stage="guards", line=2, opacity=1, dashed=True)
        if at(bucket.border) - last > 26:
            last = at(bucket.border)
            svg.text(last, top + HIGH + 18, str(bucket.border), SMALL, anchor="middle")
    most = max(bucket.computed for bucket in found)
    svg.text(
        LEFT,
        top + HIGH + 44,
        "elements computed: requests (grey), padding (dashed)",
        SMALL,
        dim=True,
    )
    for i, bucket in enumerate(used):
        y, scale = top + HIGH + 52 + 26 * i, WIDTH / most
        real = (bucket.computed - bucket.padding) * scale
        svg.text(LEFT - 8, y + 15, f"{bucket.low} to {bucket.border}", SMALL, anchor="end")
        svg.box(LEFT, y, real, 20, "runtime", radius=2, strength=0.4, line=1)
        if bucket.padding:
            svg.box(
                LEFT + real,
                y,
                bucket.padding * scale,
                20,
                "break",
                radius=2,
                strength=0.18,
                line=1.2,
                dashed=True,
            )
        said = f"{len(bucket.lengths)} req., {bucket.padding / bucket.computed:.0%} padding"
        svg.text(LEFT + bucket.computed * scale + 8, y + 15, said, SMALL)
    caption = "Dashed lines: the borders that lengths are padded up to. Dashed boxes: work on padding, which nobody asked for."
    said = f"{plural(len(lengths), 'request')} in {plural(len(used), 'bucket')}"
    alt = f"{said}: {padding / total:.0%} of {total:,} elements are padding."
    rows = [
        (
            f"{b.low} to {b.border}",
            len(b.lengths),
            f"{b.computed:,}",
            f"{b.padding:,}",
            f"{b.padding / b.computed:.0%}",
        )
        for b in used
    ]
    share = ("all", len(lengths), f"{total:,}", f"{padding:,}", f"{padding / total:.0%}")
    text = columns([*rows, share], ("bucket", "requests", "elements", "padding", "share"))
    return Picture(svg.render(alt), caption, alt, text)
