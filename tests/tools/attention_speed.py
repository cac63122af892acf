"""Attention from plain code on a GPU: how long each compiler takes, and how much memory.

    python tests/tools/attention_speed.py                  (each compiler, FlexAttention, SDPA)
    python tests/tools/attention_speed.py --jobs tiles     (our kernel with other tiles)
    python tests/tools/attention_speed.py --training       (forward and the gradients of q, k and v)
    python tests/tools/attention_speed.py --jobs table,more,training:table,training:d128    (mixed)

Each variant is compiled in a process of its own, all at once. Then one after the other measures,
while nothing else runs: values against float64 first, then the peak of memory over the inputs, then
the times, in several rounds: in each of them every compiler has its turn. The tiles that our
kernel has: `course_lib/codegen/stream_walks.py`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from unittest.mock import patch

import torch
from torch.nn import functional as F

import course_lib as cl
from course_lib.codegen import stream_walks
from course_lib.pipeline import Pipeline
from course_lib.scheduling import stream_nodes

INF = float("inf")
WINDOW = 256
CAP = 20.0
# Heads of queries that share one of keys (grouped heads)
SHARED = 4
# The second softmax of differential attention: its scale, and how much of it is subtracted
SECOND_SCALE, SECOND_PART = 0.05, 0.4
# Keys of a step of decoding, in lengths
LONGER = 8
numbers = itertools.count()
Run = Callable[[], torch.Tensor]
# What a run gives: the result, and with `--training` the gradients
Given = tuple[torch.Tensor, ...]


@dataclass
class Sizes:
    """What is measured."""

    batch: int = 4
    heads: int = 16
    length: int = 2048
    depth: int = 64
    dtype: str = "float16"
    device: str = "cuda"
    # Backward, too
    training: bool = False

    def inputs(self, name: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        how = {"device": self.device, "dtype": getattr(torch, self.dtype)}
        rows = 1 if name == "decode" else self.length
        keys = LONGER * self.length if name == "decode" else self.length
        groups = self.heads // SHARED if name == "gqa" else self.heads
        shapes = [(self.heads, rows), (groups, keys), (groups, keys)]
        made = []
        for shape in shapes:
            operand = torch.randn((self.batch, *shape, self.depth), **how)
            made.append(operand.requires_grad_(self.training))
        if name == "alibi":
            slopes = torch.arange(1, self.heads + 1, device=self.device).float()
            made.append(torch.exp2(-8 * slopes / self.heads)[:, None, None])
        if name in ("bias", "evoformer"):
            made.append(torch.randn((self.heads, self.length, self.length), **how))
        if name == "evoformer":
            is_hidden = torch.rand((self.batch, 1, 1, self.length), device=self.device) < 0.1
            made.append(torch.zeros(is_hidden.shape, **how).masked_fill(is_hidden, -1e4))
            made.append(torch.randn(made[0].shape, **how))
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


def gqa(q, k, v):
    shared = q.shape[1] // k.shape[1]
    return plain(q, k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1))


def differential(q, k, v):
    one = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)
    return (one - SECOND_PART * torch.softmax(q @ k.mT * SECOND_SCALE, -1)) @ v


def evoformer(q, k, v, pair, mask, gate):
    """Attention along a row of AlphaFold's alignment: two biases, and a gate."""
    scores = q @ k.mT * q.shape[-1] ** -0.5 + pair + mask
    return torch.softmax(scores, -1) @ v * gate.sigmoid()


def decode(q, k, v):
    """One row of queries, many keys."""
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


VARIANTS = {
    "plain": plain,
    "causal": causal,
    "alibi": alibi,
    "soft_cap": soft_cap,
    "window": window,
    "bias": bias,
}
MORE = {"gqa": gqa, "differential": differential, "evoformer": evoformer, "decode": decode}
ALL = {**VARIANTS, **MORE}

# --- by others


def flex(name: str, inputs: list[torch.Tensor]) -> Run:
    """The same, written for FlexAttention."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v, *others = inputs
    extra = others[0].flatten() if name == "alibi" else (others[0] if others else None)
    scores = {
        "alibi": lambda score, b, h, i, j: score - extra[h] * (i - j).abs(),
        "soft_cap": lambda score, b, h, i, j: CAP * torch.tanh(score / CAP),
        "bias": lambda score, b, h, i, j: score + extra[h, i, j],
        "evoformer": lambda score, b, h, i, j: score + extra[h, i, j] + others[1][b, 0, 0, j],
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
        made = create_block_mask(masks[name], None, None, length, length, device=q.device)
        options["block_mask"] = made
    if name == "gqa":
        options["enable_gqa"] = True

    def attention(q, k, v):
        found = flex_attention(q, k, v, **options)
        if name == "differential":
            found = found - SECOND_PART * flex_attention(q, k, v, scale=SECOND_SCALE)
        return found * others[-1].sigmoid() if name == "evoformer" else found

    compiled = torch.compile(attention, dynamic=False)
    return lambda: compiled(q, k, v)


def sdpa(name: str, inputs: list[torch.Tensor]) -> Run | None:
    """The library's own, where it can say it."""
    q, k, v, *others = inputs
    if name in ("plain", "decode"):
        return lambda: F.scaled_dot_product_attention(q, k, v)
    if name == "gqa":
        return lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    if name == "differential":
        return lambda: (
            F.scaled_dot_product_attention(q, k, v)
            - SECOND_PART * F.scaled_dot_product_attention(q, k, v, scale=SECOND_SCALE)
        )
    if name == "evoformer":
        pair, mask, gate = others
        return lambda: F.scaled_dot_product_attention(q, k, v, pair + mask) * gate.sigmoid()
    if name == "causal":
        return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if name == "bias":
        mask = others[0].expand(q.shape[0], *others[0].shape)
        return lambda: F.scaled_dot_product_attention(q, k, v, mask)
    return None


def again(function):
    """The same function as another one: each is compiled by itself."""
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(numbers)}")
    return type(function)(code, function.__globals__, code.co_name)


def compiled_by(what: str, name: str, inputs: list[torch.Tensor]) -> Run | None:
    """A variant under one compiler. `before`: ours, without streams. `ours 128 64 3 4`: with this
    tile."""
    function = again(ALL[name])
    if what == "flex":
        return flex(name, inputs)
    if what == "sdpa":
        return sdpa(name, inputs)
    if what == "torch.compile":
        function = torch.compile(function, dynamic=False)
    elif what != "eager":
        function = cl.compile(function)
    return lambda: function(*inputs)


def with_gradients(run: Run, inputs: list[torch.Tensor]) -> Callable[[], Given]:
    """Forward, and with gradients of q, k and v if these are wanted."""
    wanted = [each for each in inputs if each.requires_grad]
    torch.manual_seed(1)
    given = torch.randn_like(inputs[0])

    def both() -> Given:
        out = run()
        return (out.detach(), *torch.autograd.grad(out, wanted, given))

    return both if wanted else lambda: (run(),)


def first_call(what: str, run: Callable[[], Given], job: Job) -> None:
    """Compile it."""
    kind, *tile = what.split()
    patches = [patch.object(stream_nodes, "LONGEST_WITH_SEVERAL", 256)]
    if kind == "before":
        patches.append(patch.object(Pipeline, "prints_streams", lambda self, codegen: False))
    if tile:
        rows, columns, stages, warps = map(int, tile)
        only = {256: stream_walks.walking_tile(rows, columns, stages, warps)}
        tables = ["TILES_OF_HALVES", "TILES_OF_FLOATS"]
        if job.sizes.training:
            tables = ["TILES_OF_GRADIENTS"]
        patches += [patch.object(stream_walks, table, only) for table in tables]

    for each in patches:
        each.start()
    try:
        run()
    finally:
        for each in patches:
            each.stop()


# --- measuring


def milliseconds(run: Callable[[], Given], device: str) -> float:
    """The median, each run with an empty cache."""
    if device == "cpu":
        began = time.perf_counter()
        run()
        return 1e3 * (time.perf_counter() - began)

    from triton.testing import do_bench

    return float(do_bench(run, warmup=10, rep=80, return_mode="median"))


def peak(run: Callable[[], Given], device: str) -> float:
    """MB over what was there before."""
    if device == "cpu":
        return 0.0
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 1e6


def error(got: Given, exact: Given) -> float:
    """|got - exact| / |exact|, both taken whole, of the worst of them; NaN where something is no
    number."""
    parts = [
        float((one.double() - true).norm() / true.norm())
        for one, true in zip(got, exact, strict=True)
    ]
    return math.nan if any(map(math.isnan, parts)) else max(parts)


def part_of(value: torch.Tensor, batch: int, head: int, sizes: Sizes) -> torch.Tensor:
    """What one head of one example reads of an input."""
    if value.ndim == 4 and value.shape[0] == sizes.batch:
        value = value[batch : batch + 1]
    heads = value.shape[-3]
    # Several heads may share one, or all
    place = head * heads // sizes.heads
    return value[..., place : place + 1, :, :]


def exactly(name: str, inputs: list[torch.Tensor], sizes: Sizes) -> Given:
    """In float64, one head of one example after the other."""
    torch.manual_seed(1)
    given = torch.randn_like(inputs[0])
    result = torch.zeros_like(inputs[0], dtype=torch.float64, requires_grad=False)
    wanted = [n for n, each in enumerate(inputs) if each.requires_grad]
    gradients = [torch.zeros_like(inputs[n], dtype=torch.float64) for n in wanted]
    for batch, head in itertools.product(range(sizes.batch), range(sizes.heads)):
        parts = [part_of(each.detach(), batch, head, sizes).double() for each in inputs]
        for n in wanted:
            parts[n].requires_grad_()
        out = ALL[name](*parts)
        part_of(result, batch, head, sizes).copy_(out.detach())
        if wanted:
            tangent = part_of(given, batch, head, sizes).double()
            found = torch.autograd.grad(out, [parts[n] for n in wanted], tangent)
            for whole, one in zip(gradients, found, strict=True):
                part_of(whole, batch, head, sizes).add_(one)
    return (result, *gradients)


@dataclass
class Job:
    """A variant, and under which compilers."""

    name: str
    whose: list[str]
    sizes: Sizes = field(default_factory=Sizes)
    # How often each compiler has its turn
    rounds: int = 3
    # When no further compiler starts, as `time.time()` says it
    until: float = INF

    @property
    def label(self) -> str:
        sizes = self.sizes
        shape = f"{sizes.batch}x{sizes.heads}x{sizes.length}x{sizes.depth}"
        training = ", forward and backward" if sizes.training else ""
        return f"{self.name} {sizes.dtype} {shape}{training}"


@dataclass
class Number:
    """What was measured."""

    job: str
    what: str
    ms: float
    mb: float
    error: float
    eager_error: float
    first_call_s: float
    # The median of each round
    rounds: list[float]

    def __str__(self) -> str:
        wrong = "" if self.error <= 2 * max(self.eager_error, 1e-7) else "  WRONG"
        return (
            f"{self.ms:8.3f} ms {self.mb:7.0f} MB  error {self.error:.1e} "
            f"(eager {self.eager_error:.1e})  {self.what}, first call {self.first_call_s:.0f} s{wrong}"
        )


def work(job: Job, connection) -> None:
    """One process: compile all, say so, wait, measure."""
    torch.set_grad_enabled(job.sizes.training)
    runs: dict[str, Callable[[], Given]] = {}
    took: dict[str, float] = {}
    inputs = job.sizes.inputs(job.name)
    for what in job.whose:
        began = time.time()
        if began > job.until:
            connection.send(f"{job.label}, {what}: no time was left to compile it")
            continue
        try:
            run = compiled_by(what, job.name, inputs)
            if run:
                with_all = with_gradients(run, inputs)
                first_call(what, with_all, job)
                runs[what] = with_all
        except Exception as problem:
            text = f"{job.label}, {what}: {type(problem).__name__}: {str(problem)[-400:]}"
            connection.send(text)
        took[what] = time.time() - began

    exact = exactly(job.name, inputs, job.sizes)
    eager = error(with_gradients(lambda: ALL[job.name](*inputs), inputs)(), exact)
    if job.sizes.device == "cuda":
        # Others measure on the same card
        torch.cuda.empty_cache()
    connection.send(None)
    connection.recv()

    device = job.sizes.device
    errors = {what: error(run(), exact) for what, run in runs.items()}
    peaks = {what: peak(run, device) for what, run in runs.items()}
    times: dict[str, list[float]] = {what: [] for what in runs}
    for _ in range(job.rounds):
        for what, run in runs.items():
            times[what].append(milliseconds(run, device))
    for what, found in times.items():
        median = statistics.median(found)
        number = Number(
            job.label, what, median, peaks[what], errors[what], eager, took[what], found
        )
        connection.send(number)
    if device == "cuda":
        torch.cuda.empty_cache()
    connection.send(None)


def received(connection, most: float) -> tuple[list, bool]:
    """What a process says until it says None, and whether it did. One that dies or takes too long
    has said all."""
    found = []
    end = time.time() + most
    try:
        while connection.poll(max(0.1, end - time.time())):
            said = connection.recv()
            if said is None:
                return found, True
            found.append(said)
        print("a process takes too long", flush=True)
    except EOFError:
        print("a process died", flush=True)
    return found, False


def keep(numbers: list[Number], path: str | None) -> None:
    """Write what is known so far."""
    if path:
        with open(path, "w") as file:
            json.dump([vars(number) for number in numbers], file, indent=1)


def measure(jobs: list[Job], beside: list[str], most: float, path: str | None) -> list[Number]:
    """All jobs. `beside`: commands that run while the jobs compile. `path`: where numbers are kept."""
    began = time.time()
    context = get_context("spawn")
    processes = []
    for job in jobs:
        # (The last compiler that starts needs some time, too)
        job.until = began + 0.8 * most
        mine, theirs = context.Pipe()
        process = context.Process(target=work, args=(job, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append((job, process, mine))
    others = [subprocess.Popen(command.split()) for command in beside]

    ready = []
    for job, process, connection in processes:
        problems, is_ready = received(connection, began + most - time.time())
        for problem in problems:
            print(problem, flush=True)
        if is_ready:
            ready.append((job, connection))
        else:
            print(f"not measured: {job.label}", flush=True)
            process.terminate()
    for other in others:
        other.terminate()
        other.wait()
    print(f"compiled after {time.time() - began:.0f} s", flush=True)

    numbers: list[Number] = []
    for job, connection in ready:
        print(job.label, flush=True)
        try:
            connection.send("now")
            for number in received(connection, 60)[0]:
                print(number, flush=True)
                numbers.append(number)
        except OSError:
            print("  has died", flush=True)
        keep(numbers, path)
    print(f"measured after {time.time() - began:.0f} s", flush=True)
    return numbers


WHOSE = ["ours", "sdpa", "torch.compile", "flex", "eager"]
TILES = {
    64: ["64 64 4 4", "128 64 3 4", "64 32 4 4", "64 64 2 4"],
    128: ["128 64 3 8", "64 32 3 4", "64 64 2 4"],
    256: ["64 64 2 4", "64 32 2 4", "128 32 2 8"],
}
TILES_OF_FLOATS = {
    64: ["64 64 2 4", "128 32 2 8"],
    128: ["64 32 2 8", "128 32 2 8"],
    256: ["32 32 1 4", "16 32 2 4"],
}
TILES_OF_GRADIENTS = {
    64: ["64 32 3 4", "64 64 2 4", "128 64 2 8", "128 32 3 4", "128 128 2 8"],
    128: ["64 64 2 4", "64 64 2 8", "64 32 3 4", "128 64 2 8", "128 32 3 8"],
    256: ["64 32 2 8", "64 32 1 4"],
}
"""Longest row → rows and columns of a tile, stages and warps that are tried."""


def jobs_of(kind: str, sizes: Sizes, names: list[str]) -> list[Job]:
    """Which jobs a word stands for."""
    if kind.startswith("training:"):
        return jobs_of(kind.removeprefix("training:"), replace(sizes, training=True), names)
    if kind == "more":
        return [Job(name, WHOSE, sizes) for name in MORE]
    if kind[0] == "l":
        # About as many scores, whatever the length
        length = int(kind[1:])
        few = max(1, sizes.batch * sizes.length // length)
        other = replace(sizes, length=length, batch=few)
        return [Job(name, WHOSE, other) for name in names]
    if kind == "table":
        whose = [*WHOSE, "before"] if sizes.training else WHOSE
        return [Job(name, whose, sizes) for name in names]
    if kind == "tiles":
        known = TILES_OF_GRADIENTS if sizes.training else TILES
        tiles = [f"ours {tile}" for tile in known[sizes.depth]]
        return [Job(name, ["ours", *tiles], sizes) for name in names]

    depth = int(kind[1:])
    more = (sizes.device, sizes.training)
    if kind[0] == "f":
        small = Sizes(1, 8, sizes.length, depth, "float32", *more)
        # (Gradients of float32 have no tiles of their own)
        tiles = [] if sizes.training else [f"ours {tile}" for tile in TILES_OF_FLOATS[depth]]
        return [Job("plain", ["before", "ours", *tiles], small)]
    deep = Sizes(4, 1024 // depth, sizes.length, depth, "bfloat16", *more)
    tiles = [f"ours {tile}" for tile in (TILES_OF_GRADIENTS if sizes.training else TILES)[depth]]
    before = ["before"] * sizes.training
    return [Job("causal", ["ours", "sdpa", "flex", *before, *tiles], deep)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--jobs",
        default="table",
        help="table,more,tiles,l512,l8192,d128,d256,f64,f128,f256, each also as training:table",
    )
    parser.add_argument("--save", help="a file for the numbers, as JSON")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--tiled", default="plain,causal", help="variants for `tiles`")
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--training", action="store_true", help="backward, too")
    parser.add_argument("--most", type=float, default=300, help="seconds to wait for compilers")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each compiler")
    parser.add_argument("--beside", action="append", default=[], help="a command to run meanwhile")
    options = parser.parse_args()

    # Each process compiles by itself.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    print(sys.version.split()[0], torch.__version__, flush=True)
    sizes = Sizes(
        length=options.length,
        depth=options.depth,
        device=options.device,
        training=options.training,
    )
    jobs: list[Job] = []
    for kind in options.jobs.split(","):
        chosen = options.tiled if kind.endswith("tiles") else options.variants
        jobs += jobs_of(kind, sizes, chosen.split(","))
    for job in jobs:
        job.rounds = options.rounds
    found = measure(jobs, options.beside, options.most, options.save)

    times = {(number.job, number.what): number.ms for number in found}
    ratios = [
        time / times[job, "ours"]
        for (job, what), time in times.items()
        if what == "torch.compile" and (job, "ours") in times
    ]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"torch.compile / ours, geometric mean: {mean:.2f}", flush=True)


if __name__ == "__main__":
    main()
