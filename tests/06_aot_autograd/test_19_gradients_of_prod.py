"""The gradient of `prod`: eager counts the zeros among the factors, and chooses a formula."""

from __future__ import annotations

import math

import pytest
import torch

import course_lib as cl

FACTORS = [
    [1.0, -2.0, 3.0],
    [0.0, -2.0, 3.0],
    [-0.0, -2.0, -3.0],
    [0.0, 0.0, -3.0],
    [-0.0, 0.0, 3.0],
    [-0.0, -0.0, -1.0],
    [0.0, 0.0, 0.0],
    [math.inf, -2.0, 3.0],
    [math.inf, 0.0, 1.0],
    [-math.inf, -0.0, 0.0],
    [math.nan, 0.0, 2.0],
    [1e-30, 1e-30, -1e30],
    [2.0],
    [-0.0],
    [],
]

PROGRAMS = {
    "all": lambda x: x.prod(),
    "torch.prod": lambda x: torch.prod(x),
    "first dimension": lambda x: x.prod(0),
    "last dimension": lambda x: torch.prod(x, -1),
    "by name": lambda x: x.prod(dim=-1, keepdim=True),
    "another dtype": lambda x: x.prod(dtype=torch.float64),
    "of a value, used again": lambda x: (x * 2).prod() + x.sum(),
}


def text_of_gradient(function, x: torch.Tensor) -> str:
    """As text, in which -0.0 and nan are told apart."""
    x = x.clone().requires_grad_()
    y = function(x)
    (y * -1.5).sum().backward()
    return f"{y.tolist()} {x.grad.tolist()}"


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_have_the_zeros_and_infinities_of_eager(name, dynamic):
    function = PROGRAMS[name]
    compiled = cl.compile(function, backend="aot_eager", dynamic=dynamic)
    for factors in FACTORS:
        for x in (torch.tensor(factors), torch.tensor([factors, factors[::-1]])):
            assert text_of_gradient(compiled, x) == text_of_gradient(function, x), factors


def test_kernels_compute_these_gradients():
    function = PROGRAMS["all"]
    compiled = cl.compile(function)
    for factors in FACTORS[:11]:
        x = torch.tensor(factors)
        assert text_of_gradient(compiled, x) == text_of_gradient(function, x), factors


def test_it_can_be_differentiated_twice():
    found = []
    for function in (PROGRAMS["all"], cl.compile(PROGRAMS["all"])):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        (gradient,) = torch.autograd.grad(function(x), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.sum(), x)[0].tolist())
    assert found[1] == found[0]
