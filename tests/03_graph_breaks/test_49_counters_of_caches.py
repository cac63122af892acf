"""Functions of `functools.lru_cache`: how often a cache was asked is what eager says, where the program looks."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

import course_lib as cl

LOG: list[int] = []


@lru_cache
def doubled(n: int) -> int:
    return n * 2


@lru_cache(maxsize=2)
def filled(n: int) -> Tensor:
    return torch.full((n,), float(n))


@lru_cache
def summed(x: Tensor) -> Tensor:
    return x.sum()


@cache
def fibonacci(n: int) -> int:
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@lru_cache
def logged(n: int) -> int:
    LOG.append(n)
    return n


class Model(torch.nn.Module):
    @lru_cache  # noqa: B019
    def factor(self, n: int) -> int:
        return n * 3

    def forward(self, x: Tensor) -> Any:
        return x * self.factor(2) * self.factor(2), type(self).factor.cache_info()


MODEL = Model()
CACHED = doubled, filled, summed, fibonacci, logged, Model.factor


def cleared_first(x: Tensor) -> Any:
    doubled.cache_clear()
    return x * doubled(3) + doubled(3) + doubled(4), doubled.cache_info()


def asked_once(x: Tensor) -> Any:
    return x * doubled(3), doubled.cache_info()


def cleared_between(x: Tensor) -> Any:
    y = x + filled(3) + filled(3)
    before = filled.cache_info()
    filled.cache_clear()
    return y + filled(3), before, filled.cache_info()


def in_a_loop(x: Tensor) -> Any:
    for n in (1, 3, 3, 1):
        x = x + filled(3) * doubled(n)
    return x, filled.cache_info(), doubled.cache_info()


def a_tensor_is_the_key(x: Tensor) -> Any:
    return summed(x) + summed(x), summed.cache_info()


def made_inside(x: Tensor) -> Any:
    @lru_cache
    def more(n: int) -> int:
        return n + 1

    return x + more(1) + more(1) + more(2), more.cache_info()


def counted_by_difference(x: Tensor) -> Any:
    before = doubled.cache_info()
    y = x * doubled(7)
    after = doubled.cache_info()
    return y, after.hits - before.hits, after.misses - before.misses


def not_looked_at_here(x: Tensor) -> Any:
    return x * doubled(9)


def recursive(x: Tensor) -> Any:
    return x * fibonacci(10), fibonacci.cache_info()


def with_an_effect(x: Tensor) -> Any:
    return x * logged(1) * logged(1), logged.cache_info(), list(LOG)


def of_a_method(x: Tensor) -> Any:
    return MODEL(x)


def of_a_class(x: Tensor) -> Any:
    return x * 2, Model.factor.cache_info()


def cleared_of_a_class(x: Tensor) -> Any:
    Model.factor.cache_clear()
    return x * MODEL.factor(4)


PROGRAMS = [
    cleared_first,
    asked_once,
    cleared_between,
    in_a_loop,
    a_tensor_is_the_key,
    made_inside,
    counted_by_difference,
    not_looked_at_here,
    recursive,
    with_an_effect,
    of_a_method,
    of_a_class,
    cleared_of_a_class,
]


def nothing() -> None: ...


def clear() -> None:
    for function in CACHED:
        function.cache_clear()
    LOG.clear()


def ask() -> None:
    doubled(3), fibonacci(3), MODEL.factor(2)


def seen(program: Any, between: Any) -> list[Any]:
    """Results of four calls, and what all counters say after each."""
    clear()
    found = []
    for _ in range(4):
        found += [str(program(torch.ones(3))), [str(f.cache_info()) for f in CACHED]]
        between()
    return found


@pytest.mark.parametrize("between", [nothing, clear, ask])
@pytest.mark.parametrize("program", PROGRAMS)
def test_counters_are_those_of_eager(program, between):
    expected = seen(program, between)
    assert seen(cl.compile(program, backend="eager"), between) == expected


class Logged:
    @lru_cache  # noqa: B019
    def factor(self, n: int) -> int:
        LOG.append(n)
        return n * 3


LOGGED = Logged()


def test_a_method_with_a_cache_is_called_at_a_break():
    LOG.clear()
    compiled = cl.compile(lambda x: x * LOGGED.factor(2), backend="eager")
    assert compiled(torch.ones(2)).tolist() == [6, 6]
    assert compiled(torch.ones(2)).tolist() == [6, 6]
    assert LOG == [2]
