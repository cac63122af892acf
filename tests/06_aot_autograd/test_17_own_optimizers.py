"""Optimizers that are not torch's own: a step is one graph, and the parameters and the state are eager's."""

import pytest
import torch
from torch import nn

import course_lib as cl


class Momentum(torch.optim.Optimizer):
    """State for each parameter, a count of steps, a closure."""

    def __init__(self, params, lr=0.1, decay=0.0):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"], state["average"] = 0, torch.zeros_like(p)
                state["step"] += 1
                average = state["average"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(average / (1 - 0.9 ** state["step"]), alpha=-group["lr"])
        return loss


class ByData(torch.optim.Optimizer):
    """The old style: `p.data`, no `no_grad`, a counter of its own, a helper method."""

    def __init__(self, params, lr=0.1):
        self.calls = 0
        super().__init__(params, {"lr": lr})

    def scaled(self, grad, lr):
        return grad.sign() * lr

    def step(self):
        self.calls += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(-self.scaled(p.grad.data, group["lr"]))


class Lookahead(torch.optim.Optimizer):
    """Around another one."""

    def __init__(self, inner):
        self.inner = inner
        super().__init__(inner.param_groups[0]["params"], {})

    def step(self):
        self.inner.step()
        with torch.no_grad():
            for p in self.param_groups[0]["params"]:
                slow = self.state[p].setdefault("slow", p.detach().clone())
                slow.lerp_(p, 0.5)


MAKERS = {
    "momentum": lambda params: Momentum(params, decay=0.1),
    "by data": ByData,
    "around another": lambda params: Lookahead(Momentum(params)),
    "two groups": lambda params: Momentum(
        [{"params": params[:1], "lr": 0.3}, {"params": params[1:]}]
    ),
}


def trained(make, compile, to_none=True, hook=False):
    """Six steps: another learning rate from the third on, a gradient that is missing in the fifth."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer, seen = make(list(model.parameters())), []
    if hook:
        optimizer.register_step_post_hook(lambda *args: seen.append(len(args)))
    step = compile(optimizer.step)
    zero = compile(lambda: optimizer.zero_grad(set_to_none=to_none))
    for turn in range(6):
        if turn == 2:
            optimizer.param_groups[0]["lr"] = 0.02
        model(torch.ones(2, 3) * turn).pow(2).mean().backward()
        if turn == 4:
            model[0].bias.grad = None
        step()
        seen.append([p.grad is None for p in model.parameters()])
        zero()
        seen.append([None if p.grad is None else p.grad.sum().item() for p in model.parameters()])
    values = [p.detach().clone() for p in model.parameters()]
    state = [dict(optimizer.state[p]) for p in model.parameters()]
    return values, state, seen, getattr(optimizer, "calls", None)


@pytest.mark.parametrize("backend", ["eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MAKERS)
def test_parameters_and_state_are_eagers(name, backend):
    for options in ({}, {"to_none": False}, {"hook": True}):
        ours = trained(MAKERS[name], lambda f: cl.compile(f, backend=backend), **options)
        torch.testing.assert_close(ours, trained(MAKERS[name], lambda f: f, **options))


@pytest.mark.parametrize("name", MAKERS)
def test_a_step_is_one_graph(name):
    trained(MAKERS[name], lambda f: cl.compile(f, backend="eager", fullgraph=True))


def test_a_closure_breaks_at_backward_only():
    def run(compile):
        torch.manual_seed(0)
        model = nn.Linear(3, 1)
        optimizer = Momentum(model.parameters())

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).pow(2).mean()
            loss.backward()
            return loss

        step = compile(lambda: optimizer.step(closure))
        return [step().item() for _ in range(3)], model.weight.detach().clone()

    torch.testing.assert_close(run(cl.compile), run(lambda f: f))
