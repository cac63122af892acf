"""The same kernels on a real GPU."""

from __future__ import annotations

from random import Random

import operations
import pytest
import random_kernels
import torch
from hand_kernels import Hand, gelu_chain, layer_norm, softmax
from run_kernels import check, run

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch):
    monkeypatch.setattr(Hand, "device", torch.device("cuda"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_known_kernels(dtype):
    torch.manual_seed(0)
    tensors = {
        "x": torch.randn(50, 333).to(dtype),
        "scale": torch.randn(333).to(dtype),
        "bias": torch.randn(333).to(dtype),
    }
    check(*gelu_chain(50, 333, dtype=dtype), tensors, "auto")
    check(*softmax(7, 1000, dtype), {"x": torch.randn(7, 1000).to(dtype)}, "auto")


def test_rows_short_and_long():
    for columns in (1, 100, 768, 16_384, 70_000):
        x = torch.randn(9, columns)
        check(*softmax(9, columns), {"x": x}, "auto", rtol=1e-5, atol=1e-9)
    check(
        *layer_norm(90, 768),
        {"x": torch.randn(90, 768), "weight": torch.randn(768), "bias": torch.randn(768)},
        "auto",
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_operation_on_floats(dtype):
    x, y = operations.samples(dtype)
    names = operations.operations(dtype)
    got, _ = run(*operations.kernel_of_all(dtype, len(x), names), {"x": x, "y": y}, "auto")
    for name in names:
        want = operations.expected(name, x.cuda(), y.cuda()).cpu()
        torch.testing.assert_close(
            got[f"{name}_"],
            want,
            equal_nan=True,
            rtol=1e-5,
            atol=1e-30,
            msg=lambda m: f"{name}: {m}",
        )


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8], ids=str
)
def test_every_operation_on_integers(dtype):
    x, y = operations.samples(dtype)
    safe = (y != 0) & ~((x == torch.iinfo(dtype).min) & (y == -1))
    x, y = x[safe], y[safe]
    names = [n for n in operations.operations(dtype) if n != "pow"]
    got, _ = run(*operations.kernel_of_all(dtype, len(x), names), {"x": x, "y": y}, "auto")
    for name in names:
        torch.testing.assert_close(
            got[f"{name}_"], operations.expected(name, x, y), msg=lambda m: f"{name}: {m}"
        )


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels(seed):
    check(*random_kernels.pointwise_kernels(Random(seed)), "auto", rtol=2e-5, atol=1e-5)
    check(
        *random_kernels.reduction_kernels(Random(seed), special=True), "auto", rtol=1e-4, atol=1e-5
    )
