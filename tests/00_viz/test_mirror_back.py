"""The mirror's second half: kernels, bytes and results of both compilers; and the four combinations of halves."""

from __future__ import annotations

import shutil

import pytest
import torch

import course_lib as cl
from course_lib.bench.models import TinyBlock
from course_lib.viz.mirror.back import (
    COMBINATIONS,
    NOT_AVAILABLE,
    Trial,
    ablation,
    kernels_in,
    their_half,
)

needs_cxx = pytest.mark.skipif(not shutil.which("g++"), reason="both compilers need g++")

CODE = """
async_compile = AsyncCompile()
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], '''...''')
def call(args):
    buf0 = empty_strided_cpu((8, 1), (1, 8), torch.float32)
    extern_kernels.addmm(primals_5, buf4, out=buf0)
    cpp_fused_add_0(buf0, buf1)
    triton_poi_fused_mul_1.run(buf1, 8, stream=stream0)
    buf3 = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default(buf1)
    return (buf1, )

runner = Runner(partitions=[])
    cpp_fused_never_2(buf0)
"""


def test_kernels_are_read_from_the_call_in_generated_code():
    names = "extern_kernels.addmm cpp_fused_add_0 triton_poi_fused_mul_1 torch.ops.aten._scaled_dot_product_flash_attention_for_cpu"
    assert kernels_in(CODE) == names.split()


def test_a_trial_gives_gradients_of_arguments_and_parameters_and_leaves_them_alone():
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3, requires_grad=True)
    result, gradients = Trial(model, (x,), {}, train=True).run(lambda f: f)
    assert result.shape == (4, 2) and [tuple(g.shape) for g in gradients] == [(4, 3), (2, 3), (2,)]
    assert x.grad is None and model.weight.grad is None


def test_where_torch_has_no_such_ways_it_says_not_available(monkeypatch):
    import torch._inductor.utils as utils

    monkeypatch.delattr(utils, "run_and_get_code")
    trial, calls = Trial(lambda x: x + 1, (torch.ones(3),), {}), {}
    monkeypatch.setattr(torch, "compile", lambda f: f)
    half = their_half(trial, torch.ones(3) + 1, calls)
    assert (
        half.cells()[:2] == [NOT_AVAILABLE, NOT_AVAILABLE]
        and half.answer == "as eager"
        and "torch.compile" in calls
    )


def test_guards_are_there_in_both_dialects():
    both = cl.mirror(lambda x: x * 2, torch.randn(3))
    assert any(text.startswith("tensor: ") and "x" in text for text in both.ours.guard_texts)
    assert "TENSOR_MATCH x" in both.theirs.guard_texts
    assert "TENSOR_MATCH x" in both.guards.text


@needs_cxx
@pytest.mark.slow
def test_training_in_both_compilers_has_kernels_bytes_and_the_same_gradients():
    both = cl.mirror(TinyBlock(16, 2), torch.randn(4, 16), train=True)
    halves = both.compiled
    for half in (halves.ours, halves.theirs):
        assert half.answer == "as eager" and half.run_seconds > 0 and half.compile_seconds > 0
        assert len(half.kernels) >= 8 and half.bytes > 4 * 16 * 32 * 4
    assert "gelu" in halves.picture.text and "µs" not in halves.picture.text
    assert both.compiled is halves


@needs_cxx
@pytest.mark.slow
def test_the_four_combinations_of_halves_agree_with_eager():
    told = ablation(lambda x: torch.nn.functional.gelu(x) + x, torch.randn(64))
    assert list(told.answers) == list(COMBINATIONS) and set(told.answers.values()) == {"as eager"}
    assert set(told.seconds) == set(COMBINATIONS) and all(
        took > 0 for took in told.seconds.values()
    )
    assert "against eager" in told.picture.body


def test_a_text_that_is_called_like_a_node_stays_a_text():
    def f(x, index):
        return torch.zeros(3).scatter_reduce(0, index, x, reduce="mean") + x.mean()

    assert "x, reduce=mean)" in str(cl.mirror(f, torch.randn(3), torch.tensor([0, 1, 2])))
