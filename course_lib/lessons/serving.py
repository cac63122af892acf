"""A simulated server: requests arrive, wait, are batched, padded, and run. The compiler is real;
time is counted in ticks.

In:  requests (`traffic`), the shapes they run in (`Policy`), a compiled model (`Program`), what
     things cost (`Costs`).
Out: `Handled` requests, and in the `Program` what the compiler did.

No time is measured here, so each run gives the same numbers. What costs what is stated in `Costs`:
change it, and see who wins.
"""

from __future__ import annotations

import math
import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import course_lib as cl
from course_lib.viz.pictures.runtime.request_queue import Handled

LONGEST = 512
Shape = tuple[int, int]  # (batch, length)


@dataclass(frozen=True)
class Request:
    """`length` tokens that arrive at a tick."""

    arrives: float
    length: int


def traffic(seed: int, count: int = 200, every: float = 12.0) -> list[Request]:
    """`count` requests, one in `every` ticks on average, most of 40 to 200 tokens: the same for
    each `seed`."""
    dice = random.Random(seed)
    now = 0.0
    requests = []
    for _ in range(count):
        now += dice.expovariate(1 / every)
        length = round(dice.lognormvariate(4.5, 0.7))
        requests.append(Request(round(now, 1), min(LONGEST, max(2, length))))
    return requests


@dataclass(frozen=True)
class Costs:
    """Ticks.

    A program takes `call`, and `token` for each token that it computes, padding as well."""

    call: float = 2.0
    token: float = 0.02
    eager: float = 1.6  # how many times as long eager takes
    symbolic: float = 1.15  # how many times as long a program takes that is for all sizes
    compile: float = 400.0


def same(size: int) -> int:
    return size


@dataclass(frozen=True)
class Policy:
    """Which shape requests run in, and what `dynamic` the model is compiled with."""

    length: Callable[[int], int] = same
    batch: Callable[[int], int] = same
    dynamic: bool | None = False

    def shape(self, lengths: Sequence[int]) -> Shape:
        """Requests that run together have one length: what the longest of them needs."""
        return self.batch(len(lengths)), self.length(max(lengths))


@dataclass
class Program:
    """A compiled model that says what became of each call: it "compiles", is a "hit", or runs in
    "eager"."""

    model: nn.Module
    policy: Policy
    compile: Callable[..., Any] = cl.compile
    # The shape of each call, and how many calls had which outcome
    shapes: list[Shape] = field(default_factory=list)
    said: Counter[str] = field(default_factory=Counter)
    # For each graph that was compiled: how many nodes it has. Did this call run one of them?
    nodes: list[int] = field(default_factory=list)
    ran: bool = False

    def __post_init__(self) -> None:
        self.compiled = self.compile(self.model, backend=self.count, dynamic=self.policy.dynamic)

    def count(self, gm: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        """The backend: notes each graph of the model.

        Beyond the limit single layers are compiled; they are not the model."""
        if self.nodes and len(gm.graph.nodes) < self.nodes[0] // 2:
            return gm.forward
        self.nodes.append(len(gm.graph.nodes))

        def run(*inputs: Any) -> Any:
            self.ran = True
            return gm(*inputs)

        return run

    @torch.no_grad()
    def __call__(self, shape: Shape) -> str:
        graphs_before = len(self.nodes)
        self.ran = False
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the recompile limit
            self.compiled(torch.zeros(shape, dtype=torch.int64))

        outcome = "eager"
        if len(self.nodes) > graphs_before:
            outcome = "compiles"
        elif self.ran:
            outcome = "hit"
        self.shapes.append(shape)
        self.said[outcome] += 1
        return outcome


def simulate(
    requests: Iterable[Request],
    policy: Policy,
    run: Callable[[Shape], str],
    costs: Costs = Costs(),
    most: int = 4,
) -> list[Handled]:
    """Serve `requests` in order, up to `most` of those that wait together.

    `run(shape)` says what the compiler does."""
    waiting = list(requests)
    free = 0.0  # the tick from which on the server has nothing to do
    handled = []
    while waiting:
        began = max(free, waiting[0].arrives)
        together = [request for request in waiting[:most] if request.arrives <= began]
        waiting = waiting[len(together) :]

        shape = policy.shape([request.length for request in together])
        outcome = run(shape)
        compiling = costs.compile if outcome == "compiles" else 0.0
        running = costs.call + costs.token * math.prod(shape)
        if outcome == "eager":
            running *= costs.eager
        elif policy.dynamic is not False:
            running *= costs.symbolic

        for request in together:
            length = shape[1]
            handled.append(
                Handled(request.arrives, request.length, length, began, compiling, running, shape)
            )
        free = began + compiling + running
    return handled


# ---- the model that is served --------------------------------------------------------------------


class Layer(nn.Module):
    """A transformer layer in which no token looks at a later one: padding behind a request changes
    none of its answers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Scorer(nn.Module):
    """Tokens [batch, length] → a score for each token that might come next, [batch, length,
    vocabulary]."""

    def __init__(
        self, layers: int = 2, width: int = 32, heads: int = 2, vocabulary: int = 64
    ) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
