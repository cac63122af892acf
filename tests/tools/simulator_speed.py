"""How long does the simulated GPU take beside Triton's plain interpreter? Lesson 09's kernels, and one tile of 1024 × 1024.

    python tests/tools/simulator_speed.py            (a table; a minute)
    python tests/tools/simulator_speed.py --profile softmax      (where the simulator's time goes)

Two processes live side by side: one imports Triton with TRITON_INTERPRET=1 and nothing of ours, the other the simulator. They are
asked in turn, kernel by kernel, and answer with the processor time that some launches took, so what else the machine does counts
little. A ratio is one turn's; the table gives the median of the turns.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

TURNS = 7
WAYS = ("checks", "values")
"""How the simulator runs: with all that is on from the start, or for the values alone."""


@dataclass(frozen=True)
class Case:
    """A kernel of lesson 09 with its arguments: `start` launches it, `launches` times for one measurement."""

    start: Callable[[], Any]
    launches: int = 10


def cases() -> dict[str, Case]:
    """The kernels. They are made here, after Triton was imported in the right way."""
    import torch
    import triton
    import triton.language as tl

    @triton.jit
    def double_kernel(x, out, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.store(out + i, tl.load(x + i, mask) * 2, mask)

    @triton.jit
    def softmax_kernel(x, out, n_rows, n_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
        j = tl.arange(0, COLUMNS)[None, :]
        mask = (i < n_rows) & (j < n_columns)
        value = tl.load(x + i * n_columns + j, mask, other=float("-inf"))
        value = tl.exp(value - tl.max(value, 1, keep_dims=True))
        tl.store(out + i * n_columns + j, value / tl.sum(value, 1, keep_dims=True), mask)

    @triton.jit
    def sum_kernel(
        x, out, n_rows, n_columns: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
    ):
        i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
        total = tl.full([ROWS, COLUMNS], 0.0, tl.float32)
        for start in range(0, n_columns, COLUMNS):
            j = (start + tl.arange(0, COLUMNS))[None, :]
            total += tl.load(x + i * n_columns + j, (i < n_rows) & (j < n_columns), other=0.0)
        tl.store(out + i, tl.sum(total, 1, keep_dims=True), i < n_rows)

    @triton.jit
    def product_kernel(x, y, out):
        i = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
        tl.store(out + i, tl.dot(tl.load(x + i), tl.load(y + i), input_precision="ieee"))

    @triton.jit
    def count_kernel(x, counts, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        tl.atomic_add(counts + tl.load(x + i, mask, other=0), 1, mask)

    @triton.jit
    def tile_kernel(x, y, out, N: tl.constexpr):
        i = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
        value = tl.load(x + i) * 2 + tl.load(y + i)
        tl.store(out + i, tl.where(value > 0, value, 0.0))

    x, out = torch.arange(10.0), torch.zeros(12)
    rows, probabilities = torch.randn(64, 60), torch.zeros(64, 60)
    long, sums = torch.randn(16, 200), torch.zeros(16)
    square, other, result = torch.randn(16, 16), torch.randn(16, 16), torch.zeros(16, 16)
    numbers, counts = torch.arange(48) % 4, torch.zeros(4, dtype=torch.int64)
    big, more, tile = torch.randn(1024, 1024), torch.randn(1024, 1024), torch.zeros(1024, 1024)
    return {
        "double": Case(lambda: double_kernel[(3,)](x, out, 10, BLOCK=4)),
        "softmax": Case(
            lambda: softmax_kernel[(8,)](rows, probabilities, 64, 60, ROWS=8, COLUMNS=64)
        ),
        "sum in steps": Case(lambda: sum_kernel[(4,)](long, sums, 16, 200, ROWS=4, COLUMNS=32)),
        "product": Case(lambda: product_kernel[(1,)](square, other, result)),
        "atomic count": Case(lambda: count_kernel[(12,)](numbers, counts, 48, BLOCK=4)),
        "a tile of 1024 x 1024": Case(lambda: tile_kernel[(1,)](big, more, tile, N=1024), 1),
    }


# ---- the processes that are asked -----------------------------------------------------------------------------------


def work(which: str) -> None:
    """Answer with processor seconds for each line that names a kernel and a way."""
    os.environ["TRITON_INTERPRET"] = "1"
    if which == "simulated":
        import course_lib as cl
    known = cases()
    for line in sys.stdin:
        name, way = json.loads(line)
        if which == "simulated":
            off = way == "values"
            with cl.simulator.using(checks=not off, refusals=not off):
                taken = processor_time(known[name])
        else:
            taken = processor_time(known[name])
        print(json.dumps(taken), flush=True)


def processor_time(case: Case) -> float:
    """Seconds of processor time for one launch."""
    began = time.process_time()
    for _ in range(case.launches):
        case.start()
    return (time.process_time() - began) / case.launches


class Worker:
    """One of the two processes."""

    def __init__(self, which: str) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", which],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, name: str, way: str = "") -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([name, way]), file=self.process.stdin, flush=True)
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(names: list[str]) -> None:
    """Ask both in turn, and print the table."""
    plain, simulated = Worker("plain"), Worker("simulated")
    print("| kernel | interpreter | with checks | times | values only | times |")
    print("|---|---|---|---|---|---|")
    for name in names:
        # the first launch of each compiles, or asks the compiler for its verdict
        plain.ask(name)
        for way in WAYS:
            simulated.ask(name, way)

        taken: dict[str, list[float]] = {"plain": [], "checks": [], "values": []}
        for _ in range(TURNS):
            taken["plain"].append(plain.ask(name))
            for way in WAYS:
                taken[way].append(simulated.ask(name, way))
        milliseconds = {way: 1e3 * statistics.median(each) for way, each in taken.items()}
        times = {
            way: statistics.median(a / b for a, b in zip(taken[way], taken["plain"], strict=True))
            for way in WAYS
        }
        print(
            f"| {name} | {milliseconds['plain']:.2f} ms | {milliseconds['checks']:.2f} ms | "
            f"{times['checks']:.2f} | {milliseconds['values']:.2f} ms | {times['values']:.2f} |",
            flush=True,
        )
    plain.end()
    simulated.end()


def profile(name: str) -> None:
    """Where the simulator's time goes with the checks on."""
    os.environ["TRITON_INTERPRET"] = "1"
    import course_lib

    assert course_lib.simulator
    case = cases()[name]
    case.start()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(20 * case.launches):
        case.start()
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", help="names; all if none is given")
    parser.add_argument("--worker", choices=["plain", "simulated"], help=argparse.SUPPRESS)
    parser.add_argument("--profile", metavar="KERNEL")
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
    elif options.profile:
        profile(options.profile)
    else:
        measure(options.kernels or list(NAMES))


NAMES = ["double", "softmax", "sum in steps", "product", "atomic count", "a tile of 1024 x 1024"]

if __name__ == "__main__":
    main()
