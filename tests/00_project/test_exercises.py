"""Exercises are what their solutions give, and fit to hand out; the gate that says so is itself tested by breaking things."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import nbformat
import pytest
from handed_out import exercise_of
from nbformat.v4 import new_code_cell
from tiny_course import BIGGEST, DOUBLE, STUB, edit, solution, tiny_course, with_answers

from course_lib.grading import cli, gate
from course_lib.grading.exercise_files import generate
from course_lib.grading.generate import CONFIG, exercise_from
from course_lib.grading.marks import mark_exercise
from course_lib.grading.notebooks import (
    Lesson,
    find_lesson,
    grading_metadata,
    is_checks,
    is_solution,
    lessons,
    read,
    to_text,
)
from course_lib.grading.runner import Limits, run_notebook

LESSONS = lessons(Path(__file__).parents[2])


# ---- the course's own exercises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_the_exercise_is_fresh_well_formed_and_tight(lesson):
    assert gate.static_complaints(lesson) == []


def said_of_each(lesson: Lesson) -> dict[str, tuple[str, float]]:
    """`1.2` → what the exercise says of itself, and the points that its checks really give."""
    found: dict[str, tuple[str, float]] = {}
    for cell in exercise_of(lesson).cells:
        for part in re.split(r"(?m)^(?=## )", cell.source) if cell.cell_type == "markdown" else ():
            if heading := re.match(r"## Exercise ([\d.]+)", part):
                name = heading[1]
                found.setdefault(name, ("", 0))
            if found:
                found[name] = (found[name][0] + part, found[name][1])
        if is_checks(cell):
            found[name] = (found[name][0], found[name][1] + grading_metadata(cell)["points"])
    return found


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_an_editor_lets_nobody_delete_an_answer_or_its_checks(lesson):
    """JupyterLab and others ask the cell: `d d` on it does nothing."""
    cells = [cell for cell in read(lesson.exercise).cells if grading_metadata(cell)]
    assert cells and all(cell.metadata.get("deletable") is False for cell in cells)


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_an_exercise_says_all_that_a_learner_needs_before_starting(lesson):
    """Difficulty, minutes, the points that its checks give; TODO, approach, example, hint. Easy first, a stretch last."""
    each = said_of_each(lesson)
    assert 3 <= len(each) <= 5
    difficulties = []
    for name, (text, points) in each.items():
        heads = re.findall(r"(?m)^\*(easy|medium|stretch) · (\d+) minutes · (\d+) points?\b", text)
        assert sum(int(head[2]) for head in heads) == points, name
        for part in (r"\*\*TODO", r"\*\*Approach", r"\*\*Example", r"\*\*Hint|<summary>Hint"):
            assert len(re.findall(part, text)) >= len(heads) > 0, (name, part)
        difficulties += [head[0] for head in heads]
    assert difficulties[0] == "easy" and difficulties[-1] == "stretch"


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_the_reference_earns_every_point_and_the_untouched_exercise_none(lesson):
    assert gate.running_complaints(lesson) == []


def defined(source: str) -> set[str]:
    """The functions and classes that a cell defines."""
    return {
        made.name
        for made in ast.parse(source).body
        if isinstance(made, (ast.FunctionDef, ast.ClassDef))
    }


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_the_checks_of_an_exercise_ask_for_no_other_answer(lesson):
    """Who leaves one exercise out loses its points alone."""
    answers: dict[str, set[str]] = {}
    for cell in read(lesson.solution).cells:
        name = grading_metadata(cell).get("grade_id", "")
        if is_solution(cell):
            answers[name] = defined(cell.source)
        elif is_checks(cell):
            nodes = list(ast.walk(ast.parse(cell.source)))
            own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            own |= {
                node.id
                for node in nodes
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            own |= {node.arg for node in nodes if isinstance(node, ast.arg)}
            asked = {node.id for node in nodes if isinstance(node, ast.Name)} - own
            others = {
                other: asked & names
                for other, names in answers.items()
                if f"test_{other}" != name and asked & names
            }
            assert not others, (name, others)


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_no_check_compares_a_thing_with_itself(lesson):
    for cell in filter(is_checks, read(lesson.solution).cells):
        calls = [
            node
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.Call) and len(node.args) > 1
        ]
        asked = [call for call in calls if getattr(call.func, "id", "").startswith("check_")]
        assert not [
            ast.unparse(call) for call in asked if ast.dump(call.args[0]) == ast.dump(call.args[1])
        ]


def test_no_exercise_is_without_its_solution(root):
    made = {
        path.relative_to(root / "exercises") for path in (root / "exercises").glob("[!.]*/*.ipynb")
    }
    assert made <= {lesson.exercise.relative_to(root / "exercises") for lesson in LESSONS}


# ---- a tiny course: the generator -----------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path) -> Lesson:
    lesson = tiny_course(tmp_path)
    generate(lesson)
    return lesson


def test_solutions_become_stubs_and_hidden_tests_disappear(tiny):
    sources = [cell.source for cell in read(tiny.exercise).cells]
    assert f"def double(numbers):\n    {STUB}" in sources
    assert "check_equal(double([1, 2]), [2, 4], 'double([1, 2])', 'each number doubles')" in sources
    assert not any("a fresh input" in source for source in sources)


def test_the_same_solution_gives_the_same_bytes_and_a_second_run_changes_nothing(tiny):
    before = tiny.exercise.read_bytes()
    assert generate(tiny) is False
    assert tiny.exercise.read_bytes() == before


def test_ids_outputs_and_an_editors_metadata_in_the_solution_do_not_matter(tiny):
    nb = read(tiny.solution)
    for cell in nb.cells:
        cell.id = uuid.uuid4().hex[:8]  # as JupyterLab and nbformat draw them
        cell.metadata["collapsed"] = True
    nb.cells[1].outputs, nb.cells[1].execution_count = (
        [nbformat.v4.new_output("stream", text="loaded")],
        4,
    )
    nb.metadata["widgets"] = {"state": {}}
    assert to_text(exercise_from(nb)) == tiny.exercise.read_text()


@pytest.mark.slow
def test_nbgraders_own_command_makes_the_same_cells(tiny, tmp_path):
    shutil.rmtree(tmp_path / "exercises")
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", "01_tiny", "--no-db"]
    environment = os.environ | {"JUPYTER_CONFIG_PATH": str(CONFIG.parent)}
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, env=environment)
    theirs, ours = read(tiny.exercise), exercise_from(read(tiny.solution))
    assert [c.source for c in theirs.cells] == [c.source for c in ours.cells]
    assert [c.metadata.get("nbgrader") for c in theirs.cells] == [
        c.metadata.get("nbgrader") for c in ours.cells
    ]


# ---- a tiny course: the gate ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_good_exercise_passes_the_gate(tiny):
    assert gate.static_complaints(tiny) == []
    assert gate.running_complaints(tiny) == []


def test_a_stale_exercise_is_told(tiny):
    edit(tiny.solution, "Return twice each number.", "Return each number doubled.")
    assert ["stale" in complaint for complaint in gate.static_complaints(tiny)] == [True]


def test_a_missing_exercise_is_told(tiny):
    tiny.exercise.unlink()
    assert "there is no exercise notebook" in gate.static_complaints(tiny)[0]


@pytest.mark.slow
def test_a_wrong_reference_is_told(tiny):
    edit(tiny.solution, "key=abs", "")
    assert "the reference fails test_biggest" in gate.running_complaints(tiny)[0]


def test_a_line_of_the_solution_in_a_hint_is_told(tiny):
    edit(
        tiny.solution,
        "Return twice each number.",
        "Hint: `doubled = [2 * number for number in numbers]`.",
    )
    assert any(
        "shows a line of the solution" in complaint for complaint in gate.static_complaints(tiny)
    )


def test_a_hidden_test_in_the_text_is_told(tiny):
    edit(
        tiny.solution,
        "Return twice each number.",
        "We also try check_equal(double([-7, 3]), [-14, 6], 'a fresh input')",
    )
    assert any(
        "shows a line of the solution or of a hidden test" in c
        for c in gate.static_complaints(tiny)
    )


@pytest.mark.slow
def test_a_check_that_passes_with_nothing_written_is_told(tiny):
    edit(
        tiny.solution,
        "check_equal(double([1, 2]), [2, 4], 'double([1, 2])', 'each number doubles')",
        "check(callable(double), 'it')",
    )
    assert gate.running_complaints(tiny) == ["01_tiny: test_double passes with nothing written"]


@pytest.mark.slow
def test_an_untouched_exercise_that_ends_otherwise_than_by_its_stub_is_told(tiny):
    edit(tiny.solution, "check_equal(double([1, 2])", "check_equal(doubel([1, 2])")
    assert any(
        "untouched, test_double ends with NameError" in complaint
        for complaint in gate.running_complaints(tiny)
    )


@pytest.mark.parametrize(
    "old, new, told",
    [
        ("### BEGIN SOLUTION\n", "", "double has no BEGIN SOLUTION"),
        ("### BEGIN HIDDEN TESTS\n", "", "has no hidden tests"),
    ],
)
def test_a_malformed_solution_is_told(old, new, told):
    nb = solution()
    for cell in nb.cells:
        cell.source = cell.source.replace(old, new)
    assert any(told in complaint for complaint in gate.malformed(nb))


def test_points_locks_and_names_are_looked_at():
    nb = solution()
    nb.cells[4].metadata.nbgrader.update(points=0, locked=False)
    nb.cells[7].metadata.nbgrader.grade_id = "test_double"
    del nb.cells[6]
    said = gate.malformed(nb)
    wanted = [
        "test_double is worth no points",
        "test_double is not locked",
        "test_double follows no answer cell",
    ]
    assert said == [*wanted, "two cells are called test_double"]


# ---- a tiny course: `course check` ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_right_answers_earn_every_point(tiny, monkeypatch, capsys):
    with_answers(tiny, double=DOUBLE, biggest=BIGGEST)
    monkeypatch.chdir(tiny.root)
    assert cli.main(["check", "1"]) == 0
    said, told = capsys.readouterr()
    assert "5 of 5 points" in said and "✓ Exercise 1.1: double" in said
    assert told.splitlines() == [
        "01_tiny: starting Python, then every cell runs once ...",
        "exercise 1 of 2: double",
        "exercise 2 of 2: the biggest",
    ]


@pytest.mark.slow
def test_the_visible_check_says_what_why_expected_and_got(tiny, monkeypatch, capsys):
    with_answers(tiny, double="    return numbers + numbers")
    monkeypatch.chdir(tiny.root)
    assert cli.main(["check", "01_tiny"]) == 1
    said = capsys.readouterr().out
    assert "0 of 5 points" in said and "Not written yet." in said
    for line in (
        "What:     double([1, 2])",
        "Why:      each number doubles",
        "Expected: [2, 4]",
        "Got:      [1, 2, 1, 2]",
    ):
        assert line in said


@pytest.mark.slow
def test_an_answer_that_is_right_only_where_the_notebook_looks_earns_nothing(tiny):
    with_answers(tiny, double="    return [2, 4]", biggest=BIGGEST)
    assert [mark.points for mark in mark_exercise(tiny).marks] == [0, 3]


@pytest.mark.slow
def test_editing_the_checks_earns_nothing(tiny):
    path = with_answers(tiny, double="    return None")
    edit(
        path,
        "check_equal(double([1, 2]), [2, 4], 'double([1, 2])', 'each number doubles')",
        "print('passed')",
    )
    assert mark_exercise(tiny).points == 0


@pytest.mark.slow
def test_deleted_checks_come_back(tiny):
    path = with_answers(tiny, double=DOUBLE, biggest=BIGGEST)
    nb = read(path)
    nb.cells = [
        cell
        for cell in nb.cells
        if cell.metadata.get("nbgrader", {}).get("grade_id") != "test_biggest"
    ]
    path.write_text(to_text(nb))
    report = mark_exercise(tiny)
    assert (report.points, report.out_of) == (5, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body, reason",
    [
        ("    while True: pass", "It ran longer than 15 seconds"),
        ("    import os; os.abort()", "The Python process crashed"),
        (
            "    block = []\n    while True: block.append(bytearray(b'x') * (1 << 26))",
            "It used more than 1 GiB of memory",
        ),
        ("    raise ValueError('no numbers')", "ValueError: no numbers"),
    ],
)
def test_an_answer_that_goes_wrong_costs_its_own_points_only(tiny, body, reason):
    with_answers(tiny, double=body, biggest=BIGGEST)
    report = mark_exercise(tiny, limits=Limits(cell_seconds=15, memory_bytes=1 << 30))
    assert [mark.points for mark in report.marks] == [0, 3]
    assert reason in report.marks[0].reason


@pytest.mark.slow
def test_a_loop_that_refuses_to_be_interrupted_is_killed(tmp_path):
    stubborn = "while True:\n    try:\n        while True: pass\n    except KeyboardInterrupt: pass"
    nb = nbformat.v4.new_notebook(
        cells=[new_code_cell("x = 1"), new_code_cell(stubborn), new_code_cell("assert x == 1")]
    )
    runs = run_notebook(nb, tmp_path, Limits(cell_seconds=0.5, grace_seconds=1))
    assert [run.outcome for run in runs] == ["ok", "time", "ok"]


def test_an_unknown_lesson_and_a_broken_notebook_are_one_sentence(tiny, monkeypatch, capsys):
    monkeypatch.chdir(tiny.root)
    assert cli.main(["check", "7"]) == 2
    assert (
        "There is no lesson '7' with exercises. Give a number or a name: 01_tiny to 01_tiny."
        in capsys.readouterr().err
    )
    tiny.exercise.write_text("{ this is no notebook")
    assert cli.main(["check", "1"]) == 2
    assert "is not a readable notebook" in capsys.readouterr().err


def test_lessons_are_found_by_number_and_by_name(tiny):
    assert (
        find_lesson(tiny.root, "1")
        == find_lesson(tiny.root, "01")
        == find_lesson(tiny.root, "01_tiny")
        == tiny
    )
