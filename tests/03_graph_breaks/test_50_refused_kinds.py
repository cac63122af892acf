"""Values of one kind written to a tensor of another: eager takes some, and refuses others."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import course_lib as cl

IN_PLACE = (
    "add_ sub_ mul_ div_ pow_ fill_ remainder_ floor_divide_ eq_ lt_ copysign_ fmod_ clamp_ xlogy_ "
    "atan2_ hypot_ logical_and_ bitwise_and_ clamp_min_ nextafter_"
).split()
DTYPES = (torch.bool, torch.int64, torch.float32, torch.complex64)
VALUES = (True, 2, 2.5, 2j, torch.tensor(2.5), torch.tensor(2j))

Written = Callable[[torch.Tensor, Any], Any]


def set_item(x: torch.Tensor, value: Any) -> torch.Tensor:
    x[0] = value
    return x


def into_itself(x: torch.Tensor, value: Any) -> torch.Tensor:
    return torch.mul(x.clone(), value, out=x)


OTHERS: dict[str, Written] = {
    "an item": set_item,
    "masked_fill_": lambda x, value: x.masked_fill_(x == x, value),
    "addcmul_": lambda x, value: x.addcmul_(x, x, value=value),
    "a factor": lambda x, value: x.add_(x, alpha=value),
    "out=": into_itself,
}


def method(name: str) -> Written:
    def call(x: torch.Tensor, value: Any) -> Any:
        return getattr(x, name)(value)

    return call


WRITES = {**{name: method(name) for name in IN_PLACE}, **OTHERS}


def outcome(function: Callable[[torch.Tensor], Any], dtype: torch.dtype) -> str:
    """The result, or the error and its words."""
    x = torch.ones(2, dtype=dtype)
    try:
        result = function(x)
    except Exception as error:
        return f"{type(error).__name__}: {error}; {x}"
    return f"{result}; {x}"


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_taken_or_refused_as_in_eager(name: str) -> None:
    write = WRITES[name]
    for dtype, value in itertools.product(DTYPES, VALUES):

        def program(x: torch.Tensor, value: Any = value) -> Any:
            return write(x, value)

        compiled = cl.compile(program, backend="aot_eager")
        assert outcome(compiled, dtype) == outcome(program, dtype), (dtype, value)


def test_a_division_that_zeros_would_refuse_stays_in_the_graph() -> None:
    """A rehearsal runs on zeros, which no integer can be divided by."""

    def program(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x.floor_divide_(mask)

    x, mask = torch.tensor([4, 9]), torch.tensor([True, True])
    result = cl.compile(program, backend="aot_eager", fullgraph=True)(x.clone(), mask)
    assert torch.equal(result, program(x.clone(), mask))
