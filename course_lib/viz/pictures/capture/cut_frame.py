"""A frame cut in pieces: graph → what Python does → resume function → graph, torn edges between.

In:  a `Recording`, and the function to show. Out: a `Picture`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from course_lib import events, frames
from course_lib.frames.resume import Resume, live, resumed
from course_lib.viz.kit.arguments import RECORDED, a_function, takes
from course_lib.viz.kit.style import LARGE, SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, shorten, text_width, wrap
from course_lib.viz.kit.user_lines import as_written
from course_lib.viz.kit.user_lines import expression as marked
from course_lib.viz.pictures.graphs.fx_graphs import op_name
from course_lib.viz.recording import Recording

# ---- the pieces ----------------------------------------------------------------------------------

LETTERS = 46
"""Columns of the text in a piece."""
MOST_WAYS = 6
"""So many captures that differ are told one by one."""


@dataclass
class Piece:
    """A function, or a resume function of it: what was captured of it, each time, and where it goes
    on.

    results: a `CaptureResult` for each capture. problems: the `Unsupported`s that broke its graphs.
    next: where its heads go on. resume: what it resumes; None for the function itself."""

    code: CodeType
    results: list[Any] = field(default_factory=list)
    problems: list[Any] = field(default_factory=list)
    next: list[Resume] = field(default_factory=list)
    resume: Resume | None = None

    @property
    def number(self) -> int:
        """Which code object it is."""
        return frames.number(self.code)

    @property
    def original(self) -> CodeType:
        """The code of the function itself."""
        if self.resume:
            return self.resume.original
        return self.code

    @property
    def lines(self) -> list[str]:
        """The operations of a piece, in one line.

        Where several captures differ in them, each has its own line."""
        # The operations → the numbers of the captures that have just these
        ways: dict[str, list[str]] = {}
        for number, result in enumerate(self.results, 1):
            ways.setdefault(operations_of(result), []).append(str(number))

        if len(ways) == 1:
            lines = wrap(next(iter(ways)), LETTERS, lines=4)
            if len(self.results) > 1:
                lines.append(f"captured {len(self.results)} times")
            return lines

        lines = []
        for names, numbers in list(ways.items())[:MOST_WAYS]:
            captures = "capture" if len(numbers) == 1 else "captures"
            line = f"{captures} {', '.join(numbers)}: {names or 'no operation'}"
            lines += wrap(line, LETTERS, lines=3)
        if len(ways) > MOST_WAYS:
            lines.append(f"and {len(ways) - MOST_WAYS} more ways")
        return lines

    @property
    def in_python(self) -> list[str]:
        """What the head does itself: the expressions of this frame that broke a graph, each
        once."""
        return list(dict.fromkeys(map(expression, self.problems)))


def operations_of(result: Any) -> str:
    """The operations of a captured graph by name: 'sin, mul, gt'."""
    nodes = [node for node in result.graph.graph.nodes if node.op.startswith("call_")]
    return ", ".join(op_name(node) for node in nodes)


def expression(problem: Any) -> str:
    """The expression of the captured frame that broke a graph: for a break further in, the call
    that led there."""
    first = problem.stack[0] if problem.stack else problem.location
    if first is None:
        return "the rest"

    text = marked(first) or first.text
    # What is marked of a branch is its condition alone.
    if "JUMP_IF" in problem.instruction and first is problem.location:
        return f"if {text}"
    return text


def pieces_of(recording: Recording, function: str | Callable[..., Any] | None) -> list[Piece]:
    """The frame `function` and its resume functions, in the order in which they first ran.

    Raises LookupError if it was not recorded."""
    if function is not None and not isinstance(function, str):
        a_function(function, "cut")
        function = getattr(getattr(function, "forward", function), "__qualname__", str(function))

    pieces = all_pieces(recording)
    for piece in pieces:
        if piece.resume is None and is_wanted(piece, function):
            return [other for other in pieces if other.original is piece.code]

    which = " with a graph break"
    if function:
        which = f" called '{function}'"
    raise LookupError(
        f"no frame{which} was recorded. If it was compiled before, cl.reset() forgets it."
    )


def is_wanted(piece: Piece, function: str | None) -> bool:
    """Has it the name that is asked for? Without a name: has it a graph break?"""
    if function is None:
        return bool(piece.problems)
    qualname = piece.code.co_qualname
    return function in (qualname, qualname.split(".")[-1])


def all_pieces(recording: Recording) -> list[Piece]:
    """Every function and resume function that was recorded, with what was captured of it."""
    piece_of_code: dict[int, Piece] = {}
    piece = None
    for event in recording.events:
        if isinstance(event, events.FrameSeen):
            piece = None
            if event.code is not None:
                piece = piece_of_code.setdefault(frames.number(event.code), Piece(event.code))
        elif piece is not None:
            note(piece, event)

    pieces = list(piece_of_code.values())
    codes = [piece.code for piece in pieces]
    for piece in pieces:
        piece.resume = resumed_by(piece.code, codes)
    return pieces


def note(piece: Piece, event: events.Event) -> None:
    """Add what an event says about the piece that is being captured."""
    if isinstance(event, events.GraphBroke):
        piece.problems.append(as_written(event.problem))
    elif isinstance(event, events.GraphCaptured):
        piece.results.append(event.result)
        # The names of the head lead to the resume functions that it calls. (One that begins in an
        # exception handler runs only if something is raised, and is not drawn.)
        for at in event.result.head.names.values():
            if isinstance(at, Resume) and not caught(at) and at not in piece.next:
                piece.next.append(at)


def resumed_by(code: CodeType, known: list[CodeType]) -> Resume | None:
    """What `code` resumes; None if it is no resume function. `known`: codes it may be made from.

    A recording outlives compiled code. Where `resumed` has forgotten it, the code itself tells: its
    name is 'f from 12', and it ends with the bytecode of `f`."""
    at = resumed(code)
    if at is not None:
        return at

    name, _, offset = code.co_qualname.rpartition(" from ")
    for original in known:
        if name and original.co_qualname == name and code.co_code.endswith(original.co_code):
            shift = len(code.co_code) - len(original.co_code)
            return Resume(original, int(offset), code, code, (), shift)
    return None


def caught(at: Resume) -> bool:
    """Is this where an exception handler begins?"""
    return any(entry.target == at.offset for entry in frames.exception_table(at.original))


def carried(at: Resume) -> str:
    """What the head hands to a resume function."""
    alive = live(at.original).get(at.offset, frozenset())
    handed = [name for name in at.original.co_varnames if name in alive]

    on_stack = sum(name.startswith("stack") for name in at.code.co_freevars)
    if on_stack:
        handed.append(plural(on_stack, "stack value"))
    return ", ".join(handed) or "nothing"


def title_of(what: Resume | CodeType) -> str:
    """'bar', 'bar from 112 (line 4)'."""
    if not isinstance(what, Resume):
        return what.co_qualname.split(".<locals>.")[-1]

    title = title_of(what.code)
    line = line_of(what)
    if line:
        return f"{title} (line {line})"
    return title


def line_of(at: Resume) -> int | None:
    """The source line where a resume function goes on."""
    for start, end, line in at.original.co_lines():
        if start <= at.offset < end:
            return line
    return None


# ---- where each piece stands ---------------------------------------------------------------------

WIDE, GAP = 350, 14
"""px: the width of a piece, and the distance between two beside each other."""
TORN, BOX = 76, 28
"""px: the height of what stands between two below each other, and of each thing that Python does
there."""
HEADER, LINE = 34, 17
"""px: the height of a piece's name, and of each line below it."""
ELBOW = 29
"""px: the arrow to a block turns this far above it; the label stands below the turn."""
ACROSS = 4
"""How many may stand beside each other."""


@dataclass
class Block:
    """A piece with what follows it, laid out.

    `piece` is None where only a name and a sentence stand: the piece is drawn already, or has not
    run yet."""

    title: str
    # The second line: 'graph 2', or without a piece the sentence
    number: str
    lines: list[str]
    piece: Piece | None
    below: list[Below] = field(default_factory=list)

    @property
    def own_width(self) -> float:
        """px: how wide this block is by itself.

        Without a piece there are only two lines of text."""
        if self.piece:
            return WIDE
        text = max(text_width(self.title), text_width(self.number, SMALL))
        return min(WIDE, 30 + text)

    @property
    def width_below(self) -> float:
        return sum(branch.block.width for branch in self.below) + GAP * (len(self.below) - 1)

    @property
    def width(self) -> float:
        return max(self.own_width, self.width_below)

    @property
    def own_height(self) -> float:
        # Without a piece, its sentence is a line of its own.
        lines = len(self.lines) + (self.piece is None and self.number != "")
        return HEADER + LINE * lines + (8 if lines else 0)

    @property
    def torn(self) -> float:
        """px: the torn edge below this block, with a box for each thing that Python does there."""
        in_python = 0
        if self.piece:
            in_python = len(self.piece.in_python)
        return TORN + BOX * max(1, in_python)

    @property
    def height(self) -> float:
        if not self.below:
            return self.own_height
        return self.own_height + self.torn + max(branch.block.height for branch in self.below)


@dataclass
class Below:
    """Where a piece goes on, and what its head hands on to it."""

    carried: str
    block: Block


class Layout:
    """Lays the pieces out as a tree; each is drawn once."""

    def __init__(self, pieces: list[Piece]) -> None:
        self.pieces = pieces
        self.by_number = {piece.number: piece for piece in pieces}
        # The numbers of the pieces that stand in the drawing, or are about to
        self.drawn = {pieces[0].number}
        # Graphs are numbered in this order.
        self.captured = [piece.number for piece in pieces if piece.results]

    def lay_out(self, piece: Piece, above: frozenset[int] = frozenset()) -> Block:
        """A piece and all that follows it. `above`: the numbers of the pieces that it hangs on."""
        block = Block(title_of(piece.resume or piece.code), "no graph", lines=[], piece=piece)
        if piece.results:
            block.number = f"graph {self.captured.index(piece.number) + 1}"
            block.lines = piece.lines

        # Reserve all that hangs here before going deeper: a piece below must not draw it first.
        following = self.following(piece)[:ACROSS]
        drawn_before = frozenset(self.drawn)
        self.drawn.update(frames.number(resume.code) for resume in following)

        above = above | {piece.number}
        for resume in following:
            number = frames.number(resume.code)
            if number in drawn_before:
                where = "drawn above" if number in above else "drawn elsewhere"
                below = Block(title_of(resume), where, lines=[], piece=None)
            elif number in self.by_number:
                below = self.lay_out(self.by_number[number], above)
            else:
                below = Block(title_of(resume), "not needed so far", lines=[], piece=None)
            block.below.append(Below(carried(resume), below))
        return block

    def following(self, piece: Piece) -> list[Resume]:
        """Where a piece goes on. If nothing was captured of it, its resume function ran next."""
        if piece.next or not piece.problems:
            return piece.next

        later = self.pieces[self.pieces.index(piece) + 1 :][:1]
        return [event.resume for event in later if event.resume]


# ---- the drawing ---------------------------------------------------------------------------------

CAPTION = "Blue: what is captured. Torn: a graph ends there; grey: what Python does itself. The arrow says what the head hands on."


@takes(recording=RECORDED)
def cut_frame(recording: Recording, function: str | Callable[..., Any] | None = None) -> Picture:
    """A frame cut in pieces: `function` by name or itself; None for the first that has a graph
    break.

    Raises LookupError if it was not recorded."""
    pieces = pieces_of(recording, function)
    top = Layout(pieces).lay_out(pieces[0])
    svg = Svg(top.width + GAP + 12, top.height + 6)
    draw_block(svg, top, 2, 3)
    text = "\n".join(text_of(top))

    graphs = sum(bool(piece.results) for piece in pieces)
    breaks = sum(len(piece.in_python) for piece in pieces)
    counts = f"{plural(graphs, 'graph')}, {plural(breaks, 'graph break')}"
    alt = f"{title_of(pieces[0].code)} in {plural(len(pieces), 'piece')}: {counts}. "
    alt += " ".join(text.split())
    return Picture(svg.framed(alt), CAPTION, alt, text)


def draw_block(svg: Svg, block: Block, x: float, y: float) -> None:
    """A piece, its torn edge, and below it where it goes on."""
    left = x + (block.width - block.own_width) / 2
    if block.piece is None:
        draw_name(svg, block, left, y)
        return

    draw_piece(svg, block, block.piece, left, y)
    if not block.below:
        return

    bottom = y + block.own_height
    torn_end = draw_torn(svg, block.piece, left, bottom + 12)

    at = x + (block.width - block.width_below) / 2
    low = bottom + block.torn
    last = block.below[-1]
    middle = left + WIDE / 2
    for below in block.below:
        wide = below.block.width
        centre, corner = at + wide / 2, low - ELBOW
        svg.arrow([(middle, torn_end + 8), (middle, corner), (centre, corner), (centre, low - 3)])

        # What is handed on is told to the right of the arrow: that of the last must end within the
        # drawing.
        room = wide / 2 + GAP
        if below is not last:
            room += last.block.width / 2 - 20
        label = shorten(f"hands on {below.carried}", room, SMALL)
        svg.text(centre + 8, low - 10, label, SMALL, tip=below.carried)
        draw_block(svg, below.block, at, low)
        at += wide + GAP


def draw_piece(svg: Svg, block: Block, piece: Piece, left: float, y: float) -> None:
    """What ran: its name, its graph's number, and its operations."""
    stage = "capture" if piece.results else "runtime"
    wide = block.own_width
    svg.box(left, y, wide, block.own_height, stage, strength=0.14, radius=10)

    room = wide - 44 - text_width(block.number, SMALL)
    title = shorten(block.title, room, BOLD)
    svg.text(left + 12, y + 22, title, bold=True, tip=block.title)
    svg.text(left + wide - 10, y + 22, block.number, SMALL, anchor="end", dim=True)
    for n, line in enumerate(block.lines):
        svg.text(left + 12, y + HEADER + 10 + LINE * n, line, 12, mono=True)


BOLD = 13.8
"""The size that a bold name of 13 px looks like, where it must fit."""


def draw_name(svg: Svg, block: Block, left: float, y: float) -> None:
    """What did not run, or is drawn elsewhere: a dashed frame with its name, and why."""
    wide = block.own_width
    svg.box(left, y, wide, block.own_height, "runtime", strength=0, dashed=True, radius=10)

    title = shorten(block.title, wide - 20, 13)
    svg.text(left + 12, y + 22, title, dim=True, tip=block.title)
    svg.text(left + 12, y + 42, block.number, SMALL, dim=True)


def draw_torn(svg: Svg, piece: Piece, left: float, y: float) -> float:
    """The torn edge of a graph, and below it what Python does.

    Gives the end of the last box, px."""
    why = {expression(problem): problem.reason for problem in piece.problems}
    # Teeth: 6 px on, 7 px down, then up again
    teeth = " ".join(f"l6 {7 if n % 2 == 0 else -7}" for n in range(int(WIDE // 6)))
    tip = "; ".join(dict.fromkeys(why.values()))
    svg.path(f"M{left:.0f} {y} {teeth}", stage="break", line=2.2, opacity=1, tip=tip)
    svg.text(left - 2, y + 25, "✂", LARGE, stage="break")

    for text, reason in why.items():
        label = f"Python: {text}"
        short = shorten(label, WIDE - 56, 12, mono=True)
        svg.box(left + 18, y + 11, WIDE - 36, 24, "eager", strength=0.2, radius=4, tip=reason)
        svg.text(left + 28, y + 27, short, 12, mono=True, tip=label)
        y += BOX
    return y


def text_of(block: Block, indent: str = "") -> list[str]:
    """The drawing as text, a branch indented."""
    lines = [f"{indent}{block.title}: {block.number}".rstrip(": ")]
    lines += [f"{indent}  {line}" for line in block.lines]
    if block.piece is None or not block.below:
        return lines

    lines += [f"{indent}✂ Python: {text}" for text in block.piece.in_python]
    branches = len(block.below) > 1
    for below in block.below:
        lines.append(f"{indent}{'├' if branches else ''}→ hands on {below.carried}")
        lines += text_of(below.block, indent + ("   " if branches else ""))
    return lines
