"""For the tests of lowering and scheduling: from a function to loops, and the check that all ways of running them agree."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from eager_variants import WithoutOneDNN
from run_schedules import evaluate_schedule
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map, tree_map_only

from course_lib.autograd.decomposing import Decomposing, leave
from course_lib.lowering import DECOMPOSITIONS, LoopGraph, lower
from course_lib.scheduling import Fuse, Schedule, plan, schedule
from course_lib.viz.evaluator import evaluate
from course_lib.viz.pictures.lowering.loop_formulas import formula

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-10, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def aten(function: Callable[..., Any], *inputs: Any) -> fx.GraphModule:
    """The ATen graph of `function`, without gradients. Placeholders are called like the function's parameters."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)  # parameters become constants of the graph
    fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in inputs]

    def run(*args: Any) -> Any:
        with FunctionalTensorMode(), Decomposing(DECOMPOSITIONS):
            return tree_map(
                leave, function(*tree_map_only(torch.Tensor, FunctionalTensor.to_functional, args))
            )

    with torch.no_grad(), mode:
        gm = make_fx(run)(*fakes)
    parameters = inspect.signature(getattr(function, "forward", function)).parameters.values()
    for node, parameter in zip(gm.graph.find_nodes(op="placeholder"), parameters, strict=False):
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD:
            node._rename(parameter.name)
            node.target = node.name
    return gm


def lowered(function: Callable[..., Any], *inputs: Any) -> LoopGraph:
    return lower(aten(function, *inputs))


def formulas(graph: LoopGraph) -> list[str]:
    """What each node computes, in one line."""
    return [formula(node, graph.buffers) for node in graph.nodes]


def scheduled(function: Callable[..., Any], *inputs: Any, **options: Any) -> Schedule:
    return schedule(lowered(function, *inputs), **options)


def names(result: Schedule) -> list[str]:
    return [str(kernel) for kernel in result.kernels]


def always(producer: object, consumer: object) -> Fuse:
    """The greediest answer: the scheduler must stay right."""
    return Fuse(1)


def agree(function: Callable[..., Any], *inputs: Any) -> LoopGraph:
    """Eager, the loops one by one, the kernels, and kernels fused without mercy give the same."""
    with torch.no_grad(), WithoutOneDNN():
        expected = function(*inputs)
    expected = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    graph = lowered(function, *inputs)
    for how in (None, schedule(graph), schedule(graph, always)):
        memory = plan(how, graph) if how else None
        results = (
            evaluate_schedule(how, memory, graph, *inputs) if how else evaluate(graph, *inputs)
        )
        assert len(results) == len(expected)
        for result, eager in zip(results, expected, strict=True):
            same(
                result,
                eager,
                max(TOLERANCE.get(buffer.dtype, 0) for buffer in graph.buffers.values()),
            )
    return graph


def same(result: torch.Tensor, eager: torch.Tensor, tolerance: float) -> None:
    """Shape, dtype, layout, and values up to the rounding of the coarsest dtype on the way."""
    assert (result.shape, result.dtype) == (eager.shape, eager.dtype)
    if eager.numel():
        strides = [
            (a, b)
            for a, b, n in zip(result.stride(), eager.stride(), eager.shape, strict=True)
            if n > 1
        ]
        assert all(a == b for a, b in strides), f"{result.stride()} instead of {eager.stride()}"
    tolerance = (
        max(tolerance, TOLERANCE.get(eager.dtype, 0))
        if eager.is_floating_point() or eager.is_complex()
        else 0
    )
    torch.testing.assert_close(
        result, eager, rtol=tolerance, atol=tolerance, equal_nan=True, check_stride=False
    )
