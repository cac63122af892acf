"""Integers to a negative integer power: eager raises, and so does what is compiled."""

import pytest
import torch
from same_as_eager import Cases

case = Cases()
whole = torch.tensor([1, -1])
case("an operator", lambda compile: compile(lambda x: x**-1)(whole))
case("a function", lambda compile: compile(lambda x: torch.pow(x, -2))(whole))
case("in place", lambda compile: compile(lambda x: x.pow_(-1))(whole.clone()))
case("int8", lambda compile: compile(lambda x: x**-1)(whole.to(torch.int8)))
case("bools", lambda compile: compile(lambda x: x.pow(-1))(whole > 0))
case("behind another operation", lambda compile: compile(lambda x: (x + 1) ** -1)(whole))
case("a float exponent", lambda compile: compile(lambda x: x**-1.0)(whole))
case("floats", lambda compile: compile(lambda x: x**-1)(torch.tensor([2.0, -4.0])))
case("a positive exponent", lambda compile: compile(lambda x: x**3)(whole))


@pytest.mark.parametrize("name", case.names)
def test_a_power_of_integers_is_as_in_eager(name):
    case.check(name)
