"""A function from outside: it stands for itself, under a guard on its code; its cells and defaults
have stand-ins.

In:  a function that is about to be interpreted.
Out: its cells, the values of its defaults; a guard, where no instruction has read it.
In PyTorch: `torch/_dynamo/variables/functions.py` (`UserFunctionVariable.bind_args`).
"""

from __future__ import annotations

import types
from typing import Any

from course_lib.capture.classes import functions_of, is_a, is_users
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.stand_ins.instances import Instances


class Functions(Instances):
    """What the world does for functions from outside."""

    def adopt(self, function: types.FunctionType, args: Any) -> None:
        """Guard a function that no instruction has read: a special method, a property.

        Its first argument tells its place."""
        is_known = self.of(function) is not None or id(function) in self.made
        if is_known or not is_users(function):
            return
        if self._adopt_member(function, args):
            return

        stands_alone = not (
            function.__closure__ or function.__defaults__ or function.__kwdefaults__
        )
        if not stands_alone and self.source_of(function) is None:
            raise Unsupported(f"calls {function.__qualname__}, a function that has no known place")

    def _adopt_member(self, function: types.FunctionType, args: Any) -> bool:
        """Look for the function in the class of the first argument, and guard it there.

        False if it is not found."""
        first: Any = object
        known = None
        if args:
            first = args[0]
            known = self.of(first)

        # The first class that is not made by the program
        cls = first if is_a(first, type) else type(first)
        cls = next(base for base in cls.__mro__ if id(base) not in self.made)

        if known is not None and cls is not first:
            source: Source | None = known.source.type()
        else:
            source = self.source_of(cls)
        if source is None:
            return False

        for place, base in enumerate(cls.__mro__):
            for name, member in base.__dict__.items():
                if function in functions_of(member).values():
                    # a guard on this class, and on those before it, which have no such name
                    for at, above in enumerate(cls.__mro__[: place + 1]):
                        self.see(above, source.attr("__mro__").item(at), name)
                    self.wrap_functions(member, cls, source, name)
                    return True
        return False

    def closure(self, function: types.FunctionType) -> dict[str, types.CellType]:
        """The cells that a function closes over, by name."""
        names, cells = function.__code__.co_freevars, function.__closure__ or ()
        source = self.source_of(function)
        cell_by_name: dict[str, types.CellType] = {}
        for at, (name, cell) in enumerate(zip(names, cells, strict=True)):
            # a function of the interpreted program has the program's own cells
            if source is not None and not self.of(cell):
                cell = self.wrap(cell, source.variable(name, f".__closure__[{at}]"))
            cell_by_name[name] = cell
        return cell_by_name

    def defaults(self, function: types.FunctionType) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What stands for the defaults of a function's parameters.

        (Places are counted from the last, as Python does.)"""
        defaults, more = function.__defaults__ or (), function.__kwdefaults__ or {}
        source = self.source_of(function)
        if source is None:
            return defaults, more

        places, names = source.attr("__defaults__"), source.attr("__kwdefaults__")
        stand_ins = tuple(
            self.wrap(default, places.item(at))
            for at, default in enumerate(defaults, -len(defaults))
        )
        return stand_ins, {name: self.wrap(value, names.item(name)) for name, value in more.items()}
