"""`course bench suite`: the workloads that the compiler is measured by on a CPU, each with what it
must reach.

In:  nothing but this machine (`names` picks some).
Out: for each case eager, torch.compile and course_lib in one process, interleaved; the ratio that
     the case asks for, and whether it was reached.

Backward passes of norms, softmax and cross entropy, and a step of Adam, stand here as plain
formulas: what a training step spends its time on beside matrix products. Results are checked first,
as everywhere in `bench`.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

from course_lib.bench import models
from course_lib.bench.compare import Outcome, Workload
from course_lib.bench.measure import human_time
from course_lib.bench.report import columns, speedup

rand = torch.randn


@dataclass(frozen=True)
class Case:
    """A workload, and how many times faster than torch.compile (or eager) it must be."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], tuple[torch.Tensor, ...]]
    must: dict[str, float] = field(default_factory=lambda: {"torch.compile": 1.2})
    train: bool = False
    moved: int = 0
    """Bytes that must move at least; told as a share of the bandwidth of a plain copy."""

    @property
    def workload(self) -> Workload:
        return Workload(self.name, self.function, self.inputs, self.train)


# ---- formulas ------------------------------------------------------------------------------------


def layer_norm_backward(upstream, x, weight, mean, rstd):
    """The gradients of x, weight and bias."""
    normal = (x - mean) * rstd
    g = upstream * weight
    dx = (g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True)) * rstd
    return dx, (upstream * normal).sum(0), upstream.sum(0)


def rms_norm_backward(upstream, x, weight, rstd):
    """The gradients of x and weight."""
    normal = x * rstd
    g = upstream * weight
    dx = (g - normal * (g * normal).mean(-1, keepdim=True)) * rstd
    return dx, (upstream * normal).sum(0)


def softmax_backward(upstream, y):
    return (upstream - (upstream * y).sum(-1, keepdim=True)) * y


def cross_entropy_backward(logits, labels):
    """The gradient of the mean loss: the probabilities, less one at the label."""
    hit = torch.arange(logits.shape[1]) == labels[:, None]
    return (torch.softmax(logits, -1) - hit.to(logits.dtype)) / logits.shape[0]


def adam_step(parameter, gradient, first, second):
    """The tenth step with PyTorch's default settings: the new parameter and both moments."""
    first = first * 0.9 + gradient * 0.1
    second = second * 0.999 + gradient * gradient * 0.001
    step = first / (1 - 0.9**10) / ((second / (1 - 0.999**10)).sqrt() + 1e-8)
    return parameter - 1e-3 * step, first, second


# ---- cases ---------------------------------------------------------------------------------------


def pointwise(rows: int, must: float, dtype: torch.dtype = torch.float32) -> Case:
    """Two inputs of this many rows are read, and one result is written."""
    shapes = ((rows, 1024), (1024,), (1024,), (rows, 1024))

    def inputs() -> tuple[torch.Tensor, ...]:
        return tuple(rand(shape).to(dtype) for shape in shapes)

    # numbers of elements, 1024 a row
    label = {64: "64k", 1024: "1M", 16384: "16M"}[rows]
    name = f"pointwise chain {label} {str(dtype).removeprefix('torch.')}"
    bytes_moved = 3 * rows * 1024 * dtype.itemsize
    return Case(name, models.scaled_gelu, inputs, {"torch.compile": must}, moved=bytes_moved)


def norm_inputs(with_mean: bool) -> tuple[torch.Tensor, ...]:
    """What a norm's backward takes: layer_norm's has the mean, too."""
    x = rand(8192, 768)
    mean = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    statistics = (mean, rstd) if with_mean else (rstd,)
    return rand(8192, 768), x, rand(768), *statistics


def labelled(rows: int = 2048, classes: int = 8192) -> tuple[torch.Tensor, ...]:
    """Logits, and the right class of each row."""
    return rand(rows, classes), torch.randint(0, classes, (rows,))


def optimizer_state(n: int = 10_000_000) -> tuple[torch.Tensor, ...]:
    """n parameters, their gradients, and Adam's two moments; a second moment is never below 0."""
    return rand(n), rand(n), rand(n), rand(n).abs()


def block(batch: int, seq: int, hidden: int, train: bool, must: float) -> Case:
    def inputs() -> tuple[torch.Tensor, ...]:
        return (rand(batch, seq, hidden).requires_grad_(train),)

    name = f"TinyBlock {batch}x{seq}x{hidden} {'training' if train else 'inference'}"
    model = models.TinyBlock(hidden, expansion=4).train(train)
    return Case(name, model, inputs, {"torch.compile": must}, train=train)


def transformer(train: bool, must: float) -> Case:
    def inputs() -> tuple[torch.Tensor, ...]:
        return (rand(8, 64, 256).requires_grad_(train),)

    name = f"six-layer transformer {'training' if train else 'forward'}"
    model = models.Transformer(layers=6, hidden=256, heads=4).train(train)
    return Case(name, model, inputs, {"torch.compile": must}, train)


def cases() -> list[Case]:
    """All of them. Inputs are float32 unless the name says otherwise. The numbers are what must be
    reached, as in `Case.must`; `moved` of softmax: 4 bytes a number, read once and written once."""
    from_both = {"torch.compile": 1.6, "eager": 1.0}
    return [
        pointwise(64, 1.8), pointwise(1024, 1.8), pointwise(16384, 1.0),
        pointwise(1024, 1.0, torch.float16), pointwise(1024, 1.0, torch.bfloat16),
        Case("softmax 4096x4096", models.softmax, lambda: (rand(4096, 4096),), {"torch.compile": 1.3}, moved=2 * 4 * 4096**2),
        Case("layer_norm 8192x768", models.layer_norm, lambda: (rand(8192, 768), rand(768), rand(768)), from_both),
        Case("rms_norm 8192x768", models.rms_norm, lambda: (rand(8192, 768), rand(768))),
        Case("layer_norm backward", layer_norm_backward, lambda: norm_inputs(with_mean=True)),
        Case("rms_norm backward", rms_norm_backward, lambda: norm_inputs(with_mean=False)),
        Case("softmax backward", softmax_backward, lambda: (rand(4096, 1024), rand(4096, 1024).softmax(-1))),
        Case("cross entropy", F.cross_entropy, labelled),
        Case("cross entropy backward", cross_entropy_backward, labelled),
        Case("Adam step, 10M parameters", adam_step, optimizer_state),
        block(32, 128, 768, False, 1.7), block(32, 128, 768, True, 1.4),
        block(4, 32, 256, False, 1.6), block(4, 32, 256, True, 1.3),
        transformer(False, 1.4), transformer(True, 1.3),
        Case("overhead: x * 2 + y on 4", models.scale_and_add, lambda: (rand(4), rand(4)), {"torch.compile": 1.75}),
    ]  # fmt: skip


# ---- the table -----------------------------------------------------------------------------------


def keep_memory() -> bool:
    """Let the C library keep what is freed, for all contenders alike; True if it can.

    By default glibc gives every piece over 32 MB back at once, and the next one page-faults: 64 MB
    cost more than any kernel that fills them."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False

    # The numbers of these options in malloc.h.
    trim_threshold, mmap_max = -1, -4
    return bool(mallopt(mmap_max, 0) and mallopt(trim_threshold, 2**31 - 1))


HEAD = (
    "",
    "eager",
    "torch.compile",
    "course_lib",
    "vs eager",
    "vs torch.compile",
    "copy",
    "library",
    "must",
)


def line_of(
    case: Case, outcomes: Sequence[Outcome], copy: float, library: float | None = None
) -> tuple[str, ...]:
    """A row of the table.

    `copy`: bytes/s of a plain copy; `library`: the share of our time that is library calls. A ratio
    that misses what it must reach is marked."""
    by_name = {outcome.name: outcome for outcome in outcomes}
    times = [time_text(by_name.get(name)) for name in HEAD[1:4]]

    ours = by_name["course_lib"]
    ratios = []
    for base in ("eager", "torch.compile"):
        ratios.append(ratio_text(speedup(ours, outcomes, base), case.must.get(base)))

    share = ""
    if case.moved and ours.samples:
        share = f"{case.moved / ours.samples.median / copy:.2f}"
    library_share = "" if library is None else f"{library:.2f}"
    must = ", ".join(f"{least}x {base}" for base, least in case.must.items())
    return case.name, *times, *ratios, share, library_share, must


def time_text(outcome: Outcome | None) -> str:
    """The median, or a dash where nothing was timed."""
    if outcome is None or not outcome.samples:
        return "–"
    return human_time(outcome.samples.median)


def ratio_text(ratio: float | None, least: float | None) -> str:
    """'1.25x', with a mark behind it if it is below `least`; a dash if there is no ratio."""
    if ratio is None:
        return "–"
    if least is None:
        return f"{ratio:.2f}x"
    # A blank keeps the numbers of a column in line.
    if ratio >= least:
        return f"{ratio:.2f}x "
    return f"{ratio:.2f}x!"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    return columns([HEAD, *rows])


def geometric_mean(outcomes: Sequence[Sequence[Outcome]], base: str) -> float:
    """The geometric mean of the ratios to `base`, over the cases where both were timed; nan if
    there are none."""
    logarithms = []
    for several in outcomes:
        ours = next(outcome for outcome in several if outcome.name == "course_lib")
        ratio = speedup(ours, several, base)
        if ratio is not None:
            logarithms.append(math.log(ratio))

    if not logarithms:
        return math.nan
    return math.exp(sum(logarithms) / len(logarithms))


@functools.cache
def known() -> dict[str, Case]:
    return {case.name: case for case in cases()}
