"""The events of a `with cl.record()` block, by kind."""

from __future__ import annotations

import time
from typing import Any, TypeVar

from course_lib.events import Event, GraphBroke, GraphCaptured, Recompiled, Scheduled, StageTimed

E = TypeVar("E", bound=Event)


class Recording:
    """The events of a `with cl.record()` block, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.times: list[float] = []
        """When each was told, in seconds (of `time.perf_counter`)."""

    def note(self, event: Event) -> None:
        """A listener: remember an event."""
        self.events.append(event)
        self.times.append(time.perf_counter())

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
        """The `Unsupported`s that stopped a capture."""
        return [event.problem for event in self.of(GraphBroke)]

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
