"""Callables written in C: run now, if they are known to touch nothing but their arguments.

In:  a builtin function, a method of a builtin type, a descriptor.
Out: what it gives, on the interpreted world's own objects.
In PyTorch: `torch/_dynamo/variables/builtin.py` (`BuiltinVariable`), with a method for each
builtin.
"""

from __future__ import annotations

import builtins
import collections
import functools
import os
import re
import string
import sys
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.callbacks import with_callbacks
from course_lib.capture.calls.operations import FACTS
from course_lib.capture.classes import is_a
from course_lib.capture.sources import Unsupported
from course_lib.capture.stand_ins.kinds import BY_IDENTITY
from course_lib.capture.symbolic_numbers import concrete
from course_lib.capture.values import has_tensor, name_of, owner_of
from course_lib.frames import newer

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

SAFE_MODULES = {
    f"_{name}" for name in "operator functools collections bisect heapq abc string struct".split()
}
SAFE_MODULES |= {"math", "math.integer", "cmath", "itertools", "unicodedata"}
"""Modules written in C whose functions touch nothing but their arguments: the name that a
function's `__module__` gives (`_bisect`, not `bisect`)."""
SAFE_FUNCTIONS = {sys.getrecursionlimit, sys.intern, os.fspath}
"""Single functions that touch nothing but their arguments. (`FACTS` has those of torch.)"""
REFUSED = {input, open, exec, eval, compile, __import__, breakpoint, locals, dir}
"""Builtins that look at, or change, more than their arguments."""

VIEW_EXAMPLES: tuple[Any, ...] = ({}.keys(), {}.values(), {}.items())
ITERATOR_EXAMPLES: tuple[Any, ...] = (
    *map(iter, ([], (), {}, set(), "", b"", range(1), {}.values(), {}.items(), reversed([]))),
    *(reversed({}), iter(int, 1)),
)
"""One object of each type of views and iterators: these types have no names."""
SAFE_TYPES = {
    cls for module in (builtins, types) for cls in vars(module).values() if isinstance(cls, type)
}
SAFE_TYPES -= {
    memoryview,
    types.FrameType,
    types.ModuleType,
    types.CoroutineType,
    types.AsyncGeneratorType,
}
SAFE_TYPES |= {collections.deque, collections.OrderedDict, collections.defaultdict}
SAFE_TYPES |= {functools.partial, weakref.ref, *newer.TEMPLATES}
SAFE_TYPES |= {torch.Size, torch.dtype, torch.device, torch.finfo, torch.iinfo}
SAFE_TYPES |= {torch.SymInt, torch.SymBool, torch.SymFloat}
SAFE_TYPES |= {type(example) for example in (*VIEW_EXAMPLES, *ITERATOR_EXAMPLES)}
"""Types written in C whose methods touch nothing but the object and their arguments."""
SAFE_TYPE_MODULES = "itertools functools operator re typing torch.return_types".split()
"""Modules all of whose types written in C are such types."""

# Methods of `object` that look at all attributes
COPYING = ("__reduce_ex__", "__reduce__", "__getstate__")


def is_safe_type(cls: type) -> bool:
    """Do the methods of a type written in C touch nothing but the object and their arguments?"""
    if cls.__module__ in SAFE_TYPE_MODULES or issubclass(cls, BaseException):
        return True
    # a metaclass may have taken the hash away, without which no set can be asked
    hashable = type(cls).__hash__ is not None
    return hashable and (cls in SAFE_TYPES or cls in FACTS)


def run_builtin(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Run a callable written in C, now."""
    target: Any = owner_of(function)
    owner = getattr(function, "__objclass__", None)
    if owner is torch._C.TensorBase or is_a(target, torch.Tensor):
        return it.native(function, *args, **kwargs)  # the recorder hears of it
    if module_of(function) == "_operator" and any(map(has_tensor, args)):
        return it.world.builder.call(function, args, kwargs)

    if not touches_only_arguments(it, function):
        raise Unsupported(
            f"calls {name_of(function)}, which is not a torch operation and cannot be followed",
            "move it out of the compiled function",
        )
    for arg in (target, *args):
        check_argument(it, function, arg)

    if is_format(function):
        # "{0.shape}": C code would look the attribute up in a stand-in, Python's own Formatter asks
        # the interpreter.
        if type(target) is str and re.search(r"{\w*[.[]", target):
            return it.call(string.Formatter().vformat, target, *in_numbers(args, kwargs))
        args, kwargs = in_numbers(args, kwargs)
    args, kwargs = with_callbacks(it, function, args, kwargs)
    return it.native(function, *args, **kwargs)


def module_of(function: Any) -> Any:
    """The name of the module that a builtin belongs to; None if it says none."""
    target: Any = owner_of(function)
    if is_a(target, types.ModuleType):
        return target.__name__
    return getattr(function, "__module__", None)


def touches_only_arguments(it: Machine, function: Any) -> bool:
    """Is this callable known to look at nothing, and to change nothing, but its arguments?"""
    is_builtin = is_a(function, types.BuiltinFunctionType)
    if is_builtin and (function in FACTS or function in SAFE_FUNCTIONS):
        return True

    target: Any = owner_of(function)
    if target is not None and not is_a(target, types.ModuleType):
        return is_safe_method(it, function, target)

    owner = getattr(function, "__objclass__", None)
    if owner is not None:
        # `torch.device.__enter__` switches a mode of torch's, so it does more
        return is_safe_type(owner) and function.__name__ != "__enter__"

    module = module_of(function)
    if module in SAFE_MODULES or (module == "builtins" and function not in REFUSED):
        return True
    return not is_a(function, types.BuiltinFunctionType) and is_safe_type(type(function))


def is_safe_method(it: Machine, function: Any, target: Any) -> bool:
    """Is this method of `target` one of a safe type?"""
    if it.world.is_opaque(target) or function.__name__ == "__enter__":
        return False
    if function.__name__ in COPYING:
        return True
    cls = target
    if not is_a(target, type):
        cls = getattr(function, "__objclass__", type(target))
    # The class itself may be safe, or the type written in C from which it inherits.
    return is_safe_type(cls) or is_a(target, tuple(SAFE_TYPES - {object}))


def check_argument(it: Machine, function: Any, arg: Any) -> None:
    """See that a stand-in is complete before C code looks at it; refuse what C code would see
    through."""
    world = it.world
    # An opaque object is the real one. `callable` looks at its type only, and `repr` gives what
    # eager would say. (A tensor that is opaque is refused where an operation gets it.)
    if world.is_opaque(arg) and not is_a(arg, torch.Tensor) and function not in (callable, repr):
        raise Unsupported(f"gives a {type(arg).__name__} to {name_of(function)}")

    known = world.of(arg)
    if known is None:
        return
    if known.attributes is not None and getattr(function, "__name__", "") in COPYING:
        world.fill_all(known)
    if known.real is not arg and function is hash and type(arg).__hash__ in BY_IDENTITY:
        raise Unsupported(
            f"asks for the hash of a {type(arg).__name__}, which is its address",
            "give it a __hash__",
        )


def is_format(function: Any) -> bool:
    """`format(value, spec)`, or `"...".format(...)`?"""
    of_text = type(owner_of(function)) is str and function.__name__ == "format"
    return function is format or of_text


def in_numbers(args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with numbers for symbolic sizes: they become text."""
    return [*map(concrete, args)], {name: concrete(arg) for name, arg in kwargs.items()}
