"""`sys.modules` grows with each import. A program that looks one module up depends on that name only."""

from __future__ import annotations

import copy
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


# What needs all names of a dict that capture reads name by name: the stand-in itself is empty, and must not answer.
WHOLE = {
    "its text": lambda names: len(repr(names)) > 100,
    "its text, formatted": lambda names: len(f"{names}") > 100,
    "is it another one": lambda names: names != {},
    "is it equal": lambda names: names == {},
    "put together with another": lambda names: len({} | names) > 3,
    "put together, itself on the left": lambda names: len(names | {"more": 1}) > 3,
    "a copy": lambda names: len(copy.copy(names)) > 3,
    "a dict made of it": lambda names: len(dict(names)) > 3,
    "written out": lambda names: len({**names}) > 3,
    "is it empty": lambda names: not names,
    "backwards": lambda names: len(list(reversed(names))) > 3,
}


@pytest.mark.parametrize("ask", WHOLE.values(), ids=WHOLE.keys())
@pytest.mark.parametrize("find", [lambda: sys.modules, globals], ids=["sys.modules", "globals()"])
def test_what_needs_all_names_is_answered_as_in_eager(ask, find):
    def program(x):
        return x + 1, ask(find())

    compiled, x = cl.compile(program, backend="eager"), torch.ones(2)
    assert compiled(x)[1] == program(x)[1]
    assert compiled(x)[1] == program(x)[1]
