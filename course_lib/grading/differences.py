"""How far a compiled model is from eager: results, and where there are parameters, their gradients.

In:  a model, what was compiled of it, and inputs. Out: the largest difference of two numbers at one
place.
In PyTorch: `torch._dynamo.utils.same` compares so in the accuracy minifier.
"""

from __future__ import annotations

import copy
from typing import Any

import torch


def worst(model: Any, compiled: Any, inputs: tuple[Any, ...]) -> float:
    """The largest difference between two models on the same inputs: results, and where there are
    parameters, gradients."""
    return worst_of(
        model, compiled, [inputs], isinstance(model, torch.nn.Module) and model.training
    )


def worst_of(model: Any, compiled: Any, calls: list[tuple[Any, ...]], training: bool) -> float:
    """The largest difference in several calls. `calls`: the inputs of each. `training`: compare the
    gradients of the parameters, too."""
    different = 0.0
    for inputs in calls:
        # On copies: a model may write to its inputs.
        with torch.set_grad_enabled(training):
            expected = model(*copy.deepcopy(inputs))
            got = compiled(*copy.deepcopy(inputs))
        pairs = [(expected, got)]
        if training:
            wanted = [p for p in model.parameters() if p.requires_grad]
            tangent = torch.randn_like(expected)
            gradients = torch.autograd.grad(expected, wanted, tangent)
            gradients_got = torch.autograd.grad(got, wanted, tangent)
            pairs += zip(gradients, gradients_got, strict=True)
        different = max(different, *(apart(one, other) for one, other in pairs))

    return different


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of two tensors; infinite where shapes, dtypes or the places of NaN
    differ."""
    if (
        one.shape != other.shape
        or one.dtype != other.dtype
        or not torch.equal(one.isnan(), other.isnan())
    ):
        return float("inf")
    # (NaN stands at the same places in both. Of two infinities the difference is NaN, too: it is
    # 0.)
    if one.numel():
        return (one - other).abs().nan_to_num(0, float("inf")).max().item()
    return 0.0
