"""Data make an operation fail: the error leaves where eager raises it, with what was done before it done, and `try` catches it.
What eager does is asked each time."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl

EYE = torch.eye(2)
HALVES = torch.full((3, 3), 0.5)


def tensor(*values):
    return torch.tensor(values)


# Name → (operation of a matrix and data, data that it takes, data that it refuses)
OPERATIONS = {
    "getitem": (lambda x, d: x[:, d], tensor(0, 2), tensor(0, 9)),
    "setitem": (lambda x, d: x.clone().__setitem__(d, 5.0), tensor(0, 2), tensor(0, 3)),
    "index_select": (lambda x, d: x.index_select(0, d), tensor(0, 2), tensor(-1, 2)),
    "gather": (lambda x, d: x.gather(0, d), tensor([0, 2, 1]), tensor([0, 2, -1])),
    "scatter": (lambda x, d: x.scatter(0, d, 7.0), tensor([0, 2, 1]), tensor([0, 2, 3])),
    "index_copy": (lambda x, d: x.index_copy(0, d, x), tensor(0, 2, 1), tensor(0, 2, -1)),
    "index_add": (lambda x, d: x.index_add(0, d, x), tensor(0, 2, 1), tensor(0, 2, -1)),
    "take": (lambda x, d: x.take(d), tensor(0, 8), tensor(0, 9)),
    "embedding": (lambda x, d: F.embedding(d, x), tensor(0, 2), tensor(0, -1)),
    "one_hot": (lambda x, d: F.one_hot(d, 3) * x, tensor(0, 2, 1), tensor(0, 2, 3)),
    "one_hot_negative": (lambda x, d: F.one_hot(d, 3) * x, tensor(0, 2, 1), tensor(0, 2, -1)),
    "nll_loss": (F.nll_loss, tensor(0, 2, 1), tensor(0, 2, 3)),
    "nll_loss_ignored": (
        lambda x, d: F.nll_loss(x, d, ignore_index=-1),
        tensor(0, -1, 1),
        tensor(0, -2, 1),
    ),
    "cross_entropy": (F.cross_entropy, tensor(0, 2, 1), tensor(0, 2, 3)),
    "binary_cross_entropy": (
        lambda x, d: F.binary_cross_entropy(x.sigmoid(), d),
        HALVES,
        3 * HALVES,
    ),
    "binary_cross_entropy_input": (
        lambda x, d: F.binary_cross_entropy(d, x.sigmoid()),
        HALVES,
        -HALVES,
    ),
    "multi_margin_loss": (F.multi_margin_loss, tensor(0, 2, 1), tensor(0, 2, 3)),
    "multinomial": (lambda x, d: torch.multinomial(d, 2), tensor(0.5, 0.5), tensor(0.5, -0.5)),
    "bernoulli": (lambda x, d: torch.bernoulli(d), tensor(0.5, 0.2), tensor(0.5, 1.2)),
    "normal": (lambda x, d: torch.normal(0.0, d), tensor(0.5, 0.2), tensor(0.5, -1.2)),
    "poisson": (lambda x, d: torch.poisson(d), tensor(0.5, 0.2), tensor(0.5, -1.2)),
    "cholesky": (lambda x, d: torch.linalg.cholesky(d), EYE, -EYE),
    "inv": (lambda x, d: torch.linalg.inv(d), EYE, 0 * EYE),
    "solve": (lambda x, d: torch.linalg.solve(d, x[:2]), EYE, 0 * EYE),
    "whole division": (lambda x, d: torch.arange(3) // d, tensor(1, 2, 3), tensor(1, 0, 3)),
    "remainder": (lambda x, d: torch.arange(3) % d, tensor(1, 2, 3), tensor(1, 0, 3)),
    "assertion": (
        lambda x, d: (torch._assert_async((d > 0).all()), x * 2)[1],
        tensor(1.0),
        tensor(-1.0),
    ),
    "masked_scatter": (
        lambda x, d: x.masked_scatter(d, tensor(1.0, 2.0)),
        tensor([True, False, False]),
        tensor([True, True, False]),
    ),
    "quantile": (torch.quantile, tensor(0.5), tensor(1.5)),
    "nobody uses the result": (lambda x, d: (x[d] + 1, x * 2)[1], tensor(0, 2), tensor(0, 3)),
    "nobody uses the inverse": (lambda x, d: (d.inverse(), x * 2)[1], EYE, 0 * EYE),
}


def plain(operation):
    def f(x, data, notes):
        return operation(x, data)

    return f


def caught(operation):
    def f(x, data, notes):
        try:
            return operation(x, data)
        except (RuntimeError, IndexError) as error:
            return type(error).__name__, str(error), x + 1

    return f


def ignored(operation):
    def f(x, data, notes):
        y = x * 2
        with contextlib.suppress(RuntimeError, IndexError):
            y = operation(x, data)
        return y, x + 1

    return f


def between_writes(operation):
    def f(x, data, notes):
        x.add_(1)
        result = operation(x, data)
        x.mul_(2)
        return result

    return f


def between_effects(operation):
    def f(x, data, notes):
        notes.append("before")
        result = operation(x * 3, data)
        notes.append("after")
        return result

    return f


def behind_a_condition(operation):
    def f(x, data, notes):
        if not (x < 0.75).all():
            raise ValueError("x is too large")
        return operation(x, data)

    return f


def with_random_numbers(operation):
    def f(x, data, notes):
        noise = torch.rand(3)
        try:
            return noise, operation(x, data), torch.rand(3)
        except (RuntimeError, IndexError):
            return noise, torch.rand(3)

    return f


PROGRAMS = (
    plain,
    caught,
    ignored,
    between_writes,
    between_effects,
    behind_a_condition,
    with_random_numbers,
)


def observed(f, calls):
    """What the calls return or raise, what they did to their arguments, and the random numbers that come next."""
    found = []
    for scale, data in calls:
        torch.manual_seed(0)
        x, notes = torch.arange(9.0).reshape(3, 3) * scale, []
        try:
            result = f(x, data.clone(), notes)
        except Exception as error:
            result = type(error), str(error)
        found.append((result, x, notes, torch.rand(1)))
    return found


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and torch.allclose(a, b, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return a == b


# Every program once; those that show most, with kernels
CASES = [("eager", program) for program in PROGRAMS]
CASES += [("inductor", caught), ("inductor", between_writes)]


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("backend", "program"), CASES)
def test_an_operation_fails_where_eager_fails(name, program, backend):
    operation, good, bad = OPERATIONS[name]
    calls = [(0.09, good), (0.09, bad), (0.1, bad), (0.09, good)]
    expected = observed(program(operation), calls)
    assert same(observed(cl.compile(program(operation), backend=backend), calls), expected)


def test_the_first_call_may_fail():
    def f(x, i):
        return x[i] + 1

    fast, x = cl.compile(f), torch.arange(3.0)
    for _ in range(2):
        with pytest.raises(IndexError, match="index 7 is out of bounds"):
            fast(x, torch.tensor([7]))
    assert fast(x, torch.tensor([2])).item() == 3


def test_an_optimizer_step_that_fails_leaves_parameters_as_eager_does():
    def step(weight, momentum, index):
        momentum.mul_(0.9)
        weight.sub_(momentum.index_select(0, index))
        momentum.zero_()

    def run(step):
        weight, momentum = torch.ones(3), torch.ones(3)
        step(torch.ones(3), torch.ones(3), torch.tensor([0, 1, 2]))
        with pytest.raises(IndexError):
            step(weight, momentum, torch.tensor([0, 1, 3]))
        return weight, momentum

    assert same(run(cl.compile(step)), run(step))


def test_gradients_of_a_program_that_catches_an_error():
    def f(x, matrix):
        try:
            return torch.linalg.cholesky(matrix * x).sum()
        except torch.linalg.LinAlgError:
            return (matrix * x * x).sum()

    def gradients(f):
        found = []
        for matrix in (EYE, -EYE, EYE):
            x = torch.tensor(3.0, requires_grad=True)
            f(x, matrix).backward()
            found.append(x.grad)
        return found

    assert same(gradients(cl.compile(f)), gradients(f))


def test_a_backend_of_the_users_may_write_as_it_goes():
    def f(x, i):
        x.add_(1)
        return x.index_select(0, i)

    def backend(graph, inputs):
        return graph

    fast, x = cl.compile(f, backend=backend), torch.zeros(2)
    fast(torch.zeros(2), torch.tensor([1]))
    with pytest.raises(IndexError):
        fast(x, torch.tensor([2]))
    assert x.tolist() == [1, 1]


def test_an_error_of_the_compiler_itself_is_not_hidden():
    def lower(graph):
        raise NotImplementedError("Exercise: write this stage")

    def f(x, i):
        return x[i] * x.shape[0]

    fast = cl.compile(f, dynamic=True, pipeline=cl.Pipeline().replace(lower=lower))
    with pytest.raises(NotImplementedError, match="Exercise"):
        fast(torch.ones(3), torch.tensor([1]))
