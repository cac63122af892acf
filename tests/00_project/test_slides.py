"""`course slides`: what goes onto a slide, what becomes a note, and that a page loads nothing from a network."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.grading.notebooks import CourseError, read
from course_lib.grading.slides import as_page, lesson_notebooks, make_slides, planned

ROOT = Path(__file__).parents[2]
LESSONS = lesson_notebooks(ROOT, [])
LOADED = re.compile(
    r"""(?:<(?:script|img|iframe)[^>]+src|<link[^>]+href|@import|url\()\s*=?\s*["'(]?\s*(?:https?:)?//"""
)


def slides(*cells) -> list[tuple[str, str]]:
    """(slide type, text) of each cell of the planned slides."""
    nb = planned(
        new_notebook(cells=[new_markdown_cell(c) if isinstance(c, str) else c for c in cells])
    )
    return [(cell.metadata["slideshow"]["slide_type"], cell.source) for cell in nb.cells]


def text(found: list[tuple[str, str]], *kinds: str) -> str:
    return "\n".join(source for kind, source in found if kind in kinds)


def drawn(source: str = "picture()", **metadata):
    return new_code_cell(
        source, metadata=metadata, outputs=[new_output("stream", text="a picture")]
    )


def test_a_section_begins_a_column_and_a_subsection_or_a_second_picture_a_slide_below():
    found = slides(
        "# Lesson", "## By hand\n\nOne.", drawn(), drawn(), "### In two\n\nTwo.", drawn()
    )
    assert [kind for kind, _ in found] == [
        "slide",
        "slide",
        "-",
        "subslide",
        "-",
        "subslide",
        "-",
        "-",
    ]
    assert 'class="where">By hand<' in found[3][1]


def test_long_prose_is_cut_after_a_sentence_and_the_whole_is_said():
    long = (
        "The first sentence is shown. " + "More words follow here. " * 30 + "The last one is said."
    )
    found = slides("## Title\n\n" + long)
    assert "The first sentence is shown." in text(found, "slide") and "The last one" not in text(
        found, "slide"
    )
    assert "The last one is said." in text(found, "notes")


def test_short_prose_and_its_table_need_no_notes():
    assert slides("## Title\n\nShort.\n\n| a | b |\n|---|---|\n| 1 | 2 |") == [
        ("slide", "## Title\n\nShort.\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    ]


def test_a_folded_answer_is_said_and_its_question_shown():
    found = slides(
        "## Recap\n\n<details><summary>1. Why is it fast?</summary>\n\nBecause of fusion.\n</details>"
    )
    assert "1. Why is it fast?" in text(found, "slide") and "fusion" not in text(found, "slide")
    assert "Because of fusion." in text(found, "notes")


def test_the_hidden_source_of_a_question_holds_the_answer_so_only_the_speaker_sees_it():
    nb = planned(
        new_notebook(
            cells=[
                new_markdown_cell("## Predict"),
                drawn("Predict(answer=2)", jupyter={"source_hidden": True}),
            ]
        )
    )
    page = as_page(nb, "x")
    shown = re.sub(r'(?s)<aside class="notes">.*?</aside>', "", page)
    assert "answer" in page and "answer" not in shown and "a picture" in shown


def test_what_an_instructor_marked_has_the_last_word():
    found = slides("## Title", new_markdown_cell("Aside.", metadata={"slideshow": {"slide_type": "notes"}}),
                   drawn(slideshow={"slide_type": "skip"}), drawn("shown()", slideshow={"slide_type": "fragment"}))  # fmt: skip
    assert found[1:] == [("notes", "Aside."), ("skip", "picture()"), ("fragment", "shown()")]


def test_a_slide_that_an_instructor_begins_has_no_empty_one_before_it():
    mine = new_markdown_cell("Mine.", metadata={"slideshow": {"slide_type": "slide"}})
    found = slides("## Title", drawn(), drawn(slideshow={"slide_type": "subslide"}), mine)
    assert found == [
        ("slide", "## Title\n\n"),
        ("-", "picture()"),
        ("subslide", "picture()"),
        ("slide", "Mine."),
    ]


def test_a_comment_in_fenced_code_is_no_heading():
    assert [kind for kind, _ in slides("## Title\n\n```python\n# not a heading\nx = 1\n```")] == [
        "slide"
    ]


def test_a_cell_that_only_imports_is_no_slide():
    assert ("skip", "import torch\n_ = torch.manual_seed(0)") in slides(
        "## A", new_code_cell("import torch\n_ = torch.manual_seed(0)")
    )


def test_links_lead_to_slides_and_not_to_files_that_are_not_there():
    shown = text(
        slides(
            "[03](03_graph_breaks.ipynb), [glossary](glossary.md), [torch](https://pytorch.org)"
        ),
        "-",
        "subslide",
    )
    assert "[03](03_graph_breaks.html), glossary, [torch](https://pytorch.org)" in shown


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_section_of_a_lesson_has_its_slide_and_nothing_in_it_comes_from_a_network(path):
    nb = read(path)
    cells = planned(nb).cells
    sections = re.findall(
        r"(?m)^## (.+)$", "\n".join(c.source for c in nb.cells if c.cell_type == "markdown")
    )
    begun = [c.source for c in cells if c.metadata["slideshow"]["slide_type"] == "slide"]
    assert len(sections) >= 8 and all(
        any(f"## {name}" in source for source in begun) for name in sections
    )
    assert sum(c.metadata["slideshow"]["slide_type"] == "notes" for c in cells) >= 5
    pictures = [
        output.data["text/html"]
        for c in cells
        for output in c.get("outputs", ())
        if "text/html" in output.get("data", {})
    ]
    assert pictures and not any(LOADED.search("".join(picture)) for picture in pictures)


def test_a_page_is_whole_and_loads_nothing_from_a_network():
    page = as_page(planned(read(LESSONS[0])), "x")
    assert page.count("<section") == page.count("</section>") > 30
    assert page.count('<aside class="notes">') >= 5 and 'data-mime-type="text/html"' in page
    assert not LOADED.search(page)


def test_a_lesson_that_is_not_there_is_named():
    with pytest.raises(CourseError, match="no lesson '77'"):
        lesson_notebooks(ROOT, ["77"])


def test_the_folder_has_all_that_the_pages_ask_for(tmp_path):
    if importlib.util.find_spec("sphinx_revealjs") is None:
        with pytest.raises(CourseError, match=r"\.\[site\]"):
            make_slides(LESSONS[:1], tmp_path)
        return
    (page,) = make_slides(LESSONS[:1], tmp_path)
    wanted = re.findall(
        r'<(?:script[^>]+src|link[^>]+href)="([^"]+)"', page.read_text(encoding="utf-8")
    )
    assert len(wanted) == 5 and all((tmp_path / name).is_file() for name in wanted)
    assert f'href="{page.name}"' in (tmp_path / "index.html").read_text(encoding="utf-8")
