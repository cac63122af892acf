"""Commands about the compiler and this machine: doctor, demo, bench, coverage, report, gallery.

In:  the parsed arguments. Out: text on the terminal, and an exit status.
In PyTorch: `python -m torch.utils.collect_env` is near to `doctor`, `tlparse` to `report`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from course_lib.languages import phrase

from . import Commands


def add(commands: Commands) -> None:
    commands.add(
        doctor,
        phrase("what this machine has, which tier it gets, what is missing and how to get it"),
    )
    commands.add(demo, phrase("one function from Python bytecode to a fused kernel, step by step"))
    commands.add_with_own_options(
        bench, phrase("eager, course_lib and torch.compile side by side (`course bench --help`)")
    )
    commands.add_with_own_options(
        coverage, phrase("which of torch's operators compile, and whether they are right")
    )
    add_report(commands)
    add_gallery(commands)


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


# ---- report


def add_report(commands: Commands) -> None:
    it = commands.add(
        report, phrase("run a script, and write one page about everything that was compiled in it")
    )
    it.add_argument(
        "--out",
        type=Path,
        default=Path("compile_report"),
        help=phrase("the folder for the page (default: %(default)s)"),
    )
    it.add_argument(
        "--torch-compile",
        action="store_true",
        help=phrase("let torch.compile in the script mean cl.compile"),
    )
    it.add_argument(
        "-m",
        dest="module",
        nargs=argparse.REMAINDER,
        help=phrase("a module and its arguments, in place of a script"),
    )
    it.add_argument("script", nargs=argparse.REMAINDER, help=phrase("the script and its arguments"))


def report(args: argparse.Namespace) -> int:
    """Run a script and write its compile report; the script's exit status comes back."""
    from course_lib.grading.errors import CourseError
    from course_lib.viz.report.script import run_traced

    program = ["-m", *args.module] if args.module else args.script
    if problem := problem_of_program(program):
        raise CourseError(problem)

    try:
        args.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CourseError(
            f"the report cannot be written into {args.out} ({error.strerror}): name another folder with --out"
        ) from None
    return run_traced(program, args.out, args.torch_compile)


def is_there(module: str) -> bool:
    """Whether Python finds a module of this name, here or where it is installed."""
    # "" is the folder that we are in, where `python -m` looks first
    here, sys.path = sys.path, ["", *sys.path]
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its package is not there, or it is no name
        return False
    finally:
        sys.path = here


def problem_of_program(program: list[str]) -> str:
    """Why this cannot be run, or "". A program is `-m MODULE ...` or `SCRIPT ...`."""
    is_module = program[:1] == ["-m"]
    # one word for a script, two for a module
    if len(program) < 1 + is_module:
        return "which program? Say `course report script.py [arguments]` or `course report -m module [arguments]`"
    if is_module:
        return "" if is_there(program[1]) else f"there is no module {program[1]} to run"

    script = Path(program[0])
    if not script.exists():
        return f"there is no file {script} to run; for a module say `course report -m {script}`"
    if script.is_dir() and not (script / "__main__.py").exists():
        return f"{script} is a folder: name the script in it that is to run"
    return ""


# ---- gallery


def add_gallery(commands: Commands) -> None:
    it = commands.add(gallery, "make docs/gallery.md: every picture once, from real traces")
    it.add_argument("--out", type=Path, help="another folder than docs/")
    it.add_argument(
        "--measure",
        action="store_true",
        help="measure times again (else those of the last time are drawn)",
    )


def gallery(args: argparse.Namespace) -> int:
    """Make docs/gallery.md again, from real traces."""
    from course_lib.grading.notebooks import find_root
    from course_lib.tools.gallery import gallery

    print(gallery(args.out or find_root() / "docs", args.measure))
    return 0
