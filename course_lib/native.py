"""The small C modules: the one that was installed, else built now, else none and a sentence that
says why.

In:  a module's name, its `.c` file beside it.
Out: the imported module, or None.

`frames/_framehook.c`, `guards/_tensors.c` and `runtime/_launcher.c` need nothing but Python's
headers. `pip install` builds them where it can. Where it could not, or where a source changed
since, the interpreter's own compiler does when needed, in 0.3 s.
In PyTorch: they live in `libtorch_python`, built ahead of time; building on demand is
`torch/utils/cpp_extension.py`.
"""

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from types import ModuleType

from course_lib import build_cache

_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
ORDINARY_BUILD = f"use the ordinary build of the same version (`{_PYTHON}`, not `{_PYTHON}t`)"
FREE_THREADED = (
    "this is a free-threaded Python, which course_lib does not support, so nothing can be captured: "
    f"{ORDINARY_BUILD}"
)
NO_HOOK = "the frame hook could not be built, so nothing can be captured: `course doctor` says what is missing"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"


def is_free_threaded() -> bool:
    """Was this Python built without the lock that lets one thread run at a time?

    Whether it is on now does not matter."""
    return bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def why_nothing_is_captured() -> str:
    """The sentence for who compiles all the same where there is no frame hook."""
    if is_free_threaded():
        return FREE_THREADED
    return NO_HOOK


@functools.cache
def load(name: str) -> ModuleType | None:
    """The C module `name`, or None after one warning."""
    if is_free_threaded():
        warnings.warn(FREE_THREADED, RuntimeWarning, stacklevel=2)
        return None

    source = Path(__file__).parent.joinpath(*name.split(".")[1:]).with_suffix(".c")
    installed = source.with_name(source.stem + SUFFIX)
    if is_current(installed, source) and (module := _import(name, installed)):
        return module

    try:
        built = build(source)
        if module := _import(name, built):
            return module
        problem = f"{source.name} was built as {built}, and does not load"
    except (RuntimeError, OSError) as error:  # The second: a compiler that cannot be run
        problem = str(error)

    warnings.warn(f"{problem}; nothing can be captured", RuntimeWarning, stacklevel=2)
    return None


def is_current(binary: Path, source: Path) -> bool:
    """Was `binary` built from this `source`?"""
    if not binary.exists():
        return False
    if not source.exists():
        return True
    # By time. Five seconds of grace, for an installer writes the two in any order.
    return binary.stat().st_mtime > source.stat().st_mtime - 5


def build(source: Path) -> Path:
    """The library of a C source: from the cache on disk, or built now.

    Raises RuntimeError if it cannot be built."""
    key = build_cache.key_of(source.read_text(), sys.version, sys.prefix, sysconfig.get_platform())
    make = functools.partial(compile_c, source)
    return build_cache.build(key, SUFFIX, make, folder="native").path


def compile_c(source: Path, target: Path) -> None:
    """Run the C compiler that this Python was built with, or another that is there.

    Raises RuntimeError if it fails."""
    compiler = find_c_compiler()
    link = ["-shared"]
    if sys.platform == "darwin":
        link = ["-bundle", "-undefined", "dynamic_lookup"]
    include = "-I" + sysconfig.get_path("include")

    options = ["-O2", "-fPIC", *link, include, str(source), "-o", str(target)]
    process = subprocess.run(
        [*compiler, *options], capture_output=True, text=True, errors="replace"
    )
    if process.returncode != 0:
        raise RuntimeError(why_it_failed(compiler[0], source, process.stderr))


def find_c_compiler() -> list[str]:
    """The command of a C compiler. Raises RuntimeError where there is none."""
    for name in (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang"):
        command = shlex.split(name or "")
        if command and shutil.which(command[0]):
            return command

    raise RuntimeError(
        "no C compiler found (tried $CC, cc, gcc, clang): `apt install gcc` or `conda install compilers`"
    )


def why_it_failed(compiler: str, source: Path, said: str) -> str:
    """One sentence about what a compiler `said`: its first error."""
    errors = [line for line in said.splitlines() if "error" in line]
    why = said.strip()[:200]
    if errors:
        why = errors[0]
    if "Python.h" in why:
        return "Python's C headers are missing (no Python.h): `apt install python3-dev`"
    return f"the C compiler '{compiler}' could not build {source.name} ({why.strip()})"


def _import(name: str, path: Path) -> ModuleType | None:
    """The extension module at `path`; None if it does not load (another Python's, or no library at
    all)."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, OSError):
        return None
    return sys.modules.setdefault(name, module)
