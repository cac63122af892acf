"""course_lib: a small `torch.compile` that can be read. `import course_lib as cl`.

The rooms, in the order a program passes through them: `frames`, `capture`, `guards`, `autograd`, `lowering`,
`scheduling`, `codegen`, `runtime`. `pipeline.py` puts them in a row; `events.py` is what they tell; `viz` draws it.
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

from course_lib import config, versions

with config.collector_paused(importing=True):
    import torch

    from course_lib.backends import list_backends, list_mode_options, list_options
    from course_lib.capture import Interpreter, Unsupported
    from course_lib.capture.user import (
        allow_in_graph,
        disable,
        disallow_in_graph,
        graph_break,
        is_compiling,
        mark_dynamic,
    )
    from course_lib.compiler import capturing, compile, reset
    from course_lib.pipeline import Pipeline

versions.warn_of_a_newer_torch(torch.__version__)

if TYPE_CHECKING:
    from course_lib.viz import explore, record, set_logs
    from course_lib.viz.explain import explain
    from course_lib.viz.mirror import mirror

__version__ = "0.1.0"

__all__ = [
    "Interpreter", "Pipeline", "Unsupported", "allow_in_graph", "capturing", "compile", "config", "disable",
    "disallow_in_graph", "explain", "explore", "graph_break", "is_compiling", "list_backends", "list_mode_options",
    "list_options", "mark_dynamic", "mirror", "record", "reset", "set_logs",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # it shows what happened, so it lives with the pictures, which are loaded only when they are wanted
    if name in __all__:
        return getattr(importlib.import_module("course_lib.viz"), name)
    raise AttributeError(f"module 'course_lib' has no attribute '{name}'")


for variable, module in (("COURSE_LOGS", "logs"), ("COURSE_TRACE", "tracing")):
    if os.environ.get(variable):
        importlib.import_module(f"course_lib.viz.{module}")
