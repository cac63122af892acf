"""Attention from plain code is one kernel without a matrix of scores; what cannot be says why; both are right."""

from __future__ import annotations

import math

import pytest
import torch
from attentions import (
    INF,
    B,
    D,
    H,
    M,
    N,
    alibi,
    bias,
    causal,
    differential,
    from_logarithms,
    heads,
    plain,
    positions,
    repeated,
    shut,
    soft_cap,
)
from back_half import lowered
from random_attention import check, compile_streamed, distance, in_double, place_of, small_tiles

import course_lib as cl
from course_lib import events, scheduling
from course_lib.scheduling import FusedKernel, No, Streamed
from course_lib.scheduling.blocks import shown_columns


@pytest.fixture(autouse=True)
def place_of_tensors(request):
    """For kernels in Triton they are made on a GPU, if there is one."""
    parameters = getattr(request.node, "callspec", None)
    codegen = parameters.params.get("codegen", "cpp") if parameters else "cpp"
    with place_of(codegen):
        yield


def window(q, k, v):
    """Rows begin with blocks that have nothing but -inf, and the last have nothing at all."""
    i, j = positions()
    return torch.softmax(torch.where((i - j - 30).abs() < 9, q @ k.mT, -INF), -1) @ v


def documents(q, k, v, of_query, of_key):
    return torch.softmax((q @ k.mT).masked_fill(of_query[:, None] != of_key, -INF), -1) @ v


def expanded(q, k, v):
    def wide(x):
        return x[:, :, None].expand(B, H // 2, 2, N, D).reshape(B, H, N, D)

    return plain(q, wide(k), wide(v))


def packed(qkv):
    """Heads lie inside, and q, k and v are parts of one tensor, as a linear layer gives them."""
    q, k, v = qkv.unflatten(-1, (3, H, D)).permute(2, 0, 3, 1, 4)
    return plain(q, k, v).transpose(1, 2).flatten(2)


def two_products(q, k, v, r):
    """Scores of content and of position."""
    return torch.softmax(q @ k.mT + q @ r.mT, -1) @ v


def by_hand(q, k, v):
    scores = q @ k.mT
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (weights / weights.sum(-1, keepdim=True)) @ v


def quiet(q, k, v):
    """A softmax that may give nothing at all: one is added to its sum."""
    scores = q @ k.mT
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - top)
    return (weights / (torch.exp(-top) + weights.sum(-1, keepdim=True))) @ v


def gated_weights(q, k, v, keep):
    return (torch.softmax(q @ k.mT, -1) * keep / 0.9) @ v


def linear(q, k, v):
    """No softmax: the second product alone."""
    i, j = positions()
    return torch.where(i >= j, q @ k.mT, 0) @ v


def nothing_for_some_rows(q, k, v, keep):
    """Whole rows get no weights at all."""
    return torch.where(keep, torch.softmax(q @ k.mT, -1), 0) @ v


def turned(q, k, v):
    return (v.mT @ torch.softmax(q @ k.mT, -1).mT).mT


def divided_behind(q, k, v):
    """A softmax by hand whose sum divides the product, as FlashAttention's text has it."""
    scores = q @ k.mT
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (weights @ v) / weights.sum(-1, keepdim=True)


def divided_and_logarithms(q, k, v):
    """Of its numbers of each row others need more than one."""
    scores = q @ k.mT
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - top)
    total = weights.sum(-1, keepdim=True)
    return (weights @ v) / total + (top + total.log())


def squares_over_their_sum(q, k, v):
    weights = (q @ k.mT).square()
    return weights @ v / weights.sum(-1, keepdim=True)


def sums_of_scores(q, k, v):
    scores = q @ k.mT
    return (scores / scores.abs().sum(-1, keepdim=True)) @ v


STREAMS = {
    "plain": (plain, lambda: (heads(rows=M), heads(), heads())),
    "one head of one example": (plain, lambda: [torch.randn(1, 1, 300, D) for _ in range(3)]),
    "one matrix of a batch": (plain, lambda: [torch.randn(1, 300, D) for _ in range(3)]),
    "half": (plain, lambda: tuple(heads(rows=n, dtype=torch.float16) for n in (M, N, N))),
    "bfloat16": (causal, lambda: tuple(heads(rows=n, dtype=torch.bfloat16) for n in (M, N, N))),
    "causal": (causal, lambda: (heads(rows=M), heads(), heads())),
    "window": (window, lambda: (heads(rows=M), heads(), heads())),
    "whole rows masked": (
        shut,
        lambda: (heads(rows=M), heads(), heads(), torch.rand(M, N) < torch.rand(M, 1) - 0.5),
    ),
    "bias": (bias, lambda: (heads(rows=M), heads(), heads(), torch.randn(H, M, N))),
    "bias of keys": (bias, lambda: (heads(rows=M), heads(), heads(), torch.randn(B, 1, 1, N))),
    "soft cap": (soft_cap, lambda: (heads(rows=M), heads(), heads())),
    "ALiBi": (alibi, lambda: (heads(rows=M), heads(), heads(), torch.rand(H, 1, 1))),
    "documents": (
        documents,
        lambda: (heads(rows=M), heads(), heads(), torch.arange(M) // 40, torch.arange(N) // 40),
    ),
    "heads repeated": (repeated, lambda: (heads(rows=M), heads(H // 2), heads(H // 2))),
    "heads expanded": (expanded, lambda: (heads(rows=M), heads(H // 2), heads(H // 2))),
    "packed": (packed, lambda: (torch.randn(B, M, 3 * H * D),)),
    "two products": (two_products, lambda: (heads(rows=M), heads(), heads(), torch.randn(H, N, D))),
    "differential": (differential, lambda: (heads(rows=M), heads(), heads())),
    "by hand": (by_hand, lambda: (heads(rows=M), heads(), heads())),
    "quiet": (quiet, lambda: (heads(rows=M), heads(), heads())),
    "from logarithms": (from_logarithms, lambda: (heads(rows=M), heads(), heads())),
    "gated weights": (
        gated_weights,
        lambda: (heads(rows=M), heads(), heads(), torch.rand(B, H, M, N) < 0.9),
    ),
    "nothing for some rows": (
        nothing_for_some_rows,
        lambda: (heads(rows=M), heads(), heads(), torch.rand(M, 1) < 0.7),
    ),
    "linear": (linear, lambda: (heads(rows=M), heads(), heads())),
    "weights over their sum": (sums_of_scores, lambda: (heads(rows=M), heads(), heads())),
    "divided behind the product": (divided_behind, lambda: (heads(rows=M), heads(), heads())),
    "divided, and logarithms": (
        divided_and_logarithms,
        lambda: (heads(rows=M), heads(), heads()),
    ),
    "squares over their sum": (
        squares_over_their_sum,
        lambda: (heads(rows=M), heads(), heads()),
    ),
    "turned": (turned, lambda: (heads(rows=M), heads(), heads())),
    "matrices": (plain, lambda: tuple(torch.randn(n, D) for n in (3 * M, 2 * N, 2 * N))),
    "wide values": (plain, lambda: (heads(rows=M), heads(), torch.randn(B, H, N, 50))),
}


def differs(compiled, function, inputs) -> str:
    """How far a result is from float64, against eager's own distance."""
    got, eager = compiled(*inputs)[0], function(*inputs)
    exact = function(*map(in_double, inputs))
    assert (got.dtype, got.shape, got.stride()) == (eager.dtype, eager.shape, eager.stride())
    assert torch.equal(got.isnan(), eager.isnan())

    units = 4 * torch.finfo(eager.dtype).eps * float(exact.nan_to_num().abs().max())
    off, allowed = distance(got, exact), 2 * distance(eager, exact) + units
    return "" if off <= allowed else f"{off} from float64, where {allowed} is allowed"


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("name", STREAMS)
def test_no_matrix_of_scores(name, codegen):
    torch.manual_seed(0)
    function, make = STREAMS[name]
    inputs = make()
    compiled = compile_streamed(lambda *given: (function(*given),), *inputs, codegen=codegen)
    kernels = compiled.schedule.kernels
    (stream,) = [kernel for kernel in kernels if isinstance(kernel, Streamed)]

    # No other product is left, and no buffer of the program has a place for each score.
    assert all(isinstance(kernel, (FusedKernel, Streamed)) for kernel in kernels), kernels
    loops = [*stream.stream.batch, stream.stream.row, stream.stream.column]
    scores = math.prod(loop.size for loop in loops)
    written = [buffer for kernel in kernels for buffer in kernel.buffers]
    assert all(buffer.numel < scores for buffer in written)
    assert compiled.schedule.bytes_after < compiled.schedule.bytes_before
    assert differs(compiled, function, inputs) == ""


class AsInNanoGPT(torch.nn.Module):
    """Causal self-attention with a mask in a buffer (github.com/karpathy/nanoGPT, `model.py`)."""

    def __init__(self, width=64, heads=4, longest=192):
        super().__init__()
        self.heads = heads
        self.c_attn = torch.nn.Linear(width, 3 * width)
        self.c_proj = torch.nn.Linear(width, width)
        self.attn_dropout = torch.nn.Dropout(0.1)
        triangle = torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest)
        self.register_buffer("bias", triangle)

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = self.c_attn(x).split(width, dim=2)
        k = k.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        q = q.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        v = v.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
        att = torch.nn.functional.softmax(att, dim=-1)
        y = self.attn_dropout(att) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(batch, length, width))


class AsInTransformers(torch.nn.Module):
    """Grouped heads, an added mask, a softmax in float32 (transformers, `eager_attention_forward` of Llama)."""

    def __init__(self, dtype=torch.bfloat16):
        super().__init__()
        mask = torch.full((1, 1, M, M), torch.finfo(dtype).min, dtype=dtype).triu(1)
        self.register_buffer("mask", mask)
        self.q, self.k, self.v = (torch.nn.Linear(64, n * 16, dtype=dtype) for n in (4, 2, 2))

    def repeated(self, x):
        batch, few, length, depth = x.shape
        return x[:, :, None].expand(batch, few, 2, length, depth).reshape(batch, 4, length, depth)

    def forward(self, x):
        batch, length, _ = x.shape
        query, key, value = (
            layer(x).view(batch, length, -1, 16).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = torch.matmul(query, self.repeated(key).transpose(2, 3)) * 16**-0.5
        scores = scores + self.mask[:, :, :, : key.shape[-2]]
        weights = torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
        weights = torch.nn.functional.dropout(weights, p=0.0, training=self.training)
        return torch.matmul(weights, self.repeated(value)).transpose(1, 2).contiguous()


@pytest.mark.parametrize("module", [AsInNanoGPT, AsInTransformers])
def test_modules_as_libraries_write_them(module):
    model = module().eval()
    x = torch.randn(2, M, 64, dtype=next(model.parameters()).dtype)
    seen = []
    with events.listener(seen.append), torch.no_grad():
        got, want = cl.compile(model)(x), model(x)
        exact = module.forward(model.double(), x.double())
    (schedule,) = [event.schedule for event in seen if isinstance(event, events.Scheduled)]
    assert sum(isinstance(kernel, Streamed) for kernel in schedule.kernels) == 1
    assert all(buffer.numel < 2 * 4 * M * M for k in schedule.kernels for buffer in k.buffers)

    units = 8 * torch.finfo(want.dtype).eps * float(exact.abs().max())
    assert distance(got, exact) <= 2 * distance(want, exact) + units


def scores_returned(q, k, v):
    weights = torch.softmax(q @ k.mT, -1)
    return weights @ v, weights


def scores_used_elsewhere(q, k, v):
    scores = q @ k.mT
    return torch.softmax(scores, -1) @ v, scores @ v


def product_of_weights(q, k, v):
    scores = q @ k.mT
    return ((scores / scores.prod(-1, keepdim=True)) @ v,)


def cubes(q, k, v):
    """The mean is needed before the first term, and a cube has no law."""
    scores = q @ k.mT
    return ((scores - scores.mean(-1, keepdim=True)) ** 3 @ v,)


def another_maximum(q, k, v):
    scores = q @ k.mT
    return (torch.exp(scores - (2 * scores).amax(-1, keepdim=True)) @ v,)


def many_softmaxes(q, k, v):
    scores = q @ k.mT
    return (sum(torch.softmax(scores * (n + 1), -1) / 2**n for n in range(5)) @ v,)


REFUSED = {
    "many softmaxes": (many_softmaxes, "tiles at once are too many"),
    "scores returned": (scores_returned, "is also returned"),
    "scores used elsewhere": (scores_used_elsewhere, "also needs"),
    "a cube of a difference": (cubes, "can neither be rescaled nor wait"),
    "the maximum of something else": (another_maximum, "m is the running maximum of x"),
    "a product along the row": (product_of_weights, "'prod' over a row has no law of rescaling"),
}


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("name", REFUSED)
def test_what_must_be_stored_says_why(name, codegen):
    function, reason = REFUSED[name]
    inputs = heads(rows=M), heads(), heads()
    compiled = compile_streamed(function, *inputs, codegen=codegen)
    assert not any(isinstance(kernel, Streamed) for kernel in compiled.schedule.kernels)
    said = [str(d.answer) for d in compiled.schedule.decisions if isinstance(d.answer, No)]
    assert any(reason in text for text in said), said
    for got, want in zip(compiled(*inputs), function(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def softmax_of_columns(q, k, v):
    return (torch.softmax(q @ k.mT, -2) @ v,)


@pytest.mark.parametrize("function", [cubes, another_maximum, softmax_of_columns])
def test_what_no_law_rescales_is_known_before_the_columns_are_walked_again(function):
    inputs = heads(rows=M), heads(), heads()
    compiled = compile_streamed(function, *inputs, most_times=2)
    kernels = compiled.schedule.kernels
    assert len([kernel for kernel in kernels if isinstance(kernel, Streamed)]) == 2
    assert all(buffer.numel < B * H * M * N for kernel in kernels for buffer in kernel.buffers)
    assert differs(compiled, lambda *given: function(*given)[0], inputs) == ""


def test_a_product_and_its_transpose_are_two():
    def symmetric(q, k, v):
        scores = q @ k.mT
        return (torch.softmax(scores + scores.mT, -1) @ v,)

    inputs = heads(), heads(), heads()
    compiled = compile_streamed(symmetric, *inputs)
    assert any(isinstance(kernel, Streamed) for kernel in compiled.schedule.kernels)
    assert differs(compiled, lambda *given: symmetric(*given)[0], inputs) == ""


def test_two_products_of_one_matrix_are_one_stream():
    def both(q, k, v):
        weights = torch.softmax(q @ k.mT, -1)
        return weights @ v, weights @ v.abs()

    inputs = heads(rows=M), heads(), heads()
    compiled = compile_streamed(both, *inputs)
    streams = [k for k in compiled.schedule.kernels if isinstance(k, Streamed)]
    assert [len(each.buffers) for each in streams] == [2]
    for got, want in zip(compiled(*inputs), both(*inputs), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "shapes",
    [((8, 40, 16), (8, 40, 16)), ((8, 1, 16), (8, 5000, 16)), ((2, 200, 512), (2, 200, 512))],
)
def test_where_tiles_do_not_pay_the_program_stays_as_it_was(shapes):
    q, k = map(torch.randn, shapes)
    compiled = compile_streamed(lambda *given: (plain(*given),), q, k, k)
    assert not any(isinstance(kernel, Streamed) for kernel in compiled.schedule.kernels)


@pytest.mark.parametrize("mode", ["default", "max-autotune-no-cudagraphs"])
def test_a_compiled_function_uses_it_and_says_so(mode):
    seen = []
    inputs = heads(rows=M), heads(), heads()
    with events.listener(seen.append), torch.no_grad():
        got = cl.compile(causal, mode=mode)(*inputs)
    (schedule,) = [event.schedule for event in seen if isinstance(event, events.Scheduled)]
    assert [type(kernel) for kernel in schedule.kernels] == [Streamed]
    assert "no matrix of scores" in schedule.kernels[0].why
    torch.testing.assert_close(got, causal(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
def test_a_nan_or_an_infinite_score_is_eagers(codegen):
    q, k, v = heads(rows=M), heads(), heads()
    q[0, 0, 3, 2], q[0, 1, 5, 2], k[1, 1, 160] = float("nan"), INF, 1e30
    compiled = compile_streamed(lambda *given: (plain(*given),), q, k, v, codegen=codegen)
    got, want = compiled(q, k, v)[0], plain(q, k, v)
    assert torch.equal(got.isnan(), want.isnan())
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


MASKS = {
    "causal": lambda i, j: i >= j,
    "window": lambda i, j: (i - j).abs() <= 20,
    "window of the past": lambda i, j: (i >= j) & (i - j < 33),
    "prefix": lambda i, j: (i >= j) | (j < 40),
    "far away": lambda i, j: ~((i - j).abs() < 60),
    "twice as fast": lambda i, j: 2 * i + 3 > 5 * j,
    "one block": lambda i, j: (i < 10) & (j == 170),
    "nothing": lambda i, j: i + j < 0,
    "a cap": lambda i, j: torch.maximum(i, j) < 70,
    "as floats": lambda i, j: i.float() * 0.5 >= j.float(),
}
LEFT_OUT = {"causal": 9, "window": 15, "prefix": 6, "nothing": 35, "a cap": 25}
"""Blocks of 32 x 32 that are known to be hidden, at least. (Their matrix is 150 x 200: 35 blocks.)"""


@pytest.mark.parametrize("name", MASKS)
def test_blocks_that_a_formula_hides_are_left_out_and_no_others(name):
    mask = MASKS[name]

    def masked(q, k, v):
        return (torch.softmax(torch.where(mask(*positions()), q @ k.mT, -INF), -1) @ v,)

    inputs = heads(rows=M), heads(), heads()
    loops = scheduling.stream_products(lowered(masked, *inputs))
    (stream,) = [node for node in loops.nodes if isinstance(node, Streamed)]
    shown = shown_columns(stream.stream, 32, 32) or [(0, N)] * 5

    left_out = 0
    for block, (first, last) in enumerate(shown):
        rows = mask(*positions())[32 * block : 32 * block + 32]
        assert not rows[:, :first].any() and not rows[:, last:].any()
        left_out += 7 - (last - first + 31) // 32
    assert left_out >= LEFT_OUT.get(name, 0)


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("name", ["causal", "window", "nothing"])
def test_a_nan_among_values_that_a_mask_hides_is_eagers(name, codegen):
    mask = MASKS[name]

    def masked(q, k, v):
        return (torch.softmax(torch.where(mask(*positions()), q @ k.mT, -INF), -1) @ v,)

    q, k, v = heads(rows=M), heads(), heads()
    v[0, 0, 190, 3], v[1, 1, 0, 7] = float("nan"), INF
    with small_tiles():
        compiled = compile_streamed(masked, q, k, v, codegen=codegen)
    assert ("shown_from" if codegen == "cpp" else "is_finite") in compiled.source
    got, want = compiled(q, k, v)[0], masked(q, k, v)[0]
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("start", [0, 30])
def test_random_programs(start, codegen):
    """(`python tests/tools/random_attention.py --count 2000` runs as many as you have time for.)"""
    on_gpu = codegen == "triton" and torch.cuda.is_available()
    device = "cuda" if on_gpu else "cpu"
    outcomes = {seed: check(seed, codegen, device) for seed in range(start, start + 12)}
    assert {seed: each.fault for seed, each in outcomes.items() if each.fault} == {}
    assert sum(each.is_stream for each in outcomes.values()) > 3


def test_pictures_and_lists_know_a_stream(tmp_path):
    inputs = heads(rows=M), heads(), heads()
    with cl.record() as trace, torch.no_grad():
        cl.compile(causal)(*inputs)
    (stream,) = trace.kernels
    assert (stream.is_library, stream.bytes_saved > 0) == (False, True)
    # The report shows its source and its loops, the code its call, and the explorer finds a source for each kernel.
    page = tmp_path / "report.html"
    trace.report(page)
    text = page.read_text()
    assert stream.name in text
    assert f"columns [{N}] in blocks" in text
    (compiled,) = [event.compiled for event in trace.of(events.KernelsBuilt)]
    assert [source.name for source in compiled.kernels] == [stream.name]
    assert compiled.schedule.printed == [stream]
    assert trace.explorer() is not None


def test_what_lies_far_before_a_product_is_not_walked():
    """A loop over time: each product has all earlier steps before it."""

    def steps(x, w):
        for _ in range(150):
            x = torch.sigmoid(x @ w) * 0.5 + torch.tanh(x.chunk(2, 1)[0].repeat(1, 2)) * x
        return x @ w

    x, w = torch.randn(4, 8), torch.randn(8, 8)
    (got,) = compile_streamed(lambda x, w: (steps(x, w),), x, w)(x, w)
    torch.testing.assert_close(got, steps(x, w), rtol=1e-3, atol=1e-4)


def test_scores_far_before_the_product_are_stored():
    def far(q, k, v):
        scores = q @ k.mT
        for n in range(70):
            scores = scores * 1.001 + scores.sin() / (n + 2)
        return scores.softmax(-1) @ v

    compiled = compile_streamed(lambda *given: (far(*given),), heads(rows=M), heads(), heads())
    said = [str(d.answer) for d in compiled.schedule.decisions if isinstance(d.answer, No)]
    assert any("operations lie before this product" in text for text in said), said
