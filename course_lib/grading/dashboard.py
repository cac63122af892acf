"""What a class did, in pictures: read by `notebooks/class_dashboard.ipynb`.

In:  `grades.csv` of `course grade`. Out: `Grades`, and pictures of it: which exercises pass, which
wrong answers many share, points over students.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from course_lib.viz.kit.bars import bars
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, shorten, text_width
from course_lib.viz.kit.tables import columns, table

from .tables import COLUMNS, number_in, read_table

CELL, NAME = 24, 110  # px of one exercise of one student, and of the students' names
LONGEST, STEP = 420, 28  # px of a bar of 100 %, and from one to the next
# px from the top of a bar, and of a square, to the base line of its text
BAR_LINE, SQUARE_LINE = 14, 16
HEAD = 24  # px: the room for the numbers of lessons above the squares
NAMED = 4  # so many students are named beside a wrong answer
NOT_TRIED = "Not written yet."
"""The reason of a mark for an answer that is still the stub."""
# A folder without its notebook: no wrong answer either
NO_FILE = re.compile(r"There is no .+ in the submission\.( .*)?", re.DOTALL)
NOBODY = "Nobody handed in anything yet: this table has no rows."


@dataclass(frozen=True)
class Row:
    """One exercise of one student."""

    student: str
    lesson: str
    exercise: str
    grade_id: str
    points: float
    out_of: float
    reason: str

    @property
    def passed(self) -> bool:
        return self.points == self.out_of

    @property
    def tried(self) -> bool:
        """Was an answer handed in?"""
        return self.passed or (
            self.reason.strip() != NOT_TRIED and not NO_FILE.fullmatch(self.reason.strip())
        )

    @property
    def number(self) -> str:
        """'3.1' of 'Exercise 3.1: count_breaks', else the whole heading."""
        head = self.exercise.split(":")[0].removeprefix("Exercise").strip()
        return head or self.exercise

    @property
    def said(self) -> str:
        """What the check looked at, in one line: the reason without what one student's answer
        gave."""
        lines = [line.strip() for line in self.reason.strip().splitlines()] or [""]
        parts = [
            line.split(":", 1)[1].strip() for line in lines if line.startswith(("What:", "Why:"))
        ]
        return ": ".join(part for part in parts if part) or lines[0]


@dataclass(frozen=True)
class Grades:
    """All rows, in the order of the file."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        lessons = plural(len({row.lesson for row in self.rows}), "lesson")
        return f"{plural(len(self.students), 'student')}, {lessons}, {plural(len(self.exercises), 'exercise')}"

    @property
    def students(self) -> dict[str, float]:
        """Each student's points, most first."""
        points: dict[str, float] = defaultdict(float)
        for row in self.rows:
            points[row.student] += row.points
        return dict(sorted(points.items(), key=lambda item: (-item[1], item[0])))

    @property
    def exercises(self) -> dict[tuple[str, str], list[Row]]:
        """(lesson, name for grading) → its rows, in the course's order."""
        rows_of_exercise: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            rows_of_exercise[row.lesson, row.grade_id].append(row)
        lessons = sorted({row.lesson for row in self.rows})
        return dict(sorted(rows_of_exercise.items(), key=lambda item: lessons.index(item[0][0])))

    @property
    def out_of(self) -> float:
        """The points of every exercise that somebody handed in."""
        return sum(rows[0].out_of for rows in self.exercises.values())


def read_grades(path: str | Path) -> Grades:
    """The rows of `grades.csv`, as `course grade` wrote it or as a spreadsheet saved it.

    Raises CourseError for another file."""
    rows = read_table(Path(path), COLUMNS, "grades.csv of `course grade`")
    return Grades(tuple(row_of(row, Path(path)) for row in rows))


def row_of(row: dict[str, str], path: Path) -> Row:
    """A row of the table. Raises CourseError for a number that is none."""
    where = f"{path}: for {row['student']}, {row['grade_id']} the cell"
    return Row(
        row["student"],
        row["lesson"],
        row["exercise"],
        row["grade_id"],
        number_in(row["points"], f"{where} `points`"),
        number_in(row["out_of"], f"{where} `out_of`"),
        row["reason"],
    )


def nobody(columns_: tuple[str, ...]) -> Picture:
    """The picture of a class without rows: a sentence."""
    svg = Svg(text_width(NOBODY) * 1.1 + 24, 36)
    svg.text(12, 22, NOBODY)
    return Picture(svg.framed(NOBODY), NOBODY, NOBODY, columns([], columns_))


def pass_rates(grades: Grades) -> Picture:
    """For each exercise, the share of those who handed the lesson in and got all of its points."""
    if not grades.rows:
        return nobody(("exercise", "full points", ""))
    rates = [
        (name_of(rows[0]), sum(row.passed for row in rows), len(rows))
        for rows in grades.exercises.values()
    ]
    # (A tenth more, for widths of texts are estimated.)
    label = max(text_width(name) for name, *_ in rates) * 1.1 + 12
    svg = Svg(label + LONGEST + 150, STEP * len(rates) + 8)

    for i, (name, passed, handed_in) in enumerate(rates):
        y = 4 + STEP * i
        few = 2 * passed < handed_in
        svg.text(label - 10, y + BAR_LINE, name, anchor="end")
        svg.box(
            label,
            y,
            max(2.0, LONGEST * passed / handed_in),
            STEP - 8,
            "break" if few else "scheduling",
            radius=3,
            strength=0.45,
        )
        said = f"{percent(passed, handed_in)}, {passed} of {handed_in}"
        svg.text(label + LONGEST + 8, y + BAR_LINE, said)

    svg.path(f"M{label + LONGEST / 2:.0f} 0 V{svg.height:.0f}", line=1, opacity=0.5, dashed=True)
    fewest = min(rates, key=lambda each: each[1] / each[2])[0]
    caption = f"Full points, of those who handed the lesson in. Left of the dashed line: fewer than half. Fewest: {fewest}"
    rows = [
        (name, percent(passed, handed_in), f"{passed} of {handed_in}")
        for name, passed, handed_in in rates
    ]
    alt = "Who solved it: " + "; ".join(f"{name} {share}" for name, share, _ in rows) + "."

    return Picture(svg.framed(alt), caption, alt, columns(rows, ("exercise", "full points", "")))


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"


def name_of(row: Row) -> str:
    """'3.1: count_breaks', cut where it would leave no room for bars."""
    name = row.exercise.removeprefix("Exercise").strip()
    return shorten(name, 260)


def wrong_answers(grades: Grades, least: int = 2) -> Picture:
    """Reasons that at least `least` students share, most frequent first.

    What was not written yet is left out."""
    if not grades.rows:
        return nobody(("students", "exercise", "what the check said", "who"))
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for row in grades.rows:
        if row.tried and not row.passed:
            shared[name_of(row), row.said].append(row.student)

    often = sorted(
        ((who, *key) for key, who in shared.items() if len(who) >= least),
        key=lambda each: (-len(each[0]), each[1:]),
    )
    data = [(len(who), exercise, message, some(who)) for who, exercise, message in often]
    caption = f"Wrong answers that at least {least} students share. One sentence in front of the class saves all of them."

    return table(
        data or [(0, "–", "none is shared", "")],
        ("students", "exercise", "what the check said", "who"),
        caption,
    )


def some(names: Iterable[str], most: int = NAMED) -> str:
    """The first names in their order, and how many more."""
    names = sorted(names)
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def points_of_students(grades: Grades) -> Picture:
    """Each student's points, most first."""
    if not grades.rows:
        return nobody(("student", "points"))
    middle = sorted(grades.students.values())[len(grades.students) // 2]
    caption = f"Points of {grades.out_of:g}. The student in the middle has {middle:g}."
    return bars(grades.students, "points", "Points", caption)


def class_map(grades: Grades) -> Picture:
    """A square for each exercise of each student: full, partly, tried, not tried.

    Columns tell about exercises, rows about students."""
    if not grades.rows:
        return nobody(("student", "points"))
    exercises, students = grades.exercises, grades.students
    by_key = {(row.student, row.lesson, row.grade_id): row for row in grades.rows}
    svg = Svg(NAME + max(CELL * len(exercises) + 60, legend_width()), 76 + CELL * len(students))
    lines: list[list[str]] = []
    x0 = NAME

    # A line where a lesson begins, with its number
    last = ""
    for i, (lesson, _) in enumerate(exercises):
        if lesson != last:
            svg.text(x0 + CELL * i + 2, 14, lesson[:2], bold=True)
            svg.path(f"M{x0 + CELL * i - 1} 4 V{28 + CELL * len(students)}", line=0.8, opacity=0.4)
            last = lesson

    for j, (student, points) in enumerate(students.items()):
        y = HEAD + CELL * j
        svg.text(x0 - 8, y + SQUARE_LINE, shorten(student, NAME - 12), anchor="end", tip=student)
        svg.text(x0 + CELL * len(exercises) + 6, y + SQUARE_LINE, f"{points:g}", SMALL)
        line = [student, f"{points:g}"]
        for i, key in enumerate(exercises):
            row = by_key.get((student, *key))
            line.append(square(svg, x0 + CELL * i, y, row))
        lines.append(line)

    legend(svg, 2 * HEAD + CELL * len(students))
    caption = (
        "Filled: full points. Crossed: a wrong answer. Empty: not tried. No square: not handed in. "
    )
    caption += "Columns are a lesson's exercises, in order; one of crosses is to be taught again."
    alt = f"{plural(len(students), 'student')} by {plural(len(exercises), 'exercise')}. {caption}"

    return Picture(
        body=svg.framed(alt),
        caption=caption,
        alt=alt,
        text=columns(
            lines, ("student", "points", *(rows[0].number for rows in exercises.values()))
        ),
    )


def square(svg: Svg, x: float, y: float, row: Row | None) -> str:
    """Draw one mark, and give it as a word or a sign."""
    if row is None:
        return "·"
    tip = f"{row.student}, {row.exercise}: {row.points:g} of {row.out_of:g}. {row.said}"
    size = CELL - 4
    if row.passed:
        svg.box(x + 1, y, size, size, "scheduling", radius=3, strength=0.6, tip=tip)
        return "full"
    if not row.tried:
        svg.box(x + 1, y, size, size, "eager", radius=3, strength=0, line=1, tip=tip)
        return "–"

    svg.box(x + 1, y, size, size, "break", radius=3, strength=0.18, tip=tip)
    svg.path(
        f"M{x + 6} {y + 5} l{size - 10} {size - 10} m0 {10 - size} l{10 - size} {size - 10}",
        stage="break",
        line=1.4,
    )

    return "wrong"


LEGEND = ((1, "", "full points"), (0, "wrong", "a wrong answer"), (0, NOT_TRIED, "not tried"))
"""A mark of each kind (points of 1, and the reason), and what its square means."""
BEHIND = 24
"""px: from one entry of the legend to the next, beside its square and its words."""


def legend_width() -> float:
    """px: all entries side by side."""
    return sum(CELL + BEHIND + text_width(words, SMALL) for *_, words in LEGEND)


def legend(svg: Svg, y: float) -> None:
    """The squares that the map has, and what they mean."""
    x = float(NAME)
    for points, reason, words in LEGEND:
        square(svg, x, y, Row("", "", "", "", points, 1, reason))
        svg.text(x + CELL + 4, y + 15, words, SMALL)
        x += CELL + BEHIND + text_width(words, SMALL)
