"""Run a schedule with NumPy, as the generated code will run it.

In:  a `Schedule`, its `MemoryPlan` and graph, and tensors.
Out: what the graph returns.

Steps of a kernel hand their values on without memory; only what a kernel `stores` is written, into the storage that the plan
gives it, and a storage that is free is overwritten with nonsense. So a mistake in scheduling or in the plan shows itself as a
wrong result before any code is generated. In PyTorch: nothing; there one runs the generated code."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from course_lib.lowering.ir import Buffer, LoopGraph, Reduction, View
from course_lib.scheduling.kernel import FusedKernel
from course_lib.scheduling.memory import MemoryPlan
from course_lib.scheduling.schedule import Schedule
from course_lib.viz.evaluator import (
    Memory,
    NumpyHandler,
    compute,
    empty,
    flattened,
    grid,
    numpy_dtype,
    reduce_last,
    run_extern,
    seen,
    starting_memory,
    store,
)


def evaluate_schedule(
    schedule: Schedule, plan: MemoryPlan | None, graph: LoopGraph, *tensors: Any
) -> list[Any]:
    """Run the kernels in order. With a plan, memory is shared and freed as it says."""
    memory = starting_memory(graph, tensors)
    buffers = graph.buffers
    place = plan.place if plan else {}
    for n, kernel in enumerate(schedule.kernels):
        if isinstance(kernel, FusedKernel):
            run_fused(kernel, memory, buffers, place)
        else:
            run_extern(kernel, memory)
            if plan and kernel.out_variant is not None:  # it writes to where the plan says
                for buffer in kernel.buffers:
                    result = memory.pop(buffer.name)
                    memory[buffer.name] = placed(buffer, memory, place).copy_(result)
        for storage in plan.free_after[n] if plan else ():
            for name in [
                name for name, home in place.items() if home == storage and name in memory
            ]:
                overwrite(memory.pop(name))
    return [seen(out, memory) if isinstance(out, View) else out for out in graph.outputs]


def run_fused(
    kernel: FusedKernel, memory: Memory, buffers: dict[str, Buffer], place: dict[str, str]
) -> None:
    """All steps, then the stores; first for one half of the rows, then for the other, so that early stores are noticed."""
    targets = {name: placed(buffers[name], memory, place) for name in sorted(kernel.stores)}
    sizes = [int(loop.size) for loop in kernel.loops]
    gathered: dict[str, np.ndarray] = {}
    halves = [(0, sizes[0] // 2), (sizes[0] // 2, sizes[0])] if kernel.rows else [(0, None)]
    for begin, end in halves:
        ranges = grid(sizes)
        if ranges and kernel.rows:
            ranges[0] = ranges[0][begin:end]
        spans = [r.size for r in ranges]
        values = {loop.symbol: r for loop, r in zip(kernel.loops, ranges, strict=True)}
        served: dict[str, np.ndarray] = {}
        for step in kernel.steps:
            value = np.asarray(step.value(NumpyHandler(memory, dict(values), served)))
            if step.level == "across":
                assert isinstance(step.node, Reduction)
                rows, name = len(kernel.rows), step.buffer.name
                value = np.moveaxis(np.broadcast_to(value, spans), range(rows), range(-rows, 0))
                value = reduce_last(value, step.node, len(kernel.columns)).reshape(
                    [*[1] * rows, *spans[rows:]]
                )
                gathered[name] = value = gathered[name] + value if name in gathered else value
            elif step.is_reduction:
                assert isinstance(step.node, Reduction)
                rows = len(kernel.rows)
                value = reduce_last(np.broadcast_to(value, spans), step.node, rows)
                value = value.reshape([*spans[:rows], *[1] * len(kernel.columns)])
            elif step.level == "row":
                value = np.broadcast_to(
                    value, [*spans[: len(kernel.rows)], *[1] * len(kernel.columns)]
                )
            assert value.dtype == numpy_dtype(step.buffer.dtype), (
                f"{step.node} gives {value.dtype}, not {step.buffer.dtype}"
            )
            served[step.buffer.name] = value
        for step in kernel.steps:
            if step.buffer.name in targets:
                where = Memory({step.buffer.name: targets[step.buffer.name]})
                store(
                    step.buffer, where, compute(step.store_index, values), served[step.buffer.name]
                )
    memory.update(targets)


def placed(buffer: Buffer, memory: Memory, place: dict[str, str]) -> torch.Tensor:
    """The memory that the plan gives a buffer."""
    home = place.get(buffer.name)
    others = [name for name in memory if home is not None and place.get(name) == home]
    if not others:
        return empty(buffer)
    flat, start = flattened(memory[others[0]])
    return torch.as_strided(
        flat, [int(s) for s in buffer.shape], [int(s) for s in buffer.stride], start
    )


def overwrite(tensor: torch.Tensor) -> None:
    """Nonsense for whoever still reads this."""
    flat, _ = flattened(tensor)
    flat.fill_(True if tensor.dtype is torch.bool else 99)
