"""The two halves of a joint graph as boxes: what stands left, in the middle and right, and in which
band.

In:  a `Partition`, the names of the inputs that get gradients, and what one box stands for
     (`DETAILS`).
Out: `Sides`: bands from the top down, each with boxes of forward, kept tensors and boxes of
     backward. `joint_drawing` draws them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from course_lib.autograd.partition import node_bytes
from course_lib.viz.kit.style import plural
from course_lib.viz.pictures.graphs.fx_graphs import (
    bare,
    is_operation,
    is_parameter,
    location_of,
    op_name,
    source_of,
    type_of,
)
from course_lib.viz.pictures.graphs.module_graphs import captured_operation, modules_of

LINE, TWO_LINES = 26.0, 43.0
"""px: how tall a box is, with one line of text and with two."""
GAP, BAND = 11.0, 25.0
"""px: between two boxes, and the room for the title of a band."""
DETAILS = ("operators", "operations", "modules")
"""What one box stands for: an ATen operator, a captured operation, a module."""
COUNTED_AS = {
    "input": "input",
    "forward": "operator",
    "again": "operator",
    "backward": "operator",
    "tangent": "tangent",
}
"""The kind of a box → what its nodes are called."""


@dataclass(eq=False)
class Box:
    """One or several nodes of one side.

    kind: a key of `COUNTED_AS`; 'again' is forward work that is done in backward.
    type: of the one node's result; '' where there are several nodes, or it is not known.
    note: the second line, '' for none. y: px, set by `Band.lay_out`."""

    kind: str
    title: str
    type: str = ""
    note: str = ""
    nodes: list[fx.Node] = field(default_factory=list)
    y: float = 0.0

    @property
    def height(self) -> float:
        return TWO_LINES if self.note else LINE

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def take(self, node: fx.Node) -> None:
        """One more node: from the second on, the box says how many there are, and their names
        below."""
        self.nodes.append(node)
        if len(self.nodes) > 1:
            names = dict.fromkeys(map(short_name, self.nodes))
            self.title = plural(len(self.nodes), COUNTED_AS[self.kind])
            self.type = ""
            self.note = ", ".join(name for name in names if not name.startswith("getitem"))


@dataclass(eq=False)
class Kept:
    """A tensor that forward hands to backward; in a coarse picture, several.

    maker: the box of forward that makes it; None for a parameter, which has no box."""

    nodes: list[fx.Node]
    maker: Box | None = None
    y: float = 0.0
    height: float = LINE

    @property
    def is_input(self) -> bool:
        """It is there anyway: keeping it costs nothing."""
        return self.nodes[0].op == "placeholder"

    @property
    def bytes(self) -> float:
        return sum(map(node_bytes, self.nodes))

    @property
    def title(self) -> str:
        """The name of the one tensor that is kept, or how many are."""
        if len(self.nodes) == 1:
            return kept_name(self.nodes[0])
        return plural(len(self.nodes), "input" if self.is_input else "tensor")

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass
class Band:
    """What belongs together, left, middle and right: a captured operation, or a module.

    where: the operation's line in the program; '' for a module."""

    title: str
    where: str = ""
    left: list[Box] = field(default_factory=list)
    right: list[Box] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)
    y: float = 0.0

    def lay_out(self, y: float) -> float:
        """Give everything a place below `y`; the bottom comes back."""
        self.y = y
        lowest = y + BAND + LINE  # with nothing in it, it is one line high
        for boxes in (self.left, self.right):
            at = y + BAND
            for box in boxes:
                box.y = at
                at += box.height + GAP
            lowest = max(lowest, at)

        # A kept tensor stands beside the box that makes it, or below the one before.
        at = y + BAND
        self.kept.sort(key=lambda one: one.maker.y if one.maker else y)
        for kept_tensor in self.kept:
            kept_tensor.y = max(at, kept_tensor.maker.y if kept_tensor.maker else y)
            at = kept_tensor.bottom + GAP
        return max(lowest, at)


def short_name(node: fx.Node) -> str:
    """'addmm', 'getitem[1]', 'self.x'."""
    if node.op == "placeholder":
        return source_of(node)
    name = bare(op_name(node))
    if name == "getitem":
        return f"{name}[{node.args[1]}]"
    return name


def kept_name(node: fx.Node) -> str:
    """'self.ln.weight', 'rsqrt', 'var_mean[1]'."""
    if op_name(node) == "getitem":
        return f"{node.args[0]}[{node.args[1]}]"
    if node.op == "placeholder":
        return source_of(node)
    return node.name


class Sides:
    """The nodes of both halves in boxes, in bands."""

    def __init__(self, partition: Any, signature: Any, detail: str) -> None:
        self.detail = detail
        self.forward: list[fx.Node] = list(partition.forward.graph.nodes)
        self.backward: list[fx.Node] = list(partition.backward.graph.nodes)
        self.saved = [node.name for node in partition.saved]
        self.again = {node.name for node in partition.recomputed}

        inputs = [node for node in self.forward if node.op == "placeholder"]
        with_gradient = signature.gradients if signature else []
        self.sources_with_gradient = [source_of(inputs[number]) for number in with_gradient]
        self.modules = modules_of(captured_operations([*self.forward, *self.backward]))

        self.by_key: dict[Any, Band] = {}
        """Captured operation, or its module → its band; None → the band of nodes that have none."""
        self.place: dict[tuple[str, str], Box] = {}
        """(side, name of a node) → its box."""

        # Bands stand in the order in which forward's operators run. An input may be read late: it
        # makes no band.
        for node in filter(is_operation, self.forward):
            self.band(node)
        self.fill_left()
        self.fill_middle()
        self.fill_right()

    @property
    def bands(self) -> list[Band]:
        return list(self.by_key.values())

    def column(self, side: str) -> list[Box]:
        """A side's boxes in the order in which they run."""
        if side == "left":
            return [box for band in self.bands for box in band.left]
        return [box for band in self.bands for box in band.right][::-1]

    def band(self, node: fx.Node) -> Band:
        """Where a node stands: with its captured operation; an input, with the first that reads
        it."""
        if not is_operation(node):
            node = next((user for user in node.users if is_operation(user)), node)

        origin = captured_operation(node)
        if origin is None:
            return self.by_key.setdefault(None, Band("around it"))
        if self.detail == "modules":
            module = self.modules[origin]
            return self.by_key.setdefault(module, Band(module))
        return self.by_key.setdefault(origin, Band(op_name(origin), location_of(origin)))

    # ---- filling it ------------------------------------------------------------------------------

    def fill_left(self) -> None:
        """Forward: the inputs that are no parameters, and the operators."""
        values = [value for value in results_of(self.forward) if isinstance(value, fx.Node)]
        for node in self.forward:
            if node.op == "placeholder" and node.users and not is_parameter(node):
                self.add_left(node, "input")
            elif is_operation(node):
                is_result = node in values and node.name not in self.saved
                self.add_left(node, "forward", "a result" if is_result else "")

    def fill_middle(self) -> None:
        """What forward keeps for backward; by module, inputs and made tensors each as one."""
        nodes = {node.name: node for node in self.forward}
        for name in self.saved:
            node = nodes[name]
            kept_tensors = self.band(node).kept
            alike = [
                kept_tensor
                for kept_tensor in kept_tensors
                if kept_tensor.is_input == (node.op == "placeholder")
            ]
            if self.detail == "modules" and alike:
                alike[0].nodes.append(node)
            else:
                kept_tensors.append(Kept([node], self.place.get(("left", name))))

    def fill_right(self) -> None:
        """Backward: the gradients that come in, and the operators; forward's among them are done
        again."""
        gradients = results_of(self.backward)
        names = [f"gradient of {name}" for name in self.sources_with_gradient]
        names = names or ["a gradient"] * len(gradients)

        for node in self.backward:
            if is_operation(node):
                kind = "again" if node.name in self.again else "backward"
                note = ""
                if node in gradients:
                    note = names[gradients.index(node)]
                self.add_right(node, kind, note)
            elif node.op == "placeholder" and node.users and node.name not in self.saved:
                self.add_right(node, "tangent")

    def add_left(self, node: fx.Node, kind: str, note: str = "") -> None:
        """Add a node of forward below the others of its band."""
        boxes = self.band(node).left
        box = self.box_for(kind, boxes)
        if box is None:
            box = Box(kind, short_name(node), type_of(node), note)
            boxes.append(box)
        box.take(node)
        self.place["left", node.name] = box

    def add_right(self, node: fx.Node, kind: str, note: str = "") -> None:
        """Add a node of backward above the others of its band: this side runs upwards."""
        boxes = self.band(node).right
        box = self.box_for(kind, boxes)
        if box is None:
            box = Box(kind, short_name(node), type_of(node), note)
            boxes.insert(0, box)
        box.take(node)
        self.place["right", node.name] = box

    def box_for(self, kind: str, boxes: Sequence[Box]) -> Box | None:
        """In less detail, the box of a band that takes all nodes of this kind."""
        if self.detail == "operators":
            return None
        return next((box for box in boxes if box.kind == kind), None)


def captured_operations(nodes: Iterable[fx.Node]) -> dict[fx.Node, None]:
    """The captured operations that these operators came from, each once."""
    operations: dict[fx.Node, None] = {}
    for node in filter(is_operation, nodes):
        origin = captured_operation(node)
        if origin is not None:
            operations[origin] = None
    return operations


def results_of(nodes: Iterable[fx.Node]) -> list[Any]:
    """What a graph returns: nodes, and None for a gradient that there is not."""
    output = next(node for node in nodes if node.op == "output")
    results: Any = output.args[0]
    return list(results)
