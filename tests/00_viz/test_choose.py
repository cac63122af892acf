"""Choosing what to fuse and what to pad to: each combination is the real scheduler's."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib import events
from course_lib.viz.widgets.choose import choose_buckets, choose_fusion

LENGTHS = [5, 12, 17, 20, 33, 70, 128]


@pytest.fixture(scope="module")
def graph():
    with torch.no_grad(), cl.record() as trace, pytest.MonkeyPatch.context() as patch:
        # which library is fastest differs from machine to machine
        patch.setattr(cl.config, "measure_products", False)
        cl.compile(lambda x, w: (torch.relu(x) @ w).relu() + x)(
            torch.randn(64, 64), torch.randn(64, 64)
        )
    return trace.of(events.Lowered)[0].graph, trace.of(events.Scheduled)[0].schedule


def test_all_ticked_is_what_the_compiler_does_and_none_is_eager(graph):
    loops, scheduled = graph
    made = choose_fusion(loops)
    assert (
        made.choices == ["relu + mm", "mm + relu", "relu + add"]
        and len(made.frames) == len(made.said) == 8
    )
    nothing, everything = made.said[0], made.said[-1]
    assert nothing.startswith("4 kernels") and everything.startswith(
        f"{len(scheduled.kernels)} kernels"
    )
    assert (
        "Refused" not in nothing
        and "relu and mm: a library call (GEMM, convolution) cannot take loops in" in everything
    )
    # 8 matrices of 16 KB: x twice, w, relu and mm twice, the result
    assert made.said[4] == "3 kernels, 131 KB through memory."


def test_borders_that_are_ticked_are_those_that_are_padded_to():
    made = choose_buckets(LENGTHS, (16, 64, 500))
    assert made.choices == ["16", "64"] and [said.split(":")[0] for said in made.said[:2]] == [
        "7 requests in 1 bucket", "7 requests in 2 buckets",
    ]  # fmt: skip
    computed = 7 * 128
    assert f"{(computed - sum(LENGTHS)) / computed:.0%} of {computed:,} elements" in made.said[0]


def test_a_saved_notebook_has_every_combination_as_text():
    made = choose_buckets(LENGTHS, (16, 64))
    assert (
        len(repr(made).splitlines()) == 2 + 4 and "Run the cell to choose" in made.picture.caption
    )
    assert made.picture.body.count("<svg") == 1
    with pytest.raises(ValueError, match="take a smaller example"):
        choose_buckets(LENGTHS, range(6, 30))


def test_it_is_used_by_keyboard_and_mouse_without_a_kernel(live):
    made = choose_buckets(LENGTHS, (16, 64))
    page = live(made.widget)
    boxes = page.get_by_role("group", name=made.question).get_by_role("checkbox")
    assert [boxes.nth(n).is_checked() for n in range(2)] == [True, True]
    assert page.get_by_role("status").inner_text() == made.said[3]
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert page.get_by_role("status").inner_text() == made.said[2]
    page.get_by_text("64", exact=True).first.click()
    assert (
        page.get_by_role("status").inner_text() == made.said[0] and page.locator("svg").count() == 1
    )


def test_what_is_ticked_is_drawn_as_one_kernel(graph, live):
    made = choose_fusion(graph[0])
    page = live(made.widget)
    said, frames = page.get_by_role("status"), page.locator("svg rect").count()
    page.get_by_role("checkbox", name="relu + add").focus()
    page.keyboard.press("Space")
    assert said.inner_text() == made.said[3] and page.locator("svg rect").count() == frames - 1, (
        "no frame round relu and add"
    )
    page.get_by_text("relu + add").click()
    assert said.inner_text() == made.said[7] and page.locator("svg rect").count() == frames


def test_in_a_narrow_column_the_drawing_scrolls_and_the_words_do_not(graph, live):
    page = live(choose_fusion(graph[0]).widget)
    page.set_viewport_size({"width": 400, "height": 600})
    assert page.locator("fieldset").bounding_box()["width"] <= 400
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
