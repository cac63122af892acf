"""What can go wrong on this machine rather than in the program. In PyTorch: `torch/_inductor/exc.py` (`CppCompileError`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class BackendMissing(RuntimeError):
    """Something that generated code needs is not installed. The message says what, and how to get it."""


class CompileFailed(RuntimeError):
    """A compiler rejected generated source. `source` is the file, kept for a look."""

    def __init__(self, who: str, command: Sequence[str], said: Sequence[str], source: Path) -> None:
        self.command, self.said, self.source = tuple(command), tuple(said), source
        lines = "\n".join(f"    {line}" for line in said) or "    (it printed nothing)"
        super().__init__(f"{who} failed on {source}\n  command: {' '.join(command)}\n  it said:\n{lines}")
