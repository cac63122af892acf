"""What came from what, from the user's line to the line of a kernel, and back.

In:  a `Recording`. Out: `Provenance`: one list of `Row`s for each stage (`PANES`), and the `Moment`s in which they were made.

A row knows the rows of earlier stages that it came from (`up`): a line of a kernel its loop, a loop its ATen nodes, an ATen node
the captured node, that one its instruction, and an instruction its line and the call that it is in. No link is guessed from
texts: they are what the compiler's own objects carry (`InstructionRun.node`, `meta["origin"]`, `origins`, `line_of`).
In PyTorch: `torch/_inductor/debug.py` (`create_mapping_pre_post_grad_nodes`), which `tlparse` shows as its provenance page.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from course_lib import events
from course_lib.capture.sources import Location
from course_lib.lowering.ir import ExternKernel
from course_lib.scheduling import Fuse, FusedKernel
from course_lib.viz.kit.highlight import highlighted
from course_lib.viz.kit.style import human_bytes, human_seconds, place, plural
from course_lib.viz.kit.user_lines import as_written
from course_lib.viz.pictures.capture.bytecode_table import (
    FrameRun,
    Step,
    frame_runs,
    plain_arg,
    walk,
)
from course_lib.viz.pictures.codegen.machine_code import source_lines
from course_lib.viz.pictures.graphs.fx_graphs import (
    constants_of,
    is_operation,
    op_name,
    source_of,
    type_of,
    written_at,
)
from course_lib.viz.pictures.lowering.loop_formulas import formula, is_extern, label_of, ranges_of
from course_lib.viz.recording import Recording
from course_lib.viz.widgets.stepper import function_lines, sources


@dataclass(frozen=True)
class Pane:
    """A stage as a list: `stage` gives the colour, `one` is what a row of it is called."""

    title: str
    stage: str
    one: str


PANES = {
    "source": Pane("Python", "eager", "line"),
    "bytecode": Pane("Bytecode", "frames", "instruction"),
    "fx": Pane("FX graph", "capture", "FX node"),
    "aten": Pane("ATen graph", "autograd", "ATen node"),
    "loops": Pane("Loops", "lowering", "loop"),
    "groups": Pane("Fused groups", "scheduling", "group"),
    "code": Pane("Generated code", "codegen", "line"),
    "machine": Pane("Machine code", "runtime", "line"),
}
"""The stages, first to last."""


@dataclass(eq=False)
class Row:
    """One thing that a stage has: a line, an instruction, a node, a loop, a kernel.

    `html` is its text with colours; `label` stands before it (a line's number), `note` behind it (a shape); `depth` says what it
    is folded under; `at` is the moment that made it. A row `of` another stands for that one: a kernel's first line for it."""

    pane: str
    text: str
    html: str = ""
    label: str = ""
    note: str = ""
    kind: str = ""
    depth: int = 1
    at: int = 0
    up: list[Row] = field(default_factory=list, repr=False)
    of: Row | None = field(default=None, repr=False)
    stack: tuple[list[str], list[str], list[str]] | None = field(default=None, repr=False)
    """For an instruction, the stack: what stayed, what was taken off, what was put on."""


@dataclass(frozen=True)
class Moment:
    """Something that happened: in which stage, and what, in words."""

    stage: str
    text: str


class Provenance:
    """All rows of a recording, by pane. `target` ("sm_90", "x86-64-v3") asks for the kernels' machine code too."""

    def __init__(self, recording: Recording, target: str = "") -> None:
        self.rows: dict[str, list[Row]] = {pane: [] for pane in PANES}
        self.moments: list[Moment] = []
        Reader(self, recording, target).read()
        self.down: dict[Row, list[Row]] = {}
        self.parts: dict[Row, list[Row]] = {}
        for row in self:
            for origin in row.up:
                self.down.setdefault(origin, []).append(row)
            if row.of:
                self.parts.setdefault(row.of, []).append(row)

    def __iter__(self) -> Iterator[Row]:
        return (row for rows in self.rows.values() for row in rows)

    def related(self, row: Row) -> set[Row]:
        """The row, all that it came from, and all that came from it. A kernel stands for all that it holds."""
        row = row.of or row
        start = {row, *row.up} if row.kind == "group" else {row}
        return {
            *self.parts.get(row, ()),
            *closure(start, lambda r: r.up),
            *closure(start, lambda r: self.down.get(r, ())),
        }

    def find(self, pane: str, text: str) -> Row:
        """The first row of a pane that holds `text`. Raises LookupError."""
        for row in self.rows[pane]:
            if text in row.text and row.kind != "head":
                return row
        raise LookupError(f"no row of '{PANES[pane].title}' holds {text!r}")


def closure(start: Iterable[Row], after: Callable[[Row], Iterable[Row]]) -> set[Row]:
    """These rows, what comes after them, what comes after that, ..."""
    found, waiting = set(start), list(start)
    while waiting:
        new = set(after(waiting.pop())) - found
        found |= new
        waiting += new
    return found


class Reader:
    """Goes through the events once, in order, and makes rows and moments."""

    def __init__(self, into: Provenance, recording: Recording, target: str) -> None:
        self.rows, self.moments, self.target = into.rows, into.moments, target
        self.recording, self.frames = recording, frame_runs(recording)
        self.lines: dict[tuple[str, int], Row] = {}  # (file, line)
        self.told: dict[int, Row] = {}  # id of an `InstructionRun`
        # of a captured graph, an ATen graph, or one of its halves
        self.nodes: dict[fx.Node, Row] = {}
        self.graphs: list[fx.Graph] = []  # as they were captured
        self.joint: dict[str, Row] = {}  # by the node's name
        self.halves: dict[Any, str] = {}
        self.title = ""  # of the graph that is being compiled
        self.loops: dict[str, Row] = {}  # by the buffer that is written
        self.groups: dict[Any, Row] = {}  # by the kernel
        # by the kernel and the buffer that the step computes
        self.steps: dict[tuple[Any, str], Row] = {}
        self.sees: dict[type[events.Event], Callable[[Any], None]] = {
            events.FrameSeen: self.frame_seen, events.InstructionRun: self.instruction_run, events.GraphBroke: self.graph_broke,
            events.GraphCaptured: self.graph_captured, events.JointTraced: self.joint_traced,
            events.Partitioned: self.partitioned, events.AtenTraced: self.aten_traced, events.Lowered: self.lowered,
            events.Scheduled: self.scheduled, events.KernelsBuilt: self.kernels_built, events.StageTimed: self.stage_timed,
            events.GuardFailed: self.guard_failed, events.FellBack: self.fell_back, events.Autotuned: self.autotuned,
        }  # fmt: skip

    def read(self) -> None:
        self.moment("eager", "before the call")
        for run in self.frames:
            self.add_functions(run)
            self.head("bytecode", run.name, plural(run.count, "instruction"))
            self.add_steps(run.steps, 1, None)
            if run.problem:
                self.add("bytecode", f"✂ {run.problem.reason}", kind="break")
        for event in self.recording.events:
            if see := self.sees.get(type(event)):
                see(event)
        later = 0
        # a heading, or a call that did not come back, is never told
        for row in reversed(self.rows["bytecode"]):
            later = row.at = row.at or later

    def moment(self, stage: str, text: str) -> int:
        self.moments.append(Moment(stage, text))
        return len(self.moments) - 1

    def add(self, pane: str, text: str, **more: Any) -> Row:
        row = Row(pane, text, **more)
        self.rows[pane].append(row)
        return row

    def head(self, pane: str, text: str, note: str = "", **more: Any) -> Row:
        """A heading: all up to the next one is folded under it."""
        return self.add(pane, text, note=note, kind="head", depth=0, **more)

    # ---- frames and capture ----------------------------------------------------------------------------------------

    def add_functions(self, run: FrameRun) -> None:
        """The functions that were followed, each once."""
        files = {
            f"{step.run.function} {place(step.run.filename)}": step.run.filename
            for step in walk(run.steps)
        }
        for key, numbered in sources(run).items():
            file, function = files[key], key.split(" ")[0]
            if all((file, number) in self.lines for number, _ in numbered):
                continue
            self.add_function(file, function, numbered)

    def add_function(self, file: str, function: str, numbered: list[tuple[int, str]]) -> None:
        """The lines of a function, with their numbers."""
        self.head("source", function, place(file))
        coloured = highlighted("\n".join(text for _, text in numbered), "python")
        for (number, text), html in zip(numbered, coloured, strict=True):
            self.lines.setdefault(
                (file, number), self.add("source", text, html=html, label=str(number))
            )

    def add_steps(self, steps: list[Step], depth: int, call: Row | None) -> None:
        """The instructions of one frame, as a tree."""
        for step in steps:
            run = step.run
            up = [row for row in (self.lines.get((run.filename, run.line)), call) if row]
            text, made = (
                f"{run.op} {plain_arg(run.arg)}".rstrip(),
                f"→ {run.node}" if run.node else "",
            )
            row = self.add("bytecode", text, note=made, depth=depth, up=up, stack=step.change)
            row.label = str(run.offset) if run.offset >= 0 else ""
            self.told[id(run)] = row
            self.add_steps(step.inside, depth + 1, row)

    def frame_seen(self, event: events.FrameSeen) -> None:
        self.moment("frames", f"the hook meets {event.name}, and no compiled code fits")

    def instruction_run(self, event: events.InstructionRun) -> None:
        made = f" adds {event.node} to the graph" if event.node else ""
        self.told[id(event)].at = self.moment("frames", f"{event.op} {plain_arg(event.arg)}{made}")

    def graph_broke(self, event: events.GraphBroke) -> None:
        reason = as_written(event.problem).reason
        at = self.moment("break", f"the graph ends here: {reason}")
        for row in self.rows["bytecode"]:
            if row.kind == "break" and not row.at and row.text.endswith(reason):
                row.at = at
                break

    def graph_captured(self, event: events.GraphCaptured) -> None:
        result, graph = event.result, event.result.graph.graph
        self.graphs.append(graph)
        self.title = result.name
        size = f"{plural(sum(map(is_operation, graph.nodes)), 'operation')}, {plural(len(result.guards), 'guard')}"
        at = self.moment("capture", f"{result.name} is captured: {size}")
        head = self.head("fx", result.name, size, at=at)
        run = next((run for run in self.frames if run.graph is result.graph), None)
        made_by = instructions(graph, run, self.told) if run else {}
        for node in graph.nodes:
            row = self.add_node("fx", node)
            location, instruction = written_at(node), made_by.get(node)
            line = self.lines.get((location.filename, location.line)) if location else None
            row.up = [origin for origin in (instruction, None if instruction else line) if origin]
            row.at = instruction.at if instruction else at
            head.at = min(head.at, row.at)
        for node in graph.find_nodes(op="placeholder"):  # an input is there once somebody reads it
            row, users = self.nodes[node], [self.nodes[user] for user in node.users]
            row.at = min((user.at for user in users), default=at)
            row.up = row.up or [origin for user in users[:1] for origin in user.up]

    def add_given(self, graph: fx.Graph) -> None:
        """A graph that torch captured (`torch.compile(f, backend="course")`): its nodes know their lines."""
        origins = (node.meta.get("origin") for node in graph.nodes)
        graphs = [
            origin.graph
            for origin in origins
            if isinstance(origin, fx.Node) and not self.captured(origin)
        ]
        for given in graphs[:1]:
            places = {node: at for node in given.nodes if (at := written_at(node))}
            self.title = next((at.function for at in places.values()), "a graph")
            self.graphs.append(given)
            size = plural(sum(map(is_operation, given.nodes)), "operation")
            moment = self.moment("capture", f"{self.title} comes captured: {size}")
            self.head("fx", self.title, size, at=moment)
            for node in given.nodes:
                row, at = self.add_node("fx", node), places.get(node)
                row.at, row.up = moment, [self.line(at)] if at else []

    def line(self, at: Location) -> Row:
        """The row of a line of the program. The first that is asked for brings its whole function."""
        key = at.filename, at.line
        if key not in self.lines and (
            numbered := function_lines(at.filename, at.function, at.line, at.line)
        ):
            self.add_function(at.filename, at.function, numbered)
        if key not in self.lines:  # its file is not there, or has become another one
            self.lines[key] = self.add("source", at.text, label=str(at.line))
        return self.lines[key]

    def add_node(self, pane: str, node: fx.Node) -> Row:
        """A node of a graph."""
        if node.op == "output":
            row = self.add(pane, f"return {constants_of(node)}", kind="output")
        elif is_operation(node):
            call = f"{op_name(node).removeprefix('aten.')}({constants_of(node)})"
            row = self.add(pane, f"{node.name} = {call}", note=type_of(node))
        else:
            row = self.add(pane, source_of(node), note=type_of(node), kind="input")
        self.nodes[node] = row
        return row

    # ---- autograd --------------------------------------------------------------------------------------------------

    def add_graph(self, graph: fx.Graph, title: str) -> None:
        """An ATen graph; the nodes that one captured node became come in one moment."""
        self.head(
            "aten",
            title,
            plural(sum(map(is_operation, graph.nodes)), "operation"),
            at=len(self.moments),
        )
        last: Any = self
        for node in graph.nodes:
            row, origin = self.add_node("aten", node), node.meta.get("origin")
            if origin is not last:
                name = (
                    f"{origin.name} in ATen operators"
                    if isinstance(origin, fx.Node)
                    else "inputs and outputs"
                )
                at, last = self.moment("autograd", name), origin
            row.at = at
            if isinstance(origin, fx.Node) and (captured := self.captured(origin)):
                row.up = [captured]

    def captured(self, node: fx.Node) -> Row | None:
        """The row of a captured node, or of the one that it is a copy of: a graph with symbolic sizes is copied for each set of
        sizes."""
        same = lambda graph: [(n.name, n.meta.get("location")) for n in graph.nodes]
        if node not in self.nodes:
            for graph in reversed(self.graphs):
                if same(graph) == same(node.graph):
                    self.nodes |= {
                        copy: self.nodes[n]
                        for n, copy in zip(graph.nodes, node.graph.nodes, strict=True)
                    }
                    break
        return self.nodes.get(node)

    def joint_traced(self, event: events.JointTraced) -> None:
        graph = event.graph.graph
        self.add_given(graph)
        self.add_graph(graph, f"{self.title}: forward and backward")
        self.joint = {node.name: self.nodes[node] for node in graph.nodes}

    def partitioned(self, event: events.Partitioned) -> None:
        """The halves have nodes of their own, under the names that these have in the joint graph."""
        parts = event.partition
        again, saved = {node.name for node in parts.recomputed}, {node.name for node in parts.saved}
        self.moment(
            "autograd",
            f"cut in two: {plural(len(saved), 'tensor')} saved, {len(again)} computed again in backward",
        )
        self.halves = {parts.forward: "forward", parts.backward: "backward"}
        forward = {node.name for node in parts.forward.graph.nodes}
        for half in self.halves:
            self.nodes |= {
                node: self.joint[node.name] for node in half.graph.nodes if node.name in self.joint
            }
        for name, row in self.joint.items():
            row.kind = (
                "saved"
                if name in saved
                else row.kind or ("backward" if name not in forward else "")
            )
            row.note = " · ".join(
                filter(
                    None, [row.note, "saved" * (name in saved), "computed again" * (name in again)]
                )
            )

    def aten_traced(self, event: events.AtenTraced) -> None:
        if event.graph not in self.halves:
            self.add_given(event.graph.graph)
            self.halves = {event.graph: self.title}
            self.add_graph(event.graph.graph, self.title)
        self.title = self.halves[event.graph]

    # ---- loops and kernels -----------------------------------------------------------------------------------------

    def lowered(self, event: events.Lowered) -> None:
        graph = event.graph
        buffers, self.loops = graph.buffers, {}
        self.head("loops", self.title, plural(len(graph.nodes), "loop"), at=len(self.moments))
        for node in graph.nodes:
            kind, note = ("extern", node.why) if is_extern(node) else ("", ranges_of(node))
            at = self.moment(
                "lowering",
                f"{node.op} is left to the library" if kind else f"a loop for {label_of(node)}",
            )
            row = self.add("loops", formula(node, buffers), kind=kind, note=note, at=at)
            row.up = list(
                dict.fromkeys(self.nodes[origin] for origin in node.origins if origin in self.nodes)
            )
            self.loops |= {buffer.name: row for buffer in node.buffers}

    def scheduled(self, event: events.Scheduled) -> None:
        schedule = event.schedule
        for decision in schedule.decisions:
            if isinstance(decision.answer, Fuse):
                self.moment("scheduling", f"fused: {decision}")
        before, after = human_bytes(schedule.bytes_before), human_bytes(schedule.bytes_after)
        note = f"{plural(len(schedule.kernels), 'group')}, {before} → {after}"
        self.head("groups", self.title, note, at=len(self.moments))
        own = {self.loops[node.buffer.name] for kernel in schedule.fused for node in kernel.nodes}
        loose = [row for row in dict.fromkeys(self.loops.values()) if row.up and row not in own]
        self.groups, self.steps = {}, {}
        for kernel, group in zip(schedule.kernels, schedule.groups, strict=True):
            if isinstance(kernel, ExternKernel):
                up = [self.loops[buffer.name] for buffer in kernel.buffers][:1]
                at = self.moment("scheduling", f"{kernel.label} stays a library call")
                more = {"kind": "library", "note": human_bytes(group.traffic), "up": up, "at": at}
                self.groups[kernel] = self.add("groups", kernel.label, **more)
            else:
                self.add_kernel(kernel, human_bytes(group.traffic), loose)

    def add_kernel(self, kernel: FusedKernel, traffic: str, loose: list[Row]) -> None:
        """A kernel and its steps. `loose` are loops in no kernel: each is computed again where it is read, and what reads it has
        its origins."""
        at = self.moment("scheduling", f"{kernel.name} is one kernel")
        head = self.groups[kernel] = self.add(
            "groups", kernel.name, kind="group", note=traffic, at=at
        )
        for step in kernel.steps:
            loop, origins = (
                self.loops[step.buffer.name],
                {self.nodes.get(origin) for origin in step.node.origins},
            )
            inlined = [
                row
                for row in loose
                if origins.issuperset(row.up) and not set(row.up) <= set(loop.up)
            ]
            note = (
                f"{step.buffer.name}{'' if step.buffer.name in kernel.stores else ' in registers'}"
            )
            row = self.add(
                "groups",
                step.node.label or step.buffer.name,
                depth=2,
                note=note,
                at=at,
                up=[loop, *inlined],
            )
            head.up.append(row)
            self.steps[kernel, step.buffer.name] = row

    def kernels_built(self, event: events.KernelsBuilt) -> None:
        compiled = event.compiled
        sources = dict(zip(compiled.schedule.fused, compiled.kernels, strict=True))
        for kernel, source in sources.items():
            language, group = (
                {"cpp": "C++", "triton": "Triton"}[source.language],
                self.groups[kernel],
            )
            at = self.moment("codegen", f"{source.name} in {language}")
            self.head("code", source.name, language, at=at, of=group)
            rows = self.add_code(source.source, source.language, at)
            for number, row in enumerate(rows, 1):
                if step := source.line_of.get(number):
                    row.up = [self.steps[kernel, step.buffer.name]]
                else:
                    row.of = group
            if self.target:
                self.add_machine(source, rows, group)
        makers = {
            buffer.name: row for kernel, row in self.groups.items() for buffer in kernel.buffers
        }
        makers |= {source.name: self.groups[kernel] for kernel, source in sources.items()}
        at = self.moment("codegen", "the program around them")
        self.head("code", f"the program of {self.title}", "Python", at=at)
        program = self.add_code(compiled.wrapper_source, "python", at)
        for row, names in zip(program, names_by_line(compiled.wrapper_source), strict=True):
            if maker := next((makers[name] for name in names if name in makers), None):
                # a call of a kernel, or memory for what it computes
                row.of, row.up = maker, [maker]

    def add_code(self, source: str, language: str, at: int) -> list[Row]:
        """Lines of generated source; comments stand closer, so that they are seen in a narrow list."""
        lines = [
            re.sub(r" {3,}(?=(//|#) )", "   ", line) for line in source.rstrip("\n").split("\n")
        ]
        coloured = highlighted("\n".join(lines), language)
        pairs = enumerate(zip(lines, coloured, strict=True), 1)
        return [
            self.add("code", text, html=html, label=str(number), at=at)
            for number, (text, html) in pairs
        ]

    def add_machine(self, source: Any, rows: list[Row], group: Row) -> None:
        """What the kernel's own compiler made of it, each line with the line of source that it belongs to."""
        for form, lines in source_lines(source, self.target).items():
            at = self.moment("runtime", f"{source.name} as {form}")
            self.head("machine", f"{source.name} ({form})", self.target, at=at, of=group)
            for text, number in lines:
                row = self.add("machine", text, at=at)
                if 0 < number <= len(rows):
                    row.up = [rows[number - 1]]
                else:
                    row.of = group

    # ---- what else happens -----------------------------------------------------------------------------------------

    def stage_timed(self, event: events.StageTimed) -> None:
        self.moment(
            STAGES.get(event.stage, "runtime"), f"{event.stage}: {human_seconds(event.seconds)}"
        )

    def guard_failed(self, event: events.GuardFailed) -> None:
        self.moment("guards", f"a guard of {event.name} fails: {event.guard}; it got {event.got}")

    def fell_back(self, event: events.FellBack) -> None:
        self.moment("break", f"{event.what}: {event.why}")

    def autotuned(self, event: events.Autotuned) -> None:
        self.moment(
            "lowering",
            f"{getattr(event.kernel, 'label', event.kernel)}: {event.choice} was fastest",
        )


STAGES = {
    "capture": "capture", "trace": "autograd", "partition": "autograd", "lower": "lowering", "schedule": "scheduling",
    "memory": "scheduling", "build": "codegen",
}  # fmt: skip
"""The name of a stage that was timed → its colour."""


def instructions(graph: fx.Graph, run: FrameRun, told: dict[int, Row]) -> dict[fx.Node, Row]:
    """The instruction that made each operation. An instruction names the last node that it added; those before it, and the parts
    of a result of several, were added by the same one."""
    named = {step.run.node: told[id(step.run)] for step in walk(run.steps) if step.run.node}
    made: dict[fx.Node, Row] = {}
    last: fx.Node | None = None
    for node in reversed(graph.nodes):
        if node.name in named:
            made[node], last = named[node.name], node
        elif (
            is_operation(node)
            and last is not None
            and node.meta.get("location") == last.meta.get("location")
        ):
            made[node] = made[last]
    for node in graph.nodes:
        if op_name(node) == "getitem" and node.args[0] in made:
            made.setdefault(node, made[node.args[0]])
    return made


def names_by_line(program: str) -> list[set[str]]:
    """For each line of a program the functions that it calls, the variables that it sets, and those that take a result."""
    found: list[set[str]] = [set() for _ in program.splitlines()]
    for node in ast.walk(ast.parse(program)):
        if isinstance(node, ast.Call):
            names = [
                node.func,
                *(keyword.value for keyword in node.keywords if keyword.arg == "out"),
            ]
            found[node.lineno - 1] |= {name.id for name in names if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found[node.lineno - 1].add(node.id)
    return found


__all__ = ["PANES", "Moment", "Pane", "Provenance", "Row"]
