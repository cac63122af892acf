"""`make test-versions`: the tests with the oldest, the usual and the newest versions of what the course stands on.

    python tests/tools/version_matrix.py --list            the rows of MATRIX
    python tests/tools/version_matrix.py oldest            one row: slow tests and notebooks too
    python tests/tools/version_matrix.py newest --fast     one row, without slow tests and without notebooks
    python tests/tools/version_matrix.py                   every row, one after the other (hours)
    python tests/tools/version_matrix.py newest --only notebooks    one part of a row
    python tests/tools/version_matrix.py newest --only chinese      the lessons in Chinese, which no other run takes
    python tests/tools/version_matrix.py newest --rooms 02 09       the tests of some rooms: tests/02_*, tests/09_*
    python tests/tools/version_matrix.py --tables          write the tables anew from the records

In:  `MATRIX`, and the Pythons of this machine.
Out: a line a row on standard output; one record a row in `docs/measurements/versions.json`; the tables in
     `docs/measurements/versions.md` and `README.md`, which are made from the records. The exit status is 1 if a test failed.
     A row whose Python is not here says so, and leaves its record as it was.

Each row gets an environment of its own (`.venv-NAME`), made by `make setup`, so that no row changes another. A CUDA
build of torch needs 6 GB on disk: `--remove` deletes each environment after its row. `--environment FOLDER` takes one
that is there, as it is.
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
PAGES = (ROOT / "docs" / "measurements" / "versions.md", ROOT / "README.md")
BEGIN, END = "<!-- versions: begin -->", "<!-- versions: end -->"
PACKAGES = ("torch", "triton", "numpy", "jupyterlab", "ipykernel")
TESTS, NOTEBOOKS, CHINESE = "tests", "notebooks", "Chinese notebooks"
NOT_SLOW = " that are not slow"
FAST = TESTS + NOT_SLOW


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
    Row("gpu", "3.12", "torch==2.11.0", ("triton==3.6.0", "numpy<2.4")),
    Row("python-3.12", "3.12", "torch==2.13.0"),
    Row("python-3.13", "3.13", "torch==2.14.1", ("triton==3.8.0",)),
    Row("python-3.14", "3.14", "torch==2.13.0"),
    Row("newest", "3.15", "torch==2.15.0", ("triton==3.9.0",)),
)


@dataclass
class Part:
    """One run of pytest: what was run, and how it ended."""

    what: str
    summary: str
    failed: list[str] = field(default_factory=list)
    seconds: int = 0
    date: str = ""
    commit: str = ""

    @property
    def counts(self) -> str:
        """`7,000 passed, 2 failed` of pytest's last line; what was skipped needs what this machine has not."""
        found = re.findall(r"(\d+) (passed|failed|errors?)\b", self.summary)
        return ", ".join(f"{int(number):,} {word}" for number, word in found) or self.summary


@dataclass
class Record:
    """What was run in one row. `versions` is what the environment really holds."""

    row: str
    python: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    machine: str = ""
    parts: dict[str, Part] = field(default_factory=dict)
    problem: str = ""

    @property
    def ok(self) -> bool:
        return not self.problem and not any(part.failed for part in self.parts.values())


def main(arguments: list[str]) -> int:
    chosen = options(arguments)
    if chosen.list:
        print("\n".join(as_row(row) for row in MATRIX))
        return 0
    if chosen.tables:
        write_tables(read_records())
        return 0

    records = []
    for row in MATRIX:
        if chosen.rows and row.name not in chosen.rows:
            continue
        record = run_row(row, chosen)
        records.append(record)
        if record.parts:
            keep(record)
        print(as_lines(record), flush=True)

    return 0 if all(record.ok for record in records) else 1


def options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(row.name for row in MATRIX)}")
    parser.add_argument("--list", action="store_true", help="only say which rows there are")
    parser.add_argument("--tables", action="store_true", help="only write the tables anew")
    parser.add_argument("--fast", action="store_true", help="no slow tests, no notebooks")
    parser.add_argument("--only", choices=("tests", "notebooks", "chinese"), help="one of them")
    parser.add_argument(
        "--rooms", nargs="+", default=[], metavar="NN", help="only tests/NN_*, and no notebooks"
    )
    parser.add_argument("--workers", default="2", help="test processes (default: %(default)s)")
    parser.add_argument("--remove", action="store_true", help="delete each environment afterwards")
    parser.add_argument("--environment", type=Path, help="one that is there, for one row")
    chosen = parser.parse_args(arguments)

    if unknown := set(chosen.rows) - {row.name for row in MATRIX}:
        parser.error(f"no row is called {', '.join(sorted(unknown))}; --list says which there are")
    if empty := [room for room in chosen.rooms if not folders_of([room])]:
        parser.error(f"there is no folder tests/{empty[0]}_*")
    if chosen.environment and len(chosen.rows) != 1:
        parser.error("--environment is for one row: name it")
    if chosen.environment and not (chosen.environment / "bin" / "python").exists():
        parser.error(f"there is no Python environment in {chosen.environment}")
    return chosen


def run_row(row: Row, chosen: argparse.Namespace) -> Record:
    """Make the row's environment, where none is given, and run the tests in it."""
    record = Record(row.name, machine=machine())
    environment = chosen.environment

    if environment is None:
        environment = ROOT / f".venv-{row.name}"
        if problem := set_up(row, environment):
            record.problem = problem
            return record

    record.python, record.versions = versions_in(environment)
    if chosen.only in (None, "tests"):
        part = run_tests(environment, chosen)
        record.parts[part.what] = part
    if chosen.only == "notebooks" or not (chosen.fast or chosen.only or chosen.rooms):
        record.parts[NOTEBOOKS] = run_notebooks(environment, chosen)
    if chosen.only == "chinese":
        record.parts[CHINESE] = run_chinese(environment, chosen)

    if chosen.remove and not chosen.environment:
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


def set_up(row: Row, environment: Path) -> str:
    """Make the environment; a sentence if that fails."""
    python = find_python(row.python)
    if python is None:
        return f"not run: there is no Python {row.python} here that can make an environment"

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


def run_tests(environment: Path, chosen: argparse.Namespace) -> Part:
    folders = folders_of(chosen.rooms) if chosen.rooms else ["tests"]
    command = [str(environment.absolute() / "bin/python"), "-m", "pytest", *folders, "-q"]
    command += ["-n", chosen.workers, "--dist", "loadscope", "--no-loadscope-reorder"]
    if chosen.fast:
        command += ["-m", "not slow"]

    return run_pytest(command, name_of(chosen.rooms, chosen.fast), environment)


def folders_of(rooms: list[str]) -> list[str]:
    """`["02"]` → `["tests/02_bytecode_capture"]`; a room may have several folders, or none."""
    found = []
    for room in rooms:
        found += [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob(f"tests/{room}_*"))]
    return found


def name_of(rooms: list[str], fast: bool) -> str:
    """What a record calls this run: `tests of 02, 09 that are not slow`."""
    of_rooms = f" of {', '.join(sorted(rooms))}" if rooms else ""
    return f"{TESTS}{of_rooms}{NOT_SLOW if fast else ''}"


def run_notebooks(environment: Path, chosen: argparse.Namespace) -> Part:
    command = ["make", "--no-print-directory", "test-notebooks", "CONDA_PREFIX="]
    command += [f"VENV={environment}", f"WORKERS={chosen.workers}"]

    return run_pytest(command, NOTEBOOKS, environment)


def run_chinese(environment: Path, chosen: argparse.Namespace) -> Part:
    """The lessons in `notebooks/zh`: they are not tracked, so they are made first."""
    make = ["make", "--no-print-directory", "CONDA_PREFIX=", f"VENV={environment}"]
    subprocess.run([*make, "translations"], cwd=ROOT, capture_output=True, check=True)

    command = [*make, "test-notebooks", f"WORKERS={chosen.workers}"]
    return run_pytest([*command, "NOTEBOOKS=notebooks/zh/*.ipynb"], CHINESE, environment)


def run_pytest(command: list[str], what: str, environment: Path) -> Part:
    """Run one command that ends with pytest's summary."""
    path = f"{environment.absolute() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    variables = os.environ | {"PATH": path}
    started = time.monotonic()

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=variables)

    seconds = round(time.monotonic() - started)
    part = read_summary(done.stdout, what, seconds)
    if done.returncode and not part.failed:
        part.failed.append(f"exit status {done.returncode}")
    return part


def read_summary(output: str, what: str, seconds: int) -> Part:
    """The last line that counts, and the names of what failed."""
    lines = output.splitlines()
    failed = [line.split(" - ")[0] for line in lines if re.match(r"(FAILED|ERROR) ", line)]

    counts = [line for line in lines if re.search(r"\d (passed|failed)", line)]
    summary = re.sub(r"=+", "", counts[-1]).strip() if counts else "no summary"
    return Part(what, summary, failed, seconds, time.strftime("%Y-%m-%d"), commit())


def commit() -> str:
    """The commit that was run, with `+` where files were changed."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip()


def machine() -> str:
    """The system, its size, and the GPU where there is one."""
    found = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    try:
        command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpus = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    except OSError:
        gpus = []
    return f"{found}, {gpus[0].strip()}" if gpus else found


def read_records() -> dict[str, Record]:
    try:
        known = json.loads(RECORDS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}

    records = {}
    for name, values in known.items():
        parts = {what: Part(**part) for what, part in values.pop("parts").items()}
        records[name] = Record(**values, parts=parts)
    return records


def keep(record: Record) -> None:
    """Write the record among those of other rows, and the tables.

    Parts that were run before stay if they were run with the same versions; all tests replace the fast ones and
    those of single rooms, and all notebooks replace single ones.
    """
    records = read_records()
    known = records.get(record.row)
    same = known and (known.python, known.versions) == (record.python, record.versions)
    runs = set(record.parts)

    if known and same:
        record.parts = known.parts | record.parts
    if TESTS in record.parts:
        record.parts = without_single_ones(record.parts, TESTS)
    for whole in runs.intersection((NOTEBOOKS, CHINESE)):
        record.parts = without_single_ones(record.parts, whole)

    records[record.row] = record
    ordered = {row.name: asdict(records[row.name]) for row in MATRIX if row.name in records}
    RECORDS.parent.mkdir(parents=True, exist_ok=True)
    RECORDS.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    write_tables(records)


def without_single_ones(parts: dict[str, Part], whole: str) -> dict[str, Part]:
    """The parts without those that are a piece of this one: `tests of 02` is a piece of `tests`."""
    kept = {}
    for what, part in parts.items():
        if what == whole or not what.startswith(whole):
            kept[what] = part
    return kept


def write_tables(records: dict[str, Record]) -> None:
    """The table of the records, between the two marks of each page."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_table(text, table(records)), encoding="utf-8")


def with_table(text: str, rows: str) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{rows}\n{END}{after}"


def table(records: dict[str, Record]) -> str:
    """One line a row, in the order of MATRIX."""
    heads = ("row", "Python", "torch", "Triton", "NumPy", "tests")
    lines = [as_cells(*heads, f"{NOTEBOOKS} (cells)", f"{CHINESE} (cells)")]
    lines.append("|---|---|---|---|---|---|---|---|")

    for row in MATRIX:
        record = records.get(row.name)
        if record is None:
            wanted = (row.python, row.torch.removeprefix("torch=="), "", "")
            lines.append(as_cells(row.name, *wanted, "not run yet", "", ""))
            continue
        versions = [record.versions.get(name, "") for name in ("torch", "triton", "numpy")]
        said = tests_of(record), notebooks_of(record), notebooks_of(record, CHINESE)
        lines.append(as_cells(row.name, record.python, *versions, *said))
    return "\n".join(lines)


def as_cells(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def tests_of(record: Record) -> str:
    """What the table says of a row's tests: the whole suite, or each part that was run."""
    said = [as_said(part) for what, part in record.parts.items() if what.startswith(TESTS)]
    return "; ".join(said) or "not run"


def notebooks_of(record: Record, edition: str = NOTEBOOKS) -> str:
    """What the table says of a row's notebooks: `5 failed, 9 passed; 00 and 11 again: 7 passed`."""
    said = []

    for what, part in record.parts.items():
        if what == edition:
            said.append(part.counts)
        elif what.startswith(edition):
            said.append(f"{what.removeprefix(edition).strip()}: {part.counts}")
    return "; ".join(said) or "not run"


def as_said(part: Part) -> str:
    """`all: 7 passed`, `without slow ones: 7 passed`, `rooms 02, 09 without slow ones: 7 passed`."""
    whole = part.what.removesuffix(NOT_SLOW)
    words = []

    if whole != TESTS:
        rooms = whole.removeprefix(f"{TESTS} of ")
        words.append(f"rooms {rooms}" if "," in rooms else f"room {rooms}")
    if whole != part.what:
        words.append("without slow ones")
    return f"{' '.join(words) or 'all'}: {part.counts}"


def as_row(row: Row) -> str:
    also = "".join(f", {package}" for package in row.also)
    return f"{row.name:12} Python {row.python}, {row.torch}{also}"


def as_lines(record: Record) -> str:
    """What a person reads after a row: the versions, each part, and each test that failed."""
    if record.problem:
        return f"{record.row}: {record.problem}"

    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    lines = [f"{record.row}: Python {record.python}, {versions}"]
    for part in record.parts.values():
        lines.append(f"    {part.what}: {part.summary}")
        lines += [f"        {name}" for name in part.failed]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
