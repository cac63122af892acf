"""Types are torch's: what is promoted, what is rounded, what wraps, what is nan."""

from __future__ import annotations

import math

import pytest
import torch
from aten_graphs import agree, formulas, lowered
from back_half import compile_function
from torch.nn import functional as F

import course_lib as cl

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
ALL = [*FLOATS, *INTS, torch.bool]


def some(dtype: torch.dtype, *shape: int, low: int = -4) -> torch.Tensor:
    torch.manual_seed(0)
    values = torch.randint(
        0 if dtype in (torch.uint8, torch.bool) else low,
        2 if dtype is torch.bool else 5,
        shape or (24,),
    )
    noise = torch.rand(values.shape) - 0.5 if dtype.is_floating_point else 0
    return (values + noise).to(dtype)


def together(*functions):
    """Several functions of the same inputs as one graph (much faster to trace); those that torch refuses are left out."""

    def run(*inputs):
        return [f(*inputs) for f in accepted]

    def try_all(*inputs):
        accepted.clear()
        for f in functions:
            try:
                f(*inputs)
                accepted.append(f)
            except (RuntimeError, TypeError, NotImplementedError):
                pass
        return agree(run, *inputs) if accepted else None

    accepted: list = []
    return try_all


@pytest.mark.parametrize("a", ALL, ids=str)
def test_two_dtypes_promote_as_in_torch(a):
    check = together(
        *(
            torch.add,
            torch.sub,
            torch.mul,
            torch.div,
            torch.maximum,
            torch.lt,
            torch.eq,
            torch.logical_and,
        ),
        lambda a, b: torch.where(a > 0, a, b),
    )
    for b in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool):
        check(some(a, 4, 6), some(b, 6) + (b is not torch.bool))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_number_takes_the_tensors_dtype_where_its_kind_fits(dtype):
    together(
        lambda x: x + 2,
        lambda x: x * 1.5,
        lambda x: x > 0.5,
        lambda x: x / 2,
        lambda x: 1 - x,
        lambda x: torch.where(x > 0, x, 0),
        lambda x: torch.add(x, x, alpha=3),
        lambda x: torch.sub(x, 2, alpha=0.5),
        lambda x: torch.rsub(x, 2, alpha=3),
    )(some(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_what_eager_rounds_before_it_begins(dtype):
    """A number beside float16, and whole numbers that it cannot hold."""
    torch.manual_seed(0)
    x, whole = torch.randn(500).to(dtype), torch.randint(-70_000, 70_000, (500,))
    x[:9] = 0.1
    functions = (
        lambda x, whole: x < 0.1,
        lambda x, whole: x == 0.1,
        lambda x, whole: torch.where(x > 0, x, 0.1),
        lambda x, whole: x.masked_fill(x > 0, 0.1).float() * 3,
        lambda x, whole: F.pad(x, (1, 1), value=0.1).float() * 3,
        lambda x, whole: x + 0.1,
        lambda x, whole: x - 0.1,
        lambda x, whole: -0.1 - x,
        lambda x, whole: x * 0.1,
        lambda x, whole: x % 0.1,
        lambda x, whole: torch.fmod(x, 0.1),
        lambda x, whole: x + whole,
        lambda x, whole: x * whole[0] / 100,
        lambda x, whole: whole == whole.to(x.dtype),
        lambda x, whole: x.long() * 4 + 2049 <= x * 4 + 2048,
    )
    run = lambda x, whole: tuple(f(x, whole) for f in functions)
    torch.testing.assert_close(
        compile_function(run, x, whole)(x, whole), run(x, whole), rtol=0, atol=0
    )


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_a_number_out_of_range_wraps(dtype):
    f = lambda x: (x <= -1, x == -1, x < 300, x.maximum(x - x - 1), torch.where(x > 2, x, -1))
    x = torch.arange(-4, 5).to(dtype)
    torch.testing.assert_close(compile_function(f, x)(x), f(x))


def test_a_tensor_without_dimensions_promotes_like_a_number():
    graph = agree(
        lambda x, y: x * y, some(torch.float16, 8), torch.tensor(2.5, dtype=torch.float64)
    )
    assert graph.outputs[0].dtype is torch.float16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_is_for_storage_loops_compute_in_float(dtype):
    graph = lowered(lambda x: x * 1.5, some(dtype))
    name = str(dtype).removeprefix("torch.")
    assert formulas(graph)[0] == f"buf0[i] = {name}(float32(x[i]) * 1.5)"


UNARY = (
    "abs neg exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh "
    "acosh atanh erf erfc sigmoid floor ceil round trunc sign isnan isinf logical_not relu square isfinite frac nan_to_num"
).split()


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_one_operand(dtype):
    together(*(getattr(torch, name) for name in UNARY))(some(dtype))


def test_one_operand_that_is_hostile():
    x = [
        math.nan,
        math.inf,
        -math.inf,
        0.0,
        -0.0,
        1e-40,
        -1e-40,
        3e38,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
        1.0,
        -1.0,
    ]
    together(*(getattr(torch, name) for name in UNARY))(torch.tensor(x))


def test_hostile_pairs():
    values = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -2.5, 7.0])
    a, b = values.repeat_interleave(7), values.repeat(7)
    two = (
        torch.add,
        torch.div,
        torch.pow,
        torch.maximum,
        torch.minimum,
        torch.fmod,
        torch.atan2,
        torch.lt,
        torch.ne,
    )
    together(*two)(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.int8], ids=str)
def test_division_rounds_as_asked(dtype):
    divide = [
        lambda x, mode=mode, by=by: torch.div(x, by, rounding_mode=mode)
        for mode in (None, "floor", "trunc")
        for by in (3, -3)
    ]
    together(*divide)(some(dtype))
    if dtype is torch.float32:
        modes = (None, "floor", "trunc")
        together(*(lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode) for mode in modes))(
            some(dtype), some(dtype) + 0.3
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.int32], ids=str)
def test_the_remainder_has_the_sign_of_the_divisor_and_fmod_that_of_the_dividend(dtype):
    together(
        lambda x: x % 3, lambda x: x % -3, lambda x: torch.fmod(x, 3), lambda x: torch.fmod(x, -3)
    )(some(dtype))


def test_integers_divided_by_a_tensor_may_raise_so_torch_does_it():
    x = some(torch.int64)
    graph = agree(lambda x: x // (x.abs() + 1), x)
    assert "must raise where the divisor is 0" in graph.nodes[-1].why


def test_powers():
    raised = [lambda x, n=n: x.abs() ** n for n in (0.5, -0.5, 2, 3, -1, -2, 1.7, 0, 5)]
    together(*raised)(some(torch.float32))
    together(*(lambda x, n=n: x**n for n in (0, 1, 2, 3, 5)))(some(torch.int64))


def test_numbers_to_tensor_powers():
    agree(lambda x: 2**x, some(torch.float32))
    agree(lambda x: torch.pow(x.abs() + 1, x), some(torch.float64))
    agree(lambda x, y: torch.pow(x, y.abs()), some(torch.int64), some(torch.int64))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_conversions(dtype):
    together(*(lambda x, other=other: x.to(other) for other in ALL))(some(dtype, low=0))


def test_bits():
    for dtype in (torch.int32, torch.int64, torch.uint8, torch.bool):
        a, b = some(dtype), some(dtype).flip(0)
        agree(lambda a, b: (a & b, a | b, a ^ b, ~a), a, b)


ACTIVATIONS = (
    "gelu silu mish softplus elu leaky_relu hardtanh relu6 selu hardsigmoid hardswish logsigmoid softsign celu tanhshrink "
    "hardshrink softshrink"
).split()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations(dtype):
    functions = [getattr(F, name) for name in ACTIVATIONS]
    together(*functions, lambda x: F.gelu(x, approximate="tanh"))(some(dtype) * 3)


def test_clamps_pass_nan_on():
    x = torch.tensor([math.nan, -5.0, 0.0, 5.0])
    agree(
        lambda x: (
            x.clamp(-1, 1),
            x.clamp(min=0),
            x.clamp(max=0),
            torch.clamp(x, torch.zeros(4), torch.ones(4)),
        ),
        x,
    )


def test_fused_formulas():
    a, b, c = (some(torch.float32) + shift for shift in (0.0, 0.3, 6.0))
    agree(
        lambda a, b, c: (
            torch.addcmul(a, b, c, value=2),
            torch.addcdiv(a, b, c),
            torch.lerp(a, b, 0.3),
        ),
        a,
        b,
        c,
    )
    agree(
        lambda a, b, c: (torch.lerp(a, b, 0.7), torch.lerp(a, b, c), torch.rsub(a, b, alpha=2)),
        a,
        b,
        c,
    )


def test_complex_numbers_stay_with_torch():
    x = torch.randn(4, dtype=torch.complex64)
    graph = agree(lambda x: (x * 2).abs() + 1, x)
    assert (
        graph.nodes[0].why
        == "torch.complex64 has no loop form here: aten.mul.Tensor runs as torch's own operator"
    )


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_numbers_beside_complex_tensors_have_gradients(dtype):
    def f(z):
        return (
            (z - 2j) / 3j - 2j / (z * 1j) + (1 + 1j) ** z + torch.pow(2j, z) + torch.pow(z, 2 + 1j)
        )

    z = torch.randn(5, dtype=dtype, requires_grad=True)
    results = []
    for function in (f, cl.compile(f)):
        y = function(z)
        results.append((y, *torch.autograd.grad(y.abs().sum(), z)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.float16], ids=str)
def test_a_number_divided_by_a_tensor(dtype):
    x = some(dtype)
    x = torch.where(x == 0, torch.ones_like(x), x)
    agree(lambda x: (7 // x, -7 // x, 7 % x, 7 / x, torch.div(7, x, rounding_mode="trunc")), x)


@pytest.mark.parametrize("exponent", [True, False])
def test_a_bool_to_the_power_of_a_bool_is_a_bool(exponent):
    """torch's fake tensors say int64."""
    x = torch.tensor([True, False])
    got, want = (
        cl.compile(lambda x: (x**exponent, torch.pow(x, exponent)))(x),
        (x**exponent, torch.pow(x, exponent)),
    )
    torch.testing.assert_close(got, want)
