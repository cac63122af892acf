"""No gradient flows to an input, or from a result: autograd meets what it meets in eager, values as well as graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import course_lib as cl

STEPS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {}
"""(model, x, the last state) → (what is differentiated, the next state). In each, the old state's graph is of no use."""


def step(function: Callable[..., Any]) -> Callable[..., Any]:
    STEPS[function.__name__] = function
    return function


@step
def detached(model, x, state):
    new = (model(x) + state.detach()).tanh()
    return new.sum(), new


@step
def compared(model, x, state):
    new = model(x) * (state > 0)
    return new.sum(), new


@step
def rounded_to_an_index(model, x, state):
    new = model(x)[:, state.argmax()] + model(x)[:, 0]
    return new.sum(), new


@step
def under_no_grad(model, x, state):
    with torch.no_grad():
        scale = state.exp().sum()
    new = model(x) / scale
    return new.sum(), new


@step
def only_its_size(model, x, state):
    new = model(x) * state.shape[-1] + torch.zeros_like(state).sum()
    return new.sum(), new


@step
def averaged_beside(model, x, state):
    new = model(x)
    return new.square().mean(), 0.9 * state.detach() + 0.1 * new


@step
def a_data_attribute(model, x, state):
    new = model(x) - state.data
    return new.sum(), new


@step
def chosen_by_where(model, x, state):
    new = torch.where(state.detach() > 0, model(x), model(x) * 2)
    return new.sum(), new


@step
def two_inputs_of_which_one_is_cut(model, x, state):
    new = model(x * 2) + (state.detach() * model(x)).sigmoid()
    return new.sum(), new


@step
def dropped_by_in_place_arithmetic(model, x, state):
    old = state.detach().clone()
    old.mul_(0.5).add_(model(x))
    return old.sum(), old


@step
def a_target_network(model, x, state):
    target = F.softmax(state.detach(), -1)
    new = model(x)
    return F.cross_entropy(new, target), new


@step
def a_sign(model, x, state):
    new = model(x) + state.detach().sign().floor()
    return new.pow(2).sum(), new


def graph_nodes(*tensors: Tensor) -> int:
    """The nodes of autograd's graph behind some tensors."""
    seen, todo = set(), [t.grad_fn for t in tensors]
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            todo += [before for before, _ in node.next_functions]
    return len(seen)


def train(step: Callable[..., Any], count: int, use: bool = True) -> tuple[list[Tensor], int]:
    """What `count` steps gave, and how many nodes of a graph are left behind the last state."""
    torch.manual_seed(0)
    model = nn.Linear(3, 3)
    state = model(torch.ones(2, 3)).tanh()
    state.sum().backward()  # which frees the graph behind it

    seen = []
    for _ in range(count):
        loss, state = step(model, torch.randn(2, 3), state)
        if use:
            loss.backward()
        seen += [loss.detach(), state.detach()]
    return [*seen, model.weight.grad, model.bias.grad], graph_nodes(state)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", STEPS)
def test_the_graph_behind_an_input_without_a_gradient_does_not_matter(name: str, backend: str):
    expected, _ = train(STEPS[name], 3)
    found, _ = train(cl.compile(STEPS[name], backend=backend), 3)

    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", STEPS)
def test_the_graph_is_as_small_after_forty_steps_as_after_five(name: str):
    compiled = cl.compile(STEPS[name], backend="aot_eager")

    assert train(compiled, 40, use=False)[1] == train(compiled, 5, use=False)[1] < 20


class Copies(nn.Module):
    """Writes what depends on a parameter into a buffer."""

    def __init__(self, write: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("twice", torch.zeros(3))
        self.write = write

    def forward(self, x):
        self.write(self.twice, self.weight * 2)
        return x * self.weight


@pytest.mark.parametrize(
    "write",
    [
        lambda buffer, new: buffer.copy_(new),
        lambda buffer, new: buffer.mul_(0).add_(new),
        lambda buffer, new: buffer.__setitem__(slice(None), new),
        lambda buffer, new: buffer.detach().copy_(new),
        lambda buffer, new: buffer.data.copy_(new),
    ],
)
def test_a_buffer_that_is_overwritten_does_not_tie_a_step_to_the_last_one(write):
    found = []
    for compile in (lambda model: model, cl.compile):
        model = Copies(write)
        run = compile(model)
        for _ in range(3):
            run(torch.ones(3)).sum().backward()
        found.append((model.weight.grad, model.twice.detach().clone()))

    torch.testing.assert_close(found[1], found[0])


RESULTS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, ...]]] = {
    "of other inputs": lambda x, w: (x * 2, w * 3),
    "an infinite derivative": lambda x, w: (x * 2, (x - x).sqrt() + w),
    "two from one matrix": lambda x, w: (F.relu(x @ w).sum(), x @ w),
    "a constant gradient": lambda x, w: (x.floor() * 2, w.sign() + x),
    "a part of the other": lambda x, w: ((y := x @ w).exp().mean(), y[0], y.t()),
    "a reduction and what it is of": lambda x, w: ((x * w).amax(), x * w, x + w),
    "normalized": lambda x, w: (F.layer_norm(x, [3]) * w, (x / 0).sum(), w.log()),
    "one that is an input": lambda x, w: (x * w, x, w),
    "concatenated": lambda x, w: (torch.cat([x, w]), x.log(), (w * 0).rsqrt()),
    "chosen": lambda x, w: (torch.where(x > 0, x, w), (x * 0).log(), w.prod()),
    "none has a gradient": lambda x, w: (x > 0, x.argmax(), w.detach()),
    "looked up": lambda x, w: (x[:, [0, 2, 0]], x.gather(0, torch.zeros(3, 3).long()), w[1] / 0),
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
@pytest.mark.parametrize("name", RESULTS)
def test_a_result_that_is_not_used_gives_no_gradient(name: str, backend: str):
    """Each result alone, each pair, all: None where eager leaves None, and no NaN from a zero times infinity."""
    function = RESULTS[name]
    compiled = cl.compile(function, backend=backend)

    for used in range(1, 8):
        found = [gradients(run, used) for run in (function, compiled)]
        torch.testing.assert_close(found[1], found[0], equal_nan=True)


def gradients(function: Callable[..., Any], used: int) -> list[Tensor | None]:
    """`used`: a bit for each result that is differentiated."""
    torch.manual_seed(0)
    inputs = [torch.randn(3, 3).requires_grad_() for _ in range(2)]
    results = function(*inputs)

    chosen = [r for n, r in enumerate(results) if used >> n & 1 and r.requires_grad]
    if chosen:
        torch.autograd.backward([r.sum() for r in chosen])
    return [x.grad for x in inputs]


def test_a_custom_backward_does_not_run_for_a_result_that_is_not_used():
    class Shifted(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad.sign() + 1  # of zeros it makes ones

    def function(x):
        return x * 2, Shifted.apply(x)

    found = []
    for run in (function, cl.compile(function)):
        x = torch.ones(3, requires_grad=True)
        run(x)[0].sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def test_a_hook_between_graph_breaks_runs_only_where_a_gradient_comes_by():
    counts = []
    for compile in (lambda f: f, cl.compile):
        seen: list[Tensor] = []

        def function(x):
            y = x * 2
            print(end="")
            y.register_hook(seen.append)
            print(end="")
            return (x * 3).sum() + y.detach().sum()

        compile(function)(torch.ones(3, requires_grad=True)).backward()
        counts.append(len(seen))
    assert counts == [0, 0]


# Operators without a form as loops: the program calls torch's own with `out=`, which torch refuses
# for an argument that requires grad while grad mode is on.
LIBRARY_CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "hypot": lambda x: torch.hypot(x, x + 1),
    "index_fill": lambda x: x.index_fill(-2, torch.tensor([0, 1]), 2) * 3,
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1, 0]), x[:2] + 1),
    "nextafter": lambda x: torch.nextafter(x, x + 1),
    "cummax": lambda x: torch.cummax(x, 0).values,
    "sort": lambda x: torch.sort(x, -1).values,
    "product": lambda x: x @ x.mT,
}
WITHOUT_GRADIENT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "detached": lambda y: y.detach().sin(),
    "comparison": lambda y: y > 0.5,
    "index": lambda y: y.argmax(-1),
    "integers": lambda y: (y * 100).long() + 1,
}


@pytest.mark.parametrize("ending", WITHOUT_GRADIENT)
@pytest.mark.parametrize("call", LIBRARY_CALLS)
def test_a_library_call_whose_result_needs_no_gradient(call: str, ending: str) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return WITHOUT_GRADIENT[ending](LIBRARY_CALLS[call](x))

    x = torch.randn(4, 6, requires_grad=True)
    got, expected = cl.compile(f, fullgraph=True)(x), f(x)

    torch.testing.assert_close(got, expected)
    assert got.requires_grad == expected.requires_grad
