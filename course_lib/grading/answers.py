"""A learner's answers as live functions: the cells of an exercise notebook, run without its checks.

In:  a lesson, and a folder with the learner's notebooks (`work/`, or `solutions/` for the reference answers).
Out: `Answers`: the names that the cells define, and for each answer why it cannot be used.

The cells around the answers are the course's own, whatever the learner's copy says, as in `course check`. They run in this
process: `capstone` tries them first in one of their own.
"""

from __future__ import annotations

import contextlib
import functools
import io
import linecache
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .copies import notebook_in
from .generate import exercise_from
from .marks import assembled
from .notebooks import Lesson, Notebook, grading_metadata, is_checks, is_solution, read

STUB = "raise NotImplementedError"


@dataclass
class Answers:
    """What the notebook of one lesson defines. `untouched`: answers that are still the stub; `failed`: answer → its error."""

    lesson: Lesson
    names: dict[str, Any] = field(default_factory=dict)
    untouched: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        said = [f"{name} (untouched)" for name in sorted(self.untouched)] + [
            f"{n}: {why}" for n, why in self.failed.items()
        ]
        return f"{self.lesson}: {', '.join(said) or 'every answer is there'}"


@functools.cache
def fresh(lesson: Lesson) -> Notebook:
    """The exercise as it is handed out."""
    return exercise_from(read(lesson.solution))


def notebook_of(lesson: Lesson, folder: Path) -> Notebook:
    """The course's exercise with the learner's answers in it; a notebook that is not there counts as untouched."""
    path = notebook_in(lesson, folder)
    return assembled(read(path), fresh(lesson)) if path is not None else fresh(lesson)


def untouched(lesson: Lesson, folder: Path) -> set[str]:
    """The answers (`grade_id`) that still say what the stub says. Nothing is run."""
    stubs = {
        grading_metadata(cell)["grade_id"]: cell.source
        for cell in fresh(lesson).cells
        if is_solution(cell)
    }
    mine = {
        grading_metadata(cell)["grade_id"]: cell.source
        for cell in notebook_of(lesson, folder).cells
        if is_solution(cell)
    }
    return {name for name, stub in stubs.items() if mine[name].strip() == stub.strip()}


def load(lesson: Lesson, folder: Path) -> Answers:
    """Run the notebook's cells but for its checks. A cell that raises is noted, and the next one runs."""
    found = Answers(lesson, {"__name__": "__main__"}, untouched(lesson, folder))
    for number, cell in enumerate(notebook_of(lesson, folder).cells):
        if cell.cell_type != "code" or is_checks(cell):
            continue
        name = grading_metadata(cell).get("grade_id", f"cell {number}")
        try:
            with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
                run_cell(cell.source, found.names, f"<{folder.name} {lesson.number} {name}>")
        except Exception as problem:
            found.failed[name] = f"{type(problem).__name__}: {problem}"
    return found


def run_cell(source: str, names: dict[str, Any], filename: str) -> None:
    """Run a cell as a notebook does; tracebacks and `inspect` find its lines."""
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)
