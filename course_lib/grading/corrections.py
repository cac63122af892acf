"""Marks that a teacher corrected by hand. They survive marking again.

In:  `grades.csv` as a teacher saved it, and `corrections.csv`, both in the folder of the marks.
Out: the records of a class with the corrected points and reasons in them.

A teacher changes a number in the column `points` of `grades.csv` and saves it; or writes a row into
`corrections.csv`. The next `course grade` finds what differs from the table that it wrote last
(`.written.csv`), notes it in `corrections.csv`, and puts it over its own mark from then on.
`marks.jsonl` keeps the marks of the checks: a row taken out of `corrections.csv` brings them back.
A changed table is copied to `.earlier/` before it is written again.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tables import COLUMNS as GRADES
from .tables import number_in, read_table, write_table

COLUMNS = ("student", "lesson", "grade_id", "points", "reason")

Key = tuple[str, str, str]  # student, lesson, name for grading
Record = dict[str, Any]


@dataclass(frozen=True)
class Correction:
    """One mark of a teacher's. `reason` is "" where only the points were changed."""

    student: str
    lesson: str
    grade_id: str
    points: float
    reason: str = ""

    @property
    def key(self) -> Key:
        """Which mark it is."""
        return self.student, self.lesson, self.grade_id

    def over(self, mark: dict[str, Any]) -> dict[str, Any]:
        """The checks' mark with this one put over it."""
        reason_of_checks = self.reason or mark["reason"].strip()
        by_hand = f"Corrected by hand: {self.points:g} in place of {mark['points']:g} points."
        reason = "\n".join(filter(None, (by_hand, reason_of_checks)))
        return {**mark, "points": self.points, "reason": reason}


class Corrections:
    """The corrections of one folder of marks."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.path = output / "corrections.csv"
        self.written = output / ".written.csv"
        self.by_key = {correction.key: correction for correction in self._stored()}

    def _stored(self) -> list[Correction]:
        """What `corrections.csv` has."""
        if not self.path.exists():
            return []
        rows = read_table(self.path, COLUMNS, "corrections.csv of `course grade`")
        return [_correction(row, self.path) for row in rows]

    def take(self, records: Iterable[Record], tell: Callable[[str], None]) -> None:
        """Note what a teacher changed in `grades.csv` since it was written."""
        table = self.output / "grades.csv"
        if not table.exists() or not self.written.exists() or self._untouched(table):
            return

        marks = {_key_of(record, mark): mark for record in records for mark in record["marks"]}
        new = _changed(table, self.written)
        for correction in new:
            by_checks = marks.get(correction.key)
            if (
                by_checks is not None
                and by_checks["points"] == correction.points
                and not correction.reason
            ):
                self.by_key.pop(correction.key, None)  # it is the checks' own mark again
            else:
                self.by_key[correction.key] = correction

        backup = self._keep(table)
        word = "mark" if len(new) == 1 else "marks"
        tell(f"grades.csv was changed by hand: {len(new)} {word} corrected; it is kept as {backup}")
        if new:
            self._store()

    def _untouched(self, table: Path) -> bool:
        """Is the table as it was written? (The one before counts as well: a run that was stopped
        may have written `.written.csv` and not yet the table.)"""
        data = table.read_bytes()
        old = self.written.with_name(".written.old.csv")
        return any(path.exists() and path.read_bytes() == data for path in (self.written, old))

    def _keep(self, table: Path) -> Path:
        """Copy the table to `.earlier/`, under the next number."""
        place = self.output / ".earlier"
        place.mkdir(exist_ok=True)
        backup = place / f"grades.{1 + sum(1 for _ in place.iterdir())}.csv"
        shutil.copy2(table, backup)
        return backup

    def _store(self) -> None:
        """Write `corrections.csv`."""
        rows = [vars(self.by_key[key]) for key in sorted(self.by_key)]
        write_table(self.path, COLUMNS, rows)

    def applied(self, records: Iterable[Record]) -> list[Record]:
        """The records with the teacher's marks in place of the checks'."""
        return [self._applied(record) for record in records]

    def _applied(self, record: Record) -> Record:
        marks = []
        for mark in record["marks"]:
            by_hand = self.by_key.get(_key_of(record, mark))
            marks.append(by_hand.over(mark) if by_hand else mark)
        return {**record, "marks": marks}

    def without_a_mark(self, records: Iterable[Record]) -> list[str]:
        """Corrections for which nothing is marked: a name that was written in another way."""
        marked_keys = {_key_of(record, mark) for record in records for mark in record["marks"]}
        return ["/".join(key) for key in sorted(self.by_key) if key not in marked_keys]

    def remember(self) -> None:
        """Call it before `grades.csv` is written again: what was written last is not a teacher's
        change."""
        if self.written.exists():
            shutil.copyfile(self.written, self.written.with_name(".written.old.csv"))


def _correction(row: dict[str, str], path: Path) -> Correction:
    """A row of a table as a correction. Raises CourseError for points that are no number."""
    what = f"{path}: for {row['student']}, {row['grade_id']} the cell `points`"
    points = number_in(row["points"], what)
    return Correction(row["student"], row["lesson"], row["grade_id"], points, row["reason"])


def _key_of(record: Record, mark: dict[str, Any]) -> Key:
    return record["student"], record["lesson"], mark["grade_id"]


def _changed(table: Path, written: Path) -> list[Correction]:
    """The rows of a saved table in which the points or the reason are other ones than were
    written."""
    file_name = "grades.csv of `course grade`"
    row_before = {_row_key(row): row for row in read_table(written, GRADES, file_name)}
    # A spreadsheet makes 7 of a student's number 007.
    short = {(_short(key[0]), *key[1:]): key for key in row_before}

    corrections = []
    for row in read_table(table, GRADES, file_name):
        key = _row_key(row)
        if key not in row_before:
            key = short.get((_short(key[0]), *key[1:]), key)
        if key not in row_before:  # a row that the teacher added
            continue
        now = _correction({**row, "student": key[0]}, table)
        earlier = _correction(row_before[key], written)
        other_words = _letters(now.reason) != _letters(earlier.reason)
        if now.points != earlier.points or other_words:
            reason = now.reason if other_words else ""
            corrections.append(Correction(*key, now.points, reason))
    return corrections


def _row_key(row: dict[str, str]) -> Key:
    return row["student"], row["lesson"], row["grade_id"]


def _short(student: str) -> str:
    """A number as a spreadsheet writes it, without zeros at its front; a name as it is."""
    if student.isdigit():
        return student.lstrip("0")
    return student


def _letters(text: str) -> str:
    """What no spreadsheet changes in a text: it may lose accents, ends of lines and blanks."""
    return re.sub(r"[^A-Za-z0-9]", "", text)
