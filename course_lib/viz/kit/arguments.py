"""The arguments of widgets and pictures, checked before anything is drawn.

In:  a value, and what it should be. Out: the value, or TypeError or ValueError with one sentence:
     what, where, and what to do.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import fx

from course_lib.viz.kit.style import COLOURS

MOST_LETTERS = 60
"""A longer value is cut where the sentence of an error quotes it."""


def shown(value: Any) -> str:
    """A value in a sentence: short, and on one line. Of an object of another class, the class."""
    plain = isinstance(value, (str, int, float, type(None), list, tuple, dict))
    text = " ".join(repr(value).split()) if plain else type(value).__name__
    if len(text) <= MOST_LETTERS:
        return text
    return text[: MOST_LETTERS - 3] + "…"


def is_whole(value: Any) -> bool:
    """Is `value` one whole number?

    It is tried, for every tensor has `__index__`, and raises there unless it holds one integer."""
    try:
        operator.index(value)
    except Exception:
        return False
    return True


def whole(value: Any, what: str, least: float = -math.inf, most: float = math.inf) -> int:
    """A whole number from `least` to `most`.

    An error says what is asked for, then what was given: 'answer is the number of the right option,
    0 to 3, not 7'. `what` is how that sentence begins."""
    requirement = what
    if math.isfinite(least) and math.isfinite(most):
        requirement += f", {least:g} to {most:g}"
    elif math.isfinite(least):
        requirement += f", {least:g} or more"

    if isinstance(value, bool) or not is_whole(value):
        raise TypeError(f"{requirement}, not {shown(value)}")
    if not least <= value <= most:
        raise ValueError(f"{requirement}, not {value}")
    return int(value)


def text(value: Any, what: str) -> str:
    """A text: 'the question of Predict'."""
    if not isinstance(value, str):
        raise TypeError(f"{what} is a text in quotes, not {shown(value)}")
    return value


def several(values: Any, what: str) -> list[Any]:
    """A list or the like, and no text: 'options is a list of texts'."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{what}, not {shown(values)}")
    return list(values)


def wholes(values: Any, what: str, least: float = 1) -> list[int]:
    """A list of whole numbers: 'lengths is a list of whole numbers'."""
    return [
        whole(value, f"{what}: each is a whole number", least) for value in several(values, what)
    ]


def a_number(value: Any, what: str) -> float:
    """A number: 'the time of relu'."""
    if not is_number(value):
        raise TypeError(f"{what} is a number, not {shown(value)}")
    return float(value)


def is_number(value: Any) -> bool:
    """An int, a float, or what holds just one."""
    if isinstance(value, torch.Tensor) and value.numel() != 1:
        return False
    return hasattr(value, "__float__") and not isinstance(value, (bool, type))


def positive(value: Any, what: str) -> float:
    """A number above 0: 'bandwidth, in bytes/s,'."""
    if not 0 < a_number(value, what) < math.inf:
        raise ValueError(f"{what} is a number above 0, not {value}")
    return float(value)


def a_function(value: Any, where: str) -> Any:
    """Something to call."""
    if not callable(value):
        expected = f"{where} expects a function or an nn.Module, got {shown(value)}"
        raise TypeError(f"{expected}: pass the function itself, and its arguments behind it")
    return value


def attributes(value: Any, names: Sequence[str], what: str) -> Any:
    """An object that has all these: 'choose_fusion expects a LoopGraph
    (trace.of(events.Lowered)[0].graph)'."""
    if not all(hasattr(value, name) for name in names):
        raise TypeError(f"{what}, not {shown(value)}")
    return value


def recorded(value: Any, where: str) -> Any:
    """What `with cl.record() as trace:` gave."""
    return attributes(
        value, ("events", "of"), f"{where} expects the trace of `with cl.record() as trace:`"
    )


# ---- what the functions of this room take --------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What an argument must be: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


def with_attributes(words: str, *names: str) -> Kind:
    """An object that has all these attributes."""

    def has_all(value: Any) -> bool:
        # A class has its objects' attributes, too: `Recording` in place of a recording.
        return not isinstance(value, type) and all(hasattr(value, name) for name in names)

    return Kind(words, has_all)


def each(kind: Kind, words: str) -> Kind:
    """The kind of a list (or another collection) whose items are of `kind`."""

    def are_of_kind(value: Any) -> bool:
        if not isinstance(value, Collection) or isinstance(value, (str, bytes, torch.Tensor)):
            return False
        return all(map(kind.holds, value))

    return Kind(words, are_of_kind)


def named(kind: Kind, words: str, key: Kind | None = None) -> Kind:
    """Names (or other keys) and a value of a kind for each."""
    keys = key or TEXT

    def are_named(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        return all(map(keys.holds, value)) and all(map(kind.holds, value.values()))

    return Kind(words, are_named)


def of_type(words: str, *types: type) -> Kind:
    """An object of one of these types."""
    return Kind(words, lambda value: isinstance(value, types))


def is_size(value: Any) -> bool:
    """A number that a length or an area can show: bytes, seconds."""
    return is_number(value) and 0 <= value < math.inf


def is_count(value: Any) -> bool:
    """A whole number from 1. `True` is 1 in Python, but nobody counts with it."""
    return not isinstance(value, bool) and is_whole(value) and value >= 1


def is_count_or_0(value: Any) -> bool:
    """A whole number from 0."""
    return value is not False and is_whole(value) and value >= 0


def is_stage(value: Any) -> bool:
    return isinstance(value, str) and value in COLOURS


def is_anything(value: Any) -> bool:
    return True


TEXT = of_type("a text in quotes", str)
NUMBER = Kind("a number", is_number)
SIZE = Kind("a number, 0 or more, that is not infinite", is_size)
COUNT = Kind("a whole number, 1 or more", is_count)
COUNT_OR_0 = Kind("a whole number, 0 or more", is_count_or_0)
STAGE = Kind(f"one of {', '.join(COLOURS)}", is_stage)
TENSOR = of_type("a tensor", torch.Tensor)
ANYTHING = Kind("anything", is_anything)
MAPPING = of_type("a dict", Mapping)
FUNCTION = Kind("a function or a module", callable)
RECORDED = with_attributes("the trace of `with cl.record() as trace:`", "events", "of")
GRAPH = of_type("a graph of torch.fx (trace.graphs[0]), or its module", fx.Graph, fx.GraphModule)
GUARDS = each(with_attributes("a guard", "kind", "source", "tests"), "guards (trace.guards)")
LOOPS = with_attributes("a LoopGraph (trace.of(events.Lowered)[0].graph)", "buffers", "outputs")

NAMES = each(TEXT, "a list of names")

F = TypeVar("F", bound=Callable[..., Any])


def takes(**kinds: Kind) -> Callable[[F], F]:
    """Check these arguments before the function begins.

    An iterator becomes a list, so that it can be read more than once. An argument that was left out
    is not looked at: its default is right.

    Raises TypeError with one sentence for an argument of another kind, and ValueError for a number
    out of range.
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function)

        @functools.wraps(function)
        def looked_at(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = parameters.bind(*args, **kwargs)
            except TypeError:
                # Too many or too few: Python says which.
                return function(*args, **kwargs)

            for name, value in bound.arguments.items():
                if name in kinds:
                    bound.arguments[name] = look_at(value, kinds[name], name)
            return function(*bound.args, **bound.kwargs)

        def look_at(value: Any, kind: Kind, name: str) -> Any:
            """The value; a list of it if it can be read only once. Raises what `takes` promises."""
            if isinstance(value, Iterator):
                value = list(value)
            if kind.holds(value):
                return value

            out_of_range = kind in (SIZE, COUNT, COUNT_OR_0) and is_number(value)
            error = ValueError if out_of_range else TypeError
            raise error(f"{function.__name__}: {name} is {kind.words}, not {shown(value)}")

        return looked_at  # type: ignore[return-value]

    return decorate
