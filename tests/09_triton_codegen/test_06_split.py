"""Long reductions with few results take two kernels on a GPU; here they run in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib import events
from course_lib.bench.suite import layer_norm_backward
from course_lib.viz.recording import Recording

pytest.importorskip("triton")
interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, Triton compiles")


def kernels_of(f, *inputs, options=None):
    """The result, and the kernels that made it."""
    recording = Recording()
    with events.listener(recording.events.append):
        result = cl.compile(f, options={"codegen": "triton"} if options is None else options)(
            *inputs
        )
    assert not recording.of(events.FellBack)
    return result, [
        kernel
        for event in recording.of(events.KernelsBuilt)
        for kernel in event.compiled.schedule.fused
    ]


FUNCTIONS = {
    "all": (lambda x: x.sum(), 2),
    "columns": (lambda x: x.sum(0), 2),
    "three dimensions": (lambda x: (x.view(64, 32, 40) * 2).sum((0, 1)), 2),
    "mean": (lambda x: (x + 1).mean(), 2),
    "max": (lambda x: x.max(), 2),
    "any": (lambda x: (x > 3).any(), 2),
    "integers": (lambda x: (x * 10).int().sum(0), 2),
    "argmax": (lambda x: x.argmax(0), 1),
    "short": (lambda x: x[:64].sum(0), 1),
    "rows": (lambda x: x.sum(1), 1),
}


@interpreted
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_the_same_as_eager(name, dtype):
    function, count = FUNCTIONS[name]
    x = torch.randn(2048, 40).to(dtype)
    result, kernels = kernels_of(function, x)
    assert len(kernels) == count
    torch.testing.assert_close(
        result, function(x), rtol=1e-2 if dtype == torch.float16 else 1e-5, atol=2e-4
    )


@interpreted
def test_nan_is_kept():
    x = torch.randn(4096, 8)
    x[3000, 5] = float("nan")
    result, _ = kernels_of(lambda x: x.amax(0), x)
    assert result.isnan().tolist() == [False] * 5 + [True] + [False] * 2


@interpreted
def test_both_gradients_of_a_norm_read_together():
    """Two sums down the same columns: one kernel for the parts of both."""
    g, x = torch.randn(2048, 24), torch.randn(2048, 24)
    f = lambda g, x: ((g * x).sum(0), g.sum(0))
    result, kernels = kernels_of(f, g, x)
    assert [len(kernel.stores) for kernel in kernels] == [2, 1, 1]
    torch.testing.assert_close(result, f(g, x), rtol=1e-4, atol=1e-4)


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_norms_backward_reads_its_inputs_once(dtype):
    """The gradient of x is computed along the rows, those of weight and bias down the columns: one kernel walks along the rows
    of a chunk and gathers the columns' sums; two more add up the chunks."""
    upstream, x, weight, mean, rstd = (
        torch.randn(512, 40), torch.randn(512, 40), torch.randn(40), torch.randn(512, 1), torch.rand(512, 1)
    )  # fmt: skip
    inputs = [t.to(dtype) for t in (upstream, x, weight, mean, rstd)]
    result, kernels = kernels_of(layer_norm_backward, *inputs)
    assert len(kernels) == 3
    assert {step.level for step in kernels[0].steps} == {"row", "column", "across"}
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 2e-2, "atol": 0.25}
    )
    torch.testing.assert_close(result, layer_norm_backward(*inputs), **tolerance)


@interpreted
def test_sums_over_other_rows_are_gathered_by_a_walk_of_their_own():
    """In a transformer that has its batch first the gradient of a norm goes on in attention's order, batch second: a bias's sum
    walks along sequence and batch, the norm's along batch and sequence. One program cannot do both."""

    def f(upstream, x, weight):
        normal, scaled = x * 2, upstream * weight
        dx = (
            scaled
            - scaled.mean(-1, keepdim=True)
            - normal * (scaled * normal).mean(-1, keepdim=True)
        )
        turned = dx.transpose(0, 1).contiguous()
        return (upstream * normal).sum((0, 1)), turned, turned.sum((0, 1))

    inputs = [torch.rand(size) for size in ((16, 256, 24), (16, 256, 24), (24,))]
    result, kernels = kernels_of(f, *inputs)
    for kernel in kernels:
        rows = {loop.symbol for loop in kernel.rows}
        walks = {
            frozenset(rows & set().union(*(i.free_symbols for i in s.rindex)))
            for s in kernel.steps
            if s.level == "across"
        }
        assert len(walks) < 2
    torch.testing.assert_close(result, f(*inputs), rtol=1e-4, atol=1e-3)


@interpreted
def test_a_long_rows_maximum_and_sum_take_one_pass(monkeypatch):
    monkeypatch.setattr("course_lib.codegen.triton_plan.PERSISTENT", 64)
    monkeypatch.setattr("course_lib.scheduling.split.PROGRAMS", 1)
    x = torch.randn(5, 70_000) * 9
    x[1] = float("-inf")
    x[2, :69_000] = float("-inf")
    x[3, 7], x[4, 69_999] = float("nan"), float("inf")
    loss = lambda x, labels: torch.nn.functional.cross_entropy(x, labels)
    softmax, kernels = kernels_of(lambda x: torch.softmax(x, -1), x)
    assert len(kernels) == 1
    torch.testing.assert_close(softmax, torch.softmax(x, -1), rtol=1e-5, atol=1e-9, equal_nan=True)
    for dtype in (torch.float32, torch.float16):
        labels = torch.randint(0, 70_000, (5,))
        got, kernels = kernels_of(loss, x[[0, 0]].to(dtype), labels[:2])
        # the rows are read once, then two losses added up
        assert [len(kernel.columns) for kernel in kernels] == [1, 1]
        torch.testing.assert_close(got, loss(x[[0, 0]].to(dtype), labels[:2]), rtol=1e-3, atol=1e-3)


SPREADS = {
    "columns": (lambda x: x.var(0), (4096, 8)),
    "channels": (lambda x: torch.var_mean(x, (0, 2, 3), correction=0), (64, 8, 16, 16)),
    "channels of an image that lies so": (
        lambda x: x.to(memory_format=torch.channels_last).var((0, 2, 3)),
        (16, 8, 16, 16),
    ),
    "all": (lambda x: x.std(), (300, 256)),
    "batch norm": (
        lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
        (64, 8, 16, 16),
    ),
}


@interpreted
@pytest.mark.parametrize("name", SPREADS)
@pytest.mark.parametrize("mean", [0.0, 3.0, 1000.0])
def test_a_variance_takes_two_kernels_and_reads_once(name, mean):
    """A chunk's squares are taken from the chunk's own mean, so nothing cancels where the mean is large."""
    function, shape = SPREADS[name]
    x = torch.randn(shape) + mean
    x[: shape[0] // 2] += 5  # chunks with means of their own
    result, kernels = kernels_of(function, x)
    assert len(kernels) == 2 + (name == "batch norm")
    torch.testing.assert_close(result, function(x), rtol=1e-4, atol=1e-4)


@interpreted
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_variance_of_what_is_not_finite_is_nan(bad):
    x = torch.randn(4096, 3)
    x[5, 1] = bad
    result, _ = kernels_of(lambda x: x.var(0), x)
    assert result.isnan().tolist() == x.var(0).isnan().tolist() == [False, True, False]


def test_a_cpu_needs_no_split():
    _, kernels = kernels_of(lambda x: x.sum(0), torch.randn(2048, 40), options={"codegen": "cpp"})
    assert len(kernels) == 1
