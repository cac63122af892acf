"""Where the learner's answers are.

In:  a `Lesson`. Out: the file that holds the answers.

The answers are in `work/NN_name.ipynb`. In an old clone they may stand under `exercises/`, in which
one worked before there were copies. Where there is no file, the error says which command makes one
or brings one back.
PyTorch has no counterpart.
"""

from __future__ import annotations

from pathlib import Path

from course_lib.languages import phrase

from . import history
from .errors import CourseError
from .generate import is_stub
from .handed_out import at_head, handed_out, is_untouched, readable
from .notebooks import Lesson, Notebook, graded_cells, is_solution, lessons, read
from .written_answers import written_in


def learners_file(lesson: Lesson) -> Path:
    """The notebook that holds the learner's answers: the copy, or in an old clone the file under
    `exercises/`."""
    if lesson.copy.is_file():
        return lesson.copy
    if work_in_exercises(lesson):
        return lesson.exercise
    raise CourseError(
        is_lost(lesson)
        or phrase(
            "You have no copy of {lesson} yet: `course start {n}` makes {copy}.",
            lesson=lesson,
            n=lesson.number,
            copy=lesson.shown(lesson.copy),
        )
    )


def is_lost(lesson: Lesson) -> str:
    """Where a copy that was there has gone, and what to do; nothing if it is there, or never
    was."""
    if lesson.copy.is_file():
        return ""
    place = lesson.shown(lesson.copy)
    if alike := looks_like(lesson):
        return phrase(
            "There is no {place}, but {other} is a notebook of this lesson: "
            "give it the name {place} again, or move it out of the folder.",
            place=place,
            other=lesson.shown(alike),
        )

    if history.versions(lesson):
        return phrase(
            "{place} is gone: `course undo {n}` brings back its last kept version, "
            "`course start {n}` makes a new one.",
            place=place,
            n=lesson.number,
        )

    return ""


def notebook_in(lesson: Lesson, folder: Path) -> Path | None:
    """The lesson's notebook in a folder: laid out as `work/` or as `exercises/`, or a whole clone.

    Where the learner's own folder has no copy, it is the file under `exercises/`, in which one
    worked before there were copies."""
    flat, deep = f"{lesson.name}.ipynb", f"{lesson.name}/{lesson.name}.ipynb"
    places = [folder / flat, folder / deep, folder / "work" / flat, folder / "exercises" / deep]
    if folder.resolve() == (lesson.root / "work").resolve():
        places.append(lesson.exercise)
    return next((place for place in places if place.is_file()), None)


def looks_like(lesson: Lesson) -> Path | None:
    """Another notebook in `work/` with this lesson's checks, say a copy that was renamed.

    The other lessons' copies are not read."""
    names = {f"{other.name}.ipynb" for other in lessons(lesson.root)}
    others = [path for path in sorted(lesson.work.glob("*.ipynb")) if path.name not in names]
    if not others:
        return None

    checks = {cell.grade_id for cell in graded_cells(handed_out(lesson))}
    for path in others:
        nb = readable(path)
        if nb is not None and checks and checks <= {cell.grade_id for cell in graded_cells(nb)}:
            return path
    return None


def read_copy(lesson: Lesson) -> Notebook:
    """The learner's copy; where it cannot be read, the message says how to get a version back that
    can."""
    try:
        return read(lesson.copy)
    except CourseError as problem:
        message = str(problem).replace(str(lesson.copy), lesson.shown(lesson.copy))
        if history.of_lab(lesson):
            message += phrase(
                " Or take what JupyterLab had saved before: `course undo {n}`.", n=lesson.number
            )
        elif history.versions(lesson):
            message += phrase(" Or take the last kept version: `course undo {n}`.", n=lesson.number)
        raise CourseError(message) from None


def work_in_exercises(lesson: Lesson) -> list[str]:
    """What a learner wrote into the file under `exercises/`: names of answers, "an added cell".

    It may be unreadable: then that."""
    if not lesson.exercise.is_file():
        return []
    try:
        nb = read(lesson.exercise)
    except CourseError:
        return ["a file that cannot be read"]

    if is_untouched(nb):
        return []
    # What the learner did not write: the exercise of today, and the one that was committed
    known = [handed_out(lesson)]
    notebook_at_head = at_head(lesson)
    if notebook_at_head is not None:
        # Somebody may have committed answers: of a file that was changed only the stubs are the
        # course's.
        if not is_untouched(notebook_at_head):
            notebook_at_head.cells = [
                c for c in notebook_at_head.cells if not is_solution(c) or is_stub(c)
            ]
        known.append(notebook_at_head)

    return written_in(nb, known)
