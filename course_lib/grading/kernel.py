"""An IPython kernel in a process of its own, watched from outside while a cell runs.

In:  a folder, `Limits`, a sandbox or none; the text of a cell. Out: one `CellRun`: how that cell
     ended.

A cell that passes a limit is interrupted or killed. Where many submissions are marked, the kernel
is forked from a process that has imported torch already (`warm`); else it is started in the
ordinary way.
"""

from __future__ import annotations

import queue
import re
import subprocess
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .sandbox import Sandbox, empty
from .usage import length_of, nameless_bytes, remove, resident_bytes, size_of
from .warm import NURSERY, SLEEPER, Wanted, sleeper_in

Outcome = Literal[
    "ok", "error", "time", "memory", "processes", "files", "output", "died", "not reached"
]
_LOOK_EVERY = 0.2  # seconds between two looks at the kernel's memory and clock
_STARTS = 3  # so often a kernel is started that ends before a cell has run
_READY_SECONDS = 120  # that a start may take on a busy machine

# Set when nobody waits for the marks any more: all kernels end, in whichever thread they are
# driven.
STOP = threading.Event()


class Stopped(Exception):
    """The notebook was not run to its end, for `STOP` was set."""


class LimitPassed(Exception):
    """A cell went over the limit called `outcome`."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome)
        self.outcome = outcome


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


class Kernel:
    """An IPython kernel of this very Python, watched from outside while a cell runs."""

    def __init__(self, folder: Path, limits: Limits, sandbox: Sandbox | None = None) -> None:
        self.folder = folder
        self.limits, self.sandbox = limits, sandbox
        self.interrupted = False  # whether the cell that runs was asked to stop
        self.next_look = 0.0  # when the limits are looked at again, whichever cell runs then
        self.warm: int | None = None  # the kernel's process, where it was forked into its sandbox
        self._start()

    def _start(self) -> None:
        """Start a kernel, and listen to it."""
        self.warm = None
        sandbox = self.sandbox
        if not (sandbox and NURSERY.is_worth_it() and self._start_warm(sandbox)):
            self._start_process(this_python(sandbox))
        self.client = self.manager.client()
        self.client.start_channels()

    def _start_process(self, kernels: Any) -> None:
        """Start the process that is a kernel, or holds the sandbox of one."""
        from jupyter_client.manager import KernelManager

        options: dict[str, Any] = {}
        environment: dict[str, Any] = {}
        # There is no network inside: sockets are files in its folder, which a kernel before may
        # have filled.
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
        """Make the sandbox with a process that sleeps in it, and fork a kernel into it.

        False: it could not be done here."""
        self._start_process(this_python(sandbox, SLEEPER))
        provisioner: Any = self.manager.provisioner
        sleeper = sleeper_in(provisioner.pid)
        if sleeper is not None:
            pen = str(sandbox.pen or "")
            connection = self.manager.connection_file
            self.warm = NURSERY.fork_into(Wanted(sleeper, connection, str(self.folder), pen))

        if self.warm is None:
            self._kill()

        return self.warm is not None

    def __enter__(self) -> Kernel:
        """Wait until the kernel answers.

        A kernel that ends before that has run nothing of the learner's. Outside a sandbox it may
        have lost its port to another program: the port is chosen before the kernel opens it. So
        another one is started.
        """
        starts = 1
        while True:
            try:
                self.client.wait_for_ready(timeout=_READY_SECONDS)
                return self
            except BaseException as error:
                has_ended = isinstance(error, RuntimeError) and not self.alive
                self.__exit__()
                if not has_ended or starts == _STARTS:
                    raise
            starts += 1
            self._start()

    def __exit__(self, *exception: Any) -> None:
        self.client.stop_channels()
        self._kill()

    @property
    def alive(self) -> bool:
        return bool(self.manager.is_alive())

    def run(self, index: int, source: str, deadline: float) -> CellRun:
        """Run one cell to its end, or stop it when it passes a limit."""
        # The first cell imports torch.
        seconds = self.limits.cell_seconds
        if index == 0:
            seconds += self.limits.import_seconds

        request = self.client.execute(source, allow_stdin=False, stop_on_error=False)
        stop_at = min(time.monotonic() + seconds, deadline)
        try:
            error = self._follow(request, stop_at)
        except LimitPassed as limit:
            self._kill()
            return CellRun(index, limit.outcome)

        if self.interrupted:
            return CellRun(index, "time")
        if error:
            traceback = without_colours("\n".join(error["traceback"]))
            return CellRun(index, "error", error["ename"], error["evalue"], traceback)
        if not self._said_ok(request):
            return CellRun(index, "error", "Exception", "(its text cannot be shown)")
        return CellRun(index, "ok")

    def _follow(self, request: str, stop_at: float) -> dict[str, Any]:
        """Read what the kernel sends until this cell has ended; its error comes back, empty where
        there is none.

        Raises `LimitPassed` where a limit was passed.
        """
        self.interrupted = False
        error: dict[str, Any] = {}
        printed = 0
        while True:
            self._look(stop_at)
            try:
                message = self.client.get_iopub_msg(timeout=_LOOK_EVERY)
            except queue.Empty:
                continue

            content = message["content"]
            printed += length_of(content)  # a thread of an earlier cell may print as well
            if printed > self.limits.output_bytes:
                raise LimitPassed("output")

            # It is a message of another cell, or of the kernel's start.
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] == "error":
                error = content
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return error

    def _look(self, stop_at: float) -> None:
        """Now and then: is a limit passed, or the time over?

        A cell is interrupted first, and gets a while to end by itself."""
        now = time.monotonic()
        if now < self.next_look:
            return

        self.next_look = now + _LOOK_EVERY
        if STOP.is_set():
            raise Stopped
        if outcome := self._trouble():
            raise LimitPassed(outcome)
        if now > stop_at + self.limits.grace_seconds:
            raise LimitPassed("time")
        if now > stop_at and not self.interrupted:
            self.interrupted = True
            self.manager.interrupt_kernel()

    def _said_ok(self, request: str) -> bool:
        """Whether the kernel says itself that this cell ended well: an error whose text cannot be
        sent shows nowhere else."""
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
        if sum(resident_bytes(process) for process in family) > self.limits.memory_bytes:
            return "memory"
        if self.sandbox:
            # Files that were deleted and are still open fill the disk, and are in no folder.
            deleted_but_open = nameless_bytes(process.pid for process in family)
            most = self.limits.folder_bytes
            if deleted_but_open + size_of(self.sandbox.folder, most) > most:
                return "files"

        return None

    def _family(self) -> list[Any]:
        """The kernel and all processes that it started; first of all the process that was started
        here."""
        import psutil

        provisioner: Any = self.manager.provisioner
        family: list[Any] = []
        for pid in filter(None, (provisioner.pid, self.warm)):
            with suppress(psutil.Error):
                first = psutil.Process(pid)
                family += [first, *first.children(recursive=True)]
        return family

    def _kill_children(self) -> None:
        """All of the family but the first, which `shutdown_kernel` ends."""
        for process in self._family()[1:]:
            try:
                process.kill()
            except Exception:  # it ended by itself
                pass

    def _kill(self) -> None:
        """The kernel and its children; of a control group, whoever is in it: the next kernel needs
        the room."""
        self._kill_children()
        if self.sandbox and self.sandbox.pen:
            empty(self.sandbox.pen)
        self.manager.shutdown_kernel(now=True)


def this_python(sandbox: Sandbox | None = None, program: list[str] | None = None) -> Any:
    """A list of kernels with one entry: the Python that is running now, whatever is registered on
    the machine.

    `program`: what is started in its place, in the same sandbox.
    """
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    class ThisPython(KernelSpecManager):
        def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
            kernel_dict = get_kernel_dict()
            if sandbox:  # a signal does not reach into it: interrupt by message
                words = program or kernel_dict["argv"]
                kernel_dict |= {"argv": [*sandbox.command(), *words], "interrupt_mode": "message"}
            return KernelSpec(resource_dir=RESOURCES, **kernel_dict)

    return ThisPython()


def without_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
