"""A class's own `__setattr__` and `__delattr__` come before descriptors and properties, as in
Python."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import course_lib as cl

LOG: list[Any] = []


class Descriptor:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return vars(instance).get(self.name, 1)

    def __set__(self, instance: Any, value: Any) -> None:
        LOG.append(("set", value))
        vars(instance)[self.name] = value

    def __delete__(self, instance: Any) -> None:
        LOG.append("delete")
        vars(instance).pop(self.name, None)


class Usual:
    value = Descriptor()

    @property
    def part(self) -> Any:
        return vars(self).get("_part", 1)

    @part.setter
    def part(self, new: Any) -> None:
        LOG.append(("part", new))
        vars(self)["_part"] = new


class Logs(Usual):
    def __setattr__(self, name: str, new: Any) -> None:
        LOG.append(("setattr", name))
        object.__setattr__(self, name, new)

    def __delattr__(self, name: str) -> None:
        LOG.append(("delattr", name))
        object.__delattr__(self, name)


class Doubles(Logs):
    def __setattr__(self, name: str, new: Any) -> None:
        super().__setattr__(name, new * 2)


class GoesAround(Logs):
    """Its descriptors are never asked to set anything."""

    def __setattr__(self, name: str, new: Any) -> None:
        vars(self)[name] = new


class UsualModule(torch.nn.Module):
    value = Descriptor()
    part = Usual.part


class LoggingModule(UsualModule):
    def __setattr__(self, name: str, new: Any) -> None:
        LOG.append(("module", name))
        super().__setattr__(name, new)


def changed(thing: Any, x: torch.Tensor) -> torch.Tensor:
    thing.value = 3
    thing.part = 4
    thing.other = 5
    thing.value = 6
    return x * thing.value + thing.part * 10 + thing.other * 100


def deleted(thing: Any, x: torch.Tensor) -> torch.Tensor:
    thing.value = 1
    del thing.value
    thing.other = 2
    del thing.other
    return x + hasattr(thing, "other")


@pytest.mark.parametrize("is_made_inside", [False, True])
@pytest.mark.parametrize("change", [changed, deleted])
@pytest.mark.parametrize(
    "kind", [Usual, Logs, Doubles, GoesAround, UsualModule, LoggingModule], ids=lambda k: k.__name__
)
def test_what_changes_an_attribute_is_called_as_in_eager(
    kind: type, change: Any, is_made_inside: bool
) -> None:
    answers = []
    for backend in (None, "eager"):
        outside = kind()
        LOG.clear()

        def program(x: torch.Tensor, outside: Any = outside) -> torch.Tensor:
            return change(kind() if is_made_inside else outside, x)

        function = cl.compile(program, backend=backend) if backend else program
        results = [function(torch.ones(1)).item() for _ in range(2)]
        answers.append((results, list(LOG)))
    assert answers[0] == answers[1]
