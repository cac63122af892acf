"""Which kernel came from which lines of the program.

In:  a schedule (or a `Program`). Out: a `KernelLines` for each kernel: its name, its loops, the
     bytes it moves, the lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course_lib.viz.pictures.graphs.fx_graphs import written_at
from course_lib.viz.pictures.graphs.module_graphs import captured_operation
from course_lib.viz.pictures.lowering.loop_formulas import is_extern


@dataclass(frozen=True)
class KernelLines:
    """One kernel, and where it comes from."""

    kernel: Any
    name: str
    # Its loops in words, "" for a call of a library
    space: str
    # What it moves through memory
    bytes: int
    # `Location`s in program order
    lines: tuple[Any, ...]
    is_library: bool


def kernels_of(program: Any) -> list[KernelLines]:
    """The kernels of a program (anything with a `schedule`), in the order in which they run."""
    schedule = program.schedule
    if schedule is None:
        return []
    kernels = []
    for kernel, group in zip(schedule.kernels, schedule.groups, strict=True):
        library = is_extern(kernel) and kernel.is_library
        name = kernel.label.removesuffix(".default") if library else kernel.name
        space = "" if library else kernel.space
        kernels.append(
            KernelLines(kernel, name, space, group.traffic, tuple(lines_of(kernel)), library)
        )
    return kernels


def lines_of(kernel: Any) -> list[Any]:
    """The places in the program that a kernel computes, each once, in the order of their lines."""
    location_of_line: dict[tuple[str, int], Any] = {}
    # A library call is a node itself.
    for node in getattr(kernel, "nodes", None) or (kernel,):
        for origin in node.origins:
            captured = captured_operation(origin)
            location = written_at(captured) if captured is not None else None
            if location is not None:
                location_of_line.setdefault((location.filename, location.line), location)
    return [location_of_line[key] for key in sorted(location_of_line)]
