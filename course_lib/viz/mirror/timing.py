"""How long one call takes, for several ways to make it.

In:  calls by name. Out: seconds for one call of each.
"""

from __future__ import annotations

import contextlib
import io
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def interleaved(
    calls: Mapping[Any, Callable[[], Any]], rounds: int = 7, seconds: float = 0.003
) -> dict[Any, float]:
    """Seconds for one call of each: the median of rounds in which all take turns.

    (Lesson 13 measures with more care.)"""
    took: dict[Any, list[float]] = {name: [] for name in calls}
    with silent():
        # A clock is too coarse for one fast call: so many are timed together.
        times = {name: how_often(call, seconds) for name, call in calls.items()}
        for _ in range(rounds):
            for name, call in calls.items():
                took[name].append(seconds_for(call, times[name]) / times[name])
    return {name: sorted(found)[rounds // 2] for name, found in took.items()}


def how_often(call: Callable[[], Any], seconds: float) -> int:
    """How many calls take about so many seconds; at least one."""
    call()  # once not timed: the first is slower
    return max(1, int(seconds / max(seconds_for(call, 1), 1e-7)))


def seconds_for(call: Callable[[], Any], times: int) -> float:
    """Seconds for so many calls together."""
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """What is called many times over only to be timed prints nothing, and warns of nothing."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
