"""Functions and types that know about the interpreted world: the tables, and the makers of simple
handlers.

`known_functions.py` and `corners/` fill the tables; a learner's `allow_in_graph` adds to them, too
(`user.py`).
In PyTorch: `torch/_dynamo/trace_rules.py` (`manual_torch_name_rule_map`), `variables/builtin.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

Handler = Callable[..., Any]

FUNCTIONS: dict[Any, Handler] = {}
"""Function → its handler: (interpreter, *arguments) → result."""
TYPES: dict[Any, Handler] = {}
"""Type of an object that stands for a call → its handler: (interpreter, the object, *arguments) →
result."""


def recorded(function: Any) -> Handler:
    """A handler: into the graph as it is."""

    def record(it: Machine, *args: Any, **kwargs: Any) -> Any:
        return it.world.builder.call(function, args, kwargs)

    return record


def refused(reason: str, hint: str = "") -> Handler:
    """A handler: the graph ends here."""

    def refuse(it: Machine, *args: Any, **kwargs: Any) -> Any:
        raise Unsupported(reason, hint)

    return refuse


def always(value: Any) -> Handler:
    """A handler: the answer is the same in each program."""

    def answer(it: Machine, *args: Any, **kwargs: Any) -> Any:
        return value

    return answer
