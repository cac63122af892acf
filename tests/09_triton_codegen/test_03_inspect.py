"""From Triton source to PTX without a GPU, and from C++ to assembly for a stated instruction set."""

from __future__ import annotations

import platform
from dataclasses import replace

import pytest
import torch
from back_half import lowered
from hand_kernels import Hand, gelu_chain, layer_norm

from course_lib import runtime, scheduling
from course_lib.codegen.cpp import cpp_source
from course_lib.codegen.triton import triton_source
from course_lib.viz.pictures.codegen.inspect_kernel import inspect_kernel


@pytest.fixture(scope="module")
def shown():
    pytest.importorskip("triton")
    return inspect_kernel(triton_source(*gelu_chain(64, 768)), target="sm_90")


def test_every_step_down_to_ptx(shown):
    assert list(shown)[:4] == ["ttir", "ttgir", "llir", "ptx"]
    assert "tt.load" in shown["ttir"]
    assert "#blocked" in shown["ttgir"]
    assert ".target sm_90" in shown["ptx"]


def test_loads_are_vectorised(shown):
    """Four floats at once: the pointers are known to be multiples of 16 bytes."""
    assert "ld.global.v4.b32" in shown["ptx"]


def test_the_text_does_not_depend_on_where_it_was_made(shown):
    assert "/tmp" not in shown["ttir"] + shown["ttgir"]
    assert inspect_kernel(triton_source(*gelu_chain(64, 768)), target="sm_90") == shown


def test_a_reduction_and_a_checked_index():
    pytest.importorskip("triton")
    assert "ptx" in inspect_kernel(triton_source(*layer_norm(64, 768)), target="sm_80")
    k = Hand([8])
    index, x = k.read("index", [8], torch.int64), k.read("x", [5], torch.bfloat16)
    k.point(
        "out",
        lambda ops, i: x.load(ops, [ops.indirect(index.load(ops, i), 5)]),
        store=True,
        dtype=torch.bfloat16,
    )
    assert "ptx" in inspect_kernel(triton_source(*k.build()), target="sm_90")


def test_a_target_that_is_none():
    with pytest.raises(ValueError, match='a GPU target is written "sm_90"'):
        inspect_kernel(triton_source(*layer_norm(64, 768)), target="H200")


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="the instruction sets named here are x86's"
)
def test_cpp_to_assembly():
    wide = inspect_kernel(cpp_source(*gelu_chain(64, 768)), target="x86-64-v4")["asm"]
    narrow = inspect_kernel(cpp_source(*gelu_chain(64, 768)), target="x86-64-v3")["asm"]
    assert "%zmm" not in narrow and "%ymm" in narrow and "vfmadd" in narrow
    assert "%zmm" in wide or "%ymm16" in wide


def test_a_kernel_that_does_not_compile_says_so():
    pytest.importorskip("triton")
    printed = triton_source(*layer_norm(64, 768))
    broken = replace(printed, source=printed.source.replace("tl.rsqrt", "tl.no_such_function"))
    with pytest.raises(runtime.CompileFailed, match="no_such_function"):
        inspect_kernel(broken)


def sources(function, *inputs):
    """The generated kernels. Nothing is run, so that it does not matter which way Triton was imported."""
    loops = scheduling.split_reductions(lowered(function, *inputs), lambda buffer: True)
    return [triton_source(kernel, loops.buffers) for kernel in scheduling.schedule(loops).fused]


@pytest.mark.parametrize(
    "function", [lambda x: (torch.fmod(x, 0.1),), lambda x: (x % -1.5,), lambda x: (x**-1.5,)]
)
def test_constants_beside_doubles(function):
    """A bare number is a float32 to `libdevice`, which has no function of a double and a float."""
    pytest.importorskip("triton")
    (source,) = sources(function, torch.rand(4, 6, dtype=torch.float64))
    assert ".f64" in inspect_kernel(source, target="sm_90")["ptx"]


@pytest.mark.parametrize(
    "function",
    [
        # the largest of int64 beside a bare 0
        lambda x: (torch.zeros_like(x, dtype=torch.int64).aminmax(dim=1)[0],),
        lambda x: (torch.zeros_like(x).pow(-2) + x,),  # Python's 1.0 / 0.0
        lambda x: (torch.sign(torch.full_like(x, 2)) * x,),  # Python's True has no `.to`
        lambda x: (torch.full_like(x, 2, dtype=torch.float16).sign().double() - x,),
        lambda x: (
            torch.where(
                x > 0,
                torch.full_like(x, 5, dtype=torch.int64),
                torch.full_like(x, 2**40, dtype=torch.int64),
            ),
        ),
    ],
    ids=["the largest integer", "divided by zero", "a comparison", "of another dtype", "a choice"],
)
def test_numbers_alone_are_computed_by_triton(function):
    pytest.importorskip("triton")
    for source in sources(function, torch.rand(4, 6)):
        assert "ptx" in inspect_kernel(source, target="sm_90")


def test_division_is_exact_but_by_the_sum_of_a_row():
    (ratio,) = sources(lambda x, y: (x / y,), torch.rand(4, 6), torch.rand(4, 6))
    assert "tl.div_rn(" in ratio.source
    (softmax,) = sources(lambda x: (torch.softmax(x, -1),), torch.rand(4, 6))
    assert "div_rn" not in softmax.source and " / sum" in softmax.source


def test_a_walk_along_rows_of_several_loops():
    """The gradient of a norm over the heads of attention, which come transposed: batch and sequence are cut into chunks, a chunk
    and its rows are two loops each. Triton, unlike its interpreter, refuses a name that is one number first and a tile later."""
    pytest.importorskip("triton")

    def norm_backward(upstream, x, weight):
        turned = upstream.transpose(1, 2)
        scaled = turned * weight
        return scaled - x * (scaled * x).mean(-1, keepdim=True), (turned * x).sum((0, 1, 2))

    upstream, x, weight = torch.rand(8, 4, 256, 32), torch.rand(8, 256, 4, 32), torch.rand(32)
    walk = next(
        source for source in sources(norm_backward, upstream, x, weight) if "_down" in source.source
    )
    assert "ptx" in inspect_kernel(walk, target="sm_90")
