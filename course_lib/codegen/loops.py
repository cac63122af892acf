"""Which step of a kernel runs in which pass over its loops.

In:  a `FusedKernel`, and its steps as trees.
Out: its `Phase`s: passes over the columns of a row, and what runs once a row after each.

A step runs in the first pass in which all it needs is complete: for a softmax's row there are three
(maximum, sum, division).
In PyTorch: `codegen/simd.py`'s `EnableReduction`/`DisableReduction` schedule and `cpp.py`'s
`LoopNest`.
"""

import functools
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy

from course_lib.lowering.indexing import contiguous
from course_lib.lowering.ir import Reduction
from course_lib.lowering.ops import linear_index, substitute
from course_lib.scheduling.expressions import COSTLY, Expr, steps_used
from course_lib.scheduling.kernel import FusedKernel, Loop, Step

# What a row may keep on the stack from one pass to the next; beyond it values are computed again
SCRATCH_BYTES = 128 * 1024
BYTES_KEPT = 4  # So many bytes are counted for each value that is kept
Source = Literal["compute", "scratch"]


@dataclass
class Phase:
    """One pass over the columns, then what runs once a row."""

    # Where each value comes from: this pass, or a row on the stack
    columns: dict[Step, Source] = field(default_factory=dict)
    # Steps whose values a later pass takes from scratch
    kept: set[Step] = field(default_factory=set)
    # Steps that write to memory in this phase
    stored: set[Step] = field(default_factory=set)
    # What is computed or stored once a row
    rows: list[Step] = field(default_factory=list)

    @property
    def reductions(self) -> list[Step]:
        """The steps of this phase that reduce over the columns."""
        return [step for step in self.columns if step.is_reduction and step.level != "across"]


def phases(kernel: FusedKernel, trees: Mapping[Step, Expr], keep: bool) -> list[Phase]:
    """The passes of a kernel; in the first is what a row needs before its columns.

    `keep`: costly values stay on the stack."""
    ranks = ranks_of(trees)
    result = [Phase() for _ in range(1 + max(ranks.values(), default=0))]
    note_stores(kernel, ranks, result)

    @functools.cache
    def row_fits() -> bool:
        # For a symbolic size the answer is a guard, so it is only asked if a value could be kept.
        return keep and iterations(kernel.columns) * BYTES_KEPT <= SCRATCH_BYTES

    for n, phase in enumerate(result):
        # Steps whose first possible phase is this one
        due = {step for step in trees if ranks[step] == n}
        phase.rows = steps_of_row(trees, due, phase)

        wanted = steps_of_columns(trees, due, phase)
        earlier = result[:n]
        sources = sources_of(wanted, trees, earlier, keep=row_fits)
        # In the kernel's order
        phase.columns = {step: sources[step] for step in trees if step in sources}
    return result


def note_stores(kernel: FusedKernel, ranks: Mapping[Step, int], phases: list[Phase]) -> None:
    """Note in which phase each step is stored: its own.

    A step that overwrites an operand in place is stored in the last phase, when the old values have
    been read for the last time."""
    for step, rank in ranks.items():
        name = step.buffer.name
        # Sums across rows are stored after the last row, outside of all phases.
        if name not in kernel.stores or step.level == "across":
            continue

        if name in kernel.in_place:
            rank = -1  # the last phase
        phases[rank].stored.add(step)


def steps_of_row(steps: Iterable[Step], due: Collection[Step], phase: Phase) -> list[Step]:
    """What runs once a row, after the columns of a phase: row-level values that are due, and what
    is stored."""
    steps_due = []
    for step in steps:
        is_of_row = step.level == "row"
        is_due = is_of_row and step in due
        # A reduction runs with the columns, but its result is one value a row.
        is_stored = step in phase.stored and (is_of_row or step.is_reduction)
        if is_due or is_stored:
            steps_due.append(step)
    return steps_due


def steps_of_columns(steps: Iterable[Step], due: Collection[Step], phase: Phase) -> list[Step]:
    """What a pass over the columns is for: the reductions that are due, and the elements that it
    stores."""
    steps_due = []
    for step in steps:
        is_wanted = step in due if step.is_reduction else step in phase.stored
        if step.level != "row" and is_wanted:
            steps_due.append(step)
    return steps_due


def ranks_of(trees: Mapping[Step, Expr]) -> dict[Step, int]:
    """For each step the first phase in which all that it needs is complete.

    Those of columns begin in phase 1."""
    ranks: dict[Step, int] = {}
    for step, tree in trees.items():
        if step.level == "row":
            ranks[step] = max((ranks[used_step] for used_step in steps_used(tree)), default=0)
            continue

        # In the pass of what it needs; but a reduction, or a value of the row, is only complete
        # when its pass is over. Phase 0 has no pass: it is what a row needs before its columns.
        ranks[step] = 1
        for used_step in steps_used(tree):
            ends_its_phase = used_step.is_reduction or used_step.level == "row"
            ranks[step] = max(ranks[step], ranks[used_step] + ends_its_phase)
    return ranks


def sources_of(
    wanted: list[Step],
    trees: Mapping[Step, Expr],
    earlier: list[Phase],
    keep: Callable[[], bool],
) -> dict[Step, Source]:
    """What a pass needs for the steps `wanted`, and where each value comes from.

    What is taken from a row on the stack is noted in the phase that computes it."""
    source_of_step: dict[Step, Source] = {}
    left = list(wanted)
    while left:
        step = left.pop()
        if step in source_of_step:
            continue

        known_in = next((p for p in earlier if p.columns.get(step) == "compute"), None)
        if known_in and is_costly(trees[step]) and keep():
            source_of_step[step] = "scratch"
            known_in.kept.add(step)
            continue

        source_of_step[step] = "compute"
        for used_step in steps_used(trees[step]):
            if not used_step.is_reduction and used_step.level != "row":
                left.append(used_step)
    return source_of_step


def is_costly(tree: Expr) -> bool:
    """True if a value is better kept than computed again."""
    return any(node.op in COSTLY for node in tree.walk())


def as_columns(kernel: FusedKernel) -> FusedKernel:
    """The kernel with short names; if it reduces nothing, its innermost loop is columns: a pass
    with nothing to gather."""
    kernel = short_names(kernel)
    if kernel.columns or not kernel.rows:
        return kernel

    *rows, last = kernel.rows
    loops = (*rows, last._replace(kind="column"))
    steps = tuple(replace(step, level="column") for step in kernel.steps)
    return replace(kernel, loops=loops, steps=steps)


def short_names(kernel: FusedKernel) -> FusedKernel:
    """The kernel with a loop over rows that is the only one called i, not i0, and such a one over
    columns j."""
    new: dict[sympy.Symbol, sympy.Symbol] = {}
    for loops in (kernel.rows, kernel.columns):
        if len(loops) == 1:
            symbol = loops[0].symbol
            new[symbol] = sympy.Symbol(symbol.name[0], integer=True, nonnegative=True)

    def renamed(index: tuple[sympy.Expr, ...]) -> tuple[sympy.Expr, ...]:
        return tuple(substitute(formula, new) for formula in index)

    steps = []
    for step in kernel.steps:
        index, rindex = renamed(step.index), renamed(step.rindex)
        steps.append(replace(step, index=index, rindex=rindex))

    renamed_loops = [
        loop._replace(symbol=new.get(loop.symbol, loop.symbol)) for loop in kernel.loops
    ]
    return replace(kernel, loops=tuple(renamed_loops), steps=tuple(steps))


def reduction(step: Step) -> Reduction:
    """The node of a step that reduces."""
    assert isinstance(step.node, Reduction)
    return step.node


def column_number(step: Step) -> sympy.Expr:
    """The position among the reduced elements, counted row-major: what argmax returns."""
    return linear_index(step.rindex, contiguous(reduction(step).reduced))


def iterations(loops: Iterable[Loop]) -> int:
    """How many times the body of nested loops runs."""
    return math.prod(loop.size for loop in loops)
