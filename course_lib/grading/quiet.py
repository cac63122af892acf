"""While nbgrader runs a checks cell, nothing reaches stderr: nbgrader takes any word there for a failed check.

In:  the environment of a kernel that nbgrader's `autograde` or `validate` started. Out: checks cells without a warning, a line of
a log, or a word of a thread that an earlier cell began. An error of a check is no such word: it is shown as ever.

`checks.py` installs this when it is imported there; every exercise imports it in its first cell. Elsewhere nothing is changed.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

# `check(...)`, `check_equal(...)`: what only a checks cell calls
CHECKS = re.compile(r"^[^#\n]*\bcheck(?:_[a-z]+)?\s*\(", re.MULTILINE)


class Quiet:
    """Before each cell: is it one of checks? Then what is written to the kernel's stderr is dropped until the next cell.

    It ends with the next cell and not with its own, for a subprocess's words may arrive a moment later.
    """

    def __init__(self, stream: Any) -> None:
        self.stream, self.write = stream, stream.write
        self.dropping = False
        stream.write = self._write

    def before_cell(self, info: Any) -> None:
        self.stream.flush()
        self.dropping = bool(CHECKS.search(info.raw_cell or ""))

    def _write(self, text: str) -> Any:
        return len(text) if self.dropping else self.write(text)


def install() -> Quiet | None:
    """Watch the cells of this kernel, if nbgrader started it; else None."""
    if not (os.environ.get("NBGRADER_EXECUTION") or os.environ.get("NBGRADER_VALIDATING")):
        return None
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    if shell is None or kernel is None:
        return None

    quiet = Quiet(sys.stderr)
    shell.events.register("pre_run_cell", quiet.before_cell)
    return quiet
