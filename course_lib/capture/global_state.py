"""The interpreter-wide switches that change what an operation does. One tuple, compared on every call.

In PyTorch: `torch/csrc/dynamo/guards.cpp`, `GlobalStateGuard`.
"""

from __future__ import annotations

from typing import Any

import torch

CHECK = "global_state"
"""The name by which checks call `read`."""


def read() -> tuple[Any, ...]:
    """Grad mode, inference mode, default dtype, autocast, active modes and transforms (vmap, grad), deterministic
    algorithms."""
    autocast = torch._C._is_any_autocast_enabled()
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        autocast and tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in ("cpu", "cuda")),
        torch._C._len_torch_function_stack(),
        torch._C._functorch.peek_interpreter_stack() is None,
        torch._C._get_deterministic_algorithms(),
    )


def is_ordinary() -> bool:
    """False while a mode or a transform would change what operations mean: capture leaves such frames alone."""
    return (
        torch._C._len_torch_function_stack() == 0
        and torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
    )
