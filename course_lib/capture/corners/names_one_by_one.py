"""Dicts of names that a program reads one name at a time: `globals()`, `sys.modules`.

In:  `globals()["scale"]`, `sys.modules.get("numpy")`, `"x" in globals()`.
Out: what the real dict has there, and a guard on this one name. A guard on the whole dict would
fail at each import.
In PyTorch: `torch/_dynamo/variables/dicts.py` (`ConstDictVariable`, whose keys are guarded one by
one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.classes import MISSING
from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


class NamesOneByOne(dict[str, Any]):
    """Stands for such a dict.

    It is empty: each look-up asks the real dict (`find`) and leaves a guard."""

    refused = "lists or changes all names of a dict"
    """What a program does that needs more than one name, in the words of a graph break."""
    instead = ""
    """What the user can do instead."""

    def find(self, name: Any) -> Any:
        """What the interpreted program sees under this name; MISSING where there is no such name.

        Leaves a guard."""
        raise NotImplementedError

    def get(self, name: Any, default: Any = None) -> Any:
        value = self.find(name)
        return default if value is MISSING else value

    def __getitem__(self, name: Any) -> Any:
        value = self.find(name)
        if value is MISSING:
            raise KeyError(name)
        return value

    def __contains__(self, name: Any) -> bool:
        return self.find(name) is not MISSING

    def refuse(self, *args: Any, **kwargs: Any) -> Any:
        """Stands for all other methods: they need all the names, or change them.

        The dict itself is empty and must not answer."""
        raise Unsupported(self.refused, self.instead)

    __iter__ = __len__ = __reversed__ = __eq__ = __ne__ = __or__ = __ror__ = __ior__ = refuse
    __setitem__ = __delitem__ = keys = values = items = copy = refuse
    pop = popitem = setdefault = update = clear = __reduce_ex__ = __repr__ = refuse
    __hash__ = None


def get(it: Machine, names: NamesOneByOne, name: Any, default: Any = None) -> Any:
    """`globals().get(name, default)`"""
    return NamesOneByOne.get(names, name, default)


# Calls of `get` run as they are: nobody follows the code of this class.
FUNCTIONS[NamesOneByOne.get] = get
