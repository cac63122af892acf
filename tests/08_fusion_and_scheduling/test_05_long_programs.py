"""Scheduling of long programs: the same decisions, in a time that grows hardly faster than the program."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import growing
import pytest
import torch
from aten_graphs import lowered

from course_lib.scheduling import schedule
from course_lib.scheduling.fusion import Fuse
from course_lib.scheduling.inlining import LONGEST
from course_lib.scheduling.merging import Fusion, most_bytes_saved
from course_lib.scheduling.order import Order


@dataclass(eq=False)
class Box:
    """What `Order` asks of a group."""

    positions: tuple[int, ...]
    reads: frozenset[object] = frozenset()
    writes: frozenset[object] = frozenset()
    nodes: tuple[object, ...] = field(default=(None,))


def random_order(draw: Random, count: int) -> Order:
    """Boxes, each of which needs a few of those before it."""
    boxes = [Box((n,)) for n in range(count)]
    order = Order(boxes)
    for n, box in enumerate(boxes[1:], 1):
        for needed in draw.sample(boxes[:n], min(n, draw.randrange(3))):
            order.needs[box].add(needed)
            order.needed_by[needed].add(box)
    return order


def all_before(order: Order, box: Box) -> set[Box]:
    """What must run before a box, by following every way."""
    found: set[Box] = set()
    left = [box]
    while left:
        for needed in order.needs[left.pop()] - found:
            found.add(needed)
            left.append(needed)
    return found


@pytest.mark.parametrize("seed", range(20))
def test_what_lies_between_is_found_while_groups_become_fewer(seed: int):
    draw = Random(seed)
    order = random_order(draw, 40)
    merged = 0

    for turn in range(200):
        if turn % 20 == 0:
            order.note_what_is_before()
        a, b = draw.sample(sorted(order.needs, key=lambda box: box.positions), 2)

        between = any(
            (a in all_before(order, other) and other in all_before(order, b))
            or (b in all_before(order, other) and other in all_before(order, a))
            for other in order.needs
        )
        assert order.between(a, b) == between
        if between or len(order.needs) < 4:
            continue

        order.merge(a, b, Box((*a.positions, *b.positions)))
        merged += 1
        assert all(
            order.place[needed] < order.place[box]
            for box, needs in order.needs.items()
            for needed in needs
        )
        assert {(x, y) for x in order.needs for y in order.needs[x]} == {
            (y, x) for x in order.needed_by for y in order.needed_by[x]
        } and set(order.in_order()) == set(order.needs)

    assert merged > 10


def test_loops_computed_again_do_not_pile_up():
    """Flips on the way up a U-Net: each is cheap and fits no other. One in another in another was a body without end."""
    function, args = growing.skips(400)
    graph = lowered(function, *args)
    result = schedule(graph)

    longest = max(len(node.origins) for kernel in result.fused for node in kernel.nodes)
    assert longest <= 2 * LONGEST


def test_a_program_five_times_as_long_asks_at_most_eight_times_as_much():
    """n log n and no more: counted in questions, not in seconds."""

    def questions(count: int) -> int:
        from course_lib.scheduling import can_fuse

        asked = 0

        def counting(a, b):
            nonlocal asked
            asked += 1
            return can_fuse(a, b)

        function, args = growing.grid(count)
        schedule(lowered(function, *args), counting)
        return asked

    torch.manual_seed(0)
    assert questions(500) < 8 * questions(100)


@pytest.mark.parametrize("kind", ["grid", "skips", "norms", "blocks"])
def test_a_pair_saves_no_more_than_it_waits_by(kind: str, monkeypatch: pytest.MonkeyPatch):
    """Else the pair that saves most would not come first. And most pairs that are asked are fused, so few are asked in vain."""
    asked = []
    opinion = Fusion.opinion

    def noting(self, a, b):
        answer = opinion(self, a, b)
        asked.append((a, b, answer))
        return answer

    monkeypatch.setattr(Fusion, "opinion", noting)
    torch.manual_seed(0)
    function, args = growing.GROWING[kind](120)
    result = schedule(lowered(function, *args))

    yes = [(a, b, answer) for a, b, answer in asked if isinstance(answer, Fuse)]
    assert yes and all(answer.saved <= most_bytes_saved(a, b) for a, b, answer in yes)
    assert result.kernels


def test_of_pairs_that_save_the_same_few_are_asked_in_vain():
    """A grid's pairs all save the same: each was asked before the first was fused."""
    from course_lib.scheduling import can_fuse

    asked = 0

    def counting(a, b):
        nonlocal asked
        asked += 1
        return can_fuse(a, b)

    torch.manual_seed(0)
    function, args = growing.grid(300)
    result = schedule(lowered(function, *args), counting)
    assert asked < 2 * len(result.alone)
