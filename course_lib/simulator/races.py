"""Races: which accesses of one launch depend on who comes first.

In:  the accesses that a `Watch` recorded.
Out: a sentence for each pair of lines that race.
In NVIDIA's tools: `compute-sanitizer --tool racecheck`, for shared memory only.

A race is one address at which two programs, or two lanes of one store, leave different values; or
which one program reads and another writes. Atomics put accesses in order: what a program wrote
before one of its atomics is seen by who comes behind one of his.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from course_lib.simulator.watching import Access, Watch, lane_name

MOST_LOOKED_AT = 2000
"""Suspected addresses of a launch that are looked at one by one; atomics may have put each in
order."""

MOST_ROWS = 200
"""Accesses of one address that are compared with each other."""


@dataclass
class Table:
    """All accesses as columns, one row for each lane, sorted by address."""

    # For each row: the number of its access in the list of accesses, ...
    access: Any
    address: Any
    program: Any
    lane: Any
    # ... the bits that it stores (0 for a read), and of which kind it is
    value: Any
    writes: Any
    atomic: Any
    # For each address: its first row
    start: Any


def find(watch: Watch) -> list[str]:
    """The sentences: at most one for each pair of lines."""
    accesses = meeting(watch.accesses)
    if not accesses:
        return []
    table = columns(accesses)
    if table is None:
        return []

    suspects = suspected(table, watch)
    sentences: dict[tuple[str, str], str] = {}
    for place in suspects[:MOST_LOOKED_AT]:
        pair = racing_pair(table, place, accesses, watch)
        if pair is not None:
            first, second = pair
            lines = accesses[table.access[first]].line, accesses[table.access[second]].line
            if lines not in sentences:
                sentences[lines] = sentence(table, first, second, accesses, watch)
    return list(sentences.values())


def meeting(accesses: list[Access]) -> list[Access]:
    """Those that may race at all: stores with an address twice, and what lies in one stretch of
    memory with another program's.

    Most kernels have none: each program writes a stretch of its own."""
    suspects = [access for access in accesses if access.repeated and has_an_address_twice(access)]
    stretch: list[Access] = []
    end = -1
    for access in sorted(accesses, key=lambda access: access.low):
        if access.low > end:
            suspects += those_of_several_programs(stretch)
            stretch = []
        stretch.append(access)
        end = max(end, access.high)
    suspects += those_of_several_programs(stretch)

    wanted = {id(access) for access in suspects}
    return [access for access in accesses if id(access) in wanted]


def those_of_several_programs(stretch: list[Access]) -> list[Access]:
    """All of them, if there are several programs and one of them writes."""
    several = len({access.program for access in stretch}) > 1
    somebody_writes = any(access.kind == "write" for access in stretch)
    if several and somebody_writes:
        return stretch
    return []


def columns(accesses: list[Access]) -> Table | None:
    """One row for each lane of each access; only addresses that someone writes and that come more
    than once."""
    written_addresses = sorted_once(
        np.concatenate([access.addresses for access in accesses if access.kind == "write"])
    )
    last = written_addresses.size - 1

    rows = []
    for position, access in enumerate(accesses):
        # Only lanes whose address somebody writes: between reads there is no race.
        addresses = access.addresses.reshape(-1)
        place = np.minimum(np.searchsorted(written_addresses, addresses), last)
        kept = np.flatnonzero(written_addresses[place] == addresses)

        lanes = kept if access.lanes is None else access.lanes[kept]
        values = np.zeros(kept.size, np.uint64)
        if access.values is not None:
            values = bits(access.values[kept])
        rows.append((np.full(kept.size, position), addresses[kept], lanes, values))

    # All lanes in the order of their addresses, so that those of one address are neighbours
    number, address, lane, value = (np.concatenate(column) for column in zip(*rows, strict=True))
    order = np.argsort(address, kind="stable")
    number, address, lane, value = number[order], address[order], lane[order], value[order]
    if address.size == 0 or not (address[1:] == address[:-1]).any():
        return None

    # `start`: where the lanes of each address begin
    kinds = np.array([access.kind for access in accesses])[number]
    programs = np.array([access.program for access in accesses])[number]
    start = np.flatnonzero(np.r_[True, address[1:] != address[:-1]])
    return Table(number, address, programs, lane, value, kinds == "write", kinds == "atomic", start)


def sorted_once(addresses: Any) -> Any:
    """The addresses in their order, each once. (`np.unique` of NumPy 2.3 and newer looks each up in
    a table, which takes a hundred times as long for a million.)"""
    in_order = np.sort(addresses, axis=None)
    is_new = np.r_[True, in_order[1:] != in_order[:-1]]
    return in_order[is_new]


def has_an_address_twice(access: Access) -> bool:
    in_order = np.sort(access.addresses, axis=None)
    return bool((in_order[1:] == in_order[:-1]).any())


def bits(stored: Any) -> Any:
    """What was stored, as unsigned integers: NaN is equal to itself here."""
    return np.ascontiguousarray(stored).view(f"u{stored.itemsize}").astype(np.uint64)


def suspected(table: Table, watch: Watch) -> Any:
    """Numbers of the addresses with two programs, or two values in one store."""
    start, size = table.start, table.address.size

    def all_equal(column: Any) -> Any:
        """For each address: do its rows have one value? (`reduceat` takes the rows from each start
        to the next together.)"""
        return np.maximum.reduceat(column, start) == np.minimum.reduceat(column, start)

    # Where there are only writes of one value, it makes no difference who comes first
    only_writes = np.logical_and.reduceat(table.writes, start)
    is_harmless = only_writes & all_equal(table.value)

    # Somebody writes to each address of the table. If two programs come there, that is a race. The
    # lanes of a single program race only if all of them write: it may read what it then writes.
    has_two_programs = ~all_equal(table.program)
    has_several_rows = np.r_[start[1:], size] - start > 1
    return np.flatnonzero(has_several_rows & ~is_harmless & (has_two_programs | only_writes))


def racing_pair(
    table: Table, place: int, accesses: list[Access], watch: Watch
) -> tuple[int, int] | None:
    """Two rows of one address that race."""
    first, end = int(table.start[place]), table.address.size
    if place + 1 < table.start.size:
        end = int(table.start[place + 1])

    # Of thousands of accesses the first ones tell enough
    rows = range(first, min(end, first + MOST_ROWS))
    writers = [row for row in rows if table.writes[row]]
    for a in writers:
        for b in rows:
            if a != b and race(table, a, b, accesses, watch):
                return a, b
    return None


def race(table: Table, a: int, b: int, accesses: list[Access], watch: Watch) -> bool:
    """Does it matter which of the two comes first? `a` writes."""
    same_program = table.program[a] == table.program[b]
    if table.writes[b] and table.value[a] == table.value[b]:
        return False
    if same_program:
        # Lanes of one store have no order; what a program does line by line has
        return bool(table.writes[b] and table.access[a] == table.access[b])
    return not (ordered(table, a, b, accesses, watch) or ordered(table, b, a, accesses, watch))


def ordered(table: Table, a: int, b: int, accesses: list[Access], watch: Watch) -> bool:
    """Is there an atomic of the first program behind `a`, and one of the second before `b`?"""
    first, second = accesses[table.access[a]], accesses[table.access[b]]
    atomics_in_all = watch.atomics.get(int(table.program[a]), 0)
    released = atomics_in_all > first.atomics_before
    acquired = second.atomics_before > 0 or bool(table.atomic[b])
    return released and acquired


def sentence(table: Table, a: int, b: int, accesses: list[Access], watch: Watch) -> str:
    """`file:line: a race at out[3]: ...`. `a` and `b` are rows of the table."""
    access, other = accesses[table.access[a]], accesses[table.access[b]]
    address = int(table.address[a])
    where = hex(address)
    for region in watch.regions:
        if region.base <= address < region.end:
            where = region.at(address)
            break
    who = watch.who(table.lane[a], access.shape, int(table.program[a]))

    # Two lanes of one store
    if table.access[a] == table.access[b]:
        lane = lane_name(int(table.lane[b]), other.shape)
        return (
            f"{access.line}: a race at {where}: {who} and lane {lane} write different values to it"
        )

    whom = watch.who(table.lane[b], other.shape, int(table.program[b]))
    if table.writes[b]:
        what = "writes another value"
    elif table.atomic[b]:
        what = "changes it by an atomic"
    else:
        what = "reads it"
    behind = "" if access.line == other.line else f" in {other.line}"
    return f"{access.line}: a race at {where}: {who} writes it, {whom} {what}{behind}"
