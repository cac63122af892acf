"""A fused kernel as C++: loops, SIMD, threads.

In:  a `FusedKernel` and the buffers it reads.
Out: one function `extern "C" void name(void **buffers)`; with `prelude.h` before it, it needs no other
     header. The instruction set is a flag of the compiler; of the machine the text knows only how large its last cache is.

Three shapes of kernel, chosen by `shape_of`:

    rows      each thread takes rows; the innermost loop is vectorised                             x + y, softmax(x, -1)
    lanes     each SIMD lane takes a row, because neighbouring rows are neighbours in memory       x.sum(0)
    columns   too few rows for the threads: they share the columns                                 x.sum()
In PyTorch: `torch/_inductor/codegen/cpp.py`, `CppKernel`, `CppVecKernel` (explicit vectors, `at::vec`), `LoopNest`.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import sympy
import torch

from course_lib.codegen.cpp_ops import HALVES, RESERVED, STORED, Accumulator, CppOps, computed_as
from course_lib.codegen.loops import (
    PLAIN,
    Phase,
    as_columns,
    column_number,
    iterations,
    phases,
    reduction,
)
from course_lib.codegen.printer import KernelSource, label
from course_lib.lowering.indexing import Linear, contiguous, power_of_two
from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import add, linear_index, substitute
from course_lib.scheduling.expressions import Expr, loads, steps_used
from course_lib.scheduling.kernel import FusedKernel, Loop, Step

# Starting the threads costs about 2 µs: below this many elements one thread is faster
PARALLEL_FROM = 16 * 1024
FEW_ROWS = 16
# Rows that go side by side in the shape 'lanes': four registers of AVX-512, eight of AVX2
LANES = 64
# Longer float sums go in blocks, whose sums are added up as double: the error stays that of a short sum
BLOCK = 4096
FEW = 8  # So few columns are taken one by one where their order matters
STRIP = 64  # Elements that go through a row on the stack at a time
# Bytes that a kernel moves: from here on its results would leave the caches before anybody reads them
STREAM_FROM = 64 * 2**20
with contextlib.suppress(OSError, ValueError):  # "32768K"
    last_cache = 1024 * int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text()[:-2])
    STREAM_FROM = min(STREAM_FROM, last_cache or STREAM_FROM)  # a virtual machine may say 0
# Columns of a row that its passes read too far apart for what the processor itself fetches ahead
LONG = 2048

Staged = dict[Any, tuple[str, sympy.Expr]]  # Load or step → buffer and index


def cpp_source(
    kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None
) -> KernelSource:
    """Print one kernel. `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return CppKernel(kernel, buffers, name or kernel.name).print()


@functools.cache
def prelude() -> str:
    """What stands before the kernels of a file."""
    return Path(__file__).with_name("prelude.h").read_text()


def shape_of(
    kernel: FusedKernel, trees: Mapping[Step, Expr]
) -> Literal["rows", "lanes", "columns"]:
    """Which loop gets the SIMD lanes, and which the threads."""
    rows, columns = kernel.rows, kernel.columns
    read = [
        index for step, tree in trees.items() if step.level != "row" for _, index in loads(tree)
    ]
    along = lambda loop: any(
        Linear.of(index, {loop.symbol}).coefficient(loop.symbol) == 1 for index in read
    )
    reduces = {step.level for step in trees if step.is_reduction}
    if rows and reduces == {"column"} and along(rows[-1]) and not along(columns[-1]):
        return "lanes"
    return (
        "columns"
        if iterations(rows) < FEW_ROWS and iterations(columns) >= PARALLEL_FROM
        else "rows"
    )


class CppKernel(CppOps):
    """Walks the phases of one kernel and writes the loops around them."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str) -> None:
        super().__init__(as_columns(kernel), buffers, name, RESERVED)
        kernel = self.kernel
        self.shape = shape_of(kernel, self.trees)
        self.phases = phases(kernel, self.trees, keep=self.shape != "lanes")
        self.parallel = iterations(kernel.loops) >= PARALLEL_FROM
        self.scratch: dict[Step, str] = {}
        self.rows = {}
        # In the shape 'lanes', what lives longer than one loop over the lanes is an array.
        self.lane = "[lane]" if self.shape == "lanes" else ""
        self.lanes = max(1, min(LANES, kernel.rows[-1].size)) if self.lane else 1
        self.ragged = bool(self.lane and kernel.rows[-1].size % self.lanes)

    def print(self) -> KernelSource:
        with self.block(f'extern "C" void {self.name}(void** buffers) {{', "}"):
            self.print_pointers()
            if self.checks:
                self.line("int problem = 0;")
            if any(node.detail[0] == 0 for node in self.checks):
                self.line("problem = 1;  // an index into nothing is always out of range")
            else:
                self.print_loops()
            if self.checks:
                self.line(f"if (problem) *(int64_t*)buffers[{len(self.passed)}] = problem;")
        where = f"((const int64_t*)buffers[{len(self.passed) + bool(self.checks)}])"
        given = [
            (1, f"const int64_t {name} = {where}[{n}];", None)
            for n, name in enumerate(self.sizes.values())
        ]
        self.lines[1 + len(self.touched) : 1 + len(self.touched)] = given
        source, line_of = self.layout("  ")
        return KernelSource(
            self.name, "cpp", source, self.passed, line_of, bool(self.checks), tuple(self.sizes)
        )

    def print_pointers(self) -> None:
        """One typed pointer for each buffer; a buffer that is written in place of another shares its memory."""
        for name in self.touched:
            old = self.in_place.get(name, name)
            shared = old != name or name in self.in_place.values()
            pointer = f"{'' if shared or name in self.stored else 'const '}{STORED[self.buffers[name].dtype]}*"
            self.pointers[name] = self.unique(name)
            restrict, note = (
                "" if shared else " __restrict",
                f"  // in place of {old}" if old != name else "",
            )
            self.line(
                f"{pointer}{restrict} {self.pointers[name]} = ({pointer})buffers[{self.passed.index(old)}];{note}"
            )

    def print_loops(self) -> None:
        """The loops over rows, and inside them the phases of a row."""
        rows, columns = self.kernel.rows, iterations(self.kernel.columns)
        for step in self.across:
            self.scratch[step] = self.unique(label(step))
            self.line(f"double {self.scratch[step]}[{self.room(columns)}] = {{}};", step=step)
        with contextlib.ExitStack() as blocks:
            if rows and self.parallel and self.shape != "columns":
                gathers = [
                    f"reduction(+: {self.scratch[step]}[:{self.size(columns)}])"
                    for step in self.across
                ]
                self.pragma(threads=True, collapse=len(rows), clauses=gathers)
            for loop in rows:
                blocks.enter_context(
                    self.block_of_lanes(loop) if self.lane and loop is rows[-1] else self.loop(loop)
                )
            for phase in self.phases:
                if phase.columns:
                    self.print_pass(phase)
                self.print_row_steps(phase)
        if self.across:
            with contextlib.ExitStack() as blocks:
                for loop in self.kernel.columns:
                    blocks.enter_context(self.loop(loop))
                for step in self.across:
                    self.line(f"{self.element(step)} = {self.scratch_element(step)};", step=step)

    def print_pass(self, phase: Phase) -> None:
        """Accumulators, the loops over the columns, and in them every step of the phase."""
        columns = self.kernel.columns
        for step in phase.columns:
            if step in phase.kept:
                self.scratch[step] = self.unique(f"{label(step)}_row")
                self.line(
                    f"{computed_as(step.buffer.dtype)} {self.scratch[step]}[{self.room(iterations(columns))}];"
                )
        parts = {step: self.accumulator(step) for step in phase.reductions}
        # lanes would mix up which zero was first, 0.0 or -0.0; in eager that is so for long rows only
        few = iterations(columns) <= FEW
        in_order = any(part.at or (few and part.has_nan) for part in parts.values())
        # or 8 lanes share a sum
        longest = iterations(columns) * (8 if self.lane or len(columns) > 1 else 1)
        sums = [
            s
            for s, part in parts.items()
            if part.kind == "sum" and computed_as(part.dtype) == "float" and longest > BLOCK
        ]
        totals = parts | {step: replace(parts[step], dtype=torch.float64) for step in sums}
        parts |= {step: replace(parts[step], name=f"{parts[step].name}_part") for step in sums}
        threads = self.parallel and self.shape == "columns" and not in_order
        staged, apart = self.staged(phase, columns[-1])
        blocked = bool(sums or staged)
        alone = len(columns) == 1 and not blocked
        for step, total in totals.items():
            self.declare_accumulator(step, total)
        with contextlib.ExitStack() as blocks:
            self.pragma(threads and not alone, clauses=clauses_of(totals))
            for loop in columns[:-1]:
                blocks.enter_context(self.loop(loop))
            size = STRIP if staged else BLOCK // 8 if self.lane else BLOCK
            bounds = (
                blocks.enter_context(self.blocks_of(columns[-1], size)) if blocked else ("0", "")
            )
            for step in sums:
                self.declare_accumulator(step, parts[step])
            self.print_fetch(phase, size, *bounds)
            rounding = blocks.enter_context(self.rows_around(staged, columns[-1], *bounds))
            # The loop that is vectorised: over columns, or over lanes inside the columns. Where values are rounded to float16
            # on the way, a loop for each step: rows are rounded eight at a time, and nobody waits for a long chain.
            simd = not in_order
            for steps in [[step] for step in phase.columns] if apart else [list(phase.columns)]:
                clauses = clauses_of({step: part for step, part in parts.items() if step in steps})
                self.pragma(threads and alone, simd and not self.lane, clauses=clauses)
                with self.loop(columns[-1], *bounds), self.over_lanes(simd):
                    self.print_columns(phase, steps, parts)
                for step in rounding.keys() & steps if apart else ():
                    self.line(rounding[step], step=step)
            with self.over_lanes() if sums else contextlib.nullcontext():
                for step in sums:
                    self.line(
                        *totals[step].take(f"{parts[step].name}{self.lane}", self.lane), step=step
                    )
        for step, total in totals.items():
            self.finish(step, total)

    def overtakes(self, steps: list[Step]) -> bool:
        """Does a step read what one before it writes in place of it? Then they cannot have a loop each."""
        olds = (
            (n, self.in_place[step.buffer.name])
            for n, step in enumerate(steps)
            if step.buffer.name in self.in_place
        )
        return any(
            old == read
            for n, old in olds
            for later in steps[n + 1 :]
            for read, _ in loads(self.trees[later])
        )

    def print_fetch(self, phase: Phase, size: int, first: str, stop: str) -> None:
        """With every block of the last pass over a long row: what the first one read of this row will be needed of the next."""
        rows, columns, passes = self.kernel.rows, self.kernel.columns, self.phases[1:]
        if (
            not stop
            or self.shape != "rows"
            or len(columns) > 1
            or columns[0].size < LONG
            or phase not in passes[1:][-1:]
        ):
            return
        for buffer, index in dict.fromkeys(
            load for step in passes[0].columns for load in loads(self.trees[step])
        ):
            if (
                self.walks_along(index, columns[0].symbol)
                and {loop.symbol for loop in rows[-1:]} & index.free_symbols
            ):
                below = Linear.of(index, {rows[-1].symbol}).coefficient(rows[-1].symbol)
                there = self.index(
                    add([substitute(index, {columns[0].symbol: sympy.Symbol(first)}), below])
                )
                self.line(f"fetch_row({self.pointers[buffer]} + {there}, {size});")

    def print_columns(
        self, phase: Phase, steps: list[Step], parts: Mapping[Step, Accumulator]
    ) -> None:
        """The body: the values of these steps, where they go, and what the reductions take in."""
        computed = [step for step in steps if phase.columns[step] == "compute"]
        self.values.update(
            (step, row)
            for step, row in self.rows.items()
            if step in phase.columns and step not in steps
        )
        needed = {used for step in computed for used in steps_used(self.trees[step])}
        self.count_uses(self.trees[step] for step in computed)
        for step, source in phase.columns.items():
            with self.on_behalf_of(step):
                if source == "scratch":
                    self.values[step] = self.scratch_element(step)
                    if step in phase.stored and step in steps:
                        self.store(f"{self.element(step)} = {self.values[step]};")
                elif step not in steps:
                    continue
                elif step.level == "across":
                    self.line(
                        f"{self.scratch_element(step)} += {self.text(self.trees[step], whole=True)};"
                    )
                elif step.is_reduction:
                    self.take(step, parts[step])
                else:
                    places = [self.scratch_element(step)] if step in phase.kept else []
                    places += (
                        [self.element(step)] if step in phase.stored or step in self.rows else []
                    )
                    self.print_step(step, places, named=step in needed)
        self.print_late()

    def print_step(self, step: Step, places: list[str], named: bool) -> None:
        """Compute the value of a step and put it where it is wanted: a name, a scratch row, memory."""
        tree = self.trees[step]
        if (
            len(places) == 1
            and not named
            and not self.kernel.in_place
            and self.values.get(tree) is None
        ):
            to_memory = (
                step.buffer.name in self.pointers and places[0] == self.element(step)
            ) or step in self.rows
            if (
                to_memory
                and tree.op == "to_dtype"
                and tree.dtype in HALVES
                and tree.args[0].dtype == torch.float32
            ):
                tree = tree.args[0]  # the store itself rounds
            self.line(f"{places[0]} = {self.text(tree, whole=True)};")
            return
        name = self.bind(step, self.text(tree, whole=True), label(step))
        self.values.setdefault(tree, name)
        for place in places:
            self.store(f"{place} = {name};")

    def accumulator(self, step: Step) -> Accumulator:
        node, dtype = reduction(step), self.trees[step].dtype
        kind = (
            {"max": "any", "min": "all"}.get(node.kind, node.kind)
            if dtype == torch.bool
            else node.kind
        )
        at = self.index(column_number(step)) if node.kind.startswith("arg") else ""
        name = label(step) if node.kind in label(step) else f"{label(step)}_{node.kind}"
        return Accumulator(
            self.unique(name),
            kind,
            node.accumulate if kind in ("sum", "prod") else dtype,
            at,
            node.last_of_equals,
        )

    def declare_accumulator(self, step: Step, accumulator: Accumulator) -> None:
        for ctype, name, first, _ in accumulator.variables():
            lines = [f"{ctype} {name} = {first};"]
            if self.lane:
                lines = [f"{ctype} {name}[{self.lanes}]{' = {}' if first == '0' else ''};"]
                lines += [f"for ({ctype}& each : {name}) each = {first};"] if first != "0" else []
            self.line(*lines, step=step)

    def take(self, step: Step, part: Accumulator) -> None:
        tree = self.trees[step]
        value = self.text(tree, whole=True)
        if part.kind not in PLAIN and not value.isidentifier():
            value = self.bind(tree, value, "value")
        self.line(*part.take(value, self.lane))

    def finish(self, step: Step, total: Accumulator) -> None:
        """From here on the step's name stands for the result."""
        result, dtype = total.result(self.lane), step.buffer.dtype
        if not self.lane and total.has_nan:
            self.line(f"if ({total.name}_nan) {total.name} = NAN;", step=step)
            result = total.name
        if dtype in HALVES:
            result = f"rounded<{STORED[dtype]}>({result})"
        elif dtype == torch.float32 and total.dtype == torch.float64:
            result = f"(float){result}"
        if self.lane or result.isidentifier():
            self.values[step] = result
        else:
            with self.on_behalf_of(step):
                self.bind(step, result, label(step))

    def print_row_steps(self, phase: Phase) -> None:
        """Row-level values (a mean, its square root), then the stores of finished reductions."""
        computed = [step for step in phase.rows if step not in self.values]
        arrays = {
            step: self.unique(label(step)) for step in computed if self.lane and step in self.used
        }
        for step, name in arrays.items():
            self.line(f"{computed_as(step.buffer.dtype)} {name}[{self.lanes}];", step=step)
        self.count_uses(self.trees[step] for step in computed)
        around = self.values
        with self.over_lanes() if phase.rows else contextlib.nullcontext():
            for step in computed:
                with self.on_behalf_of(step):
                    places = [self.element(step)] if step in phase.stored else []
                    places += [f"{arrays[step]}[lane]"] if step in arrays else []
                    self.print_step(step, places, named=step in self.used and not self.lane)
                    if step in arrays:
                        around[step] = f"{arrays[step]}[lane]"
            for step in phase.rows:
                if step not in computed:
                    with self.on_behalf_of(step):
                        self.store(f"{self.element(step)} = {self.values[step]};")
            self.print_late()

    def walks_along(self, index: sympy.Expr, symbol: sympy.Symbol) -> bool:
        """True if neighbours along `symbol` are neighbours in memory, and nothing in the index is looked up."""
        linear, known = Linear.of(index, {symbol}), {loop.symbol for loop in self.kernel.loops}
        return (
            linear.coefficient(symbol) == 1
            and linear.is_affine_in(symbol)
            and index.free_symbols <= known
        )

    def element(self, step: Step) -> str:
        return (
            self.rows.get(step)
            or f"{self.pointers[step.buffer.name]}[{self.index(step.store_index)}]"
        )

    def scratch_element(self, step: Step) -> str:
        columns = self.kernel.columns
        strides = contiguous([loop.size for loop in columns])
        return f"{self.scratch[step]}[{self.index(linear_index([loop.symbol for loop in columns], strides))}]"

    def pragma(
        self,
        threads: bool = False,
        simd: bool = False,
        collapse: int = 1,
        clauses: Iterable[str] = (),
    ) -> None:
        """The OpenMP line before a loop, if there is anything to say."""
        if threads or simd:
            words = [
                "#pragma omp",
                *(["parallel for"] if threads else []),
                *(["simd"] if simd else []),
            ]
            words += [f"collapse({collapse})"] if collapse > 1 else []
            self.line(
                " ".join([*words, *clauses, *(["reduction(|: problem)"] if self.checks else [])])
            )

    def loop(
        self, loop: Loop, start: str = "0", stop: str = ""
    ) -> contextlib.AbstractContextManager[None]:
        s = loop.symbol
        return self.block(
            f"for (int64_t {s} = {start}; {s} < {stop or self.size(loop.size)}; {s}++) {{", "}"
        )

    def room(self, count: int) -> int:
        """How long an array on the stack is: for many sizes, the next power of two."""
        return count if self.kernel.fixed is None else power_of_two(count)

    def staged(self, phase: Phase, loop: Loop) -> tuple[Staged, bool]:
        """What lies on the stack around the vectorised `loop`: float16, results past the caches. Has each step its own loop?"""
        along = lambda index: self.walks_along(index, loop.symbol)
        steps = [step for step, source in phase.columns.items() if source == "compute"]
        nodes = [node for step in steps for node in self.trees[step].walk()]
        if self.lane or any(node.op in ("masked", "indirect") for node in nodes):
            return {}, False
        found = {
            n.detail: n.detail
            for n in nodes
            if n.op == "load" and n.dtype == torch.float16 and along(n.detail[1])
        }
        moved = sum(self.buffers[name].nbytes for name in self.kernel.reads | self.kernel.stores)
        for step in steps:
            large = step.buffer.dtype == torch.float32 and moved >= STREAM_FROM
            if (
                step in phase.stored
                and (large or step.buffer.dtype == torch.float16)
                and along(step.store_index)
            ):
                found[step] = step.buffer.name, step.store_index
        inner = [step for step in steps if not step.is_reduction and step.level != "across"]
        rounds = any(step.buffer.dtype == torch.float16 and step in self.used for step in inner)
        apart = (
            bool(found) and rounds and all(step in found for step in inner if step in phase.stored)
        )
        apart = apart and not self.overtakes(list(phase.columns))
        return {
            step: ("", step.store_index) for step in inner if apart and step in self.used
        } | found, apart

    @contextlib.contextmanager
    def rows_around(
        self, staged: Staged, loop: Loop, first: str, stop: str
    ) -> Iterator[dict[Step, str]]:
        """Rows are filled before the vectorised loop and stored after it. Gives the lines that round those of 16 bits."""
        symbol, size, start = (
            loop.symbol,
            min(loop.size, STRIP),
            sympy.Symbol(first) if stop else sympy.Integer(0),
        )
        count = (
            f"{stop} - {first}"
            if stop and loop.size % STRIP
            else STRIP
            if stop
            else self.size(loop.size)
        )
        stores, rounding = [], {}
        for what, (buffer, index) in staged.items():
            row, dtype = (
                self.unique(f"{buffer}_row"),
                what.buffer.dtype if isinstance(what, Step) else torch.float32,
            )
            memory = (
                f"{self.pointers.get(buffer)} + {self.index(substitute(index, {symbol: start}))}"
            )
            self.line(f"{computed_as(dtype)} {row}[{self.room(size)}];")
            self.rows[what] = f"{row}[{symbol}{f' - {first}' if stop else ''}]"
            if dtype in HALVES and what in self.used:
                rounding[what] = f"round_row<{STORED[dtype]}>({row}, {count});"
            if not isinstance(what, Step):
                self.line(f"copy_row({row}, {memory}, {count});")
            elif buffer in self.pointers:
                stores.append(f"copy_row({memory}, {row}, {count});")
        yield rounding
        for text in stores:
            self.line(text)
        self.rows.clear()

    @contextlib.contextmanager
    def blocks_of(self, loop: Loop, size: int) -> Iterator[tuple[str, str]]:
        """A loop over blocks of another, around what will be the loop inside one; gives that one's bounds."""
        if loop.size <= size:
            yield "0", ""
            return
        first, end, n = self.unique("block"), self.unique("end"), self.size(loop.size)
        with self.block(f"for (int64_t {first} = 0; {first} < {n}; {first} += {size}) {{", "}"):
            text = f"{first} + {size}"
            if loop.size % size:
                self.line(f"const int64_t {end} = {text} < {n} ? {text} : {n};")
            yield first, end if loop.size % size else text

    @contextlib.contextmanager
    def block_of_lanes(self, loop: Loop) -> Iterator[None]:
        """The shape 'lanes': a loop over blocks of neighbouring rows."""
        n, size = self.size(loop.size), self.lanes
        with self.block(f"for (int64_t first = 0; first < {n}; first += {size}) {{", "}"):
            if self.ragged:
                self.line(f"const int64_t lanes = {n} - first < {size} ? {n} - first : {size};")
            yield

    @contextlib.contextmanager
    def over_lanes(self, simd: bool = True) -> Iterator[None]:
        """The shape 'lanes': the loop over the rows of a block. In other shapes, nothing."""
        if not self.lane:
            yield
            return
        self.pragma(simd=simd)
        with self.block(
            f"for (int64_t lane = 0; lane < {'lanes' if self.ragged else self.lanes}; lane++) {{",
            "}",
        ):
            self.line(f"const int64_t {self.kernel.rows[-1].symbol} = first + lane;")
            yield


def clauses_of(totals: Mapping[Step, Accumulator]) -> list[str]:
    return [
        f"reduction({how}: {name})"
        for total in totals.values()
        for _, name, _, how in total.variables()
    ]
