"""Groups become fewer: the pair that saves most is fused first, and it goes on until no pair is
left.

In:  loop nodes, and `can_fuse`, the answer to "should these two be one kernel?"
Out: a `Fusion`: the groups that are left, in an order that respects who needs what, and the answers
     that were given on the way.
In PyTorch: `torch/_inductor/scheduler.py`: `Scheduler.fuse_nodes`, `Scheduler.fuse_nodes_once`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from course_lib.lowering.ir import ExternKernel, LoopGraph, Node
from course_lib.scheduling.dependencies import Body, read_names
from course_lib.scheduling.fitting import join
from course_lib.scheduling.fusion import LEGAL, Fuse, No, can_fuse, is_small, is_too_long
from course_lib.scheduling.groups import Group, Usage, start, to_kernel
from course_lib.scheduling.kernel import Kernel
from course_lib.scheduling.order import Order
from course_lib.sizes import hint

CanFuse = Callable[[Group, Group], Fuse | No]
# Of the readers of one buffer, runs of so many are compared with each other: with all, a buffer
# that a thousand loops read would give half a million pairs
SIBLINGS = 8
NAMED = 5  # Nodes that a kernel is named after


class Decision(NamedTuple):
    """What was decided about two groups, `producer` first in the program."""

    producer: str
    consumer: str
    answer: Fuse | No

    def __str__(self) -> str:
        return f"{self.producer} → {self.consumer}: {self.answer}"


@dataclass(order=True)
class Candidate:
    """Two groups that may become one kernel.

    Candidates are compared field by field, and the least comes first: the greatest saving, then the
    first in the program. A pair that was asked comes before the pairs behind it that may save as
    much. So it is fused before these are asked; some have lost a group by then, and never are."""

    # Negative, so that the greatest saving is the least
    minus_saved: int
    producer_positions: tuple[int, ...]
    consumer_positions: tuple[int, ...]
    # False: it saves at most so many bytes (`most_bytes_saved`). True: `can_fuse` has said how many
    is_known: bool
    producer: Group = field(compare=False)
    consumer: Group = field(compare=False)


class Fusion:
    """Groups of nodes, and the work of making them fewer."""

    def __init__(
        self, nodes: list[Node], bodies: Mapping[Node, Body], graph: LoopGraph, can_fuse: CanFuse
    ) -> None:
        self.nodes = nodes
        self.can_fuse = can_fuse

        readers: dict[str, set[Node]] = {name: set() for name in graph.buffers}
        for node in nodes:
            for name in read_names(node, bodies):
                readers[name].add(node)
        self.usage = Usage(graph.buffers, readers, graph.returned)

        # One group for each node, and those that must run before it
        self.alone = []
        for n, node in enumerate(nodes):
            self.alone.append(start(node, n, self.usage, bodies.get(node)))
        self.order = Order(self.alone)

        # The groups by their slots. One that is made of two takes the slot of the first
        self.slots = dict(enumerate(self.alone))
        self.slot_of = {group: n for n, group in self.slots.items()}

        # What was said of each pair that was asked
        self.answers: dict[tuple[Group, Group], Fuse | No] = {}
        # The pairs that were fused, in this order
        self.done: list[Decision] = []

    @property
    def decides_by_our_rules(self) -> bool:
        """True for `fusion.can_fuse`, False for a learner's own, whose decisions are not improved
        upon."""
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

        A pair waits by the most bytes that it could save, and is asked only when its turn comes;
        then it waits once more, by what it saves. So a pair with a group that is gone by then is
        never asked. (Two small kernels of a GPU may save nothing but a start. They wait with 0
        bytes, behind all that save traffic.)
        """
        self.order.note_what_is_before()
        gone: set[Group] = set()
        queue = []
        for a, b in self.pairs():
            # A pair that was asked and is still there could not be one, and cannot be now, either.
            is_open = (a, b) not in self.answers
            if is_open and not (self.decides_by_our_rules and is_too_long(a, b)):
                most = most_bytes_saved(a, b)
                queue.append(Candidate(-most, a.positions, b.positions, False, a, b))
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
        """Pairs with something between them: one reads what the other writes, or both read the
        same."""
        readers = self.readers_by_buffer()
        pairs = self.producers_with_consumers(readers)

        # Where nothing goes from one to the other, either may come first: one order is enough.
        for first, second in [*siblings(readers), *self.small_neighbours()]:
            if (second, first) not in pairs:
                pairs.add((first, second))

        return sorted(pairs, key=lambda pair: (pair[0].positions, pair[1].positions))

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
        pairs: set[tuple[Group, Group]] = set()
        for group in self.slots.values():
            for buffer in group.writes:
                pairs.update((group, reader) for reader in readers.get(buffer.name, ()))
        return pairs

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
        if isinstance(answer, Fuse) and not self.decides_by_our_rules:
            legal = can_fuse(a, b, LEGAL)
            if isinstance(legal, No):
                return legal
        return answer

    def is_returned(self, group: Group) -> bool:
        """True if an output of the program is stored here."""
        return any(buffer.name in self.usage.outputs for buffer in group.stores)

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
    pairs = []
    for group in readers.values():
        loops = [each for each in group if not each.is_extern]
        for n, first in enumerate(loops):
            pairs += [(first, second) for second in loops[n + 1 : n + SIBLINGS]]
    return pairs


def by_position(group: Group) -> tuple[int, ...]:
    """To sort groups in program order."""
    return group.positions


def by_sizes(group: Group) -> tuple[list[int], tuple[int, ...]]:
    """To sort groups so that those with the same loops stand side by side."""
    return [hint(loop.size) for loop in group.loops], group.positions


def most_bytes_saved(a: Group, b: Group) -> int:
    """Fusing saves no more traffic than this: the second reading of what both read; of what goes
    from one to the other its reading, and its writing if nobody else needs it.

    (`fusion.saved` may be more: it counts a start that a GPU is spared as bytes.)"""
    most = sum(buffer.nbytes for buffer in a.reads & b.reads)
    for buffer in a.writes & b.reads:
        most += buffer.nbytes

        readers_elsewhere = a.usage.readers[buffer.name] - a.set_of_nodes - b.set_of_nodes
        if buffer.name not in a.usage.outputs and not readers_elsewhere:
            most += buffer.nbytes
    return most
