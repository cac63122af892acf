"""What a C++ kernel will look like, decided before a line of it is printed.

In:  a `FusedKernel` and its steps as trees.
Out: a `Planner`, which says which loop gets the SIMD lanes and which the threads; and for each pass
     over the columns a `PassPlan`: how each reduction is added up, how many columns go together,
     what lies on the stack, what is fetched ahead.

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
# A float sum over more columns goes in blocks of so many, whose sums are added up as double: the
# error stays that of a short sum
BLOCK = 4096
# The error grows with the additions that follow one another. Along a row, (at least) eight SIMD
# lanes share the columns: a block of 4096 is 512 additions in each lane. Where lanes do not share a
# sum, 512 columns are as many additions
LANES_OF_A_SUM = 8
# Where the order of values matters (0.0 before -0.0), up to so many columns are compared one by one
FEW = 8
# So many columns are computed at a time where their values go to the next loop through an array on
# the stack
STRIP = 64
# A row of at least so many columns is read faster if the next one is fetched while this one is
# finished: the processor itself fetches ahead only along a row
LONG = 2048
# A kernel that moves at least so many bytes has results that leave the caches before anybody reads
# them
STREAM_FROM = 64 * 2**20
with contextlib.suppress(OSError, ValueError):
    # The size of the last cache, "32768K". A virtual machine may say 0.
    last_cache = 1024 * int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text()[:-2])
    STREAM_FROM = min(STREAM_FROM, last_cache or STREAM_FROM)

Shape = Literal["rows", "lanes", "columns"]
"""What a kernel does side by side.

    rows       each thread has rows; SIMD lanes share the columns of one row
    lanes      each thread has rows; each SIMD lane has a row of its own
    columns    there are few rows: threads share the columns, and so do lanes
"""


def shape_of(kernel: FusedKernel, trees: Mapping[Step, Expr]) -> Shape:
    """Which loop gets the SIMD lanes, and which the threads."""
    rows, columns = kernel.rows, kernel.columns

    # How memory is read, but for what is read once for each row
    read = []
    for step, tree in trees.items():
        if step.level != "row":
            read += [index for _, index in loads(tree)]

    # Rows side by side in memory, and columns not (a sum over the first dimension): a lane for each
    # row reads neighbours
    reduced = {step.level for step in trees if step.is_reduction}
    if rows and reduced == {"column"}:
        rows_are_neighbours = are_neighbours(read, rows[-1])
        if rows_are_neighbours and not are_neighbours(read, columns[-1]):
            return "lanes"

    has_few_rows = surely(operator.lt, iterations(rows), FEW_ROWS)
    if has_few_rows and not surely(operator.lt, iterations(columns), PARALLEL_FROM):
        return "columns"
    return "rows"


def are_neighbours(indices: Collection[sympy.Expr], loop: Loop) -> bool:
    """Does the next iteration of `loop` read the next element, by one of the indices?"""
    steps = [Linear.of(index, {loop.symbol}).coefficient(loop.symbol) for index in indices]
    return any(same(step, 1) for step in steps)


class Load(NamedTuple):
    """An element of a buffer: what an `Expr` that loads has as its detail."""

    buffer: str
    index: sympy.Expr


Staged = Load | Step
"""What may lie in an array on the stack: elements that are loaded before the vectorised loop, or
the values of a step, which are stored after it."""


@dataclass(frozen=True)
class Gathering:
    """How the values of a reduction over the columns are added up (or compared)."""

    kind: ReductionKind
    # The dtype of the values that are taken in, and that of the total
    dtype: torch.dtype
    total_dtype: torch.dtype
    # For `argmax` and its like: which of equal values is meant
    last_of_equals: bool
    # True if each block has a sum of its own (float32), which the total (float64) takes in
    in_blocks: bool

    @property
    def has_nan(self) -> bool:
        """Are floats compared? Then NaN wins, and 0.0 and -0.0 are equal."""
        return self.kind.gives_best and self.dtype.is_floating_point


@dataclass
class Staging:
    """What lies in arrays on the stack, around the vectorised loop.

    float16 values: eight of them are converted by one instruction, which the compiler does not find
    inside the loop. Results that go past the caches: they are stored a row at a time."""

    # For each array, the place in memory that it stands for (no buffer: nowhere)
    places: dict[Staged, Load] = field(default_factory=dict)
    # True if each step has a loop of its own. Values that are rounded to float16 on their way from
    # one step to the next are then rounded between the loops, many at a time
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
    # Do SIMD lanes share the columns? Not where these must come in their order
    simd: bool
    # Where the number of columns is symbolic: lanes share them only if there are more than this
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

        # In the shape 'lanes': how many rows go side by side, and whether the last block has fewer
        self.lanes = 1
        self.is_ragged = False
        if self.shape == "lanes":
            neighbours = kernel.rows[-1].size
            self.lanes = LANES
            if not is_symbolic(neighbours):
                self.lanes = max(1, min(LANES, neighbours))
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
        """Must columns come one after the other? If the place of the first of equals is wanted, or
        few floats are compared."""
        # Of 0.0 and -0.0 the first one is the result. Lanes would mix up which was first. Eager
        # mixes them up, too, but not in a short row.
        is_short = surely(operator.le, iterations(self.kernel.columns), FEW)
        compares_few_floats = is_short and any(gathering.has_nan for gathering in gathered)
        return compares_few_floats or any(gathering.kind.gives_place for gathering in gathered)

    def in_order_up_to(self, gathered: Collection[Gathering]) -> int:
        """For a symbolic number of columns: if there are at most so many, the kernel must compare
        them one by one. 0 if it never must."""
        columns = iterations(self.kernel.columns)
        may_be_few = is_symbolic(columns) and not surely(operator.gt, columns, FEW)
        compares_floats = any(gathering.has_nan for gathering in gathered)
        if may_be_few and compares_floats:
            return FEW
        return 0

    def block_for(self, gathered: Collection[Gathering], staging: Staging) -> int:
        """Columns that go together: those of an array on the stack, or those of one float sum. 0 if
        neither is needed."""
        if staging.places:
            return STRIP
        if not any(gathering.in_blocks for gathering in gathered):
            return 0
        return longest_sum(lanes_share=not self.has_lanes)

    def gathering(self, step: Step) -> Gathering:
        """How the values of a reduction are added up.

        A sum or product has its accumulator's dtype. Others have that of the values."""
        node, dtype = reduction(step), self.trees[step].dtype
        kind = node.combines
        if dtype == torch.bool and kind.on_bools:
            kind = KINDS[kind.on_bools]
        if kind.grows:
            dtype = node.accumulate

        # In the shape 'lanes' each lane has a sum of its own. Over several loops, lanes share each
        # inner loop, but their sums are added up at its end, one after the other.
        columns = self.kernel.columns
        lanes_share = not self.has_lanes and len(columns) == 1
        is_long = not surely(operator.le, iterations(columns), longest_sum(lanes_share))
        in_blocks = kind is SUM and computed_as(dtype) == "float" and is_long

        total = torch.float64 if in_blocks else dtype
        return Gathering(kind, dtype, total, node.last_of_equals, in_blocks)

    def staging(self, phase: Phase, loop: Loop) -> Staging:
        """What lies on the stack around the vectorised `loop`."""
        steps = [step for step, source in phase.columns.items() if source == "compute"]
        nodes = [node for step in steps for node in self.trees[step].walk()]

        # A load that depends on a condition, or whose index is looked up, cannot be made for many
        # columns at once.
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

        # These values go from one loop to the next, and nowhere else: their place has no buffer.
        passed_on = self.passed_on_apart(phase, steps, staged_loads)
        no_buffer = ""
        places: dict[Staged, Load] = {step: Load(no_buffer, step.store_index) for step in passed_on}
        return Staging(places | staged_loads, apart=bool(passed_on))

    def passed_on_apart(
        self, phase: Phase, steps: list[Step], staged_loads: Mapping[Staged, Load]
    ) -> list[Step]:
        """The steps whose values go through the stack from one loop to the next. Empty if all steps
        share a loop.

        A loop for each step is worth it where a value becomes float16 on its way to another step.
        It is possible if all that the phase stores lies on the stack, and no step reads what an
        earlier one has overwritten.
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
        """Do a step's results lie on the stack first, and go to memory a row at a time?

        float16 does, and float32 where the kernel moves so much that results leave the caches
        anyway."""
        past_caches = step.buffer.dtype == torch.float32 and self.moved >= STREAM_FROM
        if not past_caches and step.buffer.dtype != torch.float16:
            return False
        return self.walks_along(step.store_index, loop)

    def overtakes(self, steps: list[Step]) -> bool:
        """Does a step read a buffer whose memory an earlier step has written to?

        Then they cannot have a loop each: the first loop would overwrite what the second reads."""
        for n, step in enumerate(steps):
            # the buffer whose memory the result of this step takes
            overwritten = self.kernel.in_place.get(step.buffer.name)
            if overwritten is None:
                continue
            for later in steps[n + 1 :]:
                if any(buffer == overwritten for buffer, _ in loads(self.trees[later])):
                    return True
        return False

    def walks_along(self, index: sympy.Expr, loop: Loop) -> bool:
        """Are neighbours along `loop` neighbours in memory, with no index that is looked up?"""
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


def longest_sum(lanes_share: bool) -> int:
    """How many columns may be added up as float: in all lanes together, or in each."""
    if lanes_share:
        return BLOCK
    return BLOCK // LANES_OF_A_SUM


def loads_of_halves(nodes: Iterable[Expr]) -> list[Load]:
    """The loads of float16."""
    return [
        Load(*node.detail) for node in nodes if node.op == "load" and node.dtype == torch.float16
    ]
