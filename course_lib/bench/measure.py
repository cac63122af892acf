"""How long does a call take? Several functions side by side, so that the answer survives a noisy machine.

In:  named functions without arguments.
Out: for each, `Samples`: seconds per call, one for each round.

    interleaved({"eager": lambda: f(x), "compiled": lambda: g(x)}, rounds=20, min_time=0.005)

Four habits of honest measurement, each one line of code below:
  warm up      the first calls compile, fill caches and wake the processor; they are not counted
  repeat       a clock's tick and its own cost vanish only if a sample lasts long enough (`min_time`)
  interleave   in every round each function runs once, in changing order: a slow moment hits all of them
  median       one interrupted sample moves a mean, not a median; p10 and p90 say how far to trust it

In PyTorch: `torch/utils/benchmark/utils/timer.py` (`Timer.blocked_autorange`), `triton.testing.do_bench`.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch

Call = Callable[[], object]
Clock = Callable[[Call, int], float]
"""(function, calls) → seconds for all of the calls together."""


@dataclass(frozen=True)
class Samples:
    """Seconds per call, one entry for each round; each is the mean over `calls` calls in a row."""

    seconds: tuple[float, ...]
    calls: int = 1

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))

    @property
    def p10(self) -> float:
        """One sample in ten is faster."""
        return float(np.percentile(self.seconds, 10))

    @property
    def p90(self) -> float:
        """One sample in ten is slower."""
        return float(np.percentile(self.seconds, 90))

    def times_faster_than(self, other: Samples) -> float:
        """How many times as long `other` takes: the median of the ratios round by round, for a round's two samples met the
        same machine. Both must come from one `interleaved`."""
        rounds = zip(self.seconds, other.seconds, strict=True)
        return float(np.median([theirs / ours for ours, theirs in rounds]))

    def __str__(self) -> str:
        return f"{human_time(self.median)} ({human_time(self.p10)} – {human_time(self.p90)})"


def interleaved(
    functions: Mapping[str, Call],
    rounds: int = 20,
    min_time: float = 0.005,
    warmup: int = 3,
    clock: Clock | None = None,
) -> dict[str, Samples]:
    """Measure all `functions` in turn, `rounds` times.

    rounds: samples for each function; min_time: seconds that a sample lasts at least (as many calls as fill them);
    warmup: calls of each function before the first sample; clock: `wall_clock` by default, `cuda_clock` for work on a GPU.
    Raises ValueError where there would be no sample.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, got {rounds}")
    clock = clock or wall_clock
    # The first calls are slower: caches are cold, and what is compiled is compiled there
    calls = {}
    for name, function in functions.items():
        for _ in range(warmup):
            function()
        calls[name] = calls_to_fill(min_time, function, clock)

    # A collection would fall into the sample of one of them
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    with no_garbage_collection():
        for number in range(rounds):
            for name in order_of(list(functions), number):
                seconds[name].append(clock(functions[name], calls[name]) / calls[name])
    return {name: Samples(tuple(seconds[name]), calls[name]) for name in functions}


def order_of(names: list[str], number: int) -> list[str]:
    """The order in round `number`: each takes each place in turn, and neighbours change sides: AB, BA, BA, AB, ..."""
    start = number // 2 % max(len(names), 1)
    turned = names[start:] + names[:start]
    return turned[::-1] if number % 2 else turned


def calls_to_fill(seconds: float, function: Call, clock: Clock) -> int:
    """How many calls in a row last at least `seconds`. Tries 1, 2, 4, ... until they do."""
    calls = 1
    while (duration := clock(function, calls)) < seconds:
        # Half of what would fill the time, so that one slow call does not make too many of the next try.
        enough = 0
        if duration > 0:
            enough = int(0.5 * calls * seconds / duration)
        calls = max(2 * calls, enough)
    return calls


@contextlib.contextmanager
def no_garbage_collection() -> Iterator[None]:
    """The collector runs when it likes: not inside a sample."""
    was = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def wall_clock(function: Call, calls: int) -> float:
    """For work that is done when the call returns (CPU)."""
    start = time.perf_counter()
    for _ in itertools.repeat(None, calls):
        function()
    return time.perf_counter() - start


def cuda_clock(function: Call, calls: int) -> float:
    """For work that is only queued when the call returns (GPU): the clock stops when the queue is empty."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in itertools.repeat(None, calls):
        function()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def clock_for(device: torch.device) -> Clock:
    """The clock that waits for `device`."""
    if device.type == "cuda":
        return cuda_clock
    return wall_clock


def human_time(seconds: float) -> str:
    """With a unit and three digits: '3.31 µs'."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= 0.9995 * size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds / 1e-9)} ns"


def three_digits(value: float) -> str:
    """'3.31', '33.1', '331'. A value is compared with what would be rounded up to one digit more."""
    if value < 9.995:
        return f"{value:.2f}"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}"
