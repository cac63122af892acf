"""Where a joint graph is cut: what is kept, what is computed again, how many kernels there are, which line each comes from."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import course_lib as cl
from course_lib import autograd, config, events, lowering
from course_lib.autograd.signature import Update
from course_lib.scheduling import FusedKernel


def trained(function: Callable[..., Any], *args: Tensor) -> Any:
    """The recording of one training step."""
    with cl.record() as trace:
        result = cl.compile(function, fullgraph=True)(*args)
    result.sum().backward()
    return trace


def cut(function: Callable[..., Any], *args: Tensor) -> autograd.Partition:
    return trained(function, *args).of(events.Partitioned)[0].partition


def leaf(*shape: int) -> Tensor:
    return torch.randn(shape, requires_grad=True)


def names(nodes: Any) -> set[str]:
    return {node.name for node in nodes}


def test_a_pointwise_chain_keeps_its_input_only():
    parts = cut(lambda x: (x * 2).sigmoid().tanh().exp(), leaf(64, 64))
    assert names(parts.saved) == {"x"}
    assert {"sigmoid", "tanh", "exp"} <= names(parts.recomputed)


def test_what_is_smaller_is_kept():
    """Of x and x > 0, which backward needs, the second takes a quarter of the bytes."""
    (kept,) = cut(lambda x: x * 2 * (x > 0), leaf(64, 64)).saved
    assert kept.meta["val"].dtype is torch.bool


def test_half_precision_is_kept_as_such():
    """What is converted to float32 to compute with is converted again in backward: the product is kept in float16."""
    x, w = (torch.randn(8, 8, dtype=torch.float16, requires_grad=True) for _ in range(2))
    saved = cut(lambda x, w: F.gelu(x @ w), x, w).saved
    assert {node.meta["val"].dtype for node in saved} == {torch.float16}


def test_a_reduction_and_a_product_are_kept_not_computed_again():
    def f(x: Tensor, w: Tensor) -> Tensor:
        return F.softmax(x @ w, -1).log()

    parts = cut(f, leaf(8, 16), leaf(16, 32))
    targets = {str(node.target) for node in parts.recomputed}
    assert not any("mm" in target or "sum" in target or "amax" in target for target in targets)


def test_what_a_convolution_reads_is_kept():
    """Its backward reads it, too: computed again, it would be written to memory a second time."""
    f = lambda x, w, v: F.conv2d(F.relu(F.conv2d(x, w) * 2), v)
    parts = cut(f, torch.randn(2, 3, 8, 8), leaf(4, 3, 3, 3), leaf(4, 4, 3, 3))
    assert "relu" in names(parts.saved) and not parts.recomputed


def test_an_input_that_is_overwritten_is_not_what_is_kept():
    def f(x: Tensor, buffer: Tensor) -> Tensor:
        y = x * (buffer + 0)
        buffer.add_(1)
        return y

    x, buffer = leaf(4), torch.arange(4.0)
    y = cl.compile(f, fullgraph=True)(x, buffer)
    y.sum().backward()
    assert (
        x.grad is not None and x.grad.tolist() == [0, 1, 2, 3] and buffer.tolist() == [1, 2, 3, 4]
    )


def test_backward_that_reads_an_overwritten_input_itself_is_refused():
    """Capture lets no such program through. Who calls `partition` gets a reason all the same."""
    trace = trained(lambda x, buffer: x * buffer, leaf(4), torch.ones(4))
    joint = trace.of(events.JointTraced)[0].graph
    update = Update(input=1, index=0, seen_by="version")
    joint.meta["signature"] = replace(joint.meta["signature"], updates=(update,))
    with pytest.raises(NotImplementedError, match="neither kept nor computed again"):
        autograd.partition(joint, lowering.may_recompute)


def test_a_backward_that_fails_in_eager_fails_when_it_is_asked_for():
    def f(x: Tensor, buffer: Tensor) -> Tensor:
        y = x * buffer
        buffer.add_(1)
        return y

    y = cl.compile(f, fullgraph=True)(leaf(4), torch.arange(4.0))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_result_that_the_graph_made_as_a_view_may_be_written_to(backend):
    def f(x, w):
        h = (x.mT @ w).mT
        cl.graph_break()
        h[:, 1] = 0.5
        return h * 2

    x, w = leaf(2, 4, 5), leaf(4, 4)
    results = []
    for call in (f, cl.compile(f, backend=backend)):
        y = call(x, w)
        results.append((y, *torch.autograd.grad(y.square().sum(), (x, w))))
    torch.testing.assert_close(results[1], results[0])


def test_dropout_drops_the_same_in_backward_and_what_eager_would():
    x = leaf(1000)
    torch.manual_seed(3)
    want = F.dropout(x, 0.3)
    torch.manual_seed(3)
    y = cl.compile(lambda x: F.dropout(x, 0.3), fullgraph=True)(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, want)
    torch.testing.assert_close(grad, torch.where(y != 0, 1 / 0.7, 0.0))


def kernels(trace: Any) -> list[int]:
    """Fused kernels of each graph that was built: forward, backward."""
    return [
        sum(isinstance(k, FusedKernel) for k in e.compiled.schedule.kernels)
        for e in trace.of(events.KernelsBuilt)
    ]


def test_layer_norm_is_one_kernel_forward_and_one_backward():
    assert kernels(
        trained(lambda x, w, b: F.layer_norm(x, (64,), w, b), leaf(32, 64), leaf(64), leaf(64))
    ) == [1, 1]


def test_softmax_is_one_kernel_forward_and_one_backward():
    assert kernels(trained(lambda x: F.softmax(x * 2, -1) ** 2, leaf(32, 64))) == [1, 1]


def test_backward_knows_the_line_it_comes_from():
    def f(x: Tensor, w: Tensor) -> Tensor:
        y = F.layer_norm(x, (16,))
        y = y @ w
        return F.gelu(y)

    trace = trained(f, leaf(4, 16), leaf(16, 16))
    parts = trace.of(events.Partitioned)[0].partition
    captured = {}
    for node in parts.backward.graph.nodes:
        if node.op == "call_function":
            captured.setdefault(node.meta["origin"].name, []).append(str(node.target))
    assert set(captured) == {"layer_norm", "matmul", "gelu"}
    assert any("mm" in target for target in captured["matmul"])
    first = f.__code__.co_firstlineno
    lines = {
        n.meta["origin"].meta["location"].line - first
        for n in parts.backward.graph.nodes
        if n.op == "call_function"
    }
    assert lines == {1, 2, 3}


def test_a_cut_that_is_known_is_not_made_again(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "cache_dir", lambda: tmp_path)
    f, x = lambda x: (x * 2).sigmoid().exp(), leaf(8, 8)
    first = cut(f, x)
    # whoever calls it fails
    monkeypatch.setattr(sys.modules["course_lib.autograd.partition"], "cut", None)
    cl.reset()
    assert str(cut(f, x)) == str(first)
    with pytest.raises(TypeError):
        cut(lambda x: (x * 2).sigmoid().exp().exp(), x)


def test_nothing_is_recorded_of_inputs_that_are_only_read(monkeypatch):
    """Tracing is most of a second first call: no copy, `detach` or measure for each parameter of a model."""
    recorded: list[str] = []
    module = sys.modules["course_lib.autograd.trace"]
    tidy = module.tidy

    def watched(traced: Any, *rest: Any) -> Any:
        recorded.extend(str(node.target) for node in traced.graph.nodes)
        return tidy(traced, *rest)

    monkeypatch.setattr(module, "tidy", watched)
    trained(
        torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)),
        torch.randn(3, 4),
    )
    # (Autograd keeps tanh's result behind `detach`; one `empty_like` is the layout of the tangent.)
    counts = [recorded.count(f"aten.{name}.default") for name in ("clone", "detach", "empty_like")]
    assert counts[0] == 0 and counts[1] <= 2 and counts[2] == 1
    recorded.clear()

    def f(x: Tensor, w: Tensor) -> Tensor:
        x.mul_(2)
        return x * w

    trained(f, torch.randn(3), leaf(3))
    assert recorded.count("aten.clone.default") == 1  # of x alone


def test_a_mutation_is_a_value_of_the_graph():
    def f(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.mul_(2)
        return x + buffer

    with cl.record() as trace:
        cl.compile(f, fullgraph=True)(torch.ones(3), torch.ones(3))
    graph = trace.of(events.AtenTraced)[0].graph
    assert not any(
        getattr(n.target, "_schema", None) and n.target._schema.is_mutable
        for n in graph.graph.nodes
    )
    (update,) = graph.meta["signature"].updates
    assert update.seen_by == "version"
