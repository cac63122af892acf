"""Builtins that must know about the interpreted world: `getattr`, `isinstance`, `type`, `id`,
`super`, ...

In:  the interpreter, and the arguments of the call.
Out: what the call gives to the program. Python's own function would look at a stand-in, or at the
interpreter's frame.
In PyTorch: `torch/_dynamo/variables/builtin.py` (`call_getattr`, `call_isinstance`, `call_type`,
`call_super`, ...).
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

from course_lib import frames
from course_lib.capture import attributes
from course_lib.capture.calls.callbacks import with_callbacks
from course_lib.capture.calls.classes import build_class, register_class
from course_lib.capture.calls.tables import FUNCTIONS, TYPES, refused
from course_lib.capture.classes import MISSING, is_a, is_users
from course_lib.capture.guard_tests import Is
from course_lib.capture.sources import Imported, Source, Unsupported
from course_lib.capture.symbolic_numbers import SYMBOLIC
from course_lib.capture.values import CONSTANT_TYPES

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

Register = Callable[[Callable[..., Any]], Callable[..., Any]]


def handles(*functions: Any) -> Register:
    """A decorator: calls of these functions are handled so."""

    def register(handler: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(functions, handler))
        return handler

    return register


# ---- what is it? ---------------------------------------------------------------------------------


@handles(isinstance)
def is_instance(it: Machine, value: Any, classes: Any) -> Any:
    """`isinstance(value, classes)`: to the program no tensor is fake, and a symbolic number is an
    int."""
    if type(value) in SYMBOLIC:
        number_class = attributes.type_of(it, value)
        if not is_users(type(classes)):
            return it.native(issubclass, number_class, classes)
        value = number_class(value)  # A metaclass of the user's is shown the number itself.

    # torch's own Python code asks this. To the program no tensor is fake.
    if classes is FakeTensor:
        return False
    if is_a(value, torch.Tensor):
        known = it.world.of(value)
        real = known.real if known else value
        return frames.call(None, isinstance, real, classes)
    return it.native(isinstance, value, classes)


@handles(type)
def type_of_or_class(it: Machine, *args: Any, **kwargs: Any) -> Any:
    """`type(value)`; with three arguments it makes a class, which is not followed."""
    if len(args) != 1:
        raise Unsupported("makes a class")
    return attributes.type_of(it, *args)


@handles(type.__new__)
def new_class(it: Machine, *args: Any, **options: Any) -> Any:
    """`type.__new__(...)`, in a metaclass."""
    return register_class(it, it.native(type.__new__, *args, **options))


FUNCTIONS[builtins.__build_class__] = build_class


class Id(int):
    """`id(obj)` of an object that the interpreted program made."""

    obj: Any


@handles(id)
def id_of(it: Machine, value: Any) -> int:
    """`id(value)`.

    For an object from outside it is the real object's, under a guard: the program may have kept
    that number."""
    known = it.world.of(value)
    if is_a(value, torch.Tensor) and known and not is_a(known.real, torch.nn.Parameter):
        raise Unsupported("asks for the id of a tensor from outside")

    if known is not None and type(known.real) not in CONSTANT_TYPES:
        it.world.assume(known.source, "identity", Is(known.real))
        return id(known.real)

    id_of_value = Id(id(value))
    id_of_value.obj = value
    return id_of_value


@handles(super)
def make_super(it: Machine, *args: Any) -> Any:
    """`super()`, as CPython does it: the class from the cell `__class__`, the object from the first
    argument."""
    if not args:
        first = it.locals[it.code.co_varnames[0]]
        value = first.cell_contents if type(first) is types.CellType else first
        args = it.world.open_cell(it.locals["__class__"]).cell_contents, value
    return super(*args)


# ---- attributes ----------------------------------------------------------------------------------


@handles(getattr)
def get_attribute(it: Machine, value: Any, name: str, *default: Any) -> Any:
    """`getattr(value, name, default)`"""
    if not default:
        return attributes.get(it, value, name)

    with contextlib.suppress(AttributeError):
        return attributes.get(it, value, name)
    return default[0]


NOTICED = {"grad", "imag", "H", "mH", "mT", "T"}
"""Attributes of tensors that `hasattr` has to read: they warn, or raise other than
AttributeError."""
OF_CUDA = "__cuda_array_interface__"
"""The one attribute of torch.Tensor that a tensor on a CPU does not have."""


@handles(hasattr)
def has_attribute(it: Machine, value: Any, name: str) -> bool:
    """`hasattr(value, name)`"""
    # Every attribute of torch.Tensor is there. Most are not read: that may need the tensor's data.
    if is_a(value, torch.Tensor) and hasattr(torch.Tensor, name):
        if name in NOTICED:
            attributes.get(it, value, name)
        return name != OF_CUDA or value.is_cuda
    return get_attribute(it, value, name, MISSING) is not MISSING


@handles(vars)
def vars_of(it: Machine, value: Any) -> Any:
    """`vars(value)`"""
    return attributes.get(it, value, "__dict__")


FUNCTIONS |= dict.fromkeys((setattr, delattr), attributes.change)
FUNCTIONS[object.__getattribute__] = functools.partial(attributes.get, plainly=True)
FUNCTIONS |= dict.fromkeys(
    (object.__setattr__, object.__delattr__), functools.partial(attributes.change, plainly=True)
)
FUNCTIONS[torch.nn.Module.__setattr__] = attributes.set_module_attribute


def get_by_name(it: Machine, getter: operator.attrgetter[Any], value: Any) -> Any:
    """`operator.attrgetter("a.b", "c")(value)`"""
    parts = []
    for path in getter.__reduce__()[1]:
        part = value
        for name in path.split("."):
            part = attributes.get(it, part, name)
        parts.append(part)
    if len(parts) > 1:
        return tuple(parts)
    return parts[0]


def call_by_name(it: Machine, caller: operator.methodcaller, value: Any) -> Any:
    """`operator.methodcaller(name, *args, **kwargs)(value)`"""
    # with keywords, `make` is a partial that has the name
    make, parts = cast(tuple[Any, tuple[Any, ...]], caller.__reduce__())
    kwargs: dict[str, Any] = {}
    if make is not operator.methodcaller:
        parts = make.args + parts
        kwargs = make.keywords
    name, *args = parts
    return it.call_function(attributes.get(it, value, name), args, dict(kwargs))


# ---- calls of something else ---------------------------------------------------------------------


def call_bound(it: Machine, bound: types.MethodType, /, *args: Any, **kwargs: Any) -> Any:
    """A method with its object."""
    return it.call(bound.__func__, bound.__self__, *args, **kwargs)


def call_partial(it: Machine, bound: functools.partial[Any], /, *args: Any, **kwargs: Any) -> Any:
    """A function with some of its arguments."""
    return it.call(bound.func, *bound.args, *args, **bound.keywords | kwargs)


TYPES |= {
    operator.attrgetter: get_by_name,
    operator.methodcaller: call_by_name,
    types.MethodType: call_bound,
    functools.partial: call_partial,
}


@handles(iter)
def make_iterator(it: Machine, value: Any, *end: Any) -> Any:
    """`iter(value)`, or `iter(function, end)`, which calls the function."""
    if not end:
        return it.iterate(value)
    args, _ = with_callbacks(it, iter, [value, *end], {})
    return it.native(iter, *args)


# ---- exceptions, and what is refused -------------------------------------------------------------


@handles(sys.exception)
def handled(it: Machine) -> BaseException | None:
    """The exception that is being handled: by the interpreted program, or else by whoever called
    it."""
    if it.handling is None and sys.exception() is None:
        it.world.assume(Source(".exception()", Imported("sys")), "identity", Is(None))
    elif it.handling is None or it.world.is_opaque(it.handling):
        raise Unsupported("asks for an exception that was raised outside")
    return it.handling


@handles(sys.exc_info)
def handled_info(it: Machine) -> tuple[Any, Any, Any]:
    """`sys.exc_info()`: the error that is being handled, with its class before it and its traceback
    behind it."""
    error = handled(it)
    if error is None:
        return None, None, None
    return type(error), error, error.__traceback__


FUNCTIONS[print] = refused(
    "print has an effect outside the graph", "move it out of the compiled function"
)
