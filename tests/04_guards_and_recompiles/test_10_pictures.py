"""The guard tree and the recompile timeline say what happened."""

import html
import re
import warnings

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib import viz
from course_lib.frames import installed
from course_lib.guards import Check
from course_lib.viz.pictures.guards.call_timeline import guard_diff, turns

pytestmark = pytest.mark.skipif(not installed(), reason="entries are served by the frame hook")


def scaled(x, k):
    return torch.relu(x) * k


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln = nn.LayerNorm(8)

    def forward(self, x):
        return self.ln(x)


def recorded(function, *calls, observed=True, **options):
    compiled = cl.compile(function, backend="eager", **options)
    call = viz.each_call(compiled) if observed else compiled
    with cl.record() as trace, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args in calls:
            call(*args)
    return trace


X, WIDE = torch.ones(4, 8), torch.ones(4, 16)


def test_the_timeline_tells_which_entry_served_each_call():
    trace = recorded(scaled, (X, 2.0), (WIDE, 2.0), (X, 2.0), (X, 3.0), (torch.ones(4, 9), 2.0))
    name, found = turns(trace)
    assert name == "scaled"
    assert [turn.entry for turn in found] == [1, 2, 1, 3, 2]
    assert [turn.made is not None for turn in found] == [True, True, False, True, False]
    assert [len(turn.failures) for turn in found] == [0, 1, 0, 2, 0]
    assert "k: expected 2.0, got 3.0" in str(trace.timeline())


def test_at_the_limit_a_call_is_drawn_in_the_lane_of_eager(monkeypatch):
    monkeypatch.setattr(cl.config, "recompile_limit", 2)
    trace = recorded(scaled, *[(X, k) for k in (1.0, 2.0, 3.0, 1.0)], dynamic=False)
    assert [turn.entry for turn in turns(trace)[1]] == [1, 2, None, 1]
    assert "recompile limit reached" in str(trace.timeline())
    assert "1 ran in eager" in trace.timeline().alt


def test_without_each_call_only_what_compiled_is_seen():
    trace = recorded(scaled, (X, 2.0), (X, 2.0), (X, 3.0), observed=False)
    assert [turn.entry for turn in turns(trace)[1]] == [1, 2]
    with pytest.raises(LookupError, match="no call of"):
        viz.Trace().timeline()


def test_a_method_defaults_and_keywords_are_bound_as_python_does():
    trace = recorded(Block(), (X,), (X,))
    assert [turn.entry for turn in turns(trace)[1]] == [1, 1]
    compiled = viz.each_call(cl.compile(lambda x, k=2.0: x * k, backend="eager"))
    with cl.record() as trace:
        compiled(X), compiled(x=X, k=2.0)
    assert [turn.entry for turn in turns(trace)[1]] == [1, 1]


def test_the_difference_of_two_entries_is_what_is_tested_instead():
    trace = recorded(scaled, (X, 2.0), (X, 3.0), dynamic=False)
    assert guard_diff(*(result.guards for result in trace.captures)) == (["k == 2.0"], ["k == 3.0"])


def test_the_tree_marks_the_branch_that_failed():
    block = Block()
    call = viz.each_call(cl.compile(block, backend="eager"))
    with cl.record() as trace:
        call(X)
        block.ln.eps = 1e-3
        call(X)
    lines = str(trace.guards_tree(0)).splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("✕")]
    assert (
        ".eps" in lines[at]
        and lines[at + 1].strip() == "did not hold: self.ln.eps: expected 1e-05, got 0.001"
    )
    assert [line.split()[1] for line in lines if line.startswith("│")] == ["self", ".ln"]
    assert "✕" not in str(trace.guards_tree(1))


def test_every_guard_stands_in_the_tree_with_its_cost():
    made = Check(cl.explain(Block())(X).guards, ["self", "x"])
    block = Block()
    costs = viz.guard_costs(made, Block.forward, block, X)
    assert list(costs) == list(made.guards) and all(seconds >= 0 for seconds in costs.values())
    picture = viz.guard_tree(made.guards, costs=costs)
    assert picture.body.count("<svg") == 1 and ".weight" in str(picture)


def test_every_test_of_the_tree_is_read_whole_without_a_mouse():
    """What the drawing shortens and tells in a tip stands in a table below, which opens by the keyboard."""
    guards = cl.explain(Block())(X).guards
    body = viz.guard_tree(guards).body
    drawing, table = body.replace("<wbr>", "").split("</svg>")
    tips = {html.unescape(tip) for tip in re.findall(r"<title>(.*?)</title>", drawing)}
    cells = {html.unescape(cell) for cell in re.findall(r"<code>(.*?)</code>", table)}
    shortened = {tip for tip in tips if " " in tip}  # others are names of the path, drawn whole
    assert shortened and shortened <= cells
    assert "<details><summary>All tests in full</summary>" in table


def test_a_cost_below_what_can_be_measured_is_not_called_nothing():
    guards = cl.explain(Block())(X).guards
    body = viz.guard_tree(guards, costs=dict.fromkeys(guards, 0.0)).body
    assert "under 1 ns" in body and ">0 ns<" not in body


def test_two_objects_where_one_was_is_said_in_words():
    trace = recorded(lambda x, y: x + y, (X, X), (X, X.clone()))
    assert "y and x are two objects now" in str(trace.timeline())


def test_an_entry_whose_graph_is_empty_is_an_entry_and_not_eager():
    def at_once(x):
        print(end="")
        return x.sin()

    picture = recorded(at_once, (X,), (X,), (WIDE,), observed=False).timeline(at_once)
    assert "2 compiled an entry" in picture.alt and "0 ran in eager" in picture.alt
    picture = recorded(at_once, (X,), (X,)).timeline(at_once)
    assert "1 compiled an entry, 1 were served by an entry that was there" in picture.alt


def test_eight_calls_fit_in_a_narrow_window_and_say_their_sizes():
    trace = recorded(scaled, *[(torch.ones(4, size), 2.0) for size in range(16, 24)])
    body = re.sub(r"<title>.*?</title>", "", trace.timeline().body)
    assert re.findall(r"f32\[[^<]*", body) == [f"f32[4, {size}]" for size in range(16, 24)]
    assert float(re.search(r'<svg[^>]* width="([\d.]+)"', body).group(1)) <= 766
