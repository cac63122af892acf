"""`course demo`: one function on its way from Python bytecode to machine code, in the terminal.

In:  `bench.models.gelu_layer`, three small tensors. Out: text, one heading for each stage; 1 if the
     result is not eager's.

Everything printed is read from the events of one call of `compile`: the demo watches the pipeline
and has no way of its own.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import course_lib
from course_lib import events
from course_lib.bench.measure import human_time
from course_lib.bench.models import gelu_layer, random_inputs
from course_lib.grading.terminal import columns_of
from course_lib.languages import phrase
from course_lib.viz.pictures.capture.stack_words import in_words
from course_lib.viz.recording import Recording

WIDEST, NARROWEST = 118, 60
"""Characters of a line: at most, and at least, whatever the terminal says."""
SHAPES = ((64, 128), (128, 256), (256,))


def main() -> int:
    """Compile once, tell what happened, check the result."""
    torch.manual_seed(0)
    compiled = course_lib.compile(gelu_layer)
    # The stack holds symbolic values. They are put into words as they pass by
    trace = Recording()

    with torch.inference_mode():
        with events.listener(trace.events.append, in_words):
            compiled(*random_inputs(SHAPES))
        # Inputs that the compiler has not seen
        fresh = random_inputs(SHAPES)
        difference = (compiled(*fresh) - gelu_layer(*fresh)).abs().max().item()

    # A line that is wider than the terminal would break where it hurts most
    line_width = width()
    for number, (title, stage) in enumerate(stages(), 1):
        heading = f"{number} {title} "
        print(paint("\n" + heading + "─" * (line_width - columns_of(heading)), "1;36"))
        for line in stage(trace):
            print(line if len(line) <= line_width else line[: line_width - 1] + "…")

    right = difference < 1e-4
    verdict = phrase("fine") if right else phrase("WRONG")
    print()
    print(
        phrase(
            "On fresh inputs: largest difference from eager {difference}, {verdict}.",
            difference=f"{difference:.1e}",
            verdict=verdict,
        )
    )
    return 0 if right else 1


def width() -> int:
    """Characters of a line in this terminal."""
    columns = shutil.get_terminal_size(fallback=(WIDEST, 24)).columns
    return min(max(columns, NARROWEST), WIDEST)


def source(trace: Recording) -> Iterator[str]:
    """The function, with the numbers of its lines."""
    lines, first = inspect.getsourcelines(gelu_layer)
    shapes = ", ".join(map(str, SHAPES))
    file = short_path(inspect.getfile(gelu_layer))
    yield phrase("{file}, called with tensors of shape {shapes}", file=file, shapes=shapes)
    for number, line in enumerate(lines, first):
        yield f"{number:5}  {line.rstrip()}"


def bytecode(trace: Recording) -> Iterator[str]:
    """What each instruction did, and what stood on the stack afterwards."""
    last = 0
    yield f"{'line':>4} {'offset':>6}  {'instruction':<34} {'adds node':<10} stack afterwards"
    for step in trace.of(events.InstructionRun):
        # A line's number stands before its first instruction only.
        line = "" if step.line == last else str(step.line)
        last = step.line

        instruction = "  " * step.depth + f"{step.op} {step.arg}".strip()
        stack = ", ".join(step.after)
        yield f"{line:>4} {step.offset:>6}  {instruction:<34} {step.node:<10} [{stack}]"


def captured_graph(trace: Recording) -> Iterator[str]:
    """The graph, or why capture stopped."""
    for graph in trace.graphs:
        yield from graph_lines(graph)
    for problem in trace.graph_breaks:
        for line in str(problem).splitlines():
            yield f"graph break: {line}"


def guards(trace: Recording) -> Iterator[str]:
    """The guards, each with the line that caused it."""
    for guard in trace.guards:
        yield from textwrap.wrap(guard.expr, width(), subsequent_indent="    ")
        if guard.cause:
            place = f"{short_path(guard.cause.filename)}:{guard.cause.line}"
            because = phrase("because of {place}: {text}", place=place, text=guard.cause.text)
            yield f"        {because}"


def aten_graph(trace: Recording) -> Iterator[str]:
    """The graph behind autograd."""
    for event in trace.of(events.AtenTraced):
        yield from graph_lines(event.graph)


def loops(trace: Recording) -> Iterator[str]:
    """The loops, with the buffers that each writes."""
    for event in trace.of(events.Lowered):
        for node in event.graph.nodes:
            buffers = ", ".join(map(str, node.buffers))
            yield f"{buffers:<28} {node}"


def fusion(trace: Recording) -> Iterator[str]:
    """The decisions of the scheduler."""
    for event in trace.of(events.Scheduled):
        for decision in event.schedule.decisions:
            yield from textwrap.wrap(str(decision), width(), subsequent_indent="    ")


def kernels(trace: Recording) -> Iterator[str]:
    """The kernels, with what fusion saved."""
    for kernel in trace.kernels:
        saved = getattr(kernel, "bytes_saved", 0)
        if saved:
            yield phrase(
                "{kernel}: {saved} bytes of memory traffic saved", kernel=kernel, saved=f"{saved:,}"
            )
        else:
            yield str(kernel)


def generated(trace: Recording) -> Iterator[str]:
    """The source of each kernel, or why there is none."""
    for event in trace.of(events.KernelsBuilt):
        for kernel in event.compiled.kernels:
            yield from kernel.source.splitlines()
    for fallback in trace.of(events.FellBack):
        yield from textwrap.wrap(f"{fallback.what}: {fallback.why}", width())


def program(trace: Recording) -> Iterator[str]:
    """The head, and the program that calls the kernels."""
    for result in trace.captures:
        yield from (*result.head.source.splitlines(), "")
    for event in trace.of(events.KernelsBuilt):
        yield from event.compiled.wrapper_source.splitlines()


def timing(trace: Recording) -> Iterator[str]:
    """The seconds of each stage."""
    for stage, seconds in trace.seconds.items():
        yield f"{stage:<10} {human_time(seconds):>9}"


def stages() -> tuple[tuple[str, Callable[[Recording], Iterator[str]]], ...]:
    """The demo's sections in order: the title of each, in the chosen language, and its lines."""
    return (
        (phrase("A Python function"), source),
        (phrase("Its bytecode, run on symbolic values"), bytecode),
        (phrase("The captured FX graph"), captured_graph),
        (phrase("Guards: the compiled code is used again while all of these hold"), guards),
        (phrase("The same in ATen operators"), aten_graph),
        (phrase("Loops, before fusion"), loops),
        (phrase("Which loops run together, and why"), fusion),
        (phrase("Kernels"), kernels),
        (phrase("Generated C++"), generated),
        (
            phrase("What runs instead of the function: a head, and the program of kernels"),
            program,
        ),
        (phrase("Time by stage"), timing),
    )


def graph_lines(graph: Any) -> Iterator[str]:
    """An FX graph, one node a line, with what each computes."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            yield node.format_node()
            continue

        kind = f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
        call_text = "input" if node.op == "placeholder" else node._pretty_print_target(node.target)
        if node.args:
            call_text += f"({', '.join(map(str, node.args))})"
        yield f"{node.name}: {kind} = {call_text}"


def short_path(path: str) -> str:
    """Relative to the current folder if it is below it."""
    here = Path.cwd()
    if Path(path).is_relative_to(here):
        return str(Path(path).relative_to(here))
    return path


def paint(text: str, colour: str) -> str:
    """In colour, if a person reads it on a terminal. `colour` is a code of terminals: "1;36" is
    bold and cyan."""
    if sys.stdout.isatty() and "NO_COLOR" not in os.environ:
        return f"\033[{colour}m{text}\033[0m"
    return text
