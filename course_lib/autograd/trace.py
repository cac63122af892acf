"""A captured graph, traced once more: into core ATen operators, without mutation.

In:  the FX graph of capture (`torch.nn.functional.layer_norm`, `operator.add`, `Tensor.add_`, ...).
Out: an FX graph of ATen operators (`aten.var_mean.correction`, `aten.add.Tensor`, ...), each with its FakeTensor in
     `meta["val"]` and
     the captured node it came from in `meta["origin"]`.

Running the captured graph on fake tensors while recording what reaches torch's dispatcher does three things at once:
composite functions fall apart into ATen operators, the decompositions we ask for split those further, and
functionalization turns every in-place operation into a new value (with one `copy_` at the end for each *input* that
was written to).
In PyTorch: `torch/_functorch/_aot_autograd/graph_capture.py`, `aot_dispatch_base_graph`; the recording is the same
`make_fx`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx


class Tagging(fx.Interpreter):
    """Runs the captured graph and marks every node that is recorded meanwhile with the node being run."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        mode = get_proxy_mode()
        if mode is not None and n.op not in ("placeholder", "output"):
            for new in reversed(mode.tracer.graph.nodes):
                if new.op == "placeholder" or "origin" in new.meta:
                    break
                new.meta["origin"] = n.meta.get("origin", n)
        return result


def restride(value: Any, node: Any) -> Any:
    """An output, laid out as the captured operation itself would: a decomposition may choose other strides."""
    like = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(value, torch.Tensor) or like is None:
        return value
    if all(n == 1 or have == want for n, have, want in zip(value.shape, value.stride(), like.stride(), strict=True)):
        return value
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device).copy_(value)


def functional(run: Callable[..., Any], fakes: Sequence[Any], decompositions: Mapping[Any, Callable[..., Any]]) -> fx.GraphModule:
    """What `run` asks of torch's dispatcher, without mutation but for a `copy_` at the end for each input written to."""

    def record(function: Callable[..., Any], table: Mapping[Any, Callable[..., Any]]) -> fx.GraphModule:
        return make_fx(torch.func.functionalize(function, remove="mutations"), decomposition_table=dict(table))(*fakes)

    aten = record(run, decompositions)
    for node in filter(writes_to_a_value, aten.graph.nodes):  # what runs below functionalization may write in place
        node.target = functional_twin(node) or node.target
    return record(Tagging(aten).run, {}) if any(map(writes_to_a_value, aten.graph.nodes)) else aten


def writes_to_a_value(node: fx.Node) -> bool:
    """True for an in-place operator on something that the graph computed."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable and node.all_input_nodes[0].op == "call_function"


def functional_twin(node: fx.Node) -> Any:
    """For an in-place operator on what nobody else sees any more: the one that makes a new tensor (`add` for `add_`)."""
    value = node.all_input_nodes[0]
    if shares_memory(value) or any(shares_memory(user) or user > node for user in value.users if user is not node):
        return None
    packet = getattr(torch.ops.aten, node.target.overloadpacket.__name__.removesuffix("_"), None)
    return getattr(packet, node.target._overloadname, None)


def shares_memory(node: fx.Node) -> bool:
    """True if the node's value may lie in the memory of another's: a view, or a part of several views."""
    schema = getattr(node.target, "_schema", None)
    return schema is None or any(result.alias_info is not None for result in schema.returns)


def trace(gm: fx.GraphModule, decompositions: Mapping[Any, Callable[..., Any]]) -> fx.GraphModule:
    """The graph in ATen operators, for the shapes in its placeholders' `meta["val"]`. No gradient is recorded."""
    fakes = [node.meta["val"] for node in gm.graph.nodes if node.op == "placeholder"]
    mode = next((t.fake_mode for t in fakes if hasattr(t, "fake_mode")), None) or FakeTensorMode()
    wanted = gm.graph.output_node().args[0]

    def run(*args: torch.Tensor) -> tuple[Any, ...]:
        outputs = Tagging(gm).run(*args)
        return tuple(restride(value, node) for value, node in zip(outputs, wanted, strict=True))

    with torch.no_grad(), mode:
        aten = functional(run, fakes, decompositions)
    for new, old in zip(aten.graph.find_nodes(op="placeholder"), gm.graph.find_nodes(op="placeholder"), strict=True):
        new._rename(old.name)  # `self_ln_weight` reads better in a kernel than `arg1_1`
        new.target = new.name
        new.meta["origin"] = old
    aten.graph.eliminate_dead_code()
    aten.recompile()
    return aten


def mutated_inputs(aten: fx.GraphModule) -> list[fx.Node]:
    """The placeholders that the graph writes to."""
    written = (n.args[0] for n in aten.graph.nodes if n.op == "call_function" and n.target is torch.ops.aten.copy_.default)
    return [target for target in written if isinstance(target, fx.Node) and target.op == "placeholder"]
