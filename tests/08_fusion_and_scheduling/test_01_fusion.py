"""Which loops become one kernel, what it saves, and the sentence for those that stay apart."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from aten_graphs import agree, always, lowered, names, scheduled
from torch import nn
from torch.nn import functional as F

import course_lib as cl
from course_lib.scheduling import RULES, Fuse, No, can_fuse, schedule
from course_lib.scheduling.fusion import human_bytes
from course_lib.scheduling.products import as_loops, is_product


def reasons(function, *inputs) -> list[str]:
    return [
        d.answer.reason for d in scheduled(function, *inputs).decisions if isinstance(d.answer, No)
    ]


def test_relu_fuses_into_the_loop_before_it_and_saves_one_round_trip():
    result = scheduled(lambda x: (x + 1).relu(), torch.empty(1024, 1024))
    assert names(result) == ["add·relu over [1048576]"]
    assert result.kernels[0].bytes_saved == 2 * 4 * 1024 * 1024
    assert (result.bytes_before, result.bytes_after) == (4 * 4 * 1024 * 1024, 2 * 4 * 1024 * 1024)


def test_a_value_that_somebody_else_needs_is_stored_but_not_read_again():
    result = scheduled(lambda x: (x + 1, (x + 1).relu()), torch.empty(1024))
    (kernel,) = result.kernels
    assert len(kernel.stores) == 2 and kernel.bytes_saved == 4 * 1024


def test_siblings_read_what_they_share_once():
    result = scheduled(lambda x: (x.exp(), x.sin()), torch.empty(1024))
    assert names(result) == ["exp·sin over [1024]"]
    assert result.kernels[0].bytes_saved == 4 * 1024


def test_a_view_between_two_loops_does_not_keep_them_apart():
    def f(x):
        return (x + 1).view(4096, 768) * 2

    assert names(scheduled(f, torch.empty(32, 128, 768))) == ["add·mul over [3145728]"]
    assert names(scheduled(lambda x: (x + 1).t() * 2, torch.empty(64, 32))) == [
        "add·mul over [2048]"
    ]
    assert names(
        scheduled(lambda x: (x + 1).view(6, 4) + (x + 1).view(4, 6).view(6, 4), torch.empty(4, 6))
    ) == ["add over [24]"]


def test_a_bias_keeps_two_loops_where_memory_needs_them():
    result = scheduled(lambda x, b: (x * 2 + b).relu(), torch.empty(32, 128, 768), torch.empty(768))
    assert names(result) == ["mul·add·relu over [4096, 768]"]


def test_a_reduction_takes_in_what_comes_before_and_after():
    result = scheduled(lambda x: (x * 2).sum(-1, keepdim=True).sqrt() + x, torch.empty(64, 100))
    assert names(result) == ["mul·sum·sqrt·add over [64], columns [100]"]
    levels = {step.node.label: step.level for step in result.kernels[0].steps}
    assert levels == {"mul": "column", "sum": "column", "sqrt": "row", "add": "column"}


def test_layer_norm_is_one_kernel_of_rows_and_columns():
    result = scheduled(nn.LayerNorm(768), torch.empty(32, 128, 768))
    assert names(result) == ["mean·var·add·rsqrt·sub·mul over [4096], columns [768]"]
    assert result.bytes_after == 2 * 4 * 32 * 128 * 768 + 2 * 4 * 768


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.softmax(-1),
        lambda x: x.log_softmax(-1),
        lambda x: F.rms_norm(x, (96,)),
        lambda x: F.normalize(x, dim=-1),
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5),
        lambda x: F.group_norm(x, 4),
    ],
)
def test_norms_and_softmaxes_are_one_kernel_and_read_their_input_once(function):
    result = scheduled(function, torch.empty(8, 16, 96))
    assert len(result.kernels) == 1
    assert result.bytes_after == 2 * 4 * 8 * 16 * 96


def test_a_reduction_over_the_first_dimension_has_the_last_as_its_rows():
    result = scheduled(lambda x: (x * 2).sum(0), torch.empty(100, 64))
    assert names(result) == ["mul·sum over [64], columns [100]"]


def test_argmax_is_walked_in_the_order_in_which_it_counts():
    """Of two that are the largest it takes the first; a sum beside it may go along memory."""
    result = scheduled(lambda x: (x.sum(), x.argmax()), torch.empty(170, 6).t())
    assert names(result) == ["sum·argmax over [], columns [6, 170]"]
    assert names(scheduled(lambda x: x.sum(), torch.empty(170, 6).t())) == [
        "sum over [], columns [1020]"
    ]
    x = torch.zeros(170, 6).t()
    x[1, 0] = x[0, 5] = 1
    both = cl.compile(lambda x: (x.sum(), x.argmax(), x.std(1)))
    assert both(x)[1] == 5


def test_several_reductions_of_the_same_rows():
    result = scheduled(lambda x: (x.sum(1), x.amax(1), x.argmax(1)), torch.empty(64, 100))
    assert names(result) == ["sum·amax·argmax over [64], columns [100]"]


def test_tiny_block_as_the_course_promises():
    class TinyBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln, self.up, self.down = (
                nn.LayerNorm(768),
                nn.Linear(768, 3072),
                nn.Linear(3072, 768),
            )

        def forward(self, x):
            return x + self.down(F.gelu(self.up(self.ln(x))) * 1.41421356 + 0.01)

    with torch.device("meta"):
        model, x = TinyBlock(), torch.empty(32, 128, 768)
    result = scheduled(lambda x, *p: torch.func.functional_call(model, dict(zip(dict(model.named_parameters()), p)), (x,)), x,
                       *model.parameters())  # fmt: skip
    assert names(result) == [
        "mean·var·add·rsqrt·sub·mul over [4096], columns [768]",
        "aten.addmm.default (extern)",
        "gelu·mul·add over [12582912]",
        "aten.addmm.default (extern)",
        "add over [3145728]",
    ]


# -- each rule and its sentence --------------------------------------------------------------------------------------------


def test_extern_kernels_stay_alone():
    assert "a library call (GEMM, convolution) cannot take loops in" in reasons(
        lambda x: (x @ x).relu(), torch.empty(8, 8)
    )


def test_products_take_epilogues():
    """(Products are loops only where `max-autotune` asks for them: tests/11_compile_modes/test_08_templates.py)"""
    a, b = torch.empty(20, 64), torch.empty(33, 64)
    graph = lowered(lambda a, b: (a @ b.t()).relu() * (a[:, None] - b[None]).abs().sum(-1), a, b)
    parts = [
        part
        for node in graph.nodes
        for part in (as_loops(node) if is_product(node, "triton") else [node])
    ]
    (said,) = {
        str(d.answer)
        for d in schedule(replace(graph, nodes=parts)).decisions
        if isinstance(d.answer, No)
    }
    assert said.startswith(
        "keep apart: a matrix product takes in loops over its result, not another loop over what it sums"
    )


def test_same_iteration_space():
    said = reasons(lambda x: ((x + 1).amax(0), (x + 1).sum(1)), torch.empty(8, 6))
    assert (
        "loops differ: [8], columns [6] and [6], columns [8]" in said
        or "loops differ: [6], columns [8] and [8], columns [6]" in said
    )


def test_same_elements():
    (said,) = reasons(lambda x: (lambda y: (y, y[1:] * y[:-1]))(x.exp()), torch.empty(9))
    assert said == "loops differ: [9] and [8]"
    (said,) = reasons(lambda x: (lambda y: (y, y.flip(0)))(x.exp()), torch.empty(9))
    assert said == "the consumer needs other elements of buf0 than the one that was just computed"


def test_siblings_share_enough():
    said = reasons(
        lambda x, y, b: (x + b, y * b),
        torch.empty(512, 100),
        torch.empty(512, 100),
        torch.empty(100),
    )
    assert said == ["they only share 400 bytes of what they read"]


def test_one_row_needs_all_threads():
    (said,) = reasons(lambda x: x / x.sum(), torch.empty(1 << 20))
    assert said == "a single row of 1048576 columns would leave all but one thread idle"
    assert len(scheduled(lambda x: x / x.sum(), torch.empty(100)).kernels) == 1
    assert len(scheduled(lambda x: (x * 2).sum().sqrt(), torch.empty(1 << 20)).kernels) == 1


def test_same_innermost_loop():
    (said,) = reasons(lambda x: x.exp().t().contiguous(), torch.empty(64, 32))
    assert said == "one walks through memory row by row, the other column by column"
    assert (
        len(scheduled(lambda x: x.exp().transpose(0, 1).contiguous(), torch.empty(4, 5, 6)).kernels)
        == 1
    )


def test_not_too_long():
    def long(x):
        for n in range(300):
            x = x + n
        return x

    assert any(
        "steps are too many for one kernel" in said for said in reasons(long, torch.empty(8))
    )


def test_no_cycle_between_kernels():
    def f(x):
        y = x + 1
        return y * (y @ y)

    said = reasons(f, torch.empty(8, 8))
    assert (
        "between them runs aten.mm.default (extern), which needs the first and is needed by the second"
        in said
    )


def test_every_rule_is_in_this_file():
    text = Path(__file__).read_text()
    # no second device here; and whoever shares bytes saves bytes
    rare = {"same_device", "something_to_save"}
    assert all(f"def test_{rule.__name__}" in text for rule in RULES if rule.__name__ not in rare)


# -- answers ---------------------------------------------------------------------------------------------------------------


def test_answers_print_as_sentences():
    assert str(Fuse(25_165_824)) == "fuse, saves 25.2 MB"
    assert str(No("loops differ", 1000)) == "keep apart: loops differ (1.0 KB through memory)"
    assert [human_bytes(n) for n in (0, 999, 1000, 12_582_912, 5e9)] == [
        "0 bytes",
        "999 bytes",
        "1.0 KB",
        "12.6 MB",
        "5.0 GB",
    ]


def test_a_group_is_something_to_look_at():
    seen = []

    def watch(producer, consumer):
        seen.append(
            (str(producer), str(consumer), sorted(b.name for b in producer.writes & consumer.reads))
        )
        return can_fuse(producer, consumer)

    scheduled(lambda x: (x + 1).relu().sum(-1), torch.empty(8, 16), can_fuse=watch)
    assert ("add over [128]", "relu over [128]", ["buf0"]) in seen


def test_a_learner_who_says_no_gets_a_kernel_for_each_loop():
    result = scheduled(
        lambda x: (x + 1).relu() * 2, torch.empty(8), can_fuse=lambda a, b: No("not today")
    )
    assert len(result.kernels) == 3
    assert {d.answer.reason for d in result.decisions} == {"not today"}


def test_a_learner_who_always_says_yes_still_gets_right_answers_and_is_told_what_is_not_legal():
    def f(x):
        y = x + 1
        return (y @ y).relu() * y.sum(0) + y.flip(0)

    agree(f, torch.randn(8, 8))
    said = {str(d.answer) for d in scheduled(f, torch.empty(8, 8), can_fuse=always).decisions}
    assert any("a library call" in s for s in said) and any(
        "needs other elements" in s for s in said
    )


def test_the_decisions_that_made_a_kernel_are_remembered():
    result = scheduled(lambda x: (x + 1).relu(), torch.empty(8))
    assert [str(d) for d in result.decisions] == [
        "add over [8] → relu over [8]: fuse, saves 64 bytes"
    ]
    assert [kernel.name for kernel in result.kernels] == ["fused_add_relu"]


def test_steps_keep_where_they_came_from():
    graph = lowered(lambda x: (x + 1).relu(), torch.empty(8))
    assert all(node.origins for node in graph.nodes)


def test_decisions_come_in_the_order_of_the_program():
    """A set of buffers is ordered by the hashes of their names, which differ from process to process: here the names differ."""
    inputs = [torch.empty(16) for _ in range(4)]

    def decisions(n: int) -> tuple[str, ...]:
        a, b, c, d = (f"{letter}{n}" for letter in "abcd")
        f = eval(
            f"lambda {a}, {b}, {c}, {d}: ({a} + {b} + {c} + {d}, {a}[:4].exp(), {b}[:5].exp(), {c}[:6].exp(), {d}[:7] + 1)"
        )
        return tuple(map(str, scheduled(f, *inputs).decisions))

    assert len({decisions(n) for n in range(20)}) == 1
