"""A learner's own law goes into the scheduler, and out of it again; logsumexp is seen through."""

from __future__ import annotations

import pytest
import torch
from random_attention import compile_streamed, distance

import course_lib as cl
from course_lib import events
from course_lib.scheduling import No, Streamed, rescaling
from course_lib.scheduling.rescaling import RUNNING, Apart

INF = float("inf")


def operands(scale=1.0):
    q, k, v = torch.randn(3, 2, 3, 160, 16)
    # Scores grow along a row: each block of columns has a new maximum
    return q * scale, k + torch.linspace(0, 1, 160)[:, None], v


def outcome(f, args):
    """(the result, the reason why it is no stream or "")."""
    anew = lambda *args: f(*args)
    with cl.record() as trace, torch.no_grad():
        result = cl.compile(anew, fullgraph=True)(*args)
    schedule = trace.of(events.Scheduled)[-1].schedule
    if any(isinstance(kernel, Streamed) for kernel in schedule.kernels):
        return result, ""
    reasons = [d.answer.reason for d in schedule.decisions if isinstance(d.answer, No)]
    return result, next(reason for reason in reasons if "library call" not in reason)


def as_eager(result, f, args):
    exact = f(*(x.double() for x in args))
    assert torch.equal(result.isnan(), exact.isnan())
    assert distance(result, exact) <= 4 * distance(f(*args), exact) + 1e-5


def by_logsumexp(q, k, v):
    s = q @ k.mT
    return torch.exp(s - s.logsumexp(-1, keepdim=True)) @ v


def late(q, k, v):
    """Some rows have nothing, others begin with hidden blocks."""
    i, j = torch.arange(160)[:, None], torch.arange(160)
    s = torch.where(i - j >= 20, q @ k.mT, -INF)
    return torch.exp(s - s.logsumexp(-1, keepdim=True)) @ v


def take_apart(tree, builder):
    """exp(x - y) = exp(x - m) * exp(m - y)."""
    x, y = tree.args[0].args
    for leaf in y.walk():
        if leaf.op == RUNNING and leaf.detail.is_maximum and leaf.detail.term is x:
            return Apart(builder.exp(builder.sub(x, leaf)), builder.exp(builder.sub(leaf, y)))
    return None


@pytest.mark.parametrize("f", [by_logsumexp, late])
@pytest.mark.parametrize("scale", [1.0, 50.0, 3e4])
def test_logsumexp_is_a_stream_with_a_row_of_apart_and_right_for_any_scores(f, scale):
    args = operands(scale)
    assert "exp" in outcome(f, args)[1]
    with rescaling.using(apart={"exp": take_apart}):
        result, reason = outcome(f, args)
    assert not reason
    as_eager(result, f, args)
    assert "exp" in outcome(f, args)[1], "the row is gone when the block ends"


def test_what_shall_wait_must_be_the_same_for_the_whole_row():
    def whole(tree, builder):
        return Apart(builder.constant(1.0, tree.dtype), tree)

    with rescaling.using(apart={"exp": whole}):
        result, reason = outcome(by_logsumexp, args := operands())
    assert "differs from column to column" in reason
    as_eager(result, by_logsumexp, args)


def test_a_row_of_laws_is_used_until_the_block_ends_also_after_an_error():
    def signed(q, k, v):
        s = q @ k.mT
        w = (torch.exp(s - s.amax(-1, keepdim=True)) * torch.sin(s)).abs()
        return (w / w.sum(-1, keepdim=True)) @ v

    before = dict(rescaling.LAWS)
    args = operands()
    with rescaling.using(laws={"abs": rescaling.only_operand}):
        result, reason = outcome(signed, args)
    assert not reason
    as_eager(result, signed, args)
    with pytest.raises(ZeroDivisionError), rescaling.using(laws={"abs": rescaling.only_operand}):
        raise ZeroDivisionError
    assert before == rescaling.LAWS and not rescaling.APART
    assert "'abs'" in outcome(signed, args)[1]


def made_finite(q, k, v):
    """The maximum as logsumexp subtracts it. Rows begin with hidden blocks, and the first have nothing at all."""
    i, j = torch.arange(160)[:, None], torch.arange(150)
    s = torch.where(i - j >= 20, q @ k.mT, -INF)
    m = s.amax(-1, keepdim=True)
    w = torch.exp(s - torch.where(m.abs() == INF, 0.0, m))
    return ((w / w.sum(-1, keepdim=True)) @ v,)


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("scale", [1.0, 50.0])
def test_a_maximum_that_is_made_finite_is_seen_through(codegen, scale):
    q, k, v = operands(scale)
    args = q, k[..., :150, :], v[..., :150, :]
    (result,) = compile_streamed(made_finite, *args, codegen=codegen)(*args)
    as_eager(result, lambda *args: made_finite(*args)[0], args)


def test_a_maximum_that_is_made_finite_must_be_of_these_very_numbers():
    def of_others(q, k, v):
        s = q @ k.mT
        m = (s * 0.5).amax(-1, keepdim=True)
        w = torch.exp(s - torch.where(m.abs() == INF, 0.0, m))
        return (w / w.sum(-1, keepdim=True)) @ v

    def another_number(q, k, v):
        s = q @ k.mT
        m = s.amax(-1, keepdim=True)
        w = torch.exp(s - torch.where(m.abs() == 3.0, 0.0, m))
        return (w / w.sum(-1, keepdim=True)) @ v

    for f in (of_others, another_number):
        result, reason = outcome(f, args := operands())
        assert "exp" in reason
        as_eager(result, f, args)
