"""What NumPy computes itself, while capture runs: all that needs no data of the graph.

In:  a function of NumPy, and arguments that are constants.
Out: what NumPy gives, as a constant or an `Array` of constants. What would warn is `Unsupported`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from course_lib.capture.corners.arrays import Array, Number, refuse
from course_lib.capture.symbolic_numbers import SYMBOLIC, concrete
from course_lib.capture.values import CONSTANT_TYPES


def is_constant(value: Any) -> bool:
    """True for a number, a text, a dtype, an array of constants, and a nest of such."""
    kind = type(value)
    if kind in (tuple, list, torch.Size):
        return all(map(is_constant, value))
    if kind is slice:
        return is_constant((value.start, value.stop, value.step))
    if kind is dict:
        return is_constant([*value, *value.values()])

    if kind is Array:
        return value.constant is not None
    # `isinstance` below would take it for a number of NumPy's.
    if kind is Number:
        return False

    if kind in CONSTANT_TYPES or kind in SYMBOLIC or kind is range:
        return True
    return isinstance(value, (np.generic, np.dtype)) or names_dtype(value)


def names_dtype(value: Any) -> bool:
    """True for a class that stands for a dtype: `float`, `numpy.float32`."""
    if not isinstance(value, type):
        return False
    return value in (bool, int, float, complex) or issubclass(value, np.generic)


def value_of(value: Any) -> Any:
    """The value with NumPy's own arrays in place of what stands for them."""
    if type(value) in (tuple, list):
        return type(value)(map(value_of, value))
    if type(value) is slice:
        return slice(value_of(value.start), value_of(value.stop), value_of(value.step))
    if type(value) is dict:
        return {key: value_of(item) for key, item in value.items()}
    if type(value) in (Array, Number):
        return value.in_python()
    return concrete(value)


def run_now(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function of NumPy, of constants. What would warn at each call is not run now."""
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            result = function(*value_of(list(args)), **value_of(kwargs))
    except FloatingPointError as error:
        refuse(f"calls numpy.{name_of(function)}, which warns: {error}")
    return given(result, [*args, *kwargs.values()])


def given(result: Any, args: Any) -> Any:
    """What stands for a result of NumPy's. A view shares the memory of an argument."""
    if type(result) is np.ndarray:
        arrays = [arg for arg in args if type(arg) is Array and arg.constant is not None]
        sharing = (a.memory for a in arrays if np.may_share_memory(a.constant, result))
        return Array(result, memory=next(sharing, None))

    if type(result) in (tuple, list):
        return type(result)(given(part, args) for part in result)
    if type(result) in CONSTANT_TYPES:
        return result
    if isinstance(result, (np.generic, np.dtype, np.finfo, np.iinfo)):
        return result
    refuse(f"makes a {type(result).__name__} of NumPy's")


def name_of(function: Any) -> str:
    """What a message calls a function of NumPy."""
    return str(getattr(function, "__name__", function))
