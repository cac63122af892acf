"""Every message that the checks of the exercises can give: a table to read as a learner would.

In:  the solutions, visible and hidden checks. Out: a row for each call of a check (exercise, line, hidden or not, What, Why,
whether it shows Expected and Got), and complaints about rows that cannot be understood.

    python tests/tools/messages_of_checks.py            # the table
    python tests/tools/messages_of_checks.py 4 --bad    # lesson 4: only what is complained about

What a check says of a wrong answer in practice, `wrong_answers.py` shows; it drives the same checks.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib.grading.notebooks import (
    BEGIN_HIDDEN,
    END_HIDDEN,
    Lesson,
    find_lesson,
    grading_metadata,
    is_checks,
    lessons,
    read,
)

ROOT = Path(__file__).parents[2]

# the place of `what` and `why` among the arguments of each check, and how many more say what was expected and came
PLACES = {
    "check": (1, 2),
    "check_equal": (2, 3),
    "check_close": (2, 3),
    "check_runs": (1, 2),
    "check_graphs": (2, 3),
}
BARE = ("assert_close", "assert_equal", "allclose_or_raise")


@dataclass(frozen=True)
class Message:
    """One call of a check."""

    lesson: str
    exercise: str
    line: int
    hidden: bool
    check: str
    what: str
    why: str
    shows_values: bool

    @property
    def complaint(self) -> str:
        """What a learner could not understand, or ""."""
        if self.check == "assert":
            return "a bare assert: nothing is said but AssertionError"
        if self.check in BARE:
            return "torch's own words, without the input"
        if self.check == "check_keeps":
            return ""
        if not self.what.strip('"'):
            return "it does not say what was looked at"
        if not self.shows_values and not self.why:
            return "neither what came nor why it matters"
        return ""

    def __str__(self) -> str:
        place = f"{self.lesson} {self.exercise}:{self.line}{' hidden' if self.hidden else ''}"
        return f"{place} | {self.check} | {self.what} | {self.why}"


def messages(lesson: Lesson) -> Iterator[Message]:
    """Those of one lesson, in order."""
    for cell in read(lesson.solution).cells:
        if is_checks(cell):
            name = grading_metadata(cell)["grade_id"]
            yield from messages_of(lesson.name, name, cell.source)


def messages_of(lesson: str, exercise: str, source: str) -> Iterator[Message]:
    """Those of one checks cell."""
    hidden = hidden_lines(source)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assert):
            yield Message(
                lesson, exercise, node.lineno, node.lineno in hidden, "assert", "", "", False
            )
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in PLACES or name in BARE or name == "check_keeps":
                yield message_of(lesson, exercise, node, name, node.lineno in hidden)


def message_of(lesson: str, exercise: str, call: ast.Call, name: str, hidden: bool) -> Message:
    what_at, why_at = PLACES.get(name, (len(call.args), len(call.args)))
    named = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    given = [ast.unparse(one) for one in call.args]
    what = given[what_at] if len(given) > what_at else named.get("what", "")
    why = given[why_at] if len(given) > why_at else named.get("why", "")
    # all but `check` itself show both values
    shows = name != "check" or len(given) > why_at + 2 or "got" in named
    return Message(lesson, exercise, call.lineno, hidden, name, what, why.strip("'\""), shows)


def hidden_lines(source: str) -> set[int]:
    found: set[int] = set()
    inside = False
    for number, line in enumerate(source.splitlines(), 1):
        inside = (inside or BEGIN_HIDDEN in line) and END_HIDDEN not in line
        if inside:
            found.add(number)
    return found


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("lesson", nargs="*")
    options.add_argument("--bad", action="store_true", help="only rows with a complaint")
    chosen = options.parse_args(arguments)

    asked = [find_lesson(ROOT, one) for one in chosen.lesson] or lessons(ROOT)
    count = bad = 0
    for lesson in asked:
        for message in messages(lesson):
            count += 1
            bad += bool(message.complaint)
            if message.complaint or not chosen.bad:
                print(message, f" <-- {message.complaint}" if message.complaint else "")
    print(f"{count} messages, {bad} complaints")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
