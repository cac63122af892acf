"""Step through a capture: the source line, the instruction, the stack, and the FX graph as it grows.

In:  a `Recording`. Out: `Stepper`, shown as a widget where widgets live, and as a table everywhere else.

All steps are sent to the browser once; moving the slider asks nothing of the kernel, so nothing hangs when there is none. What stays in
a saved notebook is the static table. Keys: ← and → one step, Page Up and Down ten, Home and End.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from course_lib import events
from course_lib.viz.bytecode import FrameRun, Step, bytecode_table, find_run, source_line, walk
from course_lib.viz.graphs import is_operation, op_name, source_of, type_of
from course_lib.viz.style import CSS, MONO, Picture, ink, place, plural, short_types, tint

SCRIPT = Path(__file__).with_name("stepper.js")
LOOK = f"""{CSS}
.cl-step {{ font-size: 13px; max-width: 1000px; padding: 4px; }}
.cl-step .cl-bar {{ display: flex; gap: 6px; align-items: center; flex-wrap: wrap; }}
.cl-step .cl-bar input {{ flex: 1; min-width: 180px; accent-color: #0072B2; }}
.cl-step button {{ font: inherit; color: inherit; background: {tint("capture", 0.12)}; border: 1px solid color-mix(in srgb, currentColor 35%, transparent); border-radius: 5px; padding: 3px 10px; cursor: pointer; }}
.cl-step button:disabled {{ opacity: .4; cursor: default; }}
.cl-step :is(button, input):focus-visible {{ outline: 2px solid {ink("capture", 80)}; outline-offset: 2px; }}
.cl-step .cl-count {{ min-width: 7.5em; text-align: right; font-variant-numeric: tabular-nums; }}
.cl-step .cl-panes {{ display: grid; grid-template-columns: minmax(0, 1.05fr) minmax(0, 1fr); gap: 14px; margin-top: 10px; }}
.cl-step h4 {{ margin: 0 0 4px; font-size: 12px; font-weight: 600; opacity: .8; color: inherit; }}
.cl-step .cl-pane {{ border: 1px solid color-mix(in srgb, currentColor 18%, transparent); border-radius: 6px; padding: 8px 10px; overflow: auto; min-width: 0; }}
.cl-step .cl-line {{ white-space: pre; font: 12.5px/1.55 {MONO}; padding: 0 6px; border-left: 3px solid transparent; min-width: max-content; }}
.cl-step .cl-line.cl-now {{ background: {tint("codegen", 0.35)}; border-left-color: {ink("codegen", 80)}; }}
.cl-step .cl-line i {{ font-style: normal; opacity: .75; display: inline-block; width: 3em; }}
.cl-step .cl-ins {{ font: 600 14px/1.5 {MONO}; overflow-wrap: anywhere; }}
.cl-step .cl-stack {{ display: flex; flex-wrap: wrap; align-items: flex-end; gap: 4px; min-height: 40px; margin-top: 4px; padding-bottom: 4px; border-bottom: 3px solid color-mix(in srgb, currentColor 40%, transparent); }}
.cl-step .cl-val {{ font: 12px/1.4 {MONO}; border: 1.5px solid color-mix(in srgb, currentColor 35%, transparent); border-radius: 4px; padding: 5px 8px; overflow-wrap: anywhere; }}
.cl-step .cl-val.cl-put {{ border-color: {ink("capture", 80)}; background: {tint("capture", 0.2)}; }}
.cl-step .cl-val.cl-gone {{ border-style: dashed; opacity: .75; }}
.cl-step .cl-node {{ font: 12px/1.4 {MONO}; border: 1.5px solid {ink("capture", 80)}; border-radius: 10px; padding: 3px 10px; margin: 0 0 5px; background: {tint("capture", 0.1)}; overflow-wrap: anywhere; }}
.cl-step .cl-node.cl-fresh {{ border-width: 3px; background: {tint("capture", 0.32)}; font-weight: 600; }}
.cl-step .cl-node.cl-input {{ border-color: {ink("runtime", 80)}; background: {tint("runtime", 0.1)}; }}
.cl-step .cl-calls {{ opacity: .8; margin-bottom: 4px; }}
"""


class Stepper:
    """A capture, one instruction at a time. `picture` is the static form, `widget` the live one (an `anywidget`, made on first use)."""

    def __init__(self, recording: events.Recording, function: str | int | Callable[..., Any] | None = None) -> None:
        self.run = find_run(recording, function)
        self.table = bytecode_table(recording, function)

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees."""
        caption = f"{self.table.caption} (Run the cell for a slider that steps through it.)"
        return Picture(self.table.body, caption, self.table.alt, self.table.text, self.table.css)

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Each instruction as plain data, in the order in which the interpreter met them."""
        return [step_data(step) for step in walk(self.run.steps)]

    @property
    def nodes(self) -> list[dict[str, str]]:
        """The graph's inputs and operations, in the order of the graph, with the step that made each."""
        return node_data(self.run)

    @cached_property
    def widget(self) -> Any:
        """The live form. Raises ImportError without `anywidget`."""
        import anywidget
        import traitlets

        class StepperWidget(anywidget.AnyWidget):
            """Everything happens in stepper.js."""

            _esm = SCRIPT.read_text(encoding="utf-8")
            _css = LOOK
            steps = traitlets.List().tag(sync=True)
            nodes = traitlets.List().tag(sync=True)
            sources = traitlets.Dict().tag(sync=True)
            title = traitlets.Unicode().tag(sync=True)
            problem = traitlets.Unicode().tag(sync=True)
            index = traitlets.Int(0).tag(sync=True)

        steps = self.steps
        problem = f"capture stops here: {self.run.problem.reason}" if self.run.problem else ""
        title = f"{self.run.name}: {plural(len(steps), 'instruction')}"
        return StepperWidget(steps=steps, nodes=self.nodes, sources=sources(self.run), title=title, problem=problem)

    def __repr__(self) -> str:
        return self.table.text

    def save(self, path: Any) -> Path:
        """Write the static form to a file; see `Picture.save`."""
        return self.picture.save(path)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """The widget where there are widgets; the table in any case."""
        static = self.picture._repr_mimebundle_()
        try:
            live = self.widget._repr_mimebundle_(include=include, exclude=exclude)
        except ImportError:
            return static
        data, metadata = live if isinstance(live, tuple) else (live, {})
        return {**(data or {}), **static}, metadata or {}


def step_data(step: Step) -> dict[str, Any]:
    """One instruction for the browser."""
    run = step.run
    stays, off, on = step.change
    return {
        "op": run.op, "arg": run.arg if len(run.arg) <= 80 else run.arg[:77] + "…", "offset": run.offset, "function": run.function,
        "line": run.line, "place": place(run.filename, run.line), "source": f"{run.function} {place(run.filename)}", "text": source_line(run),
        "depth": run.depth, "stays": stays, "off": off, "on": on, "node": run.node, "inside": step.count - 1,
    }  # fmt: skip


def node_data(run: FrameRun) -> list[dict[str, str]]:
    """The nodes for the browser; without a finished graph, what the instructions say."""
    if run.graph is None:
        named = [step.run for step in walk(run.steps) if step.run.node]
        return [{"name": one.node, "text": f"{one.node} = {one.op} {one.arg}", "kind": "", "result": short_types(one.after[-1]) if one.after else ""} for one in named]
    found = []
    for node in run.graph.graph.nodes:
        if node.op == "placeholder":
            found.append({"name": node.name, "text": source_of(node), "kind": "input", "result": type_of(node)})
        elif is_operation(node):
            reads = ", ".join(source.name for source in node.all_input_nodes)
            found.append({"name": node.name, "text": f"{node.name} = {op_name(node)}({reads})", "kind": "", "result": type_of(node)})
    return found


def sources(run: FrameRun) -> dict[str, list[tuple[int, str]]]:
    """Function → its source lines with their numbers, for every function that was followed."""
    found: dict[str, list[tuple[int, str]]] = {}
    spans: dict[str, tuple[str, int, int]] = {}
    for step in walk(run.steps):
        key = f"{step.run.function} {place(step.run.filename)}"
        filename, first, last = spans.get(key, (step.run.filename, step.run.line, step.run.line))
        spans[key] = filename, min(first, step.run.line), max(last, step.run.line)
    for key, (filename, first, last) in spans.items():
        lines = linecache.getlines(filename)
        first, last = whole_function(lines, key.split(" ")[0].split(".")[-1], first, last)
        shown = lines[first - 1 : last]
        indent = min((len(line) - len(line.lstrip()) for line in shown if line.strip()), default=0)
        found[key] = [(first + i, line.rstrip()[indent:]) for i, line in enumerate(shown)]
    return found


def whole_function(lines: list[str], name: str, first: int, last: int) -> tuple[int, int]:
    """The first and last line of the `def` that holds lines `first` to `last`; those two if there is none (a lambda)."""
    for start in range(first, 0, -1):
        if start <= len(lines) and re.match(rf"\s*(async\s+)?def {re.escape(name)}\b", lines[start - 1]):
            try:
                return start, max(last, start + len(inspect.getblock(lines[start - 1 :])) - 1)
            except (SyntaxError, IndentationError):
                return start, last
    return first, last
