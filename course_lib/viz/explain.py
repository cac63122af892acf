"""`cl.explain(f)(*args)`: what capture made of one call.

In PyTorch: `torch/_dynamo/backends/debugging.py`, `ExplainOutput`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from course_lib import config, events
from course_lib.autograd import has_sizes_of_data, trace
from course_lib.capture import CaptureResult, Guard, Unsupported
from course_lib.capture.of_data import told_of_data
from course_lib.capture.world import chosen
from course_lib.compiler import compile
from course_lib.for_each_size import with_sizes
from course_lib.lowering import DECOMPOSITIONS, ExternKernel, lower
from course_lib.viz.kit.arguments import a_function
from course_lib.viz.kit.style import plural
from course_lib.viz.recording import Recording


@dataclass
class Explanation:
    """Graphs, breaks and guards of one call, and what of it is left to libraries."""

    captures: list[CaptureResult]
    breaks: list[Unsupported]
    # What the compiled function has left to eager so far, and why
    left: dict[str, str] = field(default_factory=dict)

    @property
    def graphs(self) -> list[fx.GraphModule]:
        return [result.graph for result in self.captures]

    @property
    def graph_count(self) -> int:
        return len(self.captures)

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def op_count(self) -> int:
        return sum(result.operations for result in self.captures)

    @property
    def guards(self) -> list[Guard]:
        return [guard for result in self.captures for guard in result.guards]

    @property
    def size_decisions(self) -> list[str]:
        """What capture assumed about symbolic sizes, and which of them only the data says, with the
        line that asked.

        (The back half's decisions stand in the report and in `COURSE_LOGS=dynamic`.)"""
        guarded = [f"guarded: {guard}" for guard in self.guards if guard.kind == "sizes"]
        return guarded + [text for graph in self.graphs for text in told_of_data(graph.graph)]

    @property
    def library_calls(self) -> list[str]:
        """What no kernel of ours computes (in forward), and why: 'aten.mm.default: matrix product:
        left to the library'."""
        times_of_reason: Counter[str] = Counter()
        for result in self.captures:
            if has_sizes_of_data(result.graph):
                times_of_reason[
                    "what the data decides: runs as in eager, and what lies between is compiled"
                ] += 1
            elif result.operations:
                try:
                    loops = lower(
                        trace(with_sizes(result.graph, result.example_inputs), DECOMPOSITIONS)
                    )
                except NotImplementedError as problem:
                    times_of_reason[f"the whole graph: {problem}"] += 1
                else:
                    times_of_reason.update(
                        f"{node.op}: {node.why}"
                        for node in loops.nodes
                        if isinstance(node, ExternKernel)
                    )
        return [
            text if times == 1 else f"{text} ({times} times)"
            for text, times in times_of_reason.items()
        ]

    def __str__(self) -> str:
        lines = [
            f"{plural(self.graph_count, 'graph')}, {plural(self.graph_break_count, 'graph break')}, "
            f"{plural(self.op_count, 'operation')}, {plural(len(self.guards), 'guard')}"
        ]
        for number, problem in enumerate(self.breaks, 1):
            lines += [f"break {number}: " + str(problem).replace("\n", "\n  ")]
        lines += [f"size, {text}" for text in dict.fromkeys(self.size_decisions)]
        lines += [f"library call, {text}" for text in self.library_calls]
        lines += [f"left to eager: {name}: {why}" for name, why in self.left.items()]
        return "\n".join(lines)


def explain(function: Callable[..., Any]) -> Callable[..., Explanation]:
    """Run `function` once with capture alone and tell what happened.

    Takes the arguments of the call in a second pair of parentheses. Of a function that was compiled
    with `fullgraph=True` it tells what that keeps in the graph: `x[mask]`, `n.item()`. A break is
    told, and raises nothing."""

    a_function(function, "explain")

    def run(*args: Any, **kwargs: Any) -> Explanation:
        recording = Recording()
        # What `cl.compile` has left on a function that it has wrapped
        own_compiler = getattr(function, "_course_compiler", None)
        dynamic = own_compiler.dynamic if own_compiler else None
        is_whole = own_compiler is not None and own_compiler.fullgraph
        with events.listener(recording.note), kept_in_the_graph(is_whole):
            compile(function, backend="eager", dynamic=dynamic)(*args, **kwargs)
        left = dict(own_compiler.left) if own_compiler else {}
        return Explanation(recording.captures, recording.graph_breaks, left)

    return run


@contextlib.contextmanager
def kept_in_the_graph(is_whole: bool) -> Iterator[None]:
    """Inside, what only the data says stays in the graph, as under `fullgraph=True`, if it
    `is_whole`."""
    scalars = config.capture_scalar_outputs
    shapes = config.capture_dynamic_output_shape_ops
    # A setting that the program has made stays; one that it left open (None) becomes True.
    if is_whole:
        config.capture_scalar_outputs = chosen(scalars, True)
        config.capture_dynamic_output_shape_ops = chosen(shapes, True)
    try:
        yield
    finally:
        config.capture_scalar_outputs = scalars
        config.capture_dynamic_output_shape_ops = shapes
