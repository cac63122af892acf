"""An iterator from outside, as one is alive in a loop whose body breaks the graph.

In:  an iterator of a list, a tuple, a range, a text or bytes, or `enumerate` or `zip` over such.
Out: `Remaining`, which gives what stands for the items to come; the head takes as many from the
real one.
In PyTorch there is no counterpart: TorchDynamo gives such a frame up.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from course_lib.capture.guard_tests import LengthIs
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import HELPERS, Source, Unsupported
from course_lib.capture.stand_ins.kinds import ITERATORS

if TYPE_CHECKING:
    from course_lib.capture.world import World


def iterator(world: World, obj: Any, source: Source) -> Any:
    """A rule of `make.py`: the stand-in of an iterator that can tell what it is going to give."""
    if type(obj) not in ITERATORS:
        return GO_ON

    world.assume_type(obj, source)
    with contextlib.suppress(TypeError):
        return world.know(Remaining(world, obj, source), obj, source).stand_in
    return GO_ON


class Remaining:
    """Stands for an iterator from outside: gives what stands for the items to come."""

    def __init__(self, world: World, real: Any, source: Source) -> None:
        self.world = world
        self.source = source.inside("upcoming")
        self.taken = 0
        self.parts: list[Any] = []
        self.items = upcoming(real, self.parts)

    def __iter__(self) -> Remaining:
        return self

    def __next__(self) -> Any:
        for part in self.parts:
            if self.is_used(part):
                raise Unsupported(
                    f"a {type(part).__name__} is used or changed while a loop takes items from it"
                )

        at = self.taken
        if at < len(self.items):
            self.taken = at + 1
            return self.world.wrap(self.items[at], self.source.item(at))

        # One more than there are: the head then asks the real one for its end, too.
        self.taken = len(self.items) + 1
        self.world.assume(self.source, "length", LengthIs(len(self.items)))
        raise StopIteration

    def is_used(self, part: Any) -> bool:
        """Has the program itself taken items from `part`, or changed it?

        `part`: a list, or another iterator, under this one."""
        known = self.world.stand_ins.get(id(part))
        if not known:
            return False  # the program never met it
        if type(known.stand_in) is Remaining:
            return True
        before, now = known.items_before or (), known.stand_in
        return [*map(id, before)] != [*map(id, now)]


def upcoming(real: Any, parts: list[Any]) -> list[Any]:
    """What an iterator is going to give. Nothing is taken from it, for guards ask at each call.

    Added to `parts`: what it takes its items from, a list or other iterators. Raises TypeError
    where one of these cannot be copied.
    """
    make, args, *state = real.__reduce__()
    parts += args
    if any(hasattr(arg, "__next__") and type(arg) not in ITERATORS for arg in args):
        raise TypeError("a look ahead would take something")

    # The same iterator once more, over copies of the iterators that it takes from.
    copies = list(args)
    for place, arg in enumerate(args):
        if type(arg) in ITERATORS:
            copies[place] = iter(upcoming(arg, parts))
    new_iterator = make(*copies)
    if state and state[0] is not None:
        new_iterator.__setstate__(state[0])
    return list(new_iterator)


def upcoming_items(real: Any) -> list[Any]:
    """`upcoming` of a real iterator, as guards and heads call it."""
    return upcoming(real, [])


HELPERS["upcoming"] = upcoming_items
