"""Tiles chosen by measuring: what is tried, what is chosen, and that it is remembered."""

from __future__ import annotations

import math

import pytest
import torch

import course_lib as cl
from course_lib import config, events
from course_lib.codegen.triton import Tiling, TritonSource
from course_lib.lowering.ir import Buffer
from course_lib.runtime import autotune
from course_lib.viz.recording import Recording


def source(tiling, text="k"):
    return TritonSource("k", "triton", text, ("x",), {}, tiling=tiling, types=("*fp32",))


@pytest.mark.parametrize(
    "tiling",
    [
        Tiling(1000, 0),
        Tiling(64, 700, persistent=True),
        Tiling(64, 70_000),
        Tiling(8, 512, across=True),
    ],
    ids=str,
)
def test_the_usual_tile_is_tried_first_and_others_beside_it(tiling):
    tried = autotune.candidates(source(tiling))
    usual = tiling.meta(False)
    assert tried[0] == (usual, tiling.warps(usual))
    assert len({repr(each) for each in tried}) >= 6
    for tile, warps in tried:
        assert all(size & (size - 1) == 0 for size in (*tile.values(), warps))
        if tiling.persistent:
            assert tile["COLUMNS"] == usual["COLUMNS"]


def test_the_fastest_is_chosen_told_and_remembered(monkeypatch, tmp_path):
    monkeypatch.setattr(config, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a GPU")
    tried, k = [], source(Tiling(1000, 0))

    def seconds(run, tensors):
        tried.append(run)
        return math.inf if run[1] > 4 else 1.0 / run[0]["BLOCK"] + run[1]

    monkeypatch.setattr(autotune, "seconds", seconds)
    recording = Recording()
    with events.listener(recording.events.append):
        for _ in range(2):
            assert autotune.tuned(
                k, [Buffer.like(torch.empty(4), "x")], lambda tile, warps: (tile, warps)
            ) == (
                {"BLOCK": 4096},
                2,
            )
    assert len(tried) == len(autotune.candidates(k))
    first, second = recording.of(events.Autotuned)
    assert vars(first) == vars(second)
    assert first.choice == "BLOCK=4096, 2 warps"
    assert first.seconds[first.choice] == min(first.seconds.values())


def test_modes_say_so():
    tuned = {"codegen": "auto", "cudagraphs": True, "autotune": True, "fallback_random": True}
    assert tuned.items() <= cl.list_mode_options("max-autotune").items()
    assert list(cl.list_mode_options("default")) == cl.list_options()
    assert cl.list_mode_options("max-autotune-no-cudagraphs")["cudagraphs"] is False


@pytest.mark.gpu
def test_on_a_gpu():
    f = lambda x, at: torch.softmax(x[at] * 2, -1).sum(0)
    x, at = torch.randn(300, 2000, device="cuda"), torch.arange(299, -1, -1, device="cuda")
    recording = Recording()
    with events.listener(recording.events.append):
        got = cl.compile(f, mode="max-autotune-no-cudagraphs")(x, at)
    torch.testing.assert_close(got, f(x, at), rtol=1e-4, atol=1e-5)
    assert recording.of(events.Autotuned)


@pytest.mark.parametrize("shape", [(), (1,), (3, 5)], ids=str)
def test_a_kernel_is_measured_on_numbers_of_any_shape(shape):
    made = autotune.example(Buffer.like(torch.empty(shape), "x"))
    assert made.shape == shape and bool(((made >= 0) & (made <= 1)).all())
