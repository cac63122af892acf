"""Write a file so that nothing is lost: whole or not at all, one command at a time, and never over
somebody else's change.

In:  a path and its new bytes. Out: the file, or a `CourseError` of one sentence and the file as it
     was.

A new file is written beside the old one, forced to the disk, and then takes its name. So a crash, a
full disk or a folder that may not be written leaves the old file whole. Two commands at once wait
for each other (`alone`). A file that was saved by another program after this command read it is not
written (`Seen`). What a killed command left of the new file is removed by the next one
(`remove_unfinished`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .notebooks import CourseError

try:
    import fcntl
except ImportError:  # Windows: there commands do not wait for each other
    fcntl = None  # type: ignore[assignment]

PATIENCE = 10.0  # seconds that a command waits for another one
SUFFIX = ".unfinished"
# Seconds: where there are no locks, another command may still be writing a file that is younger
YOUNG = 600.0


@dataclass(frozen=True)
class Seen:
    """A file as it was when it was read; `data` is None where there was none."""

    path: Path
    data: bytes | None

    @classmethod
    def of(cls, path: Path) -> Seen:
        try:
            return cls(path, path.read_bytes())
        except FileNotFoundError:
            return cls(path, None)
        except OSError as problem:
            raise CourseError(f"{path} cannot be read: {why(problem)}.") from None

    def complain_if_changed(self) -> None:
        if Seen.of(self.path).data != self.data:
            raise CourseError(
                f"{self.path} was changed by another program just now (JupyterLab saved it?). "
                "Nothing was written: run the command again."
            )


def write(seen: Seen, data: bytes) -> None:
    """Replace the file that was `seen` by `data`. It must still be as it was seen."""
    path = seen.path
    with sentences(path), beside(path, data) as new:
        seen.complain_if_changed()
        if seen.data is None:
            _publish(new, path)
        else:
            os.replace(new, path)
        _to_disk(path.parent)


def write_new(path: Path, data: bytes) -> bool:
    """Write a file that is not there yet; False if it is there, which is then left alone."""
    with sentences(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside(path, data) as new:
            try:
                _publish(new, path)
            except FileExistsError:
                return False
            _to_disk(path.parent)
    return True


@contextlib.contextmanager
def beside(path: Path, data: bytes) -> Iterator[Path]:
    """A whole file next to `path`, with `data` in it and the same permissions; it is gone
    afterwards."""
    new = path.with_name(f".{path.name}.{os.getpid()}{SUFFIX}")
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

        with contextlib.suppress(FileNotFoundError):
            os.chmod(new, os.stat(path).st_mode & 0o7777)
        yield new
    finally:
        # Not being able to remove it must not hide why the writing failed.
        with contextlib.suppress(OSError):
            new.unlink()


def remove_unfinished(folder: Path) -> list[Path]:
    """Remove files in and below `folder` that a command was writing when it was killed; gives those
    that are gone now.

    They are no loss: the file whose name they were to take is whole, as it was before or as it is
    now. Another command may be writing at this moment, so this waits for the lock.
    """
    there = sorted(folder.rglob(f".*{SUFFIX}"))
    if not there:
        return []

    removed = []
    with alone(folder):
        for path in there:
            # without locks: a file that is so young may belong to a command that runs now
            if fcntl is None and time.time() - path.stat().st_mtime < YOUNG:
                continue
            with contextlib.suppress(OSError):
                path.unlink()
                removed.append(path)
    return removed


@contextlib.contextmanager
def sentences(path: Path) -> Iterator[None]:
    """An error of the operating system, said in one sentence."""
    try:
        yield
    except FileExistsError:
        raise
    except OSError as problem:
        raise CourseError(f"{path} cannot be written: {why(problem)}. {_advice(problem)}") from None


@contextlib.contextmanager
def alone(folder: Path, patience: float = PATIENCE) -> Iterator[None]:
    """Hold the lock of `folder`; another command waits, and gives up after so many seconds with a
    sentence."""
    lock = folder / ".lock"
    with sentences(lock):
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _wait_for(handle, folder, patience)
        yield
    finally:
        os.close(handle)  # this gives the lock back, and so does a crash


def why(problem: OSError) -> str:
    """The operating system's reason, in a few words."""
    words = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "your share of the disk is full",
        errno.EROFS: "the disk is mounted for reading only",
        errno.EACCES: "you have no permission",
        errno.EPERM: "you have no permission",
        errno.EISDIR: "it is a folder",
        errno.ENOTDIR: "a file stands where a folder should be",
    }
    return words.get(problem.errno or 0) or (problem.strerror or type(problem).__name__).lower()


def _advice(problem: OSError) -> str:
    if problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Nothing was changed. Make room and run the command again."
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "Nothing was changed. Make the folder writable for you and run the command again."
    return "Nothing was changed."


def _publish(new: Path, path: Path) -> None:
    """Give `new` the name `path`, where no file may be yet."""
    # A link fails where there is a file; to rename would replace it without a word.
    try:
        os.link(new, path)
    except FileExistsError:
        raise
    except OSError as problem:
        # these a renaming would meet, too
        if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES):
            raise
        # a file system without links: look, then rename
        if path.exists():
            raise FileExistsError(errno.EEXIST, "it is there already", str(path)) from None
        os.replace(new, path)


def _to_disk(folder: Path) -> None:
    """Force the new name to the disk, where the system can do that to a folder."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _wait_for(handle: int, folder: Path, patience: float) -> None:
    """Take the lock; raise CourseError where another command has it for longer than `patience`."""
    if fcntl is None:
        return
    until = time.monotonic() + patience

    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise CourseError(
                    f"Another `course` command is writing in {folder}. "
                    "Wait until it has ended, then run this one again."
                ) from None
            time.sleep(0.05)
        except OSError:  # a file system without locks
            return
