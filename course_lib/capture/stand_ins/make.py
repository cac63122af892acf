"""Which stand-in an object gets that is met for the first time: an ordered list of rules.

In:  the world, a real object that can change (or is no constant of Python's), and where it was
     found.
Out: its stand-in. A rule answers `GO_ON` for an object of another kind: then the next rule is
     asked. What no rule knows is *opaque*: it can be passed on, and that is all.
In PyTorch: `torch/_dynamo/variables/builder.py`, `VariableBuilder._wrap`.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from course_lib.capture.classes import is_a, own_dict
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Source
from course_lib.capture.stand_ins.containers import container, set_of_constants
from course_lib.capture.stand_ins.instances import cell, instance
from course_lib.capture.stand_ins.iterators import iterator
from course_lib.capture.stand_ins.kinds import BY_VALUE, SCALARS
from course_lib.capture.stand_ins.slots import in_slots
from course_lib.capture.stand_ins.tensors import tensor

if TYPE_CHECKING:
    from course_lib.capture.world import World

Maker = Callable[["World", Any, Source], Any]

OF_TYPE: dict[type, Maker] = {}
"""Type → what makes the stand-in of an object of this very type; `corners/` fill it."""
OF_OBJECT: dict[int, Maker] = {}
"""`id` of an object → what makes the stand-in of this one object."""


def make_stand_in(world: World, obj: Any, source: Source) -> Any:
    """The stand-in of an object that is met for the first time."""
    for rule in STAND_IN_RULES:
        stand_in = rule(world, obj, source)
        if stand_in is not GO_ON:
            return stand_in
    return world.opaque(obj, source)


def special(world: World, obj: Any, source: Source) -> Any:
    """An object or a type for which a corner has its own way."""
    make = OF_OBJECT.get(id(obj)) or OF_TYPE.get(type(obj))
    if make:
        return make(world, obj, source)
    return GO_ON


def constant(world: World, obj: Any, source: Source) -> Any:
    """An object that cannot change: it stands for itself, and is guarded by value."""
    # An instance of a class built on `int` or `str` may have attributes, which can change.
    is_scalar = is_a(obj, SCALARS) and not getattr(obj, "__dict__", None)
    if type(obj) not in BY_VALUE and not is_scalar:
        return GO_ON
    world.assume_constant(obj, source)
    return world.know(obj, obj, source).stand_in


def bound_method(world: World, obj: Any, source: Source) -> Any:
    """`instance.method`: made anew of what stands for both parts."""
    if type(obj) is not types.MethodType:
        return GO_ON
    world.assume_type(obj, source)
    function, owner = parts(world, obj, source, "__func__", "__self__")
    return world.know(types.MethodType(function, owner), obj, source).stand_in


def bound_builtin(world: World, obj: Any, source: Source) -> Any:
    """`values.append`"""
    if type(obj) is not types.BuiltinMethodType:
        return GO_ON
    world.assume_type(obj, source)
    owner, name = parts(world, obj, source, "__self__", "__name__")
    return world.know(getattr(owner, name), obj, source).stand_in


def partial(world: World, obj: Any, source: Source) -> Any:
    """`functools.partial(f, ...)`. `functools.update_wrapper` gives it attributes of its own."""
    if type(obj) is not functools.partial:
        return GO_ON
    world.assume_type(obj, source)
    function, args, keywords = parts(world, obj, source, "func", "args", "keywords")
    known = world.know(functools.partial(function, *args, **keywords), obj, source)
    if own_dict(obj):
        # What the real one has in its dict is filled in when it is read; its slots are filled
        # already.
        known.attributes = in_slots(known.stand_in)
    return known.stand_in


def parts(world: World, obj: Any, source: Source, *names: str) -> list[Any]:
    """What stands for these attributes."""
    return [world.wrap(getattr(obj, name), source.attr(name)) for name in names]


def named_result(world: World, obj: Any, source: Source) -> Any:
    """What `torch.max(x, 0)` gives: a tuple with names."""
    cls = type(obj)
    if cls.__module__ != "torch.return_types":
        return GO_ON
    world.assume_type(obj, source)
    items = [world.wrap(item, source.item(at)) for at, item in enumerate(obj)]
    return world.know(cls(items), obj, source).stand_in


STAND_IN_RULES: list[Maker] = [
    tensor,
    special,
    container,
    cell,
    set_of_constants,
    constant,
    bound_method,
    bound_builtin,
    partial,
    named_result,
    iterator,
    instance,
]
"""Each gives a stand-in, or GO_ON."""
