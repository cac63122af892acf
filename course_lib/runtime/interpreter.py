"""What Triton's interpreter lacks, so that the same kernel text runs on CPU tensors as on a GPU.

`NumpyLibdevice` stands for `libdevice`, NVIDIA's library of mathematical functions, which needs a GPU.
`round_bfloat16` corrects conversions to bfloat16: Triton 3.7's interpreter cuts digits off instead of rounding, loses denormal
numbers, and converts from float64 or integers wrongly.
In PyTorch: nothing; TorchInductor does not use the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch


class NumpyLibdevice:
    """`libdevice` for the interpreter, which computes with numpy and has no GPU library to call."""

    NUMPY: ClassVar = {
        "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
        "pow": "float_power", "atan2": "arctan2",
    }  # fmt: skip

    def __init__(self, tl: Any) -> None:
        self.tl = tl

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args: self.compute(name, args)

    def compute(self, name: str, args: tuple[Any, ...]) -> Any:
        like = next(arg for arg in args if isinstance(arg, self.tl.tensor))
        arrays = [arg.handle.data if isinstance(arg, self.tl.tensor) else arg for arg in args]
        with np.errstate(all="ignore"):
            if name == "erfc":
                data = torch.special.erfc(torch.from_numpy(np.atleast_1d(arrays[0]))).numpy().reshape(arrays[0].shape)
            else:
                data = getattr(np, self.NUMPY.get(name, name))(*arrays)
        handle = type(like.handle)(np.asarray(data, dtype=like.handle.data.dtype), like.handle.dtype)
        if data.shape == arrays[0].shape:
            return self.tl.tensor(handle, like.type)
        scalar = like.type.scalar
        return self.tl.tensor(handle, self.tl.block_type(scalar, list(data.shape)) if data.shape else scalar)


def round_bfloat16(triton: Any) -> None:
    """Let the interpreter convert to and from bfloat16 as torch does. It keeps such numbers as the bits of a uint16."""
    from triton.runtime import interpreter

    tl, builder = triton.language, interpreter.InterpreterBuilder
    convert = builder.cast_impl
    if getattr(convert, "rounds_bfloat16", False):
        return

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        old, new = src.dtype.scalar, dst_type.scalar
        if old == new or tl.bfloat16 not in (old, new):
            return convert(self, src, dst_type)
        data = np.ascontiguousarray(src.data)
        values = torch.from_numpy(data.view(np.int16)).view(torch.bfloat16) if old == tl.bfloat16 else torch.from_numpy(data)
        if new == tl.bfloat16:
            result = values.bfloat16().view(torch.int16).numpy().view(np.uint16)
        else:
            result = values.double().numpy().astype(interpreter._get_np_dtype(dst_type))
        return interpreter.TensorHandle(result.reshape(np.shape(src.data)), new)

    cast_impl.rounds_bfloat16 = True  # type: ignore[attr-defined]
    builder.cast_impl = cast_impl
