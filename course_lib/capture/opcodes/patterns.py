"""Pattern matching: the instructions of `match` statements.

In:  the subject on the stack.
Out: whether it matches, and the parts that a pattern names.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`MATCH_MAPPING`, `MATCH_SEQUENCE`, `MATCH_KEYS`).
"""

import builtins
import contextlib
from typing import Any

from course_lib.capture import attributes
from course_lib.capture.machine import NOTHING, Machine
from course_lib.frames import Instruction

# Flags that CPython gives classes for `match` (`Include/object.h`)
PY_TPFLAGS_SEQUENCE = 1 << 5
PY_TPFLAGS_MAPPING = 1 << 6
PY_TPFLAGS_MATCH_SELF = 1 << 22  # `int(x)` binds the subject itself; so do `list`, `str`, ...


class Patterns(Machine):
    """Instructions that ask what a subject looks like; it stays on the stack unless they say
    otherwise."""

    def MATCH_SEQUENCE(self, instruction: Instruction) -> None:
        """`case [...]`: is the subject a sequence?"""
        self.push(type(self.stack[-1]).__flags__ & PY_TPFLAGS_SEQUENCE != 0)

    def MATCH_MAPPING(self, instruction: Instruction) -> None:
        """`case {...}`: is the subject a mapping?"""
        self.push(type(self.stack[-1]).__flags__ & PY_TPFLAGS_MAPPING != 0)

    def MATCH_KEYS(self, instruction: Instruction) -> None:
        """`case {"a": x}`: push the tuple of the subject's values under these keys, or None.

        The keys are the topmost value, the subject lies below. As in CPython `subject.get` is
        asked, once for each key: `subject[key]` would add a key to a `defaultdict`."""
        subject, keys = self.stack[-2], self.stack[-1]
        values: list[Any] = []
        seen: list[Any] = []
        for key in keys:
            if key in seen:
                raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
            seen.append(key)

            value = self.call(attributes.get(self, subject, "get"), key, NOTHING)
            if value is NOTHING:
                self.push(None)
                return
            values.append(value)
        self.push(tuple(values))

    def MATCH_CLASS(self, instruction: Instruction) -> None:
        """`case Point(1, y=2)`: pop subject, class and names; push the tuple of the parts, or None.

        The argument is the number of patterns by position.
        """
        subject, cls, names = self.popn(3)
        if not self.call(builtins.isinstance, subject, cls):
            self.push(None)
            return

        by_position = getattr(cls, "__match_args__", ())[: instruction.arg]
        # `int(x)`, `str(x)`: the one part is the subject itself
        itself = not hasattr(cls, "__match_args__") and cls.__flags__ & PY_TPFLAGS_MATCH_SELF
        allowed = 1 if itself else len(by_position)
        if instruction.arg > allowed:
            raise TypeError(
                f"{cls.__name__}() accepts {allowed} positional sub-pattern{'s' * (allowed != 1)} "
                f"({instruction.arg} given)"
            )

        # An attribute that is not there: no match
        matched_parts = None
        with contextlib.suppress(AttributeError):
            parts = [attributes.get(self, subject, name) for name in (*by_position, *names)]
            matched_parts = (subject, *parts) if itself and instruction.arg else tuple(parts)
        self.push(matched_parts)
