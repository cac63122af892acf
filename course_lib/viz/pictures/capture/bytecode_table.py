"""What the symbolic interpreter did, one row an instruction.

In:  a `Recording` of a capture (or just a function, for plain bytecode).
Out: a table: the user's source line, once; under it the instructions it became, the stack after
     each (its top at the right; what was taken off is dashed, what was put on is filled), and the
     FX node that the instruction added. A call that was followed is indented under the instruction
     that made it.
"""

from __future__ import annotations

import itertools
import linecache
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from course_lib import events
from course_lib.frames import instructions
from course_lib.frames.resume import resumed
from course_lib.viz.kit.arguments import RECORDED, Kind, recorded, shown, takes
from course_lib.viz.kit.style import Picture, escape, place, plural, short_types
from course_lib.viz.kit.tables import columns
from course_lib.viz.kit.user_lines import as_written
from course_lib.viz.recording import Recording

OPEN_UP_TO = 40
"""A frame with more instructions than this shows followed calls closed."""
CHIP_LETTERS, ARGUMENT_LETTERS = 44, 32
"""A longer value of the stack, or argument of an instruction, is cut."""


@dataclass
class Step:
    """One instruction, and the steps of the call that it followed, if any."""

    run: events.InstructionRun
    inside: list[Step] = field(default_factory=list)

    @property
    def count(self) -> int:
        """This instruction and all within."""
        return 1 + sum(step.count for step in self.inside)

    @property
    def change(self) -> tuple[list[str], list[str], list[str]]:
        """The stack as (what stayed, what was taken off, what was put on)."""
        before = list(map(short_types, self.run.before))
        after = list(map(short_types, self.run.after))

        # What is the same from the bottom up stayed.
        count_that_stayed = 0
        while (
            count_that_stayed < min(len(before), len(after))
            and before[count_that_stayed] == after[count_that_stayed]
        ):
            count_that_stayed += 1
        return before[:count_that_stayed], before[count_that_stayed:], after[count_that_stayed:]


@dataclass
class FrameRun:
    """One attempt to capture a frame: its steps, the graph that it gave, and the `Unsupported` that
    ended it. A frame that ended in a graph break has both.

    code: None for a compiled function of torch, whose frame is none of the program's."""

    name: str
    steps: list[Step]
    graph: Any = None
    problem: Any = None
    code: types.CodeType | None = None

    @property
    def count(self) -> int:
        return sum(step.count for step in self.steps)

    @property
    def ending(self) -> str:
        """How it ended, if not with a return."""
        if not self.problem:
            return ""
        if self.graph:
            return "the graph ends here"
        return "capture stops here"


def frame_runs(recording: Recording) -> list[FrameRun]:
    """The frames of a recording with their instructions as trees."""
    runs: list[FrameRun] = []
    flat: list[events.InstructionRun] = []
    last = FrameRun("", [])

    def close() -> None:
        """The frame that was begun `last` has run so far: keep it, if it ran at all."""
        if flat:
            last.name, last.steps = last.name or flat[-1].function, nest(flat)
            runs.append(last)
            flat.clear()

    for event in recording.events:
        if isinstance(event, events.FrameSeen):
            close()
            last = FrameRun(event.name, [], code=event.code)
        elif isinstance(event, events.InstructionRun):
            flat.append(event)
        elif isinstance(event, events.GraphCaptured):
            # At a graph break both of these come, in either order.
            close()
            last.graph = event.result.graph
            problem = event.result.problem
            last.problem = as_written(problem) if problem else problem
        elif isinstance(event, events.GraphBroke):
            close()
            last.problem = as_written(event.problem)
    close()
    return runs


def nest(flat: list[events.InstructionRun]) -> list[Step]:
    """Instructions in the order in which they finished, as a tree: a call is reported after what it
    called."""
    # depth → the steps there whose call was not reported so far
    levels: dict[int, list[Step]] = {}
    for run in flat:
        # All that lies deeper and was reported before is what this instruction called.
        steps_inside = [
            step for depth in sorted(levels) if depth > run.depth for step in levels.pop(depth)
        ]
        levels.setdefault(run.depth, []).append(Step(run, steps_inside))
    left = [levels[depth] for depth in sorted(levels)]
    # What is left at greater depths was called by calls that did not come back.
    for outer, inner in itertools.pairwise(left):
        outer.append(Step(unfinished(outer[-1].run, inner[0].run), inner))
    return left[0] if left else []


def unfinished(last: events.InstructionRun, inner: events.InstructionRun) -> events.InstructionRun:
    """Stands for a call instruction that was never reported, because capture stopped inside of
    it. Its offset, -1, is not shown."""
    return replace(last, offset=-1, op="CALL", arg=inner.function, before=last.after, node="")


def find_run(
    recording: Recording, function: str | int | Callable[..., Any] | None = None
) -> FrameRun:
    """The frame to show: by name, by number, by the function itself; None for the first.

    Raises LookupError with the names there are; TypeError for what is no name, number or
    function."""
    names_frame = function is None or isinstance(function, (str, int)) or callable(function)
    if isinstance(function, bool) or not names_frame:
        raise TypeError(
            f"a frame is asked for by its name, its number or the function itself, not by {shown(function)}"
        )

    runs = frame_runs(recorded(recording, "this picture"))
    if not runs:
        raise LookupError(
            "nothing was captured while recording. Was the function compiled before? cl.reset() forgets it."
        )
    # (A bool is an int, too, and was refused above)
    if isinstance(function, int):
        return run_by_number(runs, function)
    if function is None:
        return runs[0]
    if isinstance(function, str):
        return run_by_name(runs, function)
    # Of a module it is `forward` that was captured
    method = getattr(function, "forward", function)
    return run_by_name(runs, getattr(method, "__qualname__", str(function)))


def run_by_number(runs: list[FrameRun], number: int) -> FrameRun:
    """The run with this number (negative: from the last). Raises LookupError if there is none."""
    if -len(runs) <= number < len(runs):
        return runs[number]

    how_many = f"there are {len(runs)} frames, numbered from 0"
    if len(runs) == 1:
        how_many = "there is 1 frame, number 0"
    raise LookupError(f"there is no frame {number}: {how_many}")


def run_by_name(runs: list[FrameRun], name: str) -> FrameRun:
    """The first run of a function, by its whole name or the last part of it.

    Raises LookupError if there is none."""
    for run in runs:
        if name in (run.name, run.name.split(".")[-1]):
            return run

    names = ", ".join(run.name for run in runs)
    raise LookupError(f"no frame called '{name}' was captured; there are {names}")


# ---- the table -----------------------------------------------------------------------------------


@takes(recording=RECORDED)
def bytecode_table(
    recording: Recording, function: str | int | Callable[..., Any] | None = None
) -> Picture:
    """Every instruction that the symbolic interpreter ran for one frame: `function` is its name,
    its number, or the function itself; None for the first."""
    run = find_run(recording, function)
    wide = run.count > OPEN_UP_TO
    titles = ("offset", "instruction", "stack, top at the right", "new FX node")
    head = "".join(f"<b>{title}</b>" for title in titles)
    rows = f'<div class="cl-row">{head}</div>{html_steps(run.steps, wide)}{torn(run)}'
    body = f'<div class="cl-scroll"><div class="cl-bc cl-m">{rows}</div></div>'
    nodes = sum(bool(step.run.node) for step in walk(run.steps))
    caption = (
        f"{run.name}, one instruction a row: what it takes off the stack is dashed, what it puts on is filled; "
        "the right column is the FX node it added."
    )
    if run.code is not None and resumed(run.code):
        caption += " This is a resume function: before it jumps to where it goes on, it puts the stack back."
    ended = ""
    if run.problem:
        ended = f" {run.ending.capitalize()}: {run.problem.reason}."
    alt = f"Symbolic interpretation of {run.name}: {plural(run.count, 'instruction')}, {plural(nodes, 'FX node')} added.{ended}"
    text = "\n".join(text_steps(run.steps, wide))
    if run.problem:
        text += f"\n✂ {run.ending}: {plain_problem(run.problem)}"
    return Picture(body, caption, alt, text, sheets=("bytecode", "break"))


def walk(steps: list[Step]) -> Iterator[Step]:
    """Steps in the order in which a reader meets them: the call, then what it called."""
    for step in steps:
        yield step
        yield from walk(step.inside)


def html_steps(steps: list[Step], closed: bool) -> str:
    """Rows for one function's instructions, grouped by source line."""
    parts = []
    line = None  # the source line under which the rows stand
    for step in steps:
        run = step.run
        if run.line != line:
            line = run.line
            parts.append(html_source(place(run.filename, run.line), source_line(run)))
        parts.append(html_row(step))
        if step.inside:
            inner = step.inside[0].run.function
            label = escape(f"{inner}: {plural(step.count - 1, 'instruction')}, followed")
            opened = "" if closed else " open"
            rows = html_steps(step.inside, closed)
            parts.append(
                f'<details class="cl-in"{opened}><summary>{label}</summary>{rows}</details>'
            )
    return "".join(parts)


def html_source(where: str, line: str) -> str:
    """A source line above its instructions."""
    return f'<div class="cl-src"><span class="cl-dim">{escape(where)}</span>  {escape(line)}</div>'


def html_row(step: Step) -> str:
    """One instruction."""
    run = step.run
    stays, off, on = step.change
    chips = "".join(chip(text) for text in stays) + "".join(chip(text, " cl-off") for text in off)
    chips += ("→ " if off and on else "") + "".join(chip(text, " cl-on") for text in on)
    node = ""
    if run.node:
        node = f'<span class="cl-new" title="{escape(run.node)}">{escape(run.node)}</span>'
    offset = str(run.offset) if run.offset >= 0 else ""
    name = f"{escape(run.op)} <b>{escape(short_arg(run.arg))}</b>"
    whole = escape(plain_arg(run.arg))
    return (
        f'<div class="cl-row"><span class="cl-no">{offset}</span><span class="cl-op" title="{whole}">{name}</span>'
        f"<span>{chips}</span><span>{node}</span></div>"
    )


def chip(text: str, kind: str = "") -> str:
    """One value on the stack. kind: the class of one that was taken off or put on."""
    short = text if len(text) <= CHIP_LETTERS else text[: CHIP_LETTERS - 3] + "…"
    return f'<span class="cl-chip{kind}" title="{escape(text)}">{escape(short)}</span>'


def torn(run: FrameRun) -> str:
    """Where the graph broke."""
    if not run.problem:
        return ""
    return f'<div class="cl-torn"><b>✂ {run.ending}</b>\n{escape(plain_problem(run.problem))}</div>'


def plain_problem(problem: Any) -> str:
    """A break in words, with the file as a reader knows it."""
    lines = [problem.reason]
    if problem.location:
        lines.append(
            f"  at {place(problem.location.filename, problem.location.line)} in {problem.location.function}"
        )
        lines += ["    " + row for row in problem.location.caret.splitlines()]
    if problem.hint:
        lines.append(f"  what to do: {problem.hint}")
    return "\n".join(lines)


def source_line(run: events.InstructionRun) -> str:
    return linecache.getline(run.filename, run.line).strip()


def plain_arg(arg: str) -> str:
    """An argument without the addresses of this run: `<code object f at 0x7f…, file …>` is
    `code of f`."""
    return re.sub(r"<code object (.+?) at 0x.*>", r"code of \1", arg)


def short_arg(arg: str) -> str:
    """An argument as it fits its column."""
    arg = plain_arg(arg)
    if len(arg) <= ARGUMENT_LETTERS:
        return arg
    return arg[: ARGUMENT_LETTERS - 3] + "…"


def text_steps(steps: list[Step], closed: bool, indent: str = "") -> list[str]:
    """The table as text; a closed call is one line."""
    lines: list[str] = []
    line = None  # the source line under which the rows stand
    for step in steps:
        run = step.run
        if run.line != line:
            line = run.line
            lines.append(f"{indent}{place(run.filename, run.line)}  {source_line(run)}".rstrip())
        node = f"   ← new node {run.node}" if run.node else ""
        offset = str(run.offset) if run.offset >= 0 else ""
        stack = " │ ".join(map(short_types, run.after))
        lines.append(f"{indent}{offset:>6} {run.op + ' ' + short_arg(run.arg):<28} [{stack}]{node}")
        if step.inside and closed:
            lines.append(
                f"{indent}         … {step.inside[0].run.function}: {plural(step.count - 1, 'instruction')}, followed"
            )
        elif step.inside:
            lines += text_steps(step.inside, closed, indent + "    ┆ ")
    return lines


# ---- plain bytecode ------------------------------------------------------------------------------


@takes(
    fn=Kind(
        "a Python function or its code",
        lambda fn: isinstance(getattr(fn, "__code__", fn), types.CodeType),
    )
)
def disassembly(fn: Any) -> Picture:
    """The bytecode of a function (or a code object), under the source lines it came from."""
    code = fn if isinstance(fn, types.CodeType) else fn.__code__
    program = instructions(code)
    name = getattr(fn, "__qualname__", str(fn))
    parts, text = [], []
    line = None  # the source line under which the rows stand
    for i in program:
        if i.line != line and i.line is not None:
            line = i.line
            source = linecache.getline(code.co_filename, line).strip()
            parts.append(html_source(str(line), source))
            text.append((str(line), source))
        numbered = f'<span class="cl-no">{i.offset}</span><span class="cl-op">{escape(i.op)}</span>'
        arg = f'<b title="{escape(plain_arg(i.argument))}">{escape(short_arg(i.argument))}</b>'
        parts.append(f'<div class="cl-row">{numbered}{arg}</div>')
        text.append(("", f"{i.offset:>6} {i.op:<26} {short_arg(i.argument)}".rstrip()))
    body = f'<div class="cl-scroll"><div class="cl-bc cl-m">{"".join(parts)}</div></div>'
    alt = f"Bytecode of {name}: {plural(len(program), 'instruction')}."
    caption = f"{name} as bytecode: each source line, and the instructions CPython runs for it (offset, name, argument)."
    return Picture(body, caption, alt, columns(text), sheets=("bytecode",))
