"""`sys.modules`: a dict of thousands of names that grows with each import.

In:  the program looks one name up, as `warnings.catch_warnings` does: `sys.modules["warnings"]`.
Out: the module, and a guard on this one name. An import of another module elsewhere changes nothing for the program.
In PyTorch: `torch/_dynamo/variables/dicts.py` (`ConstDictVariable`, whose keys are guarded one by one).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.classes import MISSING
from course_lib.capture.guard_tests import HasKey, LacksKey, TypeIs
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.stand_ins.make import OF_OBJECT
from course_lib.capture.world import World

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


class LoadedModules(dict[str, Any]):
    """Stands for `sys.modules`. It holds nothing: each look-up asks the real one and leaves a guard."""

    def __init__(self, world: World, source: Source) -> None:
        super().__init__()
        self.world, self.source = world, source

    def find(self, name: Any) -> Any:
        """What stands for the module of this name; MISSING where none is loaded."""
        if type(name) is not str:
            raise Unsupported("looks for a module by something that is no string")

        loaded = sys.modules.get(name, MISSING)
        if loaded is MISSING:
            self.assume_absent(name)
            return MISSING

        place = self.source.item(name)
        self.world.assume_identity(loaded, place)
        return self.world.wrap(loaded, place)

    def assume_absent(self, name: str) -> None:
        """Guard that no module of this name is loaded."""
        self.world.assume(self.source, "absent", LacksKey(name))

    def get(self, name: Any, default: Any = None) -> Any:
        found = self.find(name)
        return default if found is MISSING else found

    def __getitem__(self, name: Any) -> Any:
        found = self.find(name)
        if found is MISSING:
            raise KeyError(name)
        return found

    def __contains__(self, name: Any) -> bool:
        if type(name) is not str:
            raise Unsupported("looks for a module by something that is no string")
        if name not in sys.modules:
            self.assume_absent(name)
            return False

        # which module it is does not matter here
        self.world.assume(self.source, "present", HasKey(name))
        return True

    def refuse(self, *args: Any, **kwargs: Any) -> Any:
        """Everything else needs all the names, or changes them."""
        raise Unsupported(
            "lists or changes `sys.modules`", "look one module up, or do it outside the function"
        )

    __iter__ = __len__ = __reversed__ = __eq__ = __or__ = __ior__ = refuse
    __setitem__ = __delitem__ = keys = values = items = copy = refuse
    pop = popitem = setdefault = update = clear = refuse
    __hash__ = None


def get(it: Machine, modules: LoadedModules, name: Any, default: Any = None) -> Any:
    """`sys.modules.get(name, default)`"""
    return LoadedModules.get(modules, name, default)


def loaded_modules(world: World, modules: dict[str, Any], source: Source) -> Any:
    """The stand-in of `sys.modules`."""
    world.assume(source, "type", TypeIs(dict))
    return world.know(LoadedModules(world, source), modules, source).stand_in


FUNCTIONS[LoadedModules.get] = get
OF_OBJECT[id(sys.modules)] = loaded_modules
