"""Operators: arithmetic, comparison, `is`, `in`, subscripts, and the making of texts.

In:  values on the stack.
Out: one value. If a tensor takes part, the operator becomes a node of the graph
(`Machine.operate`).
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`BINARY_OP`, `COMPARE_OP`, `BINARY_SUBSCR`, ...).
"""

import builtins
import operator
from typing import Any

import torch

from course_lib import frames
from course_lib.capture.classes import is_a
from course_lib.capture.guard_tests import AnotherObject
from course_lib.capture.machine import Machine
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import COMPARISONS, IN_PLACE, OPERATORS, concrete
from course_lib.frames import Instruction, newer

BINARY_OPERATORS = OPERATORS | IN_PLACE


class Operators(Machine):
    """Instructions that compute one value of others."""

    def BINARY_OP(self, instruction: Instruction) -> None:
        """`left + right`, or `left += right`: the argument is the sign."""
        left, right = self.popn(2)
        self.push(self.operate(BINARY_OPERATORS[instruction.arg], left, right))

    def COMPARE_OP(self, instruction: Instruction) -> None:
        """`left < right`: the argument is the sign."""
        left, right = self.popn(2)
        self.push(self.operate(COMPARISONS[instruction.arg], left, right))

    def UNARY_NEGATIVE(self, instruction: Instruction) -> None:
        """`-value`"""
        self.push(self.operate(operator.neg, self.pop()))

    def UNARY_POSITIVE(self, instruction: Instruction) -> None:
        """`+value`"""
        self.push(self.operate(operator.pos, self.pop()))

    def UNARY_INVERT(self, instruction: Instruction) -> None:
        """`~value`"""
        self.push(self.operate(operator.invert, self.pop()))

    def UNARY_NOT(self, instruction: Instruction) -> None:
        """`not value`: a bool, so a tensor ends the graph here."""
        self.push(not self.truth(self.pop()))

    def GET_LEN(self, instruction: Instruction) -> None:
        """Push the length of the topmost value, which stays."""
        self.push(self.operate(len, self.stack[-1]))

    # ---- questions that no operator of a class answers -------------------------------------------

    def IS_OP(self, instruction: Instruction) -> None:
        """`left is right`; with the argument 1, `is not`."""
        left, right = map(asked_truth, self.popn(2))
        one, other = self.world.of(left), self.world.of(right)

        # Two objects from outside that are different now may be one object at another call. (Which
        # function or class it is has a guard already.)
        is_guarded = self.world.is_static(left) or self.world.is_static(right)
        if one and other and one is not other and not is_guarded:
            self.world.assume(one.source, "identity", AnotherObject(other.source))

        self.push((left is right) != instruction.arg)

    def CONTAINS_OP(self, instruction: Instruction) -> None:
        """`item in container`; with the argument 1, `not in`."""
        item, container = self.popn(2)
        self.look_into(item, container)
        if is_a(container, torch.Tensor):
            raise Unsupported("`in` a tensor depends on its data")

        is_in = self.native(operator.contains, container, concrete(item))
        self.push(is_in != instruction.arg)

    # ---- subscripts ------------------------------------------------------------------------------

    def BINARY_SUBSCR(self, instruction: Instruction) -> None:
        """`container[index]`"""
        container, index = self.popn(2)
        # `Optional[int]`: the code of `typing` runs as it is
        if type(container).__module__ == "typing":
            self.push(frames.call(None, operator.getitem, container, index))
            return

        if not is_a(container, torch.Tensor):
            index = concrete(index)
        item = self.operate(operator.getitem, container, index)

        # `Color["RED"]`: a class was asked, and gives an object that stands for itself
        if is_a(container, type) and self.world.is_static(item):
            item = self.world.wrap(item, None)
        self.push(item)

    def STORE_SUBSCR(self, instruction: Instruction) -> None:
        """`container[index] = value`"""
        value, container, index = self.popn(3)
        self.look_into(container)
        if not is_a(container, torch.Tensor):
            index = concrete(index)
        self.native(operator.setitem, container, index, value)

    def DELETE_SUBSCR(self, instruction: Instruction) -> None:
        """`del container[index]`"""
        container, index = self.popn(2)
        self.operate(operator.delitem, container, concrete(index))

    # ---- texts -----------------------------------------------------------------------------------

    def CONVERT_VALUE(self, instruction: Instruction) -> None:
        """`{value!r}` in an f-string: the argument names `str`, `repr` or `ascii`."""
        convert = getattr(builtins, instruction.arg)
        self.push(self.call(convert, concrete(self.pop())))

    def FORMAT_SIMPLE(self, instruction: Instruction) -> None:
        """`{value}` in an f-string."""
        self.push(self.call(format, concrete(self.pop())))

    def FORMAT_WITH_SPEC(self, instruction: Instruction) -> None:
        """`{value:spec}` in an f-string."""
        value, spec = self.popn(2)
        self.push(self.call(format, concrete(value), concrete(spec)))

    def BUILD_STRING(self, instruction: Instruction) -> None:
        """Join the parts of an f-string."""
        self.push("".join(self.popn(instruction.arg)))

    def BUILD_INTERPOLATION(self, instruction: Instruction) -> None:
        """`{value!r:spec}` in a template string (since Python 3.14)."""
        conversion, has_format = instruction.arg
        format_spec = self.pop() if has_format else ""
        value, text = self.popn(2)
        self.push(newer.make_interpolation(value, text, conversion, format_spec))

    def BUILD_TEMPLATE(self, instruction: Instruction) -> None:
        """A template string of its texts and interpolations (since Python 3.14)."""
        strings, interpolations = self.popn(2)
        self.push(newer.make_template(strings, interpolations))


def asked_truth(value: Any) -> Any:
    """A condition that only the data says is asked now, for `is True` sees the bool; anything else
    as it is."""
    return bool(value) if type(value) is torch.SymBool else value
