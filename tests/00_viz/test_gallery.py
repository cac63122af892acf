"""The gallery is what its command makes: each picture once, with alt text, and every file that the page names is there."""

from __future__ import annotations

import re
import shutil

import pytest

from course_lib.bench.gallery import gallery


@pytest.mark.slow
def test_the_command_makes_the_page_and_every_drawing_on_it(tmp_path, root):
    page = gallery(tmp_path).read_text()
    named = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", page)
    assert len(named) >= 15 and all((tmp_path / path).read_text().startswith("<svg") for _, path in named)
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
        assert (again / "pictures" / "gallery" / drawing.name).read_text() == drawing.read_text(), drawing.name
