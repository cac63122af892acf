"""Writing a learner's file: whole or not at all, alone, and never over somebody else's change (`course_lib/grading/writing.py`)."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from course_lib.grading import writing
from course_lib.grading.notebooks import CourseError

OLD, NEW = b"the answers so far\n", b"the answers of today\n" * 50_000


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "01.ipynb"
    path.write_bytes(OLD)
    return path


def fails_with(number: int):
    def fail(*args, **more):
        raise OSError(number, os.strerror(number))

    return fail


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_file_is_replaced_and_keeps_its_permissions(file):
    file.chmod(0o640)
    writing.write(writing.Seen.of(file), NEW)
    assert file.read_bytes() == NEW and file.stat().st_mode & 0o777 == 0o640
    assert left(file.parent) == {file.name}


# Each step of a write that the system can refuse × the reasons that it gives.
STEPS = {
    "opening the new file": ("pathlib.Path.open", None),
    "forcing it to the disk": ("os.fsync", None),
    "giving it the name": ("os.replace", None),
}
REASONS = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your share of the disk is full",
    errno.EROFS: "mounted for reading only",
    errno.EACCES: "you have no permission",
    errno.EIO: "input/output error",
}


@pytest.mark.parametrize("number", REASONS, ids=errno.errorcode.get)
@pytest.mark.parametrize("step", STEPS)
def test_what_the_system_refuses_is_one_sentence_and_the_file_is_as_it_was(
    file, monkeypatch, step, number
):
    seen = writing.Seen.of(file)
    with monkeypatch.context() as patch, pytest.raises(CourseError) as told:
        patch.setattr(STEPS[step][0], fails_with(number))
        writing.write(seen, NEW)
    said = str(told.value)
    assert str(file) in said and REASONS[number] in said and "Nothing was changed" in said
    assert "\n" not in said
    assert file.read_bytes() == OLD and left(file.parent) == {file.name}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS], ids=errno.errorcode.get)
def test_a_new_file_that_cannot_be_written_is_not_there_in_part(tmp_path, monkeypatch, number):
    with monkeypatch.context() as patch, pytest.raises(CourseError, match="Nothing was changed"):
        patch.setattr(os, "fsync", fails_with(number))
        writing.write_new(tmp_path / "new.ipynb", NEW)
    assert left(tmp_path) == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_one_sentence(file):
    file.parent.chmod(0o555)
    try:
        with pytest.raises(CourseError, match="you have no permission"):
            writing.write(writing.Seen.of(file), NEW)
    finally:
        file.parent.chmod(0o755)
    assert file.read_bytes() == OLD


def test_a_new_file_is_never_written_over_one_that_is_there(file):
    assert writing.write_new(file, NEW) is False
    assert file.read_bytes() == OLD and left(file.parent) == {file.name}


def test_where_there_are_no_links_a_file_that_is_there_stays_too(file, monkeypatch):
    monkeypatch.setattr(os, "link", fails_with(errno.EOPNOTSUPP))
    assert writing.write_new(file, NEW) is False and file.read_bytes() == OLD
    other = file.with_name("02.ipynb")
    assert writing.write_new(other, NEW) is True and other.read_bytes() == NEW


@pytest.mark.parametrize("change", [b"saved by Lab", None], ids=["saved", "deleted"])
def test_a_file_that_changed_since_it_was_read_is_not_written(file, change):
    seen = writing.Seen.of(file)
    file.write_bytes(change) if change is not None else file.unlink()
    with pytest.raises(CourseError, match="changed by another program just now"):
        writing.write(seen, NEW)
    assert (file.read_bytes() if file.exists() else None) == change


def test_a_file_that_came_since_it_was_looked_for_is_not_written_over(tmp_path):
    path = tmp_path / "01.ipynb"
    seen = writing.Seen.of(path)
    path.write_bytes(OLD)
    with pytest.raises(CourseError, match="changed by another program"):
        writing.write(seen, NEW)
    assert path.read_bytes() == OLD


# The child stops at one step of the write; there the parent kills it.
CHILD = """
import os, pathlib, sys, time
from course_lib.grading import writing

def stop(*args, **more):
    print("here", flush=True)
    time.sleep(600)

path, step = pathlib.Path(sys.argv[1]), sys.argv[2]
module, name = {"fsync": (os, "fsync"), "replace": (os, "replace")}[step]
with writing.alone(path.parent):
    seen = writing.Seen.of(path)
    setattr(module, name, stop)
    writing.write(seen, b"new" * 1000)
"""


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_command_that_is_killed_in_the_middle_leaves_the_file_whole_and_no_lock(file, step):
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(file), step],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    with child:
        assert child.stdout.readline() == b"here\n"
        child.send_signal(signal.SIGKILL)
    assert file.read_bytes() == OLD
    with writing.alone(file.parent):
        writing.write(writing.Seen.of(file), NEW)
    assert file.read_bytes() == NEW


def test_a_second_command_waits_and_then_says_that_another_one_is_writing(file, monkeypatch):
    monkeypatch.setattr(writing, "PATIENCE", 0.1)
    with (
        writing.alone(file.parent),
        pytest.raises(CourseError, match="Another `course` command is writing"),
        writing.alone(file.parent),
    ):
        pass
    with writing.alone(file.parent):
        pass


def test_where_the_lock_cannot_be_made_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "open", fails_with(errno.EROFS))
    with (
        pytest.raises(CourseError, match="mounted for reading only"),
        writing.alone(tmp_path / "work"),
    ):
        pass
