"""Watching one function without a hook: swap its `__code__`.

Where no C compiler is at hand, the function to compile gets another body, a *trampoline*: `return dispatch(a, b, ...)`. It speaks the same
protocol as the hook (`Watcher`, `Frame`, guard, head) but sees only calls of that one function: not those it makes in turn, and not those
that C code enters (`map`, a sort key, a module hook).
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

from course_lib.frames.hook import Watcher, parameter_names


def trampoline(code: CodeType, target: Callable[..., Any]) -> CodeType:
    """Code with the signature and free variables of `code`, whose body is `return target(...)` on flat arguments."""
    names = [f"a{i}" for i in range(len(parameter_names(code)))]
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    signature, rest = names[:positional], names[positional + keyword_only :]
    if code.co_posonlyargcount:
        signature.insert(code.co_posonlyargcount, "/")
    if code.co_flags & inspect.CO_VARARGS:
        signature.append("*" + rest.pop(0))
    elif keyword_only:
        signature.append("*")
    signature += names[positional : positional + keyword_only]
    signature += ["**" + name for name in rest]
    free = ", ".join(code.co_freevars)
    text = f"def outer({free}):\n def f({', '.join(signature)}):\n  return 'T'({', '.join(names)})\n  {free}"
    namespace: dict[str, Any] = {}
    with warnings.catch_warnings():  # a string is not callable: the constant is replaced below
        warnings.simplefilter("ignore")
        exec(text, namespace)
    body = next(c for c in namespace["outer"].__code__.co_consts if isinstance(c, CodeType))
    return body.replace(
        co_varnames=code.co_varnames[: len(names)],
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_filename=code.co_filename,
        co_firstlineno=code.co_firstlineno,
        co_consts=tuple(target if constant == "T" else constant for constant in body.co_consts),
    )


def flat(code: CodeType) -> CodeType:
    """The same bytecode with every parameter positional: *args is one tuple, **kwargs one dict."""
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = len(parameter_names(code))
    return code.replace(co_argcount=count, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags)


def swap(function: FunctionType, watcher: Watcher) -> Callable[[], None]:
    """Put a trampoline to `watcher` into `function`. Gives the function that takes it out again."""
    code = function.__code__
    plain = FunctionType(flat(code), function.__globals__, function.__name__, None, function.__closure__)
    original = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    original.__kwdefaults__ = function.__kwdefaults__

    def dispatch(*args: Any) -> Any:
        entries = watcher.remembered.setdefault(code, [])
        for guard, head in entries or ():
            if guard(original, *args):
                return head(original, *args)
        answer = watcher(original, code, args) if entries is not None else None
        if answer:
            entries.append(answer)
            return answer[1](original, *args)
        if answer is False:
            watcher.remembered[code] = None
        return plain(*args)

    def undo() -> None:
        function.__code__ = code

    function.__code__ = trampoline(code, dispatch)
    return undo


def through_trampoline(function: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    """`function` with its own frame shown to `watcher`; of a module, the frame of its `forward`. The original is left as it is."""
    if isinstance(function, FunctionType):
        return swapped(function, watcher)
    if isinstance(function, MethodType) and isinstance(function.__func__, FunctionType):
        return MethodType(swapped(function.__func__, watcher), function.__self__)
    forward = getattr(type(function), "forward", None)
    if not isinstance(forward, FunctionType):
        return function
    bound = MethodType(swapped(forward, watcher), function)

    def call(*args: Any, **kwargs: Any) -> Any:
        vars(function)["forward"] = bound  # found before the class's own, also by what `__call__` does around it
        try:
            return function(*args, **kwargs)
        finally:
            vars(function).pop("forward", None)

    return call


def swapped(function: FunctionType, watcher: Watcher) -> FunctionType:
    """A copy of `function` with a trampoline in it."""
    copy = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    swap(copy, watcher)
    return copy
