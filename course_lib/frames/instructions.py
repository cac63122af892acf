"""Bytecode as one instruction set, whichever CPython compiled it.

In:  a code object of CPython 3.11 to 3.15.
Out: a tuple of `Instruction`s; names, constants and jump targets are resolved.

Here, and nowhere else in the library, the differences between versions end: an op that does two things is split in two (both
keep its offset), one that was renamed gets its newer name, and one without meaning to an interpreter is dropped. The rules are
a table, op → function; an op without a rule is kept with `dis`'s own argument.

The stack is always one that this CPython accepts here: the real bytecode can be entered where the interpreter left it.

    CALL n             pops n arguments, then two slots: NULL and a callable in either order, or a callable and its first argument
    CALL_KW n          the same, with the tuple of the last arguments' names on top of them
    CALL_FUNCTION_EX   pops a dict if its argument is True, the tuple of arguments, and two slots as above
    GET_ITER           on 3.15 a PUSH_NULL follows: an iterator has two slots there, for CPython keeps an index beside a list
    LOAD_ATTR, PUSH_NULL   also for a method about to be called: bound, never a pair (with SWAP 2 where the NULL belongs below)
    FOR_ITER t, SEND t     the iterator is the topmost value that is not NULL (for SEND: below the value that is sent)
    FOR_ITER t         at the end pops the iterator and goes to t, behind what the version keeps there for itself
    BEFORE_WITH        pops a context manager, pushes its `__exit__` and what its `__enter__()` gives; since 3.14 CPython
                       writes six instructions for it, and a PUSH_NULL and a SWAP follow: the `__exit__` has two slots
    WITH_EXCEPT_START n    the `__exit__` is in n slots, below three others; one of the two may be NULL
    MAKE_FUNCTION      pops only the code; then a SET_FUNCTION_ATTRIBUTE for each of closure, annotate, annotations,
                       kwdefaults and defaults pops the function and the value below, and pushes the function

`LOAD_FAST` reads a slot, `LOAD_DEREF` the content of the cell in it. `MAKE_CELL x` and `LOAD_FAST_AND_CLEAR x` on a cell variable
appear only around an inlined comprehension (since 3.12): the old cell is put aside until `STORE_FAST x` puts it back.
In PyTorch: `torch/_dynamo/bytecode_transformation.py` (`Instruction`, `cleaned_instructions`), and `symbolic_convert.py`.
"""

import bisect
import dis
import functools
import opcode
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, TypeAlias

FROM_3_13 = sys.version_info >= (3, 13)
FROM_3_14 = sys.version_info >= (3, 14)
FROM_3_15 = sys.version_info >= (3, 15)
COMMON_CONSTANTS: tuple[Any, ...] = tuple(getattr(opcode, "_common_constants", ()))
"""What LOAD_COMMON_CONSTANT counts. (`dis` of 3.14 gives the number, not the object.)"""
SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")  # What LOAD_SPECIAL counts
Part: TypeAlias = tuple[str, Any]  # A canonical op and its argument, not yet placed
Rule: TypeAlias = Callable[[dis.Instruction], list[Part]]
JUMPS = frozenset(
    "JUMP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE FOR_ITER SEND".split()
)
DROPPED = frozenset(
    "CACHE RESUME NOP NOT_TAKEN PRECALL COPY_FREE_VARS END_FOR EXTENDED_ARG".split()
)
CLASS_CELLS = {"__class__", "__classdict__", "__conditional_annotations__"}
"""The cells that a class body hands on as they are."""
ATTRIBUTES = (
    (16, "annotate"),
    (8, "closure"),
    (4, "annotations"),
    (2, "kwdefaults"),
    (1, "defaults"),
)
CONVERSIONS = (None, "str", "repr", "ascii")
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
"""Since 3.14: instructions that CPython always writes together, and the one instruction that they were before."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of the interpreter. Parts of one of CPython's share its `offset`; `next_offset` is where to go on after it."""

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
        return repr(self.arg) if self.op == "LOAD_CONST" else str(self.arg)

    def __str__(self) -> str:
        return f"{self.op} {self.argument}".rstrip()


def renamed(op: str) -> Rule:
    return lambda i: [(op, i.argval)]


def two_names(i: dis.Instruction) -> list[Part]:  # LOAD_FAST_LOAD_FAST, ...
    return list(zip(i.opname.replace("FAST_", "FAST ").split(), i.argval))


def loads(i: dis.Instruction) -> list[Part]:
    """A global, an attribute, an attribute of `super()`; for a call beside a NULL, in the order of this version's CALL."""
    bits = i.arg or 0
    load: Part = (
        (i.opname, (i.argval, bool(bits & 2)))
        if i.opname == "LOAD_SUPER_ATTR"
        else (i.opname, i.argval)
    )
    called = bits & 1 and not (i.opname == "LOAD_ATTR" and sys.version_info < (3, 12))
    if i.opname == "LOAD_METHOD":
        load, called = ("LOAD_ATTR", i.argval), True
    return [load, ("PUSH_NULL", None), *([] if FROM_3_13 else [("SWAP", 2)])] if called else [load]


def function_attributes(i: dis.Instruction) -> list[Part]:
    parts = [("SET_FUNCTION_ATTRIBUTE", name) for bit, name in ATTRIBUTES if (i.arg or 0) & bit]
    return [("MAKE_FUNCTION", None), *parts] if i.opname == "MAKE_FUNCTION" else parts


def format_value(i: dis.Instruction) -> list[Part]:
    conversion, has_spec = CONVERSIONS[(i.arg or 0) & 3], bool((i.arg or 0) & 4)
    parts: list[Part] = [("CONVERT_VALUE", conversion)] if conversion else []
    swap: list[Part] = [("SWAP", 2)] if has_spec and parts else []
    return [*swap, *parts, *swap, ("FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE", None)]


def get_iter(i: dis.Instruction) -> list[Part]:
    """`iter(x)`, or what `yield from x` takes values from; with the second slot that an iterator has since 3.15."""
    op = "GET_YIELD_FROM_ITER" if i.arg else "GET_ITER"
    return [(op, None), ("PUSH_NULL", None)] if FROM_3_15 else [(op, None)]


def pop_iter(i: dis.Instruction) -> list[Part]:
    """The iterator of a loop that is left early."""
    return [("POP_TOP", None)] * (2 if FROM_3_15 else 1)


def before_with(i: dis.Instruction) -> list[Part]:
    second_slot: list[Part] = [("PUSH_NULL", None), ("SWAP", 2)]
    return [(i.opname, None), *(second_slot if FROM_3_14 else [])]


def call_function_ex(i: dis.Instruction) -> list[Part]:
    """Since 3.14 it has no argument: there is always a slot for the keywords, NULL where there are none."""
    return [("CALL_FUNCTION_EX", FROM_3_14 or bool(i.arg))]


def binary_op(i: dis.Instruction) -> list[Part]:
    return [("BINARY_SUBSCR", None) if i.argrepr == "[]" else ("BINARY_OP", i.argrepr)]


def build_interpolation(i: dis.Instruction) -> list[Part]:
    """Of a t-string: the conversion, and whether a format is on top of the value and its text."""
    return [("BUILD_INTERPOLATION", (CONVERSIONS[(i.arg or 0) >> 2], bool((i.arg or 0) & 1)))]


RULES: dict[str, Rule] = {
    **{f"POP_JUMP_{way}_IF_{what}": renamed(f"POP_JUMP_IF_{what}")
       for way in ("FORWARD", "BACKWARD") for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")},
    **dict.fromkeys(("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"), renamed("JUMP")),
    **dict.fromkeys(("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"), loads),
    **dict.fromkeys(("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE"), function_attributes),
    **dict.fromkeys(("IS_OP", "CONTAINS_OP"), lambda i: [(i.opname, bool(i.arg))]),
    "CALL_FUNCTION_EX": call_function_ex,
    "CALL_FUNCTION_EX without keywords": lambda i: [("CALL_FUNCTION_EX", False)],
    **dict.fromkeys(("CALL_INTRINSIC_1", "CALL_INTRINSIC_2"), lambda i: [(i.argrepr.removeprefix("INTRINSIC_"), None)]),
    **dict.fromkeys(("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP"),
                    lambda i: [("COPY", 1), (f"POP_{i.opname.removesuffix('_OR_POP')}", i.argval), ("POP_TOP", None)]),
    **dict.fromkeys(("BINARY_SLICE", "STORE_SLICE"), lambda i: [("BUILD_SLICE", 2), (i.opname.replace("SLICE", "SUBSCR"), None)]),
    **dict.fromkeys(("LOAD_FAST_CHECK", "LOAD_FAST_BORROW"), renamed("LOAD_FAST")),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": lambda i: [("LOAD_FAST", name) for name in i.argval],
    "LOAD_SMALL_INT": renamed("LOAD_CONST"),
    "LOAD_COMMON_CONSTANT": lambda i: [("LOAD_CONST", COMMON_CONSTANTS[i.arg or 0])],
    "LOAD_SPECIAL": lambda i: [("LOAD_SPECIAL", SPECIAL_METHODS[i.arg or 0])],
    "GET_ITER": get_iter,
    "POP_ITER": pop_iter,
    **dict.fromkeys(("BEFORE_WITH", "BEFORE_ASYNC_WITH"), before_with),
    "WITH_EXCEPT_START": lambda i: [(i.opname, 2 if FROM_3_14 else 1)],
    "BUILD_INTERPOLATION": build_interpolation,
    **dict.fromkeys(("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"), two_names),
    "LOAD_CLASSDEREF": lambda i: [("LOAD_LOCALS", None), ("LOAD_FROM_DICT_OR_DEREF", i.argval)],
    "RETURN_CONST": lambda i: [("LOAD_CONST", i.argval), ("RETURN_VALUE", None)],
    "LOAD_ASSERTION_ERROR": lambda i: [("LOAD_CONST", AssertionError)],
    "KW_NAMES": renamed("LOAD_CONST"),  # the CALL after it becomes CALL_KW
    "BINARY_OP": binary_op,
    "COMPARE_OP": lambda i: [("COMPARE_OP", i.argval), *([("TO_BOOL", None)] if FROM_3_13 and (i.arg or 0) & 16 else [])],
    "UNPACK_EX": lambda i: [("UNPACK_EX", ((i.arg or 0) & 255, (i.arg or 0) >> 8))],
    "FORMAT_VALUE": format_value,
    "CONVERT_VALUE": lambda i: [("CONVERT_VALUE", CONVERSIONS[i.arg or 0])],
}  # fmt: skip


def instructions(code: CodeType) -> tuple[Instruction, ...]:
    """The canonical instructions of `code`, in order."""
    # code objects are equal even if their files differ
    return _instructions(code, code.co_filename)


@functools.lru_cache(maxsize=4096)
def _instructions(code: CodeType, filename: str) -> tuple[Instruction, ...]:
    placed = [
        (new, at, i.positions)
        for i, at in _merged(list(_meaningful(code)))
        for new in RULES.get(i.opname, renamed(i.opname))(i)
    ]
    starts = sorted({offset for _, offset, _ in placed})
    end = len(code.co_code)

    def kept(offset: int) -> int:
        """Where an offset leads now that some instructions are gone."""
        at = bisect.bisect_left(starts, offset)
        return starts[at] if at < len(starts) else end

    result = [
        Instruction(
            op,
            kept(arg) if op in JUMPS else arg,
            offset,
            kept(offset + 1),
            at.lineno if at else None,
            at,
        )
        for (op, arg), offset, at in placed
    ]
    return tuple(_with_closures(result, code))


def _meaningful(code: CodeType) -> Iterator[tuple[dis.Instruction, int]]:
    """CPython's instructions that mean something to an interpreter, each with the offset where its EXTENDED_ARGs begin."""
    start: int | None = None
    before = ""
    resumed = named = False
    for i in dis.get_instructions(code):
        offset = i.offset if start is None else start
        start = offset if i.opname == "EXTENDED_ARG" else None
        resumed |= i.opname == "RESUME"
        in_prologue = i.opname == "MAKE_CELL" and not resumed
        # FOR_ITER has popped the iterator; on 3.12 the POP_TOP is `break`'s
        pops = i.opname in ("POP_TOP", "POP_ITER")
        end_of_loop = FROM_3_13 and pops and before == "END_FOR"
        if i.opname not in DROPPED and not in_prologue and not end_of_loop:
            if i.opname == "CALL" and named:
                i, named = i._replace(opname="CALL_KW"), False
            if i.opname == "KW_NAMES":  # `dis` leaves it to the reader to look the names up
                i, named = i._replace(argval=code.co_consts[i.arg or 0]), True
            yield i, offset
        before = i.opname


def _merged(placed: list[tuple[dis.Instruction, int]]) -> Iterator[tuple[dis.Instruction, int]]:
    """Each of `SEQUENCES` as the one instruction that it stands for, where it begins."""
    sequences = SEQUENCES if FROM_3_14 else {}
    at = 0
    while at < len(placed):
        instruction, offset = placed[at]
        taken = 1
        for sequence, op in sequences.items():
            found = tuple((i.opname, i.arg) for i, _ in placed[at : at + len(sequence)])
            if found == sequence:
                instruction, taken = instruction._replace(opname=op), len(sequence)
        yield instruction, offset
        at += taken


def _with_closures(program: list[Instruction], code: CodeType) -> Iterator[Instruction]:
    """Since 3.13, LOAD_FAST also stands where a cell itself goes into a closure or a class body: LOAD_CLOSURE, as before."""
    cells: set[int] = set()
    for at, i in enumerate(program):
        if i.op == "SET_FUNCTION_ATTRIBUTE" and i.arg == "closure":
            # before it: LOAD_FAST × n, BUILD_TUPLE n, LOAD_CONST code, MAKE_FUNCTION
            cells.update(range(at - 3 - program[at - 3].arg, at - 3))
    for at, i in enumerate(program):
        if i.op == "LOAD_FAST" and (
            at in cells or i.arg in CLASS_CELLS.intersection(code.co_cellvars)
        ):
            i = Instruction("LOAD_CLOSURE", i.arg, i.offset, i.next_offset, i.line, i.positions)
        yield i


def exception_table(code: CodeType) -> list[Any]:
    """Entries, innermost first: the stack is cut to `depth`, the offset (if `lasti`) and the exception pushed; on at `target`."""
    return list(dis.Bytecode(code).exception_entries)  # type: ignore[attr-defined]
