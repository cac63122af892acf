"""Hooks on results of a compiled graph get eager's gradients, and are not called where eager does not call them."""

from __future__ import annotations

import gc
import itertools
import weakref

import pytest
import torch

import course_lib as cl


def second_under_the_first(x):
    t = x * 2
    return t.sin(), t


def side_by_side(x):
    return x * 2, x * 3


def chain(x):
    a = x * 2
    b = a.exp()
    return a, b, b * a


def written_to_inside(x):
    a = x * 2
    b = a.clone()
    b.mul_(a)
    return a, b


PROGRAMS = [second_under_the_first, side_by_side, chain, written_to_inside]


def only_looks(gradient):
    return None


def triples(gradient):
    return gradient * 3


def choices(count):
    """All ways to take one or more of `count` results."""
    numbers = range(count)
    return [c for size in range(1, count + 1) for c in itertools.combinations(numbers, size)]


def told(function, used, hooked, hook, retain, create_graph=False):
    """What the hooks on the results `hooked` are given in a backward pass from the results `used`; all gradients."""
    seen = []
    x = torch.tensor([0.5, 1.5], requires_grad=True)
    results = function(x * 1)

    def noted(number, gradient):
        seen.append((number, gradient.detach().clone()))
        return hook(gradient)

    for n in hooked:
        results[n].register_hook(lambda gradient, n=n: noted(n, gradient))
    if retain:
        for result in results:
            result.retain_grad()

    sum((n + 1) * results[n].sum() for n in used).backward(create_graph=create_graph)
    kept = [result.grad for result in results] if retain else []
    return [seen, x.grad, kept]


def assert_same(found, expected):
    assert type(found) is type(expected)
    if isinstance(found, torch.Tensor):
        torch.testing.assert_close(found.detach(), expected.detach())
    elif isinstance(found, (list, tuple)):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found == expected


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_hooks_of_results_see_what_they_see_in_eager(program, backend):
    compiled = cl.compile(program, backend=backend)
    subsets = choices(len(program(torch.ones(2))))

    for used, hooked, hook in itertools.product(subsets, subsets, (only_looks, triples)):
        expected = told(program, used, hooked, hook, retain=False)
        assert_same(told(compiled, used, hooked, hook, retain=False), expected)


@pytest.mark.parametrize("program", PROGRAMS)
def test_kept_gradients_of_results_are_eagers(program):
    compiled = cl.compile(program, backend="aot_eager")
    subsets = choices(len(program(torch.ones(2))))

    for used, hooked in itertools.product(subsets, [(), *subsets]):
        expected = told(program, used, hooked, triples, retain=True)
        assert_same(told(compiled, used, hooked, triples, retain=True), expected)


@pytest.mark.filterwarnings("ignore:Using backward")
def test_hooks_of_results_and_gradients_of_gradients():
    for program in PROGRAMS:
        expected = told(program, (0, 1), (0, 1), triples, retain=True, create_graph=True)
        compiled = cl.compile(program, backend="aot_eager")
        found = told(compiled, (0, 1), (0, 1), triples, retain=True, create_graph=True)
        assert_same(found, expected)


def break_then_hook(x, seen):
    t = x * 2
    u = t.sin()
    print(end="")
    t.register_hook(lambda g: seen.append(g.clone()))
    return u + t * 3


def hook_then_break(x, seen):
    t = x * 2
    u = t.sin()
    handle = t.register_hook(lambda g: seen.append(g.clone()))
    print(end="")
    t.register_hook(lambda g: seen.append(-g))
    handle.remove()
    return u


def hook_where_nothing_flows(x, seen):
    t = x * 2
    u = x.sin()
    print(end="")
    t.register_hook(lambda g: seen.append(g * 2))
    return u


@pytest.mark.parametrize("program", [break_then_hook, hook_then_break, hook_where_nothing_flows])
def test_a_hook_behind_a_break_on_a_result_of_an_earlier_graph(program):
    def run(function):
        seen, x = [], torch.tensor([0.5, 1.0], requires_grad=True)
        function(x, seen).sum().backward()
        return [seen, x.grad]

    assert_same(run(cl.compile(program, backend="aot_eager")), run(program))


WRONG_ANSWERS = {
    "no tensor": (lambda g: 3, TypeError),
    "another shape": (lambda g: g.repeat(2), RuntimeError),
    "another dtype": (lambda g: g.double(), RuntimeError),
}


@pytest.mark.parametrize("name", WRONG_ANSWERS)
def test_a_hook_that_gives_no_gradient_is_refused(name):
    hook, error = WRONG_ANSWERS[name]

    def run(function):
        result = function(torch.ones(2, requires_grad=True))
        result.register_hook(hook)
        with pytest.raises(Exception) as raised:
            result.sum().backward()
        return type(raised.value)

    program = torch.exp
    assert run(cl.compile(lambda x: program(x), backend="aot_eager")) is run(program) is error


def test_a_removed_hook_is_not_called():
    seen = []
    first, second = cl.compile(second_under_the_first)(torch.ones(2, requires_grad=True))
    second.register_hook(seen.append).remove()
    first.sum().backward()
    assert not seen


def test_a_graph_that_cannot_run_again_says_so():
    """The input is gone, and the compiled backward keeps the sum of what is inside to itself."""

    def program(x, y):
        t = x * y
        return t.sin(), t

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    first, second = cl.compile(program, backend="aot_eager")(x, y)
    second.register_hook(triples)
    with torch.no_grad():
        x.mul_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace|cannot run again"):
        first.sum().backward()


def test_hooks_keep_nothing_alive():
    compiled = cl.compile(second_under_the_first, backend="aot_eager")
    gc.collect()
    gc.disable()
    try:
        first, second = compiled(torch.ones(2, requires_grad=True) * 1)
        second.register_hook(only_looks)
        first.sum().backward()
        gone = weakref.ref(second)
        del first, second
        assert gone() is None
    finally:
        gc.enable()
