"""Tile sizes by measuring: each kernel is built with several, and the fastest is remembered on disk for this GPU.

In:  a `TritonSource`, and tensors like those it will run on.
Out: tile sizes and warps, and an event that says what each of the others took.
In PyTorch: `torch/_inductor/runtime/triton_heuristics.py` (`CachingAutotuner`, `coordinate_descent_tuner.py`).
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib import build_cache, events
from course_lib.codegen.triton import TritonSource


def candidates(source: TritonSource) -> list[tuple[dict[str, int], int]]:
    """What is tried, the usual choice first: tiles a half to four times as large, with fewer and more warps."""
    tiling, usual = source.tiling, source.tiling.meta(False)
    changeable = "BLOCK" if "BLOCK" in usual else "ROWS" if tiling.persistent else "COLUMNS"
    tiles = [usual | {changeable: size} for factor in (1, 0.5, 2, 4) if (size := int(usual[changeable] * factor)) >= 1]
    warps = tiling.warps(usual)
    return [(tile, n) for tile in tiles for n in (warps, max(1, warps // 2), min(32, warps * 2))]


def tuned(source: TritonSource, tensors: Sequence[torch.Tensor], start: Callable[..., Any]) -> tuple[dict[str, int], int]:
    """The fastest candidate: measured now, or found on disk. `start(tile, warps)` gives the kernel as a callable."""
    tried = candidates(source)
    gpu, version = torch.cuda.get_device_name(tensors[0].device), importlib.import_module("triton").__version__
    layouts = [(t.shape, t.stride(), t.dtype) for t in tensors]
    key = build_cache.key_of("tiles", source.source, repr([tried, layouts]), gpu, version)
    took: list[float] = build_cache.remember(key, lambda: [seconds(start(*each), tensors) for each in tried])
    names = [", ".join([*(f"{name}={size}" for name, size in tile.items()), f"{warps} warps"]) for tile, warps in tried]
    best = min(range(len(tried)), key=took.__getitem__)
    events.emit(events.Autotuned(source.name, names[best], dict(zip(names, took, strict=True))))
    return tried[best]


def seconds(run: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> float:
    """The median of some runs, with nothing of the one before left in the cache; infinite for what the GPU refuses."""
    do_bench = importlib.import_module("triton.testing").do_bench
    try:
        return float(do_bench(lambda: run(*tensors), warmup=2, rep=10, return_mode="median")) / 1e3
    except importlib.import_module("triton.runtime.errors").OutOfResources:
        return float("inf")
