"""A tensor from outside: a fake one of the same looks, and an input of the graph.

In:  a real tensor, and where it was found.
Out: the fake, under a guard on all that graph and kernels depend on.
In PyTorch: `torch/_dynamo/variables/builder.py` (`VariableBuilder.wrap_tensor`), `guards.py`
(`TENSOR_MATCH`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.classes import is_a
from course_lib.capture.guard_tests import (
    DeviceIs,
    DimensionsAre,
    DtypeIs,
    IsConjugated,
    IsNegated,
    IsOnCpu,
    RequiresGrad,
    SizeIs,
    SizesAre,
    StridesAre,
    Test,
    TypeIs,
)
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Source
from course_lib.capture.strides import stride_tests

if TYPE_CHECKING:
    from course_lib.capture.world import World

PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
"""Classes of tensors that become fakes; of a subclass nothing is known."""


def tensor(world: World, obj: Any, source: Source) -> Any:
    """A rule of `make.py`: the stand-in of a tensor."""
    if not is_a(obj, torch.Tensor):
        return GO_ON

    with torch._C.DisableTorchFunction():  # what we ask of it is no part of the program
        plain = type(obj) in PLAIN_TENSORS and obj.layout is torch.strided
        if not plain or obj.is_quantized or obj.is_nested:
            return world.opaque(obj, source)
        fake = world.shapes.fake(obj, source)
        world.builder.has_uncounted |= obj.is_inference()
        world.assume(source, "tensor", *looks(world, obj, fake))
    return world.builder.add_input(world.know(fake, obj, source))


def looks(world: World, real: torch.Tensor, fake: torch.Tensor) -> list[Test]:
    """What graph and kernels depend on.

    Sparse tensors fail at `stride()`; the global state keeps wrapped ones (vmap) out."""
    device = IsOnCpu() if real.is_cpu else DeviceIs(real.device)
    tests: list[Test] = [
        TypeIs(type(real)),
        DtypeIs(real.dtype),
        *layout(world, real, fake),
        RequiresGrad(real.requires_grad),
        IsNegated(real.is_neg()),
        device,
    ]
    if real.is_complex():
        tests.append(IsConjugated(real.is_conj()))
    return tests


def layout(world: World, real: torch.Tensor, fake: torch.Tensor) -> list[Test]:
    """Sizes and strides: all of them, or those that are no symbols."""
    if all(type(size) is int for size in fake.shape):
        return [SizesAre(tuple(real.shape)), StridesAre(real.stride())]
    fixed = [SizeIs(dim, size) for dim, size in enumerate(fake.shape) if type(size) is int]
    return [DimensionsAre(real.ndim), *fixed, *stride_tests(world.shapes, fake)]
