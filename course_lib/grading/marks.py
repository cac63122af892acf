"""`course check NN`: a learner marks their own exercise notebook.

In:  `exercises/NN_name/NN_name.ipynb` as the learner left it. Out: a `Report` with one `Mark` for each exercise.

The checks that run are the ones from the course, put back over whatever stands in the learner's checks cells: those that the
notebook shows, and those that it does not.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from .cell_ids import with_names
from .notebooks import (
    GradedCell,
    Lesson,
    Notebook,
    graded_cells,
    grading_metadata,
    is_solution,
    read,
)
from .probes import with_probes
from .runner import CellRun, Limits, run_notebook
from .sandbox import Sandbox

_REASONS = {
    "time": "It ran longer than {limits.cell_seconds:g} seconds and was stopped. Is there a loop that never ends?",
    "memory": "It used more than {gigabytes:g} GiB of memory and was stopped.",
    "processes": "It started more than {limits.processes} processes and was stopped.",
    "files": "It wrote more than {folder:g} GiB of files, or nested folders without end, and was stopped.",
    "output": "It printed more than {printed:g} MiB and was stopped.",
    "died": "The Python process crashed while this ran.",
    "not reached": "It was not run: earlier cells took all {limits.total_seconds:g} seconds, or ended the process too often.",
}


LONGEST = 4000  # letters of a reason
_NO_ANSWER = (
    "raise NotImplementedError('Exercise: the cell for this answer is not there any more.')"
)


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
        lines = [
            self.name,
            "",
            *map(str, self.marks),
            "",
            f"{self.points:g} of {self.out_of:g} points",
        ]
        return "\n".join(lines)


def mark_exercise(lesson: Lesson, path: Path | None = None, limits: Limits | None = None) -> Report:
    """Run the learner's notebook (`path`, else the lesson's own exercise file) and mark it by all checks, hidden ones too."""
    path = path or lesson.exercise
    nb = assembled(read(path), read(lesson.solution))
    return mark_notebook(nb, lesson.name, path.resolve().parent, limits)


def mark_notebook(nb: Notebook, name: str, folder: Path, limits: Limits | None = None) -> Report:
    """Run `nb` as it is and mark its checks cells."""
    limits = limits or Limits()
    runs = {run.index: run for run in run_notebook(nb, folder, limits)}
    return Report(name, tuple(_mark(cell, runs, limits) for cell in graded_cells(nb)))


def mark_submission(
    learners: Notebook, reference: Notebook, name: str, limits: Limits, sandbox: Sandbox | None
) -> Report:
    """Mark a stranger's notebook by all checks of `reference` (with hidden tests, without its answers), and look whether it
    tampered with them."""
    nb = assembled(learners, reference)
    cells = graded_cells(nb)
    probes = with_probes(nb)
    folder = sandbox.folder if sandbox else Path.cwd()
    runs = {run.index: run for run in run_notebook(probes.nb, folder, limits, sandbox)}
    marks = [_mark(cell, probes.without(runs), limits) for cell in cells]
    said = [probes.complaint(cell.index, runs) for cell in cells]
    return Report(
        name,
        tuple(
            replace(m, points=0.0, reason=why) if why else m
            for m, why in zip(marks, said, strict=True)
        ),
    )


def assembled(learners: Notebook, reference: Notebook) -> Notebook:
    """The course's notebook with the learner's answers in it. Checks and given cells are the course's, whatever the learner made
    of them; cells that the learner added stay where they are, and are worth nothing."""
    learners = with_names(learners)  # a copy of an old exercise has ids that count
    answers = {
        grading_metadata(c)["grade_id"]: c.source
        for c in learners.cells[::-1]
        if grading_metadata(c).get("grade_id")
    }
    ours = {_key(cell) for cell in reference.cells}
    added: dict[Any, list[Any]] = {}
    after: Any = None
    for cell in learners.cells:
        if _key(cell) in ours:
            after = _key(cell)
        elif cell.cell_type == "code":
            added.setdefault(after, []).append(new_code_cell(cell.source))
    cells = list(added.get(None, []))
    for cell in copy.deepcopy(reference.cells):
        if is_solution(cell):
            cell.source = answers.get(grading_metadata(cell)["grade_id"], _NO_ANSWER)
        cells += [cell, *added.get(_key(cell), [])]
    return nbformat.from_dict({**reference, "cells": cells})


def _key(cell: Any) -> Any:
    """What a cell is known by: its name for grading, else its id."""
    return grading_metadata(cell).get("grade_id") or ("id", cell.get("id"))


def _mark(cell: GradedCell, runs: dict[int, CellRun], limits: Limits) -> Mark:
    run = runs[cell.index]
    points = cell.points if run.ok else 0.0
    return Mark(
        cell.title,
        cell.grade_id,
        points,
        cell.points,
        "" if run.ok else _reason(cell, runs, limits),
    )


def _reason(cell: GradedCell, runs: dict[int, CellRun], limits: Limits) -> str:
    """One sentence, or the check's own What, Why, Expected and Got. An earlier cell that failed is the likelier cause."""
    run = runs[cell.index]
    if run.ename == "CheckFailed":
        return run.evalue if len(run.evalue) <= LONGEST else f"{run.evalue[:LONGEST]} …"
    if run.ename == "NotImplementedError":
        return "Not written yet."
    before = next((runs[i] for i in range(cell.index - 1, -1, -1) if i in runs), None)
    if before is not None and not before.ok and run.ename == "NameError":
        return f"The cell above it did not finish: {how_it_ended(before, limits)}"
    return how_it_ended(run, limits)


def how_it_ended(run: CellRun, limits: Limits) -> str:
    if run.outcome in _REASONS:
        sizes = {"gigabytes": limits.memory_bytes / 2**30, "folder": limits.folder_bytes / 2**30}
        return _REASONS[run.outcome].format(
            limits=limits, printed=limits.output_bytes / 2**20, **sizes
        )
    said = f"{run.ename}: {run.evalue}" if run.evalue else run.ename
    return said if len(said) <= LONGEST else f"{said[:LONGEST]} …"
