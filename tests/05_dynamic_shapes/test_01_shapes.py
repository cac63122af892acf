"""Symbolic sizes: how many graphs, which guards, and the right results on sizes that no capture has seen."""

from __future__ import annotations

import pytest
import torch
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import course_lib as cl
from course_lib import viz
from course_lib.frames import installed

pytestmark = pytest.mark.skipif(not installed(), reason="capture needs the frame hook")


@pytest.fixture(autouse=True)
def forget():
    cl.reset()
    yield
    cl.reset()


class Graphs(list):
    def __call__(self, gm, example_inputs):
        self.append(gm)
        return gm.forward


def run(f, *calls, **settings):
    """The trace of calls whose results were compared with eager."""
    compiled = cl.compile(f, backend="eager", **settings)
    with cl.record() as trace:
        for args in calls:
            args = args if isinstance(args, tuple) else (args,)
            torch.testing.assert_close(compiled(*args), f(*args))
    return trace


def guards_of(trace):
    return [trace.size_guards(index) for index in range(len(trace.graphs))]


def rows(x):
    return (x * 2).softmax(-1)


def branch(x):
    return x + 1 if x.shape[0] > 10 else x - 1


# ---- dynamic=None, True, False --------------------------------------------------------------------------------------


def test_none_is_constant_first_and_symbolic_after_a_change():
    trace = run(rows, *(torch.randn(4, n) for n in (8, 16, 32, 5, 77, 9)))
    assert guards_of(trace) == [["x.shape == (4, 8)"], ["x.shape[0] == 4", "x.shape[1] >= 2"]]


def test_true_compiles_once_and_false_each_time():
    inputs = [torch.randn(4, n) for n in (8, 16, 32, 16)]
    assert len(run(rows, *inputs, dynamic=True).graphs) == 1
    cl.reset()
    assert len(run(rows, *inputs, dynamic=False).graphs) == 3


def test_a_marked_size_is_symbolic_at_once_and_the_others_are_not():
    x = torch.randn(5, 7)
    cl.mark_dynamic(x, 0)
    assert guards_of(run(rows, x, torch.randn(6, 7), torch.randn(99, 7))) == [
        ["x.shape[1] == 7", "x.shape[0] >= 2"]
    ]


def test_a_size_that_is_marked_static_is_a_number():
    for mark in (cl.mark_static, torch._dynamo.mark_static):
        x = torch.randn(5, 7)
        mark(x, 1)
        assert guards_of(run(rows, x, dynamic=True)) == [["x.shape[1] == 7", "x.shape[0] >= 2"]]
        mark(x)
        assert guards_of(run(rows, x, dynamic=True)) == [["x.shape == (5, 7)"]]
        cl.mark_dynamic(x, 0)  # is stronger
        assert guards_of(run(rows, x)) == [["x.shape[1] == 7", "x.shape[0] >= 2"]]


def test_a_range_that_is_promised_is_known():
    def asks(x):
        return x + 1 if x.shape[0] < 100 else x - 1

    for mark in (cl.mark_dynamic, torch._dynamo.mark_dynamic):
        x = torch.randn(5, 7)
        mark(x, 0, min=4, max=64)
        (guards,) = guards_of(run(asks, x, torch.randn(64, 7)))
        assert "x.shape[0] <= 64" in guards and "x.shape[0] >= 4" in guards
        assert not any("100" in guard for guard in guards), "it follows from the range"

    x = torch.randn(70, 7)
    cl.mark_dynamic(x, 0, max=64)
    with pytest.raises(ConstraintViolationError, match=r"x.shape\[0\] .* from 0 to 64, but is 70"):
        run(asks, x)


def test_sizes_0_and_1_have_entries_of_their_own():
    trace = run(rows, *(torch.randn(n, 3) for n in (6, 1, 8, 0, 9, 1, 0)), dynamic=True)
    assert guards_of(trace) == [
        ["x.shape[0] >= 2", "x.shape[1] >= 2"],
        ["x.shape[0] == 1", "x.shape[1] >= 2"],
        ["x.shape[0] == 0", "x.shape[1] >= 2"],
    ]


def test_an_int_is_symbolic_after_a_change():
    x = torch.randn(4)
    trace = run(lambda x, k: x * k, *((x, k) for k in (3, 5, 7, 9)))
    assert [
        [node.name for node in gm.graph.find_nodes(op="placeholder")] for gm in trace.graphs
    ] == [["x"], ["x", "k"]]


# ---- questions become guards ----------------------------------------------------------------------------------------


def test_a_branch_on_a_size_is_a_guard_and_no_break():
    trace = run(branch, *(torch.randn(n) for n in (5, 6, 11, 12, 10, 20)), dynamic=True)
    assert [guards[-1] for guards in guards_of(trace)] == ["x.shape[0] <= 10", "x.shape[0] > 10"]
    assert trace.graph_breaks == []


def attend(q):
    causal = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=q.shape[0] > 4)
    return causal + torch.sum(q, -1, q.shape[0] > 8).reshape(-1)[0]


def test_a_comparison_that_is_an_argument_is_a_guard_and_no_break():
    trace = run(attend, *(torch.randn(n, 8) for n in (5, 6, 3, 12, 9, 4)), dynamic=True)
    asked = [{guard.removeprefix("q.shape[0] ") for guard in guards} for guards in guards_of(trace)]
    assert [tests & {"<= 4", "> 4", "<= 8", "> 8"} for tests in asked] == [
        {"> 4", "<= 8"},
        {"<= 4"},
        {"> 4", "> 8"},
    ]
    assert trace.graph_breaks == []


def test_sizes_that_must_be_equal_are_guarded_and_others_are_not():
    pairs = [(torch.randn(m), torch.randn(n)) for m, n in ((6, 6), (8, 8))]
    assert "x.shape[0] == y.shape[0]" in guards_of(run(lambda x, y: x + y, *pairs, dynamic=True))[0]
    cl.reset()
    pairs += [(torch.randn(6), torch.randn(8))]
    # no duck shaping
    assert len(run(lambda x, y: x.sum() + y.sum(), *pairs, dynamic=True).graphs) == 1


def test_an_error_of_eager_about_sizes_comes_through():
    compiled = cl.compile(lambda x, y: x + y, backend="eager", dynamic=True)
    compiled(torch.randn(6), torch.randn(6))
    with pytest.raises(RuntimeError, match="must match the size"):
        compiled(torch.randn(6), torch.randn(8))


TABLE = [n / 10 for n in range(40)]
BY_SIZE = {n: n / 10 for n in range(40)}


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * TABLE[x.shape[0]],
        lambda x: x * BY_SIZE[x.shape[0]],
        lambda x: x * len(f"length {x.shape[0]}"),
        lambda x: sum(x[i] for i in range(x.shape[0])),
    ],
    ids=["list index", "dict key", "f-string", "loop"],
)
def test_a_size_that_python_needs_as_a_number_is_a_constant(f):
    trace = run(f, *(torch.randn(n, 2) for n in (6, 8, 12, 8)), dynamic=True)
    assert [guards[0] for guards in guards_of(trace)] == [f"x.shape[0] == {n}" for n in (6, 8, 12)]


# ---- what the graph holds -------------------------------------------------------------------------------------------


def halves(x):
    n = x.shape[0]
    return x[: n // 2 * 2].view(n // 2, 2) * torch.arange(n // 2)[:, None]


def joined(x, y):
    both = torch.cat([x, y])
    return both.expand(2, -1).reshape(-1) + torch.arange(both.shape[0] * 2)


@pytest.mark.parametrize(
    "f, calls",
    [
        (halves, [(torch.randn(n),) for n in (9, 12, 31, 8)]),
        (joined, [(torch.randn(m), torch.randn(n)) for m, n in ((4, 6), (7, 3), (20, 20))]),
        (
            lambda x: x[:, : x.shape[1] // 2].contiguous(),
            [(torch.randn(3, n),) for n in (8, 13, 40)],
        ),
        (
            lambda x: x.new_zeros(x.shape[0] + 1) + x.shape[0],
            [(torch.randn(n),) for n in (5, 9, 2)],
        ),
    ],
    ids=["view and arange", "cat, expand and reshape", "slice", "new_zeros"],
)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_one_graph_computes_with_its_sizes(f, calls, backend):
    graphs = []
    compiled = cl.compile(f, backend=backend, dynamic=True)
    with cl.record() as trace, torch.no_grad():
        for args in calls:
            torch.testing.assert_close(compiled(*args), f(*args))
    graphs = trace.graphs
    assert len(graphs) == 1
    assert graphs[0].graph.find_nodes(op="call_function", target=torch.ops.aten.sym_size.int)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.clone() if isinstance(x.shape[0], torch.Tensor) else x + 1,
        lambda x: x[:, :1].T[None].baddbmm(x[None], x.T[None]),
    ],
    ids=["is a size a tensor?", "an operation whose sizes torch works out in Python"],
)
def test_any_size_is_one_graph(f):
    assert len(run(f, *(torch.randn(n, 3) for n in (6, 9, 12)), dynamic=True).graphs) == 1


def test_the_back_half_builds_a_program_for_each_set_of_sizes_up_to_the_limit():
    compiled = cl.compile(rows, dynamic=True)
    with cl.record() as trace, torch.no_grad():
        for n in (8, 16, 8, 16, 24):
            x = torch.randn(4, n)
            torch.testing.assert_close(compiled(x), rows(x))
    assert len(trace.graphs) == 1 and 1 <= len(trace.of(cl.events.KernelsBuilt)) <= 3


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_the_shape_map_says_what_the_entries_really_serve():
    graphs = Graphs()
    compiled = cl.compile(branch, backend=graphs, dynamic=True)
    with cl.record() as trace:
        for n in (5, 11):
            compiled(torch.randn(n))
    lines = trace.shape_map(branch, {"x.shape[0]": range(1, 14)}).text.splitlines()
    ways = [line.removeprefix("x.shape[0] = ") for line in lines[:6]]
    assert ways == ["1: ✕", "2 to 4: A", "5: A*", "6 to 10: A", "11: B*", "12 to 13: B"]
    for n in range(2, 14):
        compiled(torch.randn(n))
    assert len(graphs) == 2
    compiled(torch.randn(1))
    assert len(graphs) == 3


def test_the_shape_map_of_two_sizes_is_a_grid():
    with cl.record() as trace:
        compiled = cl.compile(rows, backend="eager")
        for n in (8, 16):
            compiled(torch.randn(4, n))
    text = trace.shape_map(rows, {"rows": [2, 4], "length": [1, 8, 9]}).text.splitlines()
    assert [line.split() for line in text[2:4]] == [["2", "✕", "✕", "✕"], ["4", "✕", "A*", "B"]]


def test_the_shape_map_refuses_what_it_cannot_show():
    with cl.record() as trace:
        cl.compile(rows, backend="eager")(torch.randn(4, 8))
    with pytest.raises(ValueError, match="one axis or two"):
        trace.shape_map(rows, {})
    with pytest.raises(LookupError, match="branch was not captured"):
        trace.shape_map(branch, {"n": [1]})


def test_buckets_count_their_padding():
    found = viz.in_buckets([3, 4, 5, 8], [4, 8])
    assert [(b.low, b.border, b.computed, b.padding) for b in found] == [
        (1, 4, 8, 1),
        (5, 8, 16, 3),
    ]
    assert viz.buckets([3, 4, 5, 8], [4, 8]).text.splitlines()[-1].split() == [
        "all",
        "4",
        "24",
        "4",
        "17%",
    ]
    with pytest.raises(ValueError, match="a border for the longest"):
        viz.in_buckets([9], [8])


def test_the_two_lives_of_a_size_are_a_table_as_text():
    picture = viz.two_lives([("n", 12, "s", ""), ("n > 10", True, "", "s > 10")])
    assert picture.text.splitlines()[-1].split() == ["n", ">", "10", "True", "s", ">", "10"]
    assert "guards: s > 10" in picture.alt
