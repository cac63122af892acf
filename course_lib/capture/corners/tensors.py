"""Calls on tensors that ask for data, and need none.

In:  `torch.equal(x, x)`, `torch.arange(3).tolist()`, `table[index]` with an index of no dimensions,
     `y.detach_()`, `x.data = y`.
Out: what they give: a constant, or an operation that says the same.
In PyTorch: `torch/_dynamo/variables/tensor.py`; constants of fake tensors in
`torch/_subclasses/fake_tensor.py`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from course_lib.capture.attributes.tensors import ASSIGNED
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.operations import FINDERS_OF_DATA, INSTEAD, REWRITTEN, Operation
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

MOST_ELEMENTS = 1000
"""Elements of a tensor whose data is computed in capture."""
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


def equal(it: Machine, x: Any, y: Any) -> Any:
    """`torch.equal`: of one tensor with itself, and of two with different shapes, without a look at
    them."""
    tensors = isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor)
    if tensors and x is y and not it.world.builder.inference:
        return True
    if tensors and x.dtype == y.dtype and x.ndim != y.ndim:
        return False
    return it.world.builder.call(torch.equal, [x, y])


def constant(builder: GraphBuilder, tensor: torch.Tensor) -> torch.Tensor | None:
    """The data of a tensor that is made of numbers alone and was never written to, None of any
    other."""
    if tensor.numel() > MOST_ELEMENTS or tensor._version or not builder.is_own(tensor):
        return None
    node = builder.node_of(tensor)
    if node.target not in MAKERS or node.all_input_nodes:
        return None
    with builder.real_world():
        real_tensor: torch.Tensor = node.target(*node.args, **node.kwargs)
    return real_tensor


def element(builder: GraphBuilder, tensor: Any, index: Any) -> Any:
    """`table[index]` with an index of no dimensions.

    (Eager takes it for a number, which only the data knows.)"""
    whole = isinstance(index, torch.Tensor) and not index.is_floating_point()
    if not whole or index.ndim or index.dtype in (torch.bool, torch.uint8) or tensor.ndim == 0:
        return GO_ON
    rows = builder.call(operator.getitem, [tensor, builder.call("unsqueeze", [index, 0])])
    row = builder.call("squeeze", [rows, 0])
    builder.copies.append(row)
    return row


def detach_in_place(builder: GraphBuilder, tensor: Any) -> Any:
    """`y.detach_()` of a tensor that the graph made: from here on its name stands for
    `y.detach()`."""
    if not builder.is_own(tensor) or tensor._is_view():
        return GO_ON
    node_before = builder.node_of(tensor)
    builder.run_fake(torch.Tensor.detach_, [tensor], {})
    node: fx.Node = builder.graph.call_method("detach", (node_before,))
    node.meta.update(val=tensor, location=builder.location, module=builder.module)
    builder.renew(tensor, node)
    return tensor


def set_data(tensor: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """`tensor.data = new`, as an operation of a graph."""
    tensor.data = new
    return tensor


def data_assigned(it: Machine, tensor: torch.Tensor, new: Any) -> None:
    """`tensor.data = new`: from here on the tensor has other memory.

    Such a graph runs operation by operation."""
    builder = it.world.builder
    is_in_region = builder.region or builder.inference or has_levels(tensor)
    if is_in_region or not is_alike(tensor, new) or has_levels(new):
        raise Unsupported(
            "gives a tensor other data (`x.data = ...`) of another form, or in inference mode",
            "use `x.data.copy_(...)`, or do it outside the compiled function",
        )

    builder.call(set_data, [tensor, new])
    node = builder.last_node
    assert node is not None
    node.meta["needs_eager"] = "a tensor is given other memory (`x.data = ...`)"

    # a write that the tensor's version does not count
    builder.uncounted_writes += 1
    builder.has_uncounted = True


def is_alike(tensor: torch.Tensor, new: Any) -> bool:
    """Is `new` a tensor of the same shape, dtype, device and layout?"""
    if not isinstance(new, torch.Tensor) or new.shape != tensor.shape:
        return False
    return (new.dtype, new.device, new.layout) == (tensor.dtype, tensor.device, tensor.layout)


def has_levels(tensor: torch.Tensor) -> bool:
    """Is it inside of `torch.func.grad` or `vmap`?"""
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))


def with_tensor_for_value(builder: GraphBuilder, operation: Operation) -> Any:
    """`torch.addcmul(x, a, b, value=scale)` with a tensor for `scale`, of which eager takes the
    number: `x + a * scale * b`."""
    if operation.name not in ("addcmul", "addcmul_", "addcdiv", "addcdiv_"):
        return GO_ON
    scale = operation.kwargs.get("value")
    if (
        len(operation.args) != 3
        or len(operation.kwargs) != 1
        or not isinstance(scale, torch.Tensor)
    ):
        return GO_ON
    if scale.dtype != torch.float64 or scale.ndim or scale.requires_grad:
        return GO_ON

    x, first, second = operation.args
    # `mul` or `div`, and `_` if it works in place
    combine, ending = operation.name[4:7], operation.name[7:]
    product = builder.call(combine, [builder.call("mul", [first, scale]), second])
    return builder.call(f"add{ending}", [x, product])


def with_tensor_for_alpha(builder: GraphBuilder, operation: Operation) -> Any:
    """`x.add_(y, alpha=scale)` with a tensor for `scale`, of which eager takes the number:
    `x + y * scale`."""
    if operation.name not in ("add", "add_", "sub", "sub_") or len(operation.args) != 2:
        return GO_ON
    scale = operation.kwargs.get("alpha")
    if not isinstance(scale, torch.Tensor) or scale.ndim or len(operation.kwargs) != 1:
        return GO_ON

    # the number is cast to the operands' dtype; one of 16 bits would be rounded at another place
    dtypes = {getattr(arg, "dtype", None) for arg in operation.args}
    if len(dtypes) != 1 or not dtypes <= {torch.float32, torch.float64} or scale.is_complex():
        return GO_ON
    x, y = operation.args
    number = builder.call("to", [builder.call("detach", [scale]), x.dtype])
    return builder.call(operation.name, [x, builder.call("mul", [y, number])])


def dropout_of_nothing(builder: GraphBuilder, operation: Operation) -> Any:
    """`F.dropout(x, p, training=False)` gives `x` itself, as eager does.

    On fakes torch gives a copy."""
    if operation.name != "dropout" or not operation.is_on_tensor:
        return GO_ON

    tensor, *options = operation.args
    by_name = dict(zip(("p", "training"), options, strict=False)) | operation.kwargs
    p = by_name.get("p", 0.5)
    training = by_name.get("training", by_name.get("train", True))
    is_known = type(p) in (int, float) and 0 <= p <= 1 and type(training) is bool
    if not is_known:
        return GO_ON
    if p == 0 or not training:
        return tensor
    return GO_ON


FUNCTIONS[torch.equal] = equal
ASSIGNED["data"] = data_assigned
REWRITTEN |= {"getitem": element, "detach_": detach_in_place}
FINDERS_OF_DATA.append(constant)
INSTEAD += [with_tensor_for_value, with_tensor_for_alpha, dropout_of_nothing]
