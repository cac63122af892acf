"""A fused kernel as C++: loops, SIMD, threads.

In:  a `FusedKernel` and the buffers it reads.
Out: one function `extern "C" void name(void **buffers, const int64_t *sizes)`; with `prelude.h` before it, it needs no other
     header. The text is the same on every machine: the instruction set is a flag of the compiler.

Three shapes of kernel, chosen by `shape_of`:

    rows      each thread takes rows; the innermost loop is vectorised                             x + y, softmax(x, -1)
    lanes     each SIMD lane takes a row, because neighbouring rows are neighbours in memory       x.sum(0)
    columns   too few rows for the threads: they share the columns                                 x.sum()

In PyTorch: `torch/_inductor/codegen/cpp.py`, `CppKernel`, `CppVecKernel` (explicit vectors, `at::vec`), `LoopNest`.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from course_lib.codegen.accumulators import Accumulator
from course_lib.codegen.cpp_ops import HALVES, RESERVED, STORED, CppOps, can_fail, computed_as
from course_lib.codegen.expressions import Expr, loads, record, steps_used
from course_lib.codegen.loops import Phase, column_number, has_stride_one, is_row_level, phases, simplify, work
from course_lib.codegen.printer import KernelSource
from course_lib.lowering.ir import Buffer, Reduction
from course_lib.lowering.ops import linear_index
from course_lib.scheduling.kernel import FusedKernel, Loop, Step

PARALLEL_FROM = 16 * 1024
"""Starting the threads costs about 2 µs: below this many elements one thread is faster."""
FEW_ROWS = 16
LANES = 64
"""Rows that go side by side in the shape 'lanes': four registers of AVX-512, eight of AVX2."""
BLOCK = 4096
"""Longer float sums go in blocks of this size, whose sums are added up as double: the error stays that of a short sum."""

Shape = Literal["rows", "lanes", "columns"]


def cpp_source(kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None) -> KernelSource:
    """Print one kernel. `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return CppKernel(simplify(kernel, buffers), buffers, name or kernel.name).print()


@functools.cache
def prelude() -> str:
    """What stands before the kernels of a file."""
    return Path(__file__).with_name("prelude.h").read_text()


def shape_of(kernel: FusedKernel, trees: Mapping[Step, Expr]) -> Shape:
    """Which loop gets the SIMD lanes, and which the threads."""
    rows, columns = kernel.rows, kernel.columns
    if not columns:
        return "rows"
    inside = [tree for step, tree in trees.items() if not is_row_level(step, kernel)]
    along_columns = any(has_stride_one(tree, columns[-1].symbol) for tree in inside)
    if rows and not along_columns and any(has_stride_one(tree, rows[-1].symbol) for tree in inside):
        return "lanes"
    few = math.prod(loop.size for loop in rows) < FEW_ROWS
    return "columns" if few and math.prod(loop.size for loop in columns) >= 2 * PARALLEL_FROM else "rows"


class CppKernel(CppOps):
    """Walks the phases of one kernel and writes the loops around them."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str) -> None:
        super().__init__([*RESERVED, *(str(loop.symbol) for loop in kernel.loops)])
        self.kernel, self.name = kernel, name
        self.trees, recorder = record(kernel, buffers)
        self.symbols, self.buffers = recorder.indirect_values, recorder.buffers
        self.shape = shape_of(kernel, self.trees)
        self.phases = phases(
            kernel, self.trees, frozenset({"memory"} if self.shape == "lanes" else {"memory", "scratch"})
        )
        self.parallel = work(kernel) >= PARALLEL_FROM
        self.pointers: dict[str, str] = {}
        self.scratch: dict[Step, str] = {}
        self.used = {used for tree in self.trees.values() for used in steps_used(tree)}
        self.checks = [node for tree in self.trees.values() for node in tree.walk() if can_fail(node)]
        # In the shape 'lanes', what lives longer than one loop over the lanes is an array.
        inner = kernel.rows[-1] if kernel.rows else None
        self.lane = "[lane]" if self.shape == "lanes" else ""
        self.lanes = max(1, min(LANES, inner.size)) if self.lane and inner else 1
        self.ragged = bool(self.lane and inner and inner.size % self.lanes)

    # --- the function ------------------------------------------------------------------------------------------------

    def print(self) -> KernelSource:
        with self.block(f'extern "C" void {self.name}(void** buffers, const int64_t* sizes) {{', "}"):
            order = self.print_pointers()
            if self.checks:
                self.line("int problem = 0;")
            if any(node.op == "indirect" and node.detail[0] == 0 for node in self.checks):
                self.line("problem = 1;  // an index into nothing is always out of range")
            else:
                self.print_loops()
            if self.checks:
                self.line(f"if (problem) *(int64_t*)buffers[{len(order)}] = problem;")
        source, line_of = self.layout("  ")
        return KernelSource(self.name, "cpp", source, order, (), line_of, checked=bool(self.checks))

    def print_pointers(self) -> tuple[str, ...]:
        """One typed pointer for each buffer; a buffer that is written in place of another shares its memory."""
        in_place = {new: old for new, old in self.kernel.in_place.items() if new in self.kernel.stores}
        read = dict.fromkeys(buffer for tree in self.trees.values() for buffer, _ in loads(tree))
        stored = [step.buffer.name for step in self.trees if step.buffer.name in self.kernel.stores]
        order = tuple(dict.fromkeys([*read, *(in_place.get(name, name) for name in stored)]))
        for name in dict.fromkeys([*read, *stored]):
            shared = name in in_place or name in in_place.values()
            pointer = f"{'' if shared or name in stored else 'const '}{STORED[self.buffers[name].dtype]}*"
            self.pointers[name] = self.scope.unique(name)
            place = order.index(in_place.get(name, name))
            note = f"  // in place of {in_place[name]}" if name in in_place else ""
            restrict = "" if shared else " __restrict"
            self.line(f"{pointer}{restrict} {self.pointers[name]} = ({pointer})buffers[{place}];{note}")
        return order

    def print_loops(self) -> None:
        """The loops over rows, and inside them the phases of a row."""
        rows = self.kernel.rows
        pointwise = len(self.phases) == 1
        with contextlib.ExitStack() as blocks:
            shared = self.shared_row_loop(pointwise)
            for depth, loop in enumerate(rows):
                last = depth == len(rows) - 1
                simd = pointwise and last
                collapse = len(rows) - pointwise if depth == shared else 1
                self.pragma(threads=depth == shared, simd=simd, collapse=collapse)
                blocks.enter_context(self.block_of_lanes(loop) if last and self.lane else self.loop(loop))
            for phase in self.phases:
                for part in phase.split(self.trees) if phase.columns else ():
                    self.print_pass(part)
                self.print_row_steps(phase)

    def shared_row_loop(self, pointwise: bool) -> int | None:
        """Which row loop the threads share: the outermost, unless it is short and the vectorised one is long."""
        rows = self.kernel.rows
        if not self.parallel or self.shape == "columns":
            return None
        outer = math.prod(loop.size for loop in rows[:-1])
        return len(rows) - 1 if pointwise and outer < FEW_ROWS and outer < rows[-1].size else 0

    # --- a pass over the columns -------------------------------------------------------------------------------------

    def print_pass(self, phase: Phase) -> None:
        """Accumulators, the loops over the columns, and in them every step of the phase."""
        columns = self.kernel.columns
        for step in phase.kept:
            self.scratch[step] = self.scope.unique(f"{label(step)}_row")
            size = math.prod(loop.size for loop in columns)
            self.line(f"{computed_as(step.buffer.dtype)} {self.scratch[step]}[{size}];")
        totals = {step: self.accumulator(step) for step in phase.reductions}
        in_order = any(total.in_order for total in totals.values())
        blocked = bool(columns) and not in_order and self.is_long(totals.values())
        threads = self.parallel and self.shape == "columns" and bool(columns) and not in_order
        for step, total in totals.items():
            self.declare_accumulator(step, total, wide=blocked)

        with contextlib.ExitStack() as blocks:
            if len(columns) > 1 or blocked:
                self.pragma(threads=threads, reductions=totals.values())
                threads = False
            for loop in columns[:-1]:
                blocks.enter_context(self.loop(loop))
            bounds = blocks.enter_context(self.block_of_columns(columns[-1])) if blocked else ("0", "")
            parts = totals
            if blocked:
                parts = {step: replace(total, name=f"{total.name}_part") for step, total in totals.items()}
                for step, part in parts.items():
                    self.declare_accumulator(step, part)
            self.print_innermost(phase, parts, bounds, threads, simd=not in_order)
            if blocked:
                with self.over_lanes():
                    for step, total in totals.items():
                        self.lines_for(step, total.combine(parts[step], self.lane))
        for step, total in totals.items():
            self.finish(step, total, wide=blocked)

    def print_innermost(
        self, phase: Phase, parts: Mapping[Step, Accumulator], bounds: tuple[str, str], threads: bool, simd: bool
    ) -> None:
        """The loop that is vectorised: over columns, or over lanes inside the columns."""
        columns = self.kernel.columns
        with contextlib.ExitStack() as blocks:
            if columns and not self.lane:
                self.pragma(threads, simd, reductions=parts.values())
            if columns:
                blocks.enter_context(self.loop(columns[-1], *bounds))
            else:
                blocks.enter_context(self.block("{", "}"))
            with self.over_lanes(simd):
                self.print_columns(phase, parts)

    def print_columns(self, phase: Phase, parts: Mapping[Step, Accumulator]) -> None:
        """The body: each step's value, where it goes, and what the reductions take in."""
        computed = [step for step, source in phase.columns.items() if source == "compute"]
        needed = {used for step in computed for used in steps_used(self.trees[step])}
        self.count_uses(self.trees[step] for step in computed)
        late: list[tuple[Step, list[str]]] = []
        for step, source in phase.columns.items():
            if source != "compute":
                self.scope.values[step] = self.scratch_element(step) if source == "scratch" else self.element(step)
                continue
            with self.on_behalf_of(step):
                if step.is_reduction:
                    self.take(step, parts[step])
                    continue
                places = [self.scratch_element(step)] if step in phase.kept else []
                places += [self.element(step)] if step in phase.stored else []
                if self.kernel.in_place:
                    self.bind(step, self.value_text(self.trees[step]), label(step))
                    late.append((step, places))
                else:
                    self.print_step(step, places, named=step in needed)
        for step, places in late:
            self.lines_for(step, [f"{place} = {self.scope.find(step)};" for place in places])

    def print_step(self, step: Step, places: list[str], named: bool) -> None:
        """Compute the value of a step and put it where it is wanted: a name, a scratch row, memory."""
        tree = self.trees[step]
        if len(places) == 1 and not named and self.scope.find(tree) is None:
            to_memory = places[0].startswith(f"{self.pointers.get(step.buffer.name)}[")
            if to_memory and tree.op == "to_dtype" and tree.dtype in HALVES and tree.args[0].dtype == torch.float32:
                tree = tree.args[0]  # the store itself rounds
            self.line(f"{places[0]} = {self.value_text(tree)};")
            return
        name = self.bind(step, self.value_text(tree), label(step))
        self.scope.values.setdefault(tree, name)
        for place in places:
            self.line(f"{place} = {name};")

    # --- reductions --------------------------------------------------------------------------------------------------

    def accumulator(self, step: Step) -> Accumulator:
        assert isinstance(step.node, Reduction)
        at = self.index(column_number(step)) if step.node.kind.startswith("arg") else ""
        name = label(step) if step.node.kind in label(step) else f"{label(step)}_{step.node.kind}"
        return Accumulator.of(step.node, self.trees[step].dtype, self.scope.unique(name), at)

    def is_long(self, totals: Iterable[Accumulator]) -> bool:
        """True if the pass goes in blocks: for accuracy, or to share it among the threads."""
        longest = math.prod(loop.size for loop in self.kernel.columns) * (8 if self.lane else 1)
        totals = list(totals)
        return longest > BLOCK and (any(t.sums_floats for t in totals) or bool(totals and self.shape == "columns"))

    def declare_accumulator(self, step: Step, accumulator: Accumulator, wide: bool = False) -> None:
        for ctype, name, first in accumulator.variables():
            ctype = "double" if wide and accumulator.sums_floats else ctype
            lines = [f"{ctype} {name} = {first};"]
            if self.lane:
                zero = first == "0"
                lines = [f"{ctype} {name}[{self.lanes}]{' = {}' if zero else ''};"]
                lines += [] if zero else [f"for ({ctype}& each : {name}) each = {first};"]
            self.lines_for(step, lines)

    def take(self, step: Step, part: Accumulator) -> None:
        tree = self.trees[step]
        value = self.truth(tree, 0) if part.kind in ("any", "all") else self.value_text(tree)
        if (part.compares or part.in_order) and not value.isidentifier():
            value = self.bind(tree, value, "value")
        self.lines_for(step, part.take(value, self.lane))

    def finish(self, step: Step, total: Accumulator, wide: bool) -> None:
        """From here on the step's name stands for the result."""
        result = total.result(self.lane)
        dtype = step.buffer.dtype
        if not self.lane and total.has_nan:
            self.lines_for(step, [f"if ({total.name}_nan) {total.name} = NAN;"])
            result = total.name
        if dtype in HALVES:
            result = f"rounded<{STORED[dtype]}>({result})"
        elif wide and total.sums_floats:
            result = f"(float){result}"
        if self.lane or result.isidentifier():
            self.scope.values[step] = result
        else:
            with self.on_behalf_of(step):
                self.bind(step, result, label(step))

    # --- what runs once a row ----------------------------------------------------------------------------------------

    def print_row_steps(self, phase: Phase) -> None:
        """Row-level values (a mean, its square root) and the stores of finished reductions."""
        steps = [
            step for step in self.trees
            if step in phase.rows or (step in phase.stored and (step.is_reduction or is_row_level(step, self.kernel)))
        ]  # fmt: skip
        if not steps:
            return
        arrays = {step: self.scope.unique(label(step)) for step in phase.rows if self.lane and step in self.used}
        for step, name in arrays.items():
            self.lines_for(step, [f"{computed_as(step.buffer.dtype)} {name}[{self.lanes}];"])
        self.count_uses(self.trees[step] for step in phase.rows)
        around = self.scope
        late: list[Step] = []
        with self.over_lanes():
            for step in steps:
                with self.on_behalf_of(step):
                    at_once = step in phase.stored and step in phase.rows and not self.kernel.in_place
                    if step in phase.stored and not at_once:
                        late.append(step)
                    if step in phase.rows:
                        places = [self.element(step)] if at_once else []
                        places += [f"{arrays[step]}[lane]"] if step in arrays else []
                        named = step in late or (step in self.used and not self.lane)
                        self.print_step(step, places, named)
                        if step in arrays:
                            around.values[step] = f"{arrays[step]}[lane]"
            for step in late:
                self.lines_for(step, [f"{self.element(step)} = {self.scope.find(step)};"])

    # --- small pieces ------------------------------------------------------------------------------------------------

    def element(self, step: Step) -> str:
        return f"{self.pointers[step.buffer.name]}[{self.index(step.store_index)}]"

    def scratch_element(self, step: Step) -> str:
        columns = self.kernel.columns
        strides = [math.prod(loop.size for loop in columns[d + 1 :]) for d in range(len(columns))]
        return f"{self.scratch[step]}[{self.index(linear_index([loop.symbol for loop in columns], strides))}]"

    def lines_for(self, step: Step, lines: Iterable[str]) -> None:
        with self.on_behalf_of(step):
            for line in lines:
                self.line(line)

    def pragma(
        self, threads: bool = False, simd: bool = False, collapse: int = 1, reductions: Iterable[Accumulator] = ()
    ) -> None:
        """The OpenMP line before a loop, if there is anything to say."""
        if threads or simd:
            words = ["#pragma omp", *(["parallel for"] if threads else []), *(["simd"] if simd else [])]
            words += [f"collapse({collapse})"] if collapse > 1 else []
            words += [clause for accumulator in reductions for clause in accumulator.clauses()]
            self.line(" ".join(words + (["reduction(|: problem)"] if self.checks else [])))

    def loop(self, loop: Loop, start: str = "0", stop: str = "") -> contextlib.AbstractContextManager[None]:
        s = loop.symbol
        return self.block(f"for (int64_t {s} = {start}; {s} < {stop or loop.size}; {s}++) {{", "}")

    @contextlib.contextmanager
    def block_of_columns(self, loop: Loop) -> Iterator[tuple[str, str]]:
        """A loop over blocks of columns, around what will be the loop inside one; gives that one's bounds."""
        size = BLOCK // 8 if self.lane else BLOCK
        if loop.size <= size:
            yield "0", ""
            return
        first, end = self.scope.unique("block"), self.scope.unique("end")
        with self.block(f"for (int64_t {first} = 0; {first} < {loop.size}; {first} += {size}) {{", "}"):
            text = f"{first} + {size}"
            if loop.size % size:
                self.line(f"const int64_t {end} = {text} < {loop.size} ? {text} : {loop.size};")
            yield first, end if loop.size % size else text

    @contextlib.contextmanager
    def block_of_lanes(self, loop: Loop) -> Iterator[None]:
        """The shape 'lanes': a loop over blocks of neighbouring rows."""
        with self.block(f"for (int64_t first = 0; first < {loop.size}; first += {self.lanes}) {{", "}"):
            if self.ragged:
                self.line(
                    f"const int64_t lanes = {loop.size} - first < {self.lanes} ? {loop.size} - first : {self.lanes};"
                )
            yield

    @contextlib.contextmanager
    def over_lanes(self, simd: bool = True) -> Iterator[None]:
        """The shape 'lanes': the loop over the rows of a block. In other shapes, nothing."""
        if not self.lane:
            yield
            return
        self.pragma(simd=simd)
        with self.block(f"for (int64_t lane = 0; lane < {'lanes' if self.ragged else self.lanes}; lane++) {{", "}"):
            self.line(f"const int64_t {self.kernel.rows[-1].symbol} = first + lane;")
            yield


def label(step: Step) -> str:
    return step.node.label or step.buffer.name
