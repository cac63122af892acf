"""The compiler's events as lines of text on stderr.

    COURSE_LOGS="graph_breaks,recompiles" python train.py
    cl.set_logs("graph_breaks", "guards")

Each line begins with the name of its log; what belongs to it is indented. `COURSE_LOGS=help` says
what there is.

In PyTorch: `torch/_logging` (`TORCH_LOGS`, `torch._logging.set_logs`).
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from course_lib import events
from course_lib.capture.of_data import told_of_data
from course_lib.scheduling import No
from course_lib.viz.kit.user_lines import MovedToCall, as_written

Say = Callable[[Any], str]
"""What a log says about an event; "" for nothing."""


@dataclass(frozen=True)
class Log:
    """A topic: what it is about, and what it says about which event ("" for nothing).

    names_itself: does that say of which function?"""

    about: str
    says: dict[type[events.Event], Say]
    names_itself: bool = False


# ---- what is said --------------------------------------------------------------------------------


def broke(event: events.GraphBroke) -> str:
    return str(as_written(event.problem))


def hint(event: events.GraphBroke) -> str:
    """What can be done about a graph break, and where; "" where nothing is known."""
    problem = as_written(event.problem)
    if not problem.hint:
        return ""
    where = ""
    if problem.location:
        where = f" at {problem.location}"
    return f"{problem.reason}{where}: {problem.hint}"


def guards(event: events.GraphCaptured) -> str:
    result = event.result
    return "\n".join([f"{result.name}, {result.where}", *map(str, result.guards)])


def size_guards(event: events.GraphCaptured) -> str:
    """What capture assumed about sizes, and which of them only the data says."""
    guards = [str(guard) for guard in event.result.guards if guard.kind == "sizes"]
    return "\n".join(guards + told_of_data(event.result.graph.graph))


def sizes_are_symbols(event: events.SizesAreSymbols) -> str:
    """What the back half made of symbolic sizes: one program, and each decision with its kind and
    who asked."""
    known = event.sizes
    hints = ", ".join(f"{symbol} ({value} in this call)" for symbol, value in known.hints.items())
    return "\n".join([f"one program for all sizes: {hints}", *map(str, known.decisions)])


def sizes_are_numbers(event: events.SizesAreNumbers) -> str:
    return f"a program for each set of sizes: {event.why}"


def graph_code(event: events.GraphCaptured) -> str:
    return f"{event.result.graph.code.strip()}\n\n{event.result.head.source}"


def guard_failed(event: events.GuardFailed) -> str:
    return f"{event.name}: {event.got}"


def recompiled(event: events.Recompiled) -> str:
    return f"{event.name} is compiled again: {event.entries} entries"


def fell_back(event: events.FellBack) -> str:
    return f"{event.what}: {event.why}"


def joint_graph(event: events.JointTraced) -> str:
    return f"joint graph\n{event.graph.code.strip()}"


def partition(event: events.Partitioned) -> str:
    return str(event.partition)


def aot_graph(event: events.AtenTraced) -> str:
    """An ATen graph. Its inputs say what it is: backward's are what forward kept, and tangents."""
    inputs = event.graph.graph.find_nodes(op="placeholder")
    kind = "backward" if any(node.name.startswith("tangent_") for node in inputs) else "forward"
    return f"{kind} graph\n{event.graph.code.strip()}"


def schedule(event: events.Scheduled) -> str:
    return str(event.schedule)


def decisions(event: events.Scheduled) -> str:
    return "\n".join(map(str, event.schedule.decisions))


def kept_apart(event: events.Scheduled) -> str:
    """The fusion that would have saved most, had it been possible."""
    lost = []
    for decision in event.schedule.decisions:
        answer = decision.answer
        if isinstance(answer, No) and answer.lost:
            lost.append((answer.lost, str(decision)))
    if lost:
        _, dearest = max(lost)
        return f"most bytes go through memory here: {dearest}"
    return ""


def generated(event: events.KernelsBuilt) -> str:
    return event.compiled.source


LOGS: dict[str, Log] = {
    "graph_breaks": Log(
        "where a graph ended, why, and what can be done about it",
        {events.GraphBroke: broke},
        names_itself=True,
    ),
    "guards": Log(
        "what each captured graph assumes, and the line that made it necessary",
        {events.GraphCaptured: guards},
        names_itself=True,
    ),
    "recompiles": Log(
        "which guard failed, and what was compiled again because of it",
        {
            events.GuardFailed: guard_failed,
            events.Recompiled: recompiled,
            events.FellBack: fell_back,
        },
        names_itself=True,
    ),
    "dynamic": Log(
        "what is assumed about symbolic sizes",
        {
            events.GraphCaptured: size_guards,
            events.SizesAreSymbols: sizes_are_symbols,
            events.SizesAreNumbers: sizes_are_numbers,
        },
    ),
    "graph_code": Log(
        "each captured graph as Python, and the head that runs in the frame's place",
        {events.GraphCaptured: graph_code},
    ),
    "aot_graphs": Log(
        "the joint graph, what is kept between its halves, and each graph in ATen operators",
        {
            events.JointTraced: joint_graph,
            events.Partitioned: partition,
            events.AtenTraced: aot_graph,
        },
    ),
    "schedule": Log(
        "the kernels in order, with the bytes that each moves", {events.Scheduled: schedule}
    ),
    "fusion": Log("every fusion decision with its reason", {events.Scheduled: decisions}),
    "output_code": Log(
        "all that was generated: kernels and wrapper", {events.KernelsBuilt: generated}
    ),
    "perf_hints": Log(
        "what costs time and can be changed",
        {events.FellBack: fell_back, events.GraphBroke: hint, events.Scheduled: kept_apart},
    ),
}
"""Name → topic."""


# ---- saying it -----------------------------------------------------------------------------------

CELL = re.compile(r"/\S*ipykernel_\d+/\d+\.py")
"""The file that a notebook's cell pretends to be."""
_listening = contextlib.ExitStack()
"""While logs are set: closed, it ends the listening of the `Speaker`."""


class Speaker:
    """Says on stderr what the chosen logs have to say about each event."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.moved_to_call = MovedToCall()
        # "name: " of the frame that is being compiled, for logs that do not say it themselves
        self.frame = ""

    def __call__(self, event: events.Event) -> None:
        event = self.moved_to_call(event)
        if isinstance(event, events.FrameSeen):
            self.frame = f"{event.name}: "
        elif isinstance(event, events.StageTimed) and event.stage == "guards":
            # A frame ends with this stage. What is built later is not for a frame.
            self.frame = ""

        for name in self.names:
            for kind, text in LOGS[name].says.items():
                if isinstance(event, kind):
                    self.say(name, text(event))

    def say(self, name: str, said: str) -> None:
        """A line, with what belongs to it indented."""
        if not said:
            return
        # (A cell's file has another name in each run.)
        said = CELL.sub("this notebook", said.replace("\n", "\n    "))
        frame = "" if LOGS[name].names_itself else self.frame
        print(f"[{name}] {frame}{said}", file=sys.stderr)


def set_logs(*names: str) -> None:
    """Say what happens, from now on: any of `LOGS`.

    Without a name, nothing. Raises ValueError for an unknown one."""
    for name in names:
        if name not in LOGS:
            raise ValueError(f"there is no log '{name}'; there are {', '.join(LOGS)}")

    _listening.close()
    if names:
        _listening.enter_context(events.listener(Speaker(names)))


def from_environment(wanted: str) -> None:
    """What `COURSE_LOGS` asks for.

    A program is not stopped by a name that does not exist: it is told, and the others are set."""
    names = [name.strip() for name in wanted.split(",") if name.strip()]
    if "help" in names:
        print("\n".join(f"{name:<13} {log.about}" for name, log in LOGS.items()), file=sys.stderr)

    unknown = [name for name in names if name not in LOGS and name != "help"]
    if unknown:
        there_are = ", ".join(LOGS)
        print(
            f"COURSE_LOGS: there is no log {', '.join(unknown)}; there are {there_are}",
            file=sys.stderr,
        )
    set_logs(*(name for name in names if name in LOGS))


if os.environ.get("COURSE_LOGS"):
    from_environment(os.environ["COURSE_LOGS"])
