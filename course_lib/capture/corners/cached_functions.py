"""A function with a cache: `functools.lru_cache`.

In:  a call of it, with constants or objects from outside.
Out: what the real function gives. The call itself is the place where that is found, so guards ask the cache again.

Eager runs the function once for the same arguments, and then its cache answers, whatever has changed since. So the real function
is asked, here and now. If its cache holds nothing yet (`answers`), that runs its code: then the code may only compute. Its bytecode
tells (`reading.py`); where that is not enough, the code is interpreted first, and must have changed nothing.
In PyTorch: `torch/_dynamo/variables/functions.py` (`WrapperUserFunctionVariable`): it follows the function and leaves out the cache.
"""

from __future__ import annotations

import functools
import gc
import itertools
import re
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib import frames
from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.classes import is_a, is_users
from course_lib.capture.corners.own_operations import WHAT_TO_DO
from course_lib.capture.corners.reading import Outside, Role, read
from course_lib.capture.effects import changes, has_changed
from course_lib.capture.guard_tests import has_literal
from course_lib.capture.shapes import concrete
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.stand_ins.slots import is_full
from course_lib.capture.values import CONSTANT_TYPES, name_of

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


@dataclass(frozen=True)
class Argument:
    """An argument that the real function can get: the object, and how a guard writes it."""

    real: Any
    text: str


def is_cached(it: Machine, function: Any) -> bool:
    return is_a(function, functools._lru_cache_wrapper)


def call_cached(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What the function gives: asked of the real one, or followed."""
    args = [concrete(arg) for arg in args]
    kwargs = {name: concrete(arg) for name, arg in kwargs.items()}
    for arg in (*args, *kwargs.values()):
        if type(arg) in (list, dict, set):
            it.native(hash, arg)  # raises TypeError, as the real one does before anything runs
    source = it.world.source_of(function)
    given = [argument(it, arg) for arg in (*args, *kwargs.values())]
    can_ask = source is not None and None not in given
    are_constants = all(map(is_constant, (*args, *kwargs.values())))

    if can_ask and source is not None and answers(function, given, kwargs):
        return ask_cache(it, function, source, given, list(kwargs))
    if why := impurity(function, are_constants):
        if not can_ask:
            raise refusal(function, why)
        see_it_compute(it, function, args, kwargs, why)
    elif not are_constants:
        return it.call_function(inner_function(it, function, source), args, kwargs)

    if source is None or not can_ask:
        return it.call_function(inner_function(it, function, source), args, kwargs)
    if has_changed(it.world) and (
        not reads_constants_only(function) or lead_to_what_changed(it, given)
    ):
        raise refusal(function, "is run now or not, which only its cache knows")
    return ask_cache(it, function, source, given, list(kwargs))


def answers(function: Any, given: list[Argument | None], kwargs: dict[str, Any]) -> bool:
    """Has its cache an answer for these arguments? Then no code runs when it is asked."""
    if kwargs or function.cache_parameters()["typed"]:
        return False
    reals = tuple(one.real for one in given if one is not None)
    if not all(map(has_plain_hash, reals)):
        return False
    return key_of(reals) in cache_of(function)


def has_plain_hash(value: Any) -> bool:
    """Does a dict find it without a line of the user's?"""
    if type(value) is tuple:
        return all(map(has_plain_hash, value))
    return is_constant(value) or type(value).__hash__ is object.__hash__


def key_of(arguments: tuple[Any, ...]) -> Any:
    """The key under which `functools` keeps an answer: a single text or number as it is."""
    if len(arguments) == 1 and type(arguments[0]) in (str, int):
        return arguments[0]
    return arguments


def cache_of(function: Any) -> dict[Any, Any]:
    """The dict in which a function of `functools.lru_cache` keeps its answers. Python shows it to the garbage collector only."""
    parts = gc.get_referents(function)
    for before, part in itertools.pairwise(parts):
        if part is function.__wrapped__ and type(before) is dict:
            return before
    return {}


def refusal(function: Any, why: str) -> Unsupported:
    return Unsupported(f"calls {name_of(function)}, whose code {why}", WHAT_TO_DO)


def inner_function(it: Machine, function: Any, source: Source | None) -> Any:
    """The function that the cache stands before."""
    return it.world.wrap(function.__wrapped__, source.attr("__wrapped__") if source else None)


def is_constant(value: Any) -> bool:
    return has_literal(value) or type(value) is torch.Size


def argument(it: Machine, value: Any) -> Argument | None:
    """How the real function gets this value; None if it cannot."""
    if has_literal(value):
        return Argument(value, repr(value))
    if type(value) is torch.Size:
        return Argument(value, f"torch.Size({list(value)})")

    known = it.world.of(value)
    if known is not None and not is_a(value, torch.Tensor):
        return Argument(known.real, known.source.expr)
    if type(value) is not tuple:
        return None

    parts = [argument(it, part) for part in value]
    if None in parts:
        return None
    listed = "".join(f"{part.text}, " for part in parts if part)
    return Argument(tuple(part.real for part in parts if part), f"({listed})")


def impurity(function: Any, are_constants: bool) -> str:
    """What the bytecode says the function may do besides computing, "" if nothing."""
    found = Outside()
    read(function.__wrapped__, Role(kernel=True), found)
    found.effects += [*found.random, *found.reads]
    if not are_constants and (found.effect or found.constants):
        found.effects.append("has a cache, which knows its arguments by more than their values")
    return found.effect


def see_it_compute(
    it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any], why: str
) -> None:
    """Interpret the function. Raises Unsupported if it changes anything, or has operations for the graph."""
    world = it.world
    before = changes(world), len(world.builder.graph.nodes), len(world.warned)
    it.call_function(inner_function(it, function, world.source_of(function)), args, kwargs)
    after = changes(world), len(world.builder.graph.nodes), len(world.warned)
    if before != after:
        raise refusal(function, why)


def reads_constants_only(function: Any) -> bool:
    """Can its code reach nothing outside but constants, functions and classes? (Names decide: of globals, and what they hold.)

    Then it does not matter that the program has changed something, which is not yet done to the real objects.
    """
    waiting, seen = [function.__wrapped__], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen or cannot_change(value):
            continue
        seen.add(id(value))
        if is_a(value, types.FunctionType):
            waiting += reached_by(value)
        elif is_a(value, type):
            waiting += [part for base in value.__mro__ for part in own_members(base)]
        elif is_a(value, (staticmethod, classmethod, functools._lru_cache_wrapper)):
            waiting.append(value.__wrapped__)
        else:
            return False
    return True


MOST_PARTS = 1000
"""So many objects are looked at under an argument."""


def lead_to_what_changed(it: Machine, given: list[Argument | None]) -> bool:
    """Is there, in one of the arguments, an object that the program has changed? (The real one is not changed yet.)"""
    holders = {key[0] for key in changes(it.world)}
    changed = {id(known.real) for known in it.world.known.values() if id(known) in holders}
    changed |= holders  # of what is stored elsewhere the key is the object's own

    waiting, seen = [one.real for one in given if one is not None], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or is_a(part, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(part))
        if id(part) in changed or len(seen) > MOST_PARTS:
            return True
        waiting += gc.get_referents(part)
    return False


def cannot_change(value: Any) -> bool:
    """Is it a constant, a builtin, or something of Python's library or torch?"""
    if type(value) in CONSTANT_TYPES or is_a(value, (types.BuiltinFunctionType, re.Pattern)):
        return True
    if is_a(value, tuple):
        return all(map(cannot_change, value))
    return is_a(value, (type, types.FunctionType)) and not is_users(value)


def own_members(cls: type) -> list[Any]:
    """What stands in the body of a user's class: methods, and values."""
    if not is_users(cls):
        return []
    kept = ("__dict__", "__weakref__", "__annotations__", "__slots__")
    return [value for name, value in cls.__dict__.items() if name not in kept]


def reached_by(function: types.FunctionType) -> list[Any]:
    """What the names in its code may mean, outside of it."""
    found = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    found += [cell.cell_contents for cell in function.__closure__ or () if is_full(cell)]
    codes = [function.__code__]
    for code in codes:
        codes += [one for one in code.co_consts if is_a(one, types.CodeType)]
    names = {name for code in codes for name in code.co_names}

    places = [vars(function.__globals__.get(name)) for name in names if is_module(function, name)]
    for name in names:
        if not is_module(function, name):
            found += [function.__globals__[name]] if name in function.__globals__ else []
        found += [place[name] for place in places if name in place]
    return found


def is_module(function: types.FunctionType, name: str) -> bool:
    return is_a(function.__globals__.get(name), types.ModuleType)


def ask_cache(
    it: Machine,
    function: Any,
    source: Source,
    given: list[Argument | None],
    names: list[str],
) -> Any:
    """What the real function gives. `names`: those of the last arguments."""
    arguments = [one for one in given if one is not None]
    first = len(arguments) - len(names)
    named = dict(zip(names, arguments[first:], strict=True))
    with torch._C.DisableTorchFunction():  # it makes real tensors, which the cache keeps
        result = frames.call(
            None,
            function,
            *(one.real for one in arguments[:first]),
            **{name: one.real for name, one in named.items()},
        )
    listed = [one.text for one in arguments[:first]]
    listed += [f"{name}={one.text}" for name, one in named.items()]
    return it.world.wrap(result, Source(f"({', '.join(listed)})", source))


register(
    CallRule("cached function", is_cached, call_cached),
    before="arithmetic on symbolic numbers",
)
