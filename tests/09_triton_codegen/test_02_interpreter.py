"""Generated Triton, run by Triton's interpreter on CPU tensors, gives what torch gives."""

from __future__ import annotations

import operations
import pytest
import random_graphs
import random_kernels
import torch
import torch.nn.functional as F
from back_half import compile_function
from hand_kernels import gelu_chain, layer_norm, softmax
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_kernels import check, run

import course_lib as cl

pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="with a GPU, Triton compiles: see test_04_gpu.py"
)

few = settings(
    max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)
anything = st.randoms(use_true_random=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_operation_on_floats(dtype):
    x, y = operations.samples(dtype)
    names = operations.operations(dtype)
    got, _ = run(*operations.kernel_of_all(dtype, len(x), names), {"x": x, "y": y}, "triton")
    for name in names:
        want = operations.expected(name, x, y)
        odd = operations.eager_is_odd(name, x, y)
        got[f"{name}_"][odd] = want[odd]
        torch.testing.assert_close(
            got[f"{name}_"],
            want,
            equal_nan=True,
            rtol=2e-6,
            atol=1e-37,
            msg=lambda m: f"{name}: {m}",
        )


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8], ids=str
)
def test_every_operation_on_integers(dtype):
    x, y = operations.samples(dtype)
    safe = (y != 0) & ~((x == torch.iinfo(dtype).min) & (y == -1))
    x, y = x[safe], y[safe]
    names = [n for n in operations.operations(dtype) if n != "pow"]
    got, _ = run(*operations.kernel_of_all(dtype, len(x), names), {"x": x, "y": y}, "triton")
    for name in names:
        torch.testing.assert_close(
            got[f"{name}_"], operations.expected(name, x, y), msg=lambda m: f"{name}: {m}"
        )


def test_logic():
    x, y = operations.samples(torch.bool)
    got, _ = run(*operations.kernel_of_all(torch.bool, len(x)), {"x": x, "y": y}, "triton")
    for name in operations.operations(torch.bool):
        torch.testing.assert_close(
            got[f"{name}_"], operations.expected(name, x, y), msg=lambda m: f"{name}: {m}"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_known_kernels(dtype):
    torch.manual_seed(0)
    tensors = {
        "x": torch.randn(5, 33).to(dtype),
        "scale": torch.randn(33).to(dtype),
        "bias": torch.randn(33).to(dtype),
    }
    check(*gelu_chain(5, 33, dtype=dtype), tensors, "triton")
    check(*softmax(7, 100, dtype), {"x": torch.randn(7, 100).to(dtype)}, "triton")


def test_layer_norm():
    torch.manual_seed(0)
    tensors = {"x": torch.randn(9, 768), "weight": torch.randn(768), "bias": torch.randn(768)}
    check(*layer_norm(9, 768), tensors, "triton")


def test_a_row_longer_than_a_tile():
    x = torch.randn(3, 70_000)
    x[1, 69_999] = float("nan")
    check(*softmax(3, 70_000), {"x": x}, "triton", rtol=1e-5, atol=1e-9)


@few
@given(anything)
def test_random_pointwise_kernels(rng):
    check(
        *random_kernels.pointwise_kernels(rng, dtypes=random_kernels.FLOATS),
        "triton",
        rtol=2e-5,
        atol=1e-5,
    )


@few
@given(anything)
def test_random_reductions(rng):
    check(*random_kernels.reduction_kernels(rng, special=True), "triton", rtol=1e-4, atol=1e-5)


ODD = {
    "a negative constant for unsigned numbers": lambda x, b, u: u.clamp(-1, 1) + -1,
    "a constant among bfloat16 numbers": lambda x, b, u: torch.where(b > 0, 1.5, b),
    "the negative of a constant": lambda x, b, u: torch.zeros_like(b).neg().float() * x,
    "scalars compared, and spread": lambda x, b, u: (x.isnan() & x.sum().isnan()) | (x == x.max()),
    "a condition and a mask": lambda x, b, u: F.pad(x[None], (1, 1), mode="circular"),
    "all of a constant": lambda x, b, u: torch.ones_like(x).bool().all() & x.isnan(),
    "an index that is computed, and lanes without an element": lambda x, b, u: F.pad(
        x, (1, 1), mode="reflect"
    ).softmax(1),
    "an index that is a number": lambda x, b, u: torch.diag_embed(x.sum(0)[None]) * x,
}


@pytest.mark.parametrize("case", ODD)
def test_constants_and_scalars(case):
    inputs = (
        torch.randn(1, 7),
        torch.randn(1, 7, dtype=torch.bfloat16),
        torch.arange(7, dtype=torch.uint8),
    )
    function = lambda *inputs: (ODD[case](*inputs),)
    torch.testing.assert_close(
        compile_function(function, *inputs, codegen="triton")(*inputs), function(*inputs)
    )


def test_random_graphs():
    """(`python tests/tools/random_graphs.py --codegen triton` runs as many as you have time for, and on a GPU.)"""
    assert random_graphs.check(range(710200, 710220), codegen="triton") == {}


def test_an_index_is_checked_for_the_elements_there_are():
    """A tile has more lanes than the row has elements; they compute an index that nobody asks for."""
    function = lambda x: (F.pad(x, (1, 1), mode="reflect").logsumexp([-2]),)
    compiled = compile_function(function, torch.randn(1, 4), codegen="triton")
    assert "outside = mask & (" in compiled.source
    x = torch.randn(1, 4)
    torch.testing.assert_close(compiled(x), function(x))


def test_an_index_that_another_step_computed_belongs_to_a_row():
    """Which row of `x` is the best, then something of that row: the mask has the shape of the index."""
    function = lambda x, y: (y.gather(1, x.argmax(1, keepdim=True)) + x.sum(1, keepdim=True),)
    x, y = torch.randn(70, 9), torch.randn(70, 9)
    torch.testing.assert_close(
        compile_function(function, x, y, codegen="triton")(x, y), function(x, y)
    )


def test_a_constant_divided_by_zero():
    """Python, which reads the kernel, would raise an error."""
    function = lambda x: (1 / torch.zeros_like(x) * x,)
    x = torch.rand(5) + 1
    torch.testing.assert_close(compile_function(function, x, codegen="triton")(x), function(x))


def test_a_kernel_without_elements_is_not_built(monkeypatch):
    """It would not run, and may not even compile: an empty index tensor can have any dtype."""
    monkeypatch.setattr("course_lib.runtime.compiled.load_triton", None)
    x = torch.empty(0, 6)
    torch.testing.assert_close(
        compile_function(lambda x: (x * 2 + 1,), x, codegen="triton")(x), (x,)
    )


@pytest.mark.parametrize("codegen", ["triton", "cpp"])
def test_a_part_of_what_was_written_in_place(codegen):
    """The input begins behind the start of its memory, and so does what is written in its place."""

    def function(x):
        x.narrow(0, 0, 1).mul_(-1)
        part = x.narrow(1, 1, 3)
        return (part @ part.mT,)

    make = lambda: torch.arange(153.0).view(17, 9)[1:17:2, 1:9:2]
    x, other = make(), make()
    compiled = cl.compile(lambda x: function(x)[0], options={"codegen": codegen}, fullgraph=True)
    torch.testing.assert_close(compiled(x), function(other)[0])
    torch.testing.assert_close(x, other)


def test_an_index_that_is_the_same_for_all():
    """Labels that are constants, read where a condition holds: the flag's pointer has the condition's shape."""

    def function(x):
        y = torch.log_softmax(torch.where(torch.arange(5) < 1, x.clone(), x), 1)
        return (F.nll_loss(y, torch.zeros(3, 5, dtype=torch.int64), reduction="none"),)

    compiled = compile_function(function, torch.randn(3, 17, 5), codegen="triton")
    x = torch.randn(3, 17, 5)
    torch.testing.assert_close(compiled(x), function(x))


MAKE = {
    "minimum": lambda x: torch.minimum(x, torch.full_like(x, 3)),
    "relu": torch.relu,
    "where": lambda x: torch.where(x > 2, x, 3),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2), value=2),
    "amin": lambda x: x.amin(1, keepdim=True),
    "floor division": lambda x: x // 3,
}
USE = {
    "largest": lambda y: (1 - y).amax(1),
    "compared": lambda y: (y - 100) * 3 > 5,
    "as floats": lambda y: (y * 97 + 50).to(torch.float32),
    "again": lambda y: torch.maximum(y * 60, 7 - y),
}


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
def test_narrow_integers_wrap_around(dtype, make):
    """Beside a bare number Triton takes them for int32, where 1 - 2 is -1, not 255."""
    limits = torch.iinfo(dtype)
    x = torch.randint(limits.min, limits.max, (4, 6)).to(dtype)

    def program(x):
        return [use(MAKE[make](x)) for use in USE.values()]

    for got, wanted in zip(
        cl.compile(program, options={"codegen": "triton"})(x), program(x), strict=True
    ):
        assert got.dtype == wanted.dtype and torch.equal(got, wanted)
