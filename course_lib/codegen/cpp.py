"""A fused kernel as C++: loops, SIMD, threads.

In:  a `FusedKernel` and the buffers it reads.
Out: one function `extern "C" void name(void **buffers)`; with `prelude.h` before it, it needs no
     other header. The instruction set is a flag of the compiler; of the machine the text knows only
     how large its last cache is.

Three shapes of kernel, chosen by `plan.shape_of`:

    rows      each thread takes rows; the innermost loop is vectorised: `x + y`, `softmax(x, -1)`
    lanes     each SIMD lane takes a row, because neighbouring rows are neighbours in memory:
              `x.sum(0)`
    columns   too few rows for the threads: they share the columns: `x.sum()`

`codegen.plan` decides (what is gathered how, in blocks, by whom); here it is only printed.
In PyTorch: `torch/_inductor/codegen/cpp.py`, `CppKernel`, `CppVecKernel` (explicit vectors,
`at::vec`), `LoopNest`.
"""

import contextlib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sympy
import torch

from course_lib.codegen.accumulators import Accumulator, clauses_of
from course_lib.codegen.cpp_loops import WHOLE, Block, CppLoops
from course_lib.codegen.cpp_ops import HALVES, RESERVED, STORED, computed_as
from course_lib.codegen.loops import Phase, as_columns, column_number, iterations, phases, reduction
from course_lib.codegen.plan import PassPlan, Planner, Staged
from course_lib.codegen.printer import KernelSource, Line, label
from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import add, linear_index, substitute
from course_lib.scheduling.expressions import Expr, steps_used
from course_lib.scheduling.kernel import FusedKernel, Step


@dataclass(frozen=True)
class Sums:
    """Where each reduction of a pass is gathered: its total, and the part of one block (the same
    where there are no blocks)."""

    totals: dict[Step, Accumulator]
    parts: dict[Step, Accumulator]


def cpp_source(
    kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None
) -> KernelSource:
    """Print one kernel.

    `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return CppKernel(kernel, buffers, name or kernel.name).print()


@functools.cache
def prelude() -> str:
    """What stands before the kernels of a file."""
    return Path(__file__).with_name("prelude.h").read_text()


class CppKernel(CppLoops):
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
        # Behind the buffers: a flag for indices out of range (if any are checked), and the sizes of
        # this call
        is_checked = bool(self.checks)
        flag = f"buffers[{len(self.passed)}]"
        place_of_sizes = len(self.passed) + is_checked

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
        sizes = f"((const int64_t*)buffers[{place_of_sizes}])"
        lines_of_sizes = []
        for names in (self.sizes.values(), self.size_symbols.values()):
            for n, name in enumerate(names):
                lines_of_sizes.append(Line(1, f"const int64_t {name} = {sizes}[{n}];"))

        line_behind_pointers = 1 + len(self.touched)
        self.lines[line_behind_pointers:line_behind_pointers] = lines_of_sizes

        source, line_of = self.layout("  ")
        return KernelSource(
            self.name,
            "cpp",
            source,
            self.passed,
            line_of,
            is_checked,
            tuple(self.sizes),
            tuple(self.size_symbols),
        )

    def print_pointers(self) -> None:
        """One typed pointer for each buffer; a buffer that is written in place of another shares
        its memory."""
        for name in self.touched:
            old = self.in_place.get(name, name)
            is_shared = old != name or name in self.in_place.values()
            is_constant = not is_shared and name not in self.stored

            ctype = STORED[self.buffers[name].dtype]
            pointer = f"const {ctype}*" if is_constant else f"{ctype}*"
            declared = pointer if is_shared else f"{pointer} __restrict"
            address = f"({pointer})buffers[{self.passed.index(old)}]"

            self.pointers[name] = self.unique(name)
            note = f"  // in place of {old}" if old != name else ""
            self.line(f"{declared} {self.pointers[name]} = {address};{note}")

    def print_loops(self) -> None:
        """The loops over rows, and inside them the phases of a row."""
        rows = self.kernel.rows
        columns = iterations(self.kernel.columns)

        # Sums over rows gather on the way, one for each column.
        for step in self.sums_down:
            self.scratch[step] = self.unique(label(step))
            self.line(f"double {self.scratch[step]}[{self.room(columns)}] = {{}};", step=step)

        with contextlib.ExitStack() as blocks:
            if rows and self.plan.parallel and self.plan.shape != "columns":
                clauses = []
                for step in self.sums_down:
                    clauses.append(f"reduction(+: {self.scratch[step]}[:{self.size(columns)}])")
                self.pragma(threads=True, collapse=len(rows), clauses=clauses)

            for loop in rows:
                if self.plan.has_lanes and loop is rows[-1]:
                    blocks.enter_context(self.block_of_lanes(loop))
                else:
                    blocks.enter_context(self.loop(loop))

            for phase in self.phases:
                if phase.columns:
                    self.print_pass(phase)
                self.print_row_steps(phase)

        if self.sums_down:
            self.print_sums_over_rows()

    def print_sums_over_rows(self) -> None:
        """After the last row: what was gathered across rows goes to memory."""
        with contextlib.ExitStack() as blocks:
            for loop in self.kernel.columns:
                blocks.enter_context(self.loop(loop))
            for step in self.sums_down:
                self.line(f"{self.element(step)} = {self.scratch_element(step)};", step=step)

    # --- one pass over the columns

    def print_pass(self, phase: Phase) -> None:
        """Accumulators, the loops over the columns, and in them every step of the phase."""
        columns = self.kernel.columns
        self.declare_kept_rows(phase)
        plan = self.plan.plan_pass(phase)

        sums = self.accumulators(plan)
        for step, total in sums.totals.items():
            self.declare_accumulator(step, total)

        with contextlib.ExitStack() as blocks:
            if plan.threads and not self.is_one_loop(plan):
                self.pragma(threads=True, clauses=clauses_of([*sums.totals.values()]))
            for loop in columns[:-1]:
                blocks.enter_context(self.loop(loop))

            block = WHOLE
            if plan.block:
                block = blocks.enter_context(self.blocks_of(columns[-1], plan.block))
            self.print_block(phase, plan, block, sums)

        for step, total in sums.totals.items():
            self.finish(step, total)

    def is_one_loop(self, plan: PassPlan) -> bool:
        """True if the outermost loop over the columns, which threads share, is also the vectorised
        one."""
        return len(self.kernel.columns) == 1 and not plan.block

    def print_block(self, phase: Phase, plan: PassPlan, block: Block, sums: Sums) -> None:
        """One block of the innermost loop: its own sums, rows on the stack around it, the
        vectorised loops.

        `block` may be `WHOLE`: then there is one, from the first column to the last.
        """
        innermost = self.kernel.columns[-1]
        for step in plan.in_blocks:
            self.declare_accumulator(step, sums.parts[step])
        if not block.is_whole:
            self.print_fetch(plan, block.first)

        with self.rows_around(plan, innermost, block) as rounding:
            for steps in self.steps_of_loops(phase, plan):
                sums_of_loop = [sums.parts[step] for step in sums.parts if step in steps]
                self.pragma(
                    threads=plan.threads and self.is_one_loop(plan),
                    simd=plan.simd and not self.plan.has_lanes,
                    simd_from=plan.simd_from,
                    clauses=clauses_of(sums_of_loop),
                )
                with self.loop(innermost, block.first, block.stop), self.over_lanes(plan.simd):
                    self.print_columns(phase, steps, sums.parts)
                if plan.staging.apart:
                    self.print_rounding(steps, rounding)

            if plan.in_blocks:
                self.add_up_blocks(plan, sums)

    def add_up_blocks(self, plan: PassPlan, sums: Sums) -> None:
        """The sums of a block go into the totals."""
        with self.over_lanes():
            for step in plan.in_blocks:
                part = f"{sums.parts[step].name}{self.lane}"
                self.line(*sums.totals[step].take(part, self.lane), step=step)

    def declare_kept_rows(self, phase: Phase) -> None:
        """Rows on the stack for values that a later pass needs."""
        room = self.room(iterations(self.kernel.columns))
        for step in phase.columns:
            if step in phase.kept:
                self.scratch[step] = self.unique(f"{label(step)}_row")
                self.line(f"{computed_as(step.buffer.dtype)} {self.scratch[step]}[{room}];")

    def accumulators(self, plan: PassPlan) -> Sums:
        """Variables for each reduction of a pass."""
        sums = Sums({}, {})
        for step, gathering in plan.gathered.items():
            kind = reduction(step).combines
            at = self.index(column_number(step)) if kind.gives_place else ""
            wanted = label(step)
            if kind.name not in wanted:
                wanted = f"{wanted}_{kind.name}"
            name = self.unique(wanted)

            last = gathering.last_of_equals
            part = f"{name}_part" if gathering.in_blocks else name
            sums.totals[step] = Accumulator(name, gathering.kind, gathering.total_dtype, at, last)
            sums.parts[step] = Accumulator(part, gathering.kind, gathering.dtype, at, last)

        return sums

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
        """With every block: the same block of the next row, which the processor would not fetch by
        itself."""
        rows, columns = self.kernel.rows, self.kernel.columns
        for buffer, index in plan.fetched:
            row = rows[-1].symbol
            to_next_row = Linear.of(index, {row}).coefficient(row)
            here = substitute(index, {columns[0].symbol: sympy.Symbol(first)})
            place_in_next_row = self.index(add([here, to_next_row]))
            self.line(f"fetch_row({self.pointers[buffer]} + {place_in_next_row}, {plan.block});")

    def print_columns(
        self, phase: Phase, steps: list[Step], parts: Mapping[Step, Accumulator]
    ) -> None:
        """The body of a loop: the values of its `steps`, where they go, and what the reductions
        take in."""
        self.take_from_rows(phase, steps)
        computed = [step for step in steps if phase.columns[step] == "compute"]
        needed = {used_step for step in computed for used_step in steps_used(self.trees[step])}
        self.count_uses(self.trees[step] for step in computed)

        for step, source in phase.columns.items():
            is_mine = step in steps
            with self.on_behalf_of(step):
                if source == "scratch":
                    self.take_from_scratch(step, is_stored=is_mine and step in phase.stored)
                elif is_mine and step.is_reduction:
                    self.take_in(step, parts)
                elif is_mine:
                    self.print_step(step, self.places_of(step, phase), named=step in needed)

        self.print_late()

    def take_from_rows(self, phase: Phase, steps: list[Step]) -> None:
        """Other steps of the pass, which have a loop of their own, have left their values in rows
        on the stack."""
        for step, row in self.rows.items():
            if isinstance(step, Step) and step in phase.columns and step not in steps:
                self.values[step] = row

    def take_in(self, step: Step, parts: Mapping[Step, Accumulator]) -> None:
        """A reduction takes in the value of this column."""
        if step.level == "across":
            self.add_to_sum_over_rows(step)
        else:
            self.take(step, parts[step])

    def add_to_sum_over_rows(self, step: Step) -> None:
        """The value of this row goes into the sum of its column."""
        value = self.text(self.trees[step], whole=True)
        self.line(f"{self.scratch_element(step)} += {value};")

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
        """Compute the value of a step and put it where it is wanted: a name, a scratch row,
        memory."""
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
        """Print the variables of an accumulator.

        In the shape 'lanes' they are arrays, with an element for each row."""
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
        """Take in the value of this column.

        A value that is compared and kept is needed twice: it gets a name."""
        tree = self.trees[step]
        value = self.text(tree, whole=True)
        if part.kind.finds_best and not value.isidentifier():
            value = self.bind(tree, value, "value")
        self.line(*part.take(value, self.lane))

    def finish(self, step: Step, total: Accumulator) -> None:
        """From here on the step's name stands for the result."""
        # A maximum that has met a NaN is NaN. A single variable is overwritten with it, so that it
        # is the result; a lane's element stays, and `result` is an expression that asks the flag.
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
        finished = [step for step in phase.rows if step in self.values]
        arrays = self.declare_lane_arrays(computed)
        self.count_uses(self.trees[step] for step in computed)
        if not phase.rows:
            self.print_late()
            return

        # What is named inside the loop over the lanes is not known after it; the arrays are.
        after_the_lanes = self.values
        with self.over_lanes():
            for step in computed:
                with self.on_behalf_of(step):
                    self.print_row_value(step, phase, arrays)
                if step in arrays:
                    after_the_lanes[step] = arrays[step]

            for step in finished:
                with self.on_behalf_of(step):
                    self.store(f"{self.element(step)} = {self.values[step]};")
            self.print_late()

    def declare_lane_arrays(self, steps: list[Step]) -> dict[Step, str]:
        """In the shape 'lanes', an array for each row-level value that a later pass needs; gives
        this lane's element of it."""
        if not self.plan.has_lanes:
            return {}

        # All names first: the lines that declare them hold no other.
        names = {step: self.unique(label(step)) for step in steps if step in self.used}
        elements: dict[Step, str] = {}
        for step, name in names.items():
            ctype = computed_as(step.buffer.dtype)
            self.line(f"{ctype} {name}[{self.plan.lanes}];", step=step)
            elements[step] = f"{name}[lane]"
        return elements

    def print_row_value(self, step: Step, phase: Phase, arrays: Mapping[Step, str]) -> None:
        """Compute a row-level value and put it where it is wanted: a name, memory, an array of the
        lanes."""
        places = []
        if step in phase.stored:
            places.append(self.element(step))
        if step in arrays:
            places.append(arrays[step])

        needs_name = step in self.used and not self.plan.has_lanes
        self.print_step(step, places, needs_name)

    # --- places

    def element(self, step: Step) -> str:
        """Where the result of a step goes: its buffer, or a row on the stack that is copied
        there."""
        if step in self.rows:
            return self.rows[step]
        return f"{self.pointers[step.buffer.name]}[{self.index(step.store_index)}]"

    def scratch_element(self, step: Step) -> str:
        """Where a value of this column waits on the stack."""
        columns = self.kernel.columns
        strides = contiguous([loop.size for loop in columns])
        place = linear_index([loop.symbol for loop in columns], strides)
        return f"{self.scratch[step]}[{self.index(place)}]"


def size_of_lookup(node: Expr) -> int | sympy.Expr:
    """How many elements there are to look up in, of an `indirect`."""
    size, _ = node.detail
    return size


def rounds_a_float(tree: Expr) -> bool:
    """True for a float32 that is converted to a half."""
    if tree.op != "to_dtype" or tree.dtype not in HALVES:
        return False
    return tree.args[0].dtype == torch.float32
