"""A course of one lesson with two exercises, small enough to run in a second: what the grading tests work on.

Out: `tiny_course(folder)` writes `solutions/01_tiny/01_tiny.ipynb`; `with_answers` fills in an exercise as a learner would.
"""

from __future__ import annotations

from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.grading.notebooks import Lesson, Notebook, read, to_text

STUB = "raise NotImplementedError('Exercise: write this part, then run the cell again.')"
DOUBLE = "    doubled = [2 * number for number in numbers]\n    return doubled"
HIDDEN = {"double": [-14, 6], "biggest": -7}
BIGGEST = "    biggest_so_far = max(numbers, key=abs)\n    return biggest_so_far"


def tiny_course(folder: Path) -> Lesson:
    lesson = Lesson(folder, "01_tiny")
    lesson.solution.parent.mkdir(parents=True)
    lesson.solution.write_text(to_text(solution()), encoding="utf-8")
    return lesson


def solution() -> Notebook:
    return new_notebook(
        cells=[
            new_markdown_cell("# A tiny lesson"),
            new_code_cell("from course_lib.grading.checks import check, check_equal"),
            new_markdown_cell("## Exercise 1.1: double\n\nReturn twice each number."),
            answer(
                "double",
                f"def double(numbers):\n    ### BEGIN SOLUTION\n{DOUBLE}\n    ### END SOLUTION",
            ),
            checks(
                "double",
                2,
                "check_equal(double([1, 2]), [2, 4], 'double([1, 2])', 'each number doubles')",
            ),
            new_markdown_cell(
                "## Exercise 1.2: the biggest\n\nReturn the number that is farthest from 0."
            ),
            answer(
                "biggest",
                f"def biggest(numbers):\n    ### BEGIN SOLUTION\n{BIGGEST}\n    ### END SOLUTION",
            ),
            checks("biggest", 3, "check_equal(biggest([1, 5, 2]), 5, 'biggest([1, 5, 2])')"),
        ]
    )


def answer(name: str, source: str) -> nbformat.NotebookNode:
    return new_code_cell(
        source, metadata={"nbgrader": _about(name, grade=False, solution=True, locked=False)}
    )


def checks(name: str, points: int, visible: str) -> nbformat.NotebookNode:
    hidden = (
        f"### BEGIN HIDDEN TESTS\ncheck_equal({name}([-7, 3]), {HIDDEN[name]}, 'a fresh input')"
    )
    about = _about(f"test_{name}", grade=True, solution=False, locked=True) | {"points": points}
    return new_code_cell(f"{visible}\n{hidden}\n### END HIDDEN TESTS", metadata={"nbgrader": about})


def _about(grade_id: str, **kind: bool) -> dict:
    return {"grade_id": grade_id, "schema_version": 3, "task": False, **kind}


def with_answers(lesson: Lesson, **answers: str) -> Path:
    """Replace stubs in the lesson's exercise by bodies: `with_answers(lesson, double="    return [2]")`. Returns its path."""
    nb = read(lesson.exercise)
    for cell in nb.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if name in answers:
            cell.source = cell.source.replace(f"    {STUB}", answers[name])
    lesson.exercise.write_text(to_text(nb), encoding="utf-8")
    return lesson.exercise


def edit(path: Path, old: str, new: str) -> None:
    """Change every cell of the notebook at `path` that holds `old`; it must be there."""
    nb = read(path)
    assert any(old in cell.source for cell in nb.cells), old
    for cell in nb.cells:
        cell.source = cell.source.replace(old, new)
    path.write_text(to_text(nb), encoding="utf-8")
