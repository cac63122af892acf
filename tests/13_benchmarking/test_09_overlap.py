"""How much of one kind of work is hidden behind another is counted from spans of time."""

from __future__ import annotations

from course_lib import viz
from course_lib.bench import overlap


def test_spans_are_merged_and_cut():
    assert overlap.merged([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    talk, work = overlap.merged([(0, 2), (4, 8)]), overlap.merged([(1, 5), (7, 9), (1, 2)])
    assert overlap.both(talk, work) == [(1, 2), (4, 5), (7, 8)]
    assert overlap.length(overlap.both(talk, work)) == 3
    assert overlap.both(talk, []) == []


def test_what_was_recorded_has_all_ways_and_can_be_drawn():
    told = overlap.recorded()
    assert told["ways"].keys() == overlap.WAYS.keys()
    for way in told["ways"].values():
        assert way["gradients_off_by"] < 1e-5 and 0 <= way["hidden"] <= 1 and way["nccl_ms"] > 0
        step = overlap.as_launches(way)
        assert step[0].end >= max(one.end for one in step) and {one.name for one in step[1:]} == {
            "compute",
            "nccl",
        }
    picture = viz.launch_timeline({"eager": step}, "Recorded.", lanes=("compute", "NCCL"))
    assert picture.caption == "Recorded." and ">NCCL<" in picture.html
