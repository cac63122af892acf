"""Hooks of saved tensors and modes of torch that are on around a compiled function: they meet what they meet in eager."""

from __future__ import annotations

import time

import pytest
import torch
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import course_lib as cl

SIZES = ((4, 4), (5, 4), (3, 2), (4, 4))
UNMEASURED = 200 + time.time_ns() % 300  # so large a product was not measured on this machine


def gradients(run):
    found = []
    for size in SIZES:
        x = torch.ones(size, requires_grad=True)
        run(x).sum().backward()
        found.append(x.grad)
    return found


HOOKS = {
    "as they are": (lambda t: t, lambda t: t),
    "in half precision": (lambda t: t.half(), lambda t: t.float()),
    "as arrays": (lambda t: t.detach().numpy().copy(), torch.from_numpy),
    "as lists": (lambda t: t.tolist(), torch.tensor),
    "another value": (lambda t: t.clone(), lambda t: t * 2),
}
PROGRAMS = {
    "pointwise": lambda x: x.sin() * 2 * x.cos(),
    "size": lambda x: x.exp() * x.shape[0],
    "write": lambda x: x.clone().mul_(x).sigmoid(),
    "break": lambda x: (x.sin(), print(end=""), x.cos())[0] * x.exp(),
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("hooks", HOOKS)
def test_hooks_are_given_what_eager_saves(hooks, program):
    pack, unpack = HOOKS[hooks]

    def run(f):
        seen = []

        def noted(t):
            seen.append((type(t), t.shape))
            return pack(t)

        def hooked(x):
            with saved_tensors_hooks(noted, unpack):
                return f(x)

        return gradients(hooked), seen

    expected = run(PROGRAMS[program])
    found = run(cl.compile(PROGRAMS[program]))
    torch.testing.assert_close(found[0], expected[0])
    assert found[1] == expected[1]


def test_hooks_come_and_go_around_a_function_that_is_compiled_already():
    def f(x):
        return x.exp() * x.shape[0]

    fast = cl.compile(f)
    expected = gradients(f)
    torch.testing.assert_close(gradients(fast), expected)
    with save_on_cpu():
        torch.testing.assert_close(gradients(fast), expected)
    for run in (f, fast):
        checked = gradients(lambda x, run=run: checkpoint(run, x, use_reentrant=False))
        torch.testing.assert_close(checked, expected)
    torch.testing.assert_close(gradients(fast), expected)


class PlusFive(TorchDispatchMode):
    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        return result + 5 if op is torch.ops.aten.sin.default else result


@pytest.mark.parametrize("compiled_before", [True, False])
def test_a_dispatch_mode_sees_the_operations(compiled_before):
    def f(x):
        return torch.sin(x) * 2

    def run(f):
        found = [f(torch.ones(2))] if compiled_before else []
        for size in (2, 3, 4):
            with PlusFive():
                found.append(f(torch.ones(size)))
            found.append(f(torch.ones(size)))
        return found

    torch.testing.assert_close(run(cl.compile(f)), run(f))


def test_a_flop_counter_counts():
    fast = cl.compile(lambda x: x @ x)
    fast(torch.ones(3, 3))
    with FlopCounterMode(display=False) as counter:
        fast(torch.ones(3, 3))
    assert counter.get_total_flops() == 2 * 27


def off_inside(x):
    with torch.autocast("cpu", enabled=False):
        return x @ x


def off_around_a_layer(x):
    with torch.autocast("cpu", enabled=False):
        return torch.nn.functional.linear(x, x, x[0])


def on_and_off(x):
    y = x @ x
    with torch.autocast("cpu", enabled=False):
        return y.float() @ x


@pytest.mark.parametrize("f", [off_inside, off_around_a_layer, on_and_off])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_around_a_function_that_switches_it_off(f, dtype):
    x = torch.rand(UNMEASURED, UNMEASURED)

    def run(f):
        found = []
        for _ in range(2):
            with torch.autocast("cpu", dtype=dtype):
                found.append(f(x))
            found.append(f(x))
        return found

    torch.testing.assert_close(run(cl.compile(f)), run(f), rtol=2e-2, atol=1e-2)


NEW_MEMORY = {
    "empty": lambda x: torch.empty(3) + x,
    "like": lambda x: torch.empty_like(x) * 1,
    "whole numbers": lambda x: (torch.empty(2, dtype=torch.int32), x + 1),
    "bytes": lambda x: (torch.empty(2, dtype=torch.uint8) + 0, x + 1),
    "bool": lambda x: (torch.empty(2, dtype=torch.bool), x + 1),
    "strided": lambda x: torch.empty_strided((2, 2), (1, 2)) + x[0],
    "partly set": lambda x: torch.empty(3).index_fill_(0, torch.tensor([1]), 2.0) + x,
}


@pytest.mark.parametrize("name", NEW_MEMORY)
def test_deterministic_mode_fills_new_memory(name):
    def run(f):
        torch.use_deterministic_algorithms(True)
        try:
            return f(torch.zeros(3))
        finally:
            torch.use_deterministic_algorithms(False)

    f = NEW_MEMORY[name]
    fast = cl.compile(f)
    fast(torch.zeros(3))
    torch.testing.assert_close(run(fast), run(f), equal_nan=True)
