"""Sizes and numbers that only the data says: in one graph under `fullgraph=True`, and never wrong."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl
from course_lib import events

TOOL = Path(__file__).parents[1] / "tools" / "sizes_of_data.py"


def tool() -> Any:
    """`tests/tools/sizes_of_data.py`, which has the programs."""
    spec = importlib.util.spec_from_file_location("sizes_of_data", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


PROGRAMS = tool()
ROWS = {row.name: row for row in PROGRAMS.ROWS if not row.unbacked}
REFUSED = {
    "branch_on_item": "asks whether n.item\\(\\) > 2, which only the data says",
    "branch_on_truth": "asks whether truth.item\\(\\) == 1, which only the data says",
    "largest_of_float_and_int": "max computes with a number that only the data says",
    "list_and_item": "takes elements by a number that only the data says and by a tensor or a list at once",
    "list_of_unknown_length": "makes a list of which only the data says how long it is",
}
"""Programs that no graph holds, and what is said. (torch refuses four, and gives a float for an int
in `largest_of_float_and_int`.)"""


@pytest.mark.parametrize("name", sorted(ROWS.keys() - REFUSED.keys()))
def test_one_graph_as_in_torch(name: str) -> None:
    """One graph for all calls (some, none, all, one of the elements), with eager's values and gradients."""
    outcome = PROGRAMS.of_ours(ROWS[name])
    assert str(outcome) == "1"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refused_with_one_sentence(name: str) -> None:
    outcome = PROGRAMS.of_ours(ROWS[name])
    assert re.match(f"call 0: Unsupported: {REFUSED[name]}", str(outcome))


def a_length(x: torch.Tensor) -> Any:
    return x * len(x) + torch.tensor(x.shape[0]) + torch.tensor([x.shape[0], 2]).sum()


def test_a_length_is_a_size() -> None:
    """`len(x)`, and a tensor of a size, are right for all sizes; they are no numbers of one."""
    with cl.record() as trace:
        compiled = cl.compile(a_length, dynamic=True, fullgraph=True)
        for length in (3, 5, 2, 9):
            x = torch.arange(float(length))
            torch.testing.assert_close(compiled(x), a_length(x))
    assert len(trace.of(events.GraphCaptured)) == 1


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


SIGNS = [floats(6), floats(6, seed=2), -torch.ones(6), torch.tensor([-1.0, -1, -1, 2, -1, -1])]
"""Two sets of numbers of which some are above 0; none; one."""


def squeezed(x: torch.Tensor) -> Any:
    y = x[x > 0].squeeze()
    return y if y.ndim == 0 else y + 1


def maximum_that_nobody_uses(x: torch.Tensor) -> Any:
    x[x > 0].max()
    return x + 1


def maximum(x: torch.Tensor) -> Any:
    return x[x > 0].max(0).values


def written_view(x: torch.Tensor) -> Any:
    y = x.clone()
    z = y[1:]
    m = y[y > 0]
    z.add_(1)
    return y, z, m * 2


def input_written_behind(x: torch.Tensor) -> Any:
    m = x[x > 0] * 2
    x.add_(1)
    return m + 1


def input_written_and_a_fact_fails(x: torch.Tensor) -> Any:
    x.mul_(2)
    y = x[x > 0]
    torch._check(y.shape[0] < 3)
    return y + 1


def broadcast_of_itself(x: torch.Tensor) -> Any:
    return x[x > 0][:, None] * x[x > 0]


def broadcast_to_a_number(x: torch.Tensor) -> Any:
    return x[x > 0] + torch.ones(3)


def sizes_in_results(x: torch.Tensor) -> Any:
    a, b = x[x > 0], x[x < 0]
    return torch.outer(a, b).sum(0), a.shape[0] + 1, b.shape[0] * 2


def without_gradients_inside(x: torch.Tensor) -> Any:
    with torch.no_grad():
        y = x[x > 0] * 2
    return y + x.sum()


def autocast_inside(x: torch.Tensor) -> Any:
    y = x[x > 0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = y[:, None] @ y[None]
    return z.float() + 1


def padded(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return F.pad(y, (0, 6 - y.shape[0]))


def random_numbers(x: torch.Tensor) -> Any:
    y = x[x > 0]
    return F.dropout(y, 0.5) + torch.rand_like(y)


def float_in_python(x: torch.Tensor) -> Any:
    return x * (float(x.sum().item()) * 0.5 + 1) / 3


def number_that_is_written(x: torch.Tensor) -> Any:
    n = x.sum()
    a = n.item()
    n.add_(1)
    return x * a, n.item()


def row_by_number(x: torch.Tensor) -> Any:
    return x[x.argmax().item()] + 1


def rest_by_number(x: torch.Tensor) -> Any:
    return x[x.argmax().item() :] * 2


def reshaped_by_number(x: torch.Tensor) -> Any:
    return x.reshape((x > 0).sum().item(), -1) + 1


def trained_twice(x: torch.Tensor) -> Any:
    y = (x * 2)[x > 0]
    z = y.sin()
    return z.sum() + (z * z[:, None]).sum() + x.exp().sum()


def trained_and_written(x: torch.Tensor) -> Any:
    y = x.clone()
    i = (x > 0).nonzero()[:, 0]
    y[i] = y[i] * 2
    return (y * x).sum()


def trained_and_view_written(x: torch.Tensor) -> Any:
    y = x * 2
    z = y[1:]
    m = y[y > 0]
    z.mul_(3)
    return y.sum() + z.sin().sum() + m.sum()


WHOLE = [
    squeezed,
    maximum_that_nobody_uses,
    maximum,
    written_view,
    input_written_behind,
    input_written_and_a_fact_fails,
    broadcast_of_itself,
    sizes_in_results,
    without_gradients_inside,
    autocast_inside,
    padded,
    random_numbers,
    float_in_python,
    number_that_is_written,
    row_by_number,
    rest_by_number,
    reshaped_by_number,
    trained_twice,
    trained_and_written,
    trained_and_view_written,
]


def outcome(program: Callable[..., Any], x: torch.Tensor, trains: bool) -> Any:
    """Results, gradient and what the input is afterwards; or the type of the error."""
    x = x.clone().requires_grad_(trains)
    torch.manual_seed(0)
    try:
        results = program(x)
        if trains:
            results.backward()
    except Exception as error:
        return type(error)
    results = results if isinstance(results, tuple) else (results,)
    return [*results, x.grad, x.detach()]


@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_what_eager_gives(program: Callable[..., Any]) -> None:
    """Also where a fact does not hold, memory is written to, or eager raises."""
    trains = program.__name__.startswith("trained")
    compiled = cl.compile(program, fullgraph=True)
    for x in SIGNS:
        want, got = outcome(program, x, trains), outcome(compiled, x, trains)
        assert isinstance(got, type(want)), (got, want)
        if isinstance(want, type):
            assert got is want
        else:
            torch.testing.assert_close(got, want, equal_nan=True)


def test_a_size_that_must_be_a_number_is_checked_in_each_call() -> None:
    compiled = cl.compile(broadcast_to_a_number, fullgraph=True)
    three = torch.tensor([1.0, 2, 3, -1, -1, -1])
    for x in (three, torch.ones(6), -three, -torch.ones(6)):
        want, got = (outcome(each, x, False) for each in (broadcast_to_a_number, compiled))
        assert isinstance(got, type(want))
        if not isinstance(want, type):
            torch.testing.assert_close(got, want)


def is_true(x: torch.Tensor) -> Any:
    return x + 1 if (x[x > 0].shape[0] > 2) is True else x - 1


def caught(x: torch.Tensor) -> Any:
    try:
        return x + 1 if x[x > 0].shape[0] > 2 else x - 1
    except Exception:
        return x


def counted_in_python(x: torch.Tensor) -> Any:
    return x + sum(range(x[x > 0].shape[0]))


ASKS = {
    is_true: "asks whether .*shape\\[0\\] > 2, which only the data says",
    caught: "asks whether .*shape\\[0\\] > 2, which only the data says",
    counted_in_python: "needs in Python the value of .*shape\\[0\\], which only the data says",
}


@pytest.mark.parametrize("program", ASKS, ids=lambda program: program.__name__)
def test_a_question_that_only_the_data_answers_is_refused(program: Callable[..., Any]) -> None:
    """Unsupported names the question and the line; no `except` of the program's sees it."""
    with pytest.raises(cl.Unsupported, match=ASKS[program]) as refused:
        cl.compile(program, fullgraph=True)(SIGNS[0])
    assert Path(__file__).name in str(refused.value)


@pytest.mark.parametrize("program", ASKS, ids=lambda program: program.__name__)
def test_without_fullgraph_the_graph_ends_there(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cl.config, "capture_dynamic_output_shape_ops", True)
    compiled = cl.compile(program)
    for x in SIGNS:
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("is_on", [False, True], ids=["off", "on"])
def test_the_switches_without_fullgraph(is_on: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off, a graph ends at `x[x > 0]` and at `.item()`, as in torch; on, it goes on."""
    monkeypatch.setattr(cl.config, "capture_dynamic_output_shape_ops", is_on)
    monkeypatch.setattr(cl.config, "capture_scalar_outputs", is_on)

    def program(x: torch.Tensor) -> Any:
        return (x * 2)[x > 0].sin() * x.sum().item()

    with cl.record() as trace:
        compiled = cl.compile(program)
        for x in SIGNS:
            torch.testing.assert_close(compiled(x), program(x))
    assert (len(trace.of(events.GraphCaptured)) == 1) == is_on
    assert (not trace.of(events.GraphBroke)) == is_on


def test_pieces_are_compiled_once_for_all_sizes() -> None:
    """Six numbers of elements, one program (two kernels' pieces), and it is not compiled by numbers."""

    def program(x: torch.Tensor) -> Any:
        return (x * 2)[x > 0].sin() * 3

    with cl.record() as trace:
        compiled = cl.compile(program, fullgraph=True)
        for count in (2, 3, 5, 7, 4, 9):
            x = torch.cat([torch.ones(count), -torch.ones(10 - count)])
            torch.testing.assert_close(compiled(x), program(x))
    assert len(trace.of(events.KernelsBuilt)) == 2
    assert not trace.of(events.SizesAreNumbers)
    assert not trace.of(events.FellBack)


def test_a_users_backend_gets_the_graph() -> None:
    """A callable backend gets all of it, with the checks of facts as nodes."""
    seen: list[Any] = []

    def backend(graph: Any, inputs: Sequence[Any]) -> Any:
        seen.append(graph)
        return graph.forward

    def program(x: torch.Tensor, n: torch.Tensor) -> Any:
        length = n.item()
        torch._check(length <= x.shape[0])
        return x[:length] + 1

    compiled = cl.compile(program, fullgraph=True, backend=backend)
    for length in (3, 5, 0, 9):
        x, n = torch.ones(6), torch.tensor(length)
        if length > 6:
            with pytest.raises(RuntimeError, match="Expected cond to be True"):
                compiled(x, n)
        else:
            torch.testing.assert_close(compiled(x, n), program(x, n))
    assert len(seen) == 1


def test_explain_and_the_log_say_what_the_data_decides(capsys: pytest.CaptureFixture[str]) -> None:
    """Each size and number with its line, and what is checked in each call. `explain` of a function
    compiled with fullgraph keeps them, too; of the function itself it tells the breaks."""

    def program(x: torch.Tensor, n: torch.Tensor) -> Any:
        length = n.item()
        torch._check(length < 5)
        return x[x > 0] * 2, x[:length]

    compiled = cl.compile(program, fullgraph=True)
    told = cl.explain(compiled)(torch.ones(6), torch.tensor(2))
    assert (told.graph_count, told.graph_break_count) == (1, 0)
    assert any(
        "the number item" in line and "length = n.item()" in line for line in told.size_decisions
    )
    assert any("the size getitem.shape[0]" in line for line in told.size_decisions)
    assert any("checked in each call: n.item() < 5" in line for line in told.size_decisions)
    assert cl.explain(program)(torch.ones(6), torch.tensor(2)).graph_break_count > 0

    cl.set_logs("dynamic")
    compiled(torch.ones(6), torch.tensor(2))
    cl.set_logs()
    assert "of the data: the number item" in capsys.readouterr().err


def test_no_cuda_graph_is_recorded_and_that_is_told() -> None:
    def program(x: torch.Tensor) -> Any:
        return x[x > 0] * 2

    compiled = cl.compile(program, fullgraph=True, mode="reduce-overhead")
    with cl.record() as trace:
        for x in SIGNS:
            torch.testing.assert_close(compiled(x), program(x))
    assert [event.why for event in trace.of(events.FellBack)] == [
        "it has a size, or a number, that only the data says"
    ]


def test_the_other_back_half_is_refused_with_one_sentence() -> None:
    compiled = cl.compile(lambda x: x * x.sum().item(), fullgraph=True, backend="torch_inductor")
    with pytest.raises(NotImplementedError, match="sizes or numbers that only the data says: use"):
        compiled(torch.ones(3))
