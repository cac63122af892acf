"""course_lib: a small `torch.compile` that can be read. `import course_lib as cl`.

The rooms, in the order a program passes through them: `frames`, `capture`, `guards`, `autograd`,
`lowering`, `scheduling`, `codegen`, `runtime`. From `autograd` on, symbolic sizes are those of
`sizes`. `pipeline.py` puts the rooms in a row; `events.py` is what they tell; `viz` draws it.
"""

import importlib
import importlib.util
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from course_lib import config, events, versions

if TYPE_CHECKING:
    from course_lib.backends import (
        get_default_backend,
        list_backends,
        list_mode_options,
        list_options,
        set_default_backend,
    )
    from course_lib.capture import Interpreter, Unsupported
    from course_lib.capture.user import (
        allow_in_graph,
        disable,
        disallow_in_graph,
        graph_break,
        is_compiling,
        mark_dynamic,
        mark_static,
        mark_unbacked,
        maybe_mark_dynamic,
    )
    from course_lib.compiler import capturing, compile, reset
    from course_lib.pipeline import Pipeline
    from course_lib.simulator import simulate_gpu
    from course_lib.viz import explore, record, set_logs
    from course_lib.viz.explain import explain
    from course_lib.viz.mirror import mirror

__version__ = "0.1.0"

__all__ = [
    "Interpreter", "Pipeline", "Unsupported", "allow_in_graph", "capturing", "compile", "config", "disable",
    "disallow_in_graph", "explain", "explore", "get_default_backend", "graph_break", "is_compiling", "list_backends",
    "list_mode_options", "list_options", "mark_dynamic", "mark_static", "mark_unbacked", "maybe_mark_dynamic", "mirror", "record",
    "reset", "set_default_backend", "set_logs", "simulate_gpu",
]  # fmt: skip


_COMPILER = {
    "backends": ("get_default_backend", "list_backends", "list_mode_options", "list_options", "set_default_backend"),
    "capture": ("Interpreter", "Unsupported"),
    "capture.user": ("allow_in_graph", "disable", "disallow_in_graph", "graph_break", "is_compiling", "mark_dynamic",
                     "mark_static", "mark_unbacked", "maybe_mark_dynamic"),
    "compiler": ("capturing", "compile", "reset"),
    "pipeline": ("Pipeline",),
}  # fmt: skip
"""Module → the names of it that stand here. They need torch, which takes seconds to load: so they
come when one is wanted."""
_PICTURES = ("explain", "explore", "mirror", "record", "set_logs")
"""What shows what happened lives with the pictures, which are loaded only when they are wanted."""


def _load_compiler() -> None:
    """Put all names of the compiler here, as if they had been imported at the top."""
    with config.collector_paused(importing=True):
        import torch

        for module, names in _COMPILER.items():
            loaded = importlib.import_module(f"course_lib.{module}")
            globals().update({name: getattr(loaded, name) for name in names})
    versions.warn_of_a_newer_torch(torch.__version__)


def __getattr__(name: str) -> Any:
    if name == "simulate_gpu":
        return importlib.import_module("course_lib.simulator").simulate_gpu
    if name in _PICTURES:
        return getattr(importlib.import_module("course_lib.viz"), name)
    # A room, which another room may ask for while it is being loaded itself: that one alone
    if not name.startswith("_") and importlib.util.find_spec(f"course_lib.{name}") is not None:
        return importlib.import_module(f"course_lib.{name}")
    if not name.startswith("_") and "Pipeline" not in globals():
        _load_compiler()
        if name in globals():  # a name of the table, or a room that came with it
            return globals()[name]
    raise AttributeError(f"module 'course_lib' has no attribute '{name}'")


def _write_stages(backend: Callable[..., Any], diagram: bool) -> Callable[..., Any]:
    """Load the pictures when `trace.enabled` asks for files of each stage."""
    folder = importlib.import_module("course_lib.viz.report.debug_folder")
    return folder.traced(backend, diagram)


events.write_stages = _write_stages


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


for variable, module in (("COURSE_LOGS", "recording.logs"), ("COURSE_TRACE", "report.whole_run")):
    if os.environ.get(variable):
        importlib.import_module(f"course_lib.viz.{module}")

# Kernels of Triton, a learner's too, run in the simulator where there is no GPU
importlib.import_module("course_lib.simulator").wait_for_triton()
