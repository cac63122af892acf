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
"""So many events of a kind are kept one by one; of more, the numbers."""
FINENESS = 32
"""A median is one of so many steps between a value and its double: 2 % of it."""

E = TypeVar("E", bound=Event)


class Count:
    """How often something happened, and the seconds that it took each time (0 if nobody measured
    them).

    No dataclass: `__init__` of one is a function of no file, which the frame hook would take for
    the program's own."""

    def __init__(self, first: Event) -> None:
        self.first = first
        self.times, self.total, self.least, self.most = 0, 0.0, math.inf, 0.0
        self.steps: dict[int, int] = {}
        """Logarithm of the seconds, in steps of 1/`FINENESS` → how often."""

    def add(self, seconds: float) -> None:
        self.times += 1
        self.total += seconds
        self.least, self.most = min(self.least, seconds), max(self.most, seconds)
        step = round(FINENESS * math.log2(max(seconds, 1e-9)))
        self.steps[step] = self.steps.get(step, 0) + 1

    @property
    def median(self) -> float:
        """To 2 %, and within what was measured."""
        below = 0
        for step in sorted(self.steps):
            below += self.steps[step]
            if 2 * below >= self.times:
                return min(max(2.0 ** (step / FINENESS), self.least), self.most)
        return 0.0

    @property
    def left_out(self) -> int:
        """So many are counted only."""
        return max(0, self.times - WHOLE)


class Recording:
    """The events of a `with cl.record()` block, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.times: list[float] = []
        """When each was told, in seconds (of `time.perf_counter`)."""
        self.counts: dict[Hashable, Count] = {}
        """What happened again and again, by `again`."""
        self.callers: dict[int, tuple[Any, ...]] = {}
        """`id` of a `FrameSeen` → the code objects that were running, innermost first."""
        self.called_at: dict[int, Any] = {}
        """The same → the line of the program that called it, if that is known."""
        self.given: dict[int, str] = {}
        """The same → the name of what `cl.compile` was given, where the code's own name is a
        decorator's."""
        self.moved_to_call = MovedToCall()
        self.lock = threading.RLock()  # what collects garbage may tell something meanwhile

    def note(self, event: Event) -> None:
        """A listener: remember an event, or count it if many like it came before."""
        with self.lock:
            event = self.moved_to_call(event)
            if (key := again(event)) is not None:
                count = self.counts.setdefault(key, Count(event))
                count.add(getattr(event, "seconds", 0.0))
                if count.left_out:
                    return
            self.events.append(event)
            self.times.append(time.perf_counter())
            if isinstance(event, FrameSeen):
                self.callers[id(event)] = call_revealed(callers, event.code)
                given_name, self.called_at[id(event)] = calling()
                name = decorated(event.name, given_name) if given_name else ""
                if name:
                    self.given[id(event)] = name
            elif isinstance(event, FellBack):
                self.forget_refused(event)

    def forget_refused(self, last: FellBack) -> None:
        """Drop the events of a call at the recompile limit, if many like it came before: then they
        are counted only.

        Such a call is the frame, the guards that failed, and `last`. The first failure of each
        guard stays.
        """
        start = len(self.events) - 2
        while start >= 0 and isinstance(self.events[start], GuardFailed):
            start -= 1
        frame = self.events[start] if start >= 0 else None
        if not isinstance(frame, FrameSeen) or frame.name != last.what or frame.code is None:
            return

        code = number(frame.code)
        refused = self.counts.setdefault(("refused", code, plain(last.why)), Count(last))
        refused.add(0.0)
        is_first = False
        for failure in self.events[start + 1 : -1]:
            assert isinstance(failure, GuardFailed)
            times_failed = self.counts.setdefault(("failed", code, failure.guard), Count(failure))
            is_first = is_first or not times_failed.times
            times_failed.add(0.0)

        if refused.left_out and not is_first:
            del self.events[start:], self.times[start:]
            for known in (self.callers, self.called_at, self.given):
                known.pop(id(frame), None)

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


def again(event: Event) -> Hashable | None:
    """What an event of a call has in common with those of other calls; None for what is told of a
    compile. The events of `pictures/runtime/call_events.py` say it themselves."""
    if isinstance(event, FellBack) and "recompile limit" not in event.why:
        return (FellBack, event.what, event.why)
    key: Hashable | None = getattr(event, "again", None)
    return key


def plain(why: str) -> str:
    """Why a call ran in eager, without what differs from call to call."""
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
