"""What the generated Triton looks like: tiles, masks, persistent and looped reductions; short enough to be read."""

from __future__ import annotations

import math
import re

import pytest
import torch
from hand_kernels import Hand, gelu_chain, layer_norm, softmax

from course_lib.codegen.tilings import LARGEST_TILE, Tiling
from course_lib.codegen.triton import triton_source
from course_lib.viz.pictures.codegen.inspect_kernel import inspect_triton


def source(case):
    return triton_source(*case).source


def test_a_pointwise_kernel_is_a_tile_of_consecutive_elements():
    k = Hand([120])
    x, y = k.read("x", [120]), k.read("y", [120])
    k.point("out", lambda ops, i: ops.add(x.load(ops, i), y.load(ops, i)), store=True)
    assert source(k.build()) == (
        "import triton\n"
        "import triton.language as tl\n"
        "\n"
        "\n"
        "@triton.jit\n"
        "def fused(x, y, out, BLOCK: tl.constexpr):\n"
        "    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = i < 120\n"
        "    out1 = tl.load(x + i, mask) + tl.load(y + i, mask)" + " " * 18 + "  # out\n"
        "    tl.store(out + i, out1, mask)\n"
    )


def test_a_row_that_fits_is_loaded_once():
    """LayerNorm reads its row three times in C++ (from cache); a persistent tile holds it in registers."""
    text = source(layer_norm(128, 768))
    assert "for " not in text
    assert text.count("tl.load(x +") == 1
    assert text.count("tl.sum(") == 2
    assert len(text.splitlines()) <= 20


def test_a_longer_row_is_walked_in_steps():
    """Twice: the maximum and the sum take one pass."""
    text = source(softmax(16, 20_000))
    assert text.count("for start") == 2
    assert 'tl.full([ROWS, COLUMNS], float("-inf"), tl.float32)' in text


@pytest.mark.parametrize("of", ["difference", "square", "exp"])
def test_only_a_sum_of_exponentials_shares_the_pass_of_the_maximum(of):
    """sum(x - max) was taken for sum(exp(x - max)), whose pass rescales what it has gathered."""
    k = Hand([16], [20_000])
    x = k.read("x", [16, 20_000])
    peak = k.reduce("amax", "max", lambda ops, i, j: x.load(ops, [*i, *j]))

    def term(ops, i, j):
        difference = ops.sub(x.load(ops, [*i, *j]), peak.load(ops, i))
        if of == "square":
            return ops.mul(difference, difference)
        return ops.exp(difference) if of == "exp" else difference

    k.reduce("total", "sum", term, store=True)
    text = source(k.build())
    assert text.count("for start") == (1 if of == "exp" else 2)
    assert ("tl.exp(" in text) == (of == "exp")


def test_a_mask_has_the_shape_of_what_it_guards():
    text = source(layer_norm(100, 700))
    assert "tl.load(weight + j, columns)" in text
    assert "tl.load(x + 700*i + j, mask)" in text


def test_what_tl_lacks_comes_from_libdevice():
    k = Hand([8])
    x = k.read("x", [8])
    k.point("out", lambda ops, i: ops.tanh(x.load(ops, i)), store=True)
    text = source(k.build())
    assert "from triton.language.extra import libdevice\n" in text
    assert "libdevice.tanh(" in text
    assert "libdevice" not in source(gelu_chain(8, 8))


def test_every_line_of_the_body_knows_its_step():
    printed = triton_source(*layer_norm(128, 768))
    lines = printed.source.splitlines()
    at = next(n for n, line in enumerate(lines, 1) if "tl.rsqrt(" in line)
    assert printed.line_of[at].node.label == "rstd"


@pytest.mark.parametrize(
    ("tiling", "meta", "programs"),
    [
        (Tiling(1_000_000, 0), {"BLOCK": 1024}, 977),
        (Tiling(4096, 768, True), {"ROWS": 2, "COLUMNS": 1024}, 2048),
        (Tiling(4096, 16384, True), {"ROWS": 1, "COLUMNS": 16384}, 4096),
        (Tiling(4096, 100_000), {"ROWS": 1, "COLUMNS": 2048}, 4096),
        (Tiling(100_000, 128, across=True), {"ROWS": 64, "COLUMNS": 32}, 1563),
        (Tiling(64, 512, across=True), {"ROWS": 16, "COLUMNS": 128}, 4),
        (Tiling(32, 768, True, chunks=128), {"ROWS": 4, "COLUMNS": 1024}, 128),
    ],
)
def test_tiles_on_a_gpu(tiling, meta, programs):
    assert tiling.meta(interpreted=False) == meta
    assert tiling.programs(meta) == programs


@pytest.mark.parametrize(
    "tiling",
    [
        Tiling(10**6, 10**6, across=True),
        Tiling(10**6, 512, True, True),
        Tiling(10**6, 700, True, chunks=9),
    ],
)
def test_few_large_tiles_in_the_interpreter(tiling):
    assert Tiling(3_000_000, 0).programs({"BLOCK": LARGEST_TILE}) == 3
    # Triton allows no more
    assert math.prod(tiling.meta(interpreted=True).values()) == LARGEST_TILE


def test_in_place_nothing_is_stored_before_all_is_loaded():
    """Each load and store has threads of its own choice (`#blocked`): what one thread stores, another may still have to load."""
    k = Hand([1000])
    x, y = k.read("x", [1000], torch.float64), k.read("y", [1000], torch.float32)
    k.point(
        "sum",
        lambda ops, i: ops.add(ops.to_dtype(x.load(ops, i), torch.float32), y.load(ops, i)),
        store=True,
    )
    k.point(
        "wide",
        lambda ops, i: ops.to_dtype(y.load(ops, i), torch.float64),
        store=True,
        dtype=torch.float64,
    )
    source = triton_source(*k.build(in_place={"wide": "x"}))
    lines = source.source.splitlines()
    (wait,) = (n for n, line in enumerate(lines) if "tl.debug_barrier()" in line)
    assert all("tl.store" not in line for line in lines[:wait]) and all(
        "tl.load" not in line for line in lines[wait:]
    )
    text = inspect_triton(source, "sm_90")["ttgir"]
    layouts = {
        kind: re.findall(rf"tt.{kind} .*f64>, (#blocked\d*)", text) for kind in ("load", "store")
    }
    assert layouts["load"] != layouts["store"] and text.index("barrier") < text.index("tt.store")


def test_in_place_is_one_pointer():
    k = Hand([10])
    x = k.read("x", [10])
    k.point("out", lambda ops, i: ops.exp(x.load(ops, i)), store=True)
    assert (
        "def fused(x, BLOCK: tl.constexpr)" in triton_source(*k.build(in_place={"out": "x"})).source
    )


def test_bfloat16_is_computed_in_float():
    assert "tl.load(x + 8*i0 + i1, mask).to(tl.float32)" in source(
        gelu_chain(8, 8, dtype=torch.bfloat16)
    )
