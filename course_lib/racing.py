"""Does a program that breaks its graph gain from being compiled? If not, it is left to eager.

In:  the two ways to call such a program, compiled and eager, and how many operations its compiled
     parts hold.
Out: the way that its calls take from then on.

A part between two breaks costs its call: the hook, the guards, the head, the resume function, a
node of autograd. Where it holds an operation or two, eager's own calls of these cost less.

    waiting   `WAIT` calls in a row that compiled nothing new
    gate      parts of `FEW` operations or more on average gain enough: the calls are not timed
    race      `ROUNDS` rounds of `LENGTH` calls, half of them in eager, by processor time
    leaving   compiled calls took `LOSES` times eager's in every round: the program is eager's from
              now on, and that is said once. One round that is not lost ends the trial

Only what broke its graph is tried: a program that is one graph never is, and its calls pay nothing.
A trial replaces the function that a call goes through, and puts the old one back.
While somebody listens (a recording, a log) calls are not counted.
In PyTorch: no counterpart.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from course_lib import events
from course_lib.frames import wrapper

WAIT = 256
FEW = 20
ROUNDS = 2
LENGTH = 32  # a power of two: then half of the calls are eager's
LOSES = 1.15
"""The numbers of the table above."""

clock = time.thread_time
"""Processor time of this thread in seconds: other programs on the machine do not count."""

Way = Callable[..., Any]
"""How a program is called: with its arguments."""

HINT = (
    "Join its parts (cl.explain says where the graph breaks), or keep it compiled: "
    "set cl.config.leave_what_loses = False and call cl.reset()"
)


@dataclass(eq=False)
class Ways:
    """The ways to call what was given to `compile`. It belongs to the function that `compile`
    returns."""

    # The function or module itself, which the compiler does not keep alive
    target: Any
    compiled: Way
    eager: Way
    # Sets the way that all calls take from now on
    choose: Callable[[Way], None]


@dataclass(eq=False)
class Trial:
    """The calls of one program, until it is decided how they go on."""

    # Weak: a program that nobody holds any more is freed at once, on trial or not
    ways: weakref.ref[Ways]
    # How many operations each compiled part holds
    parts: Callable[[], Sequence[int]]
    # Is told that the program is left to eager, and why, and gives the way to call it
    leave: Callable[[Ways, str], Way]

    calls: int = 0
    # Compiled parts when they were counted last: a new one starts the trial anew
    known_parts: int = 0
    is_racing: bool = False
    rounds: int = 0
    # Is a call under way? Calls inside it, and on other threads, are not counted
    is_calling: bool = False
    times: dict[Way, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ways = self.ways()
        assert ways is not None
        self.compiled, self.eager = ways.compiled, ways.eager

    @wrapper
    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the program the one way or the other."""
        if self.is_calling or events.listening():
            return self.compiled(*args, **kwargs)

        way = self.turn()
        self.is_calling = True
        start = clock()
        try:
            result = way(*args, **kwargs)
        finally:
            self.is_calling = False
        self.note(way, clock() - start)
        return result

    def turn(self) -> Way:
        """The way of the next call.

        In a race their order has no period, since a program may call the same function with this
        and that in turn. (It is the sequence of Thue and Morse: call n goes in eager if n has an
        odd number of ones in binary.)"""
        if self.is_racing and self.calls.bit_count() % 2:
            return self.eager
        return self.compiled

    def note(self, way: Way, seconds: float) -> None:
        """A call is over: go on with the trial."""
        if len(self.parts()) != self.known_parts:
            self.begin_anew()
            return

        self.calls += 1
        if self.is_racing:
            self.times[way].append(seconds)
            if self.calls == LENGTH:
                self.judge()
        elif self.calls >= WAIT:
            if not holds_little(self.parts()):
                self.end(self.compiled)
                return
            self.is_racing = True
            self.begin_round()

    def begin_anew(self) -> None:
        """Something was compiled: wait until that is over."""
        self.known_parts = len(self.parts())
        self.is_racing = False
        self.calls = self.rounds = 0

    def begin_round(self) -> None:
        self.calls = 0
        self.times = {self.compiled: [], self.eager: []}

    def judge(self) -> None:
        """A round is over: is it lost?"""
        ours, eagers = (median(self.times[way]) for way in (self.compiled, self.eager))
        if ours <= LOSES * eagers:
            self.end(self.compiled)
            return

        self.rounds += 1
        if self.rounds < ROUNDS:
            self.begin_round()
            return

        if (ways := self.ways()) is not None:
            self.end(self.leave(ways, self.why(ours, eagers)))

    def why(self, ours: float, eagers: float) -> str:
        """Why the program is left to eager. ours, eagers: seconds of a call."""
        parts = self.parts()
        average = sum(parts) / len(parts)
        return (
            f"its {len(parts)} compiled parts hold {average:.1f} operations each on "
            f"average; a call takes {ours * 1e6:,.0f} µs, in eager {eagers * 1e6:,.0f} "
            f"(medians of {LENGTH // 2} calls)"
        )

    def end(self, way: Way) -> None:
        """The trial is over: calls go `way` from now on."""
        if (ways := self.ways()) is not None:
            ways.choose(way)


def holds_little(parts: Sequence[int]) -> bool:
    """Are there so few operations in the parts that their calls may cost more?"""
    return sum(parts) < FEW * len(parts)


def left_to_eager(eager: Way, name: str, why: str) -> Way:
    """The way of a program that is left to eager: who listens is told at each call."""

    @wrapper
    def run(*args: Any, **kwargs: Any) -> Any:
        if events.listening():
            events.emit(events.FellBack(name, f"{name} is left to eager: {why}"))
        return eager(*args, **kwargs)

    return run
