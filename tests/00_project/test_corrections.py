"""What a teacher corrects by hand survives marking again."""

from __future__ import annotations

import csv
import io

import pytest

from course_lib.grading.classroom import write_all
from course_lib.grading.corrections import Corrections
from course_lib.grading.notebooks import CourseError
from course_lib.grading.tables import COLUMNS


def mark(name: str, points: float, reason: str = "") -> dict:
    return {
        "exercise": f"Exercise {name}",
        "grade_id": name,
        "points": points,
        "out_of": 3.0,
        "reason": reason,
    }


RECORDS = [
    {"student": "ann", "lesson": "01_tiny", "marks": [mark("t1", 0.0, "TypeError"), mark("t2", 3.0)]},
    {"student": "007", "lesson": "01_tiny", "marks": [mark("t1", 1.0, "Größe"), mark("t2", 3.0)]},
]  # fmt: skip


def mark_again(output, records=RECORDS) -> tuple[dict, list[str]]:
    """What `grade` does around marking: points by student and exercise, and what was said."""
    said: list[str] = []
    corrections = Corrections(output)
    corrections.take(records, said.append)
    made = corrections.applied(records)
    write_all(output, made, corrections)
    points = {
        (record["student"], mark["grade_id"]): mark["points"]
        for record in made
        for mark in record["marks"]
    }
    return points, said


def rows_of(path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def saved(path, change, encoding="utf-8-sig", separator=",", point="."):
    """Change the rows and save them as a spreadsheet does."""
    rows = rows_of(path)
    change(rows)
    out = io.StringIO()
    writer = csv.writer(out, delimiter=separator)
    writer.writerow(COLUMNS)
    for row in rows:
        row["points"] = row["points"].replace(".", point)
        writer.writerow([row[column] for column in COLUMNS])
    path.write_bytes(out.getvalue().encode(encoding))


def give_two(rows):
    rows[0]["points"] = "2"


WAYS = {
    "as it was written": {},
    "German Excel": {"separator": ";", "point": ",", "encoding": "cp1252"},
    "Unicode text": {"separator": "\t", "encoding": "utf-16"},
    "without a mark": {"encoding": "utf-8"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_corrected_number_stays_however_often_the_class_is_marked(tmp_path, way):
    mark_again(tmp_path)
    saved(tmp_path / "grades.csv", give_two, **WAYS[way])
    points, said = mark_again(tmp_path)
    assert points == {("ann", "t1"): 2, ("ann", "t2"): 3, ("007", "t1"): 1, ("007", "t2"): 3}
    assert "1 mark corrected" in said[0]
    for _ in range(2):
        again, said = mark_again(tmp_path)
        assert again == points and said == []
    row = rows_of(tmp_path / "grades.csv")[0]
    assert row["points"] == "2.0"
    assert row["reason"] == "Corrected by hand: 2 in place of 0 points.\nTypeError"
    feedback = (tmp_path / "feedback" / "ann" / "01_tiny.md").read_text(encoding="utf-8")
    assert "5 of 6 points" in feedback and "Corrected by hand" in feedback


def test_a_row_of_corrections_csv_counts_and_taken_out_it_does_not(tmp_path):
    (tmp_path / "corrections.csv").write_text(
        "student;lesson;grade_id;points;reason\nann;01_tiny;t1;1,5;said so in class\n"
    )
    points, _ = mark_again(tmp_path)
    assert points["ann", "t1"] == 1.5
    assert "said so in class" in rows_of(tmp_path / "grades.csv")[0]["reason"]
    (tmp_path / "corrections.csv").unlink()
    assert mark_again(tmp_path)[0]["ann", "t1"] == 0


def test_the_checks_mark_written_in_again_ends_the_correction(tmp_path):
    mark_again(tmp_path)
    saved(tmp_path / "grades.csv", give_two)
    mark_again(tmp_path)

    def as_before(rows):
        rows[0] |= {"points": "0", "reason": rows[0]["reason"]}

    saved(tmp_path / "grades.csv", as_before)
    assert mark_again(tmp_path)[0]["ann", "t1"] == 0
    assert rows_of(tmp_path / "corrections.csv") == []


def test_a_reason_can_be_corrected_too(tmp_path):
    mark_again(tmp_path)

    def reason(rows):
        rows[0]["reason"] = "We looked at it together."

    saved(tmp_path / "grades.csv", reason)
    mark_again(tmp_path)
    assert "We looked at it together." in rows_of(tmp_path / "grades.csv")[0]["reason"]


def test_a_number_that_lost_its_zeros_is_the_same_student(tmp_path):
    mark_again(tmp_path)

    def as_excel_does(rows):
        rows[2] |= {"student": "7", "points": "2"}

    saved(tmp_path / "grades.csv", as_excel_does)
    assert mark_again(tmp_path)[0]["007", "t1"] == 2


def test_the_correction_stays_when_the_checks_give_another_mark(tmp_path):
    mark_again(tmp_path)
    saved(tmp_path / "grades.csv", give_two)
    better = [{**RECORDS[0], "marks": [mark("t1", 1.0, "close"), mark("t2", 3.0)]}, RECORDS[1]]
    assert mark_again(tmp_path, better)[0]["ann", "t1"] == 2


def test_new_marks_of_the_checks_are_no_correction(tmp_path):
    mark_again(tmp_path)
    better = [{**RECORDS[0], "marks": [mark("t1", 3.0), mark("t2", 3.0)]}, RECORDS[1]]
    for _ in range(2):
        points, said = mark_again(tmp_path, better)
        assert points["ann", "t1"] == 3 and said == []
    assert not (tmp_path / "corrections.csv").exists()


def test_after_a_crash_between_the_two_tables_nothing_counts_as_corrected(tmp_path):
    mark_again(tmp_path)
    old = (tmp_path / "grades.csv").read_bytes()
    better = [{**RECORDS[0], "marks": [mark("t1", 3.0), mark("t2", 3.0)]}, RECORDS[1]]
    mark_again(tmp_path, better)
    (tmp_path / "grades.csv").write_bytes(old)  # it was not yet written when the power went off
    points, said = mark_again(tmp_path, better)
    assert points["ann", "t1"] == 3 and said == []


def test_what_a_teacher_added_to_the_table_is_kept_beside(tmp_path):
    mark_again(tmp_path)
    path = tmp_path / "grades.csv"
    path.write_bytes(path.read_bytes() + b"eve,01_tiny,oral,t9,3,3,\r\n")
    _, said = mark_again(tmp_path)
    assert "0 marks corrected" in said[0] and ".earlier" in said[0]
    (kept,) = (tmp_path / ".earlier").iterdir()
    assert b"eve,01_tiny" in kept.read_bytes()


@pytest.mark.parametrize("name", ["grades.csv", "corrections.csv"])
def test_a_correction_that_is_no_number_is_named_and_the_table_is_left(tmp_path, name):
    mark_again(tmp_path)
    saved(tmp_path / "grades.csv", give_two)
    mark_again(tmp_path)
    path = tmp_path / name
    text = path.read_text(encoding="utf-8-sig").replace("2.0", "two", 1)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CourseError, match="`points` is 'two'"):
        mark_again(tmp_path)
    assert path.read_text(encoding="utf-8") == text


def test_a_correction_of_nobody_is_told(tmp_path):
    (tmp_path / "corrections.csv").write_text(
        "student,lesson,grade_id,points,reason\nan,01,t1,1,\n"
    )
    assert Corrections(tmp_path).without_a_mark(RECORDS) == ["an/01/t1"]
