"""The ladder and the bisection as pictures."""

from __future__ import annotations

import pytest

from course_lib import viz
from course_lib.lessons.museum import STAGES
from course_lib.viz.pictures.pipeline.bug_search import OF_ROOM


def test_the_first_wrong_rung_says_where_to_look():
    picture = viz.ladder(
        {"eager": "", "aot_eager": "call 1: the result", "inductor": "call 1: the result"}
    )
    assert picture.text.splitlines()[-1] == "First wrong with aot_eager: look in autograd."
    assert viz.ladder({"eager": "x", "inductor": "x"}).text.endswith(
        "look in frame hook, capture, guards."
    )
    assert viz.ladder({"eager": "", "inductor": "x"}).text.endswith(
        "look in autograd, lowering, scheduling, codegen, runtime."
    )
    assert viz.ladder({"eager": "", "inductor": ""}).text.endswith("All as eager.")
    with pytest.raises(ValueError, match="the rungs are eager, aot_eager, inductor"):
        viz.ladder({"nvfuser": ""})


def test_each_try_leaves_fewer_that_can_be_guilty():
    picture = viz.bisection(STAGES, [(5, False), (8, True), (6, False), (7, True)])
    assert [line.split("  ")[-1].strip() for line in picture.text.splitlines()[2:]] == [
        "partition lower fuse schedule plan build", "partition lower fuse", "lower fuse", "lower",
    ]  # fmt: skip
    assert picture.caption.endswith("At the end: lower.")
    assert "one of 11 stages" in viz.bisection(STAGES, []).caption


def test_every_stage_of_the_pipeline_has_its_colour():
    assert list(OF_ROOM) == list(STAGES)
