"""Commands for who learns: check, progress, certificate, feedback.

In:  the parsed arguments. Out: what the checks say of the learner's copies, and an exit status.
PyTorch has no counterpart. nbgrader's `validate` is near to `check`, without hidden checks.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.grading.mistakes import above_zero
from course_lib.languages import phrase

from . import Commands, say_beside
from .learner_copies import speak_as_the_copies, tidied

if TYPE_CHECKING:
    from course_lib.grading.marks import Report
    from course_lib.grading.notebooks import Lesson

# Seconds: who saved so lately has no need to be told of changes that are not saved
JUST_SAVED = 5.0


def add(commands: Commands) -> None:
    add_check(commands)
    add_progress(commands)
    it = commands.add(certificate, phrase("a page that says that you have done all of it"))
    it.add_argument("--name", default="", help=phrase("whose certificate it is"))
    it.add_argument(
        "--page",
        type=Path,
        default=Path("certificate.html"),
        help=phrase("where (default: %(default)s)"),
    )
    it = commands.add(feedback, phrase("what to send when a lesson is wrong, unclear or too long"))
    it.add_argument("lesson", help=phrase("its number or name"))


# ---- check and progress


def add_check(commands: Commands) -> None:
    it = commands.add(check, phrase("mark your own exercise notebook"))
    it.add_argument("lesson", help=phrase("its number or name: 2, 02 or 02_bytecode_capture"))
    it.add_argument("--notebook", type=Path, help=phrase("another file than your copy under work/"))
    it.add_argument(
        "--seconds",
        type=above_zero,
        default=120,
        help=phrase("time limit of one cell (default: %(default)s)"),
    )
    it.add_argument(
        "--memory",
        type=above_zero,
        default=6,
        help=phrase("memory limit in GiB (default: %(default)s)"),
    )


@tidied
def check(args: argparse.Namespace) -> int:
    """Mark the learner's own notebook; 0 only with full marks."""
    from course_lib.grading.learners_files import learners_file, read_copy
    from course_lib.grading.marks import mark_exercise
    from course_lib.grading.notebooks import find_lesson, find_root, read
    from course_lib.grading.progress import digest
    from course_lib.grading.runner import Limits
    from course_lib.grading.tries import require_a_turn

    root = find_root()
    speak_as_the_copies(root)
    lesson = find_lesson(root, args.lesson)
    limits = Limits(cell_seconds=args.seconds, memory_bytes=int(args.memory * 2**30))
    path = args.notebook or learners_file(lesson)
    answers = digest(read_copy(lesson) if path == lesson.copy else read(path))

    require_a_turn(lesson)
    note_when_saved(lesson, path)
    say_beside(phrase("{lesson}: starting Python, then every cell runs once ...", lesson=lesson))
    report = mark_exercise(lesson, path, limits, say_beside)
    print(report)

    # the points of another file than the learner's own say nothing about how far they are
    if args.notebook is None:
        remember_result(lesson, report, answers)
    return 0 if report.points == report.out_of else 1


def note_when_saved(lesson: Lesson, path: Path) -> None:
    """Say how old the file is: what is typed in JupyterLab and not saved yet cannot be marked, and
    nothing else would show it."""
    age = time.time() - path.stat().st_mtime
    if age > JUST_SAVED:
        say_beside(
            phrase(
                "{lesson} as saved {ago}. Changed since? Ctrl+S saves it.",
                lesson=lesson,
                ago=ago(age),
            )
        )


def ago(seconds: float) -> str:
    """A time that has passed, in the largest unit of which there are two or more."""
    if seconds >= 2 * 86400:
        return phrase("{n} days ago", n=f"{seconds // 86400:.0f}")
    if seconds >= 2 * 3600:
        return phrase("{n} hours ago", n=f"{seconds // 3600:.0f}")
    if seconds >= 2 * 60:
        return phrase("{n} minutes ago", n=f"{seconds // 60:.0f}")
    return phrase("{n} seconds ago", n=f"{seconds:.0f}")


def remember_result(lesson: Lesson, report: Report, answers: str) -> None:
    """Remember the points and keep the file that was marked.

    That this fails is told, and changes nothing else."""
    from course_lib.grading.errors import CourseError
    from course_lib.grading.history import keep_now
    from course_lib.grading.progress import remember
    from course_lib.grading.tries import note

    try:
        remember(lesson, report, answers)
        note(lesson, report)
        keep_now(lesson, "check")
    except CourseError as problem:
        say_beside(phrase("course: the points are not remembered: {error}", error=problem))


def add_progress(commands: Commands) -> None:
    it = commands.add(
        progress, phrase("how far you are: points of each lesson, and what comes next")
    )
    it.add_argument("--html", type=Path, metavar="FILE", help=phrase("write it as a page, too"))


@tidied
def progress(args: argparse.Namespace) -> int:
    """The lessons with what has been earned, and what comes next."""
    from course_lib.grading.notebooks import find_root
    from course_lib.grading.progress import progress

    root = find_root()
    speak_as_the_copies(root)
    learners_progress = progress(root)
    print(learners_progress)
    if args.html:
        from course_lib.grading.pages import progress_page, save
        from course_lib.grading.tries import file_of, tries_in

        page = progress_page(learners_progress, tries_in(file_of(root)))
        print(phrase("written: {file}", file=save(args.html, page)))
    return 0


@tidied
def certificate(args: argparse.Namespace) -> int:
    """Write the certificate, once all lessons are done."""
    from datetime import UTC, datetime

    from course_lib.grading.notebooks import find_root
    from course_lib.grading.pages import certificate_page, save, statement
    from course_lib.grading.progress import progress

    root = find_root()
    speak_as_the_copies(root)
    today = datetime.now(UTC).date()
    certificate_statement = statement(progress(root), args.name, today)
    print(phrase("written: {page}", page=save(args.page, certificate_page(certificate_statement))))
    print(phrase("A teacher can sign it: `course certify`."))
    return 0


def feedback(args: argparse.Namespace) -> int:
    """Print the frame of a message about a lesson, with the versions that whoever reads it must
    know."""
    import platform
    from importlib.metadata import version

    from course_lib import __version__
    from course_lib.grading.notebooks import find_lesson, find_root

    root = find_root()
    speak_as_the_copies(root)
    lesson = find_lesson(root, args.lesson)
    versions = (
        f"course_lib {__version__}, torch {version('torch')}, Python {platform.python_version()}"
    )
    print(phrase("Lesson: {lesson}", lesson=lesson.name))
    print(phrase("Versions: {versions}", versions=versions))
    print(phrase("System: {system}", system=f"{platform.system()} {platform.machine()}"))
    print(phrase("Section or exercise:"), "")
    print(phrase("What I expected:"), "")
    print(phrase("What I saw (the whole message, or a picture):"), "")
    print()
    print(
        phrase(
            "Fill this in and send it to your teacher, or as an issue to where your clone came from:"
        )
    )
    print(phrase("`git remote get-url origin` says where that is."))
    return 0
