"""`course progress`: how far one's own course is: the map of the lessons, points, and what comes next.

In:  the exercise notebooks as they are, and what `course check` found (`exercises/progress.json`, a file of the learner's own).
Out: a `Progress`, one line for each lesson.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .generate import exercise_from
from .marks import Report
from .notebooks import Lesson, graded_cells, grading_metadata, is_solution, lessons, read

BAR = 20  # characters of a full bar


@dataclass(frozen=True)
class Standing:
    """One lesson: `state` is "not begun", "begun" (never checked), "checked", "changed" (since it was checked), or "given" (the
    learner starts at a later one)."""

    name: str
    state: str
    points: float
    out_of: float
    before_start: bool = False  # The learner starts at a later one, whatever of this one is written

    @property
    def done(self) -> bool:
        return self.state == "given" or (self.state == "checked" and self.points == self.out_of)

    def __str__(self) -> str:
        full = round(BAR * self.points / self.out_of) if self.out_of else 0
        words = {
            "not begun": "",
            "begun": f"begun: `course check {self.name[:2]}` marks it",
            "changed": f"changed since: `course check {self.name[:2]}`",
            "checked": "✓" if self.done else "",
            "given": "given: you start later",
        }
        bar = "█" * full + "░" * (BAR - full)
        return f"{self.name:<28} {bar} {self.points:>4g} of {self.out_of:<4g} {words[self.state]}".rstrip()


@dataclass(frozen=True)
class Progress:
    """All lessons with exercises, in order."""

    lessons: tuple[Standing, ...]

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
        lines = [*map(str, self.lessons), "", f"{points:g} of {out_of:g} points"]
        if self.next is None:
            return "\n".join([*lines, "You have done all of it."])
        return "\n".join(
            [
                *lines,
                f"Next: notebooks/{self.next.name}.ipynb, then exercises/{self.next.name}/{self.next.name}.ipynb",
            ]
        )


def progress(root: Path) -> Progress:
    """Where the learner stands."""
    known, start = remembered(root), started_at(root) or ""
    return Progress(
        tuple(
            standing(lesson, known.get(lesson.name), lesson.name < start)
            for lesson in lessons(root)
        )
    )


def standing(lesson: Lesson, known: dict[str, Any] | None, given: bool = False) -> Standing:
    fresh = exercise_from(read(lesson.solution))
    out_of = sum(cell.points for cell in graded_cells(fresh))
    unwritten = Standing(lesson.name, "given" if given else "not begun", 0, out_of, given)
    if not lesson.exercise.is_file():
        return unwritten
    mine = read(lesson.exercise)
    begun = digest(mine) != digest(fresh)
    if known and (begun or not given):
        state = "checked" if known["answers"] == digest(mine) else "changed"
        return Standing(lesson.name, state, known["points"], out_of, given)
    return Standing(lesson.name, "begun", 0, out_of, given) if begun else unwritten


def remember(lesson: Lesson, report: Report) -> None:
    """Keep what a check of the lesson's own exercise notebook found."""
    known = remembered(lesson.root)
    known[lesson.name] = {"points": report.points, "answers": digest(read(lesson.exercise))}
    keep(lesson.root, known)


def remembered(root: Path) -> dict[str, dict[str, Any]]:
    """What checks found so far; a file that cannot be read counts as none."""
    try:
        return dict(json.loads((root / "exercises" / "progress.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def started_at(root: Path) -> str | None:
    """The lesson that the learner said to start at (`course start`), or None."""
    return remembered(root).get("start", {}).get("lesson")


def start_at(root: Path, lesson: Lesson) -> None:
    """Remember that all lessons before this one count as given."""
    keep(root, remembered(root) | {"start": {"lesson": lesson.name}})


def keep(root: Path, known: dict[str, dict[str, Any]]) -> None:
    path = root / "exercises" / "progress.json"
    new = path.with_suffix(".new")
    new.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(new, path)


def digest(nb: Any) -> str:
    """Changes when an answer does."""
    answers = [
        (grading_metadata(cell)["grade_id"], cell.source) for cell in nb.cells if is_solution(cell)
    ]
    return hashlib.sha256(json.dumps(answers).encode()).hexdigest()[:16]
