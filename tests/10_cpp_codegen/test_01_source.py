"""What the generated C++ looks like: loops, phases, SIMD, threads; short enough to be read."""

from __future__ import annotations

import re

import pytest
import torch
from hand_kernels import Hand, gelu_chain, layer_norm, softmax
from run_kernels import check

import course_lib as cl
from course_lib.codegen.cpp import cpp_source


def source(case):
    return cpp_source(*case).source


def loops(text):
    return re.findall(r"for \(int64_t (\w+) = (\w+); \w+ < ([^;]+);", text)


def test_a_pointwise_kernel_is_one_loop():
    k = Hand([120])
    x, y = k.read("x", [120]), k.read("y", [120])
    k.point("out", lambda ops, i: ops.add(x.load(ops, i), y.load(ops, i)), store=True)
    assert cpp_source(*k.build()).source == (
        'extern "C" void fused(void** buffers) {\n'
        "  const float* __restrict x = (const float*)buffers[0];\n"
        "  const float* __restrict y = (const float*)buffers[1];\n"
        "  float* __restrict out = (float*)buffers[2];\n"
        "  #pragma omp simd\n"
        "  for (int64_t i = 0; i < 120; i++) {\n"
        "    out[i] = x[i] + y[i];" + " " * 49 + "// out\n"
        "  }\n"
        "}\n"
    )


@pytest.mark.parametrize(
    ("filename", "told"),
    [("/home/me/model.py", "model.py"), ("/tmp/ipykernel_7/2028936945.py", "this notebook")],
)
def test_a_comment_names_the_line_of_the_program(filename, told):
    names = {"torch": torch}
    exec(compile("def f(x):\n    return torch.sin(x) * 2", filename, "exec"), names)
    with cl.record() as trace:
        cl.compile(names["f"])(torch.randn(5))
    assert f"// sin ({told}:2)" in str(trace.code(kernel=0))


def test_several_loops_are_numbered():
    assert loops(source(gelu_chain(4, 6))) == [("i0", "0", "4"), ("i1", "0", "6")]


def test_threads_start_from_16k_elements():
    assert "parallel" not in source(gelu_chain(16, 1023))
    assert "#pragma omp parallel for\n" in source(gelu_chain(16, 1024))


def test_layer_norm_is_three_passes_over_a_row_in_one_kernel():
    text = source(layer_norm(128, 768))
    assert loops(text) == [("i", "0", "128"), *[("j", "0", "768")] * 3]
    assert text.count("reduction(+:") == 2
    assert len(text.splitlines()) <= 28


def test_softmax_computes_exp_once():
    """The third pass takes it from a row on the stack."""
    text = source(softmax(64, 512))
    assert text.count("exp(") == 1
    assert "float exp_row[512];" in text


def test_what_is_stored_anyway_is_computed_once_too():
    assert source(softmax(64, 512, store_exp=True)).count("exp(") == 1


def test_a_row_too_long_for_the_stack_is_computed_again():
    text = source(softmax(64, 100_000))
    assert text.count("exp(") == 2
    assert "exp_row" not in text


def test_neighbouring_rows_become_simd_lanes():
    """x.sum(0): along a column the elements are far apart, but 64 columns lie side by side."""
    k = Hand([100], [50], "column_sum")
    x = k.read("x", [50, 100])
    k.reduce("total", "sum", lambda ops, i, j: x.load(ops, [*j, *i]), store=True)
    text = cpp_source(*k.build()).source
    assert "float total_sum[64] = {};" in text
    assert "const int64_t i = first + lane;" in text
    check(*k.build(), {"x": torch.randn(50, 100)})


def test_a_full_sum_is_shared_by_the_threads_in_blocks():
    k = Hand([], [1_000_003], "total")
    x = k.read("x", [1_000_003])
    k.reduce("total", "sum", lambda ops, i, j: x.load(ops, j), store=True)
    text = cpp_source(*k.build()).source
    assert "#pragma omp parallel for reduction(+: " in text
    assert "double" in text


def test_beside_argmax_a_sum_stays_exact():
    """The first of equals wins, so columns come one after the other; the sum still goes in blocks."""
    k = Hand([], [100_003])
    x = k.read("x", [100_003])
    k.reduce("total", "sum", lambda ops, i, j: x.load(ops, j), store=True)
    k.reduce("where", "argmax", lambda ops, i, j: x.load(ops, j), store=True, dtype=torch.int64)
    text = cpp_source(*k.build()).source
    assert "total_sum += total_sum_part" in text
    assert "#pragma" not in text
    check(*k.build(), {"x": torch.rand(100_003)})


def test_half_precision_is_computed_in_float():
    text = source(gelu_chain(8, 8, dtype=torch.bfloat16))
    assert "const bfloat16* __restrict x" in text
    assert "(float)x[8*i0 + i1]" in text
    assert "const float gelu = " in text


def test_in_place_uses_one_piece_of_memory():
    k = Hand([10])
    x = k.read("x", [10])
    k.point("out", lambda ops, i: ops.exp(x.load(ops, i)), store=True)
    printed = cpp_source(*k.build(in_place={"out": "x"}))
    assert printed.buffers == ("x",)
    assert "float* out = (float*)buffers[0];  // in place of x" in printed.source
    assert "__restrict" not in printed.source


def test_every_line_of_the_body_knows_its_step():
    printed = cpp_source(*layer_norm(128, 768))
    lines = printed.source.splitlines()
    said = {n: step.node.label for n, step in printed.line_of.items()}
    assert said[next(n for n, line in enumerate(lines, 1) if "rsqrt(" in line)] == "rstd"
    assert set(said.values()) == {"sum", "mean", "centred", "squares", "rstd", "layer_norm"}


def test_the_text_is_the_same_on_every_machine(monkeypatch):
    here = source(softmax(64, 512))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 96)
    monkeypatch.setattr("os.cpu_count", lambda: 96)
    assert source(softmax(64, 512)) == here


@pytest.mark.parametrize("name", ["float", "for", "exp", "i", "a b", "1st", "problem", "x"])
def test_any_name_becomes_a_good_identifier(name):
    k = Hand([10])
    x = k.read("x", [10])
    k.point(name if name != "x" else "x_", lambda ops, i: ops.exp(x.load(ops, i)), store=True)
    check(*k.build(), {"x": torch.randn(10)}, rtol=1e-5)
