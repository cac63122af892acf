"""Objects of Python's that are written in C, or that capture could not copy: each can be read under one guard.

In:  a logger, thread-local data, `dir(cls)`, a view of a dict (`inspect.Signature.parameters`).
Out: what the program reads there, and a guard that it will be so again.
In PyTorch: `torch/_dynamo/variables/misc.py` (`LoggingLoggerVariable`), `user_defined.py`.
"""

from __future__ import annotations

import collections
import functools
import logging
import threading
import types
from typing import TYPE_CHECKING, Any

from course_lib import frames
from course_lib.capture.attributes import OPAQUE_ATTRIBUTES
from course_lib.capture.calls import RULES
from course_lib.capture.graph import Known
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.tests import KeysAre, LacksAttribute, Test, TypeIs, has_literal
from course_lib.capture.world import COPIES, MISSING, World

if TYPE_CHECKING:
    from course_lib.capture.interpreter import Interpreter

LEVELS = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.exception: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}
"""Method of a logger → from which level on it writes."""


def log_nothing(level: int, it: Interpreter, logger: Any, *args: Any, **kwargs: Any) -> None:
    """A message of a level that is switched off. One that is written ends the graph: it is to come at its time."""
    known = it.world.of(logger)
    if known is None or is_enabled(it, logger, level):
        raise Unsupported("writes a log message", "write it outside the compiled function")


def log_at(it: Interpreter, logger: Any, level: Any, *args: Any, **kwargs: Any) -> None:
    log_nothing(level, it, logger)


def is_enabled(it: Interpreter, logger: Any, level: Any) -> bool:
    """`logger.isEnabledFor(level)`, and a guard for it."""
    known = it.world.of(logger)
    if known is None or type(level) is not int or type(known.real) is not logging.Logger:
        raise Unsupported("asks a logger that is not a plain one from outside")
    enabled = known.real.isEnabledFor(level)
    it.world.assume(known.source, "logger", Test(f"{{}}.isEnabledFor({level})", "is", enabled))
    return enabled


def names_of(it: Interpreter, *values: Any) -> list[str]:
    """`dir(value)` of a class or a module from outside."""
    source = it.world.source_of(values[0]) if len(values) == 1 else None
    if source is None or not isinstance(values[0], (type, types.ModuleType)):
        raise Unsupported("calls dir, which looks at more than its argument")
    names = dir(values[0])
    it.world.assume(source, "names", KeysAre(names, "dir({})"))
    return list(names)


def thread_local(it: Interpreter, known: Known, name: str) -> Any:
    """An attribute of this thread's data. (Guards ask in the thread that calls.)"""
    found = getattr(known.real, name, MISSING)
    if found is MISSING:
        it.world.assume(known.source, "absent", LacksAttribute(name))
        raise AttributeError(f"'_thread._local' object has no attribute '{name}'")
    return it.world.wrap(found, known.source.attr(name))


def view_of_dict(world: World, view: Any, source: Source) -> Any:
    """A `mappingproxy`: a dict that cannot be changed through it."""
    keys = list(view)
    if not all(map(has_literal, keys)):
        return world._opaque(view, source)
    world.assume(
        source,
        "keys",
        TypeIs(types.MappingProxyType),
        KeysAre(keys, "list({})"),
    )
    copy = {key: world.wrap(item, source.item(key)) for key, item in view.items()}
    return world._know(types.MappingProxyType(copy), view, source).stand_in


def named_tuple(it: Interpreter, *args: Any, **kwargs: Any) -> Any:
    """`collections.namedtuple(...)`: the class belongs to the module of the line that calls, as if Python ran that line."""
    if kwargs.get("module") is None:
        kwargs["module"] = it.globals.get("__name__", "__main__")
    return frames.call(None, collections.namedtuple, *args, **kwargs)


RULES[collections.namedtuple] = named_tuple
RULES |= {function: functools.partial(log_nothing, level) for function, level in LEVELS.items()}
RULES |= {logging.Logger.log: log_at, logging.Logger.isEnabledFor: is_enabled, dir: names_of}
OPAQUE_ATTRIBUTES[threading.local] = thread_local
COPIES[types.MappingProxyType] = view_of_dict
