"""Triton source to a callable: on a GPU, or on CPU tensors in Triton's interpreter.

In:  a `TritonSource`.
Out: a callable that takes tensors and starts the right number of programs.

Which of the two is decided when Triton is first imported. What its interpreter lacks is here: `libdevice`, rounding to bfloat16.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py`, `CachingAutotuner`; `runtime/async_compile.py`.
"""

import ctypes
import functools
import importlib
import math
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

import numpy as np
import torch

from course_lib import config, native
from course_lib.codegen.triton import TritonSource
from course_lib.codegen.triton_ops import POINTERS
from course_lib.lowering.ir import Buffer
from course_lib.runtime.autotune import tuned
from course_lib.runtime.compiler import BackendMissing, CompileFailed
from course_lib.written import define


@functools.cache
def import_triton() -> Any:
    """The module, in the mode that was set by `course_lib.runtime`. Raises `BackendMissing` with one sentence."""
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        raise BackendMissing(
            f"triton cannot be imported ({error}): get it with `pip install triton` (Linux only)"
        ) from None
    mend_interpreter(triton)
    return triton


def load_triton(
    source: TritonSource, device: torch.device, like: Sequence[Buffer] = ()
) -> Callable[..., None]:
    """The kernel as a callable on tensors of this device; its tile chosen by measuring on what is `like` these, if given."""
    import_triton()
    names: dict[str, Any] = {"__name__": f"course_lib_kernel_{source.name}"}
    kernel: Any = define(source.name, source.source, f"kernel {source.name}", names)
    interpreted = type(kernel).__name__ == "InterpretedFunction"
    if interpreted != (device.type == "cpu"):
        how = "unset TRITON_INTERPRET" if interpreted else "set TRITON_INTERPRET=1"
        raise BackendMissing(
            f"Triton was imported in a mode that cannot run on {device.type}: {how} before Python starts"
        )
    meta = source.tiling.meta(interpreted)
    if not interpreted:
        on_gpu = functools.partial(compiled, kernel, source, device)
        return on_gpu(*(tuned(source, like, on_gpu) if like else (meta, source.tiling.warps(meta))))
    start = kernel[(source.tiling.programs(meta),)]
    if "libdevice" in names:
        names["libdevice"] = NumpyLibdevice()
    # infinities and NaN are results here, not warnings
    return np.errstate(all="ignore")(functools.partial(start, **meta))


def compiled(
    kernel: Any, source: TritonSource, device: torch.device, meta: dict[str, int], warps: int
) -> Callable[..., None]:
    """The kernel compiled now, and started by the driver: 3 µs. Triton's own start (`otherwise`) takes 10 to look at them."""
    programs = source.tiling.programs(meta)
    # as in eager:
    how: dict[str, Any] = {
        **meta,
        "num_warps": warps,
        "enable_fp_fusion": False,
        "enable_reflect_ftz": False,
    }
    # x * y + z is rounded twice, a denormal number is not 0
    otherwise = functools.partial(kernel[(programs,)], **how)
    driver = importlib.import_module("triton.runtime").driver.active
    dtypes = {text: dtype for dtype, text in POINTERS.items()}
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(index):  # a dtype stands for a tensor whose address is a multiple of 16
        try:
            made = kernel.warmup(*(dtypes[kind] for kind in source.types), grid=(1,), **how)
        except importlib.import_module("triton.compiler.errors").CompilationError as error:
            kept = config.cache_dir() / f"failed-{source.name}.py"
            kept.write_text(source.source)
            raise CompileFailed(
                "Triton", ["triton.compile", source.name], str(error).splitlines()[-8:], kept
            ) from None
        function = driver.utils.load_binary(made.name, made.kernel, made.metadata.shared, index)[1]
    launch = ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value
    size = programs, 32 * made.metadata.num_warps, made.metadata.shared
    launcher: Any = native.load("course_lib.runtime._launcher")
    return launcher.gpu_launcher(
        pack("PPIII0P", launch, function, *size),
        torch._C._cuda_getCurrentRawStream,
        index,
        otherwise,
    )


class NumpyLibdevice:
    """`libdevice` for the interpreter, which computes with numpy and has no GPU library to call."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # there is no np.erfc
        return functools.partial(
            by_numpy, getattr(np, name, None) or np.vectorize(getattr(math, name))
        )


def by_numpy(function: Callable[..., Any], *args: Any) -> Any:
    tl = importlib.import_module("triton.language")
    like = next(arg for arg in args if isinstance(arg, tl.tensor))
    data = np.asarray(
        function(*(arg.handle.data if isinstance(arg, tl.tensor) else arg for arg in args)),
        like.handle.data.dtype,
    )
    same = data.shape == like.handle.data.shape  # a scalar's data is an array too
    shaped = like.type if same else tl.block_type(like.type.scalar, list(data.shape))
    return tl.tensor(type(like.handle)(data, like.handle.dtype), shaped)


def mend_interpreter(triton: Any) -> None:
    """Let the interpreter convert to and from bfloat16 (it keeps the bits in a uint16) as torch does. Triton 3.7's own does not
    round and is wrong for others than float32, has no such constants, and takes a comparison of two scalars for a number."""
    from triton.runtime import interpreter

    tl, builder = triton.language, interpreter.InterpreterBuilder
    convert = builder.cast_impl

    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        old, new = src.dtype.scalar, dst_type.scalar
        if old == new or tl.bfloat16 not in (old, new):
            return convert(self, src, dst_type)
        data = np.ascontiguousarray(src.data)
        values = (
            torch.from_numpy(data.view(np.int16)).view(torch.bfloat16)
            if old == tl.bfloat16
            else torch.from_numpy(data)
        )
        if new == tl.bfloat16:
            result = values.bfloat16().view(torch.int16).numpy().view(np.uint16)
        else:
            result = values.double().numpy().astype(interpreter._get_np_dtype(dst_type))
        return interpreter.TensorHandle(result.reshape(np.shape(src.data)), new)

    dot = builder.create_dot
    number = lambda self, x: cast_impl(self, x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x
    builder.create_dot = lambda self, a, b, *more: dot(
        self, number(self, a), number(self, b), *more
    )
    patch = interpreter._patch_lang_tensor

    # `range(0, n)`: Triton 3.6 wants a number, and has an array of one
    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(np.ravel(self.handle.data)[0]))

    # Of 0.0 and -0.0 the first, as on the CPU (`ops.maximum`): NumPy's choice depends on the number of elements
    def choosing(better: Callable[..., Any]) -> Callable[..., Any]:
        choose = lambda a, b: np.where(better(b, a) | (b != b), b, a)
        return lambda self, a, b: self.binary_op(a, b, choose)

    builder.create_maximumf, builder.create_minimumf = choosing(np.greater), choosing(np.less)
    interpreter._patch_lang_tensor = patch_lang_tensor
    builder.cast_impl = cast_impl
    builder.get_bf16 = lambda self, value: cast_impl(self, self.get_fp32(value), tl.bfloat16)
    builder.create_splat = lambda _, to, arg: interpreter.TensorHandle(
        np.full(to.shape, np.ravel(arg.data)[0]), arg.dtype.scalar
    )
