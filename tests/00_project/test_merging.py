"""A learner's copy and a newer exercise, put together cell by cell (`course_lib/grading/merging.py`, `pairing.py`)."""

from __future__ import annotations

import copy
import json
import random
import shutil

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from tiny_course import BIGGEST, DOUBLE, STUB, solution

from course_lib.grading import merging
from course_lib.grading.generate import exercise_from
from course_lib.grading.merging import KEPT, merge
from course_lib.grading.notebooks import grading_metadata, is_solution, release_of

DOUBLED = f"def double(numbers):\n{DOUBLE}"


BASE = exercise_from(solution())


def base():
    return copy.deepcopy(BASE)


def newer():
    return copy.deepcopy(NEWER)


def changed_by_the_course():
    """The exercise after the course changed its first heading, one check, a given cell and a stub, and put cells in."""
    nb = solution()
    nb.cells[2].source = "## Exercise 1.1: twice\n\nReturn twice each number, as a list."
    nb.cells[4].source = nb.cells[4].source.replace("[1, 2]), [2, 4]", "[3, 2]), [6, 4]", 1)
    nb.cells[1].source += "\nimport math"
    nb.cells[6].source = nb.cells[6].source.replace(
        "def biggest(numbers):", 'def biggest(numbers):\n    """By abs."""'
    )
    nb.cells.insert(2, new_code_cell("def helper():\n    return 1"))
    nb.cells.append(new_markdown_cell("## Exercise 1.3: nothing"))
    tidied = tidy_as_released(nb)
    return exercise_from(tidied)


def tidy_as_released(nb):
    """Cells that were there keep their names, as the stored solution does."""
    names = [cell.id for cell in BASE.cells]
    for cell, name in zip(
        [c for i, c in enumerate(nb.cells) if i not in (2, 9)], names, strict=True
    ):
        cell.id = name
    return nb


NEWER = changed_by_the_course()
GIVEN = BASE.cells[1].id


def at(nb, name):
    return next(cell for cell in nb.cells if cell.id == name)


def sources(nb):
    return [cell.source for cell in nb.cells]


def answered():
    nb = base()
    at(nb, "double").source = DOUBLED
    return nb


def kept(nb):
    return [cell for cell in nb.cells if KEPT in cell.metadata.get("tags", [])]


def test_answers_stay_and_text_checks_and_new_cells_come_in():
    merged = merge(base(), newer(), answered())
    assert at(merged.nb, "double").source == DOUBLED
    expected = newer()
    at(expected, "double").source = DOUBLED
    assert sources(merged.nb) == sources(expected)
    assert [cell.id for cell in merged.nb.cells] == [cell.id for cell in expected.cells]
    assert release_of(merged.nb) == release_of(newer())
    assert merged.answers == ["double"] and merged.said == []
    assert set(merged.new) == {"given-helper", "exercise-1-3-nothing"}


def test_an_untouched_stub_becomes_the_new_stub():
    merged = merge(base(), newer(), answered())
    assert (
        '"""By abs."""' in at(merged.nb, "biggest").source
        and STUB in at(merged.nb, "biggest").source
    )


def test_a_written_answer_whose_stub_changed_stays_and_the_new_stub_stands_below():
    mine = answered()
    mine_biggest = f"def biggest(numbers):\n{BIGGEST}"
    at(mine, "biggest").source = mine_biggest
    merged = merge(base(), newer(), mine)
    place = [cell.id for cell in merged.nb.cells].index("biggest")
    assert merged.nb.cells[place].source == mine_biggest
    (beside,) = kept(merged.nb)
    assert merged.nb.cells[place + 1] == beside and '"""By abs."""' in beside.source
    assert (
        beside.cell_type == "markdown" and len(merged.said) == 1 and "`biggest`" in merged.said[0]
    )


def test_the_learners_cells_stay_behind_the_cells_they_stood_behind():
    mine = answered()
    mine.cells.insert(4, new_code_cell("print(double([4]))", id="aaaa1111"))
    mine.cells.insert(0, new_markdown_cell("My notes", id="bbbb2222"))
    mine.cells.append(new_code_cell("last = 1", id="cccc3333"))
    ids = [cell.id for cell in merge(base(), newer(), mine).nb.cells]
    assert ids[0] == "bbbb2222"
    assert ids[ids.index("double") + 1] == "aaaa1111"
    assert ids[ids.index("test_biggest") + 1] == "cccc3333"


def test_a_given_cell_keeps_what_the_learner_added_and_gets_what_the_course_added():
    mine = answered()
    at(mine, GIVEN).source = "from functools import reduce\n\n\n" + at(mine, GIVEN).source
    merged = merge(base(), newer(), mine)
    got = at(merged.nb, GIVEN).source
    assert got.startswith("from functools import reduce\n") and got.endswith("\nimport math")
    assert merged.said == []


def test_where_both_changed_the_same_lines_the_courses_stay_and_the_learners_stand_below(
    monkeypatch,
):
    mine = answered()
    name = "exercise-1-1-double"
    at(mine, name).source = "## Exercise 1.1: my words"
    merged = merge(base(), newer(), mine)
    assert at(merged.nb, name).source == at(newer(), name).source
    (beside,) = kept(merged.nb)
    assert "## Exercise 1.1: my words" in beside.source
    # without git it is the same: nothing is merged, nothing is lost
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(merging.subprocess, "run", _no_git)
    assert [cell.source for cell in kept(merge(base(), newer(), mine).nb)] == [beside.source]


def _no_git(*args, **more):
    raise FileNotFoundError("git")


def test_checks_are_the_courses_and_a_learners_version_is_kept():
    mine = answered()
    at(mine, "test_double").source += "\nprint('mine')"
    merged = merge(base(), newer(), mine)
    assert at(merged.nb, "test_double").source == at(newer(), "test_double").source
    assert "print('mine')" in kept(merged.nb)[0].source


def test_merging_again_changes_nothing():
    mine = answered()
    at(mine, "exercise-1-1-double").source = "## Exercise 1.1: my words"
    at(mine, "test_double").source += "\nprint('mine')"
    at(mine, "biggest").source = f"def biggest(numbers):\n{BIGGEST}"
    once = merge(base(), newer(), mine).nb
    again = merge(newer(), newer(), once)
    assert merging.same_cells(again.nb, once) and not again.changed and not again.said
    # a crash before the release was noted: the old base and the merged copy
    after_crash = merge(base(), newer(), once)
    assert merging.same_cells(after_crash.nb, once)


def test_a_deleted_answer_or_check_comes_back_and_deleted_prose_does_not():
    mine = answered()
    gone = {"biggest", "test_double", "exercise-1-2-the-biggest"}
    mine.cells = [cell for cell in mine.cells if cell.id not in gone]
    merged = merge(base(), base(), mine)
    ids = [cell.id for cell in merged.nb.cells]
    assert "biggest" in ids and "test_double" in ids and "exercise-1-2-the-biggest" not in ids
    assert merged.back == ["test_double", "biggest"]


def test_an_answer_that_the_course_no_longer_asks_for_stays_as_a_plain_cell():
    fewer = base()
    fewer.cells = [cell for cell in fewer.cells if cell.id not in ("double", "test_double")]
    merged = merge(base(), fewer, answered())
    (mine,) = [cell for cell in merged.nb.cells if cell.source == DOUBLED]
    assert "nbgrader" not in mine.metadata and "no cell `double` any more" in merged.said[0]
    assert "test_double" not in [cell.id for cell in merged.nb.cells]


def test_an_answer_split_in_two_or_copied_stays_whole():
    mine = answered()
    place = [cell.id for cell in mine.cells].index("double")
    half = copy.deepcopy(mine.cells[place])
    half.id, half.source = "dddd4444", "def helper_of_double():\n    pass"
    mine.cells.insert(place + 1, half)
    merged = merge(base(), newer(), mine)
    parts = [c for c in merged.nb.cells if grading_metadata(c).get("grade_id") == "double"]
    assert [part.source for part in parts] == [DOUBLED, half.source]


@pytest.mark.parametrize("how", ["counted", "drawn", "none", "all the same"])
def test_ids_that_a_tool_took_away_cost_nothing(how):
    mine = answered()
    mine.cells.append(new_code_cell("last = 1"))
    for index, cell in enumerate(mine.cells):
        cell.id = {
            "counted": f"cell-{index:02d}",
            "drawn": f"{index:08x}",
            "none": f"given-id-{index}",
            "all the same": f"{index:08x}" if index else "00000001",
        }[how]
    merged = merge(base(), newer(), mine)
    expected = newer()
    at(expected, "double").source = DOUBLED
    assert sources(merged.nb) == [*sources(expected)[:-1], "last = 1", sources(expected)[-1]]


def test_outputs_stay_where_the_source_stays():
    mine = answered()
    output = new_output("stream", text="4")
    at(mine, "double").outputs = [output]
    at(mine, "test_double").outputs = [output]
    merged = merge(base(), newer(), mine)
    assert at(merged.nb, "double").outputs == [output]
    assert at(merged.nb, "test_double").outputs == []


def test_without_a_base_answers_stay_and_code_that_differs_is_kept_below():
    mine = answered()
    at(mine, GIVEN).source += "\nmine = 1"
    merged = merge(None, newer(), mine)
    assert at(merged.nb, "double").source == DOUBLED
    assert any("mine = 1" in cell.source for cell in kept(merged.nb))


def changed_by_chance(nb, luck: random.Random):
    """What a learner may do to a notebook; gives the texts that must not be lost."""
    texts = []
    for number in range(luck.randrange(1, 6)):
        place = luck.randrange(len(nb.cells))
        cell = nb.cells[place]
        text = f"mine_{number} = {luck.randrange(1000)}"
        what = luck.choice(["answer", "add", "edit", "delete", "copy", "move", "prose", "new id"])
        if what == "answer" and is_solution(cell):
            cell.source = f"def {cell.id}(numbers):\n    {text}"
            texts.append(cell.source)
        elif what == "add":
            nb.cells.insert(place, new_code_cell(text, id=f"{luck.randrange(16**8):08x}"))
            texts.append(text)
        elif what == "prose":
            nb.cells.insert(place, new_markdown_cell(text, id=f"{luck.randrange(16**8):08x}"))
            texts.append(text)
        elif what == "edit" and not is_solution(cell):
            cell.source += f"\n{text}"
            texts.append(text)
        elif what == "delete" and not any(said in cell.source for said in texts):
            del nb.cells[place]
        elif what == "copy":
            twin = copy.deepcopy(cell)
            twin.id = f"{luck.randrange(16**8):08x}"
            nb.cells.insert(place, twin)
        elif what == "move":
            nb.cells.insert(luck.randrange(len(nb.cells)), nb.cells.pop(place))
        elif what == "new id":
            cell.id = f"{luck.randrange(16**8):08x}"
    return texts


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_whatever_a_learner_did_no_text_of_theirs_is_lost_and_the_file_is_a_notebook(first):
    for seed in range(first, first + 50):
        mine = answered()
        texts = [DOUBLED, *changed_by_chance(mine, random.Random(seed))]
        there = "\n".join(sources(mine))
        for before in (base(), None):
            merged = merge(before, newer(), mine)
            everything = "\n".join(sources(merged.nb))
            lost = [text for text in texts if text in there and text not in everything]
            assert lost == [], f"seed {seed}"
            nbformat.validate(json.loads(nbformat.writes(merged.nb)))
            wanted = {cell.id for cell in NEWER.cells if grading_metadata(cell)}
            assert wanted <= {cell.id for cell in merged.nb.cells}
