"""What a program may say to its compiler. In PyTorch: `torch/compiler/__init__.py`,
`torch/_dynamo/decorators.py`."""

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import torch

from course_lib.capture.calls.tables import FUNCTIONS, always, recorded, refused
from course_lib.capture.values import name_of
from course_lib.frames import call, number
from course_lib.frames.resume import NEVER_CAPTURED

F = TypeVar("F", bound=Callable[..., Any])


def is_compiling() -> bool:
    """False when it is called; capture takes it for True."""
    return False


def graph_break() -> None:
    """End the graph here. Does nothing in eager."""


def disable(function: Any = None, *, recursive: bool = True) -> Any:
    """Never capture `function`; with `recursive`, nor anything that it calls.

    A call of it ends the caller's graph."""
    if function is None:
        return functools.partial(disable, recursive=recursive)

    @functools.wraps(function)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        if recursive:
            return call(None, function, *args, **kwargs)
        return function(*args, **kwargs)

    disabled._course_disable = True  # type: ignore[attr-defined]
    if not recursive and isinstance(function, FunctionType):
        NEVER_CAPTURED.add(number(function.__code__))
    return disabled


def allow_in_graph(function: F) -> F:
    """A call of `function` becomes one node: capture runs it on fakes, unread.

    Its result must depend on its arguments alone."""
    FUNCTIONS[function] = recorded(function)
    return function


def disallow_in_graph(function: F) -> F:
    """A call of this torch operation ends the graph, so that Python runs it."""
    FUNCTIONS[function] = refused(f"calls {name_of(function)}, which is not allowed in a graph")
    return function


def mark_dynamic(
    tensor: torch.Tensor,
    dim: int | tuple[int, ...] | list[int],
    min: int | None = None,
    max: int | None = None,
) -> None:
    """From the first capture on, treat these dimensions of `tensor` as symbolic.

    min, max: the smallest and the largest size that will come. What holds for all of these needs no
    guard of its own.
    A tensor with another size raises ConstraintViolationError where it is compiled. If both are one
    number, the size is static.

    It is a promise: a compile raises ConstraintViolationError where the program makes a constant of
    such a size, or is right for a part of the range only. Sizes 0 and 1 are always constants,
    parameters have constant sizes, and `dynamic=False` is stronger than a mark (in torch it is
    not); that raises nothing.
    Raises IndexError for a dimension that the tensor does not have, and ValueError for a range with
    nothing in it.
    In PyTorch: `torch/_dynamo/decorators.py`, `mark_dynamic` (which takes no negative `dim`, and in
    2.13 only both limits).
    """
    if min is not None and max is not None and min > max:
        raise ValueError(f"mark_dynamic: no size is from {min} to {max}; exchange min and max")

    is_one_number = min is not None and min == max
    how = "_course_static" if is_one_number else "_course_dynamic"
    mark(tensor, how, dim)
    if min is not None or max is not None:
        ranges = dict.fromkeys(dimensions(tensor, dim), (min, max))
        tensor._course_range = getattr(tensor, "_course_range", {}) | ranges


def mark_static(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int] | None = None) -> None:
    """Take the dimensions `dim` of `tensor` (None: all) for numbers, also under `dynamic=True`, and
    also where they have changed. `mark_dynamic` and `maybe_mark_dynamic` are stronger.

    In PyTorch: `torch/_dynamo/decorators.py`, `mark_static`.
    """
    if dim is None:
        dim = tuple(range(tensor.ndim))
    mark(tensor, "_course_static", dim)


def maybe_mark_dynamic(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int]) -> None:
    """Like `mark_dynamic`, but without the promise: where the program makes a constant of such a
    size, the size becomes one, and nothing is raised.

    In PyTorch: `torch/_dynamo/decorators.py`, `maybe_mark_dynamic`.
    """
    mark(tensor, "_course_maybe_dynamic", dim)


def mark_unbacked(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int]) -> None:
    """Let nobody look at the number of these dimensions of `tensor`: one graph serves all sizes, 0
    and 1 among them.

    "Is it 1?" is taken as "no", without a guard. Any other question about such a size ends the
    graph (under `fullgraph=True` it is an error), unless `torch._check` has answered it. What it
    states, and what operations rely on (both operands of `+` have one length), is a guard.
    Kernels are made when the graph is called, for all sizes from 2 on; 0 and 1 have kernels of
    their own behind the same graph.
    A tensor that is not contiguous, starts within another, or is a result with a gradient is taken
    as with `maybe_mark_dynamic`. `dynamic=False` is stronger than the mark.
    Raises IndexError for a dimension that the tensor does not have.
    In PyTorch: `torch/_dynamo/decorators.py`, `mark_unbacked` (which has limits, hints and names
    for sizes, too).
    """
    mark(tensor, "_course_unbacked", dim)


NO_DESCRIPTION = (
    "of the sizes of parameters course_lib takes no description. "
    "Use cl.mark_dynamic(tensor, dim) or cl.mark_unbacked(tensor, dim), or dynamic=True"
)
"""What to do instead of describing sizes by parameter."""


def mark(tensor: torch.Tensor, name: str, dim: int | tuple[int, ...] | list[int]) -> None:
    """Add these dimensions to a set that the tensor carries."""
    known: frozenset[int] = getattr(tensor, name, frozenset())
    setattr(tensor, name, known | dimensions(tensor, dim))


def dimensions(tensor: torch.Tensor, dim: int | tuple[int, ...] | list[int]) -> set[int]:
    """The dimensions `dim` as a set, each counted from the front.

    Raises IndexError for one that the tensor does not have."""
    dims = (dim,) if isinstance(dim, int) else dim
    for d in dims:
        if not -tensor.ndim <= d < tensor.ndim:
            has = f"{tensor.ndim} dimension{'s' * (tensor.ndim != 1)}"
            raise IndexError(f"dimension {d} was marked of a tensor that has {has}")
    return {d % tensor.ndim for d in dims}


FUNCTIONS[is_compiling] = always(True)
FUNCTIONS[graph_break] = refused("graph_break() was called", "remove it when you have seen enough")
