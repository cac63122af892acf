"""`tl.dot` as the tensor cores multiply.

In Triton: `InterpreterBuilder.create_dot`, which ignores `input_precision` and multiplies
bfloat16's bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from triton.runtime import interpreter

from course_lib.simulator.formats import tf32
from course_lib.simulator.mends.arithmetic import Builder, handle_of, numbers
from course_lib.simulator.mends.table import mend, override

IEEE = interpreter._ir.INPUT_PRECISION.IEEE
TF32X3 = interpreter._ir.INPUT_PRECISION.TF32x3


@mend(
    "dot",
    "`input_precision` is ignored, bfloat16 is multiplied as integers, the order of additions is BLAS's",
)
def multiply_as_tensor_cores() -> None:
    """All products are exact and their sum is rounded once: the units on a GPU round more often,
    each generation its own way.

    The difference to an H100 is in the last digits of float32 (docs/measurements/simulator.md)."""

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, *rest: Any) -> Any:
        x, y = numbers(a), numbers(b)
        whole = x.dtype.kind in "iu"
        if x.dtype == np.float32 and a.dtype.primitive_bitwidth == 32:
            product = as_precise(x, y, input_precision)
        else:
            # At most 2**30 for int8: float64 holds all of it
            product = np.matmul(x, y, dtype=np.float64)

        if whole:
            result = product.astype(np.int64).astype(d.data.dtype) + d.data
        else:
            result = product + numbers(d)
        return handle_of(result, d.dtype.scalar)

    override(Builder, create_dot=create_dot)


FORMAT = interpreter._ir.ScaleDotElemTypeTY
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
"""The numbers of float4's 8 codes without a sign."""


@mend("dot_scaled", "is not there (AttributeError)", last=(3, 7))
def multiply_scaled() -> None:
    def create_dot_scaled(
        self: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, b_format: Any,
        fast_math: bool, a_k_pack: bool, b_k_pack: bool, acc: Any,
    ) -> Any:  # fmt: skip
        # Rows of `b` are the last dimension of its scale
        x = scaled(a, a_scale, a_format, -1 if a_k_pack else -2)
        y = scaled(b, b_scale, b_format, -2 if b_k_pack else -1, across=True)
        product = np.matmul(x, y, dtype=np.float64)
        return handle_of(product + numbers(acc), acc.dtype.scalar)

    override(Builder, create_dot_scaled=create_dot_scaled)


def scaled(handle: Any, scale: Any, kind: Any, packed: int, across: bool = False) -> Any:
    """The numbers of an operand, each times the power of two of its group.

    packed: the dimension along which two float4 codes share a byte. across: False for the left
    operand, whose groups lie along the columns; True for the right one, whose groups lie along the
    rows. Its scales come transposed.
    """
    if kind == FORMAT.E2M1:
        # each byte holds two codes, the low half first
        pairs = np.moveaxis(handle.data, packed, -1)
        codes = np.stack([pairs & 15, pairs >> 4], -1).reshape(*pairs.shape[:-1], -1)

        # bit 3 of a code is its sign, the other three say which size of the table `E2M1`
        sign = np.where(codes & 8, -1, 1)
        values = np.moveaxis(sign * E2M1[codes & 7], -1, packed)
    else:
        values = numbers(handle).astype(np.float32)
    if scale is None:
        return values

    # The scales are e8m0: a byte is an exponent, 127 stands for 1, and 255 is NaN.
    exponents = scale.data.view(np.uint8).astype(np.int64)
    factor = np.where(exponents == 255, np.nan, np.exp2(exponents - 127.0))
    if across:
        factor = np.swapaxes(factor, -1, -2)

    # One scale serves a whole group of neighbours.
    axis = -2 if across else -1
    group_size = values.shape[axis] // factor.shape[axis]
    return values * np.repeat(factor, group_size, axis)


def as_precise(x: Any, y: Any, precision: Any) -> Any:
    """The product of float32 matrices, as float64."""
    if precision == IEEE:
        return np.matmul(x, y, dtype=np.float64)
    large_x, large_y = tf32(x), tf32(y)
    product = np.matmul(large_x, large_y, dtype=np.float64)
    if precision == TF32X3:
        # What was cut off, times what was kept; the two small parts' product is left out
        small_x, small_y = tf32(x - large_x), tf32(y - large_y)
        small = np.matmul(large_x, small_y, dtype=np.float64)
        small += np.matmul(small_x, large_y, dtype=np.float64)
        # Infinity minus infinity is NaN: then the large parts say what it is
        product = product + np.where(np.isnan(small), 0, small)
    return product
