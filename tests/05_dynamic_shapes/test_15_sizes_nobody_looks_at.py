"""`mark_unbacked`: one graph for all sizes, 0 and 1 among them, and no answer to a question about the size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.decorators import mark_unbacked

import course_lib as cl
from course_lib import Unsupported
from course_lib.frames import installed

pytestmark = pytest.mark.skipif(not installed(), reason="capture needs the frame hook")

LINEAR = nn.Linear(3, 2)
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A program, the shapes of its calls, and which dimensions of the first call's input are marked."""

    f: Any
    shapes: tuple[Shape, ...]
    dim: int | tuple[int, ...] = 0


ROWS_OF_THREE = ((6, 3), (9, 3), (1, 3), (0, 3))
CASES = {
    "plus": Case(lambda x: x + 1, ((6,), (9,), (1,), (0,))),
    "softmax": Case(lambda x: (x * 2).softmax(-1) + x.sum(), ROWS_OF_THREE),
    "linear": Case(lambda x: LINEAR(x).relu(), ROWS_OF_THREE),
    "view": Case(lambda x: x.view(x.shape[0] * 3).sin(), ROWS_OF_THREE),
    "the last dimension": Case(
        lambda x: (x * 2).sum(1) + x.shape[1], ((4, 6), (4, 9), (4, 1), (4, 0)), dim=1
    ),
    "a first call of one": Case(
        lambda x: x.sum(0) + x.shape[0] / 2, ((1, 4), (9, 4), (0, 4), (3, 4))
    ),
    "a first call of nothing": Case(lambda x: x.cos() * 2, ((4, 0), (4, 5), (4, 1)), dim=1),
    "two dimensions": Case(
        lambda x: x.flatten().cumsum(0) * 2, ((1, 4), (9, 4), (0, 4), (3, 7), (1, 1)), dim=(0, 1)
    ),
    "cat": Case(lambda x: torch.cat([x, x * 2]), ((4,), (5,), (1,), (0,))),
    "a second tensor of that size": Case(
        lambda x: x + x.new_ones(x.shape[0]), ((4,), (5,), (1,), (0,))
    ),
}


def graphs(trace: cl.viz.Recording) -> int:
    return len(trace.of(cl.events.GraphCaptured))


@pytest.mark.parametrize("mark", [cl.mark_unbacked, mark_unbacked], ids=["ours", "torch's"])
@pytest.mark.parametrize("name", CASES)
def test_one_graph_for_all_sizes_and_0_and_1(name, mark):
    case = CASES[name]
    dims = (case.dim,) if isinstance(case.dim, int) else case.dim
    compiled = cl.compile(case.f, fullgraph=True)
    with cl.record() as trace:
        for number, shape in enumerate(case.shapes):
            x = torch.randn(shape, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            if number == 0:
                for dim in dims:
                    mark(twin, dim)
            want, got = case.f(x), compiled(twin)
            torch.testing.assert_close(got, want)

            want.sin().sum().backward()
            got.sin().sum().backward()
            torch.testing.assert_close(twin.grad, x.grad)
    assert graphs(trace) == 1
    assert not trace.of(cl.events.FellBack)


QUESTIONS = {
    "a branch": lambda x: x * 2 if x.shape[0] > 10 else x * 3,
    "a number": lambda x: x * [0, 1, 2, 3, 4][x.shape[0]],
    "a loop": lambda x: sum(x * n for n in range(x.shape[0])),
}


def marked(mark):
    x = torch.randn(4, 4)
    mark(x, 0)
    return x


REFUSALS_OF_TORCH = torch._dynamo.exc.UserError, torch._dynamo.exc.Unsupported, RuntimeError


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_the_size_is_an_error_as_in_torch(name):
    with pytest.raises(Unsupported, match=r"x\.shape\[0\].*marked by mark_unbacked"):
        cl.compile(QUESTIONS[name], fullgraph=True, backend="eager")(marked(cl.mark_unbacked))

    torch._dynamo.reset()
    with pytest.raises(REFUSALS_OF_TORCH):
        torch.compile(QUESTIONS[name], fullgraph=True, backend="eager")(marked(mark_unbacked))


def test_an_operation_that_asks_about_the_size_is_refused_where_torch_refuses_it():
    """Attention asks in torch 2.13; in 2.15 it does not."""

    def attention(x):
        return F.scaled_dot_product_attention(*[x[None, None]] * 3)

    torch._dynamo.reset()
    of_torch = torch.compile(attention, fullgraph=True, backend="eager")
    ours = cl.compile(attention, fullgraph=True, backend="eager")
    try:
        of_torch(marked(mark_unbacked))
    except REFUSALS_OF_TORCH:
        with pytest.raises(Unsupported, match=r"x\.shape\[0\].*marked by mark_unbacked"):
            ours(marked(cl.mark_unbacked))
    else:
        x = marked(cl.mark_unbacked)
        torch.testing.assert_close(ours(x), attention(x))


def test_without_fullgraph_the_graph_ends_at_the_question():
    f = QUESTIONS["a branch"]
    compiled = cl.compile(lambda x: f(x + 1), backend="eager")
    for size in (4, 12, 1):
        x = torch.randn(size)
        cl.mark_unbacked(x, 0)
        torch.testing.assert_close(compiled(x), f(x + 1))


def test_what_is_stated_answers_and_is_a_guard():
    def above_ten(x):
        torch._check(x.shape[0] > 10)
        return x * 2 if x.shape[0] > 10 else x * 3

    compiled = cl.compile(above_ten, backend="eager")
    x = torch.randn(12)
    cl.mark_unbacked(x, 0)
    with cl.record() as trace:
        assert compiled(x).equal(x * 2)
        assert compiled(torch.ones(50)).equal(torch.full((50,), 2.0))
    (event,) = trace.of(cl.events.GraphCaptured)
    sizes = [str(guard) for guard in event.result.guards if guard.kind == "sizes"]
    assert [text.partition(" ")[0] for text in sizes] == ["x.shape[0]"]
    assert sizes[0].startswith("x.shape[0] > 10")
    with pytest.raises(RuntimeError, match="Expected cond to be True"):
        compiled(torch.ones(3))


def test_what_an_operation_relies_on_is_a_guard():
    compiled = cl.compile(lambda x: x + torch.ones(4), backend="eager")
    x = torch.randn(4)
    cl.mark_unbacked(x, 0)
    for given in (x, torch.ones(4), torch.ones(1)):
        assert compiled(given).equal(given + torch.ones(4))


def test_another_layout_is_another_graph():
    compiled = cl.compile(lambda x: x * 2, backend="eager")
    x = torch.randn(4, 6)
    cl.mark_unbacked(x, (0, 1))
    with cl.record() as trace:
        for given in (x, torch.randn(1, 5), torch.randn(5, 0)):
            assert compiled(given).equal(given * 2)
        assert graphs(trace) == 1
        other = torch.randn(6, 4).t()
        assert compiled(other).stride() == (other * 2).stride()
    assert graphs(trace) == 2


TAKEN_FOR_A_WISH = {
    "transposed": lambda: torch.randn(6, 4).t(),
    "a part of another": lambda: torch.randn(8)[2:],
    "a result with a gradient": lambda: torch.randn(6, requires_grad=True) * 2,
}


@pytest.mark.parametrize("name", TAKEN_FOR_A_WISH)
def test_what_is_no_whole_tensor_of_its_own_is_a_symbol_with_a_hint(name):
    compiled = cl.compile(lambda x: x + 1, backend="eager")
    with cl.record() as trace:
        x = TAKEN_FOR_A_WISH[name]()
        cl.mark_unbacked(x, 0)
        torch.testing.assert_close(compiled(x), x + 1)
    (event,) = trace.of(cl.events.GraphCaptured)
    assert any(str(guard).startswith("x.shape[0] >= 2") for guard in event.result.guards)


def test_dynamic_false_is_stronger_than_the_mark():
    compiled = cl.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with cl.record() as trace:
        for size in (4, 5):
            x = torch.ones(size)
            cl.mark_unbacked(x, 0)
            compiled(x)
    assert graphs(trace) == 2


def test_a_dimension_that_is_not_there_is_refused():
    with pytest.raises(IndexError, match="dimension 2 was marked of a tensor that has 1 dimension"):
        cl.mark_unbacked(torch.ones(4), 2)
