"""The forms of tensors (shape, strides, dtype, device) in a call of a program that serves many
sizes.

In:  fake tensors, some with symbolic sizes, and the values that these have in a call.
Out: the fake tensors themselves where all is known, else a `Form` with this call's numbers.
In PyTorch: `SubclassMeta` and `MemoryFormatMeta` of tangents in
`torch/_functorch/_aot_autograd/schemas.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib import sizes
from course_lib.autograd.signature import Form


class Forms:
    """Shapes, strides, dtypes and devices of tensors, in calls in which symbolic sizes have one
    value or another.

    fakes: the fake tensors of the graph. known: the `Sizes` of the graph, None if no size is
    symbolic."""

    def __init__(self, fakes: Sequence[Any], known: Any) -> None:
        self.fakes = fakes
        # For each tensor with symbolic sizes, by its place in `fakes`: values of the symbols →
        # (shape, strides)
        self.layouts: dict[int, Callable[..., Any]] = {}
        for n, fake in enumerate(fakes):
            if known is None or not isinstance(fake, torch.Tensor):
                continue
            shape = tuple(map(known.of, fake.shape))
            strides = tuple(map(known.of, fake.stride()))
            if sizes.sizes_of(*shape, *strides):
                self.layouts[n] = known.function_of_values((shape, strides))

    def of(self, numbers: Sequence[int]) -> Sequence[Any]:
        """All of them in a call in which symbols have these values."""
        if not self.layouts:
            return self.fakes
        return [self.form(n, fake, numbers) for n, fake in enumerate(self.fakes)]

    def form(self, n: int, fake: Any, numbers: Sequence[int]) -> Any:
        """The fake tensor itself, or its form where its sizes are symbolic."""
        if n not in self.layouts:
            return fake
        shape, stride = self.layouts[n](*numbers)
        return Form(torch.Size(shape), stride, fake.dtype, fake.device)
