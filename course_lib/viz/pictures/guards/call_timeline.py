"""Recompiles as a timeline: which entry served each call, which ones were tried in vain, and where
one was compiled.

In:  a recording, best of calls made through `each_call`. Out: a `Picture`.

A call that fits an entry is answered in C and tells nobody. `each_call(compiled)` asks the checks
itself before each call and puts what it learns into the recording. Without it, only the calls that
compiled or fell back are drawn.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from course_lib import events, frames
from course_lib.viz.kit.arguments import RECORDED, Kind, shown, takes
from course_lib.viz.kit.style import SMALL, Picture, escape, human_seconds, plural, short_types
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.guards.guard_tables import about, readable, told
from course_lib.viz.pictures.guards.guard_trees import draw_diamond
from course_lib.viz.recording import Recording


class Served(events.Event):
    """A call was answered: by entry number `entry` (None: in eager).

    `call` is what it was called with."""

    name: str
    call: str
    entry: int | None
    code: Any = None


@dataclass
class Turn:
    """One column of the timeline: a call, and the number of the entry that served it (None: eager
    did)."""

    call: str = ""
    entry: int | None = None
    made: Any = None
    """What has its guards, if this call compiled the entry: a `CaptureResult`, or the `Check` where
    there is no graph."""
    seconds: float = 0.0
    failures: list[Any] = field(default_factory=list)
    """A `GuardFailed` for each entry that was tried, if that was told."""
    limit: str = ""
    """Why nothing was compiled, if the recompile limit was reached."""

    @property
    def words(self) -> list[str]:
        """The arguments, a line each; at most three lines."""
        # Not at a comma within brackets
        lines = re.split(r", (?![^\[(]*[\])])", self.call)
        if len(lines) <= 3:
            return lines
        return [*lines[:2], "…"]


def is_compiled(it: object) -> bool:
    return hasattr(it, "_course_original") or hasattr(it, "_course_model")


COMPILED = Kind("what cl.compile gave", is_compiled)


@takes(compiled=COMPILED)
def each_call(compiled: Any) -> Callable[..., Any]:
    """`compiled` (what `cl.compile` gave), which tells with every call which entry serves it."""
    original = getattr(compiled, "_course_original", None) or compiled._course_model.forward
    function = getattr(original, "__func__", original)
    own = [original.__self__] if inspect.ismethod(original) else []
    signature = inspect.signature(function)
    parameters = frames.parameters(function.__code__)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*own, *args, **kwargs)
        bound.apply_defaults()
        values = [bound.arguments[name] for name in parameters]

        # Ask before the call: it may change what the guards look at, and it may add an entry.
        entries = compiled._course_compiler.state_of(function.__code__).entries
        before = len(entries)
        entry = first_that_fits(entries, function, values)
        words = call_in_words(args, kwargs)

        result = compiled(*args, **kwargs)
        # (`entries` is the compiler's own list, and has grown if this call compiled one.)
        if entry is None and len(entries) > before:
            entry = len(entries)
        events.emit(Served(function.__qualname__, words, entry, function.__code__))
        return result

    return call


def first_that_fits(entries: Iterable[Any], function: Any, values: list[Any]) -> int | None:
    """The number of the entry whose guards hold, from 1; None if none fits."""
    for number, entry in enumerate(entries, 1):
        if not entry.check.first_failure(function, *values):
            return number
    return None


def call_in_words(args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """`f32[4, 8], k=3`."""
    words = [in_words(arg) for arg in args]
    words += [f"{name}={in_words(arg)}" for name, arg in kwargs.items()]
    return ", ".join(words)


def in_words(value: Any) -> str:
    """`f32[4, 8]`, `3`, `'mean'`, `<lambda>`."""
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return short_types(f"{dtype}{list(value.shape)}")
    return getattr(value, "__name__", None) or readable(repr(value))


# ---- the calls, read from a recording ------------------------------------------------------------


def code_number(event: Any) -> Any:
    """Which code object a frame has: two lambdas may share a name."""
    if event.code is None:
        return event.name
    return frames.number(event.code)


def turns(
    recording: Recording, which: str | Callable[..., Any] | None = None
) -> tuple[str, list[Turn]]:
    """The calls of one code object (by its name or function, by default the first that was seen),
    and its name.

    Raises LookupError if there is none."""
    first = first_seen(recording, which)
    number = code_number(first)
    served = any(code_number(event) == number for event in recording.of(Served))
    if served:
        return first.name, turns_served(recording, number)
    return first.name, turns_seen(recording, number)


def first_seen(recording: Recording, which: str | Callable[..., Any] | None) -> Any:
    """The first event about the function that is asked for; a call that was served says more than a
    frame."""
    code = getattr(getattr(which, "_course_original", which), "__code__", None)

    def is_asked(event: Any) -> bool:
        if which is None or event.name == which:
            return True
        return code is not None and event.code is code

    events_of_calls = [
        event for event in recording.events if isinstance(event, (Served, events.FrameSeen))
    ]
    events_of_function = [event for event in events_of_calls if is_asked(event)]
    for event in events_of_function:
        if isinstance(event, Served):
            return event
    if events_of_function:
        return events_of_function[0]

    name = "a compiled function"
    if which is not None:
        name = getattr(which, "__qualname__", shown(which))
    raise LookupError(f"no call of {name} while recording")


def turns_served(recording: Recording, number: Any) -> list[Turn]:
    """Calls through `each_call`: each ends with a `Served`."""
    turns = []
    turn = Turn()
    current = None  # the code of the frame that events are about
    for event in recording.events:
        if isinstance(event, events.FrameSeen):
            current = code_number(event)
            if current == number:
                turn = Turn()
        elif isinstance(event, Served) and code_number(event) == number:
            turn.call, turn.entry = event.call, event.entry
            turns.append(turn)
            turn = Turn()
        elif current == number:
            note(turn, event)
    return turns


def turns_seen(recording: Recording, number: Any) -> list[Turn]:
    """Calls that compiled or fell back: each begins with a `FrameSeen`, and lasts until the
    next."""
    turns = []
    turn = Turn()
    current = None  # the code of the frame that events are about
    for event in recording.events:
        if isinstance(event, events.FrameSeen):
            if current == number:
                turns.append(turn)
            current = code_number(event)
            turn = Turn()
        elif current == number:
            note(turn, event)

    if current == number:
        turns.append(turn)
    return turns


def note(turn: Turn, event: events.Event) -> None:
    """Add what an event says about the call that is under way.

    An entry is compiled when the guards of all entries before have failed, so their number tells
    the entry's."""
    if isinstance(event, events.GuardFailed):
        turn.failures.append(event)
    elif isinstance(event, events.GraphCaptured):
        turn.made, turn.entry = event.result, len(turn.failures) + 1
    elif isinstance(event, events.GuardsMade) and turn.made is None:
        # An entry without a graph: the frame breaks before its first operation.
        turn.made, turn.entry = event.check, len(turn.failures) + 1
    elif isinstance(event, events.FellBack) and "recompile limit" in event.why:
        turn.limit = event.why
    elif isinstance(event, events.FellBack) and "a guard does not hold" in event.why:
        # The entry was given up as soon as it was made.
        turn.made = turn.entry = None
    elif isinstance(event, events.StageTimed):
        turn.seconds += event.seconds


# ---- how the guards of two entries differ --------------------------------------------------------


def guard_diff(before: Iterable[Any], after: Iterable[Any]) -> tuple[list[str], list[str]]:
    """The tests that only `before` has, and those that only `after` has."""
    old, new = tests_of(before), tests_of(after)
    gone = [test for test in old if test not in new]
    come = [test for test in new if test not in old]
    return gone, come


def tests_of(guards: Iterable[Any]) -> dict[str, None]:
    """All tests as text, each once, in order."""
    texts: dict[str, None] = {}
    for guard in guards:
        for test in guard.tests:
            texts[readable(test.text(about(guard)))] = None
    return texts


@dataclass(frozen=True)
class EntryDiff:
    """How the guards of an entry differ from those of the entry before."""

    entry: str
    call: str
    gone: list[str]
    come: list[str]

    def html_row(self) -> list[str]:
        cells = [escape(self.entry), escape(self.call)]
        return [*cells, code_lines(self.gone), code_lines(self.come)]

    def __str__(self) -> str:
        lines = [f"{self.entry} against the entry before:"]
        lines += [f"  − {line}" for line in lines_of(self.gone)]
        lines += [f"  + {line}" for line in lines_of(self.come)]
        return "\n".join(lines)


def diffs_of(calls: list[Turn]) -> list[EntryDiff]:
    """One for each entry but the first."""
    # The calls that compiled an entry
    makers = [(number, turn) for number, turn in enumerate(calls, 1) if turn.made is not None]
    diffs = []
    for (_, before), (number, after) in itertools.pairwise(makers):
        gone, come = guard_diff(before.made.guards, after.made.guards)
        diffs.append(EntryDiff(f"entry {after.entry}", f"call {number}", gone, come))
    return diffs


def lines_of(tests: Iterable[str]) -> list[str]:
    """Tests, a line each; a dash where there is none."""
    lines = [line for test in tests for line in test.splitlines()]
    return lines or ["–"]


def code_lines(tests: Iterable[str]) -> str:
    return "<br>".join(f"<code>{escape(line)}</code>" for line in lines_of(tests))


# ---- the drawing ---------------------------------------------------------------------------------

COLUMN, NARROW_COLUMN, MANY_CALLS = 92, 77.0, 7
"""px: the width of a call. From so many calls on it is narrow: eight calls with `f32[4, 16]` fit in
a narrow window."""
LANE, LEFT, LINE = 40, 134, 16
"""px: the height of an entry, where the calls begin, and the height of a line of arguments."""
HALF_BOX, RADIUS = 35, 9
"""px: half the width of the frame "compiled", and the radius of a circle."""
ARGUMENTS = 36
"""px: the base line of the first line of arguments."""
HEADER = ("call", "with", "tried in vain", "served by", "because")
CAPTION = "Framed: compiled at this call. Circle: served by this entry. Crossed diamond: tried, and a guard failed."


@takes(recording=RECORDED)
def timeline(recording: Recording, which: str | Callable[..., Any] | None = None) -> Picture:
    """Calls left to right, a lane for each entry and one for eager; below, how the guards of each
    entry differ from the last.

    Raises LookupError if no call was recorded."""
    name, calls = turns(recording, which)
    drawing = TimelineDrawing(name, calls)
    drawing.draw()

    compiled = sum(turn.made is not None for turn in calls)
    eager = sum(turn.entry is None for turn in calls)
    served = len(calls) - compiled - eager
    alt = f"{plural(len(calls), 'call')} of {name}: {compiled} compiled an entry, {served} were served by "
    alt += f"an entry that was there, {eager} ran in eager."

    body = drawing.svg.render(alt)
    text = [columns([row_of(i, turn) for i, turn in enumerate(calls, 1)], HEADER)]
    diffs = diffs_of(calls)
    if diffs:
        titles = ("entry", "made at", "no longer tested", "tested instead")
        body += html_table([diff.html_row() for diff in diffs], titles)
        text += [str(diff) for diff in diffs]

    html = f'<div class="cl-scroll">{body}</div>'
    return Picture(html, CAPTION, alt, "\n\n".join(text), sheets=("guards",))


def row_of(number: int, turn: Turn) -> tuple[str, ...]:
    """A call as a line of the plain text."""
    tried = turn.entry - 1 if turn.entry is not None else len(turn.failures)
    in_vain = ", ".join(map(str, range(1, tried + 1))) or "–"

    served_by = "eager"
    if turn.entry is not None:
        compiled = ", compiled" if turn.made is not None else ""
        served_by = f"entry {turn.entry}{compiled}"

    because = ""
    if turn.failures:
        because = told(turn.failures[-1])
    if turn.limit:
        because += " (recompile limit reached)"
    return str(number), turn.call, in_vain, served_by, because


class TimelineDrawing:
    """The timeline while it is drawn."""

    def __init__(self, name: str, calls: list[Turn]) -> None:
        self.name = name
        self.calls = calls
        self.entries = max(turn.entry or 0 for turn in calls)
        has_eager = any(turn.entry is None for turn in calls)
        self.lanes = self.entries + has_eager

        self.top = ARGUMENTS + 6 + LINE * max(len(turn.words) for turn in calls)
        self.column: float = COLUMN
        right = 20  # px that stay free on the right
        if len(calls) >= MANY_CALLS:
            self.column = NARROW_COLUMN
            right = 12
        self.end = LEFT + self.column * len(calls)
        self.svg = Svg(self.end + right, self.top + LANE * self.lanes + 14)

    def middle_of(self, lane: int) -> float:
        """px from the top."""
        return self.top + LANE * lane + LANE / 2

    def centre_of(self, call: int) -> float:
        """px from the left. (It stands left of its column's middle: names of entries are short.)"""
        return LEFT + self.column * (call + 0.5) - 24

    def draw(self) -> None:
        name = shorten(self.name, LEFT - 16, mono=True, bold=True)
        self.svg.text(4, 16, name, bold=True, mono=True, tip=self.name)
        self.svg.text(4, ARGUMENTS, "calls, in order →", SMALL, dim=True)
        for lane in range(self.lanes):
            self.draw_lane(lane)
        for call in range(len(self.calls)):
            self.draw_call(call)

    def draw_lane(self, lane: int) -> None:
        """The name of an entry, and a line that leaves out the boxes on it."""
        is_eager = lane == self.entries
        y = self.middle_of(lane)
        label = "eager" if is_eager else f"entry {lane + 1}"
        self.svg.text(4, y + 4, label, stage="eager" if is_eager else "guards", bold=True)

        start: float = LEFT - 62  # behind the name
        for call, turn in enumerate(self.calls):
            if turn.made is not None and turn.entry == lane + 1:
                centre = self.centre_of(call)
                self.draw_line(start, centre - HALF_BOX, y, is_eager)
                start = centre + HALF_BOX
        self.draw_line(start, self.end, y, is_eager)

    def draw_line(self, start: float, end: float, y: float, dashed: bool) -> None:
        self.svg.path(f"M{start} {y} H{end}", line=1, opacity=0.25, dashed=dashed)

    def draw_call(self, call: int) -> None:
        """One call: arguments, a cross on every entry that did not fit, and who served it."""
        turn, x = self.calls[call], self.centre_of(call)
        self.svg.text(x, 16, f"call {call + 1}", SMALL, anchor="middle", dim=True)
        for line, word in enumerate(turn.words):
            short = shorten(word, self.column - 6, SMALL, mono=True)
            base_line = ARGUMENTS + LINE * line
            self.svg.text(x, base_line, short, SMALL, anchor="middle", mono=True, tip=turn.call)

        # Eager has the lane below all entries. Entries are tried in their order: all above the one
        # that served the call were tried in vain.
        in_eager = turn.entry is None
        lane = self.entries if turn.entry is None else turn.entry - 1
        in_vain = len(turn.failures) if in_eager else lane
        for tried in range(in_vain):
            draw_diamond(self.svg, x, self.middle_of(tried), "break")

        y = self.middle_of(lane)
        if in_vain or in_eager:
            self.svg.arrow([(x, self.top - 14), (x, y - 15)], line=1.2, opacity=0.35)
        self.draw_answer(turn, x, y)

    def draw_answer(self, turn: Turn, x: float, y: float) -> None:
        """A frame where an entry was compiled, a circle where one served the call, a dashed one for
        eager."""
        tip = "; ".join(told(failure) for failure in turn.failures)
        if turn.made is not None:
            left, wide = x - HALF_BOX, 2 * HALF_BOX
            self.svg.box(left, y - 14, wide, 28, "guards", line=3.5, radius=4, tip=tip)
            tip = tip or human_seconds(turn.seconds)
            self.svg.text(x, y + 4, "compiled", SMALL, anchor="middle", tip=tip)
            return

        in_eager = turn.entry is None
        stage = "eager" if in_eager else "guards"
        self.svg.box(
            x - RADIUS,
            y - RADIUS,
            2 * RADIUS,
            2 * RADIUS,
            stage,
            radius=RADIUS,
            strength=0.7,
            line=2,
            dashed=in_eager,
            tip=tip,
        )
