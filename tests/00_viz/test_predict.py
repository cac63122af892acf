"""A question before running: answered in the browser, and never in the way of a run that nobody watches."""

from __future__ import annotations

import sys

import pytest

from course_lib import viz
from course_lib.viz.widgets import predict

WHY = "Relu goes into the loop of `add`."


def question() -> viz.Predict:
    return viz.Predict(
        "How many kernels for `(x + 1).relu()`?", ["none", "one", "two"], answer=1, because=WHY
    )


def test_where_nobody_answers_it_says_so_and_keeps_the_answer_folded():
    score = question().score()
    assert score.text == f"Not answered yet. The answer is b) one. {WHY}"
    shown, folded = score.body.split("<details>")
    assert "Not answered yet. Choose an option above" in shown and "b)" not in shown
    assert "The answer is b) one. Relu goes into the loop of <code>add</code>." in folded


def test_a_right_and_a_wrong_choice_get_a_word_each_and_the_reason():
    guess = question()
    guess.choice = 1
    assert guess.score().alt == "You said b) one: ✓ right." and WHY in guess.score().text
    guess.choice = 2
    assert guess.score().text == f"You said c) two: ✕ not so. The answer is b) one. {WHY}"
    assert "<details>" not in guess.score().body


def test_the_saved_file_lists_the_options_and_does_not_tell_the_answer():
    data = question()._repr_mimebundle_()
    data = data[0] if isinstance(data, tuple) else data
    assert (
        data["text/plain"]
        == "How many kernels for `(x + 1).relu()`?\n  a) none\n  b) one\n  c) two"
    )
    assert (
        "<code>(x + 1).relu()</code>" in data["text/html"]
        and "<li>c) two</li>" in data["text/html"]
    )
    assert "goes into" not in data["text/html"]


def test_the_widget_sends_its_choice_to_python_and_takes_one_back():
    pytest.importorskip("anywidget")
    guess = question()
    assert "application/vnd.jupyter.widget-view+json" in guess._repr_mimebundle_()[0]
    guess.widget.choice = 2  # what the browser does
    assert guess.choice == 2
    guess.choice = 0
    assert guess.widget.choice == 0
    assert "because" not in guess.widget.get_state(), "the answer is not sent to the page"


def test_without_anywidget_there_is_still_the_list(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert set(question()._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_an_option_that_is_not_there_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match="the right option, 0 to 1, not 2"):
        viz.Predict("?", ["a", "b"], answer=2, because="")
    with pytest.raises(ValueError, match="2 to 6 options, not 1"):
        viz.Predict("?", ["a"], answer=0, because="")
    with pytest.raises(ValueError, match="number of an option, 0 to 2, not 3"):
        question().choice = 3


def test_a_question_cannot_bring_markup_of_its_own():
    assert predict.marked("a < b & `x < 1`") == "a &lt; b &amp; <code>x &lt; 1</code>"


def test_it_is_answered_by_keyboard_and_by_mouse_in_a_browser_without_a_kernel(live):
    page = live(question().widget)
    group = page.get_by_role("group", name="How many kernels for (x + 1).relu()?")
    options = group.get_by_role("radio")
    assert [options.nth(i).get_attribute("data-lm-suppress-shortcuts") for i in range(3)] == [
        "true"
    ] * 3
    assert page.get_by_role("status").inner_text() == "Choose before you read on."
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    assert group.get_by_role("radio", name="b) one").is_checked()
    page.get_by_text("two").click()
    assert page.get_by_role("status").inner_text().startswith("You said c.")
    assert [state["choice"] for state in page.evaluate("window.sent")] == [0, 1, 2]
