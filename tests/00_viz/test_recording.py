"""A recording of many calls keeps the first ones, and of the others the numbers; the report says so."""

from __future__ import annotations

import random
import statistics
import warnings

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib import events
from course_lib.viz.recording import WHOLE, Count
from course_lib.viz.report.compile_tree import compiles_of
from course_lib.viz.report.findings import findings
from course_lib.viz.report.page import PACKED_FROM, packed, report


def named(x, name):
    return x * len(name)


def test_a_loop_of_calls_is_kept_in_numbers_after_the_first_ones():
    compiled = cl.compile(lambda x: (x + 1).relu())
    with cl.record() as trace:
        for _ in range(WHOLE + 200):
            compiled(torch.ones(4))
    assert len(trace.launches) == len(trace.guard_checks) == WHOLE
    launch = trace.launches[0]
    count = trace.counts[launch.repeat_key]
    assert count.times == WHOLE + 200 and count.left_out == 200
    assert 0 < count.least <= count.median <= count.most <= count.total
    text = report(trace)
    assert "the 399 records after them" in text.replace("\n", " "), (
        "200 launches, 199 checks: the first call compiled"
    )
    assert (
        f"<code>{launch.name}</code>" in text.partition("What calls cost")[2]
        and ">300</td>" in text
    )


def test_a_recording_at_the_recompile_limit_stops_growing_and_forgets_no_guard_that_failed():
    def size(calls):
        cl.reset()
        compiled = cl.compile(named)
        with cl.record() as trace, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for number in range(calls):
                compiled(torch.ones(4), f"name {number}")
            compiled(torch.ones(4, dtype=torch.float64), "name 0")
        return trace

    few, many = size(WHOLE + 20), size(WHOLE + 220)
    assert len(many.events) <= len(few.events) + 20
    assert len(many.events) == len(many.times)
    last = compiles_of(many)[-1]
    assert last.alike == WHOLE + 220 - cl.config.recompile_limit
    assert len(many.recompiles) == cl.config.recompile_limit - 1
    said = report(many)
    assert (
        f"and {last.alike:,} calls more" in said and "float64" in said and "at a later call" in said
    )


def test_the_median_of_what_is_only_counted_is_right_to_two_per_cent():
    rng = random.Random(0)
    numbers = [rng.lognormvariate(-9, 1) for _ in range(1000)]
    count = Count(events.StageTimed("x", 0.0))
    for number in numbers:
        count.add(number)
    assert count.median == pytest.approx(statistics.median(numbers), rel=0.025)
    assert (count.least, count.most) == (
        min(numbers),
        max(numbers),
    ) and count.total == pytest.approx(sum(numbers))


class Layer(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.linear, self.act = nn.Linear(8, 8), act

    def forward(self, x):
        return self.act(self.linear(x))


def through(layers, x, name):
    for layer in layers:
        x = layer(x)
    return x * len(name)


def test_a_layer_that_is_compiled_by_itself_says_what_called_it_in_eager():
    cl.reset()
    layers = nn.ModuleList([Layer(nn.ReLU()), Layer(nn.GELU())])
    compiled = cl.compile(through)
    with cl.record() as trace, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(cl.config.recompile_limit + 1):
            compiled(layers, torch.ones(4, 8), "x" * number)
    alone = [compile for compile in compiles_of(trace) if compile.name == "Layer.forward"]
    why = "through runs in eager (reached the recompile limit (8)), so what it calls is compiled by itself"
    assert alone and all(compile.why_by_itself == why for compile in alone)
    again = next(
        finding
        for finding in findings(compiles_of(trace))
        if finding.title.startswith("Layer.forward")
    )
    assert why in again.body and "mark_dynamic" not in again.body, "it is no size that failed"
    assert not compiles_of(trace)[0].why_by_itself, "the program calls it"


def test_a_large_tree_is_packed_and_opens_where_a_link_leads(page, tmp_path):
    part = (
        '<section id="compiles">'
        + "<details><summary>a</summary><p id='k1-0-0'>the kernel</p></details>"
        + "<i>x</i>" * 130_000
    )
    text = packed(part + "</section>")
    assert len(part) > PACKED_FROM and len(text) < len(part) / 10
    assert packed("<p>small</p>") == "<p>small</p>"
    path = tmp_path / "report.html"
    path.write_text(
        f"<!doctype html><html lang='en'><meta charset='utf-8'><body><a href='#k1-0-0'>link</a>{text}</body></html>"
    )
    page.goto(path.as_uri() + "#k1-0-0")
    page.wait_for_selector("#compiles", state="attached")
    assert page.locator("#k1-0-0").is_visible() and page.locator("#compiles i").count() == 130_000
    page.eval_on_selector("details", "(one) => { one.open = false; location.hash = '' }")
    page.click("a")
    page.wait_for_function("document.querySelector('details').open")


def test_what_capture_cannot_do_is_told_with_the_programs_lines_alone(tmp_path):
    def strict(x):
        return x * x.data_ptr()

    with pytest.raises(cl.Unsupported), cl.record(tmp_path):
        cl.compile(strict, fullgraph=True)(torch.ones(3))
    said = (
        (tmp_path / "report.html")
        .read_text()
        .partition('<div class="cl-torn cl-m">')[2]
        .partition("</div>")[0]
    )
    assert (
        "test_recording.py" in said and "return x * x.data_ptr()" in said and "what to do" in said
    )
    assert "course_lib/capture" not in said
    with pytest.raises(ZeroDivisionError), cl.record(tmp_path):
        1 / 0
    assert "1 / 0" in (tmp_path / "report.html").read_text()


def test_a_helper_behind_a_graph_break_says_which_line_broke():
    def helper(x):
        return (x * 2, print("seen"))[0]

    def f(x):
        return helper(x + 1).relu()

    with cl.record() as trace:
        cl.compile(f)(torch.ones(3))
    alone = [compile for compile in compiles_of(trace) if compile.name.endswith("helper")]
    assert alone and "calls it, and its graph ends at test_recording.py" in alone[0].why_by_itself


def test_what_counts_calls_is_not_taken_for_the_programs_own_code():
    def f(x):
        y = (x * 2).relu()
        print("seen")
        return y.sum()

    compiled = cl.compile(f)
    with cl.record() as trace:
        for _ in range(3):
            x = torch.ones(3, requires_grad=True)
            compiled(x).backward()
    assert {
        event.name.split(" from ")[0].rpartition(".")[2] for event in trace.of(events.FrameSeen)
    } == {"f"}


def test_the_steps_of_an_optimizer_are_recorded_to_their_end():
    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    model = nn.Linear(4, 4)
    compiled, optimizer = cl.compile(step), torch.optim.SGD(model.parameters(), 0.1)
    with cl.record() as trace:
        compiled(model, optimizer, torch.ones(2, 4))
    assert trace.launches and trace.graph_breaks
    assert not [event for event in trace.of(events.FrameSeen) if "Count" in event.name]
