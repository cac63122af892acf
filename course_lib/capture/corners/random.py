"""Random numbers whose dtype torch's fake tensors get wrong.

In:  `torch.normal(mean, deviation)` of two tensors with different dtypes.
Out: the operations that eager does, one by one: their dtypes are known.
In PyTorch: `normal_out_impl` in `aten/src/ATen/native/DistributionTemplates.h`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.tables import FUNCTIONS

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine


def normal(it: Machine, mean: Any, std: Any = 1.0, *more: Any, **options: Any) -> Any:
    """The sample has the mean's dtype; a fake one would have the dtype that both promote to."""
    call = it.world.builder.call
    both = isinstance(mean, torch.Tensor) and isinstance(std, torch.Tensor)
    if not both or mean.dtype == std.dtype or more or options:
        return call(torch.normal, [mean, std, *more], options)

    shape = list(torch.broadcast_shapes(mean.shape, std.shape))
    sample = call(torch.empty, [shape], {"dtype": mean.dtype, "device": mean.device})
    sample = call("normal_", [sample])
    return call("add_", [call("mul_", [sample, std]), mean])


FUNCTIONS[torch.normal] = normal
