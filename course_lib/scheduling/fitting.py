"""How the loops of two groups fit: one group with loops that serve both.

In:  two groups, each with its loops and the memory that it touches.
Out: both as one (`join`, `fit`), or None where no such loops exist.

Two loops need not look alike to be alike. If [3145728] and [4096, 768] count through the same
memory, the longer loop is cut into the pieces of the other (`cut_alike`). A group with a reduction
has rows (what is kept) and columns (what is reduced); a loop over rows only joins it as something
to do once a row. One that sums over rows, column by column, may run along with one that reduces its
columns (`crosses`).
In PyTorch: `torch/_inductor/scheduler.py`, `FusedSchedulerNode`; `codegen/simd.py`,
`split_and_set_ranges`.
"""

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import sympy

from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import Buffer, Pointwise, Reduction
from course_lib.lowering.reduction_kinds import SUM
from course_lib.scheduling.groups import Group, Member, rewritten, symbols_for
from course_lib.scheduling.kernel import Kind, Loop
from course_lib.sizes import hint, is_symbolic, quotient, same, surely

MOST_ACROSS = 8192  # Columns whose sums a thread can keep in its cache while it walks over rows


@cache
def fit(a: Group, b: Group) -> Group | None:
    """Both groups as one, or None if no loops serve both. Of several ways the first without
    mismatched buffers, if there is one.

    (The answers are kept: each rule asks. `schedule` clears them at its end.)"""
    second_best: Group | None = None

    for formula_a, formula_b in ways_to_fit(a, b):
        combined = combine(a, b, formula_a, formula_b)
        if combined is None or not counts_up(combined):
            continue
        if not combined.mismatched:
            return combined
        second_best = second_best or combined

    return second_best


def join(a: Group, b: Group) -> Group | None:
    """Both groups as one, or None if they do not fit."""
    joined_group = fit(a, b)
    if joined_group is None or joined_group.mismatched:
        return None
    return joined_group


def ways_to_fit(a: Group, b: Group) -> Iterator[tuple[Linear | None, Linear | None]]:
    """Formulas for the same memory in both, best first: what `a` writes and `b` reads, what both
    read; then just the order."""
    formula_of_write = {m.body.write.buffer: m.body.write.index for m in a.members}
    formula_of_read = {access.buffer: access.index for m in a.members for access in m.body.reads}
    reads_of_b = [access for m in b.members for access in m.body.reads]

    for formula_in_a in (formula_of_write, formula_of_read):
        for access in reads_of_b:
            if access.buffer in formula_in_a:
                yield formula_in_a[access.buffer], access.index
    yield None, None


def counts_up(group: Group) -> bool:
    """True if columns are walked in the order in which `argmax` counts them: of several largest
    ones it takes the first."""
    for member in group.members:
        if not isinstance(member.node, Reduction) or not member.node.combines.gives_place:
            continue

        strides = contiguous(member.node.reduced)
        steps = []
        for loop in group.columns:
            indices_with_strides = zip(member.rindex, strides, strict=True)
            steps.append(
                sum(i.coefficient(loop.symbol) * stride for i, stride in indices_with_strides)
            )
        if steps != sorted(steps, reverse=True):
            return False

    return True


# --- cutting loops into common pieces


class Stride(NamedTuple):
    """A loop with the step that each iteration takes through some memory."""

    loop: Loop
    step: int


Walk = list[Stride]
"""Loops with their steps, shortest step first."""


class Piece(NamedTuple):
    """A loop of `size` iterations that serves a loop of one group, of the other, or of both.

    loops: in the first group and in the second. weights: how many iterations of that loop one
    iteration of this piece is.
    """

    size: int
    loops: tuple[Loop | None, Loop | None]
    weights: tuple[int, int] = (1, 1)

    def kind(self, leader: int) -> Kind:
        """Rows or columns, as the group that leads (0: the first, 1: the second) has it."""
        loop = self.loops[leader]
        if loop is None:
            return "row"
        return loop.kind


def combine(a: Group, b: Group, formula_a: Linear | None, formula_b: Linear | None) -> Group | None:
    """Cut the loops of both where they walk memory alike.

    `formula_a` and `formula_b` say at which place of it each group is."""
    # The moving loops walk along the common memory; while the still ones run, its place stays.
    moving_a, still_a = walk(a, formula_a)
    moving_b, still_b = walk(b, formula_b)

    moving = cut_alike(moving_a, moving_b)
    if moving is None:
        return None
    still = pieces_of_still_loops(a, b, still_a, still_b)
    if still is None:
        return None
    pieces = moving + still

    leader = leader_of(pieces, a, b)
    if leader is None:
        return None

    # A sum over rows is complete only after the last of them: nobody in the same kernel can read
    # it.
    if a.across.keys() & b.reads or b.across.keys() & a.reads:
        return None

    # One walk along the rows gathers all such sums.
    combined = assemble(pieces, a, b, leader)
    if len(set(combined.across.values())) > 1:
        return None
    return combined


def pieces_of_still_loops(
    a: Group, b: Group, still_a: list[Loop], still_b: list[Loop]
) -> list[Piece] | None:
    """Pieces of the loops in which the common memory stands still, or None if they do not go
    together."""
    if still_a and still_b:
        return cut_alike(in_order(still_a), in_order(still_b))

    # Only one group has such loops. Then they must be all its columns, and the other group has
    # none: it runs once a row.
    if still_a:
        if b.columns or tuple(still_a) != a.columns:
            return None
        return [Piece(loop.size, (loop, None)) for loop in still_a]
    if still_b:
        if a.columns or tuple(still_b) != b.columns:
            return None
        return [Piece(loop.size, (None, loop)) for loop in still_b]
    return []


def leader_of(pieces: Sequence[Piece], a: Group, b: Group) -> int | None:
    """Which of the two (0 or 1) says what is a row and what a column; None if they cannot run
    together."""
    if not b.columns:
        return 0
    if not a.columns:
        return 1
    if all(piece.kind(0) == piece.kind(1) for piece in pieces):
        return 0

    # The rows of one are the columns of the other: the one that sums along the way follows.
    outermost = pieces[0]
    leader = 0
    if outermost.kind(0) == "row" and outermost.kind(1) == "column":
        leader = 1
    if crosses(pieces, (a, b), leader):
        return leader
    return None


def walk(group: Group, formula: Linear | None) -> tuple[Walk, list[Loop]]:
    """The loops that move through the memory of `formula`, and those that do not.

    Without a formula: all, in their order."""
    if formula is None:
        return in_order(group.loops), []

    moving: Walk = []
    still: list[Loop] = []
    for loop in group.loops:
        step = formula.coefficient(loop.symbol)
        if same(step, 0):
            still.append(loop)
        else:
            moving.append(Stride(loop, step))

    return sorted(moving, key=lambda stride: hint(stride.step)), still


def in_order(loops: Sequence[Loop]) -> Walk:
    """Strides as if the loops counted through memory of their own: the last loop by steps of 1."""
    strides: Walk = []
    step = 1
    for loop in reversed(loops):
        strides.append(Stride(loop, step))
        step *= loop.size
    return strides


@dataclass
class Rest:
    """What is left of a loop: `size` iterations, each a `step` through memory, and `weight` of the
    loop's own."""

    loop: Loop
    size: int
    step: int
    weight: int = 1

    def without(self, size: int) -> "Rest":
        """What is left after a piece of `size` iterations has been cut off."""
        return Rest(self.loop, self.size // size, self.step * size, self.weight * size)


def cut_alike(one: Walk, other: Walk) -> list[Piece] | None:
    """Cut loops into pieces common to both, from the shortest step on; None if there is no such
    cut."""
    pieces: list[Piece] = []
    left = [Rest(loop, loop.size, step) for loop, step in reversed(one)]
    right = [Rest(loop, loop.size, step) for loop, step in reversed(other)]

    while left and right:
        a, b = left.pop(), right.pop()
        size = smaller_that_divides(a.size, b.size)
        if not same(a.step, b.step) or size is None:
            return None

        pieces.append(Piece(size, (a.loop, b.loop), (a.weight, b.weight)))
        if not same(size, a.size):
            left.append(a.without(size))
        if not same(size, b.size):
            right.append(b.without(size))

    if left or right:
        return None
    return pieces


def smaller_that_divides(one: Any, other: Any) -> Any:
    """The smaller of two sizes if it divides the larger evenly, for all sizes; else None."""
    for smaller, larger in ((one, other), (other, one)):
        if same(smaller, 0):
            return None
        if quotient(larger, smaller) is not None:
            return smaller
    return None


def assemble(pieces: list[Piece], a: Group, b: Group, leader: int) -> Group:
    """The pieces as loops, in the order of the leading group; it also says what is a row and what a
    column."""
    leading = (a, b)[leader]
    position = {loop: n for n, loop in enumerate(leading.loops)}

    def order(piece: Piece) -> tuple[bool, int, int]:
        loop = piece.loops[leader]
        place = -1
        if loop is not None:
            place = position[loop]
        return piece.kind(leader) == "column", place, -hint(piece.weights[leader])

    pieces = sorted(pieces, key=order)
    symbols = symbols_for([piece.kind(leader) for piece in pieces])
    loops = []
    for piece, symbol in zip(pieces, symbols, strict=True):
        loops.append(Loop(symbol, piece.size, piece.kind(leader)))

    # The members of both in program order
    placed: list[tuple[int, Member]] = []
    for side, group in enumerate((a, b)):
        become = in_new_symbols(group, side, pieces, symbols)
        placed += zip(group.positions, rewritten(group.members, become), strict=True)
    placed.sort(key=lambda pair: pair[0])

    positions = tuple(position for position, _ in placed)
    members = tuple(member for _, member in placed)
    nodes = tuple(member.node for member in members)
    both = Group(a.usage, positions, nodes, tuple(loops), members)

    # Cached properties: what both touch is known without a look at each access.
    both.writes = a.writes | b.writes
    both.reads = (a.reads | b.reads) - both.writes
    return both


def in_new_symbols(
    group: Group, side: int, pieces: Sequence[Piece], symbols: Sequence[sympy.Symbol]
) -> dict[sympy.Symbol, Linear]:
    """Each loop symbol of a group (0: the first of the two) as a sum of the new loops', which count
    pieces of it."""
    counts: dict[sympy.Symbol, dict[sympy.Symbol, int]] = {}
    for loop in group.loops:
        counts[loop.symbol] = {}

    for piece, symbol in zip(pieces, symbols, strict=True):
        old_loop = piece.loops[side]
        if old_loop:
            counts[old_loop.symbol][symbol] = piece.weights[side]
    return {old: Linear.make(terms) for old, terms in counts.items()}


# --- sums over rows beside a reduction of columns


def crosses(pieces: Sequence[Piece], groups: tuple[Group, Group], leader: int) -> bool:
    """True if the rows of each are the columns of the other, and the other than the leader has
    nothing but sums that nobody needs before the leader's last row, and what goes into them. On a
    GPU they are partial (`split`): a program walks along a chunk."""
    other = 1 - leader
    leading, sums = groups[leader], groups[other]
    reductions = [node for node in sums.nodes if isinstance(node, Reduction)]
    split = all(node.partial for node in reductions)

    if not loops_cross(pieces, split):
        return False

    # On a GPU many programs would add to one sum, unless each has its own part of it.
    on_cpu = all(member.node.buffer.device.type == "cpu" for member in sums.members)
    if not (on_cpu or split):
        return False

    # The printers gather such sums in floats (`sums_down`), which cannot hold every integer.
    if not has_only_float_sums(sums):
        return False

    # A thread keeps one sum for each column.
    columns = math.prod(piece.size for piece in pieces if piece.kind(leader) == "column")
    if not surely(operator.le, columns, MOST_ACROSS) or sums.across:
        return False
    # A GPU keeps them in registers, which are given out when a kernel is compiled.
    if split and is_symbolic(columns):
        return False

    read = leading.reads | buffers_read(sums)
    return read.isdisjoint(node.buffer for node in reductions)


def loops_cross(pieces: Sequence[Piece], split: bool) -> bool:
    """True if no loop is columns in both groups; rows in both are the chunks of a split sum, and of
    no other."""
    kinds = [(piece.kind(0), piece.kind(1)) for piece in pieces]
    has_common_rows = ("row", "row") in kinds
    return ("column", "column") not in kinds and has_common_rows == split


def has_only_float_sums(group: Group) -> bool:
    """True if a group has nothing but sums of floats, and what goes into them."""
    return all(is_float_sum(each) or goes_into_sum(each, group) for each in group.members)


def buffers_read(group: Group) -> set[Buffer]:
    """All that its members read, from each other too."""
    names = {access.buffer for member in group.members for access in member.body.reads}
    return {group.usage.buffers[name] for name in names}


def is_float_sum(member: Member) -> bool:
    """True for a sum that is gathered in floats."""
    node = member.node
    if not isinstance(node, Reduction) or node.kind != SUM.name:
        return False
    return node.accumulate.is_floating_point


def goes_into_sum(member: Member, sums: Group) -> bool:
    """True for a loop over all elements that are summed."""
    write = member.body.write.index
    moves = [write.moves_with(loop.symbol) for loop in sums.loops]
    return isinstance(member.node, Pointwise) and all(moves)
