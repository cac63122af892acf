"""The picture of lesson 06: a minimum cut as pipes."""

from __future__ import annotations

import re

from course_lib.viz.pictures.autograd.pipes import PIPE, pipes

SIZES = {"x": 0, "m": 16384, "e": 16384, "s": 256, "y": 16384}
MADE_OF = {"m": ["x"], "e": ["m"], "s": ["e"], "y": ["e", "s"]}
PICTURE = pipes(SIZES, MADE_OF, {"m", "e", "y"}, ["e", "s"], ["x", "s"])


def test_every_tensor_is_told_with_its_bytes_and_what_is_kept_is_cut():
    lines = PICTURE.text.splitlines()[2:]
    assert [line.split()[0] for line in lines] == list(SIZES)
    assert [line.split()[0] for line in lines if line.endswith("cut")] == ["x", "s"]
    assert PICTURE.body.count("stroke-dasharray") == 2
    assert "256 B wide" in PICTURE.caption and "cut: x, s, 256 B in all" in PICTURE.alt


def test_a_pipe_is_as_thick_as_its_bytes_say():
    heights = [
        float(h)
        for h in re.findall(rf'<rect [^>]*width="{PIPE:.0f}" height="([\d.]+)"', PICTURE.body)
    ]
    # the first is free
    assert heights[1] == heights[2] == heights[4] > heights[3] >= 5 > heights[0]


def test_there_is_an_edge_for_each_reading_and_from_the_source():
    readings = sum(map(len, MADE_OF.values())) + 2  # backward reads e and s
    sources = 2  # x, and s
    assert PICTURE.body.count('fill="currentColor" fill-opacity') == readings + sources


def test_the_picture_follows_the_theme():
    assert (
        "#000" not in PICTURE.body
        and "#fff" not in PICTURE.body
        and 'font-size="10' not in PICTURE.body
    )
