"""`course grade --anonymous`: nothing but `names.csv` and the list of files says whose mark it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.grading import classroom
from course_lib.grading.anonymous import FILE, Names, real_names
from course_lib.grading.collect import Submission
from course_lib.grading.exercise_files import generate
from course_lib.grading.gradebook import fill
from tests.tools.tiny_course import tiny_course

CLASS = ("Ann Example", "Bo Müller", "Cy Other")
OPEN = {FILE, "collected.csv"}
"""The files that may say who is who."""


@pytest.fixture
def marked(tmp_path, monkeypatch):
    """A class of three, marked without names; no notebook is run. What was told comes back."""
    lesson = tiny_course(tmp_path / "course")
    generate(lesson)
    for student in CLASS:
        path = tmp_path / "submitted" / student / lesson.name / f"{lesson.name}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(lesson.exercise.read_bytes())

    def record(item, reference, limits, in_sandbox, hidden=()):
        marks = [
            {"exercise": "1.1", "grade_id": "double", "points": 2.0, "out_of": 5.0, "reason": ""}
        ]
        return {
            "student": item.student,
            "lesson": item.lesson,
            "digest": classroom.digest(item, reference, limits),
            "marks": marks,
        }

    monkeypatch.setattr(classroom, "mark_one", record)
    said: list[str] = []

    def grade():
        job = classroom.Job(
            tmp_path / "submitted",
            tmp_path / "grades",
            tmp_path / "course",
            in_sandbox=False,
            anonymous=True,
        )
        classroom.grade(job, said.append)
        return said

    return grade


def text_of(folder: Path) -> str:
    """All that stands in the folder, names of files included, but for those that may say it."""
    parts = []
    for path in sorted(folder.rglob("*")):
        parts.append(str(path.relative_to(folder)))
        if path.is_file() and path.name not in OPEN:
            parts.append(path.read_text(encoding="utf-8-sig"))
    return "\n".join(parts)


def test_no_name_stands_in_marks_feedback_or_on_the_screen(marked, tmp_path):
    said = marked()
    told = "\n".join([*said, text_of(tmp_path / "grades")])
    for student in CLASS:
        assert not any(part in told for part in student.split()), student
    assert told.count("student-") >= 3 * 3


def test_names_are_drawn_once_so_that_nothing_is_marked_twice(marked, tmp_path):
    marked()
    first = dict(real_names(tmp_path / "grades"))
    assert set(first.values()) == set(CLASS)
    said = marked()
    assert dict(real_names(tmp_path / "grades")) == first
    assert "3 submissions, 3 marked already" in said


def test_the_gradebook_gets_the_real_names_back(marked, tmp_path):
    marked()
    export = tmp_path / "moodle.csv"
    export.write_text(
        "First name,Last name,Email address,01 tiny (Real)\nAnn,Example,a@b.org,-\nBo,Müller,b@b.org,-\n",
        encoding="utf-8",
    )
    done = fill(export, tmp_path / "grades" / "grades.csv", tmp_path / "new.csv")
    assert done.marks == 2
    assert [line.split(":")[0] for line in done.said] == ["Cy Other"]


def test_the_order_of_the_class_does_not_tell(tmp_path):
    names = Names(tmp_path)
    items = [Submission(f"s{n:02}", "01_tiny", "") for n in range(40)]
    hidden = names.hide(items)
    assert len({item.student for item in hidden}) == 40
    back = real_names(tmp_path)
    assert [back[item.student] for item in hidden] != [item.student for item in items]
