"""`torch.max_pool1d` of a length that is a symbol.

In:  the pool, and a tensor whose last size is symbolic.
Out: the pool that gives places as well, and of its two results the values.

The pool that gives maxima alone checks the length as a number, so each length would have a graph of
its own. The pool that gives their places as well takes symbols.
In PyTorch: `max_pool1d` in `aten/src/ATen/native/MaxPooling.cpp`; torch compiles once a length.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from course_lib.capture.calls.tables import FUNCTIONS, Handler

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

PLACE_OF_RETURN_INDICES = 6
"""Among the arguments of `F.max_pool1d`."""


def maxima_of_windows(pool: Callable[..., Any], with_places: Callable[..., Any]) -> Handler:
    """A handler for `pool`: `with_places` gives its values, and where they were found."""

    def record(it: Machine, *args: Any, **options: Any) -> Any:
        data = args[0] if args else options.get("input")
        asks_for_places = options.get("return_indices") or len(args) > PLACE_OF_RETURN_INDICES
        if asks_for_places or not has_symbolic_length(data):
            return it.world.builder.call(pool, args, options)

        options.pop("return_indices", None)
        both = it.world.builder.call(with_places, args, options)
        return it.call(operator.getitem, both, 0)

    return record


def has_symbolic_length(data: Any) -> bool:
    """Is it a tensor, and the size of its last dimension a symbol?"""
    is_some_tensor = isinstance(data, torch.Tensor) and data.ndim > 0
    return is_some_tensor and isinstance(data.shape[-1], torch.SymInt)


FUNCTIONS[torch.max_pool1d] = maxima_of_windows(torch.max_pool1d, torch.max_pool1d_with_indices)
FUNCTIONS[F.max_pool1d] = maxima_of_windows(F.max_pool1d, F.max_pool1d_with_indices)
