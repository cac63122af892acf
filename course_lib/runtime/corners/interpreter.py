"""What Triton's interpreter lacks: `libdevice`, and numbers as a GPU has them.

In:  the module `triton`, just imported.
Out: the same, whose interpreter computes what a kernel on a GPU would.
In PyTorch: nothing, for there kernels run on a GPU only.
"""

import functools
import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.runtime.triton_runner import AFTER_IMPORT, IN_INTERPRETER


class NumpyLibdevice:
    """`libdevice` for the interpreter, which computes with numpy and has no GPU library to call."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(np, name, None)
        if function is None:
            # There is no np.erfc.
            function = np.vectorize(getattr(math, name))
        return functools.partial(by_numpy, function)


def by_numpy(function: Callable[..., Any], *args: Any) -> Any:
    """A function of numpy's on the interpreter's tensors: the result has the dtype of the first."""
    tl = importlib.import_module("triton.language")
    like = next(arg for arg in args if isinstance(arg, tl.tensor))
    arrays = [arg.handle.data if isinstance(arg, tl.tensor) else arg for arg in args]
    data = np.asarray(function(*arrays), like.handle.data.dtype)

    # A scalar's data is an array, too.
    shape = like.type
    if data.shape != like.handle.data.shape:
        shape = tl.block_type(like.type.scalar, list(data.shape))
    return tl.tensor(type(like.handle)(data, like.handle.dtype), shape)


def mend_interpreter(triton: Any) -> None:
    """Correct Triton 3.6 and 3.7, where they differ from a GPU."""
    from triton.runtime import interpreter

    mend_bfloat16(triton.language, interpreter)
    mend_splat(interpreter)
    mend_ranges(interpreter)
    mend_maximum(interpreter.InterpreterBuilder)


def mend_bfloat16(tl: Any, interpreter: Any) -> None:
    """Convert to and from bfloat16 as torch does. The interpreter keeps the bits in a uint16. Triton 3.7's own conversion does
    not round, is wrong for others than float32, and has no constants."""
    builder = interpreter.InterpreterBuilder
    convert, dot = builder.cast_impl, builder.create_dot

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        old, new = src.dtype.scalar, dst_type.scalar
        if old == new or tl.bfloat16 not in (old, new):
            return convert(self, src, dst_type)

        data = np.ascontiguousarray(src.data)
        if old == tl.bfloat16:
            values = torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)
        else:
            values = torch.from_numpy(data)

        if new == tl.bfloat16:
            result = values.bfloat16().view(torch.int16).numpy().view(np.uint16)
        else:
            result = values.double().numpy().astype(interpreter._get_np_dtype(dst_type))
        return interpreter.TensorHandle(result.reshape(np.shape(src.data)), new)

    def as_number(self: Any, x: Any) -> Any:
        return cast_impl(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x

    def create_dot(self: Any, a: Any, b: Any, *more: Any) -> Any:
        return dot(self, as_number(self, a), as_number(self, b), *more)

    def get_bf16(self: Any, value: float) -> Any:
        return cast_impl(self, self.get_fp32(value), tl.bfloat16)

    builder.cast_impl = cast_impl
    builder.create_dot = create_dot
    builder.get_bf16 = get_bf16


def mend_splat(interpreter: Any) -> None:
    """A comparison of two scalars is an array of one; Triton takes it for a number."""

    def create_splat(_: Any, to: Any, arg: Any) -> Any:
        data = np.full(to.shape, np.ravel(arg.data)[0])
        return interpreter.TensorHandle(data, arg.dtype.scalar)

    interpreter.InterpreterBuilder.create_splat = create_splat


def mend_ranges(interpreter: Any) -> None:
    """`range(0, n)`: Triton 3.6 wants a number, and has an array of one."""
    patch = interpreter._patch_lang_tensor

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.ravel(self.handle.data)[0]))

    interpreter._patch_lang_tensor = patch_lang_tensor


def mend_maximum(builder: Any) -> None:
    """Of 0.0 and -0.0 the first, as on the CPU (`ops.maximum`): numpy's choice depends on the number of elements."""

    def choosing(better: Callable[..., Any]) -> Callable[..., Any]:
        def choose(a: Any, b: Any) -> Any:
            return np.where(better(b, a) | (b != b), b, a)

        return lambda self, a, b: self.binary_op(a, b, choose)

    builder.create_maximumf = choosing(np.greater)
    builder.create_minimumf = choosing(np.less)


AFTER_IMPORT.append(mend_interpreter)
IN_INTERPRETER["libdevice"] = NumpyLibdevice()
