"""`value.name = new` and `del value.name`: only copies change.

In:  a value of the interpreted program, a name, and perhaps a new value.
Out: nothing. A copy has the new attribute; of a class, a module or a tensor it is noted
(`World.store`) for the head to do.
In PyTorch: `torch/_dynamo/side_effects.py` (`SideEffects.store_attr`), `variables/builtin.py`
(`call_setattr`).
"""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.attributes.classes import is_value, own_descriptor
from course_lib.capture.attributes.lookup import get
from course_lib.capture.attributes.tensors import change_tensor
from course_lib.capture.classes import MISSING, TRUSTED, is_a, is_users, own_dict
from course_lib.capture.known import Known
from course_lib.capture.sources import REGISTRIES, Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


OPAQUE_CHANGES: dict[type, Callable[..., None]] = {}
"""Type of an object that capture knows nothing else about → how an attribute of it is changed:
(interpreter, what is known, name, and perhaps the new value)."""


def change(it: Machine, value: Any, name: str, *new: Any, plainly: bool = False) -> None:
    """`value.name = new`; without `new`: `del value.name`.

    `plainly`: as `object.__setattr__` does it, whatever the class says."""
    world = it.world
    if is_a(value, torch.Tensor) and not world.is_opaque(value):
        change_tensor(it, value, name, *new)
        return

    known = world.of(value)
    if known is not None and known.opaque and type(known.real) in OPAQUE_CHANGES:
        OPAQUE_CHANGES[type(known.real)](it, known, name, *new)
        return
    if world.is_opaque(value) or (world.is_static(value) and world.source_of(value)):
        store_in_place(it, value, name, *new)
        return

    if known is not None:
        refuse_deep_change(known, name)
        if is_changed_by_module(value, bool(new), plainly):
            set_module_attribute(it, value, name, *new)
            return
        world.fill(known, name)

    # A `__setattr__` of the class's own comes first; it may reach the descriptor, or not.
    if not plainly and not has_own_way(value, bool(new)):
        method = "__set__" if new else "__delete__"
        own_method = own_descriptor(it, value, name, method)
        if own_method:
            it.call(own_method, value, *new)
            return
    it.native(changer(bool(new), plainly), value, name, *new)


def has_own_way(value: Any, sets: bool) -> bool:
    """Has the class of `value` a `__setattr__` of its own (or, unless it `sets`, a
    `__delattr__`)?"""
    method = "__setattr__" if sets else "__delattr__"
    usual = (getattr(object, method), getattr(torch.nn.Module, method))
    return getattr(type(value), method) not in usual


def changer(sets: bool, plainly: bool) -> Any:
    """Python's function that sets (or else deletes) an attribute; `plainly`: that of `object`."""
    if sets:
        if plainly:
            return object.__setattr__
        return setattr
    if plainly:
        return object.__delattr__
    return delattr


def refuse_deep_change(known: Known, name: str) -> None:
    """Raise Unsupported for a change of the class or the dict of an object from outside, or of an
    object that is no copy."""
    if name in ("__dict__", "__class__") or known.attributes is None:
        raise Unsupported(f"replaces {name} of a {type(known.stand_in).__name__}")


def is_changed_by_module(value: Any, sets: bool, plainly: bool) -> bool:
    """Would `nn.Module.__setattr__` do it (or, unless it `sets`, `__delattr__`)?

    Not where the program called `object.__setattr__` (`plainly`)."""
    if plainly and sets:
        return False
    method = "__setattr__" if sets else "__delattr__"
    return getattr(type(value), method) is getattr(torch.nn.Module, method)


def store_in_place(it: Machine, value: Any, name: str, new: Any = MISSING) -> None:
    """Note the change of a class or a module of the user's, which the head makes.

    Raises Unsupported where code of the user's would run when the head makes it: a metaclass's
    `__setattr__`, a descriptor."""
    if is_class_with_plain_attribute(value, name, new):
        it.world.store(value, name, new)
        return

    is_users_module = is_a(value, types.ModuleType) and value.__name__.split(".")[0] not in TRUSTED
    if (
        is_users_module
        and new is not MISSING
        and it.world.globals_source(value.__dict__) is not None
    ):
        it.world.store(value.__dict__, name, new)
        return

    owner_name = getattr(value, "__name__", type(value).__name__)
    raise Unsupported(f"changes the attribute '{name}' of {owner_name}")


def is_class_with_plain_attribute(value: Any, name: str, new: Any) -> bool:
    """Is this a class of the user's, whose attribute is a plain value before and after?"""
    if not is_a(value, type) or not is_users(value) or name[:2] == "__":
        return False
    if type(value).__setattr__ is not type.__setattr__:
        return False
    old_value = inspect.getattr_static(value, name, None)
    return is_value(new) and not hasattr(type(old_value), "__get__")


def set_module_attribute(
    it: Machine, module: torch.nn.Module, name: str, new: Any = MISSING
) -> None:
    """`nn.Module.__setattr__` (or `__delattr__`).

    For a module from outside it is done here: torch's own code would look at more."""
    known = it.world.of(module)
    if known is None:
        it.native(torch.nn.Module.__setattr__, module, name, new)
        return

    # The registry that has the name now, and the one for the new value: None if there is none
    registry = next((place for place in REGISTRIES if name in get(it, module, place)), None)
    wanted = registry_for(new)
    # What stands there stays of its kind. A buffer's new value is a plain tensor.
    if registry and new is not None and new is not MISSING and registry != (wanted or "_buffers"):
        raise Unsupported(
            f"replaces '{name}', one of a module's {registry}, by a {type(new).__name__}"
        )

    it.world.fill(known, name)
    if wanted:
        own_dict(module).pop(name, None)

    place = registry or wanted
    values = () if new is MISSING else (new,)
    if not place:
        # An ordinary attribute
        it.native(changer(bool(values), plainly=True), module, name, *values)
        return

    change_item: Any = operator.setitem if values else operator.delitem
    it.native(change_item, get(it, module, place), name, *values)


def registry_for(new: Any) -> str | None:
    """Where a module keeps a new value, None for an ordinary attribute."""
    if is_a(new, torch.nn.Module):
        return "_modules"
    if is_a(new, torch.nn.Parameter):
        return "_parameters"
    return None
