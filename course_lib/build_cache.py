"""Built files on disk, by content: kernels, and the package's own C modules.

In:  a key: everything that the built file depends on (source, flags, compiler, processor).
Out: the path of the file, built now or found.

The name of an entry is `<key>-<sha256 of the file>.so`: one rename publishes both, so two processes that build the same at once
need no lock. An entry whose bytes do not match its name (a full disk) is thrown away before the loader could crash on it.
In PyTorch: `torch/_inductor/codecache.py` (`CppCodeCache`, `write_atomic`; there with file locks).
"""

import functools
import hashlib
import os
import platform
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from course_lib import config

FORMAT = "1"  # Change it when the meaning of an entry changes: old entries are then never found


@dataclass(frozen=True)
class Entry:
    """A built file, and whether it was there already."""

    path: Path
    cached: bool


def key_of(*parts: str) -> str:
    """One short name for everything that the result depends on."""
    return hashlib.sha256(repr((FORMAT, processor(), *parts)).encode()).hexdigest()[:32]


@functools.cache
def processor() -> str:
    """What `-march=native` depends on: a home folder may be shared by machines with different processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return " ".join(next(line for line in lines if line.startswith(("flags", "Features"))).split())
    except (OSError, StopIteration):
        return f"{platform.machine()} {platform.processor()} {platform.platform()}"


def build(key: str, suffix: str, make: Callable[[Path], object], folder: str = "") -> Entry:
    """The file for `key`. If it is missing or damaged, `make(path)` must write it. `folder`: where in the cache."""
    where = config.cache_dir() / (folder or key[:2])
    where.mkdir(parents=True, exist_ok=True)
    for path in where.glob(f"{key}-*{suffix}"):
        if checksum(path) == path.name.removeprefix(f"{key}-").removesuffix(suffix):
            return Entry(path, cached=True)
        path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=where) as work:
        new = Path(work) / f"new{suffix}"
        make(new)
        path = where / f"{key}-{checksum(new)}{suffix}"
        os.replace(new, path)
    return Entry(path, cached=False)


def checksum(path: Path) -> str:
    """The first half of the file's sha256; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    except OSError:
        return ""
