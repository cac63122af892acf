"""What is told of a call of compiled code, while somebody records: guards asked, kernels launched, CUDA graphs replayed."""

from __future__ import annotations

import ast
import time

import pytest
import torch

import course_lib as cl
from course_lib import compiler, config, events
from course_lib.bench.models import TinyBlock
from course_lib.lessons.without_gpu import imitated_cuda_graphs
from course_lib.runtime import CompiledGraph, cudagraphs
from course_lib.viz.pictures.runtime import call_events as calls


@pytest.fixture
def trained(monkeypatch):
    """A block that was compiled before anybody recorded, an input, and how to run a step."""
    # which library is fastest differs from machine to machine
    monkeypatch.setattr(config, "measure_products", False)
    torch.manual_seed(0)
    model, x = cl.compile(TinyBlock(16, 2)), torch.randn(2, 3, 16)
    step = lambda: model(x).sum().backward()
    step()
    return step


def test_each_launch_of_a_training_step_is_a_record_in_the_order_of_the_programs(trained):
    with cl.record() as trace:
        trained()
    assert not trace.of(events.FrameSeen), "it was compiled before"
    forward, backward = dict.fromkeys(launch.program for launch in trace.launches)
    for program in (forward, backward):
        ran = [launch for launch in trace.launches if launch.program is program]
        assert [launch.kernel for launch in ran] == list(program.schedule.kernels)
        called = [
            node.func
            for node in ast.walk(ast.parse(program.wrapper_source))
            if isinstance(node, ast.Call)
        ]
        assert {launch.name for launch in ran} <= set(map(ast.unparse, called))
    names = [launch.name for launch in trace.launches]
    assert names[: len(forward.schedule.kernels)] == [
        "fused_mean_var_add_rsqrt_sub", "torch.addmm", "fused_gelu_mul_add", "torch.addmm", "fused_add",
    ]  # fmt: skip
    assert all(launch.seconds > 0 for launch in trace.launches)


def test_a_launch_knows_the_users_line(trained):
    with cl.record() as trace:
        trained()
    gelu = next(launch for launch in trace.launches if launch.name == "fused_gelu_mul_add")
    nodes = [node for step in gelu.kernel.steps for node in step.node.origins]
    assert any("gelu" in node.name for node in nodes)


def test_the_seconds_are_the_kernels_own(trained, monkeypatch):
    with cl.record() as trace:
        trained()
    program, name = trace.launches[0].program, trace.launches[0].name
    quick = program.run.__globals__[name]
    monkeypatch.setitem(
        program.run.__globals__, name, lambda *tensors: (time.sleep(0.2), quick(*tensors))
    )
    with cl.record() as trace:
        trained()
    slowest = max(trace.launches, key=lambda launch: launch.seconds)
    assert slowest.name == name and slowest.seconds >= 0.2


def test_every_question_to_the_guards_is_a_record_with_its_answer():
    f = cl.compile(lambda x, scale: torch.sin(x) * scale)
    x = torch.randn(3)
    f(x, 1.0)
    with cl.record() as trace:
        f(x, 1.0)
        f(x, 2.0)
        f(x, 2.0)
    assert [check.held for check in trace.guard_checks] == [True, False, False, True]
    first, *_, last = (check.check for check in trace.guard_checks)
    assert last is not first and all(check.check is first for check in trace.guard_checks[:3])
    assert all(
        0 < check.seconds < 0.1 and check.name.endswith("<lambda>") for check in trace.guard_checks
    )


def test_a_check_that_somebody_else_wrote_is_left_alone(monkeypatch):
    """Exercises put functions of their own in its place: several in one namespace, or with variables of an outer function."""
    asked = []

    class Mine(compiler.Check):
        def __init__(self, *args):
            super().__init__(*args)
            self.function = lambda func, *args, library=self.function: (
                asked.append(1) is None and library(func, *args)
            )

    monkeypatch.setattr(compiler, "Check", Mine)
    f = cl.compile(lambda x, scale: torch.cos(x) * scale)
    x = torch.randn(3)
    with cl.record() as trace:
        for scale in (1.0, 2.0, 1.0):
            torch.testing.assert_close(f(x, scale), torch.cos(x) * scale)
    f(x, 1.0)
    assert len(asked) >= 3 and trace.guard_checks == [] and len(trace.launches) == 3


def test_a_result_is_the_same_recorded_or_not(trained):
    model = TinyBlock(16, 2)
    compiled, x = cl.compile(model), torch.randn(2, 3, 16)
    with cl.record():
        one = compiled(x)
    torch.testing.assert_close(one, model(x))
    torch.testing.assert_close(compiled(x), one, rtol=0, atol=0)


def test_replays_of_cuda_graphs_are_records():
    with imitated_cuda_graphs(), torch.no_grad():
        f = cl.compile(lambda x: (x * 2).relu(), mode="reduce-overhead")
        x = torch.randn(8)
        with cl.record() as trace:
            for _ in range(4):
                torch.testing.assert_close(f(x), (x * 2).relu())
    kinds = [
        type(event)
        for event in trace.events
        if isinstance(event, (events.CudaGraphRecorded, calls.CudaGraphReplayed))
    ]
    assert kinds == [events.CudaGraphRecorded, *[calls.CudaGraphReplayed] * 3]
    assert all(
        replay.program is trace.of(events.CudaGraphRecorded)[0].program for replay in trace.replays
    )


def test_a_second_build_of_the_same_is_a_hit(tmp_path, monkeypatch):
    monkeypatch.setattr(cl.config, "cache_dir", lambda: tmp_path)
    hits = []
    for _ in range(2):
        cl.reset()
        with torch.no_grad(), cl.record() as trace:
            cl.compile(lambda x: x.exp() * 3.25)(torch.randn(7))
        library = [entry for entry in trace.of(events.CacheEntry) if entry.path.suffix == ".so"]
        hits += [entry.cached for entry in library]
        assert [entry.cached for entry in library] == [
            event.compiled.cached for event in trace.of(events.KernelsBuilt)
        ]
    assert hits == [False, True]


def test_nobody_who_does_not_record_pays(trained):
    """What a recording puts in place is gone when the last one ends: the very same objects stand there as before."""
    # which would go when the garbage collector finds them, other tests' too
    alive = list(compiler.live)
    owned = lambda: [
        *(entry.check.function.__code__ for each in alive for state in each.codes.values() for entry in state.entries),
        CompiledGraph.__call__, cudagraphs.Recording.play,
    ]  # fmt: skip
    before = owned()
    with cl.record() as outer:
        with cl.record() as inner:
            trained()
        trained()
        assert owned() != before
    trained()
    assert len(outer.launches) == 2 * len(inner.launches) > 0
    after = owned()
    assert len(after) == len(before) and all(
        one is two for one, two in zip(after, before, strict=True)
    )
    assert not events.listening()


def test_an_error_ends_a_recording_too(trained):
    called = CompiledGraph.__call__
    with pytest.raises(ZeroDivisionError), cl.record():
        trained()
        raise ZeroDivisionError
    assert CompiledGraph.__call__ is called and not events.listening()


def test_what_is_listed_as_a_log_or_a_report_costs_no_launches(trained):
    """Only `cl.record()` asks for calls: a log or a report of a long run would grow with each step."""
    told: list[events.Event] = []
    with events.listener(told.append):
        trained()
    assert told == []
