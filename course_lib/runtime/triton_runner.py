"""Triton source to a callable: on a GPU, or on CPU tensors in Triton's interpreter.

In:  a `TritonSource`.
Out: a callable that takes tensors and starts the right number of programs.

Triton decides when it is first imported whether `@triton.jit` means "compile" or "interpret". So this
package, not the user, chooses: `TRITON_INTERPRET=1` on a machine without a GPU.

In PyTorch: `torch/_inductor/runtime/triton_heuristics.py`, `CachingAutotuner`; `runtime/async_compile.py`.
"""

from __future__ import annotations

import functools
import importlib
import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib import config
from course_lib.codegen.triton import TritonSource
from course_lib.runtime import cache, interpreter
from course_lib.runtime.errors import BackendMissing

TESTED = {"2.11": "3.6.0", "2.13": "3.7.1"}
"""torch → the triton that goes with it."""


@functools.cache
def import_triton() -> Any:
    """The module, in the mode that was set by `course_lib.runtime`. Raises `BackendMissing` with one sentence."""
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        wanted = TESTED.get(".".join(torch.__version__.split(".")[:2]), "that goes with your torch")
        raise BackendMissing(
            f"triton cannot be imported ({error}): get it with `pip install triton=={wanted}` (Linux only); until then use "
            'options={"codegen": "cpp"}'
        ) from None
    interpreter.round_bfloat16(triton)
    return triton


def load_triton(source: TritonSource, device: torch.device) -> Callable[..., None]:
    """The kernel as a callable on tensors of this device."""
    triton = import_triton()
    interpreting = type(triton.jit(run_source)).__name__ == "InterpretedFunction"
    if device.type == "cpu" and not interpreting:
        raise BackendMissing(
            "Triton was imported before course_lib in the mode that compiles for a GPU, so it cannot run on CPU tensors: set "
            "TRITON_INTERPRET=1 in the environment before Python starts"
        )
    if device.type == "cuda" and interpreting:
        raise BackendMissing(
            "Triton was imported with TRITON_INTERPRET=1, so it cannot use the GPU: unset it before Python starts"
        )
    names = run_source(source)
    if interpreting and "libdevice" in names:
        names["libdevice"] = interpreter.NumpyLibdevice(triton.language)
    meta = source.tiling.meta(interpreting)
    start = names[source.name][(source.tiling.programs(meta),)]
    if interpreting:
        return functools.partial(interpret, start, meta)
    return functools.partial(start, **meta, num_warps=source.tiling.warps(meta))


def interpret(start: Callable[..., None], meta: dict[str, int], *tensors: torch.Tensor) -> None:
    """Run every program of a kernel, one after the other."""
    with np.errstate(all="ignore"):  # infinities and NaN are results here, not warnings
        start(*tensors, **meta)


def run_source(source: TritonSource) -> dict[str, Any]:
    """Execute the source as a file in the cache folder (Triton reads the text of its functions back from there)."""
    path = config.cache_dir() / f"{source.name}-{cache.key_of(source.source)[:16]}.py"
    linecache.cache[str(path)] = (len(source.source), None, source.source.splitlines(keepends=True), str(path))
    names: dict[str, Any] = {"__name__": f"course_lib_kernel_{source.name}", "__file__": str(path)}
    exec(compile(source.source, str(path), "exec"), names)
    return names
