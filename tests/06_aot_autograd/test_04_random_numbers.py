"""Random numbers by a formula (`options={"fallback_random": False}`): the same in forward and backward and on every printer."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import course_lib as cl
from course_lib import events
from course_lib.lowering.corners.philox import philox
from course_lib.viz.evaluator import evaluate

OWN = {"fallback_random": False}


def compiled(function: Any, **options: Any) -> Any:
    return cl.compile(function, fullgraph=True, options=OWN | options)


def by_hand(seed: int, n: int) -> float:
    """Philox-4x32-10 with Python's own integers, as the paper writes it."""
    key, counter = [seed % 2**32, seed >> 32 & 0xFFFFFFFF], [n % 2**32, n >> 32, 0, 0]
    for _ in range(10):
        p, q = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (q >> 32) ^ counter[1] ^ key[0],
            q % 2**32,
            (p >> 32) ^ counter[3] ^ key[1],
            p % 2**32,
        ]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    x = counter[0] - 2**32 if counter[0] >= 2**31 else counter[0]
    x = -x - 1 if x < 0 else x
    return float(torch.tensor(float(x)) * torch.tensor(4.6566127342e-10))


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(-(2**63), 2**63 - 1), n=st.integers(0, 2**40))
def test_the_formula_is_the_papers(seed: int, n: int):
    assert philox(torch.tensor(seed), torch.tensor([n])).item() == by_hand(seed, n)


def test_numbers_lie_in_zero_to_one_and_are_spread_evenly():
    x = philox(torch.tensor(7), torch.arange(1_000_000))
    assert x.min() >= 0 and x.max() < 1
    assert torch.histc(x, 100, 0, 1).sub(10_000).abs().max() < 5 * 100  # five standard deviations
    assert abs(torch.corrcoef(torch.stack([x[:-1], x[1:]]))[0, 1].item()) < 0.005


def drawn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.rand_like(x) + x, torch.rand(5, 33) * 2, F.dropout(x, 0.25)


@pytest.mark.parametrize("codegen", ["cpp", pytest.param("triton", marks=pytest.mark.slow)])
def test_every_printer_draws_the_same(codegen: str):
    if codegen == "triton":
        pytest.importorskip("triton")
    x = torch.randn(37, 11)
    torch.manual_seed(5)
    expected = cl.compile(drawn, backend="aot_eager", options=OWN)(x)
    torch.manual_seed(5)
    for mine, theirs in zip(compiled(drawn, codegen=codegen)(x), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_the_evaluator_draws_the_same():
    x = torch.randn(37, 11)
    with cl.record() as trace:
        torch.manual_seed(5)
        expected = compiled(drawn)(x)
    torch.manual_seed(5)
    for mine, theirs in zip(evaluate(trace.of(events.Lowered)[0].graph, x), expected, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_seed_repeats_and_another_does_not():
    draw = compiled(lambda x: torch.rand_like(x))
    x = torch.empty(1000)
    torch.manual_seed(1)
    first, second = draw(x), draw(x)
    torch.manual_seed(1)
    assert torch.equal(draw(x), first)
    assert (first == second).float().mean() < 0.01


def test_two_draws_in_one_graph_differ():
    a, b = compiled(lambda x: (torch.rand_like(x), torch.rand_like(x)))(torch.empty(1000))
    assert (a == b).float().mean() < 0.01


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (129,), (17, 65)])
def test_dropout_is_scaled_where_it_keeps_and_zero_where_it_drops(shape: tuple[int, ...]):
    x = torch.rand(shape) + 1
    y = compiled(lambda x: F.dropout(x, 0.4))(x)
    torch.testing.assert_close(y, torch.where(y == 0, 0, x / 0.6))
    if x.numel() > 1000:
        assert abs((y == 0).float().mean().item() - 0.4) < 0.06


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_dropout_of_all_or_nothing_is_eagers(p: float):
    x = torch.randn(50, requires_grad=True)
    y = compiled(lambda x: F.dropout(x, p))(x)
    y.sum().backward()
    assert torch.equal(y, x * (1 - p))
    assert torch.equal(x.grad, torch.full_like(x, 1 - p))


def test_backward_drops_what_forward_dropped_and_keeps_a_seed_in_place_of_a_mask():
    x = torch.randn(64, 128, requires_grad=True)

    def f(x: Tensor) -> Tensor:
        return F.dropout(x.sin(), 0.5) * F.dropout(x, 0.1)

    with cl.record() as trace:
        y = compiled(f)(x)
    (cut,) = trace.of(events.Partitioned)
    kept = {node.name: node.meta["val"] for node in cut.partition.saved}
    assert set(kept) == {"x", "randint"} and kept["randint"].nbytes == 8
    y.sum().backward()
    a, b = x.detach().sin(), x.detach()
    dropped = y == 0
    expected = torch.where(dropped, torch.nan, (x.detach().cos() * b + a) / 0.5 / 0.9)
    alive = ~dropped
    torch.testing.assert_close(x.grad[alive], expected[alive], rtol=1e-4, atol=1e-5)
    assert trace.kernels and all("bernoulli" not in str(kernel) for kernel in trace.kernels)


def test_eagers_numbers_are_the_default():
    x = torch.randn(100)
    torch.manual_seed(2)
    expected = F.dropout(x, 0.5)
    torch.manual_seed(2)
    assert torch.equal(cl.compile(lambda x: F.dropout(x, 0.5))(x), expected)


def test_what_has_a_generator_of_its_own_and_normal_numbers_are_drawn_by_torch():
    torch.manual_seed(4)
    normal = torch.randn(10)
    torch.manual_seed(4)
    assert torch.equal(
        cl.compile(lambda x: torch.randn_like(x) + x, options=OWN)(torch.zeros(10)), normal
    )
    generator = torch.Generator().manual_seed(3)
    expected = torch.rand(10, generator=torch.Generator().manual_seed(3))
    assert torch.equal(
        cl.compile(lambda x: torch.rand(10, generator=generator) + x, options=OWN)(torch.zeros(10)),
        expected,
    )


def test_half_precision_and_sizes_that_change():
    draw = cl.compile(lambda x: torch.rand_like(x) + F.dropout(x, 0.5), dynamic=True, options=OWN)
    for n in (300, 301, 302):
        y = draw(torch.zeros(n, 40, dtype=torch.bfloat16))
        assert y.dtype == torch.bfloat16 and abs(y.float().mean().item() - 0.5) < 0.02


@pytest.mark.parametrize("seed", range(5))
def test_a_training_step_has_the_gradients_of_its_own_mask(seed: int):
    """The mask is read off the result; eager with that mask is the reference, for both weights."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(64, 64)
    )
    x = torch.randn(32, 16)
    seen: dict[str, Tensor] = {}

    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = model[2](model[1](model[0](x)) + 1)  # at least 1: what is 0 was dropped
        return hidden, model[3](hidden)

    hidden, y = cl.compile(step, fullgraph=True, options=OWN)(x)
    (y**2).sum().backward()
    seen = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    mask = (hidden.detach() != 0).float() / 0.7
    (model[3]((model[1](model[0](x)) + 1) * mask) ** 2).sum().backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(seen[name], p.grad, rtol=1e-3, atol=1e-4)
