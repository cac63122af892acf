"""Who runs a captured graph: the backends by name, and the modes and options of ours.

A backend is any callable `(graph: fx.GraphModule, example_inputs: list[Tensor]) -> callable`; the result takes the
graph's inputs and gives a tuple of its outputs.
In PyTorch: `torch/_dynamo/backends/registry.py`, `torch/_inductor/__init__.py` (`list_mode_options`, `list_options`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx

from course_lib import autograd
from course_lib.pipeline import Pipeline, fall_back, needs_grad

Backend = Callable[[fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]

OPTIONS: dict[str, tuple[Any, tuple[Any, ...] | None, str]] = {
    "codegen": (
        "auto",
        ("auto", "cpp", "triton"),
        "which language kernels are written in; auto: C++ for CPU, Triton for GPU tensors",
    )
}
"""Option → (default, allowed values or None, meaning)."""
MODES: dict[str, dict[str, Any]] = {"default": {}, "reduce-overhead": {}, "max-autotune": {}, "max-autotune-no-cudagraphs": {}}
"""Mode → the options it sets. The last three do what the first does until lesson 11 is built."""


def eager(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Run the captured graph as it is: capture alone."""
    return gm.forward


def aot_eager(gm: fx.GraphModule, example_inputs: list[torch.Tensor], pipeline: Pipeline) -> Callable[..., Any]:
    """Run the ATen graph operation by operation: capture and tracing."""
    if needs_grad(example_inputs, gm):
        return fall_back(gm, "the inputs need gradients; compiled training comes with lesson 06")
    aten = pipeline.trace(gm, pipeline.decompositions)
    if autograd.mutated_inputs(aten):
        return fall_back(gm, "the graph writes to an input; compiled mutation comes with lesson 06")
    return no_grad(aten.forward)


def no_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        with torch.no_grad():
            return function(*args)

    return run


def inductor(
    gm: fx.GraphModule, example_inputs: list[torch.Tensor], pipeline: Pipeline, options: dict[str, Any]
) -> Callable[..., Any]:
    """All of it: trace, lower, fuse, generate and build kernels."""
    if needs_grad(example_inputs, gm):
        return fall_back(gm, "the inputs need gradients; compiled training comes with lesson 06")
    return pipeline.run_compile(gm, options["codegen"])


def torch_inductor(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Our capture with torch's own back half, to tell which half a difference comes from."""
    from torch._dynamo.backends.inductor import inductor as theirs

    return theirs(gm, example_inputs)


BACKENDS: dict[str, Callable[..., Any]] = {
    "eager": eager,
    "aot_eager": aot_eager,
    "inductor": inductor,
    "torch_inductor": torch_inductor,
}


def find(backend: str | Backend, mode: str | None, options: dict[str, Any] | None, pipeline: Pipeline) -> Backend:
    """The backend that the arguments of `compile` ask for. Raises ValueError with what there is."""
    if mode is not None and options is not None:
        raise ValueError("give either mode or options to compile, not both: a mode is a set of options")
    chosen = mode_options(mode) | check_options(options or {})
    if not isinstance(backend, str):
        if not callable(backend):
            raise ValueError(f"backend must be a name or a callable, got {type(backend).__name__}")
        return backend
    if backend not in BACKENDS:
        raise ValueError(f"there is no backend '{backend}'; there are {', '.join(list_backends())}, or pass a callable")
    if backend == "inductor":
        return partial(inductor, pipeline=pipeline, options=chosen)
    if backend == "aot_eager":
        return partial(aot_eager, pipeline=pipeline)
    return BACKENDS[backend]


def mode_options(mode: str | None) -> dict[str, Any]:
    if mode is not None and mode not in MODES:
        raise ValueError(f"there is no mode '{mode}'; there are {', '.join(MODES)}")
    return {name: default for name, (default, _, _) in OPTIONS.items()} | MODES[mode or "default"]


def check_options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if name not in OPTIONS:
            raise ValueError(f"there is no option '{name}'; there are {', '.join(OPTIONS)}")
        allowed = OPTIONS[name][1]
        if allowed is not None and value not in allowed:
            raise ValueError(f"option '{name}' must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return options


def list_backends() -> list[str]:
    """The names that `compile(backend=...)` takes."""
    return sorted(BACKENDS)


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """What each mode sets, or what one mode sets."""
    return dict(MODES) if mode is None else mode_options(mode)


def list_options() -> list[str]:
    """The options that `compile(options=...)` takes."""
    return list(OPTIONS)


def course(gm: fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable[..., Any]:
    """Our back half under torch's capture: `torch.compile(f, backend="course")` (registered as an entry point)."""
    if needs_grad([t for t in example_inputs if isinstance(t, torch.Tensor)]) or not all(
        isinstance(t, torch.Tensor) for t in example_inputs
    ):
        return gm.forward
    for node in gm.graph.nodes:
        if "example_value" in node.meta:
            node.meta.setdefault("val", node.meta["example_value"])
    return Pipeline().run_compile(gm)
