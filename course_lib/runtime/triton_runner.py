"""Triton source to a callable: on a GPU, or on CPU tensors in Triton's interpreter.

In:  a `TritonSource`.
Out: a callable that takes tensors and starts the right number of programs.

Which of the two is decided when Triton is first imported. What its interpreter lacks is in
`runtime/corners/`.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py`, `CachingAutotuner`;
`runtime/async_compile.py`.
"""

import ctypes
import functools
import importlib
from collections.abc import Callable, Sequence
from struct import pack
from typing import Any

import sympy
import torch

from course_lib import config, native, simulator
from course_lib.codegen.streamed_triton import StreamSource
from course_lib.codegen.tilings import Choice
from course_lib.codegen.triton import TritonSource
from course_lib.codegen.triton_ops import POINTERS
from course_lib.lowering.ir import Buffer
from course_lib.runtime.autotune import tuned
from course_lib.runtime.compiler import BackendMissing, CompileFailed
from course_lib.sizes import is_symbolic, text_of
from course_lib.written import define

AFTER_IMPORT: list[Callable[[Any], None]] = []
"""What is done with the module `triton` when it has been imported."""


@functools.cache
def import_triton() -> Any:
    """The module, in the mode that was set by `course_lib.runtime`.

    Raises `BackendMissing` with one sentence."""
    try:
        triton = importlib.import_module("triton")
    except ImportError as error:
        raise BackendMissing(
            f"triton cannot be imported ({error}): get it with `pip install triton` (Linux only)"
        ) from None

    for prepare in AFTER_IMPORT:
        prepare(triton)
    return triton


def load_triton(
    source: TritonSource, device: torch.device, like: Sequence[Buffer] = ()
) -> Callable[..., None]:
    """The kernel as a callable on tensors of this device; its tile chosen by measuring on what is
    `like` these, if given.
    Raises `BackendMissing` if Triton cannot run there."""
    import_triton()
    names: dict[str, Any] = {"__name__": f"course_lib_kernel_{source.name}"}
    kernel: Any = define(source.name, source.source, f"kernel {source.name}", names)

    # Triton's decorator has made one class or the other of the function.
    interpreted = type(kernel).__name__ == "InterpretedFunction"
    if interpreted != (device.type == "cpu"):
        how = "set TRITON_INTERPRET=1"
        if interpreted:
            how = "unset TRITON_INTERPRET"
        raise BackendMissing(
            f"Triton was imported in a mode that cannot run on {device.type}: {how} before Python starts"
        )

    meta = source.tiling.meta(interpreted)
    if interpreted:
        return load_interpreted(kernel, source, meta)

    on_gpu = functools.partial(compiled, kernel, source, device)
    choice = Choice(meta, source.tiling.warps(meta))
    if like:
        choice = tuned(source, like, on_gpu)
    return on_gpu(*choice)


def load_stream(source: StreamSource, device: torch.device) -> Callable[..., None]:
    """A stream as a callable on its buffers: it is given its table of walks, and flags from the
    small kernel before it."""
    walk = load_triton(source, device)
    table: list[torch.Tensor] = []
    if source.table:
        table.append(torch.tensor(source.table, dtype=torch.int32, device=device))
    if source.look is None and not table:
        return walk
    if source.look is None:
        return lambda *buffers: walk(*buffers, *table)

    # The small kernel first: for each piece it writes a flag, "all numbers are finite".
    look = load_triton(source.look, device)
    read = [source.buffers.index(name) for name in source.look.buffers]

    def started(*buffers: torch.Tensor) -> None:
        finite = torch.empty(source.flags, dtype=torch.int32, device=device)
        look(*(buffers[n] for n in read), finite)
        walk(*buffers, finite, *table)

    return started


def load_interpreted(
    kernel: Any, source: TritonSource, meta: dict[str, int]
) -> Callable[..., None]:
    """The kernel by the interpreter, with a GPU's values (`course_lib.simulator`).

    As `compiled` below: no fusion, no flushing. What the code generator writes is checked by its
    tests, not at each start."""
    programs = programs_of_call(source, meta)
    symbols = len(source.symbols)

    def started(*arguments: Any) -> None:
        count = programs(*arguments[len(arguments) - symbols :])
        if count == 0:
            return
        with simulator.using(refusals=False, checks=False, fusion=False, flush=False):
            kernel[(count,)](*arguments, **meta)

    return started


def programs_of_call(source: TritonSource, meta: dict[str, int]) -> Callable[..., int]:
    """How many programs a call starts, as a function of its sizes:
    `lambda s0, s1: (s0*s1 + 1023) // 1024`."""
    names = {}
    for n, size in enumerate(source.symbols):
        names[size] = sympy.Symbol(f"s{n}", integer=True)

    arguments = ", ".join(map(str, names.values()))
    formula = text_of(source.tiling.programs(meta), names)
    compute: Callable[..., int] = eval(f"lambda {arguments}: {formula}")
    return compute


def compiled(
    kernel: Any, source: TritonSource, device: torch.device, meta: dict[str, int], warps: int
) -> Callable[..., None]:
    """The kernel compiled now, and started by the driver: 3 µs.

    Triton's own start takes 10 µs, for it looks at each argument. It serves where the arguments are
    not what the driver's start expects (`start_by_triton`).
    Raises `CompileFailed` with the last lines of what Triton said."""
    programs = source.tiling.programs(meta)
    count_for_sizes = None
    if is_symbolic(programs):
        count_for_sizes = programs_of_call(source, meta)

    # As in eager: x * y + z is rounded twice, and a denormal number is not 0 (but for exponentials
    # below 1e-38 in a stream).
    how: dict[str, Any] = {
        **meta,
        "num_warps": warps,
        "enable_fp_fusion": False,
        "enable_reflect_ftz": source.flushes,
    }

    def start_by_triton(*arguments: Any) -> None:
        count = programs
        if count_for_sizes:
            count = count_for_sizes(*arguments[-len(source.symbols) :])
        kernel[(count,)](*arguments, **how)

    driver = importlib.import_module("triton.runtime").driver.active
    index = device.index
    if index is None:
        index = torch.cuda.current_device()
    with torch.cuda.device(index):
        compiled_kernel = compile_now(kernel, source, how)
        shared = compiled_kernel.metadata.shared
        # What it gives begins with the loaded module and its function. The driver keeps the module
        # loaded until the process ends: Triton never unloads one.
        function = driver.utils.load_binary(
            compiled_kernel.name, compiled_kernel.kernel, shared, index
        )[1]

    # What C needs to start the kernel. 0 programs: they are counted in each call.
    cuda = ctypes.CDLL("libcuda.so.1")
    launch = ctypes.cast(cuda.cuLaunchKernel, ctypes.c_void_p).value
    threads = 32 * compiled_kernel.metadata.num_warps  # a warp has 32
    fixed = 0 if count_for_sizes else programs
    packed = pack("PPIIII", launch, function, fixed, threads, shared, len(source.symbols))

    launcher: Any = native.load("course_lib.runtime._launcher")
    return launcher.gpu_launcher(
        packed,
        torch._C._cuda_getCurrentRawStream,
        index,
        start_by_triton,
        count_for_sizes,
    )


def compile_now(kernel: Any, source: TritonSource, how: dict[str, Any]) -> Any:
    """Triton's compiled kernel, without tensors.

    Source that it rejects stays in the cache folder."""
    failed = importlib.import_module("triton.compiler.errors").CompilationError

    # `warmup` takes examples of the arguments. A dtype stands for a tensor whose address is a
    # multiple of 16. For a size any number will do that Triton does not treat specially: 3.
    example_of_type: dict[str, Any] = {text: dtype for dtype, text in POINTERS.items()}
    example_of_type |= {"i32": 3, "i64": 3}
    examples = [example_of_type[kind] for kind in source.types]
    try:
        return kernel.warmup(*examples, grid=(1,), **how)
    except failed as error:
        kept_source = config.cache_dir() / f"failed-{source.name}.py"
        kept_source.write_text(source.source)
        command = ["triton.compile", source.name]
        last_lines = str(error).splitlines()[-8:]
        raise CompileFailed("Triton", command, last_lines, kept_source) from None
