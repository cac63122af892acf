"""Who runs a captured graph: the backends by name, and the modes and options of ours.

In:  what a user passes to `compile`: a backend, a mode or options, a pipeline.
Out: a `Backend`: `(graph: fx.GraphModule, example_inputs: list[Tensor]) -> callable`, from inputs
to a tuple of outputs.
In PyTorch: `torch/_dynamo/backends/registry.py`, `torch/_inductor/__init__.py`
(`list_mode_options`, `list_options`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import fx

from course_lib import autograd, events, lowering, runtime
from course_lib.pipeline import Pipeline, is_symbolic, needs_grad

Inputs: TypeAlias = list[torch.Tensor]
Backend: TypeAlias = Callable[[fx.GraphModule, Inputs], Callable[..., Any]]
NamedBackend: TypeAlias = Callable[[fx.GraphModule, Inputs, Pipeline, str], Callable[..., Any]]
"""A backend of ours. Beside graph and inputs it gets the stages, and the language of the
kernels."""


@dataclass(frozen=True)
class Option:
    """What `compile(options=...)` takes under one name."""

    default: Any
    allowed: tuple[Any, ...]
    meaning: str


OPTIONS: dict[str, Option] = {
    "codegen": Option(
        "auto",
        ("auto", "cpp", "triton"),
        "the language of kernels; auto: C++ for CPU, Triton for GPU tensors",
    ),
    "cudagraphs": Option(
        False, (False, True), "record the kernels of each program as a CUDA graph"
    ),
    "autotune": Option(
        False,
        (False, True),
        "measure tiles of each GPU kernel, and matrix products of our own beside the library's",
    ),
    "fallback_random": Option(
        True,
        (False, True),
        "random numbers are eager's; else by a formula that fuses and is computed again",
    ),
    "trace.enabled": Option(
        False,
        (False, True),
        "write each stage of every graph into a folder, course_debug/ or $COURSE_DEBUG_DIR",
    ),
    "trace.graph_diagram": Option(False, (False, True), "with a picture of what was fused"),
}
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}
"""Mode → the options it sets."""


# ---- the backends by name ------------------------------------------------------------------------


def eager(
    gm: fx.GraphModule, inputs: Inputs, pipeline: Pipeline, codegen: str
) -> Callable[..., Any]:
    """Capture alone: the graph runs operation by operation."""
    return autograd.op_by_op(gm)


def aot_eager(
    gm: fx.GraphModule, inputs: Inputs, pipeline: Pipeline, codegen: str
) -> Callable[..., Any]:
    """Capture, tracing and autograd ahead of time; no kernels of ours."""
    return pipeline.run_compile(gm, "none", needs_grad(inputs, gm))


def inductor(
    gm: fx.GraphModule, inputs: Inputs, pipeline: Pipeline, codegen: str
) -> Callable[..., Any]:
    """All of it: differentiate, lower, fuse, generate and build kernels."""
    return pipeline.run_compile(gm, codegen, needs_grad(inputs, gm))


def torch_inductor(
    gm: fx.GraphModule, inputs: Inputs, pipeline: Pipeline, codegen: str
) -> Callable[..., Any]:
    """Our capture with torch's own back half, to tell which half a difference comes from."""
    from torch._dynamo.backends.inductor import inductor as theirs

    if autograd.has_sizes_of_data(gm):
        raise NotImplementedError(
            'backend="torch_inductor" takes no graph with sizes or numbers that only the data says: use "inductor"'
        )
    if is_symbolic(gm):
        return pipeline.specialize(gm, theirs)
    return theirs(gm, inputs)


BACKENDS: dict[str, NamedBackend] = {
    "eager": eager,
    "aot_eager": aot_eager,
    "inductor": inductor,
    "torch_inductor": torch_inductor,
}


_default: str | Backend = "inductor"


def set_default_backend(backend: str | Backend | None) -> None:
    """The backend of each later `compile` that names none. None: "inductor" again.

    Raises ValueError for a name that there is not, and for what cannot be called.
    In PyTorch (2.13 and later): `torch/compiler/__init__.py`, `set_default_backend`.
    """
    global _default
    if backend is None:
        backend = "inductor"
    check_backend(backend)
    _default = backend


def get_default_backend() -> str | Backend:
    """The backend of a `compile` that names none."""
    return _default


def check_backend(backend: str | Backend) -> None:
    """Raise ValueError, with what there is, for what is no backend."""
    if isinstance(backend, str) and backend not in BACKENDS:
        raise ValueError(
            f"there is no backend '{backend}'; there are {', '.join(list_backends())}, or pass a callable"
        )
    if not isinstance(backend, str) and not callable(backend):
        raise ValueError(f"backend must be a name or a callable, got {type(backend).__name__}")


# ---- what the arguments of `compile` ask for -----------------------------------------------------


def find(
    backend: str | Backend | None,
    mode: str | None,
    options: dict[str, Any] | None,
    pipeline: Pipeline,
) -> Backend:
    """The backend that the arguments of `compile` ask for. Raises ValueError with what there is."""
    chosen = chosen_options(mode, options)
    if backend is None:
        backend = _default
    check_backend(backend)
    if not isinstance(backend, str):
        return users_own(backend)

    stages = with_options(pipeline, chosen)
    backend_function = BACKENDS[backend]

    def run(gm: fx.GraphModule, inputs: Inputs) -> Callable[..., Any]:
        return backend_function(gm, inputs, stages, chosen["codegen"])

    if chosen["trace.enabled"] or chosen["trace.graph_diagram"]:
        return events.write_stages(run, chosen["trace.graph_diagram"])
    return run


def may_be_left(backend: str | Backend | None, options: dict[str, Any] | None) -> bool:
    """May a program under this backend go on in eager where it gains nothing? Not where the user
    asked for more than speed: capture alone, or random numbers that eager does not draw."""
    chosen = options or {}
    if backend is None:
        backend = _default
    is_default = backend == "inductor"
    return is_default and chosen.get("fallback_random", True) and not chosen.get("trace.enabled")


def chosen_options(mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """Every option, as a mode or the user sets it. Raises ValueError for what there is not."""
    if mode is not None and options is not None:
        raise ValueError(
            "give either mode or options to compile, not both: a mode is a set of options"
        )

    for name, value in (options or {}).items():
        if name not in OPTIONS:
            raise ValueError(f"there is no option '{name}'; there are {', '.join(OPTIONS)}")
        allowed = OPTIONS[name].allowed
        if value not in allowed:
            raise ValueError(
                f"option '{name}' must be one of {', '.join(map(repr, allowed))}, got {value!r}"
            )
    if mode is None:
        mode = "default"
    return list_mode_options(mode) | (options or {})


def users_own(backend: Backend) -> Backend:
    """A callable that the user gives. What the graph switches is switched back behind it."""

    def run(gm: fx.GraphModule, inputs: Inputs) -> Callable[..., Any]:
        return autograd.restoring(backend(gm, inputs), gm)

    return run


def with_options(pipeline: Pipeline, chosen: dict[str, Any]) -> Pipeline:
    """The stages with what the options turn on. A user's own `build` stage stays."""
    pipeline = pipeline.replace(cudagraphs=chosen["cudagraphs"] or pipeline.cudagraphs)
    if not chosen["fallback_random"]:
        pipeline = pipeline.replace(decompositions=pipeline.decompositions | lowering.PHILOX)
    if chosen["autotune"]:
        pipeline = pipeline.replace(templates=True)
        if pipeline.build is runtime.build:
            pipeline = pipeline.replace(build=partial(runtime.build, autotune=True))
    return pipeline


# ---- what there is -------------------------------------------------------------------------------


def list_backends() -> list[str]:
    """The names that `compile(backend=...)` takes."""
    return sorted(BACKENDS)


def list_mode_options(mode: str | None = None) -> dict[str, Any]:
    """What each mode sets; of one mode, every option. Raises ValueError for an unknown one."""
    if mode is None:
        return dict(MODES)
    if mode not in MODES:
        raise ValueError(f"there is no mode '{mode}'; there are {', '.join(MODES)}")
    return {name: option.default for name, option in OPTIONS.items()} | MODES[mode]


def list_options() -> list[str]:
    """The options that `compile(options=...)` takes."""
    return list(OPTIONS)
