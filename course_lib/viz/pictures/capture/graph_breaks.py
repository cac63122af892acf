"""Graph breaks as pictures: one break in full, and a frame cut in pieces.

In:  a `Recording`. Out: `break_card`: why, the line with a caret, the instruction among its neighbours, the calls that led there,
     what to do. `cut_frame`: graph → what Python does → resume function → graph, torn edges between. `resume_code`: the
     bytecode of one resume function beside the original's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from course_lib import events, frames
from course_lib.frames.resume import Resume, live, resumed
from course_lib.viz.kit.asked import RECORDED, a_function, having, takes, whole
from course_lib.viz.kit.style import LARGE, SMALL, Picture, escape, place, plural
from course_lib.viz.kit.svg import Svg, shorten, text_width, wrap
from course_lib.viz.kit.user_lines import as_written
from course_lib.viz.kit.user_lines import expression as marked
from course_lib.viz.pictures.graphs.fx_graphs import op_name
from course_lib.viz.recording import Recording

AROUND = 3
"""How many instructions a card shows before the one that broke the graph; one follows it."""


# ---- one break ------------------------------------------------------------------------------------------------------


@takes(recording=RECORDED)
def break_card(recording: Recording, index: int = 0) -> Picture:
    """All that is known about one graph break. Raises LookupError if there is none of that number."""
    problems, index = (
        recording.graph_breaks,
        whole(index, "a graph break is asked for by its number"),
    )
    if not -len(problems) <= index < len(problems):
        raise LookupError(
            f"there is no graph break {index}; there are {len(problems)}, numbered from 0"
        )
    return card_of(recording, problems[index])


def card_of(recording: Recording, problem: Any) -> Picture:
    """The card of one `Unsupported`."""
    parts: list[tuple[str, list[str], int]] = []  # title, lines, which of them is the one
    if problem.location:
        where = f"{place(problem.location.filename, problem.location.line)} in {problem.location.function}"
        parts.append((where, problem.location.caret.splitlines(), -1))
    rows, marked = around(recording, problem)
    if rows:
        parts.append(("the bytecode there", rows, marked))
    if len(problem.stack) > 1:
        calls = [f"{call.function:<16} {call.text}" for call in problem.stack]
        parts.append(("the calls that led there, outermost first", calls, -1))
    if problem.hint:
        parts.append(("what to do", [problem.hint], -1))
    text, body = [f"✂ {problem.reason}"], [f"<b>✂ {escape(problem.reason)}</b>"]
    for title, lines, marked in parts:
        shown = [("▸ " if n == marked else "  ") + line for n, line in enumerate(lines)]
        text += [title, *("  " + line for line in shown)]
        bold = [
            f"<b>{escape(line)}</b>" if n == marked else escape(line)
            for n, line in enumerate(shown)
        ]
        body.append(f'<span class="cl-dim">{escape(title)}</span>\n' + "\n".join(bold))
    alt = (
        f"Graph break: {problem.reason}. "
        + (f"{problem.location.text}. " if problem.location else "")
        + problem.hint
    )
    caption = "One graph break: why, where in your source and in the bytecode, and what can be done about it."
    return Picture(
        f'<div class="cl-torn cl-m">{chr(10).join(body)}</div>',
        caption,
        alt,
        "\n".join(text),
        ("break",),
    )


def around(recording: Recording, problem: Any) -> tuple[list[str], int]:
    """The instructions around the breaking one, and which of them it is; none if its code was not recorded."""
    name = problem.location.function if problem.location else ""
    for seen in recording.of(events.FrameSeen):
        if seen.code is None or seen.code.co_qualname != name or problem.offset < 0:
            continue
        program = frames.instructions(seen.code)
        at = [
            n
            for n, i in enumerate(program)
            if i.offset == problem.offset and str(i) == problem.instruction
        ]
        if at:
            first, last = max(0, at[0] - AROUND), min(len(program), at[0] + 2)
            return [f"{i.offset:>5} {i}" for i in program[first:last]], at[0] - first
    return [], -1


# ---- a frame in pieces ----------------------------------------------------------------------------------------------


@dataclass
class Piece:
    """A function, or a resume function of it: what was captured of it, each time, and where it goes on."""

    code: CodeType
    results: list[Any] = field(default_factory=list)
    problems: list[Any] = field(default_factory=list)
    next: list[Resume] = field(default_factory=list)
    resume: Resume | None = None

    @property
    def lines(self) -> list[str]:
        """Its operations. Where captures differ in them, each has its own line."""
        ways: dict[str, list[str]] = {}
        for number, result in enumerate(self.results, 1):
            names = ", ".join(
                op_name(node) for node in result.graph.graph.nodes if node.op.startswith("call_")
            )
            ways.setdefault(names, []).append(str(number))
        if len(ways) == 1:
            again = [f"captured {len(self.results)} times"] if len(self.results) > 1 else []
            return wrap(next(iter(ways)), 46, 4) + again
        lines = []
        for names, numbers in list(ways.items())[:WAYS]:
            told = f"{'capture' if len(numbers) == 1 else 'captures'} {', '.join(numbers)}: {names or 'no operation'}"
            lines += wrap(told, 46, 3)
        return lines + ([f"and {len(ways) - WAYS} more ways"] if len(ways) > WAYS else [])

    @property
    def in_python(self) -> list[str]:
        """What the head does itself: the expressions of this frame that broke a graph, each once."""
        return list(dict.fromkeys(map(expression, self.problems)))


def expression(problem: Any) -> str:
    """The expression of the captured frame that broke a graph: for a break further in, the call that led there."""
    first = problem.stack[0] if problem.stack else problem.location
    if first is None:
        return "the rest"
    text = marked(first) or first.text
    return f"if {text}" if "JUMP_IF" in problem.instruction and first is problem.location else text


def pieces_of(recording: Recording, function: str | Callable[..., Any] | None) -> list[Piece]:
    """The frame `function` and its resume functions, in the order in which they first ran."""
    found: dict[int, Piece] = {}
    order: list[Piece] = []
    piece = None
    for event in recording.events:
        if isinstance(event, events.FrameSeen) and event.code is not None:
            key = frames.number(event.code)
            if key not in found:
                order.append(found.setdefault(key, Piece(event.code)))
            piece = found[key]
        elif isinstance(event, events.FrameSeen):
            piece = None
        elif piece is not None and isinstance(event, events.GraphCaptured):
            piece.results.append(event.result)
            own = [name for name in event.result.head.names.values() if isinstance(name, Resume)]
            piece.next += [at for at in own if not caught(at) and at not in piece.next]
        elif piece is not None and isinstance(event, events.GraphBroke):
            piece.problems.append(as_written(event.problem))
    for one in order:
        one.resume = resumed_by(one.code, [other.code for other in order])
    origin = lambda one: one.resume.original if one.resume else one.code
    if function is not None and not isinstance(function, str):
        a_function(function, "cut")
        function = getattr(getattr(function, "forward", function), "__qualname__", str(function))
    for one in order:
        if one.resume is None and (
            one.problems if function is None else matches(one.code.co_qualname, function)
        ):
            return [other for other in order if origin(other) is one.code]
    asked = f" called '{function}'" if function else " with a graph break"
    raise LookupError(
        f"no frame{asked} was recorded. If it was compiled before, cl.reset() forgets it."
    )


def resumed_by(code: CodeType, known: list[CodeType]) -> Resume | None:
    """What `code` resumes. A recording outlives compiled code, so the code itself is asked if need be."""
    if (at := resumed(code)) is not None:
        return at
    name, _, offset = code.co_qualname.rpartition(" from ")
    for original in known:
        if name and original.co_qualname == name and code.co_code.endswith(original.co_code):
            return Resume(
                original, int(offset), code, code, (), len(code.co_code) - len(original.co_code)
            )
    return None


def matches(qualname: str, wanted: str) -> bool:
    return wanted in (qualname, qualname.split(".")[-1])


def caught(at: Resume) -> bool:
    """Is this where an exception handler begins?"""
    return any(entry.target == at.offset for entry in frames.exception_table(at.original))


def carried(at: Resume) -> str:
    """What the head hands to a resume function."""
    alive = live(at.original).get(at.offset, frozenset())
    names = [name for name in at.original.co_varnames if name in alive]
    stack = sum(name.startswith("stack") for name in at.code.co_freevars)
    return ", ".join([*names, *([plural(stack, "stack value")] if stack else [])]) or "nothing"


WIDE, GAP, TORN, BOX, ACROSS, WAYS = 350, 14, 76, 28, 4, 6
"""Width of a piece, distance between two beside each other; height of what stands between two below each other, and of each thing
that Python does there; how many may stand beside each other; so many captures that differ are told one by one."""


@dataclass
class Block:
    """A piece with what follows it, laid out: `below` are blocks or, for a piece that is drawn already or has not run yet, a
    sentence."""

    title: str
    number: str
    lines: list[str]
    piece: Piece | None
    below: list[tuple[str, Block]] = field(default_factory=list)

    @property
    def own_width(self) -> float:
        """What did not run has only its name and, below, why."""
        return (
            WIDE
            if self.piece
            else min(WIDE, 30 + max(text_width(self.title), text_width(self.number, SMALL)))
        )

    @property
    def width(self) -> float:
        return max(
            self.own_width,
            sum(block.width for _, block in self.below) + GAP * (len(self.below) - 1),
        )

    @property
    def own_height(self) -> float:
        lines = len(self.lines) + (self.piece is None and self.number != "")
        return 34 + 17 * lines + (8 if lines else 0)

    @property
    def torn(self) -> float:
        """The height of what stands between it and what is below."""
        return TORN + BOX * max(1, len(self.piece.in_python) if self.piece else 0)

    @property
    def height(self) -> float:
        return self.own_height + (
            self.torn + max(block.height for _, block in self.below) if self.below else 0
        )


@takes(recording=RECORDED)
def cut_frame(recording: Recording, function: str | Callable[..., Any] | None = None) -> Picture:
    """A frame cut in pieces: `function` by name or itself; None for the first that has a graph break."""
    pieces = pieces_of(recording, function)
    known = {frames.number(piece.code): piece for piece in pieces}
    drawn = {frames.number(pieces[0].code)}
    # graphs are numbered in this order
    captured = [frames.number(piece.code) for piece in pieces if piece.results]

    def lay_out(piece: Piece, above: frozenset[int] = frozenset()) -> Block:
        number = (
            f"graph {captured.index(frames.number(piece.code)) + 1}"
            if piece.results
            else "no graph"
        )
        block = Block(
            title_of(piece.resume or piece.code),
            number,
            piece.lines if piece.results else [],
            piece,
        )
        following = piece.next
        # nothing was captured here; what ran next was its resume function
        if piece.problems and not following:
            later = pieces[pieces.index(piece) + 1 :][:1]
            following = [one.resume for one in later if one.resume]
        mine = [at for at in following[:ACROSS] if frames.number(at.code) not in drawn]
        drawn.update(frames.number(at.code) for at in mine)
        above |= {frames.number(piece.code)}
        for at in following[:ACROSS]:
            key = frames.number(at.code)
            if at in mine and key in known:
                block.below.append((carried(at), lay_out(known[key], above)))
            elif at in mine:
                block.below.append(
                    (carried(at), Block(title_of(at), "not needed so far", [], None))
                )
            else:
                where = "drawn above" if key in above else "drawn elsewhere"
                block.below.append((carried(at), Block(title_of(at), where, [], None)))
        return block

    top = lay_out(pieces[0])
    svg = Svg(top.width + GAP + 12, top.height + 6)
    draw_block(svg, top, 2, 3)
    text = "\n".join(text_of(top))
    done = [piece for piece in pieces if piece.results]
    breaks = sum(len(piece.in_python) for piece in pieces)
    name = title_of(pieces[0].code)
    alt = f"{name} in {plural(len(pieces), 'piece')}: {plural(len(done), 'graph')}, {plural(breaks, 'graph break')}. "
    alt += " ".join(text.split())
    caption = "Blue: what is captured. Torn: a graph ends there; grey: what Python does itself. The arrow says what the head hands on."
    return Picture(svg.framed(alt), caption, alt, text)


def title_of(what: Resume | CodeType) -> str:
    """'bar', 'bar from 112 (line 4)'."""
    if isinstance(what, Resume):
        return (
            f"{title_of(what.code)} (line {line})"
            if (line := line_of(what))
            else title_of(what.code)
        )
    return what.co_qualname.split(".<locals>.")[-1]


def line_of(at: Resume) -> int | None:
    """The source line where a resume function goes on."""
    return next(
        (line for start, end, line in at.original.co_lines() if start <= at.offset < end), None
    )


def draw_block(svg: Svg, block: Block, x: float, y: float) -> None:
    """A piece, its torn edge, and below it where it goes on."""
    wide, left = block.own_width, x + (block.width - block.own_width) / 2
    run = block.piece is not None
    stage = "capture" if run and block.piece.results else "runtime"  # type: ignore[union-attr]
    svg.box(
        left,
        y,
        wide,
        block.own_height,
        stage,
        strength=0.14 if run else 0,
        dashed=not run,
        radius=10,
    )
    room = wide - 44 - text_width(block.number, SMALL) if run else wide - 20
    svg.text(
        left + 12,
        y + 22,
        shorten(block.title, room, bold_size(run)),
        bold=run,
        dim=not run,
        tip=block.title,
    )
    beside = (left + wide - 10, y + 22) if run else (left + 12, y + 42)
    svg.text(*beside, block.number, SMALL, anchor="end" if run else "start", dim=True)
    for n, line in enumerate(block.lines):
        svg.text(left + 12, y + 44 + 17 * n, line, 12, mono=True)
    if not block.below or block.piece is None:
        return
    bottom = y + block.own_height
    middle, torn = left + WIDE / 2, bottom + 12
    teeth = " ".join(f"l6 {7 if n % 2 == 0 else -7}" for n in range(int(WIDE // 6)))
    why = {expression(problem): problem.reason for problem in block.piece.problems}
    svg.path(
        f"M{left:.0f} {torn} {teeth}",
        stage="break",
        line=2.2,
        opacity=1,
        tip="; ".join(dict.fromkeys(why.values())),
    )
    svg.text(left - 2, torn + 25, "✂", LARGE, stage="break")
    for text, reason in why.items():
        said = f"Python: {text}"
        svg.box(left + 18, torn + 11, WIDE - 36, 24, "eager", strength=0.2, radius=4, tip=reason)
        svg.text(
            left + 28, torn + 27, shorten(said, WIDE - 56, 12, mono=True), 12, mono=True, tip=said
        )
        torn += BOX
    torn -= BOX
    at = (
        x
        + (block.width - sum(one.width for _, one in block.below) - GAP * (len(block.below) - 1))
        / 2
    )
    last = block.below[-1][1]
    for told, one in block.below:
        centre, low = at + one.width / 2, bottom + block.torn - 3
        corner = low - 26
        svg.arrow([(middle, torn + 36), (middle, corner), (centre, corner), (centre, low)])
        room = one.width / 2 + GAP + (last.width / 2 - 20 if one is not last else 0)
        svg.text(centre + 8, low - 7, shorten(f"hands on {told}", room, SMALL), SMALL, tip=told)
        draw_block(svg, one, at, bottom + block.torn)
        at += one.width + GAP


def bold_size(bold: bool) -> float:
    return 13.8 if bold else 13


def text_of(block: Block, indent: str = "") -> list[str]:
    """The drawing as text, a branch indented."""
    lines = [f"{indent}{block.title}: {block.number}".rstrip(": ")]
    lines += [f"{indent}  {line}" for line in block.lines]
    if block.piece is not None and block.below:
        lines += [f"{indent}✂ Python: {text}" for text in block.piece.in_python]
        for told, one in block.below:
            lines.append(f"{indent}{'├' if len(block.below) > 1 else ''}→ hands on {told}")
            lines += text_of(one, indent + "   " * (len(block.below) > 1))
    return lines


# ---- the bytecode of a resume function ------------------------------------------------------------------------------

ROW, COLUMN, BETWEEN = 19, 330, 70


@takes(at=having("a Resume (where a frame goes on)", "original", "offset", "shift"))
def resume_code(at: Resume) -> Picture:
    """The bytecode of a function, and beside it that of the resume function which goes on at one place in it."""
    before, after = frames.instructions(at.original), frames.instructions(at.code)
    new = sum(i.offset < at.shift for i in after)
    target = next(n for n, i in enumerate(after) if i.offset >= at.offset + at.shift)
    svg = Svg(2 * COLUMN + BETWEEN + 8, 34 + ROW * len(after) + 10)
    own = title_of(at.original)
    svg.text(4, 16, own, bold=True)
    right = COLUMN + BETWEEN
    svg.text(right, 16, title_of(at.code), bold=True)
    top = lambda n: 30 + ROW * n
    svg.box(
        right - 6, top(0) - 2, COLUMN, ROW * new + 2, "capture", strength=0.2, line=2.5, radius=5
    )
    svg.box(
        right - 6,
        top(target) - 2,
        COLUMN,
        ROW * (len(after) - target) + 2,
        "capture",
        strength=0.1,
        radius=5,
    )
    svg.box(
        2,
        top(target) - 2,
        COLUMN,
        ROW * (len(after) - target) + 2,
        "capture",
        strength=0.1,
        radius=5,
    )
    if target > new:
        svg.box(
            2, top(new) - 2, COLUMN, ROW * (target - new) + 2, "runtime", strength=0.1, radius=5
        )
        svg.box(
            right - 6,
            top(new) - 2,
            COLUMN,
            ROW * (target - new) + 2,
            None,
            dashed=True,
            line=1,
            radius=5,
        )
    text = [(own, "", title_of(at.code))]
    for n, i in enumerate(after):
        skipped = new <= n < target
        svg.text(right + 2, top(n) + 13, f"{i.offset:>4} {i}", 12, mono=True, dim=skipped)
        left = f"{before[n - new].offset:>4} {before[n - new]}" if n >= new else ""
        svg.text(10, top(n) + 13, left, 12, mono=True)
        mark = "new" if n < new else "skipped" if skipped else "same"
        text.append((left, mark, f"{i.offset:>4} {i}"))
    jump, low, edge = top(new) - ROW / 2, top(target) + ROW / 2, right + COLUMN
    svg.arrow(
        [(edge - 14, jump), (edge + 24, jump), (edge + 24, low), (edge - 4, low)],
        stage="capture",
        line=2,
    )
    svg.width += 24
    caption = "Outlined: the prologue, which is new. It jumps over what has been done already; all the rest is unchanged."
    stand = f"{plural(new, 'instruction')} {'stand' if new > 1 else 'stands'}"
    alt = f"{stand} before the bytecode of {own}; the last jumps to offset {at.offset + at.shift}."
    rows = "\n".join(f"{one:<34} {mark:<8} {two}".rstrip() for one, mark, two in text)
    return Picture(svg.render(alt), caption, alt, rows)
