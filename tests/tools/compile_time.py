"""How the time of compiling grows with the program: chains, grids, deep networks, block-sparse attention (`growing.py`).

    python tests/tools/compile_time.py [KIND ...] [--counts 100 300 1000] [--most SECONDS]

In:  kinds of programs, and about how many operations they are to have.
Out: a table in Markdown: seconds of CPU that the first call (and its backward) takes, stage by stage, and `power`: if the program
     becomes k times as long, compiling takes k to this power times as long. 1 is linear; n·log n is about 1.15 here.

CPU time of this process and of the C++ compilers that it starts: other programs on the machine hardly disturb it. Nothing is taken
from the cache on disk. A kind whose last size took more than `--most` seconds is not made longer.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import growing
import torch

import course_lib as cl
from course_lib import events

STAGES = ("capture", "trace", "partition", "lower", "schedule", "memory", "build", "guards")


def cpu() -> float:
    """Seconds of CPU so far, with the compilers that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@contextlib.contextmanager
def measured() -> Iterator[collections.Counter[str]]:
    """Within the block each stage adds its CPU time to the counter. (`events.StageTimed` has the time of the clock.)"""
    spent: collections.Counter[str] = collections.Counter()
    original = events.stage

    def stage(name: str, event: Any, function: Callable[..., Any], *args: Any) -> Any:
        start = cpu()
        try:
            return original(name, event, function, *args)
        finally:
            spent[name] += cpu() - start  # type: ignore[assignment]

    events.stage = stage
    try:
        yield spent
    finally:
        events.stage = original


def first_call(kind: str, count: int, train: bool) -> collections.Counter[str]:
    """The CPU time of each stage of a first call, and of `all`; how many kernels there are."""
    function, args = growing.GROWING[kind](count)
    args = tuple(arg.requires_grad_(train) for arg in args)
    wanted = function(*args)
    cl.reset()

    with measured() as spent:
        start = cpu()
        found = cl.compile(function)(*args)
        if train:
            found.sum().backward()
        spent["all"] = cpu() - start  # type: ignore[assignment]

    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    return spent


def rows(kind: str, train: bool, counts: list[int], most: float) -> Iterator[str]:
    """The lines of the table for one kind of program."""
    before: tuple[int, float] | None = None
    for count in counts:
        spent = first_call(kind, count, train)
        total = spent["all"]
        power = ""
        if before is not None:
            power = f"{math.log(total / before[1]) / math.log(count / before[0]):.2f}"
        times = " | ".join(f"{spent[stage]:.2f}" for stage in STAGES)
        what = "training" if train else "forward"
        yield f"| {kind} | {what} | {count:,} | {total:.1f} | {power} | {times} |"

        before = count, total
        if total > most:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", help=f"default: all of {', '.join(growing.GROWING)}")
    parser.add_argument("--counts", type=int, nargs="+", default=[100, 300, 1000, 3000])
    parser.add_argument("--most", type=float, default=30.0)
    args = parser.parse_args()

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"| program | | operations | all, s | power | {' | '.join(STAGES)} |")
    print(f"|{'---|' * (5 + len(STAGES))}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COURSE_CACHE"] = folder
        first_call("chain", 20, True)
        for kind in args.kinds or growing.GROWING:
            for train in (False, True):
                for row in rows(kind, train, args.counts, args.most):
                    print(row, flush=True)


if __name__ == "__main__":
    main()
