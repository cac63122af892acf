"""Where a stranger's notebook runs: no network, nothing to write to but its own folder, nothing secret to read.

In:  the folder the kernel works in, and the folders it must not see. Out: the words to put before the kernel's command.

The walls are `bubblewrap`'s (Linux namespaces; no root needed). Time, memory, processes and the size of the folder are watched
from outside by `runner`. What the walls cannot stop is an answer that tampers with the checks inside its own process: that is
what `probes` looks for.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FILE_BYTES = 1 << 30  # the largest single file
TMP_BYTES = 256 << 20  # what fits into the kernel's own /tmp, which is memory
SPARE_PROCESSES = 256  # processes and threads beside those the account has already
WALLS = ("bwrap", *"--unshare-all --die-with-parent --new-session --ro-bind / / --dev /dev --proc /proc".split())


@dataclass(frozen=True)
class Sandbox:
    """`folder` is all that the kernel may write to; `hidden` folders look empty to it."""

    folder: Path
    hidden: tuple[Path, ...] = ()

    def command(self) -> list[str]:
        """What comes before the command of the kernel."""
        package = Path(__file__).resolve().parents[2]
        seen = [Path(sys.prefix), Path(sys.base_prefix), *(Path(p) for p in sys.path if os.path.isabs(p)), package]
        words = [*WALLS, "--unsetenv", "JPY_PARENT_PID"]  # the parent cannot be seen from inside
        for place in (Path("/tmp"), Path.home()):
            words += ["--size", str(TMP_BYTES), "--tmpfs", str(place)]
        words += [w for place in dict.fromkeys(seen) if place.is_dir() for w in ("--ro-bind", str(place), str(place))]
        words += [w for place in self.hidden if place.is_dir() for w in ("--tmpfs", str(place))]
        words += ["--bind", str(self.folder), str(self.folder), "--chdir", str(self.folder), "--"]
        return [*_limits(), *words]

    def environment(self) -> dict[str, str]:
        """Nothing of the teacher's environment (keys, tokens) but where Python and its packages are."""
        mine = {"HOME": str(self.folder), "TMPDIR": "/tmp", "COURSE_CACHE": str(self.folder / "cache")}
        mine |= {"IPYTHONDIR": str(self.folder / "ipython"), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        kept = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "CXX", "CC", "TRITON_INTERPRET")
        return {name: os.environ[name] for name in kept if name in os.environ} | mine


@cache
def why_no_sandbox() -> str:
    """Empty if submissions can be walled in here; else one sentence with what to do."""
    if shutil.which("bwrap") is None:
        return "bubblewrap is not installed (`apt install bubblewrap`; on macOS and Windows grade in a container)"
    tried = subprocess.run([*WALLS, "true"], capture_output=True, text=True)  # Docker allows a part of this: all must be tried
    if tried.returncode:
        why = tried.stderr.strip() or "no reason given"
        return f"bubblewrap cannot make a sandbox here ({why}); what a container must be allowed is in docs/hosting.md"
    return ""


def _limits() -> Sequence[str]:
    """Limits that the kernel of the operating system itself holds."""
    if shutil.which("prlimit") is None:
        return ()
    words = ["prlimit", f"--fsize={FILE_BYTES}", "--core=0"]
    if os.getuid() != 0:  # (root has no such limit: the runner counts)
        words.append(f"--nproc={_threads_of_this_account() + SPARE_PROCESSES}")
    return (*words, "--")


def _threads_of_this_account() -> int:
    import psutil

    mine = [p for p in psutil.process_iter(["uids", "num_threads"]) if p.info["uids"] and p.info["uids"].real == os.getuid()]
    return sum(p.info["num_threads"] or 1 for p in mine)
