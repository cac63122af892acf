"""Every command, given what it cannot use: one sentence that names it, exit status 2, and no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.grading import cli
from course_lib.grading.mistakes import sentence

ROOT = Path(__file__).parents[2]

# in the folder are: `file` (a text), `folder` (empty), `broken.ipynb` (cut short)
TABLE = {
    "nonsense": "invalid choice: 'nonsense'",
    "check": "required: lesson",
    "check 99": "There is no lesson '99'",
    "check 1 --notebook nofile.ipynb": "nofile.ipynb does not exist",
    "check 1 --notebook folder": "it is a folder",
    "check 1 --notebook file": "not JSON",
    "check 1 --notebook broken.ipynb": "broken.ipynb",
    "check 1 --seconds soon": "'soon' is no number above 0",
    "check 1 --seconds 0": "'0' is no number above 0",
    "check 1 --memory nan": "'nan' is no number above 0",
    "progress now": "unrecognized arguments: now",
    "progress --html folder": "cannot be written to folder",
    "certificate": "needs a name",
    "certificate --name Ann": "There is no certificate yet",
    "feedback": "required: lesson",
    "feedback 99": "There is no lesson '99'",
    "start 99": "There is no lesson '99'",
    "start 1 --notebook": "unrecognized arguments",
    "start 1 --from nofile.ipynb": "nofile.ipynb does not exist",
    "start --from folder": "folder holds no notebook of these lessons",
    "update 99": "There is no lesson '99'",
    "undo": "required: lesson",
    "undo 99": "There is no lesson '99'",
    "undo 1 --to first": "invalid int value: 'first'",
    "join": "required: lesson",
    "join 99": "There is no lesson '99'",
    "assemble --folder nofolder": "no exercise notebooks in",
    "assemble --folder file": "no exercise notebooks in",
    "assemble --page folder": "cannot be written to folder",
    "assemble --page nofolder/page.html": "cannot be written to nofolder/page.html",
    "grade": "required: folder",
    "grade nofolder": "nofolder is no folder",
    "grade file": "file is no folder and no zip",
    "grade folder --jobs 0": "'0' is no whole number above 0",
    "grade folder --jobs two": "'two' is no whole number above 0",
    "grade folder --total -5": "'-5' is no number above 0",
    "gradebook": "required: export",
    "gradebook nofile.csv": "nofile.csv cannot be read",
    "gradebook folder": "folder cannot be read",
    "tries": "required: paths",
    "certify file": "required: --key",
    "certify file --key nofile": "The key nofile cannot be read",
    "collect nofolder": "nofolder is no folder",
    "collect file": "file is no folder and no zip",
    "repair": "required: folder",
    "repair nofolder": "nofolder is no folder",
    "repair file": "file is no folder and no zip",
    "example 99": "There is no lesson '99'",
    "example --out folder": "folder cannot be written",
    "example --out nofolder/x.csv": "name a file in a folder that exists",
    "example --students 0": "'0' is no whole number above 0",
    "example --students -3": "'-3' is no whole number above 0",
    "translate nolanguage": "nolanguage",
    "slides 99": "There is no lesson '99'",
    "exercises 99": "There is no lesson '99'",
    "exercises --check 99": "There is no lesson '99'",
    "report": "which program?",
    "report -m": "which program?",
    "report nofile.py": "there is no file nofile.py",
    "report -m nomodule_of_mine": "there is no module nomodule_of_mine to run",
    "report -m nopackage_of_mine.part": "there is no module nopackage_of_mine.part to run",
    "report folder": "folder is a folder",
    "report --out file broken.ipynb": "cannot be written into file",
    "gallery --out file": "cannot be used: not a directory",
    "bench": "required: command",
    "bench nonsense": "invalid choice: 'nonsense'",
    "coverage --nonsense": "unrecognized arguments: --nonsense",
    "coverage --only nonsense": "no operator of the database matches 'nonsense'",
    "doctor now": "unrecognized arguments: now",
    "demo now": "unrecognized arguments: now",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("no notebook\n", encoding="utf-8")
    (tmp_path / "broken.ipynb").write_text('{"cells": [{"cell_type": "co', encoding="utf-8")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: str, capsys) -> tuple[int, str]:
    try:
        status = cli.main(arguments.split())
    except SystemExit as leaving:  # argparse
        status = int(leaving.code or 0)
    return status, capsys.readouterr().err


@pytest.mark.parametrize("arguments", TABLE)
def test_one_sentence_says_what_cannot_be_used(arguments, place, capsys):
    status, said = run(arguments, capsys)
    assert status == 2
    assert TABLE[arguments] in said and "Traceback" not in said
    told = [line for line in said.splitlines() if not line.startswith(("usage:", " "))]
    assert len(told) == 1, told
    assert sorted(path.name for path in place.iterdir()) == ["broken.ipynb", "file", "folder"]


@pytest.mark.parametrize("name", ["nofolder", "file"])
def test_a_missing_folder_is_told_before_a_missing_sandbox(name, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("no zip")
    monkeypatch.setattr("course_lib.grading.sandbox.why_no_sandbox", lambda: "no bubblewrap here")
    assert cli.main(["grade", str(tmp_path / name)]) != 0
    said = "".join(capsys.readouterr())
    assert f"{name} is no folder" in said and "bubblewrap" not in said


def test_every_command_is_in_the_table():
    commands = cli.parser()._subparsers._group_actions[0].choices
    assert set(commands) - {line.split()[0] for line in TABLE} == set()


def test_the_command_alone_lists_every_command_with_a_line_about_it(capsys):
    assert cli.main([]) == 0
    said = capsys.readouterr().out
    for name in cli.parser()._subparsers._group_actions[0].choices:
        assert f"\n    {name} " in said, name


@pytest.mark.parametrize("package", ["numpy", "anywidget", "matplotlib", "nbgrader", "triton"])
def test_the_doctor_works_where_a_package_is_missing(package):
    program = f"""import sys
sys.modules[{package!r}] = None
from course_lib.grading.cli import main
sys.exit(main(["doctor"]))"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert "Traceback" not in done.stderr and "Tier:" in done.stdout


def test_a_missing_package_is_named_and_a_mistake_of_the_course_is_not_hidden():
    gone = ModuleNotFoundError("No module named 'nbformat.v4'", name="nbformat.v4")
    assert sentence(gone).startswith("this needs the package nbformat, which is not installed")
    assert sentence(ImportError("cannot import name", name="course_lib.viz")) == ""
    assert sentence(ValueError("a mistake of ours")) == ""
    assert sentence(OSError("no file")) == ""
    full = OSError(28, "No space left on device", "work/a.ipynb")
    assert (
        sentence(full)
        == "work/a.ipynb cannot be used: no space left on device. Name another place."
    )
