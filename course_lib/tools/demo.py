"""`course demo`: one function on its way from Python bytecode to machine code, in the terminal.

In:  `bench.models.gelu_layer`, three small tensors. Out: text, one heading for each stage; 1 if the result is not eager's.

Everything printed is read from the events of one call of `compile`: the demo watches the pipeline and has no way of its own.
"""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import course_lib
from course_lib import events
from course_lib.bench.measure import human_time
from course_lib.bench.models import gelu_layer, random_inputs
from course_lib.viz.pictures.capture.stack_words import in_words
from course_lib.viz.recording import Recording

WIDTH = 118
SHAPES = ((64, 128), (128, 256), (256,))


def main() -> int:
    """Compile once, tell what happened, check the result."""
    torch.manual_seed(0)
    compiled, trace = course_lib.compile(gelu_layer), Recording()
    with torch.inference_mode():
        with events.listener(trace.events.append, in_words):
            compiled(*random_inputs(SHAPES))
        fresh = random_inputs(SHAPES)
        difference = (compiled(*fresh) - gelu_layer(*fresh)).abs().max().item()
    for number, stage in enumerate(STAGES, 1):
        print(paint(f"\n{number} {stage.__doc__} ".ljust(WIDTH, "─"), "1;36"))
        for line in stage(trace):
            print(line if len(line) <= WIDTH else line[: WIDTH - 1] + "…")
    right = difference < 1e-4
    print(
        f"\nOn fresh inputs: largest difference from eager {difference:.1e}, {'fine' if right else 'WRONG'}."
    )
    return 0 if right else 1


def source(trace: Recording) -> Iterator[str]:
    """A Python function"""
    lines, first = inspect.getsourcelines(gelu_layer)
    yield f"{short_path(inspect.getfile(gelu_layer))}, called with tensors of shape {', '.join(map(str, SHAPES))}"
    yield from (f"{first + i:5}  {line.rstrip()}" for i, line in enumerate(lines))


def bytecode(trace: Recording) -> Iterator[str]:
    """Its bytecode, run on symbolic values"""
    last = 0
    yield f"{'line':>4} {'offset':>6}  {'instruction':<34} {'adds node':<10} stack afterwards"
    for step in trace.of(events.InstructionRun):
        line, last = "" if step.line == last else str(step.line), step.line
        instruction = "  " * step.depth + f"{step.op} {step.arg}".strip()
        yield f"{line:>4} {step.offset:>6}  {instruction:<34} {step.node:<10} [{', '.join(step.after)}]"


def captured_graph(trace: Recording) -> Iterator[str]:
    """The captured FX graph"""
    for graph in trace.graphs:
        yield from graph_lines(graph)
    yield from (
        f"graph break: {line}"
        for problem in trace.graph_breaks
        for line in str(problem).splitlines()
    )


def guards(trace: Recording) -> Iterator[str]:
    """Guards: the compiled code is used again while all of these hold"""
    for guard in trace.guards:
        yield from textwrap.wrap(guard.expr, WIDTH, subsequent_indent="    ")
        if guard.cause:
            yield f"        because of {short_path(guard.cause.filename)}:{guard.cause.line}: {guard.cause.text}"


def aten_graph(trace: Recording) -> Iterator[str]:
    """The same in ATen operators"""
    for event in trace.of(events.AtenTraced):
        yield from graph_lines(event.graph)


def loops(trace: Recording) -> Iterator[str]:
    """Loops, before fusion"""
    for event in trace.of(events.Lowered):
        yield from (f"{', '.join(map(str, node.buffers)):<28} {node}" for node in event.graph.nodes)


def fusion(trace: Recording) -> Iterator[str]:
    """Which loops run together, and why"""
    for event in trace.of(events.Scheduled):
        for decision in event.schedule.decisions:
            yield from textwrap.wrap(str(decision), WIDTH, subsequent_indent="    ")


def kernels(trace: Recording) -> Iterator[str]:
    """Kernels"""
    for kernel in trace.kernels:
        saved = getattr(kernel, "bytes_saved", 0)
        yield f"{kernel}" + (f": {saved:,} bytes of memory traffic saved" if saved else "")


def generated(trace: Recording) -> Iterator[str]:
    """Generated C++"""
    for event in trace.of(events.KernelsBuilt):
        yield from (
            line for kernel in event.compiled.kernels for line in kernel.source.splitlines()
        )
    for fallback in trace.of(events.FellBack):
        yield from textwrap.wrap(f"{fallback.what}: {fallback.why}", WIDTH)


def program(trace: Recording) -> Iterator[str]:
    """What runs in the place of the function: a head, and the program that calls the kernels"""
    for result in trace.captures:
        yield from (*result.head.source.splitlines(), "")
    for event in trace.of(events.KernelsBuilt):
        yield from event.compiled.wrapper_source.splitlines()


def timing(trace: Recording) -> Iterator[str]:
    """Time by stage"""
    yield from (f"{stage:<10} {human_time(seconds):>9}" for stage, seconds in trace.seconds.items())


STAGES = (
    source,
    bytecode,
    captured_graph,
    guards,
    aten_graph,
    loops,
    fusion,
    kernels,
    generated,
    program,
    timing,
)


def graph_lines(graph: Any) -> Iterator[str]:
    """An FX graph, one node a line, with what each computes."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
            target = "input" if node.op == "placeholder" else node._pretty_print_target(node.target)
            yield f"{node.name}: {kind} = {target}" + (
                f"({', '.join(map(str, node.args))})" if node.args else ""
            )
        else:
            yield node.format_node()


def short_path(path: str) -> str:
    """Relative to the current folder if it is below it."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path


def paint(text: str, colour: str) -> str:
    """In colour, if a person reads it on a terminal."""
    return (
        f"\033[{colour}m{text}\033[0m"
        if sys.stdout.isatty() and "NO_COLOR" not in os.environ
        else text
    )
