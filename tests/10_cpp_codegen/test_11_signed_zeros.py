"""0.0 and -0.0 are equal, and 1 / x tells them apart: kernels give the one that eager gives.

Where eager itself gives the one or the other by the number of elements (its vectors differ from its scalars), nothing is asked:
`amax`, and `max` of all, of many elements; `softshrink`; `maximum` of float16.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl
from course_lib.lowering import lower
from course_lib.viz.evaluator import evaluate

inf, nan = math.inf, math.nan
VALUES = [0.0, -0.0, 1.0, -1.0, inf, -inf, nan, 0.5, -0.5, 2.5, -2.5]

# (x, y): every pair of `VALUES`
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "relu": lambda x, y: x.relu(),
    "relu in place": lambda x, y: (x * 1).relu_(),
    "relu6": lambda x, y: F.relu6(x),
    "leaky_relu": lambda x, y: F.leaky_relu(x),
    "hardtanh": lambda x, y: F.hardtanh(x, 0.0, 1.0),
    "threshold": lambda x, y: F.threshold(x, 0.0, -0.0),
    "clamp from 0": lambda x, y: x.clamp(min=0),
    "clamp from -0.0": lambda x, y: x.clamp(min=-0.0),
    "clamp to 0": lambda x, y: x.clamp(max=0),
    "clamp to -0.0": lambda x, y: x.clamp(max=-0.0),
    "clamp between": lambda x, y: x.clamp(-0.0, 0.0),
    "clamp between, the other way": lambda x, y: x.clamp(0.0, -0.0),
    "clamp by a tensor": lambda x, y: x.clamp(min=y),
    "clamp to a tensor": lambda x, y: x.clamp(max=y),
    "clip": lambda x, y: x.clip(0, 1),
    "x // y": lambda x, y: x // y,
    "x // 2": lambda x, y: x // 2,
    "x // -3": lambda x, y: x // -3,
    "x // inf": lambda x, y: x // inf,
    "x // -0.0": lambda x, y: x // -0.0,
    "0 // x": lambda x, y: 0 // x,
    "-0.0 // x": lambda x, y: -0.0 // x,
    "x % y": lambda x, y: x % y,
    "x % 1": lambda x, y: x % 1,
    "x % -1": lambda x, y: x % -1,
    "fmod": lambda x, y: x.fmod(y),
    "divided and cut off": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "trunc": lambda x, y: x.trunc(),
    "floor": lambda x, y: x.floor(),
    "ceil": lambda x, y: x.ceil(),
    "round": lambda x, y: x.round(),
    "frac": lambda x, y: x.frac(),
    "sign": lambda x, y: x.sign(),
    "-x": lambda x, y: -x,
    "- abs(x)": lambda x, y: -x.abs(),
    "x + -0.0": lambda x, y: x + -0.0,
    "x + 0.0": lambda x, y: x + 0.0,
    "x - 0": lambda x, y: x - 0,
    "0 - x": lambda x, y: 0 - x,
    "x * 0": lambda x, y: x * 0,
    "x * -0.0": lambda x, y: x * -0.0,
    "-0.0 / x": lambda x, y: -0.0 / x,
    "x * y": lambda x, y: x * y,
    "x - y": lambda x, y: x - y,
    "maximum": lambda x, y: torch.maximum(x, y),
    "minimum": lambda x, y: torch.minimum(x, y),
    "where": lambda x, y: torch.where(x == 0, x, y),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, -0.0),
    "copysign": lambda x, y: x.copysign(y),
    "x ** 3": lambda x, y: x**3,
    "x ** -1": lambda x, y: x**-1,
    "sqrt": lambda x, y: x.sqrt(),
    "expm1": lambda x, y: x.expm1(),
    "tanh": lambda x, y: x.tanh(),
    "sin": lambda x, y: x.sin(),
    "atan2": lambda x, y: torch.atan2(x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.25),
    "add with a factor": lambda x, y: torch.add(x, y, alpha=-1),
    "silu": lambda x, y: F.silu(x),
    "to float16": lambda x, y: x.half(),
}


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    both = torch.tensor(list(itertools.product(VALUES, VALUES)), dtype=dtype)
    return both[:, 0].contiguous(), both[:, 1].contiguous()


def every_operation(x, y):
    return [operation(x, y) for operation in OPERATIONS.values()]


def check_signs(found: list[Any], expected: list[Any], but: tuple[str, ...] = ()) -> None:
    wrong = []
    for name, new, old in zip(OPERATIONS, found, expected, strict=True):
        there = ~old.isnan()
        same = new.isnan().equal(old.isnan())
        same = same and new[there].signbit().equal(old[there].signbit())
        same = same and (new[there] == 0).equal(old[there] == 0)
        if not same and name not in but:
            wrong.append(name)
    assert wrong == []


VARIES = {torch.float16: ("maximum", "minimum")}
GPUS = (
    *("relu", "relu in place", "relu6", "hardtanh", "clip", "maximum", "minimum"),
    *("clamp from 0", "clamp to -0.0", "clamp between, the other way"),
    *("clamp by a tensor", "clamp to a tensor"),
)
"""What ends in a GPU's `max` or `min`, for which 0 is more than -0: the simulated GPU gives that, and eager on a CPU the first."""


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_zero_has_the_sign_that_it_has_in_eager(dtype: torch.dtype, codegen: str):
    if codegen == "triton":
        pytest.importorskip("triton")
    x, y = pairs(dtype)
    compiled = cl.compile(every_operation, fullgraph=True, options={"codegen": codegen})

    varies = VARIES.get(dtype, ())
    check_signs(compiled(x, y), every_operation(x, y), varies if codegen == "cpp" else GPUS)


def test_zero_is_more_than_minus_zero_on_a_simulated_gpu():
    pytest.importorskip("triton")
    x, y = torch.tensor([0.0, -0.0, 0.0, -0.0]), torch.tensor([0.0, 0.0, -0.0, -0.0])
    both = cl.compile(
        lambda x, y: (torch.maximum(x, y), torch.minimum(x, y)), options={"codegen": "triton"}
    )
    larger, smaller = both(x, y)
    assert larger.signbit().tolist() == [False, False, False, True]
    assert smaller.signbit().tolist() == [False, True, True, True]


def test_the_evaluator_gives_the_same_zeros():
    x, y = pairs(torch.float32)
    graphs = []

    def keep(gm):
        graphs.append(lower(gm))
        return graphs[-1]

    cl.compile(every_operation, pipeline=cl.Pipeline().replace(lower=keep))(x, y)

    check_signs(evaluate(graphs[0], x, y), every_operation(x, y))


def zeros(size: int) -> list[torch.Tensor]:
    """Zeros of which some are -0.0: the first, the last, all but one, every other."""
    every = torch.arange(size)
    negative = [every == 0, every > 0, every == size - 1, every < size - 1, every % 2 == 0]
    return [torch.where(where, -0.0, 0.0) for where in negative]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_the_maximum_of_all_is_the_zero_that_eager_finds(size: int):
    for function in (torch.max, torch.min, torch.amax, torch.amin):
        compiled = cl.compile(function, options={"codegen": "cpp"})
        for x in zeros(size):
            assert torch.signbit(compiled(x)) == torch.signbit(function(x)), (function, x)


@pytest.mark.parametrize("size", [2, 5, 16])
def test_the_maximum_of_a_row_is_its_first_zero(size: int):
    for function in (torch.max, torch.min):
        along_rows = lambda x, function=function: function(x, 1)[0]
        along_columns = lambda x, function=function: function(x, 0)[0]
        for x in zeros(size):
            rows, columns = x.expand(3, size).contiguous(), x[:, None].expand(size, 3).contiguous()
            found = cl.compile(along_rows)(rows), cl.compile(along_columns)(columns)
            assert found[0].signbit().equal(along_rows(rows).signbit())
            assert found[1].signbit().equal(along_columns(columns).signbit())


def test_the_gradient_of_what_came_of_minus_zero_is_eagers():
    found = []
    for run in (lambda f: f, cl.compile):
        x = torch.tensor([-0.0, 0.0, 1.0, -1.0], requires_grad=True)
        run(lambda x: (1 / x.relu(), x.clamp(min=0)))(x)[1].sum().backward()
        found.append(x.grad)
    assert found[1].equal(found[0])


def test_an_infinite_bound_of_float64_numbers_compiles():
    x = torch.tensor([1.0, -2.0], dtype=torch.float64)
    function = lambda x: (x // inf, x.clamp(-inf, inf), torch.maximum(x, torch.full_like(x, inf)))
    found = cl.compile(function, options={"codegen": "cpp"})(x)
    torch.testing.assert_close(found, function(x))
