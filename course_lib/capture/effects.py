"""What the interpreted program has changed outside so far.

In:  a `World`.
Out: for each object from outside that differs from the real one, what it holds now. The head makes
     all of it real in the end; some calls want to know of it before: what a function reads that is
     not followed, and what runs again in backward.
In PyTorch: `torch/_dynamo/side_effects.py` (`SideEffects.is_empty`, `SideEffects.diff`).
"""

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
    for known in list(world.known.values()):
        if type(known.stand_in) is Remaining and known.stand_in.taken:
            state_by_place[id(known), "taken"] = known.stand_in.taken

        now = items(known.stand_in) if known.before is not None else []
        if known.before is not None and now != kept(known):
            state_by_place[id(known), "items"] = now

        if known.attributes is not None:
            state_by_place |= attribute_changes(known, known.attributes)
    state_by_place |= {id(other): other.state() for other in world.others if other.state()}
    for key, stored in world.stored.items():
        state_by_place[key] = id(stored.value)
    return state_by_place


def has_changed(world: World) -> bool:
    """Has the program changed anything outside?"""
    return bool(changes(world))


def items(container: Any) -> list[int]:
    """Which objects a container holds."""
    if isinstance(container, MAPPINGS):
        base: Any = solid_base(type(container))
        return [id(part) for pair in base.items(container) for part in pair]
    return [*map(id, container)] if type(container) is set else [*map(id, list_of(container))]


def list_of(container: Any) -> list[Any]:
    base: Any = solid_base(type(container))
    return list(base.__iter__(container))


def kept(known: Known) -> list[int]:
    """Which objects the stand-in of a container held when it was made."""
    if isinstance(known.before, dict):
        return [id(part) for pair in known.before.items() for part in pair]
    if type(known.stand_in) is set and set(map(id, known.before)) == set(map(id, known.stand_in)):
        return items(known.stand_in)
    return [*map(id, known.before)]


def attribute_changes(known: Known, before: dict[str, Any]) -> dict[Any, Any]:
    """The attributes of an instance, or the content of a cell, that are other objects than they
    were."""
    now = own_dict(known.stand_in) | in_slots(known.stand_in)
    changed_attributes: dict[Any, Any] = {
        (id(known), name): id(value)
        for name, value in now.items()
        if before.get(name, MISSING) is not value
    }
    gone = [name for name, value in before.items() if value is not MISSING and name not in now]
    return changed_attributes | {(id(known), name): None for name in gone}
