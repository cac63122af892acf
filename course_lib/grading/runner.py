"""Run a notebook in a process of its own, within limits, and say how each cell ended.

In:  a notebook, the folder it runs in, `Limits`. Out: one `CellRun` for each code cell.

A learner's cell may loop for ever, fill the memory, fork, or crash its process. None of that may cost the marks of the
other exercises: a cell that goes too far is stopped, and the rest is run again in a fresh kernel without it.
This protects from accidents. Submissions of strangers run in a `Sandbox` besides.
"""

from __future__ import annotations

import errno
import os
import queue
import re
import shutil
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .notebooks import Notebook
from .sandbox import Sandbox, empty
from .warm import NURSERY, SLEEPER, Wanted, sleeper_in

Outcome = Literal[
    "ok", "error", "time", "memory", "processes", "files", "output", "died", "not reached"
]
_LOOK_EVERY = 0.2  # seconds between two looks at the kernel's memory and clock

_MAX_RESTARTS = 4
# set where nobody waits for the marks any more: kernels end, in whichever thread they are driven
STOP = threading.Event()


class Stopped(Exception):
    """The notebook was not run to its end, for `STOP` was set."""


@dataclass(frozen=True)
class Limits:
    """What one cell, and the whole notebook, may use."""

    cell_seconds: float = 120
    import_seconds: float = 60  # that the first cell gets besides
    grace_seconds: float = 5  # that an interrupted cell gets to stop by itself
    total_seconds: float = 900
    memory_bytes: int = 6 << 30
    processes: int = 64
    output_bytes: int = 16 << 20  # that one cell may print
    folder_bytes: int = 2 << 30  # that a sandboxed notebook may write


@dataclass(frozen=True)
class CellRun:
    """How one code cell ended. `ename` and `evalue` are the exception's, where it raised one."""

    index: int
    outcome: Outcome
    ename: str = ""
    evalue: str = ""
    traceback: str = ""

    @property
    def ok(self) -> bool:
        return self.outcome == "ok"

    def __str__(self) -> str:
        return f"cell {self.index}: {self.outcome} {self.ename}".rstrip()


def run_notebook(
    nb: Notebook,
    folder: Path,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    tell: Callable[[int], None] | None = None,
) -> list[CellRun]:
    """Run every code cell in order, going on after an error, as a learner would who runs them one by one.

    `tell` gets the number of each cell before it runs."""
    limits = limits or Limits()
    cells = [
        (index, cell.source) for index, cell in enumerate(nb.cells) if cell.cell_type == "code"
    ]
    deadline = time.monotonic() + limits.total_seconds
    done: dict[int, CellRun] = {}
    for _ in range(_MAX_RESTARTS):
        with _Kernel(folder, limits, sandbox) as kernel:
            if not _run_until_death(kernel, cells, done, deadline, tell):
                break
    return [done.get(index, CellRun(index, "not reached")) for index, _ in cells]


def _run_until_death(
    kernel: _Kernel,
    cells: list[tuple[int, str]],
    done: dict[int, CellRun],
    deadline: float,
    tell: Callable[[int], None] | None,
) -> bool:
    """Run `cells`, adding to `done`; True if the kernel died on the way, so that the rest needs a fresh one.

    A cell that was run by an earlier kernel is run again for what it defines, unless it was its death.
    """
    for index, source in cells:
        if index in done and done[index].outcome not in ("ok", "error"):
            continue
        if time.monotonic() > deadline:
            return False
        if tell:
            tell(index)
        run = kernel.run(index, source, deadline)
        done.setdefault(index, run)
        if not kernel.alive:
            done[index] = run
            return True
    return False


class _Kernel:
    """An IPython kernel of this very Python, watched from outside while a cell runs."""

    def __init__(self, folder: Path, limits: Limits, sandbox: Sandbox | None = None) -> None:
        self.folder = folder
        self.limits, self.sandbox = limits, sandbox
        self.next_look = 0.0  # when the limits are looked at again, whichever cell runs then
        self.warm: int | None = None  # the kernel's process, where it was forked into its sandbox
        if not (sandbox and NURSERY.is_worth_it() and self._start_warm(sandbox)):
            self._start(this_python(sandbox))
        self.client = self.manager.client()
        self.client.start_channels()

    def _start(self, kernels: Any) -> None:
        """Start the process that is a kernel, or holds the sandbox of one."""
        from jupyter_client.manager import KernelManager

        options: dict[str, Any] = {}
        environment: dict[str, Any] = {}
        # there is no network inside: sockets are files in its folder, which a kernel before may have filled
        if self.sandbox:
            for left in self.sandbox.folder.iterdir():
                remove(left) if left.is_dir() and not left.is_symlink() else left.unlink()
            place = tempfile.mkdtemp(prefix="k", dir=self.sandbox.folder)
            options = {"transport": "ipc", "ip": f"{place}/s", "connection_file": f"{place}/c.json"}
            environment = {"env": self.sandbox.environment()}
        self.manager = KernelManager(kernel_spec_manager=kernels, kernel_name="python3", **options)
        self.manager.start_kernel(
            cwd=str(self.folder),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **environment,
        )

    def _start_warm(self, sandbox: Sandbox) -> bool:
        """Make the sandbox with a process that sleeps in it, and fork a kernel into it. False: it could not be done here."""
        self._start(this_python(sandbox, SLEEPER))
        provisioner: Any = self.manager.provisioner
        sleeper = sleeper_in(provisioner.pid)
        if sleeper is not None:
            pen = str(sandbox.pen or "")
            connection = self.manager.connection_file
            self.warm = NURSERY.fork_into(Wanted(sleeper, connection, str(self.folder), pen))
        if self.warm is None:
            self._kill()
        return self.warm is not None

    def __enter__(self) -> _Kernel:
        try:
            self.client.wait_for_ready(timeout=60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        self.client.stop_channels()
        self._kill()

    @property
    def alive(self) -> bool:
        return bool(self.manager.is_alive())

    def run(self, index: int, source: str, deadline: float) -> CellRun:
        """Run one cell to its end, or stop it when it passes a limit."""
        request = self.client.execute(source, allow_stdin=False, stop_on_error=False)
        seconds = self.limits.cell_seconds + (self.limits.import_seconds if index == 0 else 0)
        stop_at = min(time.monotonic() + seconds, deadline)
        interrupted, error, printed = False, {}, 0
        while True:
            now = time.monotonic()
            if now >= self.next_look:
                self.next_look = now + _LOOK_EVERY
                if STOP.is_set():
                    raise Stopped
                if outcome := self._trouble():
                    self._kill()
                    return CellRun(index, outcome)
                if now > stop_at + self.limits.grace_seconds:
                    self._kill()
                    return CellRun(index, "time")
                if now > stop_at and not interrupted:
                    interrupted = True
                    self.manager.interrupt_kernel()
            try:
                message = self.client.get_iopub_msg(timeout=_LOOK_EVERY)
            except queue.Empty:
                continue
            printed += _length(message["content"])  # a thread of an earlier cell may print as well
            if printed > self.limits.output_bytes:
                self._kill()
                return CellRun(index, "output")
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "error":
                error = message["content"]
            elif (
                message["msg_type"] == "status" and message["content"]["execution_state"] == "idle"
            ):
                break
        if interrupted:
            return CellRun(index, "time")
        if error:
            return CellRun(
                index,
                "error",
                error["ename"],
                error["evalue"],
                _plain("\n".join(error["traceback"])),
            )
        if not self._said_ok(request):
            return CellRun(index, "error", "Exception", "(its text cannot be shown)")
        return CellRun(index, "ok")

    def _said_ok(self, request: str) -> bool:
        """Whether the kernel says itself that this cell ended well: an error whose text cannot be sent shows nowhere else."""
        end = time.monotonic() + self.limits.grace_seconds
        while (left := end - time.monotonic()) > 0:
            try:
                message = self.client.get_shell_msg(timeout=left)
            except queue.Empty:
                break
            if message["parent_header"].get("msg_id") == request:
                return bool(message["content"].get("status") == "ok")
        return False

    def _trouble(self) -> Outcome | None:
        """Which limit the kernel and its children pass now, if any."""
        if not self.alive:
            return "died"
        family = self._family()
        if len(family) > self.limits.processes:
            return "processes"
        if sum(_resident(process) for process in family) > self.limits.memory_bytes:
            return "memory"
        if self.sandbox:
            nameless = _nameless_bytes(process.pid for process in family)
            if (
                nameless + _size_of(self.sandbox.folder, self.limits.folder_bytes)
                > self.limits.folder_bytes
            ):
                return "files"
        return None

    def _family(self) -> list[Any]:
        import psutil

        provisioner: Any = self.manager.provisioner
        family: list[Any] = []
        for pid in filter(None, (provisioner.pid, self.warm)):
            with suppress(psutil.Error):
                first = psutil.Process(pid)
                family += [first, *first.children(recursive=True)]
        return family

    def _kill_children(self) -> None:
        for process in self._family()[1:]:
            try:
                process.kill()
            except Exception:  # it ended by itself
                pass

    def _kill(self) -> None:
        """The kernel and its children; of a control group, whoever is in it: the next kernel needs the room."""
        self._kill_children()
        if self.sandbox and self.sandbox.pen:
            empty(self.sandbox.pen)
        self.manager.shutdown_kernel(now=True)


def _resident(process: Any) -> int:
    """Bytes of memory; what a fork shares with others counts for each in part."""
    with suppress(OSError, StopIteration):
        rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        return int(next(row for row in rows if row.startswith("Pss:")).split()[1]) << 10
    try:
        return int(process.memory_info().rss)
    except Exception:  # it ended between the two looks
        return 0


def _nameless_bytes(pids: Iterable[int]) -> int:
    """Bytes of files that are open and have no name (deleted, or made by `memfd_create`): no folder shows them."""
    found: dict[tuple[int, int], int] = {}
    for pid in pids:
        for number in _listed(f"/proc/{pid}/fd"):
            try:
                about = os.stat(f"/proc/{pid}/fd/{number}")
            except OSError:  # it is closed already
                continue
            if stat.S_ISREG(about.st_mode) and not about.st_nlink:
                found[about.st_dev, about.st_ino] = about.st_blocks * 512
    return sum(found.values())


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # the process is gone, or the system has no /proc
        return []


def _length(content: dict[str, Any]) -> int:
    """How much a message brings: text, pictures, or an error."""
    parts = [content.get(name, "") for name in ("text", "data", "evalue", "traceback")]
    return sum(len(part if isinstance(part, str) else str(part)) for part in parts)


def _size_of(folder: Path, enough: int) -> int:
    """Bytes in a folder, a file or folder counting as 4096 at least; it stops to count at `enough`.

    What is nested so deeply that its path is too long cannot be counted: that is more than enough.
    """
    total, left = 0, [str(folder)]
    while left and total <= enough:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    left += [entry.path] if entry.is_dir(follow_symlinks=False) else []
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


def this_python(sandbox: Sandbox | None = None, program: list[str] | None = None) -> Any:
    """A list of kernels with one entry: the Python that is running now, whatever is registered on the machine.

    `program`: what is started in its place, in the same sandbox.
    """
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    class ThisPython(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            about = get_kernel_dict()
            if sandbox:  # a signal does not reach into it: interrupt by message
                words = program or about["argv"]
                about |= {"argv": [*sandbox.command(), *words], "interrupt_mode": "message"}
            return KernelSpec(resource_dir=RESOURCES, **about)

    return ThisPython()


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
