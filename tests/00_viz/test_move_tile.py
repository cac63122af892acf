"""A tile goes where it is dragged, and where the keys send it."""

from __future__ import annotations

import pytest

from course_lib.viz.widgets.move_tile import CELL, move_tile


@pytest.fixture
def tiles(live):
    pytest.importorskip("anywidget")
    made = move_tile((4, 20), (2, 8))
    return made, live(made.widget)


def lane(page, row, column):
    """The middle of a lane, in px of the window: the drawing may have shrunk."""
    box = page.locator("svg").bounding_box()
    scale = box["width"] / float(page.locator("svg").get_attribute("width"))
    return tuple(
        start + scale * (2 + (place + 0.5) * CELL)
        for start, place in ((box["x"], column), (box["y"], row))
    )


@pytest.mark.parametrize("width", [1280, 400])
def test_it_is_dragged_over_the_tensor(tiles, width):
    made, page = tiles
    page.set_viewport_size({"width": width, "height": 700})
    said = page.locator("[aria-live]")
    page.mouse.move(*lane(page, 0, 3))
    page.mouse.down()
    for row, column, number in ((0, 7, 0), (0, 8, 1), (1, 15, 1), (2, 15, 4), (3, 0, 3)):
        page.mouse.move(*lane(page, row, column))
        assert said.inner_text() == made.said(number)
    page.mouse.move(-5, 2000, steps=3)
    assert said.inner_text() == made.said(3), "a pointer outside has the nearest tile"
    page.mouse.up()
    page.mouse.move(*lane(page, 0, 9))
    assert said.inner_text() == made.said(3), "let go"


def test_it_goes_from_tile_to_tile_by_keyboard(tiles):
    made, page = tiles
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == made.said(1)
    page.keyboard.press("End")
    assert page.locator("[aria-live]").inner_text() == made.said(5)
    assert page.locator("svg [stroke-dasharray]").count() == made.masked(5)
