"""What `cl.compile` gives back: something that is called like the original, with the frames below
it watched.

In:  a function or a module, and the `Compiler` that answers for the frames below its calls.
Out: a function that looks like the original (its name, its kind, its signature), or a twin of the
module (`twin.py`).
In PyTorch: `torch/_dynamo/eval_frame.py` (`_TorchDynamoContext.__call__`, `OptimizedModule`).
"""

import contextlib
import dataclasses
import functools
import inspect
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._C import _is_tracing as jit_is_tracing
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling  # true to torch.compile alone
from torch.fx import _symbolic_trace as fx_tracer

from course_lib.frames import call, wrapper
from course_lib.racing import Way, Ways
from course_lib.trace_rules import called, is_library
from course_lib.twin import twin_of, untwinned

F = TypeVar("F", bound=Callable[..., Any])
if hasattr(fx_tracer, "_get_is_fx_tracing"):
    # Since torch 2.15: is this thread tracing?
    fx_is_tracing = fx_tracer._get_is_fx_tracing
else:

    def fx_is_tracing() -> bool:
        """Is any thread tracing with `torch.fx`?"""
        return fx_tracer._is_fx_tracing_flag


def compiled_function(function: F, compiler: Any) -> F:
    """`function`, with the frames below it watched by `compiler`."""
    # What is compiled already is not compiled once more: its original is.
    function = getattr(function, "_course_original", function)
    target: Callable[..., Any] = function
    if not has_own_frame(function):
        target = called(function)
    watched: Way = functools.partial(call, compiler.watcher, target)

    # `racing` calls this where the program is faster another way: by itself, say.
    def go(way: Way) -> None:
        nonlocal watched
        watched = way

    ways = Ways(function, watched, functools.partial(call, None, target), go)

    @wrapper
    def run(*args: Any, **kwargs: Any) -> Any:
        if others_trace():
            return function(*args, **kwargs)
        return watched(*args, **kwargs)

    vars(run)["_course_ways"] = ways
    # A call that makes a coroutine or a generator is over before the work begins, so such calls are
    # not timed: the compiler does not get to know these ways.
    if of_its_kind(function, run) is run:
        compiler.ways = weakref.ref(ways)
    compiled = functools.wraps(function)(of_its_kind(function, run))
    vars(compiled).update(_course_original=function, _course_compiler=compiler)
    return compiled  # type: ignore[return-value]


def compiled_module(model: torch.nn.Module, compiler: Any) -> torch.nn.Module:
    """A twin of `model`, with all that it has. Only the call differs."""
    model = untwinned(model)
    watched: Way = functools.partial(call, compiler.watcher, model)

    # `racing` calls this where the program is faster another way: by itself, say.
    def go(way: Way) -> None:
        nonlocal watched
        watched = way

    ways = Ways(model, watched, functools.partial(call, None, model), go)
    compiler.ways = weakref.ref(ways)

    @wrapper
    def run(twin: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        # Called on the twin, not as `model(...)`: where the twin is a part of another model, a
        # tracer looks for the object that is called among the parts of that model.
        if others_trace():
            return type(model).__call__(twin, *args, **kwargs)
        return watched(*args, **kwargs)

    vars(run)["_course_ways"] = ways

    # A copy of the twin has a compiler of its own: same settings, no entries yet.
    def remade(copied: torch.nn.Module) -> torch.nn.Module:
        return compiled_module(copied, dataclasses.replace(compiler))

    return twin_of(model, run, compiler, remade)


def has_own_frame(function: Callable[..., Any]) -> bool:
    """Does its call run Python code of the user's? Otherwise a frame is made to be captured."""
    inner = getattr(function, "func", function)  # what a `functools.partial` calls
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return code is not None and not is_library(code.co_filename)


def others_trace() -> bool:
    """Is this call another tracer's matter: torch.compile's, `torch.jit.trace`'s, `torch.fx`'s, or
    forward-mode derivatives'?

    None of them could look into a compiled kernel, so it is given the original program.
    """
    return (
        is_dynamo_compiling()
        or forward_ad._current_level >= 0
        or jit_is_tracing()
        or fx_is_tracing()
    )


# ---- coroutines and generators -------------------------------------------------------------------


def of_its_kind(function: Callable[..., Any], run: Callable[..., Any]) -> Callable[..., Any]:
    """`run`, as a coroutine or generator function if `function` is one: `asyncio` and web servers
    ask for that."""
    if inspect.iscoroutinefunction(function):
        return as_coroutine(run)
    if inspect.isgeneratorfunction(function):
        return as_generator(run)
    if inspect.isasyncgenfunction(function):
        return as_async_generator(run)
    return run


def as_coroutine(run: Callable[..., Any]) -> Callable[..., Any]:
    async def coroutine(*args: Any, **kwargs: Any) -> Any:
        return await run(*args, **kwargs)

    return coroutine


def as_generator(run: Callable[..., Any]) -> Callable[..., Any]:
    def generator(*args: Any, **kwargs: Any) -> Any:
        return (yield from run(*args, **kwargs))

    return generator


def as_async_generator(run: Callable[..., Any]) -> Callable[..., Any]:
    """`yield from`, which Python lacks for asynchronous generators: values, errors and the end go
    both ways."""

    async def async_generator(*args: Any, **kwargs: Any) -> Any:
        generator = run(*args, **kwargs)
        with contextlib.suppress(StopAsyncIteration):
            item = await generator.__anext__()
            while True:
                try:
                    sent = yield item
                except GeneratorExit:
                    await generator.aclose()
                    raise
                except BaseException as error:
                    item = await generator.athrow(error)
                else:
                    item = await generator.asend(sent)

    return async_generator
