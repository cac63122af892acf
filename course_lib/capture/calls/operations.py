"""Which functions of torch may be nodes of a graph.

In:  a function.
Out: does it compute on tensors, and nothing else?
In PyTorch: `torch/_dynamo/trace_rules.py` (`torch_c_binding_in_graph_functions`,
`torch_non_c_binding_in_graph_functions`).
"""

import types
from typing import Any

import torch

from course_lib.capture.classes import is_a

OPERATION_MODULES = {"torch", "torch.functional", "torch.nn.functional"}
OPERATION_MODULES |= {f"torch._C{name}" for name in ("", "._nn", "._fft", "._special", "._linalg")}
"""Modules whose functions become nodes of the graph."""

NOT_OPERATIONS = {
    "set_printoptions",
    # torch's fake tensor gives wrong strides for channels-last inputs
    "max_unpool2d",
    # a whole optimizer step is one fast kernel already
    "_fused_adam_",
    "_fused_adamw_",
    "_fused_sgd_",
    "_fused_adagrad_",
}
"""Functions of these modules that are left to eager."""

FACTS: set[Any] = {
    getattr(torch, name)
    for name in """finfo iinfo device promote_types result_type can_cast is_tensor is_complex get_default_dtype
    is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cache_enabled get_autocast_dtype
    get_autocast_gpu_dtype get_autocast_cpu_dtype is_floating_point are_deterministic_algorithms_enabled
    is_autocast_cpu_enabled""".split()
}
FACTS |= {
    getattr(torch._C, name, None)
    for name in """_get_tracing_state _log_api_usage_once _is_any_autocast_enabled _is_autocast_available
    _get_privateuse1_backend_name _is_tracing _is_fwd_grad_enabled _is_torch_function_enabled
    _are_functorch_transforms_active _get_cudnn_enabled _get_deterministic_algorithms
    _group_tensors_by_device_and_dtype _cuda_isCurrentStreamCapturing""".split()
}
FACTS.add(torch._C._functorch.peek_interpreter_stack)
"""Functions of torch that compute no tensor: their result follows from constants and from the state
that is guarded."""


def is_operation(function: Any) -> bool:
    """Does torch's function compute on tensors, with no other effect? Then it may be a node. (A
    write to one of its arguments is no other effect: the graph keeps it, in its place.)"""
    # An ATen or custom operator may write to an argument: then its schema says so
    if is_a(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return True
    if getattr(function, "__module__", None) not in OPERATION_MODULES:
        return False
    if getattr(function, "__name__", "") in NOT_OPERATIONS:
        return False

    if is_a(function, types.BuiltinFunctionType):
        # What lies in `torch._C` itself turns or asks a switch. One kind of these is a node all the
        # same: the graph enters and leaves the levels of forward-mode AD (`_enter_dual_level`)
        is_switch = function.__self__ is torch._C and "_dual_level" not in function.__name__
        return not is_switch and function not in FACTS
    return is_a(function, types.FunctionType) and function.__module__ != "torch"
