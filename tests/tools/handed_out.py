"""The exercise that a test of the course looks at, also in a clone where somebody does the exercises under `exercises/`.

Out: the committed file where it is unchanged, which is what learners get; else what the solution gives.
"""

from __future__ import annotations

from course_lib.grading.generate import exercise_from
from course_lib.grading.handed_out import is_committed
from course_lib.grading.notebooks import Lesson, Notebook, read


def exercise_of(lesson: Lesson) -> Notebook:
    return read(lesson.exercise) if is_committed(lesson) else exercise_from(read(lesson.solution))
