"""Where the notebooks are and what their cells say.

In:  the repository's folders. Out: `Lesson`s (a number, a name, the files of its exercise) and a
     notebook's `GradedCell`s.

One number goes through the whole course: `solutions/03_graph_breaks/03_graph_breaks.ipynb` is the
source, `exercises/03_graph_breaks/03_graph_breaks.ipynb` is made from it. The layout is nbgrader's.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from course_lib.languages import phrase

from .cell_ids import give_names, keep_ids
from .errors import CourseError as CourseError
from .reader import read_notebook

BEGIN_SOLUTION, END_SOLUTION = "BEGIN SOLUTION", "END SOLUTION"
BEGIN_HIDDEN, END_HIDDEN = "BEGIN HIDDEN TESTS", "END HIDDEN TESTS"
# What stays of a cell's metadata in a stored notebook (`tidy`): what the course or nbgrader uses.
# The rest is what editors note about one window (is the cell folded?), and would be a change each
# time.
_KEPT_METADATA = ("deletable", "editable", "jupyter", "nbgrader", "slideshow", "tags")
KERNELSPEC = {"display_name": "Course (torch.compile)", "language": "python", "name": "course"}
# What the course's kernel tells JupyterLab (`kernelspec`), and Lab writes into each notebook that
# it opens. Stored notebooks have it, so that opening one changes nothing.
LANGUAGE_INFO = {
    "codemirror_mode": {"name": "ipython", "version": 3},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": "ipython3",
    "version": "3",
}

Notebook = Any  # nbformat.NotebookNode: a dict with attributes
Cell = Any


@dataclass(frozen=True)
class Lesson:
    """One lesson's pair of notebooks: the solution, and the exercise made from it."""

    root: Path
    name: str

    @property
    def number(self) -> str:
        """'03' of '03_graph_breaks'."""
        return self.name.split("_", 1)[0]

    @property
    def solution(self) -> Path:
        return self.root / "solutions" / self.name / f"{self.name}.ipynb"

    @property
    def exercise(self) -> Path:
        return self.root / "exercises" / self.name / f"{self.name}.ipynb"

    @property
    def work(self) -> Path:
        """The learner's own folder, which git does not look at."""
        return work_folder(self.root)

    @property
    def copy(self) -> Path:
        """The learner's own copy of the exercise (`copies`)."""
        return self.work / f"{self.name}.ipynb"

    def shown(self, path: Path) -> str:
        """A path of the course as a learner types it."""
        if path.is_relative_to(self.root):
            return str(path.relative_to(self.root))
        return str(path)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class GradedCell:
    """A checks cell: what it is called, the heading it stands under, and what it is worth."""

    index: int
    grade_id: str
    title: str
    points: float
    source: str

    def __str__(self) -> str:
        return f"{self.title} ({self.points:g} points)"


def work_folder(root: Path) -> Path:
    """Where the learner's files are: `work/`, or what the variable COURSE_WORK names."""
    return Path(os.environ.get("COURSE_WORK") or root / "work")


def find_root(start: Path | None = None) -> Path:
    """The repository: the nearest folder at or above `start` with `solutions/`, else the one this
    package is in."""
    start = (start or Path.cwd()).resolve()
    for folder in (start, *start.parents):
        if (folder / "solutions").is_dir():
            return folder

    home = Path(__file__).resolve().parents[2]
    if (home / "pyproject.toml").is_file():
        return home
    raise CourseError(
        "The course's notebooks are not here. Run this from inside the cloned repository, "
        "or say `course start --all FOLDER` to write them into a folder and run it from there."
    )


def lessons(root: Path) -> list[Lesson]:
    """Every lesson that has a solution notebook, in order."""
    paths = sorted((root / "solutions").glob("*/*.ipynb"))
    return [Lesson(root, path.stem) for path in paths if path.stem == path.parent.name]


def find_lesson(root: Path, wanted: str) -> Lesson:
    """The lesson called `wanted`: a number (`2`, `02`) or a name (`02_bytecode_capture`)."""
    all_lessons = lessons(root)
    for lesson in all_lessons:
        if wanted == lesson.name or (
            wanted.isdigit() and lesson.number.isdigit() and int(wanted) == int(lesson.number)
        ):
            return lesson

    known = phrase("none yet")
    if all_lessons:
        known = phrase("{first} to {last}", first=all_lessons[0], last=all_lessons[-1])
    raise CourseError(
        phrase(
            "There is no lesson {name} with exercises. Give a number or a name: {known}.",
            name=repr(wanted),
            known=known,
        )
    )


def read(path: Path) -> Notebook:
    """Read a notebook with its outputs, whichever format it has.

    Commands that mark use `reader.read_notebook`."""
    return read_notebook(path, outputs=True)


def to_text(nb: Notebook) -> str:
    """The notebook as the bytes we store: the same notebook gives the same text."""
    return nbformat.writes(nb, version=4).rstrip("\n") + "\n"


def grading_metadata(cell: Cell) -> dict[str, Any]:
    """What nbgrader says of the cell; nothing, if that is not what nbgrader would write."""
    nbgrader_metadata = cell.metadata.get("nbgrader")
    if isinstance(nbgrader_metadata, dict) and isinstance(
        nbgrader_metadata.get("grade_id", ""), str
    ):
        return dict(nbgrader_metadata)
    return {}


def is_solution(cell: Cell) -> bool:
    """A cell for an answer of the learner's, in code or in words."""
    return bool(grading_metadata(cell).get("solution"))


def is_checks(cell: Cell) -> bool:
    """A cell of checks that a machine marks (a graded solution cell is marked by a person)."""
    return bool(grading_metadata(cell).get("grade")) and not is_solution(cell)


def graded_cells(nb: Notebook) -> list[GradedCell]:
    """The checks cells of a notebook in order, each with the heading it stands under."""
    checks_cells = []
    title = "Exercise"  # for checks above the first heading
    for index, cell in enumerate(nb.cells):
        if cell.cell_type == "markdown":
            headings = re.findall(r"^#{1,6} +(.+?) *$", cell.source, flags=re.MULTILINE)
            title = headings[-1] if headings else title
        elif is_checks(cell):
            cell_metadata = grading_metadata(cell)
            checks_cells.append(
                GradedCell(
                    index,
                    str(cell_metadata.get("grade_id", "")),
                    title,
                    float(cell_metadata.get("points", 0)),
                    cell.source,
                )
            )

    return checks_cells


def code_digest(nb: Notebook) -> str:
    """Another text for other code, in any cell; prose and outputs do not count."""
    code = [cell.source for cell in nb.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()[:16]


def release_digest(nb: Notebook) -> str:
    """Another text for another exercise: the cells' names, sources and points count, outputs do
    not."""
    cells = [
        (cell.get("id"), cell.cell_type, cell.source, grading_metadata(cell)) for cell in nb.cells
    ]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()[:16]


def release_of(nb: Notebook) -> str | None:
    """The exercise that this notebook was made from, as `release_digest` calls it; None for one
    made before that was noted."""
    course_metadata = nb.metadata.get("course")
    release = course_metadata.get("exercise") if isinstance(course_metadata, dict) else None
    if isinstance(release, str):
        return release
    return None


def outputs_digest(nb: Notebook) -> str:
    """Another text for other outputs, in any cell: what a run stored is not edited."""
    outputs = [cell.outputs for cell in nb.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(outputs, sort_keys=True).encode()).hexdigest()[:16]


def tidy(nb: Notebook) -> Notebook:
    """Make a notebook's file depend on its content alone: the course's kernel, no leftover
    metadata, and ids by rule.

    Cells have names (`cell_ids`): a learner's copy of an exercise is merged by them, and a
    translation of a lesson finds its cells by them. Those of a lesson were counted once
    (`cell-07`). They keep that id, wherever other cells are put in.
    """
    nb = nbformat.from_dict(nb)
    nb.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": LANGUAGE_INFO})
    nb.nbformat, nb.nbformat_minor = 4, 5  # the first format in which cells have ids
    for cell in nb.cells:
        kept_metadata = {key: cell.metadata[key] for key in _KEPT_METADATA if key in cell.metadata}
        cell.metadata = nbformat.from_dict(kept_metadata)
    if any(grading_metadata(cell) for cell in nb.cells):
        give_names(nb.cells)
    else:
        keep_ids(nb.cells)
    return nb
