"""Who runs a captured graph: the backends by name, and the modes and options of ours.

A backend: `(graph: fx.GraphModule, example_inputs: list[Tensor]) -> callable`, from inputs to a tuple of outputs.
In PyTorch: `torch/_dynamo/backends/registry.py`, `torch/_inductor/__init__.py` (`list_mode_options`, `list_options`).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import fx

from course_lib import autograd, events, lowering, runtime
from course_lib.pipeline import Pipeline, is_symbolic, needs_grad

Backend = Callable[[fx.GraphModule, list[torch.Tensor]], Callable[..., Any]]

OPTIONS: dict[str, tuple[Any, tuple[Any, ...], str]] = {
    "codegen": (
        "auto",
        ("auto", "cpp", "triton"),
        "the language of kernels; auto: C++ for CPU, Triton for GPU tensors",
    ),
    "cudagraphs": (False, (False, True), "record the kernels of each program as a CUDA graph"),
    "autotune": (
        False,
        (False, True),
        "measure tiles of each GPU kernel, and matrix products of our own beside the library's",
    ),
    "fallback_random": (
        True,
        (False, True),
        "random numbers are eager's; else by a formula that fuses and is computed again",
    ),
    "trace.enabled": (
        False,
        (False, True),
        "write each stage of every graph into a folder, course_debug/ or $COURSE_DEBUG_DIR",
    ),
    "trace.graph_diagram": (False, (False, True), "with a picture of what was fused"),
}
"""Option → (default, allowed values, meaning)."""
MODES: dict[str, dict[str, Any]] = {"default": {}, "reduce-overhead": {"cudagraphs": True}}
MODES |= {
    "max-autotune": {"cudagraphs": True, "autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}
"""Mode → the options it sets."""


def torch_inductor(
    gm: fx.GraphModule, inputs: list[torch.Tensor], pipeline: Pipeline, codegen: str
) -> Callable[..., Any]:
    """Our capture with torch's own back half, to tell which half a difference comes from."""
    from torch._dynamo.backends.inductor import inductor as theirs

    return pipeline.specialize(gm, theirs) if is_symbolic(gm) else theirs(gm, inputs)


BACKENDS: dict[
    str, Callable[[fx.GraphModule, list[torch.Tensor], Pipeline, str], Callable[..., Any]]
] = {
    # capture alone; capture, tracing and autograd; all of it: differentiate, lower, fuse, generate and build kernels
    "eager": lambda gm, inputs, pipeline, codegen: autograd.op_by_op(gm),
    "aot_eager": lambda gm, inputs, pipeline, codegen: pipeline.run_compile(
        gm, "none", needs_grad(inputs, gm)
    ),
    "inductor": lambda gm, inputs, pipeline, codegen: pipeline.run_compile(
        gm, codegen, needs_grad(inputs, gm)
    ),
    "torch_inductor": torch_inductor,
}


def find(
    backend: str | Backend, mode: str | None, options: dict[str, Any] | None, pipeline: Pipeline
) -> Backend:
    """The backend that the arguments of `compile` ask for. Raises ValueError with what there is."""
    if mode is not None and options is not None:
        raise ValueError(
            "give either mode or options to compile, not both: a mode is a set of options"
        )
    for name, value in (options or {}).items():
        if name not in OPTIONS:
            raise ValueError(f"there is no option '{name}'; there are {', '.join(OPTIONS)}")
        if value not in (allowed := OPTIONS[name][1]):
            raise ValueError(
                f"option '{name}' must be one of {', '.join(map(repr, allowed))}, got {value!r}"
            )
    chosen = list_mode_options("default" if mode is None else mode) | (options or {})
    if not isinstance(backend, str):
        if not callable(backend):
            raise ValueError(f"backend must be a name or a callable, got {type(backend).__name__}")
        own = backend
        return lambda gm, inputs: autograd.restoring(own(gm, inputs), gm)
    if backend not in BACKENDS:
        raise ValueError(
            f"there is no backend '{backend}'; there are {', '.join(list_backends())}, or pass a callable"
        )
    pipeline = pipeline.replace(cudagraphs=chosen["cudagraphs"] or pipeline.cudagraphs)
    if not chosen["fallback_random"]:
        pipeline = pipeline.replace(decompositions=pipeline.decompositions | lowering.PHILOX)
    if chosen["autotune"]:
        build = (
            partial(runtime.build, autotune=True)
            if pipeline.build is runtime.build
            else pipeline.build
        )
        pipeline = pipeline.replace(build=build, templates=True)
    run = lambda gm, inputs: BACKENDS[backend](gm, inputs, pipeline, chosen["codegen"])
    if chosen["trace.enabled"] or chosen["trace.graph_diagram"]:
        return events.write_stages(run, chosen["trace.graph_diagram"])
    return run


def list_backends() -> list[str]:
    """The names that `compile(backend=...)` takes."""
    return sorted(BACKENDS)


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """What each mode sets; of one mode, every option. Raises ValueError for an unknown one."""
    if mode is None:
        return dict(MODES)
    if mode not in MODES:
        raise ValueError(f"there is no mode '{mode}'; there are {', '.join(MODES)}")
    return {name: default for name, (default, _, _) in OPTIONS.items()} | MODES[mode]


def list_options() -> list[str]:
    """The options that `compile(options=...)` takes."""
    return list(OPTIONS)
