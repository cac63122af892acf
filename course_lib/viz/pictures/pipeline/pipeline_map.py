"""The map of the whole pipeline, with one stage lit: the first picture of every lesson.

In:  the stage the lesson is about, and optionally a `Recording`, whose counts and times are written into the boxes.
Out: a `Picture` of eight rooms in two columns: the front half, from a Python frame to a graph; the back half, from there to
     kernels. It fits into an output of JupyterLab in a window of 800 px, so that its letters never shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from course_lib import events
from course_lib.viz.kit.asked import text
from course_lib.viz.kit.style import LARGE, SMALL, Picture, human_seconds, plural
from course_lib.viz.kit.svg import Svg
from course_lib.viz.recording import Recording


@dataclass(frozen=True)
class Room:
    """One stage: what it is called here and in PyTorch, its lessons, what it hands on, and which timers belong to it."""

    name: str
    title: str
    lesson: str
    what: str
    torch: str
    gives: str
    timers: tuple[str, ...] = ()


ROOMS = (
    Room(
        "frames",
        "frame hook",
        "02",
        "catches the call",
        "_C/_dynamo/eval_frame",
        "bytecode, arguments",
    ),
    Room(
        "capture",
        "capture",
        "02, 03",
        "interprets symbols",
        "_dynamo/symbolic_convert",
        "FX graph, guards",
        ("capture",),
    ),
    Room(
        "guards", "guards", "04, 05", "may it be reused?", "_dynamo/guards", "FX graph", ("guards",)
    ),
    Room(
        "autograd",
        "autograd",
        "06",
        "core operators",
        "_functorch/aot_autograd",
        "ATen graph",
        ("trace", "partition"),
    ),
    Room(
        "lowering",
        "lowering",
        "07",
        "operators to loops",
        "_inductor/lowering, ir",
        "loop IR",
        ("lower",),
    ),
    Room(
        "scheduling",
        "scheduling",
        "08",
        "fuses loops",
        "_inductor/scheduler",
        "fused kernels",
        ("schedule", "memory"),
    ),
    Room("codegen", "codegen", "09, 10", "writes the code", "_inductor/codegen", "C++ or Triton"),
    Room("runtime", "runtime", "11", "builds and calls", "_inductor/codecache", "", ("build",)),
)
NAMES = tuple(room.name for room in ROOMS)
ALIASES = {
    "frame hook": "frames",
    "trace": "autograd",
    "fusion": "scheduling",
    "kernels": "codegen",
}

BOX, TALL, DOWN, BETWEEN, TOP = 266, 72, 32, 40, 26
"""px: a room, the way down to the next, the space between the columns, and that for the headings."""
HEADINGS = ("FRONT HALF: from a Python frame to a graph", "BACK HALF: from the graph to kernels")


def pipeline_map(lit: str | None = None, recording: Recording | None = None) -> Picture:
    """The pipeline, `lit` at one stage (see `NAMES`). With a recording, each box says what it did in that run, and for how long.

    Raises ValueError for a stage that is not in the pipeline."""
    lit = None if lit is None or lit == "" else text(lit, "the stage of pipeline_map")
    lit = ALIASES.get(lit, lit) if lit else None
    if lit is not None and lit not in NAMES:
        raise ValueError(f"no stage is called '{lit}'; the stages are {', '.join(NAMES)}")
    facts = counts(recording) if recording else {}
    seconds = recording.seconds if recording else {}
    tall = [TALL] * 4
    svg = Svg(2 * BOX + BETWEEN + 6, TOP + sum(tall) + 4 * DOWN)
    draw_headings(svg)
    for i, room in enumerate(ROOMS):
        x, y = corner(i, tall)
        took = sum(seconds.get(timer, 0.0) for timer in room.timers)
        draw_room(svg, room, x, y, room.name == lit, facts.get(room.name, ""), took)
        if room.gives:
            svg.arrow(way(i, tall))
            svg.text(
                x + BOX / 2 + 10, y + TALL + (15 if i == 3 else DOWN / 2 + 4), room.gives, SMALL
            )
    here = next((room for room in ROOMS if room.name == lit), None)
    caption = (
        f"The pipeline; this lesson is about {here.title} (filled)."
        if here
        else "The pipeline, from a Python frame to kernels."
    )
    if recording:
        caption = "What this run did at each stage of the pipeline, and how long it took."
    chain = ", ".join(
        f"{room.title} ({facts[room.name]})" if facts.get(room.name) else room.title
        for room in ROOMS
    )
    alt = f"The pipeline in order: {chain}." + (f" {here.title} is lit." if here else "")
    return Picture(svg.render(alt), caption, alt, as_text(lit, facts, seconds))


def corner(i: int, tall: Sequence[float]) -> tuple[float, float]:
    """Where room `i` stands, if the four of a column are `tall` px high."""
    return 3 + (i // 4) * (BOX + BETWEEN), TOP + sum(tall[: i % 4]) + (i % 4) * DOWN


def way(i: int, tall: Sequence[float]) -> list[tuple[float, float]]:
    """The corners of the arrow from room `i` to the next: down, or from the foot of the left column to the head of the right."""
    (x, y), (x_next, y_next) = corner(i, tall), corner(i + 1, tall)
    middle, below = x + BOX / 2, y + tall[i % 4]
    if i != 3:
        return [(middle, below + 2), (middle, below + DOWN - 4)]
    aside, foot, head = x_next - BETWEEN / 2, below + 23, y_next + tall[0] / 2
    return [(middle, below + 2), (middle, foot), (aside, foot), (aside, head), (x_next - 3, head)]


def draw_headings(svg: Svg) -> None:
    """What the two columns are."""
    for i, heading in enumerate(HEADINGS):
        svg.text(corner(4 * i, ())[0], 14, heading, SMALL, dim=True)


def draw_room(svg: Svg, room: Room, x: float, y: float, lit: bool, fact: str, took: float) -> None:
    """One box: title and lesson, what it does (or did), and the name of its counterpart in PyTorch."""
    svg.box(x, y, BOX, TALL, room.name, strength=0.34 if lit else 0.1, line=3.5 if lit else 1.5)
    svg.text(x + 12, y + 24, ("▸ " if lit else "") + room.title, LARGE, bold=True)
    svg.text(x + BOX - 10, y + 24, f"lesson {room.lesson}", SMALL, anchor="end", dim=True)
    svg.text(x + 12, y + 45, fact or room.what)
    if took:
        svg.text(x + BOX - 10, y + 45, human_seconds(took), anchor="end")
    svg.text(
        x + 12,
        y + 64,
        f"torch/{room.torch}",
        11,
        mono=True,
        dim=True,
        tip=f"its counterpart in PyTorch: torch/{room.torch}",
    )


def counts(recording: Recording) -> dict[str, str]:
    """What happened at each stage, in a few words."""
    frames = recording.of(events.FrameSeen)
    aten = [
        sum(node.op == "call_function" for node in event.graph.graph.nodes)
        for event in recording.of(events.AtenTraced)
    ]
    loops = [len(event.graph.nodes) for event in recording.of(events.Lowered)]
    operations = sum(result.operations for result in recording.captures)
    built = [
        kernel
        for event in recording.of(events.KernelsBuilt)
        for kernel in getattr(event.compiled, "kernels", ())
    ]
    breaks = len(recording.graph_breaks)
    facts = {
        "frames": plural(len(frames), "frame") if frames else "",
        "capture": plural(operations, "operation") if recording.captures else "",
        "guards": plural(len(recording.guards), "guard") if recording.captures else "",
        "autograd": f"{sum(aten):,} ATen operators" if aten else "",
        "lowering": plural(sum(loops), "loop node") if loops else "",
        "scheduling": plural(len(recording.kernels), "kernel")
        if recording.of(events.Scheduled)
        else "",
        "codegen": plural(len(built), "generated kernel") if built else "",
        "runtime": plural(len(recording.of(events.KernelsBuilt)), "program")
        if recording.of(events.KernelsBuilt)
        else "",
    }
    if breaks:
        facts["capture"] = ", ".join(filter(None, (facts["capture"], plural(breaks, "break"))))
    return {name: fact for name, fact in facts.items() if fact}


def as_text(lit: str | None, facts: dict[str, str], seconds: dict[str, Any]) -> str:
    """One line a stage; the lit one is marked. Times are left out: they differ from run to run."""
    rows = []
    for room in ROOMS:
        mark = "▸" if room.name == lit else " "
        rows.append(
            f"{mark} {room.title:<11} lesson {room.lesson:<7} {facts.get(room.name, room.what):<22} torch: {room.torch}"
        )
    return "\n".join(rows)
