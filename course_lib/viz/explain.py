"""`cl.explain(f)(*args)`: what capture made of one call.

In PyTorch: `torch/_dynamo/backends/debugging.py`, `ExplainOutput`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from course_lib import events
from course_lib.capture import CaptureResult, Guard, Unsupported
from course_lib.compiler import compile
from course_lib.viz.recording import Recording


@dataclass
class Explanation:
    """Graphs, breaks and guards of one call."""

    captures: list[CaptureResult]
    breaks: list[Unsupported]

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

    def __str__(self) -> str:
        lines = [
            f"{self.graph_count} graphs, {self.graph_break_count} graph breaks, {self.op_count} operations, "
            f"{len(self.guards)} guards"
        ]
        for number, problem in enumerate(self.breaks, 1):
            lines += [f"break {number}: " + str(problem).replace("\n", "\n  ")]
        return "\n".join(lines)


def explain(function: Callable[..., Any]) -> Callable[..., Explanation]:
    """Run `function` once with capture alone and tell what happened. Takes the arguments of the call in a second pair
    of parentheses."""

    def run(*args: Any, **kwargs: Any) -> Explanation:
        recording = Recording()
        with events.listener(recording.events.append):
            compile(function, backend="eager")(*args, **kwargs)
        return Explanation(recording.captures, recording.graph_breaks)

    return run
