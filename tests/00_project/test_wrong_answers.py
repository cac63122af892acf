"""Every exercise answered wrongly, as learners do: each message says what was looked at, and a line of the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from messages_of_checks import messages, messages_of
from wrong_answers import KINDS, functions_to_write, said_of, spoiled_by, wrong

from course_lib.grading.notebooks import is_solution, lessons, read

LESSONS = lessons(Path(__file__).parents[2])
OFTEN = ("nothing", "number", "one less", "raises")  # `tests/tools/wrong_answers.py` tries them all


@pytest.mark.slow
@pytest.mark.parametrize("kind", OFTEN)
@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_a_wrong_answer_gets_a_message_that_names_the_input_and_the_line(lesson, kind):
    bare = [said for said in said_of(lesson, kind) if said.is_bare]
    assert not bare, "\n".join(f"{said.exercise}: {said.reason}" for said in bare)


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_each_answer_has_a_function_that_can_go_wrong(lesson):
    answers = [cell.source for cell in read(lesson.solution).cells if is_solution(cell)]
    assert all(functions_to_write(source) for source in answers)
    changed = [wrong(source, "raises") for source in answers]
    assert all("min(sizes)" in source for source in changed)


def test_the_kinds_of_mistakes():
    source = "def f(x):\n    ### BEGIN SOLUTION\n    return x + 1\n    ### END SOLUTION"
    made = {kind: wrong(source, kind).rpartition("def f(x):\n")[2].strip() for kind in KINDS}
    assert made["nothing"] == "pass" and made["number"] == "return 3"
    assert made["sign"] == "return -(x + 1)" and made["prints"].startswith("print(x + 1)")
    assert "spoil(x)" in made["mutates"] and "one_less(x + 1)" in made["one less"]


# answers that may change what they are given, and why nobody reads it afterwards
MAY_CHANGE = {
    "test_spy": "a Frame tells what a call got: the call itself has its own names",
    "test_diagnose": "a Recorded is made for this one call, and its lists are its own",
}


@pytest.mark.slow
@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_an_answer_that_changes_its_inputs_has_no_points(lesson):
    unseen = [
        mark.grade_id
        for mark, changed in spoiled_by(lesson)
        if changed and mark.full and mark.grade_id not in MAY_CHANGE
    ]
    assert unseen == []


@pytest.mark.parametrize("lesson", LESSONS, ids=str)
def test_every_message_of_the_checks_says_what_was_looked_at_and_what_came(lesson):
    bad = [f"{one}: {one.complaint}" for one in messages(lesson) if one.complaint]
    assert bad == []


def test_what_is_complained_about_in_a_message():
    bad = [
        "assert f(1) == 2",
        "torch.testing.assert_close(f(x), y)",
        "check(f(1) == 2, '')",
        "check(f(1) == 2, 'f of 1')",
        "check_equal(f(1), 2)",
    ]
    good = ["check(f(1) == 2, 'f of 1', 'why')", "check_equal(f(1), 2, 'f of 1')"]
    assert all(one.complaint for text in bad for one in messages_of("01", "test_f", text))
    assert not any(one.complaint for text in good for one in messages_of("01", "test_f", text))
