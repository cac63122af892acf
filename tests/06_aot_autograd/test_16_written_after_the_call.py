"""Tensors are written to between a call and its backward pass. Never a wrong gradient; and an error says what to do."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl
from course_lib.autograd.again import Again

KEEPS_ITS_INPUT = {
    "sin": torch.sin,
    "square": lambda x: x * x,
    "elu": F.elu,
    "input and result": lambda x: x.tanh() * x,
}
KEEPS_ANOTHER_VALUE = {
    **{name: getattr(torch, name) for name in "exp tanh sigmoid relu sqrt reciprocal".split()},
    "exp, times two": lambda x: x.exp() * 2,
    "tanh twice": lambda x: x.tanh().tanh(),
}


def outcome(function):
    """The gradient, or the error."""
    leaf = torch.tensor([0.5, 0.7, 0.9], requires_grad=True)
    x = leaf * 1
    results = function(x)
    with torch.no_grad():
        x.add_(3)

    weights = torch.tensor([1.0, -2.0, 0.5])
    ends = results if isinstance(results, tuple) else (results,)
    try:
        sum((end * weights).sum() for end in ends).backward()
    except RuntimeError as error:
        return str(error)
    return leaf.grad


@pytest.mark.parametrize("name", KEEPS_ITS_INPUT)
def test_where_eager_keeps_the_input_its_error_is_ours(name):
    program = KEEPS_ITS_INPUT[name]
    expected = outcome(program)
    found = outcome(cl.compile(program, backend="aot_eager"))
    if isinstance(expected, str):
        assert "modified by an inplace operation" in found and "modified by an inplace" in expected
        assert "The compiled graph" not in found
    else:
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("name", KEEPS_ANOTHER_VALUE)
def test_where_eager_keeps_another_value_the_error_says_what_to_do(name, backend):
    """An input is kept for free, and with it a graph can be differentiated twice. The price: this error, which eager has not."""
    program = KEEPS_ANOTHER_VALUE[name]
    assert isinstance(outcome(program), torch.Tensor)
    error = outcome(cl.compile(program, backend=backend))
    assert "modified by an inplace operation" in error
    assert "where eager has kept" in error and "Call `backward()` before the write" in error


def test_a_result_that_was_written_to_matters_only_for_its_own_gradient():
    def program(x):
        return x * 2, x.exp()

    x = torch.ones(2, requires_grad=True)
    first, second = cl.compile(program)(x)
    second.add_(1)
    first.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((2,), 2.0))


def writes_nothing(results):
    pass


def writes_to_a_sum(results):
    results[1].add_(1)


def writes_to_a_sum_twice(results):
    results[1].add_(1)
    results[1].add_(1)


def writes_to_an_exp(results):
    results[0].add_(1)


WRITES = [writes_to_a_sum, writes_to_an_exp, writes_to_a_sum, writes_nothing, writes_to_an_exp]


def after(write, function, used):
    """The gradient, or eager's error, after `write` has written to some results."""
    x = torch.tensor([0.5, 0.7], requires_grad=True)
    results = function(x)
    with torch.no_grad():
        write(results)
    try:
        sum(results[n].sum() for n in used).backward()
    except RuntimeError as error:
        return str(error).split(";")[0]
    return x.grad


@pytest.mark.parametrize("used", [(0, 1), (1,), (0,)], ids=str)
@pytest.mark.parametrize("order", [WRITES, WRITES[::-1]], ids=["forward", "back"])
def test_what_was_written_to_is_asked_anew_where_it_differs(order, used):
    def program(x):
        return x.exp(), x + 1

    compiled = cl.compile(program, backend="aot_eager")
    for write in order:
        expected = after(write, program, used)
        found = after(write, compiled, used)
        assert type(found) is type(expected), write
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(found, expected)


def test_the_same_question_is_rehearsed_once(monkeypatch):
    """A loop that writes its steps into one tensor asks the same in every step."""
    rehearsed = []
    rehearse = Again.rehearse

    def noting(self, *args):
        rehearsed.append(args)
        rehearse(self, *args)

    monkeypatch.setattr(Again, "rehearse", noting)
    compiled = cl.compile(lambda x: (x.exp(), x + 1), backend="aot_eager")

    for _ in range(5):
        after(writes_to_a_sum, compiled, (0, 1))
    assert len(rehearsed) == 1

    # how often it was written to decides nothing
    after(writes_to_a_sum_twice, compiled, (0, 1))
    assert len(rehearsed) == 1

    # an error is told each time, in autograd's words for this call
    for _ in range(2):
        assert "modified by an inplace" in after(writes_to_an_exp, compiled, (0, 1))
    assert len(rehearsed) == 3
