"""How much memory one training step takes, at its height, above what the process holds between
steps.

In:  a workload of `models.TRAINED`. Out: megabytes for eager, course_lib and `torch.compile`, each
     in a fresh process.

Run as a file it is that process, for which nothing of ours may be imported unless it is course_lib
that is measured. Gradients are dropped between steps, so they count. On the CPU it is the peak of
resident memory (`VmHWM`, Linux only), after what the C library holds back has gone to the system;
on a GPU, what the tensors take.
"""

import ctypes
import gc
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import torch

STEPS = 4  # before the one that is measured: compiles, and fills caches


def measure(who: str, workload: str, device: str, dtype: torch.dtype) -> float:
    """Megabytes, or nan where it failed."""
    arguments = [who, workload, device, str(dtype).removeprefix("torch.")]
    command = [sys.executable, str(Path(__file__)), *arguments]
    process = subprocess.run(command, capture_output=True, text=True)
    if process.returncode != 0:
        return float("nan")
    return float(json.loads(process.stdout.splitlines()[-1]))


def peak(step: Callable[[], object], device: str) -> float:
    """Megabytes that a step takes at its height."""
    for _ in range(STEPS):
        step()
    gc.collect()

    if device.startswith("cuda"):
        bytes_before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return (torch.cuda.max_memory_allocated() - bytes_before) / 2**20

    ctypes.CDLL(None).malloc_trim(0)
    bytes_before = resident("VmRSS")
    # 5 is the order to count the peak (`VmHWM`) anew from here on.
    Path("/proc/self/clear_refs").write_text("5")
    step()
    return resident("VmHWM") - bytes_before


def resident(field: str) -> float:
    """A field of `/proc/self/status`, in megabytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith(field))
    return kilobytes / 1024


def main(who: str, workload: str, device: str, dtype: str) -> float:
    """In the fresh process: megabytes of one contender; any other `who` is eager."""
    from child import load_models  # type: ignore[import-not-found]  # from beside this file

    torch.manual_seed(0)
    make, shapes, _ = load_models().TRAINED[workload]
    model = make().to(device, getattr(torch, dtype)).train()
    inputs = [torch.randn(shape).to(device, getattr(torch, dtype)) for shape in shapes]
    if who == "course_lib":
        # Imported only here: in the process of another contender it would take memory
        import course_lib

        run = course_lib.compile(model)
    elif who == "torch.compile":
        run = torch.compile(model)
    else:
        run = model

    def step() -> None:
        run(*inputs).square().mean().backward()
        model.zero_grad(set_to_none=True)

    return peak(step, device)


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
