"""Functions with a backward of their own, which several tests compile."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Cube(torch.autograd.Function):
    """x³, with a backward that is ten times too large on purpose: a test sees whether it was this that ran."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * 10
