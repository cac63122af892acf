"""Every widget by keyboard and by what a screen reader is told: names, order, visible focus, no dead ends."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib.bench.models import TinyBlock
from course_lib.viz import Predict
from course_lib.viz.widgets.choose import choose_buckets
from course_lib.viz.widgets.move_tile import move_tile

FOCUSED = """() => {
    const one = document.activeElement, label = one.closest("label");
    const looks = [getComputedStyle(one), ...(label ? [getComputedStyle(label)] : [])];
    return {
        body: one === document.body,
        name: one.getAttribute("aria-label") || (label && label.textContent.trim()) || one.textContent.trim(),
        seen: looks.some((style) => style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0),
    };
}"""
FAULTS = """() => {
    const all = [...document.querySelectorAll("#here *")], ids = all.map((one) => one.id).filter(Boolean), faults = [];
    if (new Set(ids).size < ids.length) faults.push("an id stands twice");
    for (const one of all) {
        const name = `${one.tagName}.${one.getAttribute("class")}`, active = one.getAttribute("aria-activedescendant");
        const told = one.getAttribute("role") === "img" && one.getAttribute("aria-label");
        if (one.tagName === "svg" && !told) faults.push(`${name}: no words`);
        if (one.tabIndex > 0) faults.push(`${name}: an order of its own`);
        if (active && !document.getElementById(active)) faults.push(`${name}: leads to nobody`);
        const scrolls = /auto|scroll/.test(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1;
        const reached = one.tabIndex >= 0 || one.querySelector("[tabindex='0'], button, input");
        if (scrolls && !reached) faults.push(`${name}: scrolls by mouse only`);
    }
    return faults;
}"""


def widgets():
    with torch.no_grad(), cl.record() as trace:
        cl.compile(TinyBlock(16, 2))(torch.randn(2, 3, 16))
    return {
        "explorer": trace.explorer().widget,
        "stepper": trace.stepper().widget,
        "predict": Predict("How many?", ["one", "two"], answer=0, because="It is so.").widget,
        "choose": choose_buckets([3, 5, 9, 17], [4, 8]).widget,
        "move_tile": move_tile((5, 6), (2, 4)).widget,
    }


@pytest.fixture(scope="module")
def made():
    pytest.importorskip("anywidget")
    return widgets()


@pytest.mark.parametrize("name", ["explorer", "stepper", "predict", "choose", "move_tile"])
def test_all_that_takes_keys_has_a_name_a_visible_focus_and_its_turn(name, made, live):
    page = live(made[name])
    page.wait_for_timeout(200)
    assert page.evaluate(FAULTS) == []
    stops = []
    for _ in range(60):
        page.keyboard.press("Tab")
        if (stop := page.evaluate(FOCUSED))["body"]:
            break
        stops.append(stop)
    reachable = page.locator(
        "#here :is(button, input, [tabindex='0']):not([disabled], [tabindex='-1']):visible"
    )
    radios = page.locator("#here input[type=radio]")
    assert len(stops) == reachable.count() - max(0, radios.count() - 1), (
        "each once, and a group of radio buttons once in all"
    )
    assert all(stop["name"] for stop in stops), [stop for stop in stops if not stop["name"]]
    assert all(stop["seen"] for stop in stops), [stop for stop in stops if not stop["seen"]]


@pytest.mark.parametrize("name", ["stepper", "move_tile"])
def test_a_button_that_comes_to_its_end_does_not_take_the_keys_with_it(name, made, live):
    page = live(made[name])
    button = page.get_by_role(
        "button", name="one instruction on" if name == "stepper" else "one tile on"
    )
    button.focus()
    for _ in range(200):
        page.keyboard.press("Enter")
        if not button.is_enabled():
            break
    assert page.evaluate("document.activeElement.type") == "range"
    page.keyboard.press("ArrowLeft")
    assert button.is_enabled()


def test_a_step_is_told_in_words(made, live):
    page = live(made["stepper"])
    page.get_by_role("button", name="to the next instruction that adds an FX node").click()
    said = page.get_by_role("status").inner_text()
    assert "new node layer_norm" in said and "line" in said and "stack: " in said


KEEPS_ITS_KEYS = "document.activeElement.getAttribute('data-lm-suppress-shortcuts')"


@pytest.mark.parametrize("name", ["explorer", "stepper", "predict", "choose", "move_tile"])
def test_no_key_pressed_in_a_widget_reaches_the_notebook_around_it(name, made, live):
    page = live(made[name])
    page.wait_for_timeout(200)
    for focusable in page.locator("#here :is(button, input, [tabindex]):not([disabled])").all():
        focusable.focus()
        assert page.evaluate(KEEPS_ITS_KEYS) == "true", "JupyterLab deletes the cell at `d d`"
