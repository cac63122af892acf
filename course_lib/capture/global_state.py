"""The interpreter-wide switches that change what an operation does.
In PyTorch: `torch/csrc/dynamo/guards.cpp`, `GlobalStateGuard`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from course_lib.capture.guard_tests import Operator, SwitchIs, Test

SWITCHES = (
    "torch.is_grad_enabled",
    "torch.is_inference_mode_enabled",
    "torch.get_default_dtype",
    "torch.are_deterministic_algorithms_enabled",
    "torch._C._len_torch_function_stack",
    "torch._C._len_torch_dispatch_stack",
    "torch._C._functorch.peek_interpreter_stack",
    "torch._C._is_any_autocast_enabled",
)
"""Grad and inference mode, the dtype of new tensors, deterministic algorithms, active modes, vmap
and grad, autocast."""
# The precision of products of matrices on a GPU: "tf32" where that is allowed
TF32 = "torch._C._get_fp32_precision_getter('cuda', 'matmul')"
# Is new memory filled, where algorithms are deterministic?
FILLED = "torch.utils.deterministic.fill_uninitialized_memory"
AUTOCAST = ("torch.is_autocast_enabled({0!r})", "torch.get_autocast_dtype({0!r})")
ATTENTION = {
    f"_get_{name}_sdp_enabled": f"_set_sdp_use_{name}"
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
}
ATTENTION["_get_sdp_priority_order"] = "_set_sdp_priority_order"
"""Which kernels may compute attention: the function of `torch._C` that reads a switch → the one
that sets it. They are guarded only where a program reads them."""
SETTERS = {
    "is_grad_enabled": "_set_grad_enabled",
    "_is_fwd_grad_enabled": "_set_fwd_grad_enabled",
    "get_default_dtype": "_set_default_dtype",
    **ATTENTION,
}
"""The switches that a program may turn while it is interpreted: the function of `torch._C` that
reads one → the one that sets it."""


def tests() -> tuple[Test, ...]:
    """Each switch as it stands now."""
    tests_of_switches: list[Test] = [SwitchIs(path, now(f"{path}()")) for path in SWITCHES]

    # these matter only while another switch is on
    others = []
    if now(TF32) == "tf32":
        others.append(TF32)
    if torch._C._is_any_autocast_enabled():
        others += [switch.format(device) for device in ("cpu", "cuda") for switch in AUTOCAST]
    if torch.are_deterministic_algorithms_enabled():
        others.append(FILLED)

    for question in others:
        answer = now(question)
        compared_by: Operator = "==" if type(answer) in (int, str) else "is"
        tests_of_switches.append(Test(question, compared_by, answer))
    return tuple(tests_of_switches)


def now(question: str) -> Any:
    """The answer of torch, at this moment."""
    return eval(question, {"torch": torch})


def turned() -> list[tuple[str, str]]:
    """The switches that a program may turn while it is interpreted, as they stand now: (a function,
    the arguments that set it so)."""
    settings = []
    for getter, setter in SETTERS.items():
        value = getattr(torch._C, getter)()
        settings.append((f"torch._C.{setter}", str(value)))

    for device in ("cpu", "cuda"):
        enabled, dtype = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
        settings.append(("torch.set_autocast_enabled", f"{device!r}, {enabled}"))
        settings.append(("torch.set_autocast_dtype", f"{device!r}, {dtype}"))
    return settings


def random() -> Callable[[], object]:
    """A function that puts torch's generators of random numbers back to where they stand now."""
    generators = (torch.default_generator, *torch.cuda.default_generators)
    states = [generator.get_state() for generator in generators]

    def restore() -> None:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    return restore


def is_ordinary() -> bool:
    """False while a mode or a transform would change what operations mean: capture leaves such
    frames alone."""
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return (
        modes == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )
