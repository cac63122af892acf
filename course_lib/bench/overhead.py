"""What of a call of compiled code is neither kernel nor torch: guards and events.

In:  nothing. Out: for course_lib and torch.compile, medians of one interleaved run:

    guards    a forward of TinyBlock whose graph answers at once with a stored result: hook, guards
              and head alone
    record    `x * 2 + y` on four elements while `cl.record()` listens, and without: what events
              cost on compiled code
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

import course_lib as cl
from course_lib.bench.measure import Samples, interleaved
from course_lib.bench.models import TinyBlock


def stored(gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
    """A backend that runs the graph once, while it compiles. Each call gets that answer."""
    with torch.no_grad():
        answer = gm(*example_inputs)
    return lambda *args: answer


def measure(rounds: int = 20, with_torch: bool = True) -> dict[str, dict[str, Samples]]:
    """Samples by row and contender."""
    block, h = TinyBlock(64, 2).eval(), torch.randn(2, 8, 64)
    engines: dict[str, Any] = {"course_lib": cl.compile, "torch.compile": torch.compile}
    if not with_torch:
        del engines["torch.compile"]

    # The graph answers at once, so what a call takes is guards.
    guards = {}
    for name, compile in engines.items():
        guards[name] = functools.partial(compile(block, backend=stored), h)

    x, y = torch.randn(4), torch.randn(4)
    function = cl.compile(lambda x, y: x * 2 + y)

    def recorded() -> object:
        with cl.record():
            return function(x, y)

    def quiet() -> object:
        with contextlib.nullcontext():
            return function(x, y)

    with torch.no_grad():
        return {
            "guards": interleaved(guards, rounds=rounds),
            "record": interleaved(
                {"nobody listens": quiet, "cl.record()": recorded}, rounds=rounds
            ),
        }


def table(measured: dict[str, dict[str, Samples]]) -> str:
    lines = []
    for row, samples in measured.items():
        first = next(iter(samples.values()))
        for name, sample in samples.items():
            # "times faster" turned round: how many times as long it takes
            ratio = (
                ""
                if sample is first
                else f"   {sample.times_faster_than(first) ** -1:.2f}x the time of the first"
            )
            lines.append(f"{row:8}{name:16}{sample!s:>34}{ratio}")
    return "\n".join(lines)
