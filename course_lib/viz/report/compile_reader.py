"""The events of a run, put together to compiles.

In:  a `Recording`.
Out: `Compile`s in order, each with its builds and with what called it (`read`).

Events carry no numbers that tie them together; their order does. A compile goes from `FrameSeen` to
the end of the stage "guards". What the back half does outside of one belongs to a graph with
symbolic sizes, which is built when the sizes are first met, or to a graph that another compiler
captured (`torch.compile(f, backend="course")`); its nodes say which.
In PyTorch: `tlparse`, which reads the same from the compile ids of `TORCH_TRACE`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from course_lib import events, frames
from course_lib.autograd.runtime import OP_BY_OP
from course_lib.frames.resume import heads
from course_lib.viz.kit.user_lines import as_written, is_own
from course_lib.viz.recording import Recording
from course_lib.viz.report.compiles import FOREIGN, Build, Compile, Program, names_of

HEAD = re.compile(r"<course_lib head of (.*) #\d+>")
"""The file name of a head: what runs in a frame's place."""


def read(recording: Recording) -> list[Compile]:
    """All compiles, in order."""
    reader = Reader(recording)
    for event, at in zip_longest(recording.events, recording.times, fillvalue=0.0):
        reader.read(event, at)
    return reader.compiles


class Reader:
    """The state of one pass over the events."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.compiles: list[Compile] = []
        self.open: Compile | None = None
        """The compile that is not at its end yet."""
        self.build: Build | None = None
        """The build that events of the back half are about."""

    def read(self, event: Any, at: float) -> None:
        """One event, noted at the time `at`."""
        match event:
            case events.FrameSeen():
                self.begin(event, at)
            case events.GuardFailed() if self.open:
                self.open.failures.append(event)
            case events.GraphCaptured() if self.open:
                self.open.result = event.result
            case events.GraphBroke() if self.open:
                self.open.raised = event.problem if event.raised else None
                if not self.open.at_limit:
                    self.open.problems.append(as_written(event.problem))
            case events.StageTimed(stage="capture" | "guards") if self.open:
                self.end_own_stage(self.open, event, at)
            # These two come when the compile is at its end.
            case events.Recompiled() if self.compiles:
                self.compiles[-1].entries = event.entries
            case events.FellBack() if self.compiles and event.what == self.compiles[-1].name:
                self.compiles[-1].in_eager = event.why
            case _:
                self.read_build(event)

    def begin(self, event: events.FrameSeen, at: float) -> None:
        """The hook met a frame: a compile begins."""
        number = len(self.compiles) + 1
        compile = Compile(number, event.name, event.where, event.code, started=at, ended=at)
        compile.given = self.recording.given.get(id(event), "")
        compile.caller = self.caller_of(compile, self.recording.callers.get(id(event), ()))

        compile.called_at = self.recording.called_at.get(id(event))
        if not compile.called_at:
            compile.called_at = self.line_above(compile)
            compile.behind = compile.called_at is not None

        self.open = compile
        self.build = None
        self.compiles.append(compile)

    def end_own_stage(self, compile: Compile, event: events.StageTimed, at: float) -> None:
        """A stage of the front half ended. Guards are the last one."""
        before = compile.own_seconds.get(event.stage, 0.0)
        compile.own_seconds[event.stage] = before + event.seconds
        compile.ended = at
        if event.stage == "guards":
            self.open = None

    # ---- who called ------------------------------------------------------------------------------

    def caller_of(self, compile: Compile, codes: Iterable[Any]) -> Compile | None:
        """The compile whose frame, or whose head, is the first of `codes` that is known.

        A resume function is no call."""
        for code in codes:
            above = self.latest_with(code)
            if above is not None:
                function = above.name.split(" from ")[0]
                is_resumed = compile.name.startswith(f"{function} from ")
                return None if is_resumed else above
        return None

    def latest_with(self, code: Any) -> Compile | None:
        """The last compile of this code, or that this code is the head of."""
        head = name_of_head(code)
        for above in reversed(self.compiles):
            if head:
                is_match = above.name == head
            else:
                is_match = above.code is not None and frames.number(above.code) == frames.number(
                    code
                )
            if is_match:
                return above
        return None

    def line_above(self, compile: Compile) -> Any:
        """The line of the program where what calls this ended a graph; of a resume function, that
        of the function."""
        function, _, resumed = compile.name.partition(" from ")
        if resumed:
            earlier = [above for above in self.compiles if above.name == function]
            if earlier:
                return earlier[-1].called_at
            return None

        above = compile.caller
        if above is None:
            return None
        if above.problems and is_own(above.problems[-1].location):
            return above.problems[-1].location
        return above.called_at

    # ---- the back half ---------------------------------------------------------------------------

    def read_build(self, event: Any) -> None:
        """An event of the back half."""
        build = self.build_of(event)
        match event:
            case events.StageTimed():
                before = build.seconds.get(event.stage, 0.0)
                build.seconds[event.stage] = before + event.seconds
            case events.FellBack(what=what) if what == OP_BY_OP:
                build.fell_back = event.why
            case events.FellBack():
                build.no_cuda_graph = event.why
            case events.SizesAreSymbols():
                build.sizes = event.sizes
            case events.SizesAreNumbers():
                build.why_numbers = event.why
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

    def build_of(self, event: Any) -> Build:
        """The build that an event belongs to. Tracing begins one: a graph with symbolic sizes may
        have several."""
        begins = isinstance(event, events.StageTimed) and event.stage == "trace"
        if self.build is not None and not begins:
            return self.build

        self.build = Build()
        if self.open and self.open.result is not None:
            self.open.builds.append(self.build)
        return self.build

    def find_owner(self, build: Build) -> None:
        """Give a build that stands outside of every compile to the compile whose graph it was made
        of."""
        if any(build in compile.builds for compile in self.compiles):
            return

        owner = self.latest_that_captured(names_of(build.captured))
        # None of ours captured it: another compiler did.
        if owner is None:
            owner = Compile(len(self.compiles) + 1, FOREIGN, build.first_line)
            self.compiles.append(owner)
        owner.builds.append(build)

    def latest_that_captured(self, names: tuple[str, ...]) -> Compile | None:
        """The last compile whose graph has nodes of these names."""
        for compile in reversed(self.compiles):
            if compile.result is not None and names_of(compile.result.graph.graph) == names:
                return compile
        return None


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
    if build.programs:
        return "backward"
    return "forward"


def name_of_head(code: Any) -> str:
    """The name of the frame that this head stands for; '' for other code."""
    at_break = heads.get(frames.number(code))
    if at_break:
        return at_break.name
    # A head of a whole frame, without a break, is known by its file.
    head = HEAD.fullmatch(code.co_filename)
    return head[1] if head else ""
