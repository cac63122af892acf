"""`course example`: marks of a class that never was, to try the dashboard with.

In:  the lessons' exercises, and how many students. Out: a `grades.csv` as `course grade` writes it.
The exercises, points and the reasons are the course's own; who got what is thrown with dice, the
same for the same seed.
"""

from __future__ import annotations

import ast
import random
from pathlib import Path
from typing import Any

from .checks import CheckFailed
from .classroom import write_csv
from .dashboard import NOT_TRIED
from .notebooks import BEGIN_HIDDEN, GradedCell, Lesson, graded_cells, read

NAMES = (
    "ada alan barbara bo carol cy dana dennis edsger erin fran grace hal ines john katherine ken leslie lin margaret niklaus "
    "noor olga peter quinn radia sam tim uma vint wen xia yuri zoe"
).split()
# Which argument of a check says what was looked at; the next says why.
WHAT = {"check": 1, "check_equal": 2, "check_close": 2}

# The class: most students can do most exercises. A skill is compared with how hard an exercise is
# (about 1), and differs a little from one exercise to the next.
SKILL, SPREAD, LUCK = 0.8, 0.8, 0.7
GOOD = 0.5
"""Students of at least this skill seldom leave a lesson out: a fifth as often."""
FAR_BELOW = 0.7
"""Who is so much weaker than an exercise is hard does not try it."""


def example(lessons: list[Lesson], students: int, path: Path, seed: int = 0) -> int:
    """Write the marks of `students` students at `path`; how many rows comes back."""
    dice = random.Random(seed)
    names = [NAMES[i] if i < len(NAMES) else f"student-{i:03}" for i in range(students)]
    skill = {name: dice.gauss(SKILL, SPREAD) for name in names}
    # What part of the class does not hand it in
    lost = {lesson.name: dice.random() * 0.5 for lesson in lessons}
    records = []

    for lesson in lessons:
        cells = [(cell, reasons(cell)) for cell in graded_cells(read(lesson.solution))]
        handed_in = [
            name
            for name in names
            if dice.random() > lost[lesson.name] * (0.2 if skill[name] > GOOD else 1)
        ]
        for name in handed_in:
            marks = [
                mark(cell, messages, skill[name] + dice.gauss(0, LUCK), dice)
                for cell, messages in cells
            ]
            records.append({"student": name, "lesson": lesson.name, "marks": marks})

    records.sort(key=lambda record: (record["student"], record["lesson"]))
    write_csv(path, records)

    return sum(len(record["marks"]) for record in records)


def mark(
    cell: GradedCell, messages: list[str], skill: float, dice: random.Random
) -> dict[str, Any]:
    """Harder exercises have more points; who fails makes one of the first mistakes more often than
    a later one."""
    hard = cell.points / 4
    reason = ""
    if skill < hard - FAR_BELOW:
        reason = NOT_TRIED
    elif skill < hard:
        reason = messages[min(int(dice.expovariate(1.2)), len(messages) - 1)]

    row = {
        "exercise": cell.title,
        "grade_id": cell.grade_id,
        "out_of": cell.points,
        "reason": reason,
    }

    return {**row, "points": 0.0 if reason else cell.points}


def reasons(cell: GradedCell) -> list[str]:
    """What the visible checks of a cell say when they fail, as far as it stands in them word for
    word."""
    visible = cell.source.split(f"### {BEGIN_HIDDEN}")[0]
    messages = []

    for node in ast.walk(ast.parse(visible)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and (first := WHAT.get(node.func.id))
        ):
            given = [
                argument.value
                for argument in node.args[first : first + 2]
                if isinstance(argument, ast.Constant)
            ]
            # (A text that is put together only when the check runs is no constant.)
            words = [word for word in given if isinstance(word, str)]
            if given and len(words) == len(given):
                messages.append(str(CheckFailed(*words)))

    return messages or ["It ran longer than 120 seconds and was stopped."]
