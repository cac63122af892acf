"""What a C++ kernel will look like, decided before a line of it is printed.

In:  a `FusedKernel` and its steps as trees.
Out: a `KernelPlan` (which loop gets the SIMD lanes, and which the threads), and for each pass over
     the columns a `PassPlan` (what is gathered how, in blocks of how many columns, what lies on the
     stack, what is fetched ahead).

`codegen.cpp` prints what is decided here. The numbers below were measured:
docs/design/generated-code.md.
In PyTorch: `torch/_inductor/codegen/cpp.py`, `TilingSelect`, `CppKernelProxy`,
`decide_parallel_depth`.
"""

import contextlib
import functools
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import sympy
import torch

from course_lib.codegen.cpp_ops import computed_as
from course_lib.codegen.loops import Phase, iterations, reduction
from course_lib.lowering.indexing import Linear
from course_lib.lowering.ir import Buffer
from course_lib.lowering.reduction_kinds import KINDS, SUM, ReductionKind
from course_lib.scheduling.expressions import Expr, loads
from course_lib.scheduling.kernel import FusedKernel, Loop, Step
from course_lib.sizes import hint, is_symbolic, quotient, same, surely

# Starting the threads costs about 2 µs: below this many elements one thread is faster
PARALLEL_FROM = 16 * 1024
# With fewer rows than this some threads would have none: the threads share the columns instead
FEW_ROWS = 16
# Rows that go side by side in the shape 'lanes': four registers of AVX-512, eight of AVX2
LANES = 64
# Longer float sums go in blocks, whose sums are added up as double: the error stays that of a short
# sum
BLOCK = 4096
# So many lanes, or loops, share one sum of a block
SHARED_BY = 8
# Where the order of values matters (0.0 before -0.0), up to so many columns are compared one by one
FEW = 8
# So many columns are computed at a time where their values go to the next loop through an array on
# the stack
STRIP = 64
# Columns of a row that its passes read too far apart for what the processor itself fetches ahead
LONG = 2048
# Bytes that a kernel moves: from here on its results would leave the caches before anybody reads
# them
STREAM_FROM = 64 * 2**20
with contextlib.suppress(OSError, ValueError):
    # The size of the last cache, "32768K". A virtual machine may say 0.
    last_cache = 1024 * int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text()[:-2])
    STREAM_FROM = min(STREAM_FROM, last_cache or STREAM_FROM)

Shape = Literal["rows", "lanes", "columns"]


def shape_of(kernel: FusedKernel, trees: Mapping[Step, Expr]) -> Shape:
    """Which loop gets the SIMD lanes, and which the threads."""
    rows, columns = kernel.rows, kernel.columns
    reduced = {step.level for step in trees if step.is_reduction}
    read = []
    for step, tree in trees.items():
        if step.level != "row":
            read += [index for _, index in loads(tree)]

    # Rows side by side in memory, and columns not: a lane for each row
    rows_are_neighbours = bool(rows) and are_neighbours(read, rows[-1])
    only_reduces_columns = reduced == {"column"}
    if only_reduces_columns and rows_are_neighbours and not are_neighbours(read, columns[-1]):
        return "lanes"

    has_few_rows = surely(operator.lt, iterations(rows), FEW_ROWS)
    if has_few_rows and not surely(operator.lt, iterations(columns), PARALLEL_FROM):
        return "columns"
    return "rows"


def are_neighbours(indices: Collection[sympy.Expr], loop: Loop) -> bool:
    """True if the next iteration of `loop` reads the next element, by one of the indices."""
    steps = [Linear.of(index, {loop.symbol}).coefficient(loop.symbol) for index in indices]
    return any(same(step, 1) for step in steps)


class Load(NamedTuple):
    """An element of a buffer: what an `Expr` that loads has as its detail."""

    buffer: str
    index: sympy.Expr


Staged = Load | Step
"""What may lie in a row on the stack: a load, made before the loop, or a step's value, stored after
it."""


@dataclass(frozen=True)
class Gathering:
    """How a reduction over the columns is gathered."""

    kind: ReductionKind
    # The dtype of the values that are taken in, and that of the total
    dtype: torch.dtype
    total_dtype: torch.dtype
    last_of_equals: bool
    # True if each block has a sum of its own (float32), which the total (float64) takes in
    in_blocks: bool

    @property
    def has_nan(self) -> bool:
        return self.kind.gives_best and self.dtype.is_floating_point


@dataclass
class Staging:
    """What lies on the stack around the vectorised loop: float16, which converts eight at a time,
    and results past the caches."""

    places: dict[Staged, Load] = field(default_factory=dict)
    # True if each step has a loop of its own: where values are rounded to float16 on the way, whole
    # rows are rounded between these loops, and nobody waits for a long chain
    apart: bool = False


@dataclass
class PassPlan:
    """One pass over the columns."""

    # How each reduction of this pass is added up
    gathered: dict[Step, Gathering]
    # What lies on the stack
    staging: Staging
    # Columns in a block; 0 if they do not go in blocks
    block: int
    # Do threads share the columns?
    threads: bool
    # False where columns must come in their order
    simd: bool
    # Where the number of columns is symbolic: SIMD is used only if there are more columns than this
    simd_from: int
    # Loads of the next row, to be fetched early during the last pass over this one
    fetched: list[Load]

    @property
    def in_blocks(self) -> list[Step]:
        """The steps whose sum is kept separately for each block, and added up afterwards."""
        return [step for step, gathering in self.gathered.items() if gathering.in_blocks]


class Planner:
    """Decides about one kernel. `phases` must be set before passes are planned."""

    def __init__(
        self,
        kernel: FusedKernel,
        trees: Mapping[Step, Expr],
        buffers: Mapping[str, Buffer],
        used: Collection[Step],
    ) -> None:
        self.kernel, self.trees, self.buffers, self.used = kernel, trees, buffers, used
        self.shape = shape_of(kernel, trees)
        # Whether a symbolic size is large enough is not known now: then the kernel asks when it
        # runs (`CppLoops.pragma`).
        self.parallel = not surely(operator.lt, iterations(kernel.loops), PARALLEL_FROM)

        # In the shape 'lanes': rows side by side, and whether the last block has fewer
        self.lanes = 1
        self.is_ragged = False
        if self.shape == "lanes":
            neighbours = kernel.rows[-1].size
            self.lanes = LANES if is_symbolic(neighbours) else max(1, min(LANES, neighbours))
            self.is_ragged = quotient(neighbours, self.lanes) is None

        self.phases: list[Phase] = []

    @property
    def has_lanes(self) -> bool:
        return self.shape == "lanes"

    @functools.cached_property
    def moved(self) -> int:
        """Bytes that the kernel reads and stores."""
        names = self.kernel.reads | self.kernel.stores
        return sum(self.buffers[name].nbytes for name in names)

    def plan_pass(self, phase: Phase) -> PassPlan:
        """Decide about one pass over the columns."""
        gathered = {step: self.gathering(step) for step in phase.reductions}
        in_order = self.must_keep_order(gathered.values())
        simd_from = self.in_order_up_to(gathered.values())
        staging = self.staging(phase, self.kernel.columns[-1])
        block = self.block_for(gathered.values(), staging)

        return PassPlan(
            gathered=gathered,
            staging=staging,
            block=block,
            threads=self.parallel and self.shape == "columns" and not in_order,
            simd=not in_order,
            simd_from=simd_from,
            fetched=self.fetched(phase) if block else [],
        )

    def must_keep_order(self, gathered: Collection[Gathering]) -> bool:
        """True if columns must come one after the other: the first of equals is wanted, or few
        floats are compared."""
        # Lanes would mix up which zero was first, 0.0 or -0.0; in eager that is so for long rows
        # only.
        is_short = surely(operator.le, iterations(self.kernel.columns), FEW)
        compares_few_floats = is_short and any(gathering.has_nan for gathering in gathered)
        return compares_few_floats or any(gathering.kind.gives_place for gathering in gathered)

    def in_order_up_to(self, gathered: Collection[Gathering]) -> int:
        """For a symbolic number of columns: if there are at most so many, the kernel must compare
        them one by one. 0 if it never must."""
        columns = iterations(self.kernel.columns)
        may_be_few = is_symbolic(columns) and not surely(operator.gt, columns, FEW)
        return FEW if may_be_few and any(gathering.has_nan for gathering in gathered) else 0

    def block_for(self, gathered: Collection[Gathering], staging: Staging) -> int:
        """Columns that go together: what fits in a row on the stack, or in one exact sum; 0 if
        neither is needed."""
        if staging.places:
            return STRIP
        if any(gathering.in_blocks for gathering in gathered):
            return BLOCK // SHARED_BY if self.has_lanes else BLOCK
        return 0

    def gathering(self, step: Step) -> Gathering:
        """How a reduction is gathered: in its accumulator's dtype if it grows, else in that of the
        values."""
        node, dtype = reduction(step), self.trees[step].dtype
        kind = node.combines
        if dtype == torch.bool and kind.on_bools:
            kind = KINDS[kind.on_bools]
        if kind.grows:
            dtype = node.accumulate

        # A lane, and an inner loop of several, takes an eighth of the columns into one sum.
        columns = self.kernel.columns
        longest = iterations(columns)
        if self.has_lanes or len(columns) > 1:
            longest *= SHARED_BY
        is_long_sum = (
            kind is SUM
            and computed_as(dtype) == "float"
            and not surely(operator.le, longest, BLOCK)
        )

        total = torch.float64 if is_long_sum else dtype
        return Gathering(kind, dtype, total, node.last_of_equals, in_blocks=is_long_sum)

    def staging(self, phase: Phase, loop: Loop) -> Staging:
        """What lies on the stack around the vectorised `loop`."""
        steps = [step for step, source in phase.columns.items() if source == "compute"]
        nodes = [node for step in steps for node in self.trees[step].walk()]

        # A load that depends on a condition or on another value cannot be made for a whole row.
        is_conditional = any(node.op in ("masked", "indirect") for node in nodes)
        if self.has_lanes or is_conditional:
            return Staging()

        staged_loads: dict[Staged, Load] = {}
        for load in loads_of_halves(nodes):
            if self.walks_along(load.index, loop):
                staged_loads[load] = load
        for step in steps:
            if step in phase.stored and self.is_stored_by_rows(step, loop):
                staged_loads[step] = Load(step.buffer.name, step.store_index)

        passed_on = self.passed_on_apart(phase, steps, staged_loads)
        places: dict[Staged, Load] = {step: Load("", step.store_index) for step in passed_on}
        return Staging(places | staged_loads, apart=bool(passed_on))

    def passed_on_apart(
        self, phase: Phase, steps: list[Step], staged_loads: Mapping[Staged, Load]
    ) -> list[Step]:
        """The steps whose values other steps need, if each step is to have a loop of its own: these
        values then go through the stack from one loop to the next. Empty if all steps share a loop.

        Loops of their own are worth it where a value becomes float16 on its way to another step.
        They are possible if everything that the phase stores is staged on the stack, and no step
        reads what an earlier one has overwritten.
        """
        inner = [step for step in steps if not step.is_reduction and step.level != "across"]
        passed_on = [step for step in inner if step in self.used]
        stored = [step for step in inner if step in phase.stored]

        rounds = any(step.buffer.dtype == torch.float16 for step in passed_on)
        all_staged = all(step in staged_loads for step in stored)
        if staged_loads and rounds and all_staged and not self.overtakes(list(phase.columns)):
            return passed_on
        return []

    def is_stored_by_rows(self, step: Step, loop: Loop) -> bool:
        """True if a step's results are staged on the stack and go to memory a row at a time:
        float16, and float32 where the kernel moves so much that results leave the caches anyway."""
        past_caches = step.buffer.dtype == torch.float32 and self.moved >= STREAM_FROM
        if not past_caches and step.buffer.dtype != torch.float16:
            return False
        return self.walks_along(step.store_index, loop)

    def overtakes(self, steps: list[Step]) -> bool:
        """Does a step read what one before it writes in place of it?

        Then they cannot have a loop each."""
        for n, step in enumerate(steps):
            old = self.kernel.in_place.get(step.buffer.name)
            for later in steps[n + 1 :] if old else ():
                if any(read == old for read, _ in loads(self.trees[later])):
                    return True
        return False

    def walks_along(self, index: sympy.Expr, loop: Loop) -> bool:
        """True if neighbours along `loop` are neighbours in memory, and nothing in the index is
        looked up."""
        linear = Linear.of(index, {loop.symbol})
        if not same(linear.coefficient(loop.symbol), 1) or not linear.is_affine_in(loop.symbol):
            return False
        return index.free_symbols <= {each.symbol for each in self.kernel.loops}

    def fetched(self, phase: Phase) -> list[Load]:
        """Loads to fetch early during the last pass over a row: the first pass over the next row
        needs them.

        Empty where a row has one pass, or is short.
        """
        rows, columns = self.kernel.rows, self.kernel.columns
        # The first phase is what a row needs before its columns: no pass.
        passes = self.phases[1:]
        is_last_of_several = len(passes) > 1 and phase is passes[-1]
        if self.shape != "rows" or not rows or len(columns) > 1 or not is_last_of_several:
            return []
        if hint(columns[0].size) < LONG:
            return []

        # A dictionary for its order
        loads_to_fetch: dict[Load, None] = {}
        for step in passes[0].columns:
            for buffer, index in loads(self.trees[step]):
                moves_down = rows[-1].symbol in index.free_symbols
                if moves_down and self.walks_along(index, columns[0]):
                    loads_to_fetch[Load(buffer, index)] = None
        return list(loads_to_fetch)


def loads_of_halves(nodes: Iterable[Expr]) -> list[Load]:
    """What is loaded as float16."""
    return [Load(*n.detail) for n in nodes if n.op == "load" and n.dtype == torch.float16]
