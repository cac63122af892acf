"""Is communication hidden behind backward? A model under `DistributedDataParallel`, eager and compiled, on all GPUs of a machine.

    python -m course_lib.bench.overlap ddp_overlap.json

Each process has a GPU. A profiler says when NCCL's kernels and all others ran; `hidden` is the part of NCCL's time in which
others ran too. DDP sends a bucket of gradients as soon as backward has computed it. Eager does so layer by layer; a module that
is compiled as a whole hands out all gradients at its end, so there is nothing left to hide behind; modules that are compiled one
by one hand them out one by one.
"""

import datetime
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import course_lib as cl

BLOCKS, WIDTH, TOKENS, STEPS = 8, 2048, 8192, 20
Spans = list[tuple[float, float]]


def block() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))


WAYS = {
    "eager": lambda: nn.Sequential(*(block() for _ in range(BLOCKS))),
    "compiled as a whole": lambda: cl.compile(nn.Sequential(*(block() for _ in range(BLOCKS)))),
    "each block compiled": lambda: nn.Sequential(*(cl.compile(block()) for _ in range(BLOCKS))),
}


def merged(spans: Iterable[tuple[float, float]]) -> Spans:
    """Spans of time that do not overlap, in order."""
    result: Spans = []
    for start, end in sorted(spans):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


def length(spans: Spans) -> float:
    return sum(end - start for start, end in spans)


def both(a: Spans, b: Spans) -> Spans:
    """When both run."""
    return merged((max(s, t), min(e, f)) for s, e in a for t, f in b if max(s, t) < min(e, f))


def measure(way: str, rank: int) -> dict[str, float]:
    torch.manual_seed(0)
    model = DistributedDataParallel(WAYS[way]().cuda().bfloat16(), device_ids=[rank])
    x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        model.zero_grad()
        model(x).float().square().mean().backward()

    for _ in range(5):
        step()
    took = []
    for _ in range(STEPS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        step()
        end.record()
        end.synchronize()
        took.append(start.elapsed_time(end))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    ran = [e for e in seen.events() if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith("Mem")]
    when = lambda talks: merged((e.time_range.start, e.time_range.end) for e in ran if ("nccl" in e.name) == talks)
    talk, work = when(True), when(False)
    hidden = length(both(talk, work)) / max(length(talk), 1e-9)
    per_step = {"nccl_ms": length(talk) / 3e3, "compute_ms": length(work) / 3e3}
    return {"step_ms": statistics.median(took), **per_step, "hidden": hidden}


def main(rank: int, world: int, path: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    found = {way: measure(way, rank) for way in WAYS}
    if rank == 0:
        about: dict[str, Any] = {
            "benchmark": "overlap",
            "date": str(datetime.date.today()),
            "machine": f"{world} x {torch.cuda.get_device_name()}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "model": f"{BLOCKS} blocks of width {WIDTH}, {TOKENS} tokens for each GPU, bfloat16",
        }
        with open(path, "w") as file:
            json.dump({**about, "ways": found}, file, indent=1)
        print(json.dumps(found, indent=1))
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, args=(torch.cuda.device_count(), sys.argv[1]), nprocs=torch.cuda.device_count())
