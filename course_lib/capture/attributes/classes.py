"""Attributes of classes, and descriptors of the user's own kinds.

In:  a class and a name.
Out: the attribute. A value is guarded where it was found, and copied if it can change.
In PyTorch: `torch/_dynamo/variables/user_defined.py` (`UserDefinedClassVariable.var_getattr`).
"""

from __future__ import annotations

import inspect
import types
from typing import TYPE_CHECKING, Any

from course_lib.capture.classes import MISSING, is_a, is_users, member_of
from course_lib.capture.guard_tests import Test, has_literal
from course_lib.capture.sources import Source, Unsupported, attribute_of
from course_lib.capture.values import CONSTANT_TYPES

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


def is_data(member: Any) -> bool:
    """Does this class attribute come before what the instance itself has by that name?"""
    return hasattr(type(member), "__get__") and hasattr(type(member), "__set__")


def is_value(member: Any) -> bool:
    """Is this class attribute a plain value, which reading it gives as it is?"""
    return member is not MISSING and not hasattr(type(member), "__get__")


def class_attribute(it: Machine, cls: type, name: str) -> Any:
    """`cls.name`"""
    static = inspect.getattr_static(cls, name, MISSING)
    owner = next((base for base in cls.__mro__ if name in base.__dict__), cls)

    # no guard for a class that the program itself made
    if id(owner) in it.world.made:
        return it.native(getattr, cls, name)
    if id(cls) in it.world.made and is_value(static):
        return class_attribute(it, owner, name)

    source = it.world.source_of(cls)
    if name == "__dict__" and is_users(cls) and id(cls) not in it.world.made:
        assume_class_dict(it, cls, source)
    if read := own_descriptor(it, None, name, "__get__", cls):
        return it.call(read, None, cls)

    try:
        attribute = it.native(getattr, cls, name)
    finally:
        if not is_value(static):
            it.world.see(cls, source, name)
    if attribute is not static and not is_a(static, staticmethod):
        return attribute  # a bound classmethod, or what a descriptor or the metaclass makes of it
    return guarded_value(it, cls, name, static, attribute)


def guarded_value(it: Machine, cls: type, name: str, static: Any, value: Any) -> Any:
    """What stands for a value, or for a function, as it stands in the body of a class.

    `static`: what stands there; `value`: what reading it gives."""
    source = it.world.source_of(cls)

    # What nobody changes needs no guard: constants of Python's library and torch, and names such as
    # `__name__` and `__slots__`. What has no place cannot have one.
    is_librarys = type(value) in CONSTANT_TYPES and not is_users(cls)
    has_no_place = source is None and has_literal(value)
    is_special = name.startswith("__") and not is_a(value, (types.FunctionType, dict, list))
    may_change = is_value(static) or is_a(value, types.FunctionType)
    if is_librarys or has_no_place or is_special or not may_change:
        return value

    if source is None and not it.world.is_static(value) and type(value) not in CONSTANT_TYPES:
        raise Unsupported(
            f"reads the attribute '{name}' of the class {cls.__name__}, which has no known place"
        )
    return it.world.wrap(value, attribute_of(source, name))


def assume_class_dict(it: Machine, cls: type, source: Source | None) -> None:
    """`cls.__dict__` of the user's class: guard all of it."""
    changed = any(stored.holder is cls for stored in it.world.stored.values())
    if source is None or changed:
        raise Unsupported(
            f"reads the dict of the class {cls.__name__}, which was changed before or has no known place"
        )
    it.world.assume(source, "class", Test("dict({}.__dict__)", "==", dict(cls.__dict__)))


def own_descriptor(it: Machine, value: Any, name: str, method: str, cls: Any = None) -> Any:
    """`__get__`, `__set__` or `__delete__` of a descriptor of the user's own kind in the class of
    `value`, None if there is none.

    The method is bound to a copy of the descriptor.
    """
    cls = cls or type(value)
    descriptor = member_of(cls, name)
    function = member_of(type(descriptor), method)
    if not is_a(function, types.FunctionType) or not is_users(type(descriptor)):
        return None

    # The class whose body has it: one of the bases, perhaps
    bodies = [(at, base) for at, base in enumerate(cls.__mro__) if name in base.__dict__]
    at, body = bodies[0]
    # The program itself has made the descriptor: no copy stands for it.
    if id(body) in it.world.made:
        return types.MethodType(function, descriptor)

    known = it.world.of(value)
    if known is not None:
        source: Any = known.source.type()
    else:
        source = it.world.source_of(cls)

    if source is not None:
        base_source = source.attr("__mro__").item(at)
        source = base_source.attr("__dict__").item(name)
    return types.MethodType(function, it.world.wrap(descriptor, source))
