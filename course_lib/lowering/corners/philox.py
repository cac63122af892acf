"""Random numbers as a formula: the n-th number of a seed is the same whoever asks for it, when, and
how often.

In:  dropout, `bernoulli` and `rand` while a graph is traced with
     `options={"fallback_random": False}`.
Out: one seed for a graph, drawn by torch's generator in each call; and the operator
     `course_lib.random(seed, first, size)`.

torch's generator is a sequence: to draw again, backward would have to go back to where forward
stood. A formula melts into the kernel around it and is simply computed again: a dropout keeps 8
bytes for backward, not a mask. Eager's other numbers are the default. It is Philox-4x32-10 (Salmon
et al., "Parallel random numbers: as easy as 1, 2, 3", 2011), as in `tl.rand`.
In PyTorch: `torch/_inductor/fx_passes/replace_random.py`, `torch/_inductor/inductor_prims.py`
(`inductor_random`).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from course_lib import sizes
from course_lib.lowering.formulas import Term
from course_lib.lowering.ir import Index, View
from course_lib.lowering.lower import Lowering, lowers
from course_lib.lowering.ops import Handler, linear_index

aten = torch.ops.aten
LIBRARY = torch.library.Library("course_lib", "DEF")  # Its operators are there as long as it lives
# The tag says that backward may compute the operator again: the numbers are the same.
LIBRARY.define(
    "random(Tensor seed, SymInt first, SymInt[] size) -> Tensor", tags=(torch.Tag.pointwise,)
)
LOW = 0xFFFFFFFF  # The lower half of 64 bits
ROUNDS = 10  # As many as Philox4x32-10 has, torch's generator on a GPU
# The numbers of Philox's paper: what two of the words are multiplied by in each round, and what is
# added to the two keys after it
FACTORS = 0xD2511F53, 0xCD9E8D57
KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def philox(seed: Tensor, n: Tensor) -> Tensor:
    """Numbers in [0, 1) of float32: those at places `n` (int64) of the seed (int64, a single
    one)."""
    key, key2 = halves(seed)
    a, b = halves(n)
    c, d = torch.zeros_like(n), torch.zeros_like(n)

    for _ in range(ROUNDS):
        # 64 bits of two times 32; the sign is only one more bit
        p = a * FACTORS[0]
        q = c * FACTORS[1]
        high_p = p >> 32 & LOW
        high_q = q >> 32 & LOW

        a = high_q ^ b ^ key
        b = q & LOW
        c = high_p ^ d ^ key2
        d = p & LOW

        key = key + KEY_STEPS[0] & LOW
        key2 = key2 + KEY_STEPS[1] & LOW

    # As `tl.rand`: the 32 bits as a signed number, its magnitude times 2**-31. The factor is
    # rounded down, so that 1 is not reached.
    magnitude = torch.where(a >> 31 == 0, a, LOW - a)
    return magnitude.float() * 4.6566127342e-10


def halves(n: Tensor) -> tuple[Tensor, Tensor]:
    """The lower and the upper 32 bits of each number."""
    return n & LOW, n >> 32 & LOW


@torch.library.impl(LIBRARY, "random", "CompositeExplicitAutograd")
def random(seed: Tensor, first: int, size: Sequence[int]) -> Tensor:
    """Numbers `first`, `first` + 1, ... of the seed, in the order of memory."""
    places = torch.arange(first, first + math.prod(size), device=seed.device)
    return philox(seed, places).reshape(size)


@lowers(torch.ops.course_lib.random)
def random_loop(low: Lowering, node: fx.Node, seed: View, first: int, size: Sequence[int]) -> View:
    """One number for each element, at its place in memory."""
    stride = sizes.shape(node.meta["val"].stride())

    def body(ops: Handler, index: Index) -> Term:
        place = ops.index_expr(linear_index(index, stride, first), torch.int64)
        return Term(ops, ops.random(seed.load(ops, []), place), torch.float32)

    return low.pointwise(node, body)


def uniform(like: Tensor) -> Tensor:
    """A tensor of random numbers in [0, 1), of the shape and device of `like`.

    The graph that is traced has one seed for each device. A call takes the numbers of that seed
    that come after those of the calls before."""
    # The tracer lives as long as the graph is traced, so it keeps for each device: the seed (a
    # tensor of the graph), and how many numbers of it were drawn so far.
    drawn = vars(get_proxy_mode().tracer).setdefault("drawn", {})
    if like.device not in drawn:
        new_seed = torch.randint(2**63 - 1, (), device=like.device)
        drawn[like.device] = new_seed, 0

    seed, first = drawn[like.device]
    drawn[like.device] = seed, first + like.numel()
    return torch.ops.course_lib.random(seed, first, like.shape)


def bernoulli(x: Tensor, p: Any = None, generator: Any = None) -> Any:
    """0 or 1 for each element: the probability is `p`, or the element itself.

    A generator of its own is left to torch."""
    if generator:
        return NotImplemented

    probability = x if p is None else p
    drawn = uniform(x) < probability
    return drawn.to(x.dtype)


def bernoulli_(x: Tensor, p: Any = 0.5, generator: Any = None) -> Any:
    """`bernoulli`, written into `x`. The probability is `p`."""
    if generator:
        return NotImplemented
    return x.copy_(uniform(x) < p)


def native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    """What is kept is scaled up, so that the mean stays. Also gives which elements are kept."""
    if train is False or p in (0, 1):
        return NotImplemented

    keep_mask = uniform(x) >= p
    scale = 1 / (1 - p)
    result = keep_mask * x * scale
    return result.to(x.dtype), keep_mask


def rand(size: Sequence[int], **options: Any) -> Tensor:
    """Numbers for a tensor of this size."""
    like = aten.empty(size, **options)
    return uniform(like).to(like.dtype)


def rand_like(x: Tensor, **options: Any) -> Tensor:
    """Numbers for a tensor as `x` is."""
    like = aten.empty_like(x, **options)
    return uniform(like).to(like.dtype)


PHILOX: dict[Any, Callable[..., Any]] = {
    aten.rand.default: rand,
    aten.rand_like.default: rand_like,
    aten.bernoulli.default: bernoulli,
    aten.bernoulli.p: bernoulli,
    aten.bernoulli.Tensor: bernoulli,
    aten.bernoulli_.float: bernoulli_,
    aten.bernoulli_.Tensor: bernoulli_,
    aten.native_dropout.default: native_dropout,
}
"""Decompositions of what draws most. What asks for a generator of its own, and what is not here
(`randn`), draws from torch's."""
