"""Where buffers live: in place, reused, freed."""

from __future__ import annotations

import torch
from aten_graphs import agree, lowered
from torch import nn

from course_lib.scheduling import plan, schedule
from course_lib.viz.memory import MemoryUse


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
        " 256 bytes  aten.mm.default (extern): buf0 in buf0",
        " 256 bytes  relu over [64]: buf1 in place of buf0",
        "peak 256 bytes, unfused 512 bytes",
    ]
