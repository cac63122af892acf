"""An exercise's cells have names, by which a learner's copy is merged (`course_lib/grading/cell_ids.py`)."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from handed_out import exercise_of
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from tiny_course import answer, checks, solution

from course_lib.grading.cell_ids import BY_PLACE, is_name, with_names
from course_lib.grading.generate import exercise_from
from course_lib.grading.marks import assembled
from course_lib.grading.notebooks import lessons, read, tidy, to_text

LESSONS = lessons(Path(__file__).parents[2])


def ids(nb) -> list[str]:
    return [cell.id for cell in nb.cells]


def numbered(nb):
    """The notebook as it was handed out when ids counted the cells."""
    nb = copy.deepcopy(nb)
    for index, cell in enumerate(nb.cells):
        cell.id = f"cell-{index:02d}"
    return nb


def test_a_cell_is_called_by_its_grade_its_heading_or_what_it_defines():
    cells = [
        new_markdown_cell("Some text.\n\n## Exercise 1.1: an *honest* timer\n\nMore."),
        new_code_cell("import math\n\n\nclass FakeMachine:\n    pass"),
        answer("median_time", "def other(): pass"),
        checks("double", 1, "check(True)"),
        new_code_cell("x = torch.ones(3)"),
        new_markdown_cell("How much *shorter* is it now, [really](../a/b.md)?"),
        new_markdown_cell("…"),
    ]
    assert ids(tidy(new_notebook(cells=cells))) == [
        "exercise-1-1-an-honest-timer",
        "given-FakeMachine",
        "median_time",
        "test_double",
        "given-x-torch-ones-3",
        "how-much-shorter-is-it",
        "text",
    ]


def test_names_differ_where_cells_say_the_same():
    cells = [new_code_cell("x = 1"), answer("given-x-1", ""), new_code_cell("x = 1")]
    assert ids(tidy(new_notebook(cells=cells))) == ["given-x-1-2", "given-x-1", "given-x-1-3"]


def test_a_name_stays_when_cells_are_put_in_and_when_the_heading_changes():
    nb = tidy(solution())
    before = ids(nb)
    nb.cells.insert(2, new_markdown_cell("A new cell."))
    nb.cells[3].source = nb.cells[3].source.replace("double", "twice")
    assert ids(tidy(nb)) == [*before[:2], "a-new-cell", *before[2:]]


def test_a_lesson_keeps_its_counted_ids_when_cells_are_put_in():
    nb = new_notebook(cells=[new_markdown_cell("One."), new_code_cell("x = 1")])
    nb.cells[0].id, nb.cells[1].id = "cell-00", "cell-01"
    nb.cells.insert(1, new_markdown_cell("## A new part\n\nText."))
    nb.cells.append(new_code_cell("def half(n):\n    return n // 2"))
    nb.cells.append(new_code_cell("y = 1", id="cell-01"))
    assert ids(tidy(nb)) == ["cell-00", "a-new-part", "cell-01", "half", "y-1"]


@pytest.mark.parametrize(
    "drawn", ["cell-07", "0f3a9b1c", "0b3f1c5e-9a57-4a55-8a3c-0f6d9c1b2a3d", "two words", ""]
)
def test_an_id_that_an_editor_drew_is_no_name(drawn):
    assert not is_name(drawn)
    nb = tidy(solution())
    nb.cells[0].id = drawn
    assert ids(tidy(nb)) == ids(tidy(solution()))


def test_naming_again_changes_nothing():
    once = tidy(solution())
    assert to_text(tidy(once)) == to_text(once)


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_stored_solutions_are_named_and_exercises_have_the_same_names(lesson):
    reference, exercise = read(lesson.solution), exercise_of(lesson)
    assert ids(tidy(reference)) == ids(reference) == ids(exercise)
    assert len(set(ids(exercise))) == len(exercise.cells)
    assert all(map(is_name, ids(exercise)))


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_a_copy_of_an_old_exercise_gets_the_names_and_no_cell_runs_twice(lesson):
    reference = read(lesson.solution)
    old = numbered(exercise_from(reference))
    handed_out = json.loads(BY_PLACE.read_text(encoding="utf-8"))[lesson.name]
    named = with_names(old)
    assert ids(named) == handed_out[: len(old.cells)]
    kept = {cell.id for cell in reference.cells} & set(handed_out)
    assert {cell.id for cell in assembled(old, reference).cells} >= kept
    added = [cell for cell in assembled(old, reference).cells if cell.id not in ids(reference)]
    gone = set(handed_out) - set(ids(reference))
    assert len(added) <= len(gone)
