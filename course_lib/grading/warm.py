"""A kernel that has imported torch and the course before it starts: most of a marking's time were
those imports.

In:  a sandbox that `bubblewrap` has just made, with a process in it that only sleeps. Out: a kernel
     inside this sandbox.

One process, the nursery, imports what all lessons need and does nothing else. For each submission
it is forked, and the fork enters the sandbox before it becomes a kernel:

    grader ── bwrap ── sleep            the walls, made anew for each submission, as for any kernel
       └───── nursery ── keeper ── kernel   the keeper takes over all that `sleep` has: its
                                            namespaces, limits and rights

So a student's process has the walls of a sandbox of its own. No student's code has run in the
process that it was forked from, and the environment it sees has nothing of the teacher's. When the
kernel ends the keeper ends `sleep`, and with it the sandbox; when the sandbox is killed the
operating system kills all that is in it.

Where that cannot be done (another system than Linux, a container that forbids to enter namespaces)
`fork_into` gives None, and the kernel starts in the ordinary way. The PyTorch counterpart:
`torch/_inductor/compile_worker/subproc_pool.py`, whose workers are forked from one process that has
imported torch.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .sandbox import Sandbox, short_place

# the program that holds a sandbox open until a kernel has moved in: it sleeps for 68 years
SLEEPER = ["sleep", "2147483647"]
WORTH = 3  # the imports take as long as three kernels: for fewer they are not worth it
STARTING = 600  # seconds that the imports may take on a busy machine
ANSWERING = 120  # seconds that the nursery has to answer

# what the lessons' answers and checks import sooner or later
IMPORTED = (
    "course_lib",
    "course_lib.grading.checks",
    "course_lib.viz",
    "course_lib.bench",
    "course_lib.lessons",
    "torch._dynamo",
    "torch._inductor.compile_fx",
    "functorch.compile",
    "sympy.combinatorics",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
)
SERVE = "from course_lib.grading.warm import serve; serve()"


@dataclass(frozen=True)
class Wanted:
    """One kernel: whose sandbox it enters, and what it needs to know.

    The nursery gets it as JSON."""

    # The process id of `sleep` in the sandbox: the kernel takes its place
    sleeper: int
    # The path of the connection file, with the kernel's ports and key
    connection: str
    # The folder that the kernel works in
    folder: str
    # The control group that the kernel is put into (`Sandbox`); "" if there is none
    pen: str = ""


# ---- in the grader -------------------------------------------------------------------------------


class Nursery:
    """The process that is forked.

    One for each process that marks; it is started when the first kernel is wanted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # the process that started it, and that alone may end it
        self._place: Path | None = None  # a folder of its own, which goes when it ends
        self._kernels = 0  # so many were wanted, or are expected
        self.why_not = ""  # why kernels start in the ordinary way

    def is_worth_it(self) -> bool:
        """Whether the next kernel should be forked: on this system, and after some others or where
        more are expected. Asking counts as wanting one."""
        if sys.platform != "linux" or not hasattr(os, "pidfd_open") or self.why_not:
            return False
        self._kernels += 1
        return self._kernels > WORTH

    def expect(self, kernels: int) -> None:
        """Say how many kernels will be wanted."""
        self._kernels += kernels

    def fork_into(self, wanted: Wanted) -> int | None:
        """The process id of a kernel that runs inside the sandbox; None if it cannot be made in
        this way."""
        with self._lock:
            if self.why_not:
                return None
            try:
                answer = self._ask(wanted)
            except (OSError, ValueError) as error:
                answer = {"error": str(error)}

            if "error" in answer:
                self.why_not = str(answer["error"])
                self._end()
                return None

            return int(answer["kernel"])

    def _started(self) -> subprocess.Popen[bytes]:
        """The running nursery.

        It is started first where there is none, or where there is only that of another grader, of
        which this process is a fork."""
        running = self._process is not None and self._process.poll() is None
        if not running or self._owner != os.getpid():
            self._owner = os.getpid()
            self._place = Path(tempfile.mkdtemp(prefix=f"cg{os.getpid()}-", dir=short_place()))
            self._process = subprocess.Popen(
                [sys.executable, "-c", SERVE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                # nothing of the teacher's; each kernel gets the values of its own folder later
                env=Sandbox(self._place).environment(),
                start_new_session=True,  # Ctrl-C is the grader's
            )
            # "ready", once all is imported
            self._answer(STARTING)

        assert self._process is not None

        return self._process

    def _ask(self, wanted: Wanted) -> dict[str, Any]:
        process = self._started()
        assert process.stdin is not None
        process.stdin.write(json.dumps(asdict(wanted)).encode() + b"\n")
        process.stdin.flush()
        return self._answer(ANSWERING)

    def _answer(self, seconds: float) -> dict[str, Any]:
        """The next line of the nursery."""
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            raise OSError("the nursery gives no answer")
        return dict(json.loads(line))

    def _end(self) -> None:
        """End the nursery and remove its folder; in a fork of the grader only forget it."""
        if self._process is not None and self._owner == os.getpid():
            self._process.kill()
            self._process.wait()
            if self._place is not None:
                shutil.rmtree(self._place, ignore_errors=True)
        self._process = None

    def end(self) -> None:
        with self._lock:
            self._end()


NURSERY = Nursery()
atexit.register(NURSERY.end)


def sleeper_in(sandbox_process: int, seconds: float = 20) -> int | None:
    """The process that sleeps in a sandbox, once the sandbox is complete: `bubblewrap` starts it
    last."""
    import psutil

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(psutil.Error):
            for process in psutil.Process(sandbox_process).children(recursive=True):
                if process.cmdline() == SLEEPER:
                    return int(process.pid)

            # It has ended, and nobody has asked how.
            if psutil.Process(sandbox_process).status() == psutil.STATUS_ZOMBIE:
                return None
        if not psutil.pid_exists(sandbox_process):
            return None
        time.sleep(0.005)
    return None


# ---- in the nursery ------------------------------------------------------------------------------

_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
# the flags CLONE_NEW... of <linux/sched.h>, which `setns` takes
_CLONE = {
    "cgroup": 0x02000000,
    "ipc": 0x08000000,
    "mnt": 0x00020000,
    "net": 0x40000000,
    "pid": 0x20000000,
    "user": 0x10000000,
    "uts": 0x04000000,
}
# numbers of <linux/prctl.h>
_PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 4, 24, 38, 47


def serve() -> None:
    """Import, say so, then make a kernel for each line that comes, until the grader is gone."""
    import importlib

    # `python -c` puts the folder that it works in before all others: nothing is imported from there
    if sys.path and sys.path[0] == "":
        del sys.path[0]
    for name in IMPORTED:
        importlib.import_module(name)
    # Collect garbage once, here: what the imports have made is old from now on, and the frequent
    # collections of each kernel look at young objects only.
    import gc

    gc.collect()
    _say({"ready": len(os.listdir("/proc/self/task"))})

    for line in sys.stdin.buffer:
        _bury()
        wanted = Wanted(**json.loads(line))
        kernel = _keeper_of(wanted)
        if kernel is None:
            _become_kernel(wanted)
            return
        _say(kernel)


def _say(words: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _bury() -> None:
    """Take note of keepers that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _keeper_of(wanted: Wanted) -> dict[str, Any] | None:
    """Fork a keeper, which forks the kernel.

    In the kernel None comes back; else what the keeper says."""
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        with open(reading, "rb") as pipe:
            answer = pipe.read()
        if answer:
            return dict(json.loads(answer))
        return {"error": "the keeper ended early"}

    # the keeper: whatever happens, it must not go on as a nursery
    os.close(reading)
    try:
        _without_streams()
        sleeper = os.pidfd_open(wanted.sleeper)
        environment = _environment_of(wanted.sleeper)
        _move_in(wanted, sleeper)
        # Linux puts only children into a new namespace of process ids, not who enters it.
        kernel = os.fork()
        if kernel == 0:
            os.environ.clear()
            os.environ.update(environment)
            return None
    except BaseException as error:
        os.write(writing, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        os._exit(1)
    os.write(writing, json.dumps({"kernel": kernel}).encode())
    os.close(writing)
    with suppress(BaseException):
        os.waitpid(kernel, 0)
    # the sandbox ends with its first process
    with suppress(BaseException):
        signal.pidfd_send_signal(sleeper, signal.SIGKILL)
    os._exit(0)


def _without_streams() -> None:
    """Let go of the nursery's pipes."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)


def _environment_of(process: int) -> dict[str, str]:
    """The environment that a process was started with."""
    words = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    pairs = [word.partition(b"=") for word in words if word]
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def _move_in(wanted: Wanted, sleeper: int) -> None:
    """Take over from the sleeper its control group, its limits, its namespaces and its rights."""
    import resource

    rights = _rights_in(Path(f"/proc/{wanted.sleeper}/status").read_text())
    # Opened now: in the sandbox this process has no place in /proc.
    status_file = os.open("/proc/self/status", os.O_RDONLY)
    if rights.get("Seccomp") != _rights_in(_read(status_file)).get("Seccomp"):
        raise OSError("the sandbox filters system calls: that cannot be taken over")

    # Before the namespaces are entered: inside them the group's folder cannot be seen.
    if wanted.pen:
        Path(wanted.pen, "cgroup.procs").write_text(str(os.getpid()))
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            number = getattr(resource, name)
            resource.setrlimit(number, resource.prlimit(wanted.sleeper, number))

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(sleeper, _namespaces_to_enter(wanted.sleeper)):
        raise OSError(ctypes.get_errno(), "its namespaces cannot be entered")
    _give_up_rights(libc, rights)

    # The last look: a kernel with more rights than the sandbox must not run what a learner wrote.
    now = _rights_in(_read(status_file))
    os.close(status_file)
    if any(now[name] & ~rights[name] for name in ("CapEff", "CapPrm", "CapInh", "CapBnd")):
        raise OSError("it would have more rights than the sandbox")


def _namespaces_to_enter(sleeper: int) -> int:
    """The flags of the sleeper's namespaces that are others than ours: none can be entered twice.

    Raises OSError where the sandbox shares with us what it must not."""
    kinds = 0
    for name in _NAMESPACES:
        namespace = os.stat(f"/proc/{sleeper}/ns/{name}").st_ino
        if namespace != os.stat(f"/proc/self/ns/{name}").st_ino:
            kinds |= _CLONE[name]

    for needed in ("mnt", "pid", "net", "ipc", "uts"):
        if not kinds & _CLONE[needed]:
            raise OSError(f"the sandbox has no {needed} namespace of its own")
    return kinds


def _read(status: int) -> str:
    """What an open file of /proc says now: all of it, from its beginning."""
    return os.pread(status, 1 << 16, 0).decode(errors="replace")


def _rights_in(status: str) -> dict[str, int]:
    """The capabilities of a process, whether it can gain new ones, and whether its system calls are
    filtered."""
    rights = {}
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name.startswith("Cap"):
            rights[name] = int(value, 16)
        elif name in ("NoNewPrivs", "Seccomp"):
            rights[name] = int(value)
    return rights


class _Header(ctypes.Structure):
    """What `capset` is told first: the form of its data, and whose capabilities (0: its own)."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    """32 capabilities, a bit each; `capset` takes two of these."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def _give_up_rights(libc: Any, rights: dict[str, int]) -> None:
    """Keep the capabilities of the sleeper and no others."""
    prctl = libc.prctl
    prctl(_PR_CAP_AMBIENT, 4, 0, 0, 0)  # clear all
    # What is not in this set can never be had again, not by starting a program either.
    for number in range(64):
        if not rights["CapBnd"] >> number & 1:
            prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)

    data = (_Data * 2)()
    for half in range(2):
        shift, low = 32 * half, 0xFFFFFFFF
        data[half].effective = rights["CapEff"] >> shift & low
        data[half].permitted = rights["CapPrm"] >> shift & low
        data[half].inheritable = rights["CapInh"] >> shift & low
    # the third version of the form: 64 capabilities
    header = _Header(0x20080522, 0)
    if libc.capset(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "its rights cannot be given up")
    if rights["NoNewPrivs"] and prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "new rights cannot be ruled out")
    # entering a user namespace makes /proc/self unreadable for the process itself
    prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _become_kernel(wanted: Wanted) -> None:
    """The forked process inside the sandbox: what a new Python would have, then IPython's
    kernel."""
    os.setsid()  # a group of its own: what it sends to its group reaches no keeper
    os.chdir(wanted.folder)
    # nothing of the nursery stays open: no pipe, and no folder outside
    _without_streams()
    os.closerange(3, 1 << 16)

    _forget()
    sys.argv = ["ipykernel_launcher", "-f", wanted.connection]
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=["-f", wanted.connection])


def _forget() -> None:
    """What the imports may have remembered about a folder of the nursery's."""
    import tempfile

    from course_lib import config

    tempfile.tempdir = None
    config.cache_dir.cache_clear()
