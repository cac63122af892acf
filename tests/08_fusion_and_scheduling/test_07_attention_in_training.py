"""Training with attention from plain code: backward computes scores again, block by block; where it cannot, it says why."""

from __future__ import annotations

import pytest
import torch
from attentions import (
    INF,
    B,
    D,
    H,
    M,
    N,
    alibi,
    bias,
    causal,
    differential,
    from_logarithms,
    heads,
    plain,
    positions,
    repeated,
    shut,
    soft_cap,
)
from random_attention import check_training, distance, gradients, in_double, small_tiles

import course_lib as cl
from course_lib import events
from course_lib.bench.models import GPTBlock
from course_lib.scheduling import Streamed


def packed(qkv):
    q, k, v = qkv.unflatten(-1, (3, H, D)).permute(2, 0, 3, 1, 4)
    return plain(q, k, v).transpose(1, 2).flatten(2)


def dropped(q, k, v, keep):
    """Dropout, with the mask from outside."""
    return (torch.softmax(q @ k.mT, -1) * keep / 0.9) @ v


def linear(q, k, v):
    i, j = positions()
    return torch.where(i >= j, q @ k.mT, 0) @ v


def sigmoid(q, k, v):
    return torch.sigmoid(q @ k.mT * 0.1) @ v


TRAINED = {
    "plain": (plain, lambda: (heads(rows=M), heads(), heads())),
    "one head of one example": (plain, lambda: [torch.randn(1, 1, 300, D) for _ in range(3)]),
    "one matrix of a batch": (plain, lambda: [torch.randn(1, 300, D) for _ in range(3)]),
    "half": (plain, lambda: tuple(heads(rows=n, dtype=torch.float16) for n in (M, N, N))),
    "bfloat16": (causal, lambda: tuple(heads(rows=n, dtype=torch.bfloat16) for n in (M, N, N))),
    "causal": (causal, lambda: (heads(rows=M), heads(), heads())),
    "whole rows masked": (
        shut,
        lambda: (heads(rows=M), heads(), heads(), torch.rand(M, N) < torch.rand(M, 1) - 0.5),
    ),
    "soft cap": (soft_cap, lambda: (heads(rows=M), heads(), heads())),
    "ALiBi": (alibi, lambda: (heads(rows=M), heads(), heads(), torch.rand(H, 1, 1))),
    "bias": (bias, lambda: (heads(rows=M), heads(), heads(), torch.randn(H, M, N))),
    "heads repeated": (repeated, lambda: (heads(rows=M), heads(H // 2), heads(H // 2))),
    "packed": (packed, lambda: (torch.randn(B, N, 3 * H * D),)),
    "differential": (differential, lambda: (heads(rows=M), heads(), heads())),
    "dropout": (dropped, lambda: (heads(rows=M), heads(), heads(), torch.rand(B, H, M, N) < 0.9)),
    "linear": (linear, lambda: (heads(rows=M), heads(), heads())),
    "sigmoid": (sigmoid, lambda: (heads(rows=M), heads(), heads())),
    "from logarithms": (from_logarithms, lambda: (heads(rows=M), heads(), heads())),
}


def trained(function, inputs, wanted):
    """Results, gradients, and what was told meanwhile."""
    seen = []
    given = [torch.randn(function(*inputs).shape, dtype=inputs[0].dtype)]
    with events.listener(seen.append):
        got = gradients(cl.compile(lambda *x: (function(*x),)), inputs, wanted, given)
    eager = gradients(lambda *x: (function(*x),), inputs, wanted, given)
    doubles = [list(map(in_double, each)) for each in (inputs, given)]
    exact = gradients(lambda *x: (function(*x),), doubles[0], wanted, doubles[1])
    return got, eager, exact, seen


def far_off(got, eager, exact):
    """Where it is further from float64 than eager, by much."""
    found = []
    for one, other, true in zip(
        (*got[0], *got[1]), (*eager[0], *eager[1]), (*exact[0], *exact[1]), strict=True
    ):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert torch.equal(one.isnan(), other.isnan())
        units = 8 * torch.finfo(other.dtype).eps * float(true.nan_to_num().abs().max())
        off, allowed = distance(one, true), 2 * distance(other, true) + units
        if off > allowed:
            found.append((off, allowed))
    return found


@pytest.mark.parametrize("name", TRAINED)
def test_no_matrix_of_scores_forward_or_backward(name):
    torch.manual_seed(0)
    function, make = TRAINED[name]
    inputs = make()
    wanted = list(range(min(3, len(inputs))))
    got, eager, exact, seen = trained(function, inputs, wanted)
    assert far_off(got, eager, exact) == []

    (parts,) = [event.partition for event in seen if isinstance(event, events.Partitioned)]
    assert "block by block" in str(parts)
    schedules = [event.schedule for event in seen if isinstance(event, events.Scheduled)]
    assert len(schedules) == 2
    rows = N if name == "packed" else M
    for schedule in schedules:
        assert any(isinstance(kernel, Streamed) for kernel in schedule.kernels)
        written = [buffer for kernel in schedule.kernels for buffer in kernel.buffers]
        assert all(buffer.numel < B * H * rows * N for buffer in written)


def returns_weights(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return (weights @ v).sum() + weights.amax()


KEPT = {
    "a bias that has a gradient": (
        bias,
        lambda: (heads(rows=M), heads(), heads(), torch.randn(M, N)),
        "also needs",
    ),
    "a result of the weights": (
        returns_weights,
        lambda: (heads(rows=M), heads(), heads()),
        "is not computed again in backward",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_must_be_kept_says_why(name):
    function, make, reason = KEPT[name]
    inputs = make()
    got, eager, exact, seen = trained(function, inputs, range(len(inputs)))
    assert far_off(got, eager, exact) == []
    (parts,) = [event.partition for event in seen if isinstance(event, events.Partitioned)]
    assert reason in str(parts)
    assert "block by block" not in str(parts)


@pytest.mark.parametrize("start", [0])
def test_random_programs(start):
    """(`python tests/tools/random_attention.py --training --count 500` runs as many as you have time for.)"""
    outcomes = {seed: check_training(seed) for seed in range(start, start + 6)}
    assert {seed: each.fault for seed, each in outcomes.items() if each.fault} == {}


def test_a_result_that_the_program_writes_to_before_backward():
    """Eager does not keep the result of attention; what is kept here must not be the program's memory."""
    gradients_of = {}
    for name, function in {"ours": cl.compile(plain), "eager": plain}.items():
        torch.manual_seed(0)
        inputs = [x.requires_grad_() for x in (heads(rows=M), heads(), heads())]
        out = function(*inputs)
        out.mul_(3)
        gradients_of[name] = torch.autograd.grad(out.sin().sum(), inputs)
    for got, want in zip(gradients_of["ours"], gradients_of["eager"], strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("function", [causal, linear])
@pytest.mark.parametrize("where", ["k", "v", "gradient"])
def test_what_is_not_finite_in_a_hidden_block_is_seen(function, where):
    """(inf - inf is NaN in eager, where a sum along the row that was exchanged may be infinite.)"""
    q, k, v = heads(rows=M), heads(), heads()
    given = torch.randn(B, H, M, D)
    # The last keys are hidden from all queries, and the first queries see few keys.
    {"k": k, "v": v, "gradient": given}[where][0, 1, 3 if where == "gradient" else 190, 5] = INF
    with small_tiles():
        got = gradients(cl.compile(lambda *x: (function(*x),)), (q, k, v), range(3), [given])
    want = gradients(lambda *x: (function(*x),), (q, k, v), range(3), [given])
    for one, other in zip((*got[0], *got[1]), (*want[0], *want[1]), strict=True):
        assert torch.equal(one.isfinite(), other.isfinite())
        kept = one.isfinite()
        torch.testing.assert_close(one[kept], other[kept], rtol=1e-3, atol=1e-4)


def test_two_streams_do_not_both_take_the_same_sum():
    """In backward of a block that runs in eval mode both streams of scores wait for one sum of each row."""
    torch.manual_seed(0)
    block = GPTBlock(hidden=64, heads=2, context=256).eval()
    x = torch.randn(1, 256, 64)
    gradients_of = []
    for run in (cl.compile(block, fullgraph=True), block):
        leaf = x.clone().requires_grad_()
        with cl.record() as trace:
            run(leaf).sin().sum().backward()
        if not gradients_of:
            kernels = [k for e in trace.of(events.Scheduled) for k in e.schedule.kernels]
            assert not [kernel for kernel in kernels if str(kernel).startswith("aten.bmm")]
        gradients_of.append([leaf.grad, *(p.grad for p in block.parameters())])
        block.zero_grad()
    for got, want in zip(*gradients_of, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
