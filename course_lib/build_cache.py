"""Built files on disk, by content: kernels, and the package's own C modules.

In:  a key: everything that the built file depends on (source, flags, compiler, processor).
Out: the path of the file, built now or found.

The name of an entry is `<key>-<sha256 of the file>` and a suffix (`.so`, `.json`): one rename
publishes both, so two processes that build the same at once need no lock. An entry whose bytes do
not match its name (a full disk) is thrown away before the loader could crash on it. The loader
opens the entry itself, so it lies there as it is used (docs/design/generated-code.md).
In PyTorch: `torch/_inductor/codecache.py` (`CppCodeCache`, `write_atomic`; there with file locks).
"""

import functools
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from course_lib import config
from course_lib.events import CacheEntry, emit

FORMAT = "1"
"""Change it when the meaning of an entry changes: old entries are then never found."""


def key_of(*parts: str) -> str:
    """One short name for everything that the result depends on."""
    return hashlib.sha256(repr((FORMAT, processor(), *parts)).encode()).hexdigest()[:32]


@functools.cache
def processor() -> str:
    """What `-march=native` depends on: a home folder may be shared by machines with different
    processors."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []

    for line in lines:
        # what the processor can do, on x86 and on ARM
        if line.startswith(("flags", "Features")):
            return " ".join(line.split())
    return f"{platform.machine()} {platform.processor()} {platform.platform()}"


def build(key: str, suffix: str, make: Callable[[Path], object], folder: str = "") -> CacheEntry:
    """The file for `key`.

    If it is missing or damaged, `make(path)` must write it. `folder`: where in the cache."""
    # 256 folders, so that none gets too long
    where = config.cache_dir() / (folder or key[:2])
    where.mkdir(parents=True, exist_ok=True)

    existing_file = find(where, key, suffix)
    if existing_file is not None:
        return told(CacheEntry(existing_file, cached=True))

    # It is written in a folder of its own. The rename makes it an entry.
    with tempfile.TemporaryDirectory(prefix="building-", dir=where) as work:
        new = Path(work) / f"new{suffix}"
        make(new)
        path = where / f"{key}-{checksum(new)}{suffix}"
        os.replace(new, path)
    return told(CacheEntry(path, cached=False))


def find(where: Path, key: str, suffix: str) -> Path | None:
    """The entry for `key` in the folder `where`, None if there is none.

    A damaged one is thrown away."""
    for path in where.glob(f"{key}-*{suffix}"):
        expected = path.name.removeprefix(f"{key}-").removesuffix(suffix)
        if checksum(path) == expected:
            return path
        path.unlink(missing_ok=True)
    return None


def told(entry: CacheEntry) -> CacheEntry:
    """The entry, once every listener has heard of it."""
    emit(entry)
    return entry


def remember(key: str, ask: Callable[[], Any]) -> Any:
    """What `ask()` gave when it was first called with this key: anything that JSON can hold."""

    def write(path: Path) -> None:
        path.write_text(json.dumps(ask()))

    return json.loads(build(key, ".json", write).path.read_text())


def checksum(path: Path) -> str:
    """The first half of the file's sha256; empty if it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:32]
    except OSError:
        return ""
