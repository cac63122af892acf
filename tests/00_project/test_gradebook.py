"""Marks in the tables that Canvas and Moodle import (`course_lib/grading/gradebook.py`)."""

from __future__ import annotations

import csv

import pytest

from course_lib.grading.gradebook import fill, is_column_of, key_of
from course_lib.grading.notebooks import CourseError
from course_lib.grading.tables import COLUMNS, write_table

CANVAS = [
    ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "Lesson 01 (4711)", "Final Score"],
    ["    Points Possible", "", "", "", "", "14", "(read only)"],
    ["Example, Ann", "11", "u1", "ann1", "A", "", "71.5"],
    ["Müller, Bo", "12", "u2", "bo2", "A", "", ""],
    ["Student, Test", "13", "u3", "t3", "A", "3", "-"],
]
MOODLE = [
    [
        "First name",
        "Last name",
        "ID number",
        "Email address",
        "Assignment: 01 eager overhead (Real)",
    ],
    ["Ann", "Example", "u1", "ann@example.org", "-"],
    ["Bo", "Müller", "u2", "bo@example.org", "-"],
]


def table(path, rows, encoding="utf-8-sig"):
    with path.open("w", newline="", encoding=encoding) as file:
        csv.writer(file).writerows(rows)
    return path


def back(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file))


def marks(path, *rows):
    """`grades.csv` with (student, lesson, exercise, points) in each row."""
    filled = [
        {
            "student": s,
            "lesson": n,
            "exercise": e,
            "grade_id": e,
            "points": p,
            "out_of": 7,
            "reason": "",
        }
        for s, n, e, p in rows
    ]
    write_table(path, COLUMNS, filled)
    return path


@pytest.fixture
def grades(tmp_path):
    return marks(
        tmp_path / "grades.csv",
        ("exampleann", "01_eager_overhead", "1.1", 5),
        ("exampleann", "01_eager_overhead", "1.2", 2.5),
        ("müllerbo", "01_eager_overhead", "1.1", 0),
        ("müllerbo", "01_eager_overhead", "1.2", 7),
    )


def test_canvas_gets_its_own_table_back_with_the_points_and_nothing_else_changed(tmp_path, grades):
    done = fill(table(tmp_path / "canvas.csv", CANVAS), grades, tmp_path / "new.csv")
    wanted = [list(row) for row in CANVAS]
    wanted[2][5], wanted[3][5] = "7.5", "7"
    assert back(tmp_path / "new.csv") == wanted
    assert (done.platform, done.marks, done.said) == ("Canvas", 2, ())


def test_what_was_filled_in_is_filled_in_again_without_a_change(tmp_path, grades):
    once = tmp_path / "once.csv"
    fill(table(tmp_path / "canvas.csv", CANVAS), grades, once)
    fill(once, grades, tmp_path / "twice.csv")
    assert once.read_bytes() == (tmp_path / "twice.csv").read_bytes()


def test_canvas_gets_a_new_column_with_the_points_possible(tmp_path, grades):
    rows = [[*row[:5], row[6]] for row in CANVAS]
    done = fill(table(tmp_path / "canvas.csv", rows), grades, tmp_path / "new.csv")
    new = back(tmp_path / "new.csv")
    assert [row[-1] for row in new] == ["01_eager_overhead", "14", "7.5", "7", ""]
    assert "a new column" in done.said[0]


def test_moodle_is_filled_by_first_and_last_name(tmp_path):
    grades = marks(
        tmp_path / "grades.csv",
        ("Ann Example", "01_eager_overhead", "1.1", 5),
        ("bo@example.org", "01_eager_overhead", "1.1", 6),
    )
    done = fill(table(tmp_path / "moodle.csv", MOODLE), grades, tmp_path / "new.csv")
    assert [row[4] for row in back(tmp_path / "new.csv")[1:]] == ["5", "6"]
    assert done.platform == "Moodle"


def test_moodle_refuses_new_columns_so_none_is_made(tmp_path):
    grades = marks(tmp_path / "grades.csv", ("Ann Example", "05_dynamic_shapes", "5.1", 2))
    done = fill(table(tmp_path / "moodle.csv", MOODLE), grades, tmp_path / "new.csv")
    assert back(tmp_path / "new.csv") == MOODLE
    assert "make a grade item '05_dynamic_shapes' in Moodle" in done.said[0]


def test_nobody_gets_marks_whom_no_row_fits_or_two(tmp_path):
    twins = [*CANVAS, ["Example, Ann", "19", "u9", "ann9", "B", "", ""]]
    grades = marks(
        tmp_path / "grades.csv",
        ("exampleann", "01_eager_overhead", "1.1", 5),
        ("nobody", "01_eager_overhead", "1.1", 5),
    )
    done = fill(table(tmp_path / "canvas.csv", twins), grades, tmp_path / "new.csv")
    assert back(tmp_path / "new.csv") == twins
    assert ["2 rows" in done.said[0], "no row" in done.said[1]] == [True, True]


def test_two_submissions_of_one_row_do_not_overwrite_each_other(tmp_path):
    grades = marks(
        tmp_path / "grades.csv",
        ("exampleann", "01_eager_overhead", "1.1", 5),
        ("ann1", "01_eager_overhead", "1.1", 3),
    )
    done = fill(table(tmp_path / "canvas.csv", CANVAS), grades, tmp_path / "new.csv")
    assert back(tmp_path / "new.csv")[2][5] == "5"
    assert "already" in done.said[0]


def test_marks_for_written_answers_are_added_to_their_lesson(tmp_path, grades):
    written = tmp_path / "written.csv"
    written.write_text(
        "student,lesson,question,points\nexampleann,1,1.W,3\nmüllerbo,01_eager_overhead,1.W,\n",
        encoding="utf-8",
    )
    fill(table(tmp_path / "canvas.csv", CANVAS), grades, tmp_path / "new.csv", written)
    assert [row[5] for row in back(tmp_path / "new.csv")[2:4]] == ["10.5", "7"]


@pytest.mark.parametrize(
    ("heading", "lesson", "fits"),
    [
        ("Lesson 05 (1234)", "05_dynamic_shapes", True),
        ("lesson 5: shapes", "05_dynamic_shapes", True),
        ("Assignment: 05 dynamic shapes (Real)", "05_dynamic_shapes", True),
        ("Lesson 15 (5)", "05_dynamic_shapes", False),
        ("Quiz 5", "05_dynamic_shapes", False),
        ("Lesson 5 (1234)", "12_debugging", False),
        ("Lesson 11 (2021)", "11_compile_modes", True),
    ],
)
def test_a_column_is_found_by_the_number_of_its_lesson(heading, lesson, fits):
    assert is_column_of(heading, lesson) is fits


def test_names_are_compared_without_signs_and_accents():
    assert key_of("Müller, Bo") == key_of("müllerbo") == key_of("Muller  Bo")


def test_another_table_is_refused_in_one_sentence(tmp_path, grades):
    wrong = table(tmp_path / "wrong.csv", [["name", "mark"], ["Ann", "5"]])
    with pytest.raises(CourseError, match="no gradebook of Canvas or Moodle"):
        fill(wrong, grades, tmp_path / "new.csv")
