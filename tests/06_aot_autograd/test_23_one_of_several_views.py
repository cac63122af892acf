"""Eager lets nobody write to one of several views that an operation gave, if it has a gradient."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import course_lib as cl

OPERATIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "chunk": lambda x: x.chunk(2),
    "split": lambda x: x.split([1, 3]),
    "unbind": lambda x: x.unbind(),
    "tensor_split": lambda x: x.tensor_split(2),
    "hsplit": lambda x: x.view(2, 2).hsplit(2),
    "loop": list,
    "a part of a part": lambda x: (x.chunk(2)[0][1:], x),
    "slices": lambda x: (x[1:], x[:2]),
}
BEFORE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "an input": lambda x: x,
    "a value": lambda x: x * 1,
}


def refused(function: Callable[[torch.Tensor], Any], x: torch.Tensor) -> bool:
    """Does a write to the first result raise? Where it does not, backward must go through."""
    views = function(x)
    try:
        views[0].mul_(2)
    except RuntimeError as error:
        assert "a function that returns multiple views" in str(error)
        return True
    return False


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_write_is_refused_as_in_eager(name: str, backend: str) -> None:
    operation = OPERATIONS[name]
    for before, with_gradient in itertools.product(BEFORE.values(), (True, False)):

        def program(
            x: torch.Tensor, before: Callable[[torch.Tensor], torch.Tensor] = before
        ) -> Any:
            return operation(before(x))

        answers = []
        for function in (program, cl.compile(program, backend=backend)):
            leaf = torch.arange(4.0, requires_grad=with_gradient)
            answers.append(refused(function, leaf * 2))
        assert answers[0] == answers[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_its_gradient_is_as_in_eager(name: str, backend: str) -> None:
    def program(x: torch.Tensor) -> Any:
        return OPERATIONS[name](x * 3)

    gradients = []
    for function in (program, cl.compile(program, backend=backend)):
        x = torch.arange(4.0, requires_grad=True)
        sum((part * weight).sum() for weight, part in enumerate(function(x), 1)).backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
