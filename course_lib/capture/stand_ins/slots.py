"""Attributes that have a fixed place in each instance: `__slots__`, and what a cell holds.

In:  a class, or an instance.
Out: the names of its slots, and what is in them. (No code of the user's runs.)
"""

import types
from typing import Any

from course_lib.capture.classes import HEAP_TYPE, MISSING, is_a
from course_lib.capture.sources import HELPERS

LAYOUT = {"__vectorcalloffset__", "__dictoffset__", "__weaklistoffset__"}
"""Entries with which a class written in C tells CPython where things lie: no attributes."""


def is_slot(member: Any) -> bool:
    """Is this class attribute a fixed place in each instance? So is what a cell holds."""
    return is_a(member, types.MemberDescriptorType) or member is types.CellType.cell_contents


def slots(cls: type) -> list[str]:
    """The attributes that instances have a fixed place for.

    A subclass may hide the place behind an attribute of its own (`p = 0`): `instance.p` is then the
    class's and cannot be set.
    """
    names = []
    # What the classes have that Python asks before this one
    nearer: set[str] = set()
    for base in cls.__mro__:
        if base.__flags__ & HEAP_TYPE or issubclass(base, (Exception, types.CellType)):
            names += [
                name
                for name, member in base.__dict__.items()
                if name not in nearer and is_slot(member)
            ]
        nearer.update(base.__dict__)
    return [name for name in names if name not in LAYOUT]


def in_slots(value: Any) -> dict[str, Any]:
    """What an instance holds in those places."""
    return {
        name: object.__getattribute__(value, name)
        for name in slots(type(value))
        if is_full(value, name)
    }


def is_full(holder: Any, name: str = "cell_contents") -> bool:
    """Has a cell its content, an instance something in a slot?"""
    try:
        return object.__getattribute__(holder, name) is not MISSING
    except (AttributeError, ValueError):
        return False


HELPERS["is_full"] = is_full
