"""Interpolation by a factor: where eager looks at the sizes and not at the factor, so does compiled code, forward and backward."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl

FACTORS = [
    (1.3, 1.5, 1.1),  # one too small to change the first size
    (1.0, 2.0, 2.0),
    (2.1, 2.4, 2.3),  # which double a size, though they are no 2
    (0.9, 1.9, 2.0),
    (2.5, 2.05, 1.0),
    (0.5, 0.34, 3.0),
]
PLAIN = ("nearest", "nearest-exact", "area")
MODES = {
    1: (*PLAIN, "linear"),
    2: (*PLAIN, "bilinear", "bicubic"),
    3: (*PLAIN, "trilinear"),
}


def interpolated(function, x):
    x = x.detach().requires_grad_()
    result = function(x)
    result.square().sum().backward()
    return result.detach(), x.grad


@pytest.mark.parametrize("mode", [(n, mode) for n, modes in MODES.items() for mode in modes])
def test_every_factor_gives_what_eager_gives(mode):
    dimensions, name = mode
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(3, 4, 5)[:dimensions])
    aligned = (None,) if name in PLAIN else (False, True)

    for factors, align, again in itertools.product(FACTORS, aligned, (None, True)):
        if align and again:
            continue

        def function(x, factors=factors, align=align, again=again):
            return F.interpolate(
                x,
                scale_factor=factors[:dimensions],
                mode=name,
                align_corners=align,
                recompute_scale_factor=again,
            )

        compiled = cl.compile(function, backend="aot_eager")
        found, expected = interpolated(compiled, x), interpolated(function, x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factors", FACTORS)
def test_kernels_copy_where_eager_copies(factors):
    x = torch.randn(2, 3, 3, 4).to(memory_format=torch.channels_last)
    function = lambda x: (
        F.interpolate(x, scale_factor=factors[:2], mode="nearest"),
        F.interpolate(x.contiguous(), size=(3, 8), mode="nearest"),
    )
    torch.testing.assert_close(cl.compile(function)(x), function(x))
