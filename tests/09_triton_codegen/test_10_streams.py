"""A stream as Triton: which blocks its programs load, which masks they compute, and every head size
and dtype."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from back_half import lowered
from random_attention import check, compile_streamed, distance, in_double, place_of, small_tiles

from course_lib import runtime, scheduling
from course_lib.codegen import stream_walks
from course_lib.codegen.stream_walks import Line, fitting, longest_run, walking_tile
from course_lib.codegen.streamed_triton import streamed_triton_source
from course_lib.scheduling.fusion import No
from course_lib.scheduling.streams import Streamed
from course_lib.viz.pictures.codegen.tiles import tile_map

INF = float("inf")


@pytest.fixture(autouse=True)
def place_of_tensors():
    """On a GPU, if there is one."""
    with place_of("triton"):
        yield


def heads(rows=256, depth=32, dtype=torch.float16):
    return [torch.randn(2, 2, rows, depth, dtype=dtype) for _ in range(3)]


def masked_by(mask):
    """Attention with a mask of positions."""

    def attention(q, k, v):
        i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
        scores = q @ k.mT * q.shape[-1] ** -0.5
        return (torch.softmax(torch.where(mask(i, j), scores, -INF), -1) @ v,)

    return attention


def plain(q, k, v):
    return (torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v,)


def quiet(q, k, v):
    """One more than the sum below the line: a row without any score is 0."""
    scores = q @ k.mT
    highest = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - highest)
    return ((weights / (torch.exp(-highest) + weights.sum(-1, keepdim=True))).to(v.dtype) @ v,)


causal = masked_by(lambda i, j: i >= j)
window = masked_by(lambda i, j: (i - j).abs() <= 40)
curved = masked_by(lambda i, j: i * i >= j * 64)


def stream_of(function, *inputs):
    """The stream that a function becomes, and the buffers of its program."""
    why_not = partial(runtime.why_no_stream, codegen="triton")
    graph = scheduling.stream_products(lowered(function, *inputs), why_not)
    found = [node for node in graph.nodes if isinstance(node, Streamed)]
    return found, graph


def source_of(function, *inputs):
    (stream,), graph = stream_of(function, *inputs)
    return streamed_triton_source(stream, graph.buffers, "attention")


def loops_in(source: str) -> list[str]:
    """Each loop of a kernel, with its body."""
    loops, inside = [], False
    for line in source.splitlines():
        if line.startswith("    for "):
            loops.append(line)
            inside = True
        elif inside and line.startswith("        "):
            loops[-1] += "\n" + line
        else:
            inside = False
    return loops


def is_as_near_as_eager(function, inputs, **how) -> bool:
    got, eager = (
        compile_streamed(function, *inputs, codegen="triton", **how)(*inputs)[0],
        function(*inputs)[0],
    )
    exact = function(*map(in_double, inputs))[0]
    units = 4 * torch.finfo(eager.dtype).eps * float(exact.nan_to_num().abs().max())
    same_kind = (got.dtype, got.shape) == (eager.dtype, eager.shape)
    same_nans = torch.equal(got.isnan(), eager.isnan())
    return same_kind and same_nans and distance(got, exact) <= 2 * distance(eager, exact) + units


def test_without_a_mask_there_is_one_loop_and_no_mask():
    source = source_of(plain, *heads())
    (loop,) = loops_in(source.source)
    assert loop.count("tl.dot") == 2
    assert "where(" not in loop.replace("tl.where(highest ==", "")
    assert (source.look, source.table) == (None, ())
    # The factor of the scores lies in the exponential.
    assert "tl.exp2(tl.fma(scores, 0.2550" in loop


def test_blocks_that_no_mask_cuts_have_a_loop_of_their_own():
    text = source_of(causal, *heads()).source
    free, cut = loops_in(text)
    assert "range(0, free_to, COLUMNS)" in free
    assert "range(free_to, last, COLUMNS)" in cut
    assert "m >= n" not in free
    assert "m >= n" in cut
    # What is hidden lies behind `last`, a formula of the block.
    assert "free_to = block * 64\n" in text
    assert "last = block * 64 + 64\n" in text
    # The last rows have most to do.
    assert "block = 3 - program % 4\n" in text


def test_a_window_begins_and_ends_by_a_formula():
    text = source_of(window, *heads()).source
    assert "first = tl.maximum(block * 64 - 64, 0)\n" in text
    assert "last = tl.minimum(block * 64 + 128, 256)\n" in text


def test_ends_that_are_no_line_lie_in_a_table():
    source = source_of(curved, *heads(rows=512))
    assert len(source.table) == 4 * 8
    assert "tl.load(shown" in source.source
    assert is_as_near_as_eager(curved, heads(rows=512))


def test_a_look_at_the_values_says_whether_blocks_may_be_left_out():
    source = source_of(causal, *heads())
    assert source.look is not None
    assert source.look.name in source.source
    assert source.flags == 4
    q, k, v = heads()
    v[0, 1, 255, 3], v[1, 0, 0, 5] = float("nan"), INF
    got = compile_streamed(causal, q, k, v, codegen="triton")(q, k, v)[0]
    want = causal(q, k, v)[0]
    assert torch.equal(got.isnan(), want.isnan())
    torch.testing.assert_close(got, want, rtol=1e-2, atol=1e-2, equal_nan=True)


def test_a_row_without_scores_is_done_once_more_only_where_its_result_is_not_nan_by_itself():
    assert "while turn < 2" not in source_of(causal, *heads()).source
    assert "while turn < 2" in source_of(quiet, *heads()).source


def hidden_rows(q, k, v):
    """Some rows have no score."""
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    return quiet_of(torch.where(i >= j + 100, q @ k.mT, -INF), v)


def quiet_of(scores, v):
    highest = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - highest)
    return ((weights / (torch.exp(-highest) + weights.sum(-1, keepdim=True))).to(v.dtype) @ v,)


def only_late_keys(q, k, v):
    """The first blocks hide all from each row, and no formula says so."""
    late = (torch.arange(k.shape[-2]) * 1.0).sin() * 0 + torch.arange(k.shape[-2]) >= 200
    return (torch.softmax(torch.where(late, q @ k.mT, -INF), -1) @ v,)


def least_number(q, k, v):
    """A mask that is added, as in transformers: the first rows have nothing but it."""
    low = -3.3e38
    i, j = torch.arange(q.shape[-2])[:, None], torch.arange(k.shape[-2])
    return (torch.softmax(q @ k.mT + torch.where(i >= j + 100, 0.0, low).to(q.dtype), -1) @ v,)


@pytest.mark.parametrize("function", [hidden_rows, only_late_keys, least_number])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_with_nothing_at_first_or_at_all_are_eagers(function, dtype):
    torch.manual_seed(0)
    assert is_as_near_as_eager(function, heads(dtype=dtype))


@pytest.mark.parametrize("depth", [16, 24, 40, 64, 80, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_every_head_size_and_dtype(depth, dtype):
    torch.manual_seed(0)
    inputs = heads(150, depth, dtype)
    found, _ = stream_of(causal, *inputs)
    assert len(found) == int(dtype != torch.float32 or depth <= 128)
    assert is_as_near_as_eager(causal, inputs)


def test_what_takes_too_many_registers_says_so():
    _, graph = stream_of(plain, *heads(depth=256, dtype=torch.float32))
    said = [str(d.answer) for d in graph.streams if isinstance(d.answer, No)]
    assert any("two calls of the library are faster" in text for text in said), said


@pytest.mark.parametrize(
    "ends, line",
    [
        ([5, 5, 5], Line(0, 5, 5, 5)),
        ([0, 64, 128], Line(64, 0, 0, 128)),
        ([0, 0, 32, 96, 128, 128], Line(64, -96, 0, 128)),
        ([256, 192, 128, 100], Line(-64, 256, 100, 256)),
        ([0, 64, 64, 128], None),
    ],
)
def test_a_line_through_the_ends_of_walks(ends, line):
    found = Line.through(ends)
    assert found == line
    if line and line.slope:
        names = {"tl": stand_in_for_triton}
        for block, end in enumerate(ends):
            assert eval(line.source(len(ends)), names | {"block": block}) == end


class stand_in_for_triton:
    maximum, minimum = max, min


def test_the_longest_run():
    assert longest_run([]) == (0, 0)
    assert longest_run([False, True, True, False, True]) == (1, 3)
    assert longest_run([True] * 4) == (0, 4)


def test_a_tile_becomes_smaller_where_a_gpu_has_little_memory():
    (stream,), _ = stream_of(plain, *heads(depth=128))
    tile = walking_tile(64, 64, 3, 4)
    assert fitting(tile, stream.stream, True, math.inf) == tile
    assert fitting(tile, stream.stream, True, 99_000) == walking_tile(64, 64, 2, 4)
    small = fitting(tile, stream.stream, True, 48_000).meta
    assert small["num_stages"] == 1
    assert (small["ROWS"] + 2 * small["COLUMNS"]) * 128 * 2 <= 48_000


def test_small_tiles_have_several_blocks_in_each_direction():
    with small_tiles():
        source = source_of(causal, *heads())
    assert len(source.tiling.walks) == 16
    assert source.tiling.programs(source.tiling.meta(False)) == 4 * 16
    assert stream_walks.TILES_OF_HALVES[64].meta["ROWS"] == 64


def test_its_tiles_can_be_drawn():
    source = source_of(causal, *heads(rows=300))
    assert "20 programs" in str(tile_map(source))


def differential(q, k, v):
    scores = q @ k.mT
    return ((torch.softmax(scores, -1) - 0.3 * torch.softmax(scores * 0.5, -1)) @ v,)


def test_several_totals_take_narrower_blocks_and_keep_their_rows():
    one, two = (source_of(function, *heads(depth=128)) for function in (plain, differential))
    assert (one.tiling.tile.meta["ROWS"], one.tiling.tile.meta["COLUMNS"]) == (64, 64)
    assert (two.tiling.tile.meta["ROWS"], two.tiling.tile.meta["COLUMNS"]) == (64, 32)


@pytest.mark.parametrize(
    "sizes, dtype, rows",
    [
        ((32, 32), torch.float16, 64),
        ((64, 64), torch.bfloat16, 64),
        ((40, 128), torch.float16, 64),
        ((32, 16), torch.float16, 32),
        ((16, 64), torch.bfloat16, 32),
        ((32, 40), torch.float16, 32),
        ((32, 32), torch.float32, 128),
        ((16, 16), torch.float32, 32),
    ],
)
def test_operands_with_several_swizzles_get_fewer_rows(sizes, dtype, rows):
    """`ptxas` of CUDA 12.8 gives them wrong descriptors, where `wgmma` multiplies them."""
    depth, width = sizes
    q, k, _ = heads(depth=depth, dtype=dtype)
    source = source_of(plain, q, k, torch.randn(2, 2, 256, width, dtype=dtype))
    assert source.tiling.tile.meta["ROWS"] == rows


@pytest.mark.parametrize("turn", [lambda x: x.mT, lambda x: x[..., ::2]], ids=["turned", "far"])
def test_a_layout_may_be_another_swizzle(turn):
    def attention(q, k, v):
        return plain(turn(q), k, v)

    _, k, v = heads()
    whole = torch.randn(2, 2, 256, 64, dtype=torch.float16)
    q = whole[..., :32].mT.contiguous() if turn(whole).shape != k.shape else whole
    assert source_of(attention, q, k, v).tiling.tile.meta["ROWS"] == 32


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_on_a_gpu(seed):
    assert check(seed, device="cuda").fault == ""
