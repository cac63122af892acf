"""`make size`: how long each room is.

In:  the tree. Out: a table on standard output.

A line is a line of the formatted file: code, docstrings, comments and blanks alike. The table is a report and
no limit: a cap on lines makes packed code. Where a room has `corners/`, its spine (what an ordinary program
runs through) and its corners (special cases) are counted apart. The aim is a spine of 7,000 to 8,000 lines.
Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".c", ".h", ".cpp", ".js", ".css"}
ROOMS = (
    "frames",
    "capture",
    "guards",
    "autograd",
    "lowering",
    "scheduling",
    "codegen",
    "runtime",
)
NOT_THE_COMPILER = ("viz", "grading", "bench", "lessons", "tools")
TOP = "top level"
CORNERS = "corners"


@dataclass(frozen=True)
class Sizes:
    """Lines of every counted file, by its path relative to the root."""

    files: dict[str, int]

    def room(self, name: str) -> dict[str, int]:
        """The files of one room of `course_lib/`, or those at its top level."""
        return {path: n for path, n in self.files.items() if _room_of(path) == name}

    @property
    def rooms(self) -> list[str]:
        """Every room of the compiler that has files, in the order of the pipeline, new ones last."""
        there = {_room_of(path) for path in self.files} - {None}
        known = [name for name in (TOP, *ROOMS) if name in there]
        new = sorted(str(name) for name in there - {TOP, *ROOMS, *NOT_THE_COMPILER})

        return known + new

    @property
    def compiler(self) -> dict[str, int]:
        """The files of all rooms of the compiler: not `viz`, `grading`, `bench`, `lessons`, `tools`."""
        return {path: n for name in self.rooms for path, n in self.room(name).items()}

    def __str__(self) -> str:
        rows = [f"{'room':<12}{'files':>6}{'spine':>9}{'corners':>9}"]
        rows += [_row(name, self.room(name)) for name in self.rooms]
        rows += [_row("compiler", self.compiler), ""]

        for name in NOT_THE_COMPILER:
            if files := self.room(name):
                rows.append(_row(name, files))

        tests = {path: n for path, n in self.files.items() if path.startswith("tests/")}
        rows.append(_row("tests", tests))
        return "\n".join(rows)


def measure(root: Path = ROOT) -> Sizes:
    """Count the lines of `course_lib/` and `tests/` under `root`."""
    found: dict[str, int] = {}

    for top in ("course_lib", "tests"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                name = path.relative_to(root).as_posix()
                found[name] = len(path.read_bytes().splitlines())

    return Sizes(found)


def _row(name: str, files: dict[str, int]) -> str:
    """One line of the table: how many files, and the lines of spine and corners."""
    corners = sum(n for path, n in files.items() if CORNERS in path.split("/"))
    spine = sum(files.values()) - corners

    return f"{name:<12}{len(files):>6}{spine:>9,}{corners:>9,}"


def _room_of(path: str) -> str | None:
    parts = path.split("/")
    if parts[0] != "course_lib":
        return None
    return parts[1] if len(parts) > 2 else TOP


if __name__ == "__main__":
    print(measure())
