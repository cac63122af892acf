"""Where is the bug? Two pictures of a search through the stages of a compiler.

`ladder`: one program on three backends, each of which runs more of the pipeline. The bug is in what the first wrong one adds.
`bisection`: some first stages are exchanged for others that are known to be right, then fewer or more of them.
In PyTorch: `torch/_inductor/compiler_bisector.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from course_lib.viz.kit.asked import COUNT_OR_0, TEXT, Kind, each, named, takes
from course_lib.viz.kit.style import SMALL, Picture, plural
from course_lib.viz.kit.svg import Svg, text_width
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.pipeline.pipeline_map import ROOMS

RUNGS = {
    "eager": ("frames", "capture", "guards"),
    "aot_eager": ("frames", "capture", "guards", "autograd"),
    "inductor": tuple(room.name for room in ROOMS),
}
"""Backend → the rooms that run in it."""
OF_ROOM = {
    "interpreter": "capture", "capture": "capture", "decompositions": "autograd", "trace": "autograd", "joint": "autograd",
    "partition": "autograd", "lower": "lowering", "fuse": "scheduling", "schedule": "scheduling", "plan": "scheduling",
    "build": "runtime",
}  # fmt: skip
"""Stage of the pipeline → its room."""
NAME, GAP, HIGH, STEP = 82, 3, 34, 54


@takes(differences=named(TEXT, "backend → where its result leaves eager, '' if nowhere"))
def ladder(differences: Mapping[str, str]) -> Picture:
    """One row for each backend: the rooms that run, and where its result leaves eager ('' if nowhere).

    Raises ValueError for a backend that is no rung of the ladder."""
    if not differences:
        raise ValueError("a ladder needs at least one backend")
    for backend in differences:
        if backend not in RUNGS:
            raise ValueError(
                f"'{backend}' is no rung of the ladder; the rungs are {', '.join(RUNGS)}"
            )
    titles = {room.name: room.title for room in ROOMS}
    wide = {name: text_width(title, SMALL, bold=True) + 7 for name, title in titles.items()}
    longest = max(
        (text_width(f"✗ {what or 'as eager'}", bold=True) for what in differences.values()),
        default=0.0,
    )
    width = NAME + sum(wide.values()) + GAP * len(wide) + longest + 10
    svg = Svg(width, STEP * len(differences) + 6)
    backends = list(differences)
    first = next((name for name, what in differences.items() if what), None)
    innocent = (
        RUNGS[backends[backends.index(first) - 1]] if first not in (None, backends[0]) else ()
    )
    suspects = [name for name in RUNGS[first] if name not in innocent] if first else []
    for n, (backend, what) in enumerate(differences.items()):
        y, x = n * STEP + 8, float(NAME)
        svg.text(2, y + 22, backend, bold=True)
        for name, title in titles.items():
            suspect = backend == first and name in suspects
            if name in RUNGS[backend]:
                svg.box(
                    x,
                    y,
                    wide[name],
                    HIGH,
                    name,
                    strength=0.3 if suspect else 0.12,
                    line=3.5 if suspect else 1.3,
                )
                svg.text(x + wide[name] / 2, y + 22, title, SMALL, anchor="middle", bold=suspect)
            x += wide[name] + GAP
        verdict(svg, x + 4, y + 22, not what, what or "as eager")
    said = (
        f"First wrong with {first}: look in {', '.join(titles[name] for name in suspects)}."
        if first
        else "All as eager."
    )
    caption = "Each rung runs more of the pipeline. " + (
        "What the first wrong one adds is outlined." if first else said
    )
    rows = [
        (
            backend,
            f"{len(RUNGS[backend])} of {len(ROOMS)} rooms",
            f"✗ {what}" if what else "✓ as eager",
        )
        for backend, what in differences.items()
    ]
    return Picture(
        svg.render(f"The ladder. {said}"),
        caption,
        f"The ladder. {said}",
        f"{columns(rows)}\n{said}",
    )


def verdict(svg: Svg, x: float, y: float, right: bool, said: str) -> None:
    """✓ or ✗ and words, at the end of a row."""
    svg.text(
        x,
        y,
        f"{'✓' if right else '✗'} {said}",
        bold=not right,
        stage="scheduling" if right else "break",
    )


TRY = Kind(
    "a try",
    lambda one: isinstance(one, (tuple, list)) and len(one) == 2 and COUNT_OR_0.holds(one[0]),
)


@takes(stages=each(TEXT, "names of stages"), tries=each(TRY, "a list of (count, right)"))
def bisection(stages: Sequence[str], tries: Sequence[tuple[int, bool]]) -> Picture:
    """One row for each try (count, right): with the first `count` stages exchanged, was the result right? What can still be
    guilty after a try is outlined."""
    stages = list(stages)
    if not stages:
        raise ValueError("a bisection needs the stages that it goes through")
    wide = [text_width(name, SMALL, bold=True) + 8 for name in stages]
    left = text_width(f"try {len(tries)}") + 20
    svg = Svg(left + sum(wide) + 3 * len(wide) + 70, 26 + STEP * len(tries))
    svg.text(
        left,
        14,
        "filled: exchanged for a stage that is right · outlined: can still be guilty",
        SMALL,
        dim=True,
    )
    low, high, rows = 0, len(stages), []  # right with the first `high`, wrong with the first `low`
    for n, (count, right) in enumerate(tries):
        low, high = (low, min(high, count)) if right else (max(low, count), high)
        y, x = 26 + n * STEP, left
        svg.text(6, y + 22, f"try {n + 1}", bold=True)
        for i, name in enumerate(stages):
            suspect, exchanged, room = low <= i < high, i < count, OF_ROOM.get(name, "eager")
            strength, line = 0.34 if exchanged else 0, 3.5 if suspect else 1
            svg.box(
                x,
                y,
                wide[i],
                HIGH,
                room,
                strength=strength,
                line=line,
                dashed=not (suspect or exchanged),
            )
            svg.text(
                x + wide[i] / 2, y + 22, name, SMALL, anchor="middle", bold=suspect, dim=not suspect
            )
            x += wide[i] + 3
        verdict(svg, x + 4, y + 22, right, "right" if right else "wrong")
        rows.append(
            (
                f"try {n + 1}",
                f"first {count} exchanged",
                "right" if right else "wrong",
                " ".join(stages[low:high]),
            )
        )
    found = stages[low] if high - low == 1 else f"one of {plural(high - low, 'stage')}"
    caption = f"Each try leaves one part in which the bug must be. At the end: {found}."
    table = columns(rows, ("", "", "result", "can be guilty"))
    return Picture(svg.render(caption), caption, caption, table)
