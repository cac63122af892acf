"""An `autograd.Function` whose forward is followed: it gets a function, a module or an object, or
does more than compute.

In:  `cls.apply(x, module)`, where the code of `forward` cannot be one node of the graph
     (`own_operations.py`).
Out: the operations of `forward`, without gradients, and one node behind them, an
     `autograd.Function` of its own (`attached`): it gives what forward gave, and its backward is
     the user's.

The user's `forward` is interpreted like any other function, so what it reads is guarded and what it
changes is done by the head. Its `backward` is not: torch traces it with the graph. So that may only
compute, from tensors and constants that `forward` kept.
In PyTorch: `torch/_dynamo/variables/higher_order_ops.py` (`AutogradFunctionApplyVariable`), which
traces backward, too.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from course_lib.capture.classes import is_a, own_dict
from course_lib.capture.sources import Unsupported
from course_lib.capture.values import CONSTANT_TYPES, storages

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

CALL_OUTSIDE = "call it outside the compiled function"
OWN_PREFIX = "_course_"
"""How the names begin under which a context keeps what torch's keeps elsewhere."""


class FunctionContext:
    """What stands for `ctx` while `forward` is interpreted.

    The program's own attributes are ordinary ones."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self._course_saved: tuple[Any, ...] = ()
        self._course_constant: tuple[Any, ...] = ()
        self._course_materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        self._course_saved = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._course_constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self._course_materialize = value


@dataclass(frozen=True)
class At:
    """Stands for a tensor: where it is among the values that the attached function gets, or among
    its results."""

    place: int
    is_result: bool = False


@dataclass(frozen=True)
class Plan:
    """How the results of a followed forward get the user's backward."""

    # The user's, and what the class is called
    backward: Callable[..., Any]
    name: str
    # How many of the attached function's values stand for the arguments of `apply` (those that are
    # no tensors are None), and how many behind them for results
    arguments: int
    results: int
    # Which of all that forward gave are tensors
    results_are_tensors: tuple[bool, ...]
    # What `forward` saved for backward: `At` in place of each tensor
    saved: tuple[Any, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    # Places of results without a gradient
    constant: tuple[int, ...] = ()
    # Does backward get zeros for a gradient that is not there (or None)?
    materialize: bool = True

    def with_gaps(self, gradients: tuple[Any, ...]) -> list[Any]:
        """The gradients, with None for each result that is no tensor, as autograd has it."""
        rest = iter(gradients)
        return [next(rest) if is_tensor else None for is_tensor in self.results_are_tensors]


def attached(plan: Plan) -> Callable[..., Any]:
    """`apply` of a function that gives the results as they are, and has the user's backward."""

    class Attached(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *values: Any) -> Any:
            end = plan.arguments + plan.results
            results = tuple(value.detach() for value in values[plan.arguments : end])

            def found(part: Any) -> Any:
                if not isinstance(part, At):
                    return part
                if part.is_result:
                    return results[part.place]
                return values[part.place]

            ctx.save_for_backward(*map(found, plan.saved))
            for name, value in plan.attributes.items():
                setattr(ctx, name, tree_map(found, value))
            ctx.mark_non_differentiable(*(results[place] for place in plan.constant))
            ctx.set_materialize_grads(plan.materialize)
            ctx.given = len(values)
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            ctx.needs_input_grad = ctx.needs_input_grad[: plan.arguments]
            gradients = plan.backward(ctx, *plan.with_gaps(grads))
            if not isinstance(gradients, tuple):
                gradients = (gradients,)
            # None of the values behind the arguments gets a gradient.
            more = ctx.given - plan.arguments
            return (*gradients[: plan.arguments], *(None,) * more)

    Attached.__name__ = plan.name
    return Attached.apply


# ---- following forward ---------------------------------------------------------------------------


def follow(it: Machine, cls: Any, args: list[Any], wanted: bool) -> Any:
    """Interpret `forward`.

    Where gradients are wanted, its results are those of a node that has the user's backward."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise Unsupported(f"calls {cls.__name__}.apply within a transform", CALL_OUTSIDE)

    needs_gradient = tuple(is_a(arg, torch.Tensor) and arg.requires_grad for arg in args)
    context = FunctionContext(needs_gradient)
    results = run_forward(it, cls, context, args)
    if not wanted:
        return results
    return attach(it, cls, context, args, results)


def run_forward(it: Machine, cls: Any, context: FunctionContext, args: list[Any]) -> Any:
    """What `forward` gives, interpreted without gradients."""
    grad_mode_before = torch.is_grad_enabled()
    it.call(torch._C._set_grad_enabled, False)
    try:
        forward = method(it, cls, "forward")
        if cls.setup_context is torch.autograd.Function.setup_context:
            results = it.call(forward, context, *args)
        else:
            results = it.call(forward, *args)
            it.call(method(it, cls, "setup_context"), context, tuple(args), results)
    finally:
        it.call(torch._C._set_grad_enabled, grad_mode_before)
    return results


def method(it: Machine, cls: Any, name: str) -> Any:
    """A method of the class, guarded. What is no function of Python's has no code to follow."""
    attribute = it.call(getattr, cls, name)
    if not is_a(attribute, types.FunctionType):
        raise Unsupported(
            f"calls {cls.__name__}.apply, whose {name} is a {type(attribute).__name__}",
            CALL_OUTSIDE,
        )
    return attribute


def attach(it: Machine, cls: Any, context: FunctionContext, args: list[Any], results: Any) -> Any:
    """The node with the user's backward, and what it gives in place of the results."""
    listed = list(results) if type(results) is tuple else [results]
    tensors = [value for value in listed if is_a(value, torch.Tensor)]
    refuse_shared_memory(cls, args, tensors)
    if not tensors:
        return results

    # The node is given the tensors among the arguments, and the results.
    values: list[Any] = []
    for arg in args:
        values.append(arg if is_a(arg, torch.Tensor) else None)
    values += tensors

    are_tensors = tuple(is_a(value, torch.Tensor) for value in listed)
    plan = plan_of(it, cls, context, args, are_tensors, values)
    target = Named(attached(plan), f"{cls.__name__}_apply")
    from_the_node = iter(it.world.builder.call(target, values))

    # In place of each tensor the one that the node gives
    new_results = []
    for value, is_tensor in zip(listed, are_tensors, strict=True):
        new_results.append(next(from_the_node) if is_tensor else value)
    if type(results) is tuple:
        return tuple(new_results)
    return new_results[0]


class Named:
    """A function with a name that a graph can show."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.__name__ = name
        self.__module__ = "own"

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)


def refuse_shared_memory(cls: Any, args: list[Any], tensors: list[torch.Tensor]) -> None:
    """A result that is an argument, or a view of one, has rules of its own in autograd."""
    of_arguments = storages([arg for arg in args if is_a(arg, torch.Tensor)])
    if of_arguments.keys() & storages(tensors).keys() or len(storages(tensors)) < len(tensors):
        raise Unsupported(
            f"calls {cls.__name__}.apply, which gives a view of an argument", CALL_OUTSIDE
        )


def plan_of(
    it: Machine,
    cls: Any,
    context: FunctionContext,
    args: list[Any],
    results_are_tensors: tuple[bool, ...],
    values: list[Any],
) -> Plan:
    """What backward will find in its `ctx`.

    `values`: what the node gets. First the arguments, then the results that are tensors; other
    tensors that backward keeps are added here. `results_are_tensors`: for each result, is it
    one?"""
    results = values[len(args) :]

    def place_of(part: Any) -> Any:
        """`At` for a tensor; anything else as it is."""
        if not is_a(part, torch.Tensor):
            return part
        for place, value in enumerate(values):
            if value is not part:
                continue
            if len(args) <= place < len(args) + len(results):
                return At(place - len(args), is_result=True)
            return At(place)
        values.append(part)
        return At(len(values) - 1)

    attributes = {}
    for name, value in own_dict(context).items():
        if name == "needs_input_grad" or name.startswith(OWN_PREFIX):
            continue
        if not all(map(can_be_kept, tree_leaves(value))) or is_shared(it, args, value):
            refuse_if_read(cls, name, value)
            continue
        attributes[name] = tree_map(place_of, value)

    saved = tuple(map(place_of, context._course_saved))
    constant = tuple(
        place
        for place, tensor in enumerate(results)
        if any(tensor is one for one in context._course_constant)
    )
    return Plan(
        backward=backward_of(cls),
        name=cls.__name__,
        arguments=len(args),
        results=len(results),
        results_are_tensors=results_are_tensors,
        saved=saved,
        attributes=attributes,
        constant=constant,
        materialize=context._course_materialize,
    )


def backward_of(cls: Any) -> Any:
    """The user's `backward`, or the same under its other name, `vjp`."""
    own_vjp = cls.vjp is not torch.autograd.Function.vjp
    return cls.vjp if own_vjp else cls.backward


def is_shared(it: Machine, args: list[Any], value: Any) -> bool:
    """Is there a list or dict in it that the program has elsewhere, too, and may change before
    backward?"""
    ids_of_parts = {id(part) for arg in args for part in changeable(arg)}
    return any(it.world.of(part) or id(part) in ids_of_parts for part in changeable(value))


def changeable(value: Any) -> Iterator[Any]:
    """The lists, dicts and sets in a value, itself included."""
    if is_a(value, (list, dict, set)):
        yield value

    parts: Iterable[Any] = ()
    if is_a(value, dict):
        parts = value.values()
    elif is_a(value, (list, tuple)):
        parts = value
    for part in parts:
        yield from changeable(part)


def can_be_kept(part: Any) -> bool:
    """May a graph keep this part of an attribute for backward?"""
    return is_a(part, torch.Tensor) or type(part) in CONSTANT_TYPES


def refuse_if_read(cls: Any, name: str, value: Any) -> None:
    """An attribute that backward names must be one that cannot change until then."""
    code: Any = getattr(backward_of(cls), "__code__", None)
    # of a function in torch's wrapper (`once_differentiable`) the names are not known
    is_wrapped = code is None or "torch" in code.co_filename.replace("\\", "/").split("/")
    if is_wrapped or name in names_in(code):
        what = f"keeps a {type(value).__name__} for backward (ctx.{name})"
        raise Unsupported(f"calls {cls.__name__}.apply, which {what}", CALL_OUTSIDE)


def names_in(code: types.CodeType) -> set[str]:
    """The names of attributes and variables in a code object, and in the functions that it
    makes."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return {*code.co_names, *code.co_consts}.union(*map(names_in, inner))
