"""`value.name` on symbolic values.

In PyTorch: the `var_getattr` methods in `torch/_dynamo/variables/` (`TensorVariable`, `NNModuleVariable`,
`UserDefinedObjectVariable`).
"""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture import calls
from course_lib.capture.sources import Member, Source
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import (
    Constant,
    Dict,
    Function,
    Method,
    Module,
    Object,
    PythonMethod,
    Sequence,
    Super,
    Tensor,
    TensorMethod,
    Value,
)

if TYPE_CHECKING:
    from course_lib.capture.interpreter import Interpreter

TENSOR_FACTS = {"shape", "dtype", "device", "ndim", "requires_grad", "layout", "is_cuda", "is_cpu", "itemsize", "nbytes",
                "is_sparse", "is_quantized", "is_meta", "is_complex", "is_mps", "is_xpu", "is_mkldnn", "is_nested"}  # fmt: skip
"""Attributes that the guard on the tensor settles."""
TENSOR_VIEWS = {"T", "mT", "H", "mH", "real", "imag"}
HIDDEN = {
    "data",
    "grad",
    "grad_fn",
    "_version",
    "_base",
    "_grad",
    "_backward_hooks",
    "is_leaf",
    "output_nr",
    "names",
    "retains_grad",
}
"""Attributes of a tensor that reach around the graph."""


@dataclass(frozen=True)
class TypeOf(Source):
    """`type(base)`"""

    def from_base(self, base: str) -> str:
        return f"type({base})"


def get(it: Interpreter, value: Value, name: str) -> Value:
    """The value of `value.name`."""
    match value:
        case Tensor():
            return tensor_attribute(it, value, name)
        case Module():
            return module_attribute(it, value, name)
        case Object():
            return object_attribute(it, value, name)
        case Super():
            return get_super(it, value.cls, value.self, name)
        case Sequence() if name in (fields := getattr(value.cls, "__match_args__", ())):
            return value.items[fields.index(name)]
        case Sequence() | Dict() if hasattr(list if isinstance(value, Sequence) else dict, name):
            return PythonMethod(value, name)
        case Constant():
            found = getattr(value.value, name, None)
            if isinstance(found, (types.BuiltinMethodType, types.MethodType)) and not isinstance(value.value, type):
                return PythonMethod(value, name)
            if type(found) in (int, float, bool, str, type(None)) and hasattr(value.value, name):
                return Constant(found)
    raise Unsupported(f"reads the attribute '{name}' of {value}")


def tensor_attribute(it: Interpreter, tensor: Tensor, name: str) -> Value:
    if name in TENSOR_FACTS and not callable(fact := getattr(tensor.fake, name)):
        return Constant(fact)
    if name in TENSOR_VIEWS:
        return it.context.builder.call(getattr, [tensor, Constant(name)], {})
    if name in HIDDEN:
        raise Unsupported(
            f"reads tensor.{name}, which reaches around the graph", "move it out of the compiled function"
        )
    if tensor.real is not None and name in getattr(tensor.real, "__dict__", {}):
        raise Unsupported(f"reads '{name}', an attribute that was put on a tensor")
    if callable(getattr(torch.Tensor, name, None)):
        return TensorMethod(tensor, name)
    raise Unsupported(f"reads the attribute '{name}' of a tensor")


def module_attribute(it: Interpreter, module: Module, name: str) -> Value:
    """In the order of `nn.Module.__getattr__`: the instance's own dict, the class, then parameters, buffers,
    submodules."""
    obj, source = module.value, module.source
    if name not in obj.__dict__ and not hasattr(type(obj), name):
        for registry in ("_parameters", "_buffers", "_modules"):
            if name in obj.__dict__.get(registry, ()):
                if source is None:
                    raise Unsupported(f"reads '{name}' of a module that has no known place")
                return it.context.wrap(obj.__dict__[registry][name], Member(registry, name, base=source))
        if type(obj).__getattr__ is not torch.nn.Module.__getattr__:
            raise Unsupported(f"{type(obj).__name__} computes its attributes with __getattr__")
        raise Unsupported(f"{type(obj).__name__} has no attribute '{name}'")
    return object_attribute(it, module, name)


def object_attribute(it: Interpreter, value: Object, name: str) -> Value:
    obj, source = value.value, value.source
    if isinstance(obj, types.ModuleType):
        if not hasattr(obj, name):
            raise Unsupported(f"module {obj.__name__} has no attribute '{name}'")
        found = getattr(obj, name)
        if source is None or it.context.is_trusted(obj):
            return it.context.wrap_static(found)
        return it.context.wrap(found, source.attr(name))
    if isinstance(obj, type):
        return class_attribute(it, value, name)
    if type(obj).__getattribute__ is not object.__getattribute__:
        raise Unsupported(f"{type(obj).__name__} computes its attributes with __getattribute__")
    own = getattr(obj, "__dict__", {})
    found = lookup(type(obj), name)
    if isinstance(found, property):
        if not isinstance(found.fget, types.FunctionType):
            raise Unsupported(f"the property '{name}' of {value} is not a Python function")
        return calls.call(it, class_function(it, found.fget, source, name, ".fget"), [value], {})
    if name in own:
        if source is None:
            raise Unsupported(f"reads '{name}' of an object that has no known place")
        return it.context.wrap(own[name], source.attr(name))
    return bind_to(it, found, value, name)


def bind_to(it: Interpreter, found: Any, value: Object, name: str) -> Value:
    """What an attribute found on the class becomes when it is read through the instance."""
    source = value.source
    if isinstance(found, types.FunctionType):
        return Method(class_function(it, found, source, name), value)
    if isinstance(found, staticmethod) and isinstance(found.__func__, types.FunctionType):
        return class_function(it, found.__func__, source, name)
    if isinstance(found, classmethod) and isinstance(found.__func__, types.FunctionType) and source is not None:
        cls = Object(type(value.value), source=TypeOf(base=source))
        return Method(class_function(it, found.__func__, source, name, ".__func__"), cls)
    if found is not None and type(found) in (int, float, bool, str, torch.dtype) and source is not None:
        return it.context.wrap(found, TypeOf(base=source).attr(name))
    if found is None and lookup(type(value.value), name, default=Ellipsis) is None:
        return Constant(None)
    raise Unsupported(f"reads the attribute '{name}' of {value}")


def class_function(
    it: Interpreter, function: types.FunctionType, source: Source | None, name: str, inside: str = ""
) -> Function:
    """A function found on a class. torch's own classes are trusted; a user's function is guarded where it was found."""
    if source is None or function.__module__.startswith("torch."):
        return it.context.wrap_function(function, None)
    if inside:
        return it.context.wrap_function(function, InClass(name, inside, base=source))
    wrapped = it.context.wrap(function, TypeOf(base=source).attr(name))
    assert isinstance(wrapped, Function)
    return wrapped


@dataclass(frozen=True)
class InClass(Source):
    """The function inside a property or classmethod: `inspect.getattr_static(type(base), name).fget`."""

    name: str
    inside: str

    def from_base(self, base: str) -> str:
        return f"getattr_static(type({base}), {self.name!r}){self.inside}"


def class_attribute(it: Interpreter, value: Object, name: str) -> Value:
    cls, source = value.value, value.source
    found = lookup(cls, name, default=Ellipsis)
    if source is None or it.context.is_trusted(cls):
        if found is not Ellipsis:
            return it.context.wrap_static(getattr(cls, name))
    elif isinstance(found, (types.FunctionType, int, float, str)):
        return it.context.wrap(found, source.attr(name))
    elif isinstance(found, staticmethod):
        return it.context.wrap(found.__func__, source.attr(name))
    raise Unsupported(f"reads the attribute '{name}' of the class {cls.__name__}")


def get_super(it: Interpreter, cls: Value, value: Value, name: str) -> Value:
    """`super(cls, value).name`"""
    if not isinstance(cls, Object) or not isinstance(value, Object) or value.source is None:
        raise Unsupported(f"super() of {value}")
    order = type(value.value).__mro__
    for base in order[order.index(cls.value) + 1 :]:
        if name in base.__dict__:
            found = base.__dict__[name]
            if isinstance(found, types.FunctionType):
                it.context.assume_type(value.value, value.source)
                return Method(it.context.wrap_function(found, InSuper(base.__name__, name, base=value.source)), value)
            break
    raise Unsupported(f"super().{name}")


@dataclass(frozen=True)
class InSuper(Source):
    """A function found on a base class: `base_class(type(base), 'Base').name`."""

    cls: str
    name: str

    def from_base(self, base: str) -> str:
        return f"base_class(type({base}), {self.cls!r}).{self.name}"


def base_class(cls: type, name: str) -> type:
    """The class called `name` among the bases of `cls`."""
    return next(base for base in cls.__mro__ if base.__name__ == name)


def lookup(cls: type, name: str, default: Any = None) -> Any:
    """The class's attribute as it stands in the class body (descriptors unbound)."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return default
