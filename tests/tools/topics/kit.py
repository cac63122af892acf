"""How a program of a topic is registered, and makers of arguments that several topics share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Maker = Callable[[int], tuple[Any, ...]]
"""Gives the arguments of call `i`: 0, 1 or 2."""


@dataclass
class Program:
    """One program. `graphs`: how many its first call may make where that is more than torch.compile makes, with the reason
    in a comment beside it. None: no more than torch.compile."""

    function: Callable[..., Any]
    make: Maker
    graphs: int | None = None


PROGRAMS: dict[str, Program] = {}


def one(i: int) -> tuple[Any, ...]:
    return (torch.randn(3, 4 + i // 2),)


def grad(i: int) -> tuple[Any, ...]:
    return (torch.randn(3, 4, requires_grad=True),)


def two(i: int) -> tuple[Any, ...]:
    return torch.randn(3, 4), torch.randn(3, 4)


def number(i: int) -> tuple[Any, ...]:
    return torch.randn(3, 4), i


def program(make: Maker = one, graphs: int | None = None) -> Callable[..., Any]:
    """Register a program; `make(i)` gives the arguments of call `i`."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        topic = function.__module__.rsplit(".", 1)[-1]
        name = f"{topic}.{function.__name__}"
        assert name not in PROGRAMS, name
        PROGRAMS[name] = Program(function, make, graphs)
        return function

    return register
