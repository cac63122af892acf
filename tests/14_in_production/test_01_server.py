"""The simulated server of lesson 14: its clock, and what it says of the real compiler."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib.frames import installed
from course_lib.lessons.serving import Costs, Policy, Program, Request, Scorer, simulate, traffic

COSTS = Costs(call=1, token=0.1, eager=2, symbolic=3, compile=50)


def test_traffic_is_the_same_for_a_seed_and_in_order():
    assert traffic(3) == traffic(3) != traffic(4)
    requests = traffic(3, 500)
    assert all(2 <= one.length <= 512 for one in requests)
    assert [one.arrives for one in requests] == sorted(one.arrives for one in requests)


def test_who_waits_together_runs_together_as_long_as_the_longest():
    requests = [Request(0, 10), Request(1, 20), Request(2, 30), Request(99, 10)]
    first, second, third, last = simulate(requests, Policy(), lambda shape: "hit", COSTS)
    assert (first.where, first.began, first.done) == ((1, 10), 0, 2)
    assert second.where == third.where == (2, 30) and second.began == third.began == 2
    assert second.done == third.done == 2 + 1 + 0.1 * 60 and third.latency == 7
    assert last.began == 99


def test_no_more_than_the_largest_batch_run_together():
    handled = simulate([Request(0, 8)] * 10, Policy(), lambda shape: "hit", COSTS, most=4)
    assert [one.where[0] for one in handled] == [4] * 8 + [2] * 2


@pytest.mark.parametrize(
    "said, dynamic, ticks",
    [
        ("hit", False, 2),
        ("compiles", False, 52),
        ("eager", False, 4),
        ("hit", None, 6),
        ("compiles", None, 56),
        ("eager", None, 4),
    ],
)
def test_what_the_compiler_does_is_what_the_clock_is_told(said, dynamic, ticks):
    (one,) = simulate([Request(0, 10)], Policy(dynamic=dynamic), lambda shape: said, COSTS)
    assert one.latency == ticks


def test_padding_costs_and_changes_no_answer():
    model, tokens = Scorer().eval(), torch.randint(64, (3, 11))
    padded = torch.nn.functional.pad(tokens, (0, 21, 0, 1))
    with torch.no_grad():
        torch.testing.assert_close(model(padded)[:3, :11], model(tokens))
    (one,) = simulate(
        [Request(0, 11)], Policy(length=lambda n: 32, batch=lambda n: 4), lambda shape: "hit", COSTS
    )
    assert one.where == (4, 32) and one.running == 1 + 0.1 * 128


@pytest.mark.skipif(not installed(), reason="the frame hook is not installed")
@pytest.mark.parametrize("compile", [cl.compile, torch.compile])
def test_a_program_says_what_the_real_compiler_did(compile):
    torch._dynamo.reset()
    program = Program(Scorer().eval(), Policy(), compile)
    said = [program((1, length)) for length in (*range(2, 12), 2, 3)]
    assert said == ["compiles"] * 8 + ["eager"] * 2 + ["hit"] * 2
    assert program.said == {"compiles": 8, "eager": 2, "hit": 2}
