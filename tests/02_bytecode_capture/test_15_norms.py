"""The shape of a norm over single elements, as the program sees it while it is interpreted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import course_lib as cl

NORMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "last": lambda x: torch.linalg.vector_norm(x[:, :1], dim=-1),
    "in a tuple": lambda x: torch.linalg.vector_norm(x[:1, :1], dim=(-1, -2)),
    "from the front": lambda x: torch.linalg.vector_norm(x[:, :1], dim=1),
    "kept": lambda x: torch.linalg.vector_norm(x[:, :1], dim=-1, keepdim=True),
    "of order 1": lambda x: torch.linalg.vector_norm(x[:, :1], 1, -1),
    "the method": lambda x: x[:, :1].norm(dim=-1),
    "by position": lambda x: x[:1].norm(2, 0),
    "linalg.norm": lambda x: torch.linalg.norm(x[:1], dim=-2),
    "of all": lambda x: x[:1, :1].norm(),
}
"""torch 2.11 and 2.12 infer a wrong shape for some of them."""


@pytest.mark.parametrize("name", NORMS)
def test_the_program_sees_the_shape_of_eager(name: str) -> None:
    norm = NORMS[name]

    def program(x: torch.Tensor) -> tuple[torch.Tensor, Any, int, torch.Tensor]:
        result = norm(x)
        return result, tuple(result.shape), result.dim(), result.sum() + result.numel()

    x = torch.randn(4, 6)
    torch.testing.assert_close(cl.compile(program, backend="eager")(x), program(x))


def test_a_dimension_that_is_not_there_is_refused_as_in_eager() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.norm(dim=-3)

    with pytest.raises(IndexError) as of_eager:
        program(torch.randn(4, 6))
    with pytest.raises(IndexError) as ours:
        cl.compile(program)(torch.randn(4, 6))
    assert str(ours.value) == str(of_eager.value)
