"""The exercises as the course hands them out: today's, and the earlier ones that copies were made
from.

In:  a `Lesson`. Out: notebooks without answers.

`handed_out` is the exercise of today. `base_of` is the one that a copy was made from: a merge needs
it, to know what the learner changed. It is kept under `work/.base/`, one file for each release, or
found in the clone's history.
PyTorch has no counterpart.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import nbformat

from course_lib import languages

from . import writing
from .edition import exercise_in
from .errors import CourseError
from .generate import exercise_from
from .notebooks import Lesson, Notebook, read, release_digest, release_of, to_text
from .reader import notebook_from


def handed_out(lesson: Lesson) -> Notebook:
    """The exercise of today, whatever was written into the file under `exercises/`."""
    try:
        nb = read(lesson.exercise)
    except CourseError:
        nb = None
    if nb is None or not is_untouched(nb):
        nb = exercise_from(read(lesson.solution))
    return nb


def is_untouched(exercise: Notebook) -> bool:
    """Whether this is an exercise as it was handed out, of whatever release: it carries the digest
    of its cells."""
    return release_of(exercise) == release_digest(exercise)


def exercise_is_untouched(lesson: Lesson) -> bool:
    """Whether the file under `exercises/` is one that was handed out, or is not there."""
    if not lesson.exercise.is_file():
        return True
    nb = readable(lesson.exercise)
    return nb is not None and is_untouched(nb)


def as_copy(exercise: Notebook) -> Notebook:
    """An exercise as it is copied to `work/`: in the learner's language, and with links to lessons
    that are shorter by one step, for `work/` is one folder higher."""
    language = languages.chosen()
    exercise = exercise_in(exercise, language) if language else nbformat.from_dict(exercise)
    if language:
        exercise.metadata.setdefault("course", {})["language"] = language
    for cell in exercise.cells:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](../../", "](../")
    return exercise


def readable(path: Path) -> Notebook | None:
    """The notebook; None for a file that cannot be read."""
    try:
        return read(path)
    except CourseError:
        return None


# ---- the exercise that a copy was made from ------------------------------------------------------


def _base_path(lesson: Lesson, release: str) -> Path:
    """Where an exercise of this release is kept."""
    return lesson.work / ".base" / f"{lesson.name}.{release}.ipynb"


def keep_base(lesson: Lesson, exercise: Notebook) -> None:
    """Keep an exercise, before a copy is made from it."""
    writing.write_new(_base_path(lesson, release_digest(exercise)), to_text(exercise).encode())


def base_of(lesson: Lesson, mine: Notebook) -> Notebook | None:
    """The exercise that a copy was made from: the one that it names, as it was kept or from the
    clone's history.

    A copy that names none (an old one, or one that lost its metadata) gets the one that most of its
    cells come from.
    """
    release = release_of(mine)
    if release is not None:
        path = _base_path(lesson, release)
        if path.is_file() and (exercise := readable(path)) is not None:
            return exercise
        return next((nb for nb in _in_git(lesson) if release_of(nb) == release), None)
    texts = {cell.source for cell in as_copy(mine).cells}
    best = None
    most = 0
    for nb in (*kept_bases(lesson), *_in_git(lesson)):
        common = len(texts.intersection(cell.source for cell in as_copy(nb).cells))
        if common > most:
            best = nb
            most = common
    return best


def kept_bases(lesson: Lesson) -> list[Notebook]:
    """The exercises that are kept of a lesson, one for each release."""
    paths = sorted((lesson.work / ".base").glob(f"{lesson.name}.*.ipynb"))
    return [nb for path in paths if (nb := readable(path)) is not None]


def at_head(lesson: Lesson) -> Notebook | None:
    """The exercise as the clone's commit has it."""
    return _of_commit(lesson, "HEAD")


def is_committed(lesson: Lesson) -> bool:
    """Whether the file under `exercises/` is as the clone's commit has it."""
    path = lesson.exercise.relative_to(lesson.root).as_posix()
    data = _git(lesson.root, "show", f"HEAD:./{path}")
    return data is not None and data == writing.Seen.of(lesson.exercise).data


MOST_COMMITS = "100"
"""So far back an exercise is looked for: each commit is one more call of git."""


def _in_git(lesson: Lesson) -> Iterator[Notebook]:
    """The exercise of today's commit and of earlier ones, the newest first."""
    path = lesson.exercise.relative_to(lesson.root).as_posix()
    commits = _git(lesson.root, "log", "-n", MOST_COMMITS, "--format=%H", "--", path)
    for commit in (commits or b"").decode().split():
        nb = _of_commit(lesson, commit)
        if nb is not None:
            yield nb


def _of_commit(lesson: Lesson, commit: str) -> Notebook | None:
    """The exercise as a commit has it; None if it has none that can be read."""
    path = lesson.exercise.relative_to(lesson.root).as_posix()
    data = _git(lesson.root, "show", f"{commit}:./{path}")
    try:
        if data:
            return notebook_from(data, path, outputs=True)
        return None
    except CourseError:
        return None


def _git(root: Path, *words: str) -> bytes | None:
    """What git says, or None where there is no git or no repository."""
    try:
        process = subprocess.run(["git", "-C", str(root), *words], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if process.returncode == 0:
        return process.stdout
    return None
