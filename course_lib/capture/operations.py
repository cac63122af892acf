"""An operation on its way into the graph: what may be done instead of recording it, and what is
checked behind it.

In:  an `Operation`: what is called, with which arguments.
Out: from a rule of `INSTEAD`: a result that needs no node, `Unsupported`, or GO_ON (the ordinary
     case). From a rule of `CHECKS`, once the operation has run on fakes: nothing, or `Unsupported`.

`GraphBuilder.call` asks the rules in their order; `corners/` adds more to both lists.
In PyTorch: `torch/_dynamo/variables/tensor.py` (`TensorVariable.call_method`, with a method for
each special name).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import IN_PLACE, OPERATORS
from course_lib.capture.values import tensors_in

if TYPE_CHECKING:
    from course_lib.capture.graph import GraphBuilder

TO_PYTHON = set(
    """item tolist numpy __bool__ __int__ __float__ __index__ __complex__ __array__ data_ptr __repr__ __format__
    __reduce_ex__ __deepcopy__ __contains__ __hash__""".split()
)
"""Tensor methods whose result is not a tensor but depends on its data."""
TO_NUMBERS = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}
"""Those of `TO_PYTHON` that give numbers."""
REACH_AROUND = set(
    """backward grad requires_grad_ register_hook register_post_accumulate_grad_hook retain_grad set_ resize_
    resize_as_ share_memory_ storage untyped_storage storage_offset pin_memory __setstate__ swap_tensors as_subclass
    t_ transpose_ squeeze_ unsqueeze_ swapaxes_ swapdims_ detach_ apply_ map_ map2_ __dlpack__ __set__ from_numpy
    from_file from_dlpack frombuffer is_inference is_shared is_set_to quantize_per_tensor
    quantize_per_tensor_dynamic quantize_per_channel""".split()
)
"""Functions whose effect a graph of operations cannot hold, or that may share memory with what is
no tensor."""
RESHAPING = {"t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_"}
"""Those of `REACH_AROUND` that a graph can hold for its own tensors."""

OF_NUMBERS = {IN_PLACE[f"{sign}="]: function for sign, function in OPERATORS.items()}
OF_NUMBERS |= dict.fromkeys((operator.pow, operator.ipow), pow)
"""Operator → the function to record in its place, if the left operand is a number.

`2 *= x` makes a new tensor. And torch.fx would print the power of -2 as `-2 ** x`, which is
`-(2 ** x)`."""

REWRITTEN: dict[str, Callable[..., Any]] = {}
"""Name of an operation → a function of (builder, *arguments) that computes it by other operations.
It gives GO_ON if it cannot."""
FINDERS_OF_DATA: list[Callable[..., Any]] = []
"""Functions of (builder, tensor) that give a real tensor with the tensor's data, if they are known,
or None."""


@dataclass
class Operation:
    """A call that the program makes: of a function, or of a method of the first argument (then
    `target` is its name)."""

    target: Callable[..., Any] | str
    args: list[Any]
    kwargs: dict[str, Any]

    # The tensors that are given as `out=`, with their shapes before the call
    out: list[tuple[torch.Tensor, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.args = [device_of_cpu(arg) for arg in self.args]
        self.kwargs = {name: device_of_cpu(arg) for name, arg in self.kwargs.items()}
        self.out = [(tensor, tensor.shape) for tensor in tensors_in(self.kwargs.get("out"))]

    @property
    def name(self) -> str:
        """`add` of `torch.add` and of `tensor.add`, "" if the function has none."""
        target = self.target
        if isinstance(target, str):
            return target
        return getattr(target, "__name__", "")

    @property
    def function(self) -> Callable[..., Any]:
        """What runs on fakes."""
        target = self.target
        if isinstance(target, str):
            return getattr(torch.Tensor, target)
        return target

    @property
    def is_on_tensor(self) -> bool:
        """Is the first argument a tensor?"""
        return bool(self.args) and isinstance(self.args[0], torch.Tensor)


def device_of_cpu(value: Any) -> Any:
    """There is one CPU: a tensor on `cpu:0` says that it is on `cpu`, but a fake one would not."""
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device("cpu")
    if isinstance(value, str) and value == "cpu:0":
        return "cpu"
    return value


# ---- instead of recording ------------------------------------------------------------------------


def said_by_others(builder: GraphBuilder, operation: Operation) -> Any:
    """Some operations have no form of their own in a graph, but other operations compute the
    same."""
    rewrite = REWRITTEN.get(operation.name)
    if rewrite is None or operation.kwargs or not operation.is_on_tensor:
        return GO_ON
    return rewrite(builder, *operation.args)


def known_data(builder: GraphBuilder, operation: Operation) -> Any:
    """`torch.arange(3).tolist()`: of a tensor that is made of constants the numbers are known."""
    if operation.name not in TO_NUMBERS or not operation.is_on_tensor:
        return GO_ON

    tensor, *rest = operation.args
    for find in FINDERS_OF_DATA:
        data = find(builder, tensor)
        if data is not None:
            with builder.real_world():
                return getattr(data, operation.name)(*rest)
    return GO_ON


def takes_data_into_python(builder: GraphBuilder, operation: Operation) -> Any:
    """`x.item()`, and `"%s" % x`, need the data, which no graph has yet."""
    name = operation.name
    into_text = name in ("mod", "imod") and isinstance(operation.args[0], (str, bytes))
    if name not in TO_PYTHON and not into_text:
        return GO_ON

    raise Unsupported(
        f"tensor.{name}() takes the tensor's data into Python, which waits for the result and ends the graph",
        "keep the value a tensor, or call it outside the compiled function",
    )


def reaches_around(builder: GraphBuilder, operation: Operation) -> Any:
    """Hooks, storages, `backward`: the graph is no place for them."""
    name = operation.name
    if name not in REACH_AROUND:
        return GO_ON
    if name in RESHAPING and builder.is_own(operation.args[0]):
        return GO_ON
    if name in ("requires_grad_", "grad") and at_a_level_of_grad(operation):
        return GO_ON

    raise Unsupported(
        f"{name}() reaches around the graph",
        "call it outside the compiled function",
        as_eager=asks_for_gradient(builder, operation),
    )


def at_a_level_of_grad(operation: Operation) -> bool:
    """Does the operation belong to `torch.func.grad`? Then its tensors are wrapped for a level."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return any(map(wrapped, tensors_in(operation.args)))


def asks_for_gradient(builder: GraphBuilder, operation: Operation) -> str:
    """Does the call ask autograd for the gradient of what the graph computes?

    Then why the graph must run as eager does.

    A compiled graph is one node for autograd, which knows no gradient of what is computed in its
    middle.
    """
    args, inputs = operation.args, operation.kwargs.get("inputs")
    # Name of the operation → the arguments for whose gradient it asks
    arguments_by_name = {
        "register_hook": args[:1],
        "retain_grad": args[:1],
        "grad": [args[1:2], inputs],
        "backward": [inputs],
    }
    for tensor in tree_leaves(arguments_by_name.get(operation.name)):
        if builder.has_node(tensor) and builder.node_of(tensor).op != "placeholder":
            return f"{operation.name}() asks for the gradient of a tensor that the graph computes"
    return ""


INSTEAD: list[Callable[[GraphBuilder, Operation], Any]] = [
    said_by_others,
    known_data,
    takes_data_into_python,
    reaches_around,
]
"""Each gives the operation's result, raises Unsupported, or gives GO_ON. The first answer
counts."""


# ---- once it has run on fakes --------------------------------------------------------------------


def out_keeps_its_shape(builder: GraphBuilder, operation: Operation, result: Any) -> None:
    """Eager gives a tensor in `out=` another shape if need be; a graph cannot."""
    if any(tensor.shape != shape for tensor, shape in operation.out):
        raise Unsupported("gives another shape to `out=`", "give it a tensor of the result's shape")


def copies_are_not_written_to(builder: GraphBuilder, operation: Operation, result: Any) -> None:
    """Where the graph makes a copy, eager makes a view: a write would go elsewhere."""
    if any(copy._version for copy in builder.copies):
        raise Unsupported(
            "writes to an element that was looked up by a tensor without dimensions",
            "use the index as a number: `x[index.item()]`",
        )


CHECKS: list[Callable[[GraphBuilder, Operation, Any], None]] = [
    out_keeps_its_shape,
    copies_are_not_written_to,
]
"""Each raises Unsupported if the operation did what a graph cannot hold."""
