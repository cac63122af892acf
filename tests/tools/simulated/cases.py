"""One small kernel for each mend of the simulator.

    python tests/tools/simulated/cases.py      # what Triton's interpreter gives by itself, as JSON

`on_a_gpu`: recorded on an H100 or H200, or what the compiler's rules say.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

NAN = float("nan")


@dataclass(frozen=True)
class Case:
    run: Callable[[], Any]
    on_a_gpu: Any


CASES: dict[str, Case] = {}


def case(name: str, on_a_gpu: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(run: Callable[[], Any]) -> Callable[[], Any]:
        CASES[name] = Case(run, on_a_gpu)
        return run

    return register


def answer(name: str) -> Any:
    """The numbers, NaN as a text; or the name of the error."""
    try:
        given = CASES[name].run()
    except Exception as error:
        return type(error).__name__
    numbers = given.tolist() if isinstance(given, torch.Tensor) else given
    if not isinstance(numbers, list):
        return numbers
    return [text_of(x) for x in numbers]


def text_of(x: Any) -> Any:
    if isinstance(x, float) and math.isnan(x):
        return "nan"
    return str(x) if x == 0 and isinstance(x, float) else x


def floats(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float32)


def zeros(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(n, dtype=dtype)


@triton.jit
def plus(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, (tl.load(X + i) + tl.load(Y + i)).to(tl.float32))


@case("bfloat16 and float8", [3.0, -1.5])
def _() -> Any:
    out = zeros(2)
    plus[(1,)](floats(1, -2).bfloat16(), floats(2, 0.5).bfloat16(), out, 2)
    return out


@triton.jit
def flags(X, O, N: tl.constexpr):
    x = tl.load(X + tl.arange(0, N)) > 0
    tl.store(O + tl.arange(0, N), (x + x).to(tl.int32))


@case("one bit", [0, 0])
def _() -> Any:
    out = zeros(2, torch.int32)
    flags[(1,)](floats(1, -1), out, 2)
    return out


@triton.jit
def inverted(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, ~tl.load(X + i))


@case("all ones", [255, 254])
def _() -> Any:
    out = zeros(2, torch.uint8)
    inverted[(1,)](torch.tensor([0, 1], dtype=torch.uint8), out, 2)
    return out


@triton.jit
def fused(X, Y, Z, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.fma(tl.load(X + i), tl.load(Y + i), tl.load(Z + i)))


@case("fma", [2.0**-24, 2.0**-14])
def _() -> Any:
    out = zeros(2)
    x, z = floats(1 + 2**-12), floats(-(1 + 2**-11))
    fused[(1,)](x, x, z, out, 1)
    x, z = floats(1.0078125).bfloat16(), floats(-1.015625).bfloat16()
    fused[(1,)](x, x, z, out[1:], 1)
    return out


@triton.jit
def contracted(X, Y, Z, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.load(X + i) * tl.load(Y + i) + tl.load(Z + i))


@case("contraction", [2.0**-24, 2.0**-26])
def _() -> Any:
    out = zeros(2)
    x, y, z = floats(1 + 2**-12, 0.1), floats(1 + 2**-12, 10), floats(-(1 + 2**-11), -1)
    contracted[(1,)](x, y, z, out, 2)
    return out


@triton.jit
def rooted(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.sqrt(tl.load(X + i)))


@case("denormal numbers", ["0.0", 2.0])
def _() -> Any:
    out = zeros(2)
    rooted[(1,)](floats(1e-40, 4), out, 2)
    return out


@triton.jit
def larger(X, Y, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.maximum(tl.load(X + i), tl.load(Y + i)))


@case("minimum and maximum", [1.0, 1.0, "0.0", "0.0"])
def _() -> Any:
    out = zeros(4)
    larger[(1,)](floats(NAN, 1, 0.0, -0.0), floats(1, NAN, -0.0, 0.0), out, 4)
    return out


@triton.jit
def clamped(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.clamp(tl.load(X + i), -1.0, 1.0))


@case("clamp", [1.0, 1.0])
def _() -> Any:
    out = zeros(2)
    clamped[(1,)](floats(NAN, 3), out, 2)
    return out


@triton.jit
def rounded(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.load(X + i).to(tl.bfloat16).to(tl.float32))


@case("rounding to bfloat16 and float8", [1.015625, "nan"])
def _() -> Any:
    out = zeros(2)
    rounded[(1,)](floats(1 + 3 / 256, NAN), out, 2)
    return out


@triton.jit
def whole(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.load(X + i).to(tl.int32))


@case("casts out of range", [2147483647, 0])
def _() -> Any:
    out = zeros(2, torch.int32)
    whole[(1,)](floats(3e9, NAN), out, 2)
    return out


@triton.jit
def product(X, Y, O, P: tl.constexpr):
    i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(O + i, tl.dot(tl.load(X + i), tl.load(Y + i), input_precision=P))


@case("dot", [1.0])
def _() -> Any:
    x, out = torch.zeros(16, 16), torch.zeros(16, 16)
    x[0, 0] = 1 + 2**-11
    product[(1,)](x, torch.eye(16), out, "tf32")
    return out[0, :1]


@triton.jit
def scaled(A, S, B, O, F: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(A + i[:, None] * 64 + tl.arange(0, 64)[None, :])
    s = tl.load(S + i[:, None] * 2 + tl.arange(0, 2)[None, :])
    b = tl.load(B + tl.arange(0, 64)[:, None] * 16 + i[None, :])
    tl.store(O + i[:, None] * 16 + i[None, :], tl.dot_scaled(a, s, F, b, None, "bf16"))


@case("dot_scaled", [2.0])
def _() -> Any:
    a = torch.zeros(16, 64, dtype=torch.uint8)
    a[0, 0] = 0x38  # 1.0 as e4m3
    scale, out = torch.full((16, 2), 128, dtype=torch.uint8), torch.zeros(16, 16)
    scaled[(1,)](a, scale, torch.eye(64, 16).bfloat16(), out, "e4m3")
    return out[0, :1]


@triton.jit
def place(X, O, N: tl.constexpr):
    tl.store(O, tl.argmax(tl.load(X + tl.arange(0, N)), 0))


@case("reduce", [3, 2])
def _() -> Any:
    found = []
    for numbers in ((1, 3, 2, NAN), (1, NAN, 3, 2)):
        out = zeros(1, torch.int32)
        place[(1,)](floats(*numbers), out, 4)
        found.append(out.item())
    return found


@triton.jit
def added_up(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, tl.cumsum(tl.load(X + i), 0))


@case("scan", [1e8, 1e8, 1e8, 1e8, "0.0", "0.0", "0.0", "0.0"])
def _() -> Any:
    out = zeros(8)
    added_up[(1,)](floats(1e8, 1, 1, 1, -1e8, 1, 1, 1), out, 8)
    return out


@triton.jit
def tangent(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, libdevice.tanh(tl.load(X + i)))


@case("libdevice", ["0.0"])
def _() -> Any:
    out = zeros(1) + 5
    tangent[(1,)](floats(0), out, 1)
    return out


@triton.jit
def counted(O, X):
    tl.atomic_add(O, tl.load(X))


@case("atomics of bfloat16", [4.5])
def _() -> Any:
    out = zeros(1, torch.bfloat16)
    counted[(3,)](out, floats(1.5).bfloat16())
    return out


@triton.jit
def classes(X, O, N: tl.constexpr):
    tl.store(O + tl.arange(0, 4), tl.histogram(tl.load(X + tl.arange(0, N)), 4))


@case("histogram", [1, 0, 0, 1])
def _() -> Any:
    out = zeros(4, torch.int32)
    classes[(1,)](torch.tensor([0, 3, 4, 4], dtype=torch.int32), out, 4)
    return out


@triton.jit
def splat(X, O, N: tl.constexpr):
    near = tl.load(X) > 0
    tl.store(O + tl.arange(0, N), (near & (tl.arange(0, N) > 1)).to(tl.int32))


@case("splat", [0, 0, 1, 1])
def _() -> Any:
    out = zeros(4, torch.int32)
    splat[(1,)](floats(1), out, 4)
    return out


@triton.jit
def shown(n):
    tl.device_print("n", n)


@case("device_print", "pid (0, 0, 0) idx () n: 5")
def _() -> Any:
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()) as text:
        shown[(1,)](5)
    return text.getvalue().strip()


@triton.jit
def assembly(O):
    x = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;",
        "=r,r",
        [tl.full((4,), 5, tl.int32)],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(O + tl.arange(0, 4), x)


@case("inline assembly", "NotSimulated")
def _() -> Any:
    assembly[(1,)](zeros(4, torch.int32))


@triton.autotune(configs=[triton.Config({"B": 16}), triton.Config({"B": 64})], key=["n"])
@triton.jit
def tuned(O, n, B: tl.constexpr):
    tl.store(O, B)


@case("autotune", [16])
def _() -> Any:
    out = zeros(1, torch.int32)
    tuned[(1,)](out, 48)
    return out


@triton.jit
def halves(O):
    for i in range(-3, 0):
        tl.store(O + i + 3, i // 2)


@case("range", [-1, -1, 0])
def _() -> Any:
    out = zeros(3, torch.int32)
    halves[(1,)](out)
    return out


@triton.jit
def widths(X, O, s):
    tl.store(O, (tl.load(X) * s).dtype.primitive_bitwidth)


@case("arguments", [32])
def _() -> Any:
    out = zeros(1, torch.int32)
    widths[(1,)](floats(1).half(), out, 0.1)
    return out


@triton.jit
def flagged(O, flag):
    if flag:
        tl.store(O, 1)


@case("bool arguments", [1])
def _() -> Any:
    out = zeros(1, torch.int32)
    flagged[(1,)](out, True)
    return out


@triton.jit
def opposite(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, not (tl.load(X + i) > 0))


@case("and, or, not", [0, 1])
def _() -> Any:
    out = zeros(2, torch.int32)
    opposite[(1,)](floats(1, -1), out, 2)
    return out


@triton.jit
def at_least_one(X, O, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(O + i, max(tl.load(X + i), 1))


@case("min and max of Python", [1, 5])
def _() -> Any:
    out = zeros(2, torch.int32)
    at_least_one[(1,)](torch.tensor([-3, 5], dtype=torch.int32), out, 2)
    return out


@triton.jit
def checked(O, n):
    assert n > 100, "too small"
    tl.store(O, 1)


@case("assert", [1])
def _() -> Any:
    out = zeros(1, torch.int32)
    checked[(1,)](out, 5)
    return out


def closure() -> Any:
    c = tl.constexpr(3)

    @triton.jit
    def inside(O):
        tl.store(O, c)

    return inside


@case("closures", [3])
def _() -> Any:
    out = zeros(1, torch.int32)
    closure()[(1,)](out)
    return out


@case("grid", [1])
def _() -> Any:
    out = zeros(1, torch.int32)
    checked[[1, 1]](out, 500)
    return out


if __name__ == "__main__":
    print(json.dumps({name: answer(name) for name in CASES}))
