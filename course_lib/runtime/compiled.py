"""All together: a scheduled program to something that can be called.

In:  the loop graph, its schedule and memory plan, and which language to print.
Out: a `CompiledGraph`: call it with the graph's inputs, get the tuple of its outputs.
In PyTorch: `torch/_inductor/compile_fx.py`, `CompiledFxGraph` in `output_code.py`.
"""

import ctypes
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from struct import pack
from typing import Any

import torch

from course_lib import native
from course_lib.codegen.cpp import cpp_source, prelude
from course_lib.codegen.printer import KernelSource, identifier
from course_lib.codegen.streamed import streamed_source, tiles
from course_lib.codegen.streamed_ops import why_not_in_triton
from course_lib.codegen.streamed_triton import StreamSource, streamed_triton_source
from course_lib.codegen.triton import TritonSource, triton_source
from course_lib.codegen.wrapper import Wrapper
from course_lib.lowering.ir import LoopGraph
from course_lib.runtime.compiler import build_library
from course_lib.runtime.triton_runner import load_stream, load_triton
from course_lib.scheduling.kernel import FusedKernel
from course_lib.scheduling.stream_nodes import Streamed
from course_lib.sizes import same
from course_lib.written import define

OurKernel = FusedKernel | Streamed
"""What is printed as a kernel."""


@dataclass(eq=False, repr=False)
class CompiledGraph:
    """A program: `compiled(*tensors) -> tuple`.

    Guards see to sizes and strides of the inputs. Results require no grad."""

    run: Callable[..., tuple[Any, ...]]
    wrapper_source: str
    kernels: list[KernelSource]
    schedule: Any
    memory: Any
    # True if its library of C++ kernels was found on disk
    cached: bool
    # Flags that a GPU sets if eager would have raised an error, each with where in the program
    problems: list[tuple[torch.Tensor, str]] = field(default_factory=list)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        return self.run(*inputs)

    @property
    def source(self) -> str:
        """Everything that was generated: kernels, then the program that calls them."""
        return "\n".join([*(kernel.source for kernel in self.kernels), self.wrapper_source])

    def __str__(self) -> str:
        title = "CompiledGraph (from the cache)" if self.cached else "CompiledGraph"
        return "\n".join([title, *map(str, self.schedule.kernels)])


def build(
    graph: LoopGraph, schedule: Any, plan: Any = None, codegen: str = "auto", autotune: bool = False
) -> CompiledGraph:
    """Print, compile and load every kernel of a program, and the program around them.

    `codegen`: "cpp", "triton", or "auto" (by device). `autotune`: measure tile sizes for each GPU
    kernel. Raises `BackendMissing` if this machine lacks what that takes."""
    if codegen not in ("auto", "cpp", "triton"):
        raise ValueError(f'codegen must be "auto", "cpp" or "triton", not {codegen!r}')

    sources = print_kernels(graph, schedule, codegen, autotune)
    launches = load_triton_kernels(graph, sources, autotune)
    library = load_cpp_kernels(sources)
    launches |= library.launches

    program = Wrapper(schedule.kernels, plan, graph, sources).print()
    run = define("call", program.source, "program", {**program.names, **launches})

    # Triton's kernels start on the current GPU.
    gpus = {buffer.device for buffer in graph.buffers.values() if buffer.device.type == "cuda"}
    if len(gpus) == 1:
        run = on_device(gpus.pop(), run)

    return CompiledGraph(
        run=run,
        wrapper_source=program.source,
        kernels=list(sources.values()),
        schedule=schedule,
        memory=plan,
        cached=library.cached,
        problems=program.names["problems"],
    )


def print_kernels(
    graph: LoopGraph, schedule: Any, codegen: str, autotune: bool
) -> dict[OurKernel, KernelSource]:
    """The source of each kernel, under a name of its own."""
    sources: dict[OurKernel, KernelSource] = {}
    used_names: set[str] = set()
    buffers = graph.buffers
    for kernel in schedule.kernels:
        if not isinstance(kernel, (FusedKernel, Streamed)):
            continue

        name = identifier(kernel.name, used_names)
        used_names.add(name)
        in_triton = is_in_triton(kernel, codegen)
        if isinstance(kernel, Streamed):
            print_stream = streamed_triton_source if in_triton else streamed_source
            sources[kernel] = print_stream(kernel, buffers, name)
            continue

        # Tiles are measured for one size.
        sizes_are_fixed = autotune and in_triton
        kernel_to_print = replace(kernel, fixed=None if sizes_are_fixed else graph.fixed)

        printer = triton_source if in_triton else cpp_source
        sources[kernel] = printer(kernel_to_print, buffers, name)
    return sources


def is_in_triton(kernel: OurKernel, codegen: str) -> bool:
    """Is a kernel printed in Triton?"""
    device = kernel.buffers[0].device if isinstance(kernel, Streamed) else kernel.device
    return codegen == "triton" or (codegen == "auto" and device.type == "cuda")


def why_no_stream(node: Streamed, codegen: str) -> str:
    """Why the printer of this program has no form for a stream; empty if it has one."""
    return why_not_in_triton(node) if is_in_triton(node, codegen) else ""


def load_triton_kernels(
    graph: LoopGraph, sources: Mapping[OurKernel, KernelSource], autotune: bool
) -> dict[str, Callable[..., Any]]:
    """Each Triton kernel as a callable, under its name.

    With `autotune` the fastest tile is found on tensors like its buffers."""

    def load(kernel: OurKernel) -> tuple[str, Callable[..., Any]]:
        source = sources[kernel]
        if isinstance(kernel, Streamed):
            assert isinstance(source, StreamSource)
            return source.name, load_stream(source, kernel.buffers[0].device)
        assert isinstance(source, TritonSource)
        like = [graph.buffers[name] for name in source.buffers] if autotune else []
        return source.name, load_triton(source, kernel.device, like)

    to_load: list[OurKernel] = []
    for kernel, source in sources.items():
        if source.language != "triton":
            continue
        # A stream has elements: it is refused where there are none.
        is_called = isinstance(kernel, Streamed)
        if isinstance(kernel, FusedKernel):
            is_called = not any(same(loop.size, 0) for loop in kernel.rows)
        if is_called:
            to_load.append(kernel)

    # Most of what Triton does needs no lock of Python's. What is measured runs alone.
    with ThreadPoolExecutor(1 if autotune else None) as threads:
        return dict(threads.map(load, to_load))


@dataclass(frozen=True)
class Library:
    """The C++ kernels of a program: each as a callable, and whether they were found on disk."""

    launches: dict[str, Callable[..., Any]]
    cached: bool


def load_cpp_kernels(sources: Mapping[OurKernel, KernelSource]) -> Library:
    """All C++ kernels of a program, built as one library."""
    in_cpp = [source for source in sources.values() if source.language == "cpp"]
    if not in_cpp:
        return Library({}, cached=False)

    # Products of tiles, if a kernel needs them
    printed = sources.items()
    has_streams = any(isinstance(k, Streamed) and source.language == "cpp" for k, source in printed)
    headers = [prelude(), tiles()] if has_streams else [prelude()]
    entry = build_library("\n".join([*headers, *(source.source for source in in_cpp)]))
    library = ctypes.CDLL(str(entry.path))
    launcher: Any = native.load("course_lib.runtime._launcher")

    launches = {}
    for source in in_cpp:
        address = ctypes.cast(library[source.name], ctypes.c_void_p).value
        # Behind the buffers: a flag for indices out of range, and the sizes of this call
        passed = len(source.buffers) + source.checked + bool(source.sizes or source.symbols)
        launches[source.name] = launcher.launcher(pack("Pn", address, passed))
    return Library(launches, entry.cached)


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
