"""`sys.modules`: a dict of thousands of names that grows with each import.

In:  the program looks one name up, as `warnings.catch_warnings` does: `sys.modules["warnings"]`.
Out: the module, and a guard on this one name. An import of another module elsewhere changes nothing
for the program.
In PyTorch: `torch/_dynamo/variables/dicts.py` (`ConstDictVariable`, whose keys are guarded one by
one).
"""

from __future__ import annotations

import sys
from typing import Any

from course_lib.capture.classes import MISSING
from course_lib.capture.corners.names_one_by_one import NamesOneByOne
from course_lib.capture.guard_tests import HasKey, LacksKey, TypeIs
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.stand_ins.make import OF_OBJECT
from course_lib.capture.world import World


class LoadedModules(NamesOneByOne):
    """Stands for `sys.modules`."""

    refused = "lists or changes `sys.modules`"
    instead = "look one module up, or do it outside the function"

    def __init__(self, world: World, source: Source) -> None:
        super().__init__()
        self.world, self.source = world, source

    def find(self, name: Any) -> Any:
        """What stands for the module of this name; MISSING where none is loaded."""
        require_text(name)
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

    def __contains__(self, name: Any) -> bool:
        require_text(name)
        if name not in sys.modules:
            self.assume_absent(name)
            return False

        # which module it is does not matter here
        self.world.assume(self.source, "present", HasKey(name))
        return True


def require_text(name: Any) -> None:
    if type(name) is not str:
        raise Unsupported("looks for a module by something that is no string")


def loaded_modules(world: World, modules: dict[str, Any], source: Source) -> Any:
    """The stand-in of `sys.modules`."""
    world.assume(source, "type", TypeIs(dict))
    return world.know(LoadedModules(world, source), modules, source).stand_in


OF_OBJECT[id(sys.modules)] = loaded_modules
