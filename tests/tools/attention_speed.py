"""Attention from plain code on a GPU: how long each compiler takes, and how much memory.

    python tests/tools/attention_speed.py                    (a table: eager, torch.compile, ours, FlexAttention, SDPA)
    python tests/tools/attention_speed.py --tiles            (our kernel with other tiles: `codegen/stream_walks.py` has the best)

Values are compared with float64 first. Times are medians, everything in one process; memory is the peak over the inputs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from unittest.mock import patch

import torch
from torch.nn import functional as F

import course_lib as cl
from course_lib.codegen import stream_walks
from course_lib.pipeline import Pipeline

INF = float("inf")
numbers = itertools.count()
WINDOW = 256
CAP = 20.0


@dataclass
class Sizes:
    """What is measured."""

    batch: int = 4
    heads: int = 16
    length: int = 2048
    depth: int = 64
    dtype: torch.dtype = torch.float16

    def inputs(self, name: str) -> list[torch.Tensor]:
        shape = (self.batch, self.heads, self.length, self.depth)
        made = [torch.randn(shape, device="cuda", dtype=self.dtype) for _ in range(3)]
        if name == "alibi":
            slopes = torch.arange(1, self.heads + 1, device="cuda").float()
            made.append(torch.exp2(-8 * slopes / self.heads)[:, None, None])
        if name == "bias":
            size = (self.heads, self.length, self.length)
            made.append(torch.randn(size, device="cuda", dtype=self.dtype))
        return made


# --- as the papers write it


def positions(q, k):
    i = torch.arange(q.shape[-2], device=q.device)[:, None]
    return i, torch.arange(k.shape[-2], device=q.device)


def plain(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def causal(q, k, v):
    i, j = positions(q, k)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return torch.softmax(torch.where(i >= j, scores, -INF), -1) @ v


def alibi(q, k, v, slopes):
    i, j = positions(q, k)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return torch.softmax(scores - (slopes * (i - j).abs()).to(q.dtype), -1) @ v


def soft_cap(q, k, v):
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return torch.softmax(CAP * torch.tanh(scores / CAP), -1) @ v


def window(q, k, v):
    i, j = positions(q, k)
    scores = q @ k.mT * q.shape[-1] ** -0.5
    return torch.softmax(torch.where((i - j).abs() <= WINDOW, scores, -INF), -1) @ v


def bias(q, k, v, added):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5 + added, -1) @ v


VARIANTS = {
    "plain": plain,
    "causal": causal,
    "alibi": alibi,
    "soft cap": soft_cap,
    "window": window,
    "bias": bias,
}

# --- others


def flex(name: str, inputs: list[torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The same, written for FlexAttention."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    attention = torch.compile(flex_attention, dynamic=False)
    q, k, v, *others = inputs
    extra = others[0].flatten() if name == "alibi" else (others[0] if others else None)
    scores = {
        "alibi": lambda score, b, h, i, j: score - extra[h] * (i - j).abs(),
        "soft cap": lambda score, b, h, i, j: CAP * torch.tanh(score / CAP),
        "bias": lambda score, b, h, i, j: score + extra[h, i, j],
    }
    masks = {
        "causal": lambda b, h, i, j: i >= j,
        "window": lambda b, h, i, j: (i - j).abs() <= WINDOW,
    }
    options = {}
    if name in scores:
        options["score_mod"] = scores[name]
    if name in masks:
        length = q.shape[-2]
        options["block_mask"] = create_block_mask(masks[name], None, None, length, length)
    return lambda: attention(q, k, v, **options)


def sdpa(name: str, inputs: list[torch.Tensor]) -> Callable[[], torch.Tensor] | None:
    """The library's own, where it can say it without a matrix."""
    q, k, v, *others = inputs
    if name == "plain":
        return lambda: F.scaled_dot_product_attention(q, k, v)
    if name == "causal":
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if name == "bias":
        mask = others[0].expand(q.shape[0], *others[0].shape)
        return lambda: F.scaled_dot_product_attention(q, k, v, mask)
    return None


def called(function: Callable[..., torch.Tensor], inputs: list[torch.Tensor]):
    return lambda: function(*inputs)


# --- measuring


def milliseconds(run: Callable[[], torch.Tensor]) -> float:
    from triton.testing import do_bench

    return float(do_bench(run, warmup=20, rep=100, return_mode="median"))


def peak(run: Callable[[], torch.Tensor]) -> float:
    """MB over what was there before."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def error(got: torch.Tensor, exact: torch.Tensor) -> float:
    """|got - exact| / |exact|, both taken whole; NaN where something is no number."""
    return float((got.double() - exact).norm() / exact.norm())


def exactly(name: str, inputs: list[torch.Tensor]) -> torch.Tensor:
    """In float64, one batch after the other."""
    q, k, v, *others = inputs
    parts = []
    for n in range(len(q)):
        part = [each[n : n + 1].double() for each in (q, k, v)]
        parts.append(VARIANTS[name](*part, *(other.double() for other in others)))
    return torch.cat(parts)


def timed(what: str, run: Callable[[], torch.Tensor], exact: torch.Tensor, eager: float) -> dict:
    """Values first: nothing that is wrong is timed."""
    began = time.time()
    off = error(run(), exact)
    first = time.time() - began
    # (Eager's own error is 0 in nothing but float64.)
    if not off <= 2 * max(eager, 1e-7):
        print(f"  {what} is WRONG: {off:.3g} from float64, eager {eager:.3g}", flush=True)
    found = {"ms": milliseconds(run), "mb": peak(run), "error": off, "first_s": first}
    print(f"  {what:14} {found['ms']:.3f} ms {found['mb']:7.0f} MB  error {off:.2e}", flush=True)
    return found


@torch.no_grad()
def table(sizes: Sizes, names: Iterable[str], whose: Iterable[str]) -> dict:
    """Every variant under every compiler."""
    results: dict[str, dict] = {}
    for name in names:
        torch.manual_seed(0)
        inputs = sizes.inputs(name)
        function = VARIANTS[name]
        exact = exactly(name, inputs)
        eager = error(function(*inputs), exact)
        torch._dynamo.reset()
        runs = {
            "eager": called(function, inputs),
            "torch.compile": called(torch.compile(function, dynamic=False), inputs),
            "ours": called(cl.compile(function), inputs),
            "before": called(cl.compile(again(function)), inputs),
            "flex": flex(name, inputs),
            "sdpa": sdpa(name, inputs),
        }
        print(f"{name}, {sizes}", flush=True)
        found = results[name] = {}
        for what in whose:
            run = runs[what]
            if run is None:
                continue
            streams = what != "before"
            with patch.object(Pipeline, "prints_streams", lambda self, codegen, s=streams: s):
                try:
                    found[what] = timed(what, run, exact, eager)
                except Exception as problem:
                    print(f"  {what}: {type(problem).__name__}: {str(problem)[:300]}", flush=True)
    return results


def again(function):
    """The same function as another one: each is compiled by itself."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(numbers)}")
    return type(function)(code, function.__globals__, code.co_name)


# --- tiles


def tiles_to_try(sizes: Sizes) -> list[stream_walks.Choice]:
    """Rows, columns, stages, warps."""
    if sizes.dtype == torch.float32:
        tried = [(64, 32, 2, 4), (128, 32, 2, 8), (64, 64, 2, 8), (32, 32, 2, 4)]
    elif sizes.depth <= 64:
        tried = [(128, 64, 3, 4), (128, 128, 3, 8), (64, 64, 3, 4), (128, 64, 3, 8),
                 (128, 64, 2, 4), (64, 128, 3, 4), (128, 128, 2, 8), (128, 64, 4, 4), (128, 32, 4, 4),
                 (64, 64, 4, 4)]  # fmt: skip
    elif sizes.depth <= 128:
        tried = [(128, 64, 3, 8), (128, 64, 2, 8), (128, 128, 2, 8), (64, 64, 3, 4), (64, 64, 2, 4), (128, 32, 3, 4)]  # fmt: skip
    else:
        tried = [(64, 32, 3, 4), (64, 64, 2, 4), (128, 32, 2, 8), (128, 64, 2, 8), (64, 64, 2, 8)]
    return [stream_walks.walking_tile(*each) for each in tried]


@torch.no_grad()
def with_tile(job: tuple[Sizes, str, stream_walks.Choice]) -> Callable[[], torch.Tensor]:
    """Our kernel with this tile, compiled."""
    sizes, name, tile = job
    torch.manual_seed(0)
    tables = {"TILES_OF_HALVES": {256: tile}, "TILES_OF_FLOATS": {256: tile}}
    run = called(cl.compile(again(VARIANTS[name])), sizes.inputs(name))
    with patch.multiple(stream_walks, **tables):
        run()
    return run


def warm(job: tuple[Sizes, str, stream_walks.Choice]) -> str:
    """Fills Triton's cache on disk, in a process of its own."""
    try:
        with_tile(job)
        return ""
    except Exception as problem:
        return f"{job[1]} {job[2]}: {type(problem).__name__}: {str(problem)[-300:]}"


def try_tiles(all_sizes: list[tuple[Sizes, list[str]]]) -> dict:
    """Milliseconds of each variant with each tile."""
    jobs = [(s, name, tile) for s, names in all_sizes for name in names for tile in tiles_to_try(s)]
    with ProcessPoolExecutor(12, mp_context=get_context("spawn")) as pool:
        for problem in pool.map(warm, jobs):
            if problem:
                print(problem, flush=True)

    found: dict[str, float] = {}
    for job in jobs:
        sizes, name, tile = job
        label = f"{sizes.dtype} d{sizes.depth} {name}: {tile}, stages {tile.meta['num_stages']}"
        try:
            with torch.no_grad():
                run = with_tile(job)
                times = [milliseconds(run) for _ in range(2)]
            found[label] = statistics.median(times)
            print(f"{found[label]:.3f}  {label}", flush=True)
        except Exception as problem:
            print(f"  -    {label}: {type(problem).__name__}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--save", help="a file for the numbers, as JSON")
    parser.add_argument("--whose", default="eager,torch.compile,ours,flex,sdpa")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--dtype", default="float16")
    options = parser.parse_args()

    print(sys.version.split()[0], torch.__version__, torch.cuda.get_device_name(), flush=True)
    names = options.variants.split(",")
    dtype = getattr(torch, options.dtype)
    sizes = Sizes(length=options.length, depth=options.depth, dtype=dtype)
    if options.tiles:
        deep = Sizes(heads=8, depth=128, dtype=torch.bfloat16)
        deeper = Sizes(heads=4, depth=256, dtype=torch.bfloat16)
        floats = Sizes(batch=1, heads=8, dtype=torch.float32)
        jobs = [(sizes, names), (deep, ["plain", "causal"])]
        jobs += [(deeper, ["plain", "causal"]), (floats, ["plain"])]
        found = try_tiles(jobs)
    else:
        found = table(sizes, names, options.whose.split(","))
        ratios = [each["torch.compile"]["ms"] / each["ours"]["ms"] for each in found.values()
                  if {"torch.compile", "ours"} <= each.keys()]  # fmt: skip
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"torch.compile / ours, geometric mean: {mean:.2f}", flush=True)
    if options.save:
        with open(options.save, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
