"""Pictures of lesson 07: a view over its memory, a reduction, one body under several handlers."""

from __future__ import annotations

import pytest
import sympy
import torch
from aten_graphs import lowered

from course_lib.viz.evaluator import NumpyHandler, starting_memory
from course_lib.viz.pictures.lowering.handlers import Together, side_by_side
from course_lib.viz.pictures.lowering.loop_formulas import Formula, loops
from course_lib.viz.pictures.lowering.views import collapse, index_map

X = torch.arange(12.0).view(3, 4)
VIEWS = {
    "x": X,
    "x.t()": X.t(),
    "x[1:, ::2]": X[1:, ::2],
    "wide": X[1].expand(3, 4),
    "x.diagonal()": X.diagonal(),
}
i, j = sympy.symbols("i j", integer=True)


def body(ops, index):
    return ops.maximum(
        ops.add(ops.load("x", index[0] + 4 * index[1]), ops.load("b", index[1])),
        ops.constant(0.0, torch.float32),
    )


@pytest.mark.parametrize("name", VIEWS)
def test_each_cell_of_a_view_says_where_its_element_lies(name):
    view = VIEWS[name]
    picture = index_map({name: view})
    rows = view.tolist() if view.ndim == 2 else [view.tolist()]
    grid = picture.text.splitlines()[2 : 2 + len(rows)]
    # element n of `X` is n
    assert [[float(cell) for cell in line.split()] for line in grid] == rows
    assert f"offset {view.storage_offset()}" in picture.text
    for row in rows:
        assert all(f">{n:g}</text>" in picture.body for n in row)


def test_the_formula_is_that_of_the_loops():
    picture = index_map({"x[:, 1:].t()": X[:, 1:].t()})
    assert "[i, j] lies at i + 4*j + 1" in picture.text and "i + 4*j + 1" in picture.body
    (node,) = lowered(lambda x: x[:, 1:].t() * 2, X).nodes
    assert node.value(Formula(), [i, j], []) == "x[i + 4*j + 1] * 2"


def test_an_index_that_goes_into_the_next_row_is_written_flat():
    assert "buf1[i] = buf0[i] * 2" in loops(lowered(lambda x: x.t().reshape(12) * 2, X)).text
    assert "buf1[i, j] = buf0[i, j] * 2" in loops(lowered(lambda x: x.t().contiguous() * 2, X)).text


def test_memory_that_no_element_lies_in_is_dashed_and_what_is_read_again_is_counted():
    picture = index_map({"wide": X[1].expand(3, 4)})
    assert picture.body.count("stroke-dasharray") == 8 and picture.body.count("not read") == 8
    assert "4 of 12 places in memory, each read 3 times" in picture.text


def test_what_is_too_large_or_has_other_dimensions_is_told_by_its_name():
    for tensor in (torch.empty(2, 2, 2), torch.empty(()), torch.empty(100)):
        with pytest.raises(ValueError, match="big is too large to draw"):
            index_map({"x": X, "big": tensor})
    with pytest.raises(ValueError, match="at most 8 × 8"):
        collapse(torch.empty(9, 2), 0)


@pytest.mark.parametrize(
    "dim, kind, wanted",
    [(1, "sum", [6.0, 15.0]), (0, "sum", [5.0, 7.0, 9.0]), (-1, "amax", [3.0, 6.0])],
)
def test_a_reduction_shows_a_band_for_each_element_of_the_result(dim, kind, wanted):
    picture = collapse(torch.tensor([[1.0, 2, 3], [4, 5, 6]]), dim, kind)
    assert all(f"{value:g}" in picture.text for value in wanted)
    assert picture.body.count("<rect") == 2 * len(wanted)
    assert f"{kind} of each {'column' if dim == 0 else 'row'}" in picture.text


def test_a_body_runs_once_under_all_handlers_and_each_answers_in_its_own_way():
    memory = {"x": X.flatten(), "b": torch.tensor([-9.0, 0.5, 2.0])}
    picture = side_by_side(
        body, (i, j), {"a formula": Formula(), "at (1, 2)": NumpyHandler(memory, {i: 1, j: 2})}
    )
    lines = picture.text.splitlines()
    assert [line.split()[0] for line in lines[2:]] == ["#1", "#2", "#3", "#4", "#5"]
    assert (
        "maximum(#3, #4)" in lines[-1]
        and "maximum(x[i + 4*j] + b[j], 0)" in lines[-1]
        and lines[-1].endswith(" 11")
    )


def test_the_steps_are_those_of_the_real_loops():
    x, b = torch.randn(3, 4), torch.randn(3)
    graph = lowered(lambda x, b: (x.t() + b).exp(), x, b)
    index = graph.nodes[0].symbols[0]
    numpy = NumpyHandler(starting_memory(graph, [x, b]), dict(zip(index, (1, 2), strict=True)))
    together = Together([Formula(graph.buffers), numpy])
    result = graph.nodes[0].inner(together, index)
    assert [step.op for step in together.steps] == ["load", "load", "add"]
    assert float(result.values[1]) == pytest.approx(float(x[2, 1] + b[2]))


def test_a_body_that_no_two_handlers_can_run_in_step_is_refused():
    graph = lowered(lambda x, n: x[n], torch.randn(4, 3), torch.tensor([1, 2]))
    with pytest.raises(NotImplementedError, match="a body with indirect"):
        side_by_side(graph.nodes[0].inner, graph.nodes[0].symbols[0], {"a formula": Formula()})


def test_every_picture_follows_the_theme_and_has_words_for_who_cannot_see_it():
    pictures = [
        index_map(VIEWS),
        collapse(X, 1),
        collapse(X, 0),
        side_by_side(body, (i, j), {"a formula": Formula()}),
    ]
    for picture in pictures:
        assert picture.caption and picture.alt and picture.text
        assert (
            "#000" not in picture.body
            and "#fff" not in picture.body
            and "white" not in picture.body
        )
        assert 'font-size="10' not in picture.body
