"""Commands for a learner's copies: start, update, undo, join, assemble.

In:  the parsed arguments. Out: the learner's copies under `work/`, and an exit status.
PyTorch has no counterpart.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.languages import chosen, of_copy, phrase

from . import Command, Commands, say_beside

if TYPE_CHECKING:
    from course_lib.grading.copies import Done
    from course_lib.grading.notebooks import Lesson

# how many lessons ended with a word that is counted, not told one by one
COUNTED = {
    "made": "{copies} made in work/",
    "there": "{copies} in work/ already, which stay as they are",
    "current": "{copies} with nothing new to get",
}


def add(commands: Commands) -> None:
    add_start(commands)
    it = commands.add(
        update, phrase("put a newer version of the exercises into your copies; your answers stay")
    )
    it.add_argument(
        "lessons", nargs="*", help=phrase("numbers or names (default: all of your copies)")
    )

    add_undo(commands)
    it = commands.add(join, phrase("join the course at a lesson, with all stages before it given"))
    it.add_argument("lesson", help=phrase("its number or name"))
    add_assemble(commands)


def tidied(command: Command) -> Command:
    """The command, which first removes what a killed one left in the learner's folder, and says
    so."""

    @functools.wraps(command)
    def run(args: argparse.Namespace) -> int:
        from course_lib.grading.errors import CourseError
        from course_lib.grading.notebooks import find_root, work_folder
        from course_lib.grading.writing import remove_unfinished

        try:
            removed = remove_unfinished(work_folder(find_root()))
        except (CourseError, OSError):
            # a folder for reading only, or no course here: the command says that itself
            removed = []
        if removed:
            names = ", ".join(path.name for path in removed)
            say_beside(
                phrase(
                    "An earlier command was stopped while it wrote: its unfinished file is removed ({names}). "
                    "Nothing is lost: a file is replaced only when the new one is whole.",
                    names=names,
                )
            )
        return command(args)

    return run


def speak_as_the_copies(root: Path) -> None:
    """Speak the language in which the learner's copies were made, unless another one is chosen; the
    process that runs the checks speaks it, too."""
    from course_lib.grading.notebooks import work_folder

    copies = sorted(work_folder(root).glob("[0-9][0-9]_*.ipynb"))
    language = chosen() or next(filter(None, (of_copy(str(path)) for path in copies)), None)
    if language:
        os.environ["COURSE_LANGUAGE"] = language


# ---- start and update


def add_start(commands: Commands) -> None:
    it = commands.add(
        start, phrase("make your own copy of a lesson's exercises, work/NN_name.ipynb")
    )
    it.add_argument("lessons", nargs="*", help=phrase("numbers or names (default: all)"))
    it.add_argument(
        "--all",
        type=Path,
        metavar="FOLDER",
        help=phrase(
            "write the whole course into a folder: for who installed a wheel and has no clone"
        ),
    )
    it.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="PATH",
        help=phrase("take your answers from another notebook, folder or older clone"),
    )


@tidied
def start(args: argparse.Namespace) -> int:
    """Make the learner's copies in work/; one that is there stays as it is."""
    from course_lib.grading import copies

    if args.all:
        return start_in(args.all)
    if args.source:
        return start_from(args)

    # Several lessons: only how many copies were made; of one lesson its line.
    if len(args.lessons) != 1:
        return each_lesson(args, copies.start, ("made", "there"))

    status = each_lesson(args, copies.start)
    if status == 0:
        hint_to_join(args.lessons[0])
    return status


def start_from(args: argparse.Namespace) -> int:
    """Make copies, and bring in the answers that lie elsewhere; 0 only if there were any."""
    from course_lib.grading import copies
    from course_lib.grading.errors import CourseError

    were_there = []

    def one(lesson: Lesson) -> Done | None:
        result = copies.bring(lesson, args.source)
        were_there.append(result is not None)
        return result

    if not args.source.exists():
        raise CourseError(f"{args.source} does not exist: name a notebook, or a folder with some.")
    status = each_lesson(args, one)
    if status == 0 and not any(were_there):
        raise CourseError(
            f"{args.source} holds no notebook of these lessons: they are called NN_name.ipynb."
        )
    return status


def start_in(folder: Path) -> int:
    """Write all of the course into a folder, and make the learner's copies there."""
    from course_lib.grading import copies
    from course_lib.grading.course_folder import source, write_course
    from course_lib.grading.notebooks import lessons

    print(write_course(source(), folder))
    for lesson in lessons(folder.resolve()):
        copies.start(lesson)

    print(phrase("Your copies of the exercises are in {work}. Begin there:", work=folder / "work"))
    print(f"    cd {folder} && jupyter lab notebooks/00_start_here.ipynb")
    return 0


def hint_to_join(wanted: str) -> None:
    """A learner who begins in the middle may want the lessons before to count as given."""
    from course_lib.grading.notebooks import find_lesson, find_root, lessons
    from course_lib.grading.progress import remembered

    root = find_root()
    lesson, memory = find_lesson(root, wanted), remembered(root)
    is_first = lesson == lessons(root)[0]
    has_begun = memory.start is not None or memory.known
    if not is_first and not has_begun:
        print(
            phrase(
                "If you join the course at this lesson: `course join {n}` counts the lessons before it as given.",
                n=lesson.number,
            )
        )


@tidied
def update(args: argparse.Namespace) -> int:
    """Put the exercises of this version of the course into the learner's copies."""
    from course_lib.grading import copies
    from course_lib.grading.learners_files import work_in_exercises

    # Without names: lessons of which the learner has a copy, or has written into exercises/.
    def one(lesson: Lesson) -> Done | None:
        is_wanted = bool(args.lessons) or lesson.copy.is_file() or work_in_exercises(lesson)
        return copies.update(lesson) if is_wanted else None

    return each_lesson(args, one, () if args.lessons else ("current",))


def each_lesson(
    args: argparse.Namespace, one: Callable[[Lesson], Done | None], counted: tuple[str, ...] = ()
) -> int:
    """Do one thing to the chosen lessons, or to all.

    What is not done to one does not keep it from the next.

    Of lessons where it ended with a `counted` word, and with nothing to be said, only the number is
    told.
    """
    from course_lib.grading.copies import Done
    from course_lib.grading.errors import CourseError
    from course_lib.grading.notebooks import find_lesson, find_root, lessons

    root = find_root()
    chosen = [find_lesson(root, wanted) for wanted in args.lessons] or lessons(root)
    counts: Counter[str] = Counter()
    failed = False
    for lesson in chosen:
        try:
            result = one(lesson)
        except CourseError as problem:
            result, failed = Done(lesson, "failed", [str(problem)]), True

        if result is None:
            continue
        if result.word in counted and not result.said:
            counts[result.word] += 1
        else:
            print(result)

    for word in counted:
        if counts[word]:
            many = counts[word] > 1
            copies = phrase("{n} copies", n=counts[word]) if many else phrase("1 copy")
            print(phrase(COUNTED[word], copies=copies))
    return 2 if failed else 0


# ---- undo and join


def add_undo(commands: Commands) -> None:
    it = commands.add(
        undo, phrase("bring back your copy as it was before the last command that changed it")
    )
    it.add_argument("lesson", help=phrase("its number or name"))
    it.add_argument(
        "--list", action="store_true", help=phrase("show what is kept, and change nothing")
    )
    it.add_argument(
        "--to", type=int, metavar="VERSION", help=phrase("one of the versions that --list shows")
    )


@tidied
def undo(args: argparse.Namespace) -> int:
    """Bring back the learner's copy as it was before the last command that changed it."""
    from course_lib.grading import history
    from course_lib.grading.notebooks import find_lesson, find_root

    root = find_root()
    speak_as_the_copies(root)
    lesson = find_lesson(root, args.lesson)
    if args.list:
        version_lines = [str(version) for version in history.versions(lesson)]
        print("\n".join(version_lines) or phrase("nothing is kept yet"))
        return 0

    version = history.undo(lesson, args.to)
    again = phrase(
        "{copy} is again as it was {reason} ({moment}, version {version}).",
        copy=lesson.shown(lesson.copy),
        reason=version.reason,
        moment=version.moment,
        version=version.number,
    )
    more = [
        phrase("If it is open in JupyterLab: File > Reload Notebook from Disk."),
        phrase("`course undo {n}` again takes this back.", n=lesson.number),
    ]
    if saves := history.saves_after(lesson, version):
        more.append(
            phrase(
                "JupyterLab's saves since then are kept, too ({saves}): `course undo {n} --list`.",
                saves=saves,
                n=lesson.number,
            )
        )
    print("\n    ".join([again, *more]))
    return 0


@tidied
def join(args: argparse.Namespace) -> int:
    """Catch up: everything before this lesson counts as given; in the capstone the course's answers
    stand in."""
    from course_lib.grading.copies import start
    from course_lib.grading.notebooks import find_lesson, find_root
    from course_lib.grading.progress import progress, start_at

    root = find_root()
    speak_as_the_copies(root)
    lesson = find_lesson(root, args.lesson)
    print(start(lesson))

    start_at(root, lesson)
    print(progress(root))
    return 0


# ---- assemble


def add_assemble(commands: Commands) -> None:
    it = commands.add(
        assemble,
        phrase(
            "your own compiler: which of its stages are yours by now, and why the others are not"
        ),
    )
    it.add_argument(
        "--folder", type=Path, help=phrase("another folder of exercise notebooks than work/")
    )
    it.add_argument("--page", type=Path, help=phrase("write a page to keep (.html)"))
    it.add_argument("--name", default="", help=phrase("whose compiler it is, for that page"))


@tidied
def assemble(args: argparse.Namespace) -> int:
    """Which stages of the compiler are the learner's by now."""
    from course_lib.grading.capstone import assemble
    from course_lib.grading.errors import CourseError

    # said before the minutes of work
    page = args.page
    if page and (page.is_dir() or not page.parent.is_dir()):
        raise CourseError(
            phrase(
                "the page cannot be written to {page}: name a file in a folder that exists",
                page=page,
            )
        )

    assembly = assemble(args.folder)
    print(assembly)
    if page:
        print(phrase("written: {page}", page=assembly.save(page, args.name)))
    return 0
