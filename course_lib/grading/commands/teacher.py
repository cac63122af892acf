"""Commands for who marks a class: grade, gradebook, tries, certify, collect, repair, example.

In:  the parsed arguments: a folder or a download of submissions. Out: marks, folders, lines about
each file, and an exit status.
Counterpart: nbgrader's `autograde`, `zip_collect` and `export`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from course_lib.grading.mistakes import above_zero, above_zero_whole

from . import Commands, say


def add(commands: Commands) -> None:
    add_grade(commands)
    add_gradebook(commands)
    it = commands.add(tries, "how often and when learners checked: their logs, work/tries.jsonl")
    it.add_argument("paths", type=Path, nargs="+", help="logs, or folders that hold some")
    add_certify(commands)
    add_collect(commands)

    it = commands.add(
        repair, "repair a class's notebooks in place, so that nbgrader's own commands can mark them"
    )
    it.add_argument("folder", type=Path, help="holds STUDENT/NN_name/NN_name.ipynb")
    add_example(commands)


# ---- grade


def add_grade(commands: Commands) -> None:
    it = commands.add(
        grade, "mark a class: every notebook in a folder of submissions, each in a sandbox"
    )
    it.add_argument(
        "folder",
        type=Path,
        help="holds STUDENT/NN_name/NN_name.ipynb, or is a download of Canvas, Moodle, Blackboard (a folder or a zip)",
    )
    it.add_argument(
        "--output",
        type=Path,
        default=Path("grades"),
        help="where grades.csv and feedback go (default: %(default)s)",
    )
    it.add_argument(
        "--again",
        nargs="?",
        choices=("limits", "all"),
        const="limits",
        default="",
        help="mark again what a limit ended (or all), although nothing has changed",
    )
    it.add_argument(
        "--anonymous",
        action="store_true",
        help="marks and feedback under drawn names; names.csv beside them says whose they are",
    )
    add_who_runs_them(it)
    add_limits(it)


def add_who_runs_them(it: argparse.ArgumentParser) -> None:
    it.add_argument(
        "--jobs",
        type=above_zero_whole,
        default=2,
        help="submissions at a time (default: %(default)s)",
    )
    it.add_argument(
        "--executor",
        choices=("local", "dask"),
        default="local",
        help="who runs them (default: %(default)s)",
    )
    it.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="of a Dask scheduler, tcp://host:8786 (default: workers on this machine)",
    )
    it.add_argument(
        "--no-sandbox",
        action="store_true",
        help="run submissions with your own rights: only where you know who wrote them",
    )


def add_limits(it: argparse.ArgumentParser) -> None:
    it.add_argument(
        "--seconds",
        type=above_zero,
        default=120,
        help="time limit of one cell (default: %(default)s)",
    )
    it.add_argument(
        "--total",
        type=above_zero,
        default=900,
        help="time limit of one notebook (default: %(default)s)",
    )
    it.add_argument(
        "--memory",
        type=above_zero,
        default=6,
        help="memory limit of one notebook in GiB (default: %(default)s)",
    )


def grade(args: argparse.Namespace) -> int:
    """Mark a class; 0 once every submission has its marks."""
    from course_lib.grading.classroom import Job
    from course_lib.grading.classroom import grade as grade_class
    from course_lib.grading.notebooks import find_root
    from course_lib.grading.runner import Limits
    from course_lib.grading.unpack import require_a_download

    # a wrong name is told first: it is wrong on every machine, also where no sandbox can be made
    require_a_download(args.folder)
    if not args.no_sandbox:
        require_a_sandbox()

    job = Job(
        folder=args.folder,
        output=args.output,
        root=find_root(),
        jobs=args.jobs,
        limits=Limits(
            args.seconds, total_seconds=args.total, memory_bytes=int(args.memory * 2**30)
        ),
        in_sandbox=not args.no_sandbox,
        scheduler=scheduler_of(args),
        again=args.again,
        anonymous=args.anonymous,
    )
    marked = grade_class(job, say)

    print(f"grades: {args.output / 'grades.csv'}, feedback: {args.output / 'feedback'}")
    if marked.without:
        print(f"no mark: {', '.join(marked.without)}")
    return 1 if marked.without else 0


def add_gradebook(commands: Commands) -> None:
    it = commands.add(
        gradebook, "put the marks into a gradebook of Canvas or Moodle, for their import"
    )
    it.add_argument("export", type=Path, help="the gradebook as the platform exports it (.csv)")
    it.add_argument(
        "--grades",
        type=Path,
        default=Path("grades/grades.csv"),
        help="what `course grade` wrote (default: %(default)s)",
    )
    it.add_argument(
        "--written", type=Path, help="marks for written answers: student,lesson,question,points"
    )
    it.add_argument(
        "--output",
        type=Path,
        default=Path("gradebook.csv"),
        help="the table to import (default: %(default)s)",
    )


def gradebook(args: argparse.Namespace) -> int:
    """Fill in a platform's gradebook; 0 if every mark has found its place."""
    from course_lib.grading.gradebook import fill

    filled = fill(args.export, args.grades, args.output, args.written)
    print(filled)
    print(f"written: {args.output}")
    # the sentences in which `fill` tells of a mark that has no place
    return 1 if any("not in it" in line or "no column" in line for line in filled.said) else 0


def tries(args: argparse.Namespace) -> int:
    """A line for each lesson of each log; 1 where there is none."""
    from course_lib.grading.tries import courses

    tries_by_course = courses(args.paths)
    print(
        "\n".join(map(str, tries_by_course)) or "no tries: `course check` writes work/tries.jsonl"
    )
    return 0 if tries_by_course else 1


def add_certify(commands: Commands) -> None:
    it = commands.add(certify, "sign a learner's certificate, or test its signature")
    it.add_argument("page", type=Path, help="what `course certificate` wrote")
    it.add_argument("--key", type=Path, required=True, help="a file of yours that nobody else has")
    it.add_argument("--check", action="store_true", help="test the signature, and change nothing")


def certify(args: argparse.Namespace) -> int:
    """Sign a certificate, or test it: 0 if it is what the key's holder signed."""
    from course_lib.grading.errors import CourseError
    from course_lib.grading.pages import is_signed, key_in, save, signed

    key = key_in(args.key)
    try:
        text = args.page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise CourseError(f"{args.page} cannot be read ({problem}).") from None

    if args.check:
        good = is_signed(text, key, args.page)
        print("signed with this key" if good else "NOT what was signed with this key")
        return 0 if good else 1
    save(args.page, signed(text, key, args.page))
    print(f"signed: {args.page}")
    return 0


def require_a_sandbox() -> None:
    from course_lib.grading.errors import CourseError
    from course_lib.grading.sandbox import why_no_sandbox

    if why := why_no_sandbox():
        then = "`--no-sandbox` marks them without walls: they may then read and write what you may"
        raise CourseError(f"Submissions cannot be walled in: {why}. {then}.")


def scheduler_of(args: argparse.Namespace) -> str | None:
    """The address of Dask's scheduler, "local" for one on this machine, None without Dask."""
    if args.executor != "dask":
        return None
    return args.scheduler or "local"


# ---- collect and repair


def add_collect(commands: Commands) -> None:
    it = commands.add(
        collect, "put a download of Canvas, Moodle, Blackboard into folders STUDENT/NN_name/"
    )
    it.add_argument("download", type=Path, help="a folder or a zip")
    it.add_argument(
        "--output",
        type=Path,
        default=Path("submitted"),
        help="where the folders go (default: %(default)s)",
    )
    it.add_argument(
        "--nbgrader",
        action="store_true",
        help="repair the notebooks on the way, so that nbgrader's own commands can mark them",
    )


def collect(args: argparse.Namespace) -> int:
    """Put a download into folders STUDENT/NN_name/; 0 once nobody was left out."""
    from course_lib.grading.collect import collect as collect_class
    from course_lib.grading.collect import write_class
    from course_lib.grading.notebooks import find_root, lessons
    from course_lib.grading.repair import write_repaired

    collected = collect_class(args.download, lessons(find_root()), leave_out=(args.output,))
    files_written = write_class(collected, args.output)
    for line in collected.told:
        say(line)

    if args.nbgrader:
        files_written = write_repaired(collected, lessons(find_root()), args.output).written
    print(
        f"{args.output}: {len(collected.submissions)} submissions, {files_written} files new or changed"
    )
    print(f"what became of each file: {args.output / 'collected.csv'}")
    if collected.without_a_mark:
        print(f"nothing of: {', '.join(collected.without_a_mark)}")
    return 1 if collected.without_a_mark else 0


def repair(args: argparse.Namespace) -> int:
    """Make submissions such that nbgrader can mark them; 0 once all are."""
    from course_lib.grading.notebooks import find_root, lessons
    from course_lib.grading.repair import repair as repair_class

    collected, repaired = repair_class(args.folder, lessons(find_root()))
    for line in [*collected.told, *repaired.left]:
        say(line)

    earlier = "; the files as they were are under .earlier/" if repaired.written else ""
    print(f"{len(collected.submissions)} submissions, {repaired.written} files written{earlier}")
    return 1 if repaired.left or collected.without_a_mark else 0


# ---- example


def add_example(commands: Commands) -> None:
    it = commands.add(
        example,
        "made-up marks of a class, as `course grade` writes them, to try the dashboard with",
    )
    it.add_argument("lessons", nargs="*", help="numbers or names (default: all)")
    it.add_argument(
        "--students", type=above_zero_whole, default=20, help="how many (default: %(default)s)"
    )
    it.add_argument(
        "--seed", type=int, default=0, help="another number, another class (default: %(default)s)"
    )
    it.add_argument(
        "--out", type=Path, default=Path("grades.csv"), help="the file (default: %(default)s)"
    )


def example(args: argparse.Namespace) -> int:
    """Marks of a class that never was."""
    from course_lib.grading.example import example
    from course_lib.grading.notebooks import find_lesson, find_root
    from course_lib.grading.notebooks import lessons as all_lessons

    root = find_root()
    chosen = [find_lesson(root, wanted) for wanted in args.lessons] or all_lessons(root)
    print(f"{args.out}: {example(chosen, args.students, args.out, args.seed)} rows")
    return 0
