"""The order of kernels, and what is left out or computed again."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import torch
from aten_graphs import agree, lowered, names, scheduled
from torch import nn

from course_lib.codegen.cpp import cpp_source
from course_lib.lowering import ExternKernel
from course_lib.scheduling import Fuse, FusedKernel, can_fuse, schedule, split_reductions
from course_lib.scheduling.fusion import LAUNCH
from course_lib.scheduling.merging import Fusion


def test_what_nobody_needs_is_removed():
    def f(x):
        x.sum()
        x.exp().sin()
        return x + 1

    gm_keeps_dead_code = lowered(f, torch.empty(4))
    result = schedule(gm_keeps_dead_code)
    assert names(result) == ["add over [4]"]
    assert all("nobody needs it" in line for line in result.removed)


def test_asking_late_gives_the_kernels_of_asking_about_all(monkeypatch):
    """A pair is asked when the most that it could save is its turn: as if all were asked first and sorted."""

    def ask_all(self: Fusion) -> None:
        while True:
            self.order.note_what_is_before()
            answers = [(a, b, self.ask(a, b)) for a, b in self.pairs()]
            wanted = [(a, b, answer) for a, b, answer in answers if isinstance(answer, Fuse)]
            wanted.sort(key=lambda pair: (-pair[2].saved, pair[0].positions, pair[1].positions))
            gone: set[object] = set()
            for a, b, answer in wanted:
                if a not in gone and b not in gone and not self.order.between(a, b):
                    self.fuse(a, b, answer)
                    gone |= {a, b}
            if not gone:
                return

    def norms(x, w, b):
        y = nn.functional.layer_norm(x, x.shape[-1:], w, b)
        z = (y.sigmoid() * x).softmax(-1) + y.sum(0)
        return z, (z.t() * 2).exp().sum(1), (x * w).mean(), z.cos() + x.sin()

    graph = lambda: lowered(norms, torch.empty(16, 24), torch.empty(24), torch.empty(24))
    asked = []

    def counting(a, b):
        asked.append((a, b))
        return can_fuse(a, b)

    late = schedule(graph(), counting)
    few = len(asked)
    monkeypatch.setattr(Fusion, "run", ask_all)
    all_at_once = schedule(graph(), counting)
    assert str(late) == str(all_at_once) and [*map(str, late.decisions)] == [
        *map(str, all_at_once.decisions)
    ]
    assert few < len(asked) - few


def test_what_was_computed_twice_is_told():
    result = scheduled(lambda x: x.exp() + x.exp() * 2, torch.empty(4))
    assert result.removed == ["exp_1 (same as exp)"]


def test_what_is_computed_again_keeps_plain_indices():
    """Rotary embedding of a part of each head: six loops in one, each read through slices of the one before."""

    def rotate(x):
        return torch.cat((-x[..., 4:], x[..., :4]), -1)

    def rope(q, cos, sin):
        q = q.view(2, 16, 4, 16).transpose(1, 2)
        r, rest = q[..., :8], q[..., 8:]
        return torch.cat((r * cos + rotate(r) * sin, rest), -1)

    inputs = torch.randn(2, 16, 64), torch.randn(16, 8), torch.randn(16, 8)
    (kernel,) = schedule(agree(rope, *inputs)).kernels
    assert isinstance(kernel, FusedKernel)
    source = cpp_source(kernel, lowered(rope, *inputs).buffers).source
    assert "/" not in re.sub("//.*", "", source) and "%" not in source and len(source) < 2000


def test_each_kernel_comes_after_those_it_needs():
    def f(x, w):
        a = (x @ w).relu()
        b = (x.exp() @ w) + a
        return (a @ b).sum(0) + x.sum(1)

    graph = lowered(f, torch.randn(6, 6), torch.randn(6, 6))
    agree(f, torch.randn(6, 6), torch.randn(6, 6))
    known = {b.name for b in graph.inputs}
    for kernel in schedule(graph).kernels:
        if isinstance(kernel, FusedKernel):
            assert kernel.reads <= known
            known |= kernel.stores
        else:
            known |= {b.name for b in kernel.buffers}


def test_a_cheap_mask_is_computed_where_it_is_read():
    def f(scores):
        keep = torch.arange(16).unsqueeze(0) <= torch.arange(16).unsqueeze(1)
        return scores.masked_fill(~keep, float("-inf")).softmax(-1)

    result = scheduled(f, torch.empty(4, 2, 16, 16))
    assert len(result.kernels) == 1 and len(result.inlined) == 2
    assert result.inlined[0] == "le over [16, 16]: cheap to compute again where it is read"
    agree(f, torch.randn(4, 2, 16, 16))


def test_what_was_computed_elsewhere_is_no_origin_of_a_loop():
    """The mask comes from a chain of two cheap loops; the product that stands apart has nothing to do with it."""

    def f(scores, x, y):
        keep = torch.arange(16).unsqueeze(0) <= torch.arange(16).unsqueeze(1)
        return scores.masked_fill(~keep, float("-inf")).softmax(-1), (x * y).cumsum(0)

    result = scheduled(f, torch.empty(4, 2, 16, 16), torch.empty(5), torch.empty(5))
    origins = [
        {origin.target.__name__ for n in kernel.nodes for origin in n.origins}
        for kernel in result.fused
    ]
    assert len(result.inlined) == 2
    (masked,) = [names for names in origins if "le.Tensor" in names]
    assert "bitwise_not.default" in masked and "mul.Tensor" not in masked
    (apart,) = [names for names in origins if "mul.Tensor" in names]
    assert apart == {"mul.Tensor"}


def test_a_dear_loop_is_stored_instead():
    def f(x, y):
        return y * x.exp().erf()

    result = scheduled(f, torch.empty(16), torch.empty(100, 16))
    assert names(result) == ["exp·erf over [16]", "mul over [100, 16]"] and not result.inlined


def test_shifted_reads_of_a_cheap_loop_need_no_buffer():
    def f(x):
        y = x * 2
        return y[1:] - y[:-1]

    result = scheduled(f, torch.empty(100))
    assert len(result.kernels) == 1
    agree(f, torch.randn(100))


def test_random_numbers_come_in_the_order_of_the_program():
    def f(x):
        b = torch.rand(4) * x
        a = torch.randn(4) + x
        return a, b

    result = scheduled(f, torch.empty(4))
    order = [str(k.op) for k in result.kernels if isinstance(k, ExternKernel)]
    assert order == ["aten.rand.default", "aten.randn.default"]


def test_the_same_program_gives_the_same_schedule():
    x = torch.randn(8, 8)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    once, again = scheduled(model, x[None]), scheduled(model, x[None])
    assert str(once) == str(again) and [str(d) for d in once.decisions] == [
        str(d) for d in again.decisions
    ]


def test_a_transformer_layer():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True).eval()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        agree(layer, torch.randn(2, 5, 16))
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def test_the_schedule_prints_as_a_table():
    lines = str(scheduled(lambda x: (x @ x).relu() + 1, torch.empty(10, 10))).splitlines()
    assert lines == [
        " 800 bytes  aten.mm.default (extern)",
        " 800 bytes  relu·add over [100]",
        "    1.6 KB  in all, instead of 2.4 KB",
    ]


def test_one_element_and_none():
    agree(lambda x: (x + 1).sum() * 2, torch.randn(1))
    agree(lambda x: ((x + 1).sum(1) * 2, x.exp()), torch.zeros(0, 3))
    agree(lambda x: (x + 1).relu(), torch.tensor(3.0))


def test_sums_over_rows_run_along_with_what_reduces_columns():
    """The backward of a norm: one kernel, and neither of its operands is read twice."""

    def backward(g, x, w):
        product = g * w
        return product - x * (product * x).mean(-1, keepdim=True), (g * x).sum(0), g.sum(0)

    result = scheduled(backward, torch.empty(64, 24), torch.empty(64, 24), torch.empty(24))
    (kernel,) = result.kernels
    assert [step.level for step in kernel.steps if step.is_reduction] == [
        "column",
        "across",
        "across",
    ]
    assert result.bytes_after == 3 * 64 * 24 * 4 + 3 * 24 * 4


def test_what_is_hardly_read_is_computed_where_it_is_read():
    """Cross entropy reads one log-probability of each row: none of the others reaches memory."""

    def loss(logits, labels):
        return -torch.log_softmax(logits, -1).gather(1, labels[:, None]).sum()

    result = schedule(agree(loss, torch.randn(32, 500), torch.randint(0, 500, (32,))))
    assert any("only a few of its elements" in line for line in result.inlined)
    assert result.bytes_after < 2 * 32 * 500 * 4


def test_what_is_read_in_part_and_returned_is_stored():
    def f(x):
        y = x * 2 + 1
        return y, y[:2].relu()

    assert schedule(agree(f, torch.randn(64, 8))).inlined == []


def test_nothing_is_little_to_read_of_nothing():
    """Of no elements none is read: that is not "hardly any", and scheduling comes to an end."""

    def f(x):
        wide = x * 2 + 1
        return wide[..., :1].relu() + 1

    assert not any(
        "only a few" in line for line in schedule(agree(f, torch.randn(0, 8, 64))).inlined
    )


def in_two_steps(function, *inputs):
    """A graph whose long reductions are split, as for a GPU."""
    return split_reductions(lowered(function, *inputs), lambda buffer: True)


def normalized_backward(x, m, g):
    """Sums down the columns of the difference, and the difference itself, in the shape of a batch norm's backward."""
    apart = x - m
    total = (apart * g).sum(0)
    return g - apart * total


def test_what_is_as_large_as_that_which_it_is_made_of_is_not_stored():
    """`x - m` is needed by two kernels; the second reads `x`, which takes no longer than to read the difference."""
    inputs = torch.randn(2048, 64), torch.randn(64), torch.randn(2048, 64)
    result = schedule(in_two_steps(normalized_backward, *inputs))
    first, _, last = result.kernels
    assert [b.name for b in first.buffers] == ["buf2_parts"] and "buf0" not in last.reads
    moved = 4 * 2048 * 64
    assert result.bytes_after < 5.2 * moved  # four reads and a write; it would be one write more
    agree(normalized_backward, *inputs)


def test_but_it_is_stored_for_a_call_of_the_library():
    def multiplied(x, m, g):
        apart = x - m
        return (apart * g).sum(0), apart @ apart.t()

    inputs = torch.randn(2048, 64), torch.randn(64), torch.randn(2048, 64)
    first = schedule(in_two_steps(multiplied, *inputs)).kernels[0]
    assert [b.name for b in first.buffers] == ["buf0", "buf2_parts"]
    agree(multiplied, *inputs)


def on_a_gpu(graph):
    """The graph as if its buffers were there: nothing of it is run."""
    for node in graph.nodes:
        node.buffer = replace(node.buffer, device=torch.device("cuda"))
    return graph


def test_small_kernels_start_together_on_a_gpu():
    """Counters of three batch norms, say: nothing is shared, but a start takes longer than the work."""
    counters = lambda a, b, c: (a + 1, b + 1, c + 1)
    small = [torch.zeros(8, dtype=torch.int64) for _ in range(3)]
    assert len(scheduled(counters, *small).kernels) == 3
    assert len(schedule(on_a_gpu(lowered(counters, *small))).kernels) == 1
    large = [torch.empty(2**20) for _ in range(3)]
    assert len(schedule(on_a_gpu(lowered(counters, *large))).kernels) == 3


def test_small_kernels_that_share_nothing_come_after_those_that_do():
    """A start that is spared is counted as many bytes, but such a pair waits until all traffic is saved."""
    two_of_each = lambda x, y: (x + 1, y + 1, x * 2, y * 2)
    vectors = torch.empty(64), torch.empty(64)
    result = schedule(on_a_gpu(lowered(two_of_each, *vectors)))

    fused = [
        decision.answer.saved for decision in result.decisions if isinstance(decision.answer, Fuse)
    ]
    read_once = 64 * 4
    assert fused == [read_once, read_once, LAUNCH]


def test_small_kernels_that_need_each_other_do_not():
    chain = lambda x: ((x.sum(0) * 2)[:, None] * x.t()).sum(0)
    graph = on_a_gpu(lowered(chain, torch.empty(16, 16)))
    result = schedule(graph)
    for kernel, later in pairwise(result.kernels):
        assert not {b.name for b in later.buffers} & kernel.reads
