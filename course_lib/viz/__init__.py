"""Pictures of what the compiler did.

In:  events (`course_lib.events`), or graphs, schedules and sources.
Out: `Picture`s: HTML and SVG that stay in a saved notebook, need no network and no `dot` program,
     follow the light or dark theme, and have a plain-text form.

The rooms, each of which imports only from those before it:

    kit/            the visual language: `Picture`, colours, drawing by hand, tables
    recording/      the events of a `with cl.record()` block, by kind; the logs
    evaluator.py    runs loop nodes with NumPy: the reference for all that is generated
    pictures/       one folder for each room of the compiler: what it did, drawn
    widgets/        pictures that answer to a click
    explorer/       all stages side by side; point at a line and see what became of it
    report/         one HTML file about everything that was compiled in a run
    mirror/         one call through both compilers, side by side
    trace.py        `with cl.record() as trace:` and one method for each picture
    explain.py      `cl.explain(f)(*args)`: what capture made of one call

This file is the front page: what the lessons and the library's users draw with.
In PyTorch: `tlparse`, `torch/fx/passes/graph_drawer.py`, and `depyf`.
"""

from course_lib.viz import evaluator
from course_lib.viz.explain import explain
from course_lib.viz.explorer.explorer import Explorer, explore
from course_lib.viz.kit import style, svg, tables
from course_lib.viz.kit.bars import bars
from course_lib.viz.kit.highlight import code
from course_lib.viz.kit.roofline import Point, roofline
from course_lib.viz.kit.style import Picture, human_bytes, human_seconds
from course_lib.viz.kit.tables import table
from course_lib.viz.mirror import ablation, mirror
from course_lib.viz.pictures.autograd.joint_graph import joint_graph
from course_lib.viz.pictures.autograd.pipes import pipes
from course_lib.viz.pictures.capture.bytecode_table import bytecode_table, disassembly
from course_lib.viz.pictures.capture.resume_code import resume_code
from course_lib.viz.pictures.capture.stack_words import in_words
from course_lib.viz.pictures.capture.trampoline import swap, unswap
from course_lib.viz.pictures.codegen.inductor_triton import inductor_triton
from course_lib.viz.pictures.codegen.inspect_kernel import inspect_kernel
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.pictures.codegen.lanes import lanes
from course_lib.viz.pictures.codegen.tiles import tile_map
from course_lib.viz.pictures.codegen.warps import coalescing, sectors, tile_layout
from course_lib.viz.pictures.graphs import fx_graphs as graphs
from course_lib.viz.pictures.graphs.fx_graphs import fx_graph, op_name
from course_lib.viz.pictures.graphs.module_graphs import module_graph
from course_lib.viz.pictures.guards.buckets import buckets, in_buckets
from course_lib.viz.pictures.guards.call_timeline import each_call, timeline
from course_lib.viz.pictures.guards.guard_tables import guard_table
from course_lib.viz.pictures.guards.guard_trees import guard_costs, guard_tree
from course_lib.viz.pictures.guards.shape_map import shape_map
from course_lib.viz.pictures.guards.symbolic_sizes import two_lives
from course_lib.viz.pictures.lowering.handlers import side_by_side
from course_lib.viz.pictures.lowering.loop_formulas import (
    Formula,
    formula,
    loops,
    reads,
    trace_element,
)
from course_lib.viz.pictures.lowering.views import collapse, index_map
from course_lib.viz.pictures.pipeline.bug_search import bisection, ladder
from course_lib.viz.pictures.pipeline.owners import owners
from course_lib.viz.pictures.pipeline.pipeline_map import pipeline_map
from course_lib.viz.pictures.runtime.launches import Launch, launch_timeline, launches
from course_lib.viz.pictures.runtime.request_queue import Handled, latencies, queue
from course_lib.viz.pictures.runtime.speedups import landscape, speedup_bars
from course_lib.viz.pictures.scheduling.fused_loops import fusion
from course_lib.viz.pictures.scheduling.mask_blocks import mask_blocks
from course_lib.viz.pictures.scheduling.memory_timeline import memory_timeline
from course_lib.viz.pictures.scheduling.order import order
from course_lib.viz.pictures.scheduling.running_softmax import running_softmax
from course_lib.viz.recording.logs import LOGS, set_logs
from course_lib.viz.report.compile_time import compile_time
from course_lib.viz.report.compile_tree import compiles_of
from course_lib.viz.report.findings import findings
from course_lib.viz.trace import Trace, record
from course_lib.viz.widgets.choose import choose_buckets, choose_fusion
from course_lib.viz.widgets.move_tile import move_tile
from course_lib.viz.widgets.predict import Predict
from course_lib.viz.widgets.stepper import Stepper

__all__ = [
    "LOGS", "Explorer", "Formula", "Handled", "Launch", "Picture", "Point", "Predict", "Stepper", "Trace", "ablation",
    "bars", "bisection", "buckets", "bytecode_table", "choose_buckets", "choose_fusion", "coalescing", "code", "collapse",
    "compile_time", "compiles_of", "disassembly", "each_call", "explain", "explore", "findings", "formula", "fusion",
    "fx_graph", "guard_costs", "guard_table", "guard_tree", "human_bytes", "human_seconds", "in_buckets", "in_words", "index_map",
    "inductor_triton", "inspect_kernel", "joint_graph", "kernels_of", "ladder", "landscape", "lanes", "latencies",
    "launch_timeline", "launches", "loops", "mask_blocks", "memory_timeline", "mirror", "module_graph", "move_tile", "op_name", "order",
    "owners", "pipeline_map", "pipes", "queue", "reads", "record", "resume_code", "roofline", "running_softmax", "sectors", "set_logs",
    "shape_map", "side_by_side", "speedup_bars", "swap", "table", "tile_layout", "tile_map", "timeline", "trace_element", "two_lives",
    "unswap",
]  # fmt: skip
