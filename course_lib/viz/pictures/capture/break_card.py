"""One graph break in full: why, the line with a caret, the instruction among its neighbours, the
calls that led there, what to do.

In:  a `Recording`, or an `Unsupported`. Out: a `Picture`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course_lib import events, frames
from course_lib.viz.kit.arguments import RECORDED, takes, whole
from course_lib.viz.kit.style import Picture, escape, place
from course_lib.viz.recording import Recording

BEFORE, AFTER = 3, 1
"""So many instructions are shown before the one that broke the graph, and after it."""
CAPTION = (
    "One graph break: why, where in your source and in the bytecode, and what can be done about it."
)


@takes(recording=RECORDED)
def break_card(recording: Recording, index: int = 0) -> Picture:
    """All that is known about one graph break.

    Raises LookupError if there is none of that number."""
    problems = recording.graph_breaks
    index = whole(index, "a graph break is asked for by its number")
    if not -len(problems) <= index < len(problems):
        raise LookupError(
            f"there is no graph break {index}; there are {len(problems)}, numbered from 0"
        )
    return card_of(recording, problems[index])


@dataclass(frozen=True)
class Part:
    """A part of the card: a title, and lines of which one may be marked."""

    title: str
    lines: list[str]
    marked: int = -1  # none of them

    def shown(self) -> list[str]:
        """The lines, the marked one with an arrow."""
        return [f"{'▸' if n == self.marked else ' '} {line}" for n, line in enumerate(self.lines)]

    def html(self) -> str:
        """The lines that are shown, as HTML: the marked one is bold."""
        lines = [escape(line) for line in self.shown()]
        if self.marked >= 0:
            lines[self.marked] = f"<b>{lines[self.marked]}</b>"
        return f'<span class="cl-dim">{escape(self.title)}</span>\n' + "\n".join(lines)


def card_of(recording: Recording, problem: Any) -> Picture:
    """The card of one `Unsupported`."""
    parts = parts_of(recording, problem)
    text = [f"✂ {problem.reason}"]
    for part in parts:
        text.append(part.title)
        text += [f"  {line}" for line in part.shown()]

    body = [f"<b>✂ {escape(problem.reason)}</b>", *(part.html() for part in parts)]
    html = f'<div class="cl-torn cl-m">{chr(10).join(body)}</div>'

    line = ""
    if problem.location:
        line = f"{problem.location.text}. "
    alt = f"Graph break: {problem.reason}. {line}{problem.hint}"
    return Picture(html, CAPTION, alt, "\n".join(text), sheets=("break",))


def parts_of(recording: Recording, problem: Any) -> list[Part]:
    """What is known, from the line outwards."""
    parts = []
    if problem.location:
        at = problem.location
        where = f"{place(at.filename, at.line)} in {at.function}"
        parts.append(Part(where, at.caret.splitlines()))

    bytecode = around(recording, problem)
    if bytecode:
        parts.append(bytecode)

    if len(problem.stack) > 1:
        calls = [f"{call.function:<16} {call.text}" for call in problem.stack]
        parts.append(Part("the calls that led there, outermost first", calls))
    if problem.hint:
        parts.append(Part("what to do", [problem.hint]))
    return parts


def around(recording: Recording, problem: Any) -> Part | None:
    """The instructions around the breaking one; None if its code was not recorded."""
    if problem.offset < 0:  # no instruction is known
        return None
    name = problem.location.function if problem.location else ""

    for frame_event in recording.of(events.FrameSeen):
        if frame_event.code is None or frame_event.code.co_qualname != name:
            continue
        program = frames.instructions(frame_event.code)
        for number, instruction in enumerate(program):
            # Several code objects may have this name: the instruction tells which one it was.
            if instruction.offset == problem.offset and str(instruction) == problem.instruction:
                first = max(0, number - BEFORE)
                near = program[first : number + AFTER + 1]
                lines = [f"{one.offset:>5} {one}" for one in near]
                return Part("the bytecode there", lines, number - first)
    return None
