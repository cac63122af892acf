"""Containers: how lists, tuples, sets, dicts and slices are built, filled and unpacked.

In:  values on the stack.
Out: ordinary containers of Python's. What a class of the user's has to say (`__hash__`, `__iter__`)
is interpreted.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`BUILD_LIST`, `UNPACK_SEQUENCE`, `LIST_EXTEND`,
...).
"""

import itertools
import operator
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from course_lib.capture import attributes
from course_lib.capture.classes import is_a, is_users, member_of
from course_lib.capture.machine import NOTHING, Machine
from course_lib.capture.symbolic_numbers import concrete
from course_lib.capture.values import name_of
from course_lib.capture.world import NULL
from course_lib.frames import Instruction, newer


class Containers(Machine):
    """Instructions that make containers, add to them, and take them apart."""

    # ---- build -----------------------------------------------------------------------------------

    def BUILD_TUPLE(self, instruction: Instruction) -> None:
        """Pop `arg` values, push the tuple of them."""
        self.push(tuple(self.popn(instruction.arg)))

    def BUILD_LIST(self, instruction: Instruction) -> None:
        """Pop `arg` values, push the list of them."""
        self.push(self.popn(instruction.arg))

    def BUILD_SET(self, instruction: Instruction) -> None:
        """Pop `arg` values, push the set of them."""
        self.push(self.native(set, self.popn(instruction.arg)))

    def BUILD_MAP(self, instruction: Instruction) -> None:
        """Pop `arg` pairs (the key below its value), push the dict."""
        parts = self.popn(2 * instruction.arg)
        keys, values = map(concrete, parts[0::2]), parts[1::2]
        self.push(self.native(dict, list(zip(keys, values, strict=True))))

    def BUILD_CONST_KEY_MAP(self, instruction: Instruction) -> None:
        """Pop a tuple of keys and `arg` values, push the dict."""
        keys = self.pop()
        self.push(dict(zip(keys, self.popn(instruction.arg), strict=True)))

    def BUILD_SLICE(self, instruction: Instruction) -> None:
        """Pop two or three values, push `slice(...)`."""
        self.push(slice(*self.popn(instruction.arg)))

    def LIST_TO_TUPLE(self, instruction: Instruction) -> None:
        """Turn the topmost list into a tuple."""
        self.push(tuple(self.pop()))

    # ---- add: the container lies `arg` deep, below what is added ---------------------------------

    def LIST_APPEND(self, instruction: Instruction) -> None:
        """Append the topmost value (in a comprehension)."""
        value = self.pop()
        self.stack[-instruction.arg].append(value)

    def SET_ADD(self, instruction: Instruction) -> None:
        """Add the topmost value (in a comprehension)."""
        value = self.pop()
        self.native(self.stack[-instruction.arg].add, value)

    def MAP_ADD(self, instruction: Instruction) -> None:
        """Add the topmost value under the key below it (in a comprehension)."""
        key, value = self.popn(2)
        self.native(operator.setitem, self.stack[-instruction.arg], concrete(key), value)

    def LIST_EXTEND(self, instruction: Instruction) -> None:
        """`[*value]`"""
        value = self.pop()
        target = self.stack[-instruction.arg]

        # `list.extend` asks for the length, to make room. Where that is the user's code it has to
        # run, so `extend` itself is called.
        lengths = [member_of(type(value), name) for name in ("__len__", "__length_hint__")]
        tells_length = any(is_a(length, FunctionType) for length in lengths)
        if tells_length and is_users(type(value)):
            self.look_into(value)
            self.native(target.extend, value)
        else:
            target.extend(self.unpacked(value, "Value after * must be an iterable, not {}"))

    def SET_UPDATE(self, instruction: Instruction) -> None:
        """`{*value}`"""
        value = self.pop()
        self.native(self.stack[-instruction.arg].update, self.iterate(value))

    def DICT_UPDATE(self, instruction: Instruction) -> None:
        """`{**value}`: a key that is there already gets the new value."""
        value = self.pop()
        self.look_into(value)
        self.native(self.stack[-instruction.arg].update, value)

    def DICT_MERGE(self, instruction: Instruction) -> None:
        """`f(**value)`: a key that is there already is an error."""
        update = self.pop()
        self.look_into(update)
        merged = self.stack[-instruction.arg]
        if not hasattr(type(update), "keys"):
            function = self.function_below(instruction.arg)
            raise TypeError(newer.NO_MAPPING.format(function=function, type=type(update).__name__))

        more = self.native(dict, update)
        if twice := [key for key in more if key in merged]:
            function = self.function_below(instruction.arg)
            raise TypeError(f"{function}() got multiple values for keyword argument '{twice[0]}'")
        merged.update(more)

    def function_below(self, depth: int) -> str:
        """For messages: the name of the function whose keyword arguments lie `depth` deep.

        Below them lie its other arguments, in one tuple, and two slots: the callable, and NULL."""
        slots = self.stack[-depth - 3 :]
        function = next(slot for slot in slots if slot is not NULL)
        return name_of(function, exact=True)

    # ---- take apart ------------------------------------------------------------------------------

    def UNPACK_SEQUENCE(self, instruction: Instruction) -> None:
        """One value off, its `arg` items on, the first on top."""
        count = instruction.arg
        value = self.pop()

        # one item more than is wanted tells that there are too many
        items = list(itertools.islice(self.unpacked(value), count + 1))
        if len(items) > count:
            raise ValueError(newer.too_many_to_unpack(count, value))
        if len(items) < count:
            raise ValueError(f"not enough values to unpack (expected {count}, got {len(items)})")

        self.stack.extend(reversed(items))

    def UNPACK_EX(self, instruction: Instruction) -> None:
        """`a, *rest, z = value`: the argument says how many items stand before the star, and how
        many after it."""
        before, after = instruction.arg
        items = list(self.unpacked(self.pop()))
        if len(items) < before + after:
            raise ValueError(
                f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
            )

        last = len(items) - after
        parts = [*items[:before], items[before:last], *items[last:]]
        self.stack.extend(reversed(parts))

    def unpacked(
        self, value: Any, otherwise: str = "cannot unpack non-iterable {} object"
    ) -> Iterator[Any]:
        """The items of `value`. TypeError with the words `otherwise` if it has none."""
        if not any(hasattr(type(value), method) for method in ("__iter__", "__getitem__")):
            raise TypeError(otherwise.format(attributes.type_of(self, value).__name__))

        iterator = self.iterate(value)
        while (item := self.native(next, iterator, NOTHING)) is not NOTHING:
            yield item
