"""`course start --all FOLDER`: the course's notebooks for who installed a wheel and has no clone.

In:  the notebooks that the wheel carries (`course_lib/_course/`), or those of this clone. Out: a
folder laid out like a clone: `notebooks/`, `exercises/`, `solutions/`, and the learner's copies in
`work/`.

    found = source()                    # where the notebooks are that this package carries
    said = write_course(found, folder)  # what was written, kept or put beside

The same command later brings a newer version. `.course-files.json` remembers what was written: a
file that is still as it was written is replaced. One that the learner changed stays, and the new
one is put beside it as `NAME.new.ipynb`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from .notebooks import CourseError
from .writing import Seen, write

CARRIED = Path(__file__).parents[1] / "_course"
"""Where a wheel has the course's files."""
FOLDERS = ("notebooks", "exercises", "solutions")
KINDS = (".ipynb", ".md")
"""Files of other kinds in these folders are no part of the course."""
MEMORY = ".course-files.json"
"""What was written into a folder: name → digest of the content."""


@dataclass
class Written:
    """What `write_course` did, by path relative to the folder."""

    folder: Path
    new: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        counts = [
            f"{len(self.new)} new",
            f"{len(self.replaced)} replaced by newer ones",
            f"{len(self.same)} unchanged",
        ]
        lines = [f"{self.folder}: {', '.join(counts)}"]
        lines += [
            f"    {path} has changes of yours and stays; the new one is {beside(path)}"
            for path in self.beside
        ]

        return "\n".join(lines)


def source() -> Path:
    """The folder whose notebooks belong to this package: the wheel's, else the clone's."""
    clone = Path(__file__).resolve().parents[2]

    for folder in (CARRIED, clone):
        if (folder / "solutions").is_dir():
            return folder

    raise CourseError(
        "This installation carries no notebooks. Install a wheel that was built from the repository, or clone it."
    )


def write_course(origin: Path, folder: Path) -> Written:
    """Write the course's files into `folder`, and say what became of each."""
    if folder.exists() and not folder.is_dir():
        raise CourseError(f"{folder} is a file. Name a folder for the course.")
    if folder.resolve() == origin.resolve():
        raise CourseError(
            f"{folder} is the clone itself: its notebooks are there. Say `course start`."
        )

    report = Written(folder)
    remembered = memory_of(folder)

    for path in course_files(origin):
        name = path.relative_to(origin).as_posix()
        data = path.read_bytes()

        # A file that the learner changed is still remembered as it was written first.
        place = write_file(folder, name, data, remembered, report)
        if place == name:
            remembered[name] = digest(data)

    memory = json.dumps(remembered, indent=1, sort_keys=True) + "\n"
    write(Seen.of(folder / MEMORY), memory.encode())
    return report


def write_file(
    folder: Path, name: str, data: bytes, remembered: dict[str, str], done: Written
) -> str:
    """Write one file, or the new one beside it where the learner changed it.

    Returns the name it got."""
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    file_before = Seen.of(target)

    if file_before.data is None:
        write(file_before, data)
        done.new.append(name)
        return name

    if file_before.data == data:
        done.same.append(name)
        return name

    # It is as this command wrote it: nobody has worked in it.
    if digest(file_before.data) == remembered.get(name):
        write(file_before, data)
        done.replaced.append(name)
        return name

    write(Seen.of(folder / beside(name)), data)
    done.beside.append(name)
    return beside(name)


def course_files(origin: Path) -> list[Path]:
    """The notebooks and texts of the course; nothing that an editor left beside them."""
    files = []

    for folder in FOLDERS:
        for path in sorted((origin / folder).rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(origin).parts)
            if path.suffix in KINDS and path.is_file() and not hidden:
                files.append(path)

    return files


def beside(name: str) -> str:
    """`notebooks/03_graph_breaks.ipynb` → `notebooks/03_graph_breaks.new.ipynb`."""
    stem, _, suffix = name.rpartition(".")
    return f"{stem}.new.{suffix}"


def memory_of(folder: Path) -> dict[str, str]:
    """Digests of the files that were written here before; a memory that cannot be read counts as
    none."""
    try:
        content = json.loads((folder / MEMORY).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}

    if not isinstance(content, dict):
        return {}
    return {name: value for name, value in content.items() if isinstance(value, str)}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
