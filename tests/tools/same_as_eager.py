"""A case is a function of `compile`. It is played twice, once with a `compile` that does nothing: eager's answer is the right one.

case = Cases()
case("a sum", lambda compile: compile(lambda x: x + 1)(torch.ones(2)))

@pytest.mark.parametrize("name", case)
def test_it_is_as_in_eager(name):
    case.check(name)
"""

from collections.abc import Callable
from typing import Any

import torch
from scenarios import same

import course_lib as cl


class Cases:
    """Named cases, each with its options for `cl.compile`."""

    def __init__(self, **options: Any) -> None:
        self.cases: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {}
        self.options = options

    def __call__(self, name: str, body: Callable[..., Any], **options: Any) -> None:
        assert name not in self.cases, f"two cases are called {name}"
        self.cases[name] = body, self.options | options

    @property
    def names(self) -> list[str]:
        return list(self.cases)

    def check(self, name: str) -> None:
        """Play the case plain and compiled, and compare what it gives: values, or the error that leaves it."""
        body, options = self.cases[name]
        eager = played(body, lambda function: function)
        compiled = played(body, lambda function: cl.compile(function, **options))
        same(compiled, eager, 1e-5)


def played(body: Callable[..., Any], compile: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    try:
        return body(compile)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
