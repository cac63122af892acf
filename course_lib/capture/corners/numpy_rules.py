"""What NumPy's functions are in torch: the tables.

In:  the name of a function of NumPy.
Out: the function of torch that gives the same, and the dtypes in which it does.

Dtypes are decided before: NumPy says in which dtype a function computes (`ufunc.resolve_dtypes`),
and the operands are cast to it first. So no promotion of torch's takes part. Kinds of dtypes, as in
`numpy.dtype.kind`: `b` bool, `i` signed and `u` unsigned integers, `f` floats, `c` complex. What is
not in a table is called in eager.

NumPy's `RuntimeWarning`s about data (a division by zero) do not come from a graph; torch.compile
gives none either. Where NumPy's own answer depends on its vectors, it may be the other one: the
sign of the larger of 0.0 and -0.0, or of a sum of zeros.
In PyTorch: `torch/_numpy/_ufuncs.py`, `_reductions_impl.py`, `_funcs_impl.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

TORCH_DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in """bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128""".split()
}
"""The dtypes that both have."""
NUMPY_DTYPES = {of_torch: of_numpy for of_numpy, of_torch in TORCH_DTYPES.items()}


# ---- functions of elements -----------------------------------------------------------------------


@dataclass(frozen=True)
class Elementwise:
    """One of NumPy's ufuncs in torch.

    kinds: the kinds of dtypes in which NumPy and torch give the same.
    takes_numbers: may an operand of torch's function be a number? If not, a number becomes a tensor
    first.
    """

    function: Callable[..., Any]
    kinds: str
    takes_numbers: bool = False


def sign(x: torch.Tensor) -> torch.Tensor:
    """NumPy's sign of NaN is NaN; torch's is 0."""
    return torch.where(torch.isnan(x), x, torch.sign(x))


def remainder(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """NumPy gives a zero the sign of `y`."""
    rest = torch.remainder(x, y)
    return torch.where(rest == 0, torch.copysign(torch.zeros_like(rest), y), rest)


def copied(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


UFUNCS: dict[str, Elementwise] = {
    # arithmetic (not of complex numbers: torch computes infinities another way; and not of integers
    # where NumPy gives 0 for a division by zero, and torch raises)
    "add": Elementwise(operator.add, "biuf", takes_numbers=True),
    "subtract": Elementwise(operator.sub, "iuf", takes_numbers=True),
    "multiply": Elementwise(operator.mul, "biuf", takes_numbers=True),
    "divide": Elementwise(operator.truediv, "f", takes_numbers=True),
    "floor_divide": Elementwise(torch.floor_divide, "f"),
    "remainder": Elementwise(remainder, "f"),
    "fmod": Elementwise(torch.fmod, "f"),
    "power": Elementwise(torch.pow, "f", takes_numbers=True),
    "float_power": Elementwise(torch.pow, "f", takes_numbers=True),
    "negative": Elementwise(torch.neg, "iufc"),
    "positive": Elementwise(copied, "iufc"),
    "absolute": Elementwise(torch.abs, "iufc"),
    "fabs": Elementwise(torch.abs, "f"),
    "square": Elementwise(torch.square, "iufc"),
    "reciprocal": Elementwise(torch.reciprocal, "f"),
    "sign": Elementwise(sign, "f"),
    "conjugate": Elementwise(torch.conj_physical, "iufc"),
    # roots, powers, logarithms
    "sqrt": Elementwise(torch.sqrt, "f"),
    "exp": Elementwise(torch.exp, "f"),
    "exp2": Elementwise(torch.exp2, "f"),
    "expm1": Elementwise(torch.expm1, "f"),
    "log": Elementwise(torch.log, "f"),
    "log2": Elementwise(torch.log2, "f"),
    "log10": Elementwise(torch.log10, "f"),
    "log1p": Elementwise(torch.log1p, "f"),
    "logaddexp": Elementwise(torch.logaddexp, "f"),
    "logaddexp2": Elementwise(torch.logaddexp2, "f"),
    # angles
    "sin": Elementwise(torch.sin, "f"),
    "cos": Elementwise(torch.cos, "f"),
    "tan": Elementwise(torch.tan, "f"),
    "arcsin": Elementwise(torch.asin, "f"),
    "arccos": Elementwise(torch.acos, "f"),
    "arctan": Elementwise(torch.atan, "f"),
    "arctan2": Elementwise(torch.atan2, "f"),
    "sinh": Elementwise(torch.sinh, "f"),
    "cosh": Elementwise(torch.cosh, "f"),
    "tanh": Elementwise(torch.tanh, "f"),
    "arcsinh": Elementwise(torch.asinh, "f"),
    "arccosh": Elementwise(torch.acosh, "f"),
    "arctanh": Elementwise(torch.atanh, "f"),
    "hypot": Elementwise(torch.hypot, "f"),
    "deg2rad": Elementwise(torch.deg2rad, "f"),
    "radians": Elementwise(torch.deg2rad, "f"),
    "rad2deg": Elementwise(torch.rad2deg, "f"),
    "degrees": Elementwise(torch.rad2deg, "f"),
    # rounding
    "floor": Elementwise(torch.floor, "f"),
    "ceil": Elementwise(torch.ceil, "f"),
    "trunc": Elementwise(torch.trunc, "f"),
    "rint": Elementwise(torch.round, "f"),
    # the larger and the smaller (NaN wins in the first two, and loses in the others)
    "maximum": Elementwise(torch.maximum, "biuf"),
    "minimum": Elementwise(torch.minimum, "biuf"),
    "fmax": Elementwise(torch.fmax, "iuf"),
    "fmin": Elementwise(torch.fmin, "iuf"),
    "copysign": Elementwise(torch.copysign, "f"),
    # comparisons
    "equal": Elementwise(operator.eq, "biufc", takes_numbers=True),
    "not_equal": Elementwise(operator.ne, "biufc", takes_numbers=True),
    "less": Elementwise(operator.lt, "biuf", takes_numbers=True),
    "less_equal": Elementwise(operator.le, "biuf", takes_numbers=True),
    "greater": Elementwise(operator.gt, "biuf", takes_numbers=True),
    "greater_equal": Elementwise(operator.ge, "biuf", takes_numbers=True),
    # truth, bits
    "logical_and": Elementwise(torch.logical_and, "biufc"),
    "logical_or": Elementwise(torch.logical_or, "biufc"),
    "logical_xor": Elementwise(torch.logical_xor, "biufc"),
    "logical_not": Elementwise(torch.logical_not, "biufc"),
    "bitwise_and": Elementwise(torch.bitwise_and, "biu"),
    "bitwise_or": Elementwise(torch.bitwise_or, "biu"),
    "bitwise_xor": Elementwise(torch.bitwise_xor, "biu"),
    "invert": Elementwise(torch.bitwise_not, "biu"),
    "isnan": Elementwise(torch.isnan, "biuf"),
    "isinf": Elementwise(torch.isinf, "biuf"),
    "isfinite": Elementwise(torch.isfinite, "biuf"),
    "signbit": Elementwise(torch.signbit, "f"),
    # products (of floats: torch's own order of the sums, as for tensors)
    "matmul": Elementwise(torch.matmul, "iuf"),
}
"""`numpy.NAME(x, ...)`, for all ufuncs that the graph computes"""


# ---- reductions ----------------------------------------------------------------------------------


def axes_of(x: torch.Tensor, axis: Any) -> list[int]:
    if axis is None:
        return list(range(x.ndim))
    if type(axis) is int:
        return [axis]
    return list(axis)


def one_axis(x: torch.Tensor, axis: Any, keepdims: bool, reduce: Callable[..., Any]) -> Any:
    """A reduction that torch has for one dimension only: of all, it is that of the flat tensor."""
    if axis is not None:
        return reduce(x, axis, keepdims)
    result = reduce(x.reshape(-1), 0, False)
    if keepdims:
        return result.reshape([1] * x.ndim)
    return result


def sum_of(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    if x.ndim:
        return x.sum(axes_of(x, axis), keepdim=keepdims)
    return x.sum()


def prod_of(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return one_axis(x, axis, keepdims, torch.prod)


def mean_of(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return in_floats(x).mean(axes_of(x, axis), keepdim=keepdims)


def var_of(x: torch.Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    return in_floats(x).var(axes_of(x, axis), correction=ddof, keepdim=keepdims)


def std_of(x: torch.Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    return in_floats(x).std(axes_of(x, axis), correction=ddof, keepdim=keepdims)


def in_floats(x: torch.Tensor) -> torch.Tensor:
    """NumPy takes means of integers in float64."""
    if x.is_floating_point():
        return x
    return x.double()


def largest(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return x.amax(axes_of(x, axis), keepdim=keepdims)


def smallest(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return x.amin(axes_of(x, axis), keepdim=keepdims)


def index_of_largest(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return one_axis(x, axis, keepdims, torch.argmax)


def index_of_smallest(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    return one_axis(x, axis, keepdims, torch.argmin)


def any_of(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    is_true = x != 0
    if x.ndim:
        return is_true.any(axes_of(x, axis), keepdim=keepdims)
    return is_true


def all_of(x: torch.Tensor, axis: Any = None, keepdims: bool = False) -> Any:
    is_true = x != 0
    if x.ndim:
        return is_true.all(axes_of(x, axis), keepdim=keepdims)
    return is_true


def running_sum(x: torch.Tensor, axis: Any = None) -> Any:
    if axis is None:
        return x.reshape(-1).cumsum(0)
    return x.cumsum(axis)


def running_product(x: torch.Tensor, axis: Any = None) -> Any:
    if axis is None:
        return x.reshape(-1).cumprod(0)
    return x.cumprod(axis)


# ---- forms ---------------------------------------------------------------------------------------


def reshaped(x: torch.Tensor, shape: Any) -> Any:
    return x.reshape(shape)


def transposed(x: torch.Tensor, axes: Any = None) -> Any:
    """`numpy.transpose(x)`: without axes all dimensions in the opposite order."""
    if axes is None:
        axes = list(range(x.ndim))[::-1]
    return x.permute(axes)


def swapped(x: torch.Tensor, axis1: int, axis2: int) -> Any:
    return x.swapaxes(axis1, axis2)


def moved(x: torch.Tensor, source: Any, destination: Any) -> Any:
    return torch.movedim(x, source, destination)


def with_axis(x: torch.Tensor, axis: int) -> Any:
    return x.unsqueeze(axis)


def without_axes(x: torch.Tensor, axis: Any = None) -> Any:
    if axis is None:
        return x.squeeze()
    if any(x.shape[one_axis] != 1 for one_axis in axes_of(x, axis)):
        raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    return x.squeeze(axes_of(x, axis))


def flat(x: torch.Tensor) -> Any:
    return x.reshape(-1)


def flat_copy(x: torch.Tensor) -> Any:
    return x.reshape(-1).clone()


def spread(x: torch.Tensor, shape: Any) -> Any:
    return x.broadcast_to(shape)


def tiled(x: torch.Tensor, reps: Any) -> Any:
    """`numpy.tile(x, reps)`"""
    repeats = (reps,) if type(reps) is int else tuple(reps)
    return torch.tile(x, repeats)


def repeated(x: torch.Tensor, repeats: int, axis: Any = None) -> Any:
    if axis is None:
        return x.reshape(-1).repeat_interleave(repeats)
    return x.repeat_interleave(repeats, axis)


def rolled(x: torch.Tensor, shift: Any, axis: Any = None) -> Any:
    return torch.roll(x, shift, axis)


def lower_triangle(x: torch.Tensor, k: int = 0) -> Any:
    return torch.tril(x, k)


def upper_triangle(x: torch.Tensor, k: int = 0) -> Any:
    return torch.triu(x, k)


def zeros_like(x: torch.Tensor) -> Any:
    return torch.zeros_like(x)


def ones_like(x: torch.Tensor) -> Any:
    return torch.ones_like(x)


def dot(x: torch.Tensor, y: torch.Tensor) -> Any:
    """`numpy.dot` of one or two dimensions. With more it is no product of matrices."""
    if not 1 <= x.ndim <= 2 or not 1 <= y.ndim <= 2:
        raise TypeError("of more than two dimensions")
    return torch.matmul(x, y)


def outer(x: torch.Tensor, y: torch.Tensor) -> Any:
    return torch.outer(x.reshape(-1), y.reshape(-1))


def concatenated(*parts: torch.Tensor, axis: Any = 0) -> Any:
    if axis is None:
        return torch.cat([part.reshape(-1) for part in parts])
    return torch.cat(parts, axis)


def stacked(*parts: torch.Tensor, axis: int = 0) -> Any:
    return torch.stack(parts, axis)


@dataclass(frozen=True)
class Whole:
    """One of NumPy's functions of whole arrays in torch.

    `kinds`: of the dtypes of its arrays, those where both agree. `is_view`: does NumPy give a view
    where torch does?
    `array_arguments`: how many of its first arguments are arrays; 0 stands for a sequence of
    arrays.
    """

    function: Callable[..., Any]
    kinds: str
    is_view: bool = False
    array_arguments: int = 1


FUNCTIONS_OF_ARRAYS: dict[str, Whole] = {
    # reductions (NumPy sums unsigned integers as unsigned ones, which torch has not)
    "sum": Whole(sum_of, "bifc"),
    "prod": Whole(prod_of, "bif"),
    "mean": Whole(mean_of, "biuf"),
    "var": Whole(var_of, "iuf"),
    "std": Whole(std_of, "iuf"),
    "max": Whole(largest, "biuf"),
    "amax": Whole(largest, "biuf"),
    "min": Whole(smallest, "biuf"),
    "amin": Whole(smallest, "biuf"),
    "argmax": Whole(index_of_largest, "iuf"),
    "argmin": Whole(index_of_smallest, "iuf"),
    "any": Whole(any_of, "biuf"),
    "all": Whole(all_of, "biuf"),
    "cumsum": Whole(running_sum, "bif"),
    "cumprod": Whole(running_product, "bif"),
    # forms
    "reshape": Whole(reshaped, "biufc", is_view=True),
    "transpose": Whole(transposed, "biufc", is_view=True),
    "permute_dims": Whole(transposed, "biufc", is_view=True),
    "swapaxes": Whole(swapped, "biufc", is_view=True),
    "moveaxis": Whole(moved, "biufc", is_view=True),
    "expand_dims": Whole(with_axis, "biufc", is_view=True),
    "squeeze": Whole(without_axes, "biufc", is_view=True),
    "ravel": Whole(flat, "biufc", is_view=True),
    "broadcast_to": Whole(spread, "biufc", is_view=True),
    "tile": Whole(tiled, "biufc"),
    "repeat": Whole(repeated, "biufc"),
    "roll": Whole(rolled, "biufc"),
    "tril": Whole(lower_triangle, "biufc"),
    "triu": Whole(upper_triangle, "biufc"),
    "copy": Whole(copied, "biufc"),
    "zeros_like": Whole(zeros_like, "biufc"),
    "ones_like": Whole(ones_like, "biufc"),
    # of two and more arrays
    "dot": Whole(dot, "iuf", array_arguments=2),
    "outer": Whole(outer, "iuf", array_arguments=2),
    "concatenate": Whole(concatenated, "biufc", array_arguments=0),
    "concat": Whole(concatenated, "biufc", array_arguments=0),
    "stack": Whole(stacked, "biufc", array_arguments=0),
}
"""`numpy.NAME(array, ...)`"""

METHODS = set(
    """sum prod mean var std max min argmax argmin any all cumsum cumprod reshape transpose swapaxes squeeze
    ravel repeat copy dot""".split()
)
"""`array.NAME(...)` is `numpy.NAME(array, ...)`."""
KEEP_NO_DIMENSIONS = {
    "reshape",
    "transpose",
    "permute_dims",
    "squeeze",
    "copy",
    "zeros_like",
    "ones_like",
}
KEEP_NO_DIMENSIONS |= {"broadcast_to", "tril", "triu", "expand_dims"}
"""Functions whose result stays an array where it has no dimensions. All others give a number
then."""
