"""What goes through rows on the stack: float16, and large results that are stored past the caches. Any size, any layout."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from random import Random

import pytest
import random_kernels
import torch
from back_half import compile_function
from hand_kernels import Hand, gelu_chain, layer_norm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_functions import random_function
from run_kernels import check, run

from course_lib.codegen import plan
from course_lib.codegen.cpp import cpp_source, prelude
from course_lib.runtime.compiler import build_library

ANY = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    """All float32 results go past the caches, rows count as long, and threads start early."""
    monkeypatch.setattr(plan, "STREAM_FROM", 0)
    monkeypatch.setattr(plan, "LONG", 0)
    monkeypatch.setattr(plan, "PARALLEL_FROM", 128)


def test_a_result_is_stored_row_by_row():
    text = cpp_source(*gelu_chain(8, 100)).source
    assert "float out_row[64];" in text
    assert "copy_row(out + 100*i0 + block1, out_row, end1 - block1);" in text


def test_results_of_kernels_that_move_little_stay_in_the_caches(monkeypatch):
    monkeypatch.setattr(plan, "STREAM_FROM", 2**26)
    # read and written: 32 MB each
    assert "copy_row" not in cpp_source(*gelu_chain(4000, 2000)).source
    assert "copy_row" in cpp_source(*gelu_chain(4200, 2000)).source


def test_the_next_row_is_fetched_with_every_block_that_the_last_pass_stores():
    passes = cpp_source(*layer_norm(32, 768)).source.split("omp simd")
    assert ["fetch_row(x + 768*i + block1 + 768, 64);" in each for each in passes] == [
        False,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("name, value", [("STREAM_FROM", 2**26), ("LONG", 769)])
def test_a_short_row_and_one_that_is_not_stored_in_blocks_are_not_fetched(name, value, monkeypatch):
    monkeypatch.setattr(plan, name, value)
    assert "fetch_row" not in cpp_source(*layer_norm(32, 768)).source


@pytest.mark.skipif(not shutil.which("objdump"), reason="needs objdump, of binutils")
def test_the_compiler_keeps_the_fetching():
    """A call without an effect that GCC knows of would be left out, as if it had never been printed."""
    library = build_library(prelude() + cpp_source(*layer_norm(32, 768)).source).path
    machine_code = subprocess.run(
        ["objdump", "-d", library], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"\b(prefetch|prfm)", machine_code)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("n", [1, 7, 8, 63, 64, 65, 127, 128, 1000, 4099])
@pytest.mark.parametrize("rows", [1, 3])
def test_every_length(rows, n, dtype):
    tensors = {
        "x": torch.randn(rows, n).to(dtype),
        "scale": torch.randn(n).to(dtype),
        "bias": torch.randn(n).to(dtype),
    }
    check(*gelu_chain(rows, n, dtype=dtype), tensors)


LAYOUTS = {
    "transposed": lambda x: x.t(),
    "every second": lambda x: x[:, ::2],
    "flipped": lambda x: x.flip(1),
    "expanded": lambda x: x[:1].expand(5, 150),
    "part": lambda x: x[:, 3:70],
    "one element": lambda x: x[:1, :1],
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(layout, dtype):
    def function(x):
        y = LAYOUTS[layout](x) * 2
        return y, y.sum(-1), y + y.amax(-1, keepdim=True) if y.numel() else y, y.t() + 1

    x = torch.randn(40, 150).to(dtype)
    compiled = compile_function(function, x)
    for got, want in zip(compiled(x), function(x), strict=True):
        assert got.stride() == want.stride() or not got.numel()
        torch.testing.assert_close(
            got, want, rtol=2e-3, atol=2e-2 if dtype == torch.float16 else 1e-4
        )


def test_in_place():
    k = Hand([5, 200])
    x = k.read("x", [5, 200], torch.float16)
    k.point("out", lambda ops, i: ops.neg(x.load(ops, i)), store=True, dtype=torch.float16)
    values = torch.randn(5, 200).half()
    got = run(*k.build(in_place={"out": "x"}), {"x": values.clone()})[0]["out"]
    assert torch.equal(got, -values)


def test_what_is_kept_on_the_stack_reaches_the_memory_of_an_operand_too():
    """tanh is costly, so the passes of softmax keep it in a row; its own memory, that of the product, is written last."""

    def function(a, b):
        t = (a @ b).tanh()
        return t, t.softmax(-1)

    a, b = torch.randn(7, 30), torch.randn(30, 50)
    compiled = compile_function(function, a, b)
    (kernel,) = compiled.schedule.fused
    assert "tanh_row" in compiled.kernels[0].source and kernel.in_place
    for got, want in zip(compiled(a, b), function(a, b), strict=True):
        torch.testing.assert_close(got, want)


def test_what_is_rounded_on_the_way_has_a_loop_for_each_step():
    """One long chain of operations would make the processor wait; and a whole row is rounded by one instruction for eight."""
    function = lambda x, y: ((x * y + 1).tanh() - y, (x * 3).amax(-1), x + 1)
    x, y = torch.randn(5, 200).half(), torch.randn(200).half()
    compiled = compile_function(function, x, y)
    text = compiled.kernels[0].source
    assert (
        text.count("round_row<float16>") >= 2
        and "rounded<float16>" not in text.split("round_row")[0]
    )
    for got, want in zip(compiled(x, y), function(x, y), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)


def test_special_values_in_float16():
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(torch.float16)
    compiled = compile_function(lambda x: (x * 1.5, x * x, x / 3 - 1), x)
    for got, want in zip(compiled(x), (x * 1.5, x * x, x / 3 - 1), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@given(st.randoms(use_true_random=True))
@ANY
def test_random_pointwise_kernels(rng):
    check(
        *random_kernels.pointwise_kernels(rng, dtypes=[torch.float32, torch.float16]),
        rtol=2e-3,
        atol=1e-4,
    )


@given(st.randoms(use_true_random=True))
@ANY
def test_random_reductions(rng):
    check(*random_kernels.reduction_kernels(rng, special=rng.random() < 0.3), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(200, 230))
def test_random_functions(seed):
    function, inputs = random_function(Random(seed))
    inputs = [t.half() if seed % 3 == 0 else t for t in inputs]
    compiled = compile_function(function, *inputs)
    for got, want in zip(compiled(*inputs), function(*inputs), strict=True):
        assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
        torch.testing.assert_close(
            got, want, rtol=1e-2, atol=1e-2, equal_nan=True, msg=lambda m: f"{m}\n{compiled.source}"
        )


@pytest.mark.parametrize("layout", [lambda x: x, lambda x: x.mT], ids=["rows", "columns"])
def test_what_is_computed_again_in_a_later_pass_is_stored_once(layout):
    """The first pass stores `kept`; the last has it in a row on the stack, from which it is not stored as if it were dense."""

    def function(x):
        kept = x.relu()
        return kept, kept.log_softmax(-1)

    x = layout(torch.randn(40, 40)).half()
    compiled = compile_function(function, x)
    for got, want in zip(compiled(x), function(x), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)


CONDITIONAL = {
    "where": lambda x, y: torch.where(x > 0, y, x),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "slice_scatter": lambda x, y: torch.slice_scatter(y, x[:, :2], 1, 0, 2),
    "pad": lambda x, y: torch.nn.functional.pad(x, (1, 2)) * 2,
}


@pytest.mark.parametrize("n", [4, 7, 40, 333])
@pytest.mark.parametrize("name", CONDITIONAL)
def test_rows_that_are_read_under_a_condition(name, n):
    def function(x, y):
        z = CONDITIONAL[name](x, y)
        return z - z.mean(-1, keepdim=True), z.softmax(-1)

    x, y = torch.randn(6, n), torch.randn(6, n)
    torch.testing.assert_close(compile_function(function, x, y)(x, y), function(x, y))


FETCHED_BETWEEN = r"""
extern "C" void padded(const float* __restrict x, float* __restrict out) {
  for (int64_t i = 0; i < 6; i++) {
    float sum = 0;
    #pragma omp simd reduction(+: sum)
    for (int64_t j = 0; j < 10; j++) sum += j - 1 >= 0 & j - 1 < 7 ? x[7*i + j - 1] : 0.0f;
    fetch_row(x + 7*i + 6, 10);
    #pragma omp simd
    for (int64_t j = 0; j < 10; j++) out[10*i + j] = (j - 1 >= 0 & j - 1 < 7 ? x[7*i + j - 1] : 0.0f) - sum;
  }
}
"""


def test_gcc_does_not_load_from_a_row_too_far():
    """GCC 12 did, when it gave what is fetched and what is loaded under a condition one induction variable (`-fno-ivopts`)."""
    library = ctypes.CDLL(str(build_library(prelude() + FETCHED_BETWEEN).path))
    x, out = torch.randn(7, 7), torch.empty(6, 10)
    library.padded(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()))
    padded = torch.nn.functional.pad(x[:6], (1, 2))
    torch.testing.assert_close(out, padded - padded.sum(-1, keepdim=True))


def test_a_row_that_is_read_later_is_not_written_over():
    """exp is stored in place of y; the rounding of the norm has loops of its own, which read y again."""

    def function(x):
        y = torch.cumsum(x, -1)
        e = (y - y.amax(-1, keepdim=True)).exp()
        z = torch.nn.functional.layer_norm(y, [8]).half()
        return e, e.sum(-1), z * z

    x = torch.randn(4, 8)
    compiled = compile_function(function, x)
    assert any(kernel.in_place for kernel in compiled.schedule.fused), (
        "nothing is stored in place: the test shows nothing"
    )
    torch.testing.assert_close(compiled(x), function(x))
