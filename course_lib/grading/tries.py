"""A log of the tries of `course check`, and a wait between them where a class wants one.

In:  each run of `course check`, and `course.toml` at the top of the course, if there is one:

         [check]
         minutes_between = 10     # of two tries at one lesson
         tries_a_day = 20         # at one lesson

Out: `work/tries.jsonl`, a line for each try: when, which lesson, how many points; and a refusal in
     one sentence.

Both settings are 0 at first: no wait. The log is the learner's own file: it lies in `work/`, is
handed in with the notebooks if a teacher asks for it, and whoever wants to can edit it. It is for
talking about how somebody works, not for proving anything. The PyTorch counterpart: none.
"""

from __future__ import annotations

import json
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from course_lib.languages import phrase

from .marks import Report
from .notebooks import CourseError, Lesson, work_folder

FILE = "tries.jsonl"
SETTINGS = "course.toml"


@dataclass(frozen=True)
class Limit:
    """How often a lesson may be checked; 0: as often as one likes."""

    minutes_between: float = 0
    tries_a_day: int = 0


@dataclass(frozen=True)
class Try:
    """One run of `course check`. `time` is ISO 8601, in UTC."""

    time: str
    lesson: str
    points: float
    out_of: float

    @property
    def moment(self) -> datetime:
        return datetime.fromisoformat(self.time)


def limit_of(root: Path) -> Limit:
    """What `course.toml` says."""
    path = root / SETTINGS
    if not path.is_file():
        return Limit()
    try:
        check_options = tomllib.loads(path.read_text(encoding="utf-8")).get("check", {})
        wait, tries = check_options.get("minutes_between", 0), check_options.get("tries_a_day", 0)
        # "not >=", so that NaN is refused, too; a text raises TypeError here
        if not wait >= 0 or not tries >= 0:
            raise ValueError("a number is below 0")
    # AttributeError: `check = 3`, which is no table
    except (OSError, ValueError, TypeError, AttributeError) as problem:
        raise CourseError(
            f"{path} cannot be used ({problem}). "
            "It should say `[check]`, and below it `minutes_between = 10` or `tries_a_day = 20`."
        ) from None
    return Limit(wait, tries)


def require_a_turn(lesson: Lesson, now: datetime | None = None) -> None:
    """Raise CourseError where this lesson has been checked too often, with the time from which on
    it may be."""
    limit = limit_of(lesson.root)
    if limit == Limit():
        return
    now = now or datetime.now(UTC)
    times_of_tries = [
        each.moment for each in tries_in(file_of(lesson.root)) if each.lesson == lesson.name
    ]
    free = next_turn(times_of_tries, limit, now)
    if free > now:
        # rounded up: after so many minutes it is allowed
        minutes = -(-(free - now).total_seconds() // 60)
        raise CourseError(
            phrase(
                "This course wants time between two tries ({file}). "
                "Lesson {lesson} can be checked again in {n} minutes. "
                "The checks that you can see run in the notebook at any time.",
                file=SETTINGS,
                lesson=lesson.number,
                n=f"{minutes:.0f}",
            )
        )


def next_turn(moments: list[datetime], limit: Limit, now: datetime) -> datetime:
    """From when on the next try is allowed: the latest moment that a rule asks for, or now.

    A day is the last 24 hours, so that midnight gives nobody twice as many tries."""
    free = [now]
    if moments:
        free.append(max(moments) + timedelta(minutes=limit.minutes_between))
    today = sorted(moment for moment in moments if moment > now - timedelta(days=1))
    if limit.tries_a_day and len(today) >= limit.tries_a_day:
        # once this one is a day old, one try fewer than allowed is left within the day
        free.append(today[-limit.tries_a_day] + timedelta(days=1))
    return max(free)


def note(lesson: Lesson, report: Report, now: datetime | None = None) -> None:
    """Write one try behind the others."""
    moment = (now or datetime.now(UTC)).isoformat(timespec="seconds")
    line = json.dumps(asdict(Try(moment, lesson.name, report.points, report.out_of)))
    path = file_of(lesson.root)
    try:
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
    except OSError as problem:
        raise CourseError(f"{path} cannot be written ({problem.strerror}).") from None


def file_of(root: Path) -> Path:
    return work_folder(root) / FILE


def tries_in(path: Path) -> list[Try]:
    """The tries of a log.

    A line that says something else is left out: the file is the learner's."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return [one_try for line in lines if (one_try := try_of(line)) is not None]


def try_of(line: str) -> Try | None:
    """The try that a line of the log tells of; None if it tells of none, or gives a time without a
    zone, which cannot be compared with the others."""
    try:
        record: Any = json.loads(line)
        one_try = Try(
            record["time"], str(record["lesson"]), float(record["points"]), float(record["out_of"])
        )
        return one_try if one_try.moment.tzinfo is not None else None
    except (ValueError, KeyError, TypeError):
        return None


@dataclass(frozen=True)
class Course:
    """One lesson's tries in one log."""

    log: str
    lesson: str
    tries: tuple[Try, ...]

    def __str__(self) -> str:
        points = " ".join(f"{each.points:g}" for each in self.tries)
        first, last = self.tries[0].moment, self.tries[-1].moment
        days = (last.date() - first.date()).days + 1
        count_in_words = f"{len(self.tries)} {'try' if len(self.tries) == 1 else 'tries'}"
        over = f"over {days} days" if days > 1 else f"on {first:%Y-%m-%d}"
        return f"{self.log:<24} {self.lesson:<25} {count_in_words:>8} {over}, points: {points}"


def courses(paths: Iterable[Path]) -> list[Course]:
    """The tries in these logs, or in all logs under these folders, lesson by lesson."""
    tries_by_course = []
    for path in paths:
        logs = sorted(path.rglob(FILE)) if path.is_dir() else [path]
        for log in logs:
            by_lesson: dict[str, list[Try]] = defaultdict(list)
            for each in tries_in(log):
                by_lesson[each.lesson].append(each)
            # whose log it is: `ann/tries.jsonl`, or `ann.jsonl`
            name = log.parent.name if log.name == FILE else log.stem
            for lesson, tries in sorted(by_lesson.items()):
                in_order = sorted(tries, key=lambda each: each.moment)
                tries_by_course.append(Course(name, lesson, tuple(in_order)))
    return tries_by_course
