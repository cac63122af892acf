"""Build and run one hand-made kernel; compare with torch."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch_handler import as_memory, evaluate

from course_lib import runtime
from course_lib.lowering.ir import LoopGraph


def program(kernel, buffers, codegen="cpp", fixed=None):
    """A `CompiledGraph` of just this kernel; its inputs are `buffers` in order, its outputs the stored buffers.
    `fixed`: for many sizes, these excepted."""
    outputs = [step.buffer.view() for step in kernel.steps if step.buffer.name in kernel.stores]
    graph = LoopGraph([*buffers.values()], list(kernel.nodes), outputs, fixed=fixed)
    return runtime.build(graph, SimpleNamespace(kernels=[kernel]), codegen=codegen)


def run(kernel, buffers, tensors, codegen="cpp", fixed=None):
    """Stored buffer → tensor."""
    compiled = program(kernel, buffers, codegen, fixed)
    names = [step.buffer.name for step in kernel.steps if step.buffer.name in kernel.stores]
    device = kernel.device
    results = compiled(*(moved(tensors[name], device) for name in buffers))
    return dict(zip(names, (r.to("cpu") for r in results))), compiled


def moved(tensor, device):
    """The tensor on another device, with the strides that it has (`to` would close gaps)."""
    if tensor.device == device:
        return tensor
    return torch.as_strided(as_memory(tensor).to(device), tensor.shape, tensor.stride())


def check(kernel, buffers, tensors, codegen="cpp", rtol=None, atol=None, fixed=None):
    """Run and compare everything that is stored with what torch computes."""
    got, compiled = run(kernel, buffers, tensors, codegen, fixed)
    want = evaluate(kernel, buffers, tensors)
    for name, value in got.items():
        assert value.dtype == want[name].dtype and value.shape == want[name].shape
        tolerance = (
            {}
            if rtol is None or not value.dtype.is_floating_point
            else {"rtol": rtol, "atol": atol or 0.0}
        )
        torch.testing.assert_close(
            value,
            want[name],
            equal_nan=True,
            msg=lambda m: f"{name}: {m}\n{compiled.source}",
            **tolerance,
        )
    return compiled
