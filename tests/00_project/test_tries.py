"""The log of tries, the wait between them, the learner's page and the certificate."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace

import pytest

from course_lib.grading.cli import main
from course_lib.grading.marks import Mark, Report
from course_lib.grading.notebooks import CourseError
from course_lib.grading.pages import certificate_page, is_signed, progress_page, signed, statement
from course_lib.grading.progress import Progress, Standing
from course_lib.grading.tries import courses, file_of, limit_of, note, require_a_turn, tries_in

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
KEY = b"0123456789abcdef0123456789abcdef"
DONE = Progress((Standing("01_one", "checked", 5, 5), Standing("02_two", "checked", 3, 3)))
HALF = Progress((Standing("01_one", "checked", 5, 5), Standing("02_two", "begun", 0, 3)))


@pytest.fixture
def lesson(tmp_path):
    (tmp_path / "work").mkdir()
    return SimpleNamespace(name="05_dynamic_shapes", number=5, root=tmp_path)


def report(points):
    return Report("05_dynamic_shapes", (Mark("5.1", "a", points, 5.0, ""),))


def settings(lesson, text):
    (lesson.root / "course.toml").write_text(text, encoding="utf-8")


def test_tries_are_written_one_a_line_and_read_back(lesson):
    note(lesson, report(2.0), NOON)
    note(lesson, report(5.0), NOON + timedelta(minutes=3))
    assert [each.points for each in tries_in(file_of(lesson.root))] == [2, 5]


def test_a_line_that_is_no_try_is_left_out(lesson):
    note(lesson, report(2.0), NOON)
    with file_of(lesson.root).open("a", encoding="utf-8") as file:
        file.write(
            'broken\n{"time": "soon"}\n[]\n{"time": "2026-03-02T12:00:00", "lesson": "x", "points": 1, "out_of": 1}\n'
        )
    assert len(tries_in(file_of(lesson.root))) == 1


def test_without_settings_nobody_waits(lesson):
    for _ in range(5):
        note(lesson, report(0.0), NOON)
        require_a_turn(lesson, NOON)


def test_a_wait_between_two_tries_is_told_in_minutes_and_ends(lesson):
    settings(lesson, "[check]\nminutes_between = 10\n")
    require_a_turn(lesson, NOON)
    note(lesson, report(0.0), NOON)
    with pytest.raises(CourseError, match="again in 7 minutes"):
        require_a_turn(lesson, NOON + timedelta(minutes=3))
    require_a_turn(lesson, NOON + timedelta(minutes=10))


def test_another_lesson_does_not_wait(lesson):
    settings(lesson, "[check]\nminutes_between = 10\n")
    note(lesson, report(0.0), NOON)
    other = SimpleNamespace(name="06_aot_autograd", number=6, root=lesson.root)
    require_a_turn(other, NOON)


def test_so_many_tries_a_day(lesson):
    settings(lesson, "[check]\ntries_a_day = 2\n")
    note(lesson, report(0.0), NOON)
    note(lesson, report(1.0), NOON + timedelta(hours=1))
    with pytest.raises(CourseError, match="again in 60 minutes"):
        require_a_turn(lesson, NOON + timedelta(hours=23))
    require_a_turn(lesson, NOON + timedelta(hours=24))


@pytest.mark.parametrize(
    "text", ["[check", "[check]\nminutes_between = -1", '[check]\ntries_a_day = "two"', "check = 3"]
)
def test_settings_that_cannot_be_used_are_named(lesson, text):
    settings(lesson, text)
    with pytest.raises(CourseError, match=r"course\.toml cannot be used"):
        limit_of(lesson.root)


def test_the_teacher_sees_when_and_with_how_many_points(lesson, capsys):
    note(lesson, report(2.0), NOON)
    note(lesson, report(5.0), NOON + timedelta(days=1))
    assert str(courses([lesson.root])[0]).endswith("2 tries over 2 days, points: 2 5")
    assert main(["tries", str(lesson.root)]) == 0
    assert "05_dynamic_shapes" in capsys.readouterr().out


def test_the_page_shows_each_lesson_in_words_and_as_a_bar_with_a_label(lesson):
    note(lesson, report(2.0), NOON)
    text = progress_page(HALF, tries_in(file_of(lesson.root)))
    assert "5 of 8 points" in text
    assert text.count("<meter") == text.count("aria-label=") == 2
    assert "begun, not checked" in text
    assert "<script" not in text


def test_no_certificate_before_all_is_done():
    with pytest.raises(CourseError, match="02_two still wait"):
        statement(HALF, "Ann", date(2026, 3, 2))
    with pytest.raises(CourseError, match="needs a name"):
        statement(DONE, " ", date(2026, 3, 2))


def test_a_signed_certificate_is_known_and_a_changed_one_is_not(tmp_path):
    path = tmp_path / "page.html"
    fresh = certificate_page(statement(DONE, "Ann </script> Exämple", date(2026, 3, 2)))
    good = signed(fresh, KEY, path)
    assert is_signed(good, KEY, path)
    assert not is_signed(fresh, KEY, path)
    assert not is_signed(good, KEY[::-1], path)
    assert not is_signed(good.replace("Exämple", "Other"), KEY, path)
    assert not is_signed(good.replace("8 of 8", "9 of 9"), KEY, path)
    assert signed(good, KEY, path) == good


def test_the_commands_sign_and_test(tmp_path, capsys):
    page, key = tmp_path / "c.html", tmp_path / "key"
    page.write_text(certificate_page(statement(DONE, "Ann", date(2026, 3, 2))), encoding="utf-8")
    key.write_bytes(KEY)
    assert main(["certify", str(page), "--key", str(key)]) == 0
    assert main(["certify", str(page), "--key", str(key), "--check"]) == 0
    page.write_text(page.read_text(encoding="utf-8").replace("Ann", "Bob"), encoding="utf-8")
    assert main(["certify", str(page), "--key", str(key), "--check"]) == 1
    key.write_bytes(b"short")
    assert main(["certify", str(page), "--key", str(key)]) == 2
    assert "too short" in capsys.readouterr().err
