"""Hints to torch's own compiler that change no value.

In:  `torch._dynamo.error_on_graph_break(...)`, `dont_skip_tracing`, `patch_dynamo_config`,
     `disable_nested_graph_breaks`, `override_cudagraphs`, `mark_static`, in compiled code.
Out: a context that does nothing, or the function itself where the hint decorates one.

In eager these hints do nothing, and ours is another compiler. So the graph goes on behind them. One
is taken: `mark_static` makes a size a number of this graph.

They are only read here if torch's compiler has been imported: without it nobody can give a hint.
In PyTorch: `torch/_dynamo/decorators.py`, `variables/ctx_manager.py`
(`ErrorOnGraphBreakVariable`, `DynamoConfigPatchVariable`).
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.classes import is_a
from course_lib.capture.rules import GO_ON
from course_lib.capture.symbolic_numbers import concrete

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

DECORATORS = "torch._dynamo.decorators"
CONTEXTS = (
    *("error_on_graph_break", "dont_skip_tracing", "patch_dynamo_config"),
    *("disable_nested_graph_breaks", "override_cudagraphs"),
)
"""Functions of `DECORATORS` that give a context, which may decorate a function as well."""
KINDS_OF_CONTEXT = tuple(
    f"{DECORATORS}.{name}"
    for name in (
        *("ErrorOnGraphBreakDecoratorContextManager", "CudagraphOverrideContextManager"),
        "DynamoConfigPatchProxy",
    )
)
"""What these contexts are."""
DECORATED = "torch._dynamo.external_utils.wrap_dunder_call_ctx_manager.<locals>.inner"
"""What a function is that such a context was called with."""


class IdleContext(contextlib.nullcontext[None]):
    """A context that does nothing. It decorates a function with itself."""

    def __call__(self, function: Any) -> Any:
        return function


def hint_called(function: Any) -> str:
    """The name of a function of torch's that gives a hint; "" for any other."""
    module = sys.modules.get(DECORATORS)
    if module is None or not is_a(function, types.FunctionType):
        return ""
    name: str = function.__name__
    return name if getattr(module, name, None) is function else ""


def gives_context(it: Machine, function: Any) -> bool:
    return hint_called(function) in CONTEXTS


def no_context(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The context; or the function, where the hint is called with it (`@dont_skip_tracing`)."""
    if args and is_a(args[0], types.FunctionType):
        return args[0]
    return IdleContext()


def is_decorated(it: Machine, function: Any) -> bool:
    """A function that was decorated with such a context, outside of the compiled function?"""
    if not is_a(function, types.FunctionType):
        return False
    name = f"{function.__module__}.{function.__qualname__}"
    return name == DECORATED and kind_of_context(function) in KINDS_OF_CONTEXT


def kind_of_context(function: types.FunctionType) -> str:
    """The class of the context that a function was decorated with."""
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    cls = type(cells["self"].cell_contents)
    return f"{cls.__module__}.{cls.__qualname__}"


def call_decorated(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The function itself is called."""
    cell = it.world.closure(function)["func"]
    return it.call_function(it.world.open_cell(cell).cell_contents, args, kwargs)


def marks_static(it: Machine, function: Any) -> bool:
    return hint_called(function) == "mark_static"


def mark_static(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`mark_static(x, 0)`: this graph is for this size alone."""
    tensor, dims = [*args, *kwargs.values(), None][:2]
    if not is_a(tensor, torch.Tensor):
        return GO_ON

    shape = tensor.shape
    if dims is None:
        dims = range(len(shape))
    elif is_a(dims, int):
        dims = (dims,)
    for dim in dims:
        concrete(shape[dim])
    return None


RULES = (
    CallRule("context that is a hint to torch", gives_context, no_context),
    CallRule("function decorated with such a context", is_decorated, call_decorated),
    CallRule("size that is marked as static", marks_static, mark_static),
)
for rule in RULES:
    register(rule, before="module")
