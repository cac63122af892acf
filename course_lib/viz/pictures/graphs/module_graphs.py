"""Which module an operation belongs to, so that the picture of a large graph can show modules
instead of operations.

In:  a captured graph. Out: operation → a path such as `self.layers[3].attention`.

Capture looks through the calls of modules, and notes with each operation whose code it is
(`meta["module"]`). TorchDynamo's graphs have a `meta["nn_module_stack"]`, innermost last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from torch import fx

from course_lib.viz.kit.arguments import GRAPH, TEXT, takes
from course_lib.viz.kit.style import COLOURS, Picture, escape, plural
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.graphs.fx_graphs import (
    NO_GRAPHVIZ,
    NoGraphviz,
    bold_width,
    empty_graph,
    faint,
    in_a_box,
    is_operation,
    is_parameter,
    lines_of,
    op_name,
    readable_path,
    render,
    source_of,
    themed,
    type_of,
)

MOST, FEW = 16, 4
"""A picture shows at most `MOST` modules. If there are `FEW` or fewer, it says too little."""

Path = tuple[str, ...]
"""The steps to a module: ('self', '.layers', '[3]')."""


# ---- which module an operation belongs to --------------------------------------------------------


def captured_operation(node: fx.Node) -> fx.Node | None:
    """The captured operation that a traced node came from; a captured one is its own."""
    origin = node.meta.get("origin", node)
    if isinstance(origin, fx.Node) and is_operation(origin):
        return origin
    return None


def steps(path: str) -> list[str]:
    """`self.layers[3].weight` → ['self', '.layers', '[3]', '.weight']."""
    return re.findall(r"^\w+|\.\w+|\[[^\]]*\]", path)


def module_of(node: fx.Node) -> list[str]:
    """The steps to the module whose code an operation is, or was captured from; none if it stands
    in a function."""
    node = captured_operation(node) or node
    path = node.meta.get("module", "")

    stack = node.meta.get("nn_module_stack")
    if stack:
        innermost = list(stack.values())[-1]
        path = innermost[0].replace("L['self']", "self")
    return steps(readable_path(path))


def modules_of(operations: Iterable[fx.Node], most: int = MOST) -> dict[fx.Node, str]:
    """Operation → its module, as deep in the tree of modules as it goes with at most `most` of
    them. Where all modules but a few are layers of one list, several layers in a row share a name:
    'self.layers[0] … [3]'."""
    paths = {node: tuple(module_of(node)) for node in operations}
    deepest = max(map(len, paths.values()), default=0)
    depth = 1
    for deeper in range(deepest, 1, -1):
        if len(cut_at(deeper, paths.values())) <= most:
            depth = deeper
            break

    modules = cut_at(depth, paths.values())
    if len(modules) > FEW or depth == deepest:
        names = {path: name_of(path) for path in modules}
    else:
        # One step deeper there are too many: several layers in a row become one box.
        depth += 1
        names = names_of_rows(cut_at(depth, paths.values()), depth, most)
    return {node: names[path[:depth]] for node, path in paths.items()}


def cut_at(depth: int, paths: Iterable[Path]) -> list[Path]:
    """The modules that there are at a depth, each once, in the order in which they run."""
    return list(dict.fromkeys(path[:depth] for path in paths))


def name_of(path: Path) -> str:
    """A module as it is shown; operations that are in none are the function's own."""
    return "".join(path) or "the function itself"


def names_of_rows(modules: list[Path], depth: int, most: int) -> dict[Path, str]:
    """Names that layers in a row share, so that each list of layers has at most `most` names."""

    def list_of(path: Path) -> Path:
        """The list that a layer is in. A path that ends before `depth` is no layer of one."""
        if len(path) == depth:
            return path[: depth - 1]
        return path

    # The shorter paths go before all layers: `groupby` puts together only what stands side by side.
    names: dict[Path, str] = {}
    for _, layers in groupby(sorted(modules, key=len), key=list_of):
        row = list(layers)
        size = -(-len(row) // most)
        for first in range(0, len(row), size):
            together = row[first : first + size]
            name = name_of(together[0])
            if len(together) > 1:
                name += f" … {together[-1][-1]}"
            names |= dict.fromkeys(together, name)
    return names


# ---- the picture ---------------------------------------------------------------------------------


@dataclass
class Modules:
    """The modules of a graph: how many operations each has, and which of them; tensors between
    them, and the inputs they read."""

    counts: Counter[str]
    kinds: dict[str, Counter[str]]
    edges: list[tuple[str, str]]
    reads: dict[str, fx.Node]


def modules_in(graph: fx.Graph) -> Modules:
    """`edges` are (from, to), each once.

    `reads`: module → the last of the graph's inputs that it reads, parameters aside."""
    operations = [node for node in graph.nodes if is_operation(node)]
    module_of = modules_of(operations)
    modules = Modules(Counter(module_of.values()), {}, [], {})

    edges: dict[tuple[str, str], None] = {}
    for node in operations:
        module = module_of[node]
        modules.kinds.setdefault(module, Counter())[op_name(node)] += 1
        for source in node.all_input_nodes:
            if source in module_of and module_of[source] != module:
                edges[module_of[source], module] = None
    modules.edges = list(edges)

    for node in graph.nodes:
        if node.op == "placeholder" and not is_parameter(node):
            # An input that is returned as it is has no reader in a module.
            for user in filter(module_of.__contains__, node.users):
                modules.reads[module_of[user]] = node
    return modules


@takes(gm=GRAPH, title=TEXT)
def module_graph(gm: Any, title: str = "") -> Picture:
    """A captured graph with one box for each module: what a large graph looks like from afar."""
    modules = modules_in(gm.graph)
    rows = []
    for name, count in modules.counts.items():
        mostly = [kind for kind, _ in modules.kinds[name].most_common(6)]
        rows.append((name, str(count), ", ".join(mostly)))
    header = ("module", "operations", "mostly")

    modules_in_words = [
        f"{name} ({plural(count, 'operation')})" for name, count in modules.counts.items()
    ]
    alt = f"{title or 'The graph'} by module: {', '.join(modules_in_words)}"
    caption = "The graph by module: a box is all operations of one module, or of layers in a row; arrows are tensors between them."
    try:
        drawing = draw_modules(modules, alt)
    except NoGraphviz:
        caption = NO_GRAPHVIZ
        drawing = html_table([tuple(map(escape, row)) for row in rows], header)
    body = f'<div class="cl-scroll">{drawing}</div>'
    return Picture(body, caption, f"{alt}.", columns(rows, header))


def draw_modules(modules: Modules, alt: str) -> str:
    """The modules as SVG. Raises NoGraphviz."""
    dot = empty_graph(ranksep="0.3", nodesep="0.25")
    box = {name: f"m{number}" for number, name in enumerate(modules.counts)}

    for name, count in modules.counts.items():
        label = lines_of(in_a_box(name), plural(count, "operation"))
        add_box(dot, box[name], label, "capture", 0.16, name)
    for node in dict.fromkeys(modules.reads.values()):
        source = source_of(node)
        label = lines_of(in_a_box(source), type_of(node))
        add_box(dot, node.name, label, "runtime", 0.12, source)

    for name, node in modules.reads.items():
        dot.edge(node.name, box[name])
    for start, end in modules.edges:
        dot.edge(box[start], box[end])
    return themed(render(dot.source), alt, {number: name for name, number in box.items()})


def add_box(dot: Any, id: str, label: str, stage: str, strength: float, name: str) -> None:
    """A box in a stage's colour; its `name` is drawn bold, which needs room."""
    colours = {"color": COLOURS[stage], "fillcolor": faint(stage, strength)}
    dot.node(id, label, **colours, **bold_width(name))
