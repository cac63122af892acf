"""`course check NN` and `course grade`: a learner's notebook is marked, always in the same way.

In:  a learner's notebook as `reader` gives it, and the course's. Out: a `Report` with one `Mark`
     for each exercise.

    assembled      the course's notebook with the learner's answers and own cells in it
    with_probes    the same with the grader's own cells between them: names, switches, looks for
                   tampering
    run_notebook   every cell in order, in a process of its own, within limits
    reason         why an exercise has no points

`check` and `grade` do the same, in an empty folder; `grade` has a sandbox around it besides.
The checks that run are the ones from the course, put back over whatever stands in the learner's
checks cells: those that the notebook shows, and those that it does not.
PyTorch has no counterpart. nbgrader's is `autograde`.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from course_lib.languages import chosen, phrase

from .assembling import assembled as assembled
from .edition import exercise_in
from .notebooks import GradedCell, Lesson, Notebook, graded_cells, read
from .probes import with_probes
from .reader import read_notebook
from .reasons import Case, reason
from .reasons import how_it_ended as how_it_ended
from .runner import Limits, run_notebook
from .sandbox import Sandbox
from .terminal import filled

TITLE_WIDTH = 56
"""Columns for the title of an exercise, in front of its points."""


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
        points = phrase("{n} of {all}", n=f"{self.points:g}", all=f"{self.out_of:g}")
        head = f"{'✓' if self.full else '✗'} {filled(self.exercise, TITLE_WIDTH)} {points}"
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
        lines = [
            self.name,
            "",
            *map(str, self.marks),
            "",
            phrase("{n} of {all} points", n=f"{self.points:g}", all=f"{self.out_of:g}"),
        ]
        return "\n".join(lines)


def mark_exercise(
    lesson: Lesson,
    path: Path | None = None,
    limits: Limits | None = None,
    tell: Callable[[str], None] | None = None,
) -> Report:
    """Mark the learner's notebook (`path`, else the lesson's own exercise file) as `course grade`
    does, but for the sandbox.

    `tell` gets a line about each exercise when its first cell runs."""
    path = path or lesson.exercise
    learners, reference = read_notebook(path), read(lesson.solution)
    if language := chosen():
        # The headings are what an exercise is called in the report.
        reference = exercise_in(reference, language)
    # It runs in an empty folder: an answer that opens a file of the learner's does not find it, and
    # the reason says so.
    beside = {file.name for file in path.resolve().parent.iterdir()} - {path.name}
    with tempfile.TemporaryDirectory(prefix="course-check-", ignore_cleanup_errors=True) as place:
        return mark(
            learners,
            reference,
            lesson.name,
            limits or Limits(),
            Path(place),
            beside=frozenset(beside),
            tell=tell,
        )


def mark_submission(
    learners: Notebook, reference: Notebook, name: str, limits: Limits, sandbox: Sandbox | None
) -> Report:
    """Mark a stranger's notebook.

    `reference`: the course's, with hidden tests, with answers or without."""
    if sandbox:
        return mark(learners, reference, name, limits, sandbox.folder, sandbox)
    with tempfile.TemporaryDirectory(prefix="course-grade-", ignore_cleanup_errors=True) as place:
        return mark(learners, reference, name, limits, Path(place))


def mark(
    learners: Notebook,
    reference: Notebook,
    name: str,
    limits: Limits,
    folder: Path,
    sandbox: Sandbox | None = None,
    beside: frozenset[str] = frozenset(),
    tell: Callable[[str], None] | None = None,
) -> Report:
    """The one way to marks, for `check` and `grade`: all checks, hidden ones too, and a look
    whether they were tampered with.

    beside: names of files that lie beside the learner's notebook. tell: gets a line about each
    exercise when it begins.
    """
    nb = assembled(learners, reference)
    probes = with_probes(nb)
    before_cell = telling(probes.nb, tell) if tell else None
    all_runs = {
        run.index: run for run in run_notebook(probes.nb, folder, limits, sandbox, before_cell)
    }
    runs = probes.without(all_runs)

    marks: list[Mark] = []
    for cell in graded_cells(nb):
        shadows = probes.shadows(cell.index, all_runs)
        mark = _mark(cell, Case(nb, cell.index, runs, limits, shadows, beside))

        complaint = probes.complaint(cell.index, all_runs)
        if complaint:
            mark = replace(mark, points=0.0, reason=complaint)
        marks.append(mark)
    return Report(name, tuple(marks))


def telling(nb: Notebook, tell: Callable[[str], None]) -> Callable[[int], None]:
    """What to do before each cell runs: say which exercise begins with it."""
    exercises = graded_cells(nb)
    last_told = 0

    def before(index: int) -> None:
        nonlocal last_told
        # A cell belongs to the first exercise whose checks cell is not above it. Cells below the
        # last one belong to none: 0.
        numbers = [n for n, exercise in enumerate(exercises, 1) if index <= exercise.index]
        number = numbers[0] if numbers else 0
        if number <= last_told:
            return

        last_told = number
        title = re.sub(r"^\w+ [\d.]+[:：] *", "", exercises[number - 1].title)  # "Exercise 1.2: "
        tell(phrase("exercise {n} of {all}: {title}", n=number, all=len(exercises), title=title))

    return before


def mark_notebook(nb: Notebook, name: str, folder: Path, limits: Limits | None = None) -> Report:
    """Run `nb` as it is and mark its checks cells.

    Nothing looks for tampering (`with_probes`): this is for the course's own notebooks."""
    limits = limits or Limits()
    runs = {run.index: run for run in run_notebook(nb, folder, limits)}
    marks = [_mark(cell, Case(nb, cell.index, runs, limits)) for cell in graded_cells(nb)]
    return Report(name, tuple(marks))


def _mark(cell: GradedCell, case: Case) -> Mark:
    """All points if the checks cell ran to its end; else none, and why."""
    if case.run.ok:
        return Mark(cell.title, cell.grade_id, cell.points, cell.points)
    return Mark(cell.title, cell.grade_id, 0.0, cell.points, reason(case))
