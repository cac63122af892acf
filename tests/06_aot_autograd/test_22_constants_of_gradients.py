"""Constants in eager's gradients that are no exact numbers: one sixth is a float32 for float64, too."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_gradient_of_hardsigmoid_is_that_of_eager(dtype):
    values = [-4.0, -3.0, -0.5, -0.0, 0.0, 1.0, 3.0, 4.0]
    gradients = []
    for function in (F.hardsigmoid, cl.compile(lambda x: F.hardsigmoid(x))):
        x = torch.tensor(values, dtype=dtype, requires_grad=True)
        function(x).sum().backward()
        gradients.append(x.grad.tolist())
    assert gradients[1] == gradients[0]
