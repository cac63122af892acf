"""Wrong answers as learners write them, for every exercise: what do the checks say of each?

In:  a lesson and a kind of mistake. Out: the lesson's notebook with that mistake in each answer, and the marks with their reasons.

    python tests/tools/wrong_answers.py 4                  # lesson 4: every kind, every message
    python tests/tools/wrong_answers.py --kinds number,raises
    python tests/tools/wrong_answers.py --spoiled          # answers that change their inputs: seen, not seen, nothing to change

A mistake is made in the solution's own functions, by its syntax tree: so each new exercise is covered without a word.
The notebook runs in a fork of a prepared process (`light_executor`), with the grader's cells round each check, as in `course check`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from light_executor import light_marks

from course_lib.grading.explained import HEAD
from course_lib.grading.generate import exercise_from
from course_lib.grading.marks import Mark
from course_lib.grading.notebooks import (
    BEGIN_SOLUTION,
    Lesson,
    Notebook,
    find_lesson,
    is_solution,
    lessons,
    read,
)

ROOT = Path(__file__).parents[2]
Function = ast.FunctionDef | ast.AsyncFunctionDef

# what two of the kinds below call: it stands at the head of the answer's cell
HELPERS = '''
def one_less(value):
    """The same with its last item gone, or one more, or the opposite."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (list, tuple, str)):
        return value[:-1]
    if isinstance(value, dict):
        return dict(list(value.items())[:-1])
    if isinstance(value, (set, frozenset)):
        return type(value)(list(value)[:-1])
    return value + 1


def spoil(*values):
    """Change what was given, where it can be changed; note that in the file that WRONG_ANSWERS_SPOILED names, if it does."""
    import os

    changed = [one for one in map(spoiled, values) if one]
    path = os.environ.get("WRONG_ANSWERS_SPOILED")
    if changed and path:
        with open(path, "a") as file:
            file.write(" ".join(changed) + "\\n")


def spoiled(value):
    """The kind of value that was changed in place; nothing for one that cannot be changed."""
    import collections

    import numpy as np
    import torch

    if isinstance(value, (list, dict, set, collections.deque)) and value:
        value.clear()
        return type(value).__name__
    if isinstance(value, torch.Tensor) and value.numel():
        if value.is_inference() or value.is_leaf and value.requires_grad:
            return ""
        with torch.no_grad():
            changed = value.logical_not_() if value.dtype == torch.bool else value.add_(1)
        return "Tensor" if changed is value else ""
    if isinstance(value, np.ndarray) and value.size and value.flags.writeable:
        value += 1
        return "array"
    inside = ()
    if isinstance(value, tuple):
        inside = value
    elif type(value).__module__.startswith(("course_lib", "__main__")):
        # a record or a stage's object: what its lists and dicts hold
        names = [*getattr(value, "__dict__", ()), *getattr(type(value), "__slots__", ())]
        parts = [getattr(value, name, None) for name in names]
        inside = [part for part in parts if isinstance(part, (list, dict, set))]
    return " ".join(one for one in map(spoiled, inside) if one)
'''


# ---- kinds of mistakes ----------------------------------------------------------------------------------------------


class Returns(ast.NodeTransformer):
    """Put something else in place of each `return` of one function, not of the functions inside it."""

    def __init__(self, change: Callable[[ast.expr], list[ast.stmt]]) -> None:
        self.change = change

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node

    def visit_Return(self, node: ast.Return) -> ast.stmt | list[ast.stmt]:
        return self.change(node.value) if node.value else node

    def inside(self, function: Function) -> None:
        function.body = [
            new for statement in function.body for new in as_list(self.visit(statement))
        ]


def as_list(found: ast.stmt | list[ast.stmt]) -> list[ast.stmt]:
    return found if isinstance(found, list) else [found]


def code(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def documented(function: Function) -> list[ast.stmt]:
    """Its docstring, if it has one."""
    return function.body[:1] if ast.get_docstring(function) else []


def returns_nothing(function: Function) -> None:
    function.body = [*documented(function), ast.Pass()]


def returns_text(function: Function) -> None:
    change_returns(function, lambda text: f"return str({text})")


def returns_number(function: Function) -> None:
    change_returns(function, lambda text: "return 3")


def returns_empty_list(function: Function) -> None:
    change_returns(function, lambda text: "return []")


def off_by_one(function: Function) -> None:
    change_returns(function, lambda text: f"return one_less({text})")


def wrong_sign(function: Function) -> None:
    change_returns(function, lambda text: f"return -({text})")


def prints(function: Function) -> None:
    """`print(answer)` where `return answer` is asked for."""
    change_returns(function, lambda text: f"print({text})\nreturn")


def raises(function: Function) -> None:
    function.body = [
        *documented(function),
        *code("sizes = []\nsmallest = min(sizes)\nreturn smallest"),
    ]


def mutates_its_input(function: Function) -> None:
    args = function.args
    more = [one for one in (args.vararg,) if one is not None]
    named = [*args.posonlyargs, *args.args, *args.kwonlyargs, *more]
    given = [one.arg for one in named if one.arg != "self"]
    if given:
        said = ", ".join(given)
        change_returns(function, lambda text: f"result = {text}\nspoil({said})\nreturn result")


def change_returns(function: Function, written: Callable[[str], str]) -> None:
    Returns(lambda value: code(written(ast.unparse(value)))).inside(function)


KINDS: dict[str, Callable[[Function], None]] = {
    "nothing": returns_nothing,
    "text": returns_text,
    "number": returns_number,
    "empty": returns_empty_list,
    "one less": off_by_one,
    "sign": wrong_sign,
    "prints": prints,
    "raises": raises,
    "mutates": mutates_its_input,
}


# ---- a lesson with a mistake in each answer -------------------------------------------------------------------------


def functions_to_write(source: str) -> list[tuple[int, int]]:
    """First and last line of each function that a learner writes."""
    marks = [n for n, line in enumerate(source.splitlines(), 1) if BEGIN_SOLUTION in line]
    found = set()
    for mark in marks:
        around = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, Function) and node.lineno <= mark <= (node.end_lineno or 0)
        ]
        if around:
            inner = max(around, key=lambda node: node.lineno)
            found.add((inner.lineno, inner.end_lineno or 0))
    return sorted(found)


def wrong(source: str, kind: str) -> str:
    """The answer's cell with this mistake in each function that a learner writes."""
    tree = ast.parse(source)
    places = functions_to_write(source)
    for node in ast.walk(tree):
        if isinstance(node, Function) and (node.lineno, node.end_lineno) in places:
            KINDS[kind](node)
            node.body = node.body or [ast.Pass()]
    text = ast.unparse(ast.fix_missing_locations(tree))
    return f"{HELPERS}\n\n{text}" if "one_less(" in text or "spoil(" in text else text


def with_mistakes(lesson: Lesson, kind: str, only: set[str] | None = None) -> Notebook:
    """The exercise as a learner hands it in, each answer with this mistake, or `only` those of these cells."""
    solution = read(lesson.solution)
    nb = copy.deepcopy(exercise_from(solution))
    answers = {cell.id: cell.source for cell in solution.cells if is_solution(cell)}
    for cell in nb.cells:
        if cell.id in answers:
            is_wrong = only is None or cell.id in only
            cell.source = wrong(answers[cell.id], kind) if is_wrong else answers[cell.id]
    return nb


def spoiled_by(lesson: Lesson) -> list[tuple[Mark, str]]:
    """For each answer, alone with the mistake `mutates`: its mark, and what of its inputs was changed ("" for nothing).

    One answer at a time: an input that one answer spoils must not fail the checks of another.
    """
    solution = read(lesson.solution)
    answers = [cell.id for cell in solution.cells if is_solution(cell)]
    found = []
    for place, answer in enumerate(answers):
        with tempfile.NamedTemporaryFile("r", suffix=".spoiled") as file:
            os.environ["WRONG_ANSWERS_SPOILED"] = file.name
            marks = light_marks(with_mistakes(lesson, "mutates", {answer}), solution)
            found.append((marks[place], " ".join(sorted(set(file.read().split())))))
    return found


def marks_for(lesson: Lesson, kind: str) -> list[Mark]:
    return light_marks(with_mistakes(lesson, kind), read(lesson.solution))


# ---- what a learner reads -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What the checks of one exercise say of one mistake."""

    lesson: str
    exercise: str
    kind: str
    reason: str
    full: bool

    @property
    def is_bare(self) -> bool:
        """It does not tell what was looked at, or no line of the answer."""
        is_told = any(head in self.reason for head in ("What:", HEAD))
        has_line = any(head in self.reason for head in ("Line:", "the error came from"))
        return not self.full and not (is_told and has_line)


def said_of(lesson: Lesson, kind: str) -> list[Said]:
    return [
        Said(lesson.name, mark.grade_id, kind, mark.reason, mark.full)
        for mark in marks_for(lesson, kind)
    ]


def tell_spoiled(asked: list[Lesson]) -> int:
    """A line for each answer; the number of those that change an input and have all points."""
    unseen = 0
    for lesson in asked:
        for mark, changed in spoiled_by(lesson):
            seen = "changes nothing" if not changed else "NOT SEEN" if mark.full else "seen"
            unseen += seen == "NOT SEEN"
            print(f"{seen:<16}{lesson.name} {mark.grade_id} {changed}")
            if seen == "seen":
                print("".join(f"     {line}\n" for line in mark.reason.strip().splitlines()))
            sys.stdout.flush()
    return unseen


def main(arguments: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("lesson", nargs="*")
    options.add_argument("--kinds", default=",".join(KINDS))
    options.add_argument("--spoiled", action="store_true")
    chosen = options.parse_args(arguments)

    all_lessons = lessons(ROOT)
    asked = [find_lesson(ROOT, one) for one in chosen.lesson] or all_lessons
    if chosen.spoiled:
        return tell_spoiled(asked)

    bare = 0
    for lesson in asked:
        for kind in chosen.kinds.split(","):
            for said in said_of(lesson, kind):
                bare += said.is_bare
                head = "BARE" if said.is_bare else "full" if said.full else "----"
                print(f"{head} {lesson.name} {said.exercise} / {kind}")
                print(
                    "".join(f"     {line}\n" for line in said.reason.strip().splitlines()),
                    flush=True,
                )
    print(f"{bare} bare messages")
    return int(bare > 0)


if __name__ == "__main__":
    sys.exit(main())
