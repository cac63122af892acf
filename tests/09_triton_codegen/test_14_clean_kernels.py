"""Kernels as people write them, none of them with a fault: right results, no complaint, not refused."""

import pytest
import torch

import course_lib  # noqa: F401  (before Triton)

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("nothing is simulated where there is a GPU", allow_module_level=True)

import triton
import triton.language as tl

from course_lib import simulator, versions

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True, params=[None, 1], ids=["in order", "shuffled"])
def order(request):
    with simulator.using(seed=request.param):
        yield


@triton.jit
def softmax_kernel(out, x, x_stride, out_stride, rows, columns, BLOCK: tl.constexpr):
    start, step = tl.program_id(0), tl.num_programs(0)
    for row in tl.range(start, rows, step, num_stages=2):
        c = tl.arange(0, BLOCK)
        numbers = tl.load(x + row * x_stride + c, mask=c < columns, other=-float("inf"))
        numerator = tl.exp(numbers - tl.max(numbers, axis=0))
        tl.store(
            out + row * out_stride + c, numerator / tl.sum(numerator, axis=0), mask=c < columns
        )


def test_softmax_of_a_padded_matrix():
    x = torch.randn(7, 20)[:, :13]
    out = torch.zeros(7, 16)[:, :13]
    softmax_kernel[(3,)](out, x, x.stride(0), out.stride(0), 7, 13, BLOCK=16)
    torch.testing.assert_close(out, x.softmax(1))


@triton.jit
def matmul_kernel(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, LEAKY: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = program // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    row = first + (program % (GROUP * columns)) % height
    column = (program % (GROUP * columns)) // height
    tl.assume(row >= 0)

    rm = (row * BM + tl.arange(0, BM)) % M
    rn = (column * BN + tl.arange(0, BN)) % N
    rk = tl.arange(0, BK)
    pa = a + (rm[:, None] * am + rk[None, :] * ak)
    pb = b + (rk[:, None] * bk + rn[None, :] * bn)
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(pa, mask=rk[None, :] < K - k * BK, other=0.0)
        y = tl.load(pb, mask=rk[:, None] < K - k * BK, other=0.0)
        sums = tl.dot(x, y, sums)
        pa += BK * ak
        pb += BK * bk
    if LEAKY:
        sums = tl.where(sums >= 0, sums, 0.01 * sums)
    result = sums.to(tl.float16)
    cm_ = row * BM + tl.arange(0, BM)
    cn_ = column * BN + tl.arange(0, BN)
    place = c + cm * cm_[:, None] + cn * cn_[None, :]
    tl.store(place, result, mask=(cm_[:, None] < M) & (cn_[None, :] < N))


@pytest.mark.parametrize("leaky", [False, True])
def test_a_product_in_groups_of_tiles(leaky):
    a, b = torch.randn(50, 40).half(), torch.randn(35, 40).half().t()
    c = torch.zeros(50, 64).half()[:, :35]
    matmul_kernel[(4 * 3,)](
        a, b, c, 50, 35, 40, *a.stride(), *b.stride(), *c.stride(), BM=16, BN=16, BK=16, GROUP=2, LEAKY=leaky,
    )  # fmt: skip
    expected = a.float() @ b.float()
    expected = torch.nn.functional.leaky_relu(expected, 0.01) if leaky else expected
    torch.testing.assert_close(c.float(), expected, rtol=1e-2, atol=1e-2)


@triton.jit
def masked_matmul_kernel(a, b, c, M, N, K, B: tl.constexpr):
    """Rows and columns outside are loaded with a mask and without `other`: they are never stored."""
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    sums = tl.zeros((B, B), tl.float32)
    for k in range(0, K, B):
        inner = k + tl.arange(0, B)
        x = tl.load(a + m[:, None] * K + inner[None, :], mask=m[:, None] < M)
        y = tl.load(b + inner[:, None] * N + n[None, :], mask=n[None, :] < N)
        sums += tl.dot(x, y, input_precision="ieee")
    tl.store(c + m[:, None] * N + n[None, :], sums, mask=(m[:, None] < M) & (n[None, :] < N))


def test_a_product_with_masks_and_without_other():
    a, b, c = torch.randn(20, 32), torch.randn(32, 25), torch.zeros(20, 25)
    masked_matmul_kernel[(2, 2)](a, b, c, 20, 25, 32, B=16)
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)


@triton.jit
def rows_kernel(x, total, largest, running, rows, columns, R: tl.constexpr, C: tl.constexpr):
    """Rows outside have no value; their sums are not stored."""
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.arange(0, C)
    numbers = tl.load(x + r[:, None] * columns + c[None, :], mask=r[:, None] < rows)
    tl.store(total + r, tl.sum(numbers, 1), mask=r < rows)
    tl.store(largest + r, tl.argmax(numbers, 1), mask=r < rows)
    place = running + r[:, None] * columns + c[None, :]
    tl.store(place, tl.cumsum(numbers, 1), mask=r[:, None] < rows)


def test_sums_of_rows_with_a_mask_over_rows_only():
    x = torch.randn(6, 8)
    total, largest, running = torch.zeros(6), torch.zeros(6, dtype=torch.int64), torch.zeros(6, 8)
    rows_kernel[(2,)](x, total, largest, running, 6, 8, R=4, C=8)
    torch.testing.assert_close(total, x.sum(1))
    assert torch.equal(largest, x.argmax(1))
    torch.testing.assert_close(running, x.cumsum(1))


@triton.jit
def norm_backward_kernel(dw, wanted, lock, columns, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    """Partial sums behind a lock, as layer norm's backward keeps them."""
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < columns
    group = row % GROUPS
    lock += group
    count = lock + GROUPS
    dw = dw + group * columns + c
    partial = tl.load(wanted + row * columns + c, mask=mask, other=0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    seen = tl.load(count)
    if seen == 0:
        tl.atomic_xchg(count, 1)
    else:
        partial += tl.load(dw, mask=mask)
    tl.store(dw, partial, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


def test_sums_behind_a_lock():
    wanted = torch.randn(9, 10)
    dw, lock = torch.zeros(2, 10), torch.zeros(4, dtype=torch.int32)
    norm_backward_kernel[(9,)](dw, wanted, lock, 10, GROUPS=2, BLOCK=16)
    torch.testing.assert_close(dw, torch.stack([wanted[0::2].sum(0), wanted[1::2].sum(0)]))


@triton.jit
def attention_kernel(q, k, v, o, n, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + m[:, None] * D + d[None, :], mask=m[:, None] < n, other=0.0)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    sums = tl.zeros((BM, D), tl.float32)
    for start in range(0, n, BN):
        c = start + tl.arange(0, BN)
        key = tl.load(k + c[None, :] * D + d[:, None], mask=c[None, :] < n, other=0.0)
        scores = tl.dot(query, key, input_precision="ieee") * scale
        scores = tl.where((c[None, :] < n) & (m[:, None] >= c[None, :]), scores, -float("inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        factor = tl.exp2(largest - new)
        total = total * factor + tl.sum(weights, 1)
        value = tl.load(v + c[:, None] * D + d[None, :], mask=c[:, None] < n, other=0.0)
        sums = tl.dot(weights, value, sums * factor[:, None], input_precision="ieee")
        largest = new
    tl.store(o + m[:, None] * D + d[None, :], sums / total[:, None], mask=m[:, None] < n)


def test_attention_with_a_causal_mask():
    q, k, v = (torch.randn(40, 16) for _ in range(3))
    out = torch.zeros(40, 16)
    attention_kernel[(3,)](q, k, v, out, 40, 16**-0.5 * 1.44269504, BM=16, BN=16, D=16)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)


@triton.jit
def dropout_kernel(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    numbers = tl.load(x + i, mask=mask)
    keep = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(keep, numbers / (1 - p), 0.0), mask=mask)


def test_dropout_that_hashes_its_offsets():
    x = torch.ones(1000)
    out = torch.zeros(1000)
    dropout_kernel[(4,)](x, out, 1000, 0.5, 123, BLOCK=256)
    assert set(out.tolist()) == {0.0, 2.0}
    assert 400 < (out > 0).sum() < 600


@triton.jit
def blocks_kernel(x, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    source = tl.make_block_ptr(
        x, (rows, columns), (columns, 1), (tl.program_id(0) * R, 0), (R, C), (1, 0)
    )
    target = tl.make_block_ptr(
        out, (columns, rows), (rows, 1), (0, tl.program_id(0) * R), (C, R), (1, 0)
    )
    for _ in range(0, tl.cdiv(columns, C)):
        block = tl.load(source, boundary_check=(0, 1))
        tl.store(target, tl.trans(block), boundary_check=(0, 1))
        source = tl.advance(source, (0, C))
        target = tl.advance(target, (C, 0))


@pytest.mark.skipif(
    versions.minor(triton.__version__) >= (3, 9), reason="Triton 3.9 has no block pointers"
)
def test_block_pointers_with_boundary_checks_and_without_padding():
    x, out = torch.randn(10, 13), torch.zeros(13, 10)
    blocks_kernel[(3,)](x, out, 10, 13, R=4, C=8)
    assert torch.equal(out, x.t())


@triton.jit
def last_one_adds_kernel(x, partial, count, out, n, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    program = tl.program_id(0)
    i = program * BLOCK + tl.arange(0, BLOCK)
    tl.store(partial + program, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))
    if tl.atomic_add(count, 1) == PROGRAMS - 1:
        tl.store(out, tl.sum(tl.load(partial + tl.arange(0, PROGRAMS)), 0))


def test_the_last_program_adds_up():
    x, out = torch.randn(100), torch.zeros(1)
    last_one_adds_kernel[(8,)](
        x, torch.zeros(8), torch.zeros(1, dtype=torch.int32), out, 100, BLOCK=16, PROGRAMS=8
    )
    torch.testing.assert_close(out[0], x.sum())


@triton.jit
def segments_kernel(x, place, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    to = tl.load(place + i, mask=mask)
    numbers = tl.load(x + i, mask=mask)
    tl.atomic_add(out + to, numbers, mask=mask & (to >= 0), sem="relaxed")


def test_a_mask_that_also_asks_what_was_loaded():
    x, place, out = torch.randn(50), torch.arange(50) % 7 - 1, torch.zeros(6)
    segments_kernel[(4,)](x, place, out, 50, BLOCK=16)
    expected = torch.zeros(7).index_add_(0, place + 1, x)[1:]
    torch.testing.assert_close(out, expected)


@triton.jit
def mean_and_variance(mean_a, square_a, weight_a, mean_b, square_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, square_a + square_b + delta * delta * weight_a * share, weight


@triton.jit
def layer_norm_kernel(x, w, b, y, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < columns
    numbers = tl.load(x + row * columns + c, mask=mask, other=0.0).to(tl.float32)
    weight = tl.where(mask, 1.0, 0.0)
    mean, square, count = tl.reduce((numbers, numbers * 0.0, weight), 0, mean_and_variance)
    scale = tl.rsqrt(square / count + eps)
    result = (numbers - mean) * scale * tl.load(w + c, mask=mask) + tl.load(b + c, mask=mask)
    tl.store(y + row * columns + c, result, mask=mask)


def test_layer_norm_by_a_reduction_of_three():
    x, w, b = torch.randn(5, 13), torch.randn(13), torch.randn(13)
    y = torch.zeros(5, 13)
    layer_norm_kernel[(5,)](x, w, b, y, 13, 1e-5, BLOCK=16)
    expected = torch.nn.functional.layer_norm(x, (13,), w, b, 1e-5)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
