"""How to time honestly: `course_lib.bench.measure`."""

from __future__ import annotations

import gc

import pytest
import torch

from course_lib.bench.measure import (
    Samples,
    clock_for,
    human_time,
    interleaved,
    order_of,
    wall_clock,
)


def busy(amount):
    """A function that does `amount` of work and notes each call."""
    calls = []

    def work():
        calls.append(sum(range(amount)))

    work.calls = calls
    return work


class FakeClock:
    """Says how long calls take instead of measuring: `cost(name, now)` seconds each, `now` counting the samples taken."""

    def __init__(self, cost):
        self.cost = cost
        self.asked = []

    def __call__(self, function, calls):
        self.asked.append((function.name, calls))
        return calls * self.cost(function.name, len(self.asked))


def named(name):
    def function():
        pass

    function.name = name
    return function


def test_the_slower_function_has_the_larger_median():
    found = interleaved({"slow": busy(20_000), "fast": busy(200)}, rounds=9, min_time=0.0005)
    assert found["fast"].median < found["slow"].median
    assert found["fast"].times_faster_than(found["slow"]) > 2
    assert len(found["fast"].seconds) == len(found["slow"].seconds) == 9


def test_one_interrupted_sample_does_not_move_the_median():
    samples = Samples((1.0, 1.1, 0.9, 1.0, 50.0))
    assert samples.median == 1.0
    assert samples.p10 < samples.median < samples.p90


def test_a_slow_half_of_the_measurement_cancels_in_the_ratio():
    """From the middle on the machine is five times slower; medians of two separate runs would compare fast with slow."""
    clock = FakeClock(lambda name, now: (5 if now > 22 else 1) * (2 if name == "b" else 1))
    found = interleaved({"a": named("a"), "b": named("b")}, rounds=20, min_time=0.5, clock=clock)
    assert found["a"].times_faster_than(found["b"]) == 2
    assert found["b"].times_faster_than(found["a"]) == 0.5


def test_every_round_runs_each_function_once_in_changing_order():
    clock = FakeClock(lambda name, now: 1.0)
    interleaved({name: named(name) for name in "abc"}, rounds=6, min_time=0.5, clock=clock)
    rounds = [
        "".join(name for name, _ in clock.asked[i : i + 3]) for i in range(3, len(clock.asked), 3)
    ]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds) and len(rounds) == 6
    assert {each[0] for each in rounds} == {"a", "b", "c"}
    assert rounds[0] == "abc" and len(set(rounds)) == 6, "three names have six orders"


def test_two_functions_change_places_so_that_a_machine_that_slows_down_favours_neither():
    assert ["".join(order_of(["a", "b"], number)) for number in range(4)] == [
        "ab",
        "ba",
        "ba",
        "ab",
    ]
    clock = FakeClock(lambda name, now: 1.0 + 0.05 * now)
    found = interleaved({name: named(name) for name in "ab"}, rounds=8, min_time=0.0, clock=clock)
    assert found["a"].times_faster_than(found["b"]) == pytest.approx(1.0, abs=0.02)


def test_a_sample_lasts_at_least_min_time():
    clock = FakeClock(lambda name, now: 1e-6)
    found = interleaved({"f": named("f")}, rounds=3, min_time=0.001, clock=clock)
    assert found["f"].calls >= 1000
    assert all(calls == found["f"].calls for _, calls in clock.asked[-3:])
    assert found["f"].median == pytest.approx(1e-6)


def test_warmup_calls_are_not_samples():
    function = busy(1)
    found = interleaved({"f": function}, rounds=2, min_time=0.0, warmup=7)
    # warmup, one try to find the number of calls, two samples
    assert len(function.calls) == 7 + 1 + 2
    assert len(found["f"].seconds) == 2


def test_the_garbage_collector_rests_meanwhile_and_comes_back():
    seen = []
    interleaved({"f": lambda: seen.append(gc.isenabled())}, rounds=2, min_time=0.0, warmup=0)
    assert seen[-1] is False and gc.isenabled()


def test_no_rounds_is_an_error_with_a_sentence():
    with pytest.raises(ValueError, match="rounds must be at least 1, got 0"):
        interleaved({"f": lambda: None}, rounds=0)


def test_the_cpu_needs_no_waiting_and_a_gpu_does():
    assert clock_for(torch.device("cpu")) is wall_clock
    assert clock_for(torch.device("cuda")) is not wall_clock


@pytest.mark.gpu
def test_on_a_gpu_the_clock_stops_when_the_work_is_done():
    x = torch.randn(8192, 8192, device="cuda")
    waited = clock_for(torch.device("cuda"))(lambda: x @ x, 5)
    assert waited > 5 * wall_clock(lambda: x @ x, 5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (3.3e-9, "3.30 ns"),
        (3.312e-6, "3.31 µs"),
        (0.0124, "12.4 ms"),
        (0.9999, "1.00 s"),
        (138, "138 s"),
    ],
)
def test_times_print_with_three_digits_and_a_unit(seconds, text):
    assert human_time(seconds) == text


def test_ten_in_a_hundred_samples_lie_below_p10_and_above_p90():
    samples = Samples(tuple(float(n) for n in range(101)))
    assert (samples.p10, samples.median, samples.p90) == (10.0, 50.0, 90.0)
