"""Guards on sizes as they are printed: in the form that a reader expects, and true where the checked ones are."""

from __future__ import annotations

from random import Random

import pytest
import sympy
import torch
from torch.utils._sympy.functions import FloorDiv, Max, Min, Mod
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

import course_lib as cl
from course_lib.capture.relations import holds_anyway, text_of_relation, without_limits
from course_lib.frames import installed

S0, S1, S2 = SYMBOLS = [sympy.Symbol(f"s{n}", integer=True, positive=True) for n in (90, 12, 44)]
NAMES = {symbol: sympy.Symbol(f"x.shape[{n}]", integer=True) for n, symbol in enumerate(SYMBOLS)}
RELATIONS = [sympy.Lt, sympy.Le, sympy.Gt, sympy.Ge, sympy.Eq, sympy.Ne]

FORMS = [
    (sympy.Ne(S0 - 1, 1), "x.shape[0] != 2"),
    (sympy.Ne(4, S1), "x.shape[1] != 4"),
    (sympy.Eq(S1, S0), "x.shape[0] == x.shape[1]"),
    (sympy.Lt(S0 - 1, 50), "x.shape[0] < 51"),
    (sympy.Le(2 * S0, 9), "x.shape[0] <= 4"),
    (sympy.Lt(2 * S0, 9), "x.shape[0] < 5"),
    (sympy.Gt(2 * S0, 9), "x.shape[0] > 4"),
    (sympy.Ge(2 * S0, 9), "x.shape[0] >= 5"),
    (sympy.Eq(Mod(S0, 2), 0), "x.shape[0] % 2 == 0"),
    (sympy.Le(-S0 + FloorDiv(S0, 2), -50), "(x.shape[0] + 1) // 2 >= 50"),
    (sympy.Eq(Mod(S0 * S1, 2 * S2), 0), "x.shape[0]*x.shape[1] % (2*x.shape[2]) == 0"),
    (sympy.Eq(FloorDiv(S0, 2 * S1), 3), "x.shape[0] // (2*x.shape[1]) == 3"),
    (sympy.Eq(FloorDiv(S0, S1 + 1), 3), "x.shape[0] // (x.shape[1] + 1) == 3"),
    (sympy.Lt(S1, S0), "x.shape[0] > x.shape[1]"),
    (sympy.Lt(S0 - S1, 5), "x.shape[0] < x.shape[1] + 5"),
    (sympy.Ge(S1, 2, evaluate=False), "x.shape[1] >= 2"),
    (sympy.Ne(S0 * (S1 + 1), 0, evaluate=False), "x.shape[0]*(x.shape[1] + 1) != 0"),
]  # fmt: skip


@pytest.mark.parametrize(("question", "text"), FORMS, ids=str)
def test_a_question_in_the_form_that_a_reader_expects(question, text):
    assert text_of_relation(question, NAMES) == text


def test_a_limit_that_is_passed_anyway_is_none():
    half = FloorDiv(S0 + 1, 2)
    at_least_two = {symbol: ValueRanges(2, int_oo) for symbol in SYMBOLS}
    assert without_limits(sympy.Ne(Max(1, half), S1), at_least_two) == sympy.Ne(half, S1)
    assert without_limits(sympy.Eq(Max(1, half), half, evaluate=False), at_least_two) == sympy.true
    kept = sympy.Ne(Max(3, half), S1)
    assert without_limits(kept, at_least_two) == kept
    kept = sympy.Ne(Max(S0, S2), S1)
    assert without_limits(kept, at_least_two) == kept


def formula(draw: Random, depth: int = 0) -> sympy.Expr:
    """A random formula of sizes."""
    kind = draw.randrange(9 if depth < 3 else 2)
    if kind == 0:
        return sympy.Integer(draw.randrange(-5, 60))
    if kind == 1:
        return draw.choice(SYMBOLS)
    if kind == 7:
        return Mod(draw.choice(SYMBOLS), sympy.Integer(draw.choice([2, 3, 8])))

    one, other = formula(draw, depth + 1), formula(draw, depth + 1)
    ways = {4: one - other, 5: one * other, 8: draw.choice([Max, Min])(one, other)}
    if kind == 6:
        product = draw.choice(SYMBOLS) * draw.choice([1, 2, *SYMBOLS])
        return FloorDiv(one, draw.choice([*map(sympy.Integer, (2, 2, 2, 3, 4)), product]))
    return ways.get(kind, one + other)


@pytest.mark.parametrize("part", range(4))
def test_the_form_has_the_answers_of_the_question(part):
    draw = Random(f"forms {part}")
    tried = dropped = 0
    at_least_two = {symbol: ValueRanges(2, int_oo) for symbol in SYMBOLS}
    for _ in range(200):
        one, other = formula(draw), formula(draw)
        question = draw.choice(RELATIONS)(one, other, evaluate=draw.random() < 0.7)
        text = text_of_relation(question, NAMES)
        if text is None:
            continue
        anyway = holds_anyway(question, at_least_two)
        dropped += anyway
        for _ in range(5):
            sizes = [draw.choice([2, 3, 4, 5, 7, 8, 31, 50, 64]) for _ in SYMBOLS]
            numbers = dict(zip(SYMBOLS, map(sympy.Integer, sizes), strict=True))
            expected = bool(question.xreplace(numbers).doit())
            x = torch.empty(0).expand(*sizes, 0)
            assert eval(text, {"x": x}) == expected, (question, text, sizes)
            assert expected or not anyway, (question, sizes)
            tried += 1
    assert tried > 500 and dropped > 5


# ---- whole programs -------------------------------------------------------------------------------------------------


def halves(x, y):
    return torch.cat([x[: x.shape[0] // 2], x[x.shape[0] // 2 :]]) * y.sum()


def shifted(x, y):
    return x[1:] + y[:-1] if x.shape[0] - 1 < 20 else x[1:] - y[:-1]


def in_rows(x, y):
    return x.view(-1, 2).sum(1) + (x.shape[0] - y.shape[0])


def relates(x, y):
    return x + 1 if 2 * x.shape[0] - 3 <= y.shape[0] * y.shape[0] else y * 2


def windows(x, y):
    return x.unfold(0, 3, 2).sum(1) * y[:3].sum()


@pytest.mark.skipif(not installed(), reason="capture needs the frame hook")
@pytest.mark.parametrize("f", [halves, shifted, in_rows, relates, windows])
def test_printed_and_checked_guards_agree(f):
    cl.reset()
    compiled = cl.compile(f, backend="eager", dynamic=True)
    with cl.record() as trace:
        for m, n in ((6, 6), (8, 8), (40, 40), (12, 12)):
            compiled(torch.randn(m), torch.randn(n))

    sizes = [2, 3, 4, 5, 6, 7, 8, 20, 21, 22, 40]
    for made in trace.of(cl.events.GuardsMade):
        guards = [guard for guard in made.check.guards if guard.kind == "sizes"]
        assert guards
        for m in sizes:
            for n in sizes:
                x, y = torch.empty(m), torch.empty(n)
                for guard in guards:
                    checked = " and ".join(test.python("") for test in guard.tests)
                    given = {"x": x, "y": y}
                    assert eval(guard.expr, given) == eval(checked, given), guard.expr
                held = all(eval(guard.expr, {"x": x, "y": y}) for guard in guards)
                assert held == (made.check.first_failure(f, x, y) is None)


@pytest.mark.skipif(not installed(), reason="capture needs the frame hook")
def test_a_size_that_is_divided_by_a_product():
    def f(x, y):
        parts = x.shape[0] // (2 * y.shape[0])
        return torch.zeros(parts) + x.sum(), x.reshape(2 * y.shape[0], -1) * (
            x.shape[0] % (3 * y.shape[0])
        )

    cl.reset()
    compiled = cl.compile(f, dynamic=True)
    with cl.record() as trace:
        for m, n in ((24, 3), (30, 3), (28, 2), (60, 5)):
            x, y = torch.randn(m), torch.randn(n)
            torch.testing.assert_close(compiled(x, y), f(x, y))
    assert not trace.of(cl.events.FellBack)


@pytest.mark.skipif(not installed(), reason="capture needs the frame hook")
def test_a_guard_that_holds_for_all_sizes_is_none():
    cl.reset()
    compiled = cl.compile(lambda x: x[: x.shape[0] // 2 * 2], backend="eager", dynamic=True)
    with cl.record() as trace:
        compiled(torch.randn(9))
        compiled(torch.randn(8))
    (guards,) = [trace.size_guards(number) for number in range(len(trace.graphs))]
    assert not any(guard.split()[-1] == "0" for guard in guards), guards
