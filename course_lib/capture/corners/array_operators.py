"""What Python's operators and indices do with arrays and numbers of NumPy.

In:  an `Array` or a `Number`, an operand, an index.
Out: what NumPy would give: of constants NumPy itself, now; of data that only the graph knows
     operations of torch. Python and NumPy call the methods below natively; `TorchRecorder` hears of
     the operations of torch in them.

The methods are given to the classes at the end of this file: what they do needs both classes.
In PyTorch: `torch/_numpy/_ndarray.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.capture.corners.arrays import Array, LikeNumPy, Number, refuse
from course_lib.capture.corners.numpy_constants import given, is_constant, value_of
from course_lib.capture.corners.numpy_rules import NUMPY_DTYPES, UFUNCS
from course_lib.capture.corners.numpy_ufuncs import compute, dtype_of, kinds_of, operand
from course_lib.capture.symbolic_numbers import SYMBOLIC

BINARY_UFUNCS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "matmul": "matmul",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
    "lshift": "left_shift",
    "rshift": "right_shift",
}
"""The name in Python's methods (`__add__`, `__radd__`, `__iadd__`) → NumPy's ufunc."""
COMPARISON_UFUNCS = {
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
    "gt": "greater",
    "ge": "greater_equal",
}
UNARY_UFUNCS = {"neg": "negative", "pos": "positive", "abs": "absolute", "invert": "invert"}


# ---- operators


def binary(name: str) -> Callable[[Any, Any], Any]:
    """`__add__`: `self + other`"""

    def operate(self: Any, other: Any) -> Any:
        return of_two(name, self, other)

    return operate


def reflected(name: str) -> Callable[[Any, Any], Any]:
    """`__radd__`: `other + self`"""

    def operate(self: Any, other: Any) -> Any:
        return of_two(name, other, self)

    return operate


def in_place(name: str) -> Callable[[Any, Any], Any]:
    """`array += other`: the array's memory changes."""

    def operate(self: Any, other: Any) -> Any:
        # A number cannot change: Python goes on with `__add__`, and the variable gets its result.
        if type(self) is Number:
            return NotImplemented
        # "same_kind": as NumPy casts in place, which puts no fractions into integers
        assign(self, ..., compute(getattr(np, name), [self, other]), "same_kind")
        return self

    return operate


def unary(name: str) -> Callable[[Any], Any]:
    """`__neg__`: `-self`"""

    def operate(self: Any) -> Any:
        return compute(getattr(np, name), [self])

    return operate


def divmod_of(self: LikeNumPy, other: Any) -> Any:
    """`divmod(self, other)`"""
    return compute(np.floor_divide, [self, other]), compute(np.remainder, [self, other])


def of_two(name: str, left: Any, right: Any) -> Any:
    """An operator of two operands, one of them an array or a number of NumPy's.

    torch decides where the other is a tensor."""
    if isinstance(left, torch.Tensor) or isinstance(right, torch.Tensor):
        return beside_tensor(name, left, right)
    return compute(getattr(np, name), [left, right])


def beside_tensor(name: str, left: Any, right: Any) -> Any:
    """`tensor + number`, or `number + tensor`, as torch does it."""
    # torch's function must take a number as it is: as a tensor it would have a dtype of its own
    rule = UFUNCS.get(name)
    if rule is None or not rule.takes_numbers:
        refuse(f"calls numpy.{name} of a tensor and an array")
    if isinstance(left, torch.Tensor):
        return rule.function(left, argument(right, left))
    return rule.function(argument(left, right), right)


def argument(value: Any, tensor: torch.Tensor | None = None) -> Any:
    """What stands for an array or a number among the arguments of torch's function.

    `tensor`: the other operand, where it is arithmetic."""
    if type(value) is Number:
        if value.symbol is not None:
            return value.symbol()
        # A tensor without dimensions does what a number would: it leaves the other's dtype alone.
        if tensor is not None and tensor.ndim and value.dtype.kind in kinds_below(tensor):
            return value.tensor
        if value.known is not None:
            return value.known().item()

    refuse("gives an array of NumPy to an operation on tensors")


def kinds_below(tensor: torch.Tensor) -> str:
    """The kinds of dtypes of numbers that do not change the dtype of this tensor."""
    if tensor.is_floating_point():
        return "iuf"
    if tensor.dtype not in NUMPY_DTYPES:
        return ""

    is_integer = NUMPY_DTYPES[tensor.dtype].kind in "iu"
    return "iu" if is_integer else ""


# ---- items


def get_item(array: Array, index: Any) -> Any:
    """`array[index]`"""
    if array.constant is not None and is_constant(index):
        return given(array.in_python()[value_of(index)], [array])

    tensor = array.as_tensor()
    part = tensor[index_in_torch(index)]
    if not is_of_one_element(index, tensor):
        return Array(tensor=part)

    # A number does not change with the array.
    element = part.clone()
    return Number(NUMPY_DTYPES[element.dtype], lambda: element)


def is_of_one_element(index: Any, tensor: torch.Tensor) -> bool:
    """True if the index is one integer for each dimension."""
    parts = index if type(index) is tuple else (index,)
    has_integers_only = all(isinstance(part, (int, np.integer)) for part in parts)
    return has_integers_only and len(parts) == tensor.ndim


def set_item(array: Array, index: Any, value: Any) -> None:
    """`array[index] = value`: NumPy casts any number to the array's dtype ("unsafe")."""
    assign(array, index, value, "unsafe")


def assign(array: Array, index: Any, value: Any, casting: Any) -> None:
    """`array[index] = value`, if NumPy casts so (`casting`: as `numpy.copyto` takes it)."""
    if array.constant is not None and is_constant((index, value)):
        array.memory.check(writes=True)
        if casting == "unsafe":
            array.constant[value_of(index)] = value_of(value)
        else:
            np.copyto(array.constant, value_of(value), casting=casting)
        return

    dtype = dtype_of(value)
    if isinstance(dtype, np.dtype) and not np.can_cast(dtype, array.dtype, casting):
        refuse(f"writes {dtype} numbers to an array of {array.dtype}")
    # NumPy drops the imaginary parts and warns, which a graph would not
    if "c" in kinds_of([value]) and array.dtype.kind != "c":
        refuse("writes complex numbers to an array of real ones")

    array.shared()[index_in_torch(index)] = operand(value, array.dtype)


def index_in_torch(index: Any) -> Any:
    """An index of NumPy's for a tensor. Raises Unsupported where torch reads it in another way."""
    if type(index) is tuple:
        return tuple(map(index_in_torch, index))
    if isinstance(index, (bool, np.bool_)):
        refuse("looks up an array by a single bool")
    if type(index) in (Array, list):
        return index_by_array(index)
    if type(index) is Number:
        return index.in_python().item()
    if isinstance(index, np.integer):
        return index.item()
    if type(index) is slice:
        return slice_in_torch(index)

    if index is None or index is ... or isinstance(index, (int, *SYMBOLIC)):
        return index
    refuse(f"looks up an array by a {type(index).__name__}")


def slice_in_torch(index: slice) -> slice:
    """The slice itself. Raises Unsupported for one that goes backwards."""
    step = value_of(index.step)
    if step is not None and step < 0:
        refuse("takes a slice backwards, which no tensor has")
    return index


def index_by_array(index: Any) -> torch.Tensor:
    """An array, or a list, of numbers or of bools, as an index."""
    array = index
    if type(index) is list:
        array = given(np.asarray(value_of(index)), [])
    if array.dtype.kind not in "bi" or not array.shape:
        refuse(f"looks up an array by one of {array.dtype}")
    tensor: torch.Tensor = array.as_tensor()
    return tensor


# ---- the methods

for sign, ufunc in BINARY_UFUNCS.items():
    setattr(LikeNumPy, f"__{sign}__", binary(ufunc))
    setattr(LikeNumPy, f"__r{sign}__", reflected(ufunc))
    setattr(LikeNumPy, f"__i{sign}__", in_place(ufunc))
for sign, ufunc in COMPARISON_UFUNCS.items():
    setattr(LikeNumPy, f"__{sign}__", binary(ufunc))
for sign, ufunc in UNARY_UFUNCS.items():
    setattr(LikeNumPy, f"__{sign}__", unary(ufunc))

setattr(LikeNumPy, "__divmod__", divmod_of)  # noqa: B010  (mypy looks for it in every class)
setattr(Array, "__getitem__", get_item)  # noqa: B010
setattr(Array, "__setitem__", set_item)  # noqa: B010
