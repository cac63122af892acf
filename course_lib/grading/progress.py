"""`course progress`: how far one's own course is: the map of the lessons, points, and what comes
next.

In:  the learner's copies as they are, and what `course check` found (`work/progress.json`, or in an
     old clone `exercises/progress.json`).
Out: a `Progress`, one line for each lesson.

A file of another shape, of a newer version of the course, or that cannot be read counts as none,
and a line says so. It is not written over before it is kept beside. A notebook that cannot be read
is one line.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.languages import chosen, folder_of, phrase

from . import writing
from .copies import has_update
from .handed_out import handed_out
from .learners_files import is_lost, read_copy, work_in_exercises
from .marks import Report
from .notebooks import (
    CourseError,
    Lesson,
    graded_cells,
    grading_metadata,
    is_solution,
    lessons,
    read,
    work_folder,
)

BAR = 12  # characters of a full bar: a line fits 80
VERSION = 2  # of progress.json; the first had no number


@dataclass(frozen=True)
class Standing:
    """One lesson.

    `state` is "not begun", "begun" (never checked), "checked", "changed" (since it was checked),
    "unreadable", or "given": the learner starts at a later lesson and has written nothing here, so
    nothing is asked."""

    name: str
    state: str
    points: float
    out_of: float
    # The learner starts at a later lesson (and may have written something in this one all the same)
    before_start: bool = False
    update: bool = False  # The course has a newer exercise

    @property
    def done(self) -> bool:
        return self.state == "given" or (self.state == "checked" and self.points == self.out_of)

    def __str__(self) -> str:
        full = round(BAR * self.points / self.out_of) if self.out_of else 0
        words = {
            "not begun": "",
            "begun": phrase("begun: `course check {n}`", n=self.name[:2]),
            "changed": phrase("changed: `course check {n}`", n=self.name[:2]),
            "checked": "✓" if self.done else "",
            "given": phrase("given: you start later"),
            "unreadable": phrase("cannot be read, see below"),
        }
        bar = "█" * full + "░" * (BAR - full)
        newer = ""
        if self.update:
            newer = phrase("(newer exercise: `course update {n}`)", n=self.name[:2])
        points = phrase("{n} of {all}", n=f"{self.points:>4g}", all=f"{self.out_of:<4g}")
        line = f"{self.name:<25} {bar} {points} {words[self.state]}"

        return f"{line} {newer}".rstrip()


@dataclass(frozen=True)
class Progress:
    """All lessons with exercises, in order; `notes` are sentences about files that need the
    learner."""

    lessons: tuple[Standing, ...]
    notes: tuple[str, ...] = ()

    @property
    def next(self) -> Standing | None:
        """The first lesson that is not done, from where the learner starts."""
        return next(
            (
                standing
                for standing in self.lessons
                if not standing.done and not standing.before_start
            ),
            None,
        )

    def __str__(self) -> str:
        points, out_of = (
            sum(getattr(s, part) for s in self.lessons) for part in ("points", "out_of")
        )
        sum_of_points = phrase("{n} of {all} points", n=f"{points:g}", all=f"{out_of:g}")
        lines = [*map(str, self.lessons), "", sum_of_points, *self.notes]
        if self.next is None:
            return "\n".join([*lines, phrase("You have done all of it.")])
        copy = f"work/{self.next.name}.ipynb"
        lesson = lesson_in_language(self.next.name)
        return "\n".join([*lines, phrase("Next: {lesson}, then {copy}", lesson=lesson, copy=copy)])


def lesson_in_language(name: str) -> str:
    """Where the learner reads a lesson: the edition in the chosen language has its own folder."""
    language = chosen()
    folder = f"notebooks/{folder_of(language)}" if language else "notebooks"
    return f"{folder}/{name}.ipynb"


@dataclass
class Memory:
    """What is remembered from one command to the next: lesson → points and a digest of the answers;
    the lesson to start at."""

    known: dict[str, dict[str, Any]] = field(default_factory=dict)
    start: str | None = None
    problem: str = ""  # why a file that is there counts as none


def progress(root: Path) -> Progress:
    """Where the learner stands."""
    memory = remembered(root)
    notes = [memory.problem] if memory.problem else []
    standings = []
    for lesson in lessons(root):
        # names begin with the lesson's number, so their order is that of the lessons
        is_given = lesson.name < (memory.start or "")
        standings.append(standing(lesson, memory.known.get(lesson.name), is_given, notes))
    return Progress(tuple(standings), tuple(notes))


def standing(
    lesson: Lesson, known: dict[str, Any] | None, is_given: bool, notes: list[str]
) -> Standing:
    """One lesson's line. A sentence about a file that needs the learner is added to `notes`."""
    fresh = handed_out(lesson)
    out_of = sum(cell.points for cell in graded_cells(fresh))

    try:
        learners_notebook = _learners(lesson, notes)
    except CourseError as problem:
        notes.append(str(problem))
        return Standing(lesson.name, "unreadable", 0, out_of, is_given)

    unwritten = Standing(lesson.name, "given" if is_given else "not begun", 0, out_of, is_given)
    if learners_notebook is None:
        return unwritten
    update = lesson.copy.is_file() and has_update(lesson)
    begun = digest(learners_notebook) != digest(fresh)
    if known and (begun or not is_given):
        state = "checked" if known["answers"] == digest(learners_notebook) else "changed"
        return Standing(lesson.name, state, known["points"], out_of, is_given, update)
    if begun:
        return Standing(lesson.name, "begun", 0, out_of, is_given, update)

    return unwritten


def _learners(lesson: Lesson, notes: list[str]) -> Any:
    """The learner's notebook, or None where nothing was written."""
    old = work_in_exercises(lesson)
    if old:
        where = lesson.shown(lesson.exercise)
        notes.append(
            phrase(
                "{file} has answers: `course start {n}` moves them to {copy}.",
                file=where,
                n=lesson.number,
                copy=lesson.shown(lesson.copy),
            )
        )
    if lesson.copy.is_file():
        return read_copy(lesson)
    if old:
        return read(lesson.exercise)
    if lost := is_lost(lesson):
        notes.append(lost)
    return None


# ---- what is remembered


def remember(lesson: Lesson, report: Report, answers: str | None = None) -> None:
    """Keep what a check found; `answers` is the `digest` of what it marked (default: of the
    learner's notebook as it is now)."""
    if answers is None:
        answers = digest(read(lesson.copy if lesson.copy.is_file() else lesson.exercise))
    with writing.alone(lesson.work):
        memory = remembered(lesson.root)
        memory.known[lesson.name] = {"points": report.points, "answers": answers}
        _keep(lesson.root, memory)


def start_at(root: Path, lesson: Lesson) -> None:
    """Remember that all lessons before this one count as given."""
    with writing.alone(lesson.work):
        memory = remembered(root)
        memory.start = lesson.name
        _keep(root, memory)


def started_at(root: Path) -> str | None:
    """The lesson that the learner said to start at (`course join`), or None."""
    return remembered(root).start


def remembered(root: Path) -> Memory:
    """What checks found so far; a file that says something else counts as none."""
    path = _file(root)
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return Memory()
    except (OSError, ValueError) as problem:
        return Memory(
            problem=_counts_as_none(path, phrase("it cannot be read ({error})", error=problem))
        )

    if (
        isinstance(content, dict)
        and isinstance(content.get("version"), int)
        and content["version"] > VERSION
    ):
        return Memory(
            problem=_counts_as_none(path, phrase("a newer version of the course wrote it"))
        )

    return _memory(content) or Memory(problem=_counts_as_none(path, phrase("it has another shape")))


def _file(root: Path) -> Path:
    """Where it is remembered; the file of an old clone, until there is a new one."""
    new = work_folder(root) / "progress.json"
    old = root / "exercises" / "progress.json"
    if old.exists() and not new.exists():
        return old
    return new


def _memory(content: Any) -> Memory | None:
    """What the JSON says, or None where it is not what this course writes."""
    if not isinstance(content, dict):
        return None
    if "version" in content:
        known, start = content.get("lessons"), content.get("start")
    else:  # the first version: lessons and the start side by side
        known = {name: record for name, record in content.items() if name != "start"}
        start = content.get("start", {"lesson": None})
        start = start.get("lesson") if isinstance(start, dict) else start

    right = isinstance(known, dict) and all(_is_known(record) for record in known.values())
    if not right or not isinstance(start, str | None):
        return None

    return Memory(dict(known or {}), start)


def _is_known(about: Any) -> bool:
    """Whether this is what a check left of a lesson: points, and the digest of the answers."""
    return (
        isinstance(about, dict)
        and isinstance(about.get("points"), int | float)
        and isinstance(about.get("answers"), str)
    )


def _counts_as_none(path: Path, why: str) -> str:
    """The sentence for the learner about a file that is not used."""
    return phrase(
        "What checks found before is not known: {file} counts as none, for {why}.",
        file=f"{path.parent.name}/{path.name}",
        why=why,
    )


def _keep(root: Path, memory: Memory) -> None:
    """Write what is remembered. A file that counted as none is put aside first."""
    path = work_folder(root) / "progress.json"
    file_before = writing.Seen.of(path)
    if memory.problem and file_before.data is not None:
        _put_aside(path, file_before.data)
    content = {"version": VERSION, "start": memory.start, "lessons": memory.known}
    writing.write(file_before, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def _put_aside(path: Path, data: bytes) -> None:
    """Keep a file that was not understood, under a name that is free."""
    number = 1
    while not writing.write_new(path.with_name(f"progress.other-{number}.json"), data):
        number += 1


def digest(nb: Any) -> str:
    """Changes when an answer does."""
    answers = [
        (grading_metadata(cell)["grade_id"], cell.source) for cell in nb.cells if is_solution(cell)
    ]
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:16]
