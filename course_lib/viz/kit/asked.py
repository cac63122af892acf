"""What a widget or picture was given, looked at before anything is drawn.

In:  a value, and what it should be. Out: the value, or TypeError or ValueError with one sentence: what, where, and what to do.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import fx

from course_lib.viz.kit.style import COLOURS


def shown(value: Any) -> str:
    """A value in a sentence: short, and on one line."""
    plain = isinstance(value, (str, int, float, type(None), list, tuple, dict))
    text = " ".join(repr(value).split()) if plain else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "…"


def is_whole(value: Any) -> bool:
    """Can `value` count? (A tensor says that it can, and may not.)"""
    try:
        operator.index(value)
    except Exception:
        return False
    return True


def whole(value: Any, what: str, least: float = -math.inf, most: float = math.inf) -> int:
    """A whole number from `least` to `most`. `what` begins the sentence: 'answer is the number of the right option'."""
    ends = f"{least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
    between = f", {ends}" if math.isfinite(least) else ""
    if isinstance(value, bool) or not is_whole(value):
        raise TypeError(f"{what}{between}, not {shown(value)}")
    if not least <= value <= most:
        raise ValueError(f"{what}{between}, not {value}")
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
    one = getattr(value, "numel", lambda: 1)() == 1 if isinstance(value, torch.Tensor) else True
    return hasattr(value, "__float__") and not isinstance(value, (bool, type)) and one


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
    """An object that has all these: 'choose_fusion expects a LoopGraph (trace.of(events.Lowered)[0].graph)'."""
    if not all(hasattr(value, name) for name in names):
        raise TypeError(f"{what}, not {shown(value)}")
    return value


def recorded(value: Any, where: str) -> Any:
    """What `with cl.record() as trace:` gave."""
    return attributes(
        value, ("events", "of"), f"{where} expects the trace of `with cl.record() as trace:`"
    )


# ---- what the functions of this room take ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What an argument must be: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]


def having(words: str, *names: str) -> Kind:
    """An object (no class) that has all these attributes, in its own right: a module answers for what it does not have."""
    return Kind(
        words,
        lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names),
    )


def each(kind: Kind, words: str) -> Kind:
    """Several of a kind, in a list or the like."""
    of_kind = lambda value: (
        isinstance(value, Collection) and not isinstance(value, (str, bytes, torch.Tensor))
    )
    return Kind(words, lambda value: of_kind(value) and all(map(kind.holds, value)))


def named(kind: Kind, words: str, key: Kind | None = None) -> Kind:
    """Names (or other keys) and a value of a kind for each."""
    keys = key or TEXT
    return Kind(
        words,
        lambda value: (
            isinstance(value, Mapping)
            and all(map(keys.holds, value))
            and all(map(kind.holds, value.values()))
        ),
    )


TEXT = Kind("a text in quotes", lambda value: isinstance(value, str))
NUMBER = Kind("a number", is_number)
SIZE = Kind(
    "a number, 0 or more, that is not infinite",
    lambda value: is_number(value) and 0 <= value < math.inf,
)
COUNT = Kind(
    "a whole number, 1 or more",
    lambda value: not isinstance(value, bool) and is_whole(value) and value >= 1,
)
STAGE = Kind(
    f"one of {', '.join(COLOURS)}", lambda value: isinstance(value, str) and value in COLOURS
)
COUNT_OR_0 = Kind(
    "a whole number, 0 or more", lambda value: value is not False and is_whole(value) and value >= 0
)
TENSOR = Kind("a tensor", lambda value: isinstance(value, torch.Tensor))
ANYTHING = Kind("anything", lambda _: True)
MAPPING = Kind("a dict", lambda value: isinstance(value, Mapping))
FUNCTION = Kind("a function or a module", callable)
RECORDED = having("the trace of `with cl.record() as trace:`", "events", "of")
GRAPH = Kind(
    "a graph of torch.fx (trace.graphs[0]), or its module",
    lambda value: isinstance(value, (fx.Graph, fx.GraphModule)),
)
GUARDS = each(having("a guard", "kind", "source", "tests"), "guards (trace.guards)")
LOOPS = having("a LoopGraph (trace.of(events.Lowered)[0].graph)", "buffers", "outputs")

NAMES = each(TEXT, "a list of names")

F = TypeVar("F", bound=Callable[..., Any])


def takes(**kinds: Kind) -> Callable[[F], F]:
    """These arguments are looked at before the function begins. TypeError with one sentence if one is of another kind, ValueError
    if it is a number out of range; what can be read only once is read here."""

    def decorate(function: F) -> F:
        parameters = inspect.signature(function)

        @functools.wraps(function)
        def looked_at(*args: Any, **kwargs: Any) -> Any:
            try:
                bound = parameters.bind(*args, **kwargs)
            except TypeError:  # too many or too few: Python says which
                return function(*args, **kwargs)
            for name, value in bound.arguments.items():
                if (kind := kinds.get(name)) is None:
                    continue
                if isinstance(value, (Iterator, types.GeneratorType)):
                    bound.arguments[name] = value = list(value)
                if not kind.holds(value):
                    error = (
                        ValueError
                        if kind in (SIZE, COUNT, COUNT_OR_0) and is_number(value)
                        else TypeError
                    )
                    raise error(f"{function.__name__}: {name} is {kind.words}, not {shown(value)}")
            return function(*bound.args, **bound.kwargs)

        return looked_at  # type: ignore[return-value]

    return decorate
