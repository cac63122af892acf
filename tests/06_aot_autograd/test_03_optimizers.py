"""Optimizers of torch.optim below a compiled call: what `step` does to all parameters is one graph, the bookkeeping eager's."""

import copy

import pytest
import torch
from torch import nn
from torch.optim import (
    ASGD,
    SGD,
    Adadelta,
    Adagrad,
    Adam,
    Adamax,
    AdamW,
    NAdam,
    RAdam,
    RMSprop,
    Rprop,
)
from torch.optim.lr_scheduler import CosineAnnealingLR

import course_lib as cl
from course_lib import events

CASES = {
    "sgd": lambda p: SGD(p, 0.1),
    "sgd with momentum": lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: Adam(p, 0.01),
    "adam of all": lambda p: Adam(p, 0.01, weight_decay=0.1, maximize=True, amsgrad=True),
    "adam, learning rate a tensor": lambda p: Adam(p, torch.tensor(0.01)),
    "adamw, two groups": lambda p: AdamW(
        [{"params": p[:1], "lr": 0.1}, {"params": p[1:], "weight_decay": 0.0}]
    ),
    "rmsprop": lambda p: RMSprop(p, 0.01, momentum=0.5, centered=True),
    "adagrad": lambda p: Adagrad(p, 0.01, lr_decay=0.1),
    "adadelta": lambda p: Adadelta(p, maximize=True),
    "adamax": lambda p: Adamax(p, weight_decay=0.1),
    "nadam": lambda p: NAdam(p, weight_decay=0.1, decoupled_weight_decay=True),
}
IN_EAGER = {"asgd": ASGD, "radam": RAdam, "rprop": Rprop, "fused": lambda p: Adam(p, fused=True)}


def follow(make, parameters, gradient=torch.randn_like, steps=5, change=lambda optimizer, i: None):
    """Steps in eager and compiled, on the same gradients; gives what was recorded. Parameters and all state must agree."""
    copies = [p.detach().clone().requires_grad_() for p in parameters]
    eager, ours = make(parameters), make(copies)
    step = cl.compile(ours.step)
    with cl.record() as trace:
        for i in range(steps):
            for p, q in zip(parameters, copies, strict=True):
                p.grad = gradient(p)
                q.grad = None if p.grad is None else p.grad.clone()
            for optimizer in (eager, ours):
                change(optimizer, i)
            eager.step()
            step()
    for p, q in zip(parameters, copies, strict=True):
        # eager rounds every operation
        near = {"rtol": 4e-2, "atol": 1e-3} if p.dtype.itemsize == 2 else {}
        torch.testing.assert_close(q, p, equal_nan=True, **near)
        assert eager.state[p].keys() == ours.state[q].keys()
        for name, value in eager.state[p].items():
            torch.testing.assert_close(
                ours.state[q][name], value, equal_nan=True, **near if torch.is_tensor(value) else {}
            )
    return trace


def parameters(*shapes, dtype=torch.float32):
    return [torch.randn(shape, dtype=dtype).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_one_graph(name):
    trace = follow(CASES[name], parameters((3, 4), (5,), ()))
    # one for each group, and again once there is momentum
    assert 1 <= len(trace.of(events.GraphCaptured)) <= 4
    assert not trace.of(events.FellBack)


@pytest.mark.parametrize("name", IN_EAGER)
def test_steps_that_look_at_data_run_in_eager(name):
    assert not follow(IN_EAGER[name], parameters((3, 4), (5,))).of(events.GraphCaptured)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float16, torch.bfloat16, torch.complex64], ids=str
)
def test_dtypes(dtype):
    follow(CASES["adam"], parameters((3, 4), (5,), dtype=dtype))


def test_the_first_steps_are_as_exact_as_with_python_numbers():
    """`1 - beta2 ** step` of a float32 `step` would be 5e-5 off."""
    weight, compiled = parameters((1000,), (1000,))
    compiled.data.copy_(weight.data)
    for p, step in ((weight, lambda o: o.step), (compiled, lambda o: cl.compile(o.step))):
        p.grad = torch.linspace(0.1, 1, 1000)
        step(Adam([p], 1.0))()
    torch.testing.assert_close(compiled, weight, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "gradient",
    [
        lambda p: None if p.ndim == 1 else torch.randn_like(p),
        lambda p: torch.full_like(p, torch.nan),
        lambda p: torch.zeros_like(p),
        lambda p: torch.randn(p.shape[::-1]).permute(*range(p.ndim)[::-1]),
        lambda p: torch.randn(()).expand(p.shape),
    ],
    ids=["some have none", "nan", "zero", "transposed", "expanded"],
)
def test_gradients(gradient):
    follow(
        CASES["adam"],
        [torch.randn(4, 3).t().detach().requires_grad_(), *parameters((5,), (0, 2))],
        gradient,
    )


def test_a_learning_rate_that_changes_compiles_once_more():
    change = lambda optimizer, i: optimizer.param_groups[0].update(lr=0.1 / (i + 1))
    trace = follow(CASES["adam"], parameters((3, 4)), steps=20, change=change)
    assert len(trace.of(events.GraphCaptured)) == 2 and not trace.of(events.FellBack)


@pytest.mark.slow
def test_a_training_step_in_one_function():
    """Loss, `backward()`, the step and a scheduler: as in eager, state and all."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    both = [(m, AdamW(m.parameters(), 0.01)) for m in (model, copy.deepcopy(model))]
    schedulers = [CosineAnnealingLR(optimizer, 20) for _, optimizer in both]

    def train(model, optimizer, x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = cl.compile(train)
    with cl.record() as trace:
        for _ in range(20):
            x, y = torch.randn(5, 4), torch.randn(5, 2)
            torch.testing.assert_close(compiled(*both[1], x, y), train(*both[0], x, y))
            for scheduler in schedulers:
                scheduler.step()
    nodes = [
        {str(node.target) for node in event.result.graph.graph.nodes}
        for event in trace.of(events.GraphCaptured)
    ]
    assert any("lerp_" in names for names in nodes) and not trace.of(events.FellBack)
    for a, b in zip(both[0][0].parameters(), both[1][0].parameters(), strict=True):
        torch.testing.assert_close(b, a)


def test_a_tensor_as_scale_keeps_out_and_the_names_of_arguments():
    x, y, scale = torch.randn(3), torch.rand(3) + 1, torch.tensor(0.5, dtype=torch.float64)
    out = torch.zeros(3)
    assert (
        cl.compile(lambda x, y, s, o: torch.addcmul(x, y, y, value=s, out=o))(x, y, scale, out)
        is out
    )
    torch.testing.assert_close(out, torch.addcmul(x, y, y, value=0.5))
    named = cl.compile(lambda x, y, s: torch.addcdiv(x, tensor1=x, tensor2=y, value=s))
    torch.testing.assert_close(named(x, y, scale), torch.addcdiv(x, x, y, value=0.5))
    plain = cl.compile(lambda x, y, s: torch.addcdiv(x, x, y, value=s), fullgraph=True)
    torch.testing.assert_close(plain(x, y, scale), torch.addcdiv(x, x, y, value=0.5))
