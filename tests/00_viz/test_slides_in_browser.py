"""Slides on a screen of 1280 × 800: none scrolls, what is too high goes on on the next, and letters can be read."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.grading.slides import as_page, make_slides, planned

ROOT = Path(__file__).parents[2]
LINES = [f"line {number} of the output" for number in range(90)]
WIDE = "".join(
    f"<p style='margin: 0; font-size: 13px'>row {number} of the picture</p>" for number in range(26)
)

needs_reveal = pytest.mark.skipif(
    importlib.util.find_spec("sphinx_revealjs") is None,
    reason="reveal.js comes with the extra `site`",
)

# Each slide in turn: does it scroll, how small are its letters, and which lines can be seen.
LOOK = """async () => {
    const found = [];
    for (const slide of Reveal.getSlides()) {
        const { h, v } = Reveal.getIndices(slide);
        Reveal.slide(h, v || 0);
        await new Promise((done) => setTimeout(done, 40));
        const screen = slide.getBoundingClientRect(), lines = [];
        let smallest = 99, scrolls = false;
        for (const one of slide.querySelectorAll("*")) {
            scrolls ||= /auto|scroll/.test(getComputedStyle(one).overflowY) && one.scrollHeight > one.clientHeight + 1;
        }
        const view = (slide.querySelector(".part") || slide).getBoundingClientRect();
        const walker = document.createTreeWalker(slide, NodeFilter.SHOW_TEXT), range = document.createRange();
        while (walker.nextNode()) {
            const text = walker.currentNode, parent = text.parentElement;
            if (!text.textContent.trim() || !parent.getClientRects().length) continue;
            smallest = Math.min(smallest, parseFloat(getComputedStyle(parent).fontSize) * parent.currentCSSZoom * Reveal.getScale());
            let at = 0;
            for (const line of text.textContent.split("\\n")) {
                range.setStart(text, at);
                range.setEnd(text, at + line.length);
                const box = range.getBoundingClientRect();
                if (line.trim() && box.top >= view.top - 2 && box.bottom <= view.bottom + 2) lines.push(line.trim());
                at += line.length + 1;
            }
        }
        found.push({ scrolls, smallest, lines, high: view.height / Reveal.getScale() });
    }
    return found;
}"""


def looked_at(page, folder: Path, notebook) -> list[dict]:
    """What `LOOK` finds in the slides of a notebook."""
    make_slides([], folder)
    (folder / "page.html").write_text(as_page(planned(notebook), "A lesson"), encoding="utf-8")
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("body.reveal-ready, .reveal.ready")
    page.wait_for_timeout(500)
    return page.evaluate(LOOK)


@needs_reveal
def test_an_output_of_many_lines_goes_on_on_further_slides_and_no_line_is_lost(page, tmp_path):
    output = new_output("stream", text="\n".join(LINES) + "\n")
    cells = [
        new_markdown_cell("# A lesson"),
        new_markdown_cell("## By hand\n\nA sentence."),
        new_code_cell("show()", outputs=[output]),
    ]
    found = looked_at(page, tmp_path, new_notebook(cells=cells))
    assert len(found) > 3
    assert not any(slide["scrolls"] for slide in found)
    assert all(slide["smallest"] >= 12 and slide["high"] <= 721 for slide in found)
    seen = [line for slide in found for line in slide["lines"] if line.startswith("line ")]
    assert seen == LINES


@needs_reveal
def test_a_picture_beside_its_text_stays_whole(page, tmp_path):
    figure = new_output(
        "display_data", data={"text/html": f"<figure class='cl-fig'>{WIDE}</figure>"}
    )
    cells = [
        new_markdown_cell("# A lesson"),
        new_markdown_cell("## By hand\n\n" + "Here is a sentence that is shown. " * 8),
        new_code_cell("show()", outputs=[figure]),
    ]
    found = looked_at(page, tmp_path, new_notebook(cells=cells))
    with_rows = [slide for slide in found if any("row " in line for line in slide["lines"])]
    assert len(with_rows) == 1 and not with_rows[0]["scrolls"]


@needs_reveal
def test_no_slide_of_a_lesson_scrolls_and_letters_are_large_enough(page, tmp_path):
    """The lesson with the tallest picture."""
    path = ROOT / "notebooks/15_capstone.ipynb"
    make_slides([path], tmp_path)
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto((tmp_path / "15_capstone.html").as_uri())
    page.wait_for_timeout(3000)
    found = page.evaluate(LOOK)
    assert not any(slide["scrolls"] for slide in found)
    assert all(slide["high"] <= 721 for slide in found)
