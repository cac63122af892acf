"""Strides of a tensor with symbolic sizes: which of them are symbols of their own, and their tests.

In:  a fake tensor whose sizes are symbols. Most strides follow from its sizes. Those of a part of a
     wider tensor do not: `x[:, :3]` of a matrix of any width has the strides `(s1, 1)`.
Out: such a stride as a symbol that is found at the tensor (`x.stride(0)`), or as a constant.

Such a symbol needs one more guard: no two elements lie at one place. Compiled code takes two
elements of a tensor for two places of memory. Where two may share one (`x.unfold(0, 4, 1)`),
strides are constants, so that each such layout has a program of its own.
In PyTorch: `torch/fx/experimental/symbolic_shapes.py` (`_compute_symbolic_stride`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sympy
import torch

from course_lib.capture.guard_tests import Holds, Test, verbatim
from course_lib.capture.sources import Source
from course_lib.capture.symbolic_numbers import value_at_this_call

if TYPE_CHECKING:
    from course_lib.capture.shapes import Shapes

STRIDE = torch.ops.aten.sym_stride.int
"""The function of a symbol that is the stride of a tensor (`Origin`)."""


def own_symbols(
    shapes: Shapes, fake: torch.Tensor, source: Source
) -> Iterator[tuple[int, torch.SymInt]]:
    """The strides that become symbols of their own, each with its dimension.

    The others that do not follow from the sizes become constants here.
    """
    numbers = tuple(map(value_at_this_call, fake.stride()))
    may_change = shapes.history.meet_strides(source, numbers)
    lies_apart: bool | None = None
    for dim, stride in enumerate(fake.stride()):
        if not isinstance(stride, torch.SymInt) or shapes.is_known(stride.node.expr):
            continue

        if lies_apart is None:
            lies_apart = may_change and elements_lie_apart(fake)
        if lies_apart:
            yield dim, stride
        else:
            # To ask for the number makes it a constant.
            int(stride)


def elements_lie_apart(fake: torch.Tensor) -> bool:
    """True if no two elements lie at one place. The answer becomes a guard.

    Each step must be at least as long as what all shorter steps span together. Parts of larger
    tensors are so; a few tensors that are not have no overlap either, and count as overlapping
    here.
    """
    dimensions: list[tuple[Any, Any]] = []
    for size, stride in zip(fake.shape, fake.stride(), strict=True):
        # Nobody takes a step along a dimension of one element
        if type(size) is not int or size != 1:
            dimensions.append((stride, size))
    dimensions.sort(key=lambda each: int(value_at_this_call(each[0])))

    # The places from the first to the last element along the dimensions so far
    span: Any = 1
    for stride, size in dimensions:
        if not stride >= span:
            return False
        span = span + (size - 1) * stride
    return True


def stride_tests(shapes: Shapes, fake: torch.Tensor) -> list[Test]:
    """The layout of a tensor with symbolic sizes, stride by stride."""
    symbols = [size.node.expr for size in fake.shape if type(size) is torch.SymInt]
    if not shapes.unknown.isdisjoint(symbols):
        # One that is empty, or has a size of 1, may have other strides
        return [Holds("{}.is_contiguous()")]

    tests: list[Test] = []
    for dim, stride in enumerate(fake.stride()):
        expr = sympy.Integer(stride) if type(stride) is int else stride.node.expr
        if shapes.is_known(expr) and not is_found_at(shapes, expr, fake, dim):
            formula = verbatim(shapes.text(expr))
            tests.append(Holds(f"{{}}.stride({dim}) == {formula}"))
    return tests


def is_found_at(shapes: Shapes, expr: sympy.Expr, fake: torch.Tensor, dim: int) -> bool:
    """Is this the symbol whose value is read off this very stride?"""
    origin = shapes.found.get(expr)
    if origin is None or origin.function is not STRIDE:
        return False
    tensor, dimension = origin.args
    return tensor is fake and dimension == dim
