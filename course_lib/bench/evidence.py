"""Compiled, and not faster: what can be counted before a profiler is needed.

In:  a function or module, and the arguments of several calls as they come in practice; the limits
     of a machine.
Out: an `Evidence`, which prints as a list of questions in the order in which they are worth asking;
     and, for a machine whose limits are known, the least time that each part of a call can take
     (`least_seconds`).

Nothing here judges. Which of the counts is the cause is what lesson 13 teaches.
In PyTorch: `TORCH_LOGS="graph_breaks,recompiles"`, `torch._dynamo.utils.counters`,
`torch.utils.flop_counter`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib import events
from course_lib.bench.compare import count
from course_lib.compiler import compile
from course_lib.viz.kit.style import human_bytes
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.recording import Recording


@dataclass(frozen=True)
class Limits:
    """A machine: bytes/s that memory delivers, FLOP/s of the library's products, seconds that a
    call of compiled code costs."""

    bandwidth: float
    peak: float
    call: float


PAPER = Limits(bandwidth=40e9, peak=400e9, call=10e-6)
"""The machine of lesson 01's roofline, small enough to check with a pencil."""


@dataclass(frozen=True)
class Evidence:
    """Counts.

    The first call compiles for its arguments; what came later is counted in `recompiles` and
    `fallbacks`."""

    calls: int
    graphs: int
    """Captured in the first call."""
    breaks: int
    """Places where a graph ended in the first call."""
    recompiles: int
    fallbacks: int
    """How often something ran in eager after all."""
    kernels: int
    library_calls: int
    loop_bytes: int
    """Bytes that the generated kernels move through memory in one call."""
    library_flops: int
    """Floating-point operations of the matrix products, convolutions and attentions in one call."""

    def rows(self) -> list[tuple[str, str, str]]:
        """Question, what was counted, and in words when that is bad news."""
        library = f"{count(self.library_calls, 'call')}, {human(self.library_flops, 'FLOP')}"
        loops = f"{count(self.kernels, 'kernel')}, {human_bytes(self.loop_bytes)}"
        return [
            (
                "1  Is it one graph?",
                f"{count(self.graphs, 'graph')}, {count(self.breaks, 'break')}",
                "more than one graph",
            ),
            (
                "2  Is it compiled once?",
                f"{count(self.recompiles, 'recompile')} in {self.calls} calls",
                "they go on",
            ),
            ("3  Does all of it run compiled?", count(self.fallbacks, "fallback"), "any"),
            ("4  What is left to libraries?", library, "nearly all of the work"),
            ("5  What do our kernels move?", loops, "next to nothing"),
        ]

    def least_seconds(self, limits: Limits = PAPER) -> dict[str, float]:
        """The least that each part of a call takes on a machine: the call, the library's
        arithmetic, our kernels' bytes."""
        return {
            "call": limits.call,
            "library": self.library_flops / limits.peak,
            "loops": self.loop_bytes / limits.bandwidth,
        }


def collect(
    function: Callable[..., Any], calls: Sequence[Sequence[Any]], **settings: Any
) -> Evidence:
    """Compile `function`, make all `calls` of it without gradients, and count.

    `settings` go to `cl.compile`."""
    first, later = Recording(), Recording()
    fast = compile(function, **settings)
    with torch.inference_mode(), warnings.catch_warnings():
        # The recompile limit warns. Here it is counted
        warnings.simplefilter("ignore")
        for number, arguments in enumerate(calls):
            recording = later if number else first
            with events.listener(recording.events.append):
                fast(*arguments)

        # The counter sees operators of torch, so eager runs under it
        with FlopCounterMode(display=False) as flops:
            function(*calls[0])

    kernels = []
    for event in first.of(events.KernelsBuilt):
        kernels += kernels_of(event.compiled)
    library = sum(kernel.is_library for kernel in kernels)
    return Evidence(
        calls=len(calls),
        graphs=len(first.graphs),
        breaks=len(first.graph_breaks),
        recompiles=len(later.recompiles),
        fallbacks=len(first.of(events.FellBack)) + len(later.of(events.FellBack)),
        kernels=len(kernels) - library,
        library_calls=library,
        loop_bytes=sum(kernel.bytes for kernel in kernels if not kernel.is_library),
        library_flops=int(flops.get_total_flops()),
    )


def human(number: int, unit: str) -> str:
    """1048576, 'FLOP' → '1.05 MFLOP'."""
    for prefix, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.3g} {prefix}{unit}"
    return f"{number} {unit}"
