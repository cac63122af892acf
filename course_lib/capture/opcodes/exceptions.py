"""Exceptions and context managers: raise, except, finally, with.

In:  an exception of the interpreted program: an ordinary Python exception, raised while an
     instruction runs.
Out: another place in the program, by the code's exception table (`Machine.unwind`), or the
exception leaves the call.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`exception_handler`, `RAISE_VARARGS`,
`PUSH_EXC_INFO`, `BEFORE_WITH`).
"""

from typing import Any

from course_lib.capture import attributes
from course_lib.capture.classes import MISSING, is_a, member_of
from course_lib.capture.machine import Machine
from course_lib.capture.sources import Unsupported
from course_lib.capture.world import NULL, Handled
from course_lib.frames import Instruction

MANAGING = ("__enter__", "__exit__")
"""The methods that `with` asks the class of a context manager for."""


class Exceptions(Machine):
    """Instructions that raise and handle."""

    # ---- raise -----------------------------------------------------------------------------------

    def RAISE_VARARGS(self, instruction: Instruction) -> None:
        """`raise` (0), `raise error` (1), `raise error from cause` (2)."""
        error_and_cause = self.popn(instruction.arg)
        error = self.exception_of(error_and_cause[0]) if error_and_cause else self.handled_now()
        self.look_into(error)
        if is_a(error, KeyboardInterrupt):
            raise Unsupported(f"raises {type(error).__name__}, which would end the capture too")

        if len(error_and_cause) == 2:
            cause = error_and_cause[1]
            error.__cause__ = self.call(cause) if is_a(cause, type) else cause

        # CPython sets the error's `__context__` to the exception that is being handled, and avoids
        # a circle of such links. It does the same here, where the error is raised while that
        # exception is handled. (One from outside is not raised: that would write its traceback.)
        handled: BaseException = error
        if self.handling is not None and not self.world.is_opaque(self.handling):
            handled = self.handling
        try:
            raise handled
        except BaseException:
            raise error  # noqa: B904

    def exception_of(self, error: Any) -> Any:
        """What `raise error` raises: an exception, or a call of its class."""
        if is_a(error, type):
            error = self.call(error)
        if not is_a(error, BaseException):
            raise TypeError("exceptions must derive from BaseException")
        return error

    def handled_now(self) -> Any:
        """What a bare `raise` raises: the exception that is being handled."""
        if self.handling is None or self.world.is_opaque(self.handling):
            raise Unsupported("raises again an exception from outside")
        return self.exception_of(self.handling)

    def RERAISE(self, instruction: Instruction) -> None:
        """Raise the topmost value: no `except` took it, or a `finally` has ended."""
        self.look_into(self.stack[-1])
        raise self.pop()

    # ---- except ----------------------------------------------------------------------------------

    def PUSH_EXC_INFO(self, instruction: Instruction) -> None:
        """Begin to handle the topmost exception; what was handled before goes below it."""
        error = self.pop()
        self.stack += [Handled(self.handling, error), error]
        self.handling = error

    def CHECK_EXC_MATCH(self, instruction: Instruction) -> None:
        """`except kind`, or `except (kind, another)`: does the exception below match? It stays.

        As in CPython no metaclass is asked, so an `__instancecheck__` has no say."""
        kind = self.pop()
        kinds = kind if is_a(kind, tuple) else (kind,)
        if not all(is_a(cls, type) and BaseException in cls.__mro__ for cls in kinds):
            raise TypeError(
                "catching classes that do not inherit from BaseException is not allowed"
            )
        classes_of_error = type(self.stack[-1]).__mro__
        self.push(any(cls in classes_of_error for cls in kinds))

    def POP_EXCEPT(self, instruction: Instruction) -> None:
        """End an `except` block: what was handled before it is handled again."""
        handled = self.pop()
        self.handling = handled.before

        # Behind a COPY it lies on the stack twice. What is left there is an exception like any
        # other: a resume function that found the mark would begin to handle it.
        self.stack = [self.handling if value is handled else value for value in self.stack]

    # ---- with ------------------------------------------------------------------------------------

    def BEFORE_WITH(self, instruction: Instruction) -> None:
        """`with manager`: push its `__exit__`, and what its `__enter__()` gives."""
        manager = self.pop()
        self.look_into(manager)
        if any(member_of(type(manager), method) is MISSING for method in MANAGING):
            raise_no_manager(attributes.type_of(self, manager))
        self.push(attributes.get(self, manager, "__exit__"))
        self.push(self.call(attributes.get(self, manager, "__enter__")))

    def WITH_EXCEPT_START(self, instruction: Instruction) -> None:
        """The body raised: push what `__exit__(type, error, traceback)` gives.

        (True: the exception is dealt with.) The argument is the number of slots of `__exit__`: one
        of them may be NULL, or hold the manager."""
        error = self.stack[-1]
        slots = self.stack[-3 - instruction.arg : -3]
        exit_method, *instance = [slot for slot in slots if slot is not NULL]
        self.push(self.call(exit_method, *instance, type(error), error, error.__traceback__))


def raise_no_manager(cls: type) -> None:
    """Raise what `with` raises for an instance of `cls`, which lacks one of `MANAGING`.

    A class of the same name, and with as many of these methods, lets Python find the words.
    """
    asked = (*MANAGING, "__aenter__", "__aexit__")
    methods = {name: None for name in asked if member_of(cls, name) is not MISSING}
    empty: Any = type(cls.__name__, (), methods)
    with empty():
        pass
