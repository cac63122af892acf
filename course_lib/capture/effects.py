"""What the interpreted program has changed outside so far.

In:  a `World`.
Out: for each object from outside that differs from the real one, what it holds now. The head makes
     all of it real in the end; some calls want to know of it before: what a function reads that is
     not followed, and what runs again in backward.
In PyTorch: `torch/_dynamo/side_effects.py` (`SideEffects.is_empty`, `SideEffects.diff`).
"""

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from course_lib.capture.classes import MISSING, is_a, own_dict
from course_lib.capture.known import Known
from course_lib.capture.stand_ins.iterators import Remaining
from course_lib.capture.stand_ins.kinds import MAPPINGS, solid_base
from course_lib.capture.stand_ins.slots import in_slots
from course_lib.capture.world import World


class ChangedPart(NamedTuple):
    """What has changed: the `part` of an object from outside.

    `part`: the "items" of a container, what was "taken" from an iterator, an "attribute" of an
    instance or a cell; what was "stored" by name in another object (`world.stored`); the "state" of
    another effect (`world.others`).
    `holder`: the `id` of the object's `Known`, of what holds the stored value, or of the effect.
    `name`: of an attribute or a variable."""

    holder: int
    part: str
    name: str = ""


@dataclass(frozen=True)
class Held:
    """What is there now. Two are equal if they are the same objects, so no `__eq__` runs.

    The objects are kept. Else one could die, and a later one get its address."""

    ids: tuple[int, ...]
    objects: tuple[Any, ...] = field(compare=False, repr=False)

    @staticmethod
    def of(*objects: Any) -> "Held":
        return Held(tuple(map(id, objects)), objects)


def changes(world: World) -> dict[ChangedPart, Any]:
    """What each changed part holds now, so that two moments can be compared."""
    now_by_part: dict[ChangedPart, Any] = {}
    # An iterator or a container may be met while another one is looked at
    for known in list(world.known.values()):
        now_by_part |= changes_of(known)

    for other in world.others:
        if state := other.state():
            now_by_part[ChangedPart(id(other), "state")] = state
    for (holder, name), stored in world.stored.items():
        now_by_part[ChangedPart(holder, "stored", name)] = Held.of(stored.value)
    return now_by_part


def changes_of(known: Known) -> dict[ChangedPart, Any]:
    """What has changed of one object from outside."""
    changed: dict[ChangedPart, Any] = {}
    if type(known.stand_in) is Remaining and known.stand_in.taken:
        changed[ChangedPart(id(known), "taken")] = known.stand_in.taken

    if known.items_before is not None and holds_others(known):
        changed[ChangedPart(id(known), "items")] = Held.of(*items(known.stand_in))

    if known.attributes is not None:
        changed |= attribute_changes(known, known.attributes)
    return changed


def has_changed(world: World) -> bool:
    """Has the program changed anything outside?"""
    return bool(changes(world))


def holds_others(known: Known) -> bool:
    """Does the stand-in of a container hold other objects than when it was made, or in another
    order?"""
    before, now = objects_before(known), items(known.stand_in)
    if type(known.stand_in) is set:
        # A set has no order of its own.
        return set(map(id, before)) != set(map(id, now))
    return len(before) != len(now) or not all(map(operator.is_, before, now))


def objects_before(known: Known) -> list[Any]:
    """The objects that the stand-in of a container held when it was made."""
    if is_a(known.items_before, dict):
        return in_turn(known.items_before.items())
    return list(known.items_before)


def items(container: Any) -> list[Any]:
    """The objects that a container holds; of a mapping, keys and values in turn.

    The container's own class in C is asked: a class of the user's may say something else."""
    if type(container) is set:
        return list(container)

    base: Any = solid_base(type(container))
    if base in MAPPINGS:
        return in_turn(base.items(container))
    return list(base.__iter__(container))


def in_turn(pairs: Iterable[tuple[Any, Any]]) -> list[Any]:
    """`[key, value, key, value, ...]`"""
    listed = []
    for key, value in pairs:
        listed += [key, value]
    return listed


def attribute_changes(known: Known, before: dict[str, Any]) -> dict[ChangedPart, Any]:
    """The attributes of an instance, or the content of a cell, that are other objects than they
    were. `before`: as the stand-in was given them; MISSING where the real one has none."""
    now = own_dict(known.stand_in) | in_slots(known.stand_in)
    changed: dict[ChangedPart, Any] = {}
    for name, value in now.items():
        if before.get(name, MISSING) is not value:
            changed[ChangedPart(id(known), "attribute", name)] = Held.of(value)

    for name, value in before.items():
        if value is not MISSING and name not in now:
            changed[ChangedPart(id(known), "attribute", name)] = Held.of()  # it is gone
    return changed
