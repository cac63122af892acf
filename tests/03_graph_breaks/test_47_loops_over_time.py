"""`nn.RNN` and `nn.GRU`: few steps are compiled, many run in eager, and a compiler that goes too deep is asked once."""

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib.capture.corners import loops_over_time


def graphs_of(function, *inputs):
    """How many graphs a call captures, and its result."""
    torch.manual_seed(0)
    with cl.record() as trace:
        result = function(*inputs)
    return sum(isinstance(event, cl.events.GraphCaptured) for event in trace.events), result


KINDS = {
    "gru": lambda: nn.GRU(3, 4),
    "two layers, both directions": lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True),
    "batch first": lambda: nn.RNN(3, 4, batch_first=True),
    "relu": lambda: nn.RNN(3, 4, nonlinearity="relu"),
    "float64 lstm": lambda: nn.LSTM(3, 4).double(),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("most", [0, 10_000])
def test_results_and_gradients_are_eagers_either_way(kind, most, monkeypatch):
    monkeypatch.setattr(loops_over_time, "MOST_STEPS", most)
    torch.manual_seed(0)
    model = KINDS[kind]()
    x = torch.randn(5, 2, 3, dtype=next(model.parameters()).dtype)
    found = []
    for run in (model, cl.compile(lambda x: model(x * 2)[0] + 1, backend="aot_eager")):
        data = x.clone().requires_grad_()
        result = run(data) if run is not model else model(data * 2)[0] + 1
        result.sum().backward()
        found.append((result.detach(), data.grad))
    torch.testing.assert_close(found[1], found[0])


def test_many_steps_run_in_eager_and_few_are_one_graph():
    model = nn.GRU(3, 4)
    compiled = cl.compile(lambda x: model(x + 1)[0] * 2, backend="eager")
    few, result = graphs_of(compiled, torch.ones(4, 2, 3))
    assert few == 1
    torch.testing.assert_close(result, model(torch.ones(4, 2, 3) + 1)[0] * 2)

    many, result = graphs_of(
        cl.compile(lambda x: model(x + 1)[0] * 2, backend="eager"), torch.ones(200, 2, 3)
    )
    assert many > 1, "the graph ends at the GRU"
    torch.testing.assert_close(result, model(torch.ones(200, 2, 3) + 1)[0] * 2)


def test_a_number_of_steps_that_changes_is_not_compiled_for_each():
    model = nn.GRU(3, 4)
    compiled = cl.compile(lambda x: model(x + 1)[0] * 2, backend="eager", dynamic=True)
    compiled(torch.ones(4, 2, 3))
    for steps in (5, 6, 7):
        new, result = graphs_of(compiled, torch.ones(steps, 2, 3))
        assert new == 0
        torch.testing.assert_close(result, model(torch.ones(steps, 2, 3) + 1)[0] * 2)


def test_packed_sequences():
    model = nn.GRU(3, 4)
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 2, 3), torch.tensor([5, 3]))
    result, _ = cl.compile(lambda p: model(p), backend="eager")(packed)
    torch.testing.assert_close(result.data, model(packed)[0].data)


def test_a_lstm_is_one_operation():
    model = nn.LSTM(3, 4)
    graphs, _ = graphs_of(
        cl.compile(lambda x: model(x)[0] * 2, backend="eager"), torch.ones(500, 2, 3)
    )
    assert graphs == 1


LSTMS = {
    "data": (nn.LSTM(3, 4), False),
    "a gradient for the input": (nn.LSTM(3, 4), True),
    "two layers, both directions": (nn.LSTM(3, 4, num_layers=2, bidirectional=True), True),
    "batch first": (nn.LSTM(3, 4, batch_first=True), True),
    "projections": (nn.LSTM(3, 4, proj_size=2), False),
    "float64": (nn.LSTM(3, 4).double(), False),
}


@pytest.mark.parametrize("kind", LSTMS)
def test_a_lstm_of_any_length_is_compiled_once(kind):
    """With symbols torch writes the steps out where the input has a gradient: they were one graph
    a length."""
    model, has_gradient = LSTMS[kind]
    compiled = cl.compile(lambda x: model(x)[0] * 2, backend="eager", dynamic=True)
    dtype = next(model.parameters()).dtype
    graphs = []
    for steps in (4, 5, 6):
        x = torch.randn(steps, steps + 1, 3, dtype=dtype, requires_grad=has_gradient)
        found, result = graphs_of(compiled, x)
        graphs.append(found)
        torch.testing.assert_close(result, model(x)[0] * 2)
    assert graphs[1:] == [0, 0]


@pytest.mark.parametrize("kind", ["projections", "packed"])
def test_a_lstm_that_onednn_does_not_have_counts_as_steps(kind):
    size = 2 if kind == "projections" else 4
    model = nn.LSTM(3, 4, proj_size=2 if kind == "projections" else 0)
    data, state = torch.ones(200, 2, 3), (torch.zeros(1, 2, size), torch.zeros(1, 2, 4))
    if kind == "packed":
        data = nn.utils.rnn.pack_padded_sequence(data, torch.tensor([200, 150]))
    with cl.record() as trace:
        cl.compile(lambda x: model(x, state), backend="eager")(data)
    assert "a loop over 200 steps" in str(trace.of(cl.events.GraphBroke)[0].problem)


def test_a_backend_that_goes_too_deep_is_asked_once():
    asked = []

    def too_deep(graph, inputs):
        asked.append(graph)

        def deeper():
            return deeper()

        return deeper()

    def double(x):
        return x * 2

    compiled = cl.compile(double, backend=too_deep)
    with pytest.warns(
        UserWarning, match="double runs in eager: to compile it needs more nested calls"
    ):
        assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert compiled(torch.ones(2)).tolist() == [2, 2]
    assert len(asked) == 1
