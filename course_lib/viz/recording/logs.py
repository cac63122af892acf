"""The compiler's events as lines of text on stderr.

    COURSE_LOGS="graph_breaks,recompiles" python train.py        or        cl.set_logs("graph_breaks", "guards")

Each line begins with the name of its log; what belongs to it is indented. `COURSE_LOGS=help` says what there is.

In PyTorch: `torch/_logging` (`TORCH_LOGS`, `torch._logging.set_logs`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib import events
from course_lib.scheduling import No
from course_lib.viz.kit.user_lines import AtTheCall, as_written

Say = Callable[[Any], str]


@dataclass(frozen=True)
class Log:
    """A topic: what it is about, and what it says about which event ("" for nothing). `names_itself`: does that say of which
    function?"""

    about: str
    says: dict[type[events.Event], Say]
    names_itself: bool = False


def aot_graph(event: events.AtenTraced) -> str:
    """An ATen graph. Its inputs say what it is: backward's are what forward kept, and tangents."""
    inputs = event.graph.graph.find_nodes(op="placeholder")
    kind = "backward" if any(node.name.startswith("tangent_") for node in inputs) else "forward"
    return f"{kind} graph\n{event.graph.code.strip()}"


def kept_apart(event: events.Scheduled) -> str:
    """The fusion that would have saved most, had it been possible."""
    lost = [
        (d.answer.lost, str(d))
        for d in event.schedule.decisions
        if isinstance(d.answer, No) and d.answer.lost
    ]
    return f"most bytes go through memory here: {max(lost)[1]}" if lost else ""


def hint(event: events.GraphBroke) -> str:
    """What can be done about a graph break, and where; "" where nothing is known."""
    problem = as_written(event.problem)
    where = f" at {problem.location}" if problem.location else ""
    return f"{problem.reason}{where}: {problem.hint}" if problem.hint else ""


LOGS: dict[str, Log] = {
    "graph_breaks": Log(
        "where a graph ended, why, and what can be done about it",
        {events.GraphBroke: lambda e: str(as_written(e.problem))},
        True,
    ),
    "guards": Log(
        "what each captured graph assumes, and the line that made it necessary",
        {
            events.GraphCaptured: lambda e: "\n".join(
                [f"{e.result.name}, {e.result.where}", *map(str, e.result.guards)]
            )
        },
        True,
    ),
    "recompiles": Log(
        "which guard failed, and what was compiled again because of it",
        {
            events.GuardFailed: lambda e: f"{e.name}: {e.got}",
            events.Recompiled: lambda e: f"{e.name} is compiled again: {e.entries} entries",
            events.FellBack: lambda e: f"{e.what}: {e.why}",
        },
        True,
    ),
    "dynamic": Log(
        "what is assumed about symbolic sizes",
        {
            events.GraphCaptured: lambda e: "\n".join(
                str(g) for g in e.result.guards if g.kind == "sizes"
            )
        },
    ),
    "graph_code": Log(
        "each captured graph as Python, and the head that runs in the frame's place",
        {
            events.GraphCaptured: lambda e: (
                e.result.graph.code.strip() + "\n\n" + e.result.head.source
            )
        },
    ),
    "aot_graphs": Log(
        "the joint graph, what is kept between its halves, and each graph in ATen operators",
        {
            events.JointTraced: lambda e: f"joint graph\n{e.graph.code.strip()}",
            events.Partitioned: lambda e: str(e.partition),
            events.AtenTraced: aot_graph,
        },
    ),
    "schedule": Log(
        "the kernels in order, with the bytes that each moves",
        {events.Scheduled: lambda e: str(e.schedule)},
    ),
    "fusion": Log(
        "every fusion decision with its reason",
        {events.Scheduled: lambda e: "\n".join(map(str, e.schedule.decisions))},
    ),
    "output_code": Log(
        "all that was generated: kernels and wrapper",
        {events.KernelsBuilt: lambda e: e.compiled.source},
    ),
    "perf_hints": Log(
        "what costs time and can be changed",
        {
            events.FellBack: lambda e: f"{e.what}: {e.why}",
            events.GraphBroke: hint,
            events.Scheduled: kept_apart,
        },
    ),
}
"""Name → topic."""
_listening = contextlib.ExitStack()


def set_logs(*names: str) -> None:
    """Say what happens, from now on: any of `LOGS`. Without a name, nothing. Raises ValueError for an unknown one."""
    for name in names:
        if name not in LOGS:
            raise ValueError(f"there is no log '{name}'; there are {', '.join(LOGS)}")
    _listening.close()

    frame, at_the_call = "", AtTheCall()

    def say(event: events.Event) -> None:
        nonlocal frame
        event = at_the_call(event)
        if isinstance(event, events.FrameSeen):
            frame = f"{event.name}: "
        elif isinstance(event, events.StageTimed) and event.stage == "guards":
            # the last: what is built later is not for a frame
            frame = ""
        for name in names:
            for kind, text in LOGS[name].says.items():
                if isinstance(event, kind) and (said := text(event)):
                    said = re.sub(
                        r"/\S*ipykernel_\d+/\d+\.py", "this notebook", said.replace("\n", "\n    ")
                    )
                    print(
                        f"[{name}] {'' if LOGS[name].names_itself else frame}{said}",
                        file=sys.stderr,
                    )

    if names:
        _listening.enter_context(events.listener(say))


def from_environment(wanted: str) -> None:
    """What `COURSE_LOGS` asks for. A program is not stopped by a name that does not exist: it is told, and the others are set."""
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if "help" in names:
        print("\n".join(f"{name:<13} {log.about}" for name, log in LOGS.items()), file=sys.stderr)
    if unknown := [name for name in names if name not in LOGS and name != "help"]:
        print(
            f"COURSE_LOGS: there is no log {', '.join(unknown)}; there are {', '.join(LOGS)}",
            file=sys.stderr,
        )
    set_logs(*(name for name in names if name in LOGS))


if os.environ.get("COURSE_LOGS"):
    from_environment(os.environ["COURSE_LOGS"])
