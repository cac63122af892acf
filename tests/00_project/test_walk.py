"""The README's first picture: it is what its program makes of a real recording, it moves without a script, and it can stand still."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import course_lib as cl
from course_lib.tools.walk import FILES, recorded, scaled
from course_lib.viz.pictures.pipeline.walk import WIDTH, walk

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"


@pytest.fixture(scope="module")
def shown():
    return recorded()


@pytest.fixture(scope="module")
def drawn(shown) -> str:
    return walk(shown)


@pytest.mark.skipif(
    sys.version_info[:2] != (3, 11), reason="the bytecode in the stored files is that of 3.11"
)
@pytest.mark.parametrize("name", FILES)
def test_the_stored_file_is_what_the_program_makes(name, shown):
    stored = (PICTURES / name).read_text(encoding="utf-8")
    assert stored == walk(shown, FILES[name]), "run `python -m course_lib.tools.walk`"


def test_what_it_shows_is_what_was_recorded(shown):
    """Counted here once more, from events."""
    import torch

    x, b = torch.ones(64, 100), torch.ones(100)
    cl.reset()
    with cl.record() as trace:
        cl.compile(scaled)(x, b)
    (kernel,) = trace.kernels
    assert shown.kernel == kernel.name
    assert [one.node for one in shown.instructions if one.node] == ["+ mul", "+ add", "+ relu"]
    assert shown.instructions[-1].text == "RETURN_VALUE"
    assert [node.name for node in shown.nodes if not node.reads] == ["x", "b"]
    assert shown.guards == ["x.shape == (64, 100)", "b.shape == (100,)"]

    # Loop by loop: x in, and two results out and in again, and the last out, and b. As one: x, b, and the result.
    matrix = 64 * 100 * 4
    assert (shown.before, shown.after) == (6 * matrix + 400, 2 * matrix + 400)
    for line in shown.code:
        assert line.strip() in trace.code().text
    assert len(shown.loops) == 3


def test_the_first_scene_alone_is_there_without_motion(drawn):
    assert "prefers-reduced-motion: reduce" in drawn and "<script" not in drawn
    still = re.findall(r"^\.(t\d+) \{ opacity: 1;", drawn, re.MULTILINE)
    assert len(still) == 1
    (first,) = re.findall(rf'<g class="{still[0]}">.*?</g>', drawn)
    assert all(line in first for line in ("def scaled(x, b):", "return y.relu()"))
    assert "RETURN_VALUE" not in first


def test_it_knows_a_dark_ground_and_says_what_it_is(drawn):
    assert "prefers-color-scheme: dark" in drawn
    assert 'role="img" aria-labelledby="t d"' in drawn and "<desc" in drawn


def test_no_line_is_longer_than_the_picture(drawn):
    """A letter of the code is 0.61 of its size wide."""
    for x, size, text in re.findall(
        r'class="[is] c" x="([\d.]+)" y="[\d.]+" font-size="(\d+)">([^<]*)<', drawn
    ):
        assert float(x) + 0.61 * float(size) * len(text) < WIDTH, text


@pytest.mark.parametrize(
    "readme, name", [("README.md", "walk.svg"), ("README.zh.md", "walk.zh.svg")]
)
def test_the_first_screen_of_the_readme_has_it(readme, name):
    lines = (ROOT / readme).read_text(encoding="utf-8").splitlines()
    (place,) = [i for i, line in enumerate(lines) if f"docs/pictures/{name}" in line]
    assert place < 15 and 'alt="' in lines[place]
