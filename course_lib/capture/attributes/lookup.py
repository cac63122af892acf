"""How an attribute is found: an ordered list of rules.

In:  a value of the interpreted program, and a name.
Out: `value.name`. Raises what Python raises, or `Unsupported`.
In PyTorch: `var_getattr` in `torch/_dynamo/variables/`; `UserDefinedObjectVariable.var_getattr`
follows CPython's own order.
"""

from __future__ import annotations

import enum
import itertools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib import frames
from course_lib.capture.attributes.classes import class_attribute, is_data, is_value, own_descriptor
from course_lib.capture.attributes.tensors import tensor_attribute
from course_lib.capture.classes import (
    HEAP_TYPE,
    MISSING,
    TRUSTED,
    is_a,
    is_users,
    member_of,
    own_dict,
)
from course_lib.capture.known import Known
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import REGISTRIES, Imported, Unsupported, attribute_of
from course_lib.capture.stand_ins.slots import is_slot
from course_lib.capture.symbolic_numbers import SYMBOLIC, concrete
from course_lib.capture.values import CONSTANT_TYPES

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

OPAQUE_ATTRIBUTES: dict[type, Callable[[Machine, Known, str], Any]] = {}
"""Type of an object that capture knows nothing else about → how an attribute of it is read."""
LOOKS_AT_ALL = ("__dict__", "__reduce_ex__", "__reduce__", "__getstate__", "__dir__")
"""Attributes that tell of all other attributes."""


@dataclass(slots=True)
class Lookup:
    """One look-up, and what is known when it begins."""

    it: Machine
    value: Any
    name: str

    # As `object.__getattribute__` finds it, not the class's own
    plainly: bool

    # What the program has stored in the class, MISSING if nothing
    written: Any

    # What the class has under the name, MISSING if nothing
    found: Any

    # What is known of the value, if it comes from outside
    known: Known | None

    @property
    def copied(self) -> Known | None:
        """What is known of the value (`known`), if the value is a copy whose attributes are filled
        in one by one; else None."""
        known = self.known
        if known is None or known.attributes is None:
            return None
        return known

    @property
    def is_of_class(self) -> bool:
        """Does the class decide, not the instance's own attributes?"""
        return self.name not in own_dict(self.value) or is_data(self.found)


def get(it: Machine, value: Any, name: str, *, plainly: bool = False) -> Any:
    """The value of `value.name`; `plainly`: as `object.__getattribute__` finds it."""
    if type(value) in SYMBOLIC:
        value = concrete(value)

    # What the program has written into the class comes before what the class had.
    cls = value if is_a(value, type) else type(value)
    written_by_program = it.world.written(cls, name)
    member = written_by_program
    if written_by_program is MISSING:
        member = member_of(type(value), name)
    lookup = Lookup(it, value, name, plainly, written_by_program, member, it.world.of(value))
    for rule in LOOKUP_RULES:
        result = rule(lookup)
        if result is not GO_ON:
            return result
    return by_python(lookup)


# ---- kinds of values that have their own way -----------------------------------------------------


def of_class_with_own_lookup(lookup: Lookup) -> Any:
    """A `__getattribute__` written in Python decides."""
    own_lookup = member_of(type(lookup.value), "__getattribute__")
    if lookup.plainly or not is_a(own_lookup, types.FunctionType):
        return GO_ON
    return lookup.it.native(getattr, lookup.value, lookup.name)


def of_tensor(lookup: Lookup) -> Any:
    if not is_a(lookup.value, torch.Tensor) or lookup.it.world.is_opaque(lookup.value):
        return GO_ON
    return tensor_attribute(lookup.it, lookup.value, lookup.name)


def of_opaque(lookup: Lookup) -> Any:
    """An object that capture knows nothing about: only its methods can be read."""
    known, name = lookup.known, lookup.name
    if known is None or not known.opaque:
        return GO_ON

    read = OPAQUE_ATTRIBUTES.get(type(known.real))
    if read:
        return read(lookup.it, known, name)

    is_method = is_a(lookup.found, (types.FunctionType, types.MethodDescriptorType))
    if not is_method or name in own_dict(lookup.value):
        raise Unsupported(
            f"reads the attribute '{name}' of a {type(lookup.value).__name__}",
            "use it outside the compiled function",
        )
    lookup.it.world.class_attribute(known, name, lookup.found)
    return GO_ON


def of_module(lookup: Lookup) -> Any:
    """`module.name`, of a Python module."""
    it, module, name = lookup.it, lookup.value, lookup.name
    if not is_a(module, types.ModuleType):
        return GO_ON
    if name == "__dict__":
        raise Unsupported(f"reads the dict of the module {module.__name__}")

    stored = it.world.stored.get((id(module.__dict__), name))
    if stored is not None and stored.value is not MISSING:
        return stored.value
    if module.__name__.split(".")[0] in TRUSTED:
        return of_trusted_module(it, module, name)

    source = it.world.source_of(module)
    if source and name not in module.__dict__:
        it.world.assume_absent(source.attr("__dict__"), name)
    found = it.native(getattr, module, name)
    return it.world.wrap(found, attribute_of(source, name))


def of_trusted_module(it: Machine, module: types.ModuleType, name: str) -> Any:
    """`module.name`, of torch or of Python's library.

    Nobody rebinds its functions, so there is no guard."""
    # None: no watcher sees the frames below. A module's `__getattr__` is not to be captured itself.
    attribute = frames.call(None, getattr, module, name)
    source = Imported(module.__name__).attr(name)

    # A module that is an instance of a class of its own computes its attributes. Those are switches
    # that a user may set (`torch.backends.cudnn.benchmark`), so the value is guarded.
    if type(module) is not types.ModuleType and type(attribute) in CONSTANT_TYPES:
        it.world.assume_constant(attribute, source)
    return it.world.wrap(attribute, source)


def of_class(lookup: Lookup) -> Any:
    """`cls.name`; what the program itself has stored there comes first."""
    if not is_a(lookup.value, type):
        return GO_ON
    if lookup.written is not MISSING:
        return lookup.written
    return class_attribute(lookup.it, lookup.value, lookup.name)


def of_super(lookup: Lookup) -> Any:
    """`super().name`: a plain value is read from the first class behind `thisclass` that has one.

    Python itself asks a descriptor."""
    if type(lookup.value) is not super:
        return GO_ON

    it, name = lookup.it, lookup.name
    value: Any = lookup.value
    world, cls = it.world, value.__self_class__
    known = world.of(value.__self__)
    if known is None or value.__self__ is cls:
        source = world.source_of(cls)
    else:
        source = known.source.type()

    # An unbound `super(cls)` has no class to look in.
    mro: tuple[type, ...] = ()
    first = 0
    if cls:
        mro = cls.__mro__
        first = mro.index(value.__thisclass__) + 1

    for place, base in itertools.islice(enumerate(mro), first, None):
        at = source.attr("__mro__").item(place) if source else None
        if name in base.__dict__ or (id(base), name) in world.stored:
            if not is_value(base.__dict__.get(name)):
                break  # Python calls a method of a descriptor: see the end
            if at and is_users(base) and world.source_of(base) is None:
                world.wrap(base, at)
            return get(it, base, name)

        # A guard that this class has no such name
        world.see(base, at, name)
    return it.native(getattr, value, name)


def of_function(lookup: Lookup) -> Any:
    """`function.name`, of a function written in Python."""
    it, function, name = lookup.it, lookup.value, lookup.name
    if not is_a(function, types.FunctionType):
        return GO_ON

    if not hasattr(function, name):
        place = it.world.source_of(function)
        if place:
            it.world.assume_absent(place.attr("__dict__"), name)
    attribute = it.native(getattr, function, name)
    # A method was bound just now, and the code of a function is guarded where the function was
    # found.
    bound = is_a(attribute, (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType))
    if bound or name == "__code__":
        return attribute

    source = it.world.source_of(function)
    if source:
        return it.world.wrap(attribute, source.attr(name))
    return attribute


def of_enum_member(lookup: Lookup) -> Any:
    """`Color.RED.value`"""
    value, name, known = lookup.value, lookup.name, lookup.known
    if known is None or not is_a(value, enum.Enum) or name not in own_dict(value):
        return GO_ON
    return lookup.it.world.wrap(own_dict(value)[name], known.source.attr(name))


# ---- instances: what the copy lacks is filled in, and the class is guarded -----------------------


def of_copy(lookup: Lookup) -> Any:
    """Fill the attribute in, if the real instance has it.

    In a module, look for a parameter, a buffer or a submodule."""
    known, name = lookup.copied, lookup.name
    if known is None:
        return GO_ON

    world = lookup.it.world
    if name in LOOKS_AT_ALL:
        world.fill_all(known)
        if name == "__dict__" and is_a(lookup.found, types.GetSetDescriptorType):
            attributes = own_dict(lookup.value)
            return world.know(attributes, own_dict(known.real), world.own(known, name)).stand_in
    elif is_slot(lookup.found):
        world.fill(known, name)
    elif not is_data(lookup.found):
        has_own = world.fill(known, name)
        if not has_own and lookup.found is MISSING:
            return module_member(lookup.it, known, name)
    return GO_ON


def module_member(it: Machine, known: Known, name: str) -> Any:
    """A parameter, buffer or submodule of an `nn.Module` from outside, GO_ON if it has none of that
    name."""
    world, real, attributes = it.world, known.real, own_dict(known.stand_in)
    if not is_a(real, torch.nn.Module):
        return GO_ON

    for registry in REGISTRIES:
        # a registry that the program has read or changed is in the copy
        if registry in attributes:
            if name in attributes[registry]:
                return attributes[registry][name]
        elif name in real.__dict__.get(registry, ()):
            place = world.own(known, registry).item(name)
            return world.wrap(real.__dict__[registry][name], place)
    return GO_ON


def absent_in_instance(lookup: Lookup) -> Any:
    """Guard that an instance that stands for itself has no such attribute of its own."""
    known = lookup.known
    if known is None or lookup.copied or lookup.found is not MISSING:
        return GO_ON
    if type(known.real).__dictoffset__ and lookup.name not in own_dict(known.real):
        lookup.it.world.assume_absent(known.source.attr("__dict__"), lookup.name)
    return GO_ON


def guard_member_of_class(lookup: Lookup) -> Any:
    """Guard what the class of an instance from outside has under the name."""
    known = lookup.copied
    if known is not None and lookup.is_of_class:
        lookup.it.world.class_attribute(known, lookup.name, lookup.found)
    return GO_ON


def of_descriptor(lookup: Lookup) -> Any:
    """A descriptor of the user's own kind: its `__get__` is called."""
    if not lookup.is_of_class:
        return GO_ON
    read = own_descriptor(lookup.it, lookup.value, lookup.name, "__get__")
    if not read:
        return GO_ON
    return lookup.it.call(read, lookup.value, type(lookup.value))


def of_class_body(lookup: Lookup) -> Any:
    """A plain value in the class of an instance: as for the class itself."""
    attribute, value = lookup.found, lookup.value
    if not is_value(attribute) or not lookup.is_of_class:
        return GO_ON
    if attribute is lookup.written:
        return attribute
    if not type(value).__flags__ & HEAP_TYPE:
        return GO_ON

    known = lookup.copied
    if known is None:
        return class_attribute(lookup.it, type(value), lookup.name)
    return lookup.it.world.wrap(attribute, known.source.type().attr(lookup.name))


def by_python(lookup: Lookup) -> Any:
    """Python does the rest: methods, properties, `__getattr__`."""
    read = object.__getattribute__ if lookup.plainly else getattr
    return lookup.it.native(read, lookup.value, lookup.name)


LOOKUP_RULES: list[Callable[[Lookup], Any]] = [
    of_class_with_own_lookup,
    of_tensor,
    of_opaque,
    of_module,
    of_class,
    of_super,
    of_function,
    of_enum_member,
    of_copy,
    absent_in_instance,
    guard_member_of_class,
    of_descriptor,
    of_class_body,
]
"""Each gives the attribute, or GO_ON; some only leave a guard. If none has it, Python looks for it
(`by_python`)."""


def register(rule: Callable[[Lookup], Any], *, before: Callable[[Lookup], Any]) -> None:
    """Add a rule of a corner in front of another one."""
    LOOKUP_RULES.insert(LOOKUP_RULES.index(before), rule)
