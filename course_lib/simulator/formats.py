"""Numbers that NumPy has no type for, and how a GPU rounds: bfloat16, float8, tf32, and float to
integer.

In:  NumPy arrays, of float32 values or of bits (bfloat16 in uint16, float8 in uint8).
Out: the same, rounded as the GPU rounds.
In PyTorch: `c10/util/BFloat16.h`, `c10/util/Float8_e4m3fn.h`; on the GPU these are single
instructions (`cvt.rn.bf16.f32`, ...).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

BFLOAT16_NAN = 0x7FFF
"""Every NaN becomes this one: the GPU keeps no payload."""


def bfloat16_values(bits: Array) -> Array:
    """The bits (uint16) as float32: bfloat16 is the upper half of it."""
    return np.left_shift(bits, np.uint32(16), dtype=np.uint32).view(np.float32)


def bfloat16_bits(values: Array, toward_zero: bool = False) -> Array:
    """The nearest bfloat16 (of two equally near the even one), as bits in uint16.

    `values`: float32."""
    values = np.asarray(values, np.float32)
    bits = values.view(np.uint32)

    if toward_zero:
        upper_bits = bits >> np.uint32(16)
    else:
        # Half of the last place that stays; a tie goes up only where that place is odd
        last = (bits >> np.uint32(16)) & np.uint32(1)
        upper_bits = (bits + (last + np.uint32(0x7FFF))) >> np.uint32(16)

    result = upper_bits.astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():
        result = np.where(nan, np.uint16(BFLOAT16_NAN), result)
    return result


@dataclass(frozen=True)
class Float8:
    """A format of 8 bits: a sign, `exponent` bits, `mantissa` bits."""

    exponent: int
    mantissa: int
    # Codes: of NaN, of the largest number, of infinity (0: there is none)
    nan: int
    largest: int
    infinity: int = 0

    @functools.cached_property
    def values(self) -> Array:
        """The value of each of the 256 codes, as float32."""
        codes = np.arange(128)
        fraction = (codes % 2**self.mantissa) / 2**self.mantissa
        power = codes >> self.mantissa

        # Exponent 0 has no leading 1
        bias = 2 ** (self.exponent - 1) - 1
        leading = np.where(power == 0, 0.0, 1.0)
        positive = (leading + fraction) * 2.0 ** (np.maximum(power, 1) - bias)

        positive[self.largest + 1 :] = np.nan
        if self.infinity:
            positive[self.infinity] = np.inf
        return np.concatenate([positive, -positive]).astype(np.float32)

    def bits(self, values: Array, toward_zero: bool = False) -> Array:
        """The nearest code, ties to even.

        What is too large becomes the largest number, infinity too; NaN stays."""
        size = np.minimum(np.abs(values), self.values[self.largest])
        finite = self.values[: self.largest + 1]

        if toward_zero:
            # The last code that is not above the number
            code = np.searchsorted(finite, size, side="right") - 1
        else:
            # Between two codes lies a middle. On it the even code is taken, else the nearer one.
            middle = (finite[:-1].astype(np.float64) + finite[1:]) / 2
            code = np.searchsorted(middle, size, side="left")
            tie = (code < len(middle)) & (middle[np.minimum(code, len(middle) - 1)] == size)
            code = code + (tie & (code % 2 == 1))

        # The highest of the eight bits is the sign. NaN gets none.
        is_nan = np.isnan(values)
        code = np.where(is_nan, self.nan, code)
        sign = np.where(np.signbit(values) & ~is_nan, 128, 0)
        return (code + sign).astype(np.uint8)


E4M3 = Float8(exponent=4, mantissa=3, nan=0x7F, largest=0x7E)
E5M2 = Float8(exponent=5, mantissa=2, nan=0x7F, largest=0x7B, infinity=0x7C)


def tf32(values: Array) -> Array:
    """float32 with its 13 last bits cut off: what a tensor core reads of it.

    It cuts, it does not round."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


def float_to_integer(values: Array, dtype: np.dtype[Any]) -> Array:
    """Toward zero; what does not fit becomes the nearest end of the range.

    NaN is 0; where one of the two has 64 bits, 1 and then zeros.

    `dtype`: of 16 bits or more. There is no instruction for 8 bits (`simulator.casts`)."""
    info = np.iinfo(dtype)
    values = np.trunc(values)
    # The largest number of 32 or 64 bits is no float32: the float beside it is too large already
    low, end = float(info.min), float(2 ** (info.bits - (info.min < 0)))

    is_inside = (values >= low) & (values < end)
    result = np.where(is_inside, values, 0).astype(dtype)
    if is_inside.all():
        return result

    result[values >= end] = info.max
    result[values < low] = info.min
    if info.bits == 64 or (info.bits == 32 and values.dtype == np.float64):
        result[np.isnan(values)] = np.uint64(2 ** (info.bits - 1)).astype(dtype)
    return result


def fused(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c`, rounded once."""
    kind = np.result_type(a, c)
    if kind != np.float64:
        # float64 holds the product exactly
        return (np.multiply(a, b, dtype=np.float64) + c).astype(kind)
    return fused_float64(a, b, c)


def fused_float64(a: Array, b: Array, c: Array) -> Array:
    """`a * b + c` in float64, rounded once: what the rounding of product and sum loses is computed
    and added at the end (Dekker 1971)."""
    # What the rounding of the product lost, exactly: the halves' products need no rounding.
    product = a * b
    high_a, high_b = upper_half(a), upper_half(b)
    low_a, low_b = a - high_a, b - high_b
    lost = ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b

    # What the rounding of the sum lost: of the product, and of `c`.
    total = product + c
    part_of_c = total - product
    part_of_product = total - part_of_c
    lost = lost + ((product - part_of_product) + (c - part_of_c))
    return np.where(np.isfinite(lost), total + lost, total)


def upper_half(x: Array) -> Array:
    """The upper 26 bits of a float64 (Veltkamp's way: a large multiple pushes the others out)."""
    scaled = x * (2.0**27 + 1)
    return scaled - (scaled - x)


def flushed(values: Array) -> Array:
    """float32 without denormal numbers, which the fast instructions take for 0 (`.ftz`)."""
    tiny = np.abs(values) < np.float32(2.0**-126)
    if tiny.any():
        return np.where(tiny, np.copysign(np.float32(0), values), values)
    return values
