"""Threads, compiled code that runs compiled code, exceptions that come out: scenarios compared with eager.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: F821, F841

import functools
import threading

import pytest
import torch
from scenarios import calls, check, collect, trained, tried
from torch import nn

SCENARIOS, scenario = collect()
r = torch.randn


@scenario
def threads(c):
    f = c(lambda x: (x * 2).relu() + x.shape[0])
    inputs = [r(i % 3 + 2, 4) for i in range(24)]
    out = [None] * 24

    def work(start):
        for i in range(start, 24, 4):
            out[i] = f(inputs[i])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return out


@scenario
def compiled_calls_compiled(c):
    g = c(lambda x: x * 2 + 1)
    f = c(lambda x: g(x) * g(x + 1))
    return calls(f), calls(g)


@scenario
def compiled_module_in_a_compiled_function(c):
    m = c(nn.Linear(4, 4))
    return trained(c(lambda x: m(x) * 2), m.parameters(), r(2, 4))


@scenario
def compiled_calls_itself(c):
    def f(x, n):
        return x if n == 0 else g(x * 2, n - 1) + 1

    g = c(f)
    return g(r(2), 4)


@scenario
def compiles_inside(c):
    def f(x):
        return c(lambda y: y * 2)(x) + 1

    return calls(c(f), 2)


@scenario
def callback_from_a_disabled_function(c):
    @c.disable
    def through(g, x):
        return g(x)

    return calls(c(lambda x: through(lambda y: y * 2 + 1, x + 1) * 3))


@scenario
def keyboard_interrupt(c):
    log = []

    def f(x):
        x = x + 1
        c.graph_break()
        try:
            raise KeyboardInterrupt("stop")
        finally:
            log.append("finally")

    def play():
        try:
            c(f)(r(2))
        except KeyboardInterrupt as error:
            return str(error)

    return play(), play(), log


@scenario
def exceptions_keep_type_and_message(c):
    class Own(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a}-{b}")
            self.a = a

    def f(x, how):
        if how == 0:
            raise Own(1, b=2)
        if how == 1:
            return {}["missing"]
        if how == 2:
            return [][3]
        if how == 3:
            return x.nothing
        if how == 4:
            return x + "a"
        if how == 5:
            return x.view(100)
        if how == 6:
            return len(5)
        if how == 7:
            return 1 // 0
        if how == 8:
            return next(iter([]))
        if how == 9:
            return int("z")
        if how == 10:
            return torch.cat([x, r(2, 9)])
        if how == 11:
            return undefined_name
        if how == 12:
            a, b = [1]
        if how == 13:
            return x(1)
        if how == 14:
            return x[7, 7, 7]
        return f(x)

    f = c(f)
    got = [tried(f, r(2, 3), how) for how in range(16) if how not in (4,)]
    try:
        f(r(2, 3), 0)
    except Own as error:
        got.append((error.a, error.args))
    return got


@scenario
def partial_and_callable_objects(c):
    class Add:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x + self.k

    g = functools.partial(torch.add, alpha=2)
    h = functools.partial(lambda x, k, *, j=1: x * k + j, k=3)
    return calls(c(lambda x: g(x, x) + h(x, j=2) + Add(3)(x))), calls(c(h)), calls(c(Add(2)))


@scenario
def tensor_subclass(c):
    class Sub(torch.Tensor):
        pass

    x = r(3).as_subclass(Sub)
    y = c(lambda x: x * 2 + 1)(x)
    return type(y), y.as_subclass(torch.Tensor), c(lambda x: x * 2)(r(3))


@scenario
def default_device_and_modes(c):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    f = c(lambda x: x * 2 + 1)
    x = r(3)
    f(x)
    with Mode():
        y = f(x)
    return y, seen


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_agrees_with_eager(name, backend):
    check(SCENARIOS[name], backend)
