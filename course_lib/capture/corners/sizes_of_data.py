"""Numbers and sizes that only the data says, kept in the graph: `n.item()`, `sizes.tolist()`,
`x[x > 0]`.

In:  an operation that asks for data, where capture may keep it: a number with
     `cl.config.capture_scalar_outputs`, a size also under `fullgraph=True`.
Out: a symbol of which no value is known. The program may compute with it, and take it as a size. A
     question that needs its value ends the graph, unless `torch._check` has answered it.

Operations whose result has such a size need no rule: torch's fake tensors give the symbols, and
`GraphBuilder` notes where they are found. Such a node is marked `of_data`.
In PyTorch: unbacked symbols, `torch/fx/experimental/symbolic_shapes.py`;
`torch/_dynamo/variables/tensor.py` (`method_item`, `method_tolist`).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.of_data import add_number_of_data
from course_lib.capture.operations import INSTEAD, Operation, takes_data_into_python
from course_lib.capture.rules import GO_ON
from course_lib.capture.symbolic_numbers import is_of_data

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder

MOST_NUMBERS = 64
"""Numbers of a `tolist()`: each is a node."""


def number_of_data(builder: GraphBuilder, operation: Operation) -> Any:
    """`n.item()` and what means the same: a node."""
    if not builder.shapes.numbers_of_data or not operation.is_on_tensor:
        return GO_ON
    tensor, name = operation.args[0], operation.name
    if len(operation.args) > 1 or operation.kwargs or not is_plain(tensor):
        return GO_ON

    is_whole = not tensor.is_floating_point()
    as_it_is = name == "item" or (name == "tolist" and tensor.ndim == 0)
    if as_it_is or (name in ("__int__", "__index__") and is_whole):
        return add_number_of_data(builder, tensor)
    if name == "__float__" and not is_whole:
        return add_number_of_data(builder, tensor)
    if name == "tolist" and tensor.ndim == 1 and is_short(tensor):
        return [add_number_of_data(builder, each) for each in builder.call("unbind", [tensor])]
    return GO_ON


def is_plain(tensor: torch.Tensor) -> bool:
    """Does it hold whole numbers or floats, outside of `vmap` and `grad`?"""
    if tensor.dtype is torch.bool or tensor.is_complex() or tensor.layout is not torch.strided:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def is_short(tensor: torch.Tensor) -> bool:
    size = tensor.shape[0]
    return type(size) is int and size <= MOST_NUMBERS


def row_of_number(builder: GraphBuilder, operation: Operation) -> Any:
    """`x[i]` with a number that only the data says: `x.select(0, i)`."""
    if operation.target is not operator.getitem or not operation.is_on_tensor:
        return GO_ON
    tensor, index = operation.args
    return builder.call("select", [tensor, 0, index]) if is_of_data(index) else GO_ON


INSTEAD.insert(INSTEAD.index(takes_data_into_python), number_of_data)
INSTEAD.append(row_of_number)
