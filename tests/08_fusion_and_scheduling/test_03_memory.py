"""Where buffers live: in place, reused, freed."""

from __future__ import annotations

import copy

import pytest
import torch
from aten_graphs import agree, lowered
from torch import nn

import course_lib as cl
from course_lib.scheduling import plan, schedule
from course_lib.scheduling.memory import peak_bytes
from course_lib.viz.pictures.scheduling.memory_timeline import MemoryUse


def planned(function, *inputs):
    graph = lowered(function, *inputs)
    result = schedule(graph)
    return result, plan(result, graph), graph


def used(function, *inputs):
    return MemoryUse(*planned(function, *inputs)[:2])


def test_a_kernel_writes_over_an_operand_that_nobody_needs_any_more():
    result, memory, _ = planned(lambda x: (x @ x).relu(), torch.empty(8, 8))
    assert result.kernels[1].in_place == {"buf1": "buf0"}
    assert memory.place == {"buf0": "buf0", "buf1": "buf0"}


PEAKS = {
    "one matrix": (lambda x: (x @ x).relu(), 1),
    "two at one time": (lambda x: (x @ x) @ (x.sin() @ x), 3),
    "one after another": (lambda x: (((x @ x) @ x) @ x) @ x, 2),
}


@pytest.mark.parametrize("name", PEAKS)
def test_the_most_bytes_that_a_program_holds(name):
    """In matrices of 8 x 8 numbers of float32: 256 bytes each."""
    function, matrices = PEAKS[name]
    result, memory, _ = planned(function, torch.empty(8, 8))
    assert peak_bytes(memory) == 256 * matrices
    assert peak_bytes(memory) == max(MemoryUse(result, memory).live_bytes), (
        "the picture says the same"
    )


def test_but_never_over_an_input_or_a_constant():
    weight = torch.randn(8, 8)
    for f in (lambda x: x + 1, lambda x: x * weight):
        result, _, _ = planned(f, torch.empty(8, 8))
        assert result.kernels[0].in_place == {}


def test_nor_over_what_is_returned_or_read_later():
    result, _, _ = planned(lambda x: (lambda y: (y, y.relu()))(x @ x), torch.empty(8, 8))
    assert result.kernels[1].in_place == {}
    result, _, _ = planned(lambda x: (lambda y: y.relu() @ y)(x @ x), torch.empty(8, 8))
    assert result.kernels[1].in_place == {}


def test_nor_over_an_operand_that_is_read_at_another_place():
    result, _, _ = planned(lambda x: (x @ x).flip(0), torch.empty(8, 8))
    assert result.kernels[1].in_place == {}
    agree(lambda x: (x @ x).flip(0) * 2, torch.randn(8, 8))
    agree(lambda x: (x @ x).t().exp().contiguous(), torch.randn(8, 8))


def test_a_softmax_over_its_own_scores():
    result, _, _ = planned(lambda q: (q @ q).softmax(-1) @ q, torch.empty(8, 8))
    assert result.kernels[1].in_place == {"buf5": "buf0"}
    agree(lambda q: (q @ q).softmax(-1) @ q, torch.randn(8, 8))


def test_tiny_block_works_in_two_buffers():
    class TinyBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

        def forward(self, x):
            return x + self.down(nn.functional.gelu(self.up(self.ln(x))) * 1.41421356 + 0.01)

    x = torch.randn(4, 8, 16)
    result, memory, _ = planned(TinyBlock(), x)
    _, up, gelu, down, residual = result.kernels
    assert list(gelu.in_place.values()) == [up.buffers[0].name]
    assert list(residual.in_place.values()) == [down.buffers[0].name]
    assert len(set(memory.place.values())) == 2
    use = MemoryUse(result, memory)
    assert use.peak_bytes == 4 * (4 * 8 * 16 + 4 * 8 * 64)
    assert use.unplanned_peak == 2 * 4 * 4 * 8 * 64


def test_freed_memory_of_the_same_size_is_used_again():
    def f(x):
        for _ in range(4):
            x = (x @ x).relu().cumsum(0)
        return x

    _, memory, _ = planned(f, torch.empty(8, 8))
    assert len(set(memory.place.values())) < len(memory.place) / 2
    assert {a.how for a in memory.allocations} == {"new", "in place", "reuse"}
    agree(f, torch.randn(8, 8) * 0.1)


def test_memory_is_freed_after_the_last_kernel_that_needs_it():
    result, memory, graph = planned(lambda x: (x @ x).sum(1), torch.empty(8, 8))
    assert memory.free_after == [(), ("buf0",)]
    assert MemoryUse(result, memory).live_bytes == [256, 288]
    assert graph.outputs[0].buffer.name == "buf1"


def test_the_use_of_memory_prints_as_a_table():
    assert str(used(lambda x: (x @ x).relu(), torch.empty(8, 8))).splitlines() == [
        "     256 B  aten.mm.default (extern): buf0 in buf0",
        "     256 B  relu over [64]: buf1 in place of buf0",
        "peak 256 B, unfused 512 B",
    ]


# What a program writes to its inputs


class Calls:
    """Torch's own operators that run meanwhile. (A dispatch mode would not do: under one, everything runs in eager.)"""

    def __enter__(self):
        self.profile = torch.autograd.profiler.profile()
        self.profile.__enter__()
        return self

    def __exit__(self, *error):
        self.profile.__exit__(*error)
        names = [event.name for event in self.profile.function_events]
        self.seen = [name for name in names if name.startswith("aten::")]


@torch.no_grad()
def adam(p, g, m, v):
    m.lerp_(g, 0.1)
    v.mul_(0.999).addcmul_(g, g, value=0.001)
    p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.001)


def compiled_step(function, *inputs):
    """The compiled function after one call, and the plan of its memory."""
    step = cl.compile(function)
    with cl.record() as trace:
        step(*inputs)
    (planned,) = trace.of(cl.events.MemoryPlanned)
    (scheduled,) = trace.of(cl.events.Scheduled)
    return step, planned.plan, scheduled.schedule


def test_an_optimizer_writes_where_its_parameters_are():
    """Four tensors are read and three written, 7 times their bytes; nothing is allocated and nothing is copied."""
    ours = [torch.rand(100, 33) for _ in range(4)]
    eager = [t.clone() for t in ours]
    step, plan, schedule = compiled_step(adam, *ours)
    assert [a.how for a in plan.allocations] == ["in place"] * 3
    assert schedule.bytes_after == 7 * 100 * 33 * 4
    places, versions = [t.data_ptr() for t in ours], [t._version for t in ours]
    with Calls() as calls:
        step(*ours)
    assert calls.seen == []
    assert [t.data_ptr() for t in ours] == places
    assert [t._version - before for t, before in zip(ours, versions, strict=True)] == [1, 0, 1, 1]
    adam(*eager), adam(*eager)
    torch.testing.assert_close(ours, eager)


def test_an_input_that_is_also_another_is_not_written_in_place():
    base = torch.rand(100)
    step, _, _ = compiled_step(adam, *(torch.rand(90) for _ in range(4)))
    ours, eager = base.clone(), base.clone()
    for run, memory in ((step, ours), (adam, eager)):
        run(memory[:90], memory[10:], *(torch.full((90,), n) for n in (0.25, 0.5)))
    torch.testing.assert_close(ours, eager)


def read_again_by_the_library(x, y):
    old = x.clone()
    x.mul_(2)
    return old @ y


def read_elsewhere(x, y):
    x.copy_(x.flip(0) + y)


def returned_as_well(x, y):
    new = x + y
    x.copy_(new)
    return new


def written_twice(x, y):
    new = x + y
    x.copy_(new)
    y.copy_(new)


@pytest.mark.parametrize(
    "function", [read_again_by_the_library, read_elsewhere, returned_as_well, written_twice]
)
def test_what_else_needs_the_old_values_or_the_new_ones(function):
    ours, eager = ([torch.arange(64.0).view(8, 8), torch.eye(8)] for _ in range(2))
    step, _, _ = compiled_step(function, *(t.clone() for t in ours))
    got, want = step(*ours), function(*eager)
    torch.testing.assert_close((got, ours), (want, eager))
    if got is not None:
        got.zero_()
    torch.testing.assert_close(ours, eager)


def test_what_a_row_reads_once_is_written_over_by_its_result():
    """Running statistics: read before the columns of their row, written behind them, by forward's own kernels."""
    eager = nn.Sequential(nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8))
    model = copy.deepcopy(eager)
    compiled = cl.compile(model)
    with cl.record() as trace:
        compiled(torch.randn(2, 3, 4, 4)).sum().backward()
    (forward, *_) = (event.plan for event in trace.of(cl.events.MemoryPlanned))
    written = {
        storage
        for storage in forward.place.values()
        if "running" in storage or "batches" in storage
    }
    assert written == {
        f"self_1_{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    compiled(x := torch.randn(2, 3, 4, 4)).sum().backward()
    model.load_state_dict(eager.state_dict())
    with Calls() as calls:
        compiled(x)
    assert torch.ops.aten.copy_.default not in calls.seen
    eager(x)
    torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))


def each_column_reads_it(x, y):
    y.copy_((x * y[:, None]).sum(1))


def each_column_reads_it_later(x, y):
    new = x.sum(1) + y
    both = (x * y[:, None] * new[:, None]).sum(1)
    y.copy_(new)
    return both


def each_row_reads_it_later(x, y):
    new = x.sum(1)
    both = (x - new[:, None]).exp().sum(1) + y
    y.copy_(new)
    return both


@pytest.mark.parametrize(
    "function", [each_column_reads_it, each_column_reads_it_later, each_row_reads_it_later]
)
@pytest.mark.parametrize("codegen", ["cpp", "triton"])
def test_what_a_row_s_columns_read_is_there_until_they_have_run(function, codegen):
    step = cl.compile(function, options={"codegen": codegen})
    ours, eager = ([torch.rand(40, 70), torch.rand(40)] for _ in range(2))
    eager = [t.clone() for t in ours]
    for _ in range(2):
        torch.testing.assert_close((step(*ours), ours), (function(*eager), eager))


def test_a_buffer_that_backward_needs_is_not_written_by_a_kernel():
    """Autograd compares versions: what is kept must be what it was when it was kept."""

    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.ones(4))
            self.weight = nn.Parameter(torch.linspace(1, 2, 4))

        def forward(self, x):
            with torch.no_grad():
                self.mean.mul_(0.5).add_(x.mean(0), alpha=0.1)
            return (self.weight * self.mean * x).sin()

    eager = Scaled()
    model = copy.deepcopy(eager)
    compiled = cl.compile(model, fullgraph=True)
    for _ in range(3):
        x = torch.randn(3, 4)
        compiled(x).sum().backward(), eager(x).sum().backward()
        torch.testing.assert_close((model.mean, model.weight.grad), (eager.mean, eager.weight.grad))
