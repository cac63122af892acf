"""Flat indices as sums, and the way back from a flat index to a position."""

from __future__ import annotations

import itertools

import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.lowering.indexing import Linear, contiguous, loop_symbols, unflatten
from course_lib.lowering.ops import add, linear_index, substitute
from course_lib.viz.evaluator import compute

i0, i1, i2 = loop_symbols("i", 3)


def test_a_formula_is_a_coefficient_for_each_loop():
    formula = Linear.of(768 * i0 + i1 + 5, (i0, i1))
    assert (
        formula.coefficient(i0),
        formula.coefficient(i1),
        formula.coefficient(i2),
        formula.constant,
    ) == (768, 1, 0, 5)
    assert str(formula) == "768*i0 + i1 + 5"


def test_a_loop_may_become_another_formula():
    formula = Linear.of(6 * i0 + i1, (i0, i1)).substitute(
        {i0: Linear.of(2 * i2 + 1, (i2,)), i1: Linear()}
    )
    assert formula == Linear.of(12 * i2 + 6, (i2,))


PARTS = st.one_of(
    st.integers(-5, 5),
    st.builds(lambda symbol, by: symbol * by, st.sampled_from((i0, i1, i2)), st.integers(-3, 768)),
    st.sampled_from((i0 // 3, (i0 % 4) * 2, i0 + i1, 4 * i1 - 1)),
)


@given(st.lists(PARTS, max_size=5))
def test_a_sum_is_the_very_object_that_sympy_makes(parts):
    ours, theirs = add(parts), sympy.Add(*parts)
    assert ours == theirs and ours.args == theirs.args and hash(ours) == hash(theirs)


@given(
    st.lists(PARTS, max_size=4),
    st.dictionaries(st.sampled_from((i0, i1, i2)), st.sampled_from((i2, i1 + 1, sympy.Integer(3)))),
)
def test_a_symbol_is_replaced_as_sympy_does(parts, become):
    assert substitute(add(parts), become) == sympy.Add(*parts).xreplace(become)


def test_what_is_not_linear_is_left_whole():
    formula = Linear.of(3 * (i0 % 4) + i1, (i0, i1))
    assert formula.is_affine_in(i1) and not formula.is_affine_in(i0)
    assert formula.substitute({i0: Linear.of(i2, (i2,))}) == Linear.of(3 * (i2 % 4) + i1, (i1, i2))


def test_the_way_back_needs_no_division_where_digits_come_out_even():
    assert unflatten(768 * i0 + i1, {i0: 32, i1: 768}, (32, 768), (768, 1)) == (i0, i1)
    assert unflatten(128 * i0 + i1 + 64, {i0: 4, i1: 32}, (4, 128), (128, 1)) == (i0, i1 + 64)
    assert unflatten(5 - i0, {i0: 6}, (6,), (1,)) == (5 - i0,)


def test_and_divides_where_they_do_not():
    there = unflatten(i0, {i0: 12}, (3, 4), (4, 1))
    assert [str(e) for e in there] == ["(i0//4)", "Mod(i0, 4)"]


def test_rows_may_have_gaps_between_them():
    """A slice of a row of 10 keeps its strides: 8 columns, and then 2 that are not there."""
    there = unflatten(10 * i0 + i1 - 1, {i0: 6, i1: 10}, (6, 8), (10, 1))
    assert [compute(e, {i0: 3, i1: 5}) for e in there] == [3, 4]


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    order=st.randoms(use_true_random=False),
    extents=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    data=st.data(),
)
def test_the_way_back_is_the_inverse_of_the_way_there(shape, order, extents, data):
    """Any memory order, any affine walk that stays inside."""
    places = list(range(len(shape)))
    order.shuffle(places)
    stride = [0] * len(shape)
    for place, step in zip(places, contiguous([shape[p] for p in places]), strict=True):
        stride[place] = step
    total = 1
    for size in shape:
        total *= size
    symbols = loop_symbols("w", len(extents))
    steps = [data.draw(st.integers(0, 5)) for _ in extents]
    start = data.draw(st.integers(0, 3))
    reach = start + sum(step * (n - 1) for step, n in zip(steps, extents, strict=True))
    if reach >= total:
        return
    flat = linear_index(symbols, steps, start)
    there = unflatten(flat, dict(zip(symbols, extents, strict=True)), shape, stride)
    for values in itertools.product(*map(range, extents)):
        known = dict(zip(symbols, values, strict=True))
        index = [compute(e, known) for e in there]
        assert all(0 <= i < n for i, n in zip(index, shape, strict=True))
        assert sum(i * s for i, s in zip(index, stride, strict=True)) == compute(flat, known)
