"""One program for parts of tensors of any size: strides and places that no size of the part says."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib import events
from course_lib.frames import installed

pytestmark = pytest.mark.skipif(not installed(), reason="capture needs the frame hook")

SIZES = [(4, 5), (7, 3), (9, 11), (6, 8)]

PARTS = {
    "left columns": lambda a, b: torch.randn(a, b + 3)[:, :b],
    "as many columns always": lambda a, b: torch.randn(a, b)[:, :3],
    "every second column": lambda a, b: torch.randn(a, 2 * b + 2)[:, ::2],
    "one column": lambda a, b: torch.randn(a, b)[:, 1],
    "one row": lambda a, b: torch.randn(a, b)[1],
    "the middle": lambda a, b: torch.randn(a, b, 4)[:, 1:3],
    "transposed, without a row": lambda a, b: torch.randn(a, b, 3).permute(2, 0, 1)[1:],
}
PROGRAMS = {
    "pointwise": lambda x: x.sin() * 2,
    "softmax": lambda x: x.softmax(-1) + x.sum(),
    "rows": lambda x: x.reshape(x.shape[0], -1) @ x.reshape(x.shape[0], -1).T,
    "the rest of all elements": lambda x: x.reshape(-1)[1:] * 3,
}


def run(f, x):
    """The result, and the gradient of a sum over it."""
    result = f(x)
    return result, *torch.autograd.grad(result.sum(), x)


def programs_for(f, make, sizes):
    """The captures and the reasons for numbers, for a call with each of the sizes."""
    cl.reset()
    compiled = cl.compile(f, dynamic=True)
    with cl.record() as trace:
        for size in sizes:
            x = make(*size).detach().requires_grad_()
            torch.testing.assert_close(run(compiled, x), run(f, x))
    return len(trace.of(events.GraphCaptured)), [e.why for e in trace.of(events.SizesAreNumbers)]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("part", PARTS)
def test_a_part_compiles_once(part, program):
    """Once more where a stride equals a size by chance, as in torch.compile."""
    captures, numbers = programs_for(PROGRAMS[program], PARTS[part], SIZES)
    assert captures <= 2 and not numbers


FLAT = {
    "a slice": lambda x: (x + 1).reshape(-1)[3:] * 2,
    "every second": lambda x: (x + 1).reshape(-1)[1::2] * 2,
    "an element of the transposed": lambda x: (x.t() + 1).reshape(-1)[5] * x,
    "flipped": lambda x: (x + 1).flip(1).reshape(-1)[2:] * 2,
    "padded": lambda x: torch.nn.functional.pad(x * 2, (1, 2)).reshape(-1)[4:] + 1,
    "turned around": lambda x: torch.cat([(x * 2).reshape(-1)[1:], x.reshape(-1)[:1]]) + 1,
    "a part of a part": lambda x: (x * 2).reshape(-1)[2:].reshape(-1, 1)[1:] + 1,
    "two elements": lambda x: (x * 3).reshape(-1)[7] + (x * 3).reshape(-1)[2],
}


@pytest.mark.parametrize("name", FLAT)
def test_whether_a_number_reaches_the_next_row_depends_on_the_size(name):
    """Element 5 of all lies in the first row of one matrix, and in the second of another."""
    captures, numbers = programs_for(FLAT[name], lambda a, b: torch.randn(a, b), SIZES)
    assert captures == 1 and not numbers


def test_a_stride_is_a_guard_and_is_found_at_the_tensor():
    compiled = cl.compile(lambda x: x * 2, dynamic=True)
    with cl.record() as trace:
        compiled(torch.randn(6, 9)[:, :3])
    (made,) = trace.of(events.GuardsMade)
    told = [guard.expr for guard in made.check.guards]
    assert "x.stride(0) >= 2" in told
    assert "x.shape[1] <= x.stride(0)" in told


@pytest.mark.parametrize("first", ["apart", "overlapping"])
def test_elements_that_share_a_place_are_another_program(first):
    apart, overlapping = torch.randn(6, 9)[:, :3], torch.randn(20).as_strided((6, 3), (2, 1))
    inputs = [apart, overlapping, torch.randn(7, 5)[:, :3]]
    if first == "overlapping":
        inputs.reverse()

    f = lambda x: x.cumsum(0) * 2
    compiled = cl.compile(f, dynamic=True)
    with cl.record() as trace:
        for x in inputs:
            torch.testing.assert_close(compiled(x), f(x))
    assert len(trace.of(events.GraphCaptured)) == 2


def test_without_dynamic_a_stride_is_a_symbol_from_the_second_one_on():
    f = lambda x: x.sin() + 1
    compiled = cl.compile(f)
    with cl.record() as trace:
        for rows, width in ((4, 9), (5, 9), (6, 12), (7, 20), (8, 31)):
            x = torch.randn(rows, width)[:, :3]
            torch.testing.assert_close(compiled(x), f(x))
    assert len(trace.of(events.GraphCaptured)) == 3
