"""Resume functions: code that goes on in the middle of a function.

In:  a code object, an offset, and which values stand on the stack there.
Out: code that takes every local variable as an argument and the stack as closure cells, and goes on
     at that offset:

    COPY_FREE_VARS, RESUME              what every function with a closure begins with (and a
                                        generator as one)
    LOAD_DEREF stack0, PUSH_NULL, ...   put the stack back
    JUMP_FORWARD offset                 into the original bytecode, which follows unchanged

That is all, because jumps are relative since CPython 3.11. Variables shared with nested functions
arrive as their cells. `live` says which variables the rest of a function still needs.
In PyTorch: `torch/_dynamo/resume_execution.py` (`ContinueExecutionCache`), which rewrites the
bytecode; `bytecode_analysis.py` (`livevars_analysis`).
"""

import functools
import inspect
import threading
import weakref
from dataclasses import dataclass
from enum import Enum
from types import CellType, CodeType, FunctionType
from typing import Any

from course_lib.frames.assembling import UNIT, instruction, no_line, shifted_handlers
from course_lib.frames.hook import call_hidden, flatten, number, wrapper
from course_lib.frames.instructions import JUMPS, Instruction, exception_table, instructions
from course_lib.frames.tracebacks import going_on, heads, in_the_program, tidy, traceback_line

# Who makes resume functions takes what concerns their tracebacks from here, too.
__all__ = [
    "NEVER_CAPTURED",
    "Resume",
    "Slot",
    "heads",
    "in_the_program",
    "live",
    "make_resume",
    "resume",
    "resume_at",
    "resumed",
    "tidy",
    "traceback_line",
]

NESTED = 24
"""Resume functions that may run inside each other, as in a loop with a break; then the frame goes
on as it is."""
NEVER_CAPTURED: set[int] = set()
"""Numbers of code that runs as it is: the rest of a frame that nothing more is to be captured of,
and what a user disabled. No number is ever used for a second code object."""


class Slot(Enum):
    """What stands at one place of the stack, and how the prologue puts it back."""

    VALUE = "value"
    """An ordinary value: it is loaded from its cell."""
    NULL = "NULL"
    """The NULL that a call keeps beside a function: it is pushed, and has no cell."""
    HANDLED = "handled"
    """The place of the exception that was handled before (None if there was none).

    In an `except` block the stack is `..., handled before, being handled now, ...`. The cell of
    this place holds the one that is being handled now: PUSH_EXC_INFO notes that, and itself puts
    the one from before here (`put_back`)."""


_made_from: weakref.WeakValueDictionary[Any, "Resume"] = weakref.WeakValueDictionary()
"""What a resume function was made from → the resume function. Heads keep them alive."""
_by_own_code: weakref.WeakValueDictionary[int, "Resume"] = weakref.WeakValueDictionary()
"""The number of a resume function's own code → the resume function."""
_thread = threading.local()


@dataclass(frozen=True)
class Resume:
    """Code that goes on at `offset` of `original`.

    `names`: its closure, without the stack: cells by variable."""

    original: CodeType
    offset: int
    code: CodeType
    plain: CodeType  # The same, never captured: the last resort
    names: tuple[str, ...]
    shift: int  # How many bytes further down the original bytecode begins


def resumed(code: CodeType) -> Resume | None:
    """What a resume function resumes; None for other code."""
    return _by_own_code.get(number(code))


def resume_at(
    code: CodeType, offset: int, stack: tuple[Slot, ...], unbound: frozenset[str]
) -> Resume:
    """The resume function of `code` (or its original) at `offset`.

    `unbound`: the local variables without a value."""
    # A resume function that breaks is resumed in the original code: there two ways that meet again
    # need one resume function, and not one each. The place is earlier by the prologue's length.
    if resume_before := resumed(code):
        code, offset = resume_before.original, offset - resume_before.shift

    key = number(code), offset, stack, unbound
    known_resume = _made_from.get(key)
    if known_resume is not None:
        return known_resume

    new_resume = make_resume(code, offset, stack, unbound)
    _made_from[key] = new_resume
    _by_own_code[number(new_resume.code)] = new_resume
    # The variant that runs as it is must not be captured.
    NEVER_CAPTURED.add(number(new_resume.plain))
    return new_resume


def make_resume(
    code: CodeType, offset: int, stack: tuple[Slot, ...], unbound: frozenset[str]
) -> Resume:
    """Write the prologue, and move the tables by its length. Arguments as for `resume_at`."""
    slots = list(code.co_varnames)
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    names = cells + code.co_freevars
    # A cell for each value of the stack; a NULL has none.
    on_stack = []
    for i, slot in enumerate(stack):
        if slot is not Slot.NULL:
            on_stack.append(f"stack{i}")
    free = (*names, *on_stack)

    prologue = begin(code, len(free))
    # Every variable is an argument. For one without a value the head passes None, which goes.
    for name in sorted(unbound):
        prologue += instruction("DELETE_FAST", slots.index(name))
    prologue += put_back(stack, first_cell=len(slots) + len(names))
    prologue += instruction("JUMP_FORWARD", offset // UNIT)

    # An argument that nested functions share arrives as its cell, in an ordinary slot: LOAD_DEREF
    # needs no more. Only `super()` asks if the first argument is a cell variable, to look in its
    # cell; so that one stays a cell variable.
    own_cells: tuple[str, ...] = ()
    has_super = "__class__" in code.co_freevars
    if has_super and slots and slots[0] in code.co_cellvars:
        own_cells = (slots[0],)

    units = len(prologue) // UNIT
    # `flatten` takes the flags of `*args` and `**kwargs` away: all that arrives is positional.
    new_code = flatten(code).replace(
        co_code=prologue + code.co_code,
        co_freevars=free,
        co_cellvars=own_cells,
        co_nlocals=len(slots),
        co_argcount=len(slots),
        # PUSH_EXC_INFO of the prologue needs a place more for a moment; one is to spare
        co_stacksize=code.co_stacksize + 2,
        co_linetable=no_line(units) + code.co_linetable,
        co_exceptiontable=shifted_handlers(code, units),
        co_qualname=f"{code.co_qualname} from {offset}",
    )
    # A copy is an object of its own, with a number of its own.
    plain = new_code.replace()
    return Resume(code, offset, new_code, plain, names, len(prologue))


def begin(code: CodeType, cells: int) -> bytes:
    """What every function begins with: its cells come from the closure; a generator hands itself
    out."""
    start = b""
    if cells:
        start += instruction("COPY_FREE_VARS", cells)
    if code.co_flags & inspect.CO_GENERATOR:
        start += instruction("RETURN_GENERATOR") + instruction("POP_TOP")
    return start + instruction("RESUME", 0)


def put_back(stack: tuple[Slot, ...], first_cell: int) -> bytes:
    """Load what stood on the stack from its cells, which begin at `first_cell`."""
    loads = b""
    cell = first_cell
    for slot in stack:
        if slot is Slot.NULL:
            loads += instruction("PUSH_NULL")
            continue

        loads += instruction("LOAD_DEREF", cell)
        cell += 1
        if slot is Slot.HANDLED:
            # This notes the exception as being handled, and pushes it above the one that was
            # handled before. Only that stays.
            loads += instruction("PUSH_EXC_INFO") + instruction("POP_TOP")
    return loads


@wrapper
def resume(
    at: Resume,
    plain: bool,
    func: FunctionType,
    cells: tuple[CellType, ...],
    stack: tuple[Any, ...],
    *args: Any,
) -> Any:
    """Go on at `at` as a frame of `func`: what a head returns.

    An exception on the stack is about to be handled.

    plain: nothing more of this frame is to be captured. cells, stack: what the prologue puts back.
    args: the local variables.
    """
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
        # A cell may hold the exception, whose traceback holds the cell: emptied, both can go.
        for cell in closure[len(cells) :]:
            cell.cell_contents = None
        raise
    finally:
        _thread.nested = nested


# Its line is left out of tracebacks (`tidy`).
going_on.add(number(resume.__code__))


# ---- which variables the rest of a function needs ------------------------------------------------

READS = ("LOAD_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "MAKE_CELL")
"""Instructions that need the value of a local variable."""
WRITES = ("STORE_FAST", "DELETE_FAST")
"""Instructions behind which the value from before is gone."""
ENDS = ("JUMP", "RETURN_VALUE", "RERAISE", "RAISE_VARARGS")
"""The instruction after one of these is reached from elsewhere only."""


@functools.lru_cache(maxsize=256)
def live(code: CodeType) -> dict[int, frozenset[str]]:
    """For each instruction's offset the local variables that may be read from there on, before they
    are written."""
    program, table = instructions(code), exception_table(code)
    handlers: dict[int, list[int]] = {}
    for i in program:
        covering = [entry for entry in table if entry.start <= i.offset < entry.end]
        handlers[i.offset] = [entry.target for entry in covering]

    at: dict[int, frozenset[str]] = {}
    before = None

    # backwards, and once more as long as a jump backwards brings something new
    while at != before:
        before = dict(at)
        now = frozenset[str]()
        for i in reversed(program):
            now = live_before(i, now, at)
            # It may raise, and then its handlers run.
            for handler in handlers[i.offset]:
                now |= at.get(handler, frozenset())
            at[i.offset] = now
    return at


def live_before(
    i: Instruction, after: frozenset[str], at: dict[int, frozenset[str]]
) -> frozenset[str]:
    """What is live before one instruction, from what is live after it, and `at` the offset that it
    may jump to."""
    now = after
    if i.op in ENDS:
        now = frozenset()
    # The argument of a jump is an offset, that of the ops below the name of a variable.
    if i.op in JUMPS:
        now |= at.get(i.arg, frozenset())

    # Writes first: DELETE_FAST does both, and needs the value (it raises where there is none).
    if i.op in WRITES:
        now -= {i.arg}
    if i.op in READS:
        now |= {i.arg}
    return now
