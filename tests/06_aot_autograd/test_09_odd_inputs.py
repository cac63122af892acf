"""Inputs and results that are not what their memory says: a negation still to do, a sample of two dtypes, a view of a view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import course_lib as cl

NUMBERS = torch.tensor([1 + 2j, 3 - 4j])


def lazy() -> Tensor:
    negative = NUMBERS.clone().conj().imag
    assert negative.is_neg()
    return negative


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Tensor, ...]]]] = {
    "added": (lambda x: x + 1, lambda: (lazy(),)),
    "a part": (lambda x: x[1:] * 2, lambda: (lazy(),)),
    "returned, too": (lambda x: (x, x + 1), lambda: (lazy(),)),
    "written to": (lambda x: x.mul_(2) + 1, lambda: (lazy(),)),
    "reduced": (lambda x: x.sum() + x.max(), lambda: (lazy(),)),
    "a product": (lambda x: x @ x, lambda: (lazy(),)),
    "beside another": (lambda x, y: x + y, lambda: (lazy(), torch.ones(2))),
    "with a gradient": (lambda x, y: x * y, lambda: (lazy(), torch.ones(2, requires_grad=True))),
    "asked": (lambda x: x + 1 if x.is_neg() else x, lambda: (lazy(),)),
    "resolved": (lambda x: x.resolve_neg() * 2, lambda: (lazy(),)),
    "conjugate": (lambda x: x.abs() + x.real + x.imag, lambda: (NUMBERS.conj(),)),
    "made inside": (lambda x: x.conj().imag + 1, lambda: (NUMBERS,)),
    "made inside of a conjugate": (lambda x: x.conj().imag * 2, lambda: (NUMBERS.conj(),)),
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_negation_that_is_still_to_do_is_done(name, backend):
    function, make = PROGRAMS[name]
    expected_inputs, inputs = make(), make()
    expected = function(*expected_inputs)
    found = cl.compile(function, backend=backend)(*inputs)

    torch.testing.assert_close((found, inputs), (expected, expected_inputs))


half, single, double = torch.float16, torch.float32, torch.float64


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
@pytest.mark.parametrize(
    ("mean", "deviation"),
    [
        (torch.zeros(2, dtype=half), torch.ones(2)),
        (torch.zeros(2), torch.ones(2, dtype=half)),
        (torch.zeros(3, 1, dtype=double), torch.ones(2)),
        (torch.zeros(2, dtype=torch.bfloat16), torch.ones(3, 2, dtype=double)),
        (torch.zeros(2, dtype=half), 2.0),
        (0.5, torch.ones(2, dtype=torch.bfloat16)),
        (torch.zeros(2), torch.ones(2)),
    ],
)
def test_a_random_sample_has_the_dtype_and_the_numbers_of_eager(mean, deviation, backend):
    def function(mean, deviation):
        sample = torch.normal(mean, deviation)
        return sample, sample.dtype

    found = []
    for run in (function, cl.compile(function, backend=backend)):
        torch.manual_seed(0)
        found.append(run(mean, deviation))
    assert found[0][1] == found[1][1] == found[1][0].dtype
    assert found[1][0].equal(found[0][0])


VIEWS = [
    lambda x: x.unsqueeze(-1),
    lambda x: (x[0], x + 1)[0],
    lambda x: x.t()[1],
    lambda x: x.view(4),
    lambda x: x.expand(3, 2, 2),
]
BASES = [
    lambda: torch.ones(2, 2),
    lambda: torch.ones(4).view(2, 2),
    lambda: torch.ones(2, 2, requires_grad=True),
    lambda: (torch.ones(4, requires_grad=True) * 1).view(2, 2),
]


@pytest.mark.parametrize("make", BASES)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_an_input_knows_its_base(view, make):
    found = []
    for run in (view, cl.compile(view)):
        x = make()
        y = run(x)
        found.append((y._is_view(), y._base is x, y._base is x._base, y.requires_grad, y.is_leaf))
    assert found[1] == found[0]


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.argmax(),
        lambda x: x.argmin(0),
        lambda x: (x & x).argmax(1, keepdim=True),
        lambda x: x.var(0),
        lambda x: x.std(),
    ],
)
def test_what_torch_does_not_do_to_bools_is_refused_as_in_eager(function, codegen):
    if codegen == "triton":
        pytest.importorskip("triton")
    x = torch.tensor([[True, False], [False, True]])
    with pytest.raises(Exception) as eager:
        function(x)
    with pytest.raises(type(eager.value)):
        cl.compile(function, options={"codegen": codegen})(x)
