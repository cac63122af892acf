"""Attention with its gradients on one device, held against float64: each way to write it.

    python tests/tools/attention_gradients.py                       (in Triton's interpreter)
    python tests/tools/attention_gradients.py --device cuda --processes 8

A variant is a function of q, k, v and what else it reads. Its result and the gradients of q, k and v
must be as near to float64 as eager's are, within a factor of two and some roundings.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any
from unittest.mock import patch

import torch
from attention_speed import causal, plain, positions
from random_attention import distance, gradients, in_double, small_tiles

import course_lib as cl
from course_lib import events
from course_lib.scheduling import Streamed, stream_nodes

INF = float("inf")
UNITS = 16
"""Roundings of the largest number that are allowed beside twice eager's own error. (A product of
float32 is three of tf32, and a gradient has three such products behind each other.)"""


@dataclass(frozen=True)
class Shape:
    """How many there are of each, and the size of a head."""

    batch: int
    heads: int
    queries: int
    keys: int

    def queries_keys_values(self, dtype=torch.float32, depth=32, groups=1) -> list[torch.Tensor]:
        few = self.heads // groups
        counts = (self.heads, self.queries), (few, self.keys), (few, self.keys)
        return [torch.randn(self.batch, *each, depth, dtype=dtype) for each in counts]

    def scores(self) -> tuple[int, ...]:
        return self.heads, self.queries, self.keys


SMALL, LARGE = Shape(2, 2, 70, 90), Shape(2, 4, 150, 200)
"""For tiles of 16 x 16, and for those that a GPU has."""


def window(q, k, v):
    i, j = positions(q, k)
    return torch.softmax(torch.where((i - j).abs() <= 20, q @ k.mT * 0.2, -INF), -1) @ v


def empty_rows(q, k, v):
    """The first rows see nothing: NaN in eager, and in the gradients, too."""
    i, j = positions(q, k)
    return torch.softmax(torch.where(i >= j + 9, q @ k.mT * 0.2, -INF), -1) @ v


def alibi(q, k, v, slope):
    i, j = positions(q, k)
    return torch.softmax(q @ k.mT * 0.2 - ((i - j).abs() * slope).to(q.dtype), -1) @ v


def soft_cap(q, k, v):
    return torch.softmax(20 * torch.tanh(q @ k.mT * 0.2 / 20), -1) @ v


def bias(q, k, v, added):
    return torch.softmax(q @ k.mT * 0.2 + added, -1) @ v


def least_number(q, k, v, added):
    """A mask that is added, as in transformers. Some rows have nothing but it."""
    return torch.softmax((q @ k.mT * 0.2 + added).float(), -1).to(v.dtype) @ v


def grouped(q, k, v):
    return plain(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))


def other_width(q, k, v):
    """Values are wider than keys."""
    return plain(q, k, torch.cat([v, v[..., :8]], -1))


def dropped(q, k, v, keep):
    """Dropout, with the mask from outside."""
    return (torch.softmax(q @ k.mT * 0.2, -1) * keep / 0.9) @ v


def differential(q, k, v):
    one, other = torch.softmax(q @ k.mT * 0.2, -1), torch.softmax(q @ k.mT * 0.1, -1)
    return (one - 0.4 * other) @ v


def linear(q, k, v):
    i, j = positions(q, k)
    return torch.where(i >= j, q @ k.mT * 0.2, 0) @ v


def added_mask(shape, dtype):
    """The least number where a score is hidden; whole rows of it at the end."""
    rows, columns = torch.arange(shape.queries)[:, None], torch.arange(shape.keys)
    is_hidden = (columns > rows) | (rows >= shape.queries - 20)
    mask = torch.zeros(shape.queries, shape.keys, dtype=dtype)
    return mask.masked_fill_(is_hidden, torch.finfo(dtype).min)


@dataclass(frozen=True)
class Variant:
    """A function, and how its inputs are made."""

    function: Callable[..., torch.Tensor]
    make: Callable[[Shape], list[torch.Tensor]]
    # In how many streams forward and backward are
    streams: tuple[int, int] = (1, 2)


def given_as(dtype=torch.float32, depth=32, groups=1, more=()):
    """Makes q, k and v; behind them what each of `more` makes."""

    def make(shape: Shape) -> list[torch.Tensor]:
        found = shape.queries_keys_values(dtype, depth, groups)
        return [*found, *(each(shape) for each in more)]

    return make


HALF, BFLOAT = torch.float16, torch.bfloat16
VARIANTS: dict[str, Variant] = {
    "plain": Variant(plain, given_as()),
    "plain, float16": Variant(plain, given_as(HALF)),
    "plain, bfloat16, head size 40": Variant(plain, given_as(BFLOAT, 40)),
    "causal": Variant(causal, given_as()),
    "causal, float16": Variant(causal, given_as(HALF)),
    "causal, bfloat16": Variant(causal, given_as(BFLOAT)),
    "causal, float16, head size 80": Variant(causal, given_as(HALF, 80)),
    "window, float16": Variant(window, given_as(HALF)),
    "rows that see nothing": Variant(empty_rows, given_as(HALF)),
    "ALiBi": Variant(alibi, given_as(HALF, more=[lambda s: torch.rand(s.heads, 1, 1)])),
    "soft cap": Variant(soft_cap, given_as(BFLOAT)),
    "bias": Variant(bias, given_as(HALF, more=[lambda s: torch.randn(s.scores()).half()])),
    "a mask that is added": Variant(
        least_number, given_as(BFLOAT, more=[lambda s: added_mask(s, BFLOAT)])
    ),
    "grouped": Variant(grouped, given_as(HALF, groups=2)),
    "wider values": Variant(other_width, given_as(HALF)),
    "dropout": Variant(
        dropped, given_as(HALF, more=[lambda s: torch.rand(s.batch, *s.scores()) < 0.9])
    ),
    "differential": Variant(differential, given_as(HALF), (1, 3)),
    "linear": Variant(linear, given_as(HALF), (1, 3)),
}


@dataclass
class Outcome:
    """What came of one variant."""

    fault: str
    # Streams of forward and of backward
    streams: tuple[int, ...]
    # What the partitioner says
    notes: str


def far_off(got, eager, exact) -> str:
    """Which result or gradient is further from float64 than it may be; empty if none is."""
    names = [*("result" for _ in got[0]), *(f"gradient {n}" for n in range(len(got[1])))]
    found = []
    for name, one, other, true in zip(
        names, (*got[0], *got[1]), (*eager[0], *eager[1]), (*exact[0], *exact[1]), strict=True
    ):
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            found.append(f"{name} is {one.dtype} {tuple(one.shape)}, not {other.dtype}")
        elif not torch.equal(one.isnan(), other.isnan()):
            count = int(one.isnan().sum()), int(other.isnan().sum())
            found.append(f"{name} has {count[0]} NaNs, and eager has {count[1]}")
        else:
            units = UNITS * torch.finfo(other.dtype).eps * float(true.nan_to_num().abs().max())
            off, allowed = distance(one, true), 2 * distance(other, true) + units
            if off > allowed:
                found.append(f"{name} is {off:.3g} from float64, where {allowed:.3g} is allowed")
    return "; ".join(found)


def check(name: str, device: str = "cpu", tiles_are_small: bool = True) -> Outcome:
    """Compile one variant, forward and backward."""
    variant = VARIANTS[name]
    tiles: Any = small_tiles() if tiles_are_small else contextlib.nullcontext()

    def returns_one(*inputs):
        return (variant.function(*inputs),)

    seen: list[Any] = []
    cl.reset()
    torch.manual_seed(0)
    shape = SMALL if tiles_are_small else LARGE
    inputs = [each.to(device) for each in variant.make(shape)]
    wanted = range(min(3, len(inputs)))
    given = [torch.randn_like(variant.function(*inputs))]
    on_gpu = patch.object(stream_nodes, "LONGEST_WITH_SEVERAL", 256)
    with tiles, on_gpu, events.listener(seen.append):
        compiled = cl.compile(returns_one, options={"codegen": "triton"})
        got = gradients(compiled, inputs, wanted, given)
    eager = gradients(returns_one, inputs, wanted, given)
    doubles = [list(map(in_double, each)) for each in (inputs, given)]
    exact = gradients(returns_one, doubles[0], wanted, doubles[1])

    schedules = [event.schedule for event in seen if isinstance(event, events.Scheduled)]
    streams = tuple(sum(isinstance(k, Streamed) for k in s.kernels) for s in schedules)
    notes = [note for e in seen if isinstance(e, events.Partitioned) for note in e.partition.notes]
    return Outcome(far_off(got, eager, exact), streams, "; ".join(notes))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--large-tiles", action="store_true", help="the tiles that a GPU has")
    parser.add_argument("--only", help="a part of a variant's name")
    options = parser.parse_args()

    names = [name for name in VARIANTS if not options.only or options.only in name]
    began, faults = time.time(), 0
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        jobs = {pool.submit(check, n, options.device, not options.large_tiles): n for n in names}
        for job in as_completed(jobs):
            name = jobs[job]
            try:
                outcome = job.result()
            except Exception as problem:
                outcome = Outcome(f"{type(problem).__name__}: {str(problem)[-600:]}", (), "")
            if not outcome.fault and outcome.streams != VARIANTS[name].streams:
                outcome.fault = f"{outcome.streams} streams: {outcome.notes}"
            faults += bool(outcome.fault)
            print(f"{name}: {outcome.fault or 'right'}, streams {outcome.streams}", flush=True)
    print(f"{len(names)} variants in {time.time() - began:.0f} s, {faults} faults", flush=True)
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
