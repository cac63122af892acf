"""`sys.modules` grows with each import. A program that looks one module up depends on that name only."""

from __future__ import annotations

import sys
import types
import warnings

import pytest
import torch

import course_lib as cl
from course_lib import events


def looks_up(x):
    return x + len(sys.modules["warnings"].__name__)


def asks(x):
    return x + (1 if "course_lib_absent" in sys.modules else 2)


def gets(x):
    return x + (sys.modules.get("course_lib_absent") is None)


def catches(x):
    with warnings.catch_warnings():
        y = x + 1
    return y * 2


def lists(x):
    return x + ("warnings" in list(sys.modules))


@pytest.fixture
def another_module():
    """Import something in between."""
    names = []

    def load(name: str) -> None:
        sys.modules[name] = types.ModuleType(name)
        names.append(name)

    yield load
    for name in names:
        del sys.modules[name]


@pytest.mark.parametrize("program", [looks_up, asks, gets, catches, lists])
def test_another_import_changes_nothing(program, another_module):
    compiled, x = cl.compile(program, backend="eager"), torch.ones(2)
    torch.testing.assert_close(compiled(x), program(x))

    another_module("course_lib_another")
    met: list[events.Event] = []
    with events.listener(met.append):
        torch.testing.assert_close(compiled(x), program(x))
    if program is not lists:
        assert not any(isinstance(event, events.GraphCaptured) for event in met)


@pytest.mark.parametrize("program", [asks, gets])
def test_the_import_of_the_module_asked_for_is_noticed(program, another_module):
    compiled, x = cl.compile(program, backend="eager"), torch.ones(2)
    torch.testing.assert_close(compiled(x), program(x))

    another_module("course_lib_absent")
    torch.testing.assert_close(compiled(x), program(x))


def test_a_module_that_was_exchanged_is_noticed(another_module):
    another_module("course_lib_exchanged")

    def reads(x):
        return x + len(sys.modules["course_lib_exchanged"].__name__)

    compiled, x = cl.compile(reads, backend="eager"), torch.ones(2)
    torch.testing.assert_close(compiled(x), reads(x))

    sys.modules["course_lib_exchanged"] = types.ModuleType("short")
    torch.testing.assert_close(compiled(x), reads(x))


def test_who_asks_only_whether_a_module_is_there_does_not_depend_on_which(another_module):
    another_module("course_lib_absent")
    compiled, x = cl.compile(asks, backend="eager"), torch.ones(2)
    torch.testing.assert_close(compiled(x), asks(x))

    sys.modules["course_lib_absent"] = types.ModuleType("another")
    met: list[events.Event] = []
    with events.listener(met.append):
        torch.testing.assert_close(compiled(x), asks(x))
    assert not any(isinstance(event, events.GraphCaptured) for event in met)
