"""`course grade`: mark a class. Each submission in a sandbox of its own, several at a time, none lost.

In:  a folder of submissions as nbgrader collects them: `STUDENT/NN_name/NN_name.ipynb` (also below a folder `submitted/`).
Out: `grades.csv` (a row for each exercise), `feedback/STUDENT/NN_name.md`, and `marks.jsonl`, one line for each submission as
soon as it is marked. After a crash the same command goes on where it was: what is in `marks.jsonl` and has not changed since is
not marked again.

Work is handed out by an executor: threads here, each driving a kernel's process, or Dask's scheduler over many machines. A
submission travels as text, so workers need no shared folder.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import nbformat

from .errors import NotReadable
from .marks import Mark, Report, mark_submission
from .notebooks import CourseError, Lesson, graded_cells, is_solution, lessons, read
from .reader import LARGEST as LARGEST
from .reader import notebook_from, read_notebook
from .runner import STOP, Limits, remove
from .sandbox import Sandbox, pen
from .tables import COLUMNS, write_table


@dataclass(frozen=True)
class Submission:
    """One student's notebook for one lesson. `text` is None if it cannot be read, and `trouble` says why."""

    student: str
    lesson: str
    text: str | None
    trouble: str = ""

    @property
    def key(self) -> str:
        return f"{self.student}/{self.lesson}"


def submissions(folder: Path, course: list[Lesson]) -> Iterator[Submission]:
    """What is there to mark, student by student."""
    top = folder / "submitted" if (folder / "submitted").is_dir() else folder
    if not top.is_dir():
        raise CourseError(f"{folder} is no folder. Give the one that holds the students' folders.")
    names = {lesson.name for lesson in course}
    for student in sorted(
        path for path in top.iterdir() if path.is_dir() and not path.name.startswith(".")
    ):
        for name in sorted(names & {path.name for path in student.iterdir()}):
            yield read_submission(called(student), name, student / name / f"{name}.ipynb")


def called(folder: Path) -> str:
    """The folder's name; a byte that is no letter is written out, for it could not be printed."""
    return os.fsencode(folder.name).decode("utf-8", errors="backslashreplace")


def read_submission(student: str, name: str, path: Path) -> Submission:
    """The notebook as `reader` repairs it, if it is a file that belongs to this folder."""
    try:
        if path.is_symlink() or path.parent.is_symlink():
            return Submission(student, name, None, "The notebook is a link to another place.")
        if not path.is_file():
            return Submission(student, name, None, f"There is no {path.name} in the submission.")
        # without outputs: nothing of them is marked, and they may be damaged or huge
        return Submission(student, name, nbformat.writes(read_notebook(path)))
    except NotReadable as error:
        return Submission(student, name, None, f"{path.name} is not readable: {error.why}")
    except OSError as error:
        return Submission(student, name, None, f"The notebook cannot be read ({error.strerror}).")


def mark_one(
    item: Submission, reference: str, limits: Limits, walled: bool, hidden: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Mark one submission here and now. Whatever happens, the answer is a record with marks and reasons."""
    solution = nbformat.reads(reference, as_version=4)
    sweep()
    # short: the path of a socket may have 107 characters
    place = Path(tempfile.mkdtemp(prefix=f"cg{os.getpid()}-"))
    try:
        if item.text is None:
            report = nothing(solution, item.lesson, item.trouble)
        else:
            learners = notebook_from(item.text.encode(), item.lesson)
            with pen() if walled else nullcontext() as group:
                sandbox = Sandbox(place, tuple(map(Path, hidden)), group) if walled else None
                report = mark_submission(learners, solution, item.lesson, limits, sandbox)
    finally:
        remove(place)
    return {
        "student": item.student,
        "lesson": item.lesson,
        "digest": digest(item, reference, limits),
        "marks": [*map(asdict, report.marks)],
    }


def sweep() -> None:
    """Remove the folders in which graders that were killed worked. (What they marked is in the journal.)"""
    import psutil

    for left in Path(tempfile.gettempdir()).glob("cg*-*"):
        pid = left.name[2:].partition("-")[0]
        if (
            pid.isdigit()
            and not psutil.pid_exists(int(pid))
            and left.is_dir()
            and not left.is_symlink()
        ):
            remove(left)


def nothing(solution: Any, name: str, why: str) -> Report:
    """No points at all, for one reason."""
    return Report(
        name,
        tuple(
            Mark(cell.title, cell.grade_id, 0.0, cell.points, why)
            for cell in graded_cells(solution)
        ),
    )


def digest(item: Submission, reference: str, limits: Limits) -> str:
    """Changes when the submission does, or the checks, or what may decide a mark besides: limits and versions."""
    versions = [platform.python_version(), version("torch"), version("course_lib")]
    parts = [item.text, item.trouble, reference, asdict(limits), versions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def without_answers(lesson: Lesson) -> str:
    """The solution notebook with hidden tests and without its answers: what a worker needs."""
    nb = read(lesson.solution)
    for cell in nb.cells:
        cell.source = "" if is_solution(cell) else cell.source
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(nb)


@dataclass(frozen=True)
class Job:
    """How a class is to be marked."""

    folder: Path
    output: Path
    root: Path
    jobs: int = 2
    limits: Limits = Limits()
    walled: bool = True
    # The address of a Dask scheduler, "local" for one made here, None for threads
    scheduler: str | None = None


def grade(job: Job, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """Mark what is not marked yet, and write all that is known. Returns every record."""
    course = lessons(job.root)
    references = {lesson.name: without_answers(lesson) for lesson in course}
    items = {item.key: item for item in submissions(job.folder, course)}
    job.output.mkdir(parents=True, exist_ok=True)
    known = {key: record for key, record in journal(job.output).items() if key in items}
    fresh = {
        key
        for key, record in known.items()
        if record["digest"] == digest(items[key], references[items[key].lesson], job.limits)
    }
    todo = [item for key, item in items.items() if key not in fresh]
    tell(f"{len(items)} submissions, {len(fresh)} marked already")
    hidden = tuple(
        str(path.resolve())
        for path in (job.folder, job.output, job.root / "solutions", job.root / "tests")
    )
    work = [(item, references[item.lesson], job.limits, job.walled, hidden) for item in todo]
    try:
        with executor(job) as run, (job.output / "marks.jsonl").open("a", encoding="utf-8") as book:
            for n, (item, record) in enumerate(run(work), 1):
                if isinstance(record, BaseException):
                    tell(
                        f"[{n}/{len(todo)}] {item.key}: not marked, run again ({record.__class__.__name__}: {record})"
                    )
                    continue
                known[item.key] = record
                book.write(json.dumps(record) + "\n")
                book.flush()
                os.fsync(book.fileno())
                points, out_of = (
                    sum(mark[part] for mark in record["marks"]) for part in ("points", "out_of")
                )
                tell(f"[{n}/{len(todo)}] {item.key}: {points:g} of {out_of:g}")
    except KeyboardInterrupt:
        tell("stopped; the same command goes on with what is not marked")
        raise
    finally:
        records = [known[key] for key in sorted(known)]
        write_csv(job.output / "grades.csv", records)
        write_feedback(job.output / "feedback", records)
    return records


def journal(output: Path) -> dict[str, dict[str, Any]]:
    """The last record of each submission; a line that a crash cut short is left out."""
    found: dict[str, dict[str, Any]] = {}
    book = output / "marks.jsonl"
    for line in book.read_text(encoding="utf-8").splitlines() if book.exists() else ():
        try:
            record = json.loads(line)
            found[f"{record['student']}/{record['lesson']}"] = record
        except (ValueError, KeyError, TypeError):
            continue
    return found


Runs = Callable[[list[tuple[Any, ...]]], Iterable[tuple[Submission, Any]]]


@contextmanager
def executor(job: Job) -> Iterator[Runs]:
    """Something that runs `mark_one` on many argument lists and gives (submission, record or exception) as they are done."""
    if job.scheduler is None:
        STOP.clear()
        pool = ThreadPoolExecutor(job.jobs)
        try:
            yield lambda work: results(
                {pool.submit(mark_one, *args): args[0] for args in work}, as_completed
            )
        finally:  # all is done, or Ctrl-C: marks that nobody would write down are not waited for
            STOP.set()
            pool.shutdown(cancel_futures=True)
            STOP.clear()
        return
    try:
        from dask.distributed import Client, LocalCluster
        from dask.distributed import as_completed as completed
    except ImportError:
        raise CourseError(
            "`--executor dask` needs Dask: `pip install 'dask[distributed]'`."
        ) from None
    local = {
        "n_workers": job.jobs,
        "threads_per_worker": 1,
        "dashboard_address": None,
        "host": "127.0.0.1",
    }
    local["silence_logs"] = logging.ERROR  # at the end it warns that it kills its idle workers
    cluster = LocalCluster(**local) if job.scheduler == "local" else None
    with Client(cluster or job.scheduler) as client:
        try:
            yield lambda work: results(
                {client.submit(mark_one, *args, pure=False, retries=1): args[0] for args in work},
                completed,
            )
        finally:
            if cluster:
                cluster.close()


def results(
    futures: dict[Any, Submission], completed: Callable[..., Iterable[Any]]
) -> Iterator[tuple[Submission, Any]]:
    for future in completed(list(futures)):
        yield futures[future], future.exception() or future.result()


def write_csv(path: Path, records: list[dict[str, Any]]) -> None:
    """One row for each exercise of each student."""
    rows = [
        {"student": record["student"], "lesson": record["lesson"], **mark}
        for record in records
        for mark in record["marks"]
    ]
    write_table(path, COLUMNS, rows)


def write_feedback(folder: Path, records: list[dict[str, Any]]) -> None:
    """What each student gets: points and reasons, and nothing of hidden tests but what their messages say."""
    for record in records:
        report = Report(record["lesson"], tuple(Mark(**mark) for mark in record["marks"]))
        path = folder / record["student"] / f"{record['lesson']}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"# {report.name}: {report.points:g} of {report.out_of:g} points"]
        for mark in report.marks:
            reason = "".join(
                f"\n\n    {line}" if n == 0 else f"\n    {line}"
                for n, line in enumerate(mark.reason.splitlines())
            )
            lines.append(f"## {mark.exercise}\n\n{mark.points:g} of {mark.out_of:g}{reason}")
        path.write_text("\n\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")
