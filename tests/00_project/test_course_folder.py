"""`course start --all FOLDER`: the whole course in a folder, for who has no clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from course_lib.grading.course_folder import MEMORY, beside, source, write_course
from course_lib.grading.notebooks import CourseError, find_root, lessons

LESSON = "notebooks/00_start_here.ipynb"


@pytest.fixture
def origin(tmp_path):
    """A small course: one lesson, one exercise and its solution."""
    for name in (LESSON, "exercises/01_a/01_a.ipynb", "solutions/01_a/01_a.ipynb"):
        path = tmp_path / "origin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"cells": [], "metadata": {}, "name": name}))
    return tmp_path / "origin"


def test_the_folder_is_laid_out_like_a_clone(origin, tmp_path):
    done = write_course(origin, tmp_path / "course")

    assert sorted(done.new) == ["exercises/01_a/01_a.ipynb", LESSON, "solutions/01_a/01_a.ipynb"]
    assert find_root(tmp_path / "course" / "notebooks") == tmp_path / "course"


def test_what_an_editor_left_is_not_carried(origin, tmp_path):
    left = origin / "notebooks/.ipynb_checkpoints/00_start_here-checkpoint.ipynb"
    left.parent.mkdir()
    left.write_text("{}")

    done = write_course(origin, tmp_path / "course")

    assert len(done.new) == 3


def test_a_newer_version_replaces_what_was_not_changed(origin, tmp_path):
    write_course(origin, tmp_path / "course")
    (origin / LESSON).write_text('{"cells": [], "new": true}')

    done = write_course(origin, tmp_path / "course")

    assert done.replaced == [LESSON] and len(done.same) == 2
    assert "new" in (tmp_path / "course" / LESSON).read_text()


def test_what_the_learner_changed_stays_and_the_new_one_is_put_beside(origin, tmp_path):
    course = tmp_path / "course"
    write_course(origin, course)
    (course / LESSON).write_text('{"cells": ["mine"]}')
    (origin / LESSON).write_text('{"cells": [], "new": true}')

    done = write_course(origin, course)

    assert done.beside == [LESSON] and "stays" in str(done)
    assert (course / LESSON).read_text() == '{"cells": ["mine"]}'
    assert "new" in (course / beside(LESSON)).read_text()


@pytest.mark.parametrize("spoilt", ["", "[1]", "{not json", '{"a": 5}'])
def test_a_spoilt_memory_loses_nothing(origin, tmp_path, spoilt):
    course = tmp_path / "course"
    write_course(origin, course)
    (course / MEMORY).write_text(spoilt)
    (course / LESSON).write_text("mine")

    write_course(origin, course)

    assert (course / LESSON).read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_one_sentence(origin, tmp_path):
    (tmp_path / "course").write_text("")

    with pytest.raises(CourseError, match="is a file"):
        write_course(origin, tmp_path / "course")


def test_the_clone_itself_is_not_written_over(root):
    with pytest.raises(CourseError, match="is the clone itself"):
        write_course(source(), root)


@pytest.mark.slow
def test_the_command_writes_the_course_and_check_finds_it(root, tmp_path):
    def course(*arguments, cwd):
        command = [sys.executable, "-m", "course_lib", *arguments]
        environment = os.environ | {"PYTHONPATH": str(root)}
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)

    def own_work():
        return sorted((root / "work").rglob("*"))

    folder, before = tmp_path / "course", own_work()
    started = course("start", "--all", str(folder), cwd=tmp_path)
    assert started.returncode == 0, started.stderr

    copies = sorted(path.stem for path in (folder / "work").glob("*.ipynb"))
    assert copies == [lesson.name for lesson in lessons(root)]

    checked = course("check", "1", cwd=folder)
    assert "0 of 14 points" in checked.stdout
    assert (folder / "work").is_dir()
    assert own_work() == before
