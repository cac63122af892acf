"""Is communication hidden behind compute? A model on all GPUs of a machine under `DistributedDataParallel` (DDP) and under
`fully_shard` (FSDP2), eager and compiled: are the gradients right, how long does a step take, and what ran when?

    python -m course_lib.bench.overlap overlap.json

Each process has a GPU. A profiler says when NCCL's kernels and all others ran; `hidden` is the part of NCCL's time in which
others ran too. DDP sends a bucket of gradients as soon as backward has computed it. Eager does so layer by layer; a module that
is compiled as a whole would hand out all gradients at its end, so its graph is cut (`course_lib/autograd/buckets.py`).
"""

import datetime
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import course_lib as cl
from course_lib.viz.pictures.runtime.launches import Launch

BLOCKS, WIDTH, TOKENS, STEPS = 8, 2048, 8192, 20
Span = tuple[float, float]
Spans = list[Span]


def blocks(width: int) -> list[nn.Module]:
    """Each a LayerNorm and two Linears with a GELU between."""
    of_one = lambda: (
        nn.LayerNorm(width),
        nn.Linear(width, 4 * width),
        nn.GELU(),
        nn.Linear(4 * width, width),
    )
    return [nn.Sequential(*of_one()) for _ in range(BLOCKS)]


def replicated(model: nn.Module) -> nn.Module:
    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


def sharded(model: nn.Module) -> nn.Module:
    for block in model.children():
        fully_shard(block)
    fully_shard(model)
    return model


def forward_compiled(block: nn.Module) -> nn.Module:
    block.forward = cl.compile(block.forward)
    return block


Build = Callable[[list[nn.Module]], nn.Module]
WAYS: dict[str, Build] = {
    "DDP, eager": lambda parts: replicated(nn.Sequential(*parts)),
    "DDP, compiled as a whole": lambda parts: replicated(cl.compile(nn.Sequential(*parts))),
    "DDP, compiled around DDP": lambda parts: cl.compile(replicated(nn.Sequential(*parts))),
    "DDP, each block compiled": lambda parts: replicated(nn.Sequential(*map(cl.compile, parts))),
    "DDP, as a whole, reduce-overhead": lambda parts: replicated(
        cl.compile(nn.Sequential(*parts), mode="reduce-overhead")
    ),
    "DDP, torch.compile as a whole": lambda parts: replicated(torch.compile(nn.Sequential(*parts))),
    "FSDP2, eager": lambda parts: sharded(nn.Sequential(*parts)),
    "FSDP2, compiled as a whole": lambda parts: cl.compile(sharded(nn.Sequential(*parts))),
    "FSDP2, each block compiled": lambda parts: sharded(
        nn.Sequential(*map(forward_compiled, parts))
    ),
}


def merged(spans: Iterable[Span]) -> Spans:
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


def recorded() -> dict[str, Any]:
    """What was measured on two GPUs: machine, versions, date and (`ways`) what `measure` and `error` found for each way."""
    told: dict[str, Any] = json.loads(
        Path(__file__).with_name("recorded").joinpath("h100x2_overlap.json").read_text()
    )
    return told


def as_launches(way: dict[str, Any]) -> list[Launch]:
    """One recorded step for `viz.launch_timeline`, compute in its first lane, and NCCL in the other."""
    spans = [(name, *span) for name in ("compute", "nccl") for span in way[name]]
    ran = [
        Launch(name, start / 1e3, (end - start) / 1e3, name == "nccl") for name, start, end in spans
    ]
    return [Launch("the step", 0.0, max(one.end for one in ran)), *ran]


def error(build: Build, rank: int, world: int, width: int = 256, tokens: int = 64) -> float:
    """How far the gradients of all processes' inputs are from those that eager computes on one GPU, in parts of the largest."""
    torch.manual_seed(0)
    alone = nn.Sequential(*blocks(width)).cuda()
    torch.manual_seed(0)
    model = build([block.cuda() for block in blocks(width)])
    inputs = [
        torch.randn(tokens, width, generator=torch.Generator().manual_seed(n)).cuda()
        for n in range(world)
    ]
    for _ in range(2):  # the first step compiles
        model.zero_grad()
        model(inputs[rank]).square().mean().backward()
    alone(torch.cat(inputs)).square().mean().backward()
    whole = lambda gradient: (
        gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
    )
    pairs = [
        (p.grad, whole(q.grad)) for p, q in zip(alone.parameters(), model.parameters(), strict=True)
    ]
    return max(((a - b).abs().max() / a.abs().max()).item() for a, b in pairs)


def measure(build: Build, rank: int) -> dict[str, Any]:
    """Milliseconds of a step and of its two kinds of kernels; of one step, when each ran, from its first kernel on."""
    torch.manual_seed(0)
    model = build([block.cuda().bfloat16() for block in blocks(WIDTH)])
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
    dist.barrier()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    ran = [
        e
        for e in seen.events()
        if e.device_type == torch.autograd.DeviceType.CUDA and not e.name.startswith("Mem")
    ]
    first = min(e.time_range.start for e in ran)
    place = lambda e: ((e.time_range.start - first) / 1e3, (e.time_range.end - first) / 1e3)
    when = lambda talks: merged(place(e) for e in ran if ("nccl" in e.name) == talks)
    talk, work = when(True), when(False)
    told = {"step_ms": statistics.median(took), "nccl_ms": length(talk), "compute_ms": length(work)}
    rounded = lambda spans: [(round(start, 3), round(end, 3)) for start, end in spans]
    hidden = length(both(talk, work)) / max(length(talk), 1e-9)
    return {**told, "hidden": hidden, "nccl": rounded(talk), "compute": rounded(work)}


def main(rank: int, world: int, path: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    found = {}
    for way, build in WAYS.items():
        found[way] = {"gradients_off_by": error(build, rank, world), **measure(build, rank)}
        if rank == 0:
            print(
                f"{way:32}",
                *(f"{k} {v:.3g}" for k, v in found[way].items() if isinstance(v, float)),
                flush=True,
            )
        cl.reset()
    if rank == 0:
        about: dict[str, Any] = {
            "benchmark": "overlap",
            "date": str(datetime.date.today()),
            "machine": f"{world} x {torch.cuda.get_device_name()}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "model": f"{BLOCKS} blocks of width {WIDTH}, {TOKENS} tokens for each GPU, bfloat16",
        }
        with open(path, "w") as file:
            json.dump({**about, "ways": found}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(
        main, args=(torch.cuda.device_count(), sys.argv[1]), nprocs=torch.cuda.device_count()
    )
