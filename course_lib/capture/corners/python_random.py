"""Python's own random numbers: `random.random()`, `random.Random(3).choice(items)`.

In:  a draw from a source that comes from outside (`random` itself has one), or that the program
     makes.
Out: from outside: a symbolic number, which the head looks up in what the source is going to give.
     Then, as an effect, it draws for real: so the source goes on as in eager. Of one that the
     program makes from a seed the numbers are known now.

What is followed is Python's code around the draws (`shuffle`, `choice`). A draw itself is one entry
of a `Script`.
In PyTorch: `torch/_dynamo/variables/user_defined.py` (`RandomVariable`), `output_graph.py`
(`random_calls`).
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.rebuild import Rebuilder
from course_lib.capture.rebuild_kinds import BY_TYPE
from course_lib.capture.rules import GO_ON
from course_lib.capture.shapes import Texts
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.values import owner_of

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

Call = tuple[str, tuple[Any, ...]]
"""A method of a source, and its arguments."""
FLOATS = set(
    """random uniform triangular gauss normalvariate lognormvariate expovariate betavariate gammavariate
    vonmisesvariate paretovariate weibullvariate""".split()
)
"""Methods that draw a float."""
INTS = {"randint", "randrange", "getrandbits", "_randbelow"}
"""Methods that draw an int."""
DRAWS = FLOATS | INTS | {"seed"}
"""Methods that are one draw each. The others (`choice`, `shuffle`, `sample`) are Python's code,
which calls these."""
INTERNAL = {"_randbelow_with_getrandbits": "_randbelow"}
"""A function's own name → the attribute of a source in which it stands."""
LARGEST = 2**62
"""A symbolic integer must be smaller: `c10::SymInt` has 62 bits for its number."""
THIS_MODULE = f"modules[{__name__!r}]."
"""How heads and guards call the functions of this file."""


@dataclass
class Script:
    """What the program draws from one source, in its order: an effect that the head makes real."""

    source: Source
    owner: random.Random
    calls: list[Call] = field(default_factory=list)

    def state(self) -> int:
        """It differs between two moments if something was drawn between them."""
        return len(self.calls)

    def undo(self, head: Rebuilder) -> tuple[str, str]:
        """Nothing: it draws for real when nothing can fail any more."""
        return "", ""

    def write(self, head: Rebuilder) -> None:
        """Draw for real, so that the source goes on as in eager."""
        known = head.world.of(self.owner)
        assert known is not None
        head.body.append(f"{THIS_MODULE}draw({head.fetch(known)}, {tuple(self.calls)!r})")


def draw(source: random.Random, calls: tuple[Call, ...]) -> Any:
    """What the last of these calls gives."""
    result = None
    for name, args in calls:
        result = getattr(source, name)(*args)
    return result


class Spare(threading.local):
    """A source for each thread, to look ahead with."""

    def __init__(self) -> None:
        self.source = random.Random(0)


SPARE = Spare()


def drawn_next(source: random.Random, calls: tuple[Call, ...]) -> Any:
    """What the last of these calls will give: they are made on a copy of the source.

    Nothing is taken from the source itself, for guards ask at each call."""
    SPARE.source.setstate(source.getstate())
    return draw(SPARE.source, calls)


# ---- calls ---------------------------------------------------------------------------------------


def is_of_random(it: Machine, function: Any) -> bool:
    """A method of a `random.Random`? (A subclass may have methods of its own.)"""
    return type(owner_of(function)) is random.Random


def call_of_random(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A draw, or Python's code around draws, which is followed."""
    name = INTERNAL.get(function.__name__, function.__name__)
    plain = all(type(arg) in (int, float) for arg in args) and not kwargs
    if name not in DRAWS or not plain:
        return GO_ON

    owner = function.__self__
    # If the program has made the source, from a seed, it draws now
    known = it.world.of(owner)
    if known is None:
        return getattr(owner, name)(*args)
    if name == "seed" and not args:
        raise Unsupported("seeds a source of random numbers by the time")
    return draw_from_outside(it, known.source, owner, (name, tuple(args)))


def draw_from_outside(it: Machine, source: Source, owner: random.Random, call: Call) -> Any:
    """The number that this call gives, as a symbolic one. The call is added to the script."""
    script = script_of(it, source, owner)
    calls = (*script.calls, call)
    value = drawn_next(owner, calls)
    script.calls.append(call)
    if value is None:
        # `seed(n)` gives no number.
        return None
    if type(value) is int and abs(value) >= LARGEST:
        raise Unsupported("draws an integer of more than 62 bits")

    # Where head and guards find the number: `drawn_next(source, calls)`
    name, args = call
    place = Source(f", {calls!r})", source, f"{THIS_MODULE}drawn_next(", pretty=f".{name}()")
    shown = f"random.{name}({', '.join(map(repr, args))})"
    return it.world.drawn_number(value, place, Texts(place.expr, shown))


def script_of(it: Machine, source: Source, owner: random.Random) -> Script:
    """What the program has drawn from this source so far."""
    for other in it.world.others:
        if type(other) is Script and other.owner is owner:
            return other
    new_script = Script(source, owner)
    it.world.others.append(new_script)
    return new_script


# ---- a source that the program makes -------------------------------------------------------------


def make_source(it: Machine, *seed: Any) -> random.Random:
    """`random.Random(3)`"""
    if len(seed) != 1 or type(seed[0]) not in (int, float, str):
        raise Unsupported("makes a source of random numbers whose seed is no constant")
    return random.Random(seed[0])


def source_in(state: Any) -> random.Random:
    """A source that goes on from this state."""
    generator = random.Random(0)
    generator.setstate(state)
    return generator


def write_source(head: Rebuilder, source: random.Random) -> str:
    """A source that the program still has when the graph has run: a new one in the same state."""
    if head.world.of(source) is not None:
        raise Unsupported("a source of random numbers from outside is alive here")
    return head.assign(f"{THIS_MODULE}source_in({head.name_for(source.getstate(), 'state')})")


FUNCTIONS[random.Random] = make_source
BY_TYPE[random.Random] = write_source
register(
    CallRule("method of a source of random numbers", is_of_random, call_of_random),
    before="arithmetic on symbolic numbers",
)
