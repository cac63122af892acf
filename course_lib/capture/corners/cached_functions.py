"""A function with a cache: `functools.lru_cache`.

In:  a call of it, with constants or objects from outside.
Out: what the real function gives. The call itself is the place where that is found, so guards ask
     the cache again.

Eager runs the function once for the same arguments, and then its cache answers, whatever has
changed since. So the real function is asked, here and now. If its cache holds nothing yet
(`answers`), that runs its code: then the code may only compute. Its bytecode tells (`reading.py`);
where that is not enough, the code is interpreted first, and must have changed nothing.
The cache counts how often it is asked, and guards ask it, too. So where the program reads these
counters (`cache_info`), the function is called at a graph break, as in eager.
In PyTorch: `torch/_dynamo/variables/functions.py` (`WrapperUserFunctionVariable`): it follows the
function and leaves out the cache.
"""

from __future__ import annotations

import functools
import gc
import itertools
import re
import sys
import types
from collections.abc import Iterator
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
from course_lib.capture.sources import Source, Unsupported, attribute_of
from course_lib.capture.stand_ins.slots import is_full
from course_lib.capture.symbolic_numbers import concrete
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
    if not it.world.fullgraph and counters_are_read(it, function):
        raise Unsupported(
            f"calls {name_of(function)}, whose cache counts its calls, and the program reads that"
            f" ({COUNTERS})",
            f"leave out {COUNTERS}()",
        )
    args = [concrete(arg) for arg in args]
    kwargs = {name: concrete(arg) for name, arg in kwargs.items()}
    raise_for_unhashable(it, [*args, *kwargs.values()])

    call = CachedCall(it, function, args, kwargs)
    if call.can_ask and answers(function, call.given, kwargs):
        return call.ask()

    # The code of the cached function would run now.
    why = impurity(function, call.are_constants)
    if why:
        if not call.can_ask:
            raise refusal(function, why)
        see_it_compute(it, function, args, kwargs, why)
    elif not call.are_constants:
        return call.follow()

    if not call.can_ask:
        return call.follow()
    if call.may_read_what_changed():
        raise refusal(function, "is run now or not, which only its cache knows")
    return call.ask()


def looks_at_cache(it: Machine, function: Any) -> bool:
    """`f.cache_info` or `f.cache_clear`, of a function with a cache."""
    is_method = type(function) is types.BuiltinMethodType
    return is_method and is_cached(it, function.__self__) and function.__name__ in OF_CACHE


def look_at_cache(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The cache is another one in each call, so it is asked or cleared in each."""
    raise Unsupported(
        f"calls {function.__name__} of {name_of(function.__self__)}, which keeps its answers",
        "do it outside the compiled function",
    )


def raise_for_unhashable(it: Machine, args: list[Any]) -> None:
    """Raise TypeError as the real function does, before anything runs."""
    for arg in args:
        if type(arg) in (list, dict, set):
            it.native(hash, arg)


COUNTERS = "cache_info"
"""The method that tells how often a cache was asked, and how often it had an answer."""
OF_CACHE = (COUNTERS, "cache_clear")
"""The methods of a function with a cache that look at what it holds, or change that."""


def counters_are_read(it: Machine, function: Any) -> bool:
    """True if a piece of code that is at hand names `cache_info`."""
    codes = itertools.chain(codes_that_run(it), codes_beside(function.__wrapped__))
    return any(COUNTERS in names_of_code(code) for code in codes)


def codes_that_run(it: Machine) -> Iterator[types.CodeType]:
    """The code of the functions that are being captured, and of their callers."""
    for interpreter in it.world.running:
        yield interpreter.code
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        yield frame.f_code
        frame = frame.f_back


def codes_beside(function: Any) -> Iterator[types.CodeType]:
    """The code of the functions and methods in the module of a function."""
    for value in list(getattr(function, "__globals__", {}).values()):
        if is_a(value, type):
            members = vars(value).values()
            yield from (member.__code__ for member in members if is_a(member, types.FunctionType))
        elif is_a(value, types.FunctionType):
            yield value.__code__


class CachedCall:
    """A call of a function with a cache. `given`: its arguments as the real function gets them."""

    def __init__(self, it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        self.it = it
        self.function = function
        self.args, self.kwargs = args, kwargs
        self.source = it.world.source_of(function)

        values = [*args, *kwargs.values()]
        self.given = [argument(it, value) for value in values]
        self.are_constants = all(map(is_constant, values))

    @property
    def can_ask(self) -> bool:
        """True if a guard can ask the real function: it and its arguments come from outside."""
        return self.source is not None and None not in self.given

    def ask(self) -> Any:
        """What the real function gives."""
        assert self.source is not None
        return ask_cache(self.it, self.function, self.source, self.given, list(self.kwargs))

    def follow(self) -> Any:
        """Interpret the function that the cache stands before."""
        inner = inner_function(self.it, self.function, self.source)
        return self.it.call_function(inner, self.args, self.kwargs)

    def may_read_what_changed(self) -> bool:
        """True if the program has changed something that the function may read.

        The real objects are not changed yet, so the real function would see what was there
        before."""
        if not has_changed(self.it.world):
            return False
        if not reads_constants_only(self.function):
            return True
        return lead_to_what_changed(self.it, self.given)


def answers(function: Any, arguments: list[Argument | None], kwargs: dict[str, Any]) -> bool:
    """True if its cache has an answer for these arguments: no code runs when it is asked."""
    if kwargs or function.cache_parameters()["typed"]:
        return False
    reals = tuple(argument.real for argument in arguments if argument is not None)
    if not all(map(has_plain_hash, reals)):
        return False
    return key_of(reals) in cache_of(function)


def has_plain_hash(value: Any) -> bool:
    """True if a dict finds the value without a line of the user's code."""
    if type(value) is tuple:
        return all(map(has_plain_hash, value))
    return is_constant(value) or type(value).__hash__ is object.__hash__


def key_of(arguments: tuple[Any, ...]) -> Any:
    """The key under which `functools` keeps an answer: a single text or number as it is."""
    if len(arguments) == 1 and type(arguments[0]) in (str, int):
        return arguments[0]
    return arguments


def cache_of(function: Any) -> dict[Any, Any]:
    """The dict in which a function of `functools.lru_cache` keeps its answers.

    Python shows it to the garbage collector only."""
    parts = gc.get_referents(function)
    for before, part in itertools.pairwise(parts):
        if part is function.__wrapped__ and type(before) is dict:
            return before
    return {}


def refusal(function: Any, why: str) -> Unsupported:
    return Unsupported(f"calls {name_of(function)}, whose code {why}", WHAT_TO_DO)


def inner_function(it: Machine, function: Any, source: Source | None) -> Any:
    """The function that the cache stands before."""
    return it.world.wrap(function.__wrapped__, attribute_of(source, "__wrapped__"))


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
    outside = Outside()
    read(function.__wrapped__, Role(kernel=True), outside)
    outside.effects += [*outside.random, *outside.reads]
    if not are_constants and (outside.effect or outside.constants):
        outside.effects.append("has a cache, which knows its arguments by more than their values")
    return outside.effect


def see_it_compute(
    it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any], why: str
) -> None:
    """Interpret the function.

    Raises Unsupported if it changes anything, or has operations for the graph."""
    world = it.world
    state_before = changes(world), len(world.builder.graph.nodes), len(world.warned)
    it.call_function(inner_function(it, function, world.source_of(function)), args, kwargs)
    state_after = changes(world), len(world.builder.graph.nodes), len(world.warned)
    if state_before != state_after:
        raise refusal(function, why)


def reads_constants_only(function: Any) -> bool:
    """True if its code can reach nothing outside but constants, functions and classes.

    (Names decide: of globals, and what they hold.)

    Then it does not matter that the program has changed something, which is not yet done to the
    real objects.
    """
    waiting, ids_seen = [function.__wrapped__], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in ids_seen or cannot_change(value):
            continue
        ids_seen.add(id(value))
        if is_a(value, types.FunctionType):
            waiting += reached_by(value)
        elif is_a(value, type):
            for base in value.__mro__:
                waiting += own_members(base)
        elif is_a(value, (staticmethod, classmethod, functools._lru_cache_wrapper)):
            waiting.append(value.__wrapped__)
        else:
            return False
    return True


MOST_PARTS = 1000
"""So many objects are looked at under an argument."""


def lead_to_what_changed(it: Machine, arguments: list[Argument | None]) -> bool:
    """True if one of the arguments holds an object that the program has changed.

    (The real one is not changed yet.)"""
    holders = {part.holder for part in changes(it.world)}
    changed = {id(known.real) for known in it.world.known.values() if id(known) in holders}
    changed |= holders  # of what is stored elsewhere the key is the object's own

    waiting, ids_seen = (
        [argument.real for argument in arguments if argument is not None],
        set[int](),
    )
    while waiting:
        part = waiting.pop()
        if id(part) in ids_seen or is_a(part, (type, types.ModuleType, types.FunctionType)):
            continue
        ids_seen.add(id(part))
        if id(part) in changed or len(ids_seen) > MOST_PARTS:
            return True
        waiting += gc.get_referents(part)
    return False


def cannot_change(value: Any) -> bool:
    """True for a constant, a builtin, and what belongs to Python's library or torch."""
    if type(value) in CONSTANT_TYPES or is_a(value, (types.BuiltinFunctionType, re.Pattern)):
        return True
    if is_a(value, tuple):
        return all(map(cannot_change, value))
    return is_a(value, (type, types.FunctionType)) and not is_users(value)


def own_members(cls: type) -> list[Any]:
    """What stands in the body of a user's class: methods, and values."""
    if not is_users(cls):
        return []
    ignored_names = ("__dict__", "__weakref__", "__annotations__", "__slots__")
    return [value for name, value in cls.__dict__.items() if name not in ignored_names]


def reached_by(function: types.FunctionType) -> list[Any]:
    """What the names in its code may mean, outside of it."""
    objects = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    objects += [cell.cell_contents for cell in function.__closure__ or () if is_full(cell)]

    names = names_of_code(function.__code__)
    modules = {name for name in names if is_module(function, name)}
    objects += [function.__globals__[n] for n in names - modules if n in function.__globals__]

    # A name behind a dot may be one of any module that is named.
    for module in modules:
        place = vars(function.__globals__[module])
        objects += [place[name] for name in names if name in place]
    return objects


@functools.lru_cache(4096)
def names_of_code(code: types.CodeType) -> frozenset[str]:
    """The names in a function's code and in the code of the functions inside of it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if is_a(constant, types.CodeType):
            names |= names_of_code(constant)
    return frozenset(names)


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
    arguments = [argument for argument in given if argument is not None]
    first = len(arguments) - len(names)
    argument_by_name = dict(zip(names, arguments[first:], strict=True))

    # It makes real tensors, which the cache keeps.
    with torch._C.DisableTorchFunction():
        result = frames.call(
            None,
            function,
            *(argument.real for argument in arguments[:first]),
            **{name: argument.real for name, argument in argument_by_name.items()},
        )

    # How a guard asks again
    listed = [argument.text for argument in arguments[:first]]
    listed += [f"{name}={argument.text}" for name, argument in argument_by_name.items()]
    return it.world.wrap(result, Source(f"({', '.join(listed)})", source))


register(
    CallRule("cached function", is_cached, call_cached),
    before="arithmetic on symbolic numbers",
)
register(
    CallRule("cache of a function", looks_at_cache, look_at_cache),
    before="arithmetic on symbolic numbers",
)
