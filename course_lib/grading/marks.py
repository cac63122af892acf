"""`course check NN`: a learner marks their own exercise notebook.

In:  `exercises/NN_name/NN_name.ipynb` as the learner left it. Out: a `Report` with one `Mark` for each exercise.

The checks that run are the ones from the course, put back over whatever stands in the learner's checks cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .generate import exercise_from
from .notebooks import GradedCell, Lesson, Notebook, graded_cells, grading_metadata, is_checks, read
from .runner import CellRun, Limits, run_notebook

_REASONS = {
    "time": "It ran longer than {limits.cell_seconds:g} seconds and was stopped. Is there a loop that never ends?",
    "memory": "It used more than {gigabytes:g} GiB of memory and was stopped.",
    "processes": "It started more than {limits.processes} processes and was stopped.",
    "died": "The Python process crashed while this ran.",
    "not reached": "It was not run: the notebook as a whole took longer than {limits.total_seconds:g} seconds.",
}


@dataclass(frozen=True)
class Mark:
    """What one exercise earned, and why not more."""

    exercise: str
    grade_id: str
    points: float
    out_of: float
    reason: str = ""

    @property
    def full(self) -> bool:
        return self.points == self.out_of

    def __str__(self) -> str:
        head = f"{'✓' if self.full else '✗'} {self.exercise:<56} {self.points:g} of {self.out_of:g}"
        return head + "".join(f"\n    {line}" for line in self.reason.strip().splitlines())


@dataclass(frozen=True)
class Report:
    """The marks of one exercise notebook."""

    name: str
    marks: tuple[Mark, ...]

    @property
    def points(self) -> float:
        return sum(mark.points for mark in self.marks)

    @property
    def out_of(self) -> float:
        return sum(mark.out_of for mark in self.marks)

    def __str__(self) -> str:
        lines = [self.name, "", *map(str, self.marks), "", f"{self.points:g} of {self.out_of:g} points"]
        return "\n".join(lines)


def mark_exercise(lesson: Lesson, path: Path | None = None, limits: Limits | None = None) -> Report:
    """Run the learner's notebook (`path`, else the lesson's own exercise file) and mark it."""
    path = path or lesson.exercise
    nb = with_course_checks(read(path), exercise_from(read(lesson.solution)))
    return mark_notebook(nb, lesson.name, path.resolve().parent, limits)


def mark_notebook(nb: Notebook, name: str, folder: Path, limits: Limits | None = None) -> Report:
    """Run `nb` as it is and mark its checks cells."""
    limits = limits or Limits()
    runs = {run.index: run for run in run_notebook(nb, folder, limits)}
    return Report(name, tuple(_mark(cell, runs, nb, limits) for cell in graded_cells(nb)))


def with_course_checks(learners: Notebook, reference: Notebook) -> Notebook:
    """`learners` with every checks cell as it is in `reference`; one that was deleted comes back at the end."""
    course = {grading_metadata(cell)["grade_id"]: cell for cell in reference.cells if is_checks(cell)}
    there = set()
    for cell in learners.cells:
        grade_id = grading_metadata(cell).get("grade_id")
        if grade_id in course and grade_id not in there:
            there.add(grade_id)
            cell.cell_type, cell.source = "code", course[grade_id].source
            cell.metadata.nbgrader = course[grade_id].metadata.nbgrader
    learners.cells += [cell for grade_id, cell in course.items() if grade_id not in there]
    return learners


def _mark(cell: GradedCell, runs: dict[int, CellRun], nb: Notebook, limits: Limits) -> Mark:
    run = runs[cell.index]
    points = cell.points if run.ok else 0.0
    return Mark(cell.title, cell.grade_id, points, cell.points, "" if run.ok else _reason(run, cell, runs, nb, limits))


def _reason(run: CellRun, cell: GradedCell, runs: dict[int, CellRun], nb: Notebook, limits: Limits) -> str:
    """One sentence, or the check's own What, Why, Expected and Got. An earlier cell that failed is the likelier cause."""
    if run.outcome in _REASONS:
        return _REASONS[run.outcome].format(limits=limits, gigabytes=limits.memory_bytes / 2**30)
    if run.ename == "CheckFailed":
        return run.evalue
    if run.ename == "NotImplementedError":
        return "Not written yet."
    before = next((runs[i] for i in range(cell.index - 1, -1, -1) if i in runs), None)
    if before is not None and not before.ok and run.ename == "NameError":
        return f"The cell above it did not finish: {_short(before, limits)}"
    return _short(run, limits)


def _short(run: CellRun, limits: Limits) -> str:
    if run.outcome in _REASONS:
        return _REASONS[run.outcome].format(limits=limits, gigabytes=limits.memory_bytes / 2**30)
    return f"{run.ename}: {run.evalue}" if run.evalue else run.ename
