"""The second half of the trace report: every compile in full, as a tree of functions and their
resume functions.

In:  the `Function`s of a run (`compile_tree.py`). Out: HTML, folded; what a compile is about stands
     in its title.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib import events
from course_lib.capture.of_data import told_of_data
from course_lib.sizes.decisions import KINDS, Decision
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
from course_lib.viz.report.compile_tree import Function
from course_lib.viz.report.compiles import Build, Compile, Program

OPEN_UP_TO = 3
"""With so many functions or fewer, they are unfolded."""


@dataclass
class Budget:
    """How many drawings a page may have: it should open at once, however much was compiled.

    bytes_left: for drawings and colours of code. What is drawn first may go beyond it."""

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
        source = source.rstrip()
        shown = f"<pre>{escape(source)}</pre>"
        if self.bytes_left > 0:
            shown = block(source, language)
            self.bytes_left -= len(shown)
        return f'<div class="cl-code" tabindex="0">{shown}</div>'


# ---- functions -----------------------------------------------------------------------------------


def tree(recording: Recording, functions: list[Function], budget: Budget) -> str:
    """All functions."""
    opened = len(functions) <= OPEN_UP_TO
    return "".join(function_html(recording, function, budget, opened) for function in functions)


def function_html(recording: Recording, function: Function, budget: Budget, opened: bool) -> str:
    """A function, its compiles, and its resume functions below."""
    at = ""
    if function.where:
        at = place(*split(function.where))
    title = f"<b>{escape(function.title)}</b> <span class='cl-dim'>{escape(at)}</span> "
    title += f"{plural(len(function.compiles), 'compile')}, {human_seconds(function.total_seconds)}"

    parts = [compile_html(recording, compile, budget) for compile in function.compiles]
    parts += [function_html(recording, below, budget, opened=True) for below in function.below]
    return fold(title, "".join(parts), opened, "cl-fn")


def split(where: str) -> tuple[str, int | None]:
    """'/a/b.py:12' → ('/a/b.py', 12); None for a place without a line."""
    filename, _, line = where.rpartition(":")
    if line.isdigit():
        return (filename, int(line))
    return (where, None)


def fold(title: str, inner: str, opened: bool = False, kind: str = "") -> str:
    """Something to unfold; `title` and `inner` are HTML, `kind` a class of css/report.css."""
    attributes = f' class="{kind}"' if kind else ""
    if opened:
        attributes += " open"
    body = f"<div class='cl-inside'>{inner}</div>"
    return f"<details{attributes}><summary>{title}</summary>{body}</details>"


# ---- one compile ---------------------------------------------------------------------------------


def compile_html(recording: Recording, compile: Compile, budget: Budget) -> str:
    """One compile in full."""
    title = f"{mark_of(compile)} compile {compile.number}: {escape(compile.reason)} → "
    title += f"{escape(compile.outcome)}, {human_seconds(compile.total_seconds)}"
    stages = " · ".join(
        f"{stage} {human_seconds(duration)}" for stage, duration in compile.seconds.items()
    )

    # Why it was compiled
    parts = [f'<p id="c{compile.number}" class="cl-dim">{escape(stages)}</p>']
    if compile.why_by_itself:
        parts.append(f"<p>{escape(compile.why_by_itself)}.</p>")
    if compile.failures:
        failed = "".join(f"<li>{escape(told(failure))}</li>" for failure in compile.failures)
        parts.append("<p>Guards of the entries that were there and did not hold:</p>")
        parts.append(f"<ol>{failed}</ol>")

    # What came of it
    parts += [card_of(recording, problem).embedded for problem in compile.problems]
    if compile.in_eager:
        parts.append(why_not_compiled(compile.in_eager))
    if compile.result is not None:
        parts += captured_html(compile.result, budget)
    for number, build in enumerate(compile.builds):
        parts += build_html(compile, build, number, budget)
    return fold(title, "".join(parts))


def mark_of(compile: Compile) -> str:
    """✂ for a compile with a graph break, ◆ for one that made one more entry."""
    if compile.problems:
        return "✂"
    return "◆" if compile.is_recompile else "·"


def why_not_compiled(sentence: str) -> str:
    """Why something runs otherwise than compiled."""
    return f"<div class='cl-torn'>{escape(sentence)}</div>"


def captured_html(result: Any, budget: Budget) -> list[str]:
    """What capture gave: the graph, the guards, the head."""
    graph = budget.code(result.graph.code.strip(), "python")
    drawing = budget.draw(lambda: fx_graph(result.graph, result.name, "capture"))
    guards = guard_table(result.guards, title=result.name)
    of_data = told_of_data(result.graph.graph)
    sizes = "<br>".join(f"<code>{escape(line)}</code>" for line in of_data)
    return [
        fold(f"the captured graph: {plural(result.operations, 'operation')}", graph + drawing),
        fold(plural(len(result.guards), "guard"), guards.embedded),
        *([fold("what only the data says", sizes)] if of_data else []),
        fold("the head: what runs in the frame's place", budget.code(result.head.source, "python")),
    ]


def build_html(compile: Compile, build: Build, number: int, budget: Budget) -> list[str]:
    """What the back half made of the graph."""
    parts = []
    if len(compile.builds) > 1:
        sizes = f"<span class='cl-dim'>{escape(sizes_of(build))}</span>"
        parts.append(f"<p><b>Built for sizes {number + 1}</b> {sizes}</p>")
    parts += in_all_sizes(build)
    if build.fell_back:
        parts.append(why_not_compiled(f"The graph runs operation by operation: {build.fell_back}"))

    if build.partition is not None:
        partition, signature = build.partition, build.joint.meta.get("signature")
        drawing = budget.draw(lambda: joint_graph(partition, signature))
        inner = f"<p>{escape(partition)}</p>{drawing}"
        parts.append(fold("forward and backward, and what is kept between them", inner))
    parts += [program_html(compile, program, budget) for program in build.programs]
    return parts


def in_all_sizes(build: Build) -> list[str]:
    """What became of symbolic sizes: what each is in the recorded call, and what had to be asked
    about them."""
    if build.why_numbers:
        return [f"<p>A program for each set of sizes: {escape(build.why_numbers)}.</p>"]
    if build.sizes is None:
        return []

    now = ", ".join(f"{symbol} = {number}" for symbol, number in build.sizes.hints.items())
    paragraphs = [f"<p>One program for all sizes. In the recorded call {escape(now)}.</p>"]
    if build.sizes.asked:
        answers = "; ".join(build.sizes.asked)
        paragraphs.append(
            f"<p>Guarded, since it must be right: <code>{escape(answers)}</code>.</p>"
        )
    decisions = build.sizes.decisions
    if decisions:
        paragraphs.append(
            fold(f"{plural(len(decisions), 'decision')} about sizes", decided(decisions))
        )
    return paragraphs


def decided(decisions: Sequence[Decision]) -> str:
    """The decisions about sizes, by kind: the question, the answer, and which function of the
    compiler asked."""
    lines = []
    for kind, meaning in KINDS.items():
        rows = [each for each in decisions if each.kind == kind]
        if rows:
            lines.append(f"{kind} ({meaning}):")
            lines += [f"  {str(each).removeprefix(kind + ': ')}" for each in rows]
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def sizes_of(build: Build, most: int = 6) -> str:
    """The shapes of a build's first inputs, and the values of those that are numbers."""
    if build.traced is None:
        return ""

    texts = []
    for node in build.traced.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if hasattr(value, "shape"):
            texts.append(str(list(value.shape)))
        elif isinstance(value, (int, float)):
            texts.append(f"{value:.4g}")
    more = "…" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


# ---- one ATen graph ------------------------------------------------------------------------------


def program_html(compile: Compile, program: Program, budget: Budget) -> str:
    """One ATen graph on its way to kernels."""
    aten, schedule = program.aten, program.schedule
    count = sum(node.op == "call_function" for node in aten.graph.nodes)
    title = f"{program.part}: {plural(count, 'operator')}"
    if schedule is not None:
        title += f" → {plural(len(schedule.kernels), 'kernel')}"
        title += f", {human_bytes(schedule.bytes_after)} through memory"
        title += f" instead of {human_bytes(schedule.bytes_before)}"

    parts = [fold(f"{count} ATen operators", budget.code(aten.code.strip(), "python"))]
    if schedule is not None:
        parts.append(fusion_html(program, budget))
    if program.plan is not None:
        parts.append(memory_html(program, budget))
    if program.measured:
        parts.append(measured_html(program))
    if program.compiled is not None:
        parts.append(kernels_html(compile, program, budget))
    return fold(escape(title), "".join(parts), opened=len(compile.programs) == 1)


def fusion_html(program: Program, budget: Budget) -> str:
    """The loops before and after, and every decision."""
    rows = []
    for decision in program.schedule.decisions:
        rows.append(tuple(map(escape, (decision.producer, decision.consumer, decision.answer))))
    table = "<p>There was nothing to decide.</p>"
    if rows:
        table = html_table(rows, ("first", "second", "decision"))

    drawing = budget.draw(lambda: fusion_of(program.schedule, program.loops))
    decisions = fold(plural(len(rows), "decision"), table)
    return fold("fusion: what runs together, and why the rest does not", drawing + decisions)


def memory_html(program: Program, budget: Budget) -> str:
    """What lies in memory when."""
    use = MemoryUse(program.schedule, program.plan)
    title = f"memory: peak {human_bytes(use.peak_bytes)}"
    title += f", {human_bytes(use.unplanned_peak)} if each operation ran alone"
    return fold(escape(title), budget.draw(lambda: use.picture))


def measured_html(program: Program) -> str:
    """What was tried for which kernel, and how long each took."""
    rows = []
    for measurement in program.measured:
        rows.append(
            tuple(map(escape, (measurement.kernel, measurement.choice, costs(measurement))))
        )
    return fold("chosen by measuring", html_table(rows, ("kernel", "chosen", "measured")))


def costs(measured: events.Autotuned) -> str:
    """'library 12 µs, at most 4.0 MB; template 8 µs, at most 4.0 MB'."""
    texts = []
    for name, duration in measured.seconds.items():
        cost = f"{name} {human_seconds(duration)}"
        if name in measured.peak_bytes:
            cost += f", at most {human_bytes(measured.peak_bytes[name])} held"
        texts.append(cost)
    return "; ".join(texts) or "not measured"


def kernels_html(compile: Compile, program: Program, budget: Budget) -> str:
    """Everything that was generated."""
    compiled = program.compiled
    wrapper = budget.code(compiled.wrapper_source, "python")
    parts = [fold("the wrapper: allocates, calls kernels and library", wrapper)]

    for kernel, source in zip(program.schedule.printed, compiled.kernels, strict=False):
        code = budget.code(source.source, source.language)
        inner = f'<div id="{anchor(compile, program, kernel)}">{code}</div>'
        title = f"<code>{escape(source.name)}</code> <span class='cl-dim'>{escape(kernel)}</span>"
        parts.append(fold(title, inner))

    found_on_disk = " (found on disk)" if compiled.cached else ""
    return fold(
        f"code: {plural(len(compiled.kernels), 'generated kernel')}{found_on_disk}", "".join(parts)
    )


def anchor(compile: Compile, program: Program, kernel: Any) -> str:
    """The id of a kernel's code on the page."""
    part = compile.programs.index(program)
    number = program.schedule.kernels.index(kernel)
    return f"k{compile.number}-{part}-{number}"
