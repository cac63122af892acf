"""A recorded graph, tidied: named inputs first, nothing that only the recording needed, effects
kept.

In:  what `make_fx` recorded (`trace.py`), and the captured graph.
Out: the graph that later stages get, with its `Signature` in `meta["signature"]`.
In PyTorch: `torch/_functorch/_aot_autograd/graph_capture.py`, after `create_graph`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from course_lib import sizes
from course_lib.autograd import effects
from course_lib.autograd.signature import Result, Signature
from course_lib.autograd.sizes_as_nodes import write_sizes_out
from course_lib.written import traceable

if TYPE_CHECKING:
    from course_lib.autograd.trace import Tracing

aten = torch.ops.aten


def tidy(traced: fx.GraphModule, gm: fx.GraphModule, tracing: Tracing) -> fx.GraphModule:
    """Change `traced` to the graph that later stages get.

    - Its inputs come first and have the names of the captured graph `gm`.
    - What only autograd needed is gone: `detach`, and copies of inputs that the program never
      writes to.
    - An operation that has an effect and no user becomes a value of the graph. No result is made of
      these values.

    Raises NotImplementedError for what no compiled graph can do as eager does it.
    """
    signature, graph = tracing.signature, traced.graph
    refuse_sparse(traced)
    if sizes.current():  # one program is compiled for all sizes
        write_sizes_out(graph)
        signature.results = tuple(map(Result.in_sizes, signature.results))
        if tracing.gradients and any(map(is_size, graph.output_node().args[0])):
            raise sizes.NeedsNumbers("the graph returns a size, and has gradients")

    placeholders = graph.find_nodes(op="placeholder")
    name_as_captured(placeholders, gm)
    move_to_front(graph, placeholders)

    written_inputs = {update.input for update in signature.updates}
    unwritten = [node for n, node in enumerate(placeholders) if n not in written_inputs]
    drop_what_recording_needed(graph, unwritten)

    if any(effects.draws(node.target) for node in tracing.in_backward):
        raise NotImplementedError("a backward draws random numbers: eager draws them at each call")

    return_effects(graph, signature)
    traced.recompile()
    traced.meta["signature"] = signature
    return traceable(traced)


def is_size(value: object) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat))


def name_as_captured(placeholders: list[fx.Node], gm: fx.GraphModule) -> None:
    """Name inputs as the captured graph does: `self_ln_weight` reads better in a kernel than
    `arg1_1`.

    The last placeholders may be tangents, which the captured graph has not."""
    for new, old in zip(placeholders, gm.graph.find_nodes(op="placeholder"), strict=False):
        new._rename(old.name)
        new.target = new.name
        new.meta["origin"] = old


def move_to_front(graph: fx.Graph, placeholders: list[fx.Node]) -> None:
    """Let all inputs stand before the operations. (Tangents are recorded when backward begins.)"""
    for node in placeholders:
        if node.prev.op not in ("root", "placeholder"):
            first_operation = next(n for n in graph.nodes if n.op != "placeholder")
            first_operation.prepend(node)


def drop_what_recording_needed(graph: fx.Graph, unwritten: list[fx.Node]) -> None:
    """Leave `detach` and copies of inputs without users.

    `unwritten`: the inputs that the program never writes to."""
    for node in list(graph.nodes):
        if node.target is aten.detach.default or is_kept_value(node):
            node.replace_all_uses_with(node.args[0])
        # An origin of None: recorded before the program began, by `copies_of_written` in `trace.py`
        elif node.op != "get_attr" and "origin" in node.meta and node.meta["origin"] is None:
            tidy_copy(node, unwritten)


def is_kept_value(node: fx.Node) -> bool:
    """Is this a value that autograd keeps for backward? torch 2.14 and newer record an `alias` for
    each.

    An `alias` that is returned is the program's own."""
    returned = any(user.op == "output" for user in node.users)
    return node.target is aten.alias.default and not returned


def refuse_sparse(traced: fx.GraphModule) -> None:
    """Raise NotImplementedError where the graph has a functional tensor as a constant."""
    has_constants = any(node.op == "get_attr" for node in traced.graph.nodes)
    if has_constants and any(map(torch._is_functional_tensor, traced.buffers())):
        raise NotImplementedError(
            "a sparse tensor is made dense here, which torch 2.11 does not record"
        )


def tidy_copy(copy: fx.Node, unwritten: list[fx.Node]) -> None:
    """A copy of an input, made by `Tracing.run`: it belongs to the input.

    If that is never written to, all use the input itself."""
    original = copy.args[0]
    copy.meta["origin"] = original.meta.get("origin")
    if copy.users and original in unwritten:
        # The copy begins where its memory does: views count from there.
        original.meta["val"] = copy.meta["val"]
        copy.replace_all_uses_with(original)


def return_effects(graph: fx.Graph, signature: Signature) -> None:
    """Let the graph return what has an effect and no user: behind the values of results, before the
    gradients."""
    unused = effects.drop_unused(graph)
    if not unused:
        return

    output = graph.output_node()
    values = list(output.args[0])
    end = len(signature.differentiable)
    values[end:end] = unused
    output.args = (values,)
    signature.differentiable += (False,) * len(unused)
