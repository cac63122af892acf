"""The second half of the trace report: every compile in full, as a tree of functions and their resume functions.

In:  the `Function`s of a run (`compile_tree.py`). Out: HTML, folded; what a compile is about stands in its title.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.viz.kit.highlight import block
from course_lib.viz.kit.style import Picture, escape, human_bytes, human_seconds, place, plural
from course_lib.viz.kit.tables import html_table
from course_lib.viz.pictures.autograd.joint_graph import joint_graph
from course_lib.viz.pictures.capture.break_card import card_of
from course_lib.viz.pictures.graphs.fx_graphs import fx_graph
from course_lib.viz.pictures.guards.guard_tables import guard_table, told
from course_lib.viz.pictures.scheduling.fused_loops import fusion_of
from course_lib.viz.pictures.scheduling.memory_timeline import MemoryUse
from course_lib.viz.recording import Recording
from course_lib.viz.report.compile_tree import Build, Compile, Function, Program

OPEN_UP_TO = 3
"""With so many functions or fewer, they are unfolded."""


@dataclass
class Budget:
    """How many drawings a page may have: it should open at once, however much was compiled."""

    drawings: bool = True
    bytes_left: int = 4_000_000

    def draw(self, make: Callable[[], Picture]) -> str:
        """A picture, while there is room; then a sentence."""
        if not self.drawings:
            return ""
        if self.bytes_left < 0:
            return '<p class="cl-dim">Not drawn: the page is large already. Record a smaller part with cl.record() to see it.</p>'
        drawn = make().embedded
        self.bytes_left -= len(drawn)
        return drawn

    def code(self, source: str, language: str) -> str:
        """Source with colours, while there is room; then without."""
        coloured = self.bytes_left > 0
        shown = (
            block(source.rstrip(), language)
            if coloured
            else f"<pre>{escape(source.rstrip())}</pre>"
        )
        self.bytes_left -= len(shown) if coloured else 0
        return f'<div class="cl-code" tabindex="0">{shown}</div>'


def tree(recording: Recording, functions: list[Function], budget: Budget) -> str:
    """All functions."""
    return "".join(
        function_html(recording, function, budget, len(functions) <= OPEN_UP_TO)
        for function in functions
    )


def function_html(recording: Recording, function: Function, budget: Budget, opened: bool) -> str:
    """A function, its compiles, and its resume functions below."""
    at = place(*split(function.where)) if function.where else ""
    title = f"<b>{escape(function.title)}</b> <span class='cl-dim'>{escape(at)}</span> "
    title += f"{plural(len(function.compiles), 'compile')}, {human_seconds(function.took)}"
    inner = "".join(compile_html(recording, compile, budget) for compile in function.compiles)
    inner += "".join(function_html(recording, below, budget, True) for below in function.below)
    return fold(title, inner, opened, "cl-fn")


def split(where: str) -> tuple[str, int | None]:
    """'/a/b.py:12' → ('/a/b.py', 12)."""
    filename, _, line = where.rpartition(":")
    return (filename, int(line)) if line.isdigit() else (where, None)


def fold(title: str, inner: str, opened: bool = False, kind: str = "") -> str:
    """Something to unfold; `title` and `inner` are HTML."""
    kind = f' class="{kind}"' if kind else ""
    return f"<details{kind}{' open' if opened else ''}><summary>{title}</summary><div class='cl-inside'>{inner}</div></details>"


def compile_html(recording: Recording, compile: Compile, budget: Budget) -> str:
    """One compile in full."""
    mark = "✂" if compile.problems else "◆" if compile.is_recompile else "·"
    title = f"{mark} compile {compile.number}: {escape(compile.reason)} → {escape(compile.outcome)}, {human_seconds(compile.took)}"
    stages = " · ".join(f"{stage} {human_seconds(took)}" for stage, took in compile.seconds.items())
    parts = [f'<p id="c{compile.number}" class="cl-dim">{escape(stages)}</p>']
    if compile.by_itself:
        parts.append(f"<p>{escape(compile.by_itself)}.</p>")
    if compile.failures:
        failed = "".join(f"<li>{escape(told(failure))}</li>" for failure in compile.failures)
        parts.append(
            f"<p>Guards of the entries that were there and did not hold:</p><ol>{failed}</ol>"
        )
    parts += [card_of(recording, problem).embedded for problem in compile.problems]
    if compile.in_eager:
        parts.append(f"<div class='cl-torn'>{escape(compile.in_eager)}</div>")
    if compile.result is not None:
        parts += captured_html(compile.result, budget)
    for number, build in enumerate(compile.builds):
        parts += build_html(compile, build, number, budget)
    return fold(title, "".join(parts))


def captured_html(result: Any, budget: Budget) -> list[str]:
    """What capture gave: the graph, the guards, the head."""
    graph = budget.code(result.graph.code.strip(), "python")
    drawing = budget.draw(lambda: fx_graph(result.graph, result.name, "capture"))
    guards = guard_table(result.guards, title=result.name)
    return [
        fold(f"the captured graph: {plural(result.operations, 'operation')}", graph + drawing),
        fold(plural(len(result.guards), "guard"), guards.embedded),
        fold("the head: what runs in the frame's place", budget.code(result.head.source, "python")),
    ]


def build_html(compile: Compile, build: Build, number: int, budget: Budget) -> list[str]:
    """What the back half made of the graph."""
    parts = []
    if len(compile.builds) > 1:
        parts.append(
            f"<p><b>Built for sizes {number + 1}</b> <span class='cl-dim'>{escape(sizes_of(build))}</span></p>"
        )
    if build.fell_back:
        parts.append(
            f"<div class='cl-torn'>The graph runs operation by operation: {escape(build.fell_back)}</div>"
        )
    if build.partition is not None:
        partition, signature = build.partition, build.joint.meta.get("signature")
        inner = f"<p>{escape(partition)}</p>" + budget.draw(
            lambda: joint_graph(partition, signature)
        )
        parts.append(fold("forward and backward, and what is kept between them", inner))
    for program in build.programs:
        parts.append(program_html(compile, program, budget))
    return parts


def sizes_of(build: Build) -> str:
    """The shapes of a build's inputs, and those that are numbers."""
    graph = (
        build.joint
        if build.joint is not None
        else build.programs[0].aten
        if build.programs
        else None
    )
    values = (
        [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
        if graph is not None
        else []
    )
    shapes = [
        str(list(v.shape)) if hasattr(v, "shape") else f"{v:.4g}"
        for v in values
        if hasattr(v, "shape") or isinstance(v, (int, float))
    ]
    return ", ".join(shapes[:6]) + ("…" if len(shapes) > 6 else "")


def program_html(compile: Compile, program: Program, budget: Budget) -> str:
    """One ATen graph on its way to kernels."""
    aten = program.aten
    count = sum(node.op == "call_function" for node in aten.graph.nodes)
    parts = [fold(f"{count} ATen operators", budget.code(aten.code.strip(), "python"))]
    title = f"{program.part}: {plural(count, 'operator')}"
    if program.schedule is not None:
        schedule = program.schedule
        title += f" → {plural(len(schedule.kernels), 'kernel')}, {human_bytes(schedule.bytes_after)} through memory"
        title += f" instead of {human_bytes(schedule.bytes_before)}"
        parts.append(
            fold(
                "fusion: what runs together, and why the rest does not",
                fusion_html(program, budget),
            )
        )
    if program.plan is not None:
        use = MemoryUse(program.schedule, program.plan)
        text = f"memory: peak {human_bytes(use.peak_bytes)}, {human_bytes(use.unplanned_peak)} if each operation ran alone"
        parts.append(fold(escape(text), budget.draw(lambda: use.picture)))
    if program.measured:
        rows = [
            (escape(p.kernel), escape(p.choice), escape(timings(p.seconds)))
            for p in program.measured
        ]
        parts.append(
            fold("chosen by measuring", html_table(rows, ("kernel", "chosen", "measured")))
        )
    if program.compiled is not None:
        parts.append(kernels_html(compile, program, budget))
    return fold(escape(title), "".join(parts), len(compile.programs) == 1)


def timings(seconds: dict[str, float]) -> str:
    return (
        ", ".join(f"{name} {human_seconds(took)}" for name, took in seconds.items())
        or "not measured"
    )


def fusion_html(program: Program, budget: Budget) -> str:
    decisions = program.schedule.decisions
    rows = [(escape(d.producer), escape(d.consumer), escape(d.answer)) for d in decisions]
    table = (
        html_table(rows, ("first", "second", "decision"))
        if rows
        else "<p>There was nothing to decide.</p>"
    )
    return budget.draw(lambda: fusion_of(program.schedule, program.loops)) + fold(
        plural(len(rows), "decision"), table
    )


def kernels_html(compile: Compile, program: Program, budget: Budget) -> str:
    """Everything that was generated."""
    compiled = program.compiled
    parts = [
        fold(
            "the wrapper: allocates, calls kernels and library",
            budget.code(compiled.wrapper_source, "python"),
        )
    ]
    for kernel, source in zip(program.schedule.fused, compiled.kernels, strict=False):
        inner = f'<div id="{anchor(compile, program, kernel)}">{budget.code(source.source, source.language)}</div>'
        parts.append(
            fold(
                f"<code>{escape(source.name)}</code> <span class='cl-dim'>{escape(kernel)}</span>",
                inner,
            )
        )
    found = " (found on disk)" if compiled.cached else ""
    return fold(f"code: {plural(len(compiled.kernels), 'generated kernel')}{found}", "".join(parts))


def anchor(compile: Compile, program: Program, kernel: Any) -> str:
    """The id of a kernel's code on the page."""
    return f"k{compile.number}-{compile.programs.index(program)}-{program.schedule.kernels.index(kernel)}"
