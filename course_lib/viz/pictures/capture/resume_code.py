"""The bytecode of a resume function beside that of the function which it resumes.

In:  a `Resume` (where a frame goes on). Out: a `Picture`: on the right the prologue, which is new,
     and its jump over what has been done already; all the rest is the original, verbatim.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib import frames
from course_lib.frames.instructions import Instruction
from course_lib.frames.resume import Resume
from course_lib.viz.kit.arguments import takes, with_attributes
from course_lib.viz.kit.style import Picture, plural
from course_lib.viz.kit.svg import Svg
from course_lib.viz.pictures.capture.cut_frame import title_of

ROW, COLUMN, BETWEEN = 19, 330, 70
"""px: the height of an instruction, the width of a listing, and the room between both."""
RIGHT = COLUMN + BETWEEN
"""px: where the right listing begins."""
TOP = 30
"""px: where the first row begins, below the names."""
BASE_LINE = 13
"""px: from the top of a row to the base line of its text."""
BULGE = 24
"""px: how far the arrow of the jump runs to the right of the listing."""
CAPTION = "Outlined: the prologue, which is new. It jumps over what has been done already; all the rest is unchanged."


@dataclass(frozen=True)
class Listings:
    """Both programs.

    The first `new` instructions of the resume function are its prologue, which jumps to
    `target`."""

    original: Sequence[Instruction]
    resumed: Sequence[Instruction]
    new: int
    target: int

    def mark(self, row: int) -> str:
        """Is a row of the resume function new, jumped over, or the same as in the original?"""
        if row < self.new:
            return "new"
        if row < self.target:
            return "skipped"
        return "same"


def listings_of(at: Resume) -> Listings:
    """The bytecode of a function, and of the resume function that goes on at `at`.

    `at.shift` is how many bytes the prologue is long."""
    original, resumed = frames.instructions(at.original), frames.instructions(at.code)
    new = sum(instruction.offset < at.shift for instruction in resumed)
    goes_on = at.offset + at.shift
    target = next(n for n, instruction in enumerate(resumed) if instruction.offset >= goes_on)
    return Listings(original, resumed, new, target)


@takes(at=with_attributes("a Resume (where a frame goes on)", "original", "offset", "shift"))
def resume_code(at: Resume) -> Picture:
    """The bytecode of a function, and beside it that of the resume function which goes on at one
    place in it."""
    code = listings_of(at)
    own, resumed = title_of(at.original), title_of(at.code)
    svg = Svg(2 * COLUMN + BETWEEN + 8, top_of(len(code.resumed)) + 14)
    svg.text(4, 16, own, bold=True)
    svg.text(RIGHT, 16, resumed, bold=True)
    draw_frames(svg, code)

    rows = [(own, "", resumed)]
    for row, instruction in enumerate(code.resumed):
        mark = code.mark(row)
        right = f"{instruction.offset:>4} {instruction}"
        left = ""
        if mark != "new":
            before = code.original[row - code.new]
            left = f"{before.offset:>4} {before}"

        y = top_of(row) + BASE_LINE
        svg.text(RIGHT + 2, y, right, 12, mono=True, dim=mark == "skipped")
        svg.text(10, y, left, 12, mono=True)
        rows.append((left, mark, right))
    draw_jump(svg, code)
    svg.width += BULGE

    stand = f"{plural(code.new, 'instruction')} {'stand' if code.new > 1 else 'stands'}"
    alt = f"{stand} before the bytecode of {own}; the last jumps to offset {at.offset + at.shift}."
    text = "\n".join(f"{left:<34} {mark:<8} {right}".rstrip() for left, mark, right in rows)
    return Picture(svg.render(alt), CAPTION, alt, text)


def top_of(row: int) -> int:
    """px from the top."""
    return TOP + ROW * row


def draw_frames(svg: Svg, code: Listings) -> None:
    """Draw a frame around the prologue, one around the code that runs, and one around the code that
    is jumped over."""
    right = RIGHT - 6

    def box(
        x: int,
        first: int,
        last: int,
        stage: str | None,
        strength: float,
        line: float,
        dashed: bool = False,
    ) -> None:
        """Around the rows from `first` to before `last`."""
        y, height = top_of(first) - 2, ROW * (last - first) + 2
        svg.box(x, y, COLUMN, height, stage, strength=strength, line=line, radius=5, dashed=dashed)

    end = len(code.resumed)
    box(right, 0, code.new, "capture", strength=0.2, line=2.5)
    box(right, code.target, end, "capture", strength=0.1, line=1.5)
    box(2, code.target, end, "capture", strength=0.1, line=1.5)
    if code.target > code.new:
        box(2, code.new, code.target, "runtime", strength=0.1, line=1.5)
        box(right, code.new, code.target, None, strength=0.14, line=1, dashed=True)


def draw_jump(svg: Svg, code: Listings) -> None:
    """The arrow from the end of the prologue to where the function goes on."""
    start = top_of(code.new) - ROW / 2
    end = top_of(code.target) + ROW / 2
    edge = RIGHT + COLUMN
    way: list[tuple[float, float]]
    way = [(edge - 14, start), (edge + BULGE, start), (edge + BULGE, end), (edge - 4, end)]
    svg.arrow(way, stage="capture", line=2)
