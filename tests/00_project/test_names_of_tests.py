"""A test file is named by its topic, its number is its own, and it can be read in one sitting."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

FOLDERS = sorted(path for path in Path(__file__).parents[1].iterdir() if path.name[:2].isdigit())
SAYS_NOTHING = {"more", "other", "others", "corners", "misc", "rest"}
LONGEST = 1000


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_two_files_have_one_number(folder):
    numbers = Counter(
        re.findall(r"test_(\d+)_", " ".join(path.name for path in folder.glob("*.py")))
    )
    assert [number for number, times in numbers.items() if times > 1] == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_names_say_what_is_tested(folder):
    vague = [path.name for path in folder.glob("*.py") if SAYS_NOTHING & {*path.stem.split("_")}]
    assert vague == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_file_is_longer_than_a_sitting(folder):
    long = [path.name for path in folder.glob("*.py") if path.read_text().count("\n") > LONGEST]
    assert long == []
