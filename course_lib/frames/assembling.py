"""Bytes of CPython's formats: an instruction, a table of lines, a table of exception handlers.

In:  what a resume function needs: a few instructions, and the tables of the code that it continues.
Out: the bytes that `code.replace` takes.

The formats are described in CPython's own source: `Objects/locations.md` and
`Objects/exception_handling_notes.txt` (since 3.13 `InternalDocs/code_objects.md` and
`InternalDocs/exception_handling.md`). They are the same from 3.11 on.
In PyTorch: `torch/_dynamo/bytecode_transformation.py` (`assemble`, `linetable_311_writer`,
`assemble_exception_table`).
"""

import dis
import opcode
from types import CodeType

from course_lib.frames.instructions import exception_table

UNIT = 2
"""Bytes of an instruction, of each EXTENDED_ARG before it, and of each cache behind it."""

# ---- tables of lines: each entry has a byte with this bit, a kind, and for how many units it holds
ENTRY = 0x80
NO_COLUMNS = 13
"""A kind of entry: a byte follows that says how many lines further it is. Columns are not known."""
NO_LOCATION = 15
"""A kind of entry: these instructions belong to no line."""
MOST_UNITS = 8
"""Units that one entry can hold."""

# ---- tables of handlers: numbers in bytes of six bits, the highest first ----
FIRST_BYTE = 128
"""This bit marks the first byte of an entry."""
MORE_FOLLOW = 64
"""This bit marks a byte of a number that has more."""
LOW_BITS = 63
"""The six bits of such a byte that hold a part of the number."""


def instruction(name: str, arg: int = 0) -> bytes:
    """One instruction: its EXTENDED_ARGs, itself, and the cache units behind it (RESUME has one
    since 3.15)."""
    # An instruction has one byte for its argument. Each EXTENDED_ARG before it has one more, the
    # highest first.
    extended = b""
    for shift in (24, 16, 8):
        if arg >> shift:
            extended += bytes([dis.EXTENDED_ARG, arg >> shift & 255])

    itself = bytes([dis.opmap[name], arg & 255])
    caches = bytes(UNIT * caches_of(name))
    return extended + itself + caches


def caches_of(name: str) -> int:
    """How many cache units CPython keeps behind an instruction of this name."""
    table = opcode._inline_cache_entries  # type: ignore[attr-defined]
    # by number up to 3.12, then by name
    if isinstance(table, list):
        return table[dis.opmap[name]]
    return table.get(name, 0)


def lines_for(units: int, kind: int, rest: bytes = b"") -> bytes:
    """A table of lines for this many units, with entries of one kind.

    `rest`: what follows the first byte of each entry."""
    table = b""
    for start in range(0, units, MOST_UNITS):
        # The first byte: the bit of an entry, four bits for the kind, three for the length
        length = min(MOST_UNITS, units - start)
        table += bytes([ENTRY | kind << 3 | length - 1]) + rest
    return table


def no_line(units: int) -> bytes:
    """A table of lines that says of none of these units where it stands."""
    return lines_for(units, NO_LOCATION)


def one_line(units: int) -> bytes:
    """A table of lines that puts all of these units in the code's first line."""
    return lines_for(units, NO_COLUMNS, rest=b"\0")


def shifted_handlers(code: CodeType, units: int) -> bytes:
    """The table of handlers of code that begins `units` later."""
    table = b""
    for handler in exception_table(code):
        # Where it begins, how long it holds, where it leads (all in units), and how deep the
        # stack is there. The last bit says whether the offset is pushed, too.
        numbers = (
            handler.start // UNIT + units,
            (handler.end - handler.start) // UNIT,
            handler.target // UNIT + units,
            handler.depth << 1 | handler.lasti,
        )
        entry = bytearray(b"".join(map(six_bits, numbers)))
        entry[0] |= FIRST_BYTE
        table += entry
    return table


def six_bits(value: int) -> bytes:
    """A number in bytes of six bits."""
    number = b""
    for shift in (24, 18, 12, 6):
        if value >> shift:
            number += bytes([value >> shift & LOW_BITS | MORE_FOLLOW])
    return number + bytes([value & LOW_BITS])
