"""Classes: calls of them, and `class` statements.

In:  a class, or the body of one.
Out: an instance that Python makes, or a class that Python makes; what the user wrote of them in
Python is interpreted.
In PyTorch: `torch/_dynamo/variables/user_defined.py` (`UserDefinedClassVariable`),
`variables/builtin.py` (`call_type`).
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.builtins import is_safe_type
from course_lib.capture.calls.callbacks import with_callbacks
from course_lib.capture.classes import MISSING, functions_of, is_a, is_users, member_of
from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


def construct(it: Machine, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`cls(*args, **kwargs)`: Python makes the object; what the class wrote in Python is
    interpreted."""
    # `__del__` is to run when the program drops the object
    if issubclass(cls, torch.Tensor) or member_of(cls, "__del__") is not MISSING:
        raise Unsupported(f"makes a {cls.__name__}", "make it outside the compiled function")

    it.world.see(cls, it.world.source_of(cls))
    for name in ("__new__", "__init__"):
        maker = member_of(cls, name)
        if not is_a(getattr(maker, "__func__", maker), types.FunctionType):
            check_maker(it, cls, name, [*args, *kwargs.values()])

    if not is_users(cls):
        args, kwargs = with_callbacks(it, cls, args, kwargs)
    return it.native(cls, *args, **kwargs)


def check_maker(it: Machine, cls: type, name: str, arguments: list[Any]) -> None:
    """A `__new__` or `__init__` written in C must be known to touch nothing but its arguments."""
    owner = next(base for base in cls.__mro__ if name in base.__dict__)
    if not is_safe_type(owner):
        raise Unsupported(f"makes a {cls.__name__}, which capture cannot make")
    if owner not in (object, functools.partial):
        it.look_into(*arguments)


def build_class(
    it: Machine, function: types.FunctionType, name: str, /, *bases: Any, **options: Any
) -> Any:
    """`class name(*bases): ...`: the body is interpreted, then Python makes the class of its names.

    In CPython: `builtin___build_class__` in `Python/bltinmodule.c`.
    """
    resolved = it.native(types.resolve_bases, bases)
    metaclass, names, options = it.native(types.prepare_class, name, resolved, options)
    it.enter(function, (), names)
    if resolved is not bases:
        names["__orig_bases__"] = bases
    return register_class(it, it.native(metaclass, name, resolved, names, **options))


def register_class(it: Machine, cls: type) -> type:
    """Remember a class as made by the interpreted program, and the functions that others have
    written into it."""
    it.world.made[id(cls)] = cls
    for member in vars(cls).values():
        for function in functions_of(member).values():
            if it.world.source_of(function) is None:
                it.world.made[id(function)] = function
    return cls
