"""`course gradebook`: the marks of a class in the table that a learning platform imports.

In:  the gradebook as Canvas or Moodle exports it (CSV), and `grades.csv`, which `course grade`
     wrote.
Out: the same table with the marks filled in. The platform's own import reads it back: nothing else
     has to be typed.

A platform knows its students by numbers that only the platform has. So its own export is where we
begin: rows, columns and numbers stay as they are, and only the cells of our lessons change. A
lesson's column is found by the lesson's number in its heading ("Lesson 05", "Assignment: 05 dynamic
shapes (Real)"). Canvas makes a new assignment of a column that it does not know. Moodle refuses
one: there each lesson needs a grade item before the export.
A student whom two rows fit, or none, is told by name and gets nothing: no mark is guessed into
somebody's row. The PyTorch counterpart: none. nbgrader has `nbgrader export`, whose columns no
platform imports.
"""

from __future__ import annotations

import csv
import io
import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .anonymous import real_names
from .notebooks import CourseError
from .tables import COLUMNS, guarded, number_in, read_table, text_of, unguarded

POSSIBLE = "points possible"
"""Canvas has a row of this name: how many points each assignment gives."""
NUMBERED = re.compile(r"(?<!\d)0?(\d{1,2})(?!\d)")
"""A number that may be a lesson's: `5`, `05`, and no part of a longer one."""
ITEM_ID = re.compile(r"\(\d+\)\s*$")
"""Canvas writes the number of its assignment behind the name: `Lesson 05 (1234)`."""


@dataclass(frozen=True)
class Platform:
    """How one platform's export is known, and by what its rows may be called."""

    name: str
    # Columns that every export of it has
    known_by: tuple[str, ...]
    # Each of these, joined, is a name that a submission of this student may have
    names: tuple[tuple[str, ...], ...]
    # May a column be added that the platform does not know yet?
    takes_new_columns: bool


PLATFORMS = (
    Platform(
        "Canvas",
        known_by=("student", "id", "section"),
        names=(("student",), ("sis login id",), ("sis user id",)),
        takes_new_columns=True,
    ),
    Platform(
        "Moodle",
        known_by=("first name", "email address"),
        names=(
            ("first name", "last name"),
            ("first name", "surname"),
            ("id number",),
            ("email address",),
            ("username",),
        ),
        takes_new_columns=False,
    ),
)


@dataclass(frozen=True)
class Filled:
    """What was written, in numbers, and what needs the teacher."""

    platform: str
    marks: int
    students: int
    said: tuple[str, ...]

    def __str__(self) -> str:
        summary = (
            f"{self.marks} marks of {self.students} students in the gradebook of {self.platform}"
        )
        return "\n".join([summary, *self.said])


def fill(export: Path, grades: Path, output: Path, written: Path | None = None) -> Filled:
    """Write `output`: the platform's table with the points of `grades` (and of `written`, marks
    given by hand)."""
    rows = table_of(export)
    platform = platform_of(rows[0], export)
    points = lesson_points(grades)
    if written is not None:
        add_written(points, written)
    # Was the class marked without names? Then the names come back here.
    real = real_names(grades.parent)
    points = {real.get(student, student): marks for student, marks in points.items()}

    students, notes = matched(rows, platform, points)
    columns, more = columns_for(rows, platform, possible_points(grades))
    notes += more

    marks = 0
    for student, number in students.items():
        for lesson, earned in points[student].items():
            if lesson in columns:
                rows[number][columns[lesson]] = f"{earned:g}"
                marks += 1
    write_rows(output, rows)
    return Filled(platform.name, marks, len(students), tuple(notes))


# ---- reading


def table_of(path: Path) -> list[list[str]]:
    """All cells of a CSV file, each row as long as the first."""
    try:
        text = text_of(path.read_bytes())
    except OSError as error:
        raise CourseError(
            f"{path} cannot be read ({error.strerror}). It should be a gradebook as Canvas or Moodle exports it."
        ) from None

    # Of the three that spreadsheets write, the one that the first row has most often
    head = text.partition("\n")[0]
    separator = max(",;\t", key=head.count)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    rows = [row for row in rows if any(cell.strip() for cell in row)]
    if not rows:
        raise CourseError(f"{path} is empty. Export the gradebook once more.")
    width = max(map(len, rows))
    return [row + [""] * (width - len(row)) for row in rows]


def platform_of(head: list[str], path: Path) -> Platform:
    """Whose export this is."""
    names = {plain(name) for name in head}
    for platform in PLATFORMS:
        if names.issuperset(platform.known_by):
            return platform

    wanted = " or ".join(f"{', '.join(p.known_by)} ({p.name})" for p in PLATFORMS)
    raise CourseError(
        f"{path} is no gradebook of Canvas or Moodle: its first row should have the columns {wanted}."
    )


def lesson_points(grades: Path) -> dict[str, dict[str, float]]:
    """Student → lesson → points, summed over its exercises."""
    points: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row in read_table(grades, COLUMNS, "table of marks, grades.csv"):
        what = f"{grades}: the points of {row['student']} in {row['exercise']}"
        points[row["student"]][row["lesson"]] += number_in(row["points"], what)
    return points


def possible_points(grades: Path) -> dict[str, float]:
    """Lesson → the most points that it gives."""
    exercises: dict[tuple[str, str], float] = {}
    for row in read_table(grades, COLUMNS, "table of marks, grades.csv"):
        what = f"{grades}: the points that {row['exercise']} gives"
        exercises[row["lesson"], row["grade_id"]] = number_in(row["out_of"], what)

    possible: dict[str, float] = defaultdict(float)
    for (lesson, _), most in exercises.items():
        possible[lesson] += most
    return possible


def add_written(points: dict[str, dict[str, float]], written: Path) -> None:
    """Add what a teacher gave for written answers: `student,lesson,question,points`."""
    columns = ("student", "lesson", "question", "points")
    for row in read_table(written, columns, "table of written answers"):
        if not row["points"].strip():
            continue
        # A lesson may be called `05`; its marks stand under its whole name.
        lesson = row["lesson"].strip()
        what = f"{written}: the points of {row['student']} for question {row['question']}"
        number = f"{int(number_in(lesson[:2], what)):02}"
        name = next((name for name in points[row["student"]] if name[:2] == number), lesson)
        points[row["student"]][name] += number_in(row["points"], what)


# ---- finding rows and columns


def plain(text: str) -> str:
    """A heading without capitals, and without the mark with which some exports begin."""
    return " ".join(text.strip("\ufeff \t").lower().split())


def key_of(name: str) -> str:
    """A name without signs, spaces and accents: `Example, Änn` and `exampleann` are one."""
    bare = unicodedata.normalize("NFKD", unguarded(name))
    return "".join(sign for sign in bare.casefold() if sign.isalnum())


def matched(
    rows: list[list[str]], platform: Platform, students: Iterable[str]
) -> tuple[dict[str, int], list[str]]:
    """Student → the number of the row; and a line for each student without one."""
    head = [plain(name) for name in rows[0]]
    # A name that a submission may have → the rows that it fits
    fits: dict[str, set[int]] = defaultdict(set)
    for number, row in enumerate(rows[1:], 1):
        for parts in platform.names:
            if all(part in head for part in parts):
                name = " ".join(row[head.index(part)] for part in parts)
                fits[key_of(name)].add(number)
    fits.pop("", None)  # of empty cells

    row_of_student: dict[str, int] = {}
    notes = []
    student_of_row: dict[int, str] = {}
    for student in students:
        numbers = fits.get(key_of(student), set())
        if len(numbers) != 1:
            why = "no row" if not numbers else f"{len(numbers)} rows"
            notes.append(
                f"{student}: {why} of the gradebook fits this name; the marks are not in it"
            )
            continue
        (number,) = numbers
        if number in student_of_row:
            notes.append(
                f"{student}: the row has the marks of {student_of_row[number]} already; these are not in it"
            )
            continue
        row_of_student[student] = number
        student_of_row[number] = student
    return row_of_student, notes


def columns_for(
    rows: list[list[str]], platform: Platform, possible: dict[str, float]
) -> tuple[dict[str, int], list[str]]:
    """Lesson → the number of its column.

    Where the platform allows it, a column that is missing is put behind the others."""
    column_of_lesson, notes = {}, []
    for lesson in sorted(possible):
        fitting = [n for n, name in enumerate(rows[0]) if is_column_of(name, lesson)]
        if len(fitting) > 1:
            names = ", ".join(rows[0][n] for n in fitting)
            notes.append(f"{lesson}: several columns fit ({names}); its marks are in none")
        elif fitting:
            column_of_lesson[lesson] = fitting[0]
        elif platform.takes_new_columns:
            add_column(rows, lesson, possible[lesson])
            column_of_lesson[lesson] = len(rows[0]) - 1
            notes.append(f"{lesson}: a new column; {platform.name} will ask whether to make it")
        else:
            notes.append(
                f"{lesson}: the gradebook has no column for it; make a grade item '{lesson}' in {platform.name}, and export again"
            )
    return column_of_lesson, notes


def is_column_of(heading: str, lesson: str) -> bool:
    """Does this heading name the lesson?

    Its number must stand in it, with the word lesson or a word of its name."""
    words = set(re.findall(r"[a-z]+", heading.lower()))
    numbers = {int(n) for n in NUMBERED.findall(ITEM_ID.sub("", heading))}
    words_of_lesson = words & {"lesson", *lesson[3:].split("_")} - {"and", "in", "to"}
    return bool(words_of_lesson) and int(lesson[:2]) in numbers


def add_column(rows: list[list[str]], heading: str, possible: float) -> None:
    """One more column, empty but for the row that says how many points there are."""
    rows[0].append(heading)
    for row in rows[1:]:
        row.append(f"{possible:g}" if plain(row[0]) == POSSIBLE else "")


# ---- writing


def write_rows(path: Path, rows: list[list[str]]) -> None:
    """Write the table; the file is whole or is as it was before."""
    if not path.parent.is_dir():
        raise CourseError(f"{path} cannot be written: name a file in a folder that exists.")
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[safe(cell) for cell in row] for row in rows])
        os.replace(new, path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise CourseError(f"{path} cannot be written ({error.strerror}).") from None


def safe(cell: str) -> str:
    """A negative number stays one; any other text that a spreadsheet would compute is guarded."""
    if re.fullmatch(r"-?[\d.,]+%?|-", cell.strip()):
        return cell
    return guarded(cell)
