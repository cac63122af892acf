"""Answers that stand in another notebook come into the learner's copy.

In:  a `Lesson`, and a notebook with answers: the file under `exercises/`, or one that lies
     elsewhere. Out: sentences about what was taken.

An untouched copy is merged with the other notebook. Where the copy has answers, too, only its stubs
are filled; another answer to the same exercise is kept in a file beside the copy.
PyTorch has no counterpart.
"""

from __future__ import annotations

from . import history, writing
from .errors import CourseError
from .generate import exercise_text
from .handed_out import as_copy, at_head, handed_out
from .learners_files import work_in_exercises
from .merging import merge
from .notebooks import Lesson, Notebook, grading_metadata, is_solution, read, to_text
from .written_answers import answer_of, written_in


def fetch_from_exercises(lesson: Lesson) -> list[str]:
    """Move answers over that a learner wrote into `exercises/`, as one did before there were
    copies."""
    there = work_in_exercises(lesson)
    if not there:
        return []
    where, place = lesson.shown(lesson.exercise), lesson.shown(lesson.copy)
    file_before = writing.Seen.of(lesson.exercise)
    history.keep(lesson, file_before, "exercises")

    try:
        old = read(lesson.exercise)
    except CourseError as problem:
        return [f"{problem} It is left as it is; its answers are not in {place}."]

    sentences = take_over(lesson, old, where, at_head(lesson))
    # only now, for the answers are safe
    writing.write(file_before, exercise_text(lesson).encode())

    return [
        *sentences,
        f"{where} is again as it was handed out; the file before is kept in work/.history.",
    ]


def take_over(lesson: Lesson, old: Notebook, where: str, base: Notebook | None) -> list[str]:
    """Put the answers of another notebook into the copy: all of it where the copy is untouched,
    else each answer that is still a stub there. What has no place is kept in a file beside the
    copy."""
    file_before = writing.Seen.of(lesson.copy)
    copy, exercise = read(lesson.copy), as_copy(handed_out(lesson))
    place = lesson.shown(lesson.copy)
    # Nothing of the learner's is in the copy: the other notebook takes its place.
    if not written_in(copy, [exercise]):
        merged = merge(as_copy(base) if base is not None else None, exercise, as_copy(old))
        write_kept(lesson, file_before, merged.nb, "start")
        return [
            f"Your answers in {where} ({some_names(merged.answers)}) are in {place} now.",
            *merged.said,
        ]

    moved_answers, left = _take_single_answers(copy, old, exercise)
    if moved_answers:
        write_kept(lesson, file_before, copy, "start")
    sentences = []
    if moved_answers:
        sentences = [f"Your answers in {where} ({some_names(moved_answers)}) are in {place} now."]
    if left:
        beside = write_beside(lesson, old)
        sentences.append(
            f"{some_names(left)}: {place} has another answer, which stays; the other is in {beside}."
        )

    return sentences


def _take_single_answers(
    copy: Notebook, old: Notebook, exercise: Notebook
) -> tuple[list[str], list[str]]:
    """Fill the stubs in `copy` with the answers in `old`.

    `exercise` is as it was handed out: its answers are the stubs.

    Gives the names of the answers that were taken, and of those that both notebooks answer, but not
    alike.
    """
    stubs = {answer_of(cell) for cell in exercise.cells if is_solution(cell)}
    # Of two cells with one name the first counts. So it is written last, over the second.
    other_answers = {
        grading_metadata(cell)["grade_id"]: cell.source
        for cell in reversed(old.cells)
        if is_solution(cell) and answer_of(cell) not in stubs and cell.source.strip()
    }
    moved_answers, equal_answers = [], []

    for cell in copy.cells:
        name = grading_metadata(cell).get("grade_id")
        if not is_solution(cell) or name not in other_answers:
            continue
        if answer_of(cell) in stubs:
            cell.source = other_answers[name]
            moved_answers.append(str(name))
        elif cell.source.strip() == other_answers[name].strip():
            equal_answers.append(name)

    return moved_answers, [
        str(name)
        for name in other_answers
        if name not in moved_answers and name not in equal_answers
    ]


def write_beside(lesson: Lesson, old: Notebook) -> str:
    """Write a notebook into a new file next to the copy."""
    number = 1
    while True:
        path = lesson.work / f"{lesson.name}.other-{number}.ipynb"
        if writing.write_new(path, to_text(as_copy(old)).encode()):
            return lesson.shown(path)
        number += 1


def some_names(names: list[str]) -> str:
    """At most six names, and how many more."""
    shown = ", ".join(names[:6])
    if len(names) > 6:
        return f"{shown} and {len(names) - 6} more"
    return shown or "none"


def write_kept(lesson: Lesson, seen: writing.Seen, nb: Notebook, why: str) -> None:
    """Write the copy anew. The file before, `seen`, goes into its history; `why` is the command
    that did it."""
    history.keep(lesson, seen, why)
    writing.write(seen, to_text(nb).encode())
