"""The versions of a learner's notebook from before each command that wrote it, and the way back.

In:  a `Lesson`, whose copy a command is about to write. Out:
`work/.history/NN_name/000007-20261127T081500Z-update.ipynb`, the file before; `undo` brings one
back, and keeps what it replaces, so that an undo can be undone.

Files are kept byte by byte, readable or not. Old ones go when there are more than `NEWEST` or they
are larger than `ROOM` together. The newest `ALWAYS` stay in any case, and so does the newest one
with answers.

JupyterLab's server keeps the file before its saves, too (`lab_saves`). A plain `undo` steps through
commands, and through saves of one window over another's; the ordinary saves are reached by their
numbers.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from course_lib.languages import phrase

from . import writing
from .notebooks import CourseError, Lesson, read
from .written_answers import holds_work

NEWEST = 50  # versions of one lesson that are kept
ALWAYS = 5  # of them, however large they are
ROOM = 200 * 2**20  # bytes of one lesson
SAVES = 20  # of JupyterLab's own saves: one in two minutes while somebody types

_NAME = re.compile(r"(?P<number>\d{6})-(?P<when>\d{8}T\d{6}Z)-(?P<why>\w+)\.ipynb")
# Why a version was kept (a word of its file's name) → how `course undo --list` says that
_BEFORE = {
    "check": "when `course check` marked it",
    "undo": "before `course undo`",
    "update": "before `course update`",
    "start": "before `course start`",
    "exercises": "in exercises/, before it was restored",
    "lab": "before JupyterLab was ended while it saved",
    "save": "before JupyterLab saved it",
    "window": "before another window of JupyterLab saved over it",
}
# If a version with the same content is there already, these reasons do not replace its own: they
# say less.
_STAYS = ("check", "save")


@dataclass(frozen=True)
class Version:
    """One kept file: its number (the order), when it was kept, and by which command."""

    path: Path
    number: int
    when: datetime
    why: str

    @property
    def moment(self) -> str:
        """When it was kept, by the clock of this machine."""
        return self.when.astimezone().strftime("%Y-%m-%d %H:%M:%S")

    @property
    def reason(self) -> str:
        """Which command kept it, in the learner's language."""
        return phrase(_BEFORE[self.why]) if self.why in _BEFORE else self.why

    def __str__(self) -> str:
        return f"{self.number}  {self.moment}  {self.reason}"


def folder(lesson: Lesson) -> Path:
    """Where a lesson's versions are."""
    return lesson.work / ".history" / lesson.name


def versions(lesson: Lesson) -> list[Version]:
    """What is kept of a lesson, the oldest first."""
    kept_versions = []
    for path in folder(lesson).glob("*.ipynb"):
        if parts := _NAME.fullmatch(path.name):
            when = datetime.strptime(parts["when"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
            kept_versions.append(Version(path, int(parts["number"]), when, parts["why"]))
    return sorted(kept_versions, key=_number)


def keep(lesson: Lesson, seen: writing.Seen, why: str) -> None:
    """Keep the file that was `seen`. Raises if that cannot be done.

    Where the newest version says the same, it only gets the new reason: what a learner undoes is
    the command that wrote.
    """
    kept_versions = versions(lesson)
    if seen.data is None:
        return
    if kept_versions and kept_versions[-1].path.read_bytes() == seen.data:
        if why not in _STAYS:
            _rename(kept_versions[-1], why)
        return
    number = kept_versions[-1].number + 1 if kept_versions else 1
    name = f"{number:06d}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{why}.ipynb"
    writing.write_new(folder(lesson) / name, seen.data)
    _prune(lesson)


def _rename(version: Version, why: str) -> None:
    """Give a version another reason. That this fails loses nothing."""
    name = f"{version.number:06d}-{version.when:%Y%m%dT%H%M%SZ}-{why}.ipynb"
    with contextlib.suppress(OSError):
        version.path.rename(version.path.with_name(name))


def keep_now(lesson: Lesson, why: str) -> None:
    """Keep the copy as it is now."""
    with writing.alone(lesson.work):
        keep(lesson, writing.Seen.of(lesson.copy), why)


def of_lab(lesson: Lesson) -> Path | None:
    """The file that JupyterLab put aside before a save that never ended, or None.

    Lab copies a notebook to `.~NAME`, writes over it in place, and removes the copy
    (`jupyter_server.services.contents.fileio`). Where it is killed in between, the notebook is
    empty or cut short, and this file is what was saved last.
    """
    aside = lesson.copy.with_name(f".~{lesson.copy.name}")
    if aside.is_file() and not _is_readable(lesson.copy) and _is_readable(aside):
        return aside
    return None


def _keep_of_lab(lesson: Lesson) -> None:
    """Take Lab's file into the history, as the newest version.

    It is removed: an older one must never come back later."""
    aside = of_lab(lesson)
    if aside is not None:
        keep(lesson, writing.Seen.of(aside), "lab")
        with contextlib.suppress(OSError):
            aside.unlink()


def saves_after(lesson: Lesson, version: Version) -> int:
    """How many of JupyterLab's own saves are kept that are newer than this version."""
    newer = [each for each in versions(lesson) if each.number > version.number]
    return sum(each.why == "save" for each in newer)


def undo(lesson: Lesson, number: int | None = None) -> Version:
    """Put an older version in the place of the learner's copy: the newest that differs from it and
    can be read.

    Where the copy is there, JupyterLab's ordinary saves are passed over: what is undone is a
    command, or another window's save. `number` chooses any version.
    """
    with writing.alone(lesson.work):
        _keep_of_lab(lesson)
        now = writing.Seen.of(lesson.copy)
        version = _chosen(lesson, number, now)
        data = writing.Seen.of(version.path).data or b""
        keep(lesson, now, "undo")
        writing.write(now, data)
    return version


def _chosen(lesson: Lesson, number: int | None, now: writing.Seen) -> Version:
    """The version that `undo` puts back; `now`: the copy as it is."""
    kept_versions = versions(lesson)
    if number is not None:
        chosen = [version for version in kept_versions if version.number == number]
        if not chosen:
            raise CourseError(
                phrase(
                    "There is no version {version} of {lesson}: `course undo {n} --list` shows all.",
                    version=number,
                    lesson=lesson,
                    n=lesson.number,
                )
            )
        return chosen[0]

    # What stood under exercises/ was another file.
    copies = [version for version in reversed(kept_versions) if version.why != "exercises"]
    other = [version for version in copies if version.path.read_bytes() != now.data]
    # A spoilt file that an earlier undo replaced is kept, but nobody wants it back.
    other = [version for version in other if _is_readable(version.path)] or other
    # Of a copy that is gone or spoilt what was saved last is wanted, whoever saved it.
    steps = other if not _is_readable(lesson.copy) else [v for v in other if v.why != "save"]
    # The first of them. Where only ordinary saves differ, one of these is better than nothing.
    for version in steps or other:
        return version
    raise CourseError(
        phrase(
            "There is nothing to undo: no command has changed {copy}.",
            copy=lesson.shown(lesson.copy),
        )
    )


def _is_readable(path: Path) -> bool:
    try:
        read(path)
    except CourseError:
        return False
    return True


def _prune(lesson: Lesson) -> None:
    """Remove what is too old. That this fails loses nothing."""
    for version in _too_many(lesson):
        with contextlib.suppress(OSError):
            version.path.unlink()


def _too_many(lesson: Lesson) -> list[Version]:
    """The versions that may go: the newest with answers never does."""
    newest_first = versions(lesson)[::-1]

    # Saves are many: they never push out what a command kept.
    gone = [version for version in newest_first if version.why == "save"][SAVES:]
    others = [version for version in newest_first if version not in gone]
    gone += _beyond_the_room(others)

    stay = [version for version in newest_first if version not in gone]
    if not gone or any(holds_work(lesson, version.path) for version in stay):
        return gone
    last = next((version for version in gone if holds_work(lesson, version.path)), None)
    return [version for version in gone if version is not last]


def _beyond_the_room(newest_first: list[Version]) -> list[Version]:
    """Those behind the newest ones, where they are too many or too large together."""
    versions_to_drop = []
    bytes_used = 0
    for place, version in enumerate(newest_first):
        bytes_used += version.path.stat().st_size
        is_too_much = place >= NEWEST or bytes_used > ROOM
        if place >= ALWAYS and is_too_much:
            versions_to_drop.append(version)
    return versions_to_drop


def _number(version: Version) -> int:
    return version.number
