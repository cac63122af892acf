"""Notebooks as learners, editors and services make them: by seed, for the property "what check gives, grade gives".

In:  a seed. Out: a `Sample`: the bytes of a notebook, what was done to it, and the points that it must have.

    python tests/tools/learner_notebooks.py --count 2000          # one process each (fork), every way to marks but the kernel
    python tests/tools/learner_notebooks.py --count 2000 --read   # only what the two would run (the first of the three below)
    python tests/tools/learner_notebooks.py --count 40 --kernels  # real: `check` in a kernel, `grade` in a sandbox

Each sample is the exercise of a small course with right or wrong answers and one to four changes. No change touches a right
answer, so the expected points are those of the right answers, whatever else was done. Three things are asserted:

1. Both ways read the same: the code that check would run is the code that grade would run, or both refuse with one sentence.
2. The points are the expected ones.
3. With `--kernels`: check and grade give the same points and the same reasons.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from learner_changes import BROKEN, CHANGES, ENCODINGS, EXERCISES, answers, course, name_of

from course_lib.grading.classroom import mark_one, without_answers
from course_lib.grading.collect import Submission, collect
from course_lib.grading.errors import NotReadable
from course_lib.grading.generate import exercise_from
from course_lib.grading.marks import assembled, mark_exercise
from course_lib.grading.notebooks import Lesson, read
from course_lib.grading.reader import notebook_from, read_notebook
from course_lib.grading.runner import Limits

# ---- samples --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """`points`: what it must have, or None where the file cannot be read."""

    seed: int
    data: bytes
    done: tuple[str, ...]
    points: float | None


def fitting(done: list[tuple[str, str]], kind: str, name: str) -> bool:
    """Whether a change makes sense beside those that were drawn."""
    names = {other for _, other in done}
    if name in names or kind in {
        other for other, _ in done if other not in ("cells", "names", "switches")
    }:
        return False
    # each of these looks for the cells by their metadata, or changes the same cell's text
    alone = {"of_all_cells", "format_3", "ids", "an_answer_written_in_a_new_cell", "of_an_answer"}
    touches = {
        "an_answer_split_inside", "an_exit_below_an_answer", "a_magic_above_an_answer", "lines_added_to_a_given_cell",
        "a_cell_doubled", "an_answer_in_another_type", "a_stub_kept_below", "an_answer_split", "a_course_cell_deleted",
    }  # fmt: skip
    both = alone | touches
    return not (name in both and names & both)


def of_all_cells_last(change: tuple[str, str]) -> tuple[bool, bool]:
    kind, name = change
    return kind in ("format", "metadata"), name == "format_3"


def sample(lesson: Lesson, seed: int) -> Sample:
    """The sample of this seed: always the same."""
    draw = random.Random(seed)
    nb = json.loads(json.dumps(exercise_of(lesson)))
    points = 0.0
    for cell in answers(nb):
        worth, head, right, wrong, _, _ = EXERCISES[name_of(cell)]
        is_right = draw.random() < 0.8
        points += worth * is_right
        indent = " " * (8 if head.startswith("class") else 4)
        cell["source"] = f"{head}\n{indent}{right if is_right else wrong}"

    done: list[tuple[str, str]] = []
    for _ in range(draw.randint(1, 4)):
        kind = draw.choice(sorted(CHANGES))
        name = draw.choice(sorted(CHANGES[kind]))
        if fitting(done, kind, name):
            done.append((kind, name))
    # what changes the form of all cells comes last
    for kind, name in sorted(done, key=of_all_cells_last):
        CHANGES[kind][name](nb, draw)

    how = draw.choice(sorted(ENCODINGS)) if draw.random() < 0.4 else "utf_8"
    text = json.dumps(nb, indent=1, ensure_ascii=False) + "\n"
    said = (*(f"{kind}: {name}" for kind, name in done), f"encoding: {how}")
    return Sample(seed, ENCODINGS[how](text), said, None if how in BROKEN else points)


_EXERCISES: dict[str, Any] = {}


def exercise_of(lesson: Lesson) -> Any:
    """The exercise as it is handed out, made once; it is written as the lesson's file, too."""
    key = str(lesson.solution)
    if key not in _EXERCISES:
        _EXERCISES[key] = exercise_from(read(lesson.solution))
    return _EXERCISES[key]


# ---- both ways ------------------------------------------------------------------------------------------------------


def by_check(lesson: Lesson, path: Path) -> Any:
    """What `check` would run, or the words with which it refuses."""
    try:
        return read_notebook(path), read(lesson.solution)
    except NotReadable as error:
        return error.why


def by_grade(lesson: Lesson, item: Submission, reference: str) -> Any:
    """What `grade` would run, or the words with which it refuses."""
    if item.text is None:
        return item.trouble.split(": ", 1)[-1]
    return notebook_from(item.text.encode(), item.lesson), nbformat.reads(reference, as_version=4)


def program(pair: Any) -> Any:
    """All that decides the marks: each cell's code, its role, and what it stands for."""
    if isinstance(pair, str):
        return pair
    nb = assembled(*pair)
    return [(c.cell_type, c.source, dict(c.metadata.get("marking", {}))) for c in nb.cells]


def submission(folder: Path, lesson: Lesson) -> Submission:
    """What `course grade` finds in the class's folder."""
    (found,) = collect(folder, [lesson]).submissions
    return found


def complaint(lesson: Lesson, one: Sample, reference: str, folder: Path, how: str) -> str:
    """What is not as it must be with this sample, or "". `how`: "read", "fork" or "kernels"."""
    from light_executor import light_marks

    path = folder / f"class {one.seed}" / "ann" / lesson.name / f"{lesson.name}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(one.data)
    item = submission(path.parents[2], lesson)

    checks, grades = by_check(lesson, path), by_grade(lesson, item, reference)
    if program(checks) != program(grades):
        return "check and grade would not run the same"
    if isinstance(checks, str):
        return "" if one.points is None else f"refused: {checks}"
    if one.points is None:
        return "a broken file was read"

    if how == "read":
        return ""
    if how == "fork":
        marks = light_marks(*checks)
        got = sum(mark.points for mark in marks)
        reasons = [mark.reason for mark in marks if mark.reason]
        return "" if got == one.points else f"expected {one.points:g}, got {got:g}: {reasons}"

    limits = Limits(cell_seconds=60)
    left = mark_exercise(lesson, path, limits).marks
    right = mark_one(item, reference, limits, in_sandbox=True)["marks"]
    both = [[(m.grade_id, m.points, m.reason) for m in left]]
    both.append([(m["grade_id"], m["points"], m["reason"]) for m in right])
    if both[0] != both[1]:
        return f"check gives {both[0]}, grade gives {both[1]}"
    got = sum(mark.points for mark in left)
    return "" if got == one.points else f"expected {one.points:g}, got {got:g}: {both[0]}"


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    options.add_argument("--kernels", dest="how", action="store_const", const="kernels")
    options.add_argument("--read", dest="how", action="store_const", const="read")
    options.set_defaults(how="fork")
    chosen = options.parse_args(arguments)

    kinds: collections.Counter[str] = collections.Counter()
    wrong: collections.Counter[str] = collections.Counter()
    with tempfile.TemporaryDirectory() as place:
        lesson = course(Path(place) / "course")
        reference = without_answers(lesson)
        for seed in range(chosen.first, chosen.first + chosen.count):
            one = sample(lesson, seed)
            said = complaint(lesson, one, reference, Path(place), chosen.how)
            for name in one.done:
                kinds[name] += 1
                wrong[name] += bool(said)
            if said:
                print(f"seed {seed} {one.done}: {said}", flush=True)
    print(f"{'change':<50} {'samples':>8} {'wrong':>6}")
    for name, count in sorted(kinds.items()):
        print(f"{name:<50} {count:>8} {wrong[name]:>6}")
    return int(sum(wrong.values()) > 0)


if __name__ == "__main__":
    sys.exit(main())
