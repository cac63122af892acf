"""Numbers and sizes that only the data says: which operations give them, and where they are found.

In:  an operation that has run on fakes, and its result: `x.nonzero()` has a size of which nobody
     knows the value before the program runs.
Out: a node that is marked (`meta["of_data"]`), and for each new symbol its `Origin`: the size of
     that result, or the number itself. Later operations refer to it as to any other symbol.

Which programs may keep such symbols: `corners/sizes_of_data.py`. What was relied on about them:
`facts.py`.
In PyTorch: `torch/fx/experimental/symbolic_shapes.py` (`compute_unbacked_bindings`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from course_lib.capture.facts import fact
from course_lib.capture.operations import Operation
from course_lib.capture.shapes import SIZE, Origin, Shapes, Texts
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import is_of_data, is_symbol_of_data
from course_lib.capture.values import name_of, tensors_in

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder


def mark_sizes_of_data(
    builder: GraphBuilder, operation: Operation, result: Any, node: fx.Node
) -> None:
    """Mark the node, and note where the symbols of its result are found: in the result's shape."""
    node.meta["of_data"] = True
    builder.has_sizes_of_data = True

    found = builder.shapes.found
    for tensor in tensors_in(result):
        if not builder.has_node(tensor):
            continue
        for dim, size in enumerate(tensor.shape):
            if not is_of_data(size):
                continue

            # A formula, like twice a size, is found by its symbols.
            symbol = size.node.expr
            if symbol.is_Symbol and symbol not in found:
                texts = Texts(str(size), f"{operation.name}(...).shape[{dim}]")
                found[symbol] = Origin(size, texts, SIZE, (tensor, dim))


def names_sizes_again(builder: GraphBuilder, operation: Operation, result: Any) -> bool:
    """Has the result a size of the data that an earlier operation has named? (A fake tensor
    keeps the size of its `nonzero()`, so the second one makes no new symbol.)"""
    # Most programs have no such size. Their tensors are not asked.
    if not builder.has_sizes_of_data:
        return False

    # To look at a shape would otherwise be recorded as an operation of the program
    with torch._C.DisableTorchFunction():
        of_arguments = symbols_of_data((operation.args, operation.kwargs))
        return not symbols_of_data(result) <= of_arguments


def symbols_of_data(values: Any) -> set[Any]:
    """The symbols that only the data says, in the shapes of tensors and among numbers."""
    found: set[Any] = set()
    for leaf in tree_leaves(values):
        for size in numbers_of(leaf):
            if is_of_data(size):
                symbols = size.node.expr.free_symbols
                found |= set(filter(is_symbol_of_data, symbols))
    return found


def numbers_of(value: Any) -> tuple[Any, ...]:
    """The sizes of a tensor, the limits of a slice, or the value itself."""
    if isinstance(value, torch.Tensor):
        return tuple(value.shape)
    if type(value) is slice:
        return (value.start, value.stop, value.step)
    return (value,)


def add_number_of_data(
    builder: GraphBuilder, tensor: torch.Tensor, of: torch.Tensor | None = None
) -> Any:
    """`tensor.item()` as a node: a symbol of which only the data says the value.

    of: the program's own tensor, if `tensor` was made of it (of truths, say)."""
    number = builder.run_fake(torch.Tensor.item, [tensor], {})
    # A fake tensor remembers the symbol of its first `item()`. That call's node is there already.
    if not is_of_data(number) or number.node.expr in builder.formulas:
        return number

    of_tensor = builder.node_of(tensor)
    node = builder.graph.call_method("item", (of_tensor,))
    node.meta.update(val=number, location=builder.location, module=builder.module, of_data=True)
    builder.formulas[number.node.expr] = node

    # To the user it is the number of a tensor that the program has.
    shown = of_tensor
    if of is not None:
        shown = builder.node_of(of)
    texts = Texts(str(number), f"{shown.name}.item()")
    builder.shapes.found[number.node.expr] = Origin(number, texts)
    return number


# ---- what is told --------------------------------------------------------------------------------


def told_of_data(graph: fx.Graph) -> list[str]:
    """Which sizes and numbers of a graph only the data says, and what is checked about them in each
    call; each with the user's line."""
    lines = []
    for node in graph.nodes:
        if node.meta.get("of_data"):
            cause = ""
            if at := node.meta["location"]:
                cause = f"    # {at}: {at.text}"
            for what in said_by_data(node):
                lines.append(f"of the data: {what}{cause}")
        elif node.target is fact:
            lines.append(f"checked in each call: {node.args[1]}")
    return lines


def said_by_data(node: fx.Node) -> list[str]:
    """The number that a node gives, or the sizes of the tensors that it gives."""
    value = node.meta["val"]
    if is_of_data(value):
        return [f"the number {node.name}"]

    tensors = tensors_in(value)
    told = []
    for n, tensor in enumerate(tensors):
        name = node.name
        if len(tensors) > 1:
            name += f"[{n}]"
        for dim, size in enumerate(tensor.shape):
            if is_of_data(size):
                told.append(f"the size {name}.shape[{dim}]")
    return told


# ---- the breaks ----------------------------------------------------------------------------------


def needs_data(function: Any, error: Any) -> Unsupported:
    """The break at an operation whose result depends on the data in a tensor: `x.nonzero()`."""
    return Unsupported(
        f"the result of {name_of(function)} depends on the data in the tensor ({error.func}), which is not known yet",
        "compute it outside the compiled function, or express it with torch.where",
    )


def asks_data(shapes: Shapes, error: Any) -> Unsupported:
    """The break at a question about a size, or a number, that only the data can answer."""
    question = shapes.text(error.cond, shown=True)
    verb = "needs in Python the value of"
    if error.cond.is_Relational:
        verb = "asks whether"
    if shapes.is_of_inputs(error.cond):
        return Unsupported(
            f"{verb} {question}, which nobody may ask of a size that is marked by mark_unbacked",
            "state what always holds by torch._check, choose by torch.where or torch.cond, or take mark_dynamic",
        )
    return Unsupported(
        f"{verb} {question}, which only the data says",
        "state what always holds by torch._check, or choose by torch.where or torch.cond",
    )
