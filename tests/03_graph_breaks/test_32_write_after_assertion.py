"""A program asserts something of its data, and then writes to an input: one graph, and nothing is written if the assertion fails.

PYTEST_DONT_REWRITE: pytest would put addresses of objects into the texts that are compared.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import course_lib as cl

PROGRAMS: dict[str, Callable[..., Any]] = {}
"""(x, a module, a list) → a result. The module's buffer and the list may change."""


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def masked(x, model, log):
    mask = x > 0.5
    assert mask.any()
    x[mask] = 1.0
    return x * 2


@program
def with_a_text(x, model, log):
    assert x.sum() > 0, "the sum must be above zero"
    x.add_(1)
    return x.sin()


@program
def raises_if(x, model, log):
    if x.min() < 0:
        raise ValueError("negative")
    x.mul_(2)
    return x.exp()


@program
def several(x, model, log):
    assert x.sum() > 0
    if x.max() > 5:
        raise ValueError("too large")
    assert x.isfinite().all(), "not finite"
    x.sqrt_()
    return x + 1


@program
def of_a_number(x, model, log):
    assert x[0]
    x[0] = 0
    return x


@program
def between_effects(x, model, log):
    log.append("before")
    if x.sum() < 0:
        raise ValueError("negative")
    log.append("behind")
    x.fill_(3)
    log.append("written")
    return x + len(log)


@program
def with_random_numbers(x, model, log):
    noise = torch.rand(3)
    assert (x + noise).sum() > 0
    x.add_(torch.rand(3))
    return x + noise


@program
def caught(x, model, log):
    try:
        assert x.sum() > 0
        x.add_(1)
    except AssertionError:
        x.sub_(1)
    return x * 2


@program
def to_a_buffer(x, model, log):
    assert x.sum() > 0
    model.count.add_(1)
    return model.layer(x) * model.count


@program
def to_data(x, model, log):
    assert x.sum() > 0
    x.data.mul_(2)
    return x + 1


@program
def batch_norm(x, model, log):
    assert x.sum() > 0
    assert x.isfinite().all()
    return model.norm(x.expand(2, 3) * torch.tensor([[1.0], [2.0]]))


@program
def with_a_gradient(x, model, log):
    y = model.layer(x)
    assert x.sum() > 0
    model.count.copy_(y.detach())
    return y.square()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(3, 3), nn.BatchNorm1d(3)
        self.register_buffer("count", torch.zeros(3))


INPUTS: list[Tensor] = [
    torch.ones(3),
    -torch.ones(3),
    torch.tensor([0.0, 2.0, 3.0]),
    torch.full((3,), 9.0),
    torch.tensor([1.0, torch.inf, 1.0]),
]


def played(
    function: Callable[..., Any], model: nn.Module, x: Tensor
) -> tuple[list[str], list[Any]]:
    """What it said, and the result with all that may have changed."""
    x, log, result = x.clone(), [], None
    model.zero_grad()
    torch.manual_seed(0)
    try:
        result = function(x, model, log)
        if result.requires_grad:
            result.sum().backward()
    except (AssertionError, ValueError) as error:
        log.append(f"{type(error).__name__}: {error}")
    gradients = [p.grad for p in model.parameters()]
    return log, [result, x, gradients, *model.buffers(), torch.rand(1)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_written_where_an_assertion_fails(name: str, backend: str) -> None:
    function, model = PROGRAMS[name], Model()
    other = copy.deepcopy(model)
    compiled = cl.compile(function, backend=backend, fullgraph=name != "caught")
    for x in INPUTS:
        said, want = played(function, model, x)
        also_said, got = played(compiled, other, x)
        assert also_said == said
        torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m, x=x: f"{x}: {m}")
