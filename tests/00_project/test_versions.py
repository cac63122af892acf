"""`make test-versions`: what it records, and that the tables say what the records say."""

from __future__ import annotations

import subprocess

import pytest
import version_matrix as matrix

from course_lib import versions

OUTPUT = """
F..
FAILED tests/a.py::test_one[x] - assert 1 == 2
ERROR tests/b.py
=== 1 failed, 1204 passed, 3 skipped, 1 error in 61.20s (0:01:01) ===
"""


@pytest.fixture
def records(tmp_path, monkeypatch):
    """A record of its own, and pages to write to."""
    pages = (tmp_path / "versions.md", tmp_path / "README.md")
    for page in pages:
        page.write_text(f"before\n{matrix.BEGIN}\nold\n{matrix.END}\nafter\n")

    monkeypatch.setattr(matrix, "RECORDS", tmp_path / "versions.json")
    monkeypatch.setattr(matrix, "PAGES", pages)
    return pages


def record_of(what: str, torch: str = "2.15.0", summary: str = "7 passed in 1s") -> matrix.Record:
    part = matrix.Part(what, summary)
    return matrix.Record("newest", "3.15.2", {"torch": torch}, "here", {what: part})


def test_a_summary_gives_the_counts_and_the_names_of_what_failed():
    part = matrix.read_summary(OUTPUT, matrix.TESTS, 61)

    assert part.counts == "1 failed, 1,204 passed, 1 error"
    assert part.failed == ["FAILED tests/a.py::test_one[x]", "ERROR tests/b.py"]


def test_a_run_without_a_summary_is_no_success():
    assert matrix.read_summary("Killed", matrix.TESTS, 1).counts == "no summary"


def test_parts_that_are_run_one_by_one_stand_together(records):
    matrix.keep(record_of(matrix.FAST))
    matrix.keep(record_of(matrix.NOTEBOOKS))

    assert set(matrix.read_records()["newest"].parts) == {matrix.FAST, matrix.NOTEBOOKS}


def test_all_tests_replace_the_fast_ones(records):
    matrix.keep(record_of(matrix.FAST))
    matrix.keep(record_of(matrix.TESTS))

    assert set(matrix.read_records()["newest"].parts) == {matrix.TESTS}


def test_what_ran_with_other_versions_is_dropped(records):
    matrix.keep(record_of(matrix.NOTEBOOKS, torch="2.14.1"))
    matrix.keep(record_of(matrix.TESTS, torch="2.15.0"))

    assert set(matrix.read_records()["newest"].parts) == {matrix.TESTS}


def test_the_table_says_what_was_really_run(records):
    matrix.keep(record_of(matrix.FAST, summary="2 failed, 7000 passed in 9s"))

    for page in records:
        text = page.read_text()
        row = next(line for line in text.splitlines() if line.startswith("| newest |"))
        assert "without slow ones: 2 failed, 7,000 passed" in row and row.endswith(
            "| not run | not run |"
        )
        assert "| oldest | 3.11 | 2.11.0 |" in text and "old\n" not in text
        assert text.startswith("before\n") and text.endswith("\nafter\n")


@pytest.mark.parametrize(
    ("rooms", "fast", "said"),
    [
        ([], False, "all: 7 passed"),
        ([], True, "without slow ones: 7 passed"),
        (["02"], False, "room 02: 7 passed"),
        (["02", "09"], False, "rooms 02, 09: 7 passed"),
        (["09", "02"], True, "rooms 02, 09 without slow ones: 7 passed"),
    ],
)
def test_the_table_says_which_rooms_were_run(records, rooms, fast, said):
    matrix.keep(record_of(matrix.name_of(rooms, fast)))

    assert f"| {said} | not run |" in records[0].read_text()


def test_rooms_stay_until_the_whole_suite_is_run(records):
    matrix.keep(record_of(matrix.name_of(["02"], True)))
    matrix.keep(record_of(matrix.name_of(["09"], True)))
    assert matrix.tests_of(matrix.read_records()["newest"]).count("room ") == 2

    matrix.keep(record_of(matrix.TESTS))
    assert set(matrix.read_records()["newest"].parts) == {matrix.TESTS}


def test_a_room_that_is_not_there_is_an_error(capsys):
    with pytest.raises(SystemExit):
        matrix.options(["newest", "--rooms", "77"])

    assert "there is no folder tests/77_*" in capsys.readouterr().err


def test_the_tables_of_the_pages_are_those_of_the_records():
    rows = matrix.table(matrix.read_records())

    for page in matrix.PAGES:
        text = page.read_text(encoding="utf-8")
        assert matrix.with_table(text, rows) == text, (
            "python tests/tools/version_matrix.py --tables"
        )


def test_the_rows_cover_the_oldest_and_the_newest_that_the_package_takes():
    pythons = {versions.minor(row.python) for row in matrix.MATRIX}
    torches = {versions.minor(row.torch.removeprefix("torch==")) for row in matrix.MATRIX}

    assert (min(pythons), max(pythons)) == versions.PYTHONS
    assert (min(torches), max(torches)) == versions.TORCHES
    assert len(pythons) == 5


@pytest.mark.parametrize(
    "arguments", [["nothing"], ["--environment", "."], ["newest", "--environment", "nowhere"]]
)
def test_arguments_that_mean_nothing_are_refused_in_one_line(arguments, capsys):
    with pytest.raises(SystemExit):
        matrix.options(arguments)

    assert "error: " in capsys.readouterr().err.splitlines()[-1]


def test_notebooks_that_were_run_again_stand_beside_all(records):
    matrix.keep(record_of(matrix.NOTEBOOKS, summary="2 failed, 90 passed in 9s"))
    matrix.keep(record_of("notebooks 00 and 11 again", summary="30 passed in 3s"))
    matrix.keep(record_of(matrix.TESTS))

    record = matrix.read_records()["newest"]
    assert matrix.notebooks_of(record) == "2 failed, 90 passed; 00 and 11 again: 30 passed"
    assert matrix.tests_of(record).startswith("all: ")

    matrix.keep(record_of(matrix.NOTEBOOKS, summary="92 passed in 9s"))
    assert matrix.notebooks_of(matrix.read_records()["newest"]) == "92 passed"


def test_the_chinese_lessons_have_a_column_of_their_own(records):
    matrix.keep(record_of(matrix.NOTEBOOKS, summary="90 passed in 9s"))
    matrix.keep(record_of("Chinese notebooks 00 and 11", summary="1 failed, 29 passed in 3s"))
    assert records[0].read_text().count("| 90 passed | 00 and 11: 1 failed, 29 passed |") == 1

    matrix.keep(record_of(matrix.CHINESE, summary="60 passed in 9s"))
    assert records[0].read_text().count("| 90 passed | 60 passed |") == 1


def test_the_chinese_lessons_are_made_before_they_are_run(records, monkeypatch, tmp_path):
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "60 passed in 9s", "")

    monkeypatch.setattr(matrix.subprocess, "run", run)
    part = matrix.run_chinese(tmp_path, matrix.options(["newest", "--only", "chinese"]))

    assert [command[4] for command in commands[:2]] == ["translations", "test-notebooks"]
    assert commands[1][-1] == "NOTEBOOKS=notebooks/zh/*.ipynb"
    assert (part.what, part.counts) == (matrix.CHINESE, "60 passed")
