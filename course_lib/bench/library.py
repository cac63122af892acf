"""What a program spends in library calls: the part of a call that no kernel of ours can make
faster.

In:  a `Workload`.
Out: the share of a call of the compiled program that its library calls (matrix products, attention,
     ...) take by themselves.

Each call is made again on operands of the same layouts, into memory that is there already (`out`),
one after the other and in turn with the whole program. A share of 0.85 says: with kernels that take
no time at all the program would be 1.18 times as fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

import course_lib as cl
from course_lib import events
from course_lib.bench.compare import Workload
from course_lib.bench.measure import interleaved
from course_lib.lowering.ir import Buffer, ExternKernel, View


def library_share(workload: Workload, rounds: int = 10, min_time: float = 0.005) -> float | None:
    """The share of a call that its library calls take; None if it makes none."""
    with cl.record() as trace, workload.mode():
        inputs = workload.inputs()
        step = workload.step(cl.compile(workload.function), inputs)
        step()

    # The calls that the schedule has left to libraries, each by itself. (One that writes no buffer
    # only checks its arguments.)
    calls = []
    for event in trace.of(events.Scheduled):
        for kernel in event.schedule.kernels:
            if isinstance(kernel, ExternKernel) and kernel.is_library and kernel.buffers:
                calls.append(library_call(kernel))
    if not calls:
        return None

    @torch.no_grad()
    def library() -> None:
        for call in calls:
            call()

    # In turn: both meet the same moments of the machine
    with workload.mode():
        samples = interleaved({"program": step, "library": library}, rounds, min_time)
    return samples["program"].times_faster_than(samples["library"])


def library_call(kernel: ExternKernel) -> Callable[[], Any]:
    """The call by itself, with tensors of the layouts that it meets in the program."""
    args, kwargs = tree_map_only(View, like, (kernel.args, kernel.kwargs))
    if kernel.out_variant is None:
        return functools.partial(kernel.op, *args, **kwargs)
    result = like(kernel.buffers[0].view())
    return functools.partial(kernel.out_variant, *args, **kwargs, out=result)


def like(view: View) -> torch.Tensor:
    """A tensor of this layout: numbers from 0 to 1, integers 0 (which any index may be)."""
    count = Buffer("", view.dtype, view.shape, view.stride).extent
    dtype_and_device = {"dtype": view.dtype, "device": view.buffer.device}
    if view.dtype.is_floating_point:
        memory = torch.linspace(0, 1, count, **dtype_and_device)
    else:
        memory = torch.zeros(count, **dtype_and_device)
    return memory.as_strided(view.shape, view.stride)
