"""Random programs of what goes wrong, warns, hooks in and keeps state: `tools/random_hazards.py`, and whether it notices."""

from __future__ import annotations

import dataclasses
import warnings

import pytest
import random_hazards

from course_lib.capture.corners import warn
from course_lib.capture.head import HeadBuilder

QUICK = range(0, 12)
NEW_KINDS = range(random_hazards.NEW_KINDS_FROM, random_hazards.NEW_KINDS_FROM + 8)
FOUND = {
    100_100_621: "a hook for saved tensors was given a tensor that stands for a number",
    100_001_107: "a hook for saved tensors did not see what a checkpoint saves",
    100_200_312: "a hook for saved tensors saw what is inside of a checkpoint",
}
"""Programs that differed once, and why."""


@pytest.mark.parametrize("seed", QUICK)
def test_a_random_program_is_as_in_eager(seed):
    assert not random_hazards.differs(seed, "eager")


@pytest.mark.parametrize("seed", NEW_KINDS)
def test_a_random_program_of_the_new_kinds_is_as_in_eager(seed):
    """Hooks of modules, checkpoints, generators, chained errors, changing globals, NumPy, caches, pickling."""
    assert not random_hazards.differs(seed, "eager")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(NEW_KINDS.stop, NEW_KINDS.stop + 40))
def test_more_random_programs_of_the_new_kinds_are_as_in_eager(seed):
    assert not random_hazards.differs(seed, "eager")


@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: FOUND[seed])
def test_a_random_program_that_differed_once(seed):
    assert not random_hazards.differs(seed, "inductor")


def test_each_new_kind_is_written():
    kinds = set()
    for seed in range(NEW_KINDS.start, NEW_KINDS.start + 100):
        writer = random_hazards.Writer(seed)
        writer.source()
        kinds.update(writer.kinds)
    assert kinds >= set(random_hazards.NEW_KINDS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(QUICK), 61))
def test_more_random_programs_are_as_in_eager(seed):
    assert not random_hazards.differs(seed, "eager")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 131))
def test_random_programs_with_kernels_are_as_in_eager(seed):
    assert not random_hazards.differs(seed, "inductor")


def found(seeds):
    """The first difference that the generator finds in these programs."""
    return next(filter(None, (random_hazards.differs(seed, "eager") for seed in seeds)), "")


def drops_effects(monkeypatch):
    monkeypatch.setattr(HeadBuilder, "attribute_effect", lambda self, known, before: None)


def drops_items(monkeypatch):
    monkeypatch.setattr(HeadBuilder, "content_effect", lambda self, known, now, before: None)


def shows_no_warnings(monkeypatch):
    monkeypatch.setattr(HeadBuilder, "warning_effect", lambda self, warned: None)


def shows_warnings_of_the_next_line(monkeypatch):
    def place(world, level, _place=warn.place):
        at = _place(world, level)
        return at if isinstance(at, int) else dataclasses.replace(at, line=at.line + 1)

    monkeypatch.setattr(warn, "place", place)


def catches_errors_late(monkeypatch):
    """An error of the graph leaves the head, past the program's `try`."""

    def start_anew(self, lines):
        return None

    monkeypatch.setattr(HeadBuilder, "start_anew", start_anew)


BROKEN = [
    drops_effects,
    drops_items,
    shows_no_warnings,
    shows_warnings_of_the_next_line,
    catches_errors_late,
]


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_compiler_is_noticed(broken, monkeypatch):
    broken(monkeypatch)
    with warnings.catch_warnings():
        warnings.resetwarnings()  # where one may become an error, eager runs the frame
        assert found(range(40))


def test_a_program_can_be_read_again():
    """A seed is a program: the same one each time."""
    first, second = (random_hazards.Writer(7).source() for _ in range(2))
    assert first == second and "def f(x, y, w, m, i, out, box):" in first
