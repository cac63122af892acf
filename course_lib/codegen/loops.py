"""Which step of a kernel runs in which pass over its loops.

In:  a `FusedKernel`, and its steps as trees.
Out: its `Phase`s: passes over the columns of a row, and what runs once a row after each.

A step runs in the first pass in which all it needs is complete: for a softmax's row there are three (maximum, sum, division).
In PyTorch: `codegen/simd.py`'s `EnableReduction`/`DisableReduction` schedule and `cpp.py`'s `LoopNest`.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy
import torch

from course_lib.lowering.indexing import contiguous
from course_lib.lowering.ir import Reduction
from course_lib.lowering.ops import linear_index, substitute
from course_lib.scheduling.expressions import COSTLY, Expr, steps_used
from course_lib.scheduling.kernel import FusedKernel, Loop, Step

# What a row may keep on the stack from one pass to the next; beyond it values are computed again
SCRATCH_BYTES = 128 * 1024
PLAIN = {"sum": ("0", "+"), "prod": ("1", "*"), "any": ("0", "|"), "all": ("1", "&")}
"""Reductions that need one variable: what it begins with, and the operator that takes a value in."""

Source = Literal["compute", "scratch"]


@dataclass
class Phase:
    """One pass over the columns, then what runs once a row."""

    # Where each value comes from: this pass, or a row on the stack
    columns: dict[Step, Source] = field(default_factory=dict)
    # Steps whose values a later pass takes from scratch
    kept: set[Step] = field(default_factory=set)
    stored: set[Step] = field(default_factory=set)  # Steps that write to memory in this phase
    rows: list[Step] = field(default_factory=list)  # What is computed or stored once a row

    @property
    def reductions(self) -> list[Step]:
        """Those over the columns."""
        return [step for step in self.columns if step.is_reduction and step.level != "across"]


def phases(kernel: FusedKernel, trees: Mapping[Step, Expr], keep: bool) -> list[Phase]:
    """The passes of a kernel; in the first is what a row needs before its columns. `keep`: costly values stay on the stack."""
    once = {step for step in trees if step.level == "row"}
    rank: dict[Step, int] = {}
    for step, tree in trees.items():
        used = steps_used(tree)
        if step in once:
            rank[step] = max([0, *(rank[u] for u in used)])
        else:  # in a pass after those that complete what it needs
            rank[step] = max([1, *(rank[u] + (u.is_reduction or u in once) for u in used)])

    result = [Phase() for _ in range(1 + max(rank.values(), default=0))]
    keep = keep and iterations(kernel.columns) * 4 <= SCRATCH_BYTES
    for step, n in rank.items():
        if step.buffer.name in kernel.stores and step.level != "across":
            # In place, the old values must have been read for the last time.
            result[-1 if step.buffer.name in kernel.in_place else n].stored.add(step)

    for n, phase in enumerate(result):
        phase.rows = [
            s
            for s in trees
            if (s in once and rank[s] == n) or (s in phase.stored and (s in once or s.is_reduction))
        ]
        wanted = [
            s
            for s in trees
            if s not in once and (rank[s] == n if s.is_reduction else s in phase.stored)
        ]
        source: dict[Step, Source] = {}
        while wanted:
            if (step := wanted.pop()) in source:
                continue
            earlier = next(
                (phase for phase in result[:n] if phase.columns.get(step) == "compute"), None
            )
            if earlier and keep and any(node.op in COSTLY for node in trees[step].walk()):
                source[step] = "scratch"
                earlier.kept.add(step)
            else:
                source[step] = "compute"
                wanted += [
                    u for u in steps_used(trees[step]) if not u.is_reduction and u not in once
                ]
        phase.columns = {step: source[step] for step in trees if step in source}
    return result


def as_columns(kernel: FusedKernel) -> FusedKernel:
    """The kernel with short names; if it reduces nothing, its innermost loop is columns: a pass with nothing to gather."""
    kernel = short_names(kernel)
    if kernel.columns or not kernel.rows:
        return kernel
    loops = (*kernel.rows[:-1], kernel.rows[-1]._replace(kind="column"))
    return replace(
        kernel, loops=loops, steps=tuple(replace(step, level="column") for step in kernel.steps)
    )


def short_names(kernel: FusedKernel) -> FusedKernel:
    """The kernel with a loop over rows that is the only one called i, not i0, and such a one over columns j."""
    alone = [loops[0].symbol for loops in (kernel.rows, kernel.columns) if len(loops) == 1]
    new = {symbol: sympy.Symbol(symbol.name[0], integer=True, nonnegative=True) for symbol in alone}
    renamed = lambda index: tuple(substitute(formula, new) for formula in index)
    steps = (
        replace(step, index=renamed(step.index), rindex=renamed(step.rindex))
        for step in kernel.steps
    )
    loops = (loop._replace(symbol=new.get(loop.symbol, loop.symbol)) for loop in kernel.loops)
    return replace(kernel, loops=tuple(loops), steps=tuple(steps))


def reduction(step: Step) -> Reduction:
    assert isinstance(step.node, Reduction)
    return step.node


def extreme(dtype: torch.dtype, lowest: bool) -> bool | int | float:
    """The value of `dtype` that no other is below (or above)."""
    if dtype.is_floating_point:
        return float("-inf" if lowest else "inf")
    if dtype == torch.bool:
        return not lowest
    return torch.iinfo(dtype).min if lowest else torch.iinfo(dtype).max


def column_number(step: Step) -> sympy.Expr:
    """The position among the reduced elements, counted row-major: what argmax returns."""
    return linear_index(step.rindex, contiguous(reduction(step).reduced))


def iterations(loops: Iterable[Loop]) -> int:
    """How many times the body of nested loops runs."""
    return math.prod(loop.size for loop in loops)
