"""The map of the whole pipeline, with one stage lit: the first picture of every lesson.

In:  the stage the lesson is about, and optionally a `Recording`, whose counts and times are written
     into the boxes.
Out: a `Picture` of eight rooms in two columns: the front half, from a Python frame to a graph; the
     back half, from there to kernels. It fits into an output of JupyterLab in a window of 800 px,
     so that its letters never shrink.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib import events
from course_lib.viz.kit.arguments import text
from course_lib.viz.kit.style import LARGE, SMALL, Picture, human_seconds, plural
from course_lib.viz.kit.svg import Svg
from course_lib.viz.recording import Recording


@dataclass(frozen=True)
class Room:
    """One stage.

    name: of its room in `course_lib`. title: as it is drawn. lesson: the lessons about it. what: it
    does, in three words. torch: the file of PyTorch that does the same. gives: what it hands on to
    the next, "" at the end. timers: the stages (`StageTimed`) whose seconds are counted here."""

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
"""Other names for a room that a lesson may use."""

BOX, TALL = 236, 72
"""px: a room. Two columns of them fit what JupyterLab leaves of a window of 800 px."""
DOWN, BETWEEN, TOP = 32, 40, 26
"""px: the way down to the next room, the space between the columns, and that for the headings."""
COLUMN = 4
"""So many rooms stand in a column."""
HEADINGS = ("FRONT HALF: from a Python frame to a graph", "BACK HALF: from the graph to kernels")


def pipeline_map(lit: str | None = None, recording: Recording | None = None) -> Picture:
    """The pipeline, `lit` at one stage (see `NAMES`).

    With a recording, each box says what it did in that run, and for how long.

    Raises ValueError for a stage that is not in the pipeline."""
    here = room_called(lit)
    # Without a recording the map is the same for everybody
    facts = counts(recording) if recording else {}
    seconds = recording.seconds if recording else {}

    svg = Svg(2 * BOX + BETWEEN + 6, TOP + COLUMN * (TALL + DOWN))
    draw_headings(svg)
    for i, room in enumerate(ROOMS):
        seconds_of_room = sum(seconds.get(timer, 0.0) for timer in room.timers)
        draw_room(svg, i, room is here, facts.get(room.name, ""), seconds_of_room)
        if room.gives:
            draw_way(svg, i)

    if recording:
        caption = "What this run did at each stage of the pipeline, and how long it took."
    elif here:
        caption = f"The pipeline; this lesson is about {here.title} (filled)."
    else:
        caption = "The pipeline, from a Python frame to kernels."

    chain = []
    for room in ROOMS:
        fact = facts.get(room.name)
        chain.append(f"{room.title} ({fact})" if fact else room.title)
    alt = f"The pipeline in order: {', '.join(chain)}."
    if here:
        alt += f" {here.title} is lit."
    return Picture(svg.render(alt), caption, alt, as_text(here, facts))


def room_called(name: str | None) -> Room | None:
    """The room of that name, or of a stage in it. Raises ValueError if there is none."""
    if name is None or name == "":
        return None

    name = text(name, "the stage of pipeline_map")
    name = ALIASES.get(name, name)
    for room in ROOMS:
        if room.name == name:
            return room
    raise ValueError(f"no stage is called '{name}'; the stages are {', '.join(NAMES)}")


# ---- the drawing ---------------------------------------------------------------------------------


EQUALLY_TALL = (TALL,) * COLUMN
"""The heights of the rooms of a column. (`owners` draws taller ones.)"""


def corner(i: int, tall: Sequence[float] = EQUALLY_TALL) -> tuple[float, float]:
    """Where room `i` stands, if the four of a column are `tall` px high."""
    column, row = divmod(i, COLUMN)
    return 3 + column * (BOX + BETWEEN), TOP + sum(tall[:row]) + row * DOWN


def way(i: int, tall: Sequence[float] = EQUALLY_TALL) -> list[tuple[float, float]]:
    """The corners of the arrow from room `i` to the next: down, or from the foot of the left column
    to the head of the right."""
    x, y = corner(i, tall)
    middle, below = x + BOX / 2, y + tall[i % COLUMN]
    if i != COLUMN - 1:
        return [(middle, below + 2), (middle, below + DOWN - 4)]

    # Down a little, right into the space between the columns, up, and right into the next room
    x_next, y_next = corner(i + 1, tall)
    aside, foot, head = x_next - BETWEEN / 2, below + 23, y_next + tall[0] / 2
    return [(middle, below + 2), (middle, foot), (aside, foot), (aside, head), (x_next - 3, head)]


def draw_headings(svg: Svg) -> None:
    """What the two columns are."""
    for i, heading in enumerate(HEADINGS):
        x, _ = corner(COLUMN * i)
        svg.text(x, 14, heading, SMALL, dim=True)


def draw_way(svg: Svg, i: int) -> None:
    """The arrow from room `i` to the next, and what is handed on."""
    svg.arrow(way(i))
    x, y = corner(i)
    # From the foot of the left column the arrow turns aside: the text stands above the turn.
    down = 15 if i == COLUMN - 1 else DOWN / 2 + 4
    svg.text(x + BOX / 2 + 10, y + TALL + down, ROOMS[i].gives, SMALL)


def draw_room(svg: Svg, i: int, lit: bool, fact: str, seconds: float) -> None:
    """One box: title and lesson, what it does (or did), and the name of its counterpart in
    PyTorch."""
    room = ROOMS[i]
    x, y = corner(i)
    left, right = x + 12, x + BOX - 10
    strength, line = (0.34, 3.5) if lit else (0.1, 1.5)
    svg.box(x, y, BOX, TALL, room.name, strength=strength, line=line)

    title = f"▸ {room.title}" if lit else room.title
    svg.text(left, y + 24, title, LARGE, bold=True)
    svg.text(right, y + 24, f"lesson {room.lesson}", SMALL, anchor="end", dim=True)
    svg.text(left, y + 45, fact or room.what)
    if seconds:
        svg.text(right, y + 45, human_seconds(seconds), anchor="end")

    counterpart = f"torch/{room.torch}"
    tip = f"its counterpart in PyTorch: {counterpart}"
    svg.text(left, y + 64, counterpart, 11, mono=True, dim=True, tip=tip)


# ---- what a run did ------------------------------------------------------------------------------


def counts(recording: Recording) -> dict[str, str]:
    """What happened at each stage, in a few words.

    A stage at which nothing happened is left out."""
    facts = {**front_half(recording), **back_half(recording)}
    return {name: fact for name, fact in facts.items() if fact}


def front_half(recording: Recording) -> dict[str, str]:
    """From a Python frame to ATen operators."""
    facts = {}
    frames = recording.of(events.FrameSeen)
    if frames:
        facts["frames"] = plural(len(frames), "frame")

    captured = []
    if recording.captures:
        operations = sum(result.operations for result in recording.captures)
        captured.append(plural(operations, "operation"))
        facts["guards"] = plural(len(recording.guards), "guard")
    if recording.graph_breaks:
        captured.append(plural(len(recording.graph_breaks), "break"))
    facts["capture"] = ", ".join(captured)

    traced = recording.of(events.AtenTraced)
    if traced:
        nodes = [node for event in traced for node in event.graph.graph.nodes]
        operators = sum(node.op == "call_function" for node in nodes)
        facts["autograd"] = f"{operators:,} ATen operators"
    return facts


def back_half(recording: Recording) -> dict[str, str]:
    """From loops to programs."""
    facts = {}
    lowered = recording.of(events.Lowered)
    if lowered:
        loops = sum(len(event.graph.nodes) for event in lowered)
        facts["lowering"] = plural(loops, "loop node")
    if recording.of(events.Scheduled):
        facts["scheduling"] = plural(len(recording.kernels), "kernel")

    built = recording.of(events.KernelsBuilt)
    if built:
        generated = sum(len(getattr(event.compiled, "kernels", ())) for event in built)
        facts["codegen"] = plural(generated, "generated kernel") if generated else ""
        facts["runtime"] = plural(len(built), "program")
    return facts


def as_text(here: Room | None, facts: dict[str, str]) -> str:
    """One line a stage; the lit one is marked. Times are left out: they differ from run to run."""
    rows = []
    for room in ROOMS:
        mark = "▸" if room is here else " "
        does = facts.get(room.name, room.what)
        row = f"{mark} {room.title:<11} lesson {room.lesson:<7} {does:<22} torch: {room.torch}"
        rows.append(row)
    return "\n".join(rows)
