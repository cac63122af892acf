"""The shape of a norm, for torch 2.11 and 2.12.

They infer the shape of `torch.linalg.vector_norm(x, dim=-1)` without computing it, and keep the
dimension where `x` has a single element in it: `(4, 1)` for an `x` of `(4, 1)`, where eager gives
`(4,)`. A dimension that is counted from the front is right, so here it is counted from there.

In PyTorch: `torch/_refs/linalg/__init__.py`, `vector_norm` (`d not in dim`); mended in 2.13.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from course_lib import versions
from course_lib.capture import shapes

VECTOR_NORM = torch.ops.aten.linalg_vector_norm.default


class RightNorms(FakeTensorMode):
    """Fakes whose norms have eager's shape."""

    def dispatch(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is VECTOR_NORM:
            args = from_the_front(*args)
        return super().dispatch(func, types, args, kwargs)


def from_the_front(
    x: torch.Tensor, ord: Any = 2, dim: list[int] | None = None, *rest: Any
) -> tuple[Any, ...]:
    """The arguments of a vector norm, with no negative dimension. One that is out of range stays:
    torch refuses it."""
    if dim is None:
        return (x, ord, dim, *rest)

    counted = []
    for d in dim:
        is_from_the_back = -x.dim() <= d < 0
        counted.append(d + x.dim() if is_from_the_back else d)
    return (x, ord, counted, *rest)


if versions.minor(torch.__version__) < (2, 13):
    shapes.FAKES = RightNorms
