"""How much of one kind of work is hidden behind another is counted from spans of time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.bench import overlap


def test_spans_are_merged_and_cut():
    assert overlap.merged([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    talk, work = overlap.merged([(0, 2), (4, 8)]), overlap.merged([(1, 5), (7, 9), (1, 2)])
    assert overlap.both(talk, work) == [(1, 2), (4, 5), (7, 8)]
    assert overlap.length(overlap.both(talk, work)) == 3
    assert overlap.both(talk, []) == []


def test_what_was_recorded_has_all_ways():
    told = json.loads((Path(overlap.__file__).parent / "recorded" / "h200x2_overlap.json").read_text())
    assert told["ways"].keys() == overlap.WAYS.keys()
    assert all(way["hidden"] == pytest.approx(0.5, abs=0.5) and way["nccl_ms"] < way["step_ms"] for way in told["ways"].values())
