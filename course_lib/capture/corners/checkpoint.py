"""`torch.utils.checkpoint.checkpoint(function, *args)`.

In:  a function whose results autograd is not to keep, but to compute again in backward.
Out: its operations, recorded like any others: what is kept for backward is the back half's choice.
In PyTorch: `torch/_higher_order_ops/wrap.py` (`TagActivationCheckpoint`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch.utils.checkpoint
from torch import fx

from course_lib.capture import effects
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.corners import own_generator
from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine
    from course_lib.capture.world import World

OPTIONS = "preserve_rng_state", "determinism_check", "debug", "early_stop"
"""Keyword arguments of `checkpoint` itself; all others are the function's."""
DRAWING_NAMES = re.compile("drop|rand|bernoulli|normal|uniform")
"""Parts of the names of operations that draw random numbers."""


def checkpoint(
    it: Machine, function: Any, *args: Any, use_reentrant: bool = True, **kwargs: Any
) -> Any:
    """Follow the function. (Reentrant, `checkpoint` is another function: without gradients.)"""
    if use_reentrant or "context_fn" in kwargs:
        raise Unsupported(
            "calls torch.utils.checkpoint in a way that is not followed", "pass use_reentrant=False"
        )

    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        raise Unsupported(
            "calls torch.utils.checkpoint where hooks for saved tensors are active",
            "they see what the checkpoint saves: use one of the two",
        )

    changes_before = changes_and_writes(it.world)
    nodes_before = set(it.world.builder.graph.nodes)
    function_kwargs = {name: arg for name, arg in kwargs.items() if name not in OPTIONS}
    result = it.call(function, *args, **function_kwargs)
    if changes_and_writes(it.world) != changes_before:
        raise Unsupported(
            "calls torch.utils.checkpoint with a function that changes something outside",
            "it runs again in backward, and changes it again: move the change out of the function",
        )

    if draws_from_another_generator(it.world, nodes_before):
        raise Unsupported(
            "draws in a checkpoint from a generator that was made outside of it",
            "it runs again in backward, and draws other numbers: draw them before",
        )

    draws = DRAWING_NAMES.search(str(it.world.builder.graph))
    if draws and not kwargs.get("preserve_rng_state", True):
        raise Unsupported(
            "draws random numbers in a checkpoint that is to draw others in backward",
            "preserve_rng_state=True",
        )
    return result


def changes_and_writes(world: World) -> dict[Any, Any]:
    """All that the program has changed outside so far."""
    return effects.changes(world) | world.builder.writes()


def draws_from_another_generator(world: World, nodes_before: set[fx.Node]) -> bool:
    """Has one of the new nodes drawn from a `torch.Generator`, or seeded it, that these nodes have
    not made?"""
    for node in set(world.builder.graph.nodes) - nodes_before:
        for used in node.all_input_nodes:
            is_generator = used.meta.get("needs_eager") == own_generator.WHY
            if is_generator and (used in nodes_before or used.op == "placeholder"):
                return True
    return False


FUNCTIONS[torch.utils.checkpoint.checkpoint] = checkpoint
