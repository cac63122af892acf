"""The stepper: live where widgets live, a table everywhere else."""

from __future__ import annotations

import json
import sys

import pytest

from course_lib import viz


def test_steps_are_plain_data_in_the_order_of_execution(by_hand):
    stepper = viz.Stepper(by_hand)
    steps = stepper.steps
    assert [step["op"] for step in steps][3:6] == ["CALL", "LOAD_FAST", "LOAD_FAST"]
    assert steps[3]["inside"] == 4 and steps[4]["depth"] == 1
    assert steps[2]["on"] == ["w: f32[3]"] and steps[2]["stays"] == ["helper()", "x: f32[2, 3]"]
    assert json.loads(json.dumps(steps)) == steps


def test_it_brings_the_source_of_every_function_that_was_followed(by_hand):
    widget = pytest.importorskip("anywidget") and viz.Stepper(by_hand).widget
    assert {name: [number for number, _ in lines] for name, lines in widget.sources.items()} == {
        "f this notebook": [4, 5, 6],
        "helper this notebook": [1, 2],
    }
    assert widget.title == "f: 12 instructions"


def test_a_saved_notebook_keeps_the_table(by_hand):
    pytest.importorskip("anywidget")
    data, _ = viz.Stepper(by_hand)._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == viz.bytecode_table(by_hand).text
    assert data["text/html"].startswith("<figure") and "BINARY_OP" in data["text/html"]


def test_without_anywidget_there_is_still_the_table(by_hand, monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    bundle = viz.Stepper(by_hand)._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}


def test_the_nodes_are_those_of_the_graph(trace):
    nodes = trace.stepper().nodes
    assert {
        "name": "softmax",
        "text": "softmax = softmax(mul)",
        "kind": "",
        "result": "f32[32, 64]",
    } in nodes
    assert [node["kind"] for node in nodes].count("input") == 4


def test_it_steps_by_keyboard_in_a_browser_without_a_kernel(by_hand, live):
    stepper = viz.Stepper(by_hand)
    page = live(stepper.widget)
    slider = page.get_by_role("slider")
    slider.focus()
    assert slider.get_attribute("data-lm-suppress-shortcuts") == "true", (
        "JupyterLab would eat the arrow keys"
    )
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert page.locator(".cl-ins").inner_text() == "6 BINARY_OP *"
    assert page.locator(".cl-now").inner_text().split() == ["2", "return", "a", "*", "b"]
    assert page.locator(".cl-fresh").inner_text().startswith("mul = ")
    page.keyboard.press("End")
    assert (
        page.locator(".cl-count").inner_text()
        == f"step {len(stepper.steps)} of {len(stepper.steps)}"
    )
