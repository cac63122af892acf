"""Calls of `nn.Module`s: what `forward` does, and hooks where there are any.

In:  a module of the interpreted program, its arguments.
Out: what `module(*args)` gives, and a guard on whether it has hooks.
In PyTorch: `torch/_dynamo/variables/nn_module.py` (`UnspecializedNNModuleVariable.call_function`).
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture import attributes
from course_lib.capture.guard_tests import Holds
from course_lib.capture.sources import FRAME, HELPERS, Source
from course_lib.capture.world import LeftOut, Place

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
"""The attributes in which a module keeps its hooks: dicts, empty in most modules."""
OWN_COMPILED_CALL = "_compiled_call_impl"
"""The attribute in which `module.compile()` puts the compiled call."""
HAS_HOOKS = (
    " or ".join(f"{{0}}[{name!r}]" for name in HOOKS)
    + f" or '{OWN_COMPILED_CALL}' in {{0}} and {{0}}['{OWN_COMPILED_CALL}']"
)
"""A question about the `__dict__` of a module, as Python: does a call of the module run more than
`forward`? (`nn.Module._call_impl` asks the same.)"""
SHARED_HOOKS = [getattr(torch.nn.modules.module, f"_global{name}") for name in HOOKS]
"""The hooks that all modules share."""
HELPERS["SHARED_HOOKS"] = SHARED_HOOKS


def place_in(function: Any, line: str) -> Place:
    """Where a line of one of torch's functions stands. `line`: a part of its text."""
    lines, first = inspect.getsourcelines(function)
    offset = next((i for i, text in enumerate(lines) if line in text), 0)
    return Place(function.__code__.co_filename, first + offset, function.__globals__)


OUTER = place_in(torch.nn.Module._wrapped_call_impl, "self._call_impl(")
INNER = place_in(torch.nn.Module._call_impl, "return forward_call(")
FRAMES_LEFT_OUT = {"forward": (OUTER, INNER), "_call_impl": (OUTER,), "__call__": ()}
"""The frames between a call of a module and the method that is interpreted."""


def call_module(
    it: Machine, module: torch.nn.Module, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """`module(*args)`: without hooks, what its `forward` does."""
    # The interpreter holds a stand-in of a module from outside. The real module knows its hooks.
    known = it.world.of(module)
    real: Any = known.real if known else module
    # A module that was compiled by itself has more to do than `forward`, too.
    hooked = any(getattr(real, name) for name in (*HOOKS, OWN_COMPILED_CALL))
    overrides_call = "_call_impl" in type(module).__dict__

    # Guards: there are hooks, or none, as now.
    assume_hooks(it, FRAME, "any(SHARED_HOOKS)", any(SHARED_HOOKS), "for all modules")
    if known is not None:
        assume_hooks(it, it.world.own(known, "__dict__"), HAS_HOOKS, hooked, f"on {known.source}")

    if has_own_call(module):
        method = "__call__"
    elif hooked or any(SHARED_HOOKS) or overrides_call:
        method = "_call_impl"
    else:
        method = "forward"
    function = attributes.get(it, module, method)

    world = it.world
    depth, before = len(world.running), len(world.left_out)
    world.left_out += [LeftOut(depth, place) for place in FRAMES_LEFT_OUT[method]]
    try:
        return it.call_function(function, args, kwargs)
    finally:
        del world.left_out[before:]


def has_own_call(module: torch.nn.Module) -> bool:
    """Has the class a `__call__` of its own?

    The one of `GraphModule` does not count: it only adds to the text of errors."""
    if isinstance(module, torch.fx.GraphModule):
        return False
    return type(module).__call__ is not torch.nn.Module.__call__


def assume_hooks(it: Machine, source: Source, test: str, has_hooks: bool, where: str) -> None:
    """Guard that there are hooks, or that there are none.

    `test`: Python that asks whether there are."""
    if has_hooks:
        guarded = Holds(test, f"hooks {where}")
    else:
        guarded = Holds(f"not ({test})", f"no hooks {where}")
    it.world.assume(source, "hooks", guarded)
