"""The package installs with a C compiler and without one, and carries what it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from course_lib import versions

WITHOUT_A_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false", "LDSHARED": "/bin/false"}


def build_wheel(root: Path, folder: Path, environment: dict[str, str]) -> list[str]:
    """The names of the files in a wheel that is built from a copy of the sources."""
    source = folder / "source"
    shutil.copytree(
        root / "course_lib",
        source / "course_lib",
        ignore=shutil.ignore_patterns("*.so", "__pycache__"),
    )
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    for name in ("notebooks", "exercises", "solutions"):
        shutil.copytree(root / name, source / name)
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder),
        str(source),
    ]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl"))).namelist()


@pytest.mark.slow
def test_it_installs_without_a_compiler_and_brings_the_c_sources(root, tmp_path):
    names = build_wheel(root, tmp_path, WITHOUT_A_COMPILER)
    assert not [name for name in names if name.endswith(".so")]
    sources = {
        path.relative_to(root).as_posix()
        for kind in ("*.c", "*.h")
        for path in root.glob(f"course_lib/**/{kind}")
    }
    assert sources <= set(names) and "course_lib/py.typed" in names
    assert any(name.endswith("entry_points.txt") for name in names)


@pytest.mark.slow
def test_a_wheel_brings_the_notebooks_of_the_course(root, tmp_path):
    names = build_wheel(root, tmp_path, WITHOUT_A_COMPILER)
    tracked = subprocess.run(
        ["git", "ls-files", "notebooks", "exercises", "solutions"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    notebooks = {f"course_lib/_course/{path}" for path in tracked.stdout.split()}

    assert len(notebooks) > 40
    assert notebooks <= set(names)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler here")
def test_with_a_compiler_the_extensions_are_in_the_wheel(root, tmp_path):
    built = {
        Path(name).name.split(".")[0]
        for name in build_wheel(root, tmp_path, {})
        if name.endswith(".so")
    }
    assert built == {path.stem for path in root.glob("course_lib/*/_*.c")}


@pytest.mark.parametrize(
    ("torch", "triton"),
    [("2.11.0", "triton==3.6.*"), ("2.13.0+cpu", "triton==3.7.*"), ("9.1", "")],
)
def test_triton_is_the_one_that_fits_the_installed_torch(monkeypatch, torch, triton):
    monkeypatch.setattr(versions.importlib.metadata, "version", lambda name: torch)
    monkeypatch.setattr(versions.sys, "platform", "linux")

    assert versions.triton_for_this_torch() == triton
