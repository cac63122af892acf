"""CUDA graphs: which recording is played when. Without a GPU, "to record" is played by running the program again into the same
memory; what is tested is the same: copies, results that somebody still holds, and when it is given up."""

from __future__ import annotations

import copy
import ctypes
from functools import partial

import numpy as np
import pytest
import torch

import course_lib as cl
from course_lib import events
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph
from course_lib.runtime import cudagraphs
from course_lib.runtime.cudagraphs import MOST, MOST_EVER, Recorder
from course_lib.viz.recording import Recording


@pytest.fixture
def on_a_cpu(monkeypatch):
    def capture(program, given):
        before = [x.clone() for x in given]
        results = program(*given)
        for x, old in zip(given, before, strict=True):  # to record is not to run
            x.copy_(old)
        # a graph reads memory, it keeps no tensor alive
        addresses = [(x.data_ptr(), x.numel()) for x in given]

        def replay():
            given = [
                torch.from_numpy(np.ctypeslib.as_array((ctypes.c_float * n).from_address(at)))
                for at, n in addresses
            ]
            for old, new in zip(results, program(*given), strict=True):
                old.copy_(new)

        return replay, results

    monkeypatch.setattr(cudagraphs, "capture", capture)
    monkeypatch.setattr(cudagraphs, "stream_on", lambda device: "the stream")
    monkeypatch.setattr(cudagraphs, "result_addresses", set())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def told(run):
    recording = Recording()
    with events.listener(recording.events.append):
        run()
    return [event.copied for event in recording.of(events.CudaGraphRecorded)], recording.of(
        events.FellBack
    )


def double_and_sum(x, w):
    return x * 2 + w, x.sum()


def test_an_input_that_stays_is_not_copied_and_one_that_moves_is(on_a_cpu):
    recorder, w = Recorder(double_and_sum), torch.randn(4)
    keep = [torch.randn(4) for _ in range(6)]  # all at different addresses

    def run():
        for x in keep:
            torch.testing.assert_close(recorder(x, w), double_and_sum(x, w))

    assert told(run) == ([1], [])
    w.add_(1)  # as an optimizer does
    torch.testing.assert_close(recorder(keep[0], w)[0], keep[0] * 2 + w)


def test_results_that_somebody_holds_are_not_overwritten(on_a_cpu):
    recorder, w, held = Recorder(double_and_sum), torch.randn(4), []
    inputs = [torch.randn(4) for _ in range(10)]
    copied, _ = told(lambda: held.extend(recorder(x, w) for x in inputs))
    assert copied.count(1) == MOST  # besides one, maybe, that two inputs at one address made
    for x, results in zip(inputs, held, strict=True):
        torch.testing.assert_close(results[0], x * 2 + w)
    first = held[1][0].view(2, 2)[1]  # a part of a result holds it as well
    held.clear()
    recorder(inputs[0], w)
    torch.testing.assert_close(first, (inputs[1] * 2 + w)[2:])


def test_an_input_that_is_returned_is_the_input_itself(on_a_cpu):
    recorder = Recorder(lambda x, y: (x, x + y))
    y = torch.randn(3)
    for x in [torch.randn(3) for _ in range(4)]:
        result, total = recorder(x, y)
        assert result is x
        torch.testing.assert_close(total, x + y)


def test_an_input_that_is_written_to_is_never_copied(on_a_cpu):
    recorder, step = Recorder(lambda p, g: (p.sub_(g),), written={0}), torch.ones(4)
    parameters = [torch.zeros(4) for _ in range(MOST + 2)]
    for n in range(1, 5):
        for p in parameters:
            assert recorder(p, step)[0] is p
            assert p.tolist() == [-n] * 4


def test_what_another_recording_computed_is_read_where_it_is(on_a_cpu):
    """Forward twice before backward: two recordings of each, and nothing is copied between them."""
    forward, backward = Recorder(lambda x: (x.sin(), x.cos())), Recorder(lambda c, g: (c * g,))
    g = torch.randn(8)

    def run():
        for _ in range(4):
            a, b = torch.randn(8), torch.randn(8)
            one, two = forward(a), forward(b)
            torch.testing.assert_close(backward(one[1], g)[0], a.cos() * g)
            torch.testing.assert_close(backward(two[1], g)[0], b.cos() * g)
            del one, two

    copied, fell = told(run)
    assert not fell
    assert copied.count(0) >= 2  # backward's
    assert len(forward.recordings) == len(backward.recordings) == 2


def test_addresses_that_never_settle_end_it(on_a_cpu):
    """Somebody else's recordings, always new."""
    recorder, held = Recorder(lambda x: (x + 1,)), []
    for _ in range(MOST_EVER + 20):
        x = torch.randn(4)
        held.append(x)
        cudagraphs.result_addresses.add(x.data_ptr())
        torch.testing.assert_close(recorder(x)[0], x + 1)
    assert recorder.made == MOST_EVER


def test_an_expanded_input_cannot_be_copied(on_a_cpu):
    recorder = Recorder(lambda x: (x + 1,))
    keep = [torch.randn(1) for _ in range(3)]
    copied, fell = told(
        lambda: [
            torch.testing.assert_close(recorder(x.expand(4))[0], x.expand(4) + 1) for x in keep
        ]
    )
    assert not copied
    assert [event.why for event in fell] == [
        "an input that must be copied has elements that share memory (`expand`)"
    ]


def test_on_a_cpu_there_are_none():
    f = lambda x: x * 2
    _, fell = told(lambda: cl.compile(f, mode="reduce-overhead")(torch.randn(3)))
    assert [event.why for event in fell] == ["its tensors are on cpu"]
    assert cl.list_mode_options("reduce-overhead")["cudagraphs"] is True


# ---- on a GPU ------------------------------------------------------------------------------------------------------------


def model():
    torch.manual_seed(0)
    layers = (
        torch.nn.Linear(32, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.GELU(),
        torch.nn.Linear(64, 8),
    )
    return torch.nn.Sequential(*layers).cuda()


def train(model, run, batches, accumulate=1):
    """Losses and gradients of a usual loop: the gradients of one step are there while the next step's forward runs."""
    optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for n, x in enumerate(batches):
        loss = run(x).square().mean()
        if n % accumulate == 0:
            optimizer.zero_grad()
        loss.backward()
        if n % accumulate == accumulate - 1:
            optimizer.step()
        losses.append(loss.detach())
    return (
        torch.stack(losses),
        [p.grad.clone() for p in model.parameters()],
        [b.clone() for b in model.buffers()],
    )


@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", [1, 3])
def test_training_is_the_same(accumulate):
    ours = model()
    theirs = copy.deepcopy(ours)
    batches = [torch.randn(16, 32, device="cuda") for _ in range(12)]
    compiled = cl.compile(ours, mode="reduce-overhead")
    got = []
    copied, fell = told(lambda: got.extend(train(ours, compiled, batches, accumulate)))
    assert len(copied) >= 2
    assert not fell
    torch.testing.assert_close(
        got, list(train(theirs, theirs, batches, accumulate)), rtol=1e-3, atol=1e-4
    )


@pytest.mark.gpu
def test_random_numbers_are_eagers():
    f = lambda x: torch.nn.functional.dropout(x, 0.5) * 2
    compiled, x = cl.compile(f, mode="reduce-overhead"), torch.randn(1000, device="cuda")
    torch.manual_seed(1)
    got = [compiled(x).clone() for _ in range(4)]
    torch.manual_seed(1)
    torch.testing.assert_close(got, [f(x) for _ in range(4)])
    assert not torch.equal(got[2], got[3])


@pytest.mark.gpu
def test_an_index_out_of_range_is_told():
    f = cl.compile(lambda x, at: x[at] * 2, mode="reduce-overhead")
    x, good, bad = (
        torch.randn(8, device="cuda"),
        torch.arange(4, device="cuda"),
        torch.full((4,), 99, device="cuda"),
    )
    for _ in range(3):
        torch.testing.assert_close(f(x, good), x[good] * 2)
    with pytest.raises(IndexError, match="index out of range"):
        for _ in range(2):
            f(x, bad)
            torch.cuda.synchronize()


@pytest.mark.gpu
def test_what_cannot_be_recorded_runs_as_before():
    def f(x):
        return x * torch.tensor(3.0) + x.nonzero().shape[0]

    x = torch.randn(8, device="cuda")
    torch.testing.assert_close(cl.compile(f, mode="reduce-overhead")(x), f(x))


def test_another_stream_has_recordings_of_its_own(on_a_cpu, monkeypatch):
    recorder, x = Recorder(double_and_sum), torch.randn(4)
    for stream in ("one", "one", "two", "one", "two"):
        monkeypatch.setattr(cudagraphs, "stream_on", lambda device, now=stream: now)
        torch.testing.assert_close(recorder(x, x), double_and_sum(x, x))
    assert [recording.stream for recording in recorder.recordings] == ["one", "two"]


@pytest.mark.gpu
def test_recordings_share_memory_for_what_is_temporary():
    def f(k, x):
        return ((x * k) @ x @ x).sum()  # three products' results, 64 MB each, that nobody keeps

    x, grown = torch.randn(4096, 4096, device="cuda"), []
    compiled = [cl.compile(partial(f, k), mode="reduce-overhead") for k in range(1, 7)]
    for program in compiled:
        before = torch.cuda.memory_reserved()
        for _ in range(3):
            program(x)
        grown.append(torch.cuda.memory_reserved() - before)
    for k, program in enumerate(compiled, 1):  # none has overwritten what another needs
        torch.testing.assert_close(program(x), f(k, x), rtol=1e-3, atol=1.0)
    assert sum(grown[2:]) < 2**25, grown


def test_addresses_are_forgotten_with_their_recording(on_a_cpu):
    recorder, x = Recorder(lambda x: (x * 2,)), torch.randn(3)
    for _ in range(3):
        recorder(x)
    assert len(cudagraphs.result_addresses) == len(recorder.recordings) == 1
    recorder.recordings.clear()
    assert cudagraphs.result_addresses == set()


def test_an_input_that_is_handed_through_is_no_result_of_the_recording(on_a_cpu):
    """Its memory is the program's: another recording must not take the address for one that stays."""
    recorder = Recorder(lambda x, w: (x * 2, w))
    x, w = torch.randn(3), torch.randn(3)
    for _ in range(2):
        doubled, handed_through = recorder(x, w)
    assert handed_through is w and torch.equal(doubled, x * 2)
    assert cudagraphs.result_addresses == {doubled.data_ptr()}


def test_a_program_without_inputs_starts_its_kernels_one_by_one():
    """A recording asks its inputs where it runs."""
    result = Buffer("buf0", torch.float32, (4,), (1,), torch.device("cuda", 0))
    kernel = ExternKernel(torch.ops.aten.zeros.default, ([4],), {}, (result,))
    graph = LoopGraph([], [kernel], [result.view()])
    assert cudagraphs.why_not(graph) == "it has no input"
