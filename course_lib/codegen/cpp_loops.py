"""The loops of a C++ kernel: threads, SIMD lanes, blocks, and rows on the stack around a vectorised
loop.

In:  what `codegen.plan` decided about a kernel and about one pass.
Out: the lines that open and close each loop; what stands inside is `codegen.cpp`'s.
In PyTorch: `torch/_inductor/codegen/cpp.py`, `LoopNest`, `LoopLevel.lines`, `WorkSharing`.
"""

import contextlib
import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import sympy
import torch

from course_lib.codegen.cpp_ops import HALVES, STORED, CppOps, computed_as
from course_lib.codegen.loops import BYTES_KEPT, SCRATCH_BYTES, iterations
from course_lib.codegen.plan import PARALLEL_FROM, Load, PassPlan, Planner, Staged
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ops import substitute
from course_lib.scheduling.kernel import Loop, Step
from course_lib.sizes import is_symbolic, quotient, surely


class Block(NamedTuple):
    """The bounds of one block of a loop, as source."""

    first: str
    # Empty for the whole loop: its end is where it ends
    stop: str

    @property
    def is_whole(self) -> bool:
        return not self.stop


WHOLE = Block("0", "")


class CppLoops(CppOps):
    """Opens loops. A block of a loop is a part that has sums, or rows on the stack, of its own."""

    plan: Planner

    def pragma(
        self,
        threads: bool = False,
        simd: bool = False,
        collapse: int = 1,
        clauses: Iterable[str] = (),
        simd_from: int = 0,
    ) -> None:
        """The OpenMP line before a loop, if there is anything to say.

        What depends on a symbolic size is decided as it runs."""
        if not (threads or simd):
            return

        words = ["#pragma omp"]
        if threads:
            words.append("parallel for")
        if simd:
            words.append("simd")
        if collapse > 1:
            words.append(f"collapse({collapse})")
        if threads and is_symbolic(iterations(self.kernel.loops)):
            words.append(
                f"if(parallel: {self.size(iterations(self.kernel.loops))} >= {PARALLEL_FROM})"
            )
        if simd and simd_from:
            columns = self.size(iterations(self.kernel.columns))
            words.append(f"if(simd: {columns} > {simd_from})")
        words += clauses
        if self.checks:
            words.append("reduction(|: problem)")
        self.line(" ".join(words))

    def loop(
        self, loop: Loop, start: str = "0", stop: str = ""
    ) -> contextlib.AbstractContextManager[None]:
        """A loop from `start` to `stop` (or its end)."""
        s = loop.symbol
        end = stop or self.size(loop.size)
        return self.block(f"for (int64_t {s} = {start}; {s} < {end}; {s}++) {{", "}")

    @contextlib.contextmanager
    def blocks_of(self, loop: Loop, size: int) -> Iterator[Block]:
        """A loop over blocks of another, around what will be the loop inside one; gives that one's
        bounds."""
        if surely(operator.le, loop.size, size):
            yield WHOLE
            return

        first = self.unique("block")
        end = self.unique("end")
        n = self.size(loop.size)
        stop = f"{first} + {size}"
        with self.block(f"for (int64_t {first} = 0; {first} < {n}; {first} += {size}) {{", "}"):
            if quotient(loop.size, size) is None:
                self.line(f"const int64_t {end} = {stop} < {n} ? {stop} : {n};")
                stop = end
            yield Block(first, stop)

    @contextlib.contextmanager
    def rows_around(self, plan: PassPlan, loop: Loop, block: Block) -> Iterator[dict[Staged, str]]:
        """Rows are filled before the vectorised loop and stored after it. Inside, `self.rows` knows
        them: a load or a store of what lies in one means the row.

        Gives for each step of 16 bits, if another needs it, the line that rounds its row. The
        caller prints it (`CppKernel.print_rounding`)."""
        stores: list[str] = []
        rounding: dict[Staged, str] = {}
        for what, place in plan.staging.places.items():
            count = self.count_in_block(loop, plan.block, block)
            row = self.declare_row(what, place, loop, plan, block)

            dtype = dtype_in_row(what)
            if dtype in HALVES and what in self.used:
                rounding[what] = f"round_row<{STORED[dtype]}>({row}, {count});"

            # What only other steps need has no memory: it stays on the stack.
            if place.buffer not in self.pointers:
                continue

            # A load comes before the loop, a result goes after it.
            memory = self.memory_of_row(place, loop, block)
            if isinstance(what, Step):
                stores.append(f"copy_row({memory}, {row}, {count});")
            else:
                self.line(f"copy_row({row}, {memory}, {count});")

        yield rounding

        self.line(*stores)
        self.rows.clear()

    def declare_row(
        self, what: Staged, place: Load, loop: Loop, plan: PassPlan, block: Block
    ) -> str:
        """A row on the stack for one block of a loop; from here on its elements stand for what it
        holds."""
        row = self.unique(f"{place.buffer}_row")
        room = plan.block
        if not is_symbolic(loop.size):
            room = self.room(min(loop.size, plan.block))
        self.line(f"{computed_as(dtype_in_row(what))} {row}[{room}];")

        place_in_row = f"{loop.symbol}"
        if not block.is_whole:
            place_in_row += f" - {block.first}"
        self.rows[what] = f"{row}[{place_in_row}]"
        return row

    def memory_of_row(self, place: Load, loop: Loop, block: Block) -> str:
        """The address where a block of a row begins in memory."""
        start: sympy.Expr = sympy.Integer(0)
        if not block.is_whole:
            start = sympy.Symbol(block.first)
        offset = self.index(substitute(place.index, {loop.symbol: start}))
        return f"{self.pointers[place.buffer]} + {offset}"

    def count_in_block(self, loop: Loop, size: int, block: Block) -> str:
        """How many iterations of a loop lie in one block of it, of this size."""
        if block.is_whole:
            return self.size(loop.size)
        if quotient(loop.size, size) is None:
            return f"{block.stop} - {block.first}"
        return str(size)

    @contextlib.contextmanager
    def block_of_lanes(self, loop: Loop) -> Iterator[None]:
        """The shape 'lanes': a loop over blocks of neighbouring rows.

        (`first`, `lanes` and `lane` are reserved: no value has such a name.)"""
        n, size = self.size(loop.size), self.plan.lanes
        with self.block(f"for (int64_t first = 0; first < {n}; first += {size}) {{", "}"):
            if self.plan.is_ragged:
                self.line(f"const int64_t lanes = {n} - first < {size} ? {n} - first : {size};")
            yield

    @contextlib.contextmanager
    def over_lanes(self, simd: bool = True) -> Iterator[None]:
        """The shape 'lanes': the loop over the rows of a block. In other shapes, nothing."""
        if not self.plan.has_lanes:
            yield
            return

        self.pragma(simd=simd)
        end = "lanes" if self.plan.is_ragged else self.plan.lanes
        with self.block(f"for (int64_t lane = 0; lane < {end}; lane++) {{", "}"):
            self.line(f"const int64_t {self.kernel.rows[-1].symbol} = first + lane;")
            yield

    def room(self, count: Any) -> int:
        """How long an array on the stack is: for many sizes, the next power of two; for a symbolic
        size, the most there may be."""
        if is_symbolic(count):
            return SCRATCH_BYTES // BYTES_KEPT  # `loops.phases` keeps no longer row
        if self.kernel.fixed is None:
            return int(count)
        return power_of_two(count)


def dtype_in_row(what: Staged) -> torch.dtype:
    """The dtype that a row is computed in: of a step its own, and what is loaded has become
    float32."""
    if isinstance(what, Step):
        return what.buffer.dtype
    return torch.float32
