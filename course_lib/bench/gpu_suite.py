"""`course bench suite --device cuda`: the workloads that the compiler is measured by on a GPU.

In:  a GPU (the targets were set on an H200). Out: as `suite`: a table, and with `--json` every
     sample.

Each case says in which modes both compilers run. "course_lib" and "torch.compile" are the default
mode; the others stand with their mode behind the name. `at_most` are milliseconds to reach on an
H200; that machine's processor is slow at starting kernels, so what is bound by that is better read
as a ratio to eager.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional as F

import course_lib
from course_lib.bench import compare, models, suite
from course_lib.bench.compare import Contender, Outcome, Workload
from course_lib.scheduling import No

Inputs = tuple[torch.Tensor, ...]
rand = functools.partial(torch.randn, device="cuda")
half = functools.partial(torch.randn, device="cuda", dtype=torch.float16)

DEFAULT = ("default",)
GRAPHS = ("default", "reduce-overhead")
ALL = ("default", "reduce-overhead", "max-autotune")
"""Modes in which a case is compiled: one, those with CUDA graphs, all."""


@dataclass(frozen=True)
class GpuCase:
    """A workload on the GPU, and in which modes it is compiled."""

    name: str
    function: Callable[..., Any]
    inputs: Callable[[], Inputs]
    modes: tuple[str, ...] = DEFAULT
    train: bool = False
    moved: int = 0
    """Bytes that must move at least; told as a share of the bandwidth of a plain copy."""
    at_most: Mapping[str, float] = field(default_factory=dict)
    """Who → milliseconds to reach."""
    checks: int = 2
    """On how many fresh inputs the results are compared with eager's."""

    @property
    def workload(self) -> Workload:
        return Workload(self.name, self.function, self.inputs, self.train)

    def contenders(self, torch_compile: bool = True) -> list[Contender]:
        """Eager, and in each mode ours and (with `torch_compile`) theirs."""
        chosen = [compare.eager()]
        for mode in self.modes:
            chosen.append(named(compare.ours(mode), mode))
            if torch_compile:
                chosen.append(named(compare.theirs(mode), mode))
        return chosen


def named(contender: Contender, mode: str) -> Contender:
    """The contender with its mode behind its name, if that is not the default."""
    name = contender.name if mode == "default" else f"{contender.name} {mode}"
    return Contender(name, contender.compile, contender.watch, contender.note)


# ---- formulas ------------------------------------------------------------------------------------


def gelu_chain(x, r):
    """Four operations, one pass over memory when fused."""
    return F.gelu(x * 1.5 + 0.1) + r


def many(x):
    """A hundred operations on next to nothing."""
    for _ in range(50):
        x = x * 1.01 + 0.1
    return x


def rope(x, cos, sin):
    """Rotary positions: pairs of columns are turned by an angle that grows along the sequence."""
    first_half, second_half = x.chunk(2, -1)
    return torch.cat(
        (first_half * cos - second_half * sin, second_half * cos + first_half * sin), -1
    )


def swiglu(x):
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def simple(x):
    return x * 2 + 1


# ---- cases ---------------------------------------------------------------------------------------

WIDE = (16384, 8192)
WIDE_BYTES = 4 * WIDE[0] * WIDE[1]
"""Bytes of a float32 tensor of the shape WIDE: half a GB."""


def norm_gradients() -> Inputs:
    """What `layer_norm_backward` takes."""
    x = rand(WIDE)
    mean = x.mean(-1, keepdim=True)
    rstd = (x.var(-1, unbiased=False, keepdim=True) + 1e-5).rsqrt()
    return rand(WIDE), x, rand(WIDE[1]), mean, rstd


def optimizer_state(n: int = 2**30) -> Inputs:
    """n parameters, their gradients, and Adam's two moments; a second moment is never below 0."""
    return rand(n), rand(n), rand(n), rand(n).abs_()


def block(batch: int, seq: int, train: bool, at_most: Mapping[str, float]) -> GpuCase:
    model = models.TinyBlock(768, 4).to("cuda", torch.float16)

    def inputs() -> Inputs:
        return (half(batch, seq, 768).requires_grad_(train),)

    name = f"TinyBlock {batch}x{seq}x768 {kind_of(train)}"
    modes = ALL if seq == 16 else GRAPHS
    return GpuCase(name, model, inputs, modes, train, at_most=at_most)


def kind_of(train: bool) -> str:
    return "training" if train else "inference"


def transformer(train: bool) -> GpuCase:
    model = models.Transformer(layers=6, hidden=768, heads=12).to("cuda", torch.float16)

    def inputs() -> Inputs:
        return (half(8, 128, 768).requires_grad_(train),)

    return GpuCase(f"six-layer transformer {kind_of(train)}", model, inputs, GRAPHS, train)


def densenet(train: bool) -> list[GpuCase]:
    """DenseNet-121, if timm is there."""
    try:
        timm = importlib.import_module("timm")
    except ImportError:
        return []
    model = timm.create_model("densenet121", pretrained=False).cuda().train(train)

    def inputs() -> Inputs:
        return (rand(16, 3, 128, 128).requires_grad_(train),)

    return [GpuCase(f"DenseNet-121 {kind_of(train)}", model, inputs, GRAPHS, train, checks=1)]


def norm_inputs() -> Inputs:
    return rand(WIDE), rand(WIDE[1]), rand(WIDE[1])


def labelled(rows: int = 4096, classes: int = 128256) -> Inputs:
    """Logits and the right class of each row; so many classes has the vocabulary of Llama 3."""
    return rand(rows, classes), torch.randint(0, classes, (rows,), device="cuda")


def sum_of_all(x):
    return x.sum()


def sum_of_columns(x):
    return x.sum(0)


def cross_entropy(x, labels):
    return F.cross_entropy(x, labels)


def cases() -> list[GpuCase]:
    """All of them."""
    return [
        *bound_by_memory(),
        block(32, 128, False, {"course_lib": 0.090}),
        block(1, 16, False, {"course_lib": 0.029, "course_lib reduce-overhead": 0.020}),
        block(32, 128, True, {"course_lib": 0.70, "course_lib reduce-overhead": 0.30}),
        *bound_by_the_host(),
        transformer(False),
        transformer(True),
        *densenet(False),
        *densenet(True),
    ]


def bound_by_memory() -> list[GpuCase]:
    """Each with the bytes that it must read and write."""
    return [
        GpuCase(
            "gelu(x * 1.5 + 0.1) + r, 268M",
            gelu_chain,
            # Two inputs and a result, each twice as large as WIDE
            lambda: (rand(32768, 8192), rand(32768, 8192)),
            moved=6 * WIDE_BYTES,
        ),
        GpuCase(
            "softmax 16384x8192",
            models.softmax,
            lambda: (rand(WIDE),),
            moved=2 * WIDE_BYTES,
            at_most={"course_lib": 0.262},
        ),
        GpuCase("layer_norm 16384x8192", models.layer_norm, norm_inputs, moved=2 * WIDE_BYTES),
        GpuCase(
            "rms_norm 16384x8192", models.rms_norm, lambda: norm_inputs()[:2], moved=2 * WIDE_BYTES
        ),
        GpuCase(
            "sum of all",
            sum_of_all,
            lambda: (rand(WIDE),),
            moved=WIDE_BYTES,
            at_most={"course_lib": 0.135},
        ),
        GpuCase(
            "sum of columns",
            sum_of_columns,
            lambda: (rand(WIDE),),
            moved=WIDE_BYTES,
            at_most={"course_lib": 0.135},
        ),
        GpuCase(
            "layer_norm backward", suite.layer_norm_backward, norm_gradients, moved=3 * WIDE_BYTES
        ),
        GpuCase(
            "softmax backward",
            suite.softmax_backward,
            lambda: (rand(WIDE), rand(WIDE).softmax(-1)),
            moved=3 * WIDE_BYTES,
        ),
        # the logits, read once
        GpuCase("cross entropy, 128k classes", cross_entropy, labelled, moved=4096 * 128256 * 4),
        GpuCase(
            "Adam step, 1G parameters",
            suite.adam_step,
            optimizer_state,
            # four tensors of 2**30 float32 are read, three are written
            moved=7 * 2**32,
            checks=1,
        ),
        GpuCase(
            "RoPE",
            rope,
            lambda: (half(8, 32, 4096, 128), half(4096, 64), half(4096, 64)),
            # read and written, 2 bytes each
            moved=4 * 8 * 32 * 4096 * 128,
        ),
        # both halves of the rows are read, one half is written, 2 bytes each
        GpuCase("SwiGLU", swiglu, lambda: (half(16384, 22016),), moved=3 * 2 * 16384 * 11008),
    ]


def bound_by_the_host() -> list[GpuCase]:
    """Next to no work: what is left is the cost of a call, and of starting kernels."""
    limit = {"course_lib": 0.012}
    return [
        GpuCase("x * 2 + 1 on 4", simple, lambda: (rand(4),), GRAPHS, at_most=limit),
        GpuCase("100 operations on 4", many, lambda: (rand(4),), GRAPHS, at_most=limit),
    ]


def ablation() -> tuple[GpuCase, list[Contender]]:
    """One transformer, and what each part of the compiler is worth: all of it, then without one
    part at a time."""
    whole = course_lib.Pipeline()

    def apart(producer: Any, consumer: Any) -> No:
        return No("fusion is switched off")

    chosen = [
        ours_with("all", "reduce-overhead", whole),
        ours_with("no CUDA graphs", "default", whole),
        ours_with("no fusion", "reduce-overhead", whole.replace(fuse=apart)),
        ours_with("no decompositions", "reduce-overhead", whole.replace(decompositions={})),
    ]
    return transformer(False), [compare.eager(), *chosen]


def ours_with(name: str, mode: str, pipeline: course_lib.Pipeline) -> Contender:
    """Our compiler with a pipeline of its own."""

    def compile(function: Callable[..., Any]) -> Callable[..., Any]:
        return course_lib.compile(function, mode=mode, pipeline=pipeline)

    return Contender(f"course_lib, {name}", compile, compare.watch_ours)


# ---- the table -----------------------------------------------------------------------------------


def lines_of(case: GpuCase, outcomes: list[Outcome], copy: float) -> list[tuple[str, ...]]:
    """A row for each contender: milliseconds, times faster than eager, and than torch.compile in
    its best mode."""
    timed = {outcome.name: outcome.samples.median for outcome in outcomes if outcome.samples}
    theirs = [seconds for name, seconds in timed.items() if name.startswith("torch.compile")]
    best = min(theirs, default=None)

    rows: list[tuple[str, ...]] = []
    for name, seconds in timed.items():
        share = ""
        if case.moved:
            share = f"{case.moved / seconds / copy:.2f}"
        rows.append(
            (
                case.name,
                name,
                f"{seconds * 1e3:.4f}",
                times_faster(seconds, timed.get("eager")),
                times_faster(seconds, best),
                share,
                limit_text(seconds * 1e3, case.at_most.get(name)),
            )
        )
    return rows


def times_faster(seconds: float, other: float | None) -> str:
    """'1.25x', or a dash where the other one was not timed."""
    if other:
        return f"{other / seconds:.2f}x"
    return "–"


def limit_text(milliseconds: float, most: float | None) -> str:
    """'0.09 ms', with a mark if it was missed; nothing where there is no limit."""
    if most is None:
        return ""
    if milliseconds > most:
        return f"{most} ms!"
    return f"{most} ms"


HEAD = ("case", "who", "ms", "vs eager", "vs torch.compile's best", "of a copy", "must")


def copy_bandwidth() -> float:
    """Bytes a second that a plain copy of 2 GB reads and writes."""
    from course_lib.bench.measure import cuda_clock

    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    # The first copy is no sample; twenty are timed together
    target.copy_(source)
    return 2 * source.nbytes * 20 / cuda_clock(lambda: target.copy_(source), 20)
