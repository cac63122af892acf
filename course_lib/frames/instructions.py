"""One instruction set for CPython 3.11, 3.12 and 3.13.

In:  a code object.
Out: a list of `Instruction`s in which every version's bytecode reads the same. No other file asks which Python runs.

What is made the same:
- jumps carry the offset they go to; direction is no part of the name (`JUMP`, `POP_JUMP_IF_FALSE`);
- names, constants and operators stand in `arg` themselves: `LOAD_FAST 'x'`, `BINARY_OP '+'`, `COMPARE_OP '<'`;
- instructions that do two things are split: `RETURN_CONST`, `LOAD_FAST_LOAD_FAST`, the NULL of `LOAD_GLOBAL`, `LOAD_METHOD`, the formatting
  flags of f-strings. The parts share one offset, and the stack after the last is the one CPython has there;
- a call with keywords is `LOAD_CONST names; CALL_KW n`, as 3.13 writes it;
- `FOR_ITER` goes, when the iterator is exhausted and popped, to the instruction after the loop's own clean-up.

In PyTorch: `torch/_dynamo/bytecode_transformation.py` (`Instruction`, `cleaned_instructions`) and the version checks in `symbolic_convert.py`.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType
from typing import Any

NULL_FIRST = sys.version_info < (3, 13)
"""Does NULL stand below the callable it goes with (3.11, 3.12) or above (3.13)?"""
CONVERSIONS = {0: None, 1: "str", 2: "repr", 3: "ascii"}
FUNCTION_ATTRIBUTES = {1: "defaults", 2: "kwdefaults", 4: "annotations", 8: "closure"}
INTRINSICS_1 = ("", "PRINT", "IMPORT_STAR", "STOPITERATION_ERROR", "ASYNC_GEN_WRAP", "UNARY_POSITIVE", "LIST_TO_TUPLE",
                "TYPEVAR", "PARAMSPEC", "TYPEVARTUPLE", "SUBSCRIPT_GENERIC", "TYPEALIAS")  # fmt: skip
INTRINSICS_2 = ("", "PREP_RERAISE_STAR", "TYPEVAR_WITH_BOUND", "TYPEVAR_WITH_CONSTRAINTS", "SET_FUNCTION_TYPE_PARAMS",
                "SET_TYPEPARAM_DEFAULT")  # fmt: skip
OWN_OPCODE_ON_3_11 = ("LIST_TO_TUPLE", "IMPORT_STAR", "ASYNC_GEN_WRAP", "STOPITERATION_ERROR", "PRINT_EXPR")
DROPPED = {"CACHE", "EXTENDED_ARG", "PRECALL", "RESUME", "COPY_FREE_VARS", "MAKE_CELL", "NOP", "KW_NAMES"}
"""Nothing for an interpreter to do. (Where a jump lands on one, a NOP stays.)"""
PLAIN_NUMBER = {"COPY", "SWAP", "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_SLICE", "BUILD_STRING", "LIST_APPEND",
                "SET_ADD", "MAP_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_MERGE", "DICT_UPDATE", "UNPACK_SEQUENCE", "RAISE_VARARGS",
                "BUILD_CONST_KEY_MAP", "CALL_KW", "RERAISE", "MATCH_CLASS", "GET_AWAITABLE", "YIELD_VALUE"}  # fmt: skip


@dataclass(frozen=True)
class Instruction:
    """One canonical instruction. `offset` is where CPython's instruction starts, in bytes; `line` the user's line."""

    op: str
    arg: Any
    offset: int
    line: int | None
    positions: dis.Positions | None

    def __str__(self) -> str:
        return f"{self.offset:4d} {self.op}" + ("" if self.arg is None else f" {short(self.arg)}")


def short(arg: Any) -> str:
    """An argument as text: names bare, constants as Python writes them."""
    if isinstance(arg, CodeType):
        return f"<code {arg.co_name}>"
    text = arg if isinstance(arg, str) and arg.isidentifier() else repr(arg)
    return text if len(text) <= 60 else text[:57] + "..."


@lru_cache(maxsize=4096)
def instructions(code: CodeType) -> tuple[Instruction, ...]:
    """The canonical instructions of `code`, in order."""
    raw = list(dis.get_instructions(code))
    landing = {entry.target for entry in exception_table(code)} | {ins.offset for ins in raw if ins.is_jump_target}
    out: list[Instruction] = []
    names: Any = None
    started = False
    for at, ins in enumerate(raw):
        line = ins.positions.lineno if ins.positions else None
        if ins.opname == "KW_NAMES":
            names = code.co_consts[ins.arg or 0]
        if ins.opname == "CALL" and names is not None:
            parts: list[tuple[str, Any]] = [("LOAD_CONST", names), ("CALL_KW", ins.arg)]
            names = None
        elif ins.opname == "MAKE_CELL" and started:  # inside an inlined comprehension it is real work
            parts = [("MAKE_CELL", ins.argval)]
        elif ins.opname == "FOR_ITER":
            parts = [("FOR_ITER", after_loop(raw, at))]
        elif ins.opname in DROPPED:
            parts = [("NOP", None)] if ins.offset in landing else []
        else:
            parts = list(canonical(ins, code))
        started = started or ins.opname == "RESUME"
        out += [Instruction(op, arg, ins.offset, line, ins.positions) for op, arg in parts]
    return tuple(out)


def after_loop(raw: list[dis.Instruction], at: int) -> int:
    """Where an exhausted loop goes on: behind `END_FOR` (3.12) and the `POP_TOP` that goes with it (3.13)."""
    target = raw[at].argval
    where = next(i for i in range(at, len(raw)) if raw[i].offset == target)
    if raw[where].opname == "END_FOR":
        where += 1 if NULL_FIRST else 2
    return int(raw[where].offset)


def canonical(ins: dis.Instruction, code: CodeType) -> Iterator[tuple[str, Any]]:
    """The canonical instructions that one of CPython's stands for, as (op, arg)."""
    op, number, value = ins.opname, ins.arg or 0, ins.argval
    if op in SPLIT:
        yield from SPLIT[op](number, value)
    elif op.startswith(("POP_JUMP_", "JUMP_")) and "_OR_POP" not in op:
        yield op.replace("_FORWARD", "").replace("_BACKWARD", "").replace("_NO_INTERRUPT", ""), value
    elif op in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"):
        first, _, second = op.partition("_FAST_")
        both = code.co_varnames + code.co_cellvars + code.co_freevars
        yield from fast(f"{first}_FAST", both[number >> 4], code)
        yield from fast(second, both[number & 15], code)
    elif op in ("LOAD_FAST", "LOAD_FAST_CHECK", "STORE_FAST", "DELETE_FAST"):
        yield from fast(op.removesuffix("_CHECK"), value, code)
    elif op in OWN_OPCODE_ON_3_11:
        yield "CALL_INTRINSIC_1", op.removesuffix("_EXPR")
    elif op == "BINARY_OP":
        yield op, ins.argrepr
    else:
        yield op, number if op in PLAIN_NUMBER else value if ins.arg is not None else None


def fast(op: str, name: str, code: CodeType) -> Iterator[tuple[str, Any]]:
    """On 3.13 a cell is loaded like a local variable."""
    if op == "LOAD_FAST" and (name in code.co_cellvars or name in code.co_freevars):
        op = "LOAD_CLOSURE"
    yield op, name


def with_null(op: str, arg: Any, below: bool) -> Iterator[tuple[str, Any]]:
    """`op` with the NULL of the call it prepares. `below`: what `op` replaces lies on the stack already."""
    if not NULL_FIRST:
        yield from ((op, arg), ("PUSH_NULL", None))
    elif below:
        yield from ((op, arg), ("PUSH_NULL", None), ("SWAP", 2))
    else:
        yield from (("PUSH_NULL", None), (op, arg))


def load_attr(number: int, name: Any) -> Iterator[tuple[str, Any]]:
    method = number & 1 and sys.version_info >= (3, 12)
    yield from with_null("LOAD_ATTR", name, below=True) if method else iter([("LOAD_ATTR", name)])


def load_super_attr(number: int, name: Any) -> Iterator[tuple[str, Any]]:
    arg = (name, bool(number & 2))
    yield from with_null("LOAD_SUPER_ATTR", arg, below=True) if number & 1 else iter([("LOAD_SUPER_ATTR", arg)])


def load_global(number: int, name: Any) -> Iterator[tuple[str, Any]]:
    yield from with_null("LOAD_GLOBAL", name, below=False) if number & 1 else iter([("LOAD_GLOBAL", name)])


def compare(number: int, symbol: Any) -> Iterator[tuple[str, Any]]:
    yield "COMPARE_OP", symbol
    if sys.version_info >= (3, 13) and number & 16:
        yield "TO_BOOL", None


def format_value(number: int, _: Any) -> Iterator[tuple[str, Any]]:
    conversion, has_spec = CONVERSIONS[number & 3], bool(number & 4)
    if conversion:
        turn = [("SWAP", 2)] if has_spec else []
        yield from [*turn, ("CONVERT_VALUE", conversion), *turn]
    yield "FORMAT_WITH_SPEC" if has_spec else "FORMAT_SIMPLE", None


def intrinsic(number: int, _: Any) -> Iterator[tuple[str, Any]]:
    name = INTRINSICS_1[number]
    yield (name, None) if name == "UNARY_POSITIVE" else ("CALL_INTRINSIC_1", name)


SPLIT: dict[str, Callable[[int, Any], Iterator[tuple[str, Any]]]] = {
    "LOAD_ATTR": load_attr,
    "LOAD_METHOD": lambda number, name: with_null("LOAD_ATTR", name, below=True),
    "LOAD_SUPER_ATTR": load_super_attr,
    "LOAD_GLOBAL": load_global,
    "COMPARE_OP": compare,
    "FORMAT_VALUE": format_value,
    "CALL_INTRINSIC_1": intrinsic,
    "CALL_INTRINSIC_2": lambda number, _: iter([("CALL_INTRINSIC_2", INTRINSICS_2[number])]),
    "CONVERT_VALUE": lambda number, _: iter([("CONVERT_VALUE", CONVERSIONS[number])]),
    "RETURN_CONST": lambda number, value: iter([("LOAD_CONST", value), ("RETURN_VALUE", None)]),
    "IS_OP": lambda number, _: iter([("IS_OP", bool(number))]),
    "CONTAINS_OP": lambda number, _: iter([("CONTAINS_OP", bool(number))]),
    "CALL": lambda number, _: iter([("CALL", number)]),
    "CALL_FUNCTION_EX": lambda number, _: iter([("CALL_FUNCTION_EX", bool(number & 1))]),
    "UNPACK_EX": lambda number, _: iter([("UNPACK_EX", (number & 255, number >> 8))]),
    "MAKE_FUNCTION": lambda number, _: iter(
        [("MAKE_FUNCTION", tuple(name for bit, name in FUNCTION_ATTRIBUTES.items() if number & bit))]
    ),
    "SET_FUNCTION_ATTRIBUTE": lambda number, _: iter([("SET_FUNCTION_ATTRIBUTE", FUNCTION_ATTRIBUTES[number])]),
}
"""CPython instruction → its canonical parts, from its number and its decoded argument."""


# ---- what lies around the instructions ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ExceptionEntry:
    """In `start <= offset < end` an exception goes to `target`, with the stack cut to `depth` (and the offset pushed if `lasti`)."""

    start: int
    end: int
    target: int
    depth: int
    lasti: bool


def exception_table(code: CodeType) -> list[ExceptionEntry]:
    """The code's exception table, decoded. (CPython: `Objects/exception_handling_notes.txt`.)"""
    data = iter(code.co_exceptiontable)

    def number() -> int:
        byte = next(data)
        found = byte & 63
        while byte & 64:
            byte = next(data)
            found = found << 6 | byte & 63
        return found

    entries = []
    while True:
        try:
            start = number() * 2
        except StopIteration:
            return entries
        length, target, depth = number() * 2, number() * 2, number()
        entries.append(ExceptionEntry(start, start + length, target, depth >> 1, bool(depth & 1)))


@dataclass(frozen=True)
class Row:
    """One line of a disassembly, for pictures. `source` is the user's line where a new one starts, else ''."""

    offset: int
    op: str
    arg: str
    line: int | None
    source: str


def disassembly(function: Any) -> list[Row]:
    """The canonical instructions of a function or code object as rows of text."""
    code = function if isinstance(function, CodeType) else function.__code__
    rows, last = [], None
    for ins in instructions(code):
        new = ins.line is not None and ins.line != last
        source = linecache.getline(code.co_filename, ins.line).strip() if new and ins.line else ""
        rows.append(Row(ins.offset, ins.op, "" if ins.arg is None else short(ins.arg), ins.line, source))
        last = ins.line
    return rows
