"""The events of a `with cl.record()` block, by kind.

What is compiled is kept whole. Calls are many and alike: of each thing that calls do again and
again (a kernel of a program, the guards of an entry, a call that the recompile limit refuses) the
first `WHOLE` are kept, and all are counted (`Count`). So a training loop of a million steps takes
no more memory than one of a hundred, and no longer to read.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Hashable
from typing import Any, TypeVar

from course_lib.events import (
    Event,
    FellBack,
    FrameSeen,
    GraphBroke,
    GraphCaptured,
    GuardFailed,
    Recompiled,
    Scheduled,
    StageTimed,
)
from course_lib.frames import call_revealed, number
from course_lib.viz.kit.user_lines import MovedToCall, as_written, calling, decorated

WHOLE = 100
"""So many events with one `repeat_key` are kept. Those that follow are only counted."""
FINENESS = 32
"""Durations are counted in bins, so many between a duration and its double. A bin is then 2 % wide,
and so exact is a median."""

E = TypeVar("E", bound=Event)


class Count:
    """How often something happened, and the seconds that it took each time (0 if nobody measured
    them).

    No dataclass: `__init__` of one is a function of no file, which the frame hook would take for
    the program's own."""

    def __init__(self, first: Event) -> None:
        self.first = first
        self.times = 0
        # Seconds: of all times together, of the shortest and of the longest
        self.total = 0.0
        self.least = math.inf
        self.most = 0.0
        # Number of a bin → how many durations are in it. Bin `n` is about 2 ** (n / FINENESS) s.
        self.bins: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """It happened once more. `seconds`: how long it took; 0 if nobody measured it."""
        self.times += 1
        self.total += seconds
        self.least = min(self.least, seconds)
        self.most = max(self.most, seconds)

        # No logarithm of 0: what took less than a nanosecond counts as one.
        bin_number = round(FINENESS * math.log2(max(seconds, 1e-9)))
        self.bins[bin_number] = self.bins.get(bin_number, 0) + 1

    @property
    def median(self) -> float:
        """Half of the durations are not longer than this. (To 2 %: it is the middle of a bin, but
        not beyond the shortest and the longest that were measured.)"""
        counted = 0
        for bin_number in sorted(self.bins):
            counted += self.bins[bin_number]
            if 2 * counted >= self.times:
                middle = 2.0 ** (bin_number / FINENESS)
                return min(max(middle, self.least), self.most)
        return 0.0

    @property
    def left_out(self) -> int:
        """How many events were counted but not kept."""
        return max(0, self.times - WHOLE)


class Recording:
    """The events of a `with cl.record()` block, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        # Each event's time, by `time.perf_counter` (seconds)
        self.times: list[float] = []
        # `repeat_key` → how often such an event came
        self.counts: dict[Hashable, Count] = {}

        # For each `FrameSeen`, by its `id` (`events` keeps it alive): the code objects that were
        # running, innermost first
        self.callers: dict[int, tuple[Any, ...]] = {}
        # By the same `id`: the line of the program that called the frame, if it is known
        self.called_at: dict[int, Any] = {}
        # By the same `id`: the name of the function that `cl.compile` was given, where the code is
        # that of a decorator and has another name
        self.given: dict[int, str] = {}

        self.moved_to_call = MovedToCall()
        # Reentrant: garbage may be collected during `note`, and a finalizer may emit an event.
        self.lock = threading.RLock()

    def note(self, event: Event) -> None:
        """A listener: remember an event, or count it if many like it came before."""
        with self.lock:
            event = self.moved_to_call(event)
            key = repeat_key(event)
            if key is not None:
                count = self.counts.setdefault(key, Count(event))
                count.add(getattr(event, "seconds", 0.0))
                if count.left_out:
                    return

            self.events.append(event)
            self.times.append(time.perf_counter())
            if isinstance(event, FrameSeen):
                self.callers[id(event)] = call_revealed(callers, event.code)
                given_name, self.called_at[id(event)] = calling()
                name = ""
                if given_name:
                    name = decorated(event.name, given_name)
                if name:
                    self.given[id(event)] = name
            elif isinstance(event, FellBack):
                self.forget_refused(event)

    def forget_refused(self, last: FellBack) -> None:
        """Count a call that was refused at the recompile limit. Drop its events if `WHOLE` such
        calls are kept already.

        The events of such a call are the last ones: `FrameSeen`, a `GuardFailed` for each guard
        that failed, and `last`. They stay if a guard is among them that had never failed before.
        """
        # Walk back from the event before `last`, over the guards that failed, to the frame.
        start = len(self.events) - 2
        while start >= 0 and isinstance(self.events[start], GuardFailed):
            start -= 1
        frame = self.events[start] if start >= 0 else None
        if not isinstance(frame, FrameSeen) or frame.name != last.what or frame.code is None:
            return

        # Of these only the number of times counts, so the seconds are 0.
        code = number(frame.code)
        refused = self.counts.setdefault(("refused", code, plain(last.why)), Count(last))
        refused.add(0.0)

        has_new_failure = False
        for failure in self.events[start + 1 : -1]:
            assert isinstance(failure, GuardFailed)
            failed = self.counts.setdefault(("failed", code, failure.guard), Count(failure))
            if failed.times == 0:
                has_new_failure = True
            failed.add(0.0)

        if refused.left_out and not has_new_failure:
            del self.events[start:], self.times[start:]
            for about_frame in (self.callers, self.called_at, self.given):
                about_frame.pop(id(frame), None)

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def captures(self) -> list[Any]:
        """One `CaptureResult` for each graph captured."""
        return [event.result for event in self.of(GraphCaptured)]

    @property
    def graphs(self) -> list[Any]:
        """The FX graphs captured."""
        return [result.graph for result in self.captures]

    @property
    def guards(self) -> list[Any]:
        """Every guard made."""
        return [guard for result in self.captures for guard in result.guards]

    @property
    def graph_breaks(self) -> list[Any]:
        """The `Unsupported`s that stopped a capture, each at the program's own line."""
        return [as_written(event.problem) for event in self.of(GraphBroke)]

    @property
    def recompiles(self) -> list[Recompiled]:
        """Compiles of code that was compiled before."""
        return self.of(Recompiled)

    @property
    def kernels(self) -> list[Any]:
        """What the programs run, in order: `FusedKernel`s and `ExternKernel`s."""
        return [kernel for event in self.of(Scheduled) for kernel in event.schedule.kernels]

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage, summed."""
        total: dict[str, float] = {}
        for event in self.of(StageTimed):
            total[event.stage] = total.get(event.stage, 0.0) + event.seconds
        return total


def repeat_key(event: Event) -> Hashable | None:
    """What an event has in common with those that repeat it in other calls. None for an event that
    calls do not repeat: it belongs to a compile.

    The events of `pictures/runtime/call_events.py` have a property of this name."""
    if isinstance(event, FellBack) and "recompile limit" not in event.why:
        return (FellBack, event.what, event.why)
    key: Hashable | None = getattr(event, "repeat_key", None)
    return key


def plain(why: str) -> str:
    """Why a call ran in eager, without what differs from call to call, which stands behind a
    semicolon."""
    return why.partition(";")[0]


def callers(code: Any) -> tuple[Any, ...]:
    """The code objects that were running when the frame of `code` was seen, innermost first; the
    compiler's own left out."""
    codes: list[Any] = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        if (
            not frame.f_globals.get("__name__", "").startswith("course_lib.")
            and frame.f_code is not code
        ):
            codes.append(frame.f_code)
        frame = frame.f_back
    return tuple(codes)
