"""Watching frames from Python.

In:  a callback that looks at a `Frame` and answers.
Out: while a `Watcher` is on, every new Python frame of this thread is shown to its callback before it runs.

In PyTorch: `torch/_dynamo/eval_frame.py`, `set_eval_frame`; PEP 523 is CPython's side of it.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any, Literal

from course_lib import native

SKIP: Literal[False] = False
"""The answer: never ask about this code again."""

Guard = Callable[..., bool]
Head = Callable[..., Any]
Answer = None | Literal[False] | tuple[Guard, Head]
"""None: run the frame as it is. SKIP: and never ask again. (guard, head): return `head(func, *args)` whenever `guard(func, *args)`."""


@dataclass(frozen=True)
class Frame:
    """A call that is about to run: the function, its code, and its parameters by name (the *args tuple and **kwargs dict last)."""

    func: FunctionType
    code: CodeType
    locals: dict[str, Any]

    @property
    def globals(self) -> dict[str, Any]:
        return self.func.__globals__

    @property
    def cells(self) -> dict[str, CellType]:
        """The cells of the enclosing functions' variables, by name."""
        return dict(zip(self.code.co_freevars, self.func.__closure__ or (), strict=True))

    @property
    def where(self) -> str:
        return f"{self.code.co_filename}:{self.code.co_firstlineno}"

    def __str__(self) -> str:
        return f"{self.code.co_qualname}({', '.join(self.locals)})"


def parameter_names(code: CodeType) -> tuple[str, ...]:
    """The names of all parameters, in the order in which the hook passes their values."""
    flags = code.co_flags
    extra = bool(flags & inspect.CO_VARARGS) + bool(flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def available() -> bool:
    """Is the compiled hook there? (Otherwise `observe` swaps code objects: see `trampoline.py`.)"""
    return native.load("course_lib.frames._framehook") is not None


def set_callback(callback: Any) -> Any:
    """Install this thread's callback (None: remove it); gives the previous one. The raw C function."""
    hook = native.load("course_lib.frames._framehook")
    return hook.enter(callback) if hook else None


class Watcher(dict):  # type: ignore[type-arg]
    """Shows frames to `callback` and remembers its answers, by the number of the code object (see `_framehook.c`)."""

    __hash__ = object.__hash__

    def __init__(self, callback: Callable[[Frame], Answer]) -> None:
        super().__init__()
        self.callback = callback
        self._previous: list[Any] = []

    def __call__(self, func: FunctionType, code: CodeType, args: tuple[Any, ...]) -> Head | None:
        """The C hook's question: which head runs this time?"""
        answer = self.callback(Frame(func, code, dict(zip(parameter_names(code), args, strict=True))))
        if answer is None:
            return None
        number = native.load("course_lib.frames._framehook").number
        if answer is False:
            self[number(code)] = None
            return None
        self.setdefault(number(code), []).append(answer)
        self[number(answer[1].__code__)] = None
        return answer[1]

    def __enter__(self) -> Watcher:
        self._previous.append(set_callback(self))
        return self

    def __exit__(self, *_: object) -> None:
        set_callback(self._previous.pop())

    def forget_all(self) -> None:
        self.clear()

    @staticmethod
    @contextlib.contextmanager
    def off() -> Iterator[None]:
        """No frame of this thread is watched within the block."""
        previous = set_callback(None)
        try:
            yield
        finally:
            set_callback(previous)


def observe(function: Callable[..., Any], watcher: Watcher) -> Callable[..., Any]:
    """A callable that does what `function` does, with `watcher` on meanwhile."""
    from functools import partial
    return partial(native.load("course_lib.frames._framehook").call, watcher, function)


def unobserved(function: Callable[..., Any]) -> Callable[..., Any]:
    from functools import partial
    return partial(native.load("course_lib.frames._framehook").call, None, function)
