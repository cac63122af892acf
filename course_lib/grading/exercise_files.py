"""The files under `exercises/`, written from the solutions.

In:  a `Lesson`, with its solution notebook. Out: the exercise that `generate.exercise_from` makes
of it, as a file. An earlier file that somebody changed is kept in the history.
PyTorch has no counterpart.
"""

from __future__ import annotations

from . import history, writing
from .generate import exercise_text
from .handed_out import exercise_is_untouched
from .learners_files import work_in_exercises
from .notebooks import CourseError, Lesson


def generate(lesson: Lesson) -> bool:
    """Write `lesson`'s exercise; True if that changed the file.

    Raises CourseError for a file with a learner's answers in it: it is not written over."""
    data = exercise_text(lesson).encode()
    with writing.alone(lesson.work):
        file_before = writing.Seen.of(lesson.exercise)
        if file_before.data == data:
            return False

        if answers_written := work_in_exercises(lesson):
            raise CourseError(
                f"{lesson.shown(lesson.exercise)} has work in it ({', '.join(answers_written)}): "
                f"`course start {lesson.number}` moves it to {lesson.shown(lesson.copy)}, then run this again."
            )

        lesson.exercise.parent.mkdir(parents=True, exist_ok=True)
        if not exercise_is_untouched(lesson):
            history.keep(lesson, file_before, "exercises")
        writing.write(file_before, data)
    return True
