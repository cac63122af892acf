"""See every Python frame before it runs, and run something else in its place (PEP 523; the
evaluator is `_framehook.c`).

In:  a callback that is shown each new `Frame` of this thread.
Out: what the callback answers. `(guard, head)`: for frames whose arguments satisfy `guard`, `head`
     is called instead, unasked.

    def callback(frame: Frame) -> Answer:
        print(frame.code.co_name, frame.locals)
        return None                                  # run it as it is

    with watching(callback):
        f(1, 2)

In PyTorch: `torch/_dynamo/eval_frame.py` (`set_eval_frame`) and `torch/_dynamo/types.py`
(`GuardedCode`, `DynamoFrameType`).
"""

import inspect
import sys
import threading
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Literal, TypeAlias, TypeVar

from course_lib import native

CheckFunction: TypeAlias = Callable[..., bool]
"""`guard(func, *args)`: may the head stand in for a frame of `func` with these arguments?"""
HeadFunction: TypeAlias = Callable[..., Any]
"""`head(func, *args)`: what the frame would have returned. `args` is flat, in the order of
`parameters(code)`. A head may also return `AS_IT_IS`: then the frame runs after all, and nobody
watches it."""
Answer: TypeAlias = tuple[CheckFunction, HeadFunction] | Literal[False] | None
"""What to do with a frame: replace it and those like it; `SKIP`; or None: run it as it is, and ask
again next time."""
SKIP: Literal[False] = False
"""Run frames of this code as they are, and never ask about it again."""

_framehook = native.load("course_lib.frames._framehook")
_thread = threading.local()
"""`entered`: for each `with watcher:` that this thread is in, the watcher from before."""
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Frame:
    """A call about to run: `func`'s code with its parameters bound, not one instruction executed
    yet."""

    func: FunctionType
    code: CodeType
    # Parameter → value, in the order of `parameters(code)`; a cell variable, too, is still a plain
    # value
    locals: dict[str, Any]

    @property
    def where(self) -> str:
        return f"{self.code.co_filename}:{self.code.co_firstlineno}"


class Watcher(dict[int, "list[tuple[CheckFunction, HeadFunction]] | None"]):
    """A callback together with its answers so far.

    `with watcher:` shows it the frames of the block on this thread.

    The answers belong to the watcher: they stay when it is entered again, and no other watcher sees
    them. It is a dict, which the evaluator reads in C: `number(code)` → pairs of guard and head, or
    None (`SKIP`).
    """

    def __init__(self, callback: Callable[[Frame], Answer]) -> None:
        super().__init__()
        self.callback = callback
        # Number of a code object → the reference whose callback drops the answers when it dies
        self._alive: dict[int, weakref.ref[CodeType]] = {}

    # A watcher is a dict for the evaluator only. Two are never equal, though they may hold the
    # same.
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__
    __repr__ = object.__repr__

    def __call__(self, code: CodeType, func: FunctionType, *args: Any) -> HeadFunction | None:
        """The evaluator's question when no pair fits: the head to call this time, or None."""
        try:
            return self.ask(code, func, *args)
        except RecursionError:
            # Deep in calls no room is left for the callback, and the program needs less: ask again
            # where there is room. With room enough the callback itself goes too deep. It would do
            # so at every call.
            if has_room():
                self._remember(code, None)
                warn_too_deep(code)
            return None

    def ask(self, code: CodeType, func: FunctionType, *args: Any) -> HeadFunction | None:
        """Ask the callback, and keep its answer."""
        answer: Answer = SKIP
        if not self.is_never_shown(code):
            frame = Frame(func, code, dict(zip(parameters(code), args, strict=True)))
            answer = self.callback(frame)

        if answer is None:
            return None
        if answer is SKIP:
            self._remember(code, None)
            return None
        if not is_pair(answer):
            raise TypeError(
                f"the callback must answer None, SKIP or (guard, head), two callables; got {answer!r}"
            )

        self._remember(code, [*(self.entries(code) or ()), answer])
        # A head is a Python function itself, and its frame is not asked about.
        _, head = answer
        if isinstance(head, FunctionType):
            self._remember(head.__code__, None)
        return head

    @staticmethod
    def is_never_shown(code: CodeType) -> bool:
        """Is there no call in it that a callback could want to see?"""
        # `__exit__` runs while this still watches; a head does what is watched already
        if code.co_filename == __file__ or is_head(code):
            return True
        # CPython 3.14 writes such functions itself: they run when somebody asks for annotations
        if code.co_name == "__annotate__":
            return True
        # A call of a generator runs nothing yet; its frame is entered again for each value
        return bool(code.co_flags & inspect.CO_GENERATOR)

    def _remember(
        self, code: CodeType, entries: list[tuple[CheckFunction, HeadFunction]] | None
    ) -> None:
        """Keep the answers for this code as long as it lives. `entries`: None for `SKIP`."""
        key = number(code)

        def forget(_: object) -> None:
            self.pop(key, None)
            self._alive.pop(key, None)

        self[key] = entries
        self._alive[key] = weakref.ref(code, forget)

    def entries(
        self, code: CodeType
    ) -> tuple[tuple[CheckFunction, HeadFunction], ...] | Literal[False]:
        """The `(guard, head)` pairs of a code object in the order they are tried; `SKIP` if it was
        skipped.

        One that holds often in a row, while those before it fail, moves to the front
        (`_framehook.c`)."""
        pairs = self.get(number(code), [])
        return SKIP if pairs is None else tuple(pairs)

    def forget_all(self) -> None:
        """Ask about everything again."""
        self.clear()
        self._alive.clear()

    def __enter__(self) -> "Watcher":
        vars(_thread).setdefault("entered", []).append(enter(self))
        return self

    def __exit__(self, *error: object) -> None:
        enter(_thread.entered.pop())


def has_room() -> bool:
    """Is more than half of Python's recursion limit left here?"""
    frame, depth = sys._getframe(), 0
    while frame := frame.f_back:  # type: ignore[assignment]
        depth += 1
    return depth < sys.getrecursionlimit() // 2


def warn_too_deep(code: CodeType) -> None:
    """Say once that a function runs in eager."""
    message = (
        f"{code.co_qualname} runs in eager: to compile it needs more nested calls than Python allows. "
        "Compile its parts, or raise the limit by sys.setrecursionlimit"
    )
    warnings.warn_explicit(message, UserWarning, code.co_filename, code.co_firstlineno)


def is_pair(answer: object) -> bool:
    """Is it a guard and a head?"""
    return isinstance(answer, tuple) and len(answer) == 2 and all(map(callable, answer))


watching = Watcher
"""`with watching(callback):` shows `callback` every frame that starts within the block on this
thread."""


def parameters(code: CodeType) -> tuple[str, ...]:
    """Their names in flat order: positional, keyword-only, then the `*args` tuple and the
    `**kwargs` dict."""
    count = code.co_argcount + code.co_kwonlyargcount
    for flag in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS):
        count += bool(code.co_flags & flag)
    return code.co_varnames[:count]


def flatten(code: CodeType) -> CodeType:
    """The same bytecode with every parameter positional (`*args` is one tuple, `**kwargs` one
    dict)."""
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return code.replace(
        co_argcount=len(parameters(code)), co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=flags
    )


def wrapper(function: F) -> F:
    """Mark a function that only hands a call on.

    Its frames are hidden while `call` or `call_hidden` runs below them."""
    mark(function.__code__, WRAPPER)
    return function


def mark_head(code: CodeType) -> None:
    """Mark the code of a head.

    Its frames are hidden while `call_hidden` runs below them, and `tell` hears of their errors."""
    mark(code, HEAD)


def is_head(code: CodeType) -> bool:
    """Was this code marked by `mark_head`?"""
    return marked(code) == HEAD


def run_apart(function: FunctionType, *args: Any) -> Any:
    """Let Python run a frame, whose arguments come in flat order, and all below it, with nobody
    watching."""
    plain = FunctionType(
        flatten(function.__code__),
        function.__globals__,
        function.__name__,
        None,
        function.__closure__,
    )
    return call(None, plain, *args)


def installed() -> bool:
    """Is the compiled evaluator here? Without it nothing is seen."""
    return _framehook is not None


# ---- what the evaluator offers (`_framehook.c`), and what stands for it if it could not be built


def missing(*args: Any, **kwargs: Any) -> Any:
    """What stands for whatever would capture."""
    raise RuntimeError(native.why_nothing_is_captured())


def answer_nothing(*args: Any) -> Any:
    """What stands for questions about frames where nothing is captured."""


def no_version(cls: type) -> int:
    """What stands for the version of a class where it is not known."""
    return 0


enter: Callable[[Watcher | None], Watcher | None] = getattr(_framehook, "enter", missing)
"""Makes a watcher the one of this thread; returns the one before, to be entered again when done."""
call: Callable[..., Any] = getattr(_framehook, "call", missing)
"""`call(watcher, function, *args, **kwargs)`: with the frames below it shown to `watcher` (None: to
nobody)."""
call_hidden: Callable[..., Any] = getattr(_framehook, "call_hidden", missing)
"""`call_hidden(function, *args, **kwargs)`: with the frames of wrappers and heads directly above it
hidden."""
call_revealed: Callable[..., Any] = getattr(_framehook, "call_revealed", missing)
"""`call_revealed(function, *args, **kwargs)`: with no frame of this thread hidden."""
tell: Callable[[Callable[[BaseException], object]], None] = getattr(
    _framehook, "tell", answer_nothing
)
"""`tell(function)`: `function(error)` is told of each error that leaves a head, and may change its
traceback."""
mark: Callable[[CodeType, int], None] = getattr(_framehook, "mark", answer_nothing)
"""`mark(code, sort)`: frames of this code may be hidden. `sort` is `WRAPPER` or `HEAD`."""
marked: Callable[[CodeType], int] = getattr(_framehook, "marked", answer_nothing)
"""`marked(code)`: the sort that it was marked as, or 0."""
WRAPPER: int = getattr(_framehook, "WRAPPER", 1)
"""A sort of code: the library's own, between the frames of the program."""
HEAD: int = getattr(_framehook, "HEAD", 2)
"""A sort of code: a head, which runs in the place of a frame of the program."""
AS_IT_IS: object = getattr(_framehook, "AS_IT_IS", object())
"""What a head returns to let the frame run after all, with nobody watching."""
number: Callable[[CodeType], int] = getattr(_framehook, "number", id)
"""The code object's key in a watcher. (Code objects themselves compare by value: two equal ones
must not share answers.)"""
class_version: Callable[[type], int] = getattr(_framehook, "class_version", no_version)
"""A number that is another one after any change to the class or one above it; 0 where that is not
known."""
