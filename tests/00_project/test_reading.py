"""Each lesson ends with what to read next, and with a way to say that something is wrong with it."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
TORCH = Path(importlib.util.find_spec("torch").origin).parent.parent
FILE = re.compile(r"`(torch/[\w/]+\.py)`")
SYMBOL = re.compile(r"^[A-Za-z_]\w+$")


def last_cell(path: Path) -> str:
    cell = json.loads(path.read_text(encoding="utf-8"))["cells"][-1]
    assert cell["id"] == "what-to-read-next"
    return "".join(cell["source"])


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_names_three_things_to_read(path):
    items = re.findall(r"(?m)^- (.+)$", last_cell(path))
    assert len(items) >= 3
    # a title, a file of torch, or both; and no address that may go away
    assert all("*" in item or "`" in item or "PEP" in item for item in items)
    assert "http" not in last_cell(path)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_files_and_names_of_torch_are_there(path):
    for item in re.findall(r"(?m)^- (.+)$", last_cell(path)):
        files = FILE.findall(item)
        for name in files:
            assert (TORCH / name).is_file(), f"{name} is not in the installed torch"
        symbols = [code for code in re.findall(r"`([^`]+)`", item) if SYMBOL.match(code)]
        text = "".join((TORCH / name).read_text(encoding="utf-8") for name in files)
        missing = [symbol for symbol in symbols if files and symbol not in text]
        assert not missing, f"{files} do not have {missing}"


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_lesson_says_where_feedback_goes(path):
    assert f"`course feedback {int(path.name[:2])}`" in last_cell(path)


def test_the_feedback_command_prints_versions_and_questions(capsys):
    from course_lib.grading.cli import main

    assert main(["feedback", "5"]) == 0
    said = capsys.readouterr().out
    assert "Lesson: 05_dynamic_shapes" in said
    assert "torch 2." in said and "What I expected" in said
