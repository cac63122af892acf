"""Where a result of the compiler differs from eager's, in words.

In:  two results (trees of tensors and other values); for tensors what float64 gives, where that is
     known.
Out: the first difference, or ''.
In PyTorch: `torch/testing/_comparison.py`; `torch/_dynamo/utils.py`, `same`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9, torch.float16: 4e-3, torch.bfloat16: 3e-2}
TOLERANCE |= {torch.complex64: 2e-5, torch.complex128: 1e-9, torch.complex32: 4e-3}
"""How far a result may be from eager's: relative, and beside 0 absolute."""


def differ(a: Any, b: Any) -> bool:
    """Whether two results of the same function differ, values included."""
    return bool(difference(a, b, False))


def difference(result: Any, expected: Any, random: bool, reference: Any = None) -> str:
    """What is wrong with the result, or ''.

    For random numbers only dtype, shape and strides are compared."""
    our_leaves, form = tree_flatten(result)
    eager_leaves, other = tree_flatten(expected)
    if form != other:
        return f"{form} instead of {other}"

    # In float64 a function may give another tree. Then nothing is known
    exact = tree_flatten(reference)[0]
    if len(exact) != len(eager_leaves):
        exact = [None] * len(eager_leaves)
    for a, b, c in zip(our_leaves, eager_leaves, exact, strict=True):
        if type(a) is not type(b):
            return f"a {type(a).__name__} instead of a {type(b).__name__}"
        if isinstance(b, torch.Tensor):
            problem = tensor_difference(a, b, random, c)
        else:
            problem = value_difference(a, b, random)
        if problem:
            return problem
    return ""


def value_difference(a: Any, b: Any, random: bool) -> str:
    """What is wrong with a value that is no tensor, or ''."""
    if random or a is b or not isinstance(b, (bool, int, float, str, torch.dtype)):
        return ""
    both_nan = a != a and b != b
    if a == b or both_nan:
        return ""
    return f"{a} instead of {b}"


def tensor_difference(a: torch.Tensor, b: torch.Tensor, random: bool, exact: Any) -> str:
    """What is wrong with a tensor, or ''. `exact`: what float64 gives, if that is known."""
    problem = form_difference(a, b)
    # Of random numbers, and of sparse tensors, only the form is compared.
    if problem or random or b.layout is not torch.strided or close(a, b):
        return problem
    if isinstance(exact, torch.Tensor) and exact.shape == b.shape and no_farther(a, b, exact):
        return ""

    # The first number that is not the same
    differs = ~same_numbers(a, b)
    place: list[int] = []
    if differs.any():
        place = differs.nonzero()[0].tolist()
    got, wanted = a[tuple(place)].item(), b[tuple(place)].item()
    return f"{got} instead of {wanted} at {place} of {tuple(b.shape)}"


def form_difference(a: torch.Tensor, b: torch.Tensor) -> str:
    """A difference of dtype, shape, layout, device or strides.

    The stride of a dimension of size 1 does not count."""
    for what in ("dtype", "shape", "layout", "device"):
        ours, theirs = getattr(a, what), getattr(b, what)
        if ours != theirs:
            return f"{what} {ours} instead of {theirs}"
    if b.layout is not torch.strided or not b.numel():
        return ""

    for ours, theirs, size in zip(a.stride(), b.stride(), b.shape, strict=True):
        if size > 1 and ours != theirs:
            return f"stride {a.stride()} instead of {b.stride()}"
    return ""


def same_numbers(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Where both have the same number, or both NaN."""
    return (a == b) | ((a != a) & (b != b))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """As near as `TOLERANCE` asks; equal where it says nothing of the dtype (integers, bool)."""
    tolerance = TOLERANCE.get(b.dtype)
    if tolerance is None:
        return torch.equal(a, b)
    # torch compares no complex32
    if b.dtype is torch.complex32:
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def no_farther(a: torch.Tensor, b: torch.Tensor, exact: torch.Tensor) -> bool:
    """Eager rounds too: where it is far from the exact value, or overflows, ours may be as far on
    the other side."""
    if not b.is_floating_point() or not exact.is_floating_point():
        return False

    exact = exact.to(torch.float64)
    our_error = (a.double() - exact).abs()
    # Where eager overflows, its error counts as 0: then ours must be the exact value, or eager's
    eager_error = (b.double() - exact).abs().nan_to_num(0, 0)

    allowed = 4 * eager_error + TOLERANCE[b.dtype] * (1 + exact.abs())
    is_near = our_error <= allowed
    is_exact = a.double() == exact
    return bool((is_near | is_exact | same_numbers(a, b)).all())
