"""What can go wrong on this machine rather than in the program.

In PyTorch: `torch/_inductor/exc.py`, `CppCompileError`, `InvalidCxxCompiler`, `TritonMissing`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path


class BackendMissing(RuntimeError):
    """Something that generated code needs is not installed. The message says what, and how to get it."""


class CompileFailed(RuntimeError):
    """The machine's compiler rejected generated source. `source` is the file, kept for a look."""

    def __init__(self, command: Sequence[str], stderr: str, source: Path) -> None:
        self.command, self.stderr, self.source = tuple(command), stderr, source
        first = "\n".join(f"    {line}" for line in stderr.splitlines()[:8]) or "    (it printed nothing)"
        super().__init__(f"the C++ compiler failed on {source}\n  command: {' '.join(command)}\n  it said:\n{first}")


_said: set[str] = set()


def warn_once(message: str) -> None:
    """A warning, the first time only."""
    if message not in _said:
        _said.add(message)
        warnings.warn(message, stacklevel=3)
