"""What is known of one compile: why it was made, what was captured, and what the back half made of
it.

In:  the events of a run, read by `compile_reader`.
Out: `Compile`, with a `Build` for each time that the back half ran, and in it a `Program` for each
ATen graph.
In PyTorch: `torch/_dynamo/utils.py`, `CompilationMetrics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from course_lib.viz.kit.style import place
from course_lib.viz.pictures.graphs.fx_graphs import written_at
from course_lib.viz.pictures.guards.guard_tables import told
from course_lib.viz.recording import plain

FOREIGN = "a graph that another compiler captured"
"""The name of a compile whose graph came from `torch.compile(f, backend="course")`."""


@dataclass
class Program:
    """One ATen graph on its way to kernels; what is None was not made.

    part: 'inference', 'forward' or 'backward'. measured: the `Autotuned` events of its kernels."""

    part: str
    aten: Any
    loops: Any = None
    schedule: Any = None
    plan: Any = None
    compiled: Any = None
    measured: list[Any] = field(default_factory=list)

    @property
    def kernels(self) -> list[Any]:
        if self.schedule:
            return self.schedule.kernels
        return []


@dataclass
class Build:
    """What the back half made of one captured graph, once: of a graph with symbolic sizes there may
    be several."""

    joint: Any = None
    partition: Any = None
    programs: list[Program] = field(default_factory=list)
    fell_back: str = ""
    """Why it runs operation by operation, if it does."""
    no_cuda_graph: str = ""
    """Why its kernels are started one by one, though a CUDA graph was asked for."""
    sizes: Any = None
    """If it is one program for all sizes: the `Sizes`."""
    why_numbers: str = ""
    """If it is not, though sizes are symbolic: why."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def traced(self) -> Any:
        """The ATen graph that was made first; None if there is none."""
        if self.joint is not None:
            return self.joint
        if self.programs:
            return self.programs[0].aten
        return None

    @property
    def captured(self) -> Any:
        """The captured graph that this was made of, if it is known."""
        if self.traced is None:
            return None
        for node in self.traced.graph.nodes:
            origin = node.meta.get("origin")
            if origin is not None:
                return origin.graph
        return None

    @property
    def first_line(self) -> str:
        """'model.py:12', the first line of the program in the captured graph; '' if none is
        known."""
        if self.captured is None:
            return ""
        for node in self.captured.nodes:
            location = written_at(node)
            if location is not None:
                return str(location)
        return ""


def names_of(graph: Any) -> tuple[str, ...]:
    """The names of a graph's nodes, by which a graph and its copies are known; () of None."""
    if graph is not None:
        return tuple(node.name for node in graph.nodes)
    return ()


def by_stage(timed: Iterable[dict[str, float]]) -> dict[str, float]:
    """Seconds by stage, summed."""
    total: dict[str, float] = {}
    for stages in timed:
        for stage, duration in stages.items():
            total[stage] = total.get(stage, 0.0) + duration
    return total


@dataclass
class Compile:
    """One question of the hook (what runs in this frame's place?) and its answer."""

    number: int
    name: str
    where: str
    code: Any = None
    started: float = 0.0
    ended: float = 0.0
    failures: list[Any] = field(default_factory=list)
    """For each entry that was there, the `GuardFailed` that kept it from being used."""
    result: Any = None
    """The `CaptureResult`; None if no graph was captured."""
    problems: list[Any] = field(default_factory=list)
    """The `Unsupported`s that broke the graph."""
    builds: list[Build] = field(default_factory=list)
    own_seconds: dict[str, float] = field(default_factory=dict)
    entries: int = 1
    """How many entries the code has had by then."""
    in_eager: str = ""
    """Why calls run in eager after all: the recompile limit, or a guard that does not hold for the
    call it was made from."""
    raised: Any = None
    """The `Unsupported` that the program got as an error (`fullgraph=True`): then nothing runs, in
    eager or otherwise."""
    alike: int = 0
    """So many later calls ran in eager for the same reason; they are not listed."""
    later: list[tuple[Any, int]] = field(default_factory=list)
    """What failed in those: each guard's first `GuardFailed`, and at how many calls it failed in
    all."""
    caller: Compile | None = None
    """What ran in eager and called this: why it is a frame of its own."""
    called_at: Any = None
    """The line of the program that called it, if that is known; `behind`: because a graph ended
    there."""
    behind: bool = False
    given: str = ""
    """The name of what `cl.compile` was given, where the code's own name is a decorator's."""
    title: str = ""
    """The function, as a reader knows it: 'M.forward, from line 7 on'."""

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by stage."""
        return by_stage([self.own_seconds, *(build.seconds for build in self.builds)])

    @property
    def total_seconds(self) -> float:
        return sum(self.seconds.values())

    @property
    def programs(self) -> list[Program]:
        return [program for build in self.builds for program in build.programs]

    @property
    def fallbacks(self) -> list[str]:
        return [build.fell_back for build in self.builds if build.fell_back]

    @property
    def is_recompile(self) -> bool:
        """Did it make one more entry?"""
        return bool(self.failures) and "guards" in self.own_seconds and not self.in_eager

    @property
    def at_limit(self) -> bool:
        """Was it refused for the recompile limit, by an error?"""
        return self.raised is not None and "recompile limit" in self.raised.reason

    @property
    def reason(self) -> str:
        """Why it came to this."""
        if self.name == FOREIGN:
            return "torch.compile handed its graph over"
        if not self.failures:
            return "its first call"
        return f"no entry fits: {told(self.failures[-1])}"

    @property
    def why_by_itself(self) -> str:
        """Why the function is compiled by itself, and not within what called it; '' if the program
        calls it."""
        caller = self.caller
        if caller is None:
            return ""
        if caller.in_eager:
            # `why` begins with the name that the title says already.
            why = plain(caller.in_eager).removeprefix(f"{caller.name} ({caller.where}) ")
            return f"{caller.title} runs in eager ({why}), so what it calls is compiled by itself"
        if not caller.problems:
            return ""

        problem = caller.problems[-1]
        how = "its graph ends"
        if caller.result is None and not caller.goes_on:
            how = "it runs in eager: a graph ends"
        if problem.location:
            how += f" at {place(problem.location.filename, problem.location.line)}"
        broken = f"{caller.title} calls it, and {how} ({problem.reason})"
        return f"{broken}, so what is called there is compiled by itself"

    @property
    def goes_on(self) -> bool:
        """Did a graph break come before any operation, so that there is no graph, and a resume
        function goes on behind it?"""
        nothing_wrong = not self.raised and not self.in_eager
        without_graph = self.result is None and bool(self.problems)
        return nothing_wrong and without_graph and "guards" in self.own_seconds

    @property
    def outcome(self) -> str:
        """What came of it, in a few words."""
        if self.raised:
            why = "reached the recompile limit" if self.at_limit else "a graph ends"
            return f"an error: {why}, which fullgraph=True does not allow"
        if self.in_eager:
            return "in eager after all" + (f", as {self.alike:,} more" if self.alike else "")
        if self.goes_on:
            return "no graph before a graph break; it goes on behind that"

        # The graph of another compiler comes without a capture, so it has no `result`.
        if self.result is None and self.name != FOREIGN:
            if self.problems:
                return "in eager: a graph break that the frame cannot be split at"
            return "nothing to compile"

        if self.fallbacks:
            return "operation by operation: not compiled"
        if self.problems:
            return "compiled up to a graph break"
        if self.builds:
            return "compiled"
        return "captured"
