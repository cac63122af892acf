"""The two small C modules: the one that was installed, else built now, else none and a sentence that says why.

In:  a module's name, its `.c` file beside it.
Out: the imported module, or None.

Two C files cannot be written in Python: the frame hook (`frames/_framehook.c`) and the kernel launcher
(`runtime/_launcher.c`). `pip install` builds both where it can. Where it could not, or where the source changed since,
the interpreter's own compiler builds them at first import, in about 0.3 s, into the cache folder; neither needs more
than Python's headers.
In PyTorch: both live in `libtorch_python`, built ahead of time; building on demand is `torch/utils/cpp_extension.py`.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
WITHOUT = {
    "course_lib.frames._framehook": "capture falls back to swapping code objects, which does not see frames entered from C",
    "course_lib.runtime._launcher": "kernels are called through ctypes, about half a microsecond slower a call",
}
"""What the library does without each module."""


class CannotBuild(Exception):
    """Says what is missing and what to do about it."""


def load(name: str) -> ModuleType | None:
    """The C module `name`, or None after one warning. `COURSE_NO_HOOK=1`: no frame hook, and no warning."""
    if name.endswith("._framehook") and os.environ.get("COURSE_NO_HOOK", "0") not in ("", "0"):
        return None
    return _load(name)


@functools.cache
def _load(name: str) -> ModuleType | None:
    source = HERE.joinpath(*name.split(".")[1:]).with_suffix(".c")
    installed = source.with_name(source.stem + SUFFIX)
    if is_current(installed, source) and (module := _import(name, installed)):
        return module
    try:
        return build(name, source)
    except CannotBuild as problem:
        older = _import(name, installed) if installed.exists() else None
        without = f"using {installed}, which is older than its source" if older else WITHOUT[name]
        warnings.warn(f"{problem}; {without}", RuntimeWarning, stacklevel=3)
        return older


def is_current(binary: Path, source: Path) -> bool:
    """Was `binary` built from this `source`? By time; with a grace, for an installer writes the two in any order."""
    if not binary.exists():
        return False
    return not source.exists() or binary.stat().st_mtime > source.stat().st_mtime - 5


def build(name: str, source: Path) -> ModuleType:
    """The module from the cache, else compiled into it. The file's name holds a hash of what it was built from and one
    of its own bytes: a damaged file is not loaded but replaced, and two processes that build at once do not meet."""
    from course_lib.config import cache_dir

    folder = cache_dir() / "native"
    made_from = digest(source.read_bytes() + f"{sys.version}{sys.prefix}{sysconfig.get_platform()}".encode())
    for path in folder.glob(f"{source.stem}-{made_from}-*{SUFFIX}"):
        if path.name.split("-")[2].startswith(digest(path.read_bytes())) and (module := _import(name, path)):
            return module
        path.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        new = Path(scratch, "module" + SUFFIX)
        compile_c(source, new)
        path = folder / f"{source.stem}-{made_from}-{digest(new.read_bytes())}{SUFFIX}"
        os.replace(new, path)
    module = _import(name, path)
    if module is None:
        raise CannotBuild(f"{source.name} was built as {path}, and does not load")
    return module


def compile_c(source: Path, target: Path) -> None:
    """Run the C compiler that this Python was built with, or another that is there."""
    link = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]
    options = ["-O2", "-fPIC", *link, "-I" + sysconfig.get_path("include"), str(source), "-o", str(target)]
    names = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    tried = list(dict.fromkeys(name for name in names if name))
    for compiler in tried:
        try:
            done = subprocess.run([*shlex.split(compiler), *options], capture_output=True, text=True, errors="replace")
        except OSError:
            continue
        if done.returncode == 0:
            return
        if "Python.h" in done.stderr:
            raise CannotBuild("Python's C headers are missing (no Python.h): `apt install python3-dev`")
        why = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[:200])
        raise CannotBuild(f"the C compiler '{compiler}' could not build {source.name} ({why.strip()})")
    listed = ", ".join(f"'{name}'" for name in tried)
    raise CannotBuild(f"no C compiler found (tried {listed}): `apt install gcc` or `conda install compilers`")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


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
