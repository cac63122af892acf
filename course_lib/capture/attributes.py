"""`value.name`, `value.name = x` and `del value.name` in the interpreted world.

An instance from outside has a copy whose attributes are filled in when they are first read; then Python itself does the rest
(properties, `__getattr__`, methods, slots), and the frame hook hands whatever Python code that runs to the interpreter.
In PyTorch: `var_getattr` in `torch/_dynamo/variables/` (`TensorVariable`, `NNModuleVariable`, `UserDefinedObjectVariable`).
"""

from __future__ import annotations

import enum
import functools
import inspect
import operator
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch

from course_lib import frames
from course_lib.capture.classes import HEAP_TYPE, TRUSTED, is_users, isinstance, member_of, own_dict
from course_lib.capture.graph import PLAIN, Known
from course_lib.capture.shapes import SYMBOLIC, concrete
from course_lib.capture.sources import REGISTRIES, Imported, Unsupported
from course_lib.capture.tests import LacksAttribute, Test, has_literal
from course_lib.capture.world import MISSING, Remaining, is_slot

if TYPE_CHECKING:
    from course_lib.capture.interpreter import Interpreter

SETTLED = {"shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_cuda", "is_cpu", "itemsize", "nbytes",
           "is_sparse", "is_quantized", "is_meta", "is_mps", "is_xpu", "is_mkldnn", "is_nested",
           "T", "mT", "H", "mH", "real", "imag", "data"}  # fmt: skip
"""Attributes of a tensor that its guard settles, and those that are operations."""
OPAQUE_ATTRIBUTES: dict[type, Callable[[Interpreter, Known, str], Any]] = {}
"""Type of an object that capture knows nothing else about → how an attribute of it is read."""

ASSIGNED: dict[str, Callable[[Interpreter, torch.Tensor, Any], None]] = {}
"""Attributes of torch's own tensors that a program may set, and how (`corners/tensors.py`)."""


def get(it: Interpreter, value: Any, name: str, *, default: bool = False) -> Any:
    """The value of `value.name`. Raises what Python raises. With `default` as `object.__getattribute__` finds it."""
    world, value = it.world, concrete(value) if type(value) in SYMBOLIC else value
    written = world.written(value if isinstance(value, type) else type(value), name)
    found = member_of(type(value), name) if written is MISSING else written
    if not default and isinstance(member_of(type(value), "__getattribute__"), types.FunctionType):
        return it.native(getattr, value, name)  # the class's own code decides
    if isinstance(value, torch.Tensor) and not world.is_opaque(value):
        return tensor_attribute(it, value, name)
    known = world.of(value)
    if known is not None and known.opaque:
        if read := OPAQUE_ATTRIBUTES.get(type(known.real)):
            return read(it, known, name)
        if not isinstance(
            found, (types.FunctionType, types.MethodDescriptorType)
        ) or name in own_dict(value):
            raise Unsupported(
                f"reads the attribute '{name}' of a {type(value).__name__}",
                "use it outside the compiled function",
            )
        world.class_attribute(known, name, found)
    if isinstance(value, types.ModuleType):
        return module_attribute(it, value, name)
    if isinstance(value, type):
        return class_attribute(it, value, name) if written is MISSING else written
    if type(value) is super:
        return super_attribute(it, value, name)
    if isinstance(value, types.FunctionType):
        return function_attribute(it, value, name)
    if known is not None and isinstance(value, enum.Enum) and name in own_dict(value):
        return world.wrap(own_dict(value)[name], known.source.attr(name))
    copied = known if known is not None and known.attributes is not None else None
    if copied:
        if name in ("__dict__", "__reduce_ex__", "__reduce__", "__getstate__", "__dir__"):
            world.fill_all(copied)
            if name == "__dict__" and isinstance(found, types.GetSetDescriptorType):
                return world._know(
                    own_dict(value), own_dict(copied.real), world.own(copied, name)
                ).stand_in
        elif is_slot(found):
            world.fill(copied, name)
        elif not is_data(found) and not world.fill(copied, name) and found is MISSING:
            member = module_member(it, copied, name)
            if member is not MISSING:
                return member
    elif (
        known is not None
        and found is MISSING
        and type(known.real).__dictoffset__
        and name not in own_dict(known.real)
    ):
        world.assume_absent(known.source.attr("__dict__"), name)
    if name not in own_dict(value) or is_data(found):
        if copied:
            world.class_attribute(copied, name, found)
        if read := own_descriptor(it, value, name, "__get__"):
            return it.call(read, value, type(value))
        if type(found) is functools.cached_property:  # as from Python 3.12 on, without a lock
            change(it, value, name, made := it.call(found.func, value), default=True)
            return made
        if is_value(found) and found is written:
            return found
        if is_value(found) and type(value).__flags__ & HEAP_TYPE:
            place = copied and copied.source.type().attr(name)
            return world.wrap(found, place) if place else class_attribute(it, type(value), name)
    return it.native(object.__getattribute__ if default else getattr, value, name)


def module_member(it: Interpreter, known: Known, name: str) -> Any:
    """A parameter, buffer or submodule of an object from outside, MISSING if it has none of that name."""
    world, real, own = it.world, known.real, own_dict(known.stand_in)
    for registry in REGISTRIES if isinstance(real, torch.nn.Module) else ():
        if registry in own:
            if name in own[registry]:
                return own[registry][name]
        elif name in real.__dict__.get(registry, ()):
            return world.wrap(real.__dict__[registry][name], world.own(known, registry).item(name))
    return MISSING


def own_descriptor(it: Interpreter, value: Any, name: str, method: str, cls: Any = None) -> Any:
    """`__get__`, `__set__` or `__delete__` of a descriptor of the user's own kind in the class of `value`: of a copy of it."""
    known, cls = it.world.of(value), cls or type(value)
    found = member_of(cls, name)
    function = member_of(type(found), method)
    if not isinstance(function, types.FunctionType) or not is_users(type(found)):
        return None
    source = known.source.type() if known is not None else it.world.source_of(cls)
    body = next(i for i, base in enumerate(cls.__mro__) if name in base.__dict__)
    place = source and source.attr("__mro__").item(body).attr("__dict__").item(name)
    return types.MethodType(
        function, found if id(cls.__mro__[body]) in it.world.made else it.world.wrap(found, place)
    )


def is_data(found: Any) -> bool:
    """Does this class attribute come before what the instance itself has by that name?"""
    return hasattr(type(found), "__get__") and hasattr(type(found), "__set__")


def is_value(found: Any) -> bool:
    """Is this class attribute a plain value, which reading it gives as it is?"""
    return found is not MISSING and not hasattr(type(found), "__get__")


def tensor_attribute(it: Interpreter, tensor: torch.Tensor, name: str) -> Any:
    if name == "__class__":
        return type_of(it, tensor)
    if name in SETTLED:
        return it.world.builder.call(getattr, [tensor, name])
    known, stored = it.world.of(tensor), it.world.stored.get((id(tensor), name))
    found = getattr(torch.Tensor, name, MISSING)
    if stored and stored[2] is not MISSING:
        return stored[2]
    outside = not stored and known is not None and name in getattr(known.real, "__dict__", {})
    if name in ("grad", "grad_fn", "is_leaf") or outside:
        with torch._C.DisableTorchFunction(), warnings.catch_warnings(action="ignore"):
            found = getattr(known.real if known else tensor, name)
        if name != "grad_fn" or found is None:
            return it.world.wrap(found, known.source.attr(name)) if known is not None else found
        found = None  # a part of autograd's own graph
    if callable(found):
        return it.native(getattr, tensor, name)
    if found is MISSING:
        if known is not None and not stored:
            it.world.assume(known.source, "absent", LacksAttribute(name))
        raise AttributeError(f"'Tensor' object has no attribute '{name}'", name=name, obj=tensor)
    raise Unsupported(
        f"reads tensor.{name}, which reaches around the graph",
        "move it out of the compiled function",
    )


def type_of(it: Interpreter, value: Any) -> type:
    """`type(value)`: of a tensor, what eager would say."""
    known = it.world.of(value)
    if isinstance(value, (torch.Tensor, Remaining)):
        return (
            type(known.real)
            if known
            else torch.nn.Parameter
            if isinstance(value, torch.nn.Parameter)
            else torch.Tensor
        )
    return SYMBOLIC.get(type(value), type(value))


def module_attribute(it: Interpreter, module: types.ModuleType, name: str) -> Any:
    if name == "__dict__":
        raise Unsupported(f"reads the dict of the module {module.__name__}")
    if (changed := it.world.stored.get((id(module.__dict__), name))) and changed[2] is not MISSING:
        return changed[2]
    if module.__name__.split(".")[0] in TRUSTED:
        found = frames.call(None, getattr, module, name)
        # a switch: `torch.backends.cudnn.benchmark`
        if type(module) is not types.ModuleType and type(found) in PLAIN:
            it.world.assume_constant(found, Imported(module.__name__).attr(name))
        return it.world.wrap(found, Imported(module.__name__).attr(name))
    source = it.world.source_of(module)
    if source and name not in module.__dict__:
        it.world.assume_absent(source.attr("__dict__"), name)
    return it.world.wrap(it.native(getattr, module, name), source and source.attr(name))


def class_attribute(it: Interpreter, cls: type, name: str) -> Any:
    """An attribute of a class: a value is guarded where it was found, and copied if it can change."""
    static, source = inspect.getattr_static(cls, name, MISSING), it.world.source_of(cls)
    owner = next((base for base in cls.__mro__ if name in base.__dict__), cls)
    if id(owner) in it.world.made or (id(cls) in it.world.made and is_value(static)):
        return (
            it.native(getattr, cls, name)
            if id(owner) in it.world.made
            else class_attribute(it, owner, name)
        )
    if name == "__dict__" and is_users(cls) and id(cls) not in it.world.made:
        if source is None or any(changed is cls for changed, *_ in it.world.stored.values()):
            raise Unsupported(
                f"reads the dict of the class {cls.__name__}, which was changed before or has no known place"
            )
        it.world.assume(source, "class", Test("dict({}.__dict__)", "==", dict(cls.__dict__)))
    if read := own_descriptor(it, None, name, "__get__", cls):
        return it.call(read, None, cls)
    try:
        found = it.native(getattr, cls, name)
    finally:
        if not is_value(static):
            it.world.see(cls, source, name)
    if found is not static and not isinstance(static, staticmethod):
        return found  # a bound classmethod, or what a descriptor or the metaclass makes of it
    of_python = (type(found) in PLAIN and not is_users(cls)) or (
        source is None and has_literal(found)
    )
    special = name.startswith("__") and not isinstance(found, (types.FunctionType, dict, list))
    if of_python or special or not (is_value(static) or isinstance(found, types.FunctionType)):
        return found
    if source is None and not it.world.is_static(found) and type(found) not in PLAIN:
        raise Unsupported(
            f"reads the attribute '{name}' of the class {cls.__name__}, which has no known place"
        )
    return it.world.wrap(found, source and source.attr(name))


def super_attribute(it: Interpreter, value: Any, name: str) -> Any:
    """`super().name`: a plain value is read where it stands, behind classes that have none; of a descriptor Python knows more."""
    world, cls, known = it.world, value.__self_class__, it.world.of(value.__self__)
    behind = range(cls.__mro__.index(value.__thisclass__) + 1, len(cls.__mro__)) if cls else ()
    source = world.source_of(cls) if known is None or value.__self__ is cls else known.source.type()
    for base, at in ((cls.__mro__[i], source and source.attr("__mro__").item(i)) for i in behind):
        if name in base.__dict__ or (id(base), name) in world.stored:
            if not is_value(base.__dict__.get(name)):
                break
            if at and is_users(base) and world.source_of(base) is None:
                world.wrap(base, at)
            return get(it, base, name)
        world.see(base, at, name)
    return it.native(getattr, value, name)


def function_attribute(it: Interpreter, function: types.FunctionType, name: str) -> Any:
    if not hasattr(function, name) and (place := it.world.source_of(function)):
        it.world.assume_absent(place.attr("__dict__"), name)
    found = it.native(getattr, function, name)
    bound = isinstance(found, (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType))
    source = None if bound or name == "__code__" else it.world.source_of(function)
    return it.world.wrap(found, source.attr(name)) if source else found


def change(it: Interpreter, value: Any, name: str, *new: Any, default: bool = False) -> None:
    """`value.name = new`, or without that `del value.name`; with `default` as `object` does it. Only copies change."""
    known = it.world.of(value)
    if isinstance(value, torch.Tensor) and not it.world.is_opaque(value):
        return change_tensor(it, value, name, *new)
    if (it.world.is_static(value) and it.world.source_of(value)) or it.world.is_opaque(value):
        place = changeable(it, value, name, *new)
        it.world.stored[id(place), name] = place, name, new[0]
        return
    if known is not None:
        if name in ("__dict__", "__class__") or known.attributes is None:
            raise Unsupported(f"replaces {name} of a {type(value).__name__}")
        method = "__setattr__" if new else "__delattr__"
        if getattr(type(value), method) is getattr(torch.nn.Module, method) and not (
            default and new
        ):
            return set_module_attribute(it, value, name, *new)
        it.world.fill(known, name)
    if not default and (own := own_descriptor(it, value, name, "__set__" if new else "__delete__")):
        return it.call(own, value, *new)
    it.native(
        ((setattr, object.__setattr__) if new else (delattr, object.__delattr__))[default],
        value,
        name,
        *new,
    )


def changeable(it: Interpreter, value: Any, name: str, new: Any = MISSING) -> Any:
    """Where `value.name = new` is kept for the head to do: of a class or a module of the user's, no code of whom that runs."""
    own = (
        isinstance(value, type)
        and is_users(value)
        and type(value).__setattr__ is type.__setattr__
        and name[:2] != "__"
    )
    if (
        own
        and is_value(new)
        and not hasattr(type(inspect.getattr_static(value, name, None)), "__get__")
    ):
        return value
    own = (
        isinstance(value, types.ModuleType)
        and value.__name__.split(".")[0] not in TRUSTED
        and new is not MISSING
    )
    if own and it.world.globals_source(value.__dict__) is not None:
        return value.__dict__
    raise Unsupported(
        f"changes the attribute '{name}' of {getattr(value, '__name__', type(value).__name__)}"
    )


def change_tensor(it: Interpreter, tensor: torch.Tensor, name: str, new: Any = MISSING) -> None:
    """`tensor.name = new`: an attribute of the user's own, or the gradient of a tensor from outside."""
    if new is MISSING:
        tensor_attribute(it, tensor, name)  # which may raise
    like = new is None or (
        isinstance(new, torch.Tensor) and (new.shape, new.dtype) == (tensor.shape, tensor.dtype)
    )
    if name in ASSIGNED and new is not MISSING:
        return ASSIGNED[name](it, tensor, new)
    if hasattr(torch.Tensor, name) and not (name == "grad" and like and it.world.of(tensor)):
        raise Unsupported(f"changes the attribute '{name}' of a tensor")
    it.world.stored[id(tensor), name] = tensor, name, new
    if new is MISSING and it.world.of(tensor) is None:  # made with it
        del it.world.stored[id(tensor), name]


def set_module_attribute(
    it: Interpreter, module: torch.nn.Module, name: str, new: Any = MISSING
) -> None:
    """`nn.Module.__setattr__` (or `__delattr__`): of a module from outside torch's own code would look at more."""
    if (known := it.world.of(module)) is None:
        return it.native(torch.nn.Module.__setattr__, module, name, new)
    registry = next((r for r in REGISTRIES if name in get(it, module, r)), None)
    wanted = (
        "_modules"
        if isinstance(new, torch.nn.Module)
        else "_parameters"
        if isinstance(new, torch.nn.Parameter)
        else None
    )
    if registry and new is not None and new is not MISSING and registry != (wanted or "_buffers"):
        raise Unsupported(
            f"replaces '{name}', one of a module's {registry}, by a {type(new).__name__}"
        )
    it.world.fill(known, name)
    if wanted:
        own_dict(module).pop(name, None)
    holder, put, drop = cast(Any, (module, object.__setattr__, object.__delattr__))
    if place := registry or wanted:
        holder, put, drop = get(it, module, place), operator.setitem, operator.delitem
    it.native(drop, holder, name) if new is MISSING else it.native(put, holder, name, new)
