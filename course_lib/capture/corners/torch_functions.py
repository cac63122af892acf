"""Functions of torch that are no plain operations, and objects that take part in torch's functions.

In:  `torch.tensor([x, y])`, `torch.Tensor(2, 3)`, `torch.cond(n > 2, f, g)`, `torch._check(n > 2)`,
     a call of `torch.vmap`.
Out: operations that say the same, or the function's code, followed.
In PyTorch: `torch/_dynamo/variables/torch.py` (`TorchInGraphFunctionVariable`),
`torch/_dynamo/variables/functorch.py`.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
import torch._refs
import torch.utils.checkpoint
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch.distributions import distribution
from torch.utils._pytree import tree_leaves

from course_lib import frames
from course_lib.capture import attributes
from course_lib.capture.calls.dispatch import CallRule, is_torch_operation, register
from course_lib.capture.calls.tables import FUNCTIONS, TYPES, recorded
from course_lib.capture.classes import is_a
from course_lib.capture.graph import STATE
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import NUMBERS, SYMBOLIC, is_of_data
from course_lib.capture.values import tensors_in

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

MOST_SYMBOLS = 64
"""Numbers of a `torch.tensor([n, 2])` with a symbol among them."""
MODULES_OF_LEVELS = "torch._C._functorch", "torch._functorch.predispatch"
"""Modules of what vmap and grad do to tensors, and of the levels at which they do it."""


# ---- makers of tensors ---------------------------------------------------------------------------


def new_tensor(cls: Any, it: Machine, *data: Any, **options: Any) -> Any:
    """`torch.Tensor([1, 2])`, `torch.LongTensor(2, 3)`: of these numbers, or of these sizes."""
    options["dtype"] = torch.get_default_dtype() if cls is torch.Tensor else cls.dtype
    is_of_numbers = len(data) == 1 and type(data[0]) in (list, tuple)
    make: Any = torch.tensor if is_of_numbers else torch.empty
    return it.call(make, *data, **options)


def tensor_of(function: Any, it: Machine, data: Any, **options: Any) -> Any:
    """`torch.tensor(data)`; a list with scalar tensors in it is made as torch's own reference makes
    it, and so are symbolic numbers."""
    if has_symbols(data) and options.keys() <= {"dtype"}:
        dtype = options.get("dtype") or torch._refs._infer_scalar_type(data)
        return tensor_of_symbols(it, data, dtype)
    parts = []
    if type(data) in (list, tuple):
        parts = tensors_in(data)
    if not parts or any(part.ndim for part in parts) or options:
        return it.world.builder.call(function, [data], options)

    # What it calls is recorded: each scalar tensor in the list is an operand of a node.
    return frames.call(
        None,
        torch._refs._internal_new_from_data,
        options={},
        scalar_type=torch.get_default_dtype(),
        device_opt="cpu",
        data=data,
        copy_variables=True,
        copy_numpy=True,
        type_inference=True,
    )


def has_symbols(data: Any) -> bool:
    """Is it a symbolic number, or a short nest of numbers with one?"""
    numbers = tree_leaves(data)
    is_short = len(numbers) <= MOST_SYMBOLS and all(is_a(number, NUMBERS) for number in numbers)
    return is_short and any(type(number) in SYMBOLIC for number in numbers)


def tensor_of_symbols(it: Machine, data: Any, dtype: torch.dtype) -> Any:
    """A tensor of numbers, each a node: those without dimensions, stacked."""
    if type(data) in NUMBERS:
        return it.world.builder.call(torch.scalar_tensor, [data], {"dtype": dtype})
    rows = [tensor_of_symbols(it, part, dtype) for part in data]
    return it.world.builder.call(torch.stack, [rows])


FUNCTIONS |= {
    cls: functools.partial(new_tensor, cls)
    for cls in (torch.Tensor, *torch._tensor_classes)
    if cls.__module__ == "torch"
}
FUNCTIONS |= {
    function: functools.partial(tensor_of, function) for function in (torch.tensor, torch.as_tensor)
}
FUNCTIONS |= {
    function: recorded(function) for function in (torch.autograd.grad, torch.nn.Parameter, *STATE)
}


# ---- regions -------------------------------------------------------------------------------------


def follow_region(it: Machine, function: Any, *args: Any, **kwargs: Any) -> Any:
    """A function below `torch.compiler.nested_compile_region`: followed like any other, into this
    graph.

    torch keeps one graph of the region for all its calls, which shortens the compile; the results
    are the same.
    """
    return it.call(function, *args, **kwargs)


FUNCTIONS[invoke_subgraph_placeholder] = follow_region


# ---- conditions ----------------------------------------------------------------------------------


def check(it: Machine, condition: Any, *message: Any) -> None:
    """`torch._check(condition)`.

    A tensor is taken for true, and each call checks it (`expect`). So does the graph with a size
    that only the data says (`facts.py`). Any other condition is decided now, under a guard."""
    if type(condition) is torch.SymBool and is_of_data(condition):
        it.world.builder.run_fake(torch._check, [condition], {})
        return
    is_checked_later = it.world.builder.expect(condition, True)
    if not is_checked_later and not it.truth(condition):
        raise Unsupported("an assertion fails")


def branch(it: Machine, pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """`torch.cond` of a number, as eager does it.

    On data eager captures both sides, and refuses some: that is left to it."""
    if not isinstance(pred, (torch.Tensor, *NUMBERS)):
        raise Unsupported(f"calls torch.cond with a {type(pred).__name__}, which it refuses")
    taken = true_fn if it.truth(pred) else false_fn
    return it.call(taken, *operands)


def value_of_step(it: Machine, step: Any) -> Any:
    """`_get_value(step)` of `torch.optim`, which makes a Python number of a tensor. Here it stays a
    tensor, in float64: exact, as a Python number is."""
    return it.world.builder.call("double", [step])


def all_true(it: Machine, valid: torch.Tensor, message: str) -> Any:
    """A check of `torch.distributions`. Its callers ask `if not ...: raise`.

    The tensor itself goes to them, so that the graph checks it. Its `bool` would end the graph.
    """
    return it.world.builder.call(torch._is_all_true, [valid])


FUNCTIONS |= dict.fromkeys((torch._assert, torch._check), check)
FUNCTIONS[torch.cond] = branch
if hasattr(distribution, "_all_true_or_runtime_assert"):  # since torch 2.15
    FUNCTIONS[distribution._all_true_or_runtime_assert] = all_true
FUNCTIONS[sys.modules["torch.optim.optimizer"]._get_value] = value_of_step


# ---- vmap and grad; custom operators; objects that take part in torch's functions ----------------


def is_of_levels(it: Machine, function: Any) -> bool:
    """Does the function belong to `torch.vmap` or `torch.func.grad`?"""
    return getattr(function, "__module__", "") in MODULES_OF_LEVELS


def call_of_levels(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Into the graph, if it wraps tensors or sets a level; else it only looks."""
    if function.__name__.startswith(("_", "set_")):
        return it.world.builder.call(function, args, kwargs)
    return it.native(function, *args, **kwargs)


def ask_torch_function(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """An object of the user's that is no tensor may say what torch's function does with it."""
    for arg in (*args, *kwargs.values()):
        if hasattr(type(arg), "__torch_function__") and not isinstance(arg, torch.Tensor):
            handler = attributes.get(it, type(arg), "__torch_function__")
            return it.call(handler, function, (type(arg),), tuple(args), kwargs)
    return GO_ON


def call_custom_operator(it: Machine, op: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What `torch.library.custom_op` gives: its operator."""
    return it.call(op._opoverload, *args, **kwargs)


TYPES[torch._library.custom_ops.CustomOpDef] = call_custom_operator
register(
    CallRule("levels of vmap and grad", is_of_levels, call_of_levels),
    before="object that stands for a call",
)
register(
    CallRule("object with a __torch_function__", is_torch_operation, ask_torch_function),
    before="torch operation",
)
