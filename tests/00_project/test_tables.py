"""`grades.csv` goes through a spreadsheet and comes back with the same marks."""

from __future__ import annotations

import csv

import pytest

from course_lib.grading.dashboard import (
    NOBODY,
    class_map,
    pass_rates,
    points_of_students,
    read_grades,
    wrong_answers,
)
from course_lib.grading.notebooks import CourseError
from course_lib.grading.tables import (
    COLUMNS,
    guarded,
    number_in,
    read_table,
    unguarded,
    write_table,
)

HEAD = ",".join(COLUMNS)
PICTURES = (pass_rates, wrong_answers, points_of_students, class_map)
ROWS = [
    ["ann", "01_tiny", "Exercise 1", "t1", "2.0", "3.0", 'he said: "x, y"; z'],
    ["Žofia ß", "01_tiny", "Exercise 1", "t1", "2.5", "3.0", "two\nlines"],
]
WESTERN = [[cell.replace("Ž", "Z") for cell in row] for row in ROWS]


def as_csv(rows, separator=",", point=".", end="\r\n", head=COLUMNS) -> str:
    lines = [list(head)]
    for row in rows:
        marks = [cell.replace(".", point) for cell in row[4:6]]
        lines.append([*row[:4], *marks, *row[6:]])

    def quoted(cell):
        needed = separator in cell or '"' in cell or "\n" in cell
        return '"' + cell.replace('"', '""') + '"' if needed else cell

    return end.join(separator.join(map(quoted, line)) for line in lines) + end


def moved(rows):
    """The columns in the opposite order."""
    return as_csv([row[::-1] for row in rows], head=COLUMNS[::-1])


def with_columns(rows):
    """A column before, one behind, and one with a name that nobody chose."""
    wider = [["1", *row[:4], *row[4:], "to be discussed", ""] for row in rows]
    lines = [["no", *COLUMNS, "note", ""], *wider]
    return "\r\n".join(",".join(f'"{c}"' for c in line).replace('"x, y"', "x") for line in lines)


# as which program saved it: the bytes of the file
SAVED = {
    "as written": as_csv(ROWS).encode("utf-8-sig"),
    "without a mark": as_csv(ROWS).encode(),
    "semicolons and decimal commas": as_csv(ROWS, ";", ",").encode("utf-8-sig"),
    "semicolons, an old code page": as_csv(WESTERN, ";", ",").encode("cp1252"),
    "Unicode text: tabs, UTF-16": as_csv(ROWS, "\t", ",").encode("utf-16"),
    "tabs": as_csv(ROWS, "\t").encode(),
    "bars": as_csv(ROWS, "|").encode(),
    "ends of lines of Linux": as_csv(ROWS, end="\n").encode(),
    "ends of lines of an old Mac": as_csv(ROWS, end="\r").encode(),
    "a line that names the separator": b"sep=;\r\n" + as_csv(ROWS, ";").encode(),
    "an empty row above": b",,,,,,\r\n" + as_csv(ROWS).encode(),
    "empty rows below": as_csv(ROWS).encode() + b",,,,,,\r\n\r\n",
    "columns in capitals": as_csv(ROWS, head=[c.upper() for c in COLUMNS]).encode(),
    "columns with blanks": as_csv(ROWS, head=[f" {c.replace('_', ' ')} " for c in COLUMNS]).encode(),
}  # fmt: skip


@pytest.mark.parametrize("how", SAVED)
def test_a_table_that_a_spreadsheet_saved_has_the_same_marks(tmp_path, how):
    path = tmp_path / "grades.csv"
    path.write_bytes(SAVED[how])
    rows = read_grades(path).rows
    assert [(row.points, row.out_of) for row in rows] == [(2, 3), (2.5, 3)]
    assert rows[0].student == "ann" and rows[1].student.endswith("ofia ß")
    assert rows[0].reason == 'he said: "x, y"; z' and rows[1].reason.split() == ["two", "lines"]


def test_columns_may_be_moved_and_others_added(tmp_path):
    path = tmp_path / "grades.csv"
    # the marks' columns lie elsewhere here, so the decimal point stays
    path.write_text(moved([[*row[:4], "2", "3", *row[6:]] for row in ROWS]), encoding="utf-8")
    assert [row.points for row in read_grades(path).rows] == [2, 2]
    path.write_text(with_columns([ROWS[1]]), encoding="utf-8")
    assert [row.points for row in read_grades(path).rows] == [2.5]


@pytest.mark.parametrize(
    ("name", "changed"),
    [("=1+2", True), ("+1", True), ("-x", True), ("@SUM(A1)", True), ("\tx", True), ("\rx", True),
     ("＝1", True), ("'=1", True), ("''@x", True), ("'x", False), ("ann", False), ("a=b", False),
     ("", False), ("'", False), ("1-2", False)],
)  # fmt: skip
def test_no_text_is_a_formula_and_each_comes_back(tmp_path, name, changed):
    assert (guarded(name) != name) is changed
    assert unguarded(guarded(name)) == name
    path = tmp_path / "grades.csv"
    row = dict(zip(COLUMNS, [name, name, name, name, 1.0, 2.0, name], strict=True))
    write_table(path, COLUMNS, [row])
    with path.open(newline="", encoding="utf-8-sig") as file:
        cells = list(csv.reader(file))[1]
    assert not any(cell[:1] in set("=+-@\t\r＝") and cell[:1] for cell in cells)
    if name:
        assert read_table(path, COLUMNS, "table")[0]["student"] == name


def test_a_letter_that_no_spreadsheet_holds_is_written_as_its_number(tmp_path):
    path = tmp_path / "grades.csv"
    row = dict(zip(COLUMNS, ["a\x00b\x1b", *["x"] * 3, 1.0, 2.0, "\udcff"], strict=True))
    write_table(path, COLUMNS, [row])
    assert b"\0" not in path.read_bytes()
    read = read_table(path, COLUMNS, "table")[0]
    assert read["student"] == "a\\x00b\\x1b" and read["reason"] == "\\udcff"


@pytest.mark.parametrize("text", ["2.5", "2,5", " 2.5 ", "2,50", "+2.5", "\u00a02.5"])
def test_a_number_is_read_as_it_is_written_in_any_country(text):
    assert number_in(text, "the cell") == 2.5


@pytest.mark.parametrize("text", ["", "two", "nan", "inf", "1.2.3", "02. Mai"])
def test_what_is_no_number_is_named(tmp_path, text):
    path = tmp_path / "grades.csv"
    path.write_text(f"{HEAD}\r\nann,01,E,t1,{text},3,\r\n", encoding="utf-8")
    with pytest.raises(CourseError, match=r"ann, t1 the cell `points` is"):
        read_grades(path)


@pytest.mark.parametrize("data", [f"{HEAD}\r\n", f"\ufeff{HEAD}", HEAD.replace(",", ";")])
def test_a_class_of_nobody_is_a_sentence_in_every_picture(tmp_path, data):
    path = tmp_path / "grades.csv"
    path.write_text(data, encoding="utf-8")
    grades = read_grades(path)
    assert str(grades) == "0 students, 0 lessons, 0 exercises"
    for picture in PICTURES:
        assert NOBODY in picture(grades).caption and "<svg" in picture(grades).body


@pytest.mark.parametrize("data", [b"", b"\n\n", b"name;points\r\nann;3", b"\x89PNG\r\n\x1a\n\0"])
def test_another_file_is_one_sentence(tmp_path, data):
    path = tmp_path / "x.csv"
    path.write_bytes(data)
    with pytest.raises(CourseError, match=r"is no grades\.csv of `course grade`"):
        read_grades(path)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(CourseError, match=r"There is no file .*mark a class first"):
        read_grades(tmp_path / "grades.csv")


def test_a_failed_write_leaves_the_table_as_it_was(tmp_path):
    path = tmp_path / "grades.csv"
    path.mkdir()
    with pytest.raises(CourseError, match="cannot be written"):
        write_table(path, COLUMNS, [])
    assert [left.name for left in tmp_path.iterdir()] == ["grades.csv"]


def test_in_the_dashboards_notebook_a_missing_file_is_one_sentence(tmp_path):
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output

    shell = InteractiveShell()
    path = tmp_path / "grades.csv"
    with capture_output() as said:
        shell.run_cell(
            f"from course_lib.grading.dashboard import read_grades\nread_grades({str(path)!r})"
        )
    lines = [line for line in said.stdout.splitlines() if line.strip()]
    assert lines == [
        f"course: There is no file {path}. It should be a grades.csv of `course grade`: mark a class first, "
        "or give its path."
    ]
