"""Tracebacks that tell of the program as it was written, though heads and resume functions did its
work.

In:  an error that leaves a head, or that a resume function goes on with.
Out: the same error. Its traceback names the user's lines, and no call that only goes on with
     another frame.

A head runs in the place of a frame, and after a graph break a resume function runs the rest of it.
CPython writes a line of the traceback for each of them. To the user it was one function. So `tidy`
writes the traceback anew: a head becomes the line of the break, calls that only go on are left out,
all other lines stay.
In PyTorch: nothing does this; a traceback of torch.compile shows `torch_dynamo_resume_in_f_at_12`.
"""

import contextlib
import linecache
import weakref
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from course_lib.frames.assembling import UNIT, one_line
from course_lib.frames.hook import call, mark_head, number, run_apart, tell


@dataclass(frozen=True)
class AtBreak:
    """What the head of a frame that stops at a graph break stands for: its function's name, its
    code, and the line of the break.

    `written` is the head's own code. The code that runs has the same instructions, and the name and
    line of the program.
    """

    name: str
    original: CodeType
    line: int
    written: CodeType

    def line_in_head(self, place: int) -> int:
        """The line of the head's source that the instruction at `place` belongs to."""
        for start, end, line in self.written.co_lines():
            if start <= place < end:
                # None for an instruction that no line is to blame for
                return line or 1
        return 1


heads: dict[int, AtBreak] = {}
"""The number of the code that runs → what that head stands for. An entry goes when its code
dies."""
going_on: set[int] = {number(run_apart.__code__)}
"""Numbers of the code of functions that only go on with another frame."""


# ---- the place of a head -------------------------------------------------------------------------


def in_the_program(head: FunctionType, name: str, original: CodeType, line: int) -> CodeType:
    """The code of a head, in the file of the program and in the line of the break.

    So whoever looks at the stack from below, a warning or a logger, finds the line whose work the
    head does."""
    disguised = in_line(head.__code__, original, line)

    key = number(disguised)
    heads[key] = AtBreak(name, original, line, head.__code__)
    weakref.finalize(disguised, heads.pop, key, None)

    mark_head(disguised)
    return disguised


def in_line(code: CodeType, original: CodeType, line: int) -> CodeType:
    """`code` with the names of `original`, and all its instructions in this line of it."""
    return code.replace(
        co_filename=original.co_filename,
        co_name=original.co_name,
        co_qualname=original.co_qualname,
        co_firstlineno=line,
        co_linetable=one_line(len(code.co_code) // UNIT),
    )


# ---- a traceback, written anew -------------------------------------------------------------------


def tidy(error: BaseException) -> None:
    """Let the traceback tell of the program as it was written.

    A head did the work of a line of the program: that line stands in its place. A resume function
    only goes on with a frame that has its line already: it is left out."""
    # From the innermost line outwards, as CPython links them
    tidy_traceback, goes_on_below = None, False
    for part in reversed(parts_of(error.__traceback__)):
        frame = part.tb_frame
        goes_on = is_going_on(frame)

        head = heads.get(number(frame.f_code))
        if head is None and not goes_on:
            line = part.tb_lineno or frame.f_code.co_firstlineno
            tidy_traceback = TracebackType(tidy_traceback, frame, part.tb_lasti, line)
        else:
            # If a resume function ran below, the function has a line there already.
            if head is not None and not goes_on_below:
                tidy_traceback = line_of_head(tidy_traceback, head, part.tb_lasti)
            forget_variables(frame)
        goes_on_below = goes_on
    error.__traceback__ = tidy_traceback


def parts_of(traceback: TracebackType | None) -> list[TracebackType]:
    """The lines of a traceback, outermost first."""
    parts = []
    while traceback is not None:
        parts.append(traceback)
        traceback = traceback.tb_next
    return parts


def line_of_head(inner: TracebackType | None, head: AtBreak, place: int) -> TracebackType:
    """The line of a traceback for a head: of the program, or where the graph is called, of the
    head's source."""
    line = head.line_in_head(place)
    # The name by which heads call their graph (`capture/head.py`). That call may be the work of
    # many lines of the program, so the head's own line is shown.
    if "__graph(" in linecache.getline(head.written.co_filename, line):
        return traceback_line(inner, head.written, line)
    return traceback_line(inner, head.original, head.line)


def traceback_line(inner: TracebackType | None, code: CodeType, line: int) -> TracebackType:
    """A line of a traceback, of a frame of a function that looks like the one with this code, and
    does nothing."""
    looks: Any = {name: getattr(code, name) for name in ("co_filename", "co_name", "co_qualname")}
    # All instructions of `nothing` are put in that line. It is a generator, for the frame of one
    # has no caller: an ordinary frame would keep its caller's variables alive.
    table = one_line(len(nothing.__code__.co_code) // UNIT)
    code_there = nothing.__code__.replace(co_linetable=table, co_firstlineno=line, **looks)
    return TracebackType(inner, call(None, FunctionType(code_there, {})).gi_frame, 0, line)


def nothing() -> Any:
    """A generator, whose frame is there before any of it runs."""
    yield


def is_going_on(frame: FrameType) -> bool:
    """Is this a call that only goes on with another frame: of `resume`, or of what runs a frame in
    eager?"""
    return number(frame.f_code) in going_on


def forget_variables(frame: FrameType) -> None:
    """Clear the variables of a frame that no traceback shows.

    One of them may hold the exception, and thereby all frames below."""
    with contextlib.suppress(RuntimeError):  # a frame that still runs cannot be cleared
        frame.clear()


tell(tidy)
