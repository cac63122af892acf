"""What the user said about the sizes of a tensor, by `mark_dynamic` and its like.

In:  a tensor that carries such marks, ours (`user.py`) or torch's.
Out: which of its dimensions shall be symbols, and in which range; and the errors for a program or a
     call that breaks what was promised.

A dimension that `mark_dynamic` names is *promised*: the program must be right for each of its
sizes, or it is an error. One that `maybe_mark_dynamic` names is *wished*: a program that makes a
constant of it is compiled for that constant. One that `mark_unbacked` names is *unknown*: no
question about it has an answer, so one graph serves all its sizes, also 0 and 1.
In PyTorch: `torch/_dynamo/decorators.py` (`mark_dynamic`), `torch/_dynamo/variables/builder.py`
(`_automatic_dynamic`).
"""

from typing import Any, NamedTuple

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError, ShapeEnv

from course_lib.capture.sources import Location


class Marks(NamedTuple):
    """The dimensions that were marked, by our functions or by torch's."""

    # by `mark_dynamic`
    promised: set[int]
    # by `maybe_mark_dynamic`
    wished: set[int]
    # by `mark_static`
    static: set[int]
    # by `mark_unbacked`
    unknown: set[int]


def marks(tensor: torch.Tensor) -> Marks:
    """The marks that a tensor carries."""

    def dimensions(*names: str) -> set[int]:
        return {d for name in names for d in getattr(tensor, name, ())}

    promised = dimensions("_course_dynamic", "_dynamo_dynamic_indices")
    wished = dimensions("_course_maybe_dynamic", "_dynamo_weak_dynamic_indices")
    static = dimensions("_course_static", "_dynamo_static_indices")
    unknown = dimensions("_course_unbacked", "_dynamo_unbacked_indices")
    if unknown and not may_be_unknown(tensor):
        # Symbols with a value come next to symbols without one.
        wished, unknown = wished | unknown, set()
    return Marks(promised, wished, static, unknown)


def may_be_unknown(tensor: torch.Tensor) -> bool:
    """Is its layout known without its sizes, and is it no result that autograd has recorded?"""
    is_whole = tensor.is_contiguous() and tensor.storage_offset() == 0
    is_recorded = tensor.requires_grad and not tensor.is_leaf
    return is_whole and not is_recorded and not tensor.is_inference()


def with_unknown_sizes(
    fake: torch.Tensor, unknown: set[int], env: ShapeEnv, mode: FakeTensorMode
) -> tuple[torch.Tensor, set[sympy.Symbol]]:
    """A fake like this one, whose sizes in these dimensions are symbols of which no value is known;
    and these symbols. It is contiguous, as the real one is (`may_be_unknown`)."""
    sizes: list[Any] = list(fake.shape)
    for dim in unknown:
        sizes[dim] = env.create_unbacked_symint()
        env._constrain_range_for_size(sizes[dim].node.expr)

    with mode:
        made = torch.empty(sizes, dtype=fake.dtype, device=fake.device)
    return made.requires_grad_(fake.requires_grad), {sizes[dim].node.expr for dim in unknown}


def relied_on(env: ShapeEnv, unknown: set[sympy.Symbol]) -> list[sympy.Basic]:
    """What operations, and `torch._check`, rely on about sizes without a value."""
    stated = [each.expr for asserts in env.deferred_runtime_asserts.values() for each in asserts]
    equal = [
        sympy.Eq(symbol, env.replacements[symbol], evaluate=False)
        for symbol in unknown & env.replacements.keys()
    ]
    return [*stated, *equal]


class Range(NamedTuple):
    """The smallest and the largest size that `mark_dynamic` promised; None: no such limit."""

    min: int | None
    max: int | None


def ranges_of(tensor: torch.Tensor) -> dict[int, Range]:
    """The ranges that `mark_dynamic(..., min=, max=)` gave, ours or torch's, by dimension."""
    ranges = {
        each.dim: Range(each.min, each.max) for each in getattr(tensor, "_dynamo_dynamic_range", ())
    }
    ranges |= {d: Range(*limits) for d, limits in getattr(tensor, "_course_range", {}).items()}
    return {dim: limits for dim, limits in ranges.items() if limits != (None, None)}


def keep_in_range(size: str, value: int, limits: Range) -> None:
    """Raise ConstraintViolationError for a size that was promised not to come."""
    too_small = limits.min is not None and value < limits.min
    too_large = limits.max is not None and value > limits.max
    if too_small or too_large:
        low = limits.min if limits.min is not None else 0
        high = "" if limits.max is None else f" to {limits.max}"
        raise ConstraintViolationError(
            f"{size} was marked as dynamic from {low}{high}, but is {value}: "
            "give mark_dynamic the range that comes"
        )


def broken_promise(size: str, value: int, at: Location | None) -> ConstraintViolationError:
    """The error of a program that makes a constant of a size that was marked as dynamic."""
    line = f"{at} ({at.text.strip()})" if at else "a line"
    return ConstraintViolationError(
        f"{size} was marked as dynamic, but {line} is right for {value} only: "
        "write that line for any size, or use maybe_mark_dynamic, which does not insist"
    )


def narrowed_promise(size: str, question: str, at: Location) -> ConstraintViolationError:
    """The error of a program that is right for a part of a promised range only."""
    return ConstraintViolationError(
        f"{size} was marked as dynamic in a range, but {at} ({at.text.strip()}) is right only where {question}: "
        "give mark_dynamic a smaller range, or leave it out"
    )
