"""What a package says to torch's own compiler about its functions.

In:  a function below `torch.compiler.allow_in_graph`, `nonstrict_trace`, `assume_constant_result`
     or `torch._dynamo.disallow_in_graph`.
Out: the same call as torch.compile makes of it: one node, a constant, or the end of the graph.

torch keeps these marks in sets of `id()`s and in attributes. They are only read here, and only if
torch's compiler has been imported: without it nobody can have set one.

The mark of `disallow_in_graph` outlives its function: a later function at the same address has it,
too. In torch.compile it is the same. Such a call ends the graph, and its value stays right.
In PyTorch: `torch/_dynamo/trace_rules.py` (`is_callable_allowed`, `is_callable_disallowed`),
`variables/functions.py` (`invoke_and_store_as_constant`).
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from course_lib import frames
from course_lib.capture.calls.dispatch import CallRule, record, register
from course_lib.capture.corners.cached_functions import argument
from course_lib.capture.guard_tests import has_literal
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Unsupported
from course_lib.capture.values import name_of

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


def is_in_set_of_torch(function: Any, name: str) -> bool:
    """True if torch's compiler keeps this function in its set of that name."""
    rules = sys.modules.get("torch._dynamo.trace_rules")
    functions = getattr(rules, name, None)

    # None until somebody sets the first mark
    ids: set[int] | None = getattr(functions, "function_ids", None)
    return ids is not None and id(function) in ids


def is_allowed(it: Machine, function: Any) -> bool:
    """Marked with `allow_in_graph` or `nonstrict_trace`?"""
    return is_in_set_of_torch(function, "_allowed_callable_ids")


def is_disallowed(it: Machine, function: Any) -> bool:
    """Marked with `disallow_in_graph`, and by a user? (torch marks `graph_break` itself.)"""
    if not is_in_set_of_torch(function, "_disallowed_callable_ids"):
        return False
    module = getattr(function, "__module__", None) or ""
    return not module.startswith("torch._dynamo.")


def refuse_disallowed(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    raise Unsupported(f"calls {name_of(function)}, which torch does not allow in a graph")


def is_assumed_constant(it: Machine, function: Any) -> bool:
    """Marked with `assume_constant_result`?"""
    # An object of the user's may have a `__getattr__`, which nobody may call here
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        return False
    return getattr(function, "_dynamo_marked_constant", False) is True


def ask_once(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """What the function gives now. No guard asks again: the mark is the user's promise.

    Only a plain value can be a constant of the graph. Where the function needs a tensor, or gives
    one, its code is followed like any other's.
    """
    # None stands for what the real function cannot be given: a tensor, an object of the program's
    given = [argument(it, value) for value in (*args, *kwargs.values())]
    reals = [known.real for known in given if known is not None]
    if len(reals) < len(given):
        return GO_ON

    named = dict(zip(kwargs, reals[len(args) :], strict=True))
    result = frames.call(None, function, *reals[: len(args)], **named)
    return result if has_literal(result) else GO_ON


register(CallRule("allowed by torch", is_allowed, record), before="module")
register(CallRule("not allowed by torch", is_disallowed, refuse_disallowed), before="module")
register(CallRule("constant, says the user", is_assumed_constant, ask_once), before="module")
