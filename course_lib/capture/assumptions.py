"""What capture takes for granted: each assumption becomes a guard, with the user's line that caused
it.

In:  a source, and what was seen there.
Out: guards, each written down once, in the order in which the program looked.
In PyTorch: `torch/_dynamo/guards.py` (`GuardBuilder`), `torch/_guards.py` (`Guard`, `GuardsSet`).
"""

import os
import re
import types
from typing import Any

import torch

from course_lib.capture import classes
from course_lib.capture.classes import is_a, is_users
from course_lib.capture.guard_tests import (
    ClassAsSeen,
    Equals,
    Guard,
    HasCode,
    Is,
    LacksKey,
    PrintsAs,
    Test,
    TypeIs,
)
from course_lib.capture.places import Places
from course_lib.capture.sources import FRAME, Location, Source

TORCH = re.compile(rf"{re.escape(os.path.dirname(torch.__file__))}|<frozen ")
"""Files that are torch's, or Python's frozen ones."""
INSTALLED = re.compile(rf"{TORCH.pattern}|.*[/\\]lib[/\\]python3")
"""These, and files of installed libraries."""


class Assumptions(Places):
    """The guards of one capture."""

    guards: dict[Guard, None]
    lines: list[Location]
    """The lines that are interpreted, outermost call first."""
    made: dict[int, Any]
    """The functions and classes that the interpreted program made, by their `id`."""
    classes: dict[type, classes.SeenClass]

    def user_location(self, others: re.Pattern[str] = TORCH) -> Location | None:
        """The innermost line that is the user's own, not torch's (or no installed library's)."""
        users = (place for place in reversed(self.lines) if not others.match(place.filename))
        return next(users, None)

    def assume(self, source: Source, kind: str, *tests: Test) -> None:
        """Write a guard down, once, with the line that is interpreted as its cause; of a library,
        the call that led there."""
        here = self.user_location()
        cause = self.user_location(INSTALLED) or here
        self.guards.setdefault(Guard(source, kind, tests, cause, here))

    def assume_absent(self, source: Source, name: str) -> None:
        """A dict has no such key."""
        self.assume(source, "absent", LacksKey(name))

    def assume_type(self, obj: Any, source: Source) -> None:
        """An object has this very type."""
        self.assume(source, "type", TypeIs(type(obj)))

    def assume_identity(self, obj: Any, source: Source) -> None:
        """It is this very object; of a function written in Python, one with this code."""
        if is_a(obj, types.FunctionType):
            self.assume(source, "identity", HasCode(obj.__code__))
        else:
            self.assume(source, "identity", Is(obj))

    def assume_constant(self, value: Any, source: Source) -> None:
        """`value` is this very number, string, ...: 2, 2.0 and True are equal, so are 0.0 and -0.0;
        NaN is equal to nothing."""
        if type(value) is bool:
            self.assume(source, "value", Is(value))
            return

        tests: list[Test] = [TypeIs(type(value))]
        odd_float = is_a(value, float) and (value == 0 or value != value)
        if is_a(value, (complex, slice)) or odd_float:
            tests.append(PrintsAs(repr(value)))
        elif value is not None:
            tests.append(Equals(value))
        self.assume(source, "value", *tests)

    def see(self, cls: type, source: Source | None, *names: str) -> None:
        """Guard the special methods of a class, and what it has by these names; that it has none
        counts too."""
        if id(cls) in self.made:
            # What it inherits may change.
            for base in cls.__bases__:
                self.see(base, self.source_of(base), *names)

        metaclass_source = source.type() if source else None
        self._see(cls, source, names)
        self._see(type(cls), metaclass_source, names)

    def _see(self, cls: type, source: Source | None, names: tuple[str, ...]) -> None:
        if not is_users(cls) or id(cls) in self.made:
            return
        if cls not in self.classes:
            self.classes[cls] = classes.SeenClass(cls)
            test = ClassAsSeen(self.classes[cls], found=source is not None)
            self.assume(source or FRAME, "class", test)
        self.classes[cls].see(names)

    # methods of `World` that the methods above call
    def wrap(self, obj: Any, source: Source | None) -> Any:
        raise NotImplementedError
