"""While nbgrader runs a checks cell, nothing counts as stderr: nbgrader takes any word there for a
failed check.

In:  the environment of a kernel that nbgrader's `autograde` or `validate` started. Out: what a
checks cell writes to stderr (a warning, a line of a log, a word of a program or of a thread) is
shown as its ordinary output. An error of a check is no such word: it is shown as ever.

`checks.py` installs this when it is imported there; every exercise imports it in its first cell.
Elsewhere nothing is changed. The PyTorch counterpart: none.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

# `check(...)`, `check_equal(...)`: what only a checks cell calls
CHECKS = re.compile(r"^[^#\n]*\bcheck(?:_[a-z]+)?\s*\(", re.MULTILINE)


class Quiet:
    """Notes which requests run a checks cell.

    The kernel's thread that sends output asks for each message on stderr."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel
        self.requests: set[str] = set()

    def before_cell(self, info: Any) -> None:
        """Note the request that is about to run, if its cell checks an answer."""
        if CHECKS.search(info.raw_cell or ""):
            self.requests.add(self.kernel.get_parent()["header"]["msg_id"])

    def renamed(self, message: Any) -> Any:
        """The message as it is sent."""
        if message["parent_header"].get("msg_id") in self.requests:
            message["content"]["name"] = "stdout"
        return message


def install() -> Quiet | None:
    """Watch the cells of this kernel, if nbgrader started it; else None."""
    if not (os.environ.get("NBGRADER_EXECUTION") or os.environ.get("NBGRADER_VALIDATING")):
        return None
    from IPython.core.getipython import get_ipython

    shell: Any = get_ipython()
    kernel = getattr(shell, "kernel", None)
    stream: Any = sys.stderr
    if kernel is None or not hasattr(stream, "register_hook"):
        return None

    quiet = Quiet(kernel)

    def register() -> None:
        stream.register_hook(quiet.renamed)

    # hooks belong to the thread that sends
    stream.pub_thread.schedule(register)
    shell.events.register("pre_run_cell", quiet.before_cell)
    return quiet
