"""`docs/behaviours.md` fits the stored answers, and `course_lib` still answers as it is stored for the installed torch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "behaviours"
VERSIONS = ("2.11", "2.12", "2.13", "2.14", "2.15")
INSTALLED = ".".join(version("torch").split(".")[:2])
SAMPLE = (
    "zero_and_one_come_first",
    "an_int_argument",
    "the_sign_of_a_float_argument",
    "members_of_an_enum",
    "the_order_of_keys_iterated",
    "a_singleton_by_metaclass",
    "gives_an_exception_of_a_local_class",
    "a_break_in_a_for_loop",
    "effects_around_a_break",
    "allow_in_graph",
    "four_compiled_modules_share_a_limit",
    "gradient_modes",
)


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


def stored(name: str) -> dict:
    return json.loads((TOOL / "answers" / f"torch-{name}.json").read_text(encoding="utf-8"))


def test_the_page_fits_the_data_and_names_a_reason_for_each_difference_of_course_lib():
    done = run("page.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_answers_of_five_versions_to_at_least_200_programs():
    for name in VERSIONS:
        record = stored(name)
        assert record["torch"].startswith(name), name
        assert len(record["answers"]) >= 200, name
        assert sum("course" in answers for answers in record["answers"].values()) >= 200, name


@pytest.mark.skipif(INSTALLED not in VERSIONS, reason="no answers are stored for this torch")
def test_a_sample_of_course_libs_answers_is_as_stored():
    done = run("run.py", "--check", *SAMPLE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.skipif(INSTALLED not in VERSIONS, reason="no answers are stored for this torch")
def test_all_of_course_libs_answers_are_as_stored():
    done = run("run.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_of_torch_that_the_programs_name_exist():
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    listed = run("run.py", "--sources").stdout.split()
    assert len(listed) > 20
    for name in listed:
        below = name.removeprefix("torch/")
        # The C++ source is not in the wheel; some of its headers are
        found = (
            (torch / below).exists() or (torch / "include" / name).exists() or name.endswith(".cpp")
        )
        assert found, name
