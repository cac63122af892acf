"""Guards: when compiled code may be used again, and what is said when it may not."""

import warnings

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import course_lib as cl
from course_lib import events
from course_lib.viz.recording import Recording


class Count:
    """A backend that counts the graphs it is given."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1
        return gm.forward


def compiles(function, *calls):
    """How many graphs each further call makes; every call is compared with eager."""
    backend = Count()
    compiled = cl.compile(function, backend=backend)
    made = []
    for args in calls:
        before = backend.graphs
        assert_close(compiled(*args), function(*args))
        made.append(backend.graphs - before)
    return made


def test_the_same_shapes_compile_once():
    assert compiles(lambda x: x + 1, (torch.randn(4),), (torch.randn(4),), (torch.randn(4),)) == [1, 0, 0]


@pytest.mark.parametrize(
    "other",
    [
        torch.randn(5, 4),
        torch.randn(4, 4, dtype=torch.float64),
        torch.randn(4, 4).t(),
        torch.randn(8, 4)[::2],
        nn.Parameter(torch.randn(4, 4)),
        torch.randn(4, 4, requires_grad=True),
    ],
    ids=["shape", "dtype", "stride", "step", "parameter", "requires_grad"],
)
def test_what_the_graph_depends_on_is_guarded(other):
    assert compiles(lambda x: x * 2, (torch.randn(4, 4),), (other,), (torch.randn(4, 4),), (other,)) == [1, 1, 0, 0]


@pytest.mark.parametrize(
    "a, b", [(1, 2), (1, True), (1, 1.0), (0.0, -0.0), ("sum", "mean"), (None, 1), ((1, 2), (1, 3)), ([1], [1, 2])]
)
def test_python_arguments_are_constants_with_a_guard(a, b):
    def f(x, k):
        return (
            x.sum()
            if k in ("sum", None)
            else torch.copysign(x, torch.tensor(float(k)))
            if isinstance(k, float)
            else x * len(str(k))
        )

    x = torch.randn(3)
    assert compiles(f, (x, a), (x, b), (x, a), (x, b)) == [1, 1, 0, 0]


def test_nan_is_equal_to_itself_for_a_guard():
    assert compiles(lambda x, k: x + k, *[(torch.zeros(2) + 1, 3.5)] * 3) == [1, 0, 0]
    compiled = cl.compile(lambda x, k: x + k, backend=(count := Count()))
    for _ in range(3):
        compiled(torch.ones(2), float("nan"))
    assert count.graphs == 1


SCALE = 2.0


def reads_a_global(x):
    return x * SCALE


def test_globals_closures_and_attributes_are_guarded(monkeypatch):
    k = 1.0

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2.0
            self.lin = nn.Linear(2, 2)

        def forward(self, x):
            return self.lin(x) * self.k if self.training else x

    def reads_a_closure(x):
        return x + k

    model, x = Scale(), torch.randn(2, 2)
    steps = {
        reads_a_global: lambda: monkeypatch.setitem(globals(), "SCALE", 3.0),
        reads_a_closure: None,
        model: lambda: setattr(model, "k", 5.0),
    }
    for function, change in steps.items():
        backend = Count()
        compiled = cl.compile(function, backend=backend)
        assert_close(compiled(x), function(x))
        if change:
            change()
        else:
            k = 7.0
        assert_close(compiled(x), function(x))
        assert_close(compiled(x), function(x))
        assert backend.graphs == 2
    model.eval()
    assert_close(compiled(x), model(x))
    model.lin = nn.Linear(2, 2, bias=False)
    model.train()
    assert_close(compiled(x), model(x))


def test_grad_mode_and_default_dtype_are_guarded():
    backend = Count()
    compiled = cl.compile(lambda x: x + torch.zeros(2), backend=backend)
    x = torch.randn(2)
    compiled(x)
    with torch.no_grad():
        compiled(x)
    with torch.inference_mode():
        compiled(x)
    try:
        torch.set_default_dtype(torch.float64)
        assert compiled(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert backend.graphs == 4


def test_hooks_put_on_later_run():
    model, seen = nn.Linear(2, 2), []
    compiled = cl.compile(model, backend="eager")
    x = torch.randn(1, 2)
    compiled(x)
    model.register_forward_hook(lambda *_: seen.append(1))
    compiled(x)
    compiled(x)
    assert len(seen) == 2


def test_a_failing_guard_says_which_part_failed_and_which_line_wanted_it():
    def f(x):
        return x + 1

    recording = Recording()
    compiled = cl.compile(f, backend="eager")
    compiled(torch.randn(4, 8))
    with events.listener(recording.events.append):
        compiled(torch.randn(4, 16))
    (failure,) = recording.of(events.GuardFailed)
    assert failure.got.startswith("x.shape[1]: expected 8, got 16")
    assert recording.recompiles[0].entries == 2


def test_each_guard_prints_as_python_with_its_cause():
    guards = cl.explain(lambda x: x.sin())(torch.randn(2)).guards
    (tensor,) = [guard for guard in guards if guard.kind == "tensor"]
    assert "x.shape == (2,)" in str(tensor) and "x.dtype is torch.float32" in str(tensor)


def test_at_the_recompile_limit_new_shapes_run_in_eager_and_old_entries_stay():
    backend = Count()
    compiled = cl.compile(lambda x: x * 2 + 1, backend=backend, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(2, 14):
            assert_close(compiled(torch.ones(n)), torch.full((n,), 3.0))
    assert backend.graphs == cl.config.recompile_limit == 8
    assert any("recompile limit (8)" in str(w.message) and "x.shape[0]: expected" in str(w.message) for w in caught)


def test_two_compiles_of_one_function_do_not_share_entries():
    def f(x):
        return x + 1

    one, two = Count(), Count()
    cl.compile(f, backend=one)(torch.ones(2))
    cl.compile(f, backend=two)(torch.ones(2))
    assert (one.graphs, two.graphs) == (1, 1)


def test_reset_forgets_compiled_code():
    backend = Count()
    compiled = cl.compile(lambda x: x + 1, backend=backend)
    compiled(torch.ones(2))
    cl.reset()
    compiled(torch.ones(2))
    assert backend.graphs == 2
