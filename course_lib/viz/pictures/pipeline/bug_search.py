"""Where is the bug? Two pictures of a search through the stages of a compiler.

`ladder`: one program on three backends, each of which runs more of the pipeline. The bug is in what
the first wrong one adds.
`bisection`: some first stages are exchanged for others that are known to be right, then fewer or
more of them.
In PyTorch: `torch/_inductor/compiler_bisector.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.viz.kit.arguments import COUNT_OR_0, TEXT, Kind, each, named, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.pipeline.pipeline_map import ROOMS

RUNGS = {
    "eager": ("frames", "capture", "guards"),
    "aot_eager": ("frames", "capture", "guards", "autograd"),
    "inductor": tuple(room.name for room in ROOMS),
}
"""Backend → the rooms that run in it. A room is a folder of course_lib, one part of the
compiler."""
TITLES = {room.name: room.title for room in ROOMS}
"""Room → the name that is written on it."""
OF_ROOM = {
    "interpreter": "capture", "capture": "capture", "decompositions": "autograd", "trace": "autograd", "joint": "autograd",
    "partition": "autograd", "lower": "lowering", "fuse": "scheduling", "schedule": "scheduling", "plan": "scheduling",
    "build": "runtime",
}  # fmt: skip
"""Stage of the pipeline → its room."""
NAME, GAP, HIGH, STEP = 82, 3, 34, 54
"""px: room for a backend's name, the gap between two boxes, a box's height, and from one row to the
next."""
BASE_LINE = 22
"""px: from the top of a box to the base line of its text."""


def verdict(svg: Svg, x: float, y: float, right: bool, words: str) -> None:
    """✓ or ✗ and words, at the end of a row."""
    if right:
        svg.text(x, y, f"✓ {words}", stage="scheduling")
    else:
        svg.text(x, y, f"✗ {words}", bold=True, stage="break")


# ---- the ladder ----------------------------------------------------------------------------------


@takes(differences=named(TEXT, "backend → where its result leaves eager, '' if nowhere"))
def ladder(differences: Mapping[str, str]) -> Picture:
    """One row for each backend: the rooms that run, and where its result leaves eager ('' if
    nowhere).

    Raises ValueError for a backend that is no rung of the ladder."""
    look_at_rungs(differences)
    # What the first wrong rung runs, and the rung above it does not
    first_wrong = next((backend for backend, what in differences.items() if what), None)
    suspects = suspects_of(list(differences), first_wrong)

    wide = {name: text_width(title, SMALL, bold=True) + 7 for name, title in TITLES.items()}
    verdict_widths = [
        text_width(f"✗ {what or 'as eager'}", bold=True) for what in differences.values()
    ]
    # 4 px before the longest verdict, and 6 behind it
    width = NAME + sum(wide.values()) + GAP * len(wide) + max(verdict_widths) + 10
    svg = Svg(width, STEP * len(differences) + 6)
    for number, (backend, what) in enumerate(differences.items()):
        y = number * STEP + 8
        svg.text(2, y + BASE_LINE, backend, bold=True)
        outlined = suspects if backend == first_wrong else []
        end = draw_rooms(svg, y, backend, wide, outlined)
        verdict(svg, end + 4, y + BASE_LINE, not what, what or "as eager")

    conclusion = "All as eager."
    caption = f"Each rung runs more of the pipeline. {conclusion}"
    if first_wrong:
        rooms = ", ".join(TITLES[name] for name in suspects)
        conclusion = f"First wrong with {first_wrong}: look in {rooms}."
        caption = "Each rung runs more of the pipeline. What the first wrong one adds is outlined."

    rows = []
    for backend, what in differences.items():
        run = f"{len(RUNGS[backend])} of {len(ROOMS)} rooms"
        rows.append((backend, run, f"✗ {what}" if what else "✓ as eager"))
    alt = f"The ladder. {conclusion}"
    return Picture(svg.render(alt), caption, alt, f"{columns(rows)}\n{conclusion}")


def look_at_rungs(differences: Mapping[str, str]) -> None:
    """Raise what `ladder` promises, before anything is drawn."""
    if not differences:
        raise ValueError("a ladder needs at least one backend")

    for backend in differences:
        if backend not in RUNGS:
            rungs = ", ".join(RUNGS)
            raise ValueError(f"'{backend}' is no rung of the ladder; the rungs are {rungs}")


def suspects_of(backends: list[str], first_wrong: str | None) -> list[str]:
    """The rooms that the first wrong backend adds to the one before it."""
    if first_wrong is None:
        return []
    if first_wrong == backends[0]:
        return list(RUNGS[first_wrong])

    before = backends[backends.index(first_wrong) - 1]
    return [name for name in RUNGS[first_wrong] if name not in RUNGS[before]]


def draw_rooms(
    svg: Svg, y: float, backend: str, wide: Mapping[str, float], outlined: Sequence[str]
) -> float:
    """A box for each room that runs in a backend. Gives the end of the row, px.

    wide: room → the width of its box."""
    x = float(NAME)
    for name, title in TITLES.items():
        if name in RUNGS[backend]:
            suspect = name in outlined
            strength, line = (0.3, 3.5) if suspect else (0.12, 1.3)
            svg.box(x, y, wide[name], HIGH, name, strength=strength, line=line)
            middle = x + wide[name] / 2
            svg.text(middle, y + BASE_LINE, title, SMALL, anchor="middle", bold=suspect)
        # A room that does not run leaves its place free, so that rooms stand below each other.
        x += wide[name] + GAP
    return x


# ---- the bisection -------------------------------------------------------------------------------


def is_try(one: object) -> bool:
    return isinstance(one, (tuple, list)) and len(one) == 2 and COUNT_OR_0.holds(one[0])


TRY = Kind("a try", is_try)
HOW_TO_READ = "filled: exchanged for a stage that is right · outlined: can still be guilty"


@dataclass(frozen=True)
class StageBox:
    """A stage's name, and how wide its box is, px."""

    name: str
    width: float


@dataclass(frozen=True)
class Suspects:
    """The stages that can still be guilty, numbers `low` to `high` - 1: the result was right with
    the first `high` exchanged, and wrong with the first `low`."""

    low: int
    high: int

    def after(self, count: int, right: bool) -> Suspects:
        """What a try with the first `count` stages exchanged leaves."""
        if right:
            return Suspects(self.low, min(self.high, count))
        return Suspects(max(self.low, count), self.high)


@takes(stages=each(TEXT, "names of stages"), tries=each(TRY, "a list of (count, right)"))
def bisection(stages: Sequence[str], tries: Sequence[tuple[int, bool]]) -> Picture:
    """One row for each try (count, right): with the first `count` stages exchanged, was the result
    right?

    What can still be guilty after a try is outlined. Raises ValueError without a stage."""
    stages = list(stages)
    if not stages:
        raise ValueError("a bisection needs the stages that it goes through")

    boxes = [StageBox(name, text_width(name, SMALL, bold=True) + 8) for name in stages]
    left = text_width(f"try {len(tries)}") + 20
    width = left + sum(box.width for box in boxes) + GAP * len(boxes) + 70  # for the verdict
    svg = Svg(width, 26 + STEP * len(tries))
    svg.text(left, 14, HOW_TO_READ, SMALL, dim=True)

    rows = []
    # Before the first try each stage may be guilty
    suspects = Suspects(0, len(stages))
    for number, (count, right) in enumerate(tries):
        suspects = suspects.after(count, right)
        y = 26 + number * STEP
        svg.text(6, y + BASE_LINE, f"try {number + 1}", bold=True)
        end = draw_stages(svg, left, y, boxes, count, suspects)
        result = "right" if right else "wrong"
        verdict(svg, end + 4, y + BASE_LINE, right, result)

        guilty = " ".join(stages[suspects.low : suspects.high])
        rows.append((f"try {number + 1}", f"first {count} exchanged", result, guilty))

    left_over = suspects.high - suspects.low
    suspect = stages[suspects.low] if left_over == 1 else f"one of {plural(left_over, 'stage')}"
    caption = f"Each try leaves one part in which the bug must be. At the end: {suspect}."
    table = columns(rows, ("", "", "result", "can be guilty"))
    # The caption serves as the words for those who do not see the drawing, too.
    return Picture(svg.render(caption), caption, caption, table)


def draw_stages(
    svg: Svg, x: float, y: float, boxes: Sequence[StageBox], count: int, suspects: Suspects
) -> float:
    """A box for each stage; the first `count` are exchanged. Gives the end of the row, px."""
    for i, box in enumerate(boxes):
        suspect = suspects.low <= i < suspects.high
        exchanged = i < count
        svg.box(
            x,
            y,
            box.width,
            HIGH,
            OF_ROOM.get(box.name, "eager"),  # grey for one that is no stage of ours
            strength=0.34 if exchanged else 0,
            line=3.5 if suspect else 1,
            dashed=not (suspect or exchanged),
        )
        centre = x + box.width / 2
        dim = not suspect
        svg.text(centre, y + BASE_LINE, box.name, SMALL, anchor="middle", bold=suspect, dim=dim)
        x += box.width + GAP
    return x
