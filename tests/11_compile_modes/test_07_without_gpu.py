"""The stand-ins for a GPU that lesson 11 works with do what they say."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib import events
from course_lib.lessons.without_gpu import (
    capture,
    counted_traffic,
    garbage_in_masked_lanes,
    imitated_cuda_graphs,
)
from course_lib.runtime.triton_runner import import_triton


def test_a_replay_reads_what_stands_at_the_addresses_now_and_writes_where_it_wrote():
    x, w = torch.randn(3, 4).t(), torch.tensor(2.0)
    replay, (result,) = capture(lambda x, w: (x * w + 1,), [x, w])
    x.mul_(3)
    replay()
    torch.testing.assert_close(result, x * 2 + 1)


def test_to_record_is_not_to_run():
    total = torch.zeros(2)
    replay, _ = capture(lambda t: (t.add_(1),), [total])
    assert total.tolist() == [0, 0]
    replay()
    assert total.tolist() == [1, 1]


@pytest.mark.parametrize("train", [False, True])
def test_reduce_overhead_runs_a_model_on_a_cpu_by_recordings(train):
    ours = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    theirs, batches, recorded = copy.deepcopy(ours), [torch.randn(4, 8) for _ in range(8)], []
    with imitated_cuda_graphs():
        compiled = cl.compile(ours, mode="reduce-overhead")
        for x in batches:
            with cl.record() as trace, torch.set_grad_enabled(train):
                got, want = compiled(x).square().mean(), theirs(x).square().mean()
                torch.testing.assert_close(got, want)
                if train:
                    for model, loss in ((ours, got), (theirs, want)):
                        torch.optim.SGD(model.parameters(), 0.1).zero_grad()
                        loss.backward()
                        torch.optim.SGD(model.parameters(), 0.1).step()
            recorded.append(len(trace.of(events.CudaGraphRecorded)))
            assert not trace.of(events.FellBack)
    assert recorded[0] == 0 < recorded[1]
    assert not any(recorded[4:])


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, Triton compiles")
def test_traffic_is_counted_without_the_masked_lanes():
    x, y = torch.randn(1000), torch.randn(1000).double()
    f = cl.compile(lambda x, y: (x * 2, y + 1), options={"codegen": "triton"})
    f(x, y)
    with counted_traffic() as seen:
        f(x, y)
    assert seen == {"programs": seen["programs"], "read": 12_000, "written": 12_000}
    assert seen["programs"] >= 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, Triton compiles")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool], ids=str)
def test_a_masked_lane_holds_garbage_unless_a_number_for_it_is_given(dtype):
    triton = import_triton()
    tl = triton.language

    def copied(x, out, n, known: tl.constexpr):
        i = tl.arange(0, 8)
        value = tl.load(x + i, i < n, other=0) if known else tl.load(x + i, i < n)
        tl.store(out + i, value)

    kernel, x = triton.jit(copied), torch.zeros(8, dtype=dtype)
    for known in (True, False):
        with garbage_in_masked_lanes():
            kernel[(1,)](x, out := torch.zeros(8, dtype=dtype), 3, known=known)
        is_zero = (out == 0).tolist()
        assert is_zero == [True] * 3 + [known] * 5
