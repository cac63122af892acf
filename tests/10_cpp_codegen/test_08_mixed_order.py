"""Sums over rows beside reductions of columns: one kernel where nobody needs a sum before the last row, else two."""

from __future__ import annotations

import pytest
import torch
from back_half import compile_function

CODEGENS = ["cpp"] if torch.cuda.is_available() else ["cpp", "triton"]


def norm_backward(g, x):
    return g - x * (g * x).mean(-1, keepdim=True), (g * x).sum(0), g.sum(0)


def softmax_and_bias(g, x):
    p = torch.softmax(x, -1)
    return (p - g).sum(0), p


ONE_KERNEL = [norm_backward, softmax_and_bias, lambda g, x: (x.sum(0), g.amax(1), (g - x).sum(1))]
MORE = [
    lambda g, x: (x - x.sum(0), x.sum(1)),
    lambda g, x: ((x - x.sum(0)).sum(1), g),
    lambda g, x: (x.sum(1, keepdim=True) + x.sum(0), g),
    lambda g, x: (x.amax(0), x.sum(1)),
    lambda g, x: (x.sum(0) * 2, x.sum(1)),
    lambda g, x: (x.sum(0) / x.sum(0).sum(), x.amax(1)),
    lambda g, x: ((x - x.mean(1, keepdim=True)).sum(0), x.sum(0) + 1),
    lambda g, x: ((g * x).sum(0).softmax(-1), x.softmax(-1), g.softmax(0)),
    lambda g, x: (x.t().sum(0), x.t().sum(1), g.t().contiguous()),
    lambda g, x: (x.sum((0, 1)), x.sum(0), x.sum(1)),
]


@pytest.mark.parametrize("codegen", CODEGENS)
@pytest.mark.parametrize("shape", [(40, 24), (1, 24), (40, 1), (300, 700), (5, 6, 7)], ids=str)
@pytest.mark.parametrize("function", ONE_KERNEL + MORE)
def test_as_eager(function, shape, codegen):
    if codegen == "triton" and shape != (40, 24):
        pytest.skip("the interpreter is slow")
    g, x = torch.randn(shape), torch.randn(shape)
    if len(shape) == 3 and function is MORE[8]:
        g, x = g[0], x[0]
    compiled = compile_function(function, g, x, codegen=codegen)
    # sums of hundreds of numbers that are sums themselves
    atol = 1e-3 if shape == (300, 700) else 1e-4
    for _ in range(2):  # what is added up begins with 0 each time
        for got, want in zip(compiled(g, x), function(g, x), strict=True):
            torch.testing.assert_close(
                got, want, rtol=1e-4, atol=atol, msg=lambda m: f"{m}\n{compiled.source}"
            )


@pytest.mark.parametrize("function", ONE_KERNEL)
def test_one_kernel(function):
    compiled = compile_function(function, torch.randn(40, 24), torch.randn(40, 24))
    assert len(compiled.kernels) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_other_dtypes(dtype):
    g, x = torch.randn(64, 96).to(dtype), torch.randn(64, 96).to(dtype)
    compiled = compile_function(norm_backward, g, x)
    for got, want in zip(compiled(g, x), norm_backward(g, x), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=0.1)


def test_as_exact_as_double():
    g, x = torch.rand(100_000, 8), torch.rand(100_000, 8)
    got = compile_function(norm_backward, g, x)(g, x)[2]
    exact = g.double().sum(0)
    assert ((got - exact).abs() <= 2**-22 * exact).all()


def test_too_many_columns_for_the_cache_stay_apart():
    compiled = compile_function(norm_backward, torch.randn(4, 9000), torch.randn(4, 9000))
    assert len(compiled.kernels) > 1


def test_nan_and_infinity_come_through():
    g, x = torch.randn(64, 32), torch.randn(64, 32)
    g[3, 5], g[7, 6], x[9, 9] = float("nan"), float("inf"), float("-inf")
    compiled = compile_function(norm_backward, g, x)
    for got, want in zip(compiled(g, x), norm_backward(g, x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True)
