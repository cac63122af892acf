"""The gallery is what its command makes: each picture once, with alt text, and every file that the page names is there."""

from __future__ import annotations

import functools
import re
import shutil

import pytest

from course_lib import viz
from course_lib.tools.gallery import gallery


@pytest.mark.slow
def test_the_command_makes_the_page_and_every_drawing_on_it(tmp_path, root):
    page = gallery(tmp_path).read_text()
    named = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", page)
    assert len(named) >= 15 and all(
        (tmp_path / path).read_text().startswith("<svg") for _, path in named
    )
    assert all(len(alt) > 10 for alt, _ in named)
    stored = (root / "docs" / "gallery.md").read_text()
    headings = lambda text: re.findall(r"^## .*$", text, flags=re.M)
    assert headings(page) == headings(stored), "run `course gallery`"
    again = tmp_path / "again"
    kept = tmp_path / "pictures" / "gallery" / "measured.json"
    (again / "pictures" / "gallery").mkdir(parents=True)
    shutil.copy(kept, again / "pictures" / "gallery")
    assert gallery(again).read_text() == page
    for drawing in kept.parent.iterdir():
        assert (again / "pictures" / "gallery" / drawing.name).read_text() == drawing.read_text(), (
            drawing.name
        )


def test_the_names_in_its_headings_are_there(root):
    named = re.findall(
        r"^## `viz\.([\w.]+)", (root / "docs" / "gallery.md").read_text(), flags=re.M
    )
    assert len(named) >= 10
    for name in named:
        assert callable(functools.reduce(getattr, name.split("."), viz)), name


UNREADABLE = """(svg) => {
  const { width, height } = svg.viewBox.baseVal, all = svg.getBoundingClientRect(), found = [];
  const texts = [...svg.querySelectorAll("text")].filter((text) => text.textContent.trim()).map((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect(), scale = all.width / width;
    const [l, r, t, b] = [left - all.left, right - all.left, top - all.top, bottom - all.top].map((x) => x / scale);
    return { l, r, t, b, says: text.lastChild.textContent };
  });
  texts.forEach((a, n) => {
    if (a.l < -2 || a.r > width + 2 || a.t < -3 || a.b > height + 3) found.push(`'${a.says}' is cut`);
    for (const b of texts.slice(n + 1)) {
      const over = [Math.min(a.r, b.r) - Math.max(a.l, b.l), Math.min(a.b, b.b) - Math.max(a.t, b.t)];
      if (over[0] > 3 && over[1] > 5) found.push(`'${a.says}' and '${b.says}' overlap`);
    }
  });
  return found;
}"""


def test_no_text_of_the_gallery_is_cut_or_lies_over_another(page, root):
    drawings = sorted((root / "docs" / "pictures" / "gallery").glob("*.svg"))
    page.set_content(
        "".join(f'<div id="{path.stem}">{path.read_text()}</div>' for path in drawings)
    )
    assert len(drawings) > 30
    for path in drawings:
        assert page.eval_on_selector(f"#{path.stem} svg", UNREADABLE) == [], path.name


def test_no_drawing_of_the_gallery_shrinks_below_letters_of_11_px(root):
    """In a narrow window a drawing scrolls rather than becoming too small to read."""
    small = {}
    for path in sorted((root / "docs" / "pictures" / "gallery").glob("*.svg")):
        drawing = path.read_text()
        width = float(re.search(r'<svg[^>]* width="([\d.]+)"', drawing)[1])
        least = float(re.search(r"min-width: ([\d.]+)px", drawing)[1])
        letters = min(map(float, re.findall(r'font-size="([\d.]+)"', drawing)), default=11.0)
        if letters * least / width < 10.9:
            small[path.name] = letters * least / width
    assert small == {}


@pytest.mark.parametrize("name", ["bars", "pipeline", "speed-ups"])
def test_what_must_be_seen_at_once_fits_a_window_of_800_px(name, root):
    """JupyterLab has 520 px for a figure there: bars with their values, and the map of the pipeline."""
    drawing = (root / "docs" / "pictures" / "gallery" / f"{name}.svg").read_text()
    assert float(re.search(r"min-width: ([\d.]+)px", drawing)[1]) <= 520
