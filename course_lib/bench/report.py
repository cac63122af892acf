"""Outcomes as text for the terminal, as a row of the text's table, as JSON and as a picture."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from course_lib.bench.compare import Outcome, Program
from course_lib.bench.measure import Samples, human_time, three_digits

HEAD = ("", "median", "p10 – p90", "vs eager", "vs torch.compile", "first call", "max abs diff")


class MissingPackage(Exception):
    """Something optional is not installed; the message says what to do."""


def table(outcomes: Sequence[Outcome]) -> str:
    """One line for each contender.

    Ratios say how many times faster than eager and than torch.compile it is."""
    return columns([HEAD, *(line_of(outcome, outcomes) for outcome in outcomes)])


def line_of(outcome: Outcome, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The cells of one contender, in the order of `HEAD`."""
    compiled = outcome.name != "eager"
    first = "–"
    if compiled and outcome.first_call:
        first = human_time(outcome.first_call)
    samples = outcome.samples
    if samples is None:
        return (outcome.name, "–", "–", "–", "–", first, "not timed: see below")

    return (
        outcome.name,
        human_time(samples.median),
        f"{human_time(samples.p10)} – {human_time(samples.p90)}",
        ratio(outcome, outcomes, "eager"),
        ratio(outcome, outcomes, "torch.compile"),
        first,
        f"{outcome.max_abs_diff:.1e}" if compiled else "–",
    )


def speedup(outcome: Outcome, outcomes: Sequence[Outcome], base: str) -> float | None:
    """How many times faster than `base`; None where one of the two was not timed."""
    other = next((each for each in outcomes if each.name == base), None)
    if other is None or other.samples is None or outcome.samples is None:
        return None
    return outcome.samples.times_faster_than(other.samples)


def ratio(outcome: Outcome, outcomes: Sequence[Outcome], base: str) -> str:
    value = speedup(outcome, outcomes, base)
    if value is None:
        return "–"
    return f"{value:.2f}×"


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells, the first column flush left, the others right; the last cell of a row may be
    as long as it likes."""
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    lines = []
    for name, *middle, last in rows:
        cells = [cell.rjust(width) for cell, width in zip(middle, widths[1:], strict=True)]
        lines.append("  ".join([name.ljust(widths[0]), *cells, last]).rstrip())
    return "\n".join(lines)


def programs(outcomes: Sequence[Outcome]) -> str:
    """What each compiler made of the workload, and what must be known about its numbers."""
    notes_by_name = [(outcome.name, notes_of(outcome)) for outcome in outcomes]
    return "\n".join(f"{name}: {notes}" for name, notes in notes_by_name if notes)


def notes_of(outcome: Outcome) -> str:
    """What was compiled, what went wrong, and what else must be known."""
    parts = []
    if outcome.program:
        parts.append(str(outcome.program))
    if outcome.problem:
        parts.append(outcome.problem)
    return "; ".join([*parts, *outcome.notes])


def markdown_rows(
    outcomes: Sequence[Outcome], environment: str, mode: str, shape: Sequence[int]
) -> str:
    """The result table of the text, one row for each compiler."""
    eager = next(outcome for outcome in outcomes if outcome.name == "eager")
    base = "–"
    if eager.samples:
        base = human_time(eager.samples.median)
    lines = [
        "| Environment | mode | shape | eager | compile | speedup | notes |",
        "|---|---|---|---|---|---|---|",
    ]
    size = " × ".join(map(str, shape))
    for outcome in outcomes:
        # Its time stands in a column of each row
        if outcome is eager:
            continue
        median_time = "–"
        if outcome.samples:
            median_time = human_time(outcome.samples.median)
        notes = f"{outcome.name}: {notes_of(outcome)}"
        if outcome.first_call:
            notes += f"; first call {human_time(outcome.first_call)}"
        cells = (
            environment,
            mode,
            size,
            base,
            median_time,
            ratio(outcome, outcomes, "eager"),
            notes,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def as_json(outcome: Outcome, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Everything about one contender, raw samples included. Times are in seconds."""
    samples = outcome.samples
    return {
        "name": outcome.name,
        "problem": outcome.problem or None,
        "wrong": outcome.wrong,
        "notes": outcome.notes,
        "first_call": outcome.first_call,
        "max_abs_diff": outcome.max_abs_diff,
        "program": vars(outcome.program) if outcome.program else None,
        "median": samples.median if samples else None,
        "p10": samples.p10 if samples else None,
        "p90": samples.p90 if samples else None,
        "times_faster_than_eager": speedup(outcome, outcomes, "eager"),
        "times_faster_than_torch_compile": speedup(outcome, outcomes, "torch.compile"),
        "calls_per_sample": samples.calls if samples else None,
        "samples": list(samples.seconds) if samples else [],
    }


RECORDED = Path(__file__).with_name("recorded")


def recorded(name: str) -> tuple[dict[str, Any], list[Outcome]]:
    """What `--json` wrote on another machine (`bench/recorded/`): all of the file, and its
    outcomes."""
    content = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return content, [from_json(each) for each in content.get("results", ())]


def from_json(record: dict[str, Any]) -> Outcome:
    """The outcome that `as_json` wrote."""
    samples = (
        Samples(tuple(record["samples"]), record["calls_per_sample"]) if record["samples"] else None
    )
    program = Program(**record["program"]) if record["program"] else None
    numbers = (record["first_call"], record["max_abs_diff"], samples, program)
    return Outcome(
        record["name"], *numbers, record["problem"] or "", record["wrong"], record["notes"]
    )


def write_json(where: str, record: dict[str, Any]) -> None:
    """To a file, or to standard output for `-`."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    if where == "-":
        sys.stdout.write(text)
    else:
        Path(where).parent.mkdir(parents=True, exist_ok=True)
        Path(where).write_text(text, encoding="utf-8")


def text_stream(json_path: str | None) -> TextIO:
    """Where the text goes: to standard error when standard output is for JSON."""
    if json_path == "-":
        return sys.stderr
    return sys.stdout


def need_matplotlib() -> None:
    """Raise before anything is measured if the picture could not be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise MissingPackage(
            "--plot needs matplotlib: pip install matplotlib, or leave --plot out"
        ) from None


def plot(path: str, title: str, outcomes: Sequence[Outcome]) -> None:
    """A bar at each median with every sample as a tick: the spread is part of the answer."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    timed = [(outcome.name, outcome.samples) for outcome in outcomes if outcome.samples]
    # Text stays text, and the same data give the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "course_lib"}):
        figure = Figure(figsize=(7, 1.2 + 0.55 * len(timed)), layout="constrained")
        axes = figure.subplots()
        for y, (name, samples) in enumerate(timed):
            draw_samples(axes, y, name, samples)

        labels = [f"{name}\n{three_digits(1e3 * one.median)} ms" for name, one in timed]
        axes.set_yticks(range(len(timed)), labels)
        axes.invert_yaxis()
        axes.set_xlim(left=0)
        axes.set_xlabel("ms per call: bar = median, each tick one sample")
        axes.set_title(title, fontsize=10)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)

        Path(path).parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.endswith(".svg") else None)


def draw_samples(axes: Any, y: int, name: str, samples: Samples) -> None:
    """The line of one contender; ours is blue."""
    colour = "#4c78a8" if name == "course_lib" else "#c7c7c7"
    axes.barh(y, 1e3 * samples.median, height=0.55, color=colour)

    milliseconds = [1e3 * second for second in samples.seconds]
    places = [y] * len(milliseconds)
    axes.plot(milliseconds, places, "|", color="#222222", markersize=9, alpha=0.5)
