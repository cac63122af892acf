"""The loops of one kernel, made as few as possible, and which step runs in which of them.

In:  a `FusedKernel`, with one loop for each dimension.
Out: the same kernel with loops merged (`simplify`), and its `Phase`s: passes over the columns of a row.

`simplify` turns [32, 128, 768] into one loop of 3145728 where the memory allows it: two loops may become one if every index
formula f(outer, inner) equals f(0, size·outer + inner).

A softmax needs three passes over its row: the maximum must be complete before the first exp, the sum before the first
division. `phases` finds the passes: a step runs in the first one in which all it needs is complete.

In PyTorch: `SizeVarAllocator._simplify_loops` in `torch/_inductor/sizevars.py`; passes are `codegen/simd.py`'s
`EnableReduction`/`DisableReduction` schedule and `cpp.py`'s `LoopNest`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import sympy
import torch

from course_lib.codegen.expressions import Expr, is_costly, record, steps_used
from course_lib.lowering.ir import Buffer, Reduction
from course_lib.lowering.ops import linear_index
from course_lib.scheduling.kernel import FusedKernel, Loop, Step

SCRATCH_BYTES = 128 * 1024
"""What a row may keep on the stack of a thread from one pass to the next; beyond it values are computed again."""


def simplify(kernel: FusedKernel, buffers: Mapping[str, Buffer]) -> FusedKernel:
    """Drop loops of size 1, merge loops that memory does not tell apart, and call rows i and columns j."""
    formulas = index_formulas(kernel, buffers)
    loops: list[Loop] = []
    become: dict[sympy.Symbol, sympy.Expr] = {}
    for loop in kernel.loops:
        outer = loops[-1] if loops else None
        if loop.size == 1:
            become[loop.symbol] = sympy.Integer(0)
        elif outer and outer.kind == loop.kind and all(same_walk(f, outer, loop) for f in formulas):
            become[outer.symbol] = sympy.Integer(0)
            loops[-1] = replace(loop, size=outer.size * loop.size)
        else:
            loops.append(loop)
            continue
        formulas = [f.xreplace(become) for f in formulas]

    renamed = []
    for kind, letter in (("row", "i"), ("column", "j")):
        same_kind = [loop for loop in loops if loop.kind == kind]
        for n, loop in enumerate(same_kind):
            name = letter if len(same_kind) == 1 else f"{letter}{n}"
            symbol = sympy.Symbol(name, integer=True, nonnegative=True)
            become[loop.symbol] = symbol
            renamed.append(replace(loop, symbol=symbol))
    steps = tuple(rewrite(step, become) for step in kernel.steps)
    return replace(kernel, loops=tuple(renamed), steps=steps)


def rewrite(step: Step, become: Mapping[sympy.Symbol, sympy.Expr]) -> Step:
    """The step with its index formulas in terms of other loops."""
    return replace(
        step,
        index=tuple(sympy.sympify(e).xreplace(become) for e in step.index),
        rindex=tuple(sympy.sympify(e).xreplace(become) for e in step.rindex),
    )


def index_formulas(kernel: FusedKernel, buffers: Mapping[str, Buffer]) -> list[sympy.Expr]:
    """Every formula over the loop symbols that a step uses: where it loads, where it stores, indices used as values."""
    trees, _ = record(kernel, buffers)
    formulas: dict[sympy.Expr, None] = {}
    for step, tree in trees.items():
        formulas[step.store_index] = None
        if isinstance(step.node, Reduction) and step.node.kind.startswith("arg"):
            formulas[column_number(step)] = None
        for node in tree.walk():
            if node.op == "load":
                formulas[node.detail[1]] = None
            elif node.op == "index_expr":
                formulas[node.detail] = None
    return list(formulas)


def same_walk(formula: sympy.Expr, outer: Loop, inner: Loop) -> bool:
    """True if counting through `outer` and `inner` gives the same values as one loop over both."""
    merged = formula.xreplace({outer.symbol: sympy.Integer(0), inner.symbol: inner.size * outer.symbol + inner.symbol})
    return formula == merged or sympy.expand(formula - merged) == 0


def column_number(step: Step) -> sympy.Expr:
    """The position among the reduced elements, counted row-major: what argmax returns."""
    assert isinstance(step.node, Reduction)
    strides = [math.prod(step.node.reduced[d + 1 :]) for d in range(len(step.node.reduced))]
    return linear_index(step.rindex, strides)


Source = Literal["compute", "scratch", "memory"]


@dataclass
class Phase:
    """One pass over the columns, then what runs once a row.

    `columns` says for each step of the pass where its value comes from: computed here, or kept by an earlier pass in a
    scratch row or in the buffer that it is stored to."""

    columns: dict[Step, Source] = field(default_factory=dict)
    kept: set[Step] = field(default_factory=set)
    """Steps whose values a later pass takes from scratch."""
    stored: set[Step] = field(default_factory=set)
    """Steps that write to memory in this phase."""
    rows: list[Step] = field(default_factory=list)

    @property
    def reductions(self) -> list[Step]:
        return [step for step in self.columns if step.is_reduction]

    def split(self, trees: Mapping[Step, Expr]) -> list[Phase]:
        """The pass as two, if it holds both kinds of reduction: those that take columns in any order (so lanes and threads can
        share them) and those where the first of equals wins (argmax, argmin)."""
        in_order = [step for step in self.reductions if step.node.kind.startswith("arg")]  # type: ignore[union-attr]
        if not in_order or len(in_order) == len(self.reductions):
            return [self]
        needed, waiting = set(in_order), list(in_order)
        while waiting:
            more = [s for s in steps_used(trees[waiting.pop()]) if s in self.columns and s not in needed]
            needed.update(more)
            waiting += more
        rest = {step: source for step, source in self.columns.items() if step not in in_order}
        again = {step: source for step, source in self.columns.items() if step in needed}
        return [Phase(rest, self.kept, self.stored), Phase(again)]


def phases(
    kernel: FusedKernel, trees: Mapping[Step, Expr], keep: frozenset[Source] = frozenset({"scratch", "memory"})
) -> list[Phase]:
    """The passes of a kernel in order. The first holds no columns, only what once a row comes before them.

    `keep` says how costly values may travel from one pass to the next."""
    rank: dict[Step, int] = {}
    for step, tree in trees.items():
        if is_row_level(step, kernel):
            rank[step] = max((rank[used] for used in steps_used(tree)), default=0)
        else:
            rank[step] = max(
                (rank[u] + (u.is_reduction or is_row_level(u, kernel)) for u in steps_used(tree)), default=1
            )
            rank[step] = max(rank[step], 1)

    result = [Phase() for _ in range(1 + max(rank.values(), default=0))]
    last = len(result) - 1
    if math.prod(loop.size for loop in kernel.columns) * 4 > SCRATCH_BYTES:
        keep -= {"scratch"}
    for step, n in rank.items():
        if is_row_level(step, kernel):
            result[n].rows.append(step)
        if step.buffer.name in kernel.stores:
            # In place, the old values must have been read for the last time.
            result[last if step.buffer.name in kernel.in_place else n].stored.add(step)

    for n, phase in enumerate(result):
        wanted = [s for s in trees if s.is_reduction and rank[s] == n]
        wanted += [s for s in phase.stored if not s.is_reduction and not is_row_level(s, kernel)]
        source: dict[Step, Source] = {}
        while wanted:
            step = wanted.pop()
            if step in source:
                continue
            earlier = next((phase for phase in result[:n] if phase.columns.get(step) == "compute"), None)
            source[step] = where_from(step, earlier, trees[step], keep)
            if earlier and source[step] == "scratch":
                earlier.kept.add(step)
            if source[step] == "compute":
                wanted += [u for u in steps_used(trees[step]) if not u.is_reduction and not is_row_level(u, kernel)]
        phase.columns = {step: source[step] for step in trees if step in source}
    return result


def is_row_level(step: Step, kernel: FusedKernel) -> bool:
    """True for what runs once a row. (In a kernel without columns all steps are in the innermost loop, which is a row.)"""
    return not step.is_reduction and (step.level == "row" or not kernel.columns)


def where_from(step: Step, earlier: Phase | None, tree: Expr, keep: frozenset[Source]) -> Source:
    """How a pass gets the value of a column-level step that the pass `earlier` has computed before (None: no pass has)."""
    if earlier is None or not is_costly(tree):
        return "compute"
    exact = step.buffer.dtype in (torch.float32, torch.float64)
    if "memory" in keep and step in earlier.stored and exact:
        return "memory"
    return "scratch" if "scratch" in keep else "compute"


def work(kernel: FusedKernel) -> int | sympy.Expr:
    """How many times the innermost body runs."""
    return math.prod(loop.size for loop in kernel.loops)


def has_stride_one(tree: Expr, symbol: sympy.Symbol) -> bool:
    """True if some load of `tree` walks through memory element by element as `symbol` counts."""
    formulas = [node.detail[1] for node in tree.walk() if node.op == "load"]
    return any(sympy.expand(f.xreplace({symbol: symbol + 1}) - f) == 1 for f in formulas)
