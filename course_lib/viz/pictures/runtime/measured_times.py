"""Measured things side by side: how many times faster, where the best tile size lies, and when which kernel is started.

In:  numbers that were measured. Out: `Picture`s. Eager is grey, ours in a stage's colour, the real torch.compile dashed slate.

`launches(call)` records one call with torch's own profiler, for `launch_timeline`; generated kernels with their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.viz.kit.asked import (
    ANYTHING,
    MAPPING,
    STAGE,
    Kind,
    a_function,
    a_number,
    attributes,
    each,
    named,
    shown,
    takes,
)
from course_lib.viz.kit.bars import LABEL, LETTERS, bars, who
from course_lib.viz.kit.style import SMALL, Picture, human_seconds, plural
from course_lib.viz.kit.svg import Svg, fold, n, shorten, text_width
from course_lib.viz.kit.tables import columns, show
from course_lib.viz.pictures.runtime.kernel_limits import kernels_in_profile

LONG, THICK, STEP, WIDEST = 460.0, 16.0, 21.0, 766.0


@takes(values=named(ANYTHING, "workload → name → how many times as fast"), stage=STAGE)
def speedup_bars(
    values: Mapping[str, Mapping[str, float]], caption: str = "", *, stage: str = "scheduling"
) -> Picture:
    """Workload → name → how many times as fast as eager. The line is eager. Raises ValueError where there is nothing to draw."""
    if not values or not (isinstance(values, Mapping) and any(values.values())):
        raise ValueError("speed-up bars need at least one value")
    for workload, row in values.items():
        for name, value in attributes(
            row, ("items",), f"speed-up bars of {workload!r}: name → how many times as fast"
        ).items():
            a_number(value, f"the value of {name!r} in {workload!r}")
    most = max(1.0, *(v for row in values.values() for v in row.values()))
    names = {name: fold(name, LABEL, SMALL) for row in values.values() for name in row}
    label = 20 + max(text_width(line, SMALL) for lines in names.values() for line in lines)
    titles = {name: fold(name, LABEL, bold=True) for name in values}
    label = max(
        label, 12 + max(text_width(line, bold=True) for lines in titles.values() for line in lines)
    )
    more = [len(lines) - 1 for row in values.values() for lines in map(names.__getitem__, row)]
    more += [len(lines) - 1 for lines in titles.values()]
    height = sum(26 + STEP * len(row) for row in values.values()) + LETTERS * sum(more)
    long = min(LONG, WIDEST - 70 - label)
    svg, y = Svg(label + long + 70, height + 22), 0.0
    one, rows = label + long / most, []
    for workload, row in values.items():
        for line in titles[workload]:
            svg.text(0, y + 17, line, bold=True)
            y += LETTERS
        y += 24 - LETTERS
        for name, value in row.items():
            colour, dashed = who(name, stage)
            for i, line in enumerate(names[name]):
                svg.text(label - 10, y + 12 + LETTERS * i, line, SMALL, anchor="end")
            svg.box(
                label,
                y,
                max(2.0, long * value / most),
                THICK,
                colour,
                radius=2,
                strength=0.45,
                dashed=dashed,
            )
            end = label + long * value / most
            beside = one if one - 42 < end < one else end  # not across the line
            svg.text(beside + 8, y + 13, f"{show(value)}×", SMALL)
            rows.append((workload, name, f"{show(value)}×"))
            y += STEP + LETTERS * (len(names[name]) - 1)
        y += 2
    svg.path(f"M{n(one)} 20 V{n(y)}", stage="eager", line=1.6, opacity=1, dashed=True)
    svg.text(one, y + 15, "eager", SMALL, anchor="middle", stage="eager")
    alt = (
        "How many times as fast as eager: "
        + "; ".join(f"{w}, {name} {value}" for w, name, value in rows)
        + "."
    )
    caption = caption or "How many times as fast as eager (the dashed line); longer is faster."
    return Picture(svg.render(alt), caption, alt, columns(rows))


CELL_WIDE, CELL_TALL, SIDE = 92.0, 34.0, 148.0


@takes(seconds=MAPPING)
def landscape(
    seconds: Mapping[tuple[Any, Any], float],
    names: tuple[str, str] = ("ROWS", "COLUMNS"),
    title: str = "",
    caption: str = "",
) -> Picture:
    """Measured configurations: (first, second) → seconds. The stronger the tint, the faster; the best is framed. What was not
    measured needs a `caption` that says so."""
    if not seconds:
        raise ValueError("a landscape needs at least one measured configuration")
    for key, took in attributes(
        seconds, ("items",), "a landscape is (first, second) → seconds"
    ).items():
        if not isinstance(key, tuple) or len(key) != 2:
            raise TypeError(
                f"a landscape is (first, second) → seconds, not {shown(key)} → {shown(took)}"
            )
        a_number(took, f"the time of {key}")
    down, right = (sorted({key[axis] for key in seconds}) for axis in (0, 1))
    best, worst = min(seconds.values()), max(seconds.values())
    title = title or f"seconds by {names[0]} and {names[1]}"
    svg = Svg(
        max(SIDE + CELL_WIDE * len(right), text_width(title, bold=True)) + 8,
        52 + CELL_TALL * len(down) + 6,
    )
    svg.text(0, 16, title, bold=True)
    svg.text(0, 44, f"{names[0]} ↓  {names[1]} →", SMALL, dim=True)
    for j, column in enumerate(right):
        svg.text(SIDE + CELL_WIDE * (j + 0.5), 44, str(column), SMALL, anchor="middle", dim=True)
    for i, row in enumerate(down):
        y = 52 + CELL_TALL * i
        svg.text(SIDE - 8, y + 21, str(row), SMALL, anchor="end", dim=True)
        for j, column in enumerate(right):
            if (took := seconds.get((row, column))) is None:
                continue
            good = 1.0 if worst == best else (worst - took) / (worst - best)
            box = (SIDE + CELL_WIDE * j + 2, y + 2, CELL_WIDE - 4, CELL_TALL - 4)
            svg.box(
                *box,
                "codegen",
                radius=3,
                strength=0.05 + 0.4 * good,
                line=3.5 if took == best else 1,
            )
            svg.text(
                box[0] + box[2] / 2,
                y + 21,
                human_seconds(took),
                SMALL,
                anchor="middle",
                bold=took == best,
            )
    first, second = next(key for key, took in seconds.items() if took == best)
    alt = f"{plural(len(seconds), 'configuration')}{'' if caption else ' measured'}; the fastest, {human_seconds(best)}, "
    alt += f"has {names[0]}={first}, {names[1]}={second}; the slowest takes {worst / best:.1f} times as long."
    rows = [
        (f"{names[0]}={a}", f"{names[1]}={b}", human_seconds(took))
        for (a, b), took in sorted(seconds.items())
    ]
    caption = (
        caption
        or "Each cell is a configuration that was run; the stronger the tint, the faster. The best is framed."
    )
    return Picture(f'<div class="cl-scroll">{svg.render(alt)}</div>', caption, alt, columns(rows))


def tuned(kernel: Any, choice: str, seconds: Mapping[str, float]) -> Picture:
    """What autotuning tried for a generated kernel (its name), as a landscape of tiles and threads; or for a product (its
    `ExternKernel`), as bars. What the machine refused to run has infinite seconds and is left out."""
    ran = {what: took for what, took in seconds.items() if math.isfinite(took)}
    if not isinstance(kernel, str):
        name = f"{kernel.label}: {' and '.join(str(list(view.shape)) for view in kernel.args)}"
        return bars(ran, "s", name, f"Measured while compiling; taken: {choice}.", stage="codegen")
    # 'ROWS=4, COLUMNS=512, 8 warps'
    told = {what: dict(re.findall(r"(\w+)=(\d+)", what)) for what in ran}
    names = list(next(iter(told.values())))
    tile = next(
        (name for name in names if len({sizes[name] for sizes in told.values()}) > 1), names[0]
    )
    cells = {(int(sizes[tile]), int(what.split()[-2])): ran[what] for what, sizes in told.items()}
    rest = "".join(f", {name}={told[choice][name]}" for name in names if name != tile)
    caption = f"Seconds for each tile and number of warps{rest}, measured while compiling. Framed: the fastest, which was taken."
    return landscape(cells, (tile, "warps"), kernel, caption)


# ---- launches -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Launch:
    """Something that ran, from `start` for `seconds`; on the device, or on the host."""

    name: str
    start: float
    seconds: float
    on_device: bool = False

    @property
    def end(self) -> float:
        return self.start + self.seconds


LAUNCH = Kind("a launch", lambda value: isinstance(value, Launch))


def launches(call: Callable[[], Any]) -> list[Launch]:
    """One call, the fastest of several under torch's profiler: operators on the host (the outermost only), kernels on the device.
    The whole call is the first entry."""
    a_function(call, "launches")
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    call()
    with kernels_in_profile(), torch.profiler.profile(activities=activities) as profile:
        for _ in range(CALLS):
            with torch.profiler.record_function("the call"):
                call()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
    events = sorted(
        profile.events(), key=lambda event: (event.time_range.start, -event.time_range.end)
    )
    calls = [
        event
        for event in events
        if event.name == "the call" and event.device_type == torch.autograd.DeviceType.CPU
    ]
    # one that nothing else on the machine interrupted
    whole = min(calls, key=lambda event: event.time_range.elapsed_us())
    until = min(
        (
            event.time_range.start
            for event in calls
            if event.time_range.start > whole.time_range.start
        ),
        default=math.inf,
    )
    zero, found, end = whole.time_range.start, [], -1.0
    for event in events[events.index(whole) :]:
        start, took = (event.time_range.start - zero) / 1e6, event.time_range.elapsed_us() / 1e6
        on_device = event.device_type != torch.autograd.DeviceType.CPU
        if event is whole:
            found.append(Launch(event.name, 0.0, took))
        elif event.time_range.start >= until or event.name in NO_LAUNCH:
            continue
        elif on_device or (start >= end and event.time_range.start < whole.time_range.end):
            found.append(Launch(event.name.removeprefix("aten::"), start, took, on_device))
            end = end if on_device else start + took
    return found


CALLS = 9
NO_LAUNCH = {
    "the call",
    *(
        f"aten::{name}"
        for name in "empty empty_strided empty_like as_strided view reshape t detach".split()
    ),
}
"""What starts nothing: memory is found, or looked at in another way."""
LANE, TRACK, NAMES = 24.0, 540.0, 118.0


@takes(ways=named(each(LAUNCH, ""), "name → what viz.launches(call) found"), stage=STAGE)
def launch_timeline(
    ways: Mapping[str, Sequence[Launch]],
    caption: str = "",
    *,
    lanes: tuple[str, str] = ("host", "device"),
    stage: str = "codegen",
) -> Picture:
    """Way of running (eager, compiled, CUDA graph) → what ran. All on one scale: a lane for the host, and one for the device if
    there is one. Empty stretches of the host's lane are Python and dispatching; of the device's, waiting. The first of each way
    is the whole call. Other `lanes` need a `caption` that says what they are."""
    if not ways or not all(ways.values()):
        raise ValueError(
            "a launch timeline needs at least one launch of each: give it what viz.launches(call) found"
        )
    total = max(launch.end for ran in ways.values() for launch in ran)
    device = any(launch.on_device for ran in ways.values() for launch in ran)
    block = 26 + LANE * (1 + device) + 10
    svg, rows = Svg(NAMES + TRACK + 90, block * len(ways) + 4), []
    for number, (name, ran) in enumerate(ways.items()):
        colour, _ = who(name, stage)
        y = block * number
        whole = max(launch.end for launch in ran)
        svg.text(0, y + 18, name, bold=True, stage=colour)
        for lane, on_device in enumerate((False, True)[: 1 + device]):
            inside = [
                launch for launch in ran if launch.on_device is on_device and launch is not ran[0]
            ]
            top = y + 26 + LANE * lane
            svg.text(NAMES - 8, top + 14, lanes[on_device], SMALL, anchor="end", dim=True)
            if not on_device:
                svg.box(
                    NAMES,
                    top,
                    TRACK * ran[0].seconds / total,
                    LANE - 5,
                    colour,
                    radius=2,
                    strength=0.08,
                    line=1,
                )
            for launch in inside:
                x, wide = (
                    NAMES + TRACK * launch.start / total,
                    max(1.5, TRACK * launch.seconds / total),
                )
                svg.box(
                    x,
                    top,
                    wide,
                    LANE - 5,
                    colour,
                    radius=2,
                    strength=0.4,
                    line=1,
                    tip=f"{launch.name}: {human_seconds(launch.seconds)}",
                )
                if wide > 40:
                    svg.text(
                        x + 5,
                        top + 14,
                        shorten(launch.name, wide - 10, SMALL),
                        SMALL,
                        tip=launch.name,
                    )
        svg.text(NAMES + TRACK * whole / total + 8, y + 40, human_seconds(whole), SMALL)
        # what the device ran, the host had started
        count = sum(not launch.on_device for launch in ran[1:]) or len(ran) - 1
        noun = "launch" if lanes[0] == "host" else "stretch"
        rows.append((name, f"{count} {noun}{'' if count == 1 else 'es'}", human_seconds(whole)))
    alt = (
        "What was started when: "
        + "; ".join(f"{name}: {count} in {took}" for name, count, took in rows)
        + "."
    )
    caption = caption or (
        "One call of each, on one scale. Each box is something that was started; between boxes the host works in Python, and a "
        "device waits."
    )
    return Picture(svg.render(alt), caption, alt, columns([row[:2] for row in rows]))
