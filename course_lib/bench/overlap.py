"""Is communication hidden behind compute? A model on all GPUs of a machine under
`DistributedDataParallel` (DDP) and under `fully_shard` (FSDP2), eager and compiled: are the
gradients right, how long does a step take, and what ran when?

    python -m course_lib.bench.overlap overlap.json

Each process has a GPU. A profiler says when NCCL's kernels and all others ran; `hidden` is the part
of NCCL's time in which others ran too. DDP sends a bucket of gradients as soon as backward has
computed it. Eager does so layer by layer; a module that is compiled as a whole would hand out all
gradients at its end, so its graph is cut (`course_lib/autograd/buckets.py`).
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

BLOCKS, WIDTH, TOKENS = 8, 2048, 8192
STEPS = 20
"""So many steps are timed."""
Span = tuple[float, float]
"""When something began and when it ended."""
Spans = list[Span]


def blocks(width: int) -> list[nn.Module]:
    """Each a LayerNorm and two Linears with a GELU between."""
    modules: list[nn.Module] = []
    for _ in range(BLOCKS):
        up, down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        modules.append(nn.Sequential(nn.LayerNorm(width), up, nn.GELU(), down))
    return modules


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
"""Makes of the blocks the model that is measured."""


def ddp_eager(parts: list[nn.Module]) -> nn.Module:
    return replicated(nn.Sequential(*parts))


def ddp_compiled(parts: list[nn.Module]) -> nn.Module:
    return replicated(cl.compile(nn.Sequential(*parts)))


def ddp_compiled_around(parts: list[nn.Module]) -> nn.Module:
    return cl.compile(replicated(nn.Sequential(*parts)))


def ddp_each_block(parts: list[nn.Module]) -> nn.Module:
    return replicated(nn.Sequential(*map(cl.compile, parts)))


def ddp_cuda_graphs(parts: list[nn.Module]) -> nn.Module:
    return replicated(cl.compile(nn.Sequential(*parts), mode="reduce-overhead"))


def ddp_torch_compile(parts: list[nn.Module]) -> nn.Module:
    return replicated(torch.compile(nn.Sequential(*parts)))


def fsdp_eager(parts: list[nn.Module]) -> nn.Module:
    return sharded(nn.Sequential(*parts))


def fsdp_compiled(parts: list[nn.Module]) -> nn.Module:
    return cl.compile(sharded(nn.Sequential(*parts)))


def fsdp_each_block(parts: list[nn.Module]) -> nn.Module:
    return sharded(nn.Sequential(*map(forward_compiled, parts)))


WAYS: dict[str, Build] = {
    "DDP, eager": ddp_eager,
    "DDP, compiled as a whole": ddp_compiled,
    "DDP, compiled around DDP": ddp_compiled_around,
    "DDP, each block compiled": ddp_each_block,
    "DDP, as a whole, reduce-overhead": ddp_cuda_graphs,
    "DDP, torch.compile as a whole": ddp_torch_compile,
    "FSDP2, eager": fsdp_eager,
    "FSDP2, compiled as a whole": fsdp_compiled,
    "FSDP2, each block compiled": fsdp_each_block,
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
    common = []
    for start, end in a:
        for other_start, other_end in b:
            span = max(start, other_start), min(end, other_end)
            if span[0] < span[1]:
                common.append(span)
    return merged(common)


def recorded() -> dict[str, Any]:
    """What was measured on two GPUs: machine, versions, date and (`ways`) what `measure` and
    `error` found for each way."""
    path = Path(__file__).with_name("recorded") / "h100x2_overlap.json"
    measurements: dict[str, Any] = json.loads(path.read_text())
    return measurements


def as_launches(way: dict[str, Any]) -> list[Launch]:
    """One recorded step for `viz.launch_timeline`, compute in its first lane, and NCCL in the
    other."""
    ran = []
    for name in ("compute", "nccl"):
        for start, end in way[name]:
            # Recorded in milliseconds.
            ran.append(Launch(name, start / 1e3, (end - start) / 1e3, name == "nccl"))
    return [Launch("the step", 0.0, max(one.end for one in ran)), *ran]


def error(build: Build, rank: int, world: int, width: int = 256, tokens: int = 64) -> float:
    """How far the gradients of all processes' inputs are from those that eager computes on one GPU,
    in parts of the largest."""
    # The same weights in both models, and for each process inputs that all can make.
    torch.manual_seed(0)
    alone = nn.Sequential(*blocks(width)).cuda()
    torch.manual_seed(0)
    model = build([block.cuda() for block in blocks(width)])
    inputs = []
    for number in range(world):
        generator = torch.Generator().manual_seed(number)
        inputs.append(torch.randn(tokens, width, generator=generator).cuda())

    for _ in range(2):  # the first step compiles
        model.zero_grad()
        model(inputs[rank]).square().mean().backward()
    alone(torch.cat(inputs)).square().mean().backward()

    # Processes average their gradients, and so does the mean over all inputs
    off_by = []
    for wanted, got in zip(alone.parameters(), model.parameters(), strict=True):
        gradient = got.grad
        if hasattr(gradient, "full_tensor"):  # its parameter is sharded
            gradient = gradient.full_tensor()
        farthest = (wanted.grad - gradient).abs().max()
        off_by.append((farthest / wanted.grad.abs().max()).item())
    return max(off_by)


def measure(build: Build, rank: int) -> dict[str, Any]:
    """Milliseconds of a step and of its two kinds of kernels; of one step, when each ran, from its
    first kernel on."""
    torch.manual_seed(0)
    model = build([block.cuda().bfloat16() for block in blocks(WIDTH)])
    x = torch.randn(TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        model.zero_grad()
        model(x).float().square().mean().backward()

    # The first steps compile, and allocate what later ones use again
    for _ in range(5):
        step()
    milliseconds = [milliseconds_of(step) for _ in range(STEPS)]

    # All processes start the recorded step together: who is early would wait in NCCL
    dist.barrier()
    talk, work = kernels_of(step)
    return {
        "step_ms": statistics.median(milliseconds),
        "nccl_ms": length(talk),
        "compute_ms": length(work),
        # (0 where no kernel of NCCL ran, and no division by zero.)
        "hidden": length(both(talk, work)) / max(length(talk), 1e-9),
        "nccl": rounded(talk),
        "compute": rounded(work),
    }


def milliseconds_of(step: Callable[[], None]) -> float:
    """How long the GPU works on one step."""
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


def kernels_of(step: Callable[[], None]) -> tuple[Spans, Spans]:
    """When NCCL's kernels ran and when all others did, in milliseconds from the step's first kernel
    on."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()

    on_gpu = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    # "Memcpy" and "Memset" are no kernels
    kernels = [e for e in on_gpu if not e.name.startswith("Mem")]
    first = min(e.time_range.start for e in kernels)

    talk: Spans = []
    work: Spans = []
    for kernel in kernels:
        start, end = kernel.time_range.start - first, kernel.time_range.end - first
        spans = talk if "nccl" in kernel.name else work
        spans.append((start / 1e3, end / 1e3))  # the profiler counts microseconds
    return merged(talk), merged(work)


def rounded(spans: Spans) -> Spans:
    return [(round(start, 3), round(end, 3)) for start, end in spans]


def main(rank: int, world: int, path: str) -> None:
    """One of `world` processes, each with a GPU. All measure; the first one prints and writes."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29531"}
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world)
    results = {}
    for way, build in WAYS.items():
        results[way] = {"gradients_off_by": error(build, rank, world), **measure(build, rank)}
        if rank == 0:
            figures = [f"{k} {v:.3g}" for k, v in results[way].items() if isinstance(v, float)]
            print(f"{way:32}", *figures, flush=True)
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
            json.dump({**about, "ways": results}, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(
        main, args=(torch.cuda.device_count(), sys.argv[1]), nprocs=torch.cuda.device_count()
    )
