"""The notebook that is marked: the course's, with the learner's answers and the learner's own cells
in it.

In:  the learner's notebook as `reader` gives it, and the reference (a solution, or an exercise;
     checks with hidden tests or not).
Out: the reference's notebook in which each code cell has `metadata.marking`:

    role       "given" or "checks": the course's; "answer" or "own": the learner's
    number     the learner's cell that it comes from, counted from 1 (0: from none)
    part_of    for an answer: its grade id
    missing    for an answer: there is no cell for it
    stub       for an answer: what the exercise says there
    in_given   for an own cell: lines that the learner added to a cell of the course

Given cells and checks are always the course's. No code of the learner is dropped: what was added to
a cell of the course runs beside it, every part of a split answer counts, and cells of the learner
stay where they were between the course's.
PyTorch has no counterpart. nbgrader's autograde takes the learner's file and overwrites the checks
in it.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell

from .cell_ids import with_names
from .names import bound, is_whole, statements, tree_of
from .notebooks import (
    BEGIN_HIDDEN,
    BEGIN_SOLUTION,
    END_HIDDEN,
    END_SOLUTION,
    Cell,
    Notebook,
    grading_metadata,
    is_checks,
    is_solution,
)

COURSE = ("given", "checks")  # roles of cells that are the course's
STUB = "raise NotImplementedError('Exercise: write this part, then run the cell again.')"
NO_ANSWER = "raise NotImplementedError('Exercise: the cell for this answer is not there any more.')"
"""What runs in place of an answer that was deleted."""

_STUB_LINE = re.compile(r"raise NotImplementedError\(['\"]Exercise:")


@dataclass
class Found:
    """A cell of the learner's, and the id of the reference's cell that it stands for (None: it is
    the learner's own)."""

    number: int
    cell: Cell
    key: str | None = None

    @property
    def code(self) -> bool:
        return bool(self.cell.cell_type == "code")


def assembled(learners: Notebook, reference: Notebook) -> Notebook:
    """The reference with the learner's answers and own cells in it."""
    # Ids that count cells, of exercises that were handed out before, get today's names.
    matched_cells = matched(with_names(learners), reference)
    own_cells = placed(matched_cells, reference)

    cells = list(own_cells.get("", []))
    for cell in reference.cells:
        key = key_of(cell)
        learners_cells = [item for item in matched_cells if item.key == key]
        added = additions(learners_cells, cell)

        # What the learner added to given code may use it, so it runs after it. What was added to
        # checks is there to be checked, so it runs before them. An answer takes it in by itself.
        if is_solution(cell):
            cells += answer_cells(learners_cells, cell)
        elif is_checks(cell):
            cells += [*added, with_role(cell, "checks")]
        else:
            cells += [with_role(cell, "given"), *added]
        cells += own_cells.get(key, [])
    give_own_ids(cells)
    return nbformat.from_dict({**reference, "cells": cells})


def key_of(cell: Cell) -> str:
    """What a cell of the reference is known by: its name for grading, else its id."""
    return str(grading_metadata(cell).get("grade_id") or cell.get("id") or "")


def with_role(cell: Cell, role: str, **more: Any) -> Cell:
    """A copy of a cell with what is noted of it (the table above): it comes from no cell of the
    learner's, unless `more` says from which."""
    new = copy.deepcopy(cell)
    new.metadata["marking"] = {"role": role, "number": 0, **more}
    return new


def marking(cell: Cell) -> dict[str, Any]:
    """What `assembled` noted of a cell; nothing for a cell of another notebook."""
    return dict(cell.metadata.get("marking") or {})


def role_of(cell: Cell) -> str:
    """What `assembled` noted; for a notebook as it stands, what the metadata says."""
    guess = "checks" if is_checks(cell) else "answer" if is_solution(cell) else "given"
    return str(marking(cell).get("role", guess))


def own_cell(source: str, number: int, **more: Any) -> Cell:
    """Code of the learner's own, from the learner's cell of this number."""
    return with_role(new_code_cell(source), "own", **(more | {"number": number}))


def give_own_ids(cells: list[Cell]) -> None:
    """The learner's own cells get ids that depend on the notebook alone."""
    used_ids = {cell.get("id") for cell in cells if marking(cell)["role"] in COURSE}
    for cell in cells:
        cell_marking = marking(cell)
        # An answer has its id from the course. Where it was split, its second part has the same
        # one.
        if cell_marking["role"] == "own" or (
            cell_marking["role"] == "answer" and cell.id in used_ids
        ):
            name = f"own-{cell_marking['number']}"
            n = 1
            while name in used_ids:
                name = f"own-{cell_marking['number']}-{n}"
                n += 1
            cell.id = name

        used_ids.add(cell.get("id"))


# ---- which cell is which -------------------------------------------------------------------------


def matched(learners: Notebook, reference: Notebook) -> list[Found]:
    """Each cell of the learner's with the reference's cell that it stands for: by grade id, id,
    text, or what it defines."""
    matched_cells = [Found(number, cell) for number, cell in enumerate(learners.cells, 1)]
    graded = {key_of(cell) for cell in reference.cells if grading_metadata(cell)}
    by_id = {str(cell.get("id")): key_of(cell) for cell in reference.cells}
    # (Reversed, so that of two cells with one text the first is found.)
    by_text = {as_text(cell): key_of(cell) for cell in reversed(reference.cells) if as_text(cell)}

    for item in matched_cells:
        name = grading_metadata(item.cell).get("grade_id")
        item.key = name if name in graded else by_id.get(str(item.cell.get("id")))
    for item in matched_cells:
        item.key = item.key or by_text.get(as_text(item.cell))

    # An answer whose cell lost its metadata, or was deleted and written in a new cell
    matched_keys = {item.key for item in matched_cells}
    for cell in reference.cells:
        if is_solution(cell) and key_of(cell) not in matched_keys:
            match_by_definition(matched_cells, cell)
    return matched_cells


def match_by_definition(matched_cells: list[Found], answer: Cell) -> None:
    """Find the learner's cells for an answer by what they define.

    Such a cell stands for no cell of the course so far, and defines one of the names that the
    answer is to define."""
    defined_by_stub = bound(stubbed(answer.source)).defined
    for item in matched_cells:
        if item.key is None and item.code and defined_by_stub & bound(item.cell.source).defined:
            item.key = key_of(answer)


def as_text(cell: Cell) -> str:
    """The cell's text without hidden tests, blanks and answers: what a learner sees of it."""
    shown = _without(stubbed(cell.source), BEGIN_HIDDEN, END_HIDDEN)
    return "\n".join(line.rstrip() for line in shown.strip().splitlines())


def stubbed(source: str) -> str:
    """The text of an answer's cell as the exercise has it: each marked solution is one line that
    raises."""
    lines: list[str] = []
    in_solution = False

    for line in source.split("\n"):
        if BEGIN_SOLUTION in line:
            in_solution = True
            lines.append(line[: len(line) - len(line.lstrip())] + STUB)
        elif END_SOLUTION in line:
            in_solution = False
        elif not in_solution:
            lines.append(line)

    return "\n".join(lines)


def _without(source: str, begin: str, end: str) -> str:
    """The text without what stands from a line with `begin` to one with `end`."""
    lines: list[str] = []
    in_region = False
    for line in source.split("\n"):
        in_region = in_region or begin in line
        if not in_region:
            lines.append(line)
        in_region = in_region and end not in line
    return "\n".join(lines)


# ---- the learner's own cells ---------------------------------------------------------------------


def placed(matched_cells: list[Found], reference: Notebook) -> dict[str, list[Cell]]:
    """The learner's own code cells by the key of the reference's cell that they come after ("":
    first of all).

    A cell stays after the course's cell before it. Where a newer reference has that one further
    down, it stays before the course's cell that came next.
    """
    order = {key_of(cell): place for place, cell in enumerate(reference.cells)}
    keys = ["", *(key_of(cell) for cell in reference.cells)]
    own_cells: dict[str, list[Cell]] = {}
    key_before = ""
    for n, item in enumerate(matched_cells):
        if item.key is not None:
            key_before = item.key
            # A cell of the course's is no own cell; but code in what was a cell of prose is.
            if not item.code or not is_prose(reference.cells[order[item.key]]):
                continue
        if not item.code or not item.cell.source.strip():
            continue
        behind = next((other.key for other in matched_cells[n + 1 :] if other.key), None)
        home = key_before
        # The course's cells before and behind it have changed places since: it goes before
        # `behind`, that is, after the cell before that. (`keys` begins with "", so its place is
        # one less.)
        if (
            behind is not None
            and order.get(key_before, -1) >= order[behind]
            and key_before != behind
        ):
            home = keys[order[behind]]
        own_cells.setdefault(home, []).append(own_cell(item.cell.source, item.number))
    return own_cells


def is_prose(cell: Cell) -> bool:
    """Is it text of the course? (A question that is answered in words has metadata for grading.)"""
    return bool(cell.cell_type != "code") and not grading_metadata(cell)


def additions(learners_cells: list[Found], cell: Cell) -> list[Cell]:
    """What the learner added to a cell of the course, as cells of the learner's own."""
    if cell.cell_type != "code" or is_solution(cell):
        return []
    added_cells: list[Cell] = []
    for item in learners_cells:
        for source in added_code(item.cell.source, cell):
            added_cells.append(own_cell(source, item.number, in_given=key_of(cell)))
    return added_cells


def added_code(source: str, cell: Cell) -> list[str]:
    """Each statement that the learner added: none costs the others.

    The statements of `source` that the course's cell has not. Of checks, only what defines or
    imports names of its own.
    """
    if tree_of(source) is None:
        # It is no Python as it stands: the lines that the course has not may be fine alone.
        ours_by_line = {line.strip() for line in cell.source.splitlines()}
        lines = [line for line in source.splitlines() if line.strip() not in ours_by_line]
        new = "\n".join(lines)
        if tree_of(new) is not None and not is_checks(cell):
            return [new]
        return []

    # Compared without comments and spacing
    ours = statements(cell.source)
    new_ones = [text for meaning, text in statements(source).items() if meaning not in ours]

    # In a cell of checks nothing of the learner's may take a name that the checks use.
    if is_checks(cell):
        bound_names = bound(cell.source).names
        new_ones = [text for text in new_ones if binds_only_new(text, bound_names)]
    return new_ones


def binds_only_new(statement: str, taken: set[str]) -> bool:
    """Whether it is an import, a function or a class under a name that is not in `taken`."""
    names = bound(statement)
    return bool(names.defined or names.star) and not names.names & taken


# ---- answers -------------------------------------------------------------------------------------


def answer_cells(learners_cells: list[Found], cell: Cell) -> list[Cell]:
    """The cells of one answer: as many as the learner made of it, or one that says that it is not
    there."""
    marking_of_answer = {
        "part_of": key_of(cell),
        "stub": stubbed(cell.source),
        "missing": not learners_cells,
    }
    if not learners_cells:
        new = with_role(cell, "answer", **marking_of_answer)
        new.source = NO_ANSWER
        return [new]

    cells: list[Cell] = []
    for number, source in parts([(item.number, item.cell.source) for item in learners_cells]):
        new = with_role(cell, "answer", **(marking_of_answer | {"number": number}))
        new.source = source
        cells.append(new)
    return cells


def parts(sources: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The parts of an answer that count, in order, each with the number of its cell.

    JupyterLab's Split Cell and copies keep the grade id. A stub that was kept beside the answer
    does not count, for it would take the answer's name. Halves that are no Python alone are one
    again.
    """
    pieces = [(number, source) for number, source in sources if source.strip()]

    # A stub stays if no other piece gives it a name: then it is what the learner has so far.
    written_sources = [source for _, source in pieces if not _STUB_LINE.search(source)]
    names_bound = {name for source in written_sources for name in bound(source).names}
    pieces = [
        (number, source)
        for number, source in pieces
        if not _STUB_LINE.search(source)
        or not names_bound
        or not bound(source).defined <= names_bound
    ]
    if not pieces:  # all are empty
        return sources[:1]

    # Each half may be no Python while the whole is: the cell was split within a function.
    whole = "\n".join(source for _, source in pieces)
    apart = all(is_whole(source) for _, source in pieces)
    if len(pieces) > 1 and not apart and is_whole(whole):
        return [(pieces[0][0], whole)]
    return pieces
