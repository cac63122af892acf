"""An instance from outside: a copy whose attributes are filled in when they are first read.

In:  an instance of a class written in Python, a cell.
Out: an empty instance of the same class; `fill` gives it an attribute, `class_attribute` guards
what its class has.
In PyTorch: `torch/_dynamo/variables/user_defined.py` (`UserDefinedObjectVariable`).
"""

from __future__ import annotations

import dataclasses
import keyword
import types
from typing import Any

from course_lib.capture.assumptions import Assumptions
from course_lib.capture.classes import (
    MISSING,
    functions_of,
    has_own_lookup,
    is_users,
    member_of,
    own_dict,
)
from course_lib.capture.guard_tests import KeysAre, SlotIsEmpty
from course_lib.capture.known import Known
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Source
from course_lib.capture.stand_ins.kinds import can_copy, solid_base
from course_lib.capture.stand_ins.slots import is_full, is_slot, slots


def cell(world: Any, obj: Any, source: Source) -> Any:
    """A rule of `make.py`: a cell, whose content is filled in when it is opened."""
    if type(obj) is not types.CellType:
        return GO_ON
    return world.know(types.CellType(), obj, source, attributes={}).stand_in


def instance(world: Any, obj: Any, source: Source) -> Any:
    """A rule of `make.py`: an instance without attributes."""
    cls: Any = type(obj)
    if not can_copy(cls):
        return GO_ON
    world.assume_type(obj, source)
    return world.know(solid_base(cls).__new__(cls), obj, source, attributes={}).stand_in


class Instances(Assumptions):
    """What the world does for instances from outside."""

    def fill(self, known: Known, name: str) -> bool:
        """Give the stand-in of an instance its attribute `name`, if the real one has it.

        True if it is there now."""
        own_attributes, attributes = own_dict(known.stand_in), known.attributes
        assert attributes is not None
        if name in attributes:
            return name in own_attributes

        real_value = own_dict(known.real).get(name, MISSING)
        if real_value is MISSING:
            return self._fill_slot(known, attributes, name)

        # A path cannot say `instance.name` for a name that a property of the class hides, or that
        # is no identifier.
        slot = member_of(type(known.real), name)
        hidden = hasattr(type(slot), "__set__") or not name.isidentifier()
        if hidden:
            source = self.own(known, "__dict__").item(name)
        else:
            source = self.own(known, name)
        attributes[name] = own_attributes[name] = self.wrap(real_value, source)
        return True

    def _fill_slot(self, known: Known, attributes: dict[str, Any], name: str) -> bool:
        """Fill a slot. If it is empty, or there is none of this name, leave a guard for that."""
        real = known.real
        slot = member_of(type(real), name)
        attributes[name] = MISSING
        if is_slot(slot) and is_full(real, name):
            attributes[name] = self.wrap(slot.__get__(real), self.own(known, name))
            slot.__set__(known.stand_in, attributes[name])
        elif is_slot(slot):
            self.assume(known.source, "absent", SlotIsEmpty(name))
        elif type(real).__dictoffset__:
            self.assume_absent(self.own(known, "__dict__"), name)
        return attributes[name] is not MISSING

    def fill_all(self, known: Known) -> None:
        """Give the stand-in every attribute of the real instance."""
        names = tuple(own_dict(known.real))
        if type(known.real).__dictoffset__:
            self.assume(self.own(known, "__dict__"), "keys", KeysAre(names))
        for name in [*names, *slots(type(known.real))]:
            self.fill(known, name)

    @staticmethod
    def own(known: Known, name: str) -> Source:
        """Where an instance keeps an attribute of its own.

        Guards ask for it without running the user's code."""
        cls = type(known.real)
        if has_own_lookup(cls):
            return Source(f", {name!r})", known.source, "object.__getattribute__(", f".{name}")

        # with a `__getattr__` in the class, CPython has no quick way to an attribute
        slow = name in own_dict(known.real) and member_of(cls, "__getattr__") is not MISSING
        in_dict = slow and not keyword.iskeyword(name)
        return dataclasses.replace(known.source.attr(name), in_dict=in_dict)

    def open_cell(self, cell: types.CellType) -> types.CellType:
        """Fill the stand-in of a cell from outside with what stands for its content."""
        known = self.of(cell)
        if known is not None:
            self.fill(known, "cell_contents")
        return cell

    def class_attribute(self, known: Known, name: str, member: Any) -> None:
        """Guard what the class of an instance from outside has by a name, as it stands in the class
        body."""
        cls, source = type(known.real), known.source.type()
        if member is MISSING or hasattr(type(member), "__get__"):
            self.see(cls, source, name)
        self.wrap_functions(member, cls, source, name)

    def wrap_functions(self, member: Any, cls: type, source: Source, name: str) -> None:
        """Guard the functions that a class attribute is made of."""
        bodies = (
            place for place, base in enumerate(cls.__mro__) if base.__dict__.get(name) is member
        )
        body = next(bodies, 0)
        owner = source
        if body:
            owner = source.attr("__mro__").item(body)
        for part, function in functions_of(member).items():
            if not is_users(function):
                continue
            if part:
                place_in_dict = owner.attr("__dict__").item(name)
                self.wrap(function, place_in_dict.attr(part))
            else:
                self.wrap(function, owner.attr(name))
