"""Random kernels, compiled and run, give what torch gives."""

from __future__ import annotations

import random_kernels
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_kernels import check

settings.register_profile(
    "kernels",
    max_examples=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
settings.load_profile("kernels")

EXACT = "neg abs floor ceil trunc round relu reciprocal".split()
"""Operations that IEEE 754 rounds correctly: nothing may differ."""

anything = st.randoms(use_true_random=True)


@given(anything)
def test_arithmetic_is_torchs_to_the_last_bit(rng):
    check(*random_kernels.pointwise_kernels(rng, unary_ops=EXACT), rtol=0.0, atol=0.0)


@given(anything)
def test_functions_are_close_to_torchs(rng):
    check(
        *random_kernels.pointwise_kernels(rng, dtypes=[torch.float32, torch.float64]),
        rtol=2e-5,
        atol=1e-5,
    )


@given(anything)
def test_reductions_with_what_comes_before_and_after(rng):
    check(*random_kernels.reduction_kernels(rng), rtol=1e-4, atol=1e-5)


@given(anything)
def test_reductions_of_nan_and_infinity(rng):
    check(*random_kernels.reduction_kernels(rng, special=True), rtol=1e-4, atol=1e-5)


@given(anything)
def test_arithmetic_with_sizes_as_arguments(rng):
    check(*random_kernels.pointwise_kernels(rng, unary_ops=EXACT), rtol=0.0, atol=0.0, fixed=())


@given(anything)
def test_reductions_with_sizes_as_arguments(rng):
    check(
        *random_kernels.reduction_kernels(rng, special=rng.random() < 0.3),
        rtol=1e-4,
        atol=1e-5,
        fixed=(),
    )
