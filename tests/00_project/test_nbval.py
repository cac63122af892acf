"""Strict nbval catches what it should, sanitizing only what differs from run to run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from nbval.plugin import get_sanitize_patterns

from course_lib.grading import nbval_versions
from course_lib.grading.notebooks import tidy, to_text

CONFIG = Path(__file__).parents[1] / "nbval_sanitize.cfg"
TMP = "/tmp"


def sanitized(text: str) -> str:
    for regex, replace in get_sanitize_patterns(CONFIG.read_text()):
        text = re.sub(regex, replace, text)
    return text


def test_nbval_reads_every_section_of_the_file():
    sections = re.findall(r"^\[([\w-]+)\]$", CONFIG.read_text(), flags=re.MULTILINE)
    assert len(get_sanitize_patterns(CONFIG.read_text())) == len(sections) > 8


@pytest.mark.parametrize(
    "one, other",
    [
        ("took 1.25 ms", "took 13 µs"),
        ("compiled in 0.8 s", "compiled in 12.1 s"),
        ("412 µs ± 3.1 µs per loop", "7.5 ms ± 12 µs per loop"),
        ("2.1× faster than eager", "1.9× faster than eager"),
        ("copies at 12.3 GB/s", "copies at 41 GB/s"),
        ("<Frame at 0x7f3a11c0>", "<Frame at 0x55aa0b2d>"),
        (
            f"cached in {TMP}/course-x1/kernel.so",
            "cached in /var/folders/ab/c_d/T/course-9/kernel.so",
        ),
        ("File <ipython-input-3-0a1b2c3d4e5f>", f"File {TMP}/ipykernel_812/1234.py"),
        ("Python 3.11.7", "Python 3.12.1"),
        ("File /Users/ada/course/course_lib/capture/x.py", "File course_lib/capture/x.py"),
        ("File /opt/py/lib/python3.11/site-packages/torch/x.py", "File site-packages/torch/x.py"),
        ("torch 2.13.0+cpu", "torch 2.11.0"),
        ('<rect x="1" y="2.5" class="node"/>', '<rect x="10" y="7" class="node"/>'),
        ("\x1b[31mred\x1b[0m", "red"),
    ],
)
def test_what_differs_from_run_to_run_is_no_difference(one, other):
    assert sanitized(one) == sanitized(other)


@pytest.mark.parametrize(
    "one, other",
    [
        ("3 kernels", "4 kernels"),
        ("saves 8.0 MiB", "saves 4.0 MiB"),
        ("LOAD_FAST x", "LOAD_FAST y"),
        ("shape [32, 128]", "shape [32, 256]"),
        ("<text>relu</text>", "<text>gelu</text>"),
        ("2 graph breaks", "1 graph breaks"),
        ("x × 2 as a graph", "x × 3 as a graph"),
        ("64x128 tile", "32x128 tile"),
    ],
)
def test_what_carries_a_lesson_is_a_difference(one, other):
    assert sanitized(one) != sanitized(other)


def run_nbval(path: Path) -> int:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        str(path.parent),
    ]
    nbval = [
        "--nbval",
        "--nbval-current-env",
        "--nbval-sanitize-with",
        str(CONFIG),
        "-p",
        "course_lib.grading.nbval_versions",
    ]
    return subprocess.run([*command, *nbval, str(path)], capture_output=True).returncode


def stored(folder: Path, source: str, text: str, *tags: str) -> Path:
    out = [new_output("stream", name="stdout", text=text)]
    cell = new_code_cell(source, execution_count=1, outputs=out, metadata={"tags": list(tags)})
    path = folder / "lesson.ipynb"
    path.write_text(to_text(tidy(new_notebook(cells=[cell]))))
    return path


@pytest.mark.slow
def test_a_stored_output_that_is_not_what_runs_fails(tmp_path):
    source = "print('2 kernels in', __import__('time').perf_counter(), 'ms')"
    assert run_nbval(stored(tmp_path, source, "2 kernels in 99.5 ms\n")) == 0
    assert run_nbval(stored(tmp_path, source, "3 kernels in 99.5 ms\n")) == 1


def test_what_python_and_torch_make_is_compared_on_the_versions_it_was_stored_on_and_only_there(
    monkeypatch,
):
    class Item:
        def __init__(self, *tags):
            self.cell = new_code_cell("", metadata={"tags": list(tags)})
            self.options = {"check": True}

    versions = [
        ("3.11.7", "2.13.0+cpu", True, True),
        ("3.12.1", "2.13.0", False, True),
        ("3.11.7", "2.11.0+cu130", True, False),
    ]
    for python, torch, *compared in versions:
        monkeypatch.setattr(nbval_versions.platform, "python_version", lambda: python)
        monkeypatch.setattr(nbval_versions.importlib.metadata, "version", lambda name: torch)
        bytecode, theirs, plain = Item("bytecode"), Item("torch"), Item()
        nbval_versions.pytest_collection_modifyitems([bytecode, theirs, plain, object()])
        assert [bytecode.options["check"], theirs.options["check"]] == compared
        assert plain.options["check"]


def test_a_toolkit_without_a_gpu_is_not_warned_of_in_a_cell(monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "/usr/local/cuda")
    monkeypatch.setenv("CUDA_PATH", "")
    monkeypatch.setattr(nbval_versions, "has_gpu", lambda: True)
    nbval_versions.pytest_configure(None)
    assert os.environ["CUDA_HOME"] == "/usr/local/cuda"
    monkeypatch.setattr(nbval_versions, "has_gpu", lambda: False)
    nbval_versions.pytest_configure(None)
    assert os.environ["CUDA_HOME"] == os.environ["CUDA_PATH"] == ""
