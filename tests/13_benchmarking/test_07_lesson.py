"""What lesson 13 stands on: evidence that is counted, a compiler without one part, pictures without times, recorded files."""

from __future__ import annotations

import hashlib
import re

import pytest
import torch

from course_lib.bench import ablation, compare, models, pictures, report
from course_lib.bench.compare import Workload
from course_lib.bench.evidence import PAPER, Limits, collect
from course_lib.bench.measure import Samples
from course_lib.frames import installed

needs_hook = pytest.mark.skipif(not installed(), reason="needs the frame hook")
TIME = re.compile(r"\d[ \xa0]?(ns|µs|ms|s)\b")
RECORDED = ("h200_tinyblock_float16", "h200_tinyblock_float32", "h200_tinyblock_small")


def test_densenet_121_has_the_size_that_torchvision_gives_it():
    with torch.device("meta"):
        net = models.DenseNet()
    assert sum(parameter.numel() for parameter in net.parameters()) == 7_978_856
    assert sum(isinstance(module, torch.nn.Conv2d) for module in net.modules()) == 120


@needs_hook
def test_a_program_in_pieces_and_one_that_is_compiled_again_and_again_are_told_apart():
    def in_pieces(x):
        return torch.sin(x) if x.sum().item() > 0 else torch.cos(x)

    def growing(several):
        return torch.cat(several).sum(0)

    cut = collect(in_pieces, [(torch.randn(8).abs(),)] * 3)
    grown = collect(growing, [([torch.randn(1, 4)] * n,) for n in range(1, 11)])
    assert cut.breaks >= 1 and cut.recompiles == 0
    assert (grown.graphs, grown.breaks, grown.recompiles, grown.fallbacks) == (1, 0, 7, 2)


@needs_hook
def test_bytes_and_operations_are_counted_apart_and_bound_a_call_from_below():
    def layer(x, w):
        return torch.relu(x @ w)

    found = collect(layer, [(torch.randn(32, 64), torch.randn(64, 16))] * 2)
    assert (found.kernels, found.library_calls) == (1, 1)
    assert found.library_flops == 2 * 32 * 64 * 16
    assert found.loop_bytes == 2 * 4 * 32 * 16, "the relu reads and writes the product"
    assert found.least_seconds(Limits(bandwidth=4096.0, peak=65536.0, call=0.5)) == {
        "call": 0.5,
        "library": 1.0,
        "loops": 1.0,
    }
    assert set(found.least_seconds(PAPER)) == {"call", "library", "loops"}
    assert [row[0][0] for row in found.rows()] == list("12345")


@needs_hook
def test_without_fusion_there_are_more_kernels_and_bytes_and_the_same_result():
    block = models.TinyBlock(16, 2).eval()
    workload = Workload("block", block, lambda: (torch.randn(2, 4, 16),))
    outcomes, bytes_of = ablation.ablate(workload, rounds=2, warmup=1, min_time=0.0)
    by_name = {outcome.name: outcome for outcome in outcomes}
    assert list(by_name) == ["eager", *ablation.PARTS] and not any(
        outcome.problem for outcome in outcomes
    )
    assert by_name["no fusion"].program.kernels > by_name["all of it"].program.kernels
    assert bytes_of["no fusion"] > bytes_of["all of it"] > 0 == bytes_of["capture only"]
    text = ablation.ablation_table(outcomes, bytes_of).text
    assert "no fusion" in text and not TIME.search(text)


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_file_comes_back_as_the_outcomes_it_was_written_from(name):
    told, outcomes = report.recorded(name)
    assert [outcome.name for outcome in outcomes] == ["eager", "course_lib", "torch.compile"]
    assert [report.as_json(outcome, outcomes) for outcome in outcomes] == told["results"]


def test_the_recorded_suite_says_what_its_samples_say():
    told, _ = report.recorded("h200_suite")
    for rows in told["cases"].values():
        outcomes = [report.from_json(row) for row in rows]
        for row, outcome in zip(rows, outcomes, strict=True):
            assert report.as_json(outcome, outcomes) == row


RECORDINGS = {
    "h100x2_overlap": "dc88e8dba7ecf38f",
    "h200_suite": "03af120dd29047a8",
    "h200_tinyblock_float16": "90cdeb2ccf606e23",
    "h200_tinyblock_float32": "edcfa9f845de3376",
    "h200_tinyblock_small": "30e46ca54d17f6a0",
}
"""Measurements are not edited: each file's SHA-256, written here with a new recording."""


def test_a_recording_is_as_it_was_made_and_somebody_shows_it(root):
    files = {path.stem: path for path in report.RECORDED.glob("*.json")}
    assert {
        name: hashlib.sha256(path.read_bytes()).hexdigest()[:16] for name, path in files.items()
    } == RECORDINGS
    shown = [*(root / "notebooks").glob("*.ipynb"), *(root / "course_lib" / "bench").glob("*.py")]
    text = "".join(path.read_text(encoding="utf-8") for path in shown)
    assert [name for name in files if name not in text] == []


def test_pictures_of_measurements_draw_times_and_say_none_in_their_text():
    _, outcomes = report.recorded(RECORDED[0])
    table, strips = (
        pictures.results(outcomes, "recorded"),
        pictures.spread({each.name: each.samples for each in outcomes}),
    )
    assert "× as fast" in table.html and TIME.search(table.body) and TIME.search(strips.body)
    assert not TIME.search(table.text) and not TIME.search(strips.text)
    assert strips.body.count("<title>median</title>") == len(outcomes)


def test_a_sample_is_drawn_where_it_lies():
    body = pictures.spread({"a": Samples((0.001, 0.002)), "b": Samples((0.004,))}).body
    at = [float(x) for x in re.findall(r'd="M([\d.]+) \d+\.0 V', body)]
    zero = min(at) - (sorted(at)[-1] - min(at)) / 3  # 1 ms of 4: a quarter of the way from zero
    assert any(abs((x - zero) / (max(at) - zero) - 0.5) < 0.01 for x in at), (
        "2 ms lies half way to 4 ms"
    )


def test_a_contender_that_failed_is_told_in_the_table():
    def broken(function):
        raise RuntimeError("no compiler here")

    workload = Workload("add", lambda x: x + 1, lambda: (torch.ones(3),))
    contenders = [compare.eager(), compare.Contender("broken", broken, compare.watch_nothing)]
    outcomes = compare.compare(workload, contenders, rounds=1, warmup=0, min_time=0.0)
    assert "RuntimeError: no compiler here" in pictures.results(outcomes).text


def test_orders_and_queues_are_drawn_from_what_happened():
    turns = [pictures.Turn("A", 0.0, 1.0), pictures.Turn("B", 1.0, 2.0)]
    drawn = pictures.turns({"in turn": turns})
    assert drawn.body.count("<rect") == 2 and drawn.text.split() == [
        "in",
        "turn:",
        "A",
        "1",
        "B",
        "2",
    ]
    asked = [pictures.Asked(0.0, 1e-6, 1e-6, 9e-6), pictures.Asked(1e-6, 1e-6, 10e-6, 9e-6)]
    queue = pictures.queue({"no wait": (asked, 2e-6)})
    assert queue.body.count("<rect") == 4 and "2.00 µs for 2 calls" in queue.text


def test_one_sample_of_a_busy_moment_does_not_stretch_the_axis():
    quiet = Samples((0.0001,) * 19)
    busy = Samples((*(0.0001,) * 18, 0.012))
    assert "Longer than the axis: 1 sample" in pictures.spread({"a": quiet, "b": busy}).caption
    assert "Longer" not in pictures.spread({"a": quiet}).caption
