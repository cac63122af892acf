"""A plain function through trace, lowering, scheduling, memory planning and code generation, without capture."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from course_lib import autograd, lowering, runtime, scheduling


def lowered(function, *inputs):
    """The `LoopGraph` of a function for these inputs."""
    with torch.no_grad():
        graph = make_fx(function, tracing_mode="fake")(*inputs)
    return lowering.lower(autograd.trace(graph, lowering.DECOMPOSITIONS))


def compile_function(function, *inputs, codegen="cpp"):
    """A `CompiledGraph` for these inputs."""
    loops = lowered(function, *inputs)
    schedule = scheduling.schedule(loops)
    return runtime.build(loops, schedule, scheduling.plan(schedule, loops), codegen=codegen)
