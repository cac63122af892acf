"""What becomes of a kernel's source: every step down to the processor's instructions, for a
processor you name.

In:  a printed kernel (`CompiledGraph.kernels`); a target ("sm_90", "gfx942"; for C++ "x86-64-v3",
     "x86-64-v4", ...).
Out: name of the representation → its text. Triton: `ttir`, `ttgir`, `llir`, `ptx` (or `amdgcn`),
     and `sass` where NVIDIA's disassembler is found. C++: `asm`.

No GPU is needed. Triton decides when it is first imported whether it compiles or interprets, so
another Python process is asked.

In PyTorch: `TORCH_LOGS=output_code` and `TORCHINDUCTOR_FORCE_DISABLE_CACHES=1` with Triton's
`TRITON_KERNEL_DUMP=1`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from course_lib import config
from course_lib.codegen.cpp import prelude
from course_lib.codegen.printer import KernelSource
from course_lib.codegen.triton import TritonSource
from course_lib.runtime.compiler import (
    CORRECTNESS,
    FLAGS,
    BackendMissing,
    CompileFailed,
    find_compiler,
)
from course_lib.viz.kit.arguments import TEXT, takes, with_attributes

COMPILE = """
import json, linecache, sys
job = json.load(sys.stdin)
text, name = job["source"], job["name"] + ".py"
linecache.cache[name] = (len(text), None, text.splitlines(True), name)
try:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
except ImportError as error:
    print(json.dumps({"missing": str(error)})); sys.exit()
names = {"__name__": "kernel"}
exec(compile(text, name, "exec"), names)
kind, arch, warp = job["target"]
source = ASTSource(
    fn=names[job["name"]], signature=job["signature"], constexprs=job["meta"],
    attrs={(n,): [["tt.divisibility", 16]] for n in range(job["pointers"])},
)
options = {"num_warps": job["warps"], "enable_fp_fusion": False} | job["options"]
if kind == "cuda":
    options["enable_reflect_ftz"] = job["flushes"]
made = triton.compile(source, target=GPUTarget(kind, arch, warp), options=options)
binary = made.asm.get("cubin")
if binary:
    open(job["cubin"], "wb").write(binary)
print(json.dumps({name: text for name, text in made.asm.items() if isinstance(text, str) and name != "source"}))
"""
"""The program of the other process: reads a job (`inspect_triton` writes it), compiles the kernel
as a call would, and prints each representation that is text. The machine code (`cubin`) goes into
a file."""
MOST_LINES = 8
"""So many lines of a compiler's errors are told: the last of Triton's traceback, the first of the
C++ compiler's messages."""


@takes(
    kernel=with_attributes(
        "a kernel of trace.of(events.KernelsBuilt)[0].compiled.kernels",
        "source",
        "name",
        "language",
    ),
    target=TEXT,
)
def inspect_kernel(kernel: KernelSource, target: str = "sm_90") -> dict[str, str]:
    """The representations of `kernel` for `target`. Raises `BackendMissing`."""
    if isinstance(kernel, TritonSource):
        return inspect_triton(kernel, target)
    # (A GPU is the default target, and means nothing for C++.)
    return {"asm": assembly(kernel, target if not target.startswith("sm_") else "x86-64-v3")}


def inspect_triton(source: TritonSource, target: str) -> dict[str, str]:
    """Triton's representations of a kernel, with the tile sizes that it would be started with on a
    GPU."""
    chosen = source.tiling.meta(interpreted=False)
    # Sizes of a tile are arguments of the kernel; how many steps are fetched ahead is not.
    meta = {name: size for name, size in chosen.items() if name.isupper()}
    with tempfile.TemporaryDirectory(prefix="course_lib-") as folder:
        cubin = Path(folder) / "kernel.cubin"
        job = {
            "source": source.source, "cubin": str(cubin), "name": source.name, "meta": meta,
            "target": gpu(target), "pointers": sum(kind.startswith("*") for kind in source.types),
            "signature": dict(zip(function_parameters(source), [*source.types, *["constexpr"] * len(meta)], strict=True)),
            "warps": source.tiling.warps(meta), "flushes": source.flushes,
            "options": {name: size for name, size in chosen.items() if name not in meta},
        }  # fmt: skip
        environment = {
            **os.environ,
            "TRITON_INTERPRET": "0",
            "TRITON_CACHE_DIR": str(config.cache_dir() / "triton"),
        }
        command = [sys.executable, "-c", COMPILE]
        process = subprocess.run(
            command, input=json.dumps(job), capture_output=True, text=True, env=environment
        )
        if process.returncode:
            kept_source = config.cache_dir() / f"failed-{source.name}.py"
            kept_source.write_text(source.source)
            raise CompileFailed(
                "Triton",
                ["triton.compile", source.name, target],
                process.stderr.splitlines()[-MOST_LINES:],
                kept_source,
            )
        # (Imports may print before the last line.)
        texts: dict[str, str] = json.loads(process.stdout.splitlines()[-1])
        if "missing" in texts:
            raise BackendMissing(
                f"triton cannot be imported ({texts['missing']}): get it with `pip install triton` (Linux only)"
            )
        # Either disassembler of NVIDIA's will do; each calls the option by another name.
        tool = shutil.which("nvdisasm") or shutil.which("cuobjdump")
        if cubin.exists() and tool:
            flags = ["-sass"] if tool.endswith("cuobjdump") else ["-c"]
            shown = subprocess.run([tool, *flags, str(cubin)], capture_output=True, text=True)
            texts |= {"sass": shown.stdout} if shown.returncode == 0 else {}
    return texts


def function_parameters(source: TritonSource) -> list[str]:
    """The names in `def kernel(x, out, BLOCK: tl.constexpr):`."""
    line = next(
        line for line in source.source.splitlines() if line.startswith(f"def {source.name}(")
    )
    return [
        word.split(":")[0].strip()
        for word in line[line.index("(") + 1 : line.rindex(")")].split(",")
    ]


def gpu(target: str) -> tuple[str, int | str, int]:
    """(backend, architecture, threads in a warp) for "sm_90" or "gfx942"."""
    if target.startswith("sm_"):
        # Triton takes the number alone: 90 for "sm_90" and "sm_90a".
        return "cuda", int(target.removeprefix("sm_").rstrip("af")), 32
    if target.startswith("gfx"):
        # AMD's CDNA (gfx9…) has 64 threads in a warp, RDNA 32.
        return "hip", target, 64 if target.startswith("gfx9") else 32
    raise ValueError(f'a GPU target is written "sm_90" (NVIDIA) or "gfx942" (AMD), not {target!r}')


def assembly(source: KernelSource, target: str, more: Sequence[str] = ()) -> str:
    """The assembly of a C++ kernel for one stated instruction set, without the machinery of
    threads; `more` are flags."""
    compiler = find_compiler()
    with tempfile.TemporaryDirectory(prefix="course_lib-") as folder:
        file = Path(folder) / f"{source.name}.cpp"
        file.write_text(prelude() + "\n" + source.source)
        # As kernels are compiled, but to text and not for a shared library; of OpenMP only what
        # concerns vectors: threads would move each loop into a function of its own.
        flags = [
            *(f for f in FLAGS if f not in ("-shared", "-fPIC")),
            *CORRECTNESS,
            "-fopenmp-simd",
            f"-march={target}",
        ]
        command = [
            compiler,
            *flags,
            *more,
            "-S",
            "-fno-asynchronous-unwind-tables",
            str(file),
            "-o",
            "-",
        ]
        # The compiler names the flag that it does not know
        process = subprocess.run(command, capture_output=True, text=True)
        if "-march=" in process.stderr:
            raise ValueError(
                f'the C++ compiler knows no target {target!r}: take one like "x86-64-v3", "x86-64-v4" or "native"'
            )
        if process.returncode:
            errors = process.stderr.splitlines()[:MOST_LINES]
            raise CompileFailed("the C++ compiler", command, errors, file)
    return process.stdout
