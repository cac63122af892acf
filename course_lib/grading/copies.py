"""The learner's copy of an exercise: where the work is done.

In:  a `Lesson`. Out: `work/NN_name.ipynb`, which git does not look at; sentences about what was done.

    start(lesson)     makes the copy where there is none, and moves answers over that stand in `exercises/`
    update(lesson)    puts a newer exercise into the copy (`merging`)
    undo              is in `history`

`exercises/` is what the course hands out. `work/.base/` keeps the exercises that copies were made from, one file for each
release, so that a merge knows what the learner changed. Every writing command holds the lock of `work/`, keeps the file before
it in `work/.history/`, and writes in one step (`writing`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from . import history, writing
from .generate import exercise_from, exercise_text, is_stub
from .merging import Merged, merge, same_cells
from .notebooks import (
    Cell,
    CourseError,
    Lesson,
    Notebook,
    graded_cells,
    grading_metadata,
    is_solution,
    lessons,
    read,
    release_digest,
    release_of,
    to_text,
)
from .reader import notebook_from


@dataclass
class Done:
    """What a command did to one lesson: in a word ("made", "there", "current", "updated"), and sentences for the learner."""

    lesson: Lesson
    word: str
    said: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        words = {
            "made": f"made {self.lesson.shown(self.lesson.copy)}",
            "there": f"{self.lesson.shown(self.lesson.copy)} is there already and stays as it is",
            "current": "nothing new",
            "updated": f"{self.lesson.shown(self.lesson.copy)} is up to date now",
            "failed": "nothing was changed",
        }
        lines = [f"{self.lesson}: {words[self.word]}", *(f"    {line}" for line in self.said)]
        return "\n".join(lines)


# ---- what the course hands out


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
    """Whether this is an exercise as it was handed out, of whatever release: it carries the digest of its cells."""
    return release_of(exercise) == release_digest(exercise)


def exercise_is_untouched(lesson: Lesson) -> bool:
    """Whether the file under `exercises/` is one that was handed out, or is not there."""
    if not lesson.exercise.is_file():
        return True
    nb = _readable(lesson.exercise)
    return nb is not None and is_untouched(nb)


def as_copy(exercise: Notebook) -> Notebook:
    """The same for `work/`, which is one folder higher: links to lessons are shorter by one step."""
    exercise = nbformat.from_dict(exercise)
    for cell in exercise.cells:
        if cell.cell_type == "markdown":
            cell.source = cell.source.replace("](../../", "](../")
    return exercise


# ---- where the learner's answers are


def learners_file(lesson: Lesson) -> Path:
    """The notebook that holds the learner's answers: the copy, or in an old clone the file under `exercises/`."""
    if lesson.copy.is_file():
        return lesson.copy
    if work_in_exercises(lesson):
        return lesson.exercise
    raise CourseError(
        is_lost(lesson)
        or f"You have no copy of {lesson} yet: `course start {lesson.number}` makes {lesson.shown(lesson.copy)}."
    )


def is_lost(lesson: Lesson) -> str:
    """Where a copy that was there has gone, and what to do; nothing if it is there, or never was."""
    if lesson.copy.is_file():
        return ""
    place = lesson.shown(lesson.copy)
    if alike := looks_like(lesson):
        return (
            f"There is no {place}, but {lesson.shown(alike)} is a notebook of this lesson: "
            f"give it the name {place} again, or move it out of the folder."
        )
    if history.versions(lesson):
        return (
            f"{place} is gone: `course undo {lesson.number}` brings back its last kept version, "
            f"`course start {lesson.number}` makes a new one."
        )
    return ""


def notebook_in(lesson: Lesson, folder: Path) -> Path | None:
    """The lesson's notebook in a folder: laid out as `work/` or as `exercises/`, or a whole clone. Where the learner's own
    folder has no copy, it is the file under `exercises/`, in which one worked before there were copies."""
    flat, deep = f"{lesson.name}.ipynb", f"{lesson.name}/{lesson.name}.ipynb"
    places = [folder / flat, folder / deep, folder / "work" / flat, folder / "exercises" / deep]
    if folder.resolve() == (lesson.root / "work").resolve():
        places.append(lesson.exercise)
    return next((place for place in places if place.is_file()), None)


def looks_like(lesson: Lesson) -> Path | None:
    """Another notebook in `work/` with this lesson's checks, say a copy that was renamed. The other lessons' copies are not read."""
    names = {f"{other.name}.ipynb" for other in lessons(lesson.root)}
    others = [path for path in sorted(lesson.work.glob("*.ipynb")) if path.name not in names]
    checks = {cell.grade_id for cell in graded_cells(handed_out(lesson))} if others else set()
    for path in others:
        nb = _readable(path)
        if nb is not None and checks and checks <= {cell.grade_id for cell in graded_cells(nb)}:
            return path
    return None


def read_copy(lesson: Lesson) -> Notebook:
    """The learner's copy; where it cannot be read, the message says how to get a version back that can."""
    try:
        return read(lesson.copy)
    except CourseError as problem:
        said = str(problem).replace(str(lesson.copy), lesson.shown(lesson.copy))
        if history.of_lab(lesson):
            said += f" Or take what JupyterLab had saved before: `course undo {lesson.number}`."
        elif history.versions(lesson):
            said += f" Or take the last kept version: `course undo {lesson.number}`."
        raise CourseError(said) from None


def work_in_exercises(lesson: Lesson) -> list[str]:
    """What a learner wrote into the file under `exercises/`: names of answers, "an added cell". It may be unreadable: then that."""
    if not lesson.exercise.is_file():
        return []
    try:
        nb = read(lesson.exercise)
    except CourseError:
        return ["a file that cannot be read"]
    if is_untouched(nb):
        return []
    known = [handed_out(lesson)]
    before = _at_head(lesson)
    if before is not None:
        # somebody may have committed answers: of a file that was changed only the stubs are the course's
        if not is_untouched(before):
            before.cells = [c for c in before.cells if not is_solution(c) or is_stub(c)]
        known.append(before)
    return written_in(nb, known)


def written_in(nb: Notebook, known: list[Notebook]) -> list[str]:
    """Names of the answers in `nb` that stand in none of the exercises that are `known`; "an added cell" for code of the learner's."""
    answers = {_answer(cell) for exercise in known for cell in exercise.cells if is_solution(cell)}
    given = {cell.source.strip() for exercise in known for cell in exercise.cells}
    found = []
    for cell in nb.cells:
        if is_solution(cell):
            if _answer(cell) not in answers and cell.source.strip():
                found.append(str(grading_metadata(cell)["grade_id"]))
        elif (
            cell.cell_type == "code"
            and cell.source.strip()
            and cell.source.strip() not in given
            and not grading_metadata(cell)
        ):
            found.append("an added cell")
    return list(dict.fromkeys(found))


def holds_work(lesson: Lesson, path: Path) -> bool:
    """Whether something was written in this notebook. What cannot be read says no."""
    nb = _readable(path)
    return nb is not None and bool(
        written_in(nb, [as_copy(handed_out(lesson)), *_kept_bases(lesson)])
    )


def _answer(cell: Cell) -> tuple[str, str]:
    return str(grading_metadata(cell).get("grade_id")), cell.source.strip()


# ---- start


def start(lesson: Lesson) -> Done:
    """Make the learner's copy where there is none. A copy that is there is never written over."""
    with writing.alone(lesson.work):
        done = Done(lesson, "there")
        if not lesson.copy.exists():
            if looks_like(lesson):  # a second copy beside it would be marked in its place
                raise CourseError(is_lost(lesson))
            _keep_base(lesson, handed_out(lesson))
            fresh = to_text(as_copy(handed_out(lesson)))
            made = writing.write_new(lesson.copy, fresh.encode())
            done.word = "made" if made else "there"
        done.said += _fetch_from_exercises(lesson)
        return done


def _fetch_from_exercises(lesson: Lesson) -> list[str]:
    """Move answers over that a learner wrote into `exercises/`, as one did before there were copies."""
    there = work_in_exercises(lesson)
    if not there:
        return []
    where, place = lesson.shown(lesson.exercise), lesson.shown(lesson.copy)
    seen = writing.Seen.of(lesson.exercise)
    history.keep(lesson, seen, "exercises")
    try:
        old = read(lesson.exercise)
    except CourseError as problem:
        return [f"{problem} It is left as it is; its answers are not in {place}."]
    said = take_over(lesson, old, where, _at_head(lesson))
    # only now, for the answers are safe
    writing.write(seen, exercise_text(lesson).encode())
    return [
        *said,
        f"{where} is again as it was handed out; the file before is kept in work/.history.",
    ]


def bring(lesson: Lesson, source: Path) -> Done | None:
    """`start`, with the answers of a notebook that lies elsewhere (a file, or a folder with it); None where it is not there."""
    path = source if source.is_file() else notebook_in(lesson, source)
    if path is None:
        return None
    old = read(path)
    done = start(lesson)
    with writing.alone(lesson.work):
        done.said += take_over(lesson, old, str(path), base_of(lesson, old))
    return done


def take_over(lesson: Lesson, old: Notebook, where: str, base: Notebook | None) -> list[str]:
    """Put the answers of another notebook into the copy: all of it where the copy is untouched, else each answer that is still
    a stub there. What has no place is kept in a file beside the copy."""
    seen = writing.Seen.of(lesson.copy)
    mine, theirs = read(lesson.copy), as_copy(handed_out(lesson))
    place = lesson.shown(lesson.copy)
    if not written_in(mine, [theirs]):
        merged = merge(as_copy(base) if base is not None else None, theirs, as_copy(old))
        _write(lesson, seen, merged.nb, "start")
        return [
            f"Your answers in {where} ({_some(merged.answers)}) are in {place} now.",
            *merged.said,
        ]
    taken, left = _take_single_answers(mine, old, theirs)
    if taken:
        _write(lesson, seen, mine, "start")
    said = [f"Your answers in {where} ({_some(taken)}) are in {place} now."] if taken else []
    if left:
        beside = _beside(lesson, old)
        said.append(
            f"{_some(left)}: {place} has another answer, which stays; the other is in {beside}."
        )
    return said


def _take_single_answers(
    mine: Notebook, old: Notebook, theirs: Notebook
) -> tuple[list[str], list[str]]:
    """Fill stubs of `mine` from `old`; (what was taken, what stands otherwise in both)."""
    stubs = {_answer(cell) for cell in theirs.cells if is_solution(cell)}
    others = {
        grading_metadata(cell)["grade_id"]: cell.source
        for cell in reversed(old.cells)
        if is_solution(cell) and _answer(cell) not in stubs and cell.source.strip()
    }
    taken, same = [], []
    for cell in mine.cells:
        name = grading_metadata(cell).get("grade_id")
        if not is_solution(cell) or name not in others:
            continue
        if _answer(cell) in stubs:
            cell.source = others[name]
            taken.append(str(name))
        elif cell.source.strip() == others[name].strip():
            same.append(name)
    return taken, [str(name) for name in others if name not in taken and name not in same]


def _beside(lesson: Lesson, old: Notebook) -> str:
    """Write a notebook into a new file next to the copy."""
    number = 1
    while True:
        path = lesson.work / f"{lesson.name}.other-{number}.ipynb"
        if writing.write_new(path, to_text(as_copy(old)).encode()):
            return lesson.shown(path)
        number += 1


# ---- update


def update(lesson: Lesson) -> Done:
    """Put the exercise of today into the learner's copy."""
    if not lesson.copy.is_file() and work_in_exercises(lesson):
        return start(lesson)
    with writing.alone(lesson.work):
        said = _fetch_from_exercises(lesson) if lesson.copy.is_file() else []
        seen = writing.Seen.of(lesson.copy)
        if seen.data is None:
            raise CourseError(
                is_lost(lesson)
                or f"There is no {lesson.shown(lesson.copy)} to update: `course start {lesson.number}` makes it."
            )
        mine, exercise = read_copy(lesson), handed_out(lesson)
        theirs = as_copy(exercise)
        base = base_of(lesson, mine)
        merged = merge(as_copy(base) if base is not None else None, theirs, mine)
        current = same_cells(merged.nb, mine) and release_of(mine) == release_of(theirs)
        if current:
            return Done(lesson, "current", said)
        # the base first: a copy names its release, so a crash between the two leaves a pair that fits
        _keep_base(lesson, exercise)
        _write(lesson, seen, merged.nb, "update")
        return Done(lesson, "updated", [*said, *_sentences(lesson, merged)])


def has_update(lesson: Lesson) -> bool:
    """Whether the course's exercise is another one than the copy was made from. An unreadable copy says no."""
    try:
        mine = read(lesson.copy)
    except CourseError:
        return False
    return release_of(mine) != release_of(handed_out(lesson))


def _sentences(lesson: Lesson, merged: Merged) -> list[str]:
    said = []
    if merged.answers:
        said.append(f"your answers stay: {_some(merged.answers)}")
    for words, names in (
        ("changed by the course", merged.changed),
        ("new", merged.new),
        ("back, for it had been deleted", merged.back),
        ("no part of the course any more", merged.gone),
    ):
        if names:
            said.append(f"{words}: {_some(names)}")
    said += merged.said
    said.append(
        "If it is open in JupyterLab: File > Reload Notebook from Disk. "
        f"`course undo {lesson.number}` takes this back."
    )
    return said


def _some(names: list[str]) -> str:
    """At most six names, and how many more."""
    shown = ", ".join(names[:6])
    return f"{shown} and {len(names) - 6} more" if len(names) > 6 else shown or "none"


def _write(lesson: Lesson, seen: writing.Seen, nb: Notebook, why: str) -> None:
    history.keep(lesson, seen, why)
    writing.write(seen, to_text(nb).encode())


# ---- the exercise that a copy was made from


def _base_path(lesson: Lesson, release: str) -> Path:
    return lesson.work / ".base" / f"{lesson.name}.{release}.ipynb"


def _keep_base(lesson: Lesson, exercise: Notebook) -> None:
    writing.write_new(_base_path(lesson, release_digest(exercise)), to_text(exercise).encode())


def base_of(lesson: Lesson, mine: Notebook) -> Notebook | None:
    """The exercise that a copy was made from: the one that it names, as it was kept or from the clone's history.

    A copy that names none (an old one, or one that lost its metadata) gets the one that most of its cells come from.
    """
    release = release_of(mine)
    if release is not None:
        path = _base_path(lesson, release)
        if path.is_file() and (found := _readable(path)) is not None:
            return found
        return next((nb for nb in _in_git(lesson) if release_of(nb) == release), None)
    texts = {cell.source for cell in as_copy(mine).cells}
    best, most = None, 0
    for nb in (*_kept_bases(lesson), *_in_git(lesson)):
        common = len(texts.intersection(cell.source for cell in as_copy(nb).cells))
        if common > most:
            best, most = nb, common
    return best


def _kept_bases(lesson: Lesson) -> list[Notebook]:
    paths = sorted((lesson.work / ".base").glob(f"{lesson.name}.*.ipynb"))
    return [nb for path in paths if (nb := _readable(path)) is not None]


def _readable(path: Path) -> Notebook | None:
    try:
        return read(path)
    except CourseError:
        return None


def _at_head(lesson: Lesson) -> Notebook | None:
    """The exercise as the clone's commit has it."""
    return _of_commit(lesson, "HEAD")


def is_committed(lesson: Lesson) -> bool:
    """Whether the file under `exercises/` is as the clone's commit has it."""
    path = lesson.exercise.relative_to(lesson.root).as_posix()
    data = _git(lesson.root, "show", f"HEAD:./{path}")
    return data is not None and data == writing.Seen.of(lesson.exercise).data


def _in_git(lesson: Lesson) -> Iterator[Notebook]:
    """The exercise of today's commit and of earlier ones, the newest first."""
    path = lesson.exercise.relative_to(lesson.root).as_posix()
    commits = _git(lesson.root, "log", "-n", "100", "--format=%H", "--", path)
    for commit in (commits or b"").decode().split():
        nb = _of_commit(lesson, commit)
        if nb is not None:
            yield nb


def _of_commit(lesson: Lesson, commit: str) -> Notebook | None:
    path = lesson.exercise.relative_to(lesson.root).as_posix()
    data = _git(lesson.root, "show", f"{commit}:./{path}")
    try:
        return notebook_from(data, path, outputs=True) if data else None
    except CourseError:
        return None


def _git(root: Path, *words: str) -> bytes | None:
    """What git says, or None where there is no git or no repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
