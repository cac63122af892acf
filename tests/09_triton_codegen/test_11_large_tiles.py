"""Tiles so large that the compiler's last stage would take minutes: they run at once, and what is refused is still refused."""

import time

import pytest
import torch

import course_lib as cl

triton = pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("nothing is simulated where there is a GPU", allow_module_level=True)

import triton.language as tl  # noqa: E402

from course_lib.simulator.judging import largest_block  # noqa: E402


@triton.jit
def add(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + i, tl.load(x + i) + tl.load(y + i))


@triton.jit
def add_with_chain(x, y, out, N: tl.constexpr):
    i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    value = tl.load(x + i) + tl.load(y + i)
    tl.store(out + i, tl.where(0 < value < 3, value, 0.0))


def test_the_largest_block_of_a_module():
    text = "%1 = tt.load : tensor<1024x64xf32, #blocked>, %2 : tensor<8x!tt.ptr<f32>>, %3 : i32"
    assert largest_block(text) == 1024 * 64
    assert largest_block("%3 : i32") == 0


def test_a_tile_of_a_million_elements_runs_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(cl.config, "cache_dir", lambda: tmp_path)  # no verdict is kept from before
    x, y, out = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.zeros(1024, 1024)
    began = time.process_time()
    add[(1,)](x, y, out, N=1024)
    assert time.process_time() - began < 20  # with LLVM's form it took minutes
    assert torch.equal(out, x + y)


def test_what_the_compiler_refuses_is_refused_for_a_large_tile():
    x = torch.randn(1024, 1024)
    with pytest.raises(Exception, match="multiple comparison"):
        add_with_chain[(1,)](x, x, torch.zeros_like(x), N=1024)
