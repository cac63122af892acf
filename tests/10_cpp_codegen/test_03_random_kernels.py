"""Random kernels, compiled and run, give what torch gives."""

from __future__ import annotations

import random_kernels
import torch
from hypothesis import HealthCheck, given, settings
from run_kernels import check

settings.register_profile(
    "kernels", max_examples=120, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
settings.load_profile("kernels")

EXACT = "neg abs sqrt floor ceil trunc round sign relu reciprocal".split()
"""Operations that IEEE 754 rounds correctly: nothing may differ."""


@given(random_kernels.pointwise_kernels(unary_ops=EXACT))
def test_arithmetic_is_torchs_to_the_last_bit(case):
    check(*case, rtol=0.0, atol=0.0)


@given(random_kernels.pointwise_kernels(dtypes=[torch.float32, torch.float64]))
def test_functions_are_close_to_torchs(case):
    check(*case, rtol=2e-5, atol=1e-5)


@given(random_kernels.reduction_kernels())
def test_reductions_with_what_comes_before_and_after(case):
    check(*case, rtol=1e-4, atol=1e-5)


@given(random_kernels.reduction_kernels(special=True))
def test_reductions_of_nan_and_infinity(case):
    check(*case, rtol=1e-4, atol=1e-5)
