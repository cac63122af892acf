"""Hints to torch's own compiler in compiled code: no graph ends at them, and no value changes."""

import pytest
import torch
import torch._dynamo as dynamo

import course_lib as cl


@dynamo.error_on_graph_break(False)
def twice(x):
    return x * 2


@dynamo.dont_skip_tracing
def thrice(x):
    return x * 3


def in_contexts(x):
    with dynamo.error_on_graph_break(False):
        y = x + 1
    with dynamo.dont_skip_tracing(), dynamo.disable_nested_graph_breaks():
        return y * 2


def with_decorated(x):
    return twice(x) + thrice(x=x)


def decorating_inside(x):
    @dynamo.error_on_graph_break(True)
    def plus(x):
        return x + 1

    return plus(x)


def with_settings(x):
    with dynamo.patch_dynamo_config(capture_scalar_outputs=True):
        return x * 2


def of_static_size(x):
    dynamo.mark_static(x, 0)
    return x * 2


PROGRAMS = [in_contexts, with_decorated, decorating_inside, with_settings, of_static_size]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_the_graph_goes_on(program, backend):
    compiled = cl.compile(program, fullgraph=True, backend=backend)
    for length in (3, 4, 5):
        x = torch.randn(length, requires_grad=True)
        expected, found = program(x), compiled(x)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(
            torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x)
        )


def graphs_for_three_lengths(program):
    with cl.record() as trace:
        compiled = cl.compile(program, backend="eager")
        for length in (3, 4, 5):
            compiled(torch.ones(length))
    return len(trace.of(cl.events.GraphCaptured))


def test_a_static_size_has_a_graph_of_its_own():
    assert graphs_for_three_lengths(of_static_size) == 3
    assert graphs_for_three_lengths(in_contexts) == 2


def test_a_function_of_the_users_that_looks_alike_is_called():
    """Only torch's own decorator is seen through."""
    calls = []

    def counted(function):
        def inner(*args):
            calls.append(args)
            return function(*args)

        return inner

    compiled = cl.compile(counted(lambda x: x * 2), backend="eager")
    compiled(torch.ones(2))
    compiled(torch.ones(2))
    assert len(calls) == 2
