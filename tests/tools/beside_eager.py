"""Programs that a compiler can make slower than eager: many small graphs, breaks in loops, values that change.

    python tests/tools/beside_eager.py [NAME ...] [--calls 40]

In:  the cases below. Out: a table: eager's time for one call through ours (above 1: ours is faster), once the first calls are
over, and what was told on the way. Both run in one process, in turn; medians of single calls.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

import course_lib as cl

Step = Callable[[int], Any]
"""One call of a program; its argument counts the calls."""


class Case(NamedTuple):
    """The same program twice: as it is, and compiled."""

    eager: Step
    ours: Step


def of_function(function: Callable[..., Any], arguments: Callable[[int], tuple[Any, ...]]) -> Case:
    compiled = cl.compile(function)
    return Case(lambda n: function(*arguments(n)), lambda n: compiled(*arguments(n)))


def float_that_changes() -> Case:
    """A learning rate, another one in each call."""
    x, g = torch.randn(64, 64), torch.randn(64, 64)
    return of_function(
        lambda x, g, lr: (x - lr * g).relu() * (1 - lr), lambda n: (x, g, 0.1 / (n + 1))
    )


def text_that_changes() -> Case:
    """An argument that is another one in each call, and that no graph can take in."""
    x = torch.randn(64, 64)
    return of_function(lambda x, name: (x + len(name)).relu(), lambda n: (x, f"batch_{n}"))


class One:
    scale = 2.0


class Other:
    scale = 3.0


def two_classes_in_turn() -> Case:
    x, ways = torch.randn(8, 8), (One(), Other())
    return of_function(lambda x, way: (x * way.scale).relu() + 1, lambda n: (x, ways[n % 2]))


def loop_with_breaks() -> Case:
    """`.item()` decides in each iteration."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = x * 0.9 + 0.1
            if x.sum().item() > 1e6:
                break
        return x

    x = torch.randn(8, 8)
    return of_function(run, lambda n: (x,))


def small_stochastic_steps() -> Case:
    """Steps of a stochastic differential equation, with the drift in a module, as torchsde has them."""
    drift = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    def run(y: torch.Tensor) -> torch.Tensor:
        t, dt = 0.0, 0.1
        while t < 0.95:
            noise = torch.randn_like(y)
            y = y + drift(y) * dt + 0.1 * noise * dt**0.5
            if not torch.isfinite(y).all():
                raise ValueError("it diverges")
            t += dt
        return y

    y = torch.randn(16, 4)
    return of_function(run, lambda n: (y,))


def spiking_cells() -> Case:
    """A loop over time around a cell that keeps its state in a tuple, as norse has it."""

    def cell(x: torch.Tensor, state: Any) -> Any:
        v, i = state
        v = v + 0.1 * (i - v)
        spikes = (v > 1.0).float()
        return spikes, (v * (1 - spikes), i * 0.8 + x)

    compiled = cl.compile(cell)

    def run(step: Callable[..., Any]) -> torch.Tensor:
        state = (torch.zeros(32), torch.zeros(32))
        total = torch.zeros(32)
        for _ in range(20):
            spikes, state = step(torch.ones(32), state)
            total = total + spikes
        return total

    return Case(lambda n: run(cell), lambda n: run(compiled))


class Momentum(torch.optim.Optimizer):
    """An optimizer of a user's own."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                if "m" not in state:
                    state["m"] = torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad)
                p.add_(state["m"], alpha=-group["lr"] / state["step"] ** 0.5)


def own_optimizer() -> Case:
    """Training with an optimizer of a user's own, which counts its steps in a Python int."""

    def training(model: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
        optimizer = Momentum(model.parameters(), 0.01)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    x = torch.randn(32, 16)
    plain, compiled = training(copy.deepcopy(model)), cl.compile(training(model))
    return Case(lambda n: plain(x), lambda n: compiled(x))


def prints_in_a_loop() -> Case:
    """A function that no graph can take in is called again and again."""
    seen: dict[str, int] = {}

    def note(n: int) -> None:
        seen[str(n)] = time.perf_counter_ns()

    def run(x: torch.Tensor) -> torch.Tensor:
        for n in range(10):
            x = x + 1
            note(n)
        return x

    x = torch.randn(8)
    return of_function(run, lambda n: (x,))


CASES: dict[str, Callable[[], Case]] = {
    case.__name__: case
    for case in (
        float_that_changes,
        text_that_changes,
        two_classes_in_turn,
        loop_with_breaks,
        small_stochastic_steps,
        spiking_cells,
        own_optimizer,
        prints_in_a_loop,
    )
}


class Measured(NamedTuple):
    """Medians in seconds, of the first calls and of those after them, and the warnings that ours gave."""

    first: float
    eager: float
    ours: float
    warned: list[str]


def measure(case: Case, first: int, calls: int) -> Measured:
    """`first` calls that are not counted, then both in turn."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        for n in range(first):
            case.eager(n)
            case.ours(n)
        spent = time.perf_counter() - start

        eager, ours = [], []
        for n in range(first, first + calls):
            for step, times in ((case.eager, eager), (case.ours, ours)):
                start = time.perf_counter()
                step(n)
                times.append(time.perf_counter() - start)
    told = [str(warning.message) for warning in caught]
    return Measured(spent, statistics.median(eager), statistics.median(ours), told)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*CASES, []])
    parser.add_argument("--first", type=int, default=70)
    parser.add_argument("--calls", type=int, default=60)
    args = parser.parse_args()

    print("| case | first calls, s | eager, µs | ours, µs | eager/ours | warnings |")
    print("|---|---|---|---|---|---|")
    for name in args.names or CASES:
        torch.manual_seed(0)
        cl.reset()
        found = measure(CASES[name](), args.first, args.calls)
        warned = "; ".join(dict.fromkeys(found.warned))
        print(
            f"| {name.replace('_', ' ')} | {found.first:.1f} | {found.eager * 1e6:.0f} | {found.ours * 1e6:.0f} "
            f"| {found.eager / found.ours:.2f} | {warned[:300]} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
