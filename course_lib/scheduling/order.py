"""Which groups must run before which.

In:  groups, and for each those that it needs.
Out: is there a third group on a way from one to another (`between`)? In which order can all run
     (`in_order`)?

Two groups with a third between them cannot be one: it would have to run both before and after it.
Each group has a place in an order that respects the needs. A way from one group to another only
leads through places between theirs, and two groups become one by moving only what lies there. So a
question costs as much as there is between the two, not as there is in the program.
In PyTorch: `torch/_inductor/scheduler.py`, `Scheduler.will_fusion_create_cycle`,
`topological_sort_schedule`. The places are kept as in Pearce and Kelly, "A Dynamic Topological Sort
Algorithm for Directed Acyclic Graphs" (2006).
"""

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import pairwise

from course_lib.lowering.ir import ExternKernel
from course_lib.scheduling.groups import Group


class Order:
    """Groups with those that each needs, while groups become fewer."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.needs = dependencies(groups)
        self.needed_by: dict[Group, set[Group]] = {group: set() for group in groups}
        for group, needs in self.needs.items():
            for needed in needs:
                self.needed_by[needed].add(group)

        # They come in an order that respects the needs.
        self.place = {group: n for n, group in enumerate(groups)}

        # A set of groups as one number: each group has a bit of its own.
        self.bit_of: dict[Group, int] = {}
        # For each group the set of those that must run before it, directly or not
        self.set_before: dict[Group, int] = {}
        self.note_what_is_before()

    def note_what_is_before(self) -> None:
        """Note of each group what must run before it.

        (It stays true when groups become one, but then there is more.)"""
        self.bit_of.clear()
        self.set_before.clear()
        for n, group in enumerate(sorted(self.needs, key=self.place.__getitem__)):
            self.bit_of[group] = 1 << n
            bits_before = 0
            for needed in self.needs[group]:
                bits_before |= self.set_before[needed] | self.bit_of[needed]
            self.set_before[group] = bits_before

    def known_between(self, a: Group, b: Group) -> list[Group]:
        """The groups on a way from one to the other, of those that the latter needs itself.

        Some may be missing: groups that became one since `note_what_is_before` have no bits.
        """
        first, last = sorted((a, b), key=self.place.__getitem__)
        bit_of_first = self.bit_of.get(first, 0)

        groups = []
        for group in self.needs[last]:
            if group is not first and self.set_before.get(group, 0) & bit_of_first:
                groups.append(group)
        return groups

    def between(self, a: Group, b: Group) -> bool:
        """Is there a third group on a way from one to the other?"""
        if self.known_between(a, b):
            return True

        first, last = sorted((a, b), key=self.place.__getitem__)
        visited = {first}
        ways = [group for group in self.needs[last] if group is not first]
        while ways:
            group = ways.pop()
            if group in visited or self.place[group] < self.place[first]:
                continue
            if first in self.needs[group]:
                return True

            visited.add(group)
            ways += self.needs[group]
        return False

    def merge(self, a: Group, b: Group, both: Group) -> None:
        """Put `both` in the place of two groups with none between them."""
        self.move_together(a, b, both)

        needs = self.needs.pop(a) | self.needs.pop(b)
        needed_by = self.needed_by.pop(a) | self.needed_by.pop(b)
        self.needs[both] = needs - {a, b}
        self.needed_by[both] = needed_by - {a, b}

        # The others now know the two by their new name.
        for group in self.needs[both]:
            self.needed_by[group] -= {a, b}
            self.needed_by[group].add(both)
        for group in self.needed_by[both]:
            self.needs[group] -= {a, b}
            self.needs[group].add(both)

    def move_together(self, a: Group, b: Group, both: Group) -> None:
        """A place for `both`: behind what the last of them needs, before what needs the first."""
        first, last = sorted((a, b), key=self.place.__getitem__)
        start, end = self.place.pop(first), self.place.pop(last)

        earlier = self.reached(last, self.needs, start, end, apart_from=first)
        later = self.reached(first, self.needed_by, start, end, apart_from=last)
        new_order = [*earlier, both, *later]

        places = sorted([*(self.place[group] for group in (*earlier, *later)), end])
        for group, place in zip(new_order, places, strict=True):
            self.place[group] = place

    def reached(
        self,
        group: Group,
        ways: Mapping[Group, set[Group]],
        start: int,
        end: int,
        apart_from: Group,
    ) -> list[Group]:
        """Those between two places that the `ways` lead to from a group, in their order."""
        groups: set[Group] = set()
        left = [group]
        while left:
            for other in ways[left.pop()]:
                if other is apart_from or other in groups:
                    continue
                if start < self.place[other] < end:
                    groups.add(other)
                    left.append(other)
        return sorted(groups, key=self.place.__getitem__)

    def in_order(self) -> list[Group]:
        """Each group after those that it needs; where there is a choice, in program order.

        A group is where its last node stands in the program (`max(group.positions)`)."""
        waits_for = {group: len(needs) for group, needs in self.needs.items()}
        by_end = {max(group.positions): group for group in self.needs}
        ready = [end for end, group in by_end.items() if not waits_for[group]]
        heapify(ready)

        order: list[Group] = []
        while ready:
            group = by_end[heappop(ready)]
            order.append(group)
            for other in self.needed_by[group]:
                waits_for[other] -= 1
                if not waits_for[other]:
                    heappush(ready, max(other.positions))
        return order


def dependencies(groups: Sequence[Group]) -> dict[Group, set[Group]]:
    """For each group the groups that must run before it.

    Those are the groups that write what it reads. Groups with an effect also keep their order: each
    needs the one before it."""
    writer = {buffer.name: group for group in groups for buffer in group.writes}
    needs: dict[Group, set[Group]] = {}
    for group in groups:
        needs[group] = {writer[b.name] for b in group.reads if b.name in writer} - {group}

    acting = [group for group in groups if has_effect(group)]
    for before, after in pairwise(acting):
        needs[after].add(before)
    return needs


def has_effect(group: Group) -> bool:
    """True for a call that does more than compute."""
    first = group.nodes[0]
    return isinstance(first, ExternKernel) and first.acts
