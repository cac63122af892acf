"""What runs is the text that torch.fx prints of a graph: it means what the graph means."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx

import course_lib as cl
from course_lib.graph_text import Complex, make_readable

inf, nan = math.inf, math.nan


class Applies(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, function):
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


def double(x):
    return x * 2


def made_inside():
    def triple(x):
        return x * 3

    return triple


triple = made_inside()
plus_two = cl.allow_in_graph(lambda x: x + 2)


def matrix_product_in_place(x, n):
    y = x
    y @= x  # torch has no such product in place: `y` is another tensor
    return x.sum() + y


def self_is_a_tensor(self, n):
    return self * n


PROGRAMS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    # a power of what begins with a minus
    "(-1) ** n": lambda x, n: x * (-1) ** n,
    "(-2) ** n": lambda x, n: x + (-2) ** n,
    "(-1) ** (n + 1)": lambda x, n: x * (-1) ** (n + 1) - (-1) ** n,
    "(-1) ** a size": lambda x, n: x.expand(n, 2, 2) * (-1) ** x.expand(n, 2, 2).shape[0],
    "(-1.5) ** n": lambda x, n: x * (-1.5) ** n,
    "(-n) ** 2": lambda x, n: x * (-n) ** 2,
    "-n ** 2": lambda x, n: x * -(n**2),
    "n ** -1": lambda x, n: x * n**-1,
    "(-2.0) ** tensor": lambda x, n: (-2.0) ** x.round() * n,
    "(-2) ** tensor": lambda x, n: (-2) ** x.round(),
    "(-inf) ** tensor": lambda x, n: (-inf) ** x.round(),
    "(-0.0) ** tensor": lambda x, n: (-0.0) ** (x * 0 + 1),
    "a size to a tensor": lambda x, n: (-n) ** x.round(),
    "tensor.__rpow__": lambda x, n: x.__rpow__(-3),
    "in place": lambda x, n: operator.ipow(x.clone(), -2),
    # other operators, with a negative number at each side
    "-1 - x": lambda x, n: -1 - x - -3,
    "- (- x)": lambda x, n: -(x.neg()),
    "-7 // x": lambda x, n: -7 // x + -7 % x,
    "shifts": lambda x, n: (-8) >> x.long() << 1,
    "of sizes": lambda x, n: x * abs(-n) + (-n) // 2 + (-n) % 3 + (n << 1) + (n & 3 | n ^ 1) + ~n,
    "comparisons": lambda x, n: (x > -1) != (x == -1),
    "indices": lambda x, n: x[None, ..., -1:, ::2][..., -1],
    "slices of sizes": lambda x, n: x.repeat(4, 4)[-n:, :n],
    "x @= x": matrix_product_in_place,
    # constants
    "infinities": lambda x, n: x.masked_fill(x > 0.9, -inf),
    "not a number": lambda x, n: x.masked_fill(x > 0.9, nan),
    "minus zero": lambda x, n: torch.full_like(x, -0.0).reciprocal(),
    "copysign": lambda x, n: torch.copysign(x, -0.0),
    "a complex zero": lambda x, n: 1 / torch.full((2,), complex(0.0, -0.0)).imag,
    "two complex zeros": lambda x, n: 1 / torch.full((2,), complex(-0.0, 0.0)).real,
    "complex infinities": lambda x, n: x * complex(-0.0, -0.0) + complex(nan, inf),
    "complex power": lambda x, n: complex(-1, -0.0) ** x,
    "cpu:0": lambda x, n: x.to(torch.device("cpu", 0)) + torch.zeros(2, 2, device="cpu:0"),
    "a memory format": lambda x, n: x[None, None].to(memory_format=torch.channels_last),
    "strings": lambda x, n: torch.einsum("ij,jk->ik", x, x),
    # functions
    "a lambda": lambda x, n: Applies.apply(x, lambda value: value * 2) + 1,
    "a function": lambda x, n: Applies.apply(x, double) + 1,
    "a function from a function": lambda x, n: Applies.apply(x, triple) + 1,
    "one of torch's": lambda x, n: Applies.apply(x, torch.sin) + 1,
    "one of Python's": lambda x, n: Applies.apply(x, operator.neg) + 1,
    "a lambda that is allowed": lambda x, n: plus_two(x),
    # names
    "self": self_is_a_tensor,
    "names of Python's": lambda device, nan: device * nan + inf,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_of_a_graph_means_what_the_graph_means(name: str, backend: str):
    function = PROGRAMS[name]
    compiled = cl.compile(function, backend=backend, fullgraph=True)
    x = torch.tensor([[1.25, 0.75], [0.5, 2.0]])

    for n in (1, 2, 3, 4):  # from the second on a symbol
        expected, found = function(x.clone(), n), compiled(x.clone(), n)
        torch.testing.assert_close(found, expected, equal_nan=True)
        if expected.is_floating_point():
            assert torch.signbit(found).equal(torch.signbit(expected))


@pytest.mark.parametrize(
    "number", [complex(0.0, -0.0), complex(-0.0, 0.0), complex(-inf, 2), 3 - 4j]
)
def test_a_complex_number_has_a_text_that_gives_it_back(number):
    again = eval(repr(Complex(number)))

    assert again == number
    assert math.copysign(1, again.real) == math.copysign(1, number.real)
    assert math.copysign(1, again.imag) == math.copysign(1, number.imag)


def test_a_power_of_a_negative_number_is_printed_as_a_call():
    graph = fx.Graph()
    n = graph.placeholder("n")
    graph.output(graph.call_function(operator.pow, (-1, n)))

    assert make_readable(graph)
    assert "pow(-1, n)" in graph.python_code("self").src
    assert not make_readable(graph)
