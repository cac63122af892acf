"""A number that changes at every call is an input of the kernels, not a reason to compile; classes that take turns cost no more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib import events
from course_lib.capture.classes import MOST_ANSWERS, SeenClass
from course_lib.capture.guard_tests import ClassAsSeen, Guard
from course_lib.capture.sources import FRAME
from course_lib.frames.hook import class_version
from course_lib.guards import Check

x = torch.linspace(-2, 2, 40).reshape(5, 8)

PROGRAMS: dict[str, Callable[[torch.Tensor, Any], torch.Tensor]] = {
    "times": lambda x, s: x * s,
    "from the left": lambda x, s: s * x - s + (s - x),
    "divided": lambda x, s: x / s + s / (x * x + 1),
    "in place": lambda x, s: x.clone().mul_(s).add_(s).sub_(s).div_(s),
    "alpha": lambda x, s: x.add(x * x, alpha=-0.1 / (1 - 0.9**s)),
    "functions": lambda x, s: torch.add(torch.mul(x, s), torch.sub(x, x, alpha=s)),
    "float64": lambda x, s: (x.double() * s).sum() * s,
    "no dimensions": lambda x, s: x.square().sum() * s,
    "integers": lambda x, s: x.long() * s,
    "halves": lambda x, s: x.half() * s,
    "a power, and a bound": lambda x, s: x.clamp(max=s) * 2 ** (1 / s),
    "with a size": lambda x, s: x * (s / x.shape[0]),
    "through a function": lambda x, s: torch.lerp(x, x + 1, 0.5) * abs(s) + round(s * 2.0),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_number_gives_what_eager_gives(name: str):
    program = PROGRAMS[name]
    for numbers in ([0.1 * n + 0.7 for n in range(5)], list(range(3, 8)), [-1.5, 2.5, -0.3, 1e9]):
        compiled = cl.compile(program)
        for number in numbers:
            found, expected = compiled(x, number), program(x, number)
            torch.testing.assert_close(found, expected)
            assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", ["times", "from the left", "divided", "in place", "alpha"])
def test_kernels_are_built_once_for_all_numbers(name: str):
    compiled = cl.compile(PROGRAMS[name])
    for number in (1.5, 2.5, 3.5):
        compiled(x, number)
    with cl.record() as trace:
        for n in range(100):
            compiled(x, 4.25 + n)
    assert not [e for e in trace.events if isinstance(e, (events.KernelsBuilt, events.FellBack))]


def test_gradients_of_every_number_are_eagers():
    compiled = cl.compile(PROGRAMS["divided"])
    for number in (1.5, 2.5, 3.5, 4.5):
        found = []
        for run in (PROGRAMS["divided"], compiled):
            leaf = x.clone().requires_grad_()
            run(leaf, number).sum().backward()
            found.append(leaf.grad)
        torch.testing.assert_close(found[1], found[0])


def test_a_class_is_not_compared_member_by_member_with_another():
    # Not below nn.Module: every trace by torch changes that class, and from Python 3.13 on a class that was changed a
    # thousand times has no version any more. Nor have those below it; their members are compared.
    class A:
        pass

    class B:
        pass

    seen = SeenClass(A)
    seen.changed = lambda: pytest.fail("the members of A were compared")  # type: ignore[method-assign]
    for _ in range(3):
        assert seen == class_version(A)
        assert seen != class_version(B)


def test_each_version_of_a_class_is_asked_once_though_two_classes_come_in_turn():
    class A:
        pass

    class B:
        pass

    seen = SeenClass(A)
    asked = []
    compare = seen.is_seen_in
    seen.is_seen_in = lambda version: asked.append(version) or compare(version)  # type: ignore[method-assign]
    for _ in range(5):
        assert seen == class_version(A)
        assert seen != class_version(B)
    A.name = 1
    for _ in range(5):
        assert seen == class_version(A)  # nothing that was seen has changed
    A.__len__ = lambda self: 3
    for _ in range(5):
        assert seen != class_version(A)
    assert len(asked) == 3


def test_few_versions_of_a_class_are_kept():
    class Counts:
        calls = 0

    seen = SeenClass(Counts)
    for _ in range(1000):
        Counts.calls += 1
        assert seen == class_version(Counts)
    assert len(seen.answers) <= MOST_ANSWERS


def test_a_class_that_no_source_leads_to_is_asked_at_every_call():
    class Made:
        scale = 2

    seen = SeenClass(Made)
    seen.see(["scale"])
    check = Check([Guard(FRAME, "class", (ClassAsSeen(seen, found=False),))], [])
    function = lambda: None
    assert check(function) and check(function)

    Made.scale = 3
    assert not check(function)
    assert str(check.first_failure(function)) == "Made.scale: expected what it was, got another"


def test_two_classes_in_turn_keep_their_entries():
    class A(nn.Module):
        def act(self, x):
            return x.relu()

    class B(nn.Module):
        def act(self, x):
            return x.tanh()

    program = lambda model, x: model.act(x) + 1
    compiled, models = cl.compile(program), (A(), B())
    for model in models * 2:
        torch.testing.assert_close(compiled(model, x), program(model, x))
    with cl.record() as trace:
        for model in models * 3:
            torch.testing.assert_close(compiled(model, x), program(model, x))
    assert not [e for e in trace.events if isinstance(e, events.GraphCaptured)]

    A.act = lambda self, x: x * 5  # type: ignore[method-assign]
    for model in models:
        torch.testing.assert_close(compiled(model, x), program(model, x))
