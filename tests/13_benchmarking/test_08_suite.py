"""`course bench suite`: its formulas are the gradients they claim to be, and its table says what was reached."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional as F

from course_lib.bench import main, suite
from course_lib.bench.compare import Outcome, Workload
from course_lib.bench.library import library_share
from course_lib.bench.measure import Samples
from course_lib.bench.models import Transformer


def close(got, want):
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_norm_backwards_are_the_gradients():
    g, x, w, b = (
        torch.randn(20, 16),
        torch.randn(20, 16, requires_grad=True),
        torch.randn(16, requires_grad=True),
        torch.zeros(16),
    )
    b.requires_grad_()
    rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt().detach()
    mean = x.mean(-1, keepdim=True).detach()
    want = torch.autograd.grad(F.layer_norm(x, (16,), w, b), (x, w, b), g)
    close(suite.layer_norm_backward(g, x.detach(), w.detach(), mean, rstd), want)
    rstd = (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt().detach()
    want = torch.autograd.grad(F.rms_norm(x, (16,), w, 1e-5), (x, w), g)
    close(suite.rms_norm_backward(g, x.detach(), w.detach(), rstd), want)


def test_softmax_and_cross_entropy_backwards_are_the_gradients():
    x, g, labels = (
        torch.randn(20, 16, requires_grad=True),
        torch.randn(20, 16),
        torch.randint(0, 16, (20,)),
    )
    y = x.softmax(-1)
    close([suite.softmax_backward(g, y.detach())], torch.autograd.grad(y, x, g))
    close(
        [suite.cross_entropy_backward(x.detach(), labels)],
        torch.autograd.grad(F.cross_entropy(x, labels), x),
    )


def test_adam_step_is_torchs_tenth():
    p = torch.randn(50, requires_grad=True)
    optimizer = torch.optim.Adam([p])
    first, second = torch.zeros(50), torch.zeros(50)
    for n in range(10):
        before, p.grad = p.detach().clone(), torch.randn(50)
        optimizer.step()
        if n < 9:
            first, second = first * 0.9 + p.grad * 0.1, second * 0.999 + p.grad**2 * 0.001
    close([suite.adam_step(before, p.grad, first, second)[0]], [p.detach()])


def test_the_transformer_runs():
    assert Transformer(layers=2, hidden=16, heads=2)(torch.randn(2, 5, 16)).shape == (2, 5, 16)


@pytest.fixture
def small(monkeypatch):
    inputs = lambda: (torch.randn(4), torch.randn(4))
    both = lambda x, y: (x + y, x * y)
    cases = {
        "one": suite.Case("one", torch.add, inputs),
        "two": suite.Case("two", both, inputs, {"eager": 1e9}, moved=32),
    }
    monkeypatch.setattr(suite, "known", lambda: cases)
    monkeypatch.setattr("course_lib.bench.eager.copy_bandwidth", lambda: 1e9)
    monkeypatch.setattr(suite, "keep_memory", lambda: True)


ARGUMENTS = [
    "--device",
    "cpu",
    "--no-torch-compile",
    "--iters",
    "2",
    "--warmup",
    "1",
    "--min-time",
    "0",
]


def test_table_and_json(small, tmp_path, capsys):
    where = tmp_path / "suite.json"
    assert main(["suite", *ARGUMENTS, "--json", str(where)]) == 0
    text = capsys.readouterr().out
    assert (
        "1.2x torch.compile" in text and "freed memory is kept" in text and "geometric mean" in text
    )
    assert "!" in next(line for line in text.splitlines() if line.startswith("two"))
    assert json.loads(where.read_text())["cases"].keys() == {"one", "two"}


def test_some_of_the_cases(small, capsys):
    assert main(["suite", *ARGUMENTS, "tw"]) == 0
    assert "one" not in [
        line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()
    ]
    assert main(["suite", *ARGUMENTS, "three"]) == 2


def test_geometric_mean():
    outcome = lambda name, seconds: Outcome(name, samples=Samples((seconds,)))
    cases = [
        [outcome("eager", 4.0), outcome("course_lib", 1.0)],
        [outcome("eager", 1.0), outcome("course_lib", 1.0)],
    ]
    assert suite.geometric_mean(cases, "eager") == pytest.approx(2.0)


@pytest.mark.parametrize("train", [False, True])
def test_the_share_of_library_calls(train):
    """Products have a share, a kernel alone has none."""
    inputs = lambda: (
        torch.randn(256, 256, requires_grad=train),
        torch.randn(256, 256, requires_grad=train),
    )
    share = library_share(
        Workload("products", lambda a, b: (a @ b @ a @ b).relu(), inputs, train),
        rounds=3,
        min_time=0.0,
    )
    assert share is not None and share > 0  # how much is a time, and the machine may be busy
    assert (
        library_share(
            Workload("kernel", lambda a, b: a * b + 1, inputs, train), rounds=2, min_time=0.0
        )
        is None
    )


def test_library_calls_of_every_kind_can_be_made_again():
    block = Transformer(layers=1, hidden=16, heads=2)
    assert library_share(
        Workload("block", block, lambda: (torch.randn(2, 5, 16, requires_grad=True),), True), 2, 0.0
    )
    look_up = lambda w, x: (torch.nn.functional.embedding(x, w).sort(0)[0]).expand(2, 3, 4) @ w.t()
    table, index = torch.randn(5, 4, requires_grad=True), torch.tensor([1, 0, 4])
    assert library_share(
        Workload("embedding", lambda w: look_up(w, index), lambda: (table,), True), 2, 0.0
    )
