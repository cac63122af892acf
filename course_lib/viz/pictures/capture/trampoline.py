"""Seeing calls without a frame hook: swap a function's code for a trampoline.

In:  a function, and the callback to ask.
Out: the same function object, whose code now asks first and then runs the head, or the original.

It sees only the functions it was told about: none of those that these call, and no frame that C
code enters (`map`, sort keys, `__getitem__`). That is lesson 02 before the hook: what do we miss?
In PyTorch: nothing; TorchDynamo always has its hook.
"""

from __future__ import annotations

import inspect
import warnings
import weakref
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from course_lib.frames import Answer, Frame, parameters
from course_lib.frames.hook import flatten

ENTERED_MANY_TIMES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Flags of code whose frame runs in several goes: a trampoline sees only that it is called."""
_original: weakref.WeakKeyDictionary[FunctionType, CodeType] = weakref.WeakKeyDictionary()
"""A function whose code was swapped → its own code."""


def swap(function: FunctionType, callback: Callable[[Frame], Answer]) -> FunctionType:
    """From now on calls of `function` are shown to `callback`, as `frames.watching` would show
    them. Returns `function`.

    Generators and coroutines stay as they are."""
    unswap(function)
    code = function.__code__
    if not code.co_flags & ENTERED_MANY_TIMES:
        _original[function] = code
        function.__code__ = trampoline(code, _dispatcher(function, callback))
    return function


def unswap(function: FunctionType) -> FunctionType:
    """Give `function` its own code back. Returns it."""
    if code := _original.pop(function, None):
        function.__code__ = code
    return function


def _dispatcher(function: FunctionType, callback: Callable[[Frame], Answer]) -> Callable[..., Any]:
    """What the trampoline lands on.

    Holds `function` weakly: a code object is opaque to the garbage collector."""
    code, behind = function.__code__, weakref.ref(function)
    original = flatten(code)

    def dispatch(*args: Any) -> Any:
        func = behind()
        assert func is not None  # it is being called
        answer = callback(Frame(func, code, dict(zip(parameters(code), args, strict=True))))
        # An answer is a check of guards, and the head that runs if they hold.
        if answer and answer[0](func, *args):
            return answer[1](func, *args)
        return FunctionType(original, func.__globals__, func.__name__, None, func.__closure__)(
            *args
        )

    return dispatch


def trampoline(code: CodeType, target: Callable[..., Any]) -> CodeType:
    """Code with the signature and the free variables of `code`, whose body is
    `return target(every parameter)`."""
    names = list(parameters(code))
    # In the order of CPython: positional, keyword-only, `*args`, `**kwargs`
    positional, rest = names[: code.co_argcount], names[code.co_argcount :]
    keyword_only, rest = rest[: code.co_kwonlyargcount], rest[code.co_kwonlyargcount :]
    if code.co_posonlyargcount:
        positional.insert(code.co_posonlyargcount, "/")
    star = []
    if code.co_flags & inspect.CO_VARARGS:
        star = ["*" + rest.pop(0)]
    elif keyword_only:
        star = ["*"]

    signature = ", ".join([*positional, *star, *keyword_only, *("**" + name for name in rest)])
    free = ", ".join(code.co_freevars)
    # `...` keeps the place of the target among the constants; naming the free variables makes them
    # free here too.
    source = f"def outer({free}):\n  def inner({signature}):\n    return ...({', '.join(names)})\n    {free}\n"
    with warnings.catch_warnings():
        # Python warns that an ellipsis cannot be called. The target takes its place below.
        warnings.simplefilter("ignore", SyntaxWarning)
        module = compile(source, "<trampoline>", "exec")
    inner = _code_within(_code_within(module))
    return inner.replace(
        co_consts=tuple(target if const is ... else const for const in inner.co_consts),
        co_name=code.co_name, co_qualname=code.co_qualname, co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
    )  # fmt: skip


def _code_within(code: CodeType) -> CodeType:
    """The code of the one function that is defined in `code`."""
    return next(const for const in code.co_consts if isinstance(const, CodeType))
