"""Loops that may run together: the groups that the scheduler makes kernels of.

In:  a loop node and what it touches (`scheduling.dependencies`).
Out: a `Group` of one node, its loops in the order in which they walk through memory.
     `scheduling.fitting` joins groups.

Loops that no formula tells apart become one (`collapse`): [4096, 768] over dense memory is
[3145728].
In PyTorch: `torch/_inductor/scheduler.py`, `SchedulerNode`; `torch/_inductor/sizevars.py`,
`simplify_with_ranges`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import sympy

from course_lib.lowering.indexing import Linear, loop_symbols
from course_lib.lowering.ir import Buffer, ExternKernel, LoopNode, Node, Pointwise, Reduction
from course_lib.scheduling.dependencies import Access, Body, InOtherLoops
from course_lib.scheduling.expressions import COSTLY
from course_lib.scheduling.kernel import FusedKernel, Kind, Level, Loop, Nest, Step
from course_lib.sizes import hint, is_size, same

# A loop is cheap to compute again if it has at most so many operations, and reads so many buffers
MOST_OPERATIONS = 8
MOST_BUFFERS = 2


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
        if not isinstance(self.node, Pointwise):
            return False

        buffers = {access.buffer for access in self.body.reads}
        operations = self.body.operations
        if len(operations) > MOST_OPERATIONS or len(buffers) > MOST_BUFFERS:
            return False
        return not COSTLY.intersection(operations)

    def reduces_over(self, loop: Loop) -> bool:
        """True if what this node reduces moves with `loop`."""
        return any(formula.moves_with(loop.symbol) for formula in self.rindex)


@dataclass(eq=False)
class Group(Nest):
    """Nodes that run as one kernel; at first there is one group for each node.

    `positions` are their places in the program."""

    usage: Usage
    positions: tuple[int, ...]
    nodes: tuple[Node, ...]
    loops: tuple[Loop, ...] = ()
    members: tuple[Member, ...] = ()

    @property
    def is_extern(self) -> bool:
        return isinstance(self.nodes[0], ExternKernel)

    @cached_property
    def set_of_nodes(self) -> frozenset[Node]:
        return frozenset(self.nodes)

    @cached_property
    def loads(self) -> list[Access]:
        """Every element that the bodies read."""
        return [access for member in self.members for access in member.body.reads]

    @cached_property
    def indices(self) -> dict[str, set[Linear]]:
        """For each buffer that the bodies read: at which indices."""
        indices_of: dict[str, set[Linear]] = {}
        for buffer, index in self.loads:
            indices_of.setdefault(buffer, set()).add(index)
        return indices_of

    @cached_property
    def writes(self) -> frozenset[Buffer]:
        """The buffers computed here."""
        return frozenset(buffer for node in self.nodes for buffer in node.buffers)

    @cached_property
    def reads(self) -> frozenset[Buffer]:
        """The buffers that come from elsewhere."""
        names = set(self.indices)
        for node in self.nodes:
            if isinstance(node, ExternKernel):
                names |= node.reads

        return frozenset(self.usage.buffers[name] for name in names) - self.writes

    @cached_property
    def stores(self) -> frozenset[Buffer]:
        """The buffers computed here that others need: they must reach memory."""
        if self.is_extern:
            return self.writes

        stored_buffers = set()
        for buffer in self.writes:
            read_elsewhere = self.usage.readers[buffer.name] - self.set_of_nodes
            if buffer.name in self.usage.outputs or read_elsewhere:
                stored_buffers.add(buffer)
        return frozenset(stored_buffers)

    @cached_property
    def mismatched(self) -> tuple[str, ...]:
        """Buffers computed here of which other elements are needed at once: with any, these nodes
        cannot run together."""
        index_of_write = {
            member.body.write.buffer: member.body.write.index for member in self.members
        }

        # A dictionary for its order: the names appear in reasons.
        buffers: dict[str, None] = {}
        for access in self.loads:
            if access.index != index_of_write.get(access.buffer, access.index):
                buffers[access.buffer] = None
        return tuple(buffers)

    @cached_property
    def across(self) -> dict[Buffer, tuple[Loop, ...]]:
        """Sums over rows, and over which: complete only after the last of these, so nothing here
        can use them."""
        loops_of_sum = {}
        rows = self.rows
        for member in self.members:
            # (Asked first, for most members reduce nothing.)
            reduces = bool(member.rindex)
            loops = tuple(loop for loop in rows if reduces and member.reduces_over(loop))
            if loops:
                loops_of_sum[member.node.buffer] = loops
        return loops_of_sum

    @cached_property
    def traffic(self) -> int:
        """Bytes that this kernel moves: each element that it reads or stores, once."""
        read = sum((self.touched(buffer) for buffer in self.reads), 0)
        stored = sum((buffer.nbytes for buffer in self.stores), 0)
        return read + stored

    def touched(self, buffer: Buffer) -> int:
        """Bytes of `buffer` that are read: not more than it has, nor than there are loop
        iterations."""
        if self.is_extern:
            return buffer.nbytes

        elements = 0
        for index in self.indices.get(buffer.name, ()):
            # A place that was looked up may be another one in each iteration.
            is_lookup = not is_size(index.constant)
            loops = [loop for loop in self.loops if is_lookup or index.moves_with(loop.symbol)]
            elements += math.prod(hint(loop.size) for loop in loops)

        return min(elements, hint(buffer.numel)) * buffer.dtype.itemsize

    def __str__(self) -> str:
        if self.is_extern:
            return str(self.nodes[0])
        return super().__str__()


def start(node: Node, position: int, usage: Usage, body: Body | None) -> Group:
    """The group of one node: its loops in the order in which they walk through memory, merged where
    possible."""
    if isinstance(node, ExternKernel) or body is None:
        return Group(usage, (position,), (node,))

    rows, columns = node.symbols
    outer = [Loop(symbol, size, "row") for symbol, size in zip(rows, node.ranges, strict=True)]
    inner = [
        Loop(symbol, size, "column") for symbol, size in zip(columns, node.reduced, strict=True)
    ]

    # Rows as the result lies in memory, columns as the first operand does; argmax counts its
    # columns in their own order.
    longest_step_first(outer, body.write.index)
    counts_columns = isinstance(node, Reduction) and node.combines.gives_place
    if body.reads and not counts_columns:
        longest_step_first(inner, body.reads[0].index)

    index = tuple(Linear(((symbol, 1),)) for symbol in rows)
    rindex = tuple(Linear(((symbol, 1),)) for symbol in columns)
    member = Member(node, index, rindex, body)
    return collapse(Group(usage, (position,), (node,), (*outer, *inner), (member,)))


def longest_step_first(loops: list[Loop], index: Linear) -> None:
    """Sort loops by how far each moves `index`."""
    loops.sort(key=lambda loop: -hint(index.coefficient(loop.symbol)))


def collapse(group: Group) -> Group:
    """Drop loops of one iteration, and merge neighbouring loops that no formula tells apart.

    An outer loop and an inner one of n iterations are one loop if a step of the outer one moves
    each formula as far as n steps of the inner one. The inner loop then goes on counting beyond n,
    and the outer one is dropped. What is left is named i0, i1, ... (rows) and j0, j1, ...
    (columns)."""
    # Symbol of an old loop → what stands in its place; nothing (0) for a loop that is dropped
    become: dict[sympy.Symbol, Linear] = {}
    formulas = [formula for member in group.members for formula in member.body.formulas]

    # From the innermost loop outwards
    merged: list[Loop] = []
    for loop in reversed(group.loops):
        if same(loop.size, 1):
            become[loop.symbol] = Linear()
        elif merged and are_one(loop, merged[-1], formulas):
            become[loop.symbol] = Linear()
            size_of_both = loop.size * merged[-1].size
            merged[-1] = merged[-1]._replace(size=size_of_both)
        else:
            merged.append(loop)
    merged.reverse()

    # Rows before columns, with new names
    left = [loop for loop in merged if loop.kind == "row"]
    left += [loop for loop in merged if loop.kind == "column"]
    renamed = []
    for loop, symbol in zip(left, symbols_for([loop.kind for loop in left]), strict=True):
        become[loop.symbol] = Linear(((symbol, 1),))
        renamed.append(loop._replace(symbol=symbol))

    return replace(group, loops=tuple(renamed), members=rewritten(group.members, become))


def are_one(outer: Loop, inner: Loop, formulas: Iterable[Linear]) -> bool:
    """True if no formula tells the two loops apart."""
    if outer.kind != inner.kind:
        return False
    return all(walks_on(formula, outer, inner) for formula in formulas)


def symbols_for(kinds: Sequence[Kind]) -> tuple[sympy.Symbol, ...]:
    """Rows are i0, i1, ..., and the columns after them j0, j1, ..."""
    return loop_symbols("i", kinds.count("row")) + loop_symbols("j", kinds.count("column"))


def walks_on(formula: Linear, outer: Loop, inner: Loop) -> bool:
    """True if a step of `outer` moves the formula as far as all steps of `inner` together."""
    if not (formula.is_affine_in(outer.symbol) and formula.is_affine_in(inner.symbol)):
        return False
    return same(formula.coefficient(outer.symbol), formula.coefficient(inner.symbol) * inner.size)


def rewritten(
    members: tuple[Member, ...], become: Mapping[sympy.Symbol, Linear]
) -> tuple[Member, ...]:
    """The members in terms of other loops."""
    if all(new.terms == ((old, 1),) for old, new in become.items()):
        return members

    # The members of a group share most of their formulas: each is computed once
    formulas = InOtherLoops(become)
    result = []
    for member in members:
        index = tuple([formulas[formula] for formula in member.index])
        rindex = tuple([formulas[formula] for formula in member.rindex])
        result.append(Member(member.node, index, rindex, member.body.in_other_loops(formulas)))
    return tuple(result)


def to_kernel(group: Group, name: str, saved: int) -> FusedKernel:
    """The group as code generation wants it."""
    steps = []
    for member in group.members:
        index = tuple(formula.expr for formula in member.index)
        rindex = tuple(formula.expr for formula in member.rindex)
        steps.append(Step(member.node, index, rindex, level_of(member, group, index)))

    stores = frozenset(buffer.name for buffer in group.stores)
    reads = frozenset(buffer.name for buffer in group.reads)
    return FusedKernel(name, group.loops, tuple(steps), stores, reads, saved)


def level_of(member: Member, group: Group, index: tuple[sympy.Expr, ...]) -> Level:
    """How often a member runs: for each column, once a row, or for each column on the way across
    rows."""
    if any(buffer.name == member.node.buffer.name for buffer in group.across):
        return "across"

    columns = {loop.symbol for loop in group.columns}
    uses_columns = any(columns & formula.free_symbols for formula in index)
    if member.rindex or uses_columns:
        return "column"
    return "row"
