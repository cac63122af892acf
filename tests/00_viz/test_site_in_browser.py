"""What the site adds to its theme, in a browser: a phone's width, the keyboard, tables, excerpts of a search; and the cheat sheet."""

from __future__ import annotations

import json
import runpy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "docs/site/static"
BUILD = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/site/build.py")))
SHEET = ROOT / "docs/cheat-sheet.md"
PATH = "torch/_inductor/" + "very_long_name_that_no_line_can_hold/" * 3 + "scheduler.py"
BODY = f"""
<style>span.pre {{ white-space: nowrap; }}</style>
<main class="bd-content"><article class="bd-article-container">
<p>Rooms: <code><span class="pre">{PATH}</span></code>, and <a href="#">{PATH}</a></p>
<ul><li><code>{PATH}</code></li><li><code><span class="pre">{PATH}</span></code></li></ul>
<table><thead><tr><th></th><th>mode</th></tr></thead><tbody><tr><td><code>{PATH}</code></td><td>x</td></tr></tbody></table>
<div class="cell_output"><div class="output text_html"><div style="width: 900px">wide</div></div></div>
<pre style="overflow: auto; white-space: pre">{"x = 1; " * 60}</pre>
<p id="short">short</p>
</article></main>
"""


def site_page(folder: Path, body: str, texts: dict[str, str] | None = None) -> str:
    """A page as the site has it, on disk; its address."""
    shutil.copytree(STATIC, folder / "_static", dirs_exist_ok=True)
    script = f"window.courseTexts = {json.dumps(texts or {})};"
    (folder / "_static" / "texts.js").write_text(script, encoding="utf-8")
    path = folder / "search.html"
    path.write_text(
        '<!doctype html><html lang="en" data-content_root="./"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="_static/site.css">'
        f'<script src="_static/site.js"></script></head><body style="margin: 0">{body}</body></html>',
        encoding="utf-8",
    )
    return path.as_uri()


def test_a_page_with_a_long_path_is_as_wide_as_a_phone(page, tmp_path):
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(site_page(tmp_path, BODY))
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_a_name_in_a_table_stays_whole_at_a_phones_width(page, tmp_path):
    name = '<code><span class="pre">max-autotune-no-cudagraphs</span></code>'
    cells = "<td>what it does and what it costs, in some words</td>" * 3
    body = (
        "<style>span.pre { white-space: nowrap; }</style>"
        f'<main class="bd-content"><table><tr><td>{name}</td>{cells}</tr></table></main>'
    )
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(site_page(tmp_path, body))
    assert page.evaluate("document.querySelector('.pre').getClientRects().length") == 1


def test_what_scrolls_is_reached_by_the_keyboard_and_nothing_else(page, tmp_path):
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(site_page(tmp_path, BODY))
    reached = page.evaluate("[...document.querySelectorAll('[tabindex]')].map(e => e.tagName)")
    assert sorted(reached) == ["DIV", "PRE"]


def test_a_figure_that_scrolls_is_reached_and_a_folded_cell_is_called_what_it_says(page, tmp_path):
    body = (
        '<main class="bd-content"><figure class="cl-fig" style="overflow-x: auto"><div style="width: 900px">wide</div></figure>'
        '<details><summary aria-label="Toggle hidden content">Show code</summary>x</details></main>'
    )
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(site_page(tmp_path, body))
    assert page.evaluate("document.querySelector('figure').tabIndex") == 0
    assert page.evaluate("document.querySelector('summary').hasAttribute('aria-label')") is False


def test_an_empty_cell_at_the_head_of_a_table_is_no_heading(page, tmp_path):
    page.goto(site_page(tmp_path, BODY))
    assert page.evaluate("[...document.querySelectorAll('th')].map(e => e.textContent)") == ["mode"]
    assert page.evaluate("document.querySelectorAll('thead td').length") == 1


def test_a_hit_of_the_search_says_what_stands_around_the_word(page, tmp_path):
    texts = {
        "notebooks/04_guards": "Many words before. " * 20 + "A guard is a test that must hold.",
        "other": "nothing",
    }
    body = (
        '<div id="search-results"><ul class="search"><li><a href="notebooks/04_guards.html">Guards</a></li>'
        '<li><a href="other.html">Other</a></li></ul></div>'
    )
    page.goto(site_page(tmp_path, body, texts) + "?q=GUARD")
    page.wait_for_selector(".excerpt")
    said = page.evaluate("[...document.querySelectorAll('.excerpt')].map(e => e.textContent)")
    assert len(said) == 1
    assert "A guard is a test that must hold." in said[0] and said[0].startswith("… ")


def test_the_texts_of_the_search_are_words_without_signs(tmp_path):
    (tmp_path / "a.md").write_text(
        "# Head\n\nA *word* in `code`, [a link](b.md) | cell |\n", encoding="utf-8"
    )
    script = BUILD.texts_of(tmp_path)
    said = json.loads(script.removeprefix("window.courseTexts = ").rstrip(";\n"))
    assert said == {"a": "Head A word in code , a link cell"}


# ---- the cheat sheet


def test_the_cheat_sheet_is_what_its_source_says():
    pytest.importorskip("markdown_it")
    sheet = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/site/cheat_sheet.py")))
    text = SHEET.read_text(encoding="utf-8")
    assert SHEET.with_suffix(".html").read_text(encoding="utf-8") == sheet.page(text), (
        "make cheat-sheet"
    )
    printed = SHEET.with_suffix(".pdf").read_bytes()
    assert f"({sheet.digest(text)})".encode() in printed.replace(b"\\", b""), "make cheat-sheet"


def test_the_cheat_sheet_is_one_page():
    printed = SHEET.with_suffix(".pdf").read_bytes()
    assert b"/Count 1" in printed


@pytest.mark.parametrize("width", [400, 800, 1280])
def test_the_cheat_sheet_fits_a_screen(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(SHEET.with_suffix(".html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_the_cheat_sheet_names_is_there():
    import torch

    import course_lib as cl
    from course_lib.viz.recording.logs import LOGS

    text = SHEET.read_text(encoding="utf-8")
    for line in text.split("## Logs")[1].split("##")[0].splitlines():
        ours = line.split("|")[3:4]
        for name in ours and [part.strip(" `") for part in ours[0].split(",")]:
            assert name in (*LOGS, "COURSE_LOGS=", "---", ""), name
    for name in ("record", "explain", "mirror", "events"):
        assert hasattr(cl, name)
    assert torch.compiler.set_stance


# ---- the walk of the README, and the explorer of the front page

WALK = (ROOT / "docs/pictures/walk.svg").read_text(encoding="utf-8")
SEEN = """() => [...document.querySelectorAll("svg > g")].filter((g) => getComputedStyle(g).opacity > 0.5)
    .map((g) => g.textContent).join(" ")"""
AT = "(second) => document.getAnimations().forEach((one) => { one.pause(); one.currentTime = second * 1000; })"


def test_the_walk_shows_one_scene_after_the_other_and_stays_on_the_last(page):
    page.set_content(WALK)
    found = []
    for second in (1, 10, 15.8, 20.5, 25, 31, 500):
        page.evaluate(AT, second)
        found.append(page.evaluate(SEEN))
    signs = (
        "def scaled",
        "BINARY_OP *",
        "x.shape ==",
        "buf1[i, j]",
        "as one",
        "int64_t",
        "int64_t",
    )
    for sign, seen in zip(signs, found, strict=True):
        assert sign in seen, (sign, seen)
    assert all("def scaled" not in seen for seen in found[1:])


def test_the_walk_stands_still_for_who_asks_for_less_motion(page):
    page.emulate_media(reduced_motion="reduce")
    page.set_content(WALK)
    assert page.evaluate("document.getAnimations().length") == 0
    assert "def scaled" in page.evaluate(SEEN) and "int64_t" not in page.evaluate(SEEN)


@pytest.mark.parametrize("scheme, ground", [("light", "255, 255, 255"), ("dark", "13, 17, 23")])
def test_the_walk_has_a_ground_of_its_own_in_both_themes(page, scheme, ground):
    page.emulate_media(color_scheme=scheme)
    page.set_content(WALK)
    fill = page.evaluate("getComputedStyle(document.querySelector('svg > rect')).fill")
    assert fill == f"rgb({ground})"


NAMES = """() => [...document.querySelectorAll("button")].filter((one) => one.getAttribute("aria-label") && /\\w{3}/.test(one.innerText))
    .filter((one) => !one.getAttribute("aria-label").replace(/\\s+/g, " ").includes(one.innerText.replace(/\\s+/g, " ").trim()))
    .map((one) => one.innerText)"""


def test_the_explorer_on_a_page_of_its_own_fits_a_phone_and_is_called_what_it_shows(page, tmp_path):
    import torch

    import course_lib as cl
    from course_lib.bench.models import TinyBlock

    saved = cl.explore(TinyBlock(16, 2), torch.randn(2, 3, 16)).save(tmp_path / "explorer.html")
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(saved.as_uri())
    page.wait_for_selector(".cl-x-thread button")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.evaluate(NAMES) == []
    assert page.locator("main").count() == 1 and page.locator("h1").count() == 1
    levels = "[...document.querySelectorAll('h4')].map((one) => one.getAttribute('aria-level'))"
    assert set(page.evaluate(levels)) == {"2"}


def test_the_front_page_shows_the_explorer_of_a_model():
    front = (ROOT / "docs/site/index.md").read_text(encoding="utf-8")
    assert 'src="_static/explorer/front.html" title=' in front.split("{toctree}")[0]
