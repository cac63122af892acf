"""The `course` command.

In:  a subcommand and its arguments. Out: text on the terminal and an exit status.
Each subcommand imports what it needs when it runs: `course doctor` must work where half of the packages are missing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.grading.copies import Done
    from course_lib.grading.marks import Report
    from course_lib.grading.notebooks import Lesson

from course_lib import __version__
from course_lib.grading.mistakes import above_zero, above_zero_whole, sentence
from course_lib.grading.terminal import show_every_sign


def doctor(args: argparse.Namespace) -> int:
    from course_lib.tools import doctor

    return doctor.main()


def demo(args: argparse.Namespace) -> int:
    from course_lib.tools import demo

    return int(demo.main() or 0)


def bench(args: argparse.Namespace) -> int:
    from course_lib.bench import main

    return int(main(args.arguments) or 0)


def coverage(args: argparse.Namespace) -> int:
    from course_lib.tools import coverage_table

    return coverage_table.main(args.arguments)


def report(args: argparse.Namespace) -> int:
    """Run a script and write its compile report; the script's exit status comes back."""
    from course_lib.grading.notebooks import CourseError
    from course_lib.viz.report.script import run_traced

    program = ["-m", *args.module] if args.module else args.script
    if len(program) < 1 + bool(args.module):
        raise CourseError(
            "which program? Say `course report script.py [arguments]` or `course report -m module [arguments]`"
        )
    if not args.module and not Path(program[0]).exists():
        raise CourseError(
            f"there is no file {program[0]} to run; for a module say `course report -m {program[0]}`"
        )
    if (
        not args.module
        and Path(program[0]).is_dir()
        and not Path(program[0], "__main__.py").exists()
    ):
        raise CourseError(f"{program[0]} is a folder: name the script in it that is to run")
    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(
            f"the report cannot be written into {args.out} ({error.strerror}): name another folder with --out"
        ) from None
    return run_traced(program, args.out, args.torch_compile)


def gallery(args: argparse.Namespace) -> int:
    """Make docs/gallery.md again, from real traces."""
    from course_lib.grading.notebooks import find_root
    from course_lib.tools.gallery import gallery

    print(gallery(args.out or find_root() / "docs", args.measure))
    return 0


def exercises(args: argparse.Namespace) -> int:
    """Write every exercise from its solution, or with `--check` say which are stale, malformed or leak."""
    from course_lib.grading.gate import static_complaints
    from course_lib.grading.generate import generate
    from course_lib.grading.notebooks import CourseError, find_lesson, find_root, lessons

    root = find_root()
    chosen = [find_lesson(root, wanted) for wanted in args.lessons] or lessons(root)
    if args.check:
        complaints = [complaint for lesson in chosen for complaint in static_complaints(lesson)]
        print("\n".join(complaints) or f"exercises are up to date: {len(chosen)} checked")
        return bool(complaints)
    refused = 0
    for lesson in chosen:
        try:
            print(f"{lesson}: {'written' if generate(lesson) else 'unchanged'}")
        except CourseError as problem:
            refused += 1
            print(f"{lesson}: not written. {problem}", file=sys.stderr)
    return 2 if refused else 0


def check(args: argparse.Namespace) -> int:
    """Mark the learner's own notebook; 0 only with full marks."""
    from course_lib.grading.copies import learners_file, read_copy
    from course_lib.grading.marks import mark_exercise
    from course_lib.grading.notebooks import find_lesson, find_root, read
    from course_lib.grading.progress import digest
    from course_lib.grading.runner import Limits

    lesson = find_lesson(find_root(), args.lesson)
    limits = Limits(cell_seconds=args.seconds, memory_bytes=int(args.memory * 2**30))
    path = args.notebook or learners_file(lesson)
    answers = digest(read_copy(lesson) if path == lesson.copy else read(path))
    note(f"{lesson}: starting Python, then every cell runs once ...")
    report = mark_exercise(lesson, path, limits, note)
    print(report)
    if args.notebook is None:
        note_result(lesson, report, answers)
    return 0 if report.points == report.out_of else 1


def note(line: str) -> None:
    """A line about what goes on, beside what the command has to say in the end."""
    print(line, file=sys.stderr, flush=True)


def note_result(lesson: Lesson, report: Report, answers: str) -> None:
    """Remember the points and keep the file that was marked. That this fails is told, and changes nothing else."""
    from course_lib.grading.history import keep_now
    from course_lib.grading.notebooks import CourseError
    from course_lib.grading.progress import remember

    try:
        remember(lesson, report, answers)
        keep_now(lesson, "check")
    except CourseError as problem:
        print(f"course: the points are not remembered: {problem}", file=sys.stderr)


def progress(args: argparse.Namespace) -> int:
    """The lessons with what has been earned, and what comes next."""
    from course_lib.grading.notebooks import find_root
    from course_lib.grading.progress import progress

    print(progress(find_root()))
    return 0


def start(args: argparse.Namespace) -> int:
    """Make the learner's copies in work/; one that is there stays as it is."""
    from course_lib.grading import copies

    if args.all:
        return start_in(args.all)

    def one(lesson: Lesson) -> copies.Done | None:
        return copies.bring(lesson, args.source) if args.source else copies.start(lesson)

    if len(args.lessons) != 1:
        return each_lesson(args, one, "made", "there")
    status = each_lesson(args, one)
    if status == 0:
        hint_to_join(args.lessons[0])
    return status


def start_in(folder: Path) -> int:
    """Write all of the course into a folder, and make the learner's copies there."""
    from course_lib.grading import copies
    from course_lib.grading.course_folder import source, write_course
    from course_lib.grading.notebooks import lessons

    print(write_course(source(), folder))
    for lesson in lessons(folder.resolve()):
        copies.start(lesson)

    print(f"Your copies of the exercises are in {folder / 'work'}. Begin there:")
    print(f"    cd {folder} && jupyter lab notebooks/00_start_here.ipynb")
    return 0


def hint_to_join(wanted: str) -> None:
    """A learner who begins in the middle may want the lessons before to count as given."""
    from course_lib.grading.notebooks import find_lesson, find_root, lessons
    from course_lib.grading.progress import remembered

    root = find_root()
    lesson, memory = find_lesson(root, wanted), remembered(root)
    if lesson != lessons(root)[0] and memory.start is None and not memory.known:
        print(
            f"If you join the course at this lesson: `course join {lesson.number}` counts the lessons before it as given."
        )


def update(args: argparse.Namespace) -> int:
    """Put the exercises of this version of the course into the learner's copies."""
    from course_lib.grading import copies

    def one(lesson: Lesson) -> copies.Done | None:
        there = bool(args.lessons) or lesson.copy.is_file() or copies.work_in_exercises(lesson)
        return copies.update(lesson) if there else None

    return each_lesson(args, one, *(() if args.lessons else ("current",)))


def each_lesson(
    args: argparse.Namespace, one: Callable[[Lesson], Done | None], *counted: str
) -> int:
    """Do one thing to the chosen lessons, or to all. What is not done to one does not keep it from the next.

    Of lessons where it ended with a `counted` word, and with nothing to be said, only the number is told.
    """
    from course_lib.grading.copies import Done
    from course_lib.grading.notebooks import CourseError, find_lesson, find_root, lessons

    root = find_root()
    counts = dict.fromkeys(counted, 0)
    failed = False
    for lesson in [find_lesson(root, wanted) for wanted in args.lessons] or lessons(root):
        try:
            done = one(lesson)
        except CourseError as problem:
            done, failed = Done(lesson, "failed", [str(problem)]), True
        if done is None:
            continue
        if done.word in counts and not done.said:
            counts[done.word] += 1
        else:
            print(done)
    words = {
        "made": "made in work/",
        "there": "in work/ already, which stay as they are",
        "current": "with nothing new to get",
    }
    for word, count in counts.items():
        if count:
            print(f"{count} {'copies' if count > 1 else 'copy'} {words[word]}")
    return 2 if failed else 0


def undo(args: argparse.Namespace) -> int:
    """Bring back the learner's copy as it was before the last command that changed it."""
    from course_lib.grading import history
    from course_lib.grading.notebooks import find_lesson, find_root

    lesson = find_lesson(find_root(), args.lesson)
    place = lesson.shown(lesson.copy)
    if args.list:
        kept = [str(version) for version in history.versions(lesson)]
        print("\n".join(kept) or "nothing is kept yet")
        return 0
    version = history.undo(lesson, args.to)
    number, moment, said = str(version).split("  ")
    print(f"{place} is again as it was {said} ({moment}, version {number}).")
    print("    If it is open in JupyterLab: File > Reload Notebook from Disk.")
    print(f"    `course undo {lesson.number}` again takes this back.")
    return 0


def join(args: argparse.Namespace) -> int:
    """Catch up: everything before this lesson counts as given; in the capstone the course's answers stand in."""
    from course_lib.grading.copies import start
    from course_lib.grading.notebooks import find_lesson, find_root
    from course_lib.grading.progress import progress, start_at

    root = find_root()
    lesson = find_lesson(root, args.lesson)
    print(start(lesson))
    start_at(root, lesson)
    print(progress(root))
    return 0


def assemble(args: argparse.Namespace) -> int:
    """Which stages of the compiler are the learner's by now."""
    from course_lib.grading.capstone import assemble
    from course_lib.grading.notebooks import CourseError

    page = args.page
    if page and (page.is_dir() or not page.parent.is_dir()):  # said before the minutes of work
        raise CourseError(
            f"the page cannot be written to {page}: name a file in a folder that exists"
        )
    mine = assemble(args.folder)
    print(mine)
    if args.page:
        print(f"written: {mine.save(args.page, args.name)}")
    return 0


def grade(args: argparse.Namespace) -> int:
    """Mark a class; 0 once every submission has its marks."""
    from course_lib.grading.classroom import Job
    from course_lib.grading.classroom import grade as grade_class
    from course_lib.grading.notebooks import CourseError, find_root
    from course_lib.grading.runner import Limits
    from course_lib.grading.sandbox import why_no_sandbox

    if not args.no_sandbox and (why := why_no_sandbox()):
        then = "`--no-sandbox` marks them without walls: they may then read and write what you may"
        raise CourseError(f"Submissions cannot be walled in: {why}. {then}.")
    limits = Limits(args.seconds, total_seconds=args.total, memory_bytes=int(args.memory * 2**30))
    scheduler = (args.scheduler or "local") if args.executor == "dask" else None
    job = Job(
        args.folder,
        args.output,
        find_root(),
        args.jobs,
        limits,
        not args.no_sandbox,
        scheduler,
        args.again,
    )
    marked = grade_class(job, _say)
    print(f"grades: {args.output / 'grades.csv'}, feedback: {args.output / 'feedback'}")
    if marked.without:
        print(f"no mark: {', '.join(marked.without)}")
    return 1 if marked.without else 0


def _say(line: str) -> None:
    """Print a line at once: a class takes a while."""
    print(line, flush=True)


def collect(args: argparse.Namespace) -> int:
    """Put a download into folders STUDENT/NN_name/; 0 once nobody was left out."""
    from course_lib.grading.collect import collect as collect_class
    from course_lib.grading.collect import write_class
    from course_lib.grading.notebooks import find_root, lessons

    found = collect_class(args.download, lessons(find_root()), leave_out=(args.output,))
    written = write_class(found, args.output)
    for line in found.told:
        _say(line)
    if args.nbgrader:
        from course_lib.grading.repair import write_repaired

        written = write_repaired(found, lessons(find_root()), args.output).written
    print(f"{args.output}: {len(found.submissions)} submissions, {written} files new or changed")
    print(f"what became of each file: {args.output / 'collected.csv'}")
    if found.without_a_mark:
        print(f"nothing of: {', '.join(found.without_a_mark)}")
    return 1 if found.without_a_mark else 0


def repair(args: argparse.Namespace) -> int:
    """Make submissions such that nbgrader can mark them; 0 once all are."""
    from course_lib.grading.notebooks import find_root, lessons
    from course_lib.grading.repair import repair as repair_class

    found, done = repair_class(args.folder, lessons(find_root()))
    for line in [*found.told, *done.left]:
        _say(line)
    earlier = "; the files as they were are under .earlier/" if done.written else ""
    print(f"{len(found.submissions)} submissions, {done.written} files written{earlier}")
    return 1 if done.left or found.without_a_mark else 0


def example(args: argparse.Namespace) -> int:
    """Marks of a class that never was."""
    from course_lib.grading.example import example
    from course_lib.grading.notebooks import find_lesson, find_root
    from course_lib.grading.notebooks import lessons as all_lessons

    root = find_root()
    chosen = [find_lesson(root, wanted) for wanted in args.lessons] or all_lessons(root)
    print(f"{args.out}: {example(chosen, args.students, args.out, args.seed)} rows")
    return 0


def slides(args: argparse.Namespace) -> int:
    """Lessons as slides, from their notebooks' stored outputs."""
    from course_lib.grading.notebooks import find_root
    from course_lib.grading.slides import lesson_notebooks, make_slides

    root = find_root()
    out = args.out or root / "build" / "slides"
    pages = make_slides(lesson_notebooks(root, args.lessons), out)
    print(f"{len(pages)} lessons: open {out / 'index.html'}")
    return 0


def a_line_each(prog: str) -> argparse.HelpFormatter:
    """Help in which each command stands on a line with what it does."""
    return argparse.HelpFormatter(prog, max_help_position=20, width=120)


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="course",
        description="A readable torch.compile, and a course that walks through it.",
        epilog="`course COMMAND --help` says more about one of them.",
        formatter_class=a_line_each,
    )
    top.add_argument("-V", "--version", action="version", version=f"course_lib {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="command")

    def command(
        function: Callable[[argparse.Namespace], int], about: str
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(function.__name__, help=about, description=about)
        added.set_defaults(run=function)
        return added

    command(doctor, "what this machine has, which tier it gets, what is missing and how to get it")
    command(demo, "one function from Python bytecode to a fused kernel, step by step")

    it = commands.add_parser(
        "bench",
        help="eager, course_lib and torch.compile side by side (`course bench --help`)",
        add_help=False,
    )
    it.add_argument("arguments", nargs=argparse.REMAINDER)
    it.set_defaults(run=bench)

    it = commands.add_parser(
        "coverage",
        help="which of torch's operators compile, and whether they are right",
        add_help=False,
    )
    it.add_argument("arguments", nargs=argparse.REMAINDER)
    it.set_defaults(run=coverage)

    it = command(
        report, "run a script, and write one page about everything that was compiled in it"
    )
    it.add_argument(
        "--out",
        type=Path,
        default=Path("compile_report"),
        help="the folder for the page (default: %(default)s)",
    )
    it.add_argument(
        "--torch-compile",
        action="store_true",
        help="let torch.compile in the script mean cl.compile",
    )
    it.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        help="a module and its arguments, in place of a script",
    )
    it.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")

    it = command(gallery, "make docs/gallery.md: every picture once, from real traces")
    it.add_argument("--out", type=Path, help="another folder than docs/")
    it.add_argument(
        "--measure",
        action="store_true",
        help="measure times again (else those of the last time are drawn)",
    )

    it = command(check, "mark your own exercise notebook")
    it.add_argument("lesson", help="its number or name: 2, 02 or 02_bytecode_capture")
    it.add_argument("--notebook", type=Path, help="another file than your copy under work/")
    it.add_argument(
        "--seconds",
        type=above_zero,
        default=120,
        help="time limit of one cell (default: %(default)s)",
    )
    it.add_argument(
        "--memory", type=above_zero, default=6, help="memory limit in GiB (default: %(default)s)"
    )

    command(progress, "how far you are: points of each lesson, and what comes next")

    it = command(start, "make your own copy of a lesson's exercises, work/NN_name.ipynb")
    it.add_argument("lessons", nargs="*", help="numbers or names (default: all)")
    it.add_argument(
        "--all",
        type=Path,
        metavar="FOLDER",
        help="write the whole course into a folder: for who installed a wheel and has no clone",
    )
    it.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="PATH",
        help="take your answers from another notebook, folder or older clone",
    )

    it = command(update, "put a newer version of the exercises into your copies; your answers stay")
    it.add_argument("lessons", nargs="*", help="numbers or names (default: all of your copies)")

    it = command(undo, "bring back your copy as it was before the last command that changed it")
    it.add_argument("lesson", help="its number or name")
    it.add_argument("--list", action="store_true", help="show what is kept, and change nothing")
    it.add_argument(
        "--to", type=int, metavar="VERSION", help="one of the versions that --list shows"
    )

    it = command(join, "join the course at a lesson, with all stages before it given")
    it.add_argument("lesson", help="its number or name")

    it = command(
        assemble,
        "your own compiler: which of its stages are yours by now, and why the others are not",
    )
    it.add_argument("--folder", type=Path, help="another folder of exercise notebooks than work/")
    it.add_argument("--page", type=Path, help="write a page to keep (.html)")
    it.add_argument("--name", default="", help="whose compiler it is, for that page")

    it = command(
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
    it.add_argument(
        "--no-sandbox",
        action="store_true",
        help="run submissions with your own rights: only where you know who wrote them",
    )

    it.add_argument(
        "--again",
        nargs="?",
        choices=("limits", "all"),
        const="limits",
        default="",
        help="mark again what a limit ended (or all), although nothing has changed",
    )

    it = command(
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

    it = command(
        repair, "repair a class's notebooks in place, so that nbgrader's own commands can mark them"
    )
    it.add_argument("folder", type=Path, help="holds STUDENT/NN_name/NN_name.ipynb")

    it = command(
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

    it = command(slides, "lessons as slides with speaker notes (reveal.js, no network needed)")
    it.add_argument("lessons", nargs="*", help="numbers (default: all)")
    it.add_argument("--out", type=Path, help="the folder for the pages (default: build/slides)")

    it = command(exercises, "make exercises/ from solutions/")
    it.add_argument("lessons", nargs="*", help="numbers or names (default: all)")
    it.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if an exercise is stale, malformed or leaks",
    )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; a mistake in the course's files or arguments is one sentence, not a traceback."""
    show_every_sign()
    # jsonschema, which nbformat loads, would build a grammar of international addresses from this: a second and more
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv:
        parser().print_help()
        return 0
    try:
        # their options are their own
        if own := {"bench": bench, "coverage": coverage}.get(argv[0]):
            return own(argparse.Namespace(arguments=argv[1:]))
        args = parser().parse_args(argv)
        return int(args.run(args))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `course doctor | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        said = sentence(error)
        if not said:
            raise
        print(f"course: {said}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
