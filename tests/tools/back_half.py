"""A plain function through trace, lowering, scheduling, memory planning and code generation, without capture."""

from __future__ import annotations

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from course_lib import autograd, lowering, runtime, scheduling


def traced(function, *inputs):
    """The ATen graph of a function for these inputs."""
    with torch.no_grad():
        graph = make_fx(function, tracing_mode="fake")(*inputs)
    return autograd.trace(graph, lowering.DECOMPOSITIONS)


def lowered(function, *inputs):
    """The `LoopGraph` of a function for these inputs."""
    return lowering.lower(traced(function, *inputs))


def compile_function(function, *inputs, codegen="cpp"):
    """A `CompiledGraph` for these inputs."""
    aten = traced(function, *inputs)
    loops = lowering.lower(aten)
    schedule = scheduling.schedule(loops)
    compiled = runtime.build(loops, schedule, scheduling.plan(schedule, loops), codegen=codegen)
    compiled.run = autograd.finished(compiled.run, aten.meta["signature"], function)
    return compiled
