"""Rows of the list "ATen graph".

In:  the events of autograd in their order.
Out: one row a node of the joint graph, or of the graph that was traced where no gradient is wanted.

An ATen node came from the captured node that it was traced from (`meta["origin"]`).
"""

from __future__ import annotations

from typing import Any

from torch import fx

from course_lib import events
from course_lib.viz.explorer.capture_rows import CaptureRows
from course_lib.viz.explorer.rows import Lists, Row, Sees, operations_in
from course_lib.viz.kit.style import plural

NO_NODE_YET = object()
"""Differs from every node's origin, from None too: some nodes have none."""


class AutogradRows:
    """Adds what autograd made of the captured graphs."""

    def __init__(self, lists: Lists, capture: CaptureRows) -> None:
        self.lists = lists
        self.capture = capture
        self.joint: dict[str, Row] = {}
        """The rows of the joint graph, by the node's name."""
        self.names: dict[Any, str] = {}
        """Each graph of the current compile that goes on to loops, and what it is called:
        'forward', 'backward', a function."""
        self.sees: Sees = {
            events.JointTraced: self.joint_traced,
            events.Partitioned: self.partitioned,
            events.AtenTraced: self.aten_traced,
        }

    def joint_traced(self, event: events.JointTraced) -> None:
        """Forward and backward were traced as one graph."""
        graph = event.graph.graph
        self.capture.add_given(graph)
        self.add_graph(graph, f"{self.lists.title}: forward and backward")
        self.joint = {node.name: self.lists.nodes[node] for node in graph.nodes}

    def partitioned(self, event: events.Partitioned) -> None:
        """The halves have nodes of their own, under the names that these have in the joint
        graph."""
        parts = event.partition
        recomputed_names = {node.name for node in parts.recomputed}
        saved = {node.name for node in parts.saved}
        words = f"{plural(len(saved), 'tensor')} saved, {len(recomputed_names)} computed again in backward"
        self.lists.moment("autograd", f"cut in two: {words}")

        self.names = {parts.forward: "forward", parts.backward: "backward"}
        for half in self.names:
            for node in half.graph.nodes:
                if node.name in self.joint:
                    self.lists.nodes[node] = self.joint[node.name]

        # (Inputs and outputs have a kind already, and keep it.)
        in_forward = {node.name for node in parts.forward.graph.nodes}
        for name, row in self.joint.items():
            if name in saved:
                row.kind = "saved"
            elif not row.kind and name not in in_forward:
                row.kind = "backward"

            notes = [row.note] if row.note else []
            if name in saved:
                notes.append("saved")
            if name in recomputed_names:
                notes.append("computed again")
            row.note = " · ".join(notes)

    def aten_traced(self, event: events.AtenTraced) -> None:
        """A graph goes on to loops. The halves of a joint graph have their rows already."""
        if event.graph not in self.names:
            self.capture.add_given(event.graph.graph)
            self.names = {event.graph: self.lists.title}
            self.add_graph(event.graph.graph, self.lists.title)
        self.lists.title = self.names[event.graph]

    def add_graph(self, graph: fx.Graph, title: str) -> None:
        """An ATen graph; the nodes that one captured node became come in one moment."""
        self.lists.head("aten", title, operations_in(graph), at=self.lists.next_moment)

        last: Any = NO_NODE_YET
        for node in graph.nodes:
            row = self.lists.add_node("aten", node)
            origin = node.meta.get("origin")
            if origin is not last:
                at = self.lists.moment("autograd", words_for(origin))
                last = origin
            row.at = at

            if isinstance(origin, fx.Node) and (captured := self.capture.captured(origin)):
                row.up = [captured]


def words_for(origin: Any) -> str:
    """What happens when a captured node is traced; without one, an input or an output is added."""
    if isinstance(origin, fx.Node):
        return f"{origin.name} in ATen operators"
    return "inputs and outputs"


__all__ = ["AutogradRows"]
