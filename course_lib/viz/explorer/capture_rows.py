"""Rows of the lists "Python", "Bytecode" and "FX graph".

In:  the frames of a recording (`bytecode_table.frame_runs`), and its events of capture in their
     order.
Out: lines of the program, instructions below their calls, and captured nodes.

An instruction came from its line and from the call that it is in; a node came from its instruction.
"""

from __future__ import annotations

from torch import fx

from course_lib import events
from course_lib.capture.sources import Location
from course_lib.viz.explorer.rows import Lists, Row, Sees, operations_in
from course_lib.viz.kit.highlight import highlighted
from course_lib.viz.kit.style import place, plural
from course_lib.viz.kit.user_lines import as_written
from course_lib.viz.pictures.capture.bytecode_table import FrameRun, Step, plain_arg, walk
from course_lib.viz.pictures.graphs.fx_graphs import is_operation, op_name, written_at
from course_lib.viz.widgets.stepper import function_lines, sources


class CaptureRows:
    """Adds what the frame hook and capture did."""

    def __init__(self, lists: Lists, frames: list[FrameRun]) -> None:
        self.lists = lists
        self.frames = frames
        self.row_of_run: dict[int, Row] = {}
        """By the `id` of an `InstructionRun` (the recording keeps these alive)."""
        self.graphs: list[fx.Graph] = []
        """The graphs as they were captured, in order."""
        self.sees: Sees = {
            events.FrameSeen: self.frame_seen,
            events.InstructionRun: self.instruction_run,
            events.GraphBroke: self.graph_broke,
            events.GraphCaptured: self.graph_captured,
        }

    # ---- before the events: every frame with its lines and its instructions ----------------------

    def add_frames(self) -> None:
        for run in self.frames:
            self.add_functions(run)
            self.lists.head("bytecode", run.name, plural(run.count, "instruction"))
            self.add_steps(run.steps, depth=1, call=None)
            if run.problem:
                self.lists.add("bytecode", f"✂ {run.problem.reason}", kind="break")

    def add_functions(self, run: FrameRun) -> None:
        """The functions that were followed, each once."""
        # "function file:", as `sources` calls them → the whole name of the file
        file_of_key = {}
        for step in walk(run.steps):
            filename = step.run.filename
            file_of_key[f"{step.run.function} {place(filename)}"] = filename

        for key, numbered in sources(run).items():
            file = file_of_key[key]
            are_listed = all((file, number) in self.lists.lines for number, _ in numbered)
            if not are_listed:
                self.add_function(file, key.split(" ")[0], numbered)

    def add_function(self, file: str, function: str, numbered: list[tuple[int, str]]) -> None:
        """The lines of a function, with their numbers."""
        self.lists.head("source", function, place(file))

        coloured = highlighted("\n".join(text for _, text in numbered), "python")
        for (number, text), html in zip(numbered, coloured, strict=True):
            row = self.lists.add("source", text, html=html, label=str(number))
            self.lists.lines.setdefault((file, number), row)

    def add_steps(self, steps: list[Step], depth: int, call: Row | None) -> None:
        """The instructions of one frame, as a tree. `call` is the instruction that called it."""
        for step in steps:
            run = step.run
            line = self.lists.lines.get((run.filename, run.line))

            row = self.lists.add("bytecode", f"{run.op} {plain_arg(run.arg)}".rstrip())
            row.note = f"→ {run.node}" if run.node else ""
            row.label = str(run.offset) if run.offset >= 0 else ""
            row.depth = depth
            row.stack = step.change
            row.up = [origin for origin in (line, call) if origin]

            self.row_of_run[id(run)] = row
            self.add_steps(step.inside, depth + 1, row)

    # ---- the events ------------------------------------------------------------------------------

    def frame_seen(self, event: events.FrameSeen) -> None:
        self.lists.moment("frames", f"the hook meets {event.name}, and no compiled code fits")

    def instruction_run(self, event: events.InstructionRun) -> None:
        adds = ""
        if event.node:
            adds = f" adds {event.node} to the graph"
        words = f"{event.op} {plain_arg(event.arg)}{adds}"
        self.row_of_run[id(event)].at = self.lists.moment("frames", words)

    def graph_broke(self, event: events.GraphBroke) -> None:
        reason = as_written(event.problem).reason
        at = self.lists.moment("break", f"the graph ends here: {reason}")

        # `add_frames` has made the row. If several have this reason, it is the first that has no
        # moment yet.
        for row in self.lists.rows["bytecode"]:
            if row.kind == "break" and not row.at and row.text.endswith(reason):
                row.at = at
                break

    def graph_captured(self, event: events.GraphCaptured) -> None:
        result = event.result
        graph = result.graph.graph
        self.graphs.append(graph)
        self.lists.title = result.name

        size = f"{operations_in(graph)}, {plural(len(result.guards), 'guard')}"
        at = self.lists.moment("capture", f"{result.name} is captured: {size}")
        head = self.lists.head("fx", result.name, size, at=at)

        # (A graph of a frame whose instructions were not recorded has no run.)
        run = next((run for run in self.frames if run.graph is result.graph), None)
        made_by = instructions_of_nodes(graph, run, self.row_of_run) if run else {}
        for node in graph.nodes:
            self.add_captured_node(node, made_by.get(node), at)
            # The heading appears together with the first node.
            head.at = min(head.at, self.lists.nodes[node].at)

        for node in graph.find_nodes(op="placeholder"):
            self.date_input(node, at)

    def add_captured_node(self, node: fx.Node, instruction: Row | None, at: int) -> None:
        """Add the row of a captured node below its instruction.

        If that is not known, below its line."""
        row = self.lists.add_node("fx", node)
        if instruction:
            row.up = [instruction]
            row.at = instruction.at
            return

        row.at = at
        location = written_at(node)
        if location:
            line = self.lists.lines.get((location.filename, location.line))
            row.up = [line] if line else []

    def date_input(self, node: fx.Node, at: int) -> None:
        """Give an input its moment.

        No instruction makes it: it appears with the first operation that reads it."""
        row = self.lists.nodes[node]
        users = [self.lists.nodes[user] for user in node.users]

        row.at = min((user.at for user in users), default=at)
        if not row.up and users:
            row.up = list(users[0].up)

    # ---- graphs that capture did not make --------------------------------------------------------

    def captured(self, node: fx.Node) -> Row | None:
        """The row of a captured node.

        A graph with symbolic sizes is copied for each set of sizes. A node of a copy has the row of
        its original.
        """
        if node not in self.lists.nodes:
            for graph in reversed(self.graphs):
                if outline(graph) == outline(node.graph):
                    for original, copy in zip(graph.nodes, node.graph.nodes, strict=True):
                        self.lists.nodes[copy] = self.lists.nodes[original]
                    break
        return self.lists.nodes.get(node)

    def add_given(self, graph: fx.Graph) -> None:
        """The captured graph behind an ATen graph, if torch captured it
        (`torch.compile(f, backend="course")`).

        No event told of it. Its nodes know their lines."""
        captured_graph = self.unknown_origin(graph)
        if captured_graph is None:
            return

        places = {node: at for node in captured_graph.nodes if (at := written_at(node))}
        self.lists.title = next((at.function for at in places.values()), "a graph")
        self.graphs.append(captured_graph)

        size = operations_in(captured_graph)
        moment = self.lists.moment("capture", f"{self.lists.title} comes captured: {size}")
        self.lists.head("fx", self.lists.title, size, at=moment)
        for node in captured_graph.nodes:
            row = self.lists.add_node("fx", node)
            row.at = moment
            if node in places:
                row.up = [self.line(places[node])]

    def unknown_origin(self, graph: fx.Graph) -> fx.Graph | None:
        """The first graph that nodes of `graph` came from and that has no rows."""
        for node in graph.nodes:
            origin = node.meta.get("origin")
            if isinstance(origin, fx.Node) and not self.captured(origin):
                return origin.graph
        return None

    def line(self, at: Location) -> Row:
        """The row of a line of the program.

        The first that is asked for brings its whole function."""
        key = at.filename, at.line
        lines = self.lists.lines
        if key not in lines:
            numbered = function_lines(at.filename, at.function, at.line, at.line)
            if numbered:
                self.add_function(at.filename, at.function, numbered)

        if key not in lines:  # its file is not there, or has become another one
            lines[key] = self.lists.add("source", at.text, label=str(at.line))
        return lines[key]


def outline(graph: fx.Graph) -> list[tuple[str, object]]:
    """What a graph and its copy have in common: names and places in the program."""
    return [(node.name, node.meta.get("location")) for node in graph.nodes]


def instructions_of_nodes(
    graph: fx.Graph, run: FrameRun, row_of_run: dict[int, Row]
) -> dict[fx.Node, Row]:
    """The instruction that made each operation.

    An instruction names the last node that it added. The nodes before it with the same place in the
    program, and the parts of a result of several, were added by the same instruction."""
    row_of_name = {
        step.run.node: row_of_run[id(step.run)] for step in walk(run.steps) if step.run.node
    }

    # From the end on: the nodes that an instruction added go before the one that it names.
    row_of_node: dict[fx.Node, Row] = {}
    last: fx.Node | None = None
    for node in reversed(graph.nodes):
        if node.name in row_of_name:
            row_of_node[node] = row_of_name[node.name]
            last = node
        elif last is not None and is_operation(node) and same_place(node, last):
            row_of_node[node] = row_of_node[last]

    for node in graph.nodes:
        if op_name(node) == "getitem" and node.args[0] in row_of_node:
            row_of_node.setdefault(node, row_of_node[node.args[0]])
    return row_of_node


def same_place(one: fx.Node, other: fx.Node) -> bool:
    return one.meta.get("location") == other.meta.get("location")


__all__ = ["CaptureRows"]
