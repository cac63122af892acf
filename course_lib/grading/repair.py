"""Make submissions such that nbgrader's own commands can mark them.

In:  a class's folder as `collect` gives it. Out: `STUDENT/NN_name/NN_name.ipynb` with each graded
cell once, in a format that nbgrader reads; the file as it was is under `.earlier/`.

nbgrader fails a whole submission for one cell that was copied or split, for a name of a cell that
its gradebook lacks, and for a file that is a little damaged. So the exercise is taken, and the
learner's answers and own cells are put into it, as `course grade` does.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from .collect import Collected, Submission, collect, file_name, write_file
from .marks import assembled
from .notebooks import CourseError, Lesson, Notebook, grading_metadata, read, to_text
from .reader import notebook_from

EDGES = " _-.,+"
"""Signs that `collect` strips from both ends of a learner's name."""


@dataclass
class Repaired:
    """What became of a class's submissions."""

    # How many files were written
    written: int = 0
    # A line about each submission that could not be repaired
    left: list[str] = field(default_factory=list)


def repaired(learners: Notebook, exercise: Notebook) -> Notebook:
    """The exercise with the learner's answers and cells in it; each name for grading is there
    once."""
    nb = copy.deepcopy(assembled(learners, exercise))
    used_names: set[str] = set()

    for cell in nb.cells:
        # the grader's own note about the cell's role, which `assembled` wrote
        cell.metadata.pop("marking", None)
        name = grading_metadata(cell).get("grade_id")
        if name in used_names:
            # the second part of a split answer: it runs, as a cell of the learner's
            cell.metadata = nbformat.from_dict({})
        elif name:
            used_names.add(name)
        # nbgrader runs the notebook itself: outputs of the learner's say nothing there
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None

    return nb


def repair(folder: Path, course: list[Lesson]) -> tuple[Collected, Repaired]:
    """Repair every submission in this folder of a class."""
    collected = collect(folder, course)
    # nbgrader keeps submissions in `submitted`; `collect` looks there, too
    top = folder
    if (folder / "submitted").is_dir():
        top = folder / "submitted"
    return collected, write_repaired(collected, course, top)


def write_repaired(collected: Collected, course: list[Lesson], folder: Path) -> Repaired:
    """Write each submission as nbgrader can read it."""
    exercises = {lesson.name: lesson for lesson in course}
    repaired_report = Repaired()

    for item in collected.submissions:
        lesson = exercises[item.lesson]
        if item.text is None:
            repaired_report.left.append(f"{item.key}: {item.trouble}")
            continue
        path = folder_of(item.student, folder) / item.lesson / f"{item.lesson}.ipynb"
        try:
            repaired_report.written += write_file(path, _bytes_of(item, lesson), folder)
        except OSError as error:
            raise CourseError(f"{path} cannot be written ({error.strerror}).") from None

    return repaired_report


def folder_of(student: str, folder: Path) -> Path:
    """The student's folder.

    One that is there keeps its name, whatever signs it has: by another name nbgrader sees a second
    student."""
    folders = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    folders_of_name = [path for path in folders if path.name == student]
    folders_of_similar_name = [
        path for path in folders if path.name.strip(EDGES) == student.strip(EDGES)
    ]
    for candidates in (folders_of_name, folders_of_similar_name):
        if len(candidates) == 1:
            return candidates[0]
    return folder / file_name(student)


def _bytes_of(item: Submission, lesson: Lesson) -> bytes:
    assert item.text is not None
    learners = notebook_from(item.text.encode(), item.lesson)
    return to_text(repaired(learners, read(lesson.exercise))).encode()
