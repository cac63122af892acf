"""All together: a scheduled program to something that can be called.

In:  the loop graph, its schedule and memory plan, and which language to print.
Out: a `CompiledGraph`: call it with the graph's inputs, get the tuple of its outputs.
In PyTorch: `torch/_inductor/compile_fx.py`, `CompiledFxGraph` in `output_code.py`.
"""

import ctypes
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from struct import pack
from typing import Any

import torch

from course_lib import native
from course_lib.codegen.cpp import cpp_source, prelude
from course_lib.codegen.printer import KernelSource, identifier
from course_lib.codegen.triton import triton_source
from course_lib.codegen.wrapper import Wrapper
from course_lib.lowering.ir import LoopGraph
from course_lib.runtime.compiler import build_library
from course_lib.runtime.triton_runner import load_triton
from course_lib.scheduling.kernel import FusedKernel
from course_lib.written import define


@dataclass(eq=False, repr=False)
class CompiledGraph:
    """A program: `compiled(*tensors) -> tuple`. Guards see to sizes and strides of the inputs. Results require no grad."""

    run: Callable[..., tuple[Any, ...]]
    wrapper_source: str
    kernels: list[KernelSource]
    schedule: Any
    memory: Any
    cached: bool  # True if its library of C++ kernels was found on disk
    problems: list[tuple[torch.Tensor, str]] = field(default_factory=list)
    """A flag that the GPU sets if eager would have raised an error, and where in the program"""

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.run(*inputs)

    @property
    def source(self) -> str:
        """Everything that was generated: kernels, then the program that calls them."""
        return "\n".join([*(kernel.source for kernel in self.kernels), self.wrapper_source])

    def __str__(self) -> str:
        return "\n".join(
            [
                f"CompiledGraph{' (from the cache)' if self.cached else ''}",
                *map(str, self.schedule.kernels),
            ]
        )


def build(
    graph: LoopGraph, schedule: Any, plan: Any = None, codegen: str = "auto", autotune: bool = False
) -> CompiledGraph:
    """Print, compile and load every kernel of a program, and the program around them. `codegen`: "cpp", "triton", or "auto" (by
    device). `autotune`: measure tile sizes for each GPU kernel. Raises `BackendMissing` if this machine lacks what that takes."""
    if codegen not in ("auto", "cpp", "triton"):
        raise ValueError(f'codegen must be "auto", "cpp" or "triton", not {codegen!r}')
    sources: dict[FusedKernel, KernelSource] = {}
    for kernel in schedule.kernels:
        if isinstance(kernel, FusedKernel):
            name = identifier(kernel.name, [source.name for source in sources.values()])
            on_gpu = codegen == "auto" and kernel.steps[0].buffer.device.type == "cuda"
            printer = triton_source if codegen == "triton" or on_gpu else cpp_source
            # tiles are measured for one size
            fixed = None if autotune and printer is triton_source else graph.fixed
            sources[kernel] = printer(replace(kernel, fixed=fixed), graph.buffers, name)
    in_triton = [
        (
            source,
            kernel.steps[0].buffer.device,
            [graph.buffers[name] for name in source.buffers] if autotune else (),
        )
        for kernel, source in sources.items()
        if source.language == "triton" and 0 not in [loop.size for loop in kernel.rows]
    ]
    # most of what Triton does needs no lock of Python's
    with ThreadPoolExecutor(1 if autotune else None) as threads:
        launches = dict(
            threads.map(lambda kernel: (kernel[0].name, load_triton(*kernel)), in_triton)
        )
    cached = False
    # all in one file
    if in_cpp := [source for source in sources.values() if source.language == "cpp"]:
        entry = build_library("\n".join([prelude(), *(source.source for source in in_cpp)]))
        library, cached = ctypes.CDLL(str(entry.path)), entry.cached
        make = native.load("course_lib.runtime._launcher").launcher  # type: ignore[union-attr]
        address = lambda name: ctypes.cast(library[name], ctypes.c_void_p).value
        launches |= {
            s.name: make(pack("Pn", address(s.name), len(s.buffers) + s.checked + bool(s.sizes)))
            for s in in_cpp
        }
    wrapper, names = Wrapper(schedule.kernels, plan, graph, sources).print()
    run = define("call", wrapper, "program", {**names, **launches})
    if (
        len(
            gpus := {
                buffer.device for buffer in graph.buffers.values() if buffer.device.type == "cuda"
            }
        )
        == 1
    ):
        run = on_device(gpus.pop(), run)
    return CompiledGraph(
        run, wrapper, list(sources.values()), schedule, plan, cached, names["problems"]
    )


def on_device(
    device: torch.device, run: Callable[..., tuple[Any, ...]]
) -> Callable[..., tuple[Any, ...]]:
    """Kernels start on the GPU whose turn it is: make it that of the tensors."""

    def guarded(*inputs: Any) -> tuple[Any, ...]:
        if device.index in (None, torch._C._cuda_getDevice()):
            return run(*inputs)
        with torch.cuda.device(device):
            return run(*inputs)

    return guarded
