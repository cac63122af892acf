"""Programs that ask autograd for something in their middle: hooks, gradients of what was just computed, hooks for saved tensors.

Eager's answers, computed here, are the right ones: results, gradients, and what each hook was given, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import course_lib as cl

LOG: list[Any] = []


def doubled(gradient: torch.Tensor) -> torch.Tensor:
    LOG.append(None if gradient is None else gradient.tolist())
    return gradient * 2


def packed(tensor: torch.Tensor) -> torch.Tensor:
    LOG.append(("pack", tuple(tensor.shape)))
    return tensor


def hook_on_the_middle(x, m):
    t = x * 2
    u = t.exp() + m
    t.register_hook(doubled)
    return u * t, u


def hook_on_what_is_not_used(x, m):
    t = x * 2
    t.register_hook(doubled)
    return m * x, t.detach()


def hook_on_an_input(x, m):
    x.register_hook(doubled)
    return x * m, x


def gradient_kept(x, m):
    t = x * 2
    u = t.sin()
    t.retain_grad()
    u.sum().backward(retain_graph=True)
    return u * m, t.grad


def gradient_of_the_middle(x, m):
    t = x * 2
    u = t.exp() + m
    (g,) = torch.autograd.grad(u.sum(), t, retain_graph=True)
    return g + u, t


def backward_to_the_middle(x, m):
    t = x * 2
    t.retain_grad()
    u = t.exp() * m
    u.sum().backward(inputs=[x, t], retain_graph=True)
    return u * 2, t.grad


def gradient_of_an_input(x, m):
    t = x * 2
    u = t.exp() * m
    (g,) = torch.autograd.grad(u.sum(), (x,), retain_graph=True)
    return g.sum() + u, t


def effect_before_saving(x, m):
    LOG.append("first")
    with torch.autograd.graph.saved_tensors_hooks(packed, lambda t: t):
        LOG.append("second")
        u = torch.tanh(x) * m
        LOG.append("third")
    return u, u.detach()


def failure_after_saving(x, m):
    u = x
    with torch.autograd.graph.saved_tensors_hooks(packed, lambda t: t):
        u = torch.tanh(x)
        try:
            u = u + m[torch.tensor([0, 1, 7])]
        except IndexError:
            LOG.append("caught")
    return u * m, u.detach()


PROGRAMS = [
    hook_on_the_middle,
    hook_on_what_is_not_used,
    hook_on_an_input,
    gradient_kept,
    gradient_of_the_middle,
    backward_to_the_middle,
    gradient_of_an_input,
    effect_before_saving,
    failure_after_saving,
]


def everything(function: Callable[..., Any]) -> list[Any]:
    """What one call and its backward pass show."""
    torch.manual_seed(0)
    x, m = (torch.randn(3, requires_grad=True) for _ in range(2))
    LOG.clear()

    result, beside = function(x, m)
    result.sum().backward()

    return [result.detach(), beside, x.grad, m.grad, list(LOG)]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_autograd_answers_as_in_eager(program, backend):
    compiled = cl.compile(program, backend=backend)
    for _ in range(3):
        want, got = everything(program), everything(compiled)
        torch.testing.assert_close(got[:4], want[:4])
        assert len(got[4]) == len(want[4])
        for ours, eagers in zip(got[4], want[4], strict=True):
            assert ours == eagers or ours == pytest.approx(eagers)
