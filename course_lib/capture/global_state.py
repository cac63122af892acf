"""The interpreter-wide switches that change what an operation does.
In PyTorch: `torch/csrc/dynamo/guards.cpp`, `GlobalStateGuard`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from course_lib.capture.guard_tests import SwitchIs, Test

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
"""Grad and inference mode, the dtype of new tensors, deterministic algorithms, active modes, vmap and grad, autocast."""
# Where it is allowed, kernels may be made for it
TF32 = "torch._C._get_fp32_precision_getter('cuda', 'matmul')"
# Is new memory filled, where algorithms are deterministic?
FILLED = "torch.utils.deterministic.fill_uninitialized_memory"
AUTOCAST = ("torch.is_autocast_enabled({0!r})", "torch.get_autocast_dtype({0!r})")
ATTENTION = {
    f"_get_{name}_sdp_enabled": f"_set_sdp_use_{name}"
    for name in "flash mem_efficient math cudnn overrideable".split()
}
ATTENTION |= {"_get_sdp_priority_order": "_set_sdp_priority_order"}
"""Which kernels may compute attention: what tells in `torch._C`, and what turns it. Guarded where a program asks."""
TURNED = {"is_grad_enabled": "_set_grad_enabled", "_is_fwd_grad_enabled": "_set_fwd_grad_enabled",
          "get_default_dtype": "_set_default_dtype"} | ATTENTION  # fmt: skip


def tests() -> tuple[Test, ...]:
    """Each switch as it stands now."""
    found: list[Test] = [SwitchIs(path, now(f"{path}()")) for path in SWITCHES]

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
        found.append(Test(question, "==" if type(answer) in (int, str) else "is", answer))
    return tuple(found)


def now(question: str) -> Any:
    """The answer of torch, at this moment."""
    return eval(question, {"torch": torch})


def turned() -> list[tuple[str, str]]:
    """The switches that a program may turn while it is interpreted: for each the function and the arguments that set it as it is now."""
    found = [(f"torch._C.{turn}", str(getattr(torch._C, ask)())) for ask, turn in TURNED.items()]
    for device in ("cpu", "cuda"):
        found.append(
            ("torch.set_autocast_enabled", f"{device!r}, {torch.is_autocast_enabled(device)}")
        )
        found.append(
            ("torch.set_autocast_dtype", f"{device!r}, {torch.get_autocast_dtype(device)}")
        )
    return found


def random() -> Callable[[], object]:
    """A function that puts torch's generators of random numbers back to where they stand now."""
    generators = (torch.default_generator, *torch.cuda.default_generators)
    states = [generator.get_state() for generator in generators]

    def restore() -> None:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)

    return restore


def is_ordinary() -> bool:
    """False while a mode or a transform would change what operations mean: capture leaves such frames alone."""
    modes = torch._C._len_torch_function_stack() + torch._C._len_torch_dispatch_stack()
    return (
        modes == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )
