"""Kernels under the roofline: what they do is counted, how long they take is measured."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import course_lib as cl
from course_lib import events, viz
from course_lib.bench.models import TinyBlock
from course_lib.bench.roofline import CASES, planned, recorded_kernels
from course_lib.runtime import gemm
from course_lib.viz.pictures.runtime import kernel_limits
from course_lib.viz.pictures.runtime.kernel_limits import kernel_lines, measure, works_of


def chain(x, y):
    return (x * 2 + y).exp()


@pytest.fixture(scope="module", autouse=True)
def products_stay_torchs():
    """Which library is faster is measured, and may be another one in another run."""
    with mock.patch.object(gemm, "is_for_onednn", lambda node: False):
        yield


@pytest.fixture(scope="module")
def block():
    model, x = TinyBlock(64, 4), torch.randn(32, 64)
    with cl.record() as trace:
        cl.compile(model)(x).sum().backward()
    return model, x, trace


def test_a_loop_has_an_operation_for_each_element_and_step():
    with torch.no_grad(), cl.record() as trace:
        cl.compile(chain)(torch.randn(10, 30), torch.randn(30))
        cl.compile(lambda x: x.sum(-1))(torch.randn(10, 30))
    (work,) = works_of(trace)
    assert (work.operations, work.bytes) == (3 * 300, 4 * (300 + 30 + 300))
    assert [work.operations for work in works_of(trace, 1)] == [300]


def test_a_librarys_operations_are_those_that_torch_counts(block):
    model, x, trace = block
    with FlopCounterMode(display=False) as flops, torch.no_grad():
        model(x)
    assert (
        sum(work.operations for work in works_of(trace) if work.is_library)
        == flops.get_total_flops()
    )


def test_attention_counts_its_two_products():
    with torch.no_grad(), cl.record() as trace:
        cl.compile(torch.nn.functional.scaled_dot_product_attention)(*torch.randn(3, 2, 4, 8, 16))
    (work,) = (work for work in works_of(trace) if work.is_library)
    assert work.operations == 2 * 2 * (2 * 4) * 8 * 8 * 16


class Clock:
    """Goes on by one whenever it is read, so that a line which does nothing takes one."""

    def __init__(self):
        self.now = 0

    def perf_counter(self):
        self.now += 1
        return self.now


def test_every_kernel_is_timed_and_the_slow_one_is_found(block, monkeypatch):
    _, _, trace = block
    compiled = trace.of(events.KernelsBuilt)[0].compiled
    called = list(kernel_lines(compiled.wrapper_source).values())
    assert len(called) == len(works_of(trace)) and called[1] == "torch.addmm"

    clock = Clock()
    monkeypatch.setattr(kernel_limits, "time", clock)
    quick = compiled.run.__globals__[called[2]]

    def slow(*args):
        clock.now += 20
        return quick(*args)

    monkeypatch.setitem(compiled.run.__globals__, called[2], slow)
    assert measure(trace, rounds=3) == [1, 1, 21, 1, 1]


def test_the_picture_has_a_point_for_each_kernel_and_its_text_no_times(block):
    _, _, trace = block
    picture = trace.roofline(20e9, 150e9)
    assert [line.split("  ")[0] for line in picture.text.splitlines()[2:]] == [
        "fused_mean_var_add_rsqrt_sub", "addmm (library)", "fused_gelu_mul_add", "addmm (library)", "fused_add",
    ]  # fmt: skip
    assert "µs" not in picture.text and "µs" in picture.body and "of the roof" in picture.body
    assert picture.text == trace.roofline(20e9, 150e9, seconds=[1e-3] * 5).text
    with pytest.raises(ValueError, match="5 kernels need as many times, not 1"):
        trace.roofline(20e9, 150e9, seconds=[1.0])


def test_generated_kernels_are_launches_with_their_names(block):
    model, x, _ = block
    with torch.no_grad():
        fast = cl.compile(model)
        names = [launch.name for launch in viz.launches(lambda: fast(x)) if not launch.on_device]
    assert names == [
        "the call",
        "fused_mean_var_add_rsqrt_sub",
        "addmm",
        "fused_gelu_mul_add",
        "addmm",
        "fused_add",
    ]


def test_what_a_gpu_ran_elsewhere_is_counted_here_without_data():
    pytest.importorskip("triton")
    trace = planned(CASES["sum of columns"][0], [torch.empty(16384, 8192, device="meta")])
    assert (
        len(trace.kernels) == 2 and sum(work.operations for work in works_of(trace)) > 16384 * 8192
    )
    picture = recorded_kernels(names=("softmax 16384x8192",))
    assert (
        "H200" in picture.caption and "1.07 GB" in picture.text and picture.text.endswith("memory")
    )


def test_what_was_tuned_is_a_landscape_and_a_product_bars(block):
    took = {
        f"ROWS={rows}, COLUMNS=512, {warps} warps": 1e-6 * rows / warps
        for rows in (2, 4, 16)
        for warps in (4, 8)
    }
    refused = {"ROWS=32, COLUMNS=512, 8 warps": float("inf")}
    trace = viz.Trace()
    trace.note(
        events.Autotuned("fused_softmax", "ROWS=2, COLUMNS=512, 8 warps", {**took, **refused})
    )
    picture = trace.autotuned()
    assert "has ROWS=2, warps=8" in picture.alt
    assert "COLUMNS=512" in picture.caption and "ROWS=32" not in picture.text
    product = next(kernel for kernel in block[2].kernels if hasattr(kernel, "op"))
    trace.note(events.Autotuned(product, "torch", {"torch": 1e-5, "another library": 2e-5}))
    assert (
        trace.autotuned(1).text.splitlines()[0]
        == "aten.addmm.default: [256] and [32, 64] and [64, 256]"
    )
    with pytest.raises(LookupError, match="tuned"):
        viz.Trace().autotuned()
