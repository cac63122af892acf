"""The runner of wrong answers, tested on a course of one lesson: it must tell who stopped an answer, and in which words."""

from __future__ import annotations

import pytest
from mutants import Mutants, Verdict, halves, own_reasons
from tiny_course import tiny_course


@pytest.fixture
def tiny(tmp_path) -> Mutants:
    tiny_course(tmp_path)
    return Mutants("01_tiny", tmp_path)


def test_the_reference_passes_and_the_stub_is_stopped_by_its_own_sentence(tiny):
    assert tiny.exercises == ["double", "biggest"]
    assert tiny.verdict("double") == Verdict(True)
    untouched = tiny.verdict("double", tiny.stub("double"))
    assert (untouched.part, untouched.error) == ("visible checks", "NotImplementedError")


def test_a_wrong_answer_is_stopped_by_the_check_that_sees_it(tiny):
    visible = tiny.verdict("double", tiny.edited("double", "2 * number", "3 * number"))
    assert (visible.part, visible.error, visible.what) == (
        "visible checks",
        "CheckFailed",
        "double([1, 2])",
    )
    assert "Expected: [2, 4]" in visible.message
    hidden = tiny.verdict("double", tiny.written("double", "    return [2, 4]"))
    assert (hidden.part, hidden.what) == ("hidden checks", "a fresh input")


def test_an_answer_that_cannot_be_read_or_never_ends_is_told_apart(tiny):
    assert tiny.verdict("double", "def double(").part == "answer"
    endless = tiny.verdict("double", tiny.written("double", "    while True: pass"), seconds=0.2)
    assert endless.error == "TimeoutError"


def test_wrong_answers_must_fail_each_for_its_own_reason(tiny):
    wrong = {"three": "    return [3 * n for n in numbers]", "fixed": "    return [2, 4]"}
    verdicts = tiny.verdicts(
        "double", {name: tiny.written("double", body) for name, body in wrong.items()}
    )
    own_reasons(verdicts)
    with pytest.raises(AssertionError, match="same reason"):
        own_reasons(verdicts | {"four": verdicts["three"]})
    with pytest.raises(AssertionError, match="passes"):
        own_reasons({"right": Verdict(True)})


def test_a_mutation_that_changes_nothing_is_an_error(tiny):
    with pytest.raises(LookupError, match="does not say 'triple'"):
        tiny.edited("double", "triple", "double")
    with pytest.raises(LookupError, match="no cell for 'nothing'"):
        tiny.verdict("nothing")


def test_visible_and_hidden_halves_keep_their_line_numbers():
    visible, hidden = halves("a = 1\n### BEGIN HIDDEN TESTS\nb = 2\n### END HIDDEN TESTS\nc = 3")
    assert visible.splitlines() == ["a = 1", "", "", "", "c = 3"]
    assert hidden.splitlines()[2] == "b = 2" and "a = 1" not in hidden
