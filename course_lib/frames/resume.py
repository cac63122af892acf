"""Resume functions: code that goes on in the middle of a function.

In:  a code object, an offset, and which values stand on the stack there.
Out: code that takes every local variable as an argument and the stack as closure cells, and goes on at that offset:

    COPY_FREE_VARS, RESUME              what every function with a closure begins with (and a generator as one)
    LOAD_DEREF stack0, PUSH_NULL, ...   put the stack back
    JUMP_FORWARD offset                 into the original bytecode, which follows unchanged

That is all, because jumps are relative since CPython 3.11. Variables shared with nested functions arrive as their cells.
In PyTorch: `torch/_dynamo/resume_execution.py` (`ContinueExecutionCache`), which rewrites the bytecode.
"""

import contextlib
import dis
import functools
import linecache
import opcode
import threading
import weakref
from dataclasses import dataclass
from types import CellType, CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from course_lib.frames.hook import (
    call,
    call_hidden,
    flatten,
    mark_head,
    number,
    run_apart,
    tell,
    wrapper,
)
from course_lib.frames.instructions import JUMPS, exception_table, instructions

# Resume functions that may run inside each other, as in a loop with a break; then the frame goes on as it is
NESTED = 24


@dataclass(frozen=True)
class Resume:
    """Code that goes on at `offset` of `original`. `names`: its closure, without the stack: cells by variable."""

    original: CodeType
    offset: int
    code: CodeType
    plain: CodeType  # The same, never captured: the last resort
    names: tuple[str, ...]
    shift: int  # How many bytes further down the original bytecode begins


@dataclass(frozen=True)
class AtBreak:
    """What the head of a frame that stops at a graph break stands for: its function's name, its code, and the line of the break.

    `written` is the head's own code. The code that runs has the same instructions, and the name and line of the program.
    """

    name: str
    original: CodeType
    line: int
    written: CodeType

    def line_in_head(self, place: int) -> int:
        """The line of the head's source that the instruction at `place` belongs to."""
        lines = (line for start, end, line in self.written.co_lines() if start <= place < end)
        return next(lines, None) or 1


heads: dict[int, AtBreak] = {}
"""By the number of the code that runs."""
_made: weakref.WeakValueDictionary[Any, Resume] = weakref.WeakValueDictionary()
"""By the number of its own code, and by what it was made from; heads keep them alive."""
PLAIN: set[int] = set()  # Numbers of the code that is not to be captured
_thread = threading.local()


def resumed(code: CodeType) -> Resume | None:
    """What a resume function resumes; None for other code."""
    return _made.get(number(code))


def resume_at(
    code: CodeType, offset: int, stack: tuple[bool | None, ...], unbound: frozenset[str]
) -> Resume:
    """The resume function of `code` (or its original) at `offset`. `stack` tells for each value on it whether it is a NULL (None:
    what was handled before an exception, which is given instead); `unbound` are the local variables without a value."""
    if before := resumed(code):
        code, offset = before.original, offset - before.shift
    key = number(code), offset, stack, unbound
    if key not in _made:
        made = _made[key] = make_resume(code, offset, stack, unbound)
        _made[number(made.code)] = made
        PLAIN.add(number(made.plain))
    return _made[key]


def make_resume(
    code: CodeType, offset: int, stack: tuple[bool | None, ...], unbound: frozenset[str]
) -> Resume:
    """Write the prologue, and move the tables by its length."""
    names = (
        tuple(name for name in code.co_cellvars if name not in code.co_varnames) + code.co_freevars
    )
    free = names + tuple(f"stack{i}" for i, is_null in enumerate(stack) if not is_null)
    slots = list(code.co_varnames)
    # in a cell, where `super()` looks
    first = {*slots[: "__class__" in code.co_freevars]}.intersection(code.co_cellvars)
    begin = _op("RETURN_GENERATOR") + _op("POP_TOP") if code.co_flags & 0x20 else b""  # a generator
    prologue = (_op("COPY_FREE_VARS", len(free)) if free else b"") + begin + _op("RESUME", 0)
    for name in sorted(unbound):
        prologue += _op("DELETE_FAST", slots.index(name))
    slot = len(slots) + len(names)
    for is_null in stack:
        prologue += _op("PUSH_NULL") if is_null else _op("LOAD_DEREF", slot)
        prologue += _op("PUSH_EXC_INFO") + _op("POP_TOP") if is_null is None else b""
        slot += not is_null
    prologue += _op("JUMP_FORWARD", offset // 2)
    units = len(prologue) // 2
    no_lines = bytes(0x80 | 15 << 3 | min(8, units - start) - 1 for start in range(0, units, 8))
    new = flatten(code).replace(
        co_code=prologue + code.co_code, co_freevars=free, co_cellvars=tuple(first),
        co_nlocals=len(slots), co_argcount=len(slots), co_stacksize=code.co_stacksize + 2,
        co_linetable=no_lines + code.co_linetable,
        co_exceptiontable=_shifted(code, units),
        co_qualname=f"{code.co_qualname} from {offset}",
    )  # fmt: skip
    return Resume(code, offset, new, new.replace(), names, len(prologue))


def in_the_program(head: FunctionType, name: str, original: CodeType, line: int) -> CodeType:
    """The code of a head, in the file of the program and in the line of the break. So whoever looks at the stack from below,
    a warning or a logger, finds the line whose work the head does."""
    disguised = in_line(head.__code__, original, line)
    key = number(disguised)
    heads[key] = AtBreak(name, original, line, head.__code__)
    weakref.finalize(disguised, heads.pop, key, None)
    mark_head(disguised)
    return disguised


def in_line(code: CodeType, original: CodeType, line: int) -> CodeType:
    """`code` with the names of `original`, and all its instructions in this line of it."""
    units = len(code.co_code) // 2
    steps = [min(8, units - start) for start in range(0, units, 8)]
    # "no columns", line + 0 (`Objects/locations.md`)
    table = b"".join(bytes([0x80 | 13 << 3 | step - 1, 0]) for step in steps)
    return code.replace(
        co_filename=original.co_filename,
        co_name=original.co_name,
        co_qualname=original.co_qualname,
        co_firstlineno=line,
        co_linetable=table,
    )


@wrapper
def resume(
    at: Resume,
    plain: bool,
    func: FunctionType,
    cells: tuple[CellType, ...],
    stack: tuple[Any, ...],
    *args: Any,
) -> Any:
    """Go on at `at` as a frame of `func`: what a head returns. An exception on the stack is about to be handled."""
    for value in stack:
        if isinstance(value, BaseException):
            tidy(value)
    nested = getattr(_thread, "nested", 0)
    code = at.plain if plain or nested >= NESTED else at.code
    closure = (*cells, *map(CellType, stack))
    _thread.nested = nested + 1
    try:
        rest = FunctionType(code, func.__globals__, func.__name__, None, closure)
        return call_hidden(rest, *args)
    except BaseException:
        for cell in closure[
            len(cells) :
        ]:  # one may hold the exception, whose traceback holds the cell
            cell.cell_contents = None
        raise
    finally:
        _thread.nested = nested


def traceback_line(inner: TracebackType | None, code: CodeType, line: int) -> TracebackType:
    """A line of a traceback, of a frame of a function that looks like the one with this code, and does nothing."""
    like: Any = {
        name: getattr(code, name) for name in ("co_filename", "co_name", "co_qualname")
    } | {"co_firstlineno": line}
    # all of it in that line; a generator's frame has no caller, whose variables it would keep
    nothing = (lambda: (yield)).__code__.replace(co_linetable=b"\xef\x00\xef\x00", **like)
    return TracebackType(inner, call(None, FunctionType(nothing, {})).gi_frame, 0, line)


def tidy(error: BaseException) -> None:
    """Let the traceback tell of the program as written: of the lines whose work heads did, of no call of a resume function."""
    parts, made, resumed = [error.__traceback__], None, False
    while (last := parts[-1]) is not None:
        parts.append(last.tb_next)
    for part in filter(None, reversed(parts)):
        frame = part.tb_frame
        place = heads.get(number(frame.f_code))
        if place is not None:
            made = made if resumed else line_of_head(made, place, part.tb_lasti)
            forget_variables(frame)
        elif not is_own(frame):
            made = TracebackType(
                made, frame, part.tb_lasti, part.tb_lineno or frame.f_code.co_firstlineno
            )
        else:
            forget_variables(frame)
        resumed = is_own(frame)
    error.__traceback__ = made


def line_of_head(inner: TracebackType | None, head: AtBreak, place: int) -> TracebackType:
    """The line of a traceback for a head: of the program, or where the graph is called, of the head's source."""
    line = head.line_in_head(place)
    if "__graph(" in linecache.getline(head.written.co_filename, line):
        return traceback_line(inner, head.written, line)
    return traceback_line(inner, head.original, head.line)


def is_own(frame: FrameType) -> bool:
    """Is this a call that only goes on with another frame: of `resume`, or of what runs a frame in eager?"""
    return frame.f_globals is globals() or frame.f_code is run_apart.__code__


def forget_variables(frame: FrameType) -> None:
    """Of a frame that no traceback shows: one may hold the exception, which holds the frames below this one."""
    with contextlib.suppress(RuntimeError):  # it is still running
        frame.clear()


tell(tidy)


@functools.lru_cache(maxsize=256)
def live(code: CodeType) -> dict[int, frozenset[str]]:
    """For each instruction's offset the local variables that may be read from there on, before they are written."""
    program, table = instructions(code), exception_table(code)
    handlers = {
        i.offset: [entry.target for entry in table if entry.start <= i.offset < entry.end]
        for i in program
    }
    nothing: frozenset[str] = frozenset()
    at: dict[int, frozenset[str]] = {}
    before = None
    while at != before:  # once more, because of jumps backwards
        before, now = dict(at), nothing
        for i in reversed(program):
            if i.op in ("JUMP", "RETURN_VALUE", "RERAISE", "RAISE_VARARGS"):
                now = nothing
            if i.op in JUMPS:
                now |= at.get(i.arg, nothing)
            if i.op in ("STORE_FAST", "DELETE_FAST"):
                now -= {i.arg}
            if i.op in ("LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL"):
                now |= {i.arg}
            now = now.union(*(at.get(handler, nothing) for handler in handlers[i.offset]))
            at[i.offset] = now
    return at


def _op(name: str, arg: int = 0) -> bytes:
    """One instruction: its EXTENDED_ARGs, itself, and the cache units behind it (RESUME has one since 3.15)."""
    extended = b"".join(
        bytes([dis.EXTENDED_ARG, arg >> shift & 255]) for shift in (24, 16, 8) if arg >> shift
    )
    table = opcode._inline_cache_entries  # type: ignore[attr-defined]
    # by number up to 3.12, then by name
    caches = table[dis.opmap[name]] if isinstance(table, list) else table.get(name, 0)
    return extended + bytes([dis.opmap[name], arg & 255]) + bytes(2 * caches)


def _shifted(code: CodeType, units: int) -> bytes:
    """The exception table of code that begins `units` later. (`Objects/exception_handling_notes.txt`)"""
    table = b""
    for e in exception_table(code):
        entry = bytearray()
        for value in (
            e.start // 2 + units,
            (e.end - e.start) // 2,
            e.target // 2 + units,
            e.depth << 1 | e.lasti,
        ):
            # bit 6: more follow
            before = [value >> shift & 63 | 64 for shift in (24, 18, 12, 6) if value >> shift]
            entry += bytes([*before, value & 63])
        entry[0] |= 128  # this bit marks the first byte
        table += entry
    return table
