"""What the explorer lists: panes, rows and moments, and the `Lists` that its readers fill.

In:  what a reader of events found (`capture_rows`, `autograd_rows`, `kernel_rows`).
Out: `Row`s by pane, and the `Moment`s in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from course_lib.viz.kit.style import plural
from course_lib.viz.pictures.graphs.fx_graphs import (
    constants_of,
    is_operation,
    op_name,
    source_of,
    type_of,
)

Sees = dict[type, Callable[[Any], None]]
"""What a reader does with each kind of event that it knows."""


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
    """One thing that a stage has: a line, an instruction, a node, a loop, a kernel."""

    pane: str
    text: str
    html: str = ""
    """The text with colours."""
    label: str = ""
    """What stands before the text: a line's number."""
    note: str = ""
    """What stands behind the text: a shape."""
    kind: str = ""
    """'head' for a heading; 'break', 'input', 'output', 'saved', 'backward', 'extern', 'group' or
    'library' for what is drawn in its own way."""
    depth: int = 1
    """A row is folded under the nearest row above it that has a smaller depth. A heading has 0."""
    at: int = 0
    """The number of the moment that made the row."""
    up: list[Row] = field(default_factory=list, repr=False)
    """The rows of earlier stages that this one came from."""
    of: Row | None = field(default=None, repr=False)
    """The row that this one stands for: the first line of a kernel stands for its group."""
    stack: tuple[list[str], list[str], list[str]] | None = field(default=None, repr=False)
    """For an instruction, the stack: what stayed, what was taken off, what was put on."""


@dataclass(frozen=True)
class Moment:
    """Something that happened: in which stage, and what, in words."""

    stage: str
    text: str


class Lists:
    """The rows and moments so far, and by event the rows that one reader has made and another one
    needs."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {pane: [] for pane in PANES}
        self.moments: list[Moment] = []

        self.lines: dict[tuple[str, int], Row] = {}
        """By file and number of the line."""
        self.nodes: dict[fx.Node, Row] = {}
        """By the node of a captured graph, of an ATen graph, or of its forward or backward half."""
        self.title = ""
        """The name of the graph that is being compiled."""

    @property
    def next_moment(self) -> int:
        """The number of the moment that comes next: a heading appears together with the first row
        below it."""
        return len(self.moments)

    def moment(self, stage: str, text: str) -> int:
        """Something happens now. Gives the moment's number."""
        self.moments.append(Moment(stage, text))
        return len(self.moments) - 1

    def add(self, pane: str, text: str, **more: Any) -> Row:
        """A new row at the end of a pane; `more` are fields of `Row`."""
        row = Row(pane, text, **more)
        self.rows[pane].append(row)
        return row

    def head(self, pane: str, text: str, note: str = "", **more: Any) -> Row:
        """A heading: all up to the next one is folded under it."""
        return self.add(pane, text, note=note, kind="head", depth=0, **more)

    def add_node(self, pane: str, node: fx.Node) -> Row:
        """A row for a node of a graph: 'add = add.Tensor(x, y)', with the type of its result."""
        if node.op == "output":
            row = self.add(pane, f"return {constants_of(node)}", kind="output")
        elif is_operation(node):
            call = f"{op_name(node).removeprefix('aten.')}({constants_of(node)})"
            row = self.add(pane, f"{node.name} = {call}", note=type_of(node))
        else:
            row = self.add(pane, source_of(node), note=type_of(node), kind="input")

        self.nodes[node] = row
        return row


def operations_in(graph: fx.Graph) -> str:
    """'7 operations'."""
    return plural(sum(map(is_operation, graph.nodes)), "operation")


__all__ = ["PANES", "Lists", "Moment", "Pane", "Row", "Sees", "operations_in"]
