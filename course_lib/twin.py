"""What `cl.compile` gives for an `nn.Module`: a twin of it, which only a call tells from the module
itself.

In:  a module, and what a call of its twin shall do.
Out: a `Twin`. Whatever else is asked of it (attributes, methods, text, `len`, a pickle), the module
     answers.

The class of a twin is no subclass of the module's class, so that no `__init_subclass__` or
metaclass of the user's hears of it and slots stay where they are. It says that it is one: the
classes of the module are where its methods are looked up (`mro`).
In PyTorch: `torch/_dynamo/eval_frame.py` (`OptimizedModule`), which wraps the module as
`_orig_mod`.
"""

import copy
import copyreg
import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from course_lib.frames import call_hidden, wrapper

COPYING = "__reduce_ex__", "__reduce__", "__copy__", "__deepcopy__"
"""What `copy` and `pickle` ask of the twin itself."""


class TwinType(type):
    """The class of twins of one class.

    It passes for that class: by its name, in `==`, in `isinstance`, when it is called."""

    def mro(cls) -> Any:
        own, about = super().mro(), own_names(cls)
        if "_course_class" not in about or not about["_course_in_mro"]:
            return own
        # Classes of twins first (this class, `Twin`), then the module's own: methods are found
        # there. `nn.Module` comes again among these, so what `Twin` inherits from it is left out.
        twins = own[: own.index(torch.nn.Module)]
        return [*twins, *about["_course_class"].__mro__]

    def __getattribute__(cls, name: str) -> Any:
        original = class_of(cls)
        if original is cls or name.startswith("_course_") or name in COPYING:
            return super().__getattribute__(name)
        return getattr(original, name)

    def __setattr__(cls, name: str, value: Any) -> None:
        original = class_of(cls)
        if original is cls:
            super().__setattr__(name, value)
        else:
            setattr(original, name, value)

    def __delattr__(cls, name: str) -> None:
        original = class_of(cls)
        if original is cls:
            super().__delattr__(name)
        else:
            delattr(original, name)

    def __repr__(cls) -> str:
        original = class_of(cls)
        if original is cls:
            return super().__repr__()
        return repr(original)

    def __eq__(cls, other: object) -> bool:
        return class_of(cls) is class_of(other)

    def __hash__(cls) -> int:
        original = class_of(cls)
        if original is cls:
            return super().__hash__()
        return hash(original)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return class_of(cls)(*args, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        original = class_of(cls)
        return super().__instancecheck__(instance) or (
            original is not cls and isinstance(instance, original)
        )

    def __subclasscheck__(cls, other: type) -> bool:
        original = class_of(cls)
        return super().__subclasscheck__(other) or (
            original is not cls and issubclass(other, original)
        )


def own_names(cls: type) -> Any:
    """The names that a class has itself."""
    return type.__getattribute__(cls, "__dict__")


def class_of(cls: Any) -> Any:
    """The user's class that a class of twins stands for; any other class itself."""
    if type(cls) is TwinType:
        return own_names(cls).get("_course_class", cls)
    return cls


class Twin(torch.nn.Module, metaclass=TwinType):
    """A compiled module."""

    __slots__ = (
        "_course_call",
        "_course_compiler",
        "_course_error",
        "_course_model",
        "_course_remade",
    )
    _course_call: Callable[..., Any]
    _course_error: Any
    _course_model: torch.nn.Module

    def __init_subclass__(cls, **options: Any) -> None:
        """No class of the user's hears of it."""

    @wrapper
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call_of(self)(self, *args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_course_") or name in COPYING:
            return object.__getattribute__(self, name)

        # not `model_of`: torch.compile, which may trace this, would come back here for it
        model = object.__getattribute__(self, "_course_model")
        try:
            attribute = getattr(model, name)
        except AttributeError as error:
            # Python calls `__getattr__` next, which raises this error
            object.__setattr__(self, "_course_error", error)
            raise

        is_method = type(attribute) is types.MethodType and attribute.__self__ is model
        if not is_method or is_dynamo_compiling():
            return attribute
        return method_of(attribute, self)

    def __getattr__(self, name: str) -> Any:
        """Raise what the module raised: Python asks here after `__getattribute__` has failed."""
        if name.startswith("_course_") or name in COPYING:
            raise AttributeError(f"a compiled module has no {name}")

        error = self._course_error
        self._course_error = None
        try:
            raise error
        finally:
            # The error's traceback holds this frame. If the frame held the error, neither would be
            # freed.
            del error

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_course_"):
            object.__setattr__(self, name, value)
        else:
            setattr(model_of(self), name, value)

    def __delattr__(self, name: str) -> None:
        delattr(model_of(self), name)

    def __dir__(self) -> Any:
        return dir(model_of(self))

    def __eq__(self, other: object) -> Any:
        return model_of(self) == untwinned(other)

    def __hash__(self) -> int:
        return hash(model_of(self))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A pickle of the twin is one of the module: whoever loads it needs no `course_lib`."""
        # what is loaded is `[module][0]`, the module itself
        return operator.getitem, ([model_of(self)], 0)

    def __copy__(self) -> Any:
        return self._course_remade(copy.copy(model_of(self)))

    def __deepcopy__(self, memo: Any) -> Any:
        return self._course_remade(copy.deepcopy(model_of(self), memo))

    def __del__(self) -> None:
        """Nothing: the class of the module may have a `__del__`, which runs when the module itself
        is freed."""


# What reads the two slots of a twin. The attribute itself would be asked through
# `Twin.__getattribute__`, in Python.
model_of: Callable[[Any], torch.nn.Module] = own_names(Twin)["_course_model"].__get__
call_of: Callable[[Any], Callable[..., Any]] = own_names(Twin)["_course_call"].__get__
# A pickle names the module's class in the place of the twin's: `[class][0]` when it is loaded.
copyreg.pickle(TwinType, lambda cls: (operator.getitem, ([class_of(cls)], 0)))
NOT_FORWARDED = {
    *vars(Twin),
    "__new__",
    "__init__",
    "__class_getitem__",
    "__reduce__",
    "__subclasshook__",
}
"""Special methods that Python shall not find in the module's class."""


class Method:
    """A method of the module, bound to it.

    If it returns the module (`eval()`, `to(...)`), it returns the twin."""

    __slots__ = ("__weakref__", "bound", "twin")

    bound: types.MethodType
    twin: Twin

    @wrapper
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = call_hidden(self.bound, *args, **kwargs)
        if result is model_of(self.twin):
            return self.twin
        return result

    def __getattr__(self, name: str) -> Any:
        # an empty slot ends here, too: to look into `self.bound` would lead back here for ever
        if name in Method.__slots__:
            raise AttributeError(name)
        return getattr(self.bound, name)

    def __eq__(self, other: object) -> bool:
        return self.bound == (other.bound if isinstance(other, Method) else other)

    def __hash__(self) -> int:
        return hash(self.bound)

    def __repr__(self) -> str:
        return repr(self.bound)

    def __reduce__(self) -> Any:
        return getattr, (self.twin, self.bound.__name__)

    @property
    def __doc__(self) -> Any:  # type: ignore[override]
        return self.bound.__doc__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """So `inspect` looks at the method itself."""
        return types.MethodType


# The descriptors of the two slots: `set_bound(method, bound)` does what `method.bound = bound`
# would.
set_bound: Callable[[Method, types.MethodType], None] = own_names(Method)["bound"].__set__
set_twin: Callable[[Method, Twin], None] = own_names(Method)["twin"].__set__


def method_of(bound: types.MethodType, twin: Twin) -> Method:
    """The method that a twin shows.

    It has no `__init__`: torch.compile would capture that frame, and look at what is not filled."""
    method = object.__new__(Method)
    set_bound(method, bound)
    set_twin(method, twin)
    return method


def twin_of(
    model: torch.nn.Module, call: Callable[..., Any], compiler: Any, remade: Callable[[Any], Any]
) -> torch.nn.Module:
    """A twin of `model`.

    `call(twin, ...)`: what its call does; `remade(copy)` makes the twin of a copy."""
    twin = object.__new__(twin_class(type(model)))
    # One and the same dict: what reads it in C finds the module's attributes.
    object.__setattr__(twin, "__dict__", model.__dict__)
    for name, value in (
        ("_course_model", model),
        ("_course_call", call),
        ("_course_compiler", compiler),
        ("_course_remade", remade),
    ):
        object.__setattr__(twin, name, value)
    return twin


def untwinned(model: Any) -> Any:
    """The module that a twin stands for; anything else itself."""
    if type(type(model)) is TwinType:
        return model_of(model)
    return model


def twin_class(original: type) -> Any:
    """The class of twins of `original`."""
    members = {"_course_class": original, "_course_in_mro": True, "__slots__": ()}
    members |= {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
    members |= {name: forwarded(name) for name in special_methods(original)}
    try:
        return type.__new__(TwinType, original.__name__, (Twin,), members)
    except TypeError:
        # The class of the module has slots. They lie where a twin has its own, so Python refuses
        # these classes in the `mro`: methods are looked up in the module alone.
        members["_course_in_mro"] = False
        return type.__new__(TwinType, original.__name__, (Twin,), members)


def special_methods(cls: type) -> list[str]:
    """The special methods that a class has written in Python."""
    names = {
        name
        for base in cls.__mro__
        for name, member in vars(base).items()
        if name[:2] == "__" == name[-2:] and isinstance(member, types.FunctionType)
    }
    return sorted(names - NOT_FORWARDED)


def forwarded(name: str) -> Callable[..., Any]:
    """A special method that the module answers: Python looks these up in the class."""

    @wrapper
    def method(self: Twin, *args: Any, **kwargs: Any) -> Any:
        model = model_of(self)
        result = call_hidden(getattr(type(model), name), model, *args, **kwargs)
        return self if result is model else result

    method.__name__ = name
    return method
