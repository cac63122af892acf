"""Decompositions that do what eager does, where those of torch do not.

In:  calls of operators (or of torch's functions) while a graph is traced.
Out: smaller operators that give eager's values, in eager's order, and raise where eager raises.

Each docstring names the difference. Where there is none for these arguments, NotImplemented leaves
the call whole. In PyTorch: `torch/_decomp/decompositions.py`, `torch/_refs`,
`torch/_meta_registrations.py`.
"""

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions

from course_lib.lowering.decompositions import Decomposition, decomposes

aten = torch.ops.aten


@decomposes(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """torch 2.11 forgets dimensions that are counted from the end."""
    dims = dim and [d % max(x.ndim, 1) for d in dim]
    return torch._refs.linalg.vector_norm(x, ord, dims, keepdim, dtype=dtype)


@decomposes(aten.bernoulli_.float)
def bernoulli_(x: Tensor, p: float = 0.5, **generator: Any) -> Any:
    """Eager draws in the order of memory.

    So does this overload; the one that functionalization would take does not."""
    if x.is_contiguous():
        return NotImplemented

    probability = torch.tensor(p, dtype=torch.float64)
    return x.copy_(aten.bernoulli.Tensor(x, probability, **generator))


@decomposes(getattr(aten.random, "from"))
def random_from(x: Tensor, low: int, high: int | None, **generator: Any) -> Any:
    """This overload is named by a word of Python's, so torch.fx cannot print its call.

    `randint_like` draws the same numbers in the same order."""
    if high is None:
        high = behind_largest(x.dtype)
    # `randint_like` takes bounds of 64 bits, and no generator
    if high > LARGEST or generator.get("generator") is not None:
        return NotImplemented
    return aten.randint_like.low_dtype(x, low, high)


LARGEST = torch.iinfo(torch.int64).max


def behind_largest(dtype: torch.dtype) -> int:
    """One more than the largest number that `random_` draws of this dtype.

    Of floating-point numbers these are the integers that can all be told apart."""
    if dtype is torch.bool:
        return 2
    if dtype.is_floating_point:
        return int(2 / torch.finfo(dtype).eps) + 1
    return torch.iinfo(dtype).max + 1


@decomposes(aten.logit.default)
def logit(x: Tensor, eps: float | None = None) -> Any:
    """On a CPU eager rounds each step of a half, and the bounds as well: `1 - 1e-6` is 1."""
    if x.dtype not in (torch.float16, torch.bfloat16) or x.device.type != "cpu":
        return NotImplemented

    if eps is not None and eps >= 0:
        low = x.new_full((), eps)
        high = 1 - low
        x = torch.where(x < low, low, torch.where(x > high, high, x))
    return torch.where(x == 1, math.inf, torch.log(x / (1 - x)))


@decomposes(aten.pow.Tensor_Scalar)
def power(x: Tensor, y: Any) -> Any:
    """A bool to the power of a bool is a bool, where torch's fake tensors take the result for
    int64."""
    if x.dtype is torch.bool and isinstance(y, bool):
        return x | (not y)  # x ** True is x, x ** False is True
    return whole_power(x, y)


@decomposes(aten.pow_.Scalar)
def whole_power(x: Tensor, y: Any) -> Any:
    """Raise for integers to a negative integer power, as eager does. torch's fake tensors do
    not."""
    whole = not (x.is_floating_point() or x.is_complex())
    if whole and isinstance(y, int) and y < 0:
        raise RuntimeError("Integers to negative integer powers are not allowed.")
    return NotImplemented


@decomposes(aten.hardsigmoid_backward.default)
def hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    """Eager has one sixth as a float32, for float64, too."""
    sixth = float(torch.tensor(1 / 6, dtype=torch.float32))
    is_between = (x > -3) & (x < 3)
    return torch.where(is_between, grad * sixth, 0.0)


@decomposes(torch.nn.functional.one_hot)
def one_hot(classes: Tensor, num_classes: int = -1) -> Tensor:
    """While torch traces, it does not look at the classes.

    Eager refuses those that are not there."""
    # Without a number there are as many as the data says.
    if num_classes >= 0:
        refuse((classes < 0) | (classes >= num_classes), "one_hot")
    return torch.nn.functional.one_hot(classes, num_classes)


def quantile(
    function: Callable[..., Tensor], x: Tensor, q: Any, *args: Any, **kwargs: Any
) -> Tensor:
    """On a CPU eager looks if `q` lies between 0 and 1; while torch traces, it does not."""
    if isinstance(q, Tensor) and x.device.type == "cpu":
        is_between = (q >= 0) & (q <= 1)
        refuse(is_between.logical_not(), "quantile")
    return function(x, q, *args, **kwargs)


decomposes(torch.quantile, Tensor.quantile)(partial(quantile, torch.quantile))
decomposes(torch.nanquantile, Tensor.nanquantile)(partial(quantile, torch.nanquantile))


def refuse(wrong: Tensor, name: str) -> None:
    """Raise in the compiled program if any element of `wrong` is true. Then eager runs the call
    again and says what is wrong.

    torch's check of linear algebra serves for it: it is an operator, so it can be recorded in a
    graph, and it raises on the host. (A failed assertion in a kernel would leave the GPU
    unusable.)"""
    aten._linalg_check_errors(wrong.any().to(torch.int32), name, is_matrix=True)


def interpolation(packet: Any, copies: Callable[[int, int], bool]) -> dict[Any, Decomposition]:
    """Interpolation whose factor does not count in a dimension where `copies(size, new size)`:
    eager looks at the sizes first."""
    torchs = get_decompositions([packet.default])[packet.default]

    def to_sizes(x: Tensor, sizes: Sequence[int], *more: Any) -> Tensor:
        # The last arguments are a factor for each dimension; they may be left out.
        rank = len(sizes)
        aligned, factors = more, (None,) * rank
        if len(more) >= rank:
            aligned, factors = more[:-rank], more[-rank:]

        # The first two dimensions are no sides of the image.
        old_sizes = x.shape[2:]
        counting: list[Any] = []
        for old, new, factor in zip(old_sizes, sizes, factors, strict=True):
            if copies(old, new):
                factor = None
            counting.append(factor)
        return torchs(x, sizes, *aligned, *counting)

    def by_factors(x: Tensor, sizes: Sequence[int] | None, *more: Any) -> Tensor:
        *aligned, factors = more
        if sizes is None:
            scaled = zip(x.shape[2:], factors, strict=True)
            sizes = [math.floor(size * factor) for size, factor in scaled]

        if not factors:
            factors = [None] * len(sizes)
        return to_sizes(x, sizes, *aligned, *factors)

    return {packet.default: to_sizes, packet.vec: by_factors}


def same_or_twice(old: int, new: int) -> bool:
    """The sizes at which eager's nearest2d copies: unchanged, or doubled (the element is then
    `i // 2`)."""
    return new in (old, 2 * old)


def register_interpolations() -> None:
    """Register the interpolations for which eager on a CPU has a shortcut at some sizes: it copies
    elements.

    These are nearest in two dimensions (not in one, nor in three), and the linear ones. torch's
    decompositions compute the place of an element there, by a factor that rounds.
    (`aten/src/ATen/native/UpSample.h`: `nearest_idx`, `compute_source_index_and_lambda`)
    """
    by_operator = interpolation(aten.upsample_nearest2d, same_or_twice)
    for packet in (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d):
        by_operator |= interpolation(packet, operator.eq)

    for op, decomposition in by_operator.items():
        decomposes(op)(decomposition)


register_interpolations()
