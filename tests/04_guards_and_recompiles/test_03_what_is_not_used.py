"""What is not used may change without a recompile.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

import pytest
import torch
from scenarios import Ours, Plain, Point, around, collect, play, same
from torch import nn

QUIET, quiet = collect()
r = torch.randn
UNUSED = 1


def ones():
    return torch.ones(3)


G = globals()


@quiet
def unused_global(c):
    f = c(lambda x: x * 2)
    return around(f, G, UNUSED=5)


@quiet
def unused_attribute(c):
    p = Point(2)
    f = c(lambda x: x * p.k)
    return around(f, p, other=3), around(f, Point, unit=5)


@quiet
def unused_module_attribute(c):
    m = nn.Linear(3, 3)
    f = c(m)
    return around(f, m, note="a"), around(f, m, steps=3)


@quiet
def unused_argument(c):
    f = c(lambda x, p: x * 2)
    return f(ones(), Point(1)), f(ones(), Point(2))


@quiet
def new_values_in_old_tensors(c):
    m = nn.Linear(3, 3)
    f = c(m)
    out = [f(ones())]
    with torch.no_grad():
        m.weight.mul_(2)
    return out, f(ones() * 5), f(r(3))


@quiet
def other_tensors_of_the_same_kind(c):
    f = c(lambda x, y: x @ y)
    return [f(r(3, 4), r(4, 2)) for _ in range(4)]


@quiet
def equal_strings_and_lists(c):
    f = c(lambda x, name, items: x * len(name) + sum(items))
    return [f(ones(), "".join(["a", "b"]), [1, 2, 3]) for _ in range(3)]


@quiet
def fresh_objects_with_the_same_attributes(c):
    f = c(lambda x, p: x * p.k + p.value())
    return [f(ones(), Point(2)) for _ in range(3)]


@quiet
def fresh_functions_with_the_same_code(c):
    f = c(lambda x, g: g(x))
    return [f(ones(), lambda v: v * 2) for _ in range(3)]


@quiet
def gradients_appear(c):
    m = nn.Linear(3, 3)
    f = c(m)
    out = []
    for _ in range(3):
        y = f(ones())
        y.sum().backward()
        out.append(y)
    return out, m.weight.grad


@quiet
def modules_trained(c):
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    f = c(m)
    optimizer = torch.optim.SGD(m.parameters(), 0.1)
    for _ in range(4):
        f(r(2, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return m


@quiet
def an_input_that_does_not_matter_is_an_alias(c):
    f = c(lambda x, y: x + y)
    a = ones()
    return f(ones(), ones()), f(a, ones())


@quiet
def buffers_that_count(c):
    m = nn.BatchNorm1d(3)
    f = c(m)
    return [f(r(4, 3)) for _ in range(4)], m


@quiet
def lists_of_results(c):
    log = []

    def f(x):
        log.append(x + 1)
        return x * 2

    f = c(f)
    out = [f(ones())]
    log.clear()
    return out, f(ones())


@pytest.mark.parametrize("name", QUIET)
def test_what_is_not_used_may_change(name):
    eager = play(QUIET[name], Plain())
    ours = play(QUIET[name], c := Ours())
    same(ours, eager, 1e-6)
    if len(c.graphs) != 1:
        raise AssertionError(f"{len(c.graphs)} graphs")
