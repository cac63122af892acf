"""`make test-versions`: the tests with the oldest, the usual and the newest versions of what the course stands on.

    python tests/tools/version_matrix.py                   every row of MATRIX, with notebooks
    python tests/tools/version_matrix.py oldest newest     some rows
    python tests/tools/version_matrix.py --fast            without slow tests and without notebooks

In:  `MATRIX`, and the Pythons of this machine.
Out: a table on standard output, and `docs/measurements/versions.json` with one record a row; the exit status is 1 if
     a test failed. A row whose Python is not here says so, and fails nothing.

Each row gets an environment of its own (`.venv-NAME`), made by `make setup`, so that no row changes another. A CUDA
build of torch needs 6 GB on disk: `--remove` deletes each environment after its row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "docs" / "measurements" / "versions.json"
PACKAGES = ("torch", "triton", "numpy", "jupyterlab", "ipykernel")


@dataclass(frozen=True)
class Row:
    """Versions that go together. `also` are packages to install after the course's own."""

    name: str
    python: str
    torch: str
    also: tuple[str, ...] = ()


MATRIX = (
    # Triton 3.6's interpreter fails at every `range(n)` with NumPy 2.4.
    Row("oldest", "3.11", "torch==2.11.0", ("triton==3.6.0", "numpy<2.4")),
    Row("usual", "3.11", "torch==2.13.0"),
    Row("python-3.12", "3.12", "torch==2.13.0"),
    Row("python-3.13", "3.13", "torch==2.14.1", ("triton==3.8.0",)),
    Row("python-3.14", "3.14", "torch==2.15.0", ("triton==3.9.0",)),
    Row("newest", "3.15", "torch==2.15.0", ("triton==3.9.0",)),
)


@dataclass
class Record:
    """What was run, with what, and how it ended. `versions` is what the environment really holds."""

    row: str
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    tests: str = ""
    notebooks: str = ""
    failed: list[str] = field(default_factory=list)
    seconds: float = 0
    date: str = ""
    machine: str = ""

    @property
    def ok(self) -> bool:
        return not self.failed


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(row.name for row in MATRIX)}")
    parser.add_argument("--fast", action="store_true", help="no slow tests, no notebooks")
    parser.add_argument("--workers", default="2", help="test processes (default: %(default)s)")
    parser.add_argument("--remove", action="store_true", help="delete each environment afterwards")
    chosen = parser.parse_args(arguments)

    if unknown := set(chosen.rows) - {row.name for row in MATRIX}:
        parser.error(f"no row is called {', '.join(sorted(unknown))}")

    records = []
    for row in MATRIX:
        if chosen.rows and row.name not in chosen.rows:
            continue
        record = run_row(row, chosen)
        records.append(record)
        keep(record)
        print(as_line(record), flush=True)

    return 0 if all(record.ok for record in records) else 1


def run_row(row: Row, chosen: argparse.Namespace) -> Record:
    """Make the row's environment and run the tests in it."""
    started = time.monotonic()
    record = Record(row.name, date=time.strftime("%Y-%m-%d"), machine=machine())

    python = find_python(row.python)
    if python is None:
        record.tests = f"not run: there is no Python {row.python} here"
        return record

    environment = ROOT / f".venv-{row.name}"
    if problem := set_up(row, python, environment):
        record.failed.append(problem)
        record.tests = "not run"
        return record

    record.python, record.versions = versions_in(environment)
    run_tests(environment, record, chosen)
    if not chosen.fast:
        run_notebooks(environment, record, chosen)
    record.seconds = round(time.monotonic() - started)

    if chosen.remove:
        shutil.rmtree(environment)
    return record


def find_python(version: str) -> str | None:
    """A Python of this version that can make environments: on the path, or one of pyenv's."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))

    for candidate in (f"python{version}", *map(str, of_pyenv)):
        command = [candidate, "-c", "import venv, ensurepip"]
        try:
            done = subprocess.run(command, capture_output=True)
        except OSError:
            continue
        if done.returncode == 0:
            return candidate

    return None


def set_up(row: Row, python: str, environment: Path) -> str:
    """Make the environment; a sentence if that fails."""
    names = [f"PYTHON={python}", f"VENV={environment.name}", f"TORCH={row.torch}"]
    steps = [["make", "--no-print-directory", "setup", *names, "CONDA_PREFIX="]]
    if row.also:
        steps.append([str(environment / "bin/python"), "-m", "pip", "install", "-q", *row.also])

    for step in steps:
        done = subprocess.run(step, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            return f"set-up failed: {''.join(last)}"
    return ""


def versions_in(environment: Path) -> tuple[str, dict[str, str]]:
    """The version of Python and of the packages that matter, as they are installed."""
    code = (
        "import importlib.metadata as m, json, platform, sys\n"
        "found = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        "kept = {name: found.get(name, 'none') for name in sys.argv[1:]}\n"
        "print(json.dumps([platform.python_version(), kept]))"
    )
    command = [str(environment / "bin/python"), "-c", code, *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    python, versions = json.loads(done.stdout)
    return python, versions


def run_tests(environment: Path, record: Record, chosen: argparse.Namespace) -> None:
    command = [str(environment / "bin/python"), "-m", "pytest", "tests", "-q"]
    command += ["-n", chosen.workers, "--dist", "loadscope", "--no-loadscope-reorder"]
    if chosen.fast:
        command += ["-m", "not slow"]

    record.tests = run_pytest(command, record, environment)


def run_notebooks(environment: Path, record: Record, chosen: argparse.Namespace) -> None:
    command = ["make", "--no-print-directory", "test-notebooks", "CONDA_PREFIX="]
    command += [f"VENV={environment.name}", f"WORKERS={chosen.workers}"]

    record.notebooks = run_pytest(command, record, environment)


def run_pytest(command: list[str], record: Record, environment: Path) -> str:
    """Run one command that ends with pytest's summary. Adds the failures to `record`; returns the summary."""
    path = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PATH": path}
    )
    lines = done.stdout.splitlines()
    record.failed += [line.split(" - ")[0] for line in lines if re.match(r"(FAILED|ERROR) ", line)]

    summary = next((line for line in reversed(lines) if re.search(r"\d (passed|failed)", line)), "")
    if done.returncode and not record.failed:
        record.failed.append(f"exit status {done.returncode}")
    return re.sub(r"=+", "", summary).strip() or "no summary"


def keep(record: Record) -> None:
    """Write the record among those of other rows."""
    try:
        known = json.loads(RECORDS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = {}

    known[record.row] = asdict(record)
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    RECORDS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def as_line(record: Record) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    head = f"{record.row}: Python {record.python or '-'}, {versions or 'nothing installed'}"
    failed = "".join(f"\n    {name}" for name in record.failed)
    return f"{head}\n    {record.tests}; notebooks: {record.notebooks or 'not run'}{failed}"


def machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
