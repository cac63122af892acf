"""What the interpreted program has changed outside so far.

In:  a `World`.
Out: for each object from outside that differs from the real one, what it holds now. The head makes
     all of it real in the end; some calls want to know of it before: what a function reads that is
     not followed, and what runs again in backward.
In PyTorch: `torch/_dynamo/side_effects.py` (`SideEffects.is_empty`, `SideEffects.diff`).
"""

from collections.abc import Iterable
from typing import Any

from course_lib.capture.classes import MISSING, own_dict
from course_lib.capture.known import Known
from course_lib.capture.stand_ins.iterators import Remaining
from course_lib.capture.stand_ins.kinds import MAPPINGS, solid_base
from course_lib.capture.stand_ins.slots import in_slots
from course_lib.capture.world import World


def changes(world: World) -> dict[Any, Any]:
    """Each change by its place, so that two moments can be compared.

    Objects are compared by `id`, so no code of the user's runs."""
    state_by_place: dict[Any, Any] = {}
    # An iterator or a container may be met while another one is looked at
    for known in list(world.known.values()):
        state_by_place |= changes_of(known)

    for other in world.others:
        if state := other.state():
            state_by_place[id(other)] = state
    for key, stored in world.stored.items():
        state_by_place[key] = id(stored.value)
    return state_by_place


def changes_of(known: Known) -> dict[Any, Any]:
    """What has changed of one object from outside."""
    changed: dict[Any, Any] = {}
    if type(known.stand_in) is Remaining and known.stand_in.taken:
        changed[id(known), "taken"] = known.stand_in.taken

    if known.before is not None:
        now = items(known.stand_in)
        if now != kept(known):
            changed[id(known), "items"] = now

    if known.attributes is not None:
        changed |= attribute_changes(known, known.attributes)
    return changed


def has_changed(world: World) -> bool:
    """Has the program changed anything outside?"""
    return bool(changes(world))


def items(container: Any) -> list[int]:
    """Which objects a container holds; of a mapping, keys and values in turn."""
    if isinstance(container, MAPPINGS):
        base: Any = solid_base(type(container))
        return ids_of_pairs(base.items(container))
    if type(container) is set:
        return list(map(id, container))
    return list(map(id, list_of(container)))


def ids_of_pairs(pairs: Iterable[Any]) -> list[int]:
    ids = []
    for key, value in pairs:
        ids += [id(key), id(value)]
    return ids


def list_of(container: Any) -> list[Any]:
    """What the container's own class in C has stored: a subclass may say something else."""
    base: Any = solid_base(type(container))
    return list(base.__iter__(container))


def kept(known: Known) -> list[int]:
    """Which objects the stand-in of a container held when it was made."""
    before = known.before
    if isinstance(before, dict):
        return ids_of_pairs(before.items())

    ids = list(map(id, before))
    # Two sets of the same objects may have them in another order
    if type(known.stand_in) is set and set(ids) == set(map(id, known.stand_in)):
        return items(known.stand_in)
    return ids


def attribute_changes(known: Known, before: dict[str, Any]) -> dict[Any, Any]:
    """The attributes of an instance, or the content of a cell, that are other objects than they
    were."""
    now = own_dict(known.stand_in) | in_slots(known.stand_in)
    changed: dict[Any, Any] = {}
    for name, value in now.items():
        if before.get(name, MISSING) is not value:
            changed[id(known), name] = id(value)

    # What is gone has no object any more
    for name, value in before.items():
        if value is not MISSING and name not in now:
            changed[id(known), name] = None
    return changed
