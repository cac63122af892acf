"""What Python calls by itself while a capture runs: a sort key, an `__eq__`, a property.

In:  a frame that Python, or a function written in C, is about to run.
Out: the interpreter runs it in its place; code below torch's own operators runs as it is.
In PyTorch there is no counterpart: TorchDynamo models each builtin in Python
(`variables/builtin.py`).
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from course_lib import frames
from course_lib.capture.classes import BELOW_TORCH
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import SYMBOLIC, concrete

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine
    from course_lib.capture.world import World

KNOWS_STAND_INS = ("course_lib.", "copyreg.")
"""Code that may meet the stand-in of an instance, though it is not interpreted."""


class Inliner(frames.Watcher):
    """Watches what Python calls by itself: frames of Python code come back to the interpreter."""

    def __init__(self, world: World) -> None:
        super().__init__(capture_nothing)
        self.world = world
        self.caller: Machine | Any = None  # The interpreter that has called Python

    def __call__(self, code: types.CodeType, function: types.FunctionType, *args: Any) -> Any:
        if function.__name__ == "__repr__" and type(args[0]) in SYMBOLIC:
            return show_number

        # With a dot at the end: `sympy_tools.` does not begin with `sympy.`
        module = f"{function.__module__}."
        is_known = module.startswith(("course_lib.", *BELOW_TORCH)) or module == "torch."
        run = self.natively if is_known else self.inline
        return functools.partial(frames.call, None, run)

    def natively(self, function: types.FunctionType, *args: Any) -> Any:
        """Run the frame as it is.

        It must not meet the stand-in of an instance, whose attributes nobody would fill in."""
        if not f"{function.__module__}.".startswith(KNOWS_STAND_INS):
            for value in args:
                self.refuse_bare_stand_in(value, function)
        return frames.run_apart(function, *args)

    def refuse_bare_stand_in(self, value: Any, function: types.FunctionType) -> None:
        """Raise Unsupported if `function` would get the stand-in of an instance."""
        bare = self.bare_stand_in(value)
        if bare is not None:
            raise Unsupported(
                f"gives a {type(bare).__name__} to {function.__qualname__}, which is a part of Python or torch",
                "use it outside the compiled function",
            )

    def bare_stand_in(self, value: Any) -> Any:
        """The stand-in of an instance from outside in a value, or in a nest of plain containers;
        None if there is none."""
        known = self.world.of(value)
        if known is not None and known.attributes is not None and type(value) is not types.CellType:
            return value

        if type(value) is dict:
            value = list(value.values())
        if type(value) in (tuple, list):
            for part in value:
                bare = self.bare_stand_in(part)
                if bare is not None:
                    return bare
        return None

    def inline(self, function: types.FunctionType, *args: Any) -> Any:
        """Interpret the frame.

        Where an argument was left out, Python has put the real default into `args`. The program
        must see what stands for that default, so it is put in its place."""
        world = self.world
        world.adopt(function, args)

        # The real defaults and their stand-ins come in the same order.
        defaults, more = world.defaults(function)
        real = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
        stand_ins = dict(zip(map(id, real), (*defaults, *more.values()), strict=True))
        values = tuple(stand_ins.get(id(arg), arg) for arg in args)
        return self.caller.enter(function, values)


def capture_nothing(frame: Any) -> None:
    """No frame is captured by itself."""


def show_number(function: types.FunctionType, number: Any) -> str:
    """`repr` of a symbolic number: to the program it is this number."""
    return repr(concrete(number))
