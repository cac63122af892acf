"""How much a kernel uses: memory, files, and what it prints.

In:  processes, a folder, a message. Out: bytes.
What is gone while it is looked at counts as nothing: a process may end at any time.
PyTorch has no counterpart.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any


def resident_bytes(process: Any) -> int:
    """Bytes of memory; what a fork shares with others counts for each in part."""
    # Linux divides shared memory among those who share it (Pss, in KiB); elsewhere it counts whole.
    with suppress(OSError, StopIteration):
        rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return int(next(row for row in rows if row.startswith("Pss:")).split()[1]) << 10
    try:
        return int(process.memory_info().rss)
    except Exception:  # it ended between the two looks
        return 0


def nameless_bytes(pids: Iterable[int]) -> int:
    """Bytes of files that are open and have no name (deleted, or made by `memfd_create`): no folder
    shows them."""
    # by device and number of the file: one that is open several times counts once
    bytes_of_file: dict[tuple[int, int], int] = {}
    for pid in pids:
        for number in _listed(f"/proc/{pid}/fd"):
            try:
                status = os.stat(f"/proc/{pid}/fd/{number}")
            except OSError:  # it is closed already
                continue
            if stat.S_ISREG(status.st_mode) and not status.st_nlink:
                # the system counts blocks of 512 bytes, whatever the disk's own are
                bytes_of_file[status.st_dev, status.st_ino] = status.st_blocks * 512

    return sum(bytes_of_file.values())


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process is gone, or the system has no /proc
        return []


def length_of(content: dict[str, Any]) -> int:
    """How much a message brings: text, pictures, or an error."""
    parts = [content.get(name, "") for name in ("text", "data", "evalue", "traceback")]
    return sum(len(part if isinstance(part, str) else str(part)) for part in parts)


def size_of(folder: Path, enough: int) -> int:
    """Bytes in a folder, counted until there are more than `enough`.

    A file or folder counts as 4096 at least, a block of the disk: else a million empty files would
    cost nothing.

    What is nested so deeply that its path is too long cannot be counted: that is more than enough.
    """
    total, folders = 0, [str(folder)]
    while folders and total <= enough:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    folders += [entry.path] if entry.is_dir(follow_symlinks=False) else []
                    total += max(4096, entry.stat(follow_symlinks=False).st_size)
                    if total > enough:
                        break
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return enough + 1
            continue  # it is gone already
    return total


def remove(place: Path) -> None:
    """Delete a folder, also one that is nested more deeply than `shutil` can follow."""
    try:
        shutil.rmtree(place, ignore_errors=True)
    except RecursionError:
        subprocess.run(["rm", "-rf", "--", str(place)], check=False)
