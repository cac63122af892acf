"""Under `DistributedDataParallel` a graph is cut where buckets of gradients are full, if a cut changes nothing there."""

from __future__ import annotations

import copy
import types

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import course_lib as cl
from course_lib import events

needs_gloo = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="torch has no gloo here"
)


@pytest.fixture
def alone():
    """A group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def tiny_buckets(monkeypatch):
    """As if a DDP module ran whose buckets are full at once: a cut wherever one is allowed."""
    monkeypatch.setattr(
        DistributedDataParallel, "_active_ddp_module", types.SimpleNamespace(bucket_bytes_cap=0)
    )


def layers(count=4, width=512):
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(count)))


def pieces_of(trace):
    return len(trace.of(events.JointTraced))


@needs_gloo
@pytest.mark.parametrize("mode", ["inside", "around", "dynamic"])
def test_gradients_under_ddp_are_eagers(alone, mode):
    wrap = {
        "inside": lambda m: DistributedDataParallel(cl.compile(m), bucket_cap_mb=1),
        "around": lambda m: cl.compile(DistributedDataParallel(m, bucket_cap_mb=1)),
        "dynamic": lambda m: DistributedDataParallel(cl.compile(m, dynamic=True), bucket_cap_mb=1),
    }[mode]
    eager = layers()
    with cl.record() as trace:
        model = wrap(copy.deepcopy(eager))
        for rows in (8, 8):
            x = torch.randn(rows, 512)
            eager(x).square().mean().backward()
            model(x).square().mean().backward()
    assert pieces_of(trace) == 4  # a layer is 1 MB of weights
    for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)


@needs_gloo
def test_a_bucket_is_sent_before_the_first_piece_runs_backward(alone):
    told = []

    def send(_, bucket):
        told.append("send")
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model = DistributedDataParallel(cl.compile(layers()), bucket_cap_mb=1)
    model.register_comm_hook(None, send)
    for _ in range(2):  # buckets are laid out anew after the first backward
        told.clear()
        x = torch.randn(8, 512, requires_grad=True)
        x.register_hook(lambda _: told.append("the input's gradient"))
        model(x).square().mean().backward()
    assert told.index("the input's gradient") >= 3 and told.count("send") >= 4


def test_without_ddp_a_graph_is_one_piece():
    with cl.record() as trace:
        cl.compile(layers())(torch.randn(8, 512)).sum().backward()
    assert pieces_of(trace) == 1


def run_in_pieces(function, *inputs):
    """Forward and backward, compiled and in eager, in fresh copies of the inputs; how many pieces the graph was cut into."""

    def gradients(call):
        args = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
        results = call(*args)
        results.float().square().sum().backward()
        return [
            results.detach(),
            *(x.detach() for x in args),
            *(x.grad for x in args if x.is_leaf and x.requires_grad),
        ]

    expected = gradients(function)
    with cl.record() as trace:
        found = gradients(cl.compile(function, fullgraph=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    return pieces_of(trace)


def leaf(*shape):
    return torch.randn(shape).requires_grad_()


def test_each_operation_may_be_a_piece(tiny_buckets):
    assert run_in_pieces(lambda x, w: F.gelu(x @ w).softmax(-1), leaf(4, 8), leaf(8, 8)) == 3


def test_a_value_is_not_cut_from_a_later_write_to_it(tiny_buckets):
    def f(x):
        y = x * 2
        z = y.exp()
        y[0] = 1.0
        return (y + z).sin()

    assert run_in_pieces(f, leaf(4, 8)) == 3  # [*, exp, write], [+], [sin]


def test_an_input_is_written_to_in_one_piece_and_gets_a_gradient_for_the_next(tiny_buckets):
    def f(x, buffer):
        buffer.copy_(x.sum(0))
        return buffer * x

    assert run_in_pieces(f, leaf(4, 6), torch.zeros(6)) == 2  # [sum, write], [*]


def test_a_region_without_gradients_is_in_one_piece(tiny_buckets):
    def f(x):
        with torch.no_grad():
            scale = x.mean().exp()
            scale = scale + 1
        return (x * scale).sin()

    # [the region, *], [sin]: the first has no parameter but for `x`
    assert run_in_pieces(f, leaf(4, 6)) == 2


def test_what_switches_autocast_is_one_piece(tiny_buckets):
    def f(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ w
        return y.float().sin()

    assert run_in_pieces(f, leaf(4, 6), leaf(6, 6)) == 1


def test_a_tuple_of_results_is_not_cut_from_its_parts(tiny_buckets):
    def f(x):
        a, b = x.chunk(2, -1)
        return a.sin() * b.cos()

    assert run_in_pieces(f, leaf(4, 6)) == 4  # [chunk and its parts], [sin], [cos], [*]


class Detached(nn.Module):
    """A layer whose result is only looked at."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x):
        aside = self.layers[0](x)
        return self.layers[2](self.layers[1](x)) + aside.detach()


def test_a_parameter_without_gradient_has_none_though_its_piece_ends_in_one(tiny_buckets):
    torch.manual_seed(0)
    eager = Detached()
    ours = copy.deepcopy(eager)
    x = torch.randn(4, 16)
    eager(x).square().mean().backward()
    with cl.record() as trace:
        cl.compile(ours)(x).square().mean().backward()
    assert pieces_of(trace) > 1
    for name, parameter in ours.named_parameters():
        expected = eager.get_parameter(name).grad
        assert (parameter.grad is None) == (expected is None), name
        torch.testing.assert_close(parameter.grad, expected)


def test_a_gradient_flows_into_what_was_written_in_place(tiny_buckets):
    def f(x, w):
        y = x * 2
        factor = w.exp()
        y.mul_(factor)
        return y.sin()

    assert run_in_pieces(f, leaf(4, 6), leaf(6)) > 1


def test_attention_and_sizes_are_no_reason_not_to_cut(alone):
    layer = nn.TransformerEncoderLayer(64, 4, 128, 0.0, batch_first=True)
    with cl.record() as trace:
        DistributedDataParallel(cl.compile(layer), bucket_cap_mb=0.02)(
            torch.randn(2, 8, 64)
        ).sum().backward()
    assert pieces_of(trace) > 1

    class Reshaped(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

        def forward(self, x):
            b = x.shape[0]
            for layer in self.layers:
                x = layer(x.reshape(b * 2, 32).reshape(b, 64))
            return x / (b * 2 + 1)

    with cl.record() as trace:
        DistributedDataParallel(cl.compile(Reshaped(), dynamic=True), bucket_cap_mb=0.01)(
            torch.randn(4, 64)
        ).sum().backward()
    assert pieces_of(trace) == 3

    # one compile, for all sizes
    eager = Reshaped()
    with cl.record() as trace:
        model = DistributedDataParallel(
            cl.compile(copy.deepcopy(eager), dynamic=True), bucket_cap_mb=0.01
        )
        for rows in (4, 6, 3, 32):
            x = torch.randn(rows, 64)
            for each in (eager, model):
                each.zero_grad()
                each(x).square().mean().backward()
            for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert not [event.why for event in trace.of(events.SizesAreNumbers)]
    assert pieces_of(trace) == 3


def test_what_comes_before_the_first_parameter_is_no_piece(alone):
    model = nn.Sequential(nn.Tanh(), nn.Sigmoid(), *(nn.Linear(64, 64) for _ in range(3)))
    with cl.record() as trace:
        DistributedDataParallel(cl.compile(model), bucket_cap_mb=0.01)(
            torch.randn(4, 64)
        ).sum().backward()
    assert pieces_of(trace) == 3
