"""The 48 kernels of the discovery: each prints one line, which was recorded on an H100.

`run(number)` gives the line of this machine. `Z` makes a filled tensor, `T` one from a list; `ints`, `reprs`, `hexs` and `bits` print
one; `attempt` gives a result or the exception. Nothing reads or writes out of bounds.
"""

# ruff: noqa: E501, C408, B007
import contextlib
import io
import sys

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

interpreting = not torch.cuda.is_available()
device = "cpu" if interpreting else "cuda"

I8, I16, I32, I64 = torch.int8, torch.int16, torch.int32, torch.int64
U8, U32 = torch.uint8, torch.uint32
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64

PROBES = {}


def probe(number):
    def register(function):
        PROBES[number] = function
        return function

    return register


def run(number):
    return PROBES[number]()


def Z(n, dtype=I32, fill=0):
    return torch.full(n if isinstance(n, tuple) else (n,), fill, dtype=dtype, device=device)


def T(values, dtype):
    if dtype == U32:
        return torch.tensor(values, dtype=I64).to(U32).to(device)
    return torch.tensor(values, dtype=dtype, device=device)


def from_bits(patterns, dtype):
    return torch.from_numpy(np.array(patterns, np.uint32).view(np.float32)).to(device)


def ints(t):
    return "[" + ",".join(str(int(v)) for v in t.cpu().flatten().tolist()) + "]"


def reprs(t):
    return "[" + ",".join(repr(float(v)) for v in t.cpu().flatten().tolist()) + "]"


def hexs(t):
    return "[" + ",".join(float(v).hex() for v in t.cpu().flatten().tolist()) + "]"


def bits(t):
    width = t.element_size()
    raw = (
        t.cpu()
        .contiguous()
        .flatten()
        .view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[width])
    )
    return "[" + ",".join(f"{int(v) % 256**width:0{2 * width}x}" for v in raw.tolist()) + "]"


def sync():
    if not interpreting:
        torch.cuda.synchronize()


def attempt(f):
    """The result, or the exception: its class, and the sentence of the one behind it."""
    try:
        return f()
    except Exception as error:
        name, cause = type(error).__name__, error
        behind = ""
        while cause.__cause__ is not None:
            cause = cause.__cause__
            behind = f"<-{type(cause).__name__}"
        lines = str(cause).strip().splitlines() or [""]
        return f"{name}{behind}: {lines[-1]}"


class Captured:
    """What is printed inside, by Python and by the device."""

    text = ""

    def __enter__(self):
        self.out = contextlib.redirect_stdout(io.StringIO())
        self.stream = self.out.__enter__()
        return self

    def __exit__(self, *error):
        sync()
        self.out.__exit__(*error)
        self.text = " ".join(self.stream.getvalue().split())


@triton.jit
def k01(X, Y, Q, R, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(Q + i, x // y)
    tl.store(R + i, x % y)


@probe(1)
def p01():
    out = []
    for dt in (I32, I64, I8):
        x, y = T([-7, 7, -7, 7], dt), T([2, -2, -2, 2], dt)
        q, r = Z(4, I64), Z(4, I64)
        k01[(1,)](x, y, q, r, 4)
        out.append(f"q={ints(q)} r={ints(r)}")
    return " ".join(out)


@triton.jit
def k02(O, n, C: tl.constexpr):
    tl.store(O + 0, -7 // 2)
    tl.store(O + 1, -7 % 3)
    a = -7
    tl.store(O + 2, a // 2)
    tl.store(O + 3, a % 3)
    tl.store(O + 4, C // 2)
    tl.store(O + 5, C % 3)
    tl.store(O + 6, n // 2)
    tl.store(O + 7, n % 3)
    tl.store(O + 8, tl.cdiv(n, 2))
    tl.store(O + 9, tl.cdiv(C, 2))


@probe(2)
def p02():
    o = Z(10)
    k02[(1,)](o, -7, -7)
    return ints(o)


@triton.jit
def k03(O, lo, hi):
    for i in range(lo, hi):
        tl.store(O + i + 4, i // 2)
        tl.store(O + i + 12, i % 3)
    for j in range(-4, 4):
        tl.store(O + j + 20, j // 2)
    for k in tl.static_range(-4, 4):
        tl.store(O + k + 28, k // 2)


@probe(3)
def p03():
    o = Z(32)
    k03[(1,)](o, -4, 4)
    return ints(o)


@triton.jit
def k04(A, B, I, O, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(A + i)
    b = tl.load(B + i)
    s = tl.load(I + i)
    d = a - b
    tl.store(O + i, d.to(tl.int64))
    tl.store(O + N + i, (a < s).to(tl.int64))
    tl.store(O + 2 * N + i, (d // 2).to(tl.int64))
    tl.store(O + 3 * N + i, (a + s).to(tl.int64))


@triton.jit
def k04b(A, O, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(A + i)
    tl.store(O + i, (a > -1).to(tl.int64))


@probe(4)
def p04():
    a, b, s = T([1, 5], U32), T([2, 5], U32), T([-1, 6], I32)
    o, o2 = Z(8, I64), Z(2, I64, 9)
    k04[(1,)](a, b, s, o, 2)
    return f"{ints(o)} >-1: {attempt(lambda: (k04b[(1,)](a, o2, 2), ints(o2))[1])}"


@triton.jit
def k06(X, Y, O, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(O + i, x * y)
    tl.store(O + N + i, x + 2147483647)
    tl.store(O + 3 * N + i, (i + n) * n)
    acc = 1
    for j in range(0, 40):
        acc = acc * 2
    tl.store(O + 4 * N, acc)
    for j in range(100000, 100001):
        tl.store(O + 4 * N + 1, j * 100000)


@triton.jit
def k06b(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + i, x * 4294967296)


@triton.jit
def k06c(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    big = 4294967296
    tl.store(O + i, x * big)


@probe(6)
def p06():
    o = Z(10, I64)
    x = T([65536, 46341], I32)

    def go(k):
        o = Z(2, I64)
        k[(1,)](x, o, 2)
        return ints(o)

    k06[(1,)](x, T([65536, 46341], I32), o, 100000, 2)
    return f"{ints(o)} x*2**32: {attempt(lambda: go(k06b))} through a name: {attempt(lambda: go(k06c))}"


@triton.jit
def k07(P, B, OFF, UOFF, O, N: tl.constexpr):
    i = tl.arange(0, N)
    off = tl.load(OFF + i)
    u = tl.load(UOFF + i)
    p = (P + off).to(tl.int64) - P.to(tl.int64)
    q = (P + u).to(tl.int64) - P.to(tl.int64)
    tl.store(O + i, p)
    tl.store(O + N + i, q)
    b = (B + off).to(tl.int64) - B.to(tl.int64)
    tl.store(O + 2 * N + i, b)
    tl.store(O + 3 * N + i, (P + off * 4).to(tl.int64) - P.to(tl.int64))


@probe(7)
def p07():
    p = Z(16, F32)
    o = Z(8, I64)
    k07[(1,)](p, Z(16, torch.bool), T([1073741824, -3], I32), T([2147483653, 7], U32), o, 2)
    return ints(o)


@triton.jit
def k08(X, V, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    s = tl.sum(x, axis=0)
    tl.store(V, s.to(tl.float64))
    tl.store(D, s.dtype.primitive_bitwidth)


@probe(8)
def p08():
    out = []
    for dt in (torch.bool, I8, U8, I16, I32, I64, F16, BF16, F32):
        x = torch.full((256,), 100).to(dt).to(device)
        v, d = Z(1, F64), Z(1)

        def go(x=x, v=v, d=d):
            k08[(1,)](x, v, d, 256)
            return f"{v.item():g}/{d.item()}"

        out.append(str(dt)[6:] + "=" + attempt(go))
    return " ".join(out)


@triton.jit
def k09(X, V, W, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    c = tl.cumsum(x, axis=0)
    p = tl.cumprod(x, axis=0)
    tl.store(V + i, c.to(tl.int64))
    tl.store(W + i, p.to(tl.int64))
    tl.store(D, c.dtype.primitive_bitwidth)
    tl.store(D + 1, p.dtype.primitive_bitwidth)


@probe(9)
def p09():
    out = []
    for dt, vals in (
        (torch.bool, [1, 1, 0, 1]),
        (I8, [100, 100, 2, 3]),
        (I16, [300, 300, 2, 3]),
        (I32, [65536, 65536, 2, 3]),
    ):
        v, w, d = Z(4, I64), Z(4, I64), Z(2)

        def go():
            k09[(1,)](T(vals, dt), v, w, d, 4)
            return ints(v) + ints(w) + ints(d)

        out.append(str(dt)[6:] + "=" + attempt(go))
    return " ".join(out)


@triton.jit
def k10(X, Y, O, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    m = x * y
    b = x + 1
    t = x / y
    n = -x
    tl.store(O + i, m.to(tl.int64))
    tl.store(O + 2 * N + i, b.to(tl.int64))
    tl.store(O + 3 * N + i, (t * 1000).to(tl.int64))
    tl.store(O + 5 * N + i, n.to(tl.int64))
    tl.store(D + 0, m.dtype.primitive_bitwidth)
    tl.store(D + 2, b.dtype.primitive_bitwidth)
    tl.store(D + 3, t.dtype.primitive_bitwidth)


@triton.jit
def k10b(X, O, D, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(X + i) + 200
    tl.store(O + i, a.to(tl.int64))
    tl.store(D, a.dtype.primitive_bitwidth)


@triton.jit
def k10c(X, O, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    a = tl.where(x > 0, x, 1000)
    tl.store(O + i, a.to(tl.int64))
    tl.store(D, a.dtype.primitive_bitwidth)


@triton.jit
def k10d(X, O, D, N: tl.constexpr):
    i = tl.arange(0, N)
    c = 200
    a = tl.load(X + i) + c
    tl.store(O + i, a.to(tl.int64))
    tl.store(D, a.dtype.primitive_bitwidth)


@probe(10)
def p10():
    def go():
        o, d = Z(12, I64), Z(5)
        k10[(1,)](T([100, -128], I8), T([100, 3], I8), o, d, 2)
        return ints(o) + ints(d)

    def go2(k):
        o, d = Z(2, I64), Z(1)
        k[(1,)](T([100, -128], I8), o, d, 2)
        return ints(o) + ints(d)

    return f"{attempt(go)} +200: {attempt(lambda: go2(k10b))} where 1000: {attempt(lambda: go2(k10c))} c=200,+c: {attempt(lambda: go2(k10d))}"


@triton.jit
def k11(X, V, A, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(V + 0, tl.max(x, axis=0))
    tl.store(V + 1, tl.min(x, axis=0))
    tl.store(A + 0, tl.argmax(x, axis=0))
    tl.store(A + 1, tl.argmin(x, axis=0))
    v, k = tl.max(x, axis=0, return_indices=True)
    tl.store(V + 2, v)
    tl.store(A + 2, k)


@probe(11)
def p11():
    nan = float("nan")
    out = []
    for vals in ([1, nan, 3, 2], [nan, 1, 3, 2], [1, 3, 2, nan], [nan, nan, nan, nan]):

        def go():
            v, a = Z(3, F32), Z(3)
            k11[(1,)](T(vals, F32), v, a, 4)
            return reprs(v) + ints(a)

        out.append(attempt(go))
    return " ".join(out)


@triton.jit
def k13(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(O + i, tl.maximum(x, y))
    tl.store(O + N + i, tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL))
    tl.store(O + 2 * N + i, tl.minimum(x, y))
    tl.store(O + 3 * N + i, tl.clamp(x, -1.0, 1.0))
    tl.store(O + 4 * N + i, tl.clamp(x, -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL))


@probe(13)
def p13():
    nan = float("nan")
    o = Z(20, F32)
    k13[(1,)](T([nan, 1.0, 0.0, -0.0], F32), T([1.0, nan, -0.0, 0.0], F32), o, 4)
    return reprs(o)


@triton.jit
def k14(X, O, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    a = tl.where(x > 0, tl.log(x), 0.0)
    tl.store(O + i, a)
    b = tl.where(x, 1, 2)
    tl.store(O + N + i, b)
    tl.store(O + 2 * N + i, (x == x).to(tl.float32))
    tl.store(O + 3 * N + i, (x != x).to(tl.float32))
    c = tl.where(x > 0, i, x)
    tl.store(O + 4 * N + i, c)
    e = tl.where(x > 0, 1, 2.5)
    tl.store(O + 5 * N + i, e)
    tl.store(D + 0, b.dtype.primitive_bitwidth)
    tl.store(D + 1, e.dtype.primitive_bitwidth)


@probe(14)
def p14():
    o, d = Z(24, F32), Z(2)
    k14[(1,)](T([float("nan"), -1.0, 0.5, 0.0], F32), o, d, 4)
    return reprs(o) + ints(d)


@triton.jit
def k15(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + i, x.to(tl.int32).to(tl.int64))
    tl.store(O + N + i, x.to(tl.uint32).to(tl.int64))
    tl.store(O + 2 * N + i, x.to(tl.int8).to(tl.int64))
    tl.store(O + 3 * N + i, x.to(tl.uint8).to(tl.int64))
    tl.store(O + 4 * N + i, x.to(tl.int1).to(tl.int64))
    tl.store(O + 5 * N + i, x.to(tl.int64))


@probe(15)
def p15():
    o = Z(48, I64)
    k15[(1,)](T([-1.5, 2.5, 300.7, 3e9, -3e9, float("nan"), float("inf"), 1e20], F32), o, 8)
    return "i32,u32,i8,u8,i1,i64=" + ints(o)


@triton.jit
def k17(X, H, B, U, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = x.to(tl.bfloat16)
    tl.store(H + i, y)
    tl.store(B + i, x)
    tl.store(U + i, y.to(tl.float32))


@probe(17)
def p17():
    pats = [
        0x3F808000,
        0x3F818000,
        0x3F808001,
        0x3F80FFFF,
        0x7F7FFFFF,
        0x7F800001,
        0xFF800000,
        0x00018000,
        0x40490FDB,
        0x7FC00000,
    ]
    pats += [0] * 6
    h, b, u = Z(16, BF16), Z(16, BF16), Z(16, F32)
    k17[(1,)](from_bits(pats, F32), h, b, u, 16)
    return f"to={bits(h)[:50]} store={bits(b)[:50]} back={bits(u)[:90]}"


@triton.jit
def k18(X, A, B, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(A + i, x.to(tl.float8e4nv).to(tl.uint8, bitcast=True))
    tl.store(B + i, x.to(tl.float8e5).to(tl.uint8, bitcast=True))


@probe(18)
def p18():
    vals = [
        448.0,
        449.0,
        464.0,
        465.0,
        480.0,
        1e6,
        float("inf"),
        float("nan"),
        17.0,
        19.0,
        0.3,
        2**-9,
        2**-10,
        1.5 * 2**-10,
        1.9375,
        -0.0,
    ]
    a, b = Z(16, U8), Z(16, U8)
    k18[(1,)](T(vals, F32), a, b, 16)
    return f"e4m3={bits(a)} e5m2={bits(b)} torch_e4m3={bits(T(vals, F32).cpu().to(torch.float8_e4m3fn))} torch_e5m2={bits(T(vals, F32).cpu().to(torch.float8_e5m2))}"


@triton.jit
def k19(X, Y, A, B, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(A + i, tl.load(X + i).to(tl.float32))
    tl.store(B + i, tl.load(Y + i).to(tl.float32))


@probe(19)
def p19():
    raw = np.arange(256, dtype=np.uint8)
    x = torch.from_numpy(raw.copy()).view(torch.float8_e4m3fn)
    y = torch.from_numpy(raw.copy()).view(torch.float8_e5m2)
    a, b = Z(256, F32), Z(256, F32)
    k19[(1,)](x.to(device), y.to(device), a, b, 256)
    out = []
    for got, want in ((a.cpu(), x.to(F32)), (b.cpu(), y.to(F32))):
        bad = [
            k
            for k in range(256)
            if not (got[k] == want[k] or (got[k] != got[k] and want[k] != want[k]))
        ]
        out.append(
            f"differ from torch at {len(bad)} codes {[(hex(k), got[k].item(), want[k].item()) for k in bad[:5]]}"
        )
    return " | ".join(out)


@triton.jit
def k20(X, Y, Z_, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    z = tl.load(Z_ + i)
    tl.store(O + i, x + y)
    tl.store(O + N + i, x * y)
    tl.store(O + 2 * N + i, x * y + z)
    tl.store(O + 3 * N + i, (x.to(tl.float32) * y.to(tl.float32) + z.to(tl.float32)))
    tl.store(O + 4 * N + i, -x)
    tl.store(O + 5 * N + i, x / y)


@probe(20)
def p20():
    o = Z(24, F32)
    k20[(1,)](
        T([1.0, 1.0078125, -2.0, 3.0], BF16),
        T([2.0, 1.0078125, 0.5, 7.0], BF16),
        T([1.0, -1.015625, 1.0, 0.25], BF16),
        o,
        4,
    )
    return reprs(o)


@triton.jit
def k21a(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, (tl.load(X + i) < tl.load(Y + i)).to(tl.float32))


@triton.jit
def k21b(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.maximum(tl.load(X + i), tl.load(Y + i)).to(tl.float32))


@triton.jit
def k21c(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + i, tl.where(x > 0, x, 0.0).to(tl.float32))


@triton.jit
def k21d(X, Y, O, N: tl.constexpr):
    s = tl.sum(tl.load(X + tl.arange(0, N)), axis=0)
    tl.store(O, s.to(tl.float32))
    tl.store(O + 1, s.dtype.primitive_bitwidth)


@triton.jit
def k21e(X, Y, O, N: tl.constexpr):
    tl.store(O, tl.max(tl.load(X + tl.arange(0, N)), axis=0).to(tl.float32))


@triton.jit
def k21f(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i) * 2.0
    tl.store(O + i, x.to(tl.float32))


@triton.jit
def k21g(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.abs(tl.load(X + i)).to(tl.float32))


@triton.jit
def k21h(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i).to(tl.float32)
    y = tl.load(Y + i).to(tl.float32)
    tl.store(O + i, (x * y + 0.001).to(tl.bfloat16))


@probe(21)
def p21():
    x, y = T([-1.0, -3.0, 2.0, 1.5], BF16), T([1.0, -2.0, 1.0, 1.0], BF16)

    def go(k):
        o = Z(4, F32)
        k[(1,)](x, y, o, 4)
        return reprs(o)

    names = {
        "<": k21a,
        "maximum": k21b,
        "where": k21c,
        "sum": k21d,
        "max": k21e,
        "*2.0": k21f,
        "abs": k21g,
        "through fp32": k21h,
    }
    return " ".join(f"{n}: {attempt(lambda: go(k))}" for n, k in names.items())


@triton.jit
def k22(X, Y, O, D, s, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(O + i, x * y)
    tl.store(O + N + i, x * y + y)
    tl.store(O + 2 * N + i, x / y)
    a = x * 0.1
    c = 0.1
    b = x * c
    e = x * s
    tl.store(O + 4 * N + i, a)
    tl.store(O + 5 * N + i, b)
    tl.store(O + 6 * N + i, e)
    tl.store(D + 0, a.dtype.primitive_bitwidth)
    tl.store(D + 1, b.dtype.primitive_bitwidth)
    tl.store(D + 2, e.dtype.primitive_bitwidth)
    tl.store(D + 3, (x / y).dtype.primitive_bitwidth)


@triton.jit
def k22b(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.exp(tl.load(X + i)))


@triton.jit
def k22c(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.sqrt(tl.load(X + i)))


@probe(22)
def p22():
    def go():
        o, d = Z(14, F32), Z(4)
        k22[(1,)](T([300.0, 3.0], F16), T([300.0, 0.1], F16), o, d, 0.1, 2)
        return reprs(o) + ints(d)

    def go2(k):
        o = Z(2, F32)
        k[(1,)](T([300.0, 3.0], F16), o, 2)
        return reprs(o)

    return f"{attempt(go)} exp: {attempt(lambda: go2(k22b))} sqrt: {attempt(lambda: go2(k22c))}"


@triton.jit
def k23(X, O, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    s = tl.sum(x, axis=0)
    c = tl.cumsum(x, axis=0)
    tl.store(O + 0, s.to(tl.float32))
    tl.store(O + 1, tl.sum(tl.where(i == N - 1, c, 0.0), axis=0).to(tl.float32))
    tl.store(D + 0, s.dtype.primitive_bitwidth)
    tl.store(D + 1, c.dtype.primitive_bitwidth)


@probe(23)
def p23():
    out = []
    for v in (1.0, 0.1):
        o, d = Z(2, F32), Z(2)
        k23[(1,)](torch.full((4096,), v, dtype=F16).to(device), o, d, 4096)
        out.append(reprs(o) + ints(d))
    x = (torch.arange(1024) % 97 + 1).to(F32).reciprocal().to(device)
    o, d = Z(2, F32), Z(2)
    k23[(1,)](x, o, d, 1024)
    return " ".join(out) + " fp32=" + hexs(o)


@triton.jit
def k24(
    A,
    B,
    C,
    O,
    PREC: tl.constexpr,
    ACC: tl.constexpr,
    OUT: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
):
    i = tl.arange(0, N)
    k = tl.arange(0, K)
    a = tl.load(A + i[:, None] * K + k[None, :])
    b = tl.load(B + k[:, None] * N + i[None, :])
    if ACC:
        c = tl.load(C + i[:, None] * N + i[None, :])
        r = tl.dot(a, b, c, input_precision=PREC)
    else:
        r = tl.dot(a, b, input_precision=PREC, out_dtype=OUT)
    tl.store(O + i[:, None] * N + i[None, :], r)


def dot(a, b, c=None, prec=None, out=tl.float32, odt=F32):
    m, k = a.shape
    o = Z((m, m), odt)
    k24[(1,)](a, b, c if c is not None else o, o, prec, c is not None, out, m, k)
    return o[0, :2]


@probe(24)
def p24():
    a = torch.zeros(16, 16)
    b = torch.zeros(16, 16)
    a[0, 0] = 1 + 2**-11
    b[0, 0] = 1.0
    a[0, 1], b[1, 1] = 1 + 2**-10 + 2**-11 + 2**-23, 1.0
    a, b = a.to(device), b.to(device)
    return " ".join(
        f"{p}={attempt(lambda: hexs(dot(a, b, prec=p)))}" for p in (None, "tf32", "tf32x3", "ieee")
    )


@probe(26)
def p26():
    a = torch.full((16, 16), 2.0**-12, dtype=F16).to(device)
    c = torch.ones(16, 16).to(device)
    r1 = hexs(dot(a, a, c))
    a2 = torch.full((16, 16), 2.0**-12 * 1.5, dtype=F16).to(device)
    r2 = hexs(dot(a2, a2, c))
    x = torch.zeros(16, 16, dtype=F16)
    x[:, 0], x[:, 1], x[:, 2] = 32768.0, -32768.0, 2.0**-10
    y = torch.ones(16, 16, dtype=F16)
    r3 = hexs(dot(x.to(device), y.to(device)))
    return f"{r1} {r2} {r3}"


@triton.jit
def k27(A, B, C, O, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(A + i)
    b = tl.load(B + i)
    c = tl.load(C + i)
    tl.store(O + i, a * b + c)
    p = a * b
    tl.store(O + N + i, p + c)
    tl.store(O + 2 * N + i, tl.fma(a, b, c))
    tl.store(O + 3 * N + i, c - a * b)


@probe(27)
def p27():
    a, b, c = T([1 + 2**-12, 0.1], F32), T([1 + 2**-12, 10.0], F32), T([-(1 + 2**-11), -1.0], F32)
    out = []
    for kw in ({}, {"enable_fp_fusion": False}):
        o = Z(8, F32)
        k27[(1,)](a, b, c, o, 2, **kw)
        out.append(hexs(o))
    return " no_fusion=".join(out)


@triton.jit
def k28(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + i, tl.exp(x))
    tl.store(O + N + i, tl.exp2(x))
    tl.store(O + 2 * N + i, tl.log(x))
    tl.store(O + 3 * N + i, tl.log2(x))
    tl.store(O + 4 * N + i, tl.sin(x))
    tl.store(O + 5 * N + i, tl.cos(x))
    tl.store(O + 6 * N + i, tl.sqrt(x))
    tl.store(O + 7 * N + i, tl.rsqrt(x))
    tl.store(O + 8 * N + i, tl.erf(x))
    tl.store(O + 9 * N + i, tl.sigmoid(x))


@probe(28)
def p28():
    import math

    names = "exp exp2 log log2 sin cos sqrt rsqrt erf sigmoid".split()
    x = (torch.arange(256, dtype=F64) * 0.0371 + 0.013).to(F32)
    x64 = x.to(F64).numpy()
    want = [
        np.exp(x64),
        np.exp2(x64),
        np.log(x64),
        np.log2(x64),
        np.sin(x64),
        np.cos(x64),
        np.sqrt(x64),
        1 / np.sqrt(x64),
        np.array([math.erf(v) for v in x64]),
        1 / (1 + np.exp(-x64)),
    ]
    o = Z(2560, F32)
    k28[(1,)](x.to(device), o, 256)
    got = o.cpu().numpy().reshape(10, 256)
    out = []
    for n, g, w in zip(names, got, want):
        ulp = np.abs(g.astype(np.float64) - w) / np.spacing(np.abs(w).astype(np.float32)).astype(
            np.float64
        )
        out.append(f"{n}:{int((g != w.astype(np.float32)).sum())}off,max{ulp.max():.2f}ulp")
    return " ".join(out)


@triton.jit
def k29(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + i, libdevice.tanh(x))


@triton.jit
def k29b(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + i, tl.math.tanh(x))


@probe(29)
def p29():
    def go(k):
        o = Z(2, F32)
        k[(1,)](T([0.5, 2.0], F32), o, 2)
        return hexs(o)

    return f"libdevice.tanh={attempt(lambda: go(k29))} tl.math.tanh={attempt(lambda: go(k29b))}"


@triton.jit
def k31(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(O + i, x / y)
    tl.store(O + N + i, tl.fdiv(x, y))
    tl.store(O + 2 * N + i, tl.fdiv(x, y, ieee_rounding=True))
    tl.store(O + 3 * N + i, tl.div_rn(x, y))
    tl.store(O + 4 * N + i, x / 3.0)
    tl.store(O + 5 * N + i, tl.sqrt(y))
    tl.store(O + 6 * N + i, tl.sqrt_rn(y))
    tl.store(O + 7 * N + i, 1.0 / y)


@probe(31)
def p31():
    n = 1024
    x = (torch.arange(n) * 37 % 1009 + 1).to(F32)
    y = (torch.arange(n) * 101 % 997 + 1).to(F32)
    o = Z(8 * n, F32)
    k31[(1,)](x.to(device), y.to(device), o, n)
    got = o.cpu().numpy().reshape(8, n)
    xn, yn = x.numpy(), y.numpy()
    want = [xn / yn] * 4 + [xn / np.float32(3), np.sqrt(yn), np.sqrt(yn), np.float32(1) / yn]
    names = ["/", "fdiv", "fdiv_ieee", "div_rn", "/3.0", "sqrt", "sqrt_rn", "1/y"]
    o2 = Z(8 * 4, F32)
    k31[(1,)](T([1.0, -1.0, 0.0, 3e38], F32), T([0.0, 0.0, 0.0, 1.5e38], F32), o2, 4)
    return (
        " ".join(f"{m}:{int((g != w).sum())}of{n}" for m, g, w in zip(names, got, want))
        + " special="
        + reprs(o2[:16])
    )


@triton.jit
def k32(X, Y, O, D, n, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    q = x / y
    tl.store(O + i, q.to(tl.float64))
    tl.store(O + N + i, (x * 0.5).to(tl.float64))
    tl.store(O + 2 * N, (n / 2))
    tl.store(O + 2 * N + 1, (7 / 2))
    tl.store(O + 2 * N + 2, (n / 3))
    tl.store(D + 0, q.dtype.primitive_bitwidth)
    tl.store(D + 1, (x * 0.5).dtype.primitive_bitwidth)


@probe(32)
def p32():
    out = []
    for dt in (I32, I64):
        o, d = Z(7, F64), Z(2)
        k32[(1,)](T([7, 2147483647], dt), T([2, 1], dt), o, d, 16777217, 2)
        out.append(reprs(o) + ints(d))
    return " ".join(out)


@triton.jit
def k34(OFF, O, N: tl.constexpr):
    i = tl.arange(0, N)
    off = tl.load(OFF + i)
    tl.store(O + i, tl.randint(7, off).to(tl.int64))
    tl.store(O + N + i, tl.umulhi(off, off).to(tl.int64))


@probe(34)
def p34():
    out = []
    for dt in (I32, I64, U32):

        def go():
            o = Z(4, I64)
            k34[(1,)](T([5, 2147483647] if dt == I32 else [5, 4294967295], dt), o, 2)
            return ints(o)

        out.append(attempt(go))
    return " ".join(out)


@triton.jit
def k35(X, Y, O, P, n, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(X + i, mask=i < n)
    tl.store(O + i, a)
    b = tl.load(Y + i, mask=i < n)
    tl.store(P + i, b)
    c = tl.load(Y + i, mask=i < n, other=1.75)
    tl.store(P + N + i, c)
    d = tl.load(X + i, mask=i < n, other=-1)
    tl.store(O + N + i, d)
    e = tl.load(Y + i, mask=i < n, other=4294967297)
    tl.store(P + 2 * N + i, e)
    tl.store(O + 2 * N, tl.sum(a, axis=0))
    tl.store(O + 2 * N + 1, tl.max(a, axis=0))


@probe(35)
def p35():
    def go():
        o, p = Z(18, F32, 9), Z(24, I32, 9)
        k35[(1,)](T([-1.0, -2.0, -3.0, -4.0, -5.0], F32), T([1, 2, 3, 4, 5], I32), o, p, 5, 8)
        return reprs(o) + ints(p)

    return attempt(go)


@triton.jit
def k37(O, P, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i // 64, i)
    tl.store(P + i * 0, i)
    tl.store(O + 8, tl.program_id(0))


@triton.jit
def k37b(C):
    tl.store(C, tl.load(C) + 1)


@probe(37)
def p37():
    o, p, c = Z(9), Z(1), Z(1)
    k37[(16,)](o, p, 512)
    k37b[(512,)](c, num_warps=1)
    return f"{ints(o)} {ints(p)} lost updates: {512 - c.item() if interpreting else ('none' if c.item() == 512 else 'some')}"


@triton.jit
def k38(C, A, M, O, N: tl.constexpr):
    i = tl.arange(0, N)
    old = tl.atomic_add(C + i // 4, 1)
    tl.store(O + i, old)
    m = tl.atomic_max(M + i * 0, i)
    tl.store(O + N + i, m)
    x = tl.atomic_xchg(A, 5)
    y = tl.atomic_cas(A, 5, 7)
    z = tl.atomic_cas(A, 5, 9)
    tl.store(O + 2 * N, x)
    tl.store(O + 2 * N + 1, y)
    tl.store(O + 2 * N + 2, z)


@probe(38)
def p38():
    c, a, m, o = Z(2), Z(1, I32, 3), Z(1, I32, -1), Z(19)
    k38[(1,)](c, a, m, o, 8)
    return f"C={ints(c)} A={ints(a)} M={ints(m)} olds={ints(o)}"


@triton.jit
def k39(X, S, H, F, U, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.atomic_add(S + i * 0, x)
    tl.atomic_add(H, 0.5)
    tl.atomic_max(F + i * 0, x)
    tl.atomic_min(F + 1 + i * 0, x)
    tl.atomic_max(U, tl.full((), 4294967295, tl.uint32))


@probe(39)
def p39():
    def go(dt):
        s, h, f, u = Z(1, F32), Z(1, dt), T([0.0, 0.0], F32), T([5], U32)
        k39[(3,)](T([1e8, 1.0, -1e8, 1.0, -2.0, 3.0, 0.5, -0.0], F32), s, h, f, u, 8)
        return f"sum={hexs(s)} half={reprs(h)} maxmin={reprs(f)} umax={ints(u)}"

    return f"fp16: {attempt(lambda: go(F16))} bf16: {attempt(lambda: go(BF16))}"


@triton.jit
def k40(C, O, P):
    x = tl.program_id(0)
    y = tl.program_id(1)
    z = tl.program_id(2)
    n = tl.atomic_add(C, 1)
    tl.store(O + n, x * 100 + y * 10 + z)
    tl.store(P, tl.num_programs(0) * 10000 + tl.num_programs(1) * 100 + tl.num_programs(2))


@probe(40)
def p40():
    c, o, p = Z(1), Z(12), Z(1)
    k40[(2, 3, 2)](c, o, p)
    z = attempt(lambda: (k40[(0,)](c, o, p), "ran")[1])
    neg = attempt(lambda: (k40[(-1,)](c, o, p), "ran")[1])
    return f"order={ints(o)} num={ints(p)} grid0={z} grid-1={neg} count={ints(c)}"


@triton.jit
def k41(X, Y, O, P, D, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(O + i, tl.sort(x))
    tl.store(O + N + i, tl.sort(x, descending=True))
    tl.store(P + i, tl.sort(y))
    t = tl.topk(x, 4)
    tl.store(O + 2 * N + tl.arange(0, 4), t)
    tl.store(D, tl.sort(y).dtype.primitive_bitwidth)


@probe(41)
def p41():
    def go():
        nan = float("nan")
        o, p, d = Z(20, F32), Z(8, I64), Z(1)
        k41[(1,)](
            T([3.0, nan, -1.0, 0.0, -0.0, 7.0, -5.0, 2.0], F32),
            T([3, 255, 0, 128, 7, 5, 2, 1], U8),
            o,
            p,
            d,
            8,
        )
        return reprs(o) + ints(p) + ints(d)

    return attempt(go)


@triton.jit
def k43(X, Y, O, P, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    y = tl.load(Y + i)
    tl.store(O + i, tl.cumsum(x, axis=0, reverse=True))
    tl.store(O + N + i, tl.cumprod(x, axis=0, reverse=True))
    tl.store(P + i, tl.cumsum(y, axis=0))


@probe(43)
def p43():
    o, p = Z(16), Z(8, F32)
    k43[(1,)](
        T([1, 2, 3, 4, 5, 6, 7, 8], I32), T([1e8, 1.0, 1.0, 1.0, -1e8, 1.0, 1.0, 1.0], F32), o, p, 8
    )
    return ints(o) + reprs(p)


@triton.jit
def affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def k44(A, B, O, N: tl.constexpr, REV: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(A + i)
    b = tl.load(B + i)
    x, y = tl.associative_scan((a, b), 0, affine, reverse=REV)
    tl.store(O + i, x)
    tl.store(O + N + i, y)


@probe(44)
def p44():
    out = []
    for n in (8, 256):
        for rev in (False, True):
            o = Z(2 * n, I64)
            a = (torch.arange(n) % 3 + 1).to(I64)
            b = (torch.arange(n) % 5 + 1).to(I64)
            k44[(1,)](a.to(device), b.to(device), o, n, rev)
            out.append(ints(o) if n == 8 else f"n256:{sum(o.cpu().tolist()) % 1000003}")
    return " ".join(out)


@triton.jit
def first(a, b):
    return a


@triton.jit
def last(a, b):
    return b


@triton.jit
def matmul2(a, b, c, d, e, f, g, h):
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


@triton.jit
def k46(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(X + i)
    tl.store(O + 0, tl.reduce(x, 0, first))
    tl.store(O + 1, tl.reduce(x, 0, last))
    one = tl.full((N,), 1, tl.int32)
    a, b, c, d = tl.reduce((one, x % 3, x % 2, one), 0, matmul2)
    tl.store(O + 2, a)
    tl.store(O + 3, b)
    tl.store(O + 4, c)
    tl.store(O + 5, d)


@probe(46)
def p46():
    out = []
    for n in (8, 256, 1024):
        o = Z(6)
        k46[(1,)](torch.arange(n, dtype=I32).to(device), o, n)
        out.append(ints(o))
    return " ".join(out)


@triton.jit
def k47(O, P):
    i = tl.arange(0, 4)
    a, b = tl.split(tl.reshape(tl.arange(0, 8), (4, 2)))
    tl.store(O + i, a)
    tl.store(O + 4 + i, b)
    j = tl.join(i, i + 10)
    tl.store(O + 8 + tl.arange(0, 8), tl.reshape(j, (8,)))
    tl.store(O + 16 + tl.arange(0, 8), tl.interleave(i, i + 10))
    c = tl.cat(i, i + 10, can_reorder=True)
    tl.store(P + tl.arange(0, 8), c)


@probe(47)
def p47():
    o, p = Z(24), Z(8)
    k47[(1,)](o, p)
    return ints(o) + " cat=" + ints(p)


@triton.jit
def k49(O, LO: tl.constexpr, HI: tl.constexpr):
    i = tl.arange(LO, HI)
    tl.store(O + i, i)


@triton.jit
def k49b(O, N: tl.constexpr):
    x = tl.zeros((N,), tl.int32)
    tl.store(O, tl.sum(x, axis=0))


@triton.jit
def k49c(O, n):
    i = tl.arange(0, n)
    tl.store(O + i, i)


@triton.jit
def k49d(O):
    x = tl.reshape(tl.arange(0, 4), (4, 1)) + tl.reshape(tl.arange(0, 8), (8,))
    tl.store(O, tl.sum(x))


@triton.jit
def k49e(O):
    x = tl.full((2**21,), 1, tl.int8)
    tl.store(O, tl.sum(x, axis=0))


@probe(49)
def p49():
    o = Z(16)
    return " | ".join(
        f"{name}: {attempt(f)}"
        for name, f in (
            ("0..6", lambda: (k49[(1,)](o, 0, 6), ints(o))[1]),
            ("3..11", lambda: (k49[(1,)](o, 3, 11), ints(o))[1]),
            ("-4..4", lambda: (k49[(1,)](o[4:], -4, 4), ints(o))[1]),
            ("5..5", lambda: (k49[(1,)](o, 5, 5), "ok")[1]),
            ("zeros6", lambda: (k49b[(1,)](o, 6), "ok")[1]),
            ("runtime", lambda: (k49c[(1,)](o, 4), "ok")[1]),
            ("(4,1)+(8,)", lambda: (k49d[(1,)](o), ints(o[:1]))[1]),
            ("2**21", lambda: (k49e[(1,)](o), ints(o[:1]))[1]),
        )
    )


@triton.jit
def k50a(O, n):
    acc = 0
    for i in range(0, n):
        acc += 0.5
    tl.store(O, acc)


@triton.jit
def k50b(O, n):
    acc = 0.0
    for i in range(0, n):
        acc += tl.full((4,), 1.0, tl.float32)
    tl.store(O + tl.arange(0, 4), acc)


@triton.jit
def k50c(O, n):
    acc = tl.zeros((4,), tl.float16)
    for i in range(0, n):
        acc += tl.full((4,), 0.5, tl.float32)
    tl.store(O + tl.arange(0, 4), acc)


@triton.jit
def k50d(O, n):
    i = 0
    while i < n:
        i += 2
    tl.store(O, i)


@triton.jit
def k50k(O, n):
    for j in range(0, n):
        if j == 3:
            break
        tl.store(O + j, 1)


@triton.jit
def k50l(O, n):
    for j in range(n - 1, -1, -1):
        tl.store(O + j, j + 0.5)
    for j in tl.range(0, n, num_stages=2):
        tl.store(O + j, tl.load(O + j) + 100)


@triton.jit
def k50m(O, n):
    j = 7
    for j in range(0, n - 5):
        tl.store(O + 1, j)
    tl.store(O, j)


@triton.jit
def k50e(O, n):
    last = -1
    for j in range(0, n):
        last = j
    tl.store(O, last)
    tl.store(O + 1, j)


@triton.jit
def k50f(O, n):
    for j in range(0, n):
        if j % 2 == 0:
            continue
        tl.store(O + j, j)


@triton.jit
def k50g(O, n):
    if n > 2:
        y = 5
    tl.store(O, y)


@triton.jit
def k50h(O, n):
    if n > 2:
        y = 1
    else:
        y = 2.5
    tl.store(O, y)


@triton.jit
def k50i(O, n):
    x = tl.arange(0, 4)
    x = tl.sum(x, axis=0)
    if n > 100:
        return
    for j in range(0, n):
        x = x + j
    tl.store(O, x)


@triton.jit
def k50j(O, n):
    for j in range(0, n):
        if j == 2:
            return
        tl.store(O + j, 7)


@probe(50)
def p50():
    def go(k, n=5):
        o = Z(8, F32)
        k[(1,)](o, n)
        return reprs(o[:5])

    names = dict(
        int_plus_float=k50a,
        scalar_plus_block=k50b,
        fp16_plus_fp32=k50c,
        while_loop=k50d,
        break_=k50k,
        negative_step=k50l,
        empty_loop_var=k50m,
        var_after_loop=k50e,
        cont=k50f,
        only_one_branch=k50g,
        branch_types=k50h,
        early_return=k50i,
        return_in_loop=k50j,
    )
    return " | ".join(f"{n}: {attempt(lambda: go(k))}" for n, k in names.items())


@triton.jit
def k51a(O, X):
    x = tl.load(X + tl.arange(0, 4))
    if x > 0:
        tl.store(O, 1)
    else:
        tl.store(O, 2)


@triton.jit
def k51b(O, X):
    x = tl.load(X)
    if x:
        tl.store(O, 1)
    else:
        tl.store(O, 2)


@triton.jit
def k51c(O, X):
    x = tl.load(X + tl.arange(0, 4))
    a = (x > 0) and (x < 3)
    tl.store(O + tl.arange(0, 4), a)


@triton.jit
def k51d(O, X):
    x = tl.load(X + tl.arange(0, 4))
    a = 0 < x < 3
    tl.store(O + tl.arange(0, 4), a)


@triton.jit
def k51e(O, X):
    x = tl.load(X + tl.arange(0, 4))
    tl.store(O + tl.arange(0, 4), not (x > 0))


@triton.jit
def k51f(O, X):
    x = tl.load(X)
    y = 3 if x > 0 else 4
    tl.store(O, y)


@triton.jit
def k51g(O, X):
    x = tl.load(X + tl.arange(0, 4))
    y = (x > 0) | (x == -1)
    z = ~(x > 0)
    tl.store(O + tl.arange(0, 4), y.to(tl.int32) * 10 + z.to(tl.int32))


@triton.jit
def k51h(O, X):
    x = tl.load(X + tl.arange(0, 4))
    y = max(x, 1)
    z = min(x, 1)
    tl.store(O + tl.arange(0, 4), y * 100 + z)


@triton.jit
def k51l(O, X):
    x = tl.load(X + tl.arange(0, 4))
    tl.store(O + tl.arange(0, 4), abs(x))


@triton.jit
def k51i(O, X):
    x = tl.load(X + tl.arange(0, 4))
    tl.store(O + tl.arange(0, 4), x[0])


@triton.jit
def k51j(O, X):
    xs = [tl.load(X + k) for k in range(4)]
    tl.store(O, xs[0] + xs[3])


@triton.jit
def k51k(O, X):
    x = tl.load(X)
    print("value", x)
    tl.store(O, x)


@triton.jit
def k51m(O, X):
    tl.store(O, np.float32(2.5))


@triton.jit
def k51n(O, X):
    x = tl.load(X + tl.arange(0, 4))
    if tl.sum(x, axis=0) > 3 and tl.max(x, axis=0) == 5:
        tl.store(O, 1)
    assert tl.max(x, axis=0) == 4, "not four"
    tl.store(O + 1, 1)


@probe(51)
def p51():
    def go(k):
        o = Z(4)
        with Captured():
            try:
                k[(1,)](o, T([-1, 1, 2, 5], I32))
            finally:
                pass
        return ints(o)

    names = dict(
        if_block=k51a,
        if_scalar_int=k51b,
        and_blocks=k51c,
        chained=k51d,
        not_block=k51e,
        ternary=k51f,
        bitops=k51g,
        builtin_max_min=k51h,
        builtin_abs=k51l,
        index_block=k51i,
        list_comp=k51j,
        print_=k51k,
        numpy=k51m,
        and_scalars_assert=k51n,
    )
    return " | ".join(f"{n}: {attempt(lambda: go(k))}" for n, k in names.items())


@triton.jit
def k52(O, D, a, b, C: tl.constexpr):
    tl.store(O + 0, a)
    tl.store(O + 1, b)
    tl.store(O + 2, C)
    x = tl.load(O + 3)
    tl.store(O + 4, x * a)
    tl.store(O + 5, x * C)
    tl.store(O + 6, x * 0.1)
    c = 0.1
    tl.store(O + 7, x * c)
    tl.store(O + 8, a + 1e-9)
    tl.store(O + 9, (a * 3.0))
    d = tl.full((1,), 1, tl.float32)
    tl.store(D + tl.arange(0, 1), (d * a).dtype.primitive_bitwidth)
    tl.store(D + 1 + tl.arange(0, 1), (d.to(tl.float16) * a).dtype.primitive_bitwidth)
    tl.store(D + 2 + tl.arange(0, 1), (d.to(tl.float16) * C).dtype.primitive_bitwidth)
    tl.store(D + 3 + tl.arange(0, 1), (tl.arange(0, 1) * a).dtype.primitive_bitwidth)


@probe(52)
def p52():
    def go():
        o, d = Z(10, F64, 1), Z(4)
        k52[(1,)](o, d, 0.1, 1e40, 0.1)
        return hexs(o) + ints(d)

    return attempt(go)


@triton.jit
def k54(O, flag, p, t, C: tl.constexpr):
    if flag:
        tl.store(O + 0, 1)
    if p is None:
        tl.store(O + 1, 2)
    else:
        tl.store(p, 3)
    tl.store(O + 2, t[0] + t[1])
    tl.store(O + 3, len(t))
    tl.store(O + 4, flag + flag)
    a, b = t
    tl.store(O + 5, a * 10 + b)
    if C is None:
        tl.store(O + 6, 4)


@triton.jit
def k54b(O, flag):
    if flag:
        tl.store(O, 1)
    tl.store(O + 1, flag + flag)
    tl.store(O + 2, flag.dtype.primitive_bitwidth)


@triton.jit
def k54c(t, O):
    tl.store(t[0], tl.load(t[1][0]) + t[1][1])
    x, y = O
    tl.store(x, y)


@probe(54)
def p54():
    def go():
        o = Z(8)
        k54[(1,)](o, True, None, (5, 6), None)
        return ints(o)

    def go2(flag):
        o = Z(3)
        k54b[(1,)](o, flag)
        return ints(o)

    def go3():
        o, p = Z(1), Z(1)
        k54c[(1,)]((o, (T([40], I32), 2)), (p, 9))
        return ints(o) + ints(p)

    return f"{attempt(go)} bool: {attempt(lambda: go2(True))} {attempt(lambda: go2(False))} tuples: {attempt(go3)}"


@triton.jit
def k55(X, O, M, N, PAD: tl.constexpr, r, c):
    p = tl.make_block_ptr(X, (M, N), (N, 1), (r, c), (4, 4), (1, 0))
    x = tl.load(p, boundary_check=(0, 1), padding_option=PAD)
    q = tl.make_block_ptr(O, (4, 4), (4, 1), (0, 0), (4, 4), (1, 0))
    tl.store(q, x)


@triton.jit
def k55b(X, O, M, N, PAD: tl.constexpr, r, c):
    d = tl.make_tensor_descriptor(X, [M, N], [N, 1], [4, 4], padding_option=PAD)
    x = d.load([r, c])
    i = tl.arange(0, 4)
    tl.store(O + i[:, None] * 4 + i[None, :], x)


@triton.jit
def k55c(X, M, N, r, c):
    d = tl.make_tensor_descriptor(X, [M, N], [N, 1], [4, 4])
    d.store([r, c], tl.full((4, 4), -1.0, tl.float32))


@probe(55)
def p55():
    if not interpreting:
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=I8, device="cuda"))
    x = torch.arange(24, dtype=F32).reshape(3, 8).to(device)
    out = []
    for k, pad, r, c in (
        (k55, "", 1, 6),
        (k55, "zero", 1, 6),
        (k55, "nan", -1, -1),
        (k55b, "zero", 1, 4),
        (k55b, "nan", 1, 4),
        (k55b, "zero", -1, -4),
    ):

        def go():
            o = Z(16, F32, 99)
            k[(1,)](x, o, 3, 8, pad, r, c)
            return reprs(o).replace(".0", "")

        out.append(f"{k.fn.__name__ if hasattr(k, 'fn') else k} {pad!r} {r},{c}: {attempt(go)}")

    def st():
        y = Z((3, 8), F32)
        k55c[(1,)](y, 3, 8, 1, 4)
        return ints(y.to(I32).flatten())

    return " | ".join(out) + " | store: " + attempt(st)


@triton.jit
def k56a(O, n):
    tl.device_assert(n > 100, "too small")
    tl.store(O, 1)


@triton.jit
def k56c(O, n):
    tl.static_assert(O.dtype.element_ty == tl.float32, "wrong type")
    tl.store(O, 1)


@triton.jit
def k56d(O, n):
    tl.device_print("pid", tl.program_id(0), n)
    tl.device_print("x", tl.arange(0, 2))
    tl.store(O, 1)


@triton.jit
def k56g(O, n):
    tl.static_print("shown", n)
    tl.debug_barrier()
    tl.store(O, 1)


@triton.jit
def k56e(O, n):
    i = tl.multiple_of(n, 16)
    j = tl.max_contiguous(tl.multiple_of(tl.arange(0, 4) * 2, (4,)), (4,))
    tl.store(O + tl.sum(j, axis=0) * 0, i)


@triton.jit
def k56f(O, n):
    x = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;",
        "=r,r",
        [tl.full((4,), 5, tl.int32)],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(O + tl.arange(0, 4), x)


@probe(56)
def p56():
    out = []
    for name, k in dict(
        device_assert=k56a,
        static_assert=k56c,
        device_print=k56d,
        static_print_2_programs=k56g,
        wrong_multiple_of=k56e,
        inline_asm=k56f,
    ).items():
        o = Z(4)

        def go():
            with Captured() as c:
                k[(2,) if k is k56g else (1,)](o, 5)
                sync()
            return f"{ints(o)} printed {c.text[:160]!r}"

        out.append(f"{name}: {attempt(go)}")
    return " | ".join(out)


GLOBAL_INT = 5
GLOBAL_CONST = tl.constexpr(6)
GLOBAL_ANNOT: tl.constexpr = 7


@triton.jit
def helper(a, b=3):
    return a + b, a * b


@triton.jit
def fact(n: tl.constexpr):
    if n <= 1:
        return 1
    else:
        return n * fact(n - 1)


@triton.jit
def k57a(O):
    tl.store(O, GLOBAL_INT)


@triton.jit
def k57b(O):
    tl.store(O, GLOBAL_CONST)


@triton.jit
def k57j(O):
    tl.store(O, GLOBAL_ANNOT)


@triton.jit
def k57c(O):
    x, y = helper(2)
    z, w = helper(b=4, a=1)
    tl.store(O, x * 100 + y)
    tl.store(O + 1, z * 100 + w)


@triton.jit
def k57d(O):
    tl.store(O, fact(4))


@triton.jit
def k57e(O):
    tl.store(O, 1)
    return 5


def plain(a):
    return a + 1


@triton.jit
def k57f(O):
    x = tl.arange(0, 4)
    tl.store(O + x, plain(x))


@triton.jit
def k57g(O):
    x = tl.arange(0, 4)
    x += 1
    y = x
    y += 10
    tl.store(O + tl.arange(0, 4), x)


@triton.jit
def k57h(O):
    x = tl.arange(0, 4)
    a: tl.constexpr = 3
    b = a
    b = b + 1
    tl.store(O + x, undefined_name if b > 100 else b)  # noqa: F821


@triton.jit
def k57i(O):
    tl.store(O, sys.maxsize % 10)


def closure():
    c = tl.constexpr(3)
    k = 4

    @triton.jit
    def inside(O):
        tl.store(O, c)

    @triton.jit
    def inside2(O):
        tl.store(O, k)

    return inside, inside2


EXEC_SOURCE = """
@triton.jit
def made(O):
    a = -7
    tl.store(O, a // 2)
"""


def made_by_exec():
    ns = {"triton": triton, "tl": tl}
    exec(EXEC_SOURCE, ns)
    return ns["made"]


@probe(57)
def p57():
    out = []
    kinds = dict(
        plain_global=k57a,
        constexpr_global=k57b,
        annotated_global=k57j,
        helper=k57c,
        recursion=k57d,
        returns=k57e,
        plain_function=k57f,
        augassign_alias=k57g,
        unused_undefined=k57h,
        module_attr=k57i,
    )
    for name, k in kinds.items():
        o = Z(4)

        def go():
            r = k[(1,)](o)
            return f"{ints(o)} launch returns {type(r).__name__}"

        out.append(f"{name}: {attempt(go)}")
    inside, inside2 = closure()

    def go2(make):
        o = Z(4)
        make()[(1,)](o)
        return ints(o)

    out.append(f"closure constexpr: {attempt(lambda: go2(lambda: inside))}")
    out.append(f"closure int: {attempt(lambda: go2(lambda: inside2))}")
    out.append(f"made by exec: {attempt(lambda: go2(made_by_exec))}")
    out.append(
        "interpreter_semantic in globals() afterwards: " + str("interpreter_semantic" in globals())
    )
    return " | ".join(out)


CALLS = []


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 16}, num_warps=1, pre_hook=lambda args: CALLS.append("hook16")),
        triton.Config({"BLOCK": 64}, num_warps=2, pre_hook=lambda args: CALLS.append("hook64")),
    ],
    key=["n"],
    reset_to_zero=["O"],
)
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def k58(O, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    tl.atomic_add(O, 1)
    tl.store(O + 1, BLOCK)
    tl.store(O + 2, EVEN)


@triton.autotune(
    configs=[triton.Config({"BLOCK": 16}, num_warps=1, pre_hook=lambda args: CALLS.append("one"))],
    key=["n"],
)
@triton.jit
def k58d(O, n, BLOCK: tl.constexpr):
    tl.atomic_add(O, 1)
    tl.store(O + 1, BLOCK)


@triton.heuristics({"BLOCK": lambda args: 2 * args["n"]})
@triton.jit
def k58e(O, n, BLOCK: tl.constexpr):
    tl.atomic_add(O, 1)
    tl.store(O + 1, BLOCK)


@triton.jit
def k58b(O, num_warps: tl.constexpr):
    tl.store(O, num_warps)


@triton.jit
def k58c(O, n, B: tl.constexpr):
    tl.atomic_add(O, 1)


@probe(58)
def p58():
    out = []

    def go():
        o = Z(3)
        seen = []

        def grid(meta):
            seen.append(sorted(str(k) for k in meta))
            return (2,)

        k58[grid](o, 48)
        sync()
        hooks = sorted(set(CALLS))
        return f"count={o[0].item()} block_is_a_config={o[1].item() in (16, 64)} block_if_interpreting={o[1].item() if interpreting else '-'} even={o[2].item()} hooks={hooks} meta={seen[0]}"

    out.append("autotune: " + attempt(go))

    def go1(k):
        o = Z(2)
        CALLS.clear()
        k[(2,)](o, 48)
        return ints(o) + str(CALLS)

    out.append("autotune one config: " + attempt(lambda: go1(k58d)))
    out.append("heuristics only: " + attempt(lambda: go1(k58e)))

    def go2(**kw):
        o = Z(1)
        k58b[(1,)](o, **kw)
        return ints(o)

    out.append(f"param named num_warps: {attempt(lambda: go2(num_warps=8))}")
    out.append(f"num_warps missing: {attempt(lambda: go2())}")

    def go3(**kw):
        o = Z(1)
        k58c[(2,)](o, 3, 4, **kw)
        return ints(o)

    out.append(f"num_warps=3: {attempt(lambda: go3(num_warps=3))}")
    out.append(f"unknown option: {attempt(lambda: go3(no_such_option=3))}")
    out.append(f"unknown constexpr twice: {attempt(lambda: k58c[(1,)](Z(1), 3))}")

    def go4():
        o = Z(2)
        seen = []
        h = lambda *a, **k: seen.append(len(a))
        if hasattr(k58c, "add_pre_run_hook"):
            k58c.add_pre_run_hook(h)
        k58c[(1,)](o, 3, 4)
        k58c.pre_run_hooks.clear()
        return f"{seen}"

    out.append(f"pre_run_hook: {attempt(go4)}")
    out.append(f"grid list: {attempt(lambda: (k58c[[2, 1]](Z(1), 3, 4), 'ok')[1])}")
    out.append(f"grid int: {attempt(lambda: (k58c[2](Z(1), 3, 4), 'ok')[1])}")
    out.append(f"grid 4: {attempt(lambda: (k58c[(1, 1, 1, 1)](Z(1), 3, 4), 'ok')[1])}")
    out.append(f"grid float: {attempt(lambda: (k58c[(2.0,)](Z(1), 3, 4), 'ok')[1])}")
    out.append(f"grid tensor: {attempt(lambda: (k58c[(torch.tensor(2),)](Z(1), 3, 4), 'ok')[1])}")
    return " | ".join(out)


@triton.jit
def k60(A, AS, B, O, FMT: tl.constexpr):
    i = tl.arange(0, 16)
    k = tl.arange(0, 64)
    if FMT == "e2m1":
        a = tl.load(A + i[:, None] * 32 + tl.arange(0, 32)[None, :])
    else:
        a = tl.load(A + i[:, None] * 64 + k[None, :])
    s = tl.load(AS + i[:, None] * 2 + tl.arange(0, 2)[None, :])
    b = tl.load(B + k[:, None] * 16 + i[None, :])
    r = tl.dot_scaled(a, s, FMT, b, None, "bf16")
    tl.store(O + i[:, None] * 16 + i[None, :], r)


@probe(60)
def p60():
    out = []
    for fmt in ("e2m1", "e4m3", "e5m2"):

        def go():
            g = torch.Generator().manual_seed(1)
            if fmt == "e2m1":
                a = torch.randint(0, 256, (16, 32), generator=g, dtype=U8)
            else:
                a = torch.randint(0, 100, (16, 64), generator=g, dtype=U8)
            s = torch.randint(125, 130, (16, 2), generator=g, dtype=U8)
            b = (torch.randint(-8, 9, (64, 16), generator=g).to(F32) / 8).to(BF16)
            o = Z((16, 16), F32)
            k60[(1,)](a.to(device), s.to(device), b.to(device), o, fmt)
            return hexs(o[0, :3]) + f" sum={float(o.cpu().to(F64).sum()).hex()}"

        out.append(f"{fmt}: {attempt(go)}")
    return " | ".join(out)
