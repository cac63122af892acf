"""Numbers and sizes that only the data says, kept in the graph: `n.item()`, `sizes.tolist()`,
`x[x > 0]`.

In:  an operation that asks for data, where capture may keep it: under `fullgraph=True`, and with
     `cl.config.capture_scalar_outputs` or `capture_dynamic_output_shape_ops`.
Out: a symbol of which no value is known. The program may compute with it, and take it as a size. A
     question that needs its value ends the graph, unless `torch._check` has answered it.

Operations whose result has such a size need no rule: torch's fake tensors give the symbols, and
`GraphBuilder` notes where they are found. Such a node is marked `of_data`.
In PyTorch: unbacked symbols, `torch/fx/experimental/symbolic_shapes.py`;
`torch/_dynamo/variables/tensor.py` (`method_item`, `method_tolist`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.of_data import add_number_of_data
from course_lib.capture.operations import INSTEAD, Operation, takes_data_into_python
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import is_of_data

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder
    from course_lib.capture.machine import Machine

MOST_NUMBERS = 1024
"""Numbers of a `tolist()`: each is a node."""
TO_A_NUMBER = {"item", "__int__", "__index__", "__float__"}
"""Methods of a tensor that give its one element as a number of Python's."""
WITHOUT_FRACTION = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Dtypes whose elements are ints to Python (or bools)."""


# ---- numbers -------------------------------------------------------------------------------------


def number_of_data(builder: GraphBuilder, operation: Operation) -> Any:
    """`n.item()`, `int(n)`, `n.tolist()`: nodes."""
    if not builder.shapes.numbers_of_data or not operation.is_on_tensor:
        return GO_ON
    tensor, name = operation.args[0], operation.name
    if len(operation.args) > 1 or operation.kwargs or not is_plain(tensor):
        return GO_ON

    if name in TO_A_NUMBER:
        return converted(builder, tensor, name)
    if name != "tolist":
        return GO_ON
    if any(map(is_of_data, tensor.shape)):
        raise Unsupported(
            "makes a list of which only the data says how long it is",
            "keep it a tensor, or make the list outside the compiled function",
        )
    if is_short(tensor):
        return listed(builder, tensor)
    return GO_ON


def is_plain(tensor: torch.Tensor) -> bool:
    """Does it hold truths, whole numbers or floats, outside of `vmap` and `grad`?"""
    has_numbers = tensor.dtype in WITHOUT_FRACTION or tensor.is_floating_point()
    if not has_numbers or tensor.layout is not torch.strided:
        return False
    return not torch._C._functorch.is_functorch_wrapped_tensor(tensor)


def is_short(tensor: torch.Tensor) -> bool:
    """May each element be a node?"""
    sizes = list(tensor.shape)
    are_known = all(type(size) is int for size in sizes)
    return are_known and math.prod(sizes) <= MOST_NUMBERS


def converted(builder: GraphBuilder, tensor: torch.Tensor, name: str) -> Any:
    """What `tensor.item()`, `int(tensor)` or `float(tensor)` gives; GO_ON: eager raises."""
    if name == "item":
        return value_of(builder, tensor)
    if name == "__float__":
        return add_number_of_data(builder, builder.call("double", [tensor]), of=tensor)
    if tensor.dtype in WITHOUT_FRACTION:
        return whole_number(builder, tensor)
    if name == "__index__":
        return GO_ON
    return builder.shapes.compute(int, [add_number_of_data(builder, tensor)])


def value_of(builder: GraphBuilder, tensor: torch.Tensor) -> Any:
    """The one element as Python has it. A truth is a number that is 1."""
    if tensor.dtype is torch.bool:
        return whole_number(builder, tensor) == 1
    return add_number_of_data(builder, tensor)


def whole_number(builder: GraphBuilder, tensor: torch.Tensor) -> Any:
    """The one element as an int: of a truth 0 or 1."""
    of_ints = tensor
    if tensor.dtype is torch.bool:
        of_ints = builder.call("long", [tensor])
    return add_number_of_data(builder, of_ints, of=tensor)


def listed(builder: GraphBuilder, tensor: torch.Tensor) -> Any:
    """`tensor.tolist()`: a list of lists of symbols."""
    if not tensor.ndim:
        return value_of(builder, tensor)
    return [listed(builder, each) for each in builder.call("unbind", [tensor])]


# ---- elements at numbers -------------------------------------------------------------------------


def element_at_number(builder: GraphBuilder, operation: Operation) -> Any:
    """`x[:, i]` with a number that only the data says: `x[:, :].select(1, i)`."""
    if operation.target is not operator.getitem or not operation.is_on_tensor:
        return GO_ON
    tensor, index = operation.args
    view = view_at_number(builder, tensor, index)
    return GO_ON if view is None else view


def write_at_number(builder: GraphBuilder, operation: Operation) -> Any:
    """`x[:, i] = value` with such a number: a write to what `x[:, i]` is."""
    if operation.target is not operator.setitem or not operation.is_on_tensor:
        return GO_ON
    tensor, index, value = operation.args
    if type(index) is not tuple:
        return GO_ON
    view = view_at_number(builder, tensor, index)
    if view is None:
        return GO_ON
    return builder.call(operator.setitem, [view, ..., value])


def view_at_number(builder: GraphBuilder, tensor: torch.Tensor, index: Any) -> Any:
    """`tensor[index]`: the whole dimension at each such number, then the one element of it.

    None: the index has no such number. Raises Unsupported for one that has a list or a tensor, too:
    with those a number is a list of one."""
    parts = list(index) if type(index) is tuple else [index]
    numbers = [at for at, part in enumerate(parts) if is_of_data(part)]
    if not numbers:
        return None
    for part in parts:
        is_plain_part = part is None or part is ... or is_number_or_slice(part)
        if not is_plain_part:
            raise Unsupported(
                "takes elements by a number that only the data says and by a tensor or a list at once",
                "look up one behind the other: `x.select(1, i)[rows]`",
            )

    # `x[a:b, n]` is `x[a:b, :]`, and then `select` of that dimension.
    whole = list(parts)
    for at in numbers:
        whole[at] = slice(None)
    view = builder.call(operator.getitem, [tensor, tuple(whole)])

    # From the last on: so the dimensions before keep their numbers.
    for at in reversed(numbers):
        dim = dimension_of(whole, at, view.ndim)
        view = builder.call("select", [view, dim, parts[at]])
        del whole[at]
    return view


def is_number_or_slice(part: Any) -> bool:
    return type(part) in (int, slice, torch.SymInt)


def dimension_of(parts: Sequence[Any], at: int, dimensions: int) -> int:
    """Which dimension of the result is the one that `parts[at]` leaves?"""
    before, behind = parts[:at], parts[at + 1 :]
    if ... in before:
        return dimensions - 1 - kept_by(behind)
    return kept_by(before)


def kept_by(parts: Sequence[Any]) -> int:
    """How many dimensions of the result come of these parts of an index?"""
    return sum(part is None or type(part) is slice for part in parts)


# ---- Python's functions of a tensor --------------------------------------------------------------

METHOD_OF = {int: "__int__", float: "__float__", len: "__len__"}
"""Python's function → the method of a tensor that it calls. It insists on an int, or a float."""


def gives_a_number(it: Machine, function: Any) -> bool:
    # by identity: `==` of a user's callable may be the user's code
    return any(function is each for each in METHOD_OF)


def number_of_tensor(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`int(x)`, `float(x)` and `len(x)` of a tensor, where that is a symbol."""
    if len(args) != 1 or kwargs or not isinstance(args[0], torch.Tensor):
        return GO_ON
    operation = Operation(METHOD_OF[function], args, {})
    if function is len:
        return symbolic_length(it.world.builder, operation)
    return number_of_data(it.world.builder, operation)


def symbolic_length(builder: GraphBuilder, operation: Operation) -> Any:
    """`len(x)` where that is a symbol."""
    if operation.name != "__len__" or not operation.is_on_tensor or len(operation.args) > 1:
        return GO_ON
    tensor = operation.args[0]
    with torch._C.DisableTorchFunction():
        length = tensor.shape[0] if tensor.ndim else None
    if type(length) is torch.SymInt:
        return length
    return GO_ON


register(
    CallRule("number of a tensor", gives_a_number, number_of_tensor),
    before="function with a handler",
)
INSTEAD.insert(INSTEAD.index(takes_data_into_python), number_of_data)
INSTEAD += [symbolic_length, element_at_number, write_at_number]
