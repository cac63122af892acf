"""From loop nodes to kernels, in an order that respects who needs what.

In:  a `LoopGraph`, and `can_fuse`, the answer to "should these two be one kernel?" (`scheduling.fusion`, or a learner's own).
Out: a `Schedule`: `FusedKernel`s and `ExternKernel`s in order, with every decision and its reason.

What happens here: nodes that nobody needs are removed; each node becomes a group; pairs of groups are fused, the pair that
saves most first; cheap loops that could not be fused are computed inside the loops that read them (`inline`), and it all
starts once more. `can_fuse` says what is worth it; that a pair is legal, and no kernel before one that it needs, is checked.
In PyTorch: `torch/_inductor/scheduler.py`: `Scheduler.fuse_nodes`, `will_fusion_create_cycle`, `topological_sort_schedule`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from heapq import heapify, heappop, heappush
from itertools import pairwise
from operator import or_
from typing import Any, NamedTuple

from course_lib.lowering.ir import ExternKernel, Inline, LoopGraph, Node
from course_lib.scheduling.dependencies import Body, read_names, record_all
from course_lib.scheduling.fusion import LEGAL, Fuse, No, can_fuse, human_bytes, is_small
from course_lib.scheduling.groups import Group, Member, Usage, fit, join, start, to_kernel
from course_lib.scheduling.kernel import FusedKernel, Kernel

CanFuse = Callable[[Group, Group], Fuse | No]
SIBLINGS = 8  # How many of the readers of one buffer are compared with each other
# A loop that reads less than one in so many elements of another's result had better compute them itself
FEW = 8


class Decision(NamedTuple):
    """What was decided about two groups, `producer` first in the program."""

    producer: str
    consumer: str
    answer: Fuse | No

    def __str__(self) -> str:
        return f"{self.producer} → {self.consumer}: {self.answer}"


@dataclass
class Schedule:
    """Kernels in the order in which they run."""

    kernels: list[Kernel]
    groups: list[Group] = field(repr=False)  # The group that each kernel was made of
    alone: list[Group] = field(repr=False)  # What there was before: one group for each live node
    decisions: list[Decision]  # Each pair once: those that were fused, then those that stayed apart
    # Loops that were computed again inside those that read them, with the reason
    inlined: list[str]
    removed: list[str]  # Nodes that nobody needed, or that computed what was there already

    @property
    def fused(self) -> list[FusedKernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, FusedKernel)]

    @property
    def bytes_before(self) -> int:
        """Traffic if each loop node ran alone."""
        return sum((group.traffic for group in self.alone), 0)

    @property
    def bytes_after(self) -> int:
        return sum((group.traffic for group in self.groups), 0)

    def __str__(self) -> str:
        lines = [
            (group.traffic, str(kernel))
            for kernel, group in zip(self.kernels, self.groups, strict=True)
        ]
        lines.append((self.bytes_after, f"in all, instead of {human_bytes(self.bytes_before)}"))
        return "\n".join(f"{human_bytes(count):>10}  {text}" for count, text in lines)


def schedule(graph: LoopGraph, can_fuse: CanFuse = can_fuse) -> Schedule:
    """Group the nodes of `graph` into kernels."""
    nodes = graph.nodes
    alone: list[Group] = []
    inlined: list[str] = []
    removed: list[str] = []
    while True:
        bodies = record_all(nodes, graph.buffers)
        nodes, gone = live_nodes(nodes, bodies, graph.returned)
        fusion = Fusion(nodes, bodies, graph, can_fuse)
        if not alone:
            alone, removed = (
                fusion.alone,
                gone + [f"{node} (same as {other})" for node, other in graph.duplicates],
            )
        why, pairs = "only a few of its elements are read", fusion.hardly_read()
        if not pairs:
            fusion.run()
            why, pairs = "cheap to compute again where it is read", fusion.to_inline()
        if not pairs:
            break
        inlined += dict.fromkeys(f"{producer}: {why}" for producer, _ in pairs)
        become: dict[Node, Node] = {}
        for node in nodes:
            become[node] = inlined_into(
                node, [become[producer] for producer, reader in pairs if reader is node]
            )
        nodes = list(become.values())

    names: Counter[str] = Counter()
    groups, apart = (
        fusion.in_order(),
        [Decision(str(a), str(b), fusion.ask(a, b)) for a, b in fusion.pairs()],
    )
    fit.cache_clear()  # it holds groups that were never made
    return Schedule(
        [fusion.kernel(g, names) for g in groups],
        groups,
        alone,
        fusion.done + apart,
        inlined,
        removed,
    )


def inlined_into(node: Node, producers: Sequence[Any]) -> Node:
    """`node` with the bodies of `producers` in place of loads from them."""
    if isinstance(node, ExternKernel) or not producers:
        return node
    by_name = {producer.buffer.name: producer for producer in producers}
    origins = tuple(dict.fromkeys([*(o for p in producers for o in p.origins), *node.origins]))
    return replace(
        node,
        inner=lambda ops, *indices: node.inner(Inline(ops, by_name), *indices),
        origins=origins,
    )


def live_nodes(
    nodes: Sequence[Node], bodies: Mapping[Node, Body], outputs: set[str]
) -> tuple[list[Node], list[str]]:
    """The nodes that an output or a side effect needs, and the names of the others."""
    needed = set(outputs)
    live: list[Node] = []
    removed: list[str] = []
    for node in reversed(nodes):
        acts = isinstance(node, ExternKernel) and node.acts
        if acts or needed & {b.name for b in node.buffers}:
            live.append(node)
            needed |= read_names(node, bodies)
        else:
            removed.append(f"{node} (nobody needs it)")
    return live[::-1], removed[::-1]


class Fusion:
    """Groups of nodes, and the work of making them fewer."""

    def __init__(
        self, nodes: list[Node], bodies: Mapping[Node, Body], graph: LoopGraph, can_fuse: CanFuse
    ) -> None:
        self.can_fuse = can_fuse
        readers: dict[str, set[Node]] = {name: set() for name in graph.buffers}
        for node in nodes:
            for name in read_names(node, bodies):
                readers[name].add(node)
        self.usage = Usage(graph.buffers, readers, graph.returned)
        self.alone = [start(node, n, self.usage, bodies.get(node)) for n, node in enumerate(nodes)]
        self.groups = list(self.alone)
        self.needs = dependencies(self.alone)
        # The nodes of each: bits, for they may be thousands
        self.bits = {group: 1 << n for n, group in enumerate(self.alone)}
        # For each group the nodes (bits) that must run before it, directly or not
        self.before: dict[Group, int] = {}
        for group in self.alone:
            self.before[group] = reduce(
                or_, (self.before[needed] | self.bits[needed] for needed in self.needs[group]), 0
            )
        self.answers: dict[tuple[Group, Group], Fuse | No] = {}
        self.done: list[Decision] = []

    def run(self) -> None:
        """Fuse the pair that saves most, again and again."""
        while True:
            gone: set[Group] = set()
            queue = [(-most(a, b), False, a.positions, b.positions, a, b) for a, b in self.pairs()]
            heapify(queue)
            # a pair is asked only if it could save most, and neither group is gone by then
            while queue:
                _, known, *_places, a, b = heappop(queue)
                if a in gone or b in gone or not isinstance(answer := self.ask(a, b), Fuse):
                    continue
                if known:
                    self.fuse(a, b, answer)
                    gone |= {a, b}
                else:
                    heappush(queue, (-answer.saved, True, a.positions, b.positions, a, b))
            if not gone:
                return

    def fuse(self, a: Group, b: Group, answer: Fuse) -> None:
        both = join(a, b)
        assert both is not None
        self.done.append(Decision(str(a), str(b), answer))
        self.groups = [both if g is a else g for g in self.groups if g is not b]
        self.needs[both] = (self.needs.pop(a) | self.needs.pop(b)) - {a, b}
        inside = self.bits[both] = self.bits[a] | self.bits[b]
        earlier = self.before[both] = (self.before.pop(a) | self.before.pop(b)) & ~inside
        for group in self.groups:
            if self.before[group] & inside:
                self.before[group] |= earlier | inside
            if (needs := self.needs[group]) & {a, b}:
                needs -= {a, b}
                needs.add(both)

    def pairs(self) -> list[tuple[Group, Group]]:
        """Pairs with something between them: one reads what the other writes, or both read the same."""
        home = {b.name: g for g in self.groups for b in g.writes}
        readers: dict[str, list[Group]] = {}
        for group in sorted(self.groups, key=lambda group: group.positions):
            for buffer in group.reads:
                readers.setdefault(buffer.name, []).append(group)
        found = {
            (home[name], reader)
            for name, those in readers.items()
            if name in home
            for reader in those
        }
        for those in readers.values():
            loops = [group for group in those if not group.is_extern]
            for n, first in enumerate(loops):
                found |= {
                    (first, second)
                    for second in loops[n + 1 : n + SIBLINGS]
                    if (second, first) not in found
                }
        small = sorted(
            filter(is_small, self.groups),
            key=lambda group: ([loop.size for loop in group.loops], group.positions),
        )
        found |= {(a, b) for a, b in pairwise(small) if (b, a) not in found}
        return sorted(found, key=lambda pair: (pair[0].positions, pair[1].positions))

    def ask(self, a: Group, b: Group) -> Fuse | No:
        """The answer about a pair: what `can_fuse` says, if it is legal at all."""
        if (a, b) not in self.answers:
            answer = self.can_fuse(a, b)
            if (
                isinstance(answer, Fuse)
                and self.can_fuse is not can_fuse
                and isinstance(legal := can_fuse(a, b, LEGAL), No)
            ):
                answer = legal
            self.answers[a, b] = answer
        answer = self.answers[a, b]
        if isinstance(answer, Fuse) and (via := self.path(a, b)):
            return No(
                f"between them runs {via}, which needs the first and is needed by the second",
                answer.saved,
            )
        return answer

    def path(self, a: Group, b: Group) -> Group | None:
        """A third group on a way from one to the other: fused, they would have to run both before and after it."""
        ways = [
            (group, first)
            for first, last in ((a, b), (b, a))
            for group in self.needs[last]
            if group is not first
        ]
        between = [group for group, first in ways if self.before[group] & self.bits[first]]
        return min(between, key=lambda group: group.positions, default=None)

    def hardly_read(self) -> list[tuple[Node, Node]]:
        """Cheap loops of which another reads few elements (a gather after log_softmax), each with that other."""
        cheap = {
            member.node.buffer: member.node
            for group in self.alone
            for member in group.members
            if member.is_cheap
        }
        pairs = [
            (group, b)
            for group in self.alone
            for b in sorted(group.reads & cheap.keys(), key=lambda b: b.name)
        ]
        few = lambda group, b: (
            group.touched(b) * FEW < b.nbytes and b.name not in self.usage.outputs
        )
        return [(cheap[b], group.nodes[0]) for group, b in pairs if few(group, b)]

    def to_inline(self) -> list[tuple[Node, Node]]:
        """Cheap loops that only loops read, none of which they could be fused with, each with those that read it."""
        home = {node: group for group in self.groups for node in group.nodes}
        pairs: list[tuple[Node, Node]] = []
        for group in self.groups:
            readers = {home[n] for b in group.stores for n in self.usage.readers[b.name]} - {group}
            cheap = all(member.is_cheap for member in group.members)
            if (
                group.is_extern
                or not cheap
                or not readers
                or any(b.name in self.usage.outputs for b in group.stores)
            ):
                continue
            if all(not r.is_extern and isinstance(can_fuse(group, r, LEGAL), No) for r in readers):
                pairs += [
                    (node, reader)
                    for node in group.nodes
                    for b in node.buffers
                    for reader in self.usage.readers[b.name]
                ]
        # another's opinion is not improved upon
        groups = self.groups if self.can_fuse is can_fuse else ()
        return pairs or [
            pair
            for group in groups
            for member in group.members
            for pair in self.to_remake(group, member)
        ]

    def to_remake(self, group: Group, member: Member) -> list[tuple[Node, Node]]:
        """What is stored for loops elsewhere, and hardly more than another buffer's elements: these read that one instead."""
        node, size = member.node, member.node.buffer.nbytes
        if len(group.nodes) == 1 or not (member.is_cheap and node.buffer in group.stores):
            return []
        large = [a for a in member.body.reads if 8 * self.usage.buffers[a.buffer].nbytes > size]
        one = (
            len(large) == 1
            and large[0].index == member.body.write.index
            and self.usage.buffers[large[0].buffer]
        )
        readers = self.usage.readers[node.buffer.name].difference(group.nodes)
        fits = (
            one
            and one not in group.writes
            and one.nbytes <= size
            and node.buffer.name not in self.usage.outputs
        )
        return (
            [(node, r) for r in readers]
            if fits and not any(isinstance(r, ExternKernel) for r in readers)
            else []
        )

    def in_order(self) -> list[Group]:
        """Each group after those that it needs; where there is a choice, in program order."""
        left, order = (
            sorted(self.groups, key=lambda group: max(group.positions)),
            dict[Group, None](),
        )
        while left:
            group = next(each for each in left if self.needs[each] <= order.keys())
            left.remove(group)
            order[group] = None
        return list(order)

    def kernel(self, group: Group, names: Counter[str]) -> Kernel:
        if isinstance(group.nodes[0], ExternKernel):
            return group.nodes[0]
        name = "_".join(
            ["fused", *list(dict.fromkeys(re.sub(r"\W+", "_", n.label) for n in group.nodes))[:5]]
        )
        names[name] += 1
        gain = sum((self.alone[n].traffic for n in group.positions), 0) - group.traffic
        return to_kernel(group, name if names[name] == 1 else f"{name}_{names[name]}", gain)


def most(a: Group, b: Group) -> int:
    """At least the bytes that fusing saves: what both read, and what goes from one to the other, written and read."""
    return sum(buffer.nbytes for buffer in (*(a.reads & b.reads), *(2 * [*(a.writes & b.reads)])))


def dependencies(groups: Sequence[Group]) -> dict[Group, set[Group]]:
    """For each group those that must run before it: who wrote what it reads, and of those with an effect who comes before."""
    writer = {buffer.name: group for group in groups for buffer in group.writes}
    needs = {
        group: {writer[b.name] for b in group.reads if b.name in writer} - {group}
        for group in groups
    }
    acting = [
        group
        for group in groups
        if isinstance(group.nodes[0], ExternKernel) and group.nodes[0].acts
    ]
    for before, after in pairwise(acting):
        needs[after].add(before)
    return needs
