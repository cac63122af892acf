"""Tensors without elements: what eager refuses is refused, and what it differentiates has gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl

REDUCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "max of a dimension": lambda x: x.max(0).values,
    "max, dim=": lambda x: torch.max(x, dim=0).indices,
    "max, negative": lambda x: x.t().max(-1).values,
    "max, axis=": lambda x: torch.max(x, axis=0).values,
    "min of a dimension": lambda x: x.min(0, keepdim=True).values,
    "max of all": lambda x: x.max(),
    "min of all": lambda x: torch.min(x),
    "amax": lambda x: x.amax(0),
    "amin of all": lambda x: x.amin(),
    "argmax": lambda x: x.argmax(0),
    "argmin of all": lambda x: x.argmin(),
    "aminmax": lambda x: torch.aminmax(x).min,
    "median": lambda x: x.median(0).values,
    "median of all": lambda x: x.median(),
    "nanmedian": lambda x: x.nanmedian(0).values,
    "mode": lambda x: x.mode(0).values,
    "mode of the last": lambda x: x.t().mode().values,
    "kthvalue": lambda x: x.kthvalue(1, 0).values,
    "topk": lambda x: x.topk(1, 0).values,
    "quantile": lambda x: x.quantile(0.5, 0),
    "logsumexp": lambda x: x.logsumexp(0),
    "maximum norm": lambda x: torch.linalg.vector_norm(x, float("inf"), 0),
    "the other dimension": lambda x: x.max(1).values,
    "max of two tensors": lambda x: torch.max(x, x.cos()),
    "interpolate": lambda x: F.interpolate(x.t()[None], 3),
}


def outcome(program: Any, x: torch.Tensor) -> Any:
    """The result, or the type and the first line of the error."""
    try:
        return program(x)
    except Exception as error:
        return type(error), str(error).splitlines()[0]


def is_an_error(result: Any) -> bool:
    return isinstance(result, tuple) and isinstance(result[0], type)


@pytest.mark.parametrize("is_used", [True, False], ids=["used", "unused"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_a_reduction_of_nothing_is_what_it_is_in_eager(name: str, is_used: bool) -> None:
    """An error is eager's, also where nobody uses the result; and so for each size of one program."""

    def program(x: torch.Tensor) -> Any:
        result = REDUCTIONS[name](x[2:])
        return (result, x + 1) if is_used else x + 1

    # aot_eager: what is refused is refused while tracing
    compiled = cl.compile(program, dynamic=True, backend="aot_eager")
    for rows in (7, 2, 9, 0, 2, 1):
        x = torch.randn(rows, 3)
        want, got = outcome(program, x), outcome(compiled, x)
        assert type(got) is type(want)
        if is_an_error(want):
            assert got == want
        else:
            torch.testing.assert_close(got, want, equal_nan=True)


def test_the_error_names_the_users_line() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x[2:].max(0)  # this line
        return x + 1

    compiled = cl.compile(program, dynamic=True)
    compiled(torch.randn(7, 3))
    with pytest.raises(IndexError, match="max\\(\\): Expected reduction dim 0") as caught:
        compiled(torch.randn(2, 3))
    assert caught.traceback[-1].lineno == program.__code__.co_firstlineno

    whole = cl.compile(program, dynamic=True, fullgraph=True)
    with pytest.raises(cl.Unsupported, match="max has no result") as refused:
        whole(torch.randn(2, 3))
    assert "this line" in str(refused.value)


TRAINED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cummax": lambda x: x.cummax(0).values,
    "cummin": lambda x: x.cummin(1).values,
    "cummax of a product": lambda x: (x * 2).cummax(0).values * 3,
    "cumprod": lambda x: x.cumprod(0),
    "cumsum": lambda x: x.cumsum(0),
    "sort": lambda x: x.sort(0).values,
    "prod": lambda x: x.prod(),
    "norm": lambda x: x.norm(dim=0),
    "logsumexp": lambda x: x.logsumexp(0),
    "softmax": lambda x: x.softmax(0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "product": lambda x: x @ x.t(),
    "reshape": lambda x: x.reshape(-1) * 2,
    "pad": lambda x: F.pad(x, (1, 1)),
    "cat": lambda x: torch.cat([x, x.sin()]),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "the input itself": lambda x: x,
    "index_select": lambda x: x.index_select(0, torch.arange(x.shape[0])),
}


@pytest.mark.parametrize("dynamic", [True, False], ids=["symbols", "numbers"])
@pytest.mark.parametrize("name", TRAINED)
def test_training_with_an_input_without_elements(name: str, dynamic: bool) -> None:
    """The gradient of an empty tensor may be that tensor itself, which backward must be given."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return TRAINED[name](x), y.tanh() * 2

    compiled = cl.compile(program, dynamic=dynamic, backend="aot_eager")
    for shape in ((4, 3), (0, 3), (3, 0), (0, 0)):
        gradients = []
        for run in (program, compiled):
            x, y = torch.ones(shape, requires_grad=True), torch.ones(2, requires_grad=True)
            first, second = run(x, y)
            (first.sum() + second.sum()).backward()
            gradients.append((x.grad, y.grad))
        torch.testing.assert_close(gradients[1], gradients[0])


def test_training_by_kernels_with_an_input_without_elements() -> None:
    """The same with generated code, where the gradient is a formula of what was given back."""

    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x.sin().cummax(0).values * 0.5 + 1).sum() + y.exp().sum()

    compiled = cl.compile(program)
    x, y = torch.ones(0, 3, requires_grad=True), torch.ones(2, requires_grad=True)
    compiled(x, y).backward()
    assert x.grad is not None and x.grad.shape == (0, 3)
    torch.testing.assert_close(y.grad, torch.ones(2).exp())
