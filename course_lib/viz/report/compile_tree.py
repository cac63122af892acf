"""What was compiled, in order and by function: the events of a run put into a tree.

In:  a `Recording`.
Out: `Function`s (with their resume functions below them), each with its `Compile`s: why it was compiled, what was captured, what
     the back half made of it (`Build`, `Program`), how long each stage took, and what did not work.

Events carry no numbers that tie them together; their order does. A compile goes from `FrameSeen` to the end of the stage
"guards". What the back half does outside of one belongs to a graph with symbolic sizes, which is built when the sizes are first
met, or to a graph that another compiler captured (`torch.compile(f, backend="course")`); its nodes say which.
In PyTorch: `tlparse`, which reads the same from the compile ids of `TORCH_TRACE`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from course_lib import events, frames
from course_lib.autograd.runtime import OP_BY_OP
from course_lib.frames.resume import Resume, heads
from course_lib.viz.kit.style import place
from course_lib.viz.kit.user_lines import as_written, is_own
from course_lib.viz.pictures.capture.cut_frame import line_of, resumed_by
from course_lib.viz.pictures.graphs.fx_graphs import written_at
from course_lib.viz.pictures.guards.guard_tables import told
from course_lib.viz.recording import Recording, plain

HEAD = re.compile(r"<course_lib head of (.*) #\d+>")
"""The file name of a head: what runs in a frame's place."""
FOREIGN = "a graph that another compiler captured"


def name_of_head(code: Any) -> str:
    """The name of the frame that this head stands for; '' for other code."""
    if at_break := heads.get(frames.number(code)):
        return at_break.name
    head = HEAD.fullmatch(code.co_filename)
    return head[1] if head else ""


@dataclass
class Program:
    """One ATen graph on its way to kernels. `part`: 'inference', 'forward' or 'backward'."""

    part: str
    aten: Any
    loops: Any = None
    schedule: Any = None
    plan: Any = None
    compiled: Any = None
    measured: list[Any] = field(default_factory=list)

    @property
    def kernels(self) -> list[Any]:
        return self.schedule.kernels if self.schedule else []


@dataclass
class Build:
    """What the back half made of one captured graph, once: of a graph with symbolic sizes there may be several."""

    joint: Any = None
    partition: Any = None
    programs: list[Program] = field(default_factory=list)
    fell_back: str = ""
    no_cuda_graph: str = ""
    """Why its kernels are started one by one, though a CUDA graph was asked for."""
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def traced(self) -> Any:
        """The ATen graph that was made first; None if there is none."""
        if self.joint is not None:
            return self.joint
        return self.programs[0].aten if self.programs else None

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
        """'model.py:12', the first line of the program in the captured graph; '' if none is known."""
        if self.captured is None:
            return ""
        for node in self.captured.nodes:
            location = written_at(node)
            if location is not None:
                return str(location)
        return ""


def names_of(graph: Any) -> tuple[str, ...]:
    return tuple(node.name for node in graph.nodes) if graph is not None else ()


def by_stage(timed: Iterable[dict[str, float]]) -> dict[str, float]:
    """Seconds by stage, summed."""
    total: dict[str, float] = {}
    for stages in timed:
        for stage, took in stages.items():
            total[stage] = total.get(stage, 0.0) + took
    return total


@dataclass
class Compile:
    """One time that the hook asked what is to run in a frame's place, and what came of it."""

    number: int
    name: str
    where: str
    code: Any = None
    started: float = 0.0
    ended: float = 0.0
    failures: list[Any] = field(default_factory=list)
    """For each entry that was there, the `GuardFailed` that kept it from being used."""
    result: Any = None
    problems: list[Any] = field(default_factory=list)
    builds: list[Build] = field(default_factory=list)
    own_seconds: dict[str, float] = field(default_factory=dict)
    entries: int = 1
    in_eager: str = ""
    """Why calls run in eager after all: the recompile limit, or a guard that does not hold for the call it was made from."""
    raised: Any = None
    """The `Unsupported` that the program got as an error (`fullgraph=True`): then nothing runs, in eager or otherwise."""
    alike: int = 0
    """So many later calls ran in eager for the same reason; they are not listed."""
    later: list[tuple[Any, int]] = field(default_factory=list)
    """What failed in those: each guard's first `GuardFailed`, and at how many calls it failed in all."""
    caller: Compile | None = None
    """What ran in eager and called this: why it is a frame of its own."""
    called_at: Any = None
    """The line of the program that called it, if that is known; `behind`: because a graph ended there."""
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
    def took(self) -> float:
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
    def by_itself(self) -> str:
        """Why the function is compiled by itself, and not within what called it; '' if the program calls it."""
        if (caller := self.caller) is None:
            return ""
        if caller.in_eager:
            why = plain(caller.in_eager).removeprefix(f"{caller.name} ({caller.where}) ")
            return f"{caller.title} runs in eager ({why}), so what it calls is compiled by itself"
        if not caller.problems:
            return ""
        problem = caller.problems[-1]
        at = (
            f" at {place(problem.location.filename, problem.location.line)}"
            if problem.location
            else ""
        )
        how = (
            "its graph ends"
            if caller.result is not None or caller.outcome.startswith("no graph")
            else "it runs in eager: a graph ends"
        )
        return f"{caller.title} calls it, and {how}{at} ({problem.reason}), so what is called there is compiled by itself"

    @property
    def outcome(self) -> str:
        """What came of it, in a few words."""
        if self.raised:
            why = "reached the recompile limit" if self.at_limit else "a graph ends"
            return f"an error: {why}, which fullgraph=True does not allow"
        if self.in_eager:
            return "in eager after all" + (f", as {self.alike:,} more" if self.alike else "")
        if self.result is None and self.problems and "guards" in self.own_seconds:
            return "no graph before a graph break; it goes on behind that"
        if self.result is None and self.name != FOREIGN:
            return (
                "in eager: a graph break that the frame cannot be split at"
                if self.problems
                else "nothing to compile"
            )
        if self.fallbacks:
            return "operation by operation: not compiled"
        if self.problems:
            return "compiled up to a graph break"
        return "compiled" if self.programs or self.builds else "captured"


@dataclass
class Function:
    """A code object that was met, and the resume functions of it."""

    name: str
    where: str
    resume: Resume | None = None
    above: Function | None = None
    """What it resumes."""
    compiles: list[Compile] = field(default_factory=list)
    below: list[Function] = field(default_factory=list)
    which: str = ""
    """What tells it from others of the same name: ' (break 1 of 2)' in one line, or where it stands."""

    @property
    def all_compiles(self) -> list[Compile]:
        return [
            *self.compiles,
            *(compile for function in self.below for compile in function.all_compiles),
        ]

    @property
    def took(self) -> float:
        return sum(compile.took for compile in self.all_compiles)

    @property
    def title(self) -> str:
        """'M.forward', 'M.forward, from line 7 on'."""
        line = line_of(self.resume) if self.resume else None
        name = self.given or self.name.split(" from ")[0]
        return (f"{name}, from line {line} on" if line else self.given or self.name) + self.which

    @property
    def given(self) -> str:
        """The name of what `cl.compile` was given, where the code's own name is a decorator's."""
        return self.above.given if self.above else self.compiles[0].given if self.compiles else ""


class Reader:
    """The state of one pass over the events."""

    def __init__(self, recording: Recording) -> None:
        self.compiles: list[Compile] = []
        self.open: Compile | None = None
        self.build: Build | None = None  # The one that the back half's events are about
        self.callers, self.called_at, self.given = (
            recording.callers,
            recording.called_at,
            recording.given,
        )
        for event, at in zip_longest(recording.events, recording.times, fillvalue=0.0):
            self.read(event, at)

    def read(self, event: Any, at: float) -> None:
        match event:
            case events.FrameSeen():
                self.open = Compile(
                    len(self.compiles) + 1, event.name, event.where, event.code, at, at
                )
                self.build = None
                self.open.caller = self.caller_of(self.callers.get(id(event), ()))
                self.open.given = self.given.get(id(event), "")
                self.open.called_at = self.called_at.get(id(event)) or self.line_above(self.open)
                self.open.behind = self.open.called_at is not None and not self.called_at.get(
                    id(event)
                )
                self.compiles.append(self.open)
            case events.GuardFailed() if self.open:
                self.open.failures.append(event)
            case events.GraphCaptured() if self.open:
                self.open.result = event.result
            case events.GraphBroke() if self.open:
                self.open.raised = event.problem if event.raised else None
                if not self.open.at_limit:
                    self.open.problems.append(as_written(event.problem))
            case events.Recompiled() if self.compiles:
                self.compiles[-1].entries = event.entries
            case events.StageTimed(stage=("capture" | "guards") as stage) if self.open:
                self.open.own_seconds[stage] = self.open.own_seconds.get(stage, 0.0) + event.seconds
                self.open.ended = at
                self.open = None if stage == "guards" else self.open
            case events.FellBack() if self.compiles and event.what == self.compiles[-1].name:
                self.compiles[-1].in_eager = event.why
            case _:
                self.read_build(event)

    def line_above(self, compile: Compile) -> Any:
        """The line of the program where what calls this ended a graph; of a resume function, that of the function."""
        first, _, resumed = compile.name.partition(" from ")
        if resumed:
            return next(
                (above.called_at for above in reversed(self.compiles) if above.name == first), None
            )
        above = compile.caller
        if above is None or not above.problems:
            return above and above.called_at
        at = above.problems[-1].location
        return at if is_own(at) else above.called_at

    def caller_of(self, codes: Iterable[Any]) -> Compile | None:
        """The compile whose frame, or whose head, is the first of `codes` that is known. A resume function is no call."""
        assert self.open is not None
        for code in codes:
            head = name_of_head(code)
            for above in reversed(self.compiles):
                if (
                    above.name == head
                    if head
                    else above.code is not None and frames.number(above.code) == frames.number(code)
                ):
                    return (
                        None
                        if self.open.name.startswith(f"{above.name.split(' from ')[0]} from ")
                        else above
                    )
        return None

    def read_build(self, event: Any) -> None:
        """An event of the back half."""
        # Tracing begins a build: of a graph with symbolic sizes there may be several.
        begins = isinstance(event, events.StageTimed) and event.stage == "trace"
        if begins or self.build is None:
            self.start_build()
        build = self.build
        assert build is not None

        match event:
            case events.StageTimed():
                before = build.seconds.get(event.stage, 0.0)
                build.seconds[event.stage] = before + event.seconds
            case events.FellBack(what=what) if what == OP_BY_OP:
                build.fell_back = event.why
            case events.FellBack():
                build.no_cuda_graph = event.why
            case events.JointTraced():
                build.joint = event.graph
                self.find_owner(build)
            case events.Partitioned():
                build.partition = event.partition
            case events.AtenTraced():
                build.programs.append(Program(part_of(build), event.graph))
                self.find_owner(build)
            case _ if build.programs:
                read_program(build.programs[-1], event)

    def start_build(self) -> None:
        self.build = Build()
        if self.open and self.open.result is not None:
            self.open.builds.append(self.build)

    def find_owner(self, build: Build) -> None:
        """Give a build that stands outside of every compile to the compile whose graph it was made of."""
        if any(build in compile.builds for compile in self.compiles):
            return
        names = names_of(build.captured)
        captured = (
            c
            for c in reversed(self.compiles)
            if c.result is not None and names_of(c.result.graph.graph) == names
        )
        owner = next(captured, None)
        if owner is None:
            owner = Compile(len(self.compiles) + 1, FOREIGN, build.first_line)
            self.compiles.append(owner)
        owner.builds.append(build)


def read_program(program: Program, event: Any) -> None:
    """An event on the way from ATen to kernels."""
    match event:
        case events.Lowered():
            program.loops = event.graph
        case events.Autotuned():
            program.measured.append(event)
        case events.Scheduled():
            program.schedule = event.schedule
        case events.MemoryPlanned():
            program.plan = event.plan
        case events.KernelsBuilt():
            program.compiled = event.compiled


def part_of(build: Build) -> str:
    """What the next ATen graph of a build is."""
    if build.joint is None:
        return "inference"
    return "backward" if build.programs else "forward"


def compiles_of(recording: Recording) -> list[Compile]:
    """All of them, in order."""
    every = Reader(recording).compiles
    for _, function in walk(functions_of(every)):
        for compile in function.compiles:
            compile.title = function.title
    kept = told_once(every, recording)
    for number, compile in enumerate(kept, 1):
        compile.number = number
    return kept


def told_once(compiles: list[Compile], recording: Recording) -> list[Compile]:
    """At the recompile limit every call that fits no entry comes here: the first of each function stands for all."""
    first: dict[Any, Compile] = {}
    kept = []
    for compile in compiles:
        if compile.in_eager and compile.failures and compile.code is not None:
            same = first.setdefault((frames.number(compile.code), plain(compile.in_eager)), compile)
            if same is not compile:
                same.alike += 1
                continue
        kept.append(compile)
    for (code, why), compile in first.items():
        if counted := recording.counts.get(("refused", code, why)):
            compile.alike = counted.times - 1
        failed = [
            (key, count)
            for key, count in recording.counts.items()
            if isinstance(key, tuple) and key[:2] == ("failed", code)
        ]
        compile.later = [(count.first, count.times) for _, count in failed]
    return kept


def functions_of(compiles: list[Compile]) -> list[Function]:
    """The same as a tree: resume functions below what they resume.

    A decorator's code stands for several functions: those that `cl.compile` was given are told apart."""
    found: dict[Any, Function] = {}
    for compile in compiles:
        function = found.setdefault(key_of(compile), Function(compile.name, compile.where))
        function.compiles.append(compile)

    top = hang_up(found)
    tell_apart_by_line(top)
    for function in found.values():
        tell_apart_by_break(function.below)
    return top


def key_of(compile: Compile) -> tuple[Any, str]:
    """What compiles of one function have in common."""
    if compile.code is not None:
        return frames.number(compile.code), compile.given
    return compile.name, compile.where if compile.name == FOREIGN else ""


def hang_up(found: dict[Any, Function]) -> list[Function]:
    """Hang each resume function below the function that it resumes; gives those that resume nothing."""
    codes = {}
    first: dict[Any, Function] = {}  # number of a code → the first function of that code
    for key, function in found.items():
        first.setdefault(key[0], function)
        if function.compiles[0].code is not None:
            codes[key] = function.compiles[0].code

    top: list[Function] = []
    for key, function in found.items():
        function.resume = resumed_by(codes[key], list(codes.values())) if key in codes else None
        function.above = None
        if function.resume:
            function.above = first.get(frames.number(function.resume.original))

        beside = function.above.below if function.above else top
        beside.append(function)
    return top


def tell_apart_by_line(functions: list[Function]) -> None:
    """Functions of one name get the place where they are written."""
    for same in by(functions, lambda function: function.title).values():
        if len(same) == 1:
            continue
        for function in same:
            filename, _, line = function.where.rpartition(":")
            function.which = f" ({place(filename, int(line))})"


def tell_apart_by_break(functions: list[Function]) -> None:
    """Resume functions that go on in one line get the number of the break in it."""
    for same in by(functions, lambda function: function.title).values():
        same.sort(key=lambda function: function.resume.offset)
        for number, function in enumerate(same, 1):
            function.which = f" (break {number} of {len(same)})" if len(same) > 1 else ""


def by(items: Any, key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The items with the same key together."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def walk(functions: list[Function], depth: int = 0) -> Iterator[tuple[int, Function]]:
    """Every function of the tree, and how deep it stands."""
    for function in functions:
        yield depth, function
        yield from walk(function.below, depth + 1)
