"""What a widget or picture was given, looked at before anything is drawn.

In:  a value, and what it should be. Out: the value, or TypeError or ValueError with one sentence: what, where, and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def shown(value: Any) -> str:
    """A value in a sentence, short."""
    text = repr(value) if isinstance(value, (str, int, float, type(None), list, tuple)) else type(value).__name__
    return text if len(text) <= 60 else text[:57] + "…"


def whole(value: Any, what: str, least: float = -math.inf, most: float = math.inf) -> int:
    """A whole number from `least` to `most`. `what` begins the sentence: 'answer is the number of the right option'."""
    ends = f"{least:g} to {most:g}" if math.isfinite(most) else f"{least:g} or more"
    between = f", {ends}" if math.isfinite(least) else ""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
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
    return [whole(value, f"{what}: each is a whole number", least) for value in several(values, what)]


def a_number(value: Any, what: str) -> float:
    """A number: 'the time of relu'."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise TypeError(f"{what} is a number, not {shown(value)}")
    return float(value)


def positive(value: Any, what: str) -> float:
    """A number above 0: 'bandwidth, in bytes/s,'."""
    if not a_number(value, what) > 0:
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
    return attributes(value, ("events", "of"), f"{where} expects the trace of `with cl.record() as trace:`")
