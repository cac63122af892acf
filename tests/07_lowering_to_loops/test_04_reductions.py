"""Reductions: which dimensions, which accumulator, what of nan and of nothing."""

from __future__ import annotations

import math

import pytest
import torch
from aten_graphs import agree, lowered
from torch.nn import functional as F

import course_lib as cl
from course_lib.lowering import Reduction

REDUCTIONS = {
    **{name: getattr(torch, name) for name in "sum mean amax amin".split()},
    "var": torch.var,
    "std": torch.std,
    "var, no correction": lambda x, dim, keepdim: torch.var(x, dim, correction=0, keepdim=keepdim),
    "logsumexp": torch.logsumexp,
    "norm": lambda x, dim, keepdim: torch.linalg.vector_norm(x, dim=dim, keepdim=keepdim),
    "any": lambda x, dim, keepdim: torch.any(x > 0, dim, keepdim),
    "all": lambda x, dim, keepdim: torch.all(x > -1, dim, keepdim),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("keepdim", [False, True])
def test_over_any_dimensions(name, keepdim):
    reduce, choices = REDUCTIONS[name], ([0], [1], [2], [0, 2], [1, 2], [-1], [0, 1, 2])
    agree(lambda x: [reduce(x, dims, keepdim) for dims in choices], torch.randn(3, 4, 5))
    agree(
        lambda x: [reduce(x.transpose(0, 2) * 2, dims, keepdim) for dims in choices],
        torch.randn(3, 4, 5),
    )


def test_over_everything():
    x = torch.randn(3, 4)
    agree(
        lambda x: (
            x.sum(),
            x.mean(),
            x.max(),
            x.min(),
            x.prod(),
            x.var(),
            x.std(),
            (x > 0).any(),
            (x > 0).all(),
        ),
        x,
    )
    agree(lambda x: (x.argmax(), x.argmin(), torch.sum(x, []), x.norm()), x)


def test_one_dimension():
    x = torch.randn(3, 4, 5)
    agree(
        lambda x: (
            x.prod(1),
            x.argmax(1),
            x.argmin(2, keepdim=True),
            *x.max(1),
            *x.min(0, keepdim=True),
        ),
        x,
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_gathers_in_float_and_rounds_once(dtype):
    x = (torch.randn(4, 1000) * 0.1 + 1).to(dtype)
    graph = agree(lambda x: (x.sum(1), x.mean(1), x.amax(1), x.var(1)), x)
    assert {n.accumulate for n in graph.nodes if isinstance(n, Reduction)} == {torch.float32}


def test_integers_gather_in_int64():
    for dtype in (torch.int8, torch.uint8, torch.int32, torch.bool):
        x = torch.randint(0, 2, (3, 200)).to(dtype)
        agree(
            lambda x: (
                x.sum(1),
                x.prod(1),
                x.amax(1),
                x.any(1),
                x.all(1),
                x.sum(1, dtype=torch.float32),
            ),
            x,
        )
    assert (
        lowered(lambda x: x.sum(), torch.ones(3, dtype=torch.int8)).nodes[0].accumulate
        is torch.int64
    )


def test_a_sum_converts_before_it_adds():
    agree(lambda x: x.sum(1, dtype=torch.float64), torch.randn(3, 50))
    agree(lambda x: x.mean(1, dtype=torch.float32), torch.randint(0, 9, (3, 50)))


def test_nan_wins():
    x = torch.tensor([[1.0, math.nan, 3.0], [-math.inf, math.inf, 0.0]])
    agree(
        lambda x: (
            x.amax(1),
            x.amin(1),
            x.argmax(1),
            x.argmin(1),
            *x.max(1),
            x.sum(1),
            x.mean(1),
            x.any(1),
        ),
        x,
    )


def test_the_first_of_equals_is_found():
    agree(
        lambda x: (x.argmax(1), x.argmin(1), x.argmax()),
        torch.tensor([[1.0, 3.0, 3.0], [0.0, 0.0, 1.0]]),
    )


def test_no_elements():
    x = torch.zeros(3, 0)
    agree(lambda x: (x.sum(1), x.prod(1), x.sum(0), x.mean(1), x.any(1), x.all(1), x.sum()), x)


def test_no_dimensions():
    x = torch.tensor(2.5)
    agree(lambda x: (x.sum(), x.mean(), x.amax(0), x.argmax(), x.prod(), x.max(), x.sum(0)), x)
    agree(lambda x: (x.var(correction=0), x.softmax(0), torch.logsumexp(x, 0)), x)


def test_dimensions_of_one_element():
    x = torch.randn(3, 1, 1)
    graph = agree(
        lambda x: (
            x.sum(1),
            x.mean((1, 2)),
            x.amax(2, keepdim=True),
            x.argmax(1),
            x.var(1, correction=0),
        ),
        x,
    )
    assert not any(isinstance(node, Reduction) for node in graph.nodes)


def test_variance_is_exact_where_the_mean_is_large():
    agree(lambda x: x.var(1), torch.randn(4, 1000) + 10_000)


def test_variance_of_too_few():
    agree(lambda x: (x.var(1), x.std(1)), torch.randn(3, 1))


def test_var_mean_and_std_mean():
    agree(
        lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, [0, 2], keepdim=True)),
        torch.randn(3, 4, 5),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_softmaxes_and_norms(dtype):
    x = (torch.randn(4, 6, 8) * 10).to(dtype)
    w, b = torch.randn(8).to(dtype), torch.randn(8).to(dtype)
    agree(
        lambda x: (
            x.softmax(-1),
            x.softmax(0),
            x.log_softmax(1),
            torch.softmax(x, -1, dtype=torch.float32),
        ),
        x,
    )
    agree(
        lambda x, w, b: (
            F.layer_norm(x, (8,), w, b),
            F.layer_norm(x, (6, 8)),
            F.rms_norm(x, (8,), w),
        ),
        x,
        w,
        b,
    )
    agree(
        lambda x, w, b: (
            F.layer_norm(x, (8,), w.float(), b.float()) if dtype is torch.bfloat16 else x
        ),
        x,
        w,
        b,
    )
    agree(lambda x: (F.group_norm(x, 3), F.normalize(x, dim=1)), x)


def test_softmax_with_a_row_of_minus_infinity():
    x = torch.tensor([[0.0, -math.inf], [-math.inf, -math.inf]])
    agree(lambda x: (x.softmax(-1), x.log_softmax(-1), torch.logsumexp(x, -1)), x)


def test_batch_norm_for_inference():
    x, mean, var, w, b = (
        torch.randn(2, 3, 4, 4),
        torch.randn(3),
        torch.rand(3) + 0.1,
        torch.randn(3),
        torch.randn(3),
    )
    agree(lambda *a: F.batch_norm(*a), x, mean, var, w, b)


def test_losses():
    x, y, target = torch.randn(6, 5), torch.rand(6, 5), torch.randint(0, 5, (6,))
    agree(
        lambda x, y: (
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.huber_loss(x, y),
        ),
        x,
        y,
    )
    agree(lambda x, y: (F.binary_cross_entropy_with_logits(x, y), F.kl_div(x, y)), x, y)
    agree(lambda x, t: F.cross_entropy(x, t), x, target)


ONE_ELEMENT = {
    "sum of all": lambda x: x.sum(),
    "sum": lambda x: x.sum(0),
    "sum, kept": lambda x: x.sum(0, keepdim=True),
    "sum of a part": lambda x: (x.reshape(-1)[:1] * 1).sum() * 3,
    "sum in float64": lambda x: x.sum(dtype=torch.float64),
    "sum without nan": lambda x: x.nansum(),
    "mean": lambda x: x.mean(0),
    "mean of variance": lambda x: torch.var_mean(x, correction=0)[1],
    "product": lambda x: x.prod(),
    "maximum": lambda x: x.amax(),
    "dot": lambda x: torch.dot(x.reshape(-1)[:1], -x.reshape(-1)[:1]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ONE_ELEMENT)
def test_a_sum_of_one_element_begins_with_zero(name, dtype):
    """Eager gives 0.0 for the sum of -0.0 alone, and -0.0 for its product."""
    reduced = ONE_ELEMENT[name]
    for shape in ((1, 3), (1,), ()):
        x = torch.full(shape, -0.0, dtype=dtype)
        expected, found = reduced(x), cl.compile(reduced)(x)
        assert found.dtype == expected.dtype
        assert torch.equal(torch.signbit(found), torch.signbit(expected))
