"""`course grade` on a class in which not everybody is honest, and `course progress`."""

from __future__ import annotations

import copy
import csv
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from course_lib.grading import classroom, sandbox
from course_lib.grading.cli import main
from course_lib.grading.exercise_files import generate
from course_lib.grading.notebooks import read, to_text
from course_lib.grading.progress import progress
from course_lib.grading.runner import Limits
from tests.tools.tiny_course import BIGGEST, DOUBLE, edit, tiny_course, with_answers

needs_walls = pytest.mark.skipif(bool(sandbox.why_no_sandbox()), reason=sandbox.why_no_sandbox())
LIMITS = Limits(cell_seconds=8, memory_bytes=3 << 29, folder_bytes=300 << 20, processes=40)
RIGHT = "return [2 * n for n in numbers]"

# name: (the body of `double`, points of both exercises, what the reason for the first must say)
CLASS = {
    "honest": (DOUBLE.strip(), (2, 3), ""),
    "loops": ("while True: pass", (0, 3), "longer than 8 seconds"),
    "forks": ("import os\n    while True: os.fork()", (0, 3), "was stopped"),
    "eats memory": ("x = []\n    while True: x.append(bytearray(10**8))", (0, 3), "GiB of memory"),
    "fills the disk": (
        "import itertools\n    for n in itertools.count(): open(f'f{n}', 'wb').write(bytes(10**8))", (0, 3), "GiB of files"),
    "hoards files without a name": (
        "import os\n    held = []\n    while True: held.append(os.memfd_create('x')), os.write(held[-1], bytes(10**8))",
        (0, 3), "GiB of files"),
    # of output, or of what waits to be read
    "prints without end": ("while True: print('x' * 10**5)", (0, 3), "iB"),
    "deletes": ("import shutil\n    shutil.rmtree('ROOT', ignore_errors=True)\n    " + RIGHT, (2, 3), ""),
    "overwrites": ("open('SOLUTION', 'w').write('')\n    " + RIGHT, (0, 3), "Error"),
    "reads solutions": ("return open('SOLUTION').read()", (0, 3), "FileNotFoundError"),
    "phones home": ("import socket\n    socket.create_connection(('1.1.1.1', 53), 2)", (0, 3), "OSError"),
    "leaves early": ("import os\n    print('2 of 2 points')\n    os._exit(0)", (0, 3), "crashed"),
    "exits": ("raise SystemExit(0)", (0, 3), "SystemExit"),
    "silences the checker": (
        "import course_lib.grading.checks as c\n    c.check_equal = lambda *a, **k: None", (0, 0), "tampered"),
    "hides the check": ("global check_equal\n    check_equal = lambda *a, **k: None", (0, 0), "check_equal was replaced"),
    "changes the library": (
        "import course_lib.compiler as c\n    c.reset = lambda: None\n    " + RIGHT, (0, 0), "course_lib.compiler"),
    "equals everything": (
        "class E(list):\n        def __eq__(self, other): return True\n    return E()", (0, 3), "double([1, 2])"),
    "nests folders": (
        "import os, time\n    for n in range(2500): os.mkdir('d'), os.chdir('d')\n    time.sleep(1)\n    " + RIGHT,
        (0, 3), "nested folders"),
    "raises what cannot be told": (r"raise ValueError('\ud800')", (0, 3), "cannot be shown"),
    "raises without end": ("raise ValueError('x' * 30_000_000)", (0, 3), "iB"),
    "raises a formula": (
        "from course_lib.grading.checks import CheckFailed\n    error = CheckFailed.__new__(CheckFailed)\n"
        "    error.args = ('=1+1',)\n    raise error", (0, 3), "'=1+1"),
    "prints from a thread": (
        "import threading\n    def flood():\n        while True: print('y' * 10**5)\n"
        "    threading.Thread(target=flood, daemon=True).start()\n    " + RIGHT, (0, 3), "iB"),
    "stops itself": (
        "import os, signal\n    os.kill(os.getpid(), signal.SIGSTOP)\n    " + RIGHT, (0, 3), "longer than 8 seconds"),
    "leaves a daemon": (
        "import os\n    if os.fork() == 0:\n        os.setsid()\n        if os.fork() == 0:\n            while True: pass\n"
        "        os._exit(0)\n    " + RIGHT, (2, 3), ""),
}  # fmt: skip


@pytest.fixture
def tiny(tmp_path):
    lesson = tiny_course(tmp_path / "course")
    generate(lesson)
    return lesson


def submit(lesson, student: str, **answers: str) -> Path:
    """A student's folder with the exercise filled in; the course's own copy is as before."""
    fresh = lesson.exercise.read_text(encoding="utf-8")
    path = with_answers(lesson, **answers)
    to = lesson.root / "submitted" / student / lesson.name / path.name
    to.parent.mkdir(parents=True)
    shutil.move(path, to)
    lesson.exercise.write_text(fresh, encoding="utf-8")
    return to


def graded(lesson, **options) -> tuple[dict[str, list[dict[str, str]]], list[str]]:
    """The rows of grades.csv by student, and what was said on the way."""
    said: list[str] = []
    output = lesson.root / "grades"
    classroom.grade(
        classroom.Job(lesson.root, output, lesson.root, limits=LIMITS, **options), said.append
    )
    rows: dict[str, list[dict[str, str]]] = {}
    with (output / "grades.csv").open(encoding="utf-8-sig") as file:
        for row in csv.DictReader(file):
            rows.setdefault(row["student"], []).append(row)
    return rows, said


@pytest.mark.slow
@needs_walls
def test_everybody_gets_a_mark_and_a_reason_and_nothing_is_harmed(tiny):
    places = {"ROOT": str(tiny.root), "SOLUTION": str(tiny.solution)}
    for student, (body, _, _) in CLASS.items():
        for word, place in places.items():
            body = body.replace(word, place)
        submit(tiny, student, double=f"    {body}", biggest=BIGGEST)
    folder = tiny.root / "submitted"
    for student, text in {"sends garbage": "{no", "sends a list": "[]"}.items():
        (folder / student / tiny.name).mkdir(parents=True)
        (folder / student / tiny.name / f"{tiny.name}.ipynb").write_text(text)
    for student, change in {
        "sends a list as metadata": ["x"],
        "names a cell by a list": {"grade_id": ["x"]},
    }.items():
        path = submit(tiny, student, double=DOUBLE)
        nb = read(path)
        nb.cells[5].metadata["nbgrader"] = change
        path.write_text(to_text(nb))
    half = submit(tiny, "sends half a letter", double="    return 'HALF'")
    half.write_text(half.read_text().replace("HALF", r"\ud800"))
    submit(tiny, os.fsdecode(b"name \xff"), double=DOUBLE, biggest=BIGGEST)
    (folder / "sends nothing" / tiny.name).mkdir(parents=True)
    (folder / "sends a link" / tiny.name).mkdir(parents=True)
    (folder / "sends a link" / tiny.name / f"{tiny.name}.ipynb").symlink_to(tiny.solution)
    before = {path: path.read_bytes() for path in tiny.root.rglob("*.ipynb")}

    rows, _ = graded(tiny)
    for student, (_, points, reason) in CLASS.items():
        first, second = rows[student]
        assert (float(first["points"]), float(second["points"])) == points, (student, first, second)
        assert reason in first["reason"] and bool(first["reason"]) == bool(reason), (
            student,
            first["reason"],
        )
    assert [float(row["points"]) for row in rows["name \\xff"]] == [2, 3]
    for student in ("sends a list as metadata", "names a cell by a list"):
        assert [float(row["points"]) for row in rows[student]] == [2, 0] and rows[student][1][
            "reason"
        ], student
    for student in (
        "sends garbage",
        "sends a list",
        "sends nothing",
        "sends a link",
        "sends half a letter",
    ):
        assert [float(row["points"]) for row in rows[student]] == [0, 0] and rows[student][0][
            "reason"
        ], student
    assert {path: path.read_bytes() for path in tiny.root.rglob("*.ipynb")} == before


LOOK_ROUND = """
import os, sys
for line in open("/proc/mounts"):
    _, place, kind, options, *_ = line.split()
    if kind == "tmpfs" and "rw" in options.split(","):
        print("scratch", place, os.statvfs(place).f_blocks * os.statvfs(place).f_frsize)
for top in ("home", "media", "mnt", "opt", "root", "run", "srv", "var"):
    for where, _, names in os.walk("/" + top):
        for name in names:
            print("seen", os.path.join(where, name))
for course in sys.argv[1:]:
    print("course", *os.listdir(course + "/solutions"), *os.listdir(course + "/tests"))
    print("inside", *os.listdir(course))
"""


@needs_walls
def test_inside_little_can_be_written_and_of_the_machine_only_the_system_is_seen(
    tmp_path, monkeypatch
):
    """Memory that a kernel fills through files is bounded; no home, no sockets of /run; of a copy of the course neither the
    answers nor its history and a class's folders, which hold them, too."""
    copy, folder = tmp_path / "copy", tmp_path / "work"
    for place in (
        "course_lib",
        "solutions/01_tiny",
        "tests/01_tiny",
        ".git/objects",
        "autograded/ann",
        "submitted/bo",
        "feedback",
    ):
        (copy / place).mkdir(parents=True)
    (copy / "gradebook.db").write_text("marks")
    folder.mkdir()
    monkeypatch.syspath_prepend(str(copy))
    command = [
        *sandbox.Sandbox(folder).command(),
        sys.executable,
        "-c",
        LOOK_ROUND,
        str(copy),
        str(Path(sandbox.__file__).parents[2]),
    ]
    found = [
        line.split()
        for line in subprocess.run(
            command, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    ]
    assert {what[1]: int(what[2]) for what in found if what[0] == "scratch"} == {
        "/tmp": sandbox.SCRATCH_BYTES,
        "/dev/shm": sandbox.SCRATCH_BYTES,
    }
    python = [str(place.resolve()) for place in map(Path, (sys.prefix, sys.base_prefix, *sys.path))]
    assert [
        what[1] for what in found if what[0] == "seen" and not what[1].startswith(tuple(python))
    ] == []
    assert [what for what in found if what[0] == "course"] == [["course"], ["course"]]
    inside = [set(what[1:]) for what in found if what[0] == "inside"]
    assert inside[0] == {"course_lib", "solutions", "tests"}  # the last two are empty
    assert inside[1] <= {
        *sandbox.SHOWN,
        "solutions",
        "tests",
        *(path.name for path in Path(sandbox.__file__).parents[2].glob(".venv*")),
    }


FORKS = """
import os, time
for made in range(1000):
    try:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
    except OSError:
        break
print(made)
"""


@needs_walls
@pytest.mark.skipif(os.getuid() != 0, reason="other accounts have a limit of their own")
def test_root_is_held_to_a_few_processes_too(tmp_path):
    """Between two looks of the runner a submission forks thousands of times; a machine has been lost to that."""
    with sandbox.pen() as group:
        if group is None:
            pytest.skip("no control group can be made here")
        command = [*sandbox.Sandbox(tmp_path, pen=group).command(), sys.executable, "-c", FORKS]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        assert 100 < int(done.stdout.split()[0]) < sandbox.SPARE_PROCESSES
    assert not group.exists()


@pytest.mark.slow
@needs_walls
def test_points_cannot_be_invented(tiny):
    """A cell that calls itself checks, the course's checks twice, and edited given cells are worth nothing."""
    path = submit(tiny, "invents", double="    return 0", biggest=BIGGEST)
    nb = read(path)
    checks = next(
        cell
        for cell in nb.cells
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "test_double"
    )
    checks.source = "pass"
    invented = copy.deepcopy(checks)
    invented.metadata.nbgrader |= {"grade_id": "bonus", "points": 1000}
    nb.cells += [copy.deepcopy(checks), invented]
    nb.cells[1].source = "def check_equal(*a): pass"
    for cell in nb.cells:
        cell.pop("id", None)
    path.write_text(to_text(nb))
    rows, _ = graded(tiny)
    assert [(row["grade_id"], float(row["points"])) for row in rows["invents"]] == [
        ("test_double", 0),
        ("test_biggest", 3),
    ]
    assert "Expected: [2, 4]" in rows["invents"][0]["reason"]


def test_the_limits_that_the_guide_names_are_the_ones_that_hold():
    guide = (Path(__file__).parents[2] / "docs/grading.md").read_text(encoding="utf-8")
    assert f"{sandbox.SCRATCH_BYTES >> 20} MB of scratch" in guide
    assert f"larger than {classroom.LARGEST >> 20} MiB" in guide


@pytest.mark.slow
def test_after_a_crash_only_the_rest_is_marked(tiny):
    submit(tiny, "ann", double=DOUBLE, biggest=BIGGEST)
    bob = submit(tiny, "bob", double="    return numbers", biggest=BIGGEST)
    rows, said = graded(tiny, in_sandbox=False)
    assert set(rows) == {"ann", "bob"}, said
    assert [float(row["points"]) for row in rows["ann"] + rows["bob"]] == [2, 3, 0, 3]
    book = tiny.root / "grades" / "marks.jsonl"
    with book.open("a") as file:
        file.write('{"student": "ann", "lesson": "01_ti')  # the power went off here
    (tiny.root / "grades" / "grades.csv").unlink()
    edit(bob, "return numbers", RIGHT)
    rows, said = graded(tiny, in_sandbox=False)
    assert said[0] == "2 submissions, 1 marked already" and said[1:] == [
        "[1/1] bob/01_tiny: 5 of 5"
    ]
    assert [float(row["points"]) for row in rows["ann"] + rows["bob"]] == [2, 3, 2, 3]
    feedback = (tiny.root / "grades" / "feedback" / "bob" / "01_tiny.md").read_text()
    assert feedback.startswith("# 01_tiny: 5 of 5 points") and "HIDDEN" not in feedback


def test_folders_of_killed_graders_are_removed_and_no_others(tmp_path, monkeypatch):
    monkeypatch.setattr(classroom.tempfile, "tempdir", str(tmp_path))
    gone = subprocess.Popen(["true"])
    gone.wait()
    names = {
        "killed": f"cg{gone.pid}-a",
        "at work": f"cg{os.getpid()}-a",
        "another's": "cgabc-a",
        "no folder": f"cg{gone.pid}-b",
    }
    for name in ("killed", "at work", "another's"):
        (tmp_path / names[name] / "deep").mkdir(parents=True)
    (tmp_path / names["no folder"]).symlink_to(tmp_path / names["at work"])
    classroom.sweep()
    assert {path.name for path in tmp_path.iterdir()} == {
        names[name] for name in ("at work", "another's", "no folder")
    }
    assert (tmp_path / names["at work"] / "deep").is_dir()


@pytest.mark.slow
def test_ctrl_c_stops_what_runs_and_begins_nothing_more(tiny):
    for n in range(4):
        submit(tiny, f"student {n}", double="    while True: pass", biggest=BIGGEST)
    job = classroom.Job(
        tiny.root, tiny.root / "grades", tiny.root, limits=Limits(cell_seconds=60), in_sandbox=False
    )
    said: list[str] = []
    # to the main thread, as a terminal does
    timer = threading.Timer(8, os.kill, [os.getpid(), signal.SIGINT])
    # what a shell starts in the background ignores it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    began = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            classroom.grade(job, said.append)
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 50, "the endless loops were waited for"
    assert (
        "goes on with what is not marked" in said[-1]
        and (tiny.root / "grades" / "grades.csv").exists()
    )
    assert not classroom.journal(job.output), "a loop that was stopped so is no mark"


@pytest.mark.slow
def test_dasks_workers_give_the_same_marks(tiny):
    pytest.importorskip("distributed")
    for n in range(3):
        submit(tiny, f"student {n}", double=DOUBLE, biggest="    return 5" if n == 1 else BIGGEST)
    rows, said = graded(tiny, in_sandbox=not sandbox.why_no_sandbox(), scheduler="local")
    assert [[float(row["points"]) for row in rows[f"student {n}"]] for n in range(3)] == [
        [2, 3],
        [2, 0],
        [2, 3],
    ], said


def test_a_container_that_allows_only_a_part_of_the_walls_is_none_to_grade_in(
    tmp_path, monkeypatch
):
    bwrap = tmp_path / "bwrap"
    bwrap.write_text(
        '#!/bin/sh\ncase "$*" in *--proc*) echo "Can\'t mount proc" >&2; exit 1;; esac\n', "utf-8"
    )
    bwrap.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    said = sandbox.why_no_sandbox.__wrapped__()
    assert "Can't mount proc" in said and "docs/hosting.md" in said


def test_without_walls_the_command_says_so_and_stops(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.root)
    monkeypatch.setattr(sandbox, "why_no_sandbox", lambda: "bubblewrap is not installed")
    (tiny.root / "submitted").mkdir(exist_ok=True)
    assert main(["grade", "submitted"]) == 2
    said = capsys.readouterr().err
    assert "cannot be walled in: bubblewrap is not installed" in said and "--no-sandbox" in said


def test_a_folder_that_is_not_there_is_one_sentence(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.root)
    assert main(["grade", "nowhere", "--no-sandbox"]) == 2
    assert "nowhere is no folder" in capsys.readouterr().err


def test_progress_is_remembered_and_what_changed_is_told(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.root)
    assert str(progress(tiny.root)).splitlines()[0] == f"{'01_tiny':<25} {'░' * 12}    0 of 5"
    with_answers(tiny, double=DOUBLE)
    assert "begun: `course check 01`" in str(progress(tiny.root))
    main(["check", "1"])
    main(["progress"])
    said = capsys.readouterr().out
    assert "2 of 5" in said and "Next: notebooks/01_tiny.ipynb" in said
    with_answers(tiny, biggest=BIGGEST)
    assert "changed: `course check 01`" in str(progress(tiny.root))
    main(["check", "1"])
    assert progress(tiny.root).lessons[0].done and "You have done all of it." in str(
        progress(tiny.root)
    )


@pytest.mark.slow
def test_nbgraders_own_flow_runs_on_the_tree_as_it_is(tiny):
    """Release, submissions, autograde, feedback, CSV: with nbgrader's commands and our configuration."""
    config = Path(classroom.__file__).parent
    # nbgrader runs `alembic`
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "JUPYTER_CONFIG_PATH": str(config),
        "PYTHONPATH": str(config.parents[1]),
        "PATH": path,
    }

    def nbgrader(*words: str) -> None:
        command = [sys.executable, "-m", "nbgrader", *words]
        done = subprocess.run(
            command, cwd=tiny.root, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr[-3000:]

    nbgrader("generate_assignment", tiny.name, "--force", "--create")
    submit(tiny, "ann", double=DOUBLE, biggest=BIGGEST)
    submit(tiny, "bob", double="    return numbers", biggest=BIGGEST)
    nbgrader("autograde", tiny.name, "--create")
    nbgrader("generate_feedback", tiny.name)
    nbgrader("export")
    with (tiny.root / "grades.csv").open() as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert scores == {"ann": 5, "bob": 3}
    assert (tiny.root / "feedback" / "bob" / tiny.name / f"{tiny.name}.html").is_file()


def record_of(item, reasons, limits=LIMITS):
    """What the journal has of a submission."""
    marks = [
        {
            "exercise": "E",
            "grade_id": f"t{n}",
            "points": 0 if why else 1,
            "out_of": 1,
            "reason": why,
        }
        for n, why in enumerate(reasons)
    ]
    made = classroom.digest(item, "checks", limits)
    return {"student": item.student, "lesson": item.lesson, "digest": made, "marks": marks}


# reasons of a mark, and whether a limit took the points
BY_A_LIMIT = {
    "It ran longer than 8 seconds and was stopped. Is there a loop that never ends?": True,
    "It used more than 6 GiB of memory and was stopped.": True,
    "It started more than 64 processes and was stopped.": True,
    "It wrote more than 2 GiB of files, or nested folders without end, and was stopped.": True,
    "It printed more than 16 MiB and was stopped.": True,
    "It was not run: earlier cells took all 900 seconds, or ended the process too often.": True,
    "TypeError: 'int' object is not iterable": False,
    "Not written yet.": False,
    "": False,
}


@pytest.mark.parametrize("reason", BY_A_LIMIT)
def test_what_a_limit_ended_is_known_by_its_reason(reason):
    item = classroom.Submission("ann", "01_tiny", "{}")
    assert classroom.ended_by_a_limit(record_of(item, [reason])) is BY_A_LIMIT[reason]


def test_marks_are_made_again_when_asked_for_and_when_limits_change(tmp_path):
    item = classroom.Submission("ann", "01_tiny", "{}")
    stopped = record_of(item, ["", "It ran longer than 8 seconds and was stopped."])
    wrong = record_of(item, ["", "TypeError"])

    def fresh(record, again="", limits=LIMITS):
        job = classroom.Job(tmp_path, tmp_path, tmp_path, limits=limits, again=again)
        return classroom._is_fresh(record, item, "checks", job)

    assert fresh(stopped) and fresh(wrong)
    assert not fresh(stopped, again="limits") and fresh(wrong, again="limits")
    assert not fresh(stopped, again="all") and not fresh(wrong, again="all")
    assert not fresh(stopped, limits=Limits(cell_seconds=120))


# how long the path of temporary files is, and whether the sockets below it fit
LENGTHS = {5: True, 40: True, 73: True, 74: False, 90: False, 107: False, 200: False}


@pytest.mark.parametrize("length", LENGTHS)
def test_sockets_have_short_paths_however_long_tmpdir_is(monkeypatch, length):
    place = "/" + "t" * (length - 1)
    monkeypatch.setattr(sandbox.tempfile, "tempdir", place)
    monkeypatch.setattr(sandbox.os, "access", lambda path, mode: True)
    chosen = sandbox.short_place()
    assert (str(chosen) == place) is LENGTHS[length]
    assert len(f"{chosen}/cg{2**22}-abcdefgh/kabcdefgh/s-5") <= 107


def test_the_path_of_temporary_files_is_measured_in_bytes(monkeypatch):
    monkeypatch.setattr(sandbox.tempfile, "tempdir", "/" + "ö" * 50)
    monkeypatch.setattr(sandbox.os, "access", lambda path, mode: True)
    assert sandbox.short_place() == Path("/tmp")


def test_where_no_short_path_can_be_written_the_message_names_tmpdir(monkeypatch):
    monkeypatch.setattr(sandbox.tempfile, "tempdir", "/" + "t" * 100)
    monkeypatch.setattr(sandbox.os, "access", lambda path, mode: False)
    with pytest.raises(classroom.CourseError, match="Set TMPDIR to a folder with a short path"):
        sandbox.short_place()
