"""Arguments that eager refuses are refused, with its error: the kernels of fake tensors, and loops, would take them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl

X, HALF = torch.rand(2, 3), torch.rand(3).half()
BYTES = torch.tensor([1, 2, 3], dtype=torch.int8)

# Name → (function, its arguments)
CALLS = {
    "weight of a layer norm": (lambda x, w: F.layer_norm(x, (3,), w), X, HALF),
    "bias of a layer norm": (lambda x, w: F.layer_norm(x, (3,), None, w), X, HALF),
    "weight of a group norm": (lambda x, w: F.group_norm(x, 3, w), X, HALF),
    "running mean of a batch norm": (lambda x, w: F.batch_norm(x, w, w.abs() + 1), X, HALF),
    "weight of a product": (lambda x, w: F.linear(x, w[None]), X, HALF),
    "product": (lambda x, w: x @ w, X, HALF),
    "dot": (lambda x, w: torch.dot(x[0], w), X, HALF),
    "source of index_add": (lambda x, s: x.index_add(1, torch.arange(3), s.expand(2, 3)), X, HALF),
    "source of index_copy": (lambda x, s: x.index_copy(0, torch.tensor([1]), s[None]), X, HALF),
    "source of scatter": (lambda x, s: x.scatter(0, torch.tensor([[0, 1, 1]]), s[None]), X, HALF),
    "values put by index": (lambda x, s: x.index_put((torch.tensor([1]),), s), X, HALF),
    "masked_scatter": (lambda x, s: x.masked_scatter(x > 2, s), X, HALF),
    "weight of prelu": (lambda x, w: F.prelu(x, w), X, HALF),
    "weight of classes": (
        lambda x, w: F.nll_loss(x, torch.tensor([0, 1]), w),
        X,
        HALF,
    ),
    "end of lerp": (lambda x, w: torch.lerp(x[0], w, 0.5), X, HALF),
    "shape of a source": (
        lambda x, s: x.index_add(0, torch.tensor([0, 1, 1]), s),
        torch.zeros(3, 3),
        torch.ones(3),
    ),
    "fill beyond 64 bits": (lambda x: x.masked_fill(x > 1, 2**63 + 1), BYTES.long()),
    "fill beyond a byte": (lambda x: x.masked_fill(x > 1, 300), BYTES),
    "sum beyond a byte": (lambda x: x + 300, BYTES),
    "full of a byte": (lambda x: torch.full_like(x, 300), BYTES),
    "fill beyond a half": (lambda x: x.masked_fill(x > 1, 1e10), HALF),
    "result over an input": (lambda x: torch.add(x[1:], x[:-1], out=x[1:]), torch.ones(4)),
    "write over an operand": (lambda x: x[1:].add_(x[:-1]), torch.ones(4)),
    "copy over itself": (lambda x: x[1:].copy_(x[:-1]) + 1, torch.ones(4)),
    "write to an expanded tensor": (lambda x: x.expand(3, 4).add_(1), torch.ones(4)),
    "result in an expanded tensor": (
        lambda x: torch.mul(x, 2, out=torch.empty(1).expand(4)),
        torch.ones(4),
    ),
    "no such dimension: softmax": (lambda x: x.softmax(-4), X),
    "no such dimension: softmax by name": (lambda x: F.softmax(x, dim=5), X),
    "no such dimension: log_softmax": (lambda x: torch.log_softmax(x, 2), X),
    "no such dimension: softmin": (lambda x: F.softmin(x, 5), X),
    "no such dimension: sort": (lambda x: torch.sort(x, -3)[0], X),
    "no such dimension: argsort": (lambda x: x.argsort(dim=2), X),
    "no such dimension: slice_scatter": (lambda x: x.slice_scatter(x[:1], 5), X),
}


def answer(f, args):
    try:
        return f(*(arg.clone() for arg in args))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", CALLS)
def test_what_eager_refuses_is_refused(name, dynamic):
    f, *args = CALLS[name]
    expected, found = answer(f, args), answer(cl.compile(f, dynamic=dynamic), args)
    if isinstance(expected, tuple):
        assert found == expected
    else:
        torch.testing.assert_close(found, expected)


def test_a_rehearsal_draws_no_random_numbers():
    def f(x, scale):
        return torch.normal(x[0], scale.abs()) + torch.rand(3)

    torch.manual_seed(0)
    expected = f(X, HALF.double())
    torch.manual_seed(0)
    torch.testing.assert_close(cl.compile(f)(X, HALF.double()), expected)
