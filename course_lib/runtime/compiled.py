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
from course_lib.lowering.ir import Buffer, LoopGraph
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
        kernel_sources = [kernel.source for kernel in self.kernels]
        return "\n".join([*kernel_sources, self.wrapper_source])

    def __str__(self) -> str:
        title = "CompiledGraph"
        if self.cached:
            title += " (from the cache)"
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
    devices = {buffer.device for buffer in graph.buffers.values()}
    gpus = {device for device in devices if device.type == "cuda"}
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
            if in_triton:
                sources[kernel] = streamed_triton_source(kernel, buffers, name)
            else:
                sources[kernel] = streamed_source(kernel, buffers, name)
            continue

        # Tiles are measured for the sizes of this call, so all of them are numbers in the source.
        # (None: each size is fixed.)
        fixed = graph.fixed
        if autotune and in_triton:
            fixed = None
        kernel_to_print = replace(kernel, fixed=fixed)

        if in_triton:
            sources[kernel] = triton_source(kernel_to_print, buffers, name)
        else:
            sources[kernel] = cpp_source(kernel_to_print, buffers, name)
    return sources


def is_in_triton(kernel: OurKernel, codegen: str) -> bool:
    """Is a kernel printed in Triton?"""
    if codegen != "auto":
        return codegen == "triton"
    return device_of(kernel).type == "cuda"


def device_of(kernel: OurKernel) -> torch.device:
    """Where a kernel runs."""
    if isinstance(kernel, Streamed):
        return kernel.buffers[0].device
    return kernel.device


def why_no_stream(node: Streamed, codegen: str) -> str:
    """Why the printer of this program has no form for a stream; empty if it has one."""
    if is_in_triton(node, codegen):
        return why_not_in_triton(node)
    return ""


def load_triton_kernels(
    graph: LoopGraph, sources: Mapping[OurKernel, KernelSource], autotune: bool
) -> dict[str, Callable[..., Any]]:
    """Each Triton kernel as a callable, under its name.

    With `autotune` the fastest tile is found on tensors like its buffers."""

    def load(kernel: OurKernel) -> tuple[str, Callable[..., Any]]:
        source = sources[kernel]
        if isinstance(kernel, Streamed):
            assert isinstance(source, StreamSource)
            return source.name, load_stream(source, device_of(kernel))

        assert isinstance(source, TritonSource)
        like: list[Buffer] = []
        if autotune:
            like = [graph.buffers[name] for name in source.buffers]
        return source.name, load_triton(source, device_of(kernel), like)

    to_load = []
    for kernel, source in sources.items():
        if source.language == "triton" and is_called(kernel):
            to_load.append(kernel)

    # Most of what Triton does needs no lock of Python's, so threads help. What is measured runs
    # alone. (None: as many threads as Python thinks right.)
    threads_at_once = 1 if autotune else None
    with ThreadPoolExecutor(threads_at_once) as threads:
        return dict(threads.map(load, to_load))


def is_called(kernel: OurKernel) -> bool:
    """False for a kernel without elements, which the program does not start.

    (A stream has elements: it is refused where there are none.)"""
    if isinstance(kernel, Streamed):
        return True
    return not any(same(loop.size, 0) for loop in kernel.rows)


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
    headers = [prelude()]
    for kernel, source in sources.items():
        if isinstance(kernel, Streamed) and source.language == "cpp":
            headers.append(tiles())
            break

    text = "\n".join([*headers, *(source.source for source in in_cpp)])
    entry = build_library(text)
    library = ctypes.CDLL(str(entry.path))
    # It is there: without the C modules there is no frame hook either, so nothing would be compiled
    launcher: Any = native.load("course_lib.runtime._launcher")

    launches = {}
    for source in in_cpp:
        address = ctypes.cast(library[source.name], ctypes.c_void_p).value
        # Behind the buffers: a flag for indices out of range, and the sizes of this call
        needs_sizes = bool(source.sizes or source.symbols)
        passed = len(source.buffers) + source.checked + needs_sizes
        # The library must stay loaded as long as a kernel may be called: `ctypes` never unloads it.
        launches[source.name] = launcher.launcher(pack("Pn", address, passed))
    return Library(launches, entry.cached)


def on_device(
    device: torch.device, run: Callable[..., tuple[Any, ...]]
) -> Callable[..., tuple[Any, ...]]:
    """`run`, with this GPU as the current one: there Triton's kernels start."""

    def guarded(*inputs: Any) -> tuple[Any, ...]:
        if device.index in (None, torch._C._cuda_getDevice()):
            return run(*inputs)
        with torch.cuda.device(device):
            return run(*inputs)

    return guarded
