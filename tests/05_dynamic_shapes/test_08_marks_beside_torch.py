"""What a user can say about sizes, beside torch's answers: how many graphs after each call, or which error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import course_lib as cl
from course_lib.frames import installed

try:
    from torch.fx.experimental.dynamic_spec import ParamsSpec, ShapeVar, TensorSpec
except ImportError:  # torch 2.12 and older
    DESCRIBED: Any = {"x": [None, "length"]}
else:
    DESCRIBED = ParamsSpec({"x": TensorSpec([None, ShapeVar("length", max=512)])})

pytestmark = pytest.mark.skipif(not installed(), reason="capture needs the frame hook")

TORCH = {
    "dynamic": torch._dynamo.mark_dynamic,
    "maybe": torch._dynamo.maybe_mark_dynamic,
    "static": torch._dynamo.mark_static,
}
OURS = {"dynamic": cl.mark_dynamic, "maybe": cl.maybe_mark_dynamic, "static": cl.mark_static}
Shape = tuple[int, ...]


def answer(compile: Any, marks: dict[str, Callable[..., None]], f: Any, case: Case) -> list[str]:
    """The number of graphs after each call, or the kind of error."""
    graphs = 0

    def count(gm: Any, inputs: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return gm

    torch._dynamo.reset()
    cl.reset()
    compiled = compile(f, backend=count, dynamic=case.dynamic)
    said = []
    for number, shapes in enumerate(case.calls):
        inputs = [torch.ones(shape) for shape in shapes]
        try:
            for which in case.marked if number == 0 else ():
                for how in case.how.split():
                    marks[how](inputs[which], case.dim, **case.limits)
            assert torch.equal(compiled(*inputs), f(*[torch.ones(shape) for shape in shapes]))
            said.append(str(graphs))
        except Exception as error:
            said.append(type(error).__name__)
            graphs = 0
            break
    return said


def plus(x):
    return x + 1


def both(x, y):
    return x + y


def is_four(x):
    return x * 2 if x.size(0) == 4 else x * 3


def above_two(x):
    return x * 2 if x.size(0) > 2 else x * 3


def up_to_eight(x):
    return x * 2 if x.size(0) <= 8 else x * 3


def in_pairs(x):
    return x.reshape(2, -1) + 1


def is_shorter(x, y):
    return x * y.sum() if x.shape[0] < y.shape[0] else x + 1


def from_a_list(x):
    return x * [0, 1, 2, 3, 4, 5, 6][x.shape[0]]


@dataclass(frozen=True)
class Case:
    """How the first call's inputs are marked, and the shapes of all calls."""

    f: Any
    how: str
    calls: list[list[Shape]]
    marked: tuple[int, ...] = (0,)
    dim: int = 0
    limits: dict[str, int] = field(default_factory=dict)
    dynamic: bool | None = None

    def __str__(self) -> str:
        return f"{self.how} {self.f.__name__} {self.limits or ''} {self.calls[0]}"


def one(*sizes: int) -> list[list[Shape]]:
    return [[(size,)] for size in sizes]


def pairs(*sizes: tuple[int, int]) -> list[list[Shape]]:
    return [[(a,), (b,)] for a, b in sizes]


CASES = [
    *(Case(plus, how, one(n, 5, 6)) for how in TORCH for n in (4, 1, 0)),
    *(Case(is_four, how, one(4, 5)) for how in TORCH),
    *(Case(is_four, how, one(5, 6, 4)) for how in TORCH),
    *(Case(above_two, how, one(4, 5, 2)) for how in TORCH),
    *(Case(both, how, pairs((4, 4), (5, 5))) for how in TORCH),
    *(Case(both, how, pairs((4, 4), (5, 5), (5, 1)), marked=(0, 1)) for how in TORCH),
    *(Case(in_pairs, how, one(4, 6)) for how in TORCH),
    *(Case(from_a_list, how, one(4, 6, 1)) for how in TORCH),
    *(Case(plus, how, one(4, 5, 6), dynamic=True) for how in TORCH),
    Case(plus, "static", one(4, 5, 6), dynamic=False),
    *(Case(plus, how, one(4, 5, 6)) for how in ("static dynamic", "maybe static", "static maybe")),
    *(
        Case(f, "dynamic", one(4, 5), limits={"min": low, "max": high})
        for f in (plus, up_to_eight, above_two, in_pairs, is_four)
        for low, high in ((2, 8), (1, 8), (0, 8), (5, 8), (2, 2), (3, 8))
    ),
    *(
        Case(f, "dynamic", pairs((4, 5), (5, 7)), marked, limits={"min": 2, "max": 8})
        for f in (is_shorter,)
        for marked in ((0, 1), (0,))
    ),
    Case(both, "dynamic", pairs((4, 4), (5, 5)), (0, 1), limits={"min": 2, "max": 8}),
    Case(plus, "dynamic", one(4, 5, 16, 1), limits={"min": 2, "max": 8}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mark_means_what_it_means_to_torch(case):
    assert answer(cl.compile, OURS, case.f, case) == answer(torch.compile, TORCH, case.f, case)


# ---- where ours is another answer, and why --------------------------------------------------------------------------

OTHERS = [
    # in torch a mark is stronger than dynamic=False; the lesson says so
    (Case(plus, "dynamic", one(4, 5, 6), dynamic=False), ["1", "2", "3"]),
    # torch looks for the dimension -1, and finds none
    (Case(plus, "dynamic", [[(4, 3)], [(4, 5)]], dim=-1), ["1", "1"]),
    (Case(plus, "maybe", [[(4, 3)], [(4, 5)]], dim=-1), ["1", "1"]),
    # torch says nothing
    *((Case(plus, how, one(4, 5), dim=2), ["IndexError"]) for how in OURS),
    # torch 2.13 fails with one limit alone
    (Case(plus, "dynamic", one(4, 5, 16), limits={"max": 8}), ["1", "1", "2"]),
    (Case(plus, "dynamic", one(4, 5, 2), limits={"min": 3}), ["1", "1", "2"]),
    # torch says InternalTorchDynamoError
    (Case(plus, "dynamic", one(4, 5), limits={"min": 8, "max": 2}), ["ValueError"]),
]


@pytest.mark.parametrize(("case", "expected"), OTHERS, ids=str)
def test_a_mark_that_is_another_one_in_torch(case, expected):
    assert answer(cl.compile, OURS, case.f, case) == expected


def test_a_promise_that_is_kept_in_part_names_the_line():
    x = torch.ones(4)
    cl.mark_dynamic(x, 0, min=2, max=8)
    match = r"x.shape\[0\] was marked .*\.py:\d+ \(.*x.size\(0\) > 2.*\) is right only where x.shape\[0\] > 2"
    with pytest.raises(torch.fx.experimental.symbolic_shapes.ConstraintViolationError, match=match):
        cl.compile(above_two, backend="eager")(x)


def test_a_question_that_follows_from_a_promise_does_not_break_it():
    x = torch.randn(9, 3)
    cl.mark_dynamic(x, 0, min=4, max=64)
    halves = cl.compile(lambda x: x[: x.shape[0] // 2] * 2, backend="eager")
    assert torch.equal(halves(x), x[:4] * 2)


def test_what_the_back_half_asks_does_not_break_a_promise():
    x = torch.randn(4, 40)
    cl.mark_dynamic(x, 1, min=2, max=100_000)  # a row of 40,000 does not fit on the stack: a guard
    assert torch.allclose(cl.compile(lambda x: x.softmax(-1))(x), x.softmax(-1))


@pytest.mark.parametrize("argument", ["dynamic_shapes", "shapes_spec"])
def test_sizes_described_by_parameter_are_refused_with_one_sentence(argument):
    with pytest.raises(ValueError, match=rf"{argument} is not supported: .* Use cl\.mark_dynamic"):
        cl.compile(plus, **{argument: DESCRIBED})
    with pytest.raises(ValueError, match=rf"{argument} is not supported"):
        cl.compile(**{argument: DESCRIBED})(plus)
