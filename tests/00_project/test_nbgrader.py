"""nbgrader's own commands, from the release to the CSV file, with submissions that are not quite as it wants them."""

from __future__ import annotations

import copy
import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from course_lib.grading import classroom, quiet
from course_lib.grading.cli import main
from course_lib.grading.exercise_files import generate
from course_lib.grading.notebooks import grading_metadata, read, to_text
from course_lib.grading.repair import repaired
from tests.tools.tiny_course import BIGGEST, DOUBLE, tiny_course, with_answers

RIGHT = "return [2 * n for n in numbers]"

# what the body of `double` writes on stderr while the checks call it; the answer is right
NOISES = {
    "warns": "import warnings\n    warnings.warn('slow')",
    "logs": "import logging\n    logging.getLogger('x').warning('slow')",
    "prints": "import sys\n    print('slow', file=sys.stderr)",
    "writes to the descriptor": "import os\n    os.write(2, b'slow')",
    "asks a program": "import subprocess\n    subprocess.run(['sh', '-c', 'echo slow >&2'])",
    "starts a thread": (
        "import sys, threading, time\n    def later():\n        for _ in range(40):\n"
        "            time.sleep(0.05)\n            print('slow', file=sys.stderr)\n"
        "    threading.Thread(target=later, daemon=True).start()"
    ),
}


@pytest.fixture
def tiny(tmp_path):
    lesson = tiny_course(tmp_path / "course")
    generate(lesson)
    return lesson


def nbgrader(root: Path, *words: str) -> str:
    config = Path(classroom.__file__).parent
    # nbgrader runs `alembic`
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "JUPYTER_CONFIG_PATH": str(config),
        "PYTHONPATH": str(config.parents[1]),
        "PATH": path,
    }
    command = [sys.executable, "-m", "nbgrader", *words]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def submit(lesson, student: str, change=None, **answers: str) -> Path:
    fresh = lesson.exercise.read_text(encoding="utf-8")
    nb = read(with_answers(lesson, **{"double": DOUBLE, "biggest": BIGGEST, **answers}))
    lesson.exercise.write_text(fresh, encoding="utf-8")
    path = lesson.root / "submitted" / student / lesson.name / f"{lesson.name}.ipynb"
    path.parent.mkdir(parents=True)
    data = change(nb) if change else None
    path.write_bytes(data if data is not None else to_text(nb).encode())
    return path


def at(nb, grade_id: str) -> int:
    return next(
        i for i, c in enumerate(nb.cells) if grading_metadata(c).get("grade_id") == grade_id
    )


def copied(nb) -> None:
    """The answer's cell is there twice; the first has the answer."""
    i = at(nb, "double")
    nb.cells.insert(i + 1, copy.deepcopy(nb.cells[i]))
    nb.cells[i + 1].id = "again"


def split(nb) -> None:
    i = at(nb, "double")
    second = copy.deepcopy(nb.cells[i])
    nb.cells[i].source, second.source, second.id = "factor = 2", nb.cells[i].source, "half"
    nb.cells.insert(i + 1, second)


def unknown(nb) -> None:
    cell = copy.deepcopy(nb.cells[at(nb, "test_double")])
    cell.metadata.nbgrader |= {"grade_id": "test_of_another_lesson", "points": 9}
    cell.id = "unknown"
    nb.cells.append(cell)


def checks_copied(nb) -> None:
    cell = copy.deepcopy(nb.cells[at(nb, "test_double")])
    cell.id = "again"
    nb.cells.append(cell)


def checks_deleted(nb) -> None:
    del nb.cells[at(nb, "test_double")]


def without_metadata_of_one(nb) -> None:
    nb.cells[at(nb, "double")].metadata.nbgrader.pop("schema_version")


def with_a_mark(nb) -> bytes:
    return b"\xef\xbb\xbf" + to_text(nb).encode()


def of_format_4_2(nb) -> bytes:
    return json.dumps({**json.loads(to_text(nb)), "nbformat_minor": 2}).encode()


def output_spoilt(nb) -> bytes:
    content = json.loads(to_text(nb))
    code = next(cell for cell in content["cells"] if cell["cell_type"] == "code")
    code["outputs"] = [{"output_type": "stream", "text": "x"}]
    return json.dumps(content).encode()


ODD = {change.__name__: change for change in (
    copied, split, unknown, checks_copied, checks_deleted, without_metadata_of_one, with_a_mark,
    of_format_4_2, output_spoilt)}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_a_repaired_notebook_has_each_graded_cell_once_and_the_answers(tiny, what):
    path = submit(tiny, "ann", ODD[what])
    nb = repaired(read(path), read(tiny.exercise))
    names = [grading_metadata(cell).get("grade_id") for cell in nb.cells]
    named = [name for name in names if name]
    assert named == ["double", "test_double", "biggest", "test_biggest"]
    code = "\n".join(cell.source for cell in nb.cells)
    assert DOUBLE in code and BIGGEST in code
    nbformat.validate(nbformat.reads(to_text(nb), as_version=4))


def test_repair_keeps_the_file_as_it_was_and_is_done_once(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.root)
    path = submit(tiny, "ann", split)
    before = path.read_bytes()
    assert main(["repair", "submitted"]) == 0
    assert "1 submissions, 1 files written" in capsys.readouterr().out
    kept = [p.read_bytes() for p in (tiny.root / "submitted" / ".earlier").rglob("*.ipynb")]
    assert kept == [before]
    assert main(["repair", "submitted"]) == 0
    assert "1 submissions, 0 files written" in capsys.readouterr().out


@pytest.mark.parametrize("student", ['Example, Ann "A."', "a: b?", "Zoë Müller", "ann.", " ann "])
def test_a_student_keeps_the_folder_whatever_its_name(tiny, monkeypatch, student):
    """Under another name nbgrader would see a second student, and mark the unrepaired file of the first."""
    monkeypatch.chdir(tiny.root)
    path = submit(tiny, student, split)
    before = path.read_bytes()
    assert main(["repair", "submitted"]) == 0
    students = [p.name for p in (tiny.root / "submitted").iterdir() if p.name != ".earlier"]
    assert students == [student] and path.read_bytes() != before


def test_what_cannot_be_repaired_is_named_and_left(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.root)
    submit(tiny, "ann")
    path = submit(tiny, "bo", lambda nb: b"{")
    assert main(["repair", "submitted"]) == 1
    assert "bo/01_tiny" in capsys.readouterr().out and path.read_bytes() == b"{"


@pytest.mark.parametrize(
    ("source", "checks"),
    [("check_equal(f(1), 2, 'f')", True), ("x = 1\ncheck(True, 'x')", True), ("check = 3", False),
     ("# check(x)", False), ("print('check (x)')", True), ("import logging", False), ("", False)],
)  # fmt: skip
def test_a_checks_cell_is_known_by_its_calls(source, checks):
    assert bool(quiet.CHECKS.search(source)) is checks


def test_outside_of_nbgrader_nothing_is_changed(monkeypatch):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    monkeypatch.delenv("NBGRADER_VALIDATING", raising=False)
    assert quiet.install() is None


@pytest.mark.slow
def test_nbgraders_own_flow_gives_right_answers_their_points(tiny, monkeypatch):
    """Release, submissions, repair, autograde, feedback, CSV: with nbgrader's commands and our configuration."""
    root = tiny.root
    nbgrader(root, "generate_assignment", tiny.name, "--force", "--create")
    for name, noise in NOISES.items():
        submit(tiny, name, double=f"    {noise}\n    {RIGHT}")
    for name, change in ODD.items():
        submit(tiny, name, change)
    submit(tiny, 'Example, Ann "A."')
    submit(tiny, "wrong", double="    return numbers")
    submit(
        tiny, "wrong and noisy", double="    import warnings\n    warnings.warn('x')\n    return 1"
    )
    monkeypatch.chdir(root)
    assert main(["repair", "submitted"]) == 0

    nbgrader(root, "autograde", tiny.name, "--create")
    nbgrader(root, "generate_feedback", tiny.name)
    nbgrader(root, "export")
    with (root / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    wrong = {"wrong": 3.0, "wrong and noisy": 3.0}
    assert scores == {**dict.fromkeys((*NOISES, *ODD, 'Example, Ann "A."'), 5.0), **wrong}
    assert (root / "feedback" / "wrong" / tiny.name / f"{tiny.name}.html").is_file()
