"""From one dtype to another, as the GPU converts.

In Triton: `InterpreterBuilder.cast_impl`, which is NumPy's `astype`: what does not fit is the
host's chance, and bfloat16 is cut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter

from course_lib.simulator import formats
from course_lib.simulator.mends.arithmetic import WRITE, Builder, Handle, numbers
from course_lib.simulator.mends.table import mend, override

TOWARD_ZERO = interpreter._ir.ROUNDING_MODE.RTZ


@mend(
    "rounding to bfloat16 and float8",
    "float32 to bfloat16 is cut off (its NaN may become infinity), a carry into float8's exponent is lost",
)
def round_to_nearest() -> None:
    before = Builder.create_fp_to_fp

    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        new = dst_type.scalar
        if rounding_mode == TOWARD_ZERO:
            if new in WRITE:
                return Handle(WRITE[new](numbers(src).astype(np.float32), toward_zero=True), new)
            return before(self, src, dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    override(Builder, create_fp_to_fp=create_fp_to_fp)


@mend("casts out of range", "float to integer gives the host's number; the GPU's is the nearest")
def saturate() -> None:
    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        new = dst_type.scalar
        # bfloat16 and float8, which NumPy does not know
        if new in WRITE:
            return Handle(WRITE[new](from_any(src, new).astype(np.float32)), new)

        values = numbers(src)
        wanted = interpreter._get_np_dtype(new)
        if values.dtype.kind == "f" and wanted.kind in "iu":
            return saturated(values, wanted, new)

        # What did not fit into 8 bits still lies in the register (see `saturated`)
        register = src.attr.get("register")
        if register is not None and wanted.kind in "iu" and wanted.itemsize > 1:
            values = register
        return Handle(values.astype(wanted), new)

    override(Builder, cast_impl=cast_impl)


def from_any(src: Any, new: Any) -> Any:
    """The numbers of a handle.

    From float8e5 to bfloat16 the GPU takes infinity and NaN for numbers of the next power of
    two."""
    if src.dtype.scalar != tl.float8e5 or new != tl.bfloat16:
        return numbers(src)

    # a float8e5: 1 bit of sign (80), 5 of exponent (7C), 2 of fraction (3)
    fraction = 1 + (src.data & 3) / 4
    beyond = np.where(src.data & 0x80, -65536.0, 65536.0) * fraction
    return np.where((src.data & 0x7C) == 0x7C, beyond, numbers(src))


def saturated(values: Any, wanted: Any, dtype: Any) -> Any:
    """Float to integer. 8 bits are converted in a register of 16, and wrap when they are stored:
    300.0 is 44 in memory as an int8, and 300 when it is converted on to int64."""
    if wanted.itemsize > 1:
        return Handle(formats.float_to_integer(values, wanted), dtype)
    register = formats.float_to_integer(values, np.dtype(f"{wanted.kind}2"))
    return Handle(register.astype(wanted), dtype, {"register": register})
