"""What torch says about its operators: which are views, which write, which have an `out` form.

In:  ATen operators and the FX nodes that call them.
Out: the facts that `lowering.lower` decides by. All of them come from the operators' schemas and tags.
In PyTorch: `torch/_ops.py` (`OpOverload`), `torch/_C` (`FunctionSchema`), `torch/_prims_common`, `Tag`s in `native/tags.yaml`.
"""

import functools
import operator
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from course_lib.autograd.effects import is_own
from course_lib.lowering.formulas import NoLoopForm

DTYPES = {
    getattr(torch, name)
    for name in "float16 bfloat16 float32 float64 bool uint8 int8 int16 int32 int64".split()
}
"""What loops compute with. Complex, quantized and 8-bit floating numbers stay with torch's own operators."""


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """float16 and bfloat16 are for storage: loops compute in float32, as eager does."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return dtype


def name_of(node: fx.Node) -> str:
    """The operator's plain name: 'add', 'var_mean'."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None:
        return str(node.target)
    return packet.__name__.strip("_")


def flat_outputs(node: fx.Node) -> list[Any]:
    """What the graph returns, as a flat list."""
    return tree_leaves(node.args[0], is_leaf=lambda x: x is None)


def escaping(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose memory the caller may get to see: outputs, and what they are views of."""
    escaping_nodes = {n for n in flat_outputs(graph.output_node()) if isinstance(n, fx.Node)}

    for node in reversed(graph.nodes):
        if node in escaping_nodes and passes_memory_on(node.target):
            escaping_nodes.update(node.all_input_nodes)
    return escaping_nodes


def passes_memory_on(op: Any) -> bool:
    """True if the result may lie in the memory of an argument: a view, or one of several results."""
    return is_view(op) or op in (operator.getitem, torch.ops.aten._unsafe_view.default)


def is_view(op: Any) -> bool:
    """True if the operator returns memory of its first argument."""
    return getattr(op, "is_view", False)


def is_impure(op: Any) -> bool:
    """True if two calls may differ (random numbers, writing to an argument), or if nobody knows (an operator of the user's)."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return op is not operator.getitem

    is_random = torch.Tag.nondeterministic_seeded in op.tags
    return schema.is_mutable or is_random or is_own(op)


CREATIONS = """to_copy copy full full_like new_full zeros zeros_like new_zeros ones ones_like new_ones arange iota scalar_tensor
    empty empty_like new_empty empty_strided empty_permuted""".split()
"""What makes a tensor of numbers that are known."""


def may_recompute(node: fx.Node) -> bool:
    """May backward compute this again? Yes if it melts into the kernel that needs it: a view, element by element, numbers."""
    if any(user.target is torch.ops.aten.convolution.default for user in node.users):
        return False  # it stands in memory; another convolution would read it there again
    if is_view(node.target):
        return True
    if is_impure(node.target):
        return False

    is_pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return is_pointwise or name_of(node) in CREATIONS


def require_strides(tensor: Any, what: str) -> None:
    """Raise `NotImplementedError` for a tensor that is no array of elements (sparse ones). `what` names it."""
    if isinstance(tensor, torch.Tensor) and tensor.layout is not torch.strided:
        raise NotImplementedError(f"{what} is a {tensor.layout} tensor, which no buffer can hold")


def check_tensors(node: fx.Node) -> None:
    """Raise `NoLoopForm` for tensors that a loop cannot read or write."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    tensors = [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]

    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            raise NoLoopForm(
                f"{tensor.dtype} has no loop form here: {node.target} runs as torch's own operator"
            )

    if len({tensor.device for tensor in tensors}) > 1:
        raise NoLoopForm(
            f"a loop cannot read tensors of two devices: {node.target} runs as torch's own operator"
        )


def copying(op: Any) -> Any:
    """For a view operator that has no rule, the form that copies: a buffer never shares memory with another."""
    if not is_view(op):
        return op

    name = op.overloadpacket.__name__.rstrip("_")
    packet = getattr(torch.ops.aten, f"{name}_copy", None)
    return getattr(packet, op._overloadname, op)


RESIZES_OUT = {torch.ops.aten.binary_cross_entropy.default}
"""Operators that compute something larger in the memory of their result, with a warning."""


@functools.cache
def find_out_variant(op: Any) -> Any:
    """The overload that writes into memory we give it, where torch has a real one (not one that computes, then copies)."""
    schema = getattr(op, "_schema", None)
    if schema is None or schema.is_mutable or torch.Tag.dynamic_output_shape in op.tags:
        return None
    if op in RESIZES_OUT:
        return None

    wanted = [*parameters(op), ("out", "Tensor", True)]
    packet = op.overloadpacket
    for name in packet.overloads():
        overload = getattr(packet, name)
        if parameters(overload) == wanted:
            # torch generated it: it computes, then copies.
            if torch.Tag.generated in overload.tags:
                return None
            return overload
    return None


def parameters(overload: Any) -> list[tuple[str, str, bool]]:
    """(name, type, is it an `out` parameter) of each."""
    return [(a.name, str(a.type), a.is_out) for a in overload._schema.arguments]
