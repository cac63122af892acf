"""A call, decided by the first rule that matches.

In:  a callable of the interpreted program, its arguments.
Out: what the call gives. Raises what Python raises, or `Unsupported`.

The rules are asked in the order of `CALL_RULES`; `corners/` put more of them between (`register`).
In PyTorch: `torch/_dynamo/variables/builder.py` picks a class for each callable; its
`call_function` then decides.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture import attributes
from course_lib.capture.calls.builtins import run_builtin
from course_lib.capture.calls.classes import construct
from course_lib.capture.calls.functions import follow
from course_lib.capture.calls.known_functions import FUNCTIONS, TYPES
from course_lib.capture.calls.modules import call_module
from course_lib.capture.calls.operations import is_operation
from course_lib.capture.classes import MISSING, is_a, is_users, member_of
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported
from course_lib.capture.values import name_of, owner_of

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

Matches = Callable[["Machine", Any], bool]
Handle = Callable[["Machine", Any, list[Any], dict[str, Any]], Any]


@dataclass(frozen=True)
class CallRule:
    """How one kind of callable is called.

    `handle` may give GO_ON: the rule has nothing to say after all, and the next one is asked.
    """

    name: str
    matches: Matches
    handle: Handle

    def __str__(self) -> str:
        return self.name


def call(interpreter: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`function(*args, **kwargs)` in the interpreted world."""
    for rule in CALL_RULES:
        if rule.matches(interpreter, function):
            result = rule.handle(interpreter, function, args, kwargs)
            if result is not GO_ON:
                return result

    raise Unsupported(f"calls {name_of(function)}, for which there is no rule")


def register(rule: CallRule, *, before: str) -> None:
    """Add a rule of a corner in front of the rule of this name."""
    names = [known.name for known in CALL_RULES]
    CALL_RULES.insert(names.index(before), rule)


# ---- what each rule matches, and what it does ----------------------------------------------------


def is_module(it: Machine, function: Any) -> bool:
    """An `nn.Module`?"""
    return is_a(function, torch.nn.Module)


def has_call_of_users(it: Machine, function: Any) -> bool:
    """An instance of the user's class with a `__call__` written in Python?"""
    call_method = member_of(type(function), "__call__")
    is_in_python = is_a(call_method, types.FunctionType) and is_users(type(function))
    return is_in_python and not is_a(function, type)


def has_call(it: Machine, function: Any) -> bool:
    """An instance of any class with a `__call__` written in Python?"""
    return is_a(member_of(type(function), "__call__"), types.FunctionType)


def call_its_call(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    return call(it, attributes.get(it, function, "__call__"), args, kwargs)


def is_tensor_method(it: Machine, function: Any) -> bool:
    """`x.relu`, bound to a tensor?

    (An opaque tensor is one that the graph cannot hold: a sparse one, say.)"""
    tensor = owner_of(function)
    return is_a(tensor, torch.Tensor) and not it.world.is_opaque(tensor)


def record_method(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The method of a tensor becomes a node."""
    return it.world.builder.call(function.__name__, [function.__self__, *args], kwargs)


def anything(it: Machine, function: Any) -> bool:
    """Matches each callable.

    The rule's other function decides, and gives GO_ON where it has no answer."""
    return True


def compute_number(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`max(n, 3)` of a symbolic number gives another one."""
    number = it.world.shapes.compute(function, args)
    return GO_ON if number is None else number


def is_method_of_object(it: Machine, function: Any) -> bool:
    """`super().__setattr__`: what `object` has for all, bound?"""
    return type(function) is types.MethodWrapperType and function.__objclass__ is object


def call_method_of_object(
    it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """By the handler of the function that `object` has by this name, if there is one."""
    handler = FUNCTIONS.get(getattr(object, function.__name__))
    if handler is None:
        return GO_ON
    return handler(it, function.__self__, *args, **kwargs)


def call_handler(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function that has a handler of its own: `getattr`, `isinstance`, `torch.tensor`, ..."""
    handler = None
    with contextlib.suppress(TypeError):  # not hashable
        handler = FUNCTIONS.get(function)
    if handler is None:
        return GO_ON
    return handler(it, *args, **kwargs)


def is_known_type(it: Machine, function: Any) -> bool:
    """A bound method, a `functools.partial`, ...?"""
    return type(function) in TYPES


def handle_known_type(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A bound method, a `functools.partial`: an object that stands for a call of something else."""
    return TYPES[type(function)](it, function, *args, **kwargs)


def is_torch_operation(it: Machine, function: Any) -> bool:
    """A function of torch that computes on tensors, and does nothing else?"""
    return is_operation(function)


def record(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The function becomes a node."""
    return it.world.builder.call(function, args, kwargs)


def is_python_function(it: Machine, function: Any) -> bool:
    return is_a(function, (types.FunctionType, torch.jit.ScriptFunction))


def is_class(it: Machine, function: Any) -> bool:
    return is_a(function, type)


def is_opaque(it: Machine, function: Any) -> bool:
    return it.world.is_opaque(function)


def refuse_opaque(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    raise Unsupported(
        f"calls {name_of(function)}, of which capture knows nothing",
        "call it outside the compiled function",
    )


def is_not_callable(it: Machine, function: Any) -> bool:
    return member_of(type(function), "__call__") is MISSING


def raise_not_callable(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What Python raises."""
    raise TypeError(f"'{attributes.type_of(it, function).__name__}' object is not callable")


CALL_RULES = [
    CallRule("module", is_module, call_module),
    CallRule("instance with a __call__ of the user's", has_call_of_users, call_its_call),
    CallRule("method of a tensor", is_tensor_method, record_method),
    CallRule("arithmetic on symbolic numbers", anything, compute_number),
    CallRule("method of object", is_method_of_object, call_method_of_object),
    CallRule("function with a handler", anything, call_handler),
    CallRule("object that stands for a call", is_known_type, handle_known_type),
    CallRule("torch operation", is_torch_operation, record),
    CallRule("Python function", is_python_function, follow),
    CallRule("class", is_class, construct),
    CallRule("object of which nothing is known", is_opaque, refuse_opaque),
    CallRule("instance with a __call__", has_call, call_its_call),
    CallRule("object that is not callable", is_not_callable, raise_not_callable),
    CallRule("builtin", anything, run_builtin),
]
"""The first rule that matches decides. Special kinds of callables (`corners/`) stand between
them."""
