"""What each call pays for: which entry is tried first, objects that are kept apart, numbers that change in each call."""

import copy

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib import events, frames


class Momentum(torch.optim.Optimizer):
    def __init__(self, parameters, lr=0.1):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                if "m" not in state:
                    state["m"] = torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad)
                p.add_(state["m"], alpha=-group["lr"] / state["step"] ** 0.5)


def trained(run, parameters):
    torch.manual_seed(0)
    weights = [nn.Parameter(torch.randn(3)) for _ in range(parameters)]
    optimizer = Momentum(weights)
    for turn in range(4):
        for weight in weights:
            weight.grad = torch.full((3,), 1.0 + turn)
        run(optimizer)
    states = [(optimizer.state[w]["step"], optimizer.state[w]["m"]) for w in weights]
    return [w.detach() for w in weights], states


@pytest.mark.parametrize("parameters", [1, 2, 7])
def test_a_users_optimizer_is_eagers(parameters):
    def step(optimizer):
        optimizer.step()

    torch.testing.assert_close(trained(cl.compile(step), parameters), trained(step, parameters))


def test_the_check_of_many_states_grows_with_their_number_only():
    """The states of an optimizer are kept apart by one question, and listed once, not once for each other state."""

    def lines(parameters):
        def step(optimizer):
            optimizer.step()

        with cl.record() as trace:
            trained(cl.compile(step, backend="eager"), parameters)
        checks = [made.check.source for made in trace.of(events.GuardsMade)]
        return max(len(check.splitlines()) for check in checks)

    few, many = lines(8), lines(24)
    assert many < 4 * few


def append_to_all(items, more):
    for item in items:
        item.append(more)
    return more * 2


def test_lists_that_become_one_are_seen():
    """Twelve lists were twelve objects; where two are one, another entry is right."""
    compiled = cl.compile(append_to_all, backend="eager")
    for shared in (False, True, False):
        found = []
        for run in (append_to_all, compiled):
            items = [[n] for n in range(12)]
            if shared:
                items[7] = items[3]
            run(items, torch.ones(2))
            found.append([len(item) for item in items])
        assert found[0] == found[1]


def names_tried(watcher, tried, times, which):
    for _ in range(times):
        tried.clear()
        watching_call(watcher, which)
    return list(tried)


def watching_call(watcher, which):
    with watcher:
        answering(which)


def answering(which):
    return which


def entry(name, tried):
    def check(func, which):
        tried.append(name)
        return which == name

    def head(func, which):
        return which

    return check, head


def test_an_entry_that_holds_in_a_row_is_tried_first():
    tried = []
    watcher = frames.Watcher(lambda frame: entry(frame.locals["which"], tried))
    for which in "abc":
        watching_call(watcher, which)
    assert names_tried(watcher, tried, 1, "c") == ["a", "b", "c"]
    assert names_tried(watcher, tried, 40, "c") == ["c"]
    assert names_tried(watcher, tried, 1, "a") == ["c", "a"]
    assert names_tried(watcher, tried, 40, "b") == ["b"]
    assert len(watcher.entries(answering.__code__)) == 3


def test_entries_that_hold_in_turn_keep_their_order():
    tried = []
    watcher = frames.Watcher(lambda frame: entry(frame.locals["which"], tried))
    for _ in range(60):
        for which in "ab":
            watching_call(watcher, which)
    assert names_tried(watcher, tried, 1, "b") == ["a", "b"]


CHANGING = {
    "a factor": lambda x, n: x * n,
    "arithmetic of it": lambda x, n: (x - n * x).relu() * (1 - n),
    "a divisor": lambda x, n: n / x.exp() + x / n,
    "a scale": lambda x, n: torch.add(x, x, alpha=n),
    "a power of it": lambda x, n: x * n**2,
    "it decides": lambda x, n: x * n if n > 0.2 else x - n,
    "beside an integer": lambda x, n: x * n + x.shape[0],
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in CHANGING), ("a factor", torch.bfloat16)],
)
def test_a_float_that_changes(name, dtype):
    """Values, gradients, and numbers that come back, are 0, or are not finite."""
    function = CHANGING[name]
    compiled = cl.compile(copy.copy(function))
    numbers = [0.5, 0.25, 0.125, 3.0, 0.5, 0.0, 0.1, float("inf"), 0.7, -0.0, 1e-30]
    for number in numbers:
        found = []
        for run in (function, compiled):
            x = torch.linspace(-2, 2, 7).to(dtype).requires_grad_()
            result = run(x, number)
            result.sum().backward()
            found.append((result.detach(), x.grad))
        torch.testing.assert_close(found[1], found[0], equal_nan=True)
