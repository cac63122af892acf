"""A learner's answers as live functions: the cells of an exercise notebook, run without its checks.

In:  a lesson, and a folder with the learner's notebooks (`work/`, or `solutions/` for the reference
     answers).
Out: `Answers`: the names that the cells define, and for each answer why it cannot be used.

The cells around the answers are the course's own, whatever the learner's copy says, as in
`course check`, and the same `Keeper` stands between them: names and switches of the learner's take
nothing from the answers. They run in this process: `capstone` tries them first in one of their own.
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

from .assembling import assembled, role_of
from .generate import exercise_from
from .keeper import Ended, Habits, Keeper
from .learners_files import notebook_in
from .magics import around
from .names import as_python
from .notebooks import Lesson, Notebook, grading_metadata, is_checks, is_solution, read
from .probes import Plan
from .reader import read_notebook
from .switches import Switches

STUB = "raise NotImplementedError"


@dataclass
class Answers:
    """What the notebook of one lesson defines.

    `untouched`: answers that are still the stub; `failed`: answer → its error."""

    lesson: Lesson
    names: dict[str, Any] = field(default_factory=dict)
    untouched: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        notes = [f"{name} (untouched)" for name in sorted(self.untouched)] + [
            f"{n}: {why}" for n, why in self.failed.items()
        ]
        return f"{self.lesson}: {', '.join(notes) or 'every answer is there'}"


@functools.cache
def fresh(lesson: Lesson) -> Notebook:
    """The exercise as it is handed out."""
    return exercise_from(read(lesson.solution))


def notebook_of(lesson: Lesson, folder: Path) -> Notebook:
    """The course's exercise with the learner's answers in it; a notebook that is not there counts
    as untouched."""
    path = notebook_in(lesson, folder)
    learners = read_notebook(path) if path is not None else fresh(lesson)
    return assembled(learners, fresh(lesson))


def untouched(lesson: Lesson, folder: Path) -> set[str]:
    """The answers (`grade_id`) that still say what the stub says. Nothing is run."""
    stubs = {
        grading_metadata(cell)["grade_id"]: cell.source
        for cell in fresh(lesson).cells
        if is_solution(cell)
    }
    sources_of_answer: dict[str, list[str]] = {name: [] for name in stubs}
    for cell in notebook_of(lesson, folder).cells:
        if is_solution(cell):
            sources_of_answer[grading_metadata(cell)["grade_id"]].append(cell.source.strip())

    # An answer whose cells are all gone is untouched, too.
    return {name for name, stub in stubs.items() if set(sources_of_answer[name]) <= {stub.strip()}}


def load(lesson: Lesson, folder: Path) -> Answers:
    """Run the notebook's cells but for its checks.

    A cell that raises or exits is noted, and the next one runs."""
    answers = Answers(lesson, {"__name__": "__main__"}, untouched(lesson, folder))
    nb = notebook_of(lesson, folder)
    plan = Plan(nb)
    # what IPython puts among a notebook's names: `get_ipython`, `display`
    answers.names.update(around(answers.names))
    # what the learner's cells do with names, as far as their text tells
    keeper = Keeper(answers.names, Habits(*map(frozenset, plan.habits)), Switches())

    ended: Ended | None = None  # the cell before, None before the first
    needs: set[str] = set()  # the names that any cell uses, checks too
    for number, cell in enumerate(nb.cells):
        if cell.cell_type != "code":
            continue
        step = plan.step(number)
        needs |= set(step["needs"])
        if is_checks(cell):
            continue
        keeper.step(ended, step["comes"], step["needs"])
        name = grading_metadata(cell).get("grade_id", f"cell {number}")
        # What a cell prints, and the random numbers that it draws, are not for the caller.
        try:
            with contextlib.redirect_stdout(io.StringIO()), torch.random.fork_rng(devices=[]):
                run_cell(cell.source, answers.names, f"<{folder.name} {lesson.number} {name}>")
        except KeyboardInterrupt:
            # Ctrl-C was pressed here; the cell did not raise it.
            raise
        except BaseException as problem:
            if role_of(cell) != "own":  # a cell that the learner added is no answer
                answers.failed[name] = f"{type(problem).__name__}: {problem}"
        ended = Ended(*plan.ended(cell))

    # From now on the compiler calls the answers. They see the names and switches that checks would
    # see.
    keeper.step(ended, "checks", needs)
    return answers


def run_cell(source: str, names: dict[str, Any], filename: str) -> None:
    """Run a cell as a notebook does, with IPython's magics; tracebacks and `inspect` find its
    lines."""
    source = as_python(source)
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), names)
