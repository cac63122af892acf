"""Each exhibit of the bug museum is wrong where it should be: for some calls, from some rung on, because of one stage."""

from __future__ import annotations

import inspect

import pytest
import torch

import course_lib as cl
from course_lib.bench import museum
from course_lib.bench.museum import EXHIBITS, STAGES, Exhibit, ramp
from course_lib.frames import installed

pytestmark = pytest.mark.skipif(not installed(), reason="the museum needs the frame hook")
RIGHT = cl.Pipeline()
RUNGS = ("eager", "aot_eager", "inductor")


def shared():
    weight = torch.zeros(3)
    return [(weight, ramp(3)), (weight, ramp(3))]


# number → (the guilty stage, the first wrong rung, what differs, failing calls)
FACTS = {
    1: ("capture", "eager", "call 2: the result", [(ramp(2, 3), 2.0), (ramp(2, 3), 1.0)]),
    2: ("capture", "eager", "call 1: an argument", [(ramp(2, 3), torch.zeros(3), True)]),
    3: ("trace", "aot_eager", "call 1: the result", [(ramp(2, 3), 1)]),
    4: ("partition", "aot_eager", "call 1: a gradient", [(ramp(8, 8).requires_grad_(), 0.5)]),
    5: ("trace", "aot_eager", "call 1: the result", [(ramp(2, 3), 2)]),
    6: ("lower", "inductor", "call 1: the result", [(-ramp(2, 3) - 1,)]),
    7: ("lower", "inductor", "call 1: the result", [(ramp(3, 2).t(), ramp(2, 3))]),
    8: ("schedule", "inductor", "call 1: the result", [(ramp(2, 2) / 4,)]),
    9: ("build", "inductor", "call 2: the result", shared()),
    10: ("build", "inductor", "call 1: the result", [(ramp(300, 300),)]),
}  # fmt: skip


def test_every_exhibit_is_described_here():
    assert list(EXHIBITS) == list(FACTS) == list(range(1, 11))


@pytest.mark.parametrize("number", FACTS)
def test_it_is_wrong_from_its_rung_on_and_the_reporters_own_test_finds_nothing(number):
    exhibit, (_, rung, what, calls) = EXHIBITS[number], FACTS[number]
    first = RUNGS.index(rung)
    assert [exhibit.difference(calls, backend) for backend in RUNGS] == [""] * first + [what] * (3 - first)
    assert exhibit.difference(exhibit.passing()) == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", FACTS)
def test_one_stage_is_guilty_and_no_other(number):
    exhibit, (stage, _, _, calls) = EXHIBITS[number], FACTS[number]
    assert [name for name in STAGES if not exhibit.difference(calls, **{name: getattr(RIGHT, name)})] == [stage]


def test_it_cannot_be_seen_which_stage_was_exchanged_by_which_are_the_librarys_own():
    for exhibit in EXHIBITS.values():
        theirs = [name for name in STAGES if getattr(exhibit.pipeline, name) is getattr(RIGHT, name)]
        assert theirs == []


def test_what_is_called_a_difference():
    same = Exhibit(0, "", museum.count_rows, list, RIGHT)
    assert same.difference([(ramp(2, 3), torch.zeros(3), True)]) == ""
    dropout = Exhibit(0, "", museum.thin_out, list, RIGHT, trains=True)
    assert dropout.difference([(ramp(8, 8).requires_grad_(), 0.5)] * 2) == ""
    with pytest.raises(TypeError, match="no stage 'fusion'"):
        same.difference([], fusion=None)


def test_a_call_leaves_its_arguments_as_they_were():
    total = torch.zeros(3)
    EXHIBITS[2].difference([(ramp(2, 3), total, True)])
    assert total.tolist() == [0, 0, 0]


def test_every_stage_can_be_read():
    for exhibit in EXHIBITS.values():
        for name in STAGES:
            assert name == "decompositions" or inspect.getsource(getattr(exhibit.pipeline, name))
