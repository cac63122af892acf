"""Random numbers as a formula: the n-th number of a seed is the same whoever asks for it, when, and how often.

In:  dropout, `bernoulli` and `rand` while a graph is traced with `options={"fallback_random": False}`.
Out: one seed for a graph, drawn by torch's generator in each call; and the operator `course_lib.random(seed, first, size)`.

torch's generator is a sequence: to draw again, backward would have to go back to where forward stood. A formula melts into the
kernel around it and is simply computed again: a dropout keeps 8 bytes for backward, not a mask. Eager's other numbers are the
default. It is Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), as in `tl.rand`.
In PyTorch: `torch/_inductor/fx_passes/replace_random.py`, `torch/_inductor/inductor_prims.py` (`inductor_random`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from course_lib.lowering.formulas import Term
from course_lib.lowering.ir import Index, View
from course_lib.lowering.lower import Lowering, lowers
from course_lib.lowering.ops import Handler, linear_index

aten = torch.ops.aten
LIBRARY = torch.library.Library("course_lib", "DEF")  # Its operators are there as long as it lives
# may be computed again
LIBRARY.define("random(Tensor seed, int first, int[] size) -> Tensor", tags=(torch.Tag.pointwise,))
LOW = 0xFFFFFFFF  # The lower half of 64 bits


def philox(seed: Tensor, n: Tensor) -> Tensor:
    """Numbers in [0, 1) of float32: those at places `n` (int64) of the seed (int64, a single one)."""
    key, key2 = seed & LOW, seed >> 32 & LOW
    a, b, c, d = n & LOW, n >> 32 & LOW, torch.zeros_like(n), torch.zeros_like(n)
    for _ in range(10):
        # 64 bits of two times 32; the sign is only one more bit
        p, q = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (q >> 32 & LOW) ^ b ^ key, q & LOW, (p >> 32 & LOW) ^ d ^ key2, p & LOW
        key, key2 = key + 0x9E3779B9 & LOW, key2 + 0xBB67AE85 & LOW
    # the largest is just below 1
    return torch.where(a >> 31 == 0, a, LOW - a).float() * 4.6566127342e-10


@torch.library.impl(LIBRARY, "random", "CompositeExplicitAutograd")
def random(seed: Tensor, first: int, size: Sequence[int]) -> Tensor:
    """Numbers `first`, `first` + 1, ... of the seed, in the order of memory."""
    return philox(seed, torch.arange(first, first + math.prod(size), device=seed.device)).reshape(
        size
    )


@lowers(torch.ops.course_lib.random)
def random_loop(low: Lowering, node: fx.Node, seed: View, first: int, size: Sequence[int]) -> View:
    def body(ops: Handler, index: Index) -> Term:
        place = ops.index_expr(linear_index(index, node.meta["val"].stride(), first), torch.int64)
        return Term(ops, ops.random(seed.load(ops, []), place), torch.float32)

    return low.pointwise(node, body)


def uniform(like: Tensor) -> Tensor:
    """As many numbers as `like` has elements: the next of the seed that the graph being traced has for this device."""
    # Device → its seed, and how many were drawn
    drawn = vars(get_proxy_mode().tracer).setdefault("drawn", {})
    seed, first = drawn.get(like.device) or (torch.randint(2**63 - 1, (), device=like.device), 0)
    drawn[like.device] = seed, first + like.numel()
    return torch.ops.course_lib.random(seed, first, like.shape)


def bernoulli(x: Tensor, p: Any = None, generator: Any = None) -> Any:
    return NotImplemented if generator else (uniform(x) < (x if p is None else p)).to(x.dtype)


def native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    if train is False or p in (0, 1):
        return NotImplemented
    kept = uniform(x) >= p
    return (kept * x * (1 / (1 - p))).to(x.dtype), kept


PHILOX: dict[Any, Callable[..., Any]] = {
    aten.rand.default: lambda size, **options: uniform(like := aten.empty(size, **options)).to(
        like.dtype
    ),
    aten.rand_like.default: lambda x, **options: uniform(like := aten.empty_like(x, **options)).to(
        like.dtype
    ),
    **dict.fromkeys((aten.bernoulli.default, aten.bernoulli.p, aten.bernoulli.Tensor), bernoulli),
    aten.bernoulli_.float: lambda x, p=0.5, generator=None: (
        NotImplemented if generator else x.copy_(uniform(x) < p)
    ),
    aten.bernoulli_.Tensor: lambda x, p, generator=None: (
        NotImplemented if generator else x.copy_(uniform(x) < p)
    ),
    aten.native_dropout.default: native_dropout,
}
"""Decompositions of what draws most. What asks for a generator of its own, and what is not here (`randn`), draws from torch's."""
