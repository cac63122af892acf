"""Objects of Python's that are written in C, or that capture could not copy: each can be read under
one guard.

In:  a logger, a view of a dict (`inspect.Signature.parameters`).
Out: what the program reads there, and a guard that it will be so again.
In PyTorch: `torch/_dynamo/variables/misc.py` (`LoggingLoggerVariable`), `user_defined.py`.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import logging
import types
import weakref
from typing import TYPE_CHECKING, Any

from course_lib import frames
from course_lib.capture import attributes
from course_lib.capture.attributes import lookup as lookups
from course_lib.capture.attributes.lookup import OPAQUE_ATTRIBUTES, Lookup
from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.classes import MISSING, is_a, member_of
from course_lib.capture.guard_tests import KeysAre, Test, TypeIs, has_literal
from course_lib.capture.known import Known
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Imported, Source, Unsupported
from course_lib.capture.stand_ins.make import OF_TYPE
from course_lib.capture.world import World
from course_lib.frames import newer

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

LOG_LEVELS = {
    logging.Logger.debug: logging.DEBUG,
    logging.Logger.info: logging.INFO,
    logging.Logger.warning: logging.WARNING,
    logging.Logger.error: logging.ERROR,
    logging.Logger.exception: logging.ERROR,
    logging.Logger.critical: logging.CRITICAL,
}
"""Method of a logger → from which level on it writes."""


def log_nothing(level: int, it: Machine, logger: Any, *args: Any, **kwargs: Any) -> None:
    """A message of a level that is switched off.

    One that is written ends the graph: it is to come at its time."""
    known = it.world.of(logger)
    if known is None or is_enabled(it, logger, level):
        raise Unsupported("writes a log message", "write it outside the compiled function")


def is_plain_logger(logger: Any) -> bool:
    """Is it a logger of which Python's own code says whether a level is on? Only that can be
    guarded."""
    is_pythons_method = type(logger).isEnabledFor is logging.Logger.isEnabledFor
    return is_pythons_method and isinstance(logger, logging.Logger)


def level_of(it: Machine, logger: Any) -> int:
    """`logger.getEffectiveLevel()`, and a guard for it."""
    known = it.world.of(logger)
    if known is None or not is_plain_logger(known.real):
        raise Unsupported("asks a logger that is not a plain one from outside")
    level = known.real.getEffectiveLevel()
    it.world.assume(known.source, "logger", Test("{}.getEffectiveLevel()", "==", level))
    return level


def logger_of_name(it: Machine, name: Any = None) -> Any:
    """`logging.getLogger(name)`: the same one at each call."""
    if name is not None and type(name) is not str:
        raise Unsupported("asks for a logger by something that is no text")
    source = Source(f"({name!r})", Imported("logging").attr("getLogger"))
    return it.world.wrap(logging.getLogger(name), source)


def attribute_of_logger(it: Machine, known: Known, name: str) -> Any:
    """`logger.disabled`, or a method."""
    attribute = getattr(known.real, name)
    if name in ("name", "level", "disabled", "propagate"):
        it.world.assume_constant(attribute, known.source.attr(name))
        return attribute
    if not is_a(attribute, types.MethodType):
        raise Unsupported(f"reads the attribute '{name}' of a logger")
    it.world.class_attribute(known, name, member_of(type(known.real), name))
    return attribute


def log_at(it: Machine, logger: Any, level: Any, *args: Any, **kwargs: Any) -> None:
    log_nothing(level, it, logger)


def is_enabled(it: Machine, logger: Any, level: Any) -> bool:
    """`logger.isEnabledFor(level)`, and a guard for it."""
    known = it.world.of(logger)
    if known is None or type(level) is not int or not is_plain_logger(known.real):
        raise Unsupported("asks a logger that is not a plain one from outside")
    enabled = known.real.isEnabledFor(level)
    it.world.assume(known.source, "logger", Test(f"{{}}.isEnabledFor({level})", "is", enabled))
    return enabled


def view_of_dict(world: World, view: Any, source: Source) -> Any:
    """A `mappingproxy`: a dict that cannot be changed through it."""
    keys = list(view)
    if not all(map(has_literal, keys)):
        return world.opaque(view, source)
    world.assume(
        source,
        "keys",
        TypeIs(types.MappingProxyType),
        KeysAre(keys, "list({})"),
    )
    copy = {key: world.wrap(item, source.item(key)) for key, item in view.items()}
    return world.know(types.MappingProxyType(copy), view, source).stand_in


def lookup_special(it: Machine, value: Any, name: str, default: Any) -> Any:
    """A method that Python looks for in the class only.

    `contextlib` of 3.15 searches the classes' dictionaries for it."""
    if member_of(type(value), name) is MISSING:
        return default
    return attributes.get(it, value, name)


def is_weak_reference(it: Machine, function: Any) -> bool:
    """A weak reference from outside?"""
    return is_a(function, weakref.ref) and it.world.of(function) is not None


def call_weak_reference(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`reference()`: the object, found by way of the reference."""
    known = it.world.of(function)
    assert known is not None
    return it.world.wrap(function(), Source("()", known.source))


def cached_property(lookup: Lookup) -> Any:
    """`functools.cached_property`, as from Python 3.12 on, without a lock."""
    found, value = lookup.found, lookup.value
    if type(found) is not functools.cached_property or not lookup.is_of_class:
        return GO_ON
    computed = lookup.it.call(found.func, value)
    attributes.change(lookup.it, value, lookup.name, computed, plainly=True)
    return computed


def named_tuple(it: Machine, *args: Any, **kwargs: Any) -> Any:
    """`collections.namedtuple(...)`: the class belongs to the module of the line that calls, as if
    Python ran that line."""
    if kwargs.get("module") is None:
        kwargs["module"] = it.globals.get("__name__", "__main__")
    return frames.call(None, collections.namedtuple, *args, **kwargs)


FUNCTIONS[collections.namedtuple] = named_tuple
FUNCTIONS |= {
    function: functools.partial(log_nothing, level) for function, level in LOG_LEVELS.items()
}
FUNCTIONS |= {logging.getLogger: logger_of_name, logging.Logger.getEffectiveLevel: level_of}
OPAQUE_ATTRIBUTES |= dict.fromkeys((logging.Logger, logging.RootLogger), attribute_of_logger)
FUNCTIONS |= {logging.Logger.log: log_at, logging.Logger.isEnabledFor: is_enabled}
OF_TYPE[types.MappingProxyType] = view_of_dict
FUNCTIONS[getattr(contextlib, "_lookup_special", newer.Nowhere)] = lookup_special
register(
    CallRule("weak reference", is_weak_reference, call_weak_reference),
    before="object of which nothing is known",
)
lookups.register(cached_property, before=lookups.of_class_body)
