"""Loops that may run together, and how the loops of two groups fit.

In:  two groups, each with its loops and the memory that it touches.
Out: one group with loops that serve both (`join`), or None where no such loops exist.

Two loops need not look alike to be alike. First, loops that no formula tells apart become one (`collapse`). Then, if
[3145728] and [4096, 768] count through the same memory, the longer loop is cut into the pieces of the other (`fit`). A group
with a reduction has rows (what is kept) and columns (what is reduced); a loop over rows only joins it as something to do once
a row. One that sums over rows, column by column, may run along with one that reduces its columns (`crosses`).
In PyTorch: `torch/_inductor/scheduler.py`, `SchedulerNode`, `FusedSchedulerNode`; `codegen/simd.py`, `split_and_set_ranges`.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Literal, NamedTuple

import sympy

from course_lib.lowering.indexing import Linear, contiguous, loop_symbols
from course_lib.lowering.ir import Buffer, ExternKernel, LoopNode, Node, Pointwise, Reduction
from course_lib.scheduling.dependencies import Body
from course_lib.scheduling.expressions import COSTLY
from course_lib.scheduling.kernel import FusedKernel, Kind, Loop, Nest, Step

MOST_ACROSS = 8192  # Columns whose sums a thread can keep in its cache while it walks over rows


class Usage(NamedTuple):
    """Who needs which buffer: facts about the whole program that every group shares."""

    buffers: Mapping[str, Buffer]
    readers: Mapping[str, set[Node]]
    outputs: set[str]


class Member(NamedTuple):
    """A node of a group: its index, and what it touches, in terms of the group's loops."""

    node: LoopNode
    index: tuple[Linear, ...]  # type: ignore[assignment]
    rindex: tuple[Linear, ...]
    body: Body

    @property
    def is_cheap(self) -> bool:
        """True for a loop that costs about as much as a load when it is computed again."""
        buffers, operations = {access.buffer for access in self.body.reads}, self.body.operations
        return (
            isinstance(self.node, Pointwise)
            and len(operations) <= 8
            and len(buffers) <= 2
            and not {*operations} & {*COSTLY}
        )


@dataclass(eq=False)
class Group(Nest):
    """Nodes that run as one kernel; at first there is one group for each node. `positions` are their places in the program."""

    usage: Usage
    positions: tuple[int, ...]
    nodes: tuple[Node, ...]
    loops: tuple[Loop, ...] = ()
    members: tuple[Member, ...] = ()

    @property
    def is_extern(self) -> bool:
        return isinstance(self.nodes[0], ExternKernel)

    @cached_property
    def writes(self) -> frozenset[Buffer]:
        """The buffers computed here."""
        return frozenset(buffer for node in self.nodes for buffer in node.buffers)

    @cached_property
    def reads(self) -> frozenset[Buffer]:
        """The buffers that come from elsewhere."""
        names = {access.buffer for member in self.members for access in member.body.reads}
        names = names.union(*(node.reads for node in self.nodes if isinstance(node, ExternKernel)))
        return frozenset(self.usage.buffers[name] for name in names) - self.writes

    @cached_property
    def stores(self) -> frozenset[Buffer]:
        """The buffers computed here that others need: they must reach memory."""
        mine, usage = set(self.nodes), self.usage
        needed = lambda name: name in usage.outputs or usage.readers[name] - mine
        return frozenset(buffer for buffer in self.writes if self.is_extern or needed(buffer.name))

    @cached_property
    def mismatched(self) -> tuple[str, ...]:
        """Buffers computed here of which other elements are needed at once: with any, these nodes cannot run together."""
        written = {member.body.write.buffer: member.body.write.index for member in self.members}
        reads = [access for member in self.members for access in member.body.reads]
        return tuple(
            dict.fromkeys(r.buffer for r in reads if r.index != written.get(r.buffer, r.index))
        )

    @cached_property
    def across(self) -> dict[Buffer, tuple[Loop, ...]]:
        """Sums over rows, and over which: complete only after the last of these, so nothing here can use them."""
        over = lambda member: tuple(
            loop for loop in self.rows if any(i.moves_with(loop.symbol) for i in member.rindex)
        )
        return {member.node.buffer: loops for member in self.members if (loops := over(member))}

    @cached_property
    def traffic(self) -> int:
        """Bytes that this kernel moves: each element that it reads or stores, once."""
        return sum((self.touched(b) for b in self.reads), 0) + sum(
            (b.nbytes for b in self.stores), 0
        )

    def touched(self, buffer: Buffer) -> int:
        """Bytes of `buffer` that are read: not more than it has, nor than there are loop iterations."""
        if self.is_extern:
            return buffer.nbytes
        elements = 0
        for index in {
            a.index for m in self.members for a in m.body.reads if a.buffer == buffer.name
        }:
            lookup = not isinstance(index.constant, int)
            elements += math.prod(
                loop.size for loop in self.loops if lookup or index.moves_with(loop.symbol)
            )
        return min(elements, buffer.numel) * buffer.dtype.itemsize

    def __str__(self) -> str:
        return str(self.nodes[0]) if self.is_extern else super().__str__()


def start(node: Node, position: int, usage: Usage, body: Body | None) -> Group:
    """The group of one node: its loops in the order in which they walk through memory, merged where possible."""
    if isinstance(node, ExternKernel) or body is None:
        return Group(usage, (position,), (node,))
    rows, columns = node.symbols
    outer = [Loop(symbol, size, "row") for symbol, size in zip(rows, node.ranges, strict=True)]
    outer.sort(key=lambda loop: -body.write.index.coefficient(loop.symbol))
    inner = [
        Loop(symbol, size, "column") for symbol, size in zip(columns, node.reduced, strict=True)
    ]
    if body.reads and not (isinstance(node, Reduction) and node.kind.startswith("arg")):
        inner.sort(key=lambda loop: -body.reads[0].index.coefficient(loop.symbol))
    index, rindex = (
        tuple(Linear(((symbol, 1),)) for symbol in symbols) for symbols in (rows, columns)
    )
    return collapse(
        Group(usage, (position,), (node,), (*outer, *inner), (Member(node, index, rindex, body),))
    )


def collapse(group: Group) -> Group:
    """Drop loops of one iteration, and merge neighbours that no formula tells apart. Rows become i0, i1, ..., columns j0, ...
    Loops a (outer) and b (inner, n steps) are one if a step of a moves each formula n times as far: then b counts beyond n."""
    become: dict[sympy.Symbol, Linear] = {}
    bodies = [member.body for member in group.members]
    formulas = [
        f
        for body in bodies
        for f in (body.write.index, *(access.index for access in body.reads), *body.values)
    ]
    loops: list[Loop] = []
    for loop in reversed(group.loops):
        inner = loops[-1] if loops else None
        if loop.size == 1:
            become[loop.symbol] = Linear()
        elif (
            inner is not None
            and inner.kind == loop.kind
            and all(walks_on(f, loop, inner) for f in formulas)
        ):
            become[loop.symbol] = Linear()
            loops[-1] = inner._replace(size=loop.size * inner.size)
        else:
            loops.append(loop)
    loops = [loop for kind in ("row", "column") for loop in reversed(loops) if loop.kind == kind]
    symbols = symbols_for([loop.kind for loop in loops])
    become |= {
        loop.symbol: Linear(((symbol, 1),)) for loop, symbol in zip(loops, symbols, strict=True)
    }
    renamed = tuple(
        loop._replace(symbol=symbol) for loop, symbol in zip(loops, symbols, strict=True)
    )
    return replace(group, loops=renamed, members=rewritten(group.members, become))


def symbols_for(kinds: Sequence[Kind]) -> tuple[sympy.Symbol, ...]:
    """Rows are i0, i1, ..., and the columns after them j0, j1, ..."""
    return loop_symbols("i", kinds.count("row")) + loop_symbols("j", kinds.count("column"))


def walks_on(formula: Linear, outer: Loop, inner: Loop) -> bool:
    """True if a step of `outer` moves the formula as far as all steps of `inner` together."""
    both_affine = formula.is_affine_in(outer.symbol) and formula.is_affine_in(inner.symbol)
    return (
        both_affine
        and formula.coefficient(outer.symbol) == formula.coefficient(inner.symbol) * inner.size
    )


@cache
def fit(a: Group, b: Group) -> Group | None:
    """Both groups as one, or None if no loops serve both; rather one without mismatched buffers. (`schedule` clears it.)"""
    found: Group | None = None
    for one, other in ways_to_fit(a, b):
        another = combine(a, b, one, other)
        if another is not None and counts_up(another):
            if not another.mismatched:
                return another
            found = found or another
    return found


def counts_up(group: Group) -> bool:
    """Are columns walked in the order in which `argmax` counts them? It takes the first of several that are the largest."""
    for member in group.members:
        if isinstance(member.node, Reduction) and member.node.kind.startswith("arg"):
            strides = contiguous(member.node.reduced)
            step = lambda loop: sum(
                i.coefficient(loop.symbol) * n for i, n in zip(member.rindex, strides, strict=True)
            )
            if sorted(steps := [*map(step, group.columns)], reverse=True) != steps:
                return False
    return True


def join(a: Group, b: Group) -> Group | None:
    """Both groups as one, or None if they do not fit."""
    found = fit(a, b)
    return None if found is None or found.mismatched else found


def ways_to_fit(a: Group, b: Group) -> Iterator[tuple[Linear | None, Linear | None]]:
    """Formulas for the same memory in both, best first: what `a` writes and `b` reads, what both read; then just the order."""
    written = {m.body.write.buffer: m.body.write.index for m in a.members}
    read = {access.buffer: access.index for m in a.members for access in m.body.reads}
    for known in (written, read):
        yield from (
            (known[r.buffer], r.index) for m in b.members for r in m.body.reads if r.buffer in known
        )
    yield None, None


# Loops with the step that each takes through some memory, shortest step first
Walk = list[tuple[Loop, int]]


class Piece(NamedTuple):
    """A loop of `size` iterations, part of a loop of one group, of the other, or of both; each counts `weights` of theirs."""

    size: int
    loops: tuple[Loop | None, Loop | None]
    weights: tuple[int, int] = (1, 1)

    def kind(self, leader: int) -> Kind:
        """Rows or columns, as the group that leads has it."""
        loop = self.loops[leader]
        return loop.kind if loop else "row"


def combine(a: Group, b: Group, one: Linear | None, other: Linear | None) -> Group | None:
    """Cut the loops of both where they walk memory alike (by formula `one` in `a` and `other` in `b`)."""
    moving_a, still_a = walk(a, one)
    moving_b, still_b = walk(b, other)
    if (pieces := cut_alike(moving_a, moving_b)) is None:
        return None
    if still_a and still_b:  # loops in which that memory stands still: match them in their order
        if (rest := cut_alike(in_order(still_a), in_order(still_b))) is None:
            return None
        pieces += rest
    elif still_a or still_b:  # one of them runs once a row of the other
        rowwise, still, columns = (b, still_a, a.columns) if still_a else (a, still_b, b.columns)
        if rowwise.columns or tuple(still) != columns:
            return None
        pieces += [Piece(loop.size, (loop, None) if still_a else (None, loop)) for loop in still]
    leader = 0 if a.columns or not b.columns else 1
    if a.columns and b.columns and any(piece.kind(0) != piece.kind(1) for piece in pieces):
        leader = 1 if pieces[0].kind(0) == "row" and pieces[0].kind(1) == "column" else 0
        if not crosses(pieces, (a, b), leader):
            return None
    if a.across.keys() & b.reads or b.across.keys() & a.reads:
        return None
    found = assemble(pieces, a, b, leader)
    # one walk along the rows gathers all sums
    return found if len({*found.across.values()}) < 2 else None


def crosses(pieces: Sequence[Piece], groups: tuple[Group, Group], leader: int) -> bool:
    """True if the rows of each are the columns of the other, and the other than the leader has nothing but sums that nobody needs
    before the leader's last row, and what goes into them. On a GPU they are partial (`split`): a program walks along a chunk."""
    sums, other = groups[1 - leader], groups[leader]
    kinds = [(piece.kind(leader), piece.kind(1 - leader)) for piece in pieces]
    reductions = [node for node in sums.nodes if isinstance(node, Reduction)]
    split = all(node.partial for node in reductions)
    if ("column", "column") in kinds or (("row", "row") in kinds) != split:
        return False
    read = other.reads | {
        sums.usage.buffers[access.buffer] for member in sums.members for access in member.body.reads
    }
    for node, body in ((member.node, member.body) for member in sums.members):
        is_sum = (
            isinstance(node, Reduction) and node.kind == "sum" and node.accumulate.is_floating_point
        )
        goes_in = isinstance(node, Pointwise) and all(
            body.write.index.moves_with(loop.symbol) for loop in sums.loops
        )
        if not (is_sum or goes_in) or (node.buffer.device.type != "cpu" and not split):
            return False
    columns = math.prod(
        piece.size for piece, (kind, _) in zip(pieces, kinds, strict=True) if kind == "column"
    )
    return (
        columns <= MOST_ACROSS
        and not sums.across
        and not read & {node.buffer for node in reductions}
    )


def walk(group: Group, formula: Linear | None) -> tuple[Walk, list[Loop]]:
    """The loops that move through the memory of `formula`, and those that do not. Without a formula: all, in their order."""
    if formula is None:
        return in_order(group.loops), []
    steps = [(loop, formula.coefficient(loop.symbol)) for loop in group.loops]
    return sorted([s for s in steps if s[1] != 0], key=lambda s: s[1]), [
        loop for loop, step in steps if step == 0
    ]


def in_order(loops: Sequence[Loop]) -> Walk:
    """As if the loops counted through memory of their own."""
    return [
        (loop, math.prod(later.size for later in loops[n + 1 :])) for n, loop in enumerate(loops)
    ][::-1]


def cut_alike(one: Walk, other: Walk) -> list[Piece] | None:
    """Cut loops into pieces common to both, from the shortest step on; None if there is no such cut."""
    pieces: list[Piece] = []
    left = [(loop, loop.size, step, 1) for loop, step in reversed(one)]
    right = [(loop, loop.size, step, 1) for loop, step in reversed(other)]
    while left and right:
        loop_a, size_a, step_a, weight_a = left.pop()
        loop_b, size_b, step_b, weight_b = right.pop()
        size = math.gcd(size_a, size_b)
        # the smaller must divide the larger
        if step_a != step_b or size != min(size_a, size_b) or size == 0:
            return None
        pieces.append(Piece(size, (loop_a, loop_b), (weight_a, weight_b)))
        if size != size_a:
            left.append((loop_a, size_a // size, step_a * size, weight_a * size))
        if size != size_b:
            right.append((loop_b, size_b // size, step_b * size, weight_b * size))
    return None if left or right else pieces


def assemble(pieces: list[Piece], a: Group, b: Group, leader: int) -> Group:
    """The pieces as loops, in the order of the leading group; it also says what is a row and what a column."""
    place: dict[Loop | None, int] = {
        None: -1,
        **{loop: n for n, loop in enumerate((a, b)[leader].loops)},
    }
    pieces.sort(
        key=lambda piece: (
            piece.kind(leader) == "column",
            place[piece.loops[leader]],
            -piece.weights[leader],
        )
    )
    loops: list[Loop] = []
    weights: list[dict[sympy.Symbol, dict[sympy.Symbol, int]]] = [
        {loop.symbol: {} for loop in group.loops} for group in (a, b)
    ]
    for piece, symbol in zip(
        pieces, symbols_for([piece.kind(leader) for piece in pieces]), strict=True
    ):
        loops.append(Loop(symbol, piece.size, piece.kind(leader)))
        for mine, loop, weight in zip(weights, piece.loops, piece.weights, strict=True):
            if loop:
                mine[loop.symbol][symbol] = weight
    become = [{old: Linear.make(terms) for old, terms in mine.items()} for mine in weights]
    first, second = rewritten(a.members, become[0]), rewritten(b.members, become[1])
    together = sorted(
        zip([*a.positions, *b.positions], [*first, *second], strict=True), key=lambda pair: pair[0]
    )
    positions, members = zip(*together, strict=True)
    return Group(
        a.usage, positions, tuple(member.node for member in members), tuple(loops), members
    )


def rewritten(
    members: tuple[Member, ...], become: Mapping[sympy.Symbol, Linear]
) -> tuple[Member, ...]:
    """The members in terms of other loops."""
    if all(new.terms == ((old, 1),) for old, new in become.items()):
        return members
    moved = lambda formulas: tuple(formula.substitute(become) for formula in formulas)
    access = lambda old: old._replace(index=old.index.substitute(become))
    body = lambda old: old._replace(
        reads=tuple(map(access, old.reads)), write=access(old.write), values=moved(old.values)
    )
    return tuple(Member(m.node, moved(m.index), moved(m.rindex), body(m.body)) for m in members)


def to_kernel(group: Group, name: str, saved: int) -> FusedKernel:
    """The group as code generation wants it."""
    columns = {loop.symbol for loop in group.columns}
    across = {buffer.name for buffer in group.across}
    steps = []
    for member in group.members:
        index, rindex = (tuple(i.expr for i in part) for part in (member.index, member.rindex))
        uses_columns = rindex or any(columns & i.free_symbols for i in index)
        level: Kind | Literal["across"] = (
            "across" if member.node.buffer.name in across else "column" if uses_columns else "row"
        )
        steps.append(Step(member.node, index, rindex, level))
    names = lambda buffers: frozenset(b.name for b in buffers)
    return FusedKernel(
        name, group.loops, tuple(steps), names(group.stores), names(group.reads), saved
    )
