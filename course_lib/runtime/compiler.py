"""C++ source to functions in memory, through the machine's own compiler.

In:  the C++ text of all kernels of one graph.
Out: one shared library for all of them.

Each compiler gets `FLAGS` and `CORRECTNESS`, and the first set of `BEST_FIRST` that it accepts
(tried once). No set has -ffast-math: it switches denormal numbers off for the whole process.
In PyTorch: `torch/_inductor/cpp_builder.py`, `cpu_vec_isa.py`, `codecache.py`, `exc.py`
(`CppCompileError`).
"""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch  # noqa: F401 - before any kernel is loaded: its OpenMP library is then the one that kernels share

from course_lib import build_cache, config
from course_lib.codegen.cpp import prelude

# Results as eager's to the last bit where they can be: no reordering, no fused multiply-add that
# the source does not ask for
FLAGS = (
    "-std=c++17",
    "-O3",
    "-shared",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-ffp-contract=off",
    "-w",
)
# What results depend on, and not every compiler does by itself
CORRECTNESS = (
    # Integers wrap as in torch, and memory is reused with another dtype.
    "-fwrapv",
    "-fno-strict-aliasing",
    # sin(atan(nan)) is nan.
    "-fno-builtin-atan",
    "-fno-builtin-atanf",
    # GCC 12 loads from a row too far.
    "-fno-ivopts",
)
# `SIMD` stands before sin, exp, ... in generated code: GCC then calls the vector forms of glibc
VECTOR_MATH = '-DSIMD=__attribute__((simd("notinbranch")))'
# Sets of flags that not every compiler has, the best first: instructions of this machine (`-mcpu`
# on ARM), threads by OpenMP, vector mathematics; then with less and less of it. The first set
# that the compiler takes is used.
BEST_FIRST = (
    ("-march=native", "-mprefer-vector-width=512", "-fopenmp", VECTOR_MATH, "-lm"),
    ("-march=native", "-fopenmp"),
    ("-march=native", "-fopenmp-simd"),
    ("-mcpu=native", "-fopenmp-simd"),
    ("-fopenmp-simd",),
    (),
)
# What is compiled to see if a compiler takes a set: threads, and functions that have vector forms
PROBE = """
extern "C" void probe(float* x, double* y) {
  #pragma omp parallel for simd
  for (int64_t i = 0; i < 4096; i++) { x[i] = sin(pow(x[i], 2.5f)) + log1p(x[i]); y[i] = log(cos(exp(y[i]))) + tanh(y[i]); }
}
"""


class BackendMissing(RuntimeError):
    """Something that generated code needs is not installed.

    The message says what, and how to get it."""


class CompileFailed(RuntimeError):
    """A compiler rejected generated source. `source` is the file, kept for a look."""

    def __init__(self, who: str, command: Sequence[str], said: Sequence[str], source: Path) -> None:
        self.command = tuple(command)
        self.said = tuple(said)
        self.source = source

        indented = [f"    {line}" for line in said]
        lines = "\n".join(indented) or "    (it printed nothing)"
        super().__init__(
            f"{who} failed on {source}\n  command: {' '.join(command)}\n  it said:\n{lines}"
        )


def build_library(text: str) -> build_cache.CacheEntry:
    """The shared library for a C++ text."""
    compiler = find_compiler()
    flags = (*FLAGS, *CORRECTNESS, *optional_flags(compiler))
    key = build_cache.key_of(text, *flags, identity(compiler))
    return build_cache.build(key, ".so", functools.partial(run_compiler, compiler, flags, text))


def find_compiler() -> str:
    """The path of the C++ compiler, or one sentence on how to get one."""
    if compiler := config.find_cxx():
        return compiler
    how = "`apt install g++`, `conda install cxx-compiler` or `xcode-select --install`"
    raise BackendMissing(
        f"no C++ compiler found (tried $CXX, g++, clang++, c++): {how}; until then the graph runs op by op"
    )


def run_compiler(
    compiler: str, flags: Sequence[str], text: str, output: Path, keep: bool = True
) -> None:
    """Compile `text` to the shared library `output`.

    If it fails, the source stays in the cache folder (if `keep`)."""
    source = output.with_suffix(".cpp")
    source.write_text(text)
    # Libraries come after the source that needs them.
    command = [compiler, str(source), "-o", str(output), *flags]
    try:
        process = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BackendMissing(
            f"the C++ compiler {compiler} cannot be run ({error.strerror}); set CXX to one that can"
        ) from None

    if process.returncode != 0 or not output.exists():
        kept_source = source
        if keep:
            kept_source = config.cache_dir() / f"failed-{build_cache.key_of(text)[:12]}.cpp"
        shutil.move(source, kept_source)
        command = [word.replace(str(source), str(kept_source)) for word in command]
        # The first error is what counts, and what follows mostly comes of it.
        first_lines = process.stderr.splitlines()[:8]
        raise CompileFailed("the C++ compiler", command, first_lines, kept_source)


def identity(compiler: str) -> str:
    """What changes when the compiler is replaced."""
    real = os.path.realpath(compiler)
    file = os.stat(real)
    return f"{real} {file.st_mtime_ns} {file.st_size}"


@functools.cache
def optional_flags(compiler: str) -> tuple[str, ...]:
    """The best flags that this compiler takes, found by trying once and kept on disk."""

    def best() -> tuple[str, ...]:
        # The last ones are none at all, which every compiler takes.
        return next(flags for flags in BEST_FIRST if not flags or accepts(compiler, flags))

    key = build_cache.key_of(identity(compiler), prelude() + PROBE, repr(BEST_FIRST))
    return tuple(build_cache.remember(key, best))


def accepts(compiler: str, flags: Sequence[str]) -> bool:
    """True if a file that uses OpenMP and vector mathematics builds with these flags, with nothing
    left undefined."""
    # -O1 stands last, so it counts: the probe is compiled often, and need not be fast
    tried = [*FLAGS, *CORRECTNESS, "-O1"]
    if sys.platform == "linux":
        tried.append("-Wl,-z,defs")
    tried += flags

    with tempfile.TemporaryDirectory(prefix="course_lib-") as folder:
        library = Path(folder) / "probe.so"
        try:
            run_compiler(compiler, tried, prelude() + PROBE, library, keep=False)
        except CompileFailed:
            return False
    return True
