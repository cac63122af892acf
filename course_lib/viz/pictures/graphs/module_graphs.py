"""Which module an operation belongs to, so that the picture of a large graph can show modules instead of operations.

In:  a captured graph. Out: operation → a path such as `self.layers[3].attention`.

Capture looks through the calls of modules, and notes with each operation whose code it is (`meta["module"]`). TorchDynamo's
graphs have a `meta["nn_module_stack"]`, innermost last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

from torch import fx

from course_lib.viz.kit.asked import GRAPH, TEXT, takes
from course_lib.viz.kit.style import COLOURS, Picture, escape, plural
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.graphs.fx_graphs import (
    NO_GRAPHVIZ,
    NoGraphviz,
    bold_width,
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
"""At most so many modules are told apart; so few say too little."""


def steps(path: str) -> list[str]:
    """`self.layers[3].weight` → ['self', '.layers', '[3]', '.weight']."""
    return re.findall(r"^\w+|\.\w+|\[[^\]]*\]", path)


def module_of(node: fx.Node) -> list[str]:
    """The steps to the module whose code an operation is, or was captured from; none if it stands in a function."""
    node = captured_operation(node) or node
    stack = node.meta.get("nn_module_stack")
    path = (
        list(stack.values())[-1][0].replace("L['self']", "self")
        if stack
        else node.meta.get("module", "")
    )
    return steps(readable_path(path))


def modules_of(operations: Iterable[fx.Node], most: int = MOST) -> dict[fx.Node, str]:
    """Operation → its module, as deep in the tree of modules as it goes with at most `most` of them. Where all modules but a few
    are layers of one list, several layers in a row share a name: 'self.layers[0] … [3]'."""
    exact = {node: module_of(node) for node in operations}
    told = lambda depth: list(dict.fromkeys(tuple(path[:depth]) for path in exact.values()))
    deepest = max(map(len, exact.values()), default=0)
    depth = next((d for d in range(deepest, 1, -1) if len(told(d)) <= most), 1)
    names = {path: "".join(path) or "the function itself" for path in told(depth)}
    if len(names) <= FEW and depth < deepest:
        names, depth = {}, depth + 1
        for _, layers in groupby(
            sorted(told(depth), key=len),
            key=lambda path: path[: depth - 1] if len(path) == depth else path,
        ):
            row = list(layers)
            size = -(-len(row) // most)
            for first in range(0, len(row), size):
                some = row[first : first + size]
                name = "".join(some[0]) or "the function itself"
                names |= dict.fromkeys(some, name if len(some) == 1 else f"{name} … {some[-1][-1]}")
    return {node: names[tuple(path[:depth])] for node, path in exact.items()}


def captured_operation(node: fx.Node) -> fx.Node | None:
    """The captured operation that a traced node came from; a captured one is its own."""
    origin = node.meta.get("origin", node)
    return origin if isinstance(origin, fx.Node) and is_operation(origin) else None


@takes(gm=GRAPH, title=TEXT)
def module_graph(gm: Any, title: str = "") -> Picture:
    """A captured graph with one box for each module: what a large graph looks like from afar."""
    operations = [node for node in gm.graph.nodes if is_operation(node)]
    home = modules_of(operations)
    counts = Counter(home.values())
    edges = Counter(
        (home[source], home[node])
        for node in operations
        for source in node.all_input_nodes
        if source in home
    )
    reads = {
        home[user]: node
        for node in gm.graph.nodes
        if node.op == "placeholder" and not is_parameter(node)
        for user in node.users
    }
    alt = f"{title or 'The graph'} by module: " + ", ".join(
        f"{name} ({plural(count, 'operation')})" for name, count in counts.items()
    )
    kinds = {
        name: Counter(op_name(node) for node in operations if home[node] == name) for name in counts
    }
    rows = [
        (name, str(count), ", ".join(kind for kind, _ in kinds[name].most_common(6)))
        for name, count in counts.items()
    ]
    header = ("module", "operations", "mostly")
    caption = "The graph by module: a box is all operations of one module, or of layers in a row; arrows are tensors between them."
    try:
        drawing = draw_modules(counts, [edge for edge in edges if edge[0] != edge[1]], reads, alt)
    except NoGraphviz:
        drawing, caption = (
            html_table([tuple(map(escape, row)) for row in rows], header),
            NO_GRAPHVIZ,
        )
    return Picture(
        f'<div class="cl-scroll">{drawing}</div>', caption, alt + ".", columns(rows, header)
    )


def draw_modules(
    counts: Mapping[str, int],
    edges: Iterable[tuple[str, str]],
    reads: Mapping[str, fx.Node],
    alt: str,
) -> str:
    """The modules as SVG. Raises NoGraphviz."""
    try:
        import graphviz
    except ImportError:
        raise NoGraphviz from None
    dot = graphviz.Digraph()
    dot.attr(bgcolor="transparent", rankdir="TB", ranksep="0.3", nodesep="0.25", margin="0.05")
    dot.attr(
        "node",
        shape="box",
        style="rounded,filled",
        fontname="Helvetica",
        fontsize="13",
        margin="0.2,0.06",
        height="0.3",
    )
    names = {name: f"m{number}" for number, name in enumerate(counts)}
    for name, count in counts.items():
        label = lines_of(in_a_box(name), plural(count, "operation"))
        dot.node(
            names[name],
            label,
            color=COLOURS["capture"],
            fillcolor=faint("capture", 0.16),
            **bold_width(name),
        )
    for node in dict.fromkeys(reads.values()):
        label = lines_of(in_a_box(source_of(node)), type_of(node))
        dot.node(
            node.name,
            label,
            color=COLOURS["runtime"],
            fillcolor=faint("runtime", 0.12),
            **bold_width(source_of(node)),
        )
    for name, node in reads.items():
        dot.edge(node.name, names[name])
    for one, other in edges:
        dot.edge(names[one], names[other])
    return themed(render(dot.source), alt, {number: name for name, number in names.items()})
