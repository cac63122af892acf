"""The gate that every exercise passes before it is published.

In:  a `Lesson`. Out: complaints, one sentence each; none means that the exercise is fit to hand
     out.

1. *Fresh*: `exercises/` is exactly what `solutions/` gives.
2. *Well formed*: each exercise has its cell for the answer, its checks with points, and hidden
   tests.
3. *Tight*: no solution and no hidden test can be read in the exercise.
4. *Solvable*: the reference gets full marks, hidden tests included.
5. *Not free*: with nothing written, every checks cell fails, and only with the friendly
   `NotImplementedError`.

1 to 3 read files (milliseconds); 4 and 5 run the notebooks.
"""

from __future__ import annotations

import re

from .generate import exercise_from, exercise_text
from .handed_out import handed_out, is_committed
from .learners_files import work_in_exercises
from .marks import mark_notebook
from .merging import same_cells
from .notebooks import (
    BEGIN_HIDDEN,
    BEGIN_SOLUTION,
    END_HIDDEN,
    END_SOLUTION,
    CourseError,
    Lesson,
    Notebook,
    graded_cells,
    grading_metadata,
    is_checks,
    is_solution,
    read,
)
from .runner import Limits, run_notebook

FRIENDLY = "Exercise:"  # how the sentence of a stub begins (nbgrader_config.py)
# Letters: a shorter line of a solution (`return x + y`) gives nothing away if it stands elsewhere.
_TELLING = 16


def static_complaints(lesson: Lesson) -> list[str]:
    """What can be seen without running anything."""
    try:
        fresh = exercise_text(lesson)
    except CourseError as error:
        return [str(error)]

    solution = read(lesson.solution)
    complaints = malformed(solution) + leaks(solution, exercise_from(solution))
    if not lesson.exercise.is_file():
        complaints.append("there is no exercise notebook: run `make exercises`")
    elif lesson.exercise.read_text(encoding="utf-8") != fresh and not solved_by_a_learner(lesson):
        complaints.append(
            "the exercise is stale: it is not what its solution gives. Edit the solution, then `make exercises`"
        )

    return [f"{lesson}: {text}" for text in complaints]


def solved_by_a_learner(lesson: Lesson) -> bool:
    """Whether the file differs because somebody does the exercises in it, as one did before there
    were copies in `work/`.

    That is no fault of the course. Nor is it when its cells were only run: then the outputs differ.
    But a committed file with outputs, or with text of the course changed by hand, is one.
    """
    if work_in_exercises(lesson):
        return not is_committed(lesson) or only_answers_differ(lesson)
    fresh = exercise_from(read(lesson.solution))
    return same_cells(read(lesson.exercise), fresh) and not is_committed(lesson)


def only_answers_differ(lesson: Lesson) -> bool:
    """Whether all that the course gives stands in the file as it was handed out."""
    sources_of_course = {
        cell.id: cell.source for cell in handed_out(lesson).cells if not is_solution(cell)
    }
    return (
        sources_of_course.items()
        <= {cell.id: cell.source for cell in read(lesson.exercise).cells}.items()
    )


def running_complaints(lesson: Lesson, limits: Limits | None = None) -> list[str]:
    """What only shows when the reference and the untouched exercise are run."""
    solution = read(lesson.solution)
    complaints = reference_fails(solution, lesson, limits) + free_marks(
        exercise_from(solution), lesson, limits
    )
    return [f"{lesson}: {text}" for text in complaints]


def malformed(solution: Notebook) -> list[str]:
    """Each checks cell has points and hidden tests, is locked, and follows an answer cell of its
    own."""
    complaints: list[str] = []
    ids: list[str] = []
    answers = 0  # answer cells since the last checks cell
    for cell in solution.cells:
        cell_metadata = grading_metadata(cell)
        ids += [cell_metadata["grade_id"]] if cell_metadata else []
        if is_solution(cell):
            answers += 1
            if cell.cell_type == "code" and BEGIN_SOLUTION not in cell.source:
                complaints.append(
                    f"{cell_metadata['grade_id']} has no {BEGIN_SOLUTION}: the exercise would show the answer"
                )
        elif is_checks(cell):
            name = cell_metadata["grade_id"]
            wrong = {
                "is worth no points": not cell_metadata.get("points", 0) > 0,
                "is not locked": not cell_metadata.get("locked"),
                "has no hidden tests": BEGIN_HIDDEN not in cell.source,
                "has no visible checks": not _without(
                    cell.source, BEGIN_HIDDEN, END_HIDDEN
                ).strip(),
                "follows no answer cell": answers == 0,
            }
            complaints += [f"{name} {what}" for what, is_wrong in wrong.items() if is_wrong]
            answers = 0

    complaints += [
        f"two cells are called {name}"
        for name in sorted({name for name in ids if ids.count(name) > 1})
    ]

    return complaints


def leaks(solution: Notebook, exercise: Notebook) -> list[str]:
    """Lines of a solution or of a hidden test that a learner could read in the exercise."""
    secret = {
        line.strip()
        for cell in solution.cells
        for marks in ((BEGIN_SOLUTION, END_SOLUTION), (BEGIN_HIDDEN, END_HIDDEN))
        for line in _between(cell.source, *marks)
        if _is_telling(line)
    }
    shown = "\n".join(cell.source for cell in exercise.cells)
    complaints = [
        f"the exercise shows a line of the solution or of a hidden test: {line}"
        for line in sorted(secret)
        if line in shown
    ]
    complaints += [
        f"the exercise still says {mark}"
        for mark in (BEGIN_SOLUTION, BEGIN_HIDDEN)
        if mark in shown
    ]
    complaints += ["the exercise holds outputs" for cell in exercise.cells if cell.get("outputs")]

    return complaints


def reference_fails(solution: Notebook, lesson: Lesson, limits: Limits | None = None) -> list[str]:
    """The reference solution earns every point."""
    report = mark_notebook(solution, lesson.name, lesson.solution.parent, limits)
    return [
        f"the reference fails {mark.grade_id}: {mark.reason}"
        for mark in report.marks
        if not mark.full
    ]


def free_marks(exercise: Notebook, lesson: Lesson, limits: Limits | None = None) -> list[str]:
    """With nothing written no checks cell passes, and nothing raises but a stub's own sentence."""
    runs = {run.index: run for run in run_notebook(exercise, lesson.solution.parent, limits)}
    complaints = [
        f"{cell.grade_id} passes with nothing written"
        for cell in graded_cells(exercise)
        if runs[cell.index].ok
    ]

    for run in runs.values():
        if not run.ok and not (
            run.ename == "NotImplementedError" and run.evalue.startswith(FRIENDLY)
        ):
            name = grading_metadata(exercise.cells[run.index]).get("grade_id", f"cell {run.index}")
            complaints.append(
                f"untouched, {name} ends with {run.ename or run.outcome}: {run.evalue or 'no message'}"
            )

    return complaints


def _between(source: str, begin: str, end: str) -> list[str]:
    """The lines inside the marked regions of a cell."""
    in_region = False
    lines_inside = []
    for line in source.splitlines():
        if begin in line:
            in_region = True
        elif end in line:
            in_region = False
        elif in_region:
            lines_inside.append(line)
    return lines_inside


def _without(source: str, begin: str, end: str) -> str:
    """The lines outside the marked regions of a cell."""
    lines_inside = set(_between(source, begin, end))
    return "\n".join(
        line
        for line in source.splitlines()
        if line not in lines_inside and begin not in line and end not in line
    )


def _is_telling(line: str) -> bool:
    """A line that gives something away: code of some length that is no scaffolding."""
    text = line.strip()
    return len(text) >= _TELLING and not re.match(
        r"(#|import |from |def |class |for |with |if |while |@)", text
    )
