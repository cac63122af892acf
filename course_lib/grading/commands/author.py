"""Commands for who writes the course: exercises, slides, translate.

In:  the parsed arguments. Out: files made from `solutions/` and `notebooks/`, lines about them, and
an exit status.
Counterpart: nbgrader's `generate_assignment`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from . import Commands, say_beside

if TYPE_CHECKING:
    from course_lib.grading.notebooks import Lesson


def add(commands: Commands) -> None:
    it = commands.add(slides, "lessons as slides with speaker notes (reveal.js, no network needed)")
    it.add_argument("lessons", nargs="*", help="numbers (default: all)")
    it.add_argument("--out", type=Path, help="the folder for the pages (default: build/slides)")

    it = commands.add(exercises, "make exercises/ from solutions/")
    it.add_argument("lessons", nargs="*", help="numbers or names (default: all)")
    it.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if an exercise is stale, malformed or leaks",
    )

    it = commands.add(
        translate, "bring the catalogs of other languages up to date, and write their notebooks"
    )
    it.add_argument("language", nargs="?", help="zh_Hans, for instance (default: all there are)")
    it.add_argument("lessons", nargs="*", help="numbers of lessons whose catalogs are to be begun")
    it.add_argument(
        "--check",
        action="store_true",
        help="write nothing; fail if the catalogs do not know of an English text",
    )


def slides(args: argparse.Namespace) -> int:
    """Lessons as slides, from their notebooks' stored outputs."""
    from course_lib.grading.notebooks import find_root
    from course_lib.grading.slides import lesson_notebooks, make_slides

    root = find_root()
    out = args.out or root / "build" / "slides"
    pages = make_slides(lesson_notebooks(root, args.lessons), out)

    print(f"{len(pages)} lessons: open {out / 'index.html'}")
    return 0


def exercises(args: argparse.Namespace) -> int:
    """Write every exercise from its solution, or with `--check` say which are stale, malformed or
    leak."""
    from course_lib.grading.notebooks import find_lesson, find_root, lessons

    root = find_root()
    chosen = [find_lesson(root, wanted) for wanted in args.lessons] or lessons(root)
    return look_at(chosen) if args.check else write(chosen)


def look_at(chosen: list[Lesson]) -> int:
    """Say what is wrong with these exercises; 0 where nothing is."""
    from course_lib.grading.gate import static_complaints

    complaints = [complaint for lesson in chosen for complaint in static_complaints(lesson)]
    print("\n".join(complaints) or f"exercises are up to date: {len(chosen)} checked")
    return bool(complaints)


def write(chosen: list[Lesson]) -> int:
    """Make these exercises; one that cannot be made does not keep the others from it."""
    from course_lib.grading.errors import CourseError
    from course_lib.grading.exercise_files import generate

    refused = 0
    for lesson in chosen:
        try:
            print(f"{lesson}: {'written' if generate(lesson) else 'unchanged'}")
        except CourseError as problem:
            refused += 1
            say_beside(f"{lesson}: not written. {problem}")
    return 2 if refused else 0


def translate(args: argparse.Namespace) -> int:
    """Keep the catalogs in step with the English, write `notebooks/zh/`, and say how far each part
    is."""
    from course_lib.grading import edition, translation
    from course_lib.grading.notebooks import find_root
    from course_lib.languages import known

    root = find_root()
    if args.check:
        stale_texts = translation.stale(root)
        print("\n".join(stale_texts) or "the catalogs know all English texts")
        return bool(stale_texts)

    chosen = [args.language] if args.language else list(known())
    translation.begin(root, chosen[0], [number.zfill(2) for number in args.lessons])
    for change in translation.keep_in_step(root):
        print(change)
    for language in chosen:
        edition.write(root, language)
        for state in translation.states(root, language):
            print(f"{language}  {state}")
    return 0
