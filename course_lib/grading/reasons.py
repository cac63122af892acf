"""Why an exercise has no points: one sentence that names the cause.

In:  the notebook that ran, how each cell ended, and a checks cell that failed. Out: the reason for
     the learner.

`RULES` is an ordered table: the first rule that has something to say gives the reason. A check's
own What, Why, Expected and Got comes first; a limit that was passed next; then what is wrong with
the cell of the answer; then names; last, the error as it is.
PyTorch has no counterpart. nbgrader shows the traceback.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from course_lib.languages import phrase

from .assembling import COURSE, marking, role_of
from .explained import CAME_FROM, ERROR_IN, HEAD
from .line_of_answer import in_both, line_of_the_answer
from .names import bound, tree_of
from .notebooks import Notebook
from .runner import CellRun, Limits

LONGEST = 4000
"""Letters of a reason."""

LONGEST_ERROR = 600
"""Of these, the error's own: a tensor among its words would leave no room for the rest."""

_LONGEST_LINE = 60
"""Letters of a line of the learner's that is quoted within a sentence."""

OVER_A_LIMIT = {
    "time": "It ran longer than {seconds} seconds and was stopped. Is there a loop that never ends?",
    "memory": "It used more than {memory} GiB of memory and was stopped.",
    "processes": "It started more than {processes} processes and was stopped.",
    "files": "It wrote more than {folder} GiB of files, or nested folders without end, and was stopped.",
    "output": "It printed more than {printed} MiB and was stopped.",
    "died": "The Python process crashed while this ran.",
    "not reached": "It was not run: earlier cells took all {total} seconds, or ended the process too often.",
}

# a line of a traceback that is marked: `---> 5     return sum(x)`
_ARROW = re.compile(r"^-+> *(\d+) ?(.*)$")
_FRAME = re.compile(r"^(Cell In|File |<)")
_NOT_DEFINED = re.compile(r"name '(\w+)' is not defined")


def how_it_ended(run: CellRun, limits: Limits) -> str:
    """The limit that a cell passed, or its error."""
    if run.outcome in OVER_A_LIMIT:
        return phrase(
            OVER_A_LIMIT[run.outcome],
            seconds=f"{limits.cell_seconds:g}",
            total=f"{limits.total_seconds:g}",
            memory=f"{limits.memory_bytes / 2**30:g}",
            folder=f"{limits.folder_bytes / 2**30:g}",
            printed=f"{limits.output_bytes / 2**20:g}",
            processes=limits.processes,
        )
    error_text = f"{run.ename}: {run.evalue}" if run.evalue else run.ename
    return shortened(error_text)


def shortened(message: str) -> str:
    """The message as far as a reason may go."""
    if len(message) <= LONGEST:
        return message
    return f"{message[:LONGEST]} …"


def reason(case: Case) -> str:
    """What the first rule says that has something to say."""
    return next(sentence for rule in RULES if (sentence := rule(case)))


@dataclass(frozen=True)
class Case:
    """Checks that failed.

    `shadows`: names of Python or the course → the learner's cell that took them. `beside`:
    files."""

    nb: Notebook
    index: int
    runs: dict[int, CellRun]
    limits: Limits
    shadows: dict[str, int] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()

    @property
    def run(self) -> CellRun:
        return self.runs[self.index]

    @cached_property
    def answers(self) -> list[int]:
        """The cells of the answer: those between the checks before and these."""
        answer_cells: list[int] = []
        for index in range(self.index - 1, -1, -1):
            role = role_of(self.nb.cells[index])
            if role == "checks":
                break
            if role == "answer":
                answer_cells.insert(0, index)
        return answer_cells

    @cached_property
    def culprit(self) -> CellRun:
        """The run that failed first in this exercise, if these checks failed for a name that it
        should have bound; else these."""
        if self.run.ename != "NameError":
            return self.run
        start = self.answers[0] if self.answers else self.index
        runs_before = [self.runs[n] for n in range(start, self.index) if n in self.runs]
        failed = [
            run for run in runs_before if not run.ok and role_of(self.nb.cells[run.index]) != "own"
        ]
        if failed:
            return failed[0]
        return self.run

    def line(self, message: str) -> str:
        """The line of the answer that gave the value which this message is about."""
        return line_of_the_answer(message, [self.nb.cells[index] for index in self.answers])

    def learners(self) -> Iterator[tuple[int, Any]]:
        """The learner's code cells with their places."""
        for index, cell in enumerate(self.nb.cells):
            if cell.cell_type == "code" and role_of(cell) not in COURSE:
                yield index, cell


# ---- rules ---------------------------------------------------------------------------------------


def check_failed(case: Case) -> str:
    """What the check says itself, and the line of the answer that gave the value."""
    if case.run.ename != "CheckFailed":
        return ""
    message = case.run.evalue
    if any(words in message for words in in_both(ERROR_IN)):
        return shortened(message)
    return shortened(message) + case.line(message)


def limit_passed(case: Case) -> str:
    """The limit that stopped the checks cell itself."""
    if case.run.outcome in OVER_A_LIMIT:
        return how_it_ended(case.run, case.limits)
    return ""


def answer_is_gone(case: Case) -> str:
    """The cell was deleted, or it is empty."""
    if case.run.ename not in ("NameError", "NotImplementedError"):
        return ""
    for index in case.answers:
        cell_marking = marking(case.nb.cells[index])
        name = f"`{cell_marking.get('part_of', '')}`"
        if cell_marking.get("missing"):
            return phrase(
                "The cell of the answer {name} is not there: it was deleted. "
                "`course update` brings the cell back, and `course undo` an earlier version of the file.",
                name=name,
            )
        if not case.nb.cells[index].source.strip():
            return phrase("The cell of the answer {name} is empty.", name=name)

    return ""


def stub(case: Case) -> str:
    """The line that the exercise has in place of an answer: all that is there, or left below an
    answer."""
    run = case.run
    if run.ename != "NotImplementedError":
        return ""
    at = [(int(n), text) for n, text in arrows(run) if "NotImplementedError" in text]
    if not at:
        if run.evalue.startswith("Exercise:"):
            return phrase("Not written yet.")
        return ""
    line, text = at[-1]

    for index in dict.fromkeys([*case.answers, *(n for n, _ in case.learners())]):
        cell = case.nb.cells[index]
        lines = cell.source.split("\n")
        if line <= len(lines) and lines[line - 1].strip() == text.strip():
            if is_untouched(cell.source, marking(cell).get("stub", ""), line):
                return phrase("Not written yet.")
            return phrase(
                "`{line}` still stands below the answer, in line {n} of its cell: delete that line.",
                line=text.strip(),
                n=line,
            )

    return phrase("Not written yet.")


def is_untouched(source: str, stub_source: str, line: int) -> bool:
    """Whether the function around this line says what it says in the exercise."""
    if source.strip() == stub_source.strip():
        return True
    learners_tree, stub_tree = tree_of(source), tree_of(stub_source)
    nodes = list(ast.walk(learners_tree)) if learners_tree else []
    functions = [n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [n for n in functions if n.lineno <= line <= (n.end_lineno or 0)]
    if stub_tree:
        handed_out = {ast.dump(node) for node in ast.walk(stub_tree)}
    else:
        handed_out = set()
    if not around:
        return False

    return ast.dump(around[-1]) in handed_out or all(_says_nothing(n) for n in around[-1].body)


def _says_nothing(node: ast.stmt) -> bool:
    """A docstring, `pass`, `...` or a `raise`: no answer."""
    constant = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return constant or isinstance(node, ast.Pass | ast.Raise)


def name_of_the_answer(case: Case) -> str:
    """The checks ask for a name that the cell of the answer does not give."""
    name = missing_name(case.run)
    if not name or (not case.culprit.ok and case.culprit is not case.run):
        return ""

    for index in case.answers:
        cell = case.nb.cells[index]
        names_of_stub = bound(marking(cell).get("stub", "")).names
        names_of_answer = union_of(case, index)
        if name in names_of_stub and name not in names_of_answer:
            missing = phrase(
                "The cell of the answer does not define `{name}`, which the checks call.", name=name
            )
            others = sorted(bound(cell.source).defined - names_of_stub)
            if others:
                missing += phrase(" It defines `{other}`: was it renamed?", other=others[0])
            return missing

    return ""


def union_of(case: Case, index: int) -> set[str]:
    """All names that the cells of one answer bind."""
    part = marking(case.nb.cells[index]).get("part_of")
    cells = [case.nb.cells[n] for n in case.answers]
    cells_of_answer = [cell for cell in cells if marking(cell).get("part_of") == part]
    return {name for cell in cells_of_answer for name in bound(cell.source).names}


def further_down(case: Case) -> str:
    """A name that the learner binds, but in a later cell."""
    run = case.culprit
    name = missing_name(run)
    if not name:
        return ""

    for index, cell in case.learners():
        if name not in bound(cell.source).names:
            continue
        number = marking(cell).get("number")
        if index > run.index:
            return phrase(
                "`{name}` is defined further down, in cell {n}: move that cell up, before its use.",
                name=name,
                n=number,
            )
        run_of_cell = case.runs.get(index)
        if run_of_cell is not None and not run_of_cell.ok and index != run.index:
            return phrase(
                "`{name}` is missing, for cell {n} did not finish: {error}",
                name=name,
                n=number,
                error=how_it_ended(run_of_cell, case.limits),
            )

    return ""


def hidden_name(case: Case) -> str:
    """An error in a line that reads a name of Python or of the course which the learner took."""
    run = case.culprit
    if run.outcome != "error" or not case.shadows:
        return ""
    words: set[str] = set()

    for _, text in arrows(run)[::-1]:
        words = set(re.findall(r"\w+", text)) & case.shadows.keys()
        if words:
            break

    for name in sorted(words):
        if owner_text := whose(case, name):
            return f"{how_it_ended(run, case.limits)}. {owner_text}"

    return ""


def whose(case: Case, name: str) -> str:
    """`sum` is your variable from cell 7."""
    number = case.shadows[name]
    for _, cell in case.learners():
        if marking(cell).get("number") != number:
            continue
        names = bound(cell.source)
        if name in names.names:
            line = names.lines.get(name, "")
            if line.startswith(("def ", "async def ")):
                owned = "`{name}` is your function from cell {n} (`{line}`): give it another name."
            else:
                owned = "`{name}` is your variable from cell {n} (`{line}`): give it another name."
            return phrase(owned, name=name, n=number, line=line[:_LONGEST_LINE])
        if names.star:
            lines = ", ".join(f"`from {module} import *`" for module in names.star)
            return phrase(
                "`{name}` is not Python's or the course's any more: {lines} in cell {n} took it.",
                name=name,
                lines=lines,
                n=number,
            )
        return phrase(
            "`{name}` is your variable from cell {n}: give it another name.", name=name, n=number
        )

    return ""


def cell_above(case: Case) -> str:
    """The cell of the answer, or a cell of the course that needs it, did not finish."""
    run = case.culprit
    if run is case.run:
        return ""
    error = how_it_ended(run, case.limits)
    return phrase("The cell above it did not finish: {error}", error=error)


def file_beside(case: Case) -> str:
    """Marking runs the notebook alone; the file is beside it."""
    run = case.culprit
    missing = re.search(r"No module named '(\w+)|directory: '([^']+)'", run.evalue)
    if not missing:
        return ""
    name = missing[1] or missing[2]
    if {name, f"{name}.py", Path(name).parts[0]} & case.beside:
        return phrase(
            "{error}. `{name}` lies beside your notebook, but the notebook "
            "is marked alone, here and by `course grade`: put what it needs into a cell.",
            error=how_it_ended(run, case.limits),
            name=name,
        )

    return ""


def what_the_check_did(case: Case) -> str:
    """The error, and the note that `explained` put on it: the answer's line, the input, what came
    back."""
    run = case.run
    head = next((head for head in in_both(HEAD)[::-1] if head in run.traceback), "")
    if not head:
        return ""
    note = run.traceback.rpartition(head)[2].rstrip()

    # where the answer raised, the note names its line; else the source does
    ended = how_it_ended(run, case.limits)[:LONGEST_ERROR]
    line = "" if any(words in note for words in in_both(CAME_FROM)) else case.line(note)
    return shortened(f"{ended}\n{head}{note}{line}")


def as_it_ended(case: Case) -> str:
    """The error as it is: the rule that always has something to say."""
    return how_it_ended(case.run, case.limits) or phrase("It failed without a word.")


# ---- tracebacks ----------------------------------------------------------------------------------


def missing_name(run: CellRun) -> str:
    """The name that a NameError speaks of; '' for another error."""
    match = None
    if run.ename == "NameError":
        match = _NOT_DEFINED.search(run.evalue)
    if match:
        return match[1]
    return ""


def arrows(run: CellRun) -> list[tuple[str, str]]:
    """The marked lines of a traceback that stand in cells, outermost first: number and text."""
    marked_lines: list[tuple[str, str]] = []
    in_cell = False
    for line in run.traceback.splitlines():
        if _FRAME.match(line):
            in_cell = line.startswith("Cell In")
        elif in_cell and (arrow := _ARROW.match(line)):
            marked_lines.append((arrow[1], arrow[2]))
    return marked_lines


RULES: tuple[Callable[[Case], str], ...] = (
    check_failed,
    limit_passed,
    answer_is_gone,
    stub,
    name_of_the_answer,
    further_down,
    hidden_name,
    file_beside,
    cell_above,
    what_the_check_did,
    as_it_ended,
)
