"""Optimizers that are not torch's own: their `step` and their `zero_grad` are followed.

In:  a call of `zero_grad`, or of `_optimizer_step_code`, an empty method by which torch's profiler
     finds the step.
Out: what torch's code does. `zero_grad` of torch's own optimizers ends the graph. It depends on
     whether there are gradients, which changes after the first call: the graph around it would be
     compiled twice.
In PyTorch: `OptimizerVariable` in `torch/_dynamo/variables/optimizer.py`.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.functions import bound_values
from course_lib.capture.calls.tables import FUNCTIONS, always
from course_lib.capture.classes import is_users
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.operations import REWRITTEN
from course_lib.capture.rules import GO_ON

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

Optimizer = torch.optim.Optimizer


def zero_grad(it: Machine, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """`optimizer.zero_grad()`"""
    if not is_users(type(optimizer)):
        return GO_ON
    # torch has wrapped it, so that TorchDynamo leaves it alone
    function: Any = inspect.unwrap(Optimizer.zero_grad)
    arguments = [optimizer, *args]
    it.world.adopt(function, arguments)
    return it.enter(function, bound_values(it, function, arguments, kwargs))


def needs_no_gradient(builder: GraphBuilder, tensor: Any, wanted: Any = True) -> Any:
    """`p.grad.requires_grad_(False)` of a gradient that has none itself."""
    if wanted is False and not tensor.requires_grad:
        return tensor
    return GO_ON


FUNCTIONS[Optimizer.zero_grad] = zero_grad
FUNCTIONS[Optimizer._optimizer_step_code] = always(None)
REWRITTEN["requires_grad_"] = needs_no_gradient
