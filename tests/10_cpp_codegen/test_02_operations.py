"""Every operation of the loop IR, in every dtype, means in C++ what it means in torch."""

from __future__ import annotations

import operations
import pytest
import torch
from hand_kernels import Hand
from run_kernels import run

INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
EXACT = {"floor", "ceil", "round", "trunc", "abs", "neg", "reciprocal", "maximum", "minimum"}
EXACT |= {
    "add",
    "sub",
    "mul",
    "truediv",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "mod",
    "fmod",
    "floordiv",
}
"""IEEE 754 says what these are to the last bit. (It does so for sqrt too, but eager's, from MKL, is off by one at times.)"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_floats(dtype):
    x, y = operations.samples(dtype)
    names = operations.operations(dtype)
    got, _ = run(*operations.kernel_of_all(dtype, len(x), names), {"x": x, "y": y})
    for name in names:
        want = operations.expected(name, x, y)
        odd = operations.eager_is_odd(name, x, y)
        got[f"{name}_"][odd] = want[odd]
        exact = {"rtol": 0.0, "atol": 0.0} if name in EXACT else {"rtol": 2e-6, "atol": 1e-37}
        torch.testing.assert_close(
            got[f"{name}_"], want, equal_nan=True, msg=lambda m: f"{name}: {m}", **exact
        )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers_wrap_around_and_divide_downwards(dtype):
    x, y = operations.samples(dtype)
    divides = {"floordiv", "mod", "fmod"}
    names = [n for n in operations.operations(dtype) if n not in divides | {"pow"}]
    got, _ = run(*operations.kernel_of_all(dtype, len(x), names), {"x": x, "y": y})
    for name in names:
        torch.testing.assert_close(
            got[f"{name}_"], operations.expected(name, x, y), msg=lambda m: f"{name}: {m}"
        )

    # eager itself dies of the smallest integer by -1
    safe = (y != 0) & ~((x == torch.iinfo(dtype).min) & (y == -1))
    x, y = x[safe], y[safe]
    got, _ = run(*operations.kernel_of_all(dtype, len(x), sorted(divides)), {"x": x, "y": y})
    for name in divides:
        torch.testing.assert_close(
            got[f"{name}_"], operations.expected(name, x, y), msg=lambda m: f"{name}: {m}"
        )


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers(dtype):
    x = torch.arange(-5 if dtype.is_signed else 0, 6).to(dtype).repeat_interleave(9)
    y = torch.arange(9).to(dtype).repeat(len(x) // 9)
    got, _ = run(*operations.kernel_of_all(dtype, len(x), ["pow"]), {"x": x, "y": y})
    torch.testing.assert_close(got["pow_"], operations.expected("pow", x, y))


def test_logic():
    x, y = operations.samples(torch.bool)
    got, _ = run(*operations.kernel_of_all(torch.bool, len(x)), {"x": x, "y": y})
    for name in operations.operations(torch.bool):
        torch.testing.assert_close(
            got[f"{name}_"], operations.expected(name, x, y), msg=lambda m: f"{name}: {m}"
        )


@pytest.mark.parametrize("integer", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str
)
def test_to_an_integer_and_back_knows_no_negative_zero(dtype, integer):
    x = torch.linspace(-3, 3, 64).abs() if integer == torch.uint8 else torch.linspace(-3, 3, 64)
    x = x.to(dtype)
    k = Hand([64])
    view = k.read("x", [64], dtype)
    k.point(
        "out",
        lambda ops, i: ops.to_dtype(ops.to_dtype(view.load(ops, i), integer), dtype),
        store=True,
        dtype=dtype,
    )
    got = run(*k.build(), {"x": x})[0]["out"]
    assert torch.equal(got, x.to(integer).to(dtype))
    assert not got[got == 0].signbit().any()


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("divisor", [1, 3, 7])
def test_integers_divided_by_a_constant(dtype, divisor):
    x, _ = operations.samples(dtype)
    for name in ("floordiv", "mod", "fmod"):
        k = Hand([len(x)])
        view = k.read("x", [len(x)], dtype)
        k.point(
            "out",
            lambda ops, i, name=name: getattr(ops, name)(
                view.load(ops, i), ops.constant(divisor, dtype)
            ),
            store=True,
            dtype=dtype,
        )
        got, compiled = run(*k.build(), {"x": x})
        assert "problem" not in compiled.source
        torch.testing.assert_close(
            got["out"], operations.expected(name, x, torch.tensor(divisor, dtype=dtype))
        )
