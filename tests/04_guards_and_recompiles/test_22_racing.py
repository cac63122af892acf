"""What breaks its graph and is slower compiled than in eager is left to eager. Time is a clock of the tests' own."""

from __future__ import annotations

import re
import warnings
import weakref

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib import racing

ENOUGH = racing.WAIT + racing.ROUNDS * racing.LENGTH + 4


@pytest.fixture(autouse=True)
def with_races(without_races: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it."""
    monkeypatch.setattr(cl.config, "leave_what_loses", True)


class Clock:
    """Time goes on only by what the tests say a way takes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Program:
    """A program without torch: its two ways take so long. `chosen`: the way that was chosen in the end."""

    def __init__(self, clock: Clock, compiled: float, eager: float, parts=(1, 1)) -> None:
        self.taken: list[str] = []
        self.chosen = None
        self.why = ""
        self.parts = list(parts)

        def way(name, takes):
            def call():
                self.taken.append(name)
                clock.now += takes[0]
                return name

            return call

        self.takes = {"compiled": [compiled], "eager": [eager]}
        self.ways = racing.Ways(
            None,
            way("compiled", self.takes["compiled"]),
            way("eager", self.takes["eager"]),
            self.choose,
        )
        self.trial = racing.Trial(weakref.ref(self.ways), lambda: self.parts, self.leave)
        self.call = self.trial.call

    def choose(self, way) -> None:
        self.chosen = way
        self.call = way

    def leave(self, ways, why):
        self.why = why
        return ways.eager

    def run(self, count: int) -> None:
        for _ in range(count):
            self.call()


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(racing, "clock", made)
    return made


# ---- the trial alone ---------------------------------------------------------------------------------


def test_the_slower_way_is_left(clock):
    program = Program(clock, compiled=3e-3, eager=1e-3)
    program.run(ENOUGH)
    assert program.chosen is program.ways.eager
    assert "its 2 compiled parts hold 1.0 operations each" in program.why
    assert "a call takes 3,000 µs, in eager 1,000" in program.why


@pytest.mark.parametrize("compiled", [0.5e-3, 1e-3, 1.1e-3])
def test_what_gains_or_loses_little_stays_compiled(clock, compiled):
    program = Program(clock, compiled=compiled, eager=1e-3)
    program.run(ENOUGH)
    assert program.chosen is program.ways.compiled and not program.why


def test_one_lost_round_is_not_enough(clock):
    program = Program(clock, compiled=3e-3, eager=1e-3)
    program.run(racing.WAIT + racing.LENGTH + 1)
    assert program.chosen is None

    program.takes["compiled"][0] = 0.5e-3
    program.run(ENOUGH)
    assert program.chosen is program.ways.compiled


def test_large_parts_are_not_timed(clock):
    program = Program(clock, compiled=3e-3, eager=1e-3, parts=(1, 2 * racing.FEW))
    program.run(ENOUGH)
    assert program.chosen is program.ways.compiled
    assert "eager" not in program.taken


def test_a_race_has_as_many_calls_of_each_way_and_no_period(clock):
    program = Program(clock, compiled=1e-3, eager=1e-3)
    program.run(racing.WAIT + 1)
    program.taken.clear()
    program.run(racing.LENGTH)
    assert program.taken.count("eager") == program.taken.count("compiled") == racing.LENGTH // 2
    for period in (2, 3, 4, 8):
        for first in range(period):
            assert len({*program.taken[first::period]}) == 2


def test_what_is_compiled_in_between_begins_the_trial_anew(clock):
    program = Program(clock, compiled=3e-3, eager=1e-3)
    program.run(racing.WAIT + racing.LENGTH + 2)
    program.parts.append(1)
    program.run(racing.WAIT)
    assert program.chosen is None
    program.run(ENOUGH)
    assert program.chosen is program.ways.eager


def test_calls_inside_a_call_are_compiled_and_not_counted(clock):
    program = Program(clock, compiled=1e-3, eager=1e-3)
    program.trial.is_calling = True
    program.run(ENOUGH)
    assert program.chosen is None and {*program.taken} == {"compiled"}


def test_calls_that_somebody_listens_to_are_not_counted(clock):
    program = Program(clock, compiled=3e-3, eager=1e-3)
    with cl.record():
        program.run(ENOUGH)
    assert program.chosen is None and {*program.taken} == {"compiled"}


def test_an_error_ends_no_trial(clock):
    program = Program(clock, compiled=3e-3, eager=1e-3)

    def fails():
        raise ValueError("as the program does")

    program.trial.compiled = fails
    with pytest.raises(ValueError, match="as the program does"):
        program.call()
    program.trial.compiled = program.ways.compiled
    program.run(ENOUGH)
    assert program.chosen is program.ways.eager


# ---- with the compiler -------------------------------------------------------------------------------


def with_a_break(x):
    y = x + 1
    if y.sum() > 1e6:
        return y
    return y * 2


class Module(nn.Module):
    def forward(self, x):
        return with_a_break(x)


@pytest.fixture
def judged(monkeypatch):
    """The trials that came to a judgement; each is lost, and after few calls."""
    found = []

    def judge(trial):
        found.append(trial)
        trial.end(trial.leave(trial.ways(), trial.why(3e-3, 1e-3)))

    monkeypatch.setattr(racing.Trial, "judge", judge)
    monkeypatch.setattr(racing, "WAIT", 3)
    monkeypatch.setattr(racing, "LENGTH", 4)
    return found


def calls(compiled, count=12):
    """The results of some calls, and the warnings."""
    x = torch.arange(3.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [compiled(x) for _ in range(count)]
    assert all(torch.equal(result, with_a_break(x)) for result in results)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize("program", [with_a_break, Module()], ids=["function", "module"])
def test_a_program_is_left_with_one_warning_that_says_what_to_do(judged, program):
    compiled = cl.compile(program)
    told = calls(compiled)
    assert len(judged) == 1 and len(told) == 1
    assert re.search(r"is left to eager: its [23] compiled parts hold \d.\d operations", told[0])
    assert "a call takes 3,000 µs, in eager 1,000" in told[0]
    assert "cl.config.leave_what_loses = False" in told[0] and "test_22_racing.py:" in told[0]


def test_a_program_that_is_left_runs_no_compiled_part_and_says_so(judged):
    compiled = cl.compile(with_a_break)
    calls(compiled)
    with cl.record() as recording:
        compiled(torch.arange(3.0))
    assert [type(event) for event in recording.events] == [cl.events.FellBack]
    assert "with_a_break is left to eager" in recording.events[0].why
    assert "left to eager: with_a_break: its 2 compiled" in str(cl.explain(compiled)(torch.ones(3)))


def test_reset_forgets_it(judged):
    compiled = cl.compile(with_a_break)
    calls(compiled)
    cl.reset()
    with cl.record() as recording:
        compiled(torch.arange(3.0))
    assert len(recording.graphs) == 2
    calls(compiled)
    assert len(judged) == 2


NOT_TRIED = {
    "one graph": lambda: cl.compile(lambda x: (x + 1) * 2),
    "capture alone": lambda: cl.compile(with_a_break, backend="eager"),
    "no kernels": lambda: cl.compile(with_a_break, backend="aot_eager"),
    "a backend of the user's own": lambda: cl.compile(with_a_break, backend=lambda gm, inputs: gm),
    "stages of the user's own": lambda: cl.compile(with_a_break, pipeline=cl.Pipeline()),
    "other random numbers": lambda: cl.compile(with_a_break, options={"fallback_random": False}),
}


@pytest.mark.parametrize("name", NOT_TRIED)
def test_what_is_not_tried(judged, name):
    assert not calls(NOT_TRIED[name]()) and not judged


def test_it_can_be_switched_off(judged, monkeypatch):
    monkeypatch.setattr(cl.config, "leave_what_loses", False)
    assert not calls(cl.compile(with_a_break)) and not judged


def test_a_coroutine_is_not_timed(judged):
    async def program(x):
        return with_a_break(x)

    def run(coroutine):
        with pytest.raises(StopIteration) as end:
            coroutine.send(None)
        return end.value.value

    compiled = cl.compile(program)
    assert not calls(lambda x: run(compiled(x))) and not judged


def test_a_program_on_trial_is_freed_with_its_function(judged, monkeypatch):
    """Nothing but the function that `compile` gave holds the trial, and with it the program."""
    monkeypatch.setattr(racing, "WAIT", 10**6)
    compiled = cl.compile(Module())
    calls(compiled)
    compiler = compiled._course_compiler
    assert compiler.trial() is not None and compiler.ways() is not None
    del compiled
    assert compiler.trial() is None and compiler.ways() is None
