"""Additions, comparisons, minimum and maximum as the GPU does them.

In:  handles of Triton's interpreter: a NumPy array and Triton's dtype.
Out: handles.
In Triton: `InterpreterBuilder.binary_op`, `unary_op` and `ternary_op`.

bfloat16 and float8 lie in memory as unsigned integers. Here each operation reads them as numbers,
computes in float32 and rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from course_lib.simulator import formats
from course_lib.simulator.mends.table import mend, override, stated
from course_lib.simulator.settings import settings

Handle = interpreter.TensorHandle
Builder = interpreter.InterpreterBuilder

READER_OF_DTYPE: dict[Any, Callable[[Any], Any]] = {
    tl.bfloat16: formats.bfloat16_values,
    tl.float8e4nv: lambda codes: formats.E4M3.values[codes],
    tl.float8e5: lambda codes: formats.E5M2.values[codes],
}
"""Dtype that NumPy does not know → what makes float32 numbers of its bits."""

WRITE: dict[Any, Callable[..., Any]] = {
    tl.bfloat16: formats.bfloat16_bits,
    tl.float8e4nv: formats.E4M3.bits,
    tl.float8e5: formats.E5M2.bits,
}
"""Dtype that NumPy does not know → what makes its bits of float32 numbers."""


OPERATION_ON_ONE_BIT: dict[Any, Any] = {np.add: np.logical_xor, np.subtract: np.logical_xor}
"""Addition and subtraction of bools: in one bit, 1 + 1 is 0."""


def numbers(handle: Any) -> Any:
    """The values of a handle as NumPy can compute with them."""
    read = READER_OF_DTYPE.get(handle.dtype.scalar)
    if read is None:
        return handle.data
    return read(handle.data)


def handle_of(values: Any, dtype: Any) -> Any:
    """A handle of this dtype. What is a comparison's result is int1, whatever was compared."""
    if values.dtype == np.bool_:
        return Handle(values, tl.int1)
    write = WRITE.get(dtype)
    if write is not None:
        return Handle(write(values), dtype)
    wanted = interpreter._get_np_dtype(dtype)
    if values.dtype != wanted:
        values = values.astype(wanted)
    return Handle(values, dtype)


@mend(
    "bfloat16 and float8",
    "`+`, `*`, `<`, `where` and `sum` compute with the bits as if they were integers: 1 + 2 is infinity",
)
def compute_with_numbers() -> None:
    def binary_op(self: Any, lhs: Any, rhs: Any, op: Callable[..., Any]) -> Any:
        dtype = lhs.dtype.scalar
        if dtype in READER_OF_DTYPE:
            return handle_of(np.asarray(op(numbers(lhs), numbers(rhs))), dtype)

        if lhs.data.dtype == np.bool_:
            op = OPERATION_ON_ONE_BIT.get(op, op)
        output = op(lhs.data, rhs.data)
        if output.dtype == np.bool_ and dtype != tl.int1:
            return Handle(output, tl.int1)
        if not interpreter._validate_np_data_size(output, dtype):
            output = output.astype(interpreter._get_np_dtype(dtype))
        return Handle(output, dtype)

    def unary_op(self: Any, arg: Any, op: Callable[..., Any]) -> Any:
        return handle_of(np.asarray(op(numbers(arg))), arg.dtype.scalar)

    def create_select(self: Any, condition: Any, lhs: Any, rhs: Any) -> Any:
        chosen = np.where(condition.data, lhs.data, rhs.data)
        if chosen.dtype.itemsize > lhs.data.dtype.itemsize:
            # An int32 and a uint32 are an int64 for NumPy
            chosen = chosen.astype(lhs.data.dtype)
        return Handle(chosen, lhs.dtype.scalar)

    def get_bf16(self: Any, value: float) -> Any:
        return Handle(formats.bfloat16_bits(np.array([value], np.float32)), tl.bfloat16)

    override(
        Builder,
        binary_op=binary_op,
        unary_op=unary_op,
        create_select=create_select,
        get_bf16=get_bf16,
    )


stated("one bit", "`flag + flag` of two bools is `or`; in one bit it is 0", last=(3, 8))


@mend("all ones", "`~x` of an unsigned block fails with NumPy 2 (OverflowError)", last=(3, 8))
def all_ones() -> None:
    def get_all_ones_value(self: Any, kind: Any) -> Any:
        dtype = interpreter._get_np_dtype(kind)
        ones = np.array([True]) if dtype == np.bool_ else ~np.zeros(1, dtype)
        return Handle(ones, kind.scalar)

    override(Builder, get_all_ones_value=get_all_ones_value)


@mend("fma", "`tl.fma` is rounded twice (3.6 to 3.8), and of bfloat16 it takes the bits")
def round_fma_once() -> None:
    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        return handle_of(formats.fused(numbers(x), numbers(y), numbers(z)), z.dtype.scalar)

    override(Builder, create_fma=create_fma)


@mend("contraction", "`a * b + c` is rounded twice; the compiler makes one fma of it")
def contract() -> None:
    """Remember what a product was made of, so that a sum can be computed from its factors.

    `enable_fp_fusion=False` switches it off, for a launch as on a GPU."""

    def create_fmul(self: Any, lhs: Any, rhs: Any) -> Any:
        product = self.binary_op(lhs, rhs, np.multiply)
        if settings.fusion:
            product.attr = {**product.attr, "factors": (lhs, rhs)}
        return product

    def create_fadd(self: Any, lhs: Any, rhs: Any) -> Any:
        for product, other in ((lhs, rhs), (rhs, lhs)):
            factors = settings.fusion and product.attr.get("factors")
            if factors:
                return self.create_fma(*factors, other)
        return self.binary_op(lhs, rhs, np.add)

    def create_fsub(self: Any, lhs: Any, rhs: Any) -> Any:
        if settings.fusion and "factors" in lhs.attr:
            return self.create_fma(*lhs.attr["factors"], negative(rhs))
        if settings.fusion and "factors" in rhs.attr:
            a, b = rhs.attr["factors"]
            return self.create_fma(negative(a), b, lhs)
        return self.binary_op(lhs, rhs, np.subtract)

    override(Builder, create_fmul=create_fmul, create_fadd=create_fadd, create_fsub=create_fsub)


def negative(handle: Any) -> Any:
    """`-x`, lane by lane."""
    return handle_of(np.negative(numbers(handle)), handle.dtype.scalar)


@mend("denormal numbers", "`tl.sqrt(1e-40)` is 1e-20; the fast instruction takes 1e-40 for 0")
def flush_denormals() -> None:
    def flushing(op: Callable[..., Any]) -> Callable[..., Any]:
        def computed(self: Any, arg: Any) -> Any:
            if settings.flush and arg.data.dtype == np.float32:
                return self.unary_op(arg, lambda x: op(formats.flushed(x)))
            return self.unary_op(arg, op)

        return computed

    override(
        Builder,
        create_sqrt=flushing(np.sqrt),
        create_rsqrt=flushing(lambda x: 1 / np.sqrt(x)),
        create_ceil=flushing(np.ceil),
        create_floor=flushing(np.floor),
    )


def larger(a: Any, b: Any) -> Any:
    """IEEE 754's maximumNumber: a number before NaN, and 0.0 before -0.0 (`max.f32`)."""
    return of_two_zeros(np.fmax(a, b), a, b, np.logical_and)


def smaller(a: Any, b: Any) -> Any:
    """IEEE 754's minimumNumber: a number before NaN, and -0.0 before 0.0 (`min.f32`)."""
    return of_two_zeros(np.fmin(a, b), a, b, np.logical_or)


def of_two_zeros(result: Any, a: Any, b: Any, negative_if: Callable[..., Any]) -> Any:
    """NumPy's choice between 0.0 and -0.0 depends on how many elements there are: choose anew."""
    zero = (a == 0) & (b == 0)
    if not zero.any():
        return result
    minus = negative_if(np.signbit(a), np.signbit(b))
    return np.where(zero, np.where(minus, -0.0, 0.0).astype(result.dtype), result)


def or_nan(choose: Callable[..., Any]) -> Callable[..., Any]:
    """A choice like `smaller`, but with NaN where one of the two is NaN (`max.NaN.f32`)."""

    def chosen(a: Any, b: Any) -> Any:
        result = choose(a, b)
        nan = np.isnan(a) | np.isnan(b)
        if nan.any():
            return np.where(nan, np.array(np.nan, result.dtype), result)
        return result

    return chosen


@mend("minimum and maximum", "NaN is kept by default in 3.6, and the sign of a zero is chance")
def choose_as_the_gpu() -> None:
    def using(op: Callable[..., Any]) -> Callable[..., Any]:
        return lambda self, lhs, rhs: self.binary_op(lhs, rhs, op)

    override(
        Builder,
        create_maxnumf=using(larger),
        create_minnumf=using(smaller),
        create_maximumf=using(or_nan(larger)),
        create_minimumf=using(or_nan(smaller)),
    )


@mend("clamp", "`tl.clamp(nan, -1.0, 1.0)` is NaN (3.6) or -1 (3.9); on the GPU 1")
def clamp_as_the_gpu() -> None:
    keep_nan = interpreter._ir.PROPAGATE_NAN.ALL

    def create_clampf(self: Any, arg: Any, low: Any, high: Any, propagate_nan: Any) -> Any:
        x, lowest, highest = numbers(arg), numbers(low), numbers(high)
        if propagate_nan == keep_nan:
            clamped = or_nan(smaller)(or_nan(larger)(x, lowest), highest)
        else:
            clamped = smaller(larger(x, lowest), highest)
            # -c to c is one instruction (min.xorsign.abs), which takes c for NaN
            if is_written(low) and is_written(high) and np.all(lowest == -highest):
                clamped = np.where(np.isnan(x), highest, clamped)
        return handle_of(np.asarray(clamped), arg.dtype.scalar)

    # Triton makes a constant of the kernel's text by this method: it is marked (`is_written`).
    def get_fp32(self: Any, value: float) -> Any:
        return Handle(np.array([value], np.float32), tl.float32, {"written": True})

    override(Builder, create_clampf=create_clampf, get_fp32=get_fp32)


def is_written(handle: Any) -> bool:
    """Does this number stand in the kernel's text?"""
    return bool(handle.attr.get("written"))
