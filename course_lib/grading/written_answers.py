"""What a learner wrote in a notebook: the answers that differ from every stub that was handed out,
and code in new cells.

In:  a notebook, and the exercises that it may come from. Out: the names of what was written.
PyTorch has no counterpart.
"""

from __future__ import annotations

from pathlib import Path

from .handed_out import as_copy, handed_out, kept_bases, readable
from .notebooks import Cell, Lesson, Notebook, grading_metadata, is_solution


def written_in(nb: Notebook, known: list[Notebook]) -> list[str]:
    """Names of the answers in `nb` that stand in none of the exercises that are `known`.

    For code of the learner's in a cell that no exercise has: "an added cell"."""
    answers = set()
    handed_out_sources = set()
    for exercise in known:
        answers |= {answer_of(cell) for cell in exercise.cells if is_solution(cell)}
        handed_out_sources |= {cell.source.strip() for cell in exercise.cells}

    answer_names: list[str] = []
    for cell in nb.cells:
        source = cell.source.strip()
        if not source:
            continue
        if is_solution(cell):
            if answer_of(cell) not in answers:
                answer_names.append(answer_of(cell)[0])
        elif (
            cell.cell_type == "code"
            and source not in handed_out_sources
            and not grading_metadata(cell)
        ):
            answer_names.append("an added cell")
    return list(dict.fromkeys(answer_names))


def holds_work(lesson: Lesson, path: Path) -> bool:
    """True if something was written in this notebook. What cannot be read says no."""
    nb = readable(path)
    if nb is None:
        return False
    # A copy may be older than today's exercise: a stub of an earlier release is no work either.
    return bool(written_in(nb, [as_copy(handed_out(lesson)), *kept_bases(lesson)]))


def answer_of(cell: Cell) -> tuple[str, str]:
    """The name of an answer's cell, and what stands in it."""
    return str(grading_metadata(cell).get("grade_id")), cell.source.strip()
