"""Calls that are followed: the callee's code is interpreted, with the same graph and guards.

In:  a function written in Python, its arguments.
Out: what it returns. `Unsupported` for code that is not to be followed.
In PyTorch: `torch/_dynamo/symbolic_convert.py` (`InliningInstructionTranslator`), `trace_rules.py`
(`SkipFilesVariable`).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import types
from typing import TYPE_CHECKING, Any

from course_lib import frames
from course_lib.capture.sources import Unsupported, attribute_of
from course_lib.capture.values import CONSTANT_TYPES, name_of

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

NOT_FOLLOWED = tuple(
    f"torch.{name}."
    for name in """_dynamo _inductor _subclasses fx jit optim distributed utils.data multiprocessing library _library
    export onnx compiler overrides _logging testing _refs _prims cuda utils.cpp_extension""".split()
)
"""Parts of torch that are no operations, and whose code is not for a graph."""
FOLLOWED = (
    "torch.jit._state.",
    "torch.cuda.amp",
    "torch.optim.swa_utils",
    "torch.optim.optimizer._to_scalar",
)
"""Names of functions and modules that lie in `NOT_FOLLOWED` and are followed all the same."""
# Where a compiled function keeps the original: ours, and torch.compile's
COMPILED = "_course_original", "_torchdynamo_orig_callable", "_torchdynamo_inline"
# What a function has that is not to be compiled: `cl.disable`'s mark, and torch.compile's
DISABLED = "_course_disable", "_torchdynamo_disable"


def follow(
    it: Machine, function: types.FunctionType, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Interpret the callee's code."""
    if any(getattr(function, mark, False) for mark in DISABLED):
        raise Unsupported(f"calls {name_of(function)}, which is marked with disable")

    for attribute in COMPILED:
        original = getattr(function, attribute, None)
        if original is not None:
            return call_original(it, function, attribute, args, kwargs)

    module = f"{function.__module__}."
    # torch's own code calls it round a backward: a context in which TorchDynamo's compiled autograd
    # is off. It never is on here.
    if module == "torch._dynamo.compiled_autograd.":
        return contextlib.nullcontext()
    if runs_as_it_is(module, args, kwargs):
        return frames.call(None, function, *args, **kwargs)

    refuse_what_is_not_followed(function, module)
    it.world.adopt(function, args)
    return it.enter(function, bound_values(it, function, args, kwargs))


def call_original(
    it: Machine,
    function: types.FunctionType,
    attribute: str,
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """A compiled function is called: the function that was compiled is part of this graph."""
    source = it.world.source_of(function)
    original = it.world.wrap(getattr(function, attribute), attribute_of(source, attribute))
    return it.call_function(original, args, kwargs)


def runs_as_it_is(module: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Is this code of Python's or torch's own that only looks things up?"""
    # `nn.Module.__init__`, once torch.compile was used, calls the mutation guard
    if module in ("linecache.", "torch._dynamo.mutation_guard."):
        return True
    # `re` compiles patterns and keeps them, which no program sees. What is no constant (an instance
    # that is to be a text) must not come in there.
    plain = (*CONSTANT_TYPES, re.Pattern)
    return module == "re." and all(type(arg) in plain for arg in (*args, *kwargs.values()))


def refuse_what_is_not_followed(function: types.FunctionType, module: str) -> None:
    """Raise Unsupported for a part of torch that is no operation, and for coroutines."""
    name = name_of(function)
    if module.startswith(NOT_FOLLOWED) and not name.startswith(FOLLOWED):
        raise Unsupported(
            f"calls {name}, a part of torch that is not an operation",
            "call it outside the compiled function",
        )
    if function.__code__.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise Unsupported(f"calls the coroutine {name}")


def bound_values(
    it: Machine, function: types.FunctionType, args: list[Any], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The values of the parameters, in flat order.

    CPython binds them, and raises its own errors."""
    copy = types.FunctionType(function.__code__, {}, function.__name__, None, function.__closure__)
    copy.__defaults__, copy.__kwdefaults__ = it.world.defaults(function)
    values: tuple[Any, ...] = frames.call(Binder(no_hook), copy, *args, **kwargs)
    return values


def no_hook(frame: Any) -> None:
    """Nothing is captured."""


def values_of_parameters(function: types.FunctionType, *values: Any) -> tuple[Any, ...]:
    """What a call gives under a `Binder`."""
    return values


class Binder(frames.Watcher):
    """Lets no frame run: where a call would begin, it gives the values that CPython has bound."""

    def __call__(self, code: types.CodeType, func: types.FunctionType, *args: Any) -> Any:
        return functools.partial(frames.call, None, values_of_parameters)
