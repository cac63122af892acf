"""Does memory stay flat? Thousands of compiles of functions that are thrown away, and a million
calls of compiled ones.

In:  how many compiles and calls. Out: after each tenth of them, what the process holds.

Compiling the same four programs anew is what a notebook does whose cells are run again: each time
there is a new function, or a new module, and nothing of the old one may stay. Between two readings
lies the same work, so what is gained from one to the next is a leak; the first tenth also fills
caches and is no reading.
"""

from __future__ import annotations

import gc
import os
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import course_lib as cl
from course_lib.bench.models import TinyBlock
from course_lib.bench.report import columns

Call = Callable[[], object]


@dataclass(frozen=True)
class Reading:
    """What the process holds after `done` compiles or calls."""

    done: int
    megabytes: float
    objects: int


def programs(backend: str) -> list[Callable[[], Call]]:
    """Each makes a new program, compiled, and says how it is called once."""
    x, y, h = torch.randn(4), torch.randn(4), torch.randn(2, 8, 64)

    def compiled_anew(function: Any, *args: object) -> Call:
        # another code object, as from a cell that is run again
        code = function.__code__.replace(co_name=function.__name__)
        copy = types.FunctionType(
            code, function.__globals__, function.__name__, None, function.__closure__
        )
        compiled = cl.compile(copy, backend=backend)
        return lambda: compiled(*args)

    def plain(x, y):
        return x * 2 + y

    def breaks(x, y):
        total = float(x.sum().item())
        return x * total + y

    def sines(xs):
        return [x.sin() + 1 for x in xs]

    def sizes() -> Call:
        return compiled_anew(sines, [torch.randn(n) for n in (3, 4, 5)])

    def training() -> Call:
        block = TinyBlock(64, 2)
        compiled = cl.compile(block, backend=backend)

        def step() -> None:
            compiled(h).sum().backward()
            block.zero_grad()

        return step

    def ordinary() -> Call:
        return compiled_anew(plain, x, y)

    def with_a_break() -> Call:
        return compiled_anew(breaks, x, y)

    return [ordinary, with_a_break, sizes, training]


def resident() -> float:
    """MB of memory that the process has. The second number of `statm` counts resident pages."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def readings(turn: Callable[[int], object], count: int, tenths: int = 10) -> Iterator[Reading]:
    """`turn(0)`, `turn(1)`, ...; a reading after each tenth."""
    for tenth in range(tenths):
        start, end = count * tenth // tenths, count * (tenth + 1) // tenths
        for number in range(start, end):
            turn(number)
        gc.collect()
        yield Reading(end, resident(), len(gc.get_objects()))


def compiles(count: int, backend: str) -> Iterator[Reading]:
    """Compile a new program, call it twice, forget it."""
    several = programs(backend)

    def turn(number: int) -> None:
        call = several[number % len(several)]()
        call()
        call()

    return readings(turn, count)


def calls(count: int, backend: str) -> Iterator[Reading]:
    """Call programs that are compiled already."""
    several = [make() for make in programs(backend)]
    return readings(lambda number: several[number % len(several)](), count)


def gained(seen: list[Reading]) -> tuple[float, float]:
    """Bytes and Python objects that one compile (or call) leaves behind."""
    first, last = seen[1], seen[-1]  # the first tenth also fills caches
    steps = last.done - first.done
    gained_bytes = (last.megabytes - first.megabytes) * 1e6
    gained_objects = last.objects - first.objects
    return gained_bytes / steps, gained_objects / steps


def table(seen: list[Reading]) -> str:
    rows = [("done", "resident MB", "Python objects")]
    for reading in seen:
        rows.append((f"{reading.done:,}", f"{reading.megabytes:.0f}", f"{reading.objects:,}"))
    return columns(rows)
