"""Whole numbers that are computed of sizes and positions, and are larger than a place in memory.

Python's ints have no end. A kernel's places are int64 in C++, and int32 in most kernels in Triton.
"""

import pytest
import torch

import course_lib as cl
from course_lib.codegen.large_numbers import fits
from course_lib.sizes import SizeSymbol

PROGRAMS = {
    "a rest of a power": lambda x: x + (x.shape[0] ** 12) % 7,
    "a random number's next": lambda x: x + (x.shape[0] * 6364136223846793005 + 1) % 2**31,
    "a whole quotient": lambda x: x + (x.shape[0] ** 12) // 10**40,
    "a square": lambda x: x + x.shape[0] * x.shape[0],
    "taken away": lambda x: x - x.shape[0] ** 2,
    "a size times a number": lambda x: x + x.shape[0] * 1_000_000,
    "in floats": lambda x: x.double() * ((x.shape[0] ** 12) % 7),
    "filled": lambda x: torch.full_like(x, (x.shape[0] ** 12) % 7) + x,
    "steps": lambda x: x + torch.arange(0, x.shape[0] * 1_000_000, 1_000_000),
    "steps of a rest": lambda x: x + torch.arange(x.shape[0]) * ((x.shape[0] ** 12) % 7),
    "the larger of two": lambda x: x + max(x.shape[0] ** 9, 10**9) % 11,
}
SIZES = [3, 100, 60_000]


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_one_program_computes_them_as_python_does(program, codegen):
    if codegen == "triton":
        pytest.importorskip("triton")
    compiled = cl.compile(program, dynamic=True, options={"codegen": codegen})
    for size in SIZES:
        x = torch.arange(size)
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)


@pytest.mark.parametrize("codegen", ["cpp", "triton"])
def test_steps_that_are_numbers(codegen):
    if codegen == "triton":
        pytest.importorskip("triton")

    def far(x):
        return x + torch.arange(0, 10**10, 10**6)

    x = torch.zeros(10_000, dtype=torch.int64)
    compiled = cl.compile(far, dynamic=False, options={"codegen": codegen})
    assert compiled(x).tolist() == far(x).tolist()


def test_sizes_of_two_tensors():
    pytest.importorskip("triton")

    def product(x, y):
        return x + x.shape[0] * y.shape[0]

    compiled = cl.compile(product, dynamic=True, options={"codegen": "triton"})
    for sizes in ((50, 60), (50_000, 60_000)):
        x, y = (torch.zeros(size, dtype=torch.int64) for size in sizes)
        assert compiled(x, y)[0] == sizes[0] * sizes[1]


def test_what_fits():
    s, t = (SizeSymbol(name, integer=True, positive=True) for name in ("s0", "s1"))
    i, j = (SizeSymbol(name, integer=True, nonnegative=True) for name in "ij")

    assert fits(s, {}, 31)
    assert fits(100 * i, {i: 1000}, 31)
    assert not fits(3_000_000 * i, {i: 1000}, 31)
    assert not fits(s * t, {}, 31)
    assert not fits(s**3, {}, 63)
    # a number for each element: there are no more of them than elements
    assert fits(t * i + j, {i: s, j: t}, 31)
    assert not fits(t * i + 2 * j, {i: s, j: t}, 31)
