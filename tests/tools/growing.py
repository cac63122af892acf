"""Programs that can be made as long as one likes: what compiling takes must not grow faster than they do.

In:  a kind and about how many operations it is to have.
Out: a function and its arguments.

`compile_time.py` measures them, `generated_code.py --growing N` keeps what is generated for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F


class Grown(NamedTuple):
    """A program and its arguments."""

    function: Callable[..., torch.Tensor]
    args: tuple[torch.Tensor, ...]


def chain(count: int) -> Grown:
    """One operation after another on small elements."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for n in range(count // 2):
            x = (x * 1.01).sin() if n % 2 else x + 0.5
        return x

    return Grown(run, (torch.randn(16, 16),))


def grid(count: int) -> Grown:
    """Rows of values, each made of two of the row before."""
    width = math.isqrt(count)

    def run(x: torch.Tensor) -> torch.Tensor:
        row = [x * (n + 1) for n in range(width)]
        for _ in range(width // 2):
            row = [row[0] * 2, *(row[n] + row[n - 1].tanh() for n in range(1, width))]
        return torch.stack(row).sum(0)

    return Grown(run, (torch.randn(16, 16),))


def products(count: int) -> Grown:
    """A deep network: a matrix product, and a few cheap operations around it."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count // 4):
            x = torch.tanh(x @ x) * 0.1 + x * 0.5
        return x

    return Grown(run, (torch.randn(16, 16) / 16,))


def skips(count: int) -> Grown:
    """What is computed on the way down is added on the way up, as in a U-Net."""

    def run(x: torch.Tensor) -> torch.Tensor:
        kept = []
        for _ in range(count // 4):
            x = x.sin() * 0.9
            kept.append(x)
        for one in reversed(kept):
            x = x.flip(0) + one
        return x

    return Grown(run, (torch.randn(16, 16),))


def blocks(count: int) -> Grown:
    """Block-sparse attention as BigBird writes it: each block looks at itself, its neighbours, the ends and random ones."""
    number = max(6, count // 16)
    chosen = torch.randint(1, number - 1, (number, 2), generator=torch.Generator().manual_seed(0))
    random = chosen.tolist()

    def run(x: torch.Tensor) -> torch.Tensor:
        parts = x.reshape(number, 4, 8)
        results = []
        for n in range(number):
            near = [parts[max(n - 1, 0)], parts[n], parts[min(n + 1, number - 1)]]
            keys = torch.cat([parts[0], *near, *(parts[r] for r in random[n]), parts[-1]], 0)
            scores = torch.softmax(parts[n] @ keys.t() * 0.35, -1)
            results.append((scores @ keys).unsqueeze(0))
        return torch.cat(results, 0).reshape(x.shape)

    return Grown(run, (torch.randn(number * 4, 8),))


def norms(count: int) -> Grown:
    """Reductions between cheap operations, each of which reads the program's input once more."""

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(count // 4):
            y = F.layer_norm(y, (16,)) + x
        return y

    return Grown(run, (torch.randn(16, 16),))


GROWING: dict[str, Callable[[int], Grown]] = {
    kind.__name__: kind for kind in (chain, grid, products, skips, blocks, norms)
}
