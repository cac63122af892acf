"""Functions of torch that ask or turn a switch, and contexts that mean nothing to a graph.

In:  `torch.compiler.is_compiling()`, autocast, `sdpa_kernel(...)`, a profiler's context,
     `torch.compile` itself.
Out: an answer that is guarded where it may change, or nothing to record.
In PyTorch: `torch/_dynamo/variables/torch.py` (`handle_is_compiling`, ...),
`variables/ctx_manager.py`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import typing
from typing import TYPE_CHECKING, Any

import torch
from torch.fx.experimental import symbolic_shapes

from course_lib import frames
from course_lib.capture import global_state
from course_lib.capture.assumptions import INSTALLED
from course_lib.capture.calls.tables import FUNCTIONS, always
from course_lib.capture.guard_tests import SwitchIs
from course_lib.capture.sources import FRAME, Unsupported
from course_lib.frames import newer

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

INERT = (
    torch.profiler.record_function,
    torch.autograd.profiler.record_function,
    torch.autograd.graph.disable_saved_tensors_hooks,
)
"""Contexts that mean nothing to a graph: names for profilers, and a ban on hooks for saved tensors,
which a graph has not."""
RUN_AS_THEY_ARE = (
    *(inspect.signature, inspect.getfullargspec),
    *(typing.get_type_hints, typing.get_origin, typing.get_args),
    *(torch.overrides.is_tensor_like, torch.jit.annotate),
    torch._functorch.predispatch.lazy_load_decompositions,
    *(torch.distributed.is_available, getattr(torch.distributed, "is_initialized", None)),
)
"""Functions that look at functions and types only: nothing to follow. (In groups, by module.)"""


def is_compiling(it: Machine) -> bool:
    """True to the program.

    `nn.Module` asks, too: then it leaves out hooks with `always_call`, which run if forward
    raises."""
    return it.code is not torch.nn.Module._call_impl.__code__


def without_subclasses(it: Machine) -> Any:
    """`torch._C.DisableTorchFunctionSubclass()`: the graph has no tensor subclasses, so torch's own
    code may do it without effect.

    In the user's code it raises Unsupported: the program may have a subclass, at which the graph
    ends, and then the switch must be turned in the real world, too.
    """
    if not re.match(INSTALLED, it.code.co_filename):
        raise Unsupported("switches `__torch_function__` off, which is for tensor subclasses")
    return contextlib.nullcontext()


def attention_switch(name: str, it: Machine) -> Any:
    """Which kernels may compute attention: guarded, unless the program itself has turned it."""
    value = getattr(torch._C, name)()
    # As it was when capture began: so a guard, which is asked before the call, can hold
    if (f"torch._C.{global_state.ATTENTION[name]}", str(value)) in it.world.at_start:
        it.world.assume(FRAME, "state", SwitchIs(f"torch._C.{name}", value, "=="))
    return value


def enter_autocast(it: Machine) -> int:
    """`torch.autocast_increment_nesting()`: how many autocast contexts are open now."""
    return it.world.nest(1)


def leave_autocast(it: Machine) -> int:
    """`torch.autocast_decrement_nesting()`: how many are still open."""
    return it.world.nest(-1)


def no_context(it: Machine, *args: Any, **kwargs: Any) -> Any:
    """In place of one of `INERT`: a context that does nothing."""
    return contextlib.nullcontext()


def run_as_it_is(function: Any) -> Any:
    """A handler that runs the function, unseen."""

    def run(it: Machine, *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return run


def compile_inside(it: Machine, model: Any = None, **options: Any) -> Any:
    """`torch.compile(model)` inside: the model is part of this graph.

    Without a model it is a decorator that does nothing."""

    def decorate(decorated: Any) -> Any:
        return decorated

    return decorate if model is None else model


def evaluate_annotations(it: Machine, annotate: Any, *args: Any, **kwargs: Any) -> Any:
    """What the annotations of a class or function are.

    Python does it, in a namespace that it makes for that. Variables of functions around are read
    from their cells."""
    for cell in getattr(annotate, "__closure__", None) or ():
        it.world.open_cell(cell)
    evaluate = newer.evaluator_of_annotations()
    return frames.call(None, evaluate, annotate, *args, **kwargs)


FUNCTIONS |= {
    torch.autocast_increment_nesting: enter_autocast,
    torch.autocast_decrement_nesting: leave_autocast,
    torch.compile: compile_inside,
    newer.evaluator_of_annotations(): evaluate_annotations,
    # How many dispatch modes are active? A guard holds that the program runs under none, and
    # capture's own do not count.
    torch._C._len_torch_dispatch_stack: always(0),
    # a hint for sizes that only the data knows
    symbolic_shapes._advise_is_size: always(None),
}
FUNCTIONS |= dict.fromkeys(
    (torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling), is_compiling
)
FUNCTIONS |= dict.fromkeys(
    (
        torch.compiler.is_exporting,
        torch.jit.is_scripting,
        torch.jit.is_tracing,
        torch._C._is_torch_function_mode_enabled,
        torch._C._has_torch_function,
        torch._C._has_torch_function_unary,
        torch._C._has_torch_function_variadic,
    ),
    always(False),
)
FUNCTIONS |= dict.fromkeys(
    (torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass), without_subclasses
)
FUNCTIONS |= dict.fromkeys(INERT, no_context)
FUNCTIONS |= {function: run_as_it_is(function) for function in RUN_AS_THEY_ARE}
FUNCTIONS |= {
    getattr(torch._C, name): functools.partial(attention_switch, name)
    for name in global_state.ATTENTION
}
