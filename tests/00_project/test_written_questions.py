"""Questions that are marked by hand: two a lesson with a rubric, in notebooks that nbgrader's form grader takes."""

from __future__ import annotations

from collections import Counter

import nbformat
import pytest

from course_lib.grading.notebooks import grading_metadata, read
from course_lib.grading.written_questions import DOCUMENT, questions_in, with_questions, write

QUESTIONS = questions_in(DOCUMENT.read_text(encoding="utf-8"))


def test_each_lesson_has_two_questions_whose_rubric_gives_the_points():
    assert set(Counter(question.lesson for question in QUESTIONS).values()) == {2}
    assert {question.lesson for question in QUESTIONS} >= set(range(16))
    assert len({question.name for question in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        assert sum(question.lines) == question.points, question.name
        assert len(question.lines) >= 3 and len(question.text) > 100, question.name


def test_every_heading_of_the_document_is_a_question():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count("\n## ") == len(QUESTIONS)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    return write(folder, [4])


def test_a_notebook_has_its_lessons_questions_at_the_end_and_is_else_as_it_was(written, root):
    (path,) = written
    assert path.parts[-2:] == ("04_guards_and_recompiles", "04_guards_and_recompiles.ipynb")
    nb = read(path)
    nbformat.validate(nb)
    before = read(root / "solutions/04_guards_and_recompiles/04_guards_and_recompiles.ipynb")
    assert [cell.source for cell in nb.cells[:-4]] == [cell.source for cell in before.cells]
    names = [grading_metadata(cell)["grade_id"] for cell in nb.cells[-4:]]
    assert names == ["asked-4-w1", "written-4-w1", "asked-4-w2", "written-4-w2"]


def test_nbgrader_knows_the_answer_as_marked_by_hand_and_takes_the_rubric_out(written):
    nbgrader = pytest.importorskip("nbgrader")
    from nbgrader import utils
    from nbgrader.preprocessors import ClearSolutions

    assert nbgrader
    nb = read(written[0])
    asked, answer = nb.cells[-2:]
    assert utils.is_locked(asked) and not utils.is_grade(asked)
    assert utils.is_grade(answer) and utils.is_solution(answer)
    assert utils.determine_grade(answer) == (None, 4)
    given, _ = ClearSolutions().preprocess(nb, {})
    assert given.cells[-1].source == "YOUR ANSWER HERE"
    assert "points | the answer says" not in nbformat.writes(given)


def test_without_questions_a_notebook_is_the_same():
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")])
    assert with_questions(nb, []) == nb
