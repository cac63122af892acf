"""The roofline of kernels: the limits of this machine, and kernels that ran on a GPU elsewhere.

In:  this machine; or a file that `course bench suite --device cuda --json` wrote.
Out: `ceilings`: the two numbers that `trace.roofline(*ceilings())` needs. `recorded_kernels`: a
     recorded suite as a `Picture`: what each call computes and moves is counted here (nothing is
     built or run), how long it took is read from the file.
In PyTorch: `triton.testing.do_bench` and a profiler; there is no such picture.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from course_lib import Pipeline, compile
from course_lib.bench import gpu_suite, models, suite
from course_lib.bench.eager import copy_bandwidth, matmul_peak
from course_lib.viz.kit.roofline import Point
from course_lib.viz.kit.style import Picture
from course_lib.viz.pictures.runtime.kernel_limits import drawn, works_of
from course_lib.viz.trace import Trace, record

RECORDED = Path(__file__).with_name("recorded") / "h200_suite.json"
PEAKS = {"NVIDIA H200": 67e12}
"""FLOP/s in float32 without Tensor Cores, as the data sheet says: what loops can reach."""

WIDE = gpu_suite.WIDE
CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], torch.dtype]] = {
    "gelu(x * 1.5 + 0.1) + r, 268M": (
        gpu_suite.gelu_chain,
        [(32768, 8192), (32768, 8192)],
        torch.float32,
    ),
    "softmax 16384x8192": (models.softmax, [WIDE], torch.float32),
    "layer_norm 16384x8192": (models.layer_norm, [WIDE, WIDE[1:], WIDE[1:]], torch.float32),
    "softmax backward": (suite.softmax_backward, [WIDE, WIDE], torch.float32),
    "sum of columns": (lambda x: x.sum(0), [WIDE], torch.float32),
    "RoPE": (gpu_suite.rope, [(8, 32, 4096, 128), (4096, 64), (4096, 64)], torch.float16),
    "SwiGLU": (gpu_suite.swiglu, [(16384, 22016)], torch.float16),
    "layer_norm backward": (
        suite.layer_norm_backward,
        [WIDE, WIDE, WIDE[1:], (WIDE[0], 1), (WIDE[0], 1)],
        torch.float32,
    ),
    "Adam step, 1G parameters": (suite.adam_step, [(2**30,)] * 4, torch.float32),
}
"""The cases of the suite that call no library: what they compute, and the shapes of what they are
given."""


def ceilings() -> tuple[float, float]:
    """Bytes/s of a plain copy and FLOP/s of a matrix product, measured now on this machine's
    processor."""
    return copy_bandwidth(), matmul_peak()


def planned(function: Callable[..., Any], inputs: list[torch.Tensor]) -> Trace:
    """The recording of a compile for a GPU that stops before kernels are built.

    `inputs` may be on device "meta", no data."""

    def build(graph: Any, schedule: Any, plan: Any, codegen: str) -> Callable[..., tuple[Any, ...]]:
        outputs = [view.buffer for view in graph.outputs]
        return lambda *_: tuple(
            torch.empty_strided(b.shape, b.stride, dtype=b.dtype, device=b.device) for b in outputs
        )

    with torch.no_grad(), record() as trace:
        compile(function, pipeline=Pipeline().replace(build=build), options={"codegen": "triton"})(
            *inputs
        )
    return trace


def recorded_kernels(path: Path = RECORDED, names: tuple[str, ...] = tuple(CASES)) -> Picture:
    """The cases of a recorded suite under the limits of the GPU that it was recorded on."""
    recorded_suite = json.loads(path.read_text(encoding="utf-8"))
    gpu, points = recorded_suite["machine"]["gpu"], []
    for name in names:
        function, shapes, dtype = CASES[name]
        trace = planned(
            function, [torch.empty(shape, dtype=dtype, device="meta") for shape in shapes]
        )
        works = works_of(trace)
        median = next(
            outcome["median"]
            for outcome in recorded_suite["cases"][name]
            if outcome["name"] == "course_lib"
        )
        # False: it is no library's, but our kernels
        points.append(
            (
                Point(name, sum(w.operations for w in works), sum(w.bytes for w in works), median),
                False,
            )
        )
    caption = f"Whole calls, recorded on an {gpu}; the flat roof is its data sheet's. On the slope: as fast as a plain copy."
    return drawn(points, recorded_suite["copy_bandwidth"], PEAKS[gpu], caption)
