"""What lesson 01 tells, held against the installed torch and the library: a claim that stops being true fails here."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import profiler_legacy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.benchmark import Timer

import course_lib as cl
from course_lib import events
from course_lib.bench import eager
from course_lib.bench.measure import Samples
from course_lib.bench.models import TinyBlock

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_eager_overhead.ipynb"
HEADINGS = [
    "Promise", "Where we are", "Predict", "By hand", "The real thing", "In torch.compile", "When it goes wrong", "Exercises",
    "Recap and self-check",
    "What to read next",
]  # fmt: skip
CHAIN = [
    eager.Step("× 1.5", ("x",), "t1"),
    eager.Step("+ 0.1", ("t1",), "t2"),
    eager.Step("gelu", ("t2",), "t3"),
    eager.Step("+ r", ("t3", "r"), "y"),
]


class OpCounter(TorchDispatchMode):
    """As in the notebook."""

    rows = ()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        self.rows += (
            (str(op), sum(a.nbytes for a in args if isinstance(a, torch.Tensor)), result.nbytes),
        )
        return result


def chain(x, r):
    return F.gelu(x * 1.5 + 0.1) + r


def inputs(size=1000):
    return torch.randn(size), torch.randn(size)


def counted(function, *given):
    with torch.inference_mode(), OpCounter() as counter:
        function(*given)
    return counter.rows


def scheduled(function, *given):
    with torch.inference_mode(), cl.record() as trace:
        cl.compile(function)(*given)
    return trace.of(events.Scheduled)[0].schedule


# ---- by hand ---------------------------------------------------------------------------------------------------------


def test_eager_runs_the_chain_as_four_operators_and_moves_36_000_bytes():
    rows = counted(chain, *inputs())
    assert [name for name, _, _ in rows] == [
        "aten.mul.Tensor",
        "aten.add.Tensor",
        "aten.gelu.default",
        "aten.add.Tensor",
    ]
    assert (sum(row[1] for row in rows), sum(row[2] for row in rows)) == (20_000, 16_000)


def test_the_scheduler_counts_the_same_bytes_before_fusion_and_a_third_of_them_after():
    schedule = scheduled(chain, *inputs())
    assert (schedule.bytes_before, schedule.bytes_after, len(schedule.kernels)) == (
        36_000,
        12_000,
        1,
    )


def test_the_picture_of_the_trips_says_nine_and_three():
    picture = eager.round_trips(CHAIN, dict.fromkeys(["x", "r", "t1", "t2", "t3", "y"], 4000))
    assert (
        picture.text
        == "eager: 4 kernels, 9 trips, 36 KB through memory\nfused: 1 kernel, 3 trips, 12 KB through memory"
    )


def test_a_python_number_makes_an_operator_ask_the_dispatcher_five_times():
    x, r = inputs()
    w = torch.ones(())
    with torch.inference_mode(), profiler_legacy.profile() as profile:
        chain(x, r)
    assert len(profile.function_events) == 12
    with torch.inference_mode(), profiler_legacy.profile() as profile:
        x * 1.5
    assert [e.name for e in profile.function_events] == [
        "aten::mul",
        "aten::to",
        "aten::_to_copy",
        "aten::empty_strided",
        "aten::copy_",
    ]
    with torch.inference_mode(), profiler_legacy.profile() as profile:
        x * w
    assert len(profile.function_events) == 1


# ---- one call ----------------------------------------------------------------------------------------------------------


def test_autograd_and_the_cpu_have_a_function_for_add_and_the_other_keys_let_it_pass():
    lines = torch._C._dispatch_dump_table("aten::add.Tensor").splitlines()
    entries = dict(line.split(": ", 1) for line in lines if ": " in line)
    passing = {
        key: entries[key].startswith("fallthrough")
        for key in ("AutocastCPU", "AutogradCPU", "ADInplaceOrView", "CPU")
    }
    assert passing == {
        "AutocastCPU": True,
        "AutogradCPU": False,
        "ADInplaceOrView": True,
        "CPU": False,
    }


def test_tensors_of_inference_mode_carry_no_autograd_keys():
    assert "AutogradCPU" in str(torch._C._dispatch_keys(torch.ones(4)))
    with torch.inference_mode():
        assert "Autograd" not in str(torch._C._dispatch_keys(torch.ones(4)))


def test_the_ladder_times_every_rung_and_its_picture_names_each_layer():
    samples = eager.ladder(rounds=2, min_time=0)
    assert list(samples) == [rung.code for rung in eager.RUNGS]
    picture = eager.call_stack(samples)
    assert all(
        rung.layer in picture.text and rung.adds in picture.body.replace("&#x27;", "'")
        for rung in eager.RUNGS
    )
    assert eager.text_fits()


def shape_of(svg: str) -> list[str]:
    """The elements of a drawing without what measuring changes: numbers with a unit, and geometry."""
    return re.sub(
        r'[\d.]+ (?:ns|µs|ms|s)\b|\b(?:x|y|d|width|height|viewBox)="[^"]*"', "", svg
    ).split("<")


@pytest.mark.parametrize("factor", [1e-4, 3.7, 1e6])
def test_pictures_keep_their_structure_however_fast_the_machine_is(factor):
    """nbval compares them: only times and geometry may differ."""
    sizes = [4, 4096, 2**24]
    lines = {"eager": [1e-5, 2e-5, 5e-2], "course_lib": [8e-6, 1e-5, 2e-2]}
    faster = {name: [factor * time for time in line] for name, line in lines.items()}
    plots = [eager.time_per_element(sizes, each) for each in (lines, faster)]
    assert shape_of(plots[0].body) == shape_of(plots[1].body)
    times = [
        {rung.code: Samples((scale * (n + 1) * 1e-7,)) for n, rung in enumerate(eager.RUNGS)}
        for scale in (1, factor)
    ]
    stacks = [eager.call_stack(each) for each in times]
    assert shape_of(stacks[0].body) == shape_of(stacks[1].body)


def test_bandwidth_and_peak_are_positive_rates():
    assert eager.copy_bandwidth(megabytes=8, rounds=2) > 0
    assert eager.matmul_peak(size=64, rounds=2) > 0


# ---- the real model, and what is said of others ------------------------------------------------------------------------


def test_tinyblock_is_seven_operators_of_22_6_MB_in_eager_and_five_kernels_of_14_2_MB_compiled():
    block, tokens = TinyBlock(256, 4).eval(), torch.randn(8, 64, 256)
    rows = counted(block, tokens)
    assert len(rows) == 7
    assert round(sum(read + written for _, read, written in rows) / 1e6, 1) == 22.6
    schedule = scheduled(block, tokens)
    assert len(schedule.kernels) == 5 and len(schedule.fused) == 3
    assert (round(schedule.bytes_before / 1e6, 1), round(schedule.bytes_after / 1e6, 1)) == (
        26.8,
        14.2,
    )


def test_timer_of_torch_runs_on_one_thread_unless_told_otherwise():
    assert (
        Timer("x + 1", globals={"x": torch.ones(4)})
        .blocked_autorange(min_run_time=0.001)
        .num_threads
        == 1
    )


def test_the_recorded_h200_rows_follow_from_the_bytes():
    elements = 268_435_456
    assert elements * 36 / 2.258e-3 / 1e12 == pytest.approx(4.28, abs=0.005)
    assert elements * 12 / 0.741e-3 / 1e12 == pytest.approx(4.35, abs=0.005)
    assert round(2.258e-3 / (4 * 5.8e-6)) == 97  # "about a hundred times"


def test_a_branch_on_data_cuts_the_chain_in_two_and_more_bytes_move():
    def careful(x, r):
        t = x * 1.5 + 0.1
        if t.max() > 100:
            print("large numbers")
        return F.gelu(t) + r

    with torch.inference_mode(), cl.record() as trace:
        result = cl.compile(careful)(*(given := inputs()))
    assert (len(trace.graph_breaks), len(trace.graphs), len(trace.kernels)) == (1, 2, 2)
    assert sum(event.schedule.bytes_after for event in trace.of(events.Scheduled)) == 20_001
    torch.testing.assert_close(result, careful(*given))


# ---- the notebook --------------------------------------------------------------------------------------------------------


def test_the_notebook_has_the_spine_in_order_and_scores_what_it_asks():
    nb = nbformat.read(NOTEBOOK, 4)
    text = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")
    assert text.startswith("# 01 · Eager overhead")
    assert re.findall(r"^## (.+)$", text, flags=re.MULTILINE) == HEADINGS
    source = "\n".join(cell.source for cell in nb.cells if cell.cell_type == "code")
    asked = re.findall(r"^(\w+) = viz\.Predict", source, flags=re.MULTILINE)
    assert asked and all(f"{name}.score()" in source for name in asked)
    assert text.count("<details>") == 5
