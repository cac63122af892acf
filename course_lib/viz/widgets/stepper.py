"""Step through a capture: the source line, the instruction, the stack, and the FX graph as it
grows.

In:  a `Recording`. Out: `Stepper`, shown as a widget where widgets live, and as a table everywhere
     else.

All steps are sent to the browser once; moving the slider asks nothing of the kernel, so nothing
hangs when there is none. What stays in a saved notebook is the static table. Keys: ← and → one
step, Home and End.
"""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from course_lib.events import InstructionRun
from course_lib.viz.kit.style import Picture, place, plural, short_types
from course_lib.viz.pictures.capture.bytecode_table import (
    FrameRun,
    Step,
    bytecode_table,
    find_run,
    plain_arg,
    source_line,
    walk,
)
from course_lib.viz.pictures.graphs.fx_graphs import is_operation, op_name, source_of, type_of
from course_lib.viz.recording import Recording
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("stepper.js")
ARGUMENT_LETTERS = 80
"""A longer argument of an instruction is cut."""


class Stepper(Live):
    """A capture, one instruction at a time.

    `picture` is the static form, `widget` the live one (an `anywidget`, made when it is first
    wanted)."""

    def __init__(
        self, recording: Recording, function: str | int | Callable[..., Any] | None = None
    ) -> None:
        self.run = find_run(recording, function)
        self.table = bytecode_table(recording, function)

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees."""
        caption = f"{self.table.caption} (Run the cell for a slider that steps through it.)"
        return Picture(
            self.table.body, caption, self.table.alt, self.table.text, sheets=self.table.sheets
        )

    @property
    def steps(self) -> list[dict[str, Any]]:
        """Each instruction as plain data, in the order in which the interpreter met them."""
        return [step_data(step) for step in walk(self.run.steps)]

    @property
    def nodes(self) -> list[dict[str, str]]:
        """The graph's inputs and operations, in the order of the graph, with the step that made
        each."""
        return node_data(self.run)

    @cached_property
    def widget(self) -> Any:
        """The live form. Raises ImportError without `anywidget`."""
        import traitlets

        base: Any = widget_class(SCRIPT, "stepper", "break")

        class StepperWidget(base):
            """Everything happens in stepper.js."""

            steps: Any = traitlets.List().tag(sync=True)
            nodes: Any = traitlets.List().tag(sync=True)
            sources = traitlets.Dict().tag(sync=True)
            title = traitlets.Unicode().tag(sync=True)
            problem = traitlets.Unicode().tag(sync=True)
            index = traitlets.Int(0).tag(sync=True)

        steps = self.steps
        problem = ""
        if self.run.problem:
            problem = f"{self.run.ending}: {self.run.problem.reason}"
        title = f"{self.run.name}: {plural(len(steps), 'instruction')}"
        return StepperWidget(
            steps=steps, nodes=self.nodes, sources=sources(self.run), title=title, problem=problem
        )

    def __repr__(self) -> str:
        return self.table.text

    def save(self, path: Any) -> Path:
        """Write the static form to a file; see `Picture.save`."""
        return self.picture.save(path)


def step_data(step: Step) -> dict[str, Any]:
    """One instruction for the browser.

    "source" is its function's key in `sources`; "inside", how many instructions it called; "stays",
    "off" and "on" are what became of the stack."""
    run = step.run
    stays, off, on = step.change
    arg = plain_arg(run.arg)
    return {
        "op": run.op,
        "arg": arg if len(arg) <= ARGUMENT_LETTERS else arg[: ARGUMENT_LETTERS - 3] + "…",
        "offset": run.offset,
        "node": run.node,
        "function": run.function,
        "line": run.line,
        "text": source_line(run),
        "place": place(run.filename, run.line),
        "source": f"{run.function} {place(run.filename)}",
        "depth": run.depth,
        "inside": step.count - 1,
        "stays": stays,
        "off": off,
        "on": on,
    }


def node_data(run: FrameRun) -> list[dict[str, str]]:
    """The nodes for the browser; without a finished graph, what the instructions say."""
    if run.graph is None:
        return [step_node(step.run) for step in walk(run.steps) if step.run.node]

    boxes = []
    for node in run.graph.graph.nodes:
        if node.op == "placeholder":
            boxes.append(box(node.name, source_of(node), type_of(node), kind="input"))
        elif is_operation(node):
            reads = ", ".join(source.name for source in node.all_input_nodes)
            call = f"{node.name} = {op_name(node)}({reads})"
            boxes.append(box(node.name, call, type_of(node)))
    return boxes


def step_node(run: InstructionRun) -> dict[str, str]:
    """The node that an instruction added, as far as the instruction tells of it."""
    result = ""
    if run.after:
        result = short_types(run.after[-1])
    return box(run.node, f"{run.node} = {run.op} {run.arg}", result)


def box(name: str, text: str, result: str, kind: str = "") -> dict[str, str]:
    """A node for the browser: kind is "input", or "" for an operation."""
    return {"name": name, "text": text, "kind": kind, "result": result}


def sources(run: FrameRun) -> dict[str, list[tuple[int, str]]]:
    """Function (its name and file: 'f model.py') → its source lines with their numbers, for every
    function that was followed."""
    filenames: dict[str, str] = {}
    lines: dict[str, list[int]] = {}
    for step in walk(run.steps):
        key = f"{step.run.function} {place(step.run.filename)}"
        filenames.setdefault(key, step.run.filename)
        lines.setdefault(key, []).append(step.run.line)

    lines_of_function: dict[str, list[tuple[int, str]]] = {}
    for key, filename in filenames.items():
        function = key.split(" ")[0]
        lines_of_function[key] = function_lines(
            filename, function, min(lines[key]), max(lines[key])
        )
    return lines_of_function


def function_lines(filename: str, function: str, first: int, last: int) -> list[tuple[int, str]]:
    """The lines of the function that holds lines `first` to `last`, with their numbers; these lines
    at least."""
    lines = linecache.getlines(filename)
    first, last = whole_function(lines, function.split(".")[-1], first, last)
    shown = lines[first - 1 : last]
    indent = min((len(line) - len(line.lstrip()) for line in shown if line.strip()), default=0)
    return [(first + i, line.rstrip()[indent:]) for i, line in enumerate(shown)]


def whole_function(lines: list[str], name: str, first: int, last: int) -> tuple[int, int]:
    """The first and last line of the `def` that holds lines `first` to `last`; those two if there
    is none (a lambda)."""
    begins = re.compile(rf"\s*(async\s+)?def {re.escape(name)}\b")
    # Up from the first line to the nearest `def` of that name
    for start in range(min(first, len(lines)), 0, -1):
        if not begins.match(lines[start - 1]):
            continue
        try:
            block = inspect.getblock(lines[start - 1 :])
        except (SyntaxError, IndentationError):
            return start, last
        return start, max(last, start + len(block) - 1)
    return first, last
