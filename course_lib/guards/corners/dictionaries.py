"""Guards on what lies in dictionaries hold until one of these changes.

In:  the guards of one capture.
Out: a check in two functions. `check` asks what may be different at each call, and whether the
     dictionaries are unchanged (`_tensors.c`, `unchanged`). Only where one has changed, `again`
     asks the rest, and notes where it looked.

Most guards of a model are of this kind: parameters, settings, hooks. CPython 3.11 and 3.12 give a
dictionary another version number whenever it changes. Since 3.13 it has none, nor are watchers told
when an object stores a value in its `__dict__`; so there every guard is asked at every call.
In PyTorch: `torch/csrc/dynamo/guards.cpp`, "dict tags" (`DictGuardManager`, `_dict_version_tag`).
"""

from collections.abc import Sequence
from typing import Any

import torch

from course_lib.capture import FUNCTION, Guard, SameAs, Source
from course_lib.capture.calls.modules import HOOKS
from course_lib.capture.guard_tests import AnotherObject, Equals, Is, SameObject, TypeIs
from course_lib.capture.sources import Item
from course_lib.guards.tensors import has_dict_versions, looks_of
from course_lib.guards.writing import Body, Names, shortcut

OF_DICTS = ("absent", "hooks", "keys")
"""Kinds of guards that ask a dictionary itself."""
CONSTANTS = (
    bool,
    int,
    float,
    str,
    bytes,
    tuple,
    type(None),
    torch.dtype,
    torch.device,
    torch.memory_format,
)
"""Types whose values never change: where a dictionary is unchanged, such a value in it is the
same."""

OF_THE_OBJECT = (Is, Equals, SameObject, AnotherObject)
"""Tests that ask which object lies there, not what it is like."""


@shortcut
def until_a_dictionary_changes(guards: Sequence[Guard], names: Names) -> str | None:
    """The source of a check that asks some guards only after a dictionary has changed; None if it
    could skip no guard.

    `check` asks the other guards at each call, and whether a dictionary has changed. If so, `again`
    asks the guards that lasted.
    """
    if not has_dict_versions():
        return None

    paths = Paths(guards)
    lasting = {guard: None for guard in guards if paths.guard_lasts(guard)}
    if not lasting:
        return None

    check, again = Body(names), Body(names)
    check.ask(guard for guard in guards if guard not in lasting)
    again.ask(lasting)

    # `again` has looked these paths up: the dictionaries among them are noted.
    holders = paths.holders(again.variables)
    noted = ", ".join(to_note(holders, lasting, again))
    again.lines.append(f"return note(noted, *({noted}))")

    # The paths that `again` notes begin at these objects. A call may come with others, so the check
    # compares them.
    compared = ["noted"]
    for holder in holders.values():
        if not paths.stays(holder):
            compared.append(check.variable(holder))

    unchanged = f"unchanged({', '.join(compared)})"
    arguments = ", ".join((FUNCTION, *names.parameters))
    check.lines.append(f"return {unchanged} or again({arguments})")
    return f"{check.function('check')}\n\n{again.function('again')}"


def to_note(holders: dict[Source, Source], lasting: dict[Guard, None], again: Body) -> list[str]:
    """The arguments of `note`, in pairs: an object and its `__dict__` (roots first), a dictionary
    twice, a tensor and its looks."""
    variables = again.variables
    arguments: list[str] = []
    for path, holder in holders.items():
        arguments += [variables.get(holder, holder.expr), variables[path]]

    for guard in lasting:
        if guard.kind == "hooks":
            own = variables[guard.source]
            for name in HOOKS:
                dictionary = f"{own}[{name!r}]"
                arguments += [dictionary, dictionary]

    for guard in lasting:
        if guard.kind == "tensor":
            looks = again.names.spell(looks_of(guard))
            arguments += [variables[guard.source], looks]
    return arguments


class Paths:
    """What the guards of one check say about the sources on their way: which are dictionaries,
    which stay where they are."""

    def __init__(self, guards: Sequence[Guard]) -> None:
        # What guards say is there: an object of this very type, a dictionary
        self.types: dict[Source, Any] = {}
        self.asked_dicts: set[Source] = set()
        for guard in guards:
            first = guard.tests[0]
            if isinstance(first, TypeIs):
                self.types[guard.source] = first.right
            if guard.kind in OF_DICTS:
                self.asked_dicts.add(guard.source)

    def guard_lasts(self, guard: Guard) -> bool:
        """Does it hold as long as no dictionary on its path changes?

        (A tensor's looks are asked at each call all the same.)"""
        if not self.stays(guard.source):
            return False
        for test in guard.tests:
            if isinstance(test.right, SameAs) and not self.stays(test.right.source):
                return False

        if guard.kind in OF_DICTS:
            return self.is_dict(guard.source)
        if guard.kind == "tensor":
            return looks_of(guard) is not None
        return self.tests_last(guard)

    def tests_last(self, guard: Guard) -> bool:
        """Do the tests of a guard give the same answers as long as the same object lies there?"""
        first, *more = guard.tests
        if isinstance(first, TypeIs):
            # An object may be given another class (`x.__class__ = C`). `unchanged` notices it for
            # objects whose `__dict__` is noted: their type is noted, too.
            is_noted = guard.source.attr("__dict__") in self.asked_dicts and not more
            return first.right in CONSTANTS or is_noted
        return isinstance(first, OF_THE_OBJECT)

    def stays(self, path: Source) -> bool:
        """Does the path lead to the same object as long as no dictionary on it changes?"""
        # A variable of the frame is another object in the next call; what a function gives
        # (`before`) may be another one at any time.
        base = path.base
        if base is None or base.module or path.before:
            return False

        # an attribute in the `__dict__` of an object, or this `__dict__`
        if path.in_dict or path.is_own_dict:
            return True

        # an item of a dictionary or of a tuple
        holds_items = self.is_dict(base) or self.types.get(base) is tuple
        is_item = isinstance(path.step, Item)
        return is_item and holds_items and self.stays(base)

    def is_dict(self, path: Source) -> bool:
        """Is a dictionary there, by what the path is or by a guard?"""
        return path.is_registry or path.is_own_dict or self.types.get(path) is dict

    def holders(self, found: dict[Source, str]) -> dict[Source, Source]:
        """Each dictionary on the way, and what it is noted by: the object whose `__dict__` it is,
        or itself.

        Roots come first: each call looks them up, and `unchanged` compares them with what was
        noted."""
        of_roots: dict[Source, Source] = {}
        of_others: dict[Source, Source] = {}
        for path in found:
            if not self.is_dict(path) or not self.stays(path):
                continue

            holder = path
            if path.is_own_dict and path.base is not None:
                holder = path.base
            if self.stays(holder):
                of_others[path] = holder
            else:
                of_roots[path] = holder
        return {**of_roots, **of_others}
