"""A fused kernel as C++: loops, SIMD, threads.

In:  a `FusedKernel` and the buffers it reads.
Out: one function `extern "C" void name(void **buffers)`; with `prelude.h` before it, it needs no other
     header. The instruction set is a flag of the compiler; of the machine the text knows only how large its last cache is.

Three shapes of kernel, chosen by `plan.shape_of`:

    rows      each thread takes rows; the innermost loop is vectorised                             x + y, softmax(x, -1)
    lanes     each SIMD lane takes a row, because neighbouring rows are neighbours in memory       x.sum(0)
    columns   too few rows for the threads: they share the columns                                 x.sum()

`codegen.plan` decides (what is gathered how, in blocks, by whom); here it is only printed.
In PyTorch: `torch/_inductor/codegen/cpp.py`, `CppKernel`, `CppVecKernel` (explicit vectors, `at::vec`), `LoopNest`.
"""

import contextlib
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import sympy
import torch

from course_lib.codegen.accumulators import Accumulator, clauses_of
from course_lib.codegen.cpp_ops import HALVES, RESERVED, STORED, CppOps, computed_as
from course_lib.codegen.loops import Phase, as_columns, column_number, iterations, phases, reduction
from course_lib.codegen.plan import PassPlan, Planner, Staged
from course_lib.codegen.printer import KernelSource, Line, label
from course_lib.lowering.indexing import Linear, contiguous, power_of_two
from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import add, linear_index, substitute
from course_lib.scheduling.expressions import Expr, steps_used
from course_lib.scheduling.kernel import FusedKernel, Loop, Step


def cpp_source(
    kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None
) -> KernelSource:
    """Print one kernel. `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return CppKernel(kernel, buffers, name or kernel.name).print()


@functools.cache
def prelude() -> str:
    """What stands before the kernels of a file."""
    return Path(__file__).with_name("prelude.h").read_text()


class CppKernel(CppOps):
    """Walks the phases of one kernel and writes the loops around them."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str) -> None:
        super().__init__(as_columns(kernel), buffers, name, RESERVED)
        self.plan = Planner(self.kernel, self.trees, self.buffers, self.used)
        self.phases = phases(self.kernel, self.trees, keep=not self.plan.has_lanes)
        self.plan.phases = self.phases

        # Where values wait: on the stack from one pass to the next, and around a vectorised loop
        self.scratch: dict[Step, str] = {}
        self.rows = {}
        # In the shape 'lanes', what lives longer than one loop over the lanes is an array.
        self.lane = "[lane]" if self.plan.has_lanes else ""

    def print(self) -> KernelSource:
        """The whole function."""
        # Behind the buffers: a flag for indices out of range, and the sizes of this call
        flag = f"buffers[{len(self.passed)}]"
        is_checked = bool(self.checks)

        with self.block(f'extern "C" void {self.name}(void** buffers) {{', "}"):
            self.print_pointers()
            if is_checked:
                self.line("int problem = 0;")
            if any(size_of_lookup(node) == 0 for node in self.checks):
                self.line("problem = 1;  // an index into nothing is always out of range")
            else:
                self.print_loops()
            if is_checked:
                self.line(f"if (problem) *(int64_t*){flag} = problem;")

        # Only now is it known which sizes are arguments: they come after the pointers.
        sizes = f"((const int64_t*)buffers[{len(self.passed) + is_checked}])"
        given = []
        for n, name in enumerate(self.sizes.values()):
            given.append(Line(1, f"const int64_t {name} = {sizes}[{n}];"))
        behind_pointers = 1 + len(self.touched)
        self.lines[behind_pointers:behind_pointers] = given

        source, line_of = self.layout("  ")
        return KernelSource(
            self.name, "cpp", source, self.passed, line_of, is_checked, tuple(self.sizes)
        )

    def print_pointers(self) -> None:
        """One typed pointer for each buffer; a buffer that is written in place of another shares its memory."""
        for name in self.touched:
            old = self.in_place.get(name, name)
            is_shared = old != name or name in self.in_place.values()
            is_constant = not is_shared and name not in self.stored

            ctype = STORED[self.buffers[name].dtype]
            pointer = f"const {ctype}*" if is_constant else f"{ctype}*"
            restrict = "" if is_shared else " __restrict"
            note = f"  // in place of {old}" if old != name else ""

            self.pointers[name] = self.unique(name)
            address = f"({pointer})buffers[{self.passed.index(old)}]"
            self.line(f"{pointer}{restrict} {self.pointers[name]} = {address};{note}")

    def print_loops(self) -> None:
        """The loops over rows, and inside them the phases of a row."""
        rows = self.kernel.rows
        columns = iterations(self.kernel.columns)

        # Sums over rows gather on the way, one for each column.
        for step in self.across:
            self.scratch[step] = self.unique(label(step))
            self.line(f"double {self.scratch[step]}[{self.room(columns)}] = {{}};", step=step)

        with contextlib.ExitStack() as blocks:
            if rows and self.plan.parallel and self.plan.shape != "columns":
                clauses = []
                for step in self.across:
                    clauses.append(f"reduction(+: {self.scratch[step]}[:{self.size(columns)}])")
                self.pragma(threads=True, collapse=len(rows), clauses=clauses)

            for loop in rows:
                is_over_lanes = self.plan.has_lanes and loop is rows[-1]
                around = self.block_of_lanes(loop) if is_over_lanes else self.loop(loop)
                blocks.enter_context(around)

            for phase in self.phases:
                if phase.columns:
                    self.print_pass(phase)
                self.print_row_steps(phase)

        if self.across:
            self.print_sums_over_rows()

    def print_sums_over_rows(self) -> None:
        """After the last row: what was gathered across rows goes to memory."""
        with contextlib.ExitStack() as blocks:
            for loop in self.kernel.columns:
                blocks.enter_context(self.loop(loop))
            for step in self.across:
                self.line(f"{self.element(step)} = {self.scratch_element(step)};", step=step)

    # --- one pass over the columns

    def print_pass(self, phase: Phase) -> None:
        """Accumulators, the loops over the columns, and in them every step of the phase."""
        columns = self.kernel.columns
        self.declare_kept_rows(phase)
        plan = self.plan.plan_pass(phase)

        totals, parts = self.accumulators(plan)
        for step, total in totals.items():
            self.declare_accumulator(step, total)

        # Threads share the outermost loop, which may be the vectorised one.
        is_one_loop = len(columns) == 1 and not plan.block
        with contextlib.ExitStack() as blocks:
            if plan.threads and not is_one_loop:
                self.pragma(threads=True, clauses=clauses_of([*totals.values()]))
            for loop in columns[:-1]:
                blocks.enter_context(self.loop(loop))

            first, stop = "0", ""
            if plan.block:
                first, stop = blocks.enter_context(self.blocks_of(columns[-1], plan.block))
            for step in plan.in_blocks:
                self.declare_accumulator(step, parts[step])
            if stop:
                self.print_fetch(plan, first)

            rounding = blocks.enter_context(self.rows_around(plan, columns[-1], first, stop))
            for steps in self.steps_of_loops(phase, plan):
                mine = [part for step, part in parts.items() if step in steps]
                self.pragma(
                    threads=plan.threads and is_one_loop,
                    simd=plan.simd and not self.plan.has_lanes,
                    clauses=clauses_of(mine),
                )
                with self.loop(columns[-1], first, stop), self.over_lanes(plan.simd):
                    self.print_columns(phase, steps, parts)
                if plan.staging.apart:
                    self.print_rounding(steps, rounding)

            if plan.in_blocks:
                self.add_up_blocks(plan, totals, parts)

        for step, total in totals.items():
            self.finish(step, total)

    def add_up_blocks(
        self,
        plan: PassPlan,
        totals: Mapping[Step, Accumulator],
        parts: Mapping[Step, Accumulator],
    ) -> None:
        """The sums of a block go into the totals."""
        with self.over_lanes():
            for step in plan.in_blocks:
                part = f"{parts[step].name}{self.lane}"
                self.line(*totals[step].take(part, self.lane), step=step)

    def declare_kept_rows(self, phase: Phase) -> None:
        """Rows on the stack for values that a later pass needs."""
        room = self.room(iterations(self.kernel.columns))
        for step in phase.columns:
            if step in phase.kept:
                self.scratch[step] = self.unique(f"{label(step)}_row")
                self.line(f"{computed_as(step.buffer.dtype)} {self.scratch[step]}[{room}];")

    def accumulators(
        self, plan: PassPlan
    ) -> tuple[dict[Step, Accumulator], dict[Step, Accumulator]]:
        """For each reduction where its total is gathered, and where a block's part is: the same, but for long sums."""
        totals: dict[Step, Accumulator] = {}
        parts: dict[Step, Accumulator] = {}

        for step, gathering in plan.gathered.items():
            kind = reduction(step).combines
            at = self.index(column_number(step)) if kind.gives_place else ""
            wanted = label(step)
            if kind.name not in wanted:
                wanted = f"{wanted}_{kind.name}"
            name = self.unique(wanted)

            last = gathering.last_of_equals
            part = f"{name}_part" if gathering.in_blocks else name
            totals[step] = Accumulator(name, gathering.kind, gathering.total_dtype, at, last)
            parts[step] = Accumulator(part, gathering.kind, gathering.dtype, at, last)

        return totals, parts

    def steps_of_loops(self, phase: Phase, plan: PassPlan) -> list[list[Step]]:
        """Which steps each vectorised loop has: one loop has all, or each step has its own."""
        if plan.staging.apart:
            return [[step] for step in phase.columns]
        return [list(phase.columns)]

    def print_rounding(self, steps: list[Step], rounding: Mapping[Staged, str]) -> None:
        """After a loop of its own: a row of values becomes float16."""
        for step in steps:
            if step in rounding:
                self.line(rounding[step], step=step)

    def print_fetch(self, plan: PassPlan, first: str) -> None:
        """With every block: the same block of the next row, which the processor would not fetch by itself."""
        rows, columns = self.kernel.rows, self.kernel.columns
        for buffer, index in plan.fetched:
            below = Linear.of(index, {rows[-1].symbol}).coefficient(rows[-1].symbol)
            here = substitute(index, {columns[0].symbol: sympy.Symbol(first)})
            there = self.index(add([here, below]))
            self.line(f"fetch_row({self.pointers[buffer]} + {there}, {plan.block});")

    def print_columns(
        self, phase: Phase, steps: list[Step], parts: Mapping[Step, Accumulator]
    ) -> None:
        """The body: the values of these steps, where they go, and what the reductions take in."""
        # Steps with a loop of their own have left their values in rows.
        for step, row in self.rows.items():
            if isinstance(step, Step) and step in phase.columns and step not in steps:
                self.values[step] = row

        computed = [step for step in steps if phase.columns[step] == "compute"]
        needed = {used for step in computed for used in steps_used(self.trees[step])}
        self.count_uses(self.trees[step] for step in computed)

        for step, source in phase.columns.items():
            with self.on_behalf_of(step):
                if source == "scratch":
                    self.take_from_scratch(step, is_stored=step in phase.stored and step in steps)
                elif step not in steps:
                    continue
                elif step.level == "across":
                    value = self.text(self.trees[step], whole=True)
                    self.line(f"{self.scratch_element(step)} += {value};")
                elif step.is_reduction:
                    self.take(step, parts[step])
                else:
                    self.print_step(step, self.places_of(step, phase), named=step in needed)

        self.print_late()

    def take_from_scratch(self, step: Step, is_stored: bool) -> None:
        """A value that an earlier pass computed."""
        self.values[step] = self.scratch_element(step)
        if is_stored:
            self.store(f"{self.element(step)} = {self.values[step]};")

    def places_of(self, step: Step, phase: Phase) -> list[str]:
        """Where the value of a step in the columns is wanted."""
        places = []
        if step in phase.kept:
            places.append(self.scratch_element(step))
        if step in phase.stored or step in self.rows:
            places.append(self.element(step))
        return places

    def print_step(self, step: Step, places: list[str], named: bool) -> None:
        """Compute the value of a step and put it where it is wanted: a name, a scratch row, memory."""
        tree = self.trees[step]
        is_known = self.values.get(tree) is not None

        # Wanted in one place only: no name is needed.
        if len(places) == 1 and not named and not self.kernel.in_place and not is_known:
            if self.goes_to_memory(step, places[0]) and rounds_a_float(tree):
                tree = tree.args[0]  # the store itself rounds
            self.line(f"{places[0]} = {self.text(tree, whole=True)};")
            return

        name = self.bind(step, self.text(tree, whole=True), label(step))
        self.values.setdefault(tree, name)
        for place in places:
            self.store(f"{place} = {name};")

    def goes_to_memory(self, step: Step, place: str) -> bool:
        """True if `place` holds the buffer's own dtype: memory, or a row that is copied there."""
        if step in self.rows:
            return True
        return step.buffer.name in self.pointers and place == self.element(step)

    # --- reductions

    def declare_accumulator(self, step: Step, accumulator: Accumulator) -> None:
        """Its variables; in the shape 'lanes' arrays, one element for each row."""
        for variable in accumulator.variables():
            ctype, name, first = variable.ctype, variable.name, variable.first
            if not self.plan.has_lanes:
                self.line(f"{ctype} {name} = {first};", step=step)
            elif first == "0":
                self.line(f"{ctype} {name}[{self.plan.lanes}] = {{}};", step=step)
            else:
                self.line(f"{ctype} {name}[{self.plan.lanes}];", step=step)
                self.line(f"for ({ctype}& each : {name}) each = {first};", step=step)

    def take(self, step: Step, part: Accumulator) -> None:
        """Take in the value of this column. A value that is compared and kept is needed twice: it gets a name."""
        tree = self.trees[step]
        value = self.text(tree, whole=True)
        if part.kind.finds_best and not value.isidentifier():
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

    # --- once a row

    def print_row_steps(self, phase: Phase) -> None:
        """Row-level values (a mean, its square root), then the stores of finished reductions."""
        computed = [step for step in phase.rows if step not in self.values]

        # In the shape 'lanes' a value that later passes need is an array.
        arrays: dict[Step, str] = {}
        for step in computed:
            if self.lane and step in self.used:
                arrays[step] = self.unique(label(step))
        for step, name in arrays.items():
            ctype = computed_as(step.buffer.dtype)
            self.line(f"{ctype} {name}[{self.plan.lanes}];", step=step)

        self.count_uses(self.trees[step] for step in computed)
        if not phase.rows:
            self.print_late()
            return

        around = self.values
        with self.over_lanes():
            for step in computed:
                with self.on_behalf_of(step):
                    places = [self.element(step)] if step in phase.stored else []
                    if step in arrays:
                        places.append(f"{arrays[step]}[lane]")
                    self.print_step(step, places, named=step in self.used and not self.lane)
                    if step in arrays:
                        around[step] = f"{arrays[step]}[lane]"

            for step in phase.rows:
                if step not in computed:
                    with self.on_behalf_of(step):
                        self.store(f"{self.element(step)} = {self.values[step]};")
            self.print_late()

    # --- places

    def element(self, step: Step) -> str:
        """Where the result of a step goes: its buffer, or a row on the stack that is copied there."""
        if step in self.rows:
            return self.rows[step]
        return f"{self.pointers[step.buffer.name]}[{self.index(step.store_index)}]"

    def scratch_element(self, step: Step) -> str:
        """Where a value of this column waits on the stack."""
        columns = self.kernel.columns
        strides = contiguous([loop.size for loop in columns])
        place = linear_index([loop.symbol for loop in columns], strides)
        return f"{self.scratch[step]}[{self.index(place)}]"

    def room(self, count: int) -> int:
        """How long an array on the stack is: for many sizes, the next power of two."""
        return count if self.kernel.fixed is None else power_of_two(count)

    # --- loops

    def pragma(
        self,
        threads: bool = False,
        simd: bool = False,
        collapse: int = 1,
        clauses: Iterable[str] = (),
    ) -> None:
        """The OpenMP line before a loop, if there is anything to say."""
        if not (threads or simd):
            return

        words = ["#pragma omp"]
        if threads:
            words.append("parallel for")
        if simd:
            words.append("simd")
        if collapse > 1:
            words.append(f"collapse({collapse})")
        words += clauses
        if self.checks:
            words.append("reduction(|: problem)")
        self.line(" ".join(words))

    def loop(
        self, loop: Loop, start: str = "0", stop: str = ""
    ) -> contextlib.AbstractContextManager[None]:
        """A loop from `start` to `stop` (or its end)."""
        s, end = loop.symbol, stop or self.size(loop.size)
        return self.block(f"for (int64_t {s} = {start}; {s} < {end}; {s}++) {{", "}")

    @contextlib.contextmanager
    def blocks_of(self, loop: Loop, size: int) -> Iterator[tuple[str, str]]:
        """A loop over blocks of another, around what will be the loop inside one; gives that one's bounds."""
        if loop.size <= size:
            yield "0", ""
            return

        first, end, n = self.unique("block"), self.unique("end"), self.size(loop.size)
        stop = f"{first} + {size}"
        with self.block(f"for (int64_t {first} = 0; {first} < {n}; {first} += {size}) {{", "}"):
            is_ragged = loop.size % size != 0
            if is_ragged:
                self.line(f"const int64_t {end} = {stop} < {n} ? {stop} : {n};")
            yield first, end if is_ragged else stop

    @contextlib.contextmanager
    def rows_around(
        self, plan: PassPlan, loop: Loop, first: str, stop: str
    ) -> Iterator[dict[Staged, str]]:
        """Rows are filled before the vectorised loop and stored after it. Gives the lines that round those of 16 bits."""
        stores: list[str] = []
        rounding: dict[Staged, str] = {}
        start = sympy.Symbol(first) if stop else sympy.Integer(0)
        places = plan.staging.places
        count = self.count_in_block(loop, plan.block, first, stop) if places else ""

        for what, (buffer, index) in places.items():
            dtype = what.buffer.dtype if isinstance(what, Step) else torch.float32
            row = self.unique(f"{buffer}_row")
            there = self.index(substitute(index, {loop.symbol: start}))
            memory = f"{self.pointers.get(buffer)} + {there}"

            self.line(f"{computed_as(dtype)} {row}[{self.room(min(loop.size, plan.block))}];")
            self.rows[what] = f"{row}[{loop.symbol} - {first}]" if stop else f"{row}[{loop.symbol}]"
            if dtype in HALVES and what in self.used:
                rounding[what] = f"round_row<{STORED[dtype]}>({row}, {count});"

            # A load comes before the loop, a result goes after it; what only other steps need stays on the stack.
            if not isinstance(what, Step):
                self.line(f"copy_row({row}, {memory}, {count});")
            elif buffer in self.pointers:
                stores.append(f"copy_row({memory}, {row}, {count});")

        yield rounding

        self.line(*stores)
        self.rows.clear()

    def count_in_block(self, loop: Loop, size: int, first: str, stop: str) -> str:
        """How many iterations of a loop lie in one block of it, of this size."""
        if not stop:
            return self.size(loop.size)
        if loop.size % size:
            return f"{stop} - {first}"
        return str(size)

    @contextlib.contextmanager
    def block_of_lanes(self, loop: Loop) -> Iterator[None]:
        """The shape 'lanes': a loop over blocks of neighbouring rows."""
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


def size_of_lookup(node: Expr) -> int | sympy.Expr:
    """How many elements there are to look up in, of an `indirect`."""
    size, _ = node.detail
    return size


def rounds_a_float(tree: Expr) -> bool:
    """True for a float32 that is converted to a half."""
    if tree.op != "to_dtype" or tree.dtype not in HALVES:
        return False
    return tree.args[0].dtype == torch.float32
