"""Triton source to a callable: on a GPU, or on CPU tensors in Triton's interpreter.

In:  a `TritonSource`.
Out: a callable that takes tensors and starts the right number of programs.

Triton decides when it is first imported whether `@triton.jit` means "compile" or "interpret": `course_lib.runtime` chooses.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py`, `CachingAutotuner`; `runtime/async_compile.py`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.codegen.triton import TritonSource
from course_lib.runtime import interpreter
from course_lib.runtime.errors import BackendMissing
from course_lib.written import define


@functools.cache
def import_triton() -> Any:
    """The module, in the mode that was set by `course_lib.runtime`. Raises `BackendMissing` with one sentence."""
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        raise BackendMissing(
            f"triton cannot be imported ({error}): get it with `pip install triton` (Linux only; `course doctor` says which "
            'version goes with your torch); until then use options={"codegen": "cpp"}'
        ) from None
    interpreter.round_bfloat16(triton)
    return triton


def load_triton(source: TritonSource, device: torch.device) -> Callable[..., None]:
    """The kernel as a callable on tensors of this device."""
    triton = import_triton()
    names: dict[str, Any] = {"__name__": f"course_lib_kernel_{source.name}"}
    kernel: Any = define(source.name, source.source, f"kernel {source.name}", names)
    interpreted = type(kernel).__name__ == "InterpretedFunction"
    if device.type == "cpu" and not interpreted:
        raise BackendMissing(
            "Triton was imported before course_lib in the mode that compiles for a GPU, so it cannot run on CPU tensors: set "
            "TRITON_INTERPRET=1 in the environment before Python starts"
        )
    if device.type == "cuda" and interpreted:
        raise BackendMissing(
            "Triton was imported with TRITON_INTERPRET=1, so it cannot use the GPU: unset it before Python starts"
        )
    meta = source.tiling.meta(interpreted)
    start = kernel[(source.tiling.programs(meta),)]
    if not interpreted:
        return functools.partial(start, **meta, num_warps=source.tiling.warps(meta))
    if "libdevice" in names:
        names["libdevice"] = interpreter.NumpyLibdevice(triton.language)

    def interpret(*tensors: torch.Tensor) -> None:
        with np.errstate(all="ignore"):  # infinities and NaN are results here, not warnings
            start(*tensors, **meta)

    return interpret
