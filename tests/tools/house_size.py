"""`make size`: lines by room, and the two limits that keep the house readable.

In:  the tree. Out: a table on standard output; exit status 1 when a limit is passed.
A line is a line of the formatted file: code, docstrings, comments and blanks alike, so nothing is won by golf.
Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMPILER_LIMIT = 12_000
FILE_LIMIT = 700
SUFFIXES = {".py", ".c", ".h", ".cpp", ".js", ".css"}
ROOMS = ("frames", "capture", "guards", "autograd", "lowering", "scheduling", "codegen", "runtime")
NOT_THE_COMPILER = ("viz", "grading", "bench")
TOP = "top level"


@dataclass(frozen=True)
class Sizes:
    """Lines of every counted file, by its path relative to the root."""

    files: dict[str, int]

    def room(self, name: str) -> dict[str, int]:
        """The files of one room of `course_lib/`, or those at its top level."""
        return {path: n for path, n in self.files.items() if _room_of(path) == name}

    @property
    def rooms(self) -> list[str]:
        """Every room that has files, in the order of the pipeline; what is new comes after, and counts."""
        there = {_room_of(path) for path in self.files} - {None}
        known = [name for name in (TOP, *ROOMS) if name in there]
        return known + sorted(str(name) for name in there - {TOP, *ROOMS, *NOT_THE_COMPILER})

    @property
    def compiler(self) -> int:
        """Everything in `course_lib/` but `viz`, `grading` and `bench`."""
        return sum(n for name in self.rooms for n in self.room(name).values())

    @property
    def too_long(self) -> dict[str, int]:
        """Files of the library; a list of test programs may be as long as it likes."""
        return {path: n for path, n in self.files.items() if n > FILE_LIMIT and path.startswith("course_lib/")}

    @property
    def complaints(self) -> list[str]:
        said = [f"{path} has {n} lines; the limit is {FILE_LIMIT}. Split it." for path, n in self.too_long.items()]
        if self.compiler > COMPILER_LIMIT:
            said.append(f"the compiler has {self.compiler:,} lines; the limit is {COMPILER_LIMIT:,}. Simplify it.")
        return said

    def __str__(self) -> str:
        def row(name: str, files: dict[str, int], note: str = "") -> str:
            return f"{name:<12}{len(files):>6}{sum(files.values()):>9,}  {note}".rstrip()

        rows = [f"{'room':<12}{'files':>6}{'lines':>9}"]
        rows += [row(name, self.room(name)) for name in self.rooms]
        everything = {path: n for name in self.rooms for path, n in self.room(name).items()}
        rows += [row("compiler", everything, f"of {COMPILER_LIMIT:,}"), ""]
        rows += [row(name, files) for name in NOT_THE_COMPILER if (files := self.room(name))]
        rows += [row("tests", {path: n for path, n in self.files.items() if path.startswith("tests/")})]
        longest = max((p for p in self.files if p.startswith("course_lib/")), key=lambda path: self.files[path], default=None)
        if longest:
            rows.append(f"longest file: {longest}, {self.files[longest]} of {FILE_LIMIT}")
        return "\n".join(rows)


def measure(root: Path = ROOT) -> Sizes:
    """Count the lines of `course_lib/` and `tests/` under `root`."""
    found = (p for top in ("course_lib", "tests") for p in sorted((root / top).rglob("*")) if p.suffix in SUFFIXES)
    return Sizes({p.relative_to(root).as_posix(): len(p.read_bytes().splitlines()) for p in found if p.is_file()})


def _room_of(path: str) -> str | None:
    parts = path.split("/")
    if parts[0] != "course_lib":
        return None
    return parts[1] if len(parts) > 2 else TOP


def main() -> int:
    sizes = measure()
    print(sizes)
    for complaint in sizes.complaints:
        print("too big:", complaint)
    return bool(sizes.complaints)


if __name__ == "__main__":
    sys.exit(main())
