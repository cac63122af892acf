"""Calls with unpacked arguments, and the functions and classes that the program makes.

In:  a callable and its arguments on the stack, or a code object.
Out: what the call gives (`calls.call` decides how), or an ordinary Python function. `CALL` itself:
`stack.py`.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`CALL_FUNCTION_EX`, `MAKE_FUNCTION`,
`LOAD_BUILD_CLASS`).
"""

import builtins
from types import CellType, FunctionType

from course_lib.capture.opcodes.containers import Containers
from course_lib.capture.values import name_of
from course_lib.capture.world import NULL
from course_lib.frames import Instruction, newer


class Calls(Containers):
    """Instructions that call, and that make what can be called."""

    def CALL_FUNCTION_EX(self, instruction: Instruction) -> None:
        """`f(*args, **kwargs)`: a dict is on top if the argument is true; since Python 3.14 perhaps
        NULL in its place."""
        kwargs = self.pop() if instruction.arg else NULL
        args = self.pop()

        # The two slots below hold the callable, and NULL. It is named in the message, should `args`
        # not be iterable.
        function = next(slot for slot in self.stack[-2:] if slot is not NULL)
        message = newer.NOT_ITERABLE.format(function=name_of(function, exact=True), type="{}")

        keywords = {} if kwargs is NULL else dict(kwargs)
        self.call_popped(list(self.unpacked(args, message)), keywords)

    def MAKE_FUNCTION(self, instruction: Instruction) -> None:
        """Pop a code object, push a function of it; SET_FUNCTION_ATTRIBUTE gives it the rest."""
        code = self.pop()
        cells = tuple(CellType() for _ in code.co_freevars)
        self.push(self.as_made_here(FunctionType(code, self.globals, None, None, cells)))

    def SET_FUNCTION_ATTRIBUTE(self, instruction: Instruction) -> None:
        """Give the topmost function its closure, defaults or annotations, which lie below it."""
        new, function = self.popn(2)
        if instruction.arg == "closure":
            # before it gets anything else: a function's closure cannot be set later
            function = FunctionType(function.__code__, self.globals, None, None, new)
            self.as_made_here(function)
        elif instruction.arg == "annotations":
            function.__annotations__ = dict(zip(new[::2], new[1::2], strict=True))
        else:
            setattr(function, f"__{instruction.arg}__", new)
        self.push(function)

    def as_made_here(self, function: FunctionType) -> FunctionType:
        """Remember that the program made this function: nothing about it needs a guard."""
        self.world.made[id(function)] = function
        return function

    def LOAD_BUILD_CLASS(self, instruction: Instruction) -> None:
        """Push the builtin behind a `class` statement (`calls.build_class` follows it)."""
        self.push(builtins.__build_class__)
