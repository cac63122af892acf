"""A room imports only from the rooms before it; the compiler knows no pictures (contracts in pyproject.toml)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOMS = [
    "frames",
    "capture",
    "guards",
    "autograd",
    "lowering",
    "scheduling",
    "codegen",
    "runtime",
    "viz",
    "grading",
    "bench",
]


def lint_imports(folder: Path) -> subprocess.CompletedProcess:
    program = (
        "from importlinter.cli import lint_imports; raise SystemExit(lint_imports(no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True
    )


def test_the_rooms_keep_their_order(root):
    done = lint_imports(root)
    assert done.returncode == 0, done.stdout + done.stderr


def a_house(folder: Path, contracts: str, **modules: str) -> Path:
    """A package of empty rooms but for `modules` (file name → source; `__` for the slash)."""
    for room in ROOMS:
        (folder / "course_lib" / room).mkdir(parents=True)
        (folder / "course_lib" / room / "__init__.py").touch()
    (folder / "pyproject.toml").write_text(contracts)
    for name in ("__init__", "events", "config"):
        (folder / "course_lib" / f"{name}.py").touch()
    for name, source in modules.items():
        (folder / "course_lib" / (name.replace("__", "/") + ".py")).write_text(source)
    return folder


def test_a_room_may_import_an_earlier_one_but_not_a_later_one(root, tmp_path):
    contracts = (root / "pyproject.toml").read_text()
    good = a_house(
        tmp_path / "good",
        contracts,
        codegen__cpp="from course_lib.lowering import ir",
        lowering__ir="",
    )
    assert lint_imports(good).returncode == 0, lint_imports(good).stdout
    bad = a_house(
        tmp_path / "bad",
        contracts,
        lowering__ir="from course_lib.codegen import cpp",
        codegen__cpp="",
    )
    done = lint_imports(bad)
    assert done.returncode != 0 and "course_lib.lowering.ir" in done.stdout


def test_the_compiler_cannot_draw_not_even_lazily_or_through_another_file(root, tmp_path):
    contracts = (root / "pyproject.toml").read_text()
    for where in ("frames__hook", "events", "runtime__run"):
        house = a_house(
            tmp_path / where, contracts, **{where: "def show():\n    from course_lib import viz"}
        )
        assert lint_imports(house).returncode != 0, where
