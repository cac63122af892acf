"""Guards as one generated Python function.

    def check(__func, self, x):
        try:
            if not looks_like(x, Tensor, float32, (32, 128, 768), (98304, 768, 1), False, ...):
                return False
            v1 = self._modules
            v2 = v1['ln']
            ...
            return True
        except MOVED:
            return False

In:  the guards of one capture, and the names of the frame's parameters.
Out: `Check.function(func, *args)`, True or False; `Check.first_failure(func, *args)`, which says
     why.

The two do the same work twice, on purpose. The function runs before every call, so it is as short
as it can be and keeps no reasons. A reason is wanted once in a while, so it is found again, test by
test, from the same records.
In PyTorch: `torch/_dynamo/guards.py` (`CheckFunctionManager.check_fn`, `get_guard_fail_reason`).
"""

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

from course_lib.capture import FUNCTION, Guard, SameAs, Test
from course_lib.capture.guard_tests import short
from course_lib.capture.sources import HELPERS, MOVED, variables
from course_lib.guards.writing import Names, write
from course_lib.written import define

# an exercise writes a check of its own, and takes the helpers from here
__all__ = ["HELPERS", "Check", "Failure"]


class Failure(NamedTuple):
    """The first test that did not hold: `part` was expected to be `expected` and is `got`."""

    guard: Guard
    part: str
    expected: str
    got: str

    def __str__(self) -> str:
        sentence = f"{self.part}: expected {self.expected}, got {self.got}"
        if cause := self.guard.cause:
            sentence += f" (assumed because of {cause}: {cause.text})"
        return sentence


class Check:
    """The compiled form of `guards` for a frame with these parameters.

    `function(func, *args)` answers True or False."""

    def __init__(
        self, guards: Sequence[Guard], parameters: Sequence[str], name: str = "frame"
    ) -> None:
        self.guards = tuple(guards)
        self.name = name
        self.parameters = tuple(variables(parameters).values())

        names = Names(self.parameters)
        self.source = write(self.guards, names)
        self.names = names.known
        self.function: Callable[..., bool] = define(
            "check", self.source, f"guards of {name}", self.names
        )

    def __call__(self, func: FunctionType, *args: Any) -> bool:
        return self.function(func, *args)

    def first_failure(self, func: FunctionType, *args: Any) -> Failure | None:
        """Which test fails for this call, and on what; None if all hold."""
        # What the text of the check sees: what it calls by name, the function, the parameters
        arguments = dict(zip(self.parameters, args, strict=True))
        namespace = {**self.names, FUNCTION: func, **arguments}

        for guard in self.guards:
            for test in guard.tests:
                if failure := failure_of(guard, test, namespace):
                    return failure
        return None


def failure_of(guard: Guard, test: Test, namespace: dict[str, Any]) -> Failure | None:
    """Ask one question again, as the check asked it, but keep what it got.

    `namespace`: the arguments, and what checks know by name.

    Nothing of the program runs between a check and this question, so both get the same answer."""
    path, expected = guard.source.shown, test.right
    try:
        got = eval(test.left.format(guard.source.expr), namespace)
        if isinstance(expected, SameAs):
            expected = eval(expected.source.expr, namespace)

    # the path leads nowhere any more: an attribute is gone, a list is shorter
    except MOVED as error:
        raised = f"{type(error).__name__}: {error}"
        return Failure(guard, test.part(path), short(test.right), raised)

    if test.holds(got, expected):
        return None
    return Failure(guard, *test.explain(path, got))
