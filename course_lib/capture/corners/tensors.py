"""Calls on tensors that ask for data, and need none.

In:  `torch.equal(x, x)`, `torch.arange(3).tolist()`, `table[index]` with an index of no dimensions, `y.detach_()`, `x.data = y`.
Out: what they give: a constant, or an operation that says the same.
In PyTorch: `torch/_dynamo/variables/tensor.py`; constants of fake tensors in `torch/_subclasses/fake_tensor.py`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from course_lib.capture.attributes import ASSIGNED
from course_lib.capture.calls import RULES
from course_lib.capture.graph import REWRITTEN, TO_NUMBERS, GraphBuilder
from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.interpreter import Interpreter

FEW = 1000  # Elements of a constant
MAKERS = {
    torch.arange,
    torch.tensor,
    torch.zeros,
    torch.ones,
    torch.full,
    torch.linspace,
    torch.eye,
}
"""Functions that make a tensor of nothing but numbers."""


def equal(it: Interpreter, x: Any, y: Any) -> Any:
    """`torch.equal`: of one tensor with itself, and of two with different shapes, without a look at them."""
    tensors = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    if tensors and x is y and not it.world.builder.inference:
        return True
    if tensors and x.dtype == y.dtype and x.ndim != y.ndim:
        return False
    return it.world.builder.call(torch.equal, [x, y])


def constant(builder: GraphBuilder, tensor: torch.Tensor) -> torch.Tensor | None:
    """The data of a tensor that is made of numbers alone and was never written to, None of any other."""
    if tensor.numel() > FEW or tensor._version or not builder.is_own(tensor):
        return None
    node = builder.node_of(tensor)
    if node.target not in MAKERS or node.all_input_nodes:
        return None
    with builder.real_world():
        made: torch.Tensor = node.target(*node.args, **node.kwargs)
    return made


def element(builder: GraphBuilder, tensor: Any, index: Any) -> Any:
    """`table[index]` with an index of no dimensions. (Eager takes it for a number, which only the data knows.)"""
    whole = isinstance(index, torch.Tensor) and not index.is_floating_point()
    if not whole or index.ndim or index.dtype in (torch.bool, torch.uint8) or tensor.ndim == 0:
        return NotImplemented
    rows = builder.call(operator.getitem, [tensor, builder.call("unsqueeze", [index, 0])])
    found = builder.call("squeeze", [rows, 0])
    builder.copies.append(found)
    return found


def detach_in_place(builder: GraphBuilder, tensor: Any) -> Any:
    """`y.detach_()` of a tensor that the graph made: from here on its name stands for `y.detach()`."""
    if not builder.is_own(tensor) or tensor._is_view():
        return NotImplemented
    before = builder.node_of(tensor)
    builder.run_fake(torch.Tensor.detach_, [tensor], {})
    node: fx.Node = builder.graph.call_method("detach", (before,))
    node.meta.update(val=tensor, location=builder.location, module=builder.module)
    builder.renew(tensor, node)
    return tensor


def set_data(tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """`tensor.data = new`, as an operation of a graph."""
    tensor.data = new
    return tensor


def data_assigned(it: Interpreter, tensor: torch.Tensor, new: Any) -> None:
    """`tensor.data = new`: from here on the tensor has other memory. Such a graph runs operation by operation."""
    alike = isinstance(new, torch.Tensor) and (new.shape, new.dtype, new.device, new.layout) == (
        tensor.shape,
        tensor.dtype,
        tensor.device,
        tensor.layout,
    )
    builder = it.world.builder
    if not alike or builder.region or builder.inference or has_levels(tensor) or has_levels(new):
        raise Unsupported(
            "gives a tensor other data (`x.data = ...`) of another form, or in inference mode",
            "use `x.data.copy_(...)`, or do it outside the compiled function",
        )
    builder.call(set_data, [tensor, new])
    node = builder.last_node
    assert node is not None
    node.meta["needs_eager"] = "a tensor is given other memory (`x.data = ...`)"
    # no version tells of it
    builder.unseen += 1
    builder.untracked = True


def has_levels(tensor: torch.Tensor) -> bool:
    """Is it inside of `torch.func.grad` or `vmap`?"""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


RULES[torch.equal] = equal
ASSIGNED["data"] = data_assigned
REWRITTEN |= {"getitem": element, "detach_": detach_in_place}
TO_NUMBERS.append(constant)
