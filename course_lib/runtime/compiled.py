"""All together: a scheduled program to something that can be called.

In:  the loop graph, its schedule and memory plan, and which language to print.
Out: a `CompiledGraph`: call it with the graph's inputs, get the tuple of its outputs.

In PyTorch: `torch/_inductor/compile_fx.py`, `CompiledFxGraph` in `output_code.py`.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from course_lib import native
from course_lib.codegen.cpp import cpp_source, prelude
from course_lib.codegen.printer import KernelSource, identifier
from course_lib.codegen.triton import triton_source
from course_lib.codegen.wrapper import wrapper_source
from course_lib.lowering.ir import Buffer, LoopGraph
from course_lib.runtime.compiler import build_library
from course_lib.runtime.triton_runner import load_triton
from course_lib.scheduling.kernel import FusedKernel
from course_lib.written import define


@dataclass(frozen=True)
class BuiltKernel:
    """One kernel, ready to run."""

    name: str
    source: str
    language: str
    build_seconds: float
    """Of the whole file it was built in (all kernels of a graph share one)."""
    cached: bool
    """True if it was found on disk."""
    kernel: FusedKernel = field(repr=False)
    printed: KernelSource = field(repr=False)
    """With the step that each line comes from."""

    def __str__(self) -> str:
        how = "from the cache" if self.cached else f"built in {self.build_seconds:.2f} s"
        return f"{self.name} ({self.language}, {how}): {self.kernel}"


@dataclass(eq=False, repr=False)
class CompiledGraph:
    """A program: `compiled(*tensors) -> tuple`. It expects inputs with the sizes and strides it was compiled for (that is
    what guards are for) and returns tensors that do not require grad."""

    run: Callable[..., tuple[Any, ...]]
    wrapper_source: str
    kernels: list[BuiltKernel]
    schedule: Any
    memory: Any

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.run(*inputs)

    @property
    def source(self) -> str:
        """Everything that was generated: kernels, then the program that calls them."""
        return "\n".join([*(kernel.source for kernel in self.kernels), self.wrapper_source])

    def __str__(self) -> str:
        return "\n".join(["CompiledGraph", *(f"  {kernel}" for kernel in self.kernels)])


def build(graph: LoopGraph, schedule: Any, plan: Any = None, codegen: str = "auto") -> CompiledGraph:
    """Print, compile and load every kernel of a program, and the program around them.

    `codegen`: "cpp", "triton", or "auto" (C++ for kernels on the CPU, Triton on a GPU). Raises `BackendMissing` if this
    machine lacks what that takes."""
    if codegen not in ("auto", "cpp", "triton"):
        raise ValueError(f'codegen must be "auto", "cpp" or "triton", not {codegen!r}')
    fused = [kernel for kernel in schedule.kernels if isinstance(kernel, FusedKernel)]
    names: dict[FusedKernel, str] = {}
    for kernel in fused:
        names[kernel] = identifier(kernel.name, names.values())
    on_gpu = lambda kernel: kernel.steps[0].buffer.device.type == "cuda"
    in_triton = [k for k in fused if codegen == "triton" or (codegen == "auto" and on_gpu(k))]
    built = build_cpp({k: names[k] for k in fused if k not in in_triton}, graph.buffers)
    built |= build_triton({k: names[k] for k in in_triton}, graph.buffers)
    wrapper = wrapper_source(schedule, plan, graph, {k: b.printed for k, (b, _) in built.items()})
    functions = {kernel.name: function for kernel, function in built.values()}
    run = define("call", wrapper.source, "program", {**wrapper.names, **functions})
    return CompiledGraph(run, wrapper.source, [built[k][0] for k in fused], schedule, plan)


Built = dict[FusedKernel, tuple[BuiltKernel, Callable[..., None]]]


def build_cpp(names: Mapping[FusedKernel, str], buffers: Mapping[str, Buffer]) -> Built:
    """All C++ kernels of a program, as one file."""
    if not names:
        return {}
    sources = {kernel: cpp_source(kernel, buffers, name) for kernel, name in names.items()}
    began = time.perf_counter()
    entry = build_library("\n".join([prelude(), *(printed.source for printed in sources.values())]))
    library = ctypes.CDLL(str(entry.path))
    seconds = time.perf_counter() - began
    result: Built = {}
    for kernel, printed in sources.items():
        launch = launcher(getattr(library, printed.name), len(printed.buffers) + printed.checked)
        built = BuiltKernel(printed.name, printed.source, "cpp", seconds, entry.cached, kernel, printed)
        result[kernel] = built, launch
    return result


def build_triton(names: Mapping[FusedKernel, str], buffers: Mapping[str, Buffer]) -> Built:
    """Triton kernels; each is compiled by Triton when it is first called."""
    result: Built = {}
    for kernel, name in names.items():
        printed, began = triton_source(kernel, buffers, name), time.perf_counter()
        launch = load_triton(printed, kernel.steps[0].buffer.device)
        seconds = time.perf_counter() - began
        result[kernel] = BuiltKernel(name, printed.source, "triton", seconds, False, kernel, printed), launch
    return result


def launcher(function: Any, n_buffers: int) -> Callable[..., None]:
    """A callable for a C function: tensors first, then sizes. Through ctypes where the C module could not be built."""
    if module := native.load("course_lib.runtime._launcher"):
        return module.launcher(ctypes.cast(function, ctypes.c_void_p).value, n_buffers)

    def launch(*arguments: Any) -> None:
        pointers = [tensor.data_ptr() for tensor in arguments[:n_buffers]]
        sizes = arguments[n_buffers:]
        function((ctypes.c_void_p * len(pointers))(*pointers), (ctypes.c_int64 * len(sizes))(*sizes))

    return launch
