"""`course grade`: mark a class. Each submission in a sandbox of its own, several at a time, none
lost.

In:  what a class handed in, in any layout that `collect` knows (`STUDENT/NN_name/NN_name.ipynb`, a
     platform's download).
Out: `grades.csv` (a row for each exercise), `collected.csv` (a row for each file),
`feedback/STUDENT/NN_name.md`, and `marks.jsonl`, one line for each submission as soon as it is
marked. After a crash the same command goes on where it was: what is in `marks.jsonl` and has not
changed since is not marked again. What a teacher corrects by hand stays (`corrections`).

Work is handed out by an executor: threads here, each driving a kernel's process, or Dask's
scheduler over many machines. A submission travels as text, so workers need no shared folder.
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

from .anonymous import Names
from .assembling import stubbed
from .collect import Submission, collect, file_name
from .corrections import Corrections
from .kernel import STOP, Limits
from .marks import Mark, Report, mark_submission
from .notebooks import CourseError, Lesson, graded_cells, is_solution, lessons, read
from .reader import LARGEST as LARGEST
from .reader import notebook_from
from .reasons import OVER_A_LIMIT
from .sandbox import Sandbox, pen, short_place
from .tables import COLUMNS, write_table
from .usage import remove
from .warm import NURSERY

PREFIX = "cg"
"""The folder in which a grader works: this, the number of its process, a dash and random
letters."""


def mark_one(
    item: Submission, reference: str, limits: Limits, in_sandbox: bool, hidden: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Mark one submission here and now.

    Whatever happens, the answer is a record with marks and reasons."""
    solution = nbformat.reads(reference, as_version=4)
    sweep()
    place = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=short_place()))

    try:
        if item.text is None:
            report = nothing(solution, item.lesson, item.trouble)
        else:
            learners = notebook_from(item.text.encode(), item.lesson)
            with pen() if in_sandbox else nullcontext() as group:
                sandbox = None
                if in_sandbox:
                    sandbox = Sandbox(place, tuple(map(Path, hidden)), group)
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
    """Remove the folders in which graders that were killed worked.

    (What they marked is in the journal.)"""
    import psutil

    for left in short_place().glob(f"{PREFIX}*-*"):
        pid = left.name.removeprefix(PREFIX).partition("-")[0]
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
    """Changes when the submission does, or the checks, or what may decide a mark besides: limits
    and versions."""
    versions = [platform.python_version(), version("torch"), version("course_lib")]
    parts = [item.text, item.trouble, reference, asdict(limits), versions]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def without_answers(lesson: Lesson) -> str:
    """The solution notebook with hidden tests and without its answers: what a worker needs."""
    nb = read(lesson.solution)
    for cell in nb.cells:
        cell.source = stubbed(cell.source) if is_solution(cell) else cell.source
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(nb)


@dataclass(frozen=True)
class Job:
    """How a class is to be marked."""

    # What was handed in, where the marks go, and the course itself
    folder: Path
    output: Path
    root: Path
    # How many submissions are marked side by side
    jobs: int = 2
    limits: Limits = Limits()
    in_sandbox: bool = True
    # The address of a Dask scheduler, "local" for one made here, None for threads
    scheduler: str | None = None
    # what is marked again although it has not changed: "", "limits" (what a limit ended), "all"
    again: str = ""
    # marks under drawn names; `names.csv` says whose they are
    anonymous: bool = False

    @property
    def hidden(self) -> tuple[str, ...]:
        """The folders that no submission may see."""
        places = (self.folder, self.output, self.root / "solutions", self.root / "tests")
        return tuple(str(path.resolve()) for path in places)


@dataclass(frozen=True)
class Marked:
    """The record of every submission, and the names of those who have no mark."""

    records: list[dict[str, Any]]
    without: list[str]


def grade(job: Job, tell: Callable[[str], None]) -> Marked:
    """Mark what is not marked yet, and write all that is known."""
    course = lessons(job.root)
    collected = collect(job.folder, course, leave_out=(job.output,))
    references = {lesson.name: without_answers(lesson) for lesson in course}

    _folder_for_marks(job.output)
    collected.write(job.output / "collected.csv")
    submissions, without = collected.submissions, set(collected.without_a_mark)
    if job.anonymous:
        names = Names(job.output)
        without = set(map(names.called, without))
        submissions = names.hide(submissions)
        if collected.told:  # the lines name files, and these name students
            tell("Something was found about the files: collected.csv says what, with names")
    else:
        for line in collected.told:
            tell(line)
    items = {item.key: item for item in submissions}

    known = journal(job.output)  # marks of earlier runs, by the submission's key
    corrections = Corrections(job.output)
    corrections.take(known.values(), tell)
    if elsewhere := sum(key not in items for key in known):
        tell(f"{elsewhere} marked earlier are not in {job.folder}: their marks stay")

    fresh = {
        key
        for key, item in items.items()
        if key in known and _is_fresh(known[key], item, references[item.lesson], job)
    }
    todo = [item for key, item in items.items() if key not in fresh]
    tell(f"{len(items)} submissions, {len(fresh)} marked already")
    try:
        without |= _mark_all(job, todo, references, known, tell)
    except KeyboardInterrupt:
        tell("stopped; the same command goes on with what is not marked")
        raise
    finally:
        records = corrections.applied(known[key] for key in sorted(known))
        write_all(job.output, records, corrections)
    for lost in corrections.without_a_mark(records):
        tell(f"corrections.csv: there is no mark {lost} to correct")
    return Marked(records, sorted(without))


def _folder_for_marks(output: Path) -> None:
    """Make the folder. Raises CourseError if that cannot be done."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(
            f"The marks cannot be written into {output} ({error.strerror}). Name another folder with --output."
        ) from None


def _is_fresh(record: dict[str, Any], item: Submission, reference: str, job: Job) -> bool:
    """Whether this mark is that of the same notebook under the same limits, and nobody asks for it
    again."""
    if job.again == "all" or (job.again == "limits" and ended_by_a_limit(record)):
        return False
    return bool(record["digest"] == digest(item, reference, job.limits))


# How the reasons of the limits begin. (A process that died may have been killed for its memory.)
_BEGINNINGS = tuple(text.split("{")[0] for text in OVER_A_LIMIT.values())


def ended_by_a_limit(record: dict[str, Any]) -> bool:
    """Whether a limit, and not the answer, may have taken points."""
    reasons = [mark["reason"] for mark in record["marks"] if mark["points"] < mark["out_of"]]
    return any(beginning in reason for reason in reasons for beginning in _BEGINNINGS)


def _mark_all(
    job: Job,
    todo: list[Submission],
    references: dict[str, str],
    known: dict[str, dict[str, Any]],
    tell: Callable[[str], None],
) -> set[str]:
    """Mark these, adding to `known` and to the journal at once; the keys of those that could not be
    marked come back."""
    work = [
        (item, references[item.lesson], job.limits, job.in_sandbox, job.hidden) for item in todo
    ]
    failed = set()
    NURSERY.expect(len(todo) - 1)
    with executor(job) as run, (job.output / "marks.jsonl").open("a", encoding="utf-8") as book:
        for n, (item, record) in enumerate(run(work), 1):
            where = f"[{n}/{len(todo)}] {item.key}"
            if isinstance(record, BaseException):
                failed.add(item.key)
                tell(f"{where}: not marked, run again ({type(record).__name__}: {record})")
                continue

            # On the disk at once: a crash later loses no mark.
            known[item.key] = record
            book.write(json.dumps(record) + "\n")
            book.flush()
            os.fsync(book.fileno())
            points = sum(mark["points"] for mark in record["marks"])
            out_of = sum(mark["out_of"] for mark in record["marks"])
            tell(f"{where}: {points:g} of {out_of:g}")
    return failed


def write_all(output: Path, records: list[dict[str, Any]], corrections: Corrections) -> None:
    """`grades.csv`, the copy by which a teacher's changes are found, and the feedback."""
    corrections.remember()
    write_csv(corrections.written, records)
    write_csv(output / "grades.csv", records)
    write_feedback(output / "feedback", records)


def journal(output: Path) -> dict[str, dict[str, Any]]:
    """The last record of each submission; a line that a crash cut short is left out."""
    last_records: dict[str, dict[str, Any]] = {}
    book = output / "marks.jsonl"
    for line in book.read_text(encoding="utf-8").splitlines() if book.exists() else ():
        try:
            record = json.loads(line)
            last_records[f"{record['student']}/{record['lesson']}"] = record
        except (ValueError, KeyError, TypeError):
            continue
    return last_records


Runs = Callable[[list[tuple[Any, ...]]], Iterable[tuple[Submission, Any]]]
"""Takes lists of arguments of `mark_one`; gives each submission with its record, or with the
exception that kept it from being marked, in the order in which they are done."""


@contextmanager
def executor(job: Job) -> Iterator[Runs]:
    """Something that runs `mark_one` on many argument lists and gives (submission, record or
    exception) as they are done."""
    if job.scheduler is None:
        STOP.clear()
        pool = ThreadPoolExecutor(job.jobs)

        def run(work: list[tuple[Any, ...]]) -> Iterable[tuple[Submission, Any]]:
            futures = {}
            for submission, *rest in work:
                futures[pool.submit(mark_one, submission, *rest)] = submission
            return results(futures, as_completed)

        try:
            yield run
        finally:
            # After Ctrl-C nobody would write further marks down: what runs is told to stop, what
            # waits is dropped.
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

    # A mark is no function of the arguments alone (`pure`): Dask must not keep it for the next
    # time. A worker may die of one submission: it is tried once more on another.
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
    """What `Runs` gives, from the futures of an executor and its `as_completed`."""
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
    """What each student gets: points and reasons, and nothing of hidden tests but what their
    messages say."""
    for record in records:
        report = Report(record["lesson"], tuple(Mark(**mark) for mark in record["marks"]))
        path = folder / file_name(record["student"]) / f"{record['lesson']}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [f"# {report.name}: {report.points:g} of {report.out_of:g} points"]

        for mark in report.marks:
            reason = "".join(
                f"\n\n    {line}" if n == 0 else f"\n    {line}"
                for n, line in enumerate(mark.reason.splitlines())
            )
            lines.append(f"## {mark.exercise}\n\n{mark.points:g} of {mark.out_of:g}{reason}")

        path.write_text("\n\n".join(lines) + "\n", encoding="utf-8", errors="backslashreplace")
