"""Draws the README's first picture from the recording of one call:
`python -m course_lib.tools.walk [FOLDER]`.

In:  a folder, `docs/pictures` if none is named. Out: `walk.svg` in it, and `walk.zh.svg` with
     Chinese headings.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

import torch

import course_lib as cl
from course_lib import events
from course_lib.viz.pictures.pipeline.walk import Instruction, Node, Walk, walk
from course_lib.viz.trace import Trace

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
FILES: dict[str, str | None] = {"walk.svg": None, "walk.zh.svg": "zh_Hans"}
"""Name of the file → language of its headings; None for English."""


def scaled(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x * 2 + b
    return y.relu()


SHORT = {"x: torch.Tensor, b: torch.Tensor": "x, b", " -> torch.Tensor": ""}
"""What is left out of the source that is shown."""


def recorded() -> Walk:
    """One call of `scaled`, compiled anew."""
    cl.reset()
    x, b = torch.ones(64, 100), torch.ones(100)
    with cl.record() as trace:
        cl.compile(scaled)(x, b)

    source = textwrap.dedent(inspect.getsource(scaled))
    for long, short in SHORT.items():
        source = source.replace(long, short)
    return walk_of(trace, source.splitlines())


def walk_of(trace: Trace, source: list[str]) -> Walk:
    """What the recording of a call says that has one graph and one kernel.

    `source`: the lines of the function."""
    (captured,) = trace.of(events.GraphCaptured)
    (scheduled,) = trace.of(events.Scheduled)
    (kernel,) = scheduled.schedule.kernels
    steps = [step for step in trace.of(events.InstructionRun) if step.depth == 0]
    return Walk(
        source=source,
        instructions=[instruction(step) for step in steps],
        nodes=nodes_of(captured.result.graph),
        guards=[test for guard in trace.guards for test in shape_tests(guard)],
        loops=loops_in(trace.loops().text),
        before=scheduled.schedule.bytes_before,
        after=sum(group.traffic for group in scheduled.schedule.groups),
        kernel=kernel.name,
        code=loops_of_code(trace.code().text),
    )


def instruction(step: events.InstructionRun) -> Instruction:
    """An instruction as the film shows it: its name and argument, and the names on the stack.

    Shapes and CPython's empty slots (NULL) would need more room."""
    names = [entry.split(":")[0] for entry in step.after if entry != "NULL"]
    added = f"+ {step.node}" if step.node else ""
    return Instruction(f"{step.op} {step.arg}".strip(), ", ".join(names), added)


def nodes_of(graph: Any) -> list[Node]:
    """The inputs and operations of a captured graph."""
    found = []
    for node in graph.graph.nodes:
        if node.op != "output":
            shape = "×".join(map(str, node.meta["val"].shape))
            found.append(Node(node.name, shape, [source.name for source in node.all_input_nodes]))
    return found


def shape_tests(guard: Any) -> list[str]:
    """The test of a tensor's shape, as Python; nothing for guards on other things."""
    if guard.kind != "tensor":
        return []
    path = guard.source.pretty
    # In the text of a test `{}` stands for the tensor.
    return [f"{path}.shape == {test.right}" for test in guard.tests if test.left == "{}.shape"]


def loops_in(text: str) -> list[tuple[str, str]]:
    """(ranges, formula) from the plain form of the picture of loops."""
    lines = text.splitlines()
    pairs = zip(lines[::2], lines[1::2], strict=True)
    return [(ranges.rstrip(":"), formula.strip()) for ranges, formula in pairs]


def loops_of_code(text: str) -> list[str]:
    """The loops of the kernel: from its first `for` to its end, without what OpenMP is told and
    without comments."""
    body = text[text.index("  for (") :]
    # Two spaces less: in the kernel the loops stand inside a function.
    lines = [
        re.sub(r"\s*//.*", "", line)[2:] for line in body.splitlines() if "#pragma" not in line
    ]
    return [line for line in lines if line.strip()]


def main(folder: Path = FOLDER) -> None:
    shown = recorded()
    for name, language in FILES.items():
        (folder / name).write_text(walk(shown, language), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
