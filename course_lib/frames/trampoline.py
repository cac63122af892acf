"""Seeing calls without a frame hook: swap a function's code for a trampoline.

In:  a function, and the watcher to ask.
Out: the same function object, whose code now asks first and then runs the head, or the original.

It sees only the functions it was told about: none of those that these call, and no frame that C code enters (`map`,
sort keys, `__getitem__`). That is the lesson before the hook: what do we miss? And it is what the library does where no
C compiler is.
In PyTorch: nothing; TorchDynamo always has its hook.
"""

from __future__ import annotations

import functools
import inspect
import types
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from course_lib.frames.hook import Watcher, _thread, call, installed, parameters

ENTERED_MANY_TIMES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_original: weakref.WeakKeyDictionary[FunctionType, CodeType] = weakref.WeakKeyDictionary()


def observe(function: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    """A callable like `function` whose frames are shown to `watcher`, by whichever way there is. Without the hook that
    is the function itself (of a module: its `forward`) and what was swapped before."""
    if not installed() and (entry := _entry(function)) and entry not in _original:
        swap(entry)
    return functools.partial(call, watcher, function)


def _entry(function: Any) -> FunctionType | None:
    """The Python function behind a callable object."""
    if isinstance(function, functools.partial):
        return _entry(function.func)
    if not isinstance(function, (FunctionType, types.MethodType)):
        function = getattr(function, "forward", None) or getattr(type(function), "__call__", None)  # noqa: B004
    function = getattr(function, "__func__", function)
    return function if isinstance(function, FunctionType) else None


def swap(function: FunctionType, watcher: Watcher | None = None) -> FunctionType:
    """From now on calls of `function` are shown to `watcher`; without one, to this thread's watcher of the time.
    Returns `function`."""
    unswap(function)
    code = function.__code__
    if not code.co_flags & ENTERED_MANY_TIMES:
        _original[function] = code
        function.__code__ = trampoline(code, _dispatcher(function, watcher))
    return function


def unswap(function: FunctionType) -> FunctionType:
    """Give `function` its own code back. Returns it."""
    if code := _original.pop(function, None):
        function.__code__ = code
    return function


def _dispatcher(function: FunctionType, watcher: Watcher | None) -> Callable[..., Any]:
    """What the trampoline lands on. Holds `function` weakly: a code object is opaque to the garbage collector."""
    code, behind = function.__code__, weakref.ref(function)
    original = flatten(code)

    def dispatch(*args: Any) -> Any:
        func = behind()
        assert func is not None  # it is being called
        asked = watcher if watcher is not None else _thread.watcher
        head = asked.find_head(func, code, args) if asked is not None else None
        if head is not None:
            return head(func, *args)
        return FunctionType(original, func.__globals__, func.__name__, None, func.__closure__)(*args)

    return dispatch


def trampoline(code: CodeType, target: Callable[..., Any]) -> CodeType:
    """Code with the signature and the free variables of `code`, whose body is `return target(every parameter)`."""
    names = list(parameters(code))
    positional, rest = names[: code.co_argcount], names[code.co_argcount :]
    keyword_only, rest = rest[: code.co_kwonlyargcount], rest[code.co_kwonlyargcount :]
    if code.co_posonlyargcount:
        positional.insert(code.co_posonlyargcount, "/")
    star = ["*" + rest.pop(0)] if code.co_flags & inspect.CO_VARARGS else ["*"] if keyword_only else []
    signature = ", ".join([*positional, *star, *keyword_only, *("**" + name for name in rest)])
    free = ", ".join(code.co_freevars)
    # `...` keeps the place of the target among the constants; naming the free variables after it makes them free here
    # too.
    source = f"def outer({free}):\n  def inner({signature}):\n    return ...({', '.join(names)})\n    {free}\n"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # "'ellipsis' object is not callable": it will be
        module = compile(source, "<trampoline>", "exec")
    inner = _code_within(_code_within(module))
    return inner.replace(
        co_consts=tuple(target if const is ... else const for const in inner.co_consts),
        co_name=code.co_name, co_qualname=code.co_qualname, co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )  # fmt: skip


def _code_within(code: CodeType) -> CodeType:
    return next(const for const in code.co_consts if isinstance(const, CodeType))


def flatten(code: CodeType) -> CodeType:
    """The same bytecode with every parameter positional (`*args` is one tuple, `**kwargs` one dict)."""
    return code.replace(
        co_argcount=len(parameters(code)), co_posonlyargcount=0, co_kwonlyargcount=0,
        co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
    )  # fmt: skip
