"""Pictures of what the compiler did.

In:  events (`course_lib.events`), or graphs, schedules and sources.
Out: `Picture`s: HTML and SVG that stay in a saved notebook, need no network and no `dot` program, follow the light or dark theme,
     and have a plain-text form.

`style.py` is the one visual language; `trace.py` (`with cl.record() as trace:`) leads to all pictures of one run.
In PyTorch: `tlparse`, `torch/fx/passes/graph_drawer.py`, and `depyf`.
"""

import importlib
import importlib.util
from typing import Any

from course_lib.viz.bytecode import bytecode_table, disassembly
from course_lib.viz.code import code
from course_lib.viz.compare import Launch, landscape, launch_timeline, launches, speedup_bars
from course_lib.viz.explain import explain
from course_lib.viz.explorer import Explorer, explore
from course_lib.viz.flame import compile_time
from course_lib.viz.fusion import fusion
from course_lib.viz.graphs import fx_graph
from course_lib.viz.guards import guard_costs, guard_table, guard_tree
from course_lib.viz.joint import joint_graph
from course_lib.viz.ladder import bisection, ladder
from course_lib.viz.logs import set_logs
from course_lib.viz.loops import loops
from course_lib.viz.memory import memory_timeline
from course_lib.viz.mirror import mirror
from course_lib.viz.mirror_back import ablation
from course_lib.viz.modules import module_graph
from course_lib.viz.pipeline_map import pipeline_map
from course_lib.viz.predict import Predict
from course_lib.viz.recompiles import each_call, timeline
from course_lib.viz.stepper import Stepper
from course_lib.viz.style import Picture
from course_lib.viz.tables import Point, bars, roofline, table
from course_lib.viz.tiles import tile_map
from course_lib.viz.trace import Trace, record
from course_lib.viz.trampoline import swap, unswap


def __getattr__(name: str) -> Any:
    """What few need is imported when it is asked for: `viz.shapes`, `viz.warps`."""
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Explorer", "Launch", "Picture", "Point", "Predict", "Stepper", "Trace", "ablation", "bars", "bisection", "bytecode_table",
    "code", "compile_time", "disassembly", "each_call", "explain", "explore", "fusion", "fx_graph", "guard_costs", "guard_table",
    "guard_tree", "joint_graph", "ladder", "landscape", "launch_timeline", "launches", "loops", "memory_timeline", "mirror",
    "module_graph", "pipeline_map", "record", "roofline", "set_logs", "speedup_bars", "swap", "table", "tile_map", "timeline",
    "unswap",
]  # fmt: skip
