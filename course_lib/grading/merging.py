"""A learner's copy and a newer exercise, put together cell by cell.

In:  three notebooks: `base`, the exercise that the copy was made from (None if it is not known),
`theirs`, the exercise of today, and `mine`, the learner's copy. Out: a `Merged`: the notebook, and
what was done, in sentences.

Cells are paired by their names (`cell_ids`, `pairing`). The order is that of the new exercise. Then
each kind has its rule:

    an answer             the learner's stays, letter by letter; one that is still the stub becomes
                          the new stub
    checks                the course's
    other course cells    the side that changed since `base`; if both did, their lines are merged,
                          or see below
    cells of the learner  stay, behind the cell that they stood behind

What cannot be merged is kept beside: a marked text cell below holds it.
docs/design/learners-copy.md says why this is not nbdime's.
"""

from __future__ import annotations

import copy
import re
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
from nbformat.v4 import new_markdown_cell

from .cell_ids import with_names
from .generate import is_stub
from .notebooks import Cell, Notebook, grading_metadata, is_checks, is_solution
from .pairing import Pairs, pairs

KEPT = "course-kept"  # the tag of a cell that holds what could not be merged
LONGEST_ID = 60  # letters: nbformat allows 64, and a number may be added


@dataclass
class Merged:
    """The merged notebook, and the names of the course's cells by what became of each.

    changed: the course has another text. new: not in the copy's exercise. back: the learner had
    deleted it. gone: no cell of the course any more. answers: the learner's answer stays. said:
    sentences about what needs the learner."""

    nb: Notebook
    changed: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    back: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


def merge(base: Notebook | None, theirs: Notebook, mine: Notebook) -> Merged:
    """Put the learner's copy and the new exercise together."""
    # Old copies have cells with counting ids; `theirs` is of today and has names.
    mine = with_names(mine)
    base = with_names(base) if base is not None else None
    work = _Merge(base, theirs, mine)
    # None: the learner's cells that stand above the first cell of the course
    cells = list(work.own_cells(None))
    for cell in theirs.cells:
        cells += work.course_cell(cell)
        cells += work.own_cells(cell.id)

    # The next merge finds the course's cells by their ids, so these keep theirs.
    _make_ids_unique(cells, course_ids={cell.id for cell in theirs.cells})

    # Cells have ids from format 4.5 on; an older copy becomes one of that format.
    merged = work.merged
    merged.nb = nbformat.from_dict({**mine, "cells": cells, "nbformat": 4, "nbformat_minor": 5})

    # It names the exercise that the copy is made from now: the base of the next merge.
    if "course" in theirs.metadata:
        merged.nb.metadata["course"] = copy.deepcopy(theirs.metadata["course"])
    return merged


class _Merge:
    """One merge: what is paired with what, and what was said so far."""

    def __init__(self, base: Notebook | None, theirs: Notebook, mine: Notebook) -> None:
        self.base = {cell.id: cell for cell in base.cells} if base is not None else {}
        self.theirs = {cell.id: cell for cell in theirs.cells}
        self.found: Pairs = pairs(mine.cells, self.base, self.theirs)
        # What the copy says already: a version that an earlier merge kept is not put in again
        self.texts = {cell.source for cell in mine.cells}
        # What is said is added to it; the notebook in it is replaced at the end
        self.merged = Merged(mine)

    # ---- cells of the course

    def course_cell(self, new: Cell) -> list[Cell]:
        """What stands in the place of this cell of the new exercise."""
        old, learners_cell = self.base.get(new.id), self.found.course.get(new.id)
        if learners_cell is None:
            return self._without_mine(old, new)
        if is_solution(new):
            return self._answer(old, new, learners_cell)
        if learners_cell.source == new.source:
            return [_dressed(learners_cell, new)]
        if is_checks(new):
            return self._checks(old, new, learners_cell)

        return self._given(old, new, learners_cell)

    def _without_mine(self, old: Cell | None, new: Cell) -> list[Cell]:
        """The cell is new, or the learner deleted it. Prose that did not change stays deleted."""
        if old is None:
            self.merged.new.append(new.id)
        elif new.cell_type != "code" and not grading_metadata(new) and old.source == new.source:
            return []
        else:
            self.merged.back.append(new.id)
        return [copy.deepcopy(new)]

    def _answer(self, old: Cell | None, new: Cell, mine: Cell) -> list[Cell]:
        """The cell of an answer.

        `old`: the same in the copy's exercise, None if that is not known."""
        # Nothing is written in it: it is the stub, and becomes the new stub.
        if mine.source == (old or new).source:
            if mine.source != new.source:
                self.merged.changed.append(new.id)
                return [copy.deepcopy(new)]
            return [_dressed(mine, new)]

        self.merged.answers.append(new.id)
        learners_cell = _dressed(mine, new)
        # Has the course given another stub? Without the old one nobody knows, and a whole answer
        # needs none.
        if new.source == (old or mine).source or (old is None and not is_stub(mine)):
            return [learners_cell]
        self.merged.changed.append(new.id)

        return [
            learners_cell,
            *self._beside(new, "what the course now gives for the answer above", "your"),
        ]

    def _checks(self, old: Cell | None, new: Cell, mine: Cell) -> list[Cell]:
        """Checks: the course's. What the learner wrote into them is kept below."""
        self.merged.changed.append(new.id)
        fresh = copy.deepcopy(new)
        if old is not None and mine.source == old.source:
            return [fresh]
        return [fresh, *self._beside(mine, "your version of the checks above", "the course's")]

    def _given(self, old: Cell | None, new: Cell, mine: Cell) -> list[Cell]:
        """Text, or code that the course gives."""
        if old is not None and new.source == old.source:
            return [_dressed(mine, new)]
        self.merged.changed.append(new.id)
        fresh = copy.deepcopy(new)
        if old is not None and mine.source == old.source:
            return [fresh]
        lines = None
        if old is not None:
            lines = merged_lines(old.source, new.source, mine.source)
        if lines is not None:
            fresh.source = lines
            return [fresh]

        return [fresh, *self._beside(mine, "your version of the cell above", "the course's")]

    # ---- cells of the learner

    def own_cells(self, after: str | None) -> list[Cell]:
        """The learner's cells that stood behind this cell of the course (None: at the top)."""
        cells: list[Cell] = []
        for cell, name in self.found.own.get(after, []):
            cells += self._own(cell, name)
        return cells

    def _own(self, cell: Cell, name: str | None) -> list[Cell]:
        """A cell that the learner added (no name), a second part of an answer, or a cell that the
        course has no longer."""
        cell = copy.deepcopy(cell)
        if name is None or (name in self.theirs and is_solution(self.theirs[name])):
            return [cell]

        # A cell that the course has no longer, or a second copy of one: as the course wrote it,
        # nobody misses it.
        texts_of_course = {side[name].source for side in (self.base, self.theirs) if name in side}
        if cell.source in texts_of_course:
            self.merged.gone += [name] if name not in self.theirs else []
            return []
        if name not in self.theirs and is_checks(self.base[name]):
            self.merged.gone.append(name)
            return []

        # Its grade id is no exercise's any more: a grader would stumble over it.
        cell.metadata.pop("nbgrader", None)
        if name not in self.theirs:
            self.merged.gone.append(name)
            self.merged.said.append(
                f"The course has no cell `{name}` any more; what you wrote in it stays where it is."
            )

        return [cell]

    # ---- what cannot be merged

    def _beside(self, cell: Cell, what: str, stays: str) -> list[Cell]:
        """A text cell that holds the version which gave way; none where it stands there from an
        earlier merge."""
        text = f"**Kept by `course update`:** {what}. Delete this cell when you have what you need.\n\n"
        text += _fenced(cell.source, "python" if cell.cell_type == "code" else "markdown")
        if text in self.texts:
            return []
        name = grading_metadata(cell).get("grade_id") or cell.id
        self.merged.said.append(
            f"Cell `{name}` changed on both sides: {stays} version stays, and {what} is kept in a marked cell below it."
        )
        text_cell = new_markdown_cell(text, metadata={"tags": [KEPT]})
        text_cell.id = f"kept-{cell.id}"[:LONGEST_ID]

        return [text_cell]


def merged_lines(old: str, new: str, mine: str) -> str | None:
    """Both sides' changes to one text, by `git merge-file`; None where they meet in the same lines,
    or without git."""
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place, name) for name in ("mine", "old", "new")]
        for file, text in zip(files, (mine, old, new), strict=True):
            file.write_text(text + "\n", encoding="utf-8", newline="\n")
        command = ["git", "merge-file", "--stdout", "--quiet", *map(str, files)]
        try:
            process = subprocess.run(command, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None

    if process.returncode == 0:
        return process.stdout.decode("utf-8").removesuffix("\n")
    return None


def same_cells(one: Notebook, other: Notebook) -> bool:
    """Whether two notebooks say the same; outputs do not count."""
    return _said_by(one) == _said_by(other)


def _said_by(nb: Notebook) -> list[tuple[object, ...]]:
    """Of each cell its id, kind, text, and what it is to a grader."""
    return [
        (cell.get("id"), cell.cell_type, cell.source, grading_metadata(cell)) for cell in nb.cells
    ]


def _dressed(mine: Cell, new: Cell) -> Cell:
    """The learner's text and outputs, with the name and the metadata that the course gives to the
    cell."""
    cell = copy.deepcopy(mine)
    cell.id = new.id
    cell.metadata = nbformat.from_dict({**mine.metadata, **new.metadata})
    return cell


def _fenced(source: str, language: str) -> str:
    """A Markdown code block that holds `source`, whatever fences are in it."""
    # one backtick more than the longest fence inside, and three at least
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{source}\n{fence}"


def _make_ids_unique(cells: list[Cell], course_ids: set[str]) -> None:
    """Each cell has an id of its own; the course's cells, which come first of those with one id,
    keep theirs."""
    from .cell_ids import first_free

    used_ids: set[str] = set()
    for cell in cells:
        name = cell.get("id") or "own"
        if name in used_ids:
            # 4 characters are left for the number that makes it a new name
            name = first_free(name[: LONGEST_ID - 4], used_ids | course_ids)
        cell["id"] = name
        used_ids.add(name)
