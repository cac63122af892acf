"""The small C modules: the one that was installed, else built now, else none and a sentence that says why.

In:  a module's name, its `.c` file beside it.
Out: the imported module, or None.

`frames/_framehook.c`, `guards/_tensors.c` and `runtime/_launcher.c` need nothing but Python's headers. `pip install` builds them
where it can. Where it could not, or where a source changed since, the interpreter's own compiler does when needed, in 0.3 s.
In PyTorch: they live in `libtorch_python`, built ahead of time; building on demand is `torch/utils/cpp_extension.py`.
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

FREE_THREADED = (
    "this is a free-threaded Python, which course_lib does not support, so nothing can be captured: "
    "use the ordinary build of the same version (`python3.14`, not `python3.14t`)"
)
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"


@functools.cache
def load(name: str) -> ModuleType | None:
    """The C module `name`, or None after one warning."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        warnings.warn(FREE_THREADED, RuntimeWarning, stacklevel=2)
        return None
    source = Path(__file__).parent.joinpath(*name.split(".")[1:]).with_suffix(".c")
    installed = source.with_name(source.stem + SUFFIX)
    if is_current(installed, source) and (module := _import(name, installed)):
        return module
    try:
        key = build_cache.key_of(
            source.read_text(), sys.version, sys.prefix, sysconfig.get_platform()
        )
        built = build_cache.build(
            key, SUFFIX, functools.partial(compile_c, source), folder="native"
        ).path
        if module := _import(name, built):
            return module
        problem = f"{source.name} was built as {built}, and does not load"
    except (RuntimeError, OSError) as error:  # the second: a compiler that cannot be run
        problem = str(error)
    warnings.warn(f"{problem}; nothing can be captured", RuntimeWarning, stacklevel=2)
    return None


def is_current(binary: Path, source: Path) -> bool:
    """Was `binary` built from this `source`? By time; with a grace, for an installer writes the two in any order."""
    return binary.exists() and (
        not source.exists() or binary.stat().st_mtime > source.stat().st_mtime - 5
    )


def compile_c(source: Path, target: Path) -> None:
    """Run the C compiler that this Python was built with, or another that is there."""
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    options = [
        "-O2",
        "-fPIC",
        *link,
        "-I" + sysconfig.get_path("include"),
        str(source),
        "-o",
        str(target),
    ]
    names = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    compiler = next(
        (command for name in names if name and shutil.which((command := shlex.split(name))[0])),
        None,
    )
    if compiler is None:
        raise RuntimeError(
            "no C compiler found (tried $CC, cc, gcc, clang): `apt install gcc` or `conda install compilers`"
        )
    done = subprocess.run([*compiler, *options], capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        why = next(
            (line for line in done.stderr.splitlines() if "error" in line),
            done.stderr.strip()[:200],
        )
        missing = (
            "Python's C headers are missing (no Python.h): `apt install python3-dev`"
            if "Python.h" in why
            else ""
        )
        raise RuntimeError(
            missing
            or f"the C compiler '{compiler[0]}' could not build {source.name} ({why.strip()})"
        )


def _import(name: str, path: Path) -> ModuleType | None:
    """The extension module at `path`; None if it does not load (another Python's, or no library at all)."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    try:
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ImportError, OSError):
        return None
    return sys.modules.setdefault(name, module)
