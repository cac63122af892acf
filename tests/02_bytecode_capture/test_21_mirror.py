"""`cl.mirror`: the same call through both compilers, and what differs said in words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib.bench.models import TinyBlock

pytestmark = pytest.mark.slow


def two_operations(x, y):
    a = torch.sin(x)
    return a + y


def data_dependent(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def through_numpy(x):
    return torch.from_numpy(np.fft.rfft((x * 2).numpy()).real) * 2


def test_the_same_function_gives_the_same_graph_in_both_compilers():
    both = cl.mirror(two_operations, torch.randn(3), torch.randn(3))
    for side in (both.ours, both.theirs):
        assert (len(side.graphs), side.operations, side.breaks, side.answer) == (
            1,
            ["sin", "add"],
            [],
            "as eager",
        )
        assert side.graphs[0].inputs == ["x", "y"] and side.guards > 0


def test_parameters_are_called_by_their_path_on_both_sides():
    with torch.no_grad():
        both = cl.mirror(TinyBlock(8, 2), torch.randn(2, 8))
    assert sorted(both.ours.graphs[0].inputs) == sorted(both.theirs.graphs[0].inputs)
    assert (
        "self.fc1.weight" in both.ours.graphs[0].inputs
        and both.ours.operations == both.theirs.operations
    )
    assert "Graph 1 takes the same inputs in another order." in both.differences


def test_a_graph_break_gives_the_same_graphs_in_both_compilers():
    both = cl.mirror(data_dependent, torch.randn(3), torch.ones(3))
    assert (
        both.ours.operations
        == both.theirs.operations
        == ["abs", "add", "truediv", "sum", "lt", "mul"]
    )
    for side in (both.ours, both.theirs):
        assert (len(side.graphs), len(side.breaks), side.answer) == (2, 1, "as eager")
    assert "course_lib ends a graph: a branch depends on the data in a tensor." in both.differences
    assert "Both leave that to Python and go on behind it in a resume function." in both.differences


def test_what_ends_a_graph_of_one_compiler_only_is_told():
    both = cl.mirror(through_numpy, torch.arange(4.0))
    assert (
        (len(both.ours.graphs), len(both.theirs.graphs)) == (2, 1)
        and both.ours.breaks
        and not both.theirs.breaks
    )
    assert "torch.compile puts that into the graph." in both.differences
    assert "no graph 2 of torch.compile" in str(both)


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0",
    reason="NumPy 1 computes FFTs in double precision",
)
def test_a_result_of_another_dtype_is_told():
    both = cl.mirror(through_numpy, torch.arange(4.0))
    assert (
        both.theirs.answer == "float64 where eager gives float32" and both.ours.answer == "as eager"
    )


def test_arguments_state_and_random_numbers_are_left_as_they_were():
    model, x = nn.Sequential(nn.BatchNorm1d(3), nn.Dropout()), torch.randn(4, 3)
    kept, mean = x.clone(), model[0].running_mean.clone()
    torch.manual_seed(1)
    both = cl.mirror(model, x)
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    assert torch.equal(x, kept) and torch.equal(model[0].running_mean, mean)
    assert both.ours.answer == both.theirs.answer == "as eager", (
        "all three draw the same dropout mask"
    )


def test_what_eager_raises_is_raised_and_what_one_compiler_raises_is_told(monkeypatch):
    with pytest.raises(RuntimeError):
        cl.mirror(two_operations, torch.randn(2), torch.randn(3))
    monkeypatch.setattr(torch, "compile", lambda *args, **kwargs: lambda *inputs: 1 / 0)
    both = cl.mirror(two_operations, torch.randn(3), torch.randn(3))
    assert both.theirs.answer == "raised ZeroDivisionError" and both.ours.answer == "as eager"


def test_text_and_picture_are_the_same_each_time():
    one, two = (cl.mirror(two_operations, torch.ones(3), torch.ones(3)).picture for _ in range(2))
    assert (one.text, one.html) == (two.text, two.html)
    assert one.text in str(one) and 'class="cl-them"' in one.html


def test_a_layer_of_torch_itself_has_the_same_inputs_in_both():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    both = cl.mirror(model, torch.randn(2, 4), train=True)
    ours, theirs = both.ours.graphs[0].inputs, both.theirs.graphs[0].inputs
    assert sorted(ours) == sorted(theirs) == ["input", "self[0].bias", "self[0].weight"]


def two_prints(x):
    x = x + 1
    print("one")
    x = x * 2
    print("two")
    return x.sin()


def breaks_in_a_loop(x):
    for turn in range(3):
        x = x * 2
        if turn == 1:
            torch._dynamo.graph_break()
    return x


def test_a_break_is_counted_wherever_it_happens_and_told_once():
    both = cl.mirror(two_prints, torch.ones(3))
    assert len(both.ours.graphs) == len(both.theirs.graphs) == 3
    assert len(both.ours.breaks) == len(both.theirs.breaks) == 2
    assert (
        "course_lib ends a graph, 2 times: print has an effect outside the graph."
        in both.differences
    )
    assert sum(line.startswith("torch.compile ends a graph") for line in both.differences) == 1


def test_a_frame_that_torch_gives_up_is_one_break_and_no_graph():
    both = cl.mirror(breaks_in_a_loop, torch.ones(3))
    assert (both.theirs.graphs, len(both.theirs.breaks)) == ([], 1)
    assert "torch.compile makes no graph of it: Python runs all of it." in both.differences
    assert not any("Guards are cut differently" in line for line in both.differences), (
        "there are none on the other side"
    )
    assert (both.compiled.theirs.kernels, both.compiled.theirs.bytes) == ([], 0.0)


def test_operations_with_the_same_arguments_stand_side_by_side():
    rows = cl.mirror(through_numpy, torch.arange(4.0)).picture.text.splitlines()
    assert any(row.count("mul(x, 2)") == 2 for row in rows)


def within(y):
    print("within")
    return y * 2


def around(x):
    return within(x + 1).sin()


def test_what_lay_on_the_stack_has_one_name_on_both_sides():
    both = cl.mirror(around, torch.ones(3))
    assert both.ours.graphs[-1].inputs == both.theirs.graphs[-1].inputs == ["stack0"]


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        print("called")
        return x * self.calls


def test_calls_that_are_only_timed_print_nothing_and_warn_of_nothing(capfd, recwarn):
    both = cl.mirror(Counts(), torch.ones(3))
    capfd.readouterr()
    recwarn.clear()
    assert both.compiled.ours.run_seconds and both.compiled.ours.answer == "as eager"
    said = capfd.readouterr()
    # of torch, when its compiler is first imported
    warned = [w for w in recwarn if w.category is not DeprecationWarning]
    assert (
        said.out.splitlines() == ["called"] * 3 and "recompile_limit" not in said.err and not warned
    )


def test_without_training_no_kernels_of_backward_are_counted():
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    forward, both = (
        cl.mirror(model, x, train=train).compiled.ours.kernels for train in (False, True)
    )
    assert forward == ["aten.addmm", "fused_relu over [12]"] and len(both) > 2
