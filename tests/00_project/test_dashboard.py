"""The class dashboard reads what `course grade` writes, and `course example` writes the same."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from course_lib.grading.classroom import write_csv
from course_lib.grading.cli import main
from course_lib.grading.collect import collect
from course_lib.grading.dashboard import (
    NOT_TRIED,
    class_map,
    pass_rates,
    points_of_students,
    read_grades,
    wrong_answers,
)
from course_lib.grading.notebooks import CourseError, Lesson
from course_lib.grading.tables import COLUMNS

ROOT = Path(__file__).parents[2]
CHECKED = "\nWhat:     the number of graphs\nWhy:      one before and one after\nExpected: 2\nGot:      {}"


def mark(name: str, points: float, reason: str = "") -> dict:
    return {
        "exercise": f"Exercise 3.{name}: it",
        "grade_id": f"test_{name}",
        "points": points,
        "out_of": 2.0,
        "reason": reason,
    }


@pytest.fixture
def grades(tmp_path):
    """Ann solves both, bo and cy fail the same check in different ways, dan handed in and wrote nothing."""
    wrong = lambda got: [mark("1", 0, CHECKED.format(got)), mark("2", 2)]
    marks = {
        "ann": [mark("1", 2), mark("2", 2)],
        "bo": wrong(1),
        "cy": wrong(7),
        "dan": [mark("1", 0, NOT_TRIED), mark("2", 0, NOT_TRIED)],
    }
    records = [
        {"student": name, "lesson": "03_graph_breaks", "marks": each}
        for name, each in marks.items()
    ]
    write_csv(tmp_path / "grades.csv", records)
    return read_grades(tmp_path / "grades.csv")


def test_it_counts_students_lessons_and_exercises(grades):
    assert str(grades) == "4 students, 1 lesson, 2 exercises"
    assert grades.students == {"ann": 4.0, "bo": 2.0, "cy": 2.0, "dan": 0.0} and grades.out_of == 4


def test_the_pass_rate_is_of_those_who_handed_in(grades):
    assert pass_rates(grades).text.splitlines()[2:] == [
        "3.1: it   25 %         1 of 4",
        "3.2: it   75 %         3 of 4",
    ]
    assert pass_rates(grades).caption.endswith("Fewest: 3.1: it")


def test_answers_that_fail_one_check_are_one_wrong_answer_whatever_they_gave(grades):
    line = wrong_answers(grades).text.splitlines()[2:]
    assert len(line) == 1
    assert (
        line[0].split("  ")[0] == "2"
        and "the number of graphs: one before and one after" in line[0]
        and line[0].endswith("bo, cy")
    )
    assert "none is shared" in wrong_answers(grades, least=3).text


def test_what_was_not_written_is_no_wrong_answer(grades):
    assert NOT_TRIED not in wrong_answers(grades, least=1).text


def test_a_folder_without_its_notebook_is_no_wrong_answer(tmp_path):
    (tmp_path / "submitted/dee/03_graph_breaks").mkdir(parents=True)
    (item,) = collect(tmp_path, [Lesson(ROOT, "03_graph_breaks")]).submissions
    record = {"student": item.student, "lesson": item.lesson, "marks": [mark("1", 0, item.trouble)]}
    write_csv(tmp_path / "grades.csv", [record])
    assert [row.tried for row in read_grades(tmp_path / "grades.csv").rows] == [False]


def test_the_map_tells_full_wrong_not_tried_and_not_handed_in_apart(grades, tmp_path):
    assert [line.split()[2:] for line in class_map(grades).text.splitlines()[2:]] == [
        ["full", "full"], ["wrong", "full"], ["wrong", "full"], ["–", "–"]]  # fmt: skip
    more = [{"student": "eve", "lesson": "04_guards", "marks": [mark("9", 2)]}]
    more += [{"student": "ann", "lesson": "03_graph_breaks", "marks": [mark("1", 2)]}]
    write_csv(tmp_path / "two.csv", more)
    assert [
        line.split()[2:]
        for line in class_map(read_grades(tmp_path / "two.csv")).text.splitlines()[2:]
    ] == [
        ["full", "·"],
        ["·", "full"],
    ]


def test_points_are_sorted_and_the_middle_is_said(grades):
    picture = points_of_students(grades)
    assert [line.split()[0] for line in picture.text.splitlines()[1:]] == ["ann", "bo", "cy", "dan"]
    assert picture.caption == "Points of 4. The student in the middle has 2."


def test_another_file_is_refused_in_one_sentence(tmp_path):
    (tmp_path / "x.csv").write_text("name,points\nann,3\n")
    with pytest.raises(
        CourseError,
        match=r"no grades\.csv of `course grade`: its columns should be student, lesson",
    ):
        read_grades(tmp_path / "x.csv")


def test_the_example_is_the_same_each_time_and_holds_the_courses_own_exercises_and_words(tmp_path):
    for name in ("a", "b"):
        assert (
            main(["example", "3", "--students", "12", "--seed", "5", "--out", str(tmp_path / name)])
            == 0
        )
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    found = read_grades(tmp_path / "a")
    assert {row.lesson for row in found.rows} == {"03_graph_breaks"} and 6 <= len(
        found.students
    ) <= 12
    assert "Exercise 3.1: count_breaks" in {row.exercise for row in found.rows}
    solution = (
        (ROOT / "solutions/03_graph_breaks/03_graph_breaks.ipynb")
        .read_text(encoding="utf-8")
        .replace('\\"', '"')
    )
    said = {row.said.split(":")[0] for row in found.rows if row.tried and not row.passed}
    assert len(said) >= 2 and all(words in solution or "seconds" in words for words in said)


def test_the_stored_example_is_read_by_the_notebook_and_has_todays_columns():
    with (ROOT / "docs/example_grades.csv").open(newline="", encoding="utf-8-sig") as file:
        assert tuple(next(csv.reader(file))) == COLUMNS
    assert "../docs/example_grades.csv" in (ROOT / "notebooks/class_dashboard.ipynb").read_text(
        encoding="utf-8"
    )


def test_some_of_the_points_are_not_passed(tmp_path):
    records = [
        {
            "student": "ann",
            "lesson": "03_graph_breaks",
            "marks": [mark("1", 1.5, "one check failed"), mark("2", 2)],
        }
    ]
    write_csv(tmp_path / "grades.csv", records)
    assert [row.passed for row in read_grades(tmp_path / "grades.csv").rows] == [False, True]
