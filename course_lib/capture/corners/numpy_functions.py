"""Functions of NumPy, of arrays whose data only the graph knows.

In:  a function of NumPy (`np.sum`, `np.where`), and arguments of which some `Array` or `Number` is
     no constant.
Out: an `Array` or a `Number` that operations of torch compute, where these give what NumPy gives.
Anything else is `Unsupported`.
In PyTorch: `torch/_numpy/_funcs_impl.py`, `_reductions_impl.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.capture.corners.arrays import Array, Number, number_or_array, refuse
from course_lib.capture.corners.numpy_constants import is_constant
from course_lib.capture.corners.numpy_rules import (
    FUNCTIONS_OF_ARRAYS,
    KEEP_NO_DIMENSIONS,
    NUMPY_DTYPES,
    TORCH_DTYPES,
    Whole,
)
from course_lib.capture.corners.numpy_ufuncs import compute, dtype_of, kinds_of, operand


def call(function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy, of which some argument is no constant."""
    name = function.__name__
    if isinstance(function, np.ufunc) and not kwargs and len(args) == function.nin:
        return compute(function, args)
    if isinstance(function, np.ufunc):
        refuse(f"calls numpy.{name} with options that are not followed")

    if name in SPECIAL:
        try:
            return SPECIAL[name](*args, **kwargs)
        except TypeError as error:
            refuse(f"calls numpy.{name} with arguments that are not followed: {error}")
    rule = FUNCTIONS_OF_ARRAYS.get(name)
    # (0 arrays stands for a sequence of arrays, which is one argument)
    if rule is None or len(args) < max(rule.array_arguments, 1):
        refuse(f"calls numpy.{name} of data that only the graph knows")
    return whole(name, rule, args, kwargs)


# ---- functions that a table says -----------------------------------------------------------------


def whole(name: str, rule: Whole, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function of whole arrays: reductions, forms, products."""
    arrays, options = arguments_of(name, rule, args, kwargs)
    if rule.is_view and type(arrays[0]) is Array:
        tensors = [arrays[0].shared()]
    else:
        common = np.result_type(*map(dtype_of, arrays))
        tensors = [operand(array, common, as_number=False) for array in arrays]

    dtype = kwargs.pop("dtype", None)
    options_by_name = {option: in_torch(value) for option, value in kwargs.items()}
    try:
        result = rule.function(*tensors, *map(in_torch, options), **options_by_name)
    except (TypeError, ValueError, IndexError, RuntimeError) as error:
        refuse(f"calls numpy.{name} with arguments that are not followed: {error}")

    if dtype is not None and np.dtype(dtype) != NUMPY_DTYPES[result.dtype]:
        refuse(f"calls numpy.{name} with another dtype")
    # `squeeze` of an array stays an array, of a number a number
    squeezes_number = name == "squeeze" and type(arrays[0]) is Number
    if name in KEEP_NO_DIMENSIONS and not squeezes_number:
        return Array(tensor=result)
    return number_or_array(result)


def arguments_of(
    name: str, rule: Whole, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], list[Any]]:
    """The arrays among the arguments, and the options by place behind them.

    Refuses those for which torch may differ."""
    if rule.array_arguments == 0:
        arrays, options = list(args[0]), args[1:]
    else:
        arrays, options = args[: rule.array_arguments], args[rule.array_arguments :]

    if not is_constant([options, kwargs]):
        refuse(f"calls numpy.{name} with options that are not followed")
    if kinds_of(arrays) - set(rule.kinds):
        refuse(f"calls numpy.{name} in {dtype_of(arrays[0])}, where torch's result may differ")
    return arrays, options


def in_torch(value: Any) -> Any:
    """Options as torch wants them: Python's own numbers."""
    if type(value) in (Array, Number):
        return value.in_python().tolist()
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (tuple, list):
        return type(value)(map(in_torch, value))
    return value


# ---- functions that have a form of their own -----------------------------------------------------


def where(condition: Any, *sides: Any) -> Any:
    """`numpy.where(condition, x, y)`"""
    if len(sides) != 2 or np.dtype(dtype_of(condition)).kind != "b":
        refuse("calls numpy.where of a condition that is no array of bools")

    # NumPy decides by an example of each side; that of a number of Python's is 0.
    examples = []
    for side in sides:
        example = dtype_of(side)
        if not isinstance(example, np.dtype):
            example = example(0)
        examples.append(example)
    dtype = np.result_type(*examples)

    chosen = operand(condition, np.dtype(bool), as_number=False)
    tensors = [operand(side, dtype, as_number=False) for side in sides]
    return Array(tensor=torch.where(chosen, *tensors))


def clip(array: Any, low: Any = None, high: Any = None) -> Any:
    """`numpy.clip(array, low, high)`"""
    if low is None and high is None:
        # Older versions of NumPy raise, newer ones copy the array: eager asks the one that is there
        refuse("calls numpy.clip without limits")
    if low is not None:
        array = compute(np.maximum, [array, low])
    if high is None:
        return array
    return compute(np.minimum, [array, high])


def rounded(array: Any, decimals: int = 0) -> Any:
    """`numpy.round(array)`, to whole numbers. Rounding to other decimals is refused: NumPy
    multiplies, rounds and divides, and torch's result may differ in the last bit."""
    if decimals != 0 or array.dtype.kind != "f":
        refuse("rounds an array of NumPy to decimals")
    return compute(np.rint, [array])


def astype(array: Any, dtype: Any, copy: bool = True) -> Any:
    """`array.astype(dtype)`"""
    dtype = np.dtype(dtype)
    if dtype not in TORCH_DTYPES or (array.dtype.kind == "c" and dtype.kind != "c"):
        refuse(f"casts an array to {dtype}")
    if not copy and dtype == array.dtype:
        return array

    result = operand(array, dtype)
    if dtype == array.dtype:
        result = result.clone()
    if type(array) is Number:
        return number_or_array(result)
    return Array(tensor=result)


def as_array(data: Any, dtype: Any = None) -> Any:
    """`numpy.asarray(data)`: an array stays itself."""
    is_array = type(data) is Array
    if is_array and (dtype is None or np.dtype(dtype) == data.dtype):
        return data
    return array(data, dtype)


def array(data: Any, dtype: Any = None) -> Any:
    """`numpy.array(data)`: a copy; of a sequence of arrays or numbers, one with a dimension
    more."""
    if type(data) in (list, tuple):
        common = np.result_type(*map(dtype_of, data))
        parts = [operand(part, common, as_number=False) for part in data]
        data = Array(tensor=torch.stack(parts))
    if type(data) not in (Array, Number):
        refuse(f"makes an array of a {type(data).__name__}")

    if dtype is None:
        dtype = data.dtype
    copied = astype(data, dtype)
    if type(copied) is Number:
        return Array(tensor=copied.tensor)
    return copied


def shape(array: Any) -> Any:
    if type(array) is Array:
        return array.shape
    return ()


def ndim(array: Any) -> int:
    return len(shape(array))


SPECIAL: dict[str, Callable[..., Any]] = {
    "where": where,
    "clip": clip,
    "round": rounded,
    "around": rounded,
    "asarray": as_array,
    "asanyarray": as_array,
    "array": array,
    "shape": shape,
    "ndim": ndim,
    "astype": astype,
}
"""Functions of arrays that are no single function of torch."""
