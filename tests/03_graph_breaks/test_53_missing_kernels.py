"""Dtypes and numbers for which eager has no kernel are refused as in eager, and no others are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl

DTYPES = (torch.bool, torch.uint8, torch.int64, torch.complex64)

OF_ELEMENTS = (
    "abs ceil floor round trunc frac sign sgn neg exp log sqrt rsqrt reciprocal sigmoid tanh erf lgamma "
    "digamma logit relu nan_to_num isneginf positive square deg2rad angle bitwise_not logical_not "
    "sum mean prod var std amax argmax any norm cumsum cumprod logcumsumexp sort median softmax0"
).split()
OF_TWO = (
    "add sub mul div true_divide floor_divide remainder fmod pow maximum fmin atan2 hypot copysign "
    "nextafter heaviside logaddexp logaddexp2 xlogy bitwise_and bitwise_left_shift logical_xor gcd lcm "
    "lt eq isclose dot outer cross_ matmul ldexp"
).split()
OF_NETWORKS: dict[str, Callable[[torch.Tensor], Any]] = {
    "gelu": F.gelu,
    "silu": F.silu,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "softplus": F.softplus,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0, 1),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "softmin": lambda x: F.softmin(x, 0),
    "prelu": lambda x: F.prelu(x, x[:1]),
    "glu": lambda x: F.glu(x[:2], 0),
    "mse_loss": lambda x: F.mse_loss(x, x),
    "kl_div": lambda x: F.kl_div(x, x, reduction="sum"),
    "layer_norm": lambda x: F.layer_norm(x, (3,)),
    "max_pool1d": lambda x: F.max_pool1d(x[None, None], 2),
    "avg_pool1d": lambda x: F.avg_pool1d(x[None, None], 2),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None, None, None], 1),
    "interpolate": lambda x: F.interpolate(x[None, None], size=5),
    "lerp": lambda x: torch.lerp(x, x, 0.5),
    "addcdiv": lambda x: torch.addcdiv(x, x, x),
    "addcmul": lambda x: torch.addcmul(x, x, x, value=0.5),
    "clamp": lambda x: x.clamp(0, 1),
    "add with alpha": lambda x: torch.add(x, x, alpha=0.5),
    "cross_entropy": lambda x: F.cross_entropy(torch.ones(3, 2), x),
    "softmax of a dtype": lambda x: torch.softmax(x.abs().float(), 0, dtype=x.dtype),
}


def of_name(name: str, count: int) -> Callable[[torch.Tensor], Any]:
    """The method of this name, of one tensor or of two."""
    method = getattr(torch.Tensor, name.strip("_").removesuffix("0"))
    arguments = (0,) if name.endswith("0") else ()
    return lambda x: method(x, *[x] * (count - 1), *arguments)


OPERATIONS = {
    **{name: of_name(name, 1) for name in OF_ELEMENTS},
    **{name: of_name(name, 2) for name in OF_TWO},
    **OF_NETWORKS,
}


def error_of(function: Callable[..., Any], *args: Any) -> str:
    """The error and its words; "" if there is none."""
    try:
        function(*(arg.clone() if isinstance(arg, torch.Tensor) else arg for arg in args))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_dtype_without_a_kernel_is_refused_as_in_eager(name: str) -> None:
    operation = OPERATIONS[name]
    for dtype in DTYPES:
        x = torch.tensor([1, 0, 1]).to(dtype)

        def program(x: torch.Tensor) -> Any:
            return operation(x)

        expected = error_of(program, x)
        if expected:
            # the default backend: its loops would compute something
            assert error_of(cl.compile(program), x) == expected, dtype
        else:
            # no rehearsal may refuse it (a fake tensor may)
            whole = cl.compile(program, backend="eager", fullgraph=True)
            assert "eager refuses" not in error_of(whole, x), dtype


NUMBERS: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "alpha of celu": (lambda x: torch.celu(x, 0.0), torch.ones(2)),
    "alpha of celu_": (lambda x: torch.celu_(x, 0.0), torch.ones(2)),
    "beta of smooth_l1_loss": (lambda x: F.smooth_l1_loss(x, x, beta=-1.0), torch.ones(2)),
    "a byte of 300": (lambda x: torch.full((2,), 300, dtype=torch.uint8) + x, torch.ones(2)),
    "a complex float": (lambda x: torch.full((2,), 2j, dtype=torch.float32) + x, torch.ones(2)),
    "like a float": (lambda x: torch.full_like(x, 2j), torch.ones(2)),
    "bits of floats": (lambda x: x & x, torch.ones(2)),
    "bits of two floats": (lambda x: torch.bitwise_xor(x, x), torch.ones(2)),
    "no dimensions of logsumexp": (lambda x: x.logsumexp(()), torch.ones(2, 3)),
    "a slope of leaky_relu_": (
        lambda x: F.leaky_relu_(x.requires_grad_() * 2, -1.0).sum().backward(),
        torch.ones(2),
    ),
    "a slope of elu_": (
        lambda x: F.elu_(x.requires_grad_() * 2, -1.0).sum().backward(),
        torch.ones(2),
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_eager_refuses_is_refused(name: str) -> None:
    function, x = NUMBERS[name]
    expected = error_of(function, x)
    assert expected
    assert error_of(cl.compile(function), x) == expected


LARGE = (2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1, 2**70)
WITH_LARGE: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "add": lambda x, n: x + n,
    "sub": lambda x, n: x - n,
    "reflected": lambda x, n: n - x,
    "and": lambda x, n: x & n,
    "equal": lambda x, n: x == n,
    "less": lambda x, n: x < n,
    "floordiv": lambda x, n: x // n,
    "in place": lambda x, n: x.add_(n),
    "clamp": lambda x, n: x.clamp(max=n),
    "filled": lambda x, n: x.fill_(n),
    "new": lambda x, n: torch.full((2,), n) + x,
    "full_like": torch.full_like,
}


@pytest.mark.parametrize("name", WITH_LARGE)
def test_an_integer_of_more_than_64_bits_is_taken_or_refused_as_in_eager(name: str) -> None:
    function = WITH_LARGE[name]
    for n, dtype in itertools.product(LARGE, (torch.int64, torch.float32)):
        x = torch.ones(2, dtype=dtype)

        def program(x: torch.Tensor, n: int = n) -> Any:
            return function(x, n)

        expected = error_of(program, x)
        compiled = cl.compile(program, backend="aot_eager")
        assert error_of(compiled, x) == expected, (n, dtype)
        if not expected:
            assert torch.equal(compiled(x.clone()), program(x.clone())), (n, dtype)


def test_an_operator_with_a_python_word_for_its_name_is_called() -> None:
    """`aten.random.from` is no Python."""
    programs: list[Callable[[torch.Tensor], Any]] = [
        lambda x: x.clone().random_(2, 5) + 1,
        lambda x: x.random_(2, 5),
    ]
    for program, backend in itertools.product(programs, ("eager", "aot_eager", "inductor")):
        torch.manual_seed(0)
        expected = program(torch.ones(9))
        torch.manual_seed(0)
        found = cl.compile(program, backend=backend)(torch.ones(9))
        assert torch.equal(found, expected), backend
