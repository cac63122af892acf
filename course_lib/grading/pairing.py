"""Which cell of a learner's copy is which cell of the course.

In:  the copy's cells, and the course's cells by name, of the exercise before and of the one of
     today. Out: `Pairs`.

Four ways, the surest first: the grade id; the cell's id; the same text; the name that `cell_ids`
would give. The last two are for copies that went through a tool which draws its own ids (Colab,
older formats). What is paired with nothing is the learner's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .cell_ids import described
from .notebooks import Cell, grading_metadata

Course = Mapping[str, list[Cell]]  # name → the cell in the exercise before, and in the one of today


@dataclass
class Pairs:
    """`course`: name → the learner's version of this cell.

    `own`: name of a cell of the new exercise (None: the top) → the cells behind it that are not in
    `course`, each with the name of the course's cell that it is a further part of, if any."""

    course: dict[str, Cell] = field(default_factory=dict)
    own: dict[str | None, list[tuple[Cell, str | None]]] = field(default_factory=dict)


def pairs(cells: list[Cell], base: dict[str, Cell], theirs: dict[str, Cell]) -> Pairs:
    """Pair the cells of a copy with those of the exercise of today, `theirs`.

    A name that is in `base` alone is that of a cell which the course has no longer."""
    course = {
        name: [side[name] for side in (base, theirs) if name in side] for name in base | theirs
    }
    names = named(cells, course)
    cell_pairs = Pairs()
    behind: str | None = None  # the last cell of the course so far

    for cell, name in zip(cells, names, strict=True):
        if name is not None and name in theirs and name not in cell_pairs.course:
            cell_pairs.course[name] = cell
            behind = name
        else:
            cell_pairs.own.setdefault(behind, []).append((cell, name))

    return cell_pairs


def named(cells: list[Cell], course: Course) -> list[str | None]:
    """The name of the course's cell that each cell is (or is a further part of); None for the
    learner's own."""
    names: list[str | None] = [None] * len(cells)
    _by_grade_id(cells, course, names)
    _by_id(cells, course, names)
    _by_text(cells, course, names)
    _by_description(cells, course, names)
    return names


def _by_grade_id(cells: list[Cell], course: Course, names: list[str | None]) -> None:
    """Several cells may have one grade id: a copied or split one keeps it."""
    for place, cell in enumerate(cells):
        name = grading_metadata(cell).get("grade_id")
        if name in course:
            names[place] = name


def _by_id(cells: list[Cell], course: Course, names: list[str | None]) -> None:
    """By the cell's id, if no other cell has that name already."""
    for place, cell in enumerate(cells):
        if names[place] is None and cell.get("id") in course and cell.id not in names:
            names[place] = cell.id


def _by_text(cells: list[Cell], course: Course, names: list[str | None]) -> None:
    """The first cell that says what the course's cell says, or said before."""
    for name, versions in course.items():
        texts = {version.source.strip() for version in versions} - {""}
        if name in names:
            continue
        for place, cell in enumerate(cells):
            if names[place] is None and cell.source.strip() in texts:
                names[place] = name
                break


def _by_description(cells: list[Cell], course: Course, names: list[str | None]) -> None:
    """By what the cell defines, or by its heading: its text may have changed."""
    for place, cell in enumerate(cells):
        if names[place] is not None or not cell.source.strip():
            continue
        name = described(cell)
        if name in course and name not in names and course[name][0].cell_type == cell.cell_type:
            names[place] = name
