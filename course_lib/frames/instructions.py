"""Bytecode as one instruction set, whichever CPython compiled it.

In:  a code object of CPython 3.11 to 3.15.
Out: a tuple of `Instruction`s; names, constants and jump targets are resolved.

Here the differences between versions end: an op that does two things is split in two (both keep its
offset), one that was renamed gets its newer name, and one without meaning to an interpreter is
dropped. What each op becomes is a table of its own (`op_parts.py`).

Before each instruction the stack is as this CPython has it there. So the real bytecode can be
entered where the interpreter stopped:

    CALL n             pops n arguments, then two slots: NULL and a callable in either order, or a
                       callable and its first argument
    CALL_KW n          the same, with the tuple of the last arguments' names on top of them
    CALL_FUNCTION_EX   pops a dict if its argument is True, the tuple of arguments, and two slots as
                       above
    GET_ITER           on 3.15 a PUSH_NULL follows: an iterator has two slots there, for CPython
                       keeps an index beside a list
    LOAD_ATTR, PUSH_NULL   also for a method that is about to be called: it is bound, never a pair
                           of function and object. (Up to 3.12 a SWAP 2 follows: the NULL belongs
                           below the callable there.)
    FOR_ITER t         the iterator is the topmost value that is not NULL. At its end FOR_ITER pops
                       it and goes to t. (CPython has an END_FOR there, since 3.13 also a pop. They
                       are dropped, so t is behind them.)
    SEND t             the iterator is the topmost value that is not NULL below the value that is
                       sent
    BEFORE_WITH        pops a context manager, pushes its `__exit__` and what its `__enter__()`
                       gives; since 3.14 CPython writes six instructions for it, and a PUSH_NULL and
                       a SWAP follow: the `__exit__` has two slots
    WITH_EXCEPT_START n    the `__exit__` is in n slots (where n is 2, one of them may be NULL),
                           below three others
    MAKE_FUNCTION      pops only the code; then a SET_FUNCTION_ATTRIBUTE for each of closure,
                       annotate, annotations, kwdefaults and defaults pops the function and the
                       value below, and pushes the function

`LOAD_FAST` reads a slot, `LOAD_DEREF` the content of the cell in it. `MAKE_CELL x` and
`LOAD_FAST_AND_CLEAR x` on a cell variable appear only around an inlined comprehension (since 3.12):
the old cell is put aside until `STORE_FAST x` puts it back.
In PyTorch: `torch/_dynamo/bytecode_transformation.py` (`Instruction`, `cleaned_instructions`), and
`symbolic_convert.py`.
"""

import bisect
import dis
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, NamedTuple

from course_lib.frames.op_parts import FROM_3_13, FROM_3_14, PARTS_OF

JUMPS = frozenset(
    {
        "FOR_ITER",
        "JUMP",
        "POP_JUMP_IF_FALSE",
        "POP_JUMP_IF_NONE",
        "POP_JUMP_IF_NOT_NONE",
        "POP_JUMP_IF_TRUE",
        "SEND",
    }
)
"""Ops whose argument is where they jump to."""
DROPPED = frozenset(
    {
        "CACHE",
        "COPY_FREE_VARS",
        "END_FOR",
        "EXTENDED_ARG",
        "NOP",
        "NOT_TAKEN",
        "PRECALL",
        "RESUME",
    }
)
"""Ops that mean nothing to an interpreter."""
CLASS_CELLS = {"__class__", "__classdict__", "__conditional_annotations__"}
"""The cells that a class body hands on as they are."""
SEQUENCES: dict[tuple[tuple[str, int | None], ...], str] = {
    (
        ("COPY", 1),
        ("LOAD_SPECIAL", 1),
        ("SWAP", 2),
        ("SWAP", 3),
        ("LOAD_SPECIAL", 0),
        ("CALL", 0),
    ): "BEFORE_WITH",
    (
        ("COPY", 1),
        ("LOAD_SPECIAL", 3),
        ("SWAP", 2),
        ("SWAP", 3),
        ("LOAD_SPECIAL", 2),
        ("CALL", 0),
    ): "BEFORE_ASYNC_WITH",
    (("PUSH_NULL", None), ("CALL_FUNCTION_EX", None)): "CALL_FUNCTION_EX without keywords",
}
"""Since 3.14: instructions (op, argument) that CPython always writes together, and the one
instruction that they were before. The argument of LOAD_SPECIAL is a place in `SPECIAL_METHODS`
(`op_parts.py`)."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of the interpreter.

    Parts of one of CPython's share its `offset`; `next_offset` is where to go on after it."""

    op: str
    arg: Any  # Name, constant, count, jump target (an offset), or None: see `argument`
    offset: int
    next_offset: int
    line: int | None
    positions: dis.Positions | None

    @property
    def argument(self) -> str:
        """`arg` as a reader would write it."""
        if self.arg is None and self.op != "LOAD_CONST":
            return ""
        if self.op in JUMPS:
            return f"to {self.arg}"
        if isinstance(self.arg, CodeType):
            return f"<code of {self.arg.co_qualname}>"
        if self.op == "LOAD_CONST":
            return repr(self.arg)
        return str(self.arg)

    def __str__(self) -> str:
        return f"{self.op} {self.argument}".rstrip()


class Found(NamedTuple):
    """One of CPython's instructions, and the offset where its EXTENDED_ARGs begin: there the
    bytecode can be entered."""

    instruction: dis.Instruction
    offset: int


class Placed(NamedTuple):
    """A canonical op at the offset of its instruction.

    Where it jumps, `arg` is still an offset of the bytecode, perhaps of an instruction that was
    dropped."""

    op: str
    arg: Any
    offset: int
    positions: dis.Positions | None


def instructions(code: CodeType) -> tuple[Instruction, ...]:
    """The canonical instructions of `code`, in order."""
    # code objects are equal even if their files differ
    return _instructions(code, code.co_filename)


@functools.lru_cache(maxsize=4096)
def _instructions(code: CodeType, filename: str) -> tuple[Instruction, ...]:
    found = list(_with_names(_meaningful(code), code))
    placed: list[Placed] = []
    for each in _merged(found):
        placed += _split(each)
    program = _with_targets(placed, end=len(code.co_code))
    return tuple(_with_closures(program, code))


def _from_their_start(code: CodeType) -> Iterator[Found]:
    """CPython's instructions, each with the offset where its EXTENDED_ARGs begin."""
    start: int | None = None
    for i in dis.get_instructions(code):
        if start is None:
            start = i.offset
        yield Found(i, start)
        if i.opname != "EXTENDED_ARG":
            start = None


def _meaningful(code: CodeType) -> Iterator[Found]:
    """The instructions that mean something to an interpreter."""
    opname_before = ""
    has_resumed = False
    for i, offset in _from_their_start(code):
        # Before RESUME, MAKE_CELL sets up the frame. Capture meets a frame that is set up already.
        has_resumed |= i.opname == "RESUME"
        in_prologue = i.opname == "MAKE_CELL" and not has_resumed

        # From 3.13 on the iterator is popped behind END_FOR. Here FOR_ITER does it, when the loop
        # ends. (On 3.12 a POP_TOP at this place belongs to a `break`, and stays.)
        pops = i.opname in ("POP_TOP", "POP_ITER")
        ends_loop = FROM_3_13 and pops and opname_before == "END_FOR"
        opname_before = i.opname

        if i.opname not in DROPPED and not in_prologue and not ends_loop:
            yield Found(i, offset)


def _with_names(instructions: Iterator[Found], code: CodeType) -> Iterator[Found]:
    """Up to 3.12, KW_NAMES tells the CALL behind it the names of its last arguments: that one
    becomes a CALL_KW."""
    has_names = False
    for i, offset in instructions:
        if i.opname == "KW_NAMES":
            # `dis` leaves it to the reader to look the names up.
            names = code.co_consts[i.arg or 0]
            i = i._replace(argval=names)
            has_names = True
        elif i.opname == "CALL" and has_names:
            i = i._replace(opname="CALL_KW")
            has_names = False
        yield Found(i, offset)


def _merged(instructions: list[Found]) -> Iterator[Found]:
    """Each of `SEQUENCES` as the one instruction that it stands for, where it begins."""
    if not FROM_3_14:
        yield from instructions
        return

    ops = [(i.opname, i.arg) for i, _ in instructions]
    at = 0
    while at < len(instructions):
        instruction, offset = instructions[at]
        length = 1
        for sequence, op in SEQUENCES.items():
            end = at + len(sequence)
            if tuple(ops[at:end]) == sequence:
                instruction = instruction._replace(opname=op)
                length = len(sequence)

        yield Found(instruction, offset)
        at += length


def _split(found: Found) -> list[Placed]:
    """The canonical parts of one of CPython's instructions, all at its offset."""
    instruction, offset = found
    positions = instruction.positions
    if (spelling := PARTS_OF.get(instruction.opname)) is None:
        return [Placed(instruction.opname, instruction.argval, offset, positions)]
    return [Placed(op, arg, offset, positions) for op, arg in spelling(instruction)]


def _with_targets(placed: list[Placed], end: int) -> list[Instruction]:
    """Let jumps lead to instructions that are kept: to the next one, if their target was dropped.

    `end`: the bytecode's length."""
    starts = sorted({part.offset for part in placed})

    def kept(offset: int) -> int:
        """The first offset from here on that has an instruction."""
        at = bisect.bisect_left(starts, offset)
        if at == len(starts):
            return end
        return starts[at]

    program = []
    for op, arg, offset, positions in placed:
        if op in JUMPS:
            arg = kept(arg)
        next_offset = kept(offset + 1)
        line = positions.lineno if positions else None
        program.append(Instruction(op, arg, offset, next_offset, line, positions))
    return program


def _with_closures(program: list[Instruction], code: CodeType) -> Iterator[Instruction]:
    """Since 3.13, LOAD_FAST also stands where a cell itself goes into a closure or a class body:
    LOAD_CLOSURE, as before."""
    cells: set[int] = set()
    for at, i in enumerate(program):
        if i.op == "SET_FUNCTION_ATTRIBUTE" and i.arg == "closure":
            # before it: LOAD_FAST × n, BUILD_TUPLE n, LOAD_CONST code, MAKE_FUNCTION
            tuple_at = at - 3
            cells.update(range(tuple_at - program[tuple_at].arg, tuple_at))

    class_cells = CLASS_CELLS.intersection(code.co_cellvars)
    for at, i in enumerate(program):
        if i.op == "LOAD_FAST" and (at in cells or i.arg in class_cells):
            i = replace(i, op="LOAD_CLOSURE")
        yield i


def exception_table(code: CodeType) -> list[Any]:
    """Entries, innermost first: the stack is cut to `depth`, the offset (if `lasti`) and the
    exception pushed; on at `target`."""
    return list(dis.Bytecode(code).exception_entries)  # type: ignore[attr-defined]
