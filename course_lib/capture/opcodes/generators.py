"""Generators: `yield`, and `yield from`.

In:  a frame whose code is a generator's. Its interpreter runs inside a real generator
     (`Machine.generator`).
Out: `yielded`, the value at which the machine stops until someone asks for the next one.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`InliningGeneratorInstructionTranslator`),
`variables/functions.py`.
"""

from typing import Any

from course_lib.capture.classes import is_a
from course_lib.capture.machine import NOTHING, Machine
from course_lib.frames import Instruction, newer


class Generators(Machine):
    """Instructions of generators."""

    def RETURN_GENERATOR(self, instruction: Instruction) -> None:
        """The generator is there already: push the value that CPython sends first, which is
        dropped."""
        self.push(None)

    def YIELD_VALUE(self, instruction: Instruction) -> None:
        """The machine stops here and hands the topmost value out."""
        self.yielded = self.pop()

    def GET_YIELD_FROM_ITER(self, instruction: Instruction) -> None:
        """`yield from value`: `iter(value)`."""
        self.push(self.iterate(self.pop()))

    def SEND(self, instruction: Instruction) -> None:
        """`yield from iterator`: hand the value that was sent in (or the exception that was thrown
        in) on to the iterator, and push what the iterator yields. (PEP 380)"""
        value = self.pop()
        at = self.iterator_at()
        try:
            yielded = self.hand_on(self.stack[at], value)
        except StopIteration as stop:
            self.jump(instruction.arg)
            if self.program[self.next].op != "END_SEND":
                # Python 3.11 has no END_SEND: SEND itself takes the iterator off the stack.
                del self.stack[at:]
            yielded = stop.value

        if yielded is NOTHING:
            # `value` is an exception, and the iterator has not yielded for it: as in CPython it
            # is raised at the `yield from`
            raise value
        self.push(yielded)

    def hand_on(self, receiver: Any, value: Any) -> Any:
        """What the iterator `receiver` yields when `value` is sent into it, or thrown if it is an
        exception.

        NOTHING: it yields nothing, for it takes no exceptions, or a GeneratorExit has closed it."""
        if value is None:
            return self.native(next, receiver)

        if is_a(value, GeneratorExit):
            if hasattr(receiver, "close"):
                self.native(receiver.close)
            return NOTHING

        if is_a(value, BaseException):
            if hasattr(receiver, "throw"):
                return self.native(receiver.throw, value)
            return NOTHING

        return self.native(newer.method_to_send(receiver), value)

    def END_SEND(self, instruction: Instruction) -> None:
        """Drop the receiver, which lies below the result."""
        del self.stack[self.iterator_at(below=1) : -1]

    def STOPITERATION_ERROR(self, instruction: Instruction) -> None:
        """A StopIteration leaves a generator as a RuntimeError: the real generator around this code
        does it."""
