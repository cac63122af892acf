"""Recompiles as a timeline: which entry served each call, which ones were tried in vain, and where one was compiled.

In:  a recording, best of calls made through `each_call`. Out: a `Picture`.

A call that fits an entry is answered in C and tells nobody. `each_call(compiled)` asks the checks itself before each call and
puts what it learns into the recording. Without it, only the calls that compiled or fell back are drawn.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from course_lib import events, frames
from course_lib.viz.kit.asked import RECORDED, Kind, shown, takes
from course_lib.viz.kit.style import SMALL, Picture, escape, human_seconds, plural, short_types
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns, html_table
from course_lib.viz.pictures.guards.guard_tables import about, readable, told
from course_lib.viz.pictures.guards.guard_trees import draw_diamond
from course_lib.viz.recording import Recording


class Served(events.Event):
    """A call was answered: by entry number `entry` (None: in eager). `call` is what it was called with."""

    name: str
    call: str
    entry: int | None
    code: Any = None


@dataclass
class Turn:
    """One column of the timeline."""

    call: str = ""
    entry: int | None = None
    made: Any = None
    """What has its guards, if this call compiled the entry: a `CaptureResult`, or the `Check` where there is no graph."""
    seconds: float = 0.0
    failures: list[Any] = field(default_factory=list)
    """A `GuardFailed` for each entry that was tried, if that was told."""
    limit: str = ""

    @property
    def words(self) -> list[str]:
        """The arguments, a line each; at most three lines."""
        lines = re.split(r", (?![^\[(]*[\])])", self.call)
        return lines if len(lines) <= 3 else [*lines[:2], "…"]


COMPILED = Kind(
    "what cl.compile gave",
    lambda it: any(hasattr(it, name) for name in ("_course_original", "_course_model")),
)


@takes(compiled=COMPILED)
def each_call(compiled: Any) -> Callable[..., Any]:
    """`compiled` (what `cl.compile` gave), which tells with every call which entry serves it."""
    original = getattr(compiled, "_course_original", None) or compiled._course_model.forward
    function = getattr(original, "__func__", original)
    own = [original.__self__] if inspect.ismethod(original) else []
    signature, parameters = inspect.signature(function), frames.parameters(function.__code__)

    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*own, *args, **kwargs)
        bound.apply_defaults()
        entries = compiled._course_compiler.state_of(function.__code__).entries
        before = len(entries)
        flat = [bound.arguments[name] for name in parameters]
        fits = next(
            (
                i
                for i, entry in enumerate(entries, 1)
                if not entry.check.first_failure(function, *flat)
            ),
            None,
        )
        words = ", ".join(
            [in_words(arg) for arg in args]
            + [f"{name}={in_words(arg)}" for name, arg in kwargs.items()]
        )
        result = compiled(*args, **kwargs)
        entry = fits or (len(entries) if len(entries) > before else None)
        events.emit(Served(function.__qualname__, words, entry, function.__code__))
        return result

    return call


def in_words(value: Any) -> str:
    """`f32[4, 8]`, `3`, `'mean'`, `<lambda>`."""
    if isinstance(value, torch.Tensor):
        return short_types(f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}")
    return getattr(value, "__name__", None) or readable(repr(value))


def code_number(event: Any) -> Any:
    """Which code object a frame has: two lambdas may share a name."""
    return event.name if event.code is None else frames.number(event.code)


def turns(
    recording: Recording, which: str | Callable[..., Any] | None = None
) -> tuple[str, list[Turn]]:
    """The calls of one code object (by its name or function, by default the first that was seen), and its name."""
    seen = [event for event in recording.events if isinstance(event, (Served, events.FrameSeen))]
    code = getattr(getattr(which, "_course_original", which), "__code__", None)
    asked = [
        event
        for event in seen
        if which is None or event.name == which or (code is not None and event.code is code)
    ]
    first = next((event for event in asked if isinstance(event, Served)), next(iter(asked), None))
    if first is None:
        name = (
            "a compiled function" if which is None else getattr(which, "__qualname__", shown(which))
        )
        raise LookupError(f"no call of {name} while recording")
    mine = code_number(first)
    served = any(code_number(event) == mine for event in recording.of(Served))
    found: list[Turn] = []
    turn, current = Turn(), None
    for event in recording.events:
        if isinstance(event, events.FrameSeen):
            if current == mine and not served:
                found.append(turn)
            current = code_number(event)
            if not served or current == mine:
                turn = Turn()
        elif isinstance(event, Served) and code_number(event) == mine:
            turn.call, turn.entry = event.call, event.entry
            found.append(turn)
            turn = Turn()
        elif current == mine:
            note(turn, event)
    if current == mine and not served:
        found.append(turn)
    return first.name, found


def note(turn: Turn, event: events.Event) -> None:
    """Add what an event says about the call that is under way."""
    if isinstance(event, events.GuardFailed):
        turn.failures.append(event)
    elif isinstance(event, events.GraphCaptured):
        turn.made, turn.entry = event.result, len(turn.failures) + 1
    elif isinstance(event, events.GuardsMade) and turn.made is None:
        # an entry without a graph: a break comes first
        turn.made, turn.entry = event.check, len(turn.failures) + 1
    elif isinstance(event, events.FellBack) and "recompile limit" in event.why:
        turn.limit = event.why
    elif isinstance(event, events.FellBack) and "a guard does not hold" in event.why:
        turn.made = turn.entry = None
    elif isinstance(event, events.StageTimed):
        turn.seconds += event.seconds


def guard_diff(before: Iterable[Any], after: Iterable[Any]) -> tuple[list[str], list[str]]:
    """The tests that only `before` has, and those that only `after` has."""
    both = [
        {readable(test.text(about(guard))): None for guard in guards for test in guard.tests}
        for guards in (before, after)
    ]
    return [test for test in both[0] if test not in both[1]], [
        test for test in both[1] if test not in both[0]
    ]


COLUMN, LANE, LEFT, LINE = 92, 40, 134, 16
"""px: the width of a call, the height of an entry, where they begin, and the height of a line of arguments."""


@takes(recording=RECORDED)
def timeline(recording: Recording, which: str | Callable[..., Any] | None = None) -> Picture:
    """Calls left to right, a lane for each entry and one for eager; below, how the guards of each entry differ from the last."""
    name, calls = turns(recording, which)
    lanes = max([turn.entry or 0 for turn in calls])
    has_eager = any(turn.entry is None for turn in calls)
    top = 42 + LINE * max(len(turn.words) for turn in calls)
    # eight calls with `f32[4, 16]` fit in a narrow window
    column, right = (COLUMN, 20) if len(calls) < 7 else (77.0, 12)
    svg = Svg(LEFT + column * len(calls) + right, top + LANE * (lanes + has_eager) + 14)
    svg.text(4, 16, shorten(name, LEFT - 16, mono=True, bold=True), bold=True, mono=True, tip=name)
    svg.text(4, 36, "calls, in order →", SMALL, dim=True)
    for lane in range(lanes + has_eager):
        label, y = ("eager" if lane == lanes else f"entry {lane + 1}"), top + LANE * lane + LANE / 2
        svg.text(4, y + 4, label, stage="eager" if lane == lanes else "guards", bold=True)
        boxes = [
            i for i, turn in enumerate(calls) if turn.made is not None and turn.entry == lane + 1
        ]
        ends = [
            LEFT - 62,
            *(
                x
                for i in boxes
                for x in (LEFT + column * (i + 0.5) - 59, LEFT + column * (i + 0.5) + 11)
            ),
            LEFT + column * len(calls),
        ]
        for start, end in zip(ends[::2], ends[1::2], strict=True):
            svg.path(f"M{start} {y} H{end}", line=1, opacity=0.25, dashed=lane == lanes)
    rows = [
        draw_turn(svg, LEFT + column * (i + 0.5) - 24, column, i, turn, lanes, top)
        for i, turn in enumerate(calls)
    ]
    header = ("call", "with", "tried in vain", "served by", "because")
    entries = [
        (turn.entry, turn.made, i) for i, turn in enumerate(calls, 1) if turn.made is not None
    ]
    diffs = []
    for (_, old, _), (entry, new, call) in itertools.pairwise(entries):
        gone, come = guard_diff(old.guards, new.guards)
        diffs.append(
            (f"entry {entry}", f"call {call}", "\n".join(gone) or "–", "\n".join(come) or "–")
        )
    compiled = sum(turn.made is not None for turn in calls)
    eager = sum(turn.entry is None for turn in calls)
    alt = f"{plural(len(calls), 'call')} of {name}: {compiled} compiled an entry, {len(calls) - compiled - eager} were served by "
    alt += f"an entry that was there, {eager} ran in eager."
    text = [columns(rows, header)]
    body = [svg.render(alt)]
    if diffs:
        titles = ("entry", "made at", "no longer tested", "tested instead")
        cells = [[escape(a), escape(b), code_lines(c), code_lines(d)] for a, b, c, d in diffs]
        body.append(html_table(cells, titles))
        text += [
            f"{a} against the entry before:\n" + told_diff(c, "−") + "\n" + told_diff(d, "+")
            for a, _, c, d in diffs
        ]
    caption = "Framed: compiled at this call. Circle: served by this entry. Crossed diamond: tried, and a guard failed."
    return Picture(
        f'<div class="cl-scroll">{"".join(body)}</div>',
        caption,
        alt,
        "\n\n".join(text),
        ("guards",),
    )


def code_lines(text: str) -> str:
    return "<br>".join(f"<code>{escape(line)}</code>" for line in text.splitlines())


def told_diff(text: str, sign: str) -> str:
    return "\n".join(f"  {sign} {line}" for line in text.splitlines())


def draw_turn(
    svg: Svg, x: float, wide: float, i: int, turn: Turn, lanes: int, top: float
) -> tuple[str, ...]:
    """One call around `x`: arguments, a cross on every entry that did not fit, and who served it. Gives its line of the text."""
    svg.text(x, 16, f"call {i + 1}", SMALL, anchor="middle", dim=True)
    for line, word in enumerate(turn.words):
        short = shorten(word, wide - 6, SMALL, mono=True)
        svg.text(x, 36 + LINE * line, short, SMALL, anchor="middle", mono=True, tip=turn.call)
    lane = lanes if turn.entry is None else turn.entry - 1
    vain = lane if turn.entry is not None else len(turn.failures)
    whys = [told(failure) for failure in turn.failures]
    for tried in range(vain):
        draw_diamond(svg, x, top + LANE * tried + LANE / 2, "break")
    y = top + LANE * lane + LANE / 2
    if vain or turn.entry is None:
        svg.arrow([(x, top - 14), (x, y - 15)], line=1.2, opacity=0.35)
    stage = "eager" if turn.entry is None else "guards"
    tip = "; ".join(whys)
    if turn.made is not None:
        svg.box(x - 35, y - 14, 70, 28, "guards", line=3.5, radius=4, tip=tip)
        svg.text(
            x, y + 4, "compiled", SMALL, anchor="middle", tip=tip or human_seconds(turn.seconds)
        )
    else:
        svg.box(
            x - 9,
            y - 9,
            18,
            18,
            stage,
            radius=9,
            strength=0.7,
            line=2,
            dashed=turn.entry is None,
            tip=tip,
        )
    who = (
        "eager"
        if turn.entry is None
        else f"entry {turn.entry}" + (", compiled" if turn.made is not None else "")
    )
    because = (whys[-1] if whys else "") + (" (recompile limit reached)" if turn.limit else "")
    return str(i + 1), turn.call, ", ".join(map(str, range(1, vain + 1))) or "–", who, because
