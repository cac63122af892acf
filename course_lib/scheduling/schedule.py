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
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any, NamedTuple

from course_lib.lowering.ir import ExternKernel, Index, Inline, LoopGraph, Node
from course_lib.lowering.ops import Handler, Value
from course_lib.scheduling.dependencies import Access, Body, read_names, record_all
from course_lib.scheduling.fitting import fit, join
from course_lib.scheduling.fusion import (
    LEGAL,
    Fuse,
    No,
    can_fuse,
    human_bytes,
    is_small,
    is_too_long,
)
from course_lib.scheduling.groups import Group, Member, Usage, start, to_kernel
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.order import Order
from course_lib.sizes import hint

CanFuse = Callable[[Group, Group], Fuse | No]
SIBLINGS = 8  # How many of the readers of one buffer are compared with each other
# A loop that reads less than one in so many elements of another's result had better compute them itself
FEW = 8
# A buffer is small beside another that is at least so many times as large
MUCH_LARGER = 8
NAMED = 5  # Nodes that a kernel is named after
LONGEST = (
    32  # Operations of the program that a loop may have in it for being computed again elsewhere
)
TURNS = 4  # How often it starts once more with loops inlined. In a long program each turn finds a few more


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
    # The group that each kernel was made of
    groups: list[Group] = field(repr=False)
    # What there was before: one group for each live node
    alone: list[Group] = field(repr=False)
    # Each pair once: those that were fused, then those that stayed apart
    decisions: list[Decision]
    # Loops that were computed again inside those that read them, with the reason
    inlined: list[str]
    # Nodes that nobody needed, or that computed what was there already
    removed: list[str]

    @property
    def fused(self) -> list[FusedKernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, FusedKernel)]

    @property
    def printed(self) -> list[Kernel]:
        """The kernels that have a source of ours, in the order of `CompiledGraph.kernels`."""
        calls = {k for k in self.kernels if isinstance(k, ExternKernel) and k.is_library}
        return [kernel for kernel in self.kernels if kernel not in calls]

    @property
    def bytes_before(self) -> int:
        """Traffic if each loop node ran alone."""
        calls = [kernel for kernel in self.kernels if isinstance(kernel, ExternKernel)]
        saved = sum(call.bytes_saved for call in calls)
        return saved + sum(group.traffic for group in self.alone)

    @property
    def bytes_after(self) -> int:
        return sum((group.traffic for group in self.groups), 0)

    def __str__(self) -> str:
        lines = []
        for kernel, group in zip(self.kernels, self.groups, strict=True):
            lines.append(f"{human_bytes(group.traffic):>10}  {kernel}")

        before = human_bytes(self.bytes_before)
        lines.append(f"{human_bytes(self.bytes_after):>10}  in all, instead of {before}")
        return "\n".join(lines)


class Inlining(NamedTuple):
    """`producer` is to be computed again inside `reader`."""

    producer: Node
    reader: Node


def schedule(graph: LoopGraph, can_fuse: CanFuse = can_fuse) -> Schedule:
    """Group the nodes of `graph` into kernels."""
    nodes = graph.nodes
    alone: list[Group] = []
    inlined: list[str] = []
    removed: list[str] = []

    # Each turn starts from single nodes; the next one, if any, has some of them inlined.
    bodies: dict[Node, Body] = {}
    for turns_left in range(TURNS, -1, -1):
        bodies = record_all(nodes, graph.buffers, bodies)
        nodes, gone = live_nodes(nodes, bodies, graph.returned)
        fusion = Fusion(nodes, bodies, graph, can_fuse)
        if turns_left == TURNS:
            repeated = [f"{node} (same as {other})" for node, other in graph.duplicates]
            alone, removed = fusion.alone, gone + repeated

        why, pairs = "only a few of its elements are read", fusion.hardly_read()
        if not pairs or not turns_left:
            fusion.run()
            why, pairs = "cheap to compute again where it is read", fusion.to_inline()

        pairs = short_enough(nodes, pairs)
        if not pairs or not turns_left:
            break

        inlined += dict.fromkeys(f"{pair.producer}: {why}" for pair in pairs)
        nodes = with_inlined(nodes, pairs)

    names: Counter[str] = Counter()
    groups = fusion.order.in_order()
    apart = [Decision(str(a), str(b), fusion.ask(a, b)) for a, b in fusion.pairs()]
    kernels = [fusion.kernel(group, names) for group in groups]

    # It holds groups that were never made.
    fit.cache_clear()
    decisions = [*graph.streams, *fusion.done, *apart]
    return Schedule(kernels, groups, alone, decisions, inlined, removed)


def short_enough(nodes: Sequence[Node], pairs: Sequence[Inlining]) -> list[Inlining]:
    """The pairs whose producer is not long by then: one in another in another, each is computed again in each."""
    producers_of = by_reader(pairs)
    length: dict[Node, int] = {}
    for node in nodes:
        inside = [length[producer] for producer in producers_of.get(node, ())]
        length[node] = len(node.origins) + sum(n for n in inside if n <= LONGEST)

    return [pair for pair in pairs if length[pair.producer] <= LONGEST]


def with_inlined(nodes: Sequence[Node], pairs: Sequence[Inlining]) -> list[Node]:
    """The nodes, each with those producers in its body that `pairs` names for it."""
    producers_of = by_reader(pairs)
    become: dict[Node, Node] = {}
    for node in nodes:
        producers = [become[producer] for producer in producers_of.get(node, ())]
        become[node] = inlined_into(node, producers)
    return list(become.values())


def by_reader(pairs: Sequence[Inlining]) -> dict[Node, list[Node]]:
    """For each reader its producers."""
    producers: dict[Node, list[Node]] = {}
    for pair in pairs:
        producers.setdefault(pair.reader, []).append(pair.producer)
    return producers


def inlined_into(node: Node, producers: Sequence[Any]) -> Node:
    """`node` with the bodies of `producers` in place of loads from them."""
    if isinstance(node, ExternKernel) or not producers:
        return node

    by_name = {producer.buffer.name: producer for producer in producers}

    def inner(ops: Handler, *indices: Index) -> Value:
        return node.inner(Inline(ops, by_name), *indices)

    origins = dict.fromkeys(origin for one in (*producers, node) for origin in one.origins)
    return replace(node, inner=inner, origins=tuple(origins))


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


@dataclass(order=True)
class Candidate:
    """Two groups that may become one kernel. The greatest saving comes first, then program order."""

    minus_saved: int
    # False: it saves at most so much. True: `can_fuse` said so
    is_known: bool
    producer_positions: tuple[int, ...]
    consumer_positions: tuple[int, ...]
    producer: Group = field(compare=False)
    consumer: Group = field(compare=False)


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

        # One group for each node, and those that must run before it
        self.alone = [start(node, n, self.usage, bodies.get(node)) for n, node in enumerate(nodes)]
        self.order = Order(self.alone)

        # The groups by their slots. One that is made of two takes the slot of the first
        self.slots = dict(enumerate(self.alone))
        self.slot_of = {group: n for n, group in self.slots.items()}

        self.answers: dict[tuple[Group, Group], Fuse | No] = {}
        self.done: list[Decision] = []

    @property
    def has_own_rules(self) -> bool:
        """Is it ours that decides? What another `can_fuse` decides is not improved upon."""
        return self.can_fuse is can_fuse

    @property
    def groups(self) -> list[Group]:
        """Those that there are now."""
        return list(self.slots.values())

    def run(self) -> None:
        """Fuse the pair that saves most, again and again."""
        while self.one_round():
            pass

    def one_round(self) -> bool:
        """Fuse what can be fused, each group at most once. True if anything was.

        A pair waits by the most that it could save, and is asked only when its turn comes; then it waits once more, by what
        it saves. So a pair with a group that is gone by then is never asked.
        """
        self.order.note_what_is_before()
        gone: set[Group] = set()
        queue = []
        for a, b in self.pairs():
            # What could not be one in the round before cannot be now, either.
            is_open = (a, b) not in self.answers
            if is_open and not (self.has_own_rules and is_too_long(a, b)):
                queue.append(Candidate(-most(a, b), False, a.positions, b.positions, a, b))
        heapify(queue)

        while queue:
            candidate = heappop(queue)
            a, b = candidate.producer, candidate.consumer
            if a in gone or b in gone:
                continue

            answer = self.answer_for(a, b)
            if isinstance(answer, No) or self.order.between(a, b):
                continue
            if candidate.is_known:
                self.fuse(a, b, answer)
                gone |= {a, b}
            else:
                heappush(queue, replace(candidate, minus_saved=-answer.saved, is_known=True))

        return bool(gone)

    def fuse(self, a: Group, b: Group, answer: Fuse) -> None:
        """Put one group in the place of two."""
        both = join(a, b)
        assert both is not None
        self.done.append(Decision(str(a), str(b), answer))

        slot = self.slot_of.pop(a)
        del self.slots[self.slot_of.pop(b)]
        self.slots[slot] = both
        self.slot_of[both] = slot
        self.order.merge(a, b, both)

    def pairs(self) -> list[tuple[Group, Group]]:
        """Pairs with something between them: one reads what the other writes, or both read the same."""
        readers = self.readers_by_buffer()
        found = self.producers_with_consumers(readers)

        # Two that are alike are a pair once, in one order.
        for first, second in [*siblings(readers), *self.small_neighbours()]:
            if (second, first) not in found:
                found.add((first, second))

        return sorted(found, key=lambda pair: (pair[0].positions, pair[1].positions))

    def readers_by_buffer(self) -> dict[str, list[Group]]:
        """For each buffer the groups that read it, in program order."""
        readers: dict[str, list[Group]] = {}
        for group in sorted(self.groups, key=by_position):
            for buffer in group.reads:
                readers.setdefault(buffer.name, []).append(group)
        return readers

    def producers_with_consumers(
        self, readers: Mapping[str, Sequence[Group]]
    ) -> set[tuple[Group, Group]]:
        """Each group with every reader of what it writes."""
        found: set[tuple[Group, Group]] = set()
        for group in self.slots.values():
            for buffer in group.writes:
                found.update((group, reader) for reader in readers.get(buffer.name, ()))
        return found

    def small_neighbours(self) -> list[tuple[Group, Group]]:
        """Small kernels of a GPU that run over alike loops."""
        small = sorted(filter(is_small, self.groups), key=by_sizes)
        return list(pairwise(small))

    def ask(self, a: Group, b: Group) -> Fuse | No:
        """The answer about a pair, and if another group keeps them apart, which one."""
        answer = self.answer_for(a, b)
        if isinstance(answer, No):
            return answer

        via = min(self.order.known_between(a, b), key=by_position, default=None)
        if via is None:
            return answer
        return No(
            f"between them runs {via}, which needs the first and is needed by the second",
            answer.saved,
        )

    def answer_for(self, a: Group, b: Group) -> Fuse | No:
        """The answer about a pair, whatever lies between them."""
        if (a, b) not in self.answers:
            self.answers[a, b] = self.opinion(a, b)
        return self.answers[a, b]

    def opinion(self, a: Group, b: Group) -> Fuse | No:
        """What `can_fuse` says. A learner's own may say yes to what is not legal."""
        answer = self.can_fuse(a, b)
        if isinstance(answer, Fuse) and not self.has_own_rules:
            legal = can_fuse(a, b, LEGAL)
            if isinstance(legal, No):
                return legal
        return answer

    def is_returned(self, group: Group) -> bool:
        """True if an output of the program is stored here."""
        return any(buffer.name in self.usage.outputs for buffer in group.stores)

    def hardly_read(self) -> list[Inlining]:
        """Cheap loops of which another reads few elements (a gather after log_softmax), each with that other."""
        members = [member for group in self.alone for member in group.members]
        cheap = {member.node.buffer: member.node for member in members if member.is_cheap}

        found = []
        for group in self.alone:
            for buffer in sorted(group.reads & cheap.keys(), key=lambda buffer: buffer.name):
                reads_few = group.touched(buffer) * FEW < buffer.nbytes
                if reads_few and buffer.name not in self.usage.outputs:
                    found.append(Inlining(cheap[buffer], group.nodes[0]))
        return found

    def to_inline(self) -> list[Inlining]:
        """Cheap loops that only loops read, none of which they could be fused with, each with those that read it."""
        home = {node: group for group in self.groups for node in group.nodes}

        found: list[Inlining] = []
        for group in self.groups:
            if self.is_cheap_and_apart(group, home):
                for node in group.nodes:
                    found += self.with_readers(node)
        if found:
            return found

        if self.has_own_rules:
            for group in self.groups:
                for member in group.members:
                    found += self.to_remake(group, member)
        return found

    def is_cheap_and_apart(self, group: Group, home: Mapping[Node, Group]) -> bool:
        """True if all of a group is cheap, and only loops read it that cannot be fused with it."""
        if group.is_extern or self.is_returned(group):
            return False
        if not all(member.is_cheap for member in group.members):
            return False

        readers = set()
        for buffer in group.stores:
            readers |= {home[node] for node in self.usage.readers[buffer.name]}
        readers.discard(group)
        return bool(readers) and all(cannot_be_fused(group, reader) for reader in readers)

    def with_readers(self, node: Node) -> list[Inlining]:
        """The node with each node that reads it."""
        found = []
        for buffer in node.buffers:
            found += [Inlining(node, reader) for reader in self.usage.readers[buffer.name]]
        return found

    def to_remake(self, group: Group, member: Member) -> list[Inlining]:
        """What is stored for loops elsewhere, and hardly more than another buffer's elements: these read that one instead."""
        node = member.node
        if not self.can_be_remade(group, member):
            return []

        readers = self.usage.readers[node.buffer.name].difference(group.nodes)
        if any(isinstance(reader, ExternKernel) for reader in readers):
            return []
        return [Inlining(node, reader) for reader in readers]

    def can_be_remade(self, group: Group, member: Member) -> bool:
        """True for a cheap value that is stored, and made of one large buffer (the same element of it) and of small ones."""
        buffer = member.node.buffer
        is_stored = member.is_cheap and buffer in group.stores
        if len(group.nodes) == 1 or not is_stored or buffer.name in self.usage.outputs:
            return False

        large = [each for each in member.body.reads if self.is_large_beside(each, buffer.nbytes)]
        if len(large) != 1 or large[0].index != member.body.write.index:
            return False

        source = self.usage.buffers[large[0].buffer]
        return source not in group.writes and source.nbytes <= buffer.nbytes

    def is_large_beside(self, access: Access, size: int) -> bool:
        """True if the buffer that is read is not small beside `size` bytes."""
        return MUCH_LARGER * self.usage.buffers[access.buffer].nbytes > size

    def kernel(self, group: Group, names: Counter[str]) -> Kernel:
        """The group as a kernel, with a name that no other has. `names` counts those in use."""
        first = group.nodes[0]
        if isinstance(first, ExternKernel):
            return first

        labels = dict.fromkeys(re.sub(r"\W+", "_", node.label) for node in group.nodes)
        name = "_".join(["fused", *list(labels)[:NAMED]])
        names[name] += 1
        if names[name] > 1:
            name = f"{name}_{names[name]}"

        alone = sum((self.alone[n].traffic for n in group.positions), 0)
        return to_kernel(group, name, alone - group.traffic)


def siblings(readers: Mapping[str, Sequence[Group]]) -> list[tuple[Group, Group]]:
    """Readers of the same buffer, each with the next few."""
    found = []
    for group in readers.values():
        loops = [each for each in group if not each.is_extern]
        for n, first in enumerate(loops):
            found += [(first, second) for second in loops[n + 1 : n + SIBLINGS]]
    return found


def by_position(group: Group) -> tuple[int, ...]:
    """To sort groups in program order."""
    return group.positions


def by_sizes(group: Group) -> tuple[list[int], tuple[int, ...]]:
    """To sort groups so that those with the same loops stand side by side."""
    return [hint(loop.size) for loop in group.loops], group.positions


def cannot_be_fused(group: Group, reader: Group) -> bool:
    """True if the reader is a loop that may not run together with the group."""
    return not reader.is_extern and isinstance(can_fuse(group, reader, LEGAL), No)


def most(a: Group, b: Group) -> int:
    """At least the bytes that fusing saves: what both read, and what goes from one to the other, written and read."""
    read_by_both = sum(buffer.nbytes for buffer in a.reads & b.reads)
    passed_on = sum(buffer.nbytes for buffer in a.writes & b.reads)
    return read_by_both + 2 * passed_on
