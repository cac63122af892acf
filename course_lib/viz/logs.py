"""The compiler's events as lines of text on stderr.

    COURSE_LOGS="graph_breaks,recompiles" python train.py        or        cl.set_logs("graph_breaks", "guards")

In PyTorch: `torch/_logging` (`TORCH_LOGS`, `torch._logging.set_logs`).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from course_lib import events

LOGS: dict[str, dict[type[events.Event], Callable[[Any], str]]] = {
    "graph_breaks": {events.GraphBroke: lambda e: str(e.problem)},
    "guards": {events.GraphCaptured: lambda e: "\n".join([str(e.result), *map(str, e.result.guards)])},
    "recompiles": {
        events.GuardFailed: lambda e: f"{e.name}: {e.got}",
        events.Recompiled: lambda e: f"{e.name} is compiled again: {e.entries} entries",
        events.FellBack: lambda e: f"{e.what}: {e.why}",
    },
    "dynamic": {
        events.GraphCaptured: lambda e: "\n".join(str(g) for g in e.result.guards if g.kind == "sizes")
    },
    "graph_code": {events.GraphCaptured: lambda e: e.result.graph.code.strip() + "\n\n" + e.result.head.source},
    "aot_graphs": {events.AtenTraced: lambda e: e.graph.code.strip()},
    "schedule": {events.Scheduled: lambda e: "\n".join(map(str, e.schedule.kernels))},
    "fusion": {events.Scheduled: lambda e: "\n".join(map(str, e.schedule.decisions))},
    "output_code": {events.KernelsBuilt: lambda e: e.compiled.source},
    "perf_hints": {events.FellBack: lambda e: f"{e.what}: {e.why}", events.GraphBroke: lambda e: e.problem.hint},
}  # fmt: skip
"""Name → what it says about which event."""
_listening = contextlib.ExitStack()


def set_logs(*names: str) -> None:
    """Say what happens, from now on: any of `LOGS`. Without a name, nothing. Raises ValueError for an unknown one."""
    for name in names:
        if name not in LOGS:
            raise ValueError(f"there is no log '{name}'; there are {', '.join(LOGS)}")
    _listening.close()

    def say(event: events.Event) -> None:
        for name in names:
            for kind, text in LOGS[name].items():
                if isinstance(event, kind) and (said := text(event)):
                    print(f"[{name}] " + said.replace("\n", "\n    "), file=sys.stderr)

    if names:
        _listening.enter_context(events.listener(say))


if wanted := os.environ.get("COURSE_LOGS"):
    set_logs(*(name.strip() for name in wanted.split(",")))
