"""Each decision about a size says of which kind it is, and who asked."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib.frames import installed
from course_lib.sizes.decisions import BY_HINT, FOR_ALL, GUARDED
from course_lib.viz.recording import logs

pytestmark = pytest.mark.skipif(not installed(), reason="capture needs the frame hook")


@pytest.fixture(scope="module")
def trace():
    cl.reset()
    compiled = cl.compile(lambda x: (x * 2).softmax(-1) + x.sum(), dynamic=True)
    with cl.record() as trace:
        compiled(torch.randn(4, 40))
    return trace


def test_the_three_kinds(trace):
    (event,) = trace.of(cl.events.SizesAreSymbols)
    decisions = event.sizes.decisions
    assert {each.kind for each in decisions} == {FOR_ALL, BY_HINT, GUARDED}
    assert len(set(decisions)) == len(decisions)

    guarded = [each for each in decisions if each.kind == GUARDED]
    assert len(guarded) == len(event.sizes.asked) == 1
    assert guarded[0].question == "4*s1 <= 131072" and guarded[0].answer == "True"
    assert guarded[0].asker.startswith("codegen/loops.py, phases")

    hints = {each.question: each.answer for each in decisions if each.kind == BY_HINT}
    assert hints["s1"] == "40" and hints["s0*s1"] == "160"
    assert all(each.why for each in decisions if each.asker == "lowering/ir.py, Buffer.nbytes")
    assert not any(each.question == "s1 == s1" for each in decisions), "that is no decision"


def test_what_is_not_known_is_not_called_false(trace):
    (event,) = trace.of(cl.events.SizesAreSymbols)
    answers = {each.question: each.answer for each in event.sizes.decisions}
    assert answers["s0*s1 < 16384"].startswith("not known")
    assert answers["s1 == 1"] == "False", "capture's guard says that it is 2 at least"


def test_the_log_and_the_report_show_them(trace, tmp_path):
    (event,) = trace.of(cl.events.SizesAreSymbols)
    said = logs.sizes_are_symbols(event).splitlines()
    assert said[0] == "one program for all sizes: s0 (4 in this call), s1 (40 in this call)"
    assert any(line.startswith("guarded: 4*s1 <= 131072 is True") for line in said)
    assert any(line.startswith("by the hint: s1 is 40    # scheduling/") for line in said)

    page = tmp_path / "report.html"
    trace.report(page)
    assert f"{len(event.sizes.decisions)} decisions about sizes" in page.read_text()


def test_explain_shows_what_capture_assumed_and_the_line():
    def asks(x):
        return x + 1 if 2 * x.shape[0] - 3 > 17 else x - 1

    said = str(cl.explain(cl.compile(asks, dynamic=True))(torch.randn(12))).splitlines()
    (line,) = [each for each in said if "> 10" in each]
    assert line.startswith("size, guarded: x.shape[0] > 10    # ") and line.endswith("else x - 1")
