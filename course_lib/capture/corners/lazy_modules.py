"""Lazy modules of torch (`nn.LazyLinear`), whose first call makes their parameters.

In:  a call of one that has no parameters yet.
Out: it gets them now, from the shapes of the arguments; then capture starts again and finds an
     ordinary module.

So this first call is the one thing that capture itself changes outside. It is what eager does at
that place too: nothing that the program has done before may be still to do, and no random number
may have been drawn in the graph.
In PyTorch: `torch/_dynamo/variables/nn_module.py` (`initialize_lazy_module`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._pytree import tree_map

from course_lib import frames
from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.classes import is_a, is_users
from course_lib.capture.effects import has_changed
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import concrete
from course_lib.failing import draws_numbers

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


def has_no_parameters_yet(it: Machine, module: Any) -> bool:
    """Is it a lazy module from outside, of torch's own, that was not called yet?"""
    known = it.world.of(module)
    if known is None or not is_a(module, LazyModuleMixin) or not is_a(module, torch.nn.Module):
        return False
    real: Any = known.real
    return not is_users(type(real)) and real.has_uninitialized_params()


def give_parameters(it: Machine, module: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Make the parameters. Raises what lets capture start again."""
    world = it.world
    known = world.of(module)
    assert known is not None
    real: Any = known.real
    # Eager calls the user's own hooks first, which may do anything.
    users_hooks = real._forward_pre_hooks.keys() - {real._initialize_hook.id}
    if has_changed(world) or any(map(draws_numbers, world.builder.graph.nodes)) or users_hooks:
        raise Unsupported(
            f"a {type(real).__name__} makes its parameters after something else was done",
            "call the module once before you compile",
        )

    # Parameters outlive this call, so they are made outside of inference mode.
    with world.builder.real_world(), torch.inference_mode(False):
        arguments = [tree_map(without_data, part) for part in (args, kwargs)]
        try:
            # torch has it as a hook: it is given the module once more, beside being its method
            frames.call(None, real._infer_parameters, real, *arguments)
        except Exception as error:
            why = f"a {type(real).__name__} cannot make its parameters: {error}"
            raise Unsupported(why, "it raises in eager too") from None
    raise Unsupported(f"a {type(real).__name__} has got its parameters", anew=True)


def without_data(part: Any) -> Any:
    """Another tensor of the same shape, without data; other values as they are."""
    if not isinstance(part, torch.Tensor):
        return concrete(part)
    return torch.empty([*map(concrete, part.shape)], dtype=part.dtype, device="meta")


register(
    CallRule("lazy module without parameters", has_no_parameters_yet, give_parameters),
    before="module",
)
