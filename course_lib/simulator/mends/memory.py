"""Atomic operations, `histogram`, scalars: what else the builder of Triton's interpreter lacks.

In Triton: `InterpreterBuilder.create_atomic_rmw`, `create_histogram`, `create_splat`;
`runtime/autotuner.py`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import autotuner, interpreter

from course_lib.simulator import formats
from course_lib.simulator.mends.arithmetic import Builder, Handle, numbers
from course_lib.simulator.mends.table import mend, override, stated
from course_lib.simulator.refused import NotSimulated

ADD = interpreter._ir.ATOMIC_OP.FADD


@mend("atomics of bfloat16", "`tl.atomic_add` of bfloat16 raises `Unsupported data type`")
def add_bfloat16() -> None:
    before = Builder.create_atomic_rmw

    def create_atomic_rmw(
        self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any
    ) -> Any:
        if val.dtype.scalar != tl.bfloat16 or op != ADD:
            return before(self, op, ptr, val, mask, sem, scope)

        addresses = np.atleast_1d(ptr.data)
        values = np.broadcast_to(numbers(val), addresses.shape)
        lanes = np.broadcast_to(mask.data, addresses.shape)
        old = np.zeros(addresses.shape, np.uint16)

        # One lane after the other: two of them may have the same address, and each adds to what
        # the one before it left.
        for lane in np.ndindex(addresses.shape):
            if not lanes[lane]:
                continue
            cell = ctypes.c_uint16.from_address(int(addresses[lane]))
            old[lane] = cell.value
            now = formats.bfloat16_values(np.array([cell.value], np.uint16))
            cell.value = int(formats.bfloat16_bits(now + values[lane])[0])

        return Handle(old.reshape(np.shape(ptr.data)), tl.bfloat16)

    override(Builder, create_atomic_rmw=create_atomic_rmw)


@mend("histogram", "a value equal to the number of bins counts in the last one", last=(3, 8))
def count_what_is_inside() -> None:
    def create_histogram(self: Any, data: Any, bins: int, mask: Any) -> Any:
        is_inside = (data.data >= 0) & (data.data < bins)
        if mask is not None:
            is_inside = is_inside & mask.data

        counts = np.bincount(data.data[is_inside].astype(np.int64), minlength=bins)
        return Handle(counts.astype(np.int32), tl.int32)

    override(Builder, create_histogram=create_histogram)


@mend("splat", "a comparison of two scalars is an array of one; with NumPy 2.4 that is no number")
def splat_the_first() -> None:
    def create_splat(self: Any, kind: Any, arg: Any) -> Any:
        data = np.full(kind.shape, np.ravel(arg.data)[0])
        return Handle(data, arg.dtype.scalar, {k: v for k, v in arg.attr.items() if k == "written"})

    override(Builder, create_splat=create_splat)


@mend("device_print", "prints one line for each program, in a format of its own")
def print_lane_by_lane() -> None:
    """One line for each lane, as a GPU writes it.

    There each thread prints its own: what several threads have comes several times."""

    def create_print(
        self: Any, prefix: str, hexadecimal: bool, values: Any, is_signed: Any
    ) -> None:
        program = f"pid ({', '.join(map(str, self.grid_idx))})"
        if not values:
            print(f"{program}{prefix}")

        for operand, handle in enumerate(values):
            which = ""
            if len(values) > 1:
                which = f"(operand {operand}) "
            data = numbers(handle)
            # A single number has no index: `idx ()`.
            data = data.reshape(()) if data.size == 1 else data

            for lane in np.ndindex(data.shape):
                number = hex(int(data[lane])) if hexadecimal else data[lane]
                print(f"{program} idx ({', '.join(map(str, lane))}){prefix}{which}{number}")

    override(Builder, create_print=create_print)


@mend("inline assembly", "raises NotImplementedError without a word about why")
def refuse_assembly() -> None:
    def create_inline_asm(self: Any, *arguments: Any) -> Any:
        raise NotSimulated("inline assembly is not simulated: PTX needs a GPU")

    override(Builder, create_inline_asm=create_inline_asm)


@mend("autotune", "two configurations need a GPU's clock (RuntimeError: 0 active drivers)")
def take_the_first_configuration() -> None:
    """Each configuration runs once, as on a GPU at least; no time is taken, so the first one
    wins."""

    def without_clock(call: Any, quantiles: Any = None) -> list[float]:
        call()
        return [1.0] * len(quantiles or (0.5,))

    def do_bench(self: Any) -> Any:
        return self._do_bench or without_clock

    autotuner.Autotuner.do_bench = property(do_bench)


stated("range", "the variable of `range` is a Python integer: `//` floors, products never wrap")
stated(
    "arguments", "a float argument is a Python float, which takes the dtype of the block beside it"
)
stated("bool arguments", "a bool that is no constexpr raises ValueError", last=(3, 7))
stated("and, or, not", "Python's truth value of a block: `a and b` gives `b`")
stated("min and max of Python", "`max(x, 1)` compares truth values")
stated("assert", "always counts; in a compiled kernel only with TRITON_DEBUG=1")
stated("closures", "a constexpr of the function around the kernel is not found (NameError)")
stated("grid", "a list, or four numbers, are refused; NumPy 2.4 fails at `range(n)` in Triton 3.6")
