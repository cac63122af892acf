"""Calls of the user's own operations: an `autograd.Function`, a custom operator.

The code of such an operation is torch's to run, not capture's to follow. There are three ways to
keep its meaning:

    its code only computes      one node of the graph; the constants that it reads are guarded
    a forward that does more    of an `autograd.Function`: forward is followed, if its backward only
                                computes (`followed_functions.py`)
    else                        a graph break: it is called once a call, in its place, exactly as
                                eager does

`reading.py` says which. With `fullgraph=True` a custom operator stays in the graph in any case, as
torch documents it; what an `autograd.Function` does outside has no form in a graph, so there it is
refused.
In PyTorch: `torch/_dynamo/variables/misc.py` (`AutogradFunctionVariable`),
`torch/_higher_order_ops/auto_functionalize.py`.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from course_lib.capture import attributes
from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.classes import is_a, is_users
from course_lib.capture.corners.followed_functions import follow
from course_lib.capture.corners.reading import Name, Outside, Role, read
from course_lib.capture.effects import has_changed
from course_lib.capture.graph import is_constant_argument
from course_lib.capture.sources import Unsupported
from course_lib.capture.symbolic_numbers import SYMBOLIC, concrete
from course_lib.capture.values import CONSTANT_TYPES

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

TORCHS = "aten", "prims", "prim", "quantized", "course_lib", "inductor", "profiler", "higher_order"
"""Namespaces of operators that are not the user's."""
FORWARD, BACKWARD = ("forward", "setup_context"), ("backward", "vjp", "jvp")
WHAT_TO_DO = "keep its code to tensors and constants, or call it outside the compiled function"
KERNEL = re.compile(
    r"^(?!Meta|FuncTorch|debug|name|schema)([\w\[\]]+): registered at (.*?):\d+ ::", re.M
)
"""A line of `_dispatch_dump`: a dispatch key, and the file whose code was registered for it."""

TORCHS_APPLY = inspect.getattr_static(torch.autograd.Function, "apply")
METHOD_TYPES = types.MethodType, types.BuiltinMethodType
"""What `cls.apply` is: a method written in Python, and since torch 2.14 one written in C."""


# ---- autograd.Function ---------------------------------------------------------------------------


def is_autograd_apply(it: Machine, function: Any) -> bool:
    """Is this `cls.apply` of an `autograd.Function`, torch's own?"""
    if type(function) not in METHOD_TYPES:
        return False

    cls = function.__self__
    is_function = is_a(cls, type) and issubclass(cls, torch.autograd.Function)
    return (
        is_function
        and inspect.getattr_static(cls, "apply") is TORCHS_APPLY
        and function == cls.apply
    )


def call_autograd_function(
    it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """`cls.apply(...)`: one node of the graph, with a backward of its own, if its code only
    computes."""
    cls = function.__self__
    name = f"{cls.__name__}.apply"
    wanted = wants_gradient(args)
    outside = Outside()
    for arg in (*args, *kwargs.values()):
        look_at_argument(arg, outside)

    why = cannot_be_a_node(it, cls, [*args, *kwargs.values()], outside)
    if why and kwargs:
        raise Unsupported(f"calls {name} with keywords: it {why}", WHAT_TO_DO)
    if why:
        if wanted:
            look_at_backward(it, cls, name, Outside())
        return follow(it, cls, args, wanted)

    if wanted:
        look_at_backward(it, cls, name, outside)
    target: Any = functools.partial(function)
    target.__name__ = f"{cls.__name__}_apply"
    target.__module__ = cls.__module__ if is_users(cls) else "own"
    return it.world.builder.call(target, args, kwargs)


def cannot_be_a_node(it: Machine, cls: Any, args: list[Any], read_by_arguments: Outside) -> str:
    """Why `forward` must be followed, "" if its code only computes.

    `read_by_arguments`: what functions among the arguments read."""
    name = f"{cls.__name__}.apply"
    own_context = cls.setup_context is not torch.autograd.Function.setup_context
    read_by_forward = Outside()
    for member in FORWARD:
        # `forward` gets the `ctx` itself only if no `setup_context` gets it.
        gets_context = member == "setup_context" or not own_context
        look_at(it, cls, member, Role(context=gets_context), read_by_forward)

    for arg in tree_leaves(args):
        if not can_be_argument(arg):
            return f"gets a {type(arg).__name__}"

    # What forward and the functions among its arguments read outside: refused, or guarded
    try:
        for outside in (read_by_forward, read_by_arguments):
            refuse(name, outside)
            guard(it, name, outside)
    except Unsupported as problem:
        return problem.reason
    return ""


def can_be_argument(value: Any) -> bool:
    """May a graph hold it as an argument of an operation?"""
    kinds = (torch.Tensor, *SYMBOLIC, int, float)
    return is_a(value, kinds) or is_constant_argument(value)


def look_at(it: Machine, cls: type, member: str, role: Role, outside: Outside) -> None:
    """Add what a method of the class reads and does; the class is guarded to have it."""
    function = attributes.get(it, cls, member)
    if getattr(function, "__module__", "") != "torch.autograd.function":
        read(function, role, outside)


def look_at_backward(it: Machine, cls: type, name: str, outside_of_arguments: Outside) -> None:
    """Refuse a backward that does more than compute.

    It runs later: then what it reads may be something else.
    `outside_of_arguments`: what the functions among the arguments read, which it may call."""
    outside = Outside(
        constants=list(outside_of_arguments.constants), random=list(outside_of_arguments.random)
    )
    for member in BACKWARD:
        look_at(it, cls, member, Role(context=True, at_once=False), outside)
    outside.effects += outside.random
    if outside.constants and not it.world.fullgraph:
        outside.reads.append(f"reads {outside.constants[0].name}")
    refuse(f"the backward of {name}", outside)
    guard(it, name, outside)


def look_at_argument(arg: Any, outside: Outside) -> None:
    """An argument that is no tensor is part of the operation: a function is read, what can change
    is not to be there."""
    for part in tree_leaves(arg):
        if is_a(part, types.FunctionType):
            read(part, Role(), outside)
    if is_a(arg, (list, dict, set)):
        outside.reads.append(f"takes a {type(arg).__name__}, which may change")


def wants_gradient(args: Any) -> bool:
    """Will autograd keep the operation's backward?"""
    tensors = [arg for arg in tree_leaves(args) if is_a(arg, torch.Tensor)]
    is_in_functorch = torch._C._functorch.peek_interpreter_stack() is not None
    return is_in_functorch or (torch.is_grad_enabled() and any(t.requires_grad for t in tensors))


def refuse(name: str, outside: Outside) -> None:
    problem = outside.effect or next(iter(outside.reads), "")
    if problem:
        raise Unsupported(f"calls {name}, whose code {problem}", WHAT_TO_DO)


def guard(it: Machine, name: str, outside: Outside) -> None:
    """Guard the constants and functions that the code reads: they are what they are now."""
    for place in (*outside.constants, *outside.functions):
        value, interpreted = outside_value(place), concrete(interpreted_value(it, place))
        # a number of the interpreted program may be another object
        is_equal_constant = (
            type(value) in CONSTANT_TYPES
            and type(value) is type(interpreted)
            and repr(value) == repr(interpreted)
        )
        if value is not interpreted and not is_equal_constant:
            raise Unsupported(
                f"calls {name}, whose code reads {place.name}, changed before", WHAT_TO_DO
            )


def outside_value(place: Name) -> Any:
    """What the operation's code will find under this name."""
    if is_a(place.owner, type):
        value = getattr(place.owner, place.name)
    elif place.owner is not None:
        value = vars(place.owner)[place.name]
    elif place.name in place.function.__code__.co_freevars:
        at = place.function.__code__.co_freevars.index(place.name)
        value = (place.function.__closure__ or ())[at].cell_contents
    else:
        value = place.function.__globals__[place.name]
    return value


def interpreted_value(it: Machine, place: Name) -> Any:
    """What the interpreted program would find there. To ask is to guard."""
    if place.owner is not None:
        return attributes.get(it, place.owner, place.name)
    if place.name in place.function.__code__.co_freevars:
        return it.world.open_cell(it.world.closure(place.function)[place.name]).cell_contents
    return it.world.read_global(place.function.__globals__, place.name, place.function)


# ---- custom operators ----------------------------------------------------------------------------


def is_own_operator(it: Machine, function: Any) -> bool:
    """Is this an operator that is not torch's?"""
    if is_a(function, torch._ops.OpOverloadPacket):
        return function._qualified_op_name.split("::")[0] not in TORCHS
    return is_a(function, torch._ops.OpOverload) and function.namespace not in TORCHS


def call_own_operator(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A call of a custom operator: a node of the graph if its kernel, and its backward if it is
    wanted, only compute."""
    overloads = overloads_of(function)
    wanted = wants_gradient([args, kwargs])
    problem = first_problem(it, overloads, wanted)

    # With `fullgraph=True` the operator stands in the graph all the same, unless torch would run
    # the user's code right now.
    if problem and (not it.world.fullgraph or any(map(runs_in_capture, overloads))):
        raise Unsupported(f"calls the operator {function}, {problem}", WHAT_TO_DO)

    builder = it.world.builder
    result = builder.call(function, args, kwargs)
    if problem and wanted and builder.last_node is not None:
        builder.last_node.meta["as_it_is"] = f"{function}: {problem}"
    return result


def overloads_of(function: Any) -> list[torch._ops.OpOverload]:
    """`torch.ops.lib.op` stands for all its overloads, `torch.ops.lib.op.default` for itself."""
    if is_a(function, torch._ops.OpOverloadPacket):
        return [getattr(function, name) for name in function.overloads()]
    return [function]


def first_problem(it: Machine, overloads: list[torch._ops.OpOverload], wanted: bool) -> str:
    """Why one of these may not run with the graph, or ''.

    `wanted`: gradients are, so backward counts, too."""
    for op in overloads:
        problem = kernel_problem(it, op)
        if not problem and wanted:
            problem = backward_problem(op)
        if problem:
            return problem
    return ""


def runs_in_capture(op: torch._ops.OpOverload) -> bool:
    """Does torch run code of the user's for tensors without data, which may do more than
    compute?"""
    definition = definition_of(op)
    outside = Outside()
    if definition is not None and definition._setup_context_fn is not None:
        read(definition._setup_context_fn, Role(context=True), outside)

    # "CompositeImplicit": the user's code itself is run on tensors without data.
    return bool(outside.effect) or "CompositeImplicit" in torch._C._dispatch_dump(op.name())


def kernel_problem(it: Machine, op: torch._ops.OpOverload) -> str:
    """Why the kernel of an operator must run where the program calls it, between other Python code.
    "" if it may run in the graph."""
    definition = definition_of(op)
    if definition is None:
        # torch's dispatcher tells in which file each kernel was registered.
        files = [file for _, file in KERNEL.findall(torch._C._dispatch_dump(op.name()))]
        written_in_c = all(file.endswith((".cpp", ".cu", ".cc", ".h", ".hpp")) for file in files)
        if written_in_c:
            return ""
        return "whose code is not known"

    # Look through its Python code for what leads outside. One function may be registered several
    # times.
    outside = Outside()
    for function in dict.fromkeys([definition._init_fn, *definition._backend_fns.values()]):
        read(unwrapped(function), Role(kernel=True), outside)
    outside.effects += outside.random

    if outside.effect:
        return f"whose code {outside.effect}"
    if (outside.reads or outside.constants) and has_changed(it.world):
        return "whose code reads from outside, where something has changed before"
    return ""


def unwrapped(function: Any) -> Any:
    """The user's function in torch's wrapper of it (`torch.library.custom_op` makes one for each
    device)."""
    while TORCHS_CODE.search(getattr(getattr(function, "__code__", None), "co_filename", "")):
        inner = [c.cell_contents for c in function.__closure__ or ()]
        inner = [f for f in inner if is_a(f, types.FunctionType)]
        if not inner:
            break
        function = inner[0]
    return function


TORCHS_CODE = re.compile(r"[/\\]torch[/\\]_library[/\\]")


def definition_of(op: torch._ops.OpOverload) -> Any:
    """What `torch.library.custom_op` knows of an operator, None if it was made another way."""
    from torch._library.custom_ops import OPDEFS

    return OPDEFS.get(op.name().partition(".")[0])


def backward_problem(op: torch._ops.OpOverload) -> str:
    """Why the backward of an operator must run as eager runs it, "" if it may be traced once."""
    definition = definition_of(op)
    if definition is None:
        dump = torch._C._dispatch_dump(op.name())
        files = [file for key, file in KERNEL.findall(dump) if "Autograd" in key]
        files_with_source = [file for file in files if file.endswith(".py") or file.startswith("<")]
        if files_with_source:
            return "whose backward is not known"
        return ""
    outside = Outside()
    for function in (definition._backward_fn, definition._setup_context_fn):
        if function is not None:
            read(function, Role(context=True, at_once=False), outside)
    outside.effects += outside.random
    outside.reads += [f"reads {place.name}" for place in outside.constants]
    problem = outside.effect or next(iter(outside.reads), "")
    if problem:
        return f"whose backward {problem}"
    return ""


for rule in (
    CallRule("autograd.Function", is_autograd_apply, call_autograd_function),
    CallRule("custom operator", is_own_operator, call_own_operator),
):
    register(rule, before="arithmetic on symbolic numbers")
