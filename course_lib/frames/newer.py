"""What newer versions of CPython have and older ones do not, under one name on each of them.

In:  the Python that runs.
Out: the classes of a t-string (3.14), and lazy imports (3.15). Where Python has none, nothing is an
     instance of them. What evaluates annotations in a namespace of its own (3.14); where Python has
     none, it is never called. Python's messages for `f(*0)`, `f(**0)` and `a, b = 1, 2, 3`, and
     whether `locals()` gives one dict.

In PyTorch: `torch/_dynamo/symbolic_convert.py` asks `sys.version_info` in each instruction's
method.
"""

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any


class Nowhere:
    """What stands for a class that this Python does not have."""


try:
    from string.templatelib import Interpolation, Template  # type: ignore[import-not-found]
except ImportError:
    Interpolation = Template = Nowhere

TEMPLATES = {Interpolation, Template} - {Nowhere}
LazyImport: Any = getattr(types, "LazyImportType", Nowhere)


LOCALS_ARE_ONE_DICT = sys.version_info < (3, 13)
"""Do all calls of `locals()` in one frame give the same dict?"""


def message_of(call: Callable[[], Any]) -> str:
    """Python's message for an argument of a wrong kind behind the stars.

    `call` calls `len` with an int there. In their places the message has {function} and {type}."""
    try:
        call()
    except TypeError as error:
        of_any_function = str(error).replace("len()", "{function}()")
        return of_any_function.replace("int", "{type}")
    raise AssertionError("it raises")


NOT_ITERABLE = message_of(lambda: len(*0))  # type: ignore[misc]
"""The message for `f(*0)`; 3.15 does not name the function."""
NO_MAPPING = message_of(lambda: len(**0))  # type: ignore[call-arg, arg-type]
"""The message for `f(**0)`."""


def too_many_to_unpack(expected: int, value: Any) -> str:
    """The message for `a, b = value`.

    Since 3.14 it also says how many there are, where that is known without counting."""
    message = f"too many values to unpack (expected {expected}"
    if sys.version_info >= (3, 14) and type(value) in (tuple, list, dict):
        message += f", got {len(value)}"
    return f"{message})"


KEPT_WHOLE: dict[type, str] = {}
"""Iterators in whose place `for` and `yield from` keep the list, tuple or string itself (3.15), and
what that is."""
if sys.version_info >= (3, 15):
    # A string has two kinds of iterators: ASCII has one of its own.
    for _whole in ([], (), "", "é"):
        KEPT_WHOLE[type(iter(_whole))] = type(_whole).__name__


def method_to_send(receiver: Any) -> Any:
    """`receiver.send`, of what a `yield from` takes its values from."""
    if type(receiver) in KEPT_WHOLE:
        name = KEPT_WHOLE[type(receiver)]
        raise AttributeError(f"'{name}' object has no attribute 'send'")
    return receiver.send


def evaluator_of_annotations() -> Any:
    """`annotationlib.call_annotate_function`, which runs the code of an `__annotate__` with other
    globals."""
    try:
        return importlib.import_module("annotationlib").call_annotate_function
    except ImportError:
        return Nowhere


def make_interpolation(value: Any, text: str, conversion: str | None, format_spec: str) -> Any:
    """`{value!conversion:format_spec}` of a t-string; `conversion` is `str`, `repr` or `ascii`."""
    letter = conversion[0] if conversion else None  # "repr" → "r"
    return Interpolation(value, text, letter, format_spec)


def make_template(strings: tuple[str, ...], interpolations: tuple[Any, ...]) -> Any:
    """A t-string: strings and interpolations take turns, and a string comes first and last."""
    parts: list[Any] = [strings[0]]
    for interpolation, string in zip(interpolations, strings[1:], strict=True):
        parts += [interpolation, string]
    return Template(*parts)


def is_lazy_import(namespace: dict[str, Any], name: str) -> bool:
    """Does this name stand for an import that its first use is to do (`lazy import`,
    `-X lazy_imports`)?"""
    return isinstance(namespace.get(name), LazyImport)


def import_now(namespace: dict[str, Any], name: str) -> None:
    """Do such an import, as LOAD_GLOBAL does: the module, or what is taken from it, gets the
    name."""
    namespace[name] = namespace[name].resolve()
