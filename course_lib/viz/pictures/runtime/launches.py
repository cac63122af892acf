"""When was which kernel started? One call of each way to run a function, on one scale.

In:  `launches(call)`, which records one call with torch's own profiler; generated kernels with
     their names. Out: a `Picture`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.viz.kit.arguments import STAGE, Kind, a_function, each, named, takes
from course_lib.viz.kit.bars import who
from course_lib.viz.kit.style import SMALL, Picture, human_seconds
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.runtime.kernel_limits import kernels_in_profile


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


def is_launch(value: object) -> bool:
    return isinstance(value, Launch)


LAUNCH = Kind("a launch", is_launch)

# ---- one call under the profiler -----------------------------------------------------------------

CALLS = 9
"""So many calls are recorded; the fastest is shown."""
WHOLE = "the call"
"""The name of a whole call in the profile."""
NO_LAUNCH = {
    WHOLE,
    "aten::empty",
    "aten::empty_strided",
    "aten::empty_like",
    "aten::as_strided",
    "aten::view",
    "aten::reshape",
    "aten::t",
    "aten::detach",
}
"""Operators that start no kernel: they only allocate memory, or give a view of it."""


def launches(call: Callable[[], Any]) -> list[Launch]:
    """One call, the fastest of several under torch's profiler: operators on the host (the outermost
    only), kernels on the device.

    The whole call is the first entry. Raises TypeError for what cannot be called."""
    a_function(call, "launches")
    recorded = profiled(call)
    calls = [event for event in recorded if event.name == WHOLE and not is_on_device(event)]

    # The fastest is one that nothing else on the machine interrupted.
    whole = min(calls, key=lambda event: event.time_range.elapsed_us())
    zero = whole.time_range.start
    later = [event.time_range.start for event in calls if event.time_range.start > zero]
    next_call = min(later, default=math.inf)

    all_launches = [Launch(WHOLE, 0.0, whole.time_range.elapsed_us() / 1e6)]
    host_is_free = -1.0  # seconds: when the last operator on the host was through
    for event in recorded[recorded.index(whole) + 1 :]:
        if event.time_range.start >= next_call or event.name in NO_LAUNCH:
            continue

        start = (event.time_range.start - zero) / 1e6
        duration = event.time_range.elapsed_us() / 1e6
        launch = Launch(event.name.removeprefix("aten::"), start, duration, is_on_device(event))
        if launch.on_device:
            all_launches.append(launch)
        elif start >= host_is_free and event.time_range.start < whole.time_range.end:
            # What an operator calls in turn begins before its end: only the outermost is kept.
            all_launches.append(launch)
            host_is_free = launch.end
    return all_launches


def profiled(call: Callable[[], Any]) -> list[Any]:
    """The profiler's events of several calls, by start; of those that start at once the longest
    first."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    has_gpu = torch.cuda.is_available()
    if has_gpu:
        activities.append(torch.profiler.ProfilerActivity.CUDA)

    call()
    with kernels_in_profile(), torch.profiler.profile(activities=activities) as profile:
        for _ in range(CALLS):
            with torch.profiler.record_function(WHOLE):
                call()
            if has_gpu:
                torch.cuda.synchronize()
    return sorted(
        profile.events(), key=lambda event: (event.time_range.start, -event.time_range.end)
    )


def is_on_device(event: Any) -> bool:
    return event.device_type != torch.autograd.DeviceType.CPU


# ---- the timeline --------------------------------------------------------------------------------

LANE, TRACK, NAMES = 24.0, 540.0, 118.0
"""px: the height of a lane, the length of the longest call, and room for names."""
HEAD, BASE_LINE = 26, 14
"""px: the height of the name of a way, and from the top of a lane to the base line of its text."""
CAPTION = (
    "One call of each, on one scale. Each box is something that was started; between boxes the host works in Python, and a "
    "device waits."
)


@takes(ways=named(each(LAUNCH, ""), "name → what viz.launches(call) found"), stage=STAGE)
def launch_timeline(
    ways: Mapping[str, Sequence[Launch]],
    caption: str = "",
    *,
    lanes: tuple[str, str] = ("host", "device"),
    stage: str = "codegen",
) -> Picture:
    """Way of running (eager, compiled, CUDA graph) → what ran. All on one scale.

    There is a lane for the host, and one for the device if there is one. Empty stretches of the
    host's lane are Python and dispatching; of the device's, waiting. The first of each way is the
    whole call. Other `lanes` need a `caption` that says what they are. Raises ValueError if a way
    has no launch."""
    if not ways or not all(ways.values()):
        raise ValueError(
            "a launch timeline needs at least one launch of each: give it what viz.launches(call) found"
        )

    drawing = TimelineDrawing(ways, lanes, stage)
    rows = []
    for number, (name, ran) in enumerate(ways.items()):
        drawing.draw_way(number, name, ran)
        time_text = human_seconds(max(launch.end for launch in ran))
        rows.append((name, counted(ran, lanes), time_text))

    runs_in_words = "; ".join(f"{name}: {count} in {time_text}" for name, count, time_text in rows)
    alt = f"What was started when: {runs_in_words}."
    text = columns([(name, count) for name, count, _ in rows])
    return Picture(drawing.svg.render(alt), caption or CAPTION, alt, text)


def counted(ran: Sequence[Launch], lanes: tuple[str, str]) -> str:
    """'3 launches': how much the host has started, or, if nothing of the host was recorded, how
    much the device ran."""
    # the first one is the call itself
    on_host = [launch for launch in ran[1:] if not launch.on_device]
    count = len(on_host) or len(ran) - 1
    # With other lanes, what is drawn need not be a launch.
    noun = "launch" if lanes[0] == "host" else "stretch"
    return f"{count} {noun}{'' if count == 1 else 'es'}"


class TimelineDrawing:
    """The timeline while it is drawn: a block for each way of running, with a lane or two."""

    def __init__(
        self, ways: Mapping[str, Sequence[Launch]], lanes: tuple[str, str], stage: str
    ) -> None:
        every = [launch for ran in ways.values() for launch in ran]
        has_device = any(launch.on_device for launch in every)
        self.lanes = lanes if has_device else lanes[:1]
        self.stage = stage
        self.total = max(launch.end for launch in every)
        self.block = HEAD + LANE * len(self.lanes) + 10
        self.svg = Svg(NAMES + TRACK + 90, self.block * len(ways) + 4)

    def draw_way(self, number: int, name: str, ran: Sequence[Launch]) -> None:
        """One way of running: its name, its lanes, and how long it took in all."""
        colour, _ = who(name, self.stage)
        y = self.block * number
        self.svg.text(0, y + 18, name, bold=True, stage=colour)

        # The first launch is the call as a whole, the others are what it started.
        whole, *started = ran
        for lane, lane_name in enumerate(self.lanes):
            top = y + HEAD + LANE * lane
            # (`lanes`: the host's, then the device's)
            on_device = lane == 1
            self.svg.text(NAMES - 8, top + BASE_LINE, lane_name, SMALL, anchor="end", dim=True)
            if not on_device:
                width = TRACK * whole.seconds / self.total
                self.draw_box(NAMES, top, width, colour, strength=0.08)
            for launch in started:
                if launch.on_device is on_device:
                    self.draw_launch(launch, top, colour)

        end = max(launch.end for launch in ran)
        # Behind the end of the call, at the height of the first lane
        x = NAMES + TRACK * end / self.total + 8
        self.svg.text(x, y + HEAD + BASE_LINE, human_seconds(end), SMALL)

    def draw_launch(self, launch: Launch, top: float, colour: str) -> None:
        """A box as long as the launch took, with its name if there is room."""
        x = NAMES + TRACK * launch.start / self.total
        wide = max(1.5, TRACK * launch.seconds / self.total)
        tip = f"{launch.name}: {human_seconds(launch.seconds)}"
        self.draw_box(x, top, wide, colour, strength=0.4, tip=tip)

        if wide > 40:
            name = shorten(launch.name, wide - 10, SMALL)
            self.svg.text(x + 5, top + BASE_LINE, name, SMALL, tip=launch.name)

    def draw_box(
        self, x: float, top: float, wide: float, colour: str, strength: float, tip: str = ""
    ) -> None:
        self.svg.box(x, top, wide, LANE - 5, colour, radius=2, strength=strength, line=1, tip=tip)
