"""Whose line is it? What happens deep in a library is told at the line of the program that called
it.

In:  an `Unsupported`, or a `Guard`. Out: the same as the program's author sees it: at the author's
     line and by the name of the call that stands there; the library's own line is a detail.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from dataclasses import replace
from itertools import islice
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from torch.nn import Module

from course_lib import events, frames
from course_lib.capture.assumptions import INSTALLED, TORCH
from course_lib.capture.sources import Location, Unsupported
from course_lib.frames.resume import heads
from course_lib.syntax import parse
from course_lib.trace_rules import called as called_by_us
from course_lib.viz.kit.style import place

STDLIB = re.compile(
    rf"{TORCH.pattern}|{re.escape(sysconfig.get_path('stdlib'))}[/\\](?!site-packages)"
)
"""Files of torch or of Python's own library. (Installed packages lie in a folder within that.)"""
INNER = re.compile(
    r"\b(?:torch(?:\.[\w<>]+)*\.(?:_\w+|<locals>)[\w.<>]*|TensorBase\.\w+|getitem|setitem)"
)
"""Names that no program has written: `torch.functional.boolean_dispatch.<locals>.fn`,
`torch._VariableFunctionsClass.x`; and what methods of tensors and `x[i]` are called within capture:
`TensorBase.add`, `getitem`."""


def own_line(problem: Unsupported) -> Location | None:
    """The innermost line that is no library's; else, of a library that was compiled itself, the
    innermost that is not torch's nor Python's.

    None if the problem has no line at all."""
    for not_the_program in (INSTALLED, STDLIB):
        for call in reversed(problem.stack):
            if not not_the_program.match(call.filename):
                return call
    return problem.location


def expression(location: Location) -> str:
    """What the caret marks; '' if it is not known, or goes on in the next line."""
    line, _, marks = location.caret.partition("\n")
    start = marks.find("^")
    if marks:
        return line[start : start + marks.count("^")]
    return ""


def called(location: Location) -> str:
    """The function of a marked call as it is written there: 'torch.unique'; of another expression,
    all of it; '' where the marked text is no expression."""
    text = expression(location).strip()
    try:
        tree: Any = parse(text, mode="eval").body
    except SyntaxError:
        return ""
    if isinstance(tree, ast.Call):
        return ast.unparse(tree.func)
    return text


def as_written(problem: Unsupported) -> Unsupported:
    """The problem at the author's line, in the author's words; itself, if it is told so already."""
    at = own_line(problem)
    if at is None or problem.location is None:
        return problem

    # A name that no program has written becomes the name at the author's line. In "calls getitem"
    # it stays: that name goes before the whole, 'torch.unique calls getitem'.
    name, reason = called(at), problem.reason
    if name and not reason.startswith("calls "):
        reason = INNER.sub(lambda _: name, reason, count=1)

    is_inside_other = str(at) != str(problem.location)
    if is_inside_other:
        is_named = reason != problem.reason
        reason += f" (in {place(problem.location.filename, problem.location.line)})"
        if not is_named:
            between = " " if reason.startswith("calls ") else ": "
            reason = f"{name or at.text}{between}{reason}"
    if reason == problem.reason and not is_inside_other:
        return problem

    # `original` is none of the record's fields: `same_break` reads it.
    rewritten = replace(problem, reason=reason, location=at)
    rewritten.__dict__["original"] = problem
    return rewritten


def same_break(problem: Unsupported) -> tuple[str, str]:
    """A key for a break: two have the same one if the reader should see one break, although other
    lines of the program led to them."""
    # `as_written` tells each at the line that led there.
    original = getattr(problem, "original", problem)
    return str(original.location), original.reason


def is_own(location: Location | None) -> bool:
    """Is it a line of the program, and no library's?"""
    return location is not None and not INSTALLED.match(location.filename)


def way(problem: Unsupported) -> tuple[list[Location], list[Location]]:
    """The calls above the line where a problem is told, outermost first, and those below it."""
    # The innermost call at that line; the innermost of all, if none is.
    here = len(problem.stack) - 1
    for number, call in enumerate(problem.stack):
        if str(call) == str(problem.location):
            here = number
    return list(problem.stack[:here]), list(problem.stack[here + 1 :])


# ---- functions that have no frame of their own ---------------------------------------------------

OURS = called_by_us(len).__code__
"""The frame in which a compiled function of torch (an optimizer's `step`, `F.gelu`), or one written
in C, is called."""
CALLED: WeakKeyDictionary[Any, tuple[str, Location | None]] = WeakKeyDictionary()
"""A graph that was captured of such a frame, or the check of its guards → the function's name, and
the line that called it."""


def calling() -> tuple[str, Location | None]:
    """While something is compiled: the name of what `cl.compile` was given, and the line of the
    program that called it.

    "" if what runs was not given to `cl.compile`. None if a head called it (the code that capture
    writes for the part of a frame before a break): it has no line of the program."""
    return frames.call_revealed(find_calling)


def find_calling() -> tuple[str, Location | None]:
    """`calling`, for a moment in which no frame is hidden from `sys._getframe`."""
    name = ""
    # Have only frames of course_lib and torch been passed so far? Behind a frame of another library
    # what is being compiled is not what was given to `cl.compile`, but something that it calls.
    direct = True
    frame: Any = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        if package == "course_lib" and code.co_qualname in GIVEN:
            # The frame in which the compiled function is called
            if direct:
                name = named(frame.f_locals[GIVEN[code.co_qualname]])
            direct = False
        elif code.co_filename.startswith("<course_lib head") or frames.number(code) in heads:
            return name, None
        elif package != "course_lib" and not INSTALLED.match(code.co_filename):
            # The first line of the program's own
            return name, position(frame)
        direct = direct and package in ("course_lib", "torch", "contextlib")
        frame = frame.f_back
    return name, None


def position(frame: Any) -> Location:
    """The expression that a frame is at."""
    code = frame.f_code
    # `f_lasti` counts bytes, and every instruction has two: `co_positions` gives one for each.
    at = frame.f_lasti // 2
    unknown = (None, None, None, None)
    line, end, column, last = next(islice(code.co_positions(), at, at + 1), unknown)
    if column is None:
        column = -1
    if last is None:
        last = -1
    elif end != line:
        # The expression goes on in the next line: all of this one is marked, however long it is.
        last = 10**6
    return Location(code.co_filename, frame.f_lineno, code.co_qualname, column, last)


GIVEN = {"compiled_function.<locals>.run": "function", "compiled_module.<locals>.run": "model"}
"""The qualified name of each wrapper that `cl.compile` returns → the variable in it that holds what
`cl.compile` was given."""


def decorated(name: str, given: str) -> str:
    """`given` (what `cl.compile` was given), if `name` (the code that runs) is a decorator's and
    tells nothing: `wraps.<locals>.wrapper`. '' if `name` serves."""
    # The last part of each name. Two functions of one name (`functools.wraps`) need no other, and a
    # lambda's name tells no more than the decorator's.
    own, outer = name.rpartition(".")[2], given.rpartition(".")[2]
    if "<locals>" in name and own != outer and outer != "<lambda>":
        return given
    return ""


def named(function: Any) -> str:
    """'Adam.step', 'gelu', 'Scale.__call__'; 'Bert.forward' of a module."""
    if isinstance(function, Module):
        return f"{type(function).__name__}.forward"
    inner = getattr(function, "func", function)  # of a `functools.partial`
    bound = type(getattr(inner, "__self__", None))
    name = getattr(inner, "__name__", type(inner).__name__)
    # (A builtin is bound to its module)
    if bound in (type(None), ModuleType):
        return name
    return f"{bound.__name__}.{name}"


STEP = "nothing: what it does to all parameters is compiled apart"
"""What to do about a break in an optimizer's `step`."""


class MovedToCall:
    """Tells events about a frame `OURS` by the name of the function that is called in it, at the
    line of the program that calls that function.

    Give it every event, in the order in which they come: those behind a `FrameSeen` are about the
    same frame."""

    def __init__(self) -> None:
        self.name, self.at = "", None  # type: tuple[str, Location | None]

    def __call__(self, event: events.Event) -> events.Event:
        if isinstance(event, events.FrameSeen):
            return self.frame_seen(event)
        if not self.name:
            return event

        match event:
            case events.GraphBroke():
                return replace(event, problem=self.moved(event.problem))
            case events.GraphCaptured():
                return self.captured(event)
            case events.GuardsMade():
                CALLED[event.check] = self.name, self.at
            case events.GuardFailed() | events.Recompiled() if event.name == OURS.co_qualname:
                return replace(event, name=self.name)
            case events.FellBack() if event.what == OURS.co_qualname:
                why = event.why.replace(OURS.co_qualname, self.name)
                return replace(event, what=self.name, why=why)
        return event

    def frame_seen(self, event: Any) -> events.Event:
        """Whose frame is it? What follows is about it, until the next."""
        self.name = ""
        if event.code is not OURS:
            return event

        self.name, self.at = calling()
        if not self.name:
            return event
        return replace(event, name=self.name, where=str(self.at or ""), code=None)

    def captured(self, event: Any) -> events.Event:
        """A graph, under the function's name."""
        result = event.result
        CALLED[result.graph.graph] = self.name, self.at
        problem = result.problem and self.moved(result.problem)
        result = replace(result, name=self.name, where=str(self.at or ""), problem=problem)
        return replace(event, result=result)

    def moved(self, problem: Unsupported) -> Unsupported:
        """The problem, at the line that calls the function."""
        if not problem.stack or problem.stack[0].function != OURS.co_qualname:
            return problem

        is_step = ".optim." in problem.reason and self.name.endswith(".step")
        hint = STEP if is_step else problem.hint
        location = self.at if len(problem.stack) == 1 else problem.location
        caller = (self.at,) if self.at else ()
        return replace(problem, hint=hint, stack=(*caller, *problem.stack[1:]), location=location)
