"""Random functions through the whole back half, as C++ and (a few) as Triton, give what eager gives."""

from __future__ import annotations

from random import Random

import pytest
import torch
from back_half import compile_function
from random_functions import random_function
from random_graphs import check


@pytest.mark.parametrize("start", [0, 40])
def test_forward_and_backward_by_numpy_and_by_kernels(start):
    """(`python tests/tools/random_graphs.py --count 20000` runs as many as you have time for.)"""
    assert check(range(start, start + 40)) == {}


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, Triton compiles")
@pytest.mark.parametrize("seed", range(100, 110))
def test_triton(seed):
    pytest.importorskip("triton")
    function, inputs = random_function(Random(seed))
    compiled = compile_function(function, *inputs, codegen="triton")
    fresh = [(t + 0.25).as_strided(t.shape, t.stride()) if t.is_contiguous() else t for t in inputs]
    for tensors in (inputs, fresh):
        for got, want in zip(compiled(*tensors), function(*tensors), strict=True):
            assert (got.dtype, got.shape, got.stride()) == (want.dtype, want.shape, want.stride())
            torch.testing.assert_close(
                got,
                want,
                rtol=2e-3,
                atol=2e-3,
                equal_nan=True,
                msg=lambda m: f"{m}\n{compiled.source}",
            )
