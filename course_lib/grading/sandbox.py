"""Where a stranger's notebook runs: no network, nothing to write to but its own folder, nothing
secret to read.

In:  the folder the kernel works in, and the folders it must not see. Out: the words to put before
     the kernel's command.

The walls are `bubblewrap`'s (Linux namespaces; no root needed). Time, memory, processes and the
size of the folder are watched from outside by `kernel`; how many processes there can be at all, the
operating system holds. What the walls cannot stop is an answer that tampers with the checks inside
its own process: that is what `probes` looks for.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .errors import CourseError

FILE_BYTES = 1 << 30
"""The largest single file."""

SCRATCH_BYTES = 256 << 20
"""What fits into the kernel's own /tmp, and into /dev/shm: both are memory."""

SPARE_PROCESSES = 256
"""Processes and threads beside those the account has already."""

_LONGEST_SOCKET_PATH = 107
"""Bytes of a socket's path that Linux allows."""

_SOCKET_BELOW = 34
"""Bytes of it that come behind the folder for temporary files: `/cgPID-NAME/kNAME/s-1`."""

_ABANDONED_SECONDS = 3600
"""A control group this old was left by a grader that was killed."""

_SECONDS_TO_DIE = 10
"""How long killed processes are waited for."""

WALLS = (
    "bwrap",
    *"--unshare-all --die-with-parent --new-session --ro-bind / / --dev /dev --proc /proc".split(),
)
CONTROL_GROUPS = (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup"))  # version 1, version 2
ENTER = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
# what is seen of /
SYSTEM = {
    "bin",
    "dev",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "nix",
    "proc",
    "sbin",
    "sys",
    "usr",
}
# what is seen of a copy of the course, beside its `.venv`
SHOWN = ("course_lib", "exercises", "notebooks")


@dataclass(frozen=True)
class Sandbox:
    """`folder` is all that the kernel may write to, beside a little scratch; `hidden` folders look
    empty. `pen`: `pen()`'s."""

    folder: Path
    hidden: tuple[Path, ...] = ()
    pen: Path | None = None

    def command(self) -> list[str]:
        """What comes before the command of the kernel.

        Everything outside the operating system looks empty (/run holds sockets, /home and the like
        what is nobody's business), but for the places where Python, its packages and the programs
        of PATH are; of a copy of the course among them only what an answer needs is there (its
        history and a class's folders hold solutions, too). All that is empty is read-only: it lies
        in memory.
        """
        needed = _needed()
        copies = [place for place in needed if is_a_copy_of_the_course(place)]
        closed = closed_folders()
        hidden = self.hidden_folders(copies)

        words = [*WALLS, "--unsetenv", "JPY_PARENT_PID"]  # the parent cannot be seen from inside
        words += each(("--tmpfs",), closed)
        words += each(("--size", str(SCRATCH_BYTES), "--tmpfs"), (Path("/tmp"), Path("/dev/shm")))
        words += each(("--tmpfs",), copies)

        # on top of the empty folders: what is seen in them, and what is not to be seen in that
        for place in seen_folders(needed, copies):
            words += ["--ro-bind", str(place), str(place)]
        words += each(("--tmpfs",), hidden)

        words += ["--bind", str(self.folder), str(self.folder), "--chdir", str(self.folder)]
        words += each(("--remount-ro",), (Path("/dev"), *closed, *copies, *hidden))
        return [*self.entering(), *_limits(), *words, "--"]

    def entering(self) -> list[str]:
        """What puts the process into its pen, where there is one."""
        if self.pen is None:
            return []
        return [*ENTER, str(self.pen)]

    def hidden_folders(self, copies: list[Path]) -> list[Path]:
        """The folders that look empty although what is around them is seen. `copies`: folders with
        a copy of the course, whose answers and tests nobody may read."""
        secret = [copy / name for copy in copies for name in ("solutions", "tests")]
        return [place for place in dict.fromkeys((*self.hidden, *secret)) if place.is_dir()]

    def environment(self) -> dict[str, str]:
        """Nothing of the teacher's environment (keys, tokens) but where Python and its packages
        are."""
        own_variables = {
            "HOME": str(self.folder),
            "TMPDIR": "/tmp",
            "COURSE_CACHE": str(self.folder / "cache"),
        }
        own_variables |= {
            "IPYTHONDIR": str(self.folder / "ipython"),
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        inherited_names = (
            "PATH",
            "PYTHONPATH",
            "LD_LIBRARY_PATH",
            "LANG",
            "CXX",
            "CC",
            "TRITON_INTERPRET",
        )

        return {
            name: os.environ[name] for name in inherited_names if name in os.environ
        } | own_variables


def each(option: tuple[str, ...], places: Iterable[Path]) -> list[str]:
    """The option before each of the places, as bubblewrap reads them."""
    return [word for place in places for word in (*option, str(place))]


def is_a_copy_of_the_course(place: Path) -> bool:
    return (place / "course_lib").is_dir() and (place / "solutions").is_dir()


def seen_folders(needed: Iterable[Path], copies: list[Path]) -> list[Path]:
    """What Python needs; of copies of the course only the parts that an answer uses."""
    folders = [place for place in needed if place not in copies]
    folders += [copy / name for copy in copies for name in SHOWN if (copy / name).is_dir()]
    return folders


def closed_folders() -> list[Path]:
    """The folders at the top that are no part of the operating system, and a home that lies in such
    a part."""
    closed = [
        top
        for top in Path("/").iterdir()
        if top.name not in SYSTEM and top.is_dir() and not top.is_symlink() and top != Path("/tmp")
    ]
    if _is_system(Path.home()):
        closed.append(Path.home())
    return closed


def short_place() -> Path:
    """The folder for temporary files, or another one if its path is too long for the sockets below
    it."""
    default_folder = Path(tempfile.gettempdir())
    for place in (default_folder, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm")):
        path_bytes = len(os.fsencode(place)) + _SOCKET_BELOW
        if path_bytes <= _LONGEST_SOCKET_PATH and os.access(place, os.W_OK):
            return place
    raise CourseError(
        f"The path of temporary files is too long for sockets: {default_folder}. Set TMPDIR to a folder with a short path."
    )


@contextmanager
def pen() -> Iterator[Path | None]:
    """A control group for few processes, for root, whom `--nproc` does not bind: a thousand forks
    between two looks of the runner would bring the machine down. None for other accounts, and where
    no group can be made (the runner still counts)."""
    control_group = _new_pen() if os.getuid() == 0 else None
    try:
        yield control_group
    finally:
        if control_group:
            empty(control_group)
            with suppress(OSError):
                control_group.rmdir()


def _new_pen() -> Path | None:
    """A new control group, or None where none can be made."""
    for groups in CONTROL_GROUPS:
        for left in groups.glob("course-*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                    left.rmdir()  # if nothing runs in it

        # Version 2 counts processes in the groups below only where that is switched on. (It is read
        # first: where the file is missing, writing would make one in an ordinary folder.)
        switch = groups / "cgroup.subtree_control"
        with suppress(OSError):
            switch.read_text()
            switch.write_text("+pids")

        control_group = groups / f"course-{uuid.uuid4().hex}"
        try:
            control_group.mkdir()
            # In a control group the kernel makes this file; in an ordinary folder it is missing,
            # and reading it raises.
            (control_group / "pids.max").read_text()
            (control_group / "pids.max").write_text(str(SPARE_PROCESSES))
            return control_group
        except OSError:
            with suppress(OSError):
                control_group.rmdir()

    return None


def empty(group: Path) -> None:
    """Kill all that runs in a control group, and wait until it is gone (or `_SECONDS_TO_DIE`)."""
    end = time.monotonic() + _SECONDS_TO_DIE
    with suppress(OSError):
        while time.monotonic() < end:
            numbers = (group / "cgroup.procs").read_text().split()
            if not numbers:
                return
            for number in numbers:
                with suppress(ProcessLookupError):
                    os.kill(int(number), signal.SIGKILL)
            time.sleep(0.05)


@cache
def why_no_sandbox() -> str:
    """Empty if submissions can be walled in here; else one sentence with what to do."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (`apt install bubblewrap`; on macOS and Windows grade in a container)"
    # Docker allows a part of this: all must be tried
    tried = subprocess.run([*WALLS, "true"], capture_output=True, text=True)
    if tried.returncode:
        why = tried.stderr.strip() or "no reason given"
        return f"bubblewrap cannot make a sandbox here ({why}); what a container must be allowed is in docs/hosting.md"
    return ""


def _needed() -> list[Path]:
    """Where Python, its packages and the programs of PATH are; of the home and /tmp only what
    Python needs."""
    package = Path(__file__).resolve().parents[2]
    python = [
        Path(sys.prefix),
        Path(sys.base_prefix),
        *(Path(p) for p in sys.path if os.path.isabs(p)),
        package,
    ]
    programs = [Path(p) for p in os.environ.get("PATH", "").split(":") if os.path.isabs(p)]
    programs = [
        p
        for p in programs
        if not _is_system(p) and not any(p.is_relative_to(at) for at in (Path.home(), Path("/tmp")))
    ]
    # the folder lib beside bin, too
    programs = [p.parent if len(p.parts) > 3 else p for p in programs]

    return [place for place in dict.fromkeys((*programs, *python)) if place.is_dir()]


def _is_system(place: Path) -> bool:
    return len(place.parts) > 1 and place.parts[1] in SYSTEM


def _limits() -> Sequence[str]:
    """Limits that the kernel of the operating system itself holds."""
    if shutil.which("prlimit") is None:
        return ()
    words = ["prlimit", f"--fsize={FILE_BYTES}", "--core=0"]
    if os.getuid() != 0:  # (root has no such limit: `pen`)
        words.append(f"--nproc={_threads_of_this_account() + SPARE_PROCESSES}")
    return (*words, "--")


def _threads_of_this_account() -> int:
    """How many there are now: the limit counts all of an account's, not only a kernel's own."""
    import psutil

    own_processes = [
        p
        for p in psutil.process_iter(["uids", "num_threads"])
        if p.info["uids"] and p.info["uids"].real == os.getuid()
    ]
    return sum(p.info["num_threads"] or 1 for p in own_processes)
