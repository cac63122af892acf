"""The gradient of `prod`, with the signs of zeros, the infinities and the NaNs of eager.

In:  a call of `torch.prod` while a graph is traced.
Out: the same call; if a gradient is wanted, with eager's formula for it.

Eager counts the zeros among the factors and chooses a formula. While a graph is traced there is
nothing to count, so torch takes the formula that is safe for all cases. It gives other signs to
zeros, and numbers where eager has `inf / inf`.
In PyTorch: `torch/csrc/autograd/FunctionsManual.cpp` (`prod_backward`,
`prod_safe_zeros_backward`).
"""

from typing import Any

import torch
from torch import Tensor

from course_lib.lowering.decompositions import decomposes


@decomposes(torch.prod, torch.Tensor.prod)
def prod(
    input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None, axis: Any = None
) -> Tensor:
    """The product of all elements, or of those along one dimension."""
    # NumPy's name for the dimension
    if dim is None:
        dim = axis

    # Only a gradient along one dimension, or of all elements, is ours.
    wanted = dtype or input.dtype
    has_gradient = torch.is_grad_enabled() and input.requires_grad and input.ndim > 0
    if not has_gradient or not isinstance(dim, int | None) or not wanted.is_floating_point:
        return call(input, dim, keepdim, dtype)

    factors = input.to(wanted)
    if dim is None:
        of_all: Tensor = Product.apply(factors.flatten(), None)
        return of_all

    product: Tensor = Product.apply(factors, dim)
    if keepdim:
        return product
    return product.squeeze(dim)


def call(input: Tensor, dim: Any, keepdim: bool, dtype: Any) -> Tensor:
    """torch's own operator: it has one for all elements, another for a dimension."""
    if dim is None:
        return torch.ops.aten.prod.default(input, dtype=dtype)
    return torch.ops.aten.prod.dim_int(input, dim, keepdim, dtype=dtype)


class Product(torch.autograd.Function):
    """The product along a dimension, which is kept. For None, of all elements of a vector."""

    @staticmethod
    def forward(ctx: Any, factors: Tensor, dim: int | None) -> Tensor:
        product = call(factors, dim, True, None)
        ctx.save_for_backward(factors, product)
        ctx.dim = dim
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        factors, product = ctx.saved_tensors
        zeros = (factors == 0).sum()

        # Where there is a zero, a factor must not be divided by.
        safe = gradient * product_of_others(factors, ctx.dim or 0)
        if ctx.dim is None:
            safe = torch.where(zeros > 1, 0.0, safe)

        # Without zeros eager divides the product by each factor.
        divided = gradient * (product / factors)
        return torch.where(zeros == 0, divided, safe), None


def product_of_others(factors: Tensor, dim: int) -> Tensor:
    """For each element, the product of the other ones along a dimension: of those before it, and of
    those behind it."""
    count = factors.shape[dim]
    if count < 2:
        return torch.ones_like(factors)

    one = torch.ones_like(factors.narrow(dim, 0, 1))
    all_but_last = factors.narrow(dim, 0, count - 1)
    before = torch.cat([one, all_but_last], dim).cumprod(dim)

    # The same from the other end
    all_but_first = factors.narrow(dim, 1, count - 1).flip(dim)
    behind = torch.cat([one, all_but_first], dim).cumprod(dim)
    return before * behind.flip(dim)
