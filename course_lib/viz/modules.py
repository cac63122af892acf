"""Which module an operation belongs to, so that the picture of a large graph can show modules instead of operations.

In:  a captured graph. Out: operation → a path such as `self.layers[3].attention`.

The graph itself knows no modules (capture looks through their calls), but parameters know where they come from: an operation
belongs to the module whose parameters it reads; one that reads none, to the module of the operation before it.
In PyTorch: `meta["nn_module_stack"]`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from torch import fx

from course_lib.viz.graphs import is_operation, is_parameter, source_of

MOST = 16
"""At most so many modules are told apart."""


def steps(path: str) -> list[str]:
    """`self.layers[3].weight` → ['self', '.layers', '[3]', '.weight']."""
    return re.findall(r"^\w+|\.\w+|\[[^\]]*\]", path)


def modules_of(operations: Iterable[fx.Node], most: int = MOST) -> dict[fx.Node, str]:
    """Captured operation → its module, as deep in the tree of modules as it goes with at most `most` of them."""
    exact: dict[fx.Node, list[str]] = {}
    last = [""]
    for node in operations:
        read = [steps(source_of(source))[:-1] for source in node.all_input_nodes if is_parameter(source)]
        last = read[0] if read else last
        exact[node] = last
    depth = max(map(len, exact.values()), default=0)
    while depth > 1 and len({tuple(path[:depth]) for path in exact.values()}) > most:
        depth -= 1
    return {node: "".join(path[:depth]) or "the function itself" for node, path in exact.items()}


def captured_operation(node: fx.Node) -> fx.Node | None:
    """The captured operation that a traced node came from; a captured one is its own."""
    origin = node.meta.get("origin", node)
    return origin if isinstance(origin, fx.Node) and is_operation(origin) else None
