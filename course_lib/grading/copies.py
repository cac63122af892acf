"""The learner's copy of an exercise: where the work is done.

In:  a `Lesson`. Out: `work/NN_name.ipynb`, which git does not look at; sentences about what was
     done.

    start(lesson)     makes the copy where there is none, and moves answers over that stand in
                      `exercises/`
    update(lesson)    puts a newer exercise into the copy (`merging`)
    undo              is in `history`

What the course hands out is in `handed_out`, where the learner's answers are in `learners_files`;
answers that stand elsewhere are brought by `taking_over`.
`exercises/` is what the course hands out. `work/.base/` keeps the exercises that copies were made
from, one file for each release, so that a merge knows what the learner changed. Every writing
command holds the lock of `work/`, keeps the file before it in `work/.history/`, and writes in one
step (`writing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from course_lib.languages import phrase

from . import writing
from .errors import CourseError
from .handed_out import as_copy, base_of, handed_out, keep_base
from .learners_files import is_lost, looks_like, notebook_in, read_copy, work_in_exercises
from .merging import Merged, merge, same_cells
from .notebooks import Lesson, read, release_of, to_text
from .taking_over import fetch_from_exercises, some_names, take_over, write_kept


@dataclass
class Done:
    """What a command did to one lesson: in a word ("made", "there", "current", "updated"), and
    sentences for the learner."""

    lesson: Lesson
    word: str
    said: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        copy = self.lesson.shown(self.lesson.copy)
        words = {
            "made": phrase("made {copy}", copy=copy),
            "there": phrase("{copy} is there already and stays as it is", copy=copy),
            "current": phrase("nothing new"),
            "updated": phrase("{copy} is up to date now", copy=copy),
            "failed": phrase("nothing was changed"),
        }
        lines = [f"{self.lesson}: {words[self.word]}", *(f"    {line}" for line in self.said)]
        return "\n".join(lines)


# ---- start


def start(lesson: Lesson) -> Done:
    """Make the learner's copy where there is none. A copy that is there is never written over."""
    with writing.alone(lesson.work):
        result = Done(lesson, "there")
        if not lesson.copy.exists():
            # It was moved or renamed: a second copy beside it would be marked in its place.
            if looks_like(lesson):
                raise CourseError(is_lost(lesson))

            keep_base(lesson, handed_out(lesson))
            fresh = to_text(as_copy(handed_out(lesson)))
            is_new = writing.write_new(lesson.copy, fresh.encode())
            result.word = "made" if is_new else "there"
        result.said += fetch_from_exercises(lesson)
        return result


def bring(lesson: Lesson, source: Path) -> Done | None:
    """`start`, with the answers of a notebook that lies elsewhere (a file, or a folder with it);
    None where it is not there."""
    path = source if source.is_file() else notebook_in(lesson, source)
    if path is None:
        return None
    old = read(path)
    result = start(lesson)
    with writing.alone(lesson.work):
        result.said += take_over(lesson, old, str(path), base_of(lesson, old))
    return result


# ---- update


def update(lesson: Lesson) -> Done:
    """Put the exercise of today into the learner's copy."""
    if not lesson.copy.is_file() and work_in_exercises(lesson):
        return start(lesson)
    with writing.alone(lesson.work):
        sentences = fetch_from_exercises(lesson) if lesson.copy.is_file() else []
        file_before = writing.Seen.of(lesson.copy)
        if file_before.data is None:
            raise CourseError(
                is_lost(lesson)
                or f"There is no {lesson.shown(lesson.copy)} to update: `course start {lesson.number}` makes it."
            )

        copy, exercise = read_copy(lesson), handed_out(lesson)
        theirs = as_copy(exercise)
        base = base_of(lesson, copy)
        merged = merge(as_copy(base) if base is not None else None, theirs, copy)
        current = same_cells(merged.nb, copy) and release_of(copy) == release_of(theirs)
        if current:
            return Done(lesson, "current", sentences)
        # The base first: a copy names its release, so a crash between the two leaves a pair that
        # fits.
        keep_base(lesson, exercise)
        write_kept(lesson, file_before, merged.nb, "update")

        return Done(lesson, "updated", [*sentences, *_sentences(lesson, merged)])


def has_update(lesson: Lesson) -> bool:
    """Whether the course's exercise is another one than the copy was made from.

    An unreadable copy says no."""
    try:
        copy = read(lesson.copy)
    except CourseError:
        return False
    return release_of(copy) != release_of(handed_out(lesson))


def _sentences(lesson: Lesson, merged: Merged) -> list[str]:
    """What a merge did, for the learner."""
    sentences = []
    if merged.answers:
        sentences.append(phrase("your answers stay: {names}", names=some_names(merged.answers)))

    for words, names in (
        (phrase("changed by the course"), merged.changed),
        (phrase("new"), merged.new),
        (phrase("back, for it had been deleted"), merged.back),
        (phrase("no part of the course any more"), merged.gone),
    ):
        if names:
            sentences.append(f"{words}: {some_names(names)}")

    sentences += merged.said
    sentences.append(
        "If it is open in JupyterLab: File > Reload Notebook from Disk. "
        f"`course undo {lesson.number}` takes this back."
    )

    return sentences
